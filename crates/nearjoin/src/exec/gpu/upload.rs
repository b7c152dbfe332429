//! Points on their way to the device.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::collections::VecDeque;

use bytemuck::{cast_slice, cast_slice_mut};
use rayon::prelude::*;

use super::device::{Array, Copier, Stage};
use super::driver::{Result, Transfer};
use crate::exec::pool;
use crate::memory::copy_around_cache;
use crate::points::Points;
use crate::scalar::Scalar;

/// Bytes that a thread copies at a time. The input lies in memory that the device cannot copy
/// from by itself, so every thread takes pieces of it into memory that it can.
const PIECE: usize = 1 << 20;
/// And at the least, where there would be fewer than all threads have to do: to submit a copy takes ten
/// microseconds or more, one after the other.
const SMALL: usize = 1 << 19;
/// Pieces of host memory of a thread: it copies to one while the other crosses.
const WAITING: usize = 2;
/// Threads that copy, at the most: a dozen of them keep a bus of 50 GB a second busy.
const COPYING: usize = 16;

/// Who copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hands {
    /// This thread, beside others that work.
    One,
    /// Threads of the pool. While it waits for them, this thread may be given something else to do.
    Pool,
    /// Threads that are started for it: this thread holds what others wait for, and does nothing else
    /// meanwhile.
    Own,
}

impl Hands {
    /// Those of a session: one of its threads works in a lane, all elsewhere.
    pub(super) fn of(is_lane: bool) -> Self {
        if is_lane { Hands::One } else { Hands::Pool }
    }
}

/// Copies points to the device.
pub(super) fn points<T: Scalar>(
    stage: &Stage,
    points: Points<'_, T>,
    hands: Hands,
) -> Result<Array<T>> {
    let array = stage.array::<T>(points.as_slice().len())?;
    rows(stage, points, 0..points.len(), &array, hands)?;
    Ok(array)
}

/// Copies some rows of points to their place in an array that has room for all of them.
pub(super) fn rows<T: Scalar>(
    stage: &Stage,
    points: Points<'_, T>,
    rows: Range<usize>,
    to: &Array<T>,
    hands: Hands,
) -> Result<()> {
    let numbers = rows.start * points.dimension()..rows.end * points.dimension();
    send(stage, T::as_bytes(&points.as_slice()[numbers.clone()]), to, numbers.start, hands)
}

/// Copies numbers to the device.
pub(super) fn words(stage: &Stage, words: &[u32], hands: Hands) -> Result<Array<u32>> {
    let array = stage.array::<u32>(words.len())?;
    send(stage, cast_slice(words), &array, 0, hands)?;
    Ok(array)
}

/// Copies bytes to an array on the device, from one of its elements on, several threads each piece
/// after piece. None waits for another: a thread that is late holds up its own piece alone, and the bus
/// has those of the others. The last pieces are still on their way when this returns.
fn send<V: Sync>(
    stage: &Stage,
    data: &[u8],
    to: &Array<V>,
    first: usize,
    hands: Hands,
) -> Result<()> {
    let piece = (data.len() / (2 * COPYING)).next_power_of_two().clamp(SMALL, PIECE);
    let sending = Sending { copier: stage.copier(), data, to, first, piece, next: 0.into() };
    let pieces = data.len().div_ceil(piece);
    let threads = rayon::current_num_threads().min(COPYING).min(pieces);
    let sent: Result<Vec<_>> = match hands {
        Hands::Pool if pieces > 2 => {
            let sent = (0..threads).into_par_iter().with_max_len(1).map(|_| sending.work());
            sent.collect()
        }
        Hands::Own if pieces > 2 => sending.by_own_threads(threads),
        // Few pieces are done before another thread would wake.
        _ => sending.work().map(|sent| vec![sent]),
    };
    stage.keep(sent?.into_iter().flatten());
    Ok(())
}

/// Bytes that threads send, piece after piece.
struct Sending<'a, V> {
    copier: Copier<'a>,
    data: &'a [u8],
    to: &'a Array<V>,
    /// The element where they begin.
    first: usize,
    /// Bytes of a piece, and the next one that nobody has.
    piece: usize,
    next: AtomicUsize,
}

/// Pieces that are on their way.
type Waiting = VecDeque<Box<dyn Transfer>>;

impl<V: Sync> Sending<'_, V> {
    /// Sends all pieces by so many threads, this one among them, or by fewer where the system refuses some.
    fn by_own_threads(&self, threads: usize) -> Result<Vec<Waiting>> {
        std::thread::scope(|scope| {
            let start = |_| pool::spawn(scope, || self.work()).ok();
            let others: Vec<_> = (1..threads).map_while(start).collect();
            let mut sent = vec![self.work()];
            // They end when no piece is left.
            sent.extend(others.into_iter().map(|other| match other.join() {
                Ok(sent) => sent,
                Err(panic) => std::panic::resume_unwind(panic),
            }));
            sent.into_iter().collect()
        })
    }

    /// Sends pieces until there is none left. Gives those that are on their way.
    fn work(&self) -> Result<Waiting> {
        let mut waiting = Waiting::with_capacity(WAITING);
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            let Some(piece) = self.data.chunks(self.piece).nth(number) else { break };
            let first: Option<Box<dyn Transfer>> =
                if waiting.len() == WAITING { waiting.pop_front() } else { None };
            let mut host = match first {
                Some(transfer) => transfer.wait()?,
                None => self.copier.pin(PIECE)?,
            };
            // The device reads it from memory, not from the cache of this thread.
            let room = &mut host.bytes_mut()[..piece.len()];
            copy_around_cache::<u32>(cast_slice_mut(room), cast_slice(piece));
            let start = self.first + number * self.piece / size_of::<V>();
            let there = self.to.piece(start..start + piece.len() / size_of::<V>());
            waiting.push_back(self.copier.copy_in(host, there)?);
        }
        Ok(waiting)
    }
}
