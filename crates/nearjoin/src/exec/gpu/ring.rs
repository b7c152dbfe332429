//! Results on their way to the host, through a small ring of pinned buffers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, mpsc};

use rayon::prelude::*;

use super::device::{Stage, values};
use super::driver::{Driver, Fault, HostMemory, Result, Transfer};
use crate::exec::pool::Pool;
use crate::memory::copy_around_cache;
use crate::scalar::Scalar;

/// Copies that wait for the bus at the most. One lands, one is on the bus, and two make sure
/// that there is always a next one.
pub(super) const DEPTH: usize = 4;

/// Bytes of the smallest buffer.
const LEAST: usize = 1 << 16;

/// Copies under way, each with what it is.
pub(super) struct Ring<'a, Tag> {
    driver: &'a dyn Driver,
    flying: VecDeque<(Vec<Box<dyn Transfer>>, Tag)>,
    pub(super) bytes: u64,
}

/// What has landed: one piece of host memory for each array, with its bytes.
pub(super) type Landed = Vec<Box<dyn HostMemory>>;

impl<'a, Tag> Ring<'a, Tag> {
    pub(super) fn new(driver: &'a dyn Driver) -> Self {
        Ring { driver, flying: VecDeque::new(), bytes: 0 }
    }

    /// Sends pieces of arrays, (address, bytes) each, off together. What this makes too many is
    /// landed first, the oldest.
    pub(super) fn send<E: From<Fault>>(
        &mut self,
        stream: usize,
        pieces: &[(u64, usize)],
        tag: Tag,
        land: &mut impl FnMut(Tag, Landed) -> core::result::Result<(), E>,
    ) -> core::result::Result<(), E> {
        while self.flying.len() >= DEPTH {
            self.land_one(land)?;
        }
        let mut transfers = Vec::with_capacity(pieces.len());
        for &(address, bytes) in pieces {
            transfers.push(copy_out(self.driver, stream, address, bytes)?);
            self.bytes += bytes as u64;
        }
        self.flying.push_back((transfers, tag));
        Ok(())
    }

    /// Lands all that is under way.
    pub(super) fn drain<E: From<Fault>>(
        &mut self,
        land: &mut impl FnMut(Tag, Landed) -> core::result::Result<(), E>,
    ) -> core::result::Result<(), E> {
        while !self.flying.is_empty() {
            self.land_one(land)?;
        }
        Ok(())
    }

    fn land_one<E: From<Fault>>(
        &mut self,
        land: &mut impl FnMut(Tag, Landed) -> core::result::Result<(), E>,
    ) -> core::result::Result<(), E> {
        let Some((transfers, tag)) = self.flying.pop_front() else { return Ok(()) };
        let landed: Result<Landed> =
            transfers.into_iter().map(|transfer| transfer.wait()).collect();
        land(tag, landed?)
    }
}

/// Copies memory of the device to a buffer of the host.
fn copy_out(
    driver: &dyn Driver,
    stream: usize,
    address: u64,
    bytes: usize,
) -> Result<Box<dyn Transfer>> {
    // Few different sizes, so that buffers are used again.
    let host = driver.pin(bytes.next_power_of_two().max(LEAST))?;
    driver.copy_out(stream, address, host, bytes)
}

/// Brings numbers of the device to the host, `chunk` bytes at a time, and calls `take` with
/// pieces of them, each with its place, on all threads of the pool. Gives the bytes moved.
pub(super) fn land<V: bytemuck::Pod + Send + Sync>(
    stage: &Stage,
    pool: &Pool,
    chunk: usize,
    address: u64,
    len: usize,
    take: impl Fn(usize, &[V]) + Sync,
) -> crate::error::Result<u64> {
    /// Bytes that a thread takes at a time.
    const PIECE: usize = 1 << 19;
    let size = size_of::<V>();
    let (chunk, piece) = ((chunk / size).max(1), PIECE / size);
    let mut ring = Ring::new(&*stage.driver);
    let mut place = |start: usize, landed: Landed| -> crate::error::Result<()> {
        let from = values::<V>(&*landed[0], 0, chunk.min(len - start) * size);
        let take = |(number, piece_of): (usize, &[V])| take(start + number * piece, piece_of);
        pool.install(|| from.par_chunks(piece).enumerate().for_each(take));
        Ok(())
    };
    for start in (0..len).step_by(chunk) {
        let bytes = chunk.min(len - start) * size;
        let piece = (address + (start * size) as u64, bytes);
        ring.send(stage.stream, &[piece], start, &mut place)?;
    }
    ring.drain(&mut place)?;
    Ok(ring.bytes)
}

