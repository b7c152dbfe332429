//! Results on their way to the host, through a small ring of pinned buffers.

use core::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, mpsc};

use rayon::prelude::*;

use super::device::{Array, Piece, Stage, values};
use super::driver::{Fault, HostMemory, Transfer};
use super::session::Result;
use crate::exec::pool::{self, Pool};
use crate::memory::{Zeroable, copy_around_cache, touch};
use crate::plan::batches::DEPTH;
use crate::scalar::Scalar;

/// Copies under way, each with what it is.
pub(super) struct Ring<Tag> {
    flying: VecDeque<(Vec<Box<dyn Transfer>>, Tag)>,
    pub(super) bytes: u64,
}

/// What has landed: one piece of host memory for each array, with its bytes.
pub(super) type Landed = Vec<Box<dyn HostMemory>>;

impl<Tag> Ring<Tag> {
    pub(super) fn new() -> Self {
        Ring { flying: VecDeque::new(), bytes: 0 }
    }

    /// Sends pieces of arrays off together. What this makes too many is landed first, the oldest.
    pub(super) fn send(
        &mut self,
        stage: &Stage,
        pieces: &[Piece<'_>],
        tag: Tag,
        land: &mut impl FnMut(Tag, Landed) -> Result<()>,
    ) -> Result<()> {
        while self.flying.len() >= DEPTH {
            self.land_one(land)?;
        }
        let mut transfers = Vec::with_capacity(pieces.len());
        for piece in pieces {
            transfers.push(stage.copy_out(*piece)?);
            self.bytes += piece.bytes() as u64;
        }
        self.flying.push_back((transfers, tag));
        Ok(())
    }

    /// Lands all that is under way.
    pub(super) fn drain(&mut self, land: &mut impl FnMut(Tag, Landed) -> Result<()>) -> Result<()> {
        while !self.flying.is_empty() {
            self.land_one(land)?;
        }
        Ok(())
    }

    fn land_one(&mut self, land: &mut impl FnMut(Tag, Landed) -> Result<()>) -> Result<()> {
        let Some((transfers, tag)) = self.flying.pop_front() else { return Ok(()) };
        // Waits for the device alone, which does its work or says that it is lost.
        let landed: core::result::Result<Landed, Fault> =
            transfers.into_iter().map(|transfer| transfer.wait()).collect();
        land(tag, landed?)
    }
}

/// Brings the first `len` numbers of an array to the host, `chunk` bytes at a time, and calls
/// `take` with pieces of them, each with its place, on all threads of the pool, or on this one
/// where there is none. Gives the bytes moved.
pub(super) fn land<V: bytemuck::Pod + Send + Sync>(
    stage: &Stage,
    pool: Option<&Pool>,
    chunk: usize,
    array: &Array<V>,
    len: usize,
    take: impl Fn(usize, &[V]) + Sync,
) -> Result<u64> {
    /// Bytes that a thread takes at a time.
    const PIECE: usize = 1 << 19;
    let size = size_of::<V>();
    let (chunk, piece) = ((chunk / size).max(1), PIECE / size);
    let mut ring = Ring::new();
    let mut place = |start: usize, landed: Landed| {
        let from = values::<V>(&*landed[0], 0, chunk.min(len - start) * size);
        let take = |(number, piece_of): (usize, &[V])| take(start + number * piece, piece_of);
        // Threads of the pool copy and never wait.
        match pool {
            Some(pool) => pool.install(|| from.par_chunks(piece).enumerate().for_each(take)),
            None => from.chunks(piece).enumerate().for_each(take),
        }
        Ok(())
    };
    for start in (0..len).step_by(chunk) {
        let of = array.piece(start..len.min(start + chunk));
        ring.send(stage, &[of], start, &mut place)?;
    }
    ring.drain(&mut place)?;
    Ok(ring.bytes)
}

/// Runs `work`, which sends things off, with up to `threads` threads that take each as it lands:
/// whoever waits for one has nothing else to do, and all that the bus needs is that somebody does. A
/// thread more is started for each that is sent, so that nothing waits for threads that it does not
/// need. Returns when all have ended.
pub(super) fn with_landers<I: Send>(
    threads: usize,
    take: impl Fn(usize, I) -> Result<()> + Sync,
    work: impl FnOnce(&Sender<'_, I>) -> Result<()>,
) -> Result<()> {
    let (send, receive) = mpsc::sync_channel::<I>(DEPTH);
    // `send` never waits for room that nobody makes: as long as there are threads to come, each that is
    // sent has a new one that takes one at least; and then the threads alone hold the receiver, and
    // when the last of them has ended, with an error or a panic, the channel closes.
    let receive = Arc::new(Mutex::new(receive));
    std::thread::scope(|scope| {
        let spawn = |number: usize, receive: &Arc<Mutex<mpsc::Receiver<I>>>| {
            let (receive, take) = (Arc::clone(receive), &take);
            pool::spawn(scope, move || {
                loop {
                    // Waits until there is something, or the sender is dropped, which happens before
                    // the threads are joined. Whoever waits for the lock waits for the same.
                    let next = receive.lock().unwrap_or_else(|e| e.into_inner()).recv();
                    let Ok(item) = next else { return Ok(()) };
                    take(number, item)?;
                }
            })
        };
        // The receiver is here until all threads are there, and then with them alone.
        let landers = RefCell::new((vec![spawn(0, &receive)?], (threads > 1).then_some(receive)));
        let gone = |_| Fault::Failed { reason: "a result did not land".into() };
        // Waits for a thread that takes one, and fails when there is none. Dropped before the threads
        // are joined, in a panic too.
        let sending = |item: I| {
            let (landers, receive) = &mut *landers.borrow_mut();
            if let Some(from) = receive.take() {
                let number = landers.len();
                if let Ok(lander) = spawn(number, &from) {
                    landers.push(lander);
                    *receive = (number + 1 < threads).then_some(from);
                }
            }
            Ok(send.send(item).map_err(gone)?)
        };
        let done = work(&sending);
        drop(send);
        let mut landed = Ok(());
        for lander in landers.into_inner().0 {
            match lander.join() {
                Ok(result) => landed = landed.and(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        // What went wrong there made the channel close, which is no news.
        landed.and(done)
    })
}

/// Sends something off, to be taken when it lands.
pub(super) type Sender<'a, I> = dyn Fn(I) -> Result<()> + 'a;

/// Pieces that land while others are on the bus, each copied by one of several threads.
///
/// A thread that waits for a copy and then moves it is all that the bus needs to be kept busy:
/// sharing each piece between threads would cost more than it saves.
pub(super) struct Landing<'s, 'scope, T> {
    send: &'s Sender<'s, Sent<'scope, T>>,
    /// Of each piece, in the order in which they were sent: which array, and its end there.
    sent: Vec<(bool, usize)>,
    /// Elements of ids, and of distances, that were sent.
    ends: [usize; 2],
    bytes: u64,
}

/// A piece with its number.
type Sent<'a, T> = (usize, Box<dyn Transfer>, Destination<'a, T>);

/// Where a piece belongs.
pub(super) enum Destination<'a, T> {
    Ids(&'a mut [u32]),
    Distances(&'a mut [T]),
}

/// How much of each array has landed, from its beginning on without a gap.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrived {
    pub(super) ids: usize,
    pub(super) distances: usize,
}

/// Pieces that have landed: all before the first, and some behind it.
#[derive(Default)]
struct Record {
    first: usize,
    behind: BTreeSet<usize>,
}

impl Record {
    fn add(&mut self, number: usize) {
        self.behind.insert(number);
        while self.behind.remove(&self.first) {
            self.first += 1;
        }
    }
}

impl<'scope, T: Scalar> Landing<'_, 'scope, T> {
    /// Runs `work`, which sends pieces off, with `threads` threads at the most to land them, in
    /// `fresh` memory or not. Gives the bytes moved, and what has arrived in any case.
    pub(super) fn run(
        threads: usize,
        fresh: bool,
        work: impl FnOnce(&mut Landing<'_, 'scope, T>) -> Result<()>,
    ) -> (Result<u64>, Arrived) {
        let record = Mutex::new(Record::default());
        let (mut sent, mut bytes) = (Vec::new(), 0);
        let land = |_, (number, transfer, destination): Sent<'scope, T>| {
            land_at(transfer, destination, fresh)?;
            record.lock().unwrap_or_else(|e| e.into_inner()).add(number);
            Ok(())
        };
        let done = with_landers(threads, land, |send| {
            let mut landing = Landing { send, sent: Vec::new(), ends: [0; 2], bytes: 0 };
            let done = work(&mut landing);
            (sent, bytes) = (landing.sent, landing.bytes);
            done
        });
        let done = done.map(|()| bytes);
        let first = record.into_inner().unwrap_or_else(|e| e.into_inner()).first;
        let mut arrived = Arrived::default();
        for &(distances, end) in &sent[..first.min(sent.len())] {
            *(if distances { &mut arrived.distances } else { &mut arrived.ids }) = end;
        }
        (done, arrived)
    }

    /// Sends the first elements of an array off, in pieces of about `chunk` bytes, to where they
    /// belong. `check` is asked after each whether to go on.
    pub(super) fn send<V>(
        &mut self,
        stage: &Stage,
        array: &Array<V>,
        to: &'scope mut [V],
        chunk: usize,
        destination: impl Fn(&'scope mut [V]) -> Destination<'scope, T>,
        check: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let mut start = 0;
        for to in to.chunks_mut((chunk / size_of::<V>()).max(1)) {
            let (piece, len) = (array.piece(start..start + to.len()), to.len());
            start += len;
            self.bytes += piece.bytes() as u64;
            let transfer = stage.copy_out(piece)?;
            let destination = destination(to);
            let distances = matches!(destination, Destination::Distances(_));
            let end = &mut self.ends[usize::from(distances)];
            *end += len;
            let number = self.sent.len();
            self.sent.push((distances, *end));
            (self.send)((number, transfer, destination))?;
            check()?;
        }
        Ok(())
    }
}

/// Waits for a piece, and copies it to where it belongs.
fn land_at<T: Scalar>(
    transfer: Box<dyn Transfer>,
    destination: Destination<'_, T>,
    fresh: bool,
) -> core::result::Result<(), Fault> {
    match destination {
        Destination::Ids(ids) => {
            land_piece(transfer, ids, fresh, |host| values(host, 0, host.bytes().len() / 4 * 4))
        }
        Destination::Distances(distances) => {
            land_piece(transfer, distances, fresh, |host| T::from_bytes(host.bytes()))
        }
    }
}

/// Waits for a piece, and copies it to its place.
///
/// The pages of a `fresh` place are touched while the piece is on the bus. The system leaves the
/// zeros that it writes there in the cache, so the copy goes there too: around it, both would have
/// to be written to memory.
fn land_piece<V: Zeroable>(
    transfer: Box<dyn Transfer>,
    to: &mut [V],
    fresh: bool,
    values: impl FnOnce(&dyn HostMemory) -> &[V],
) -> core::result::Result<(), Fault> {
    if fresh {
        touch(to);
    }
    let host = transfer.wait()?;
    let from = &values(&*host)[..to.len()];
    match fresh {
        true => to.copy_from_slice(from),
        false => copy_around_cache(to, from),
    }
    Ok(())
}