/// Threads that copy what has landed to where it belongs: more do not make the memory faster.
const LANDING: usize = 8;

/// Pieces that land while others are on the bus, each copied by one of several threads.
///
/// A thread that waits for a copy and then moves it is all that the bus needs to be kept busy:
/// sharing each piece between threads would cost more than it saves.
pub(super) struct Landing<'scope, T> {
    driver: &'scope dyn Driver,
    send: mpsc::SyncSender<Sent<'scope, T>>,
    bytes: u64,
}

type Sent<'a, T> = (Box<dyn Transfer>, Piece<'a, T>);

/// Where a piece belongs.
pub(super) enum Piece<'a, T> {
    Ids(&'a mut [u32]),
    Distances(&'a mut [T]),
}

impl<'scope, T: Scalar> Landing<'scope, T> {
    /// Runs `work`, which sends pieces off, with `threads` threads at the most to land them.
    /// Gives the bytes moved.
    pub(super) fn run(
        driver: &'scope dyn Driver,
        threads: usize,
        work: impl FnOnce(&mut Landing<'scope, T>) -> crate::error::Result<()>,
    ) -> crate::error::Result<u64> {
        let (send, receive) = mpsc::sync_channel(DEPTH);
        // The threads alone hold the receiver. When the last of them has ended, with an error or
        // a panic, the channel closes: `send` then fails, and never waits for room that nobody
        // makes.
        let receive = Arc::new(Mutex::new(receive));
        std::thread::scope(|scope| {
            let spawn = |receive: Arc<_>| scope.spawn(move || land_pieces::<T>(&receive));
            let receivers = std::iter::repeat_n(receive, threads.clamp(1, LANDING));
            let threads: Vec<_> = receivers.map(spawn).collect();
            let mut landing = Landing { driver, send, bytes: 0 };
            let done = work(&mut landing);
            let bytes = landing.bytes;
            drop(landing);
            let mut landed = Ok(());
            for thread in threads {
                match thread.join() {
                    Ok(result) => landed = landed.and(result),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            // What went wrong there made the channel close, which is no news.
            landed?;
            done.map(|()| bytes)
        })
    }

    /// Sends an array of the device off, in pieces of about `chunk` bytes, to where it belongs.
    /// `check` is asked after each whether to go on.
    pub(super) fn send<V>(
        &mut self,
        stream: usize,
        mut address: u64,
        to: &'scope mut [V],
        chunk: usize,
        piece: impl Fn(&'scope mut [V]) -> Piece<'scope, T>,
        check: impl Fn() -> crate::error::Result<()>,
    ) -> crate::error::Result<()> {
        for to in to.chunks_mut((chunk / size_of::<V>()).max(1)) {
            let bytes = size_of_val(to);
            let transfer = copy_out(self.driver, stream, address, bytes)?;
            let gone = |_| Fault::Failed { reason: "a result did not land".into() };
            self.send.send((transfer, piece(to))).map_err(gone)?;
            (self.bytes, address) = (self.bytes + bytes as u64, address + bytes as u64);
            check()?;
        }
        Ok(())
    }
}

fn land_pieces<T: Scalar>(receive: &Mutex<mpsc::Receiver<Sent<'_, T>>>) -> Result<()> {
    loop {
        // Waits until there is a piece, or the sender is dropped, which `Landing::run` does
        // before it joins the threads. Whoever waits for the lock waits for the same.
        let next = receive.lock().unwrap_or_else(|e| e.into_inner()).recv();
        let Ok((transfer, piece)) = next else { return Ok(()) };
        let host = transfer.wait()?;
        match piece {
            Piece::Ids(ids) => {
                copy_around_cache(ids, values(&*host, 0, size_of_val(ids)));
            }
            Piece::Distances(distances) => {
                let bytes = size_of_val(distances);
                copy_around_cache(distances, T::from_bytes(&host.bytes()[..bytes]));
            }
        }
    }
}
