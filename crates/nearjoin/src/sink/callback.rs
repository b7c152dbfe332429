use core::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::mpsc;

use super::fill::MARGIN;
use super::{Execution, Receive, Refusal, setters};
use crate::error::{Error, Result};
use crate::exec::flat::Flat;
use crate::exec::{Lists, Request, Rows, bins, pool};
use crate::scalar::Scalar;

/// Pairs in a block, at about which it is handed over.
const DEFAULT_BLOCK: usize = 1 << 16;

/// Some complete rows of the answer, in memory of the join.
///
/// Row `i` of the block belongs to left point `queries[i]`; its neighbours are
/// `neighbors[offsets[i]..offsets[i + 1]]`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Block<'a, T> {
    /// Left points, by row of the input; of a part, by their places in it.
    pub queries: &'a [u32],
    /// Where each row begins, and the end.
    pub offsets: &'a [u64],
    /// Right points, by row of the input.
    pub neighbors: &'a [u32],
    /// Distances of the neighbours; empty unless asked for.
    pub distances: &'a [T],
}

impl<T> Default for Block<'_, T> {
    /// No rows.
    fn default() -> Self {
        Block { queries: &[], offsets: &[0], neighbors: &[], distances: &[] }
    }
}

impl<'a, T: Scalar> Block<'a, T> {
    /// The left points with their neighbours.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &'a [u32])> {
        let neighbors = self.neighbors;
        let row = move |row: &[u64]| &neighbors[row[0] as usize..row[1] as usize];
        self.queries.iter().copied().zip(self.offsets.windows(2).map(row))
    }

    /// Number of pairs.
    pub fn pairs(&self) -> usize {
        self.neighbors.len()
    }
}

/// A block that is made.
fn made<T: Scalar>(flat: &Flat<T>) -> Block<'_, T> {
    Block {
        queries: &flat.queries,
        offsets: &flat.offsets,
        neighbors: &flat.neighbors,
        distances: &flat.distances,
    }
}

/// Hands blocks of rows to a function as they are found.
///
/// The function runs on the thread that called [`Plan::run`](crate::Plan::run), one block
/// at a time, while the other threads go on joining. They wait when they are more than a
/// few blocks ahead, so a slow function costs time and not memory. Of a self-join with few
/// neighbours among many candidates all pairs are found first, each once, and the blocks come
/// after that; the list is at most three times as large as the points, with their index, and
/// a quarter of the memory limit. Every left point comes
/// exactly once, with all its neighbours; the order of blocks is not specified. Returning
/// [`ControlFlow::Break`] stops the join with [`Error::Stopped`].
///
/// ```
/// use std::ops::ControlFlow;
/// use nearjoin::{EpsJoin, Points, sink::Callback};
/// let points = Points::new(&[0.0, 1.0, 1.5], 1)?;
/// let mut longest = 0;
/// let mut sink = Callback::new(|block: &nearjoin::sink::Block<f64>| {
///     for (_query, neighbors) in block.iter() {
///         longest = longest.max(neighbors.len());
///     }
///     ControlFlow::Continue(())
/// });
/// EpsJoin::new(1.0).plan_self(&points)?.run(&mut sink)?;
/// assert_eq!(longest, 2);
/// # Ok::<(), nearjoin::Error>(())
/// ```
pub struct Callback<F> {
    function: F,
    request: Request,
    block: usize,
}

impl<F> Callback<F> {
    /// Calls `function` with every block.
    pub fn new(function: F) -> Self {
        Callback { function, request: Request::default(), block: DEFAULT_BLOCK }
    }

    setters!(sorted distances half);

    /// Pairs in a block, at about which it is handed over; a row is never cut. Default:
    /// 65536.
    pub fn block_pairs(mut self, pairs: usize) -> Self {
        self.block = pairs.max(1);
        self
    }
}

impl<F> core::fmt::Debug for Callback<F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Callback").field("block", &self.block).finish_non_exhaustive()
    }
}

impl<F> Callback<F> {
    /// Hands out rows that come flat and on this thread as they are, cut into blocks.
    fn receive_here<T: Scalar>(
        &mut self,
        execution: &mut Execution<'_, T>,
        request: Request,
    ) -> Result<()>
    where
        F: FnMut(&Block<'_, T>) -> ControlFlow<()> + Send,
    {
        let most = self.block as u64;
        let state = Mutex::new((&mut self.function, Vec::<u64>::new(), false));
        let work = execution.executor.rows(request, &|rows: &Rows<'_, T>| {
            let mut state = state.lock().unwrap_or_else(|e| e.into_inner());
            let (function, own, stopped) = &mut *state;
            let Lists::Flat { offsets, values } = rows.neighbors else {
                unreachable!("a device that hands out flat rows");
            };
            let mut first = 0;
            while first < rows.queries.len() {
                let start = offsets[first];
                let full = offsets[first + 1..].partition_point(|&end| end - start < most);
                let end = (first + (full + 1).min(self.block)).min(rows.queries.len());
                own.clear();
                own.extend(offsets[first..=end].iter().map(|offset| offset - start));
                let range = (start - offsets[0]) as usize..(offsets[end] - offsets[0]) as usize;
                let distances = match rows.distances {
                    Some(Lists::Flat { values, .. }) => &values[range.clone()],
                    _ => &[],
                };
                let queries = &rows.queries[first..end];
                let block = Block { queries, offsets: own, neighbors: &values[range], distances };
                if function(&block).is_break() {
                    *stopped = true;
                    return ControlFlow::Break(());
                }
                first = end;
            }
            ControlFlow::Continue(())
        })?;
        execution.stats.record(work);
        match state.into_inner().unwrap_or_else(|e| e.into_inner()).2 {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }
}

/// Bytes that a list of all pairs may take before rows are handed out: none where it is expected to
/// take more, since a list that is too long is thrown away.
fn room_for_list<T>(execution: &Execution<'_, T>) -> u64 {
    let room = execution.spare.min(execution.budget.limit / 4);
    let expected = MARGIN * bins::NEIGHBOR_BYTES as f64 * execution.expected_pairs;
    if expected <= room as f64 { room } else { 0 }
}

impl<T: Scalar, F: FnMut(&Block<'_, T>) -> ControlFlow<()> + Send> Receive<T> for Callback<F> {
    #[allow(private_interfaces)]
    fn receive(&mut self, execution: &mut Execution<'_, T>) -> Result<()> {
        let workers = execution.executor.workers();
        let (executor, most) = (execution.executor, self.block);
        let once = self.request.once && execution.is_symmetric;
        let (room, expected_pairs) = (room_for_list(execution), execution.expected_pairs);
        let request = Request { once, room, expected_pairs, ..self.request };
        if executor.makes_blocks() {
            return self.receive_here(execution, Request { in_blocks: true, ..request });
        }
        let building: Vec<Mutex<Flat<T>>> = (0..workers).map(|_| Mutex::new(Flat::new())).collect();
        // Full blocks wait here; a worker with another one waits until there is room.
        let (send, receive) = mpsc::sync_channel::<Flat<T>>(workers);
        let (give_back, returned) = mpsc::sync_channel::<Flat<T>>(2 * workers);
        let returned = Mutex::new(returned);
        let refusal = Refusal::default();

        let (work, stopped) = std::thread::scope(|scope| -> Result<_> {
            let (building, refusal) = (&building, &refusal);
            let work = move || {
                let emit = |rows: &Rows<'_, T>| {
                    let mut block = building[rows.worker].lock().unwrap_or_else(|e| e.into_inner());
                    if let Err(error) = block.append(rows) {
                        return refusal.stop(error);
                    }
                    if block.neighbors.len() < most && block.queries.len() < most {
                        return ControlFlow::Continue(());
                    }
                    let spare = returned.lock().unwrap_or_else(|e| e.into_inner()).try_recv();
                    let empty = spare.unwrap_or_else(|_| Flat::new());
                    let full = core::mem::replace(&mut *block, empty);
                    // Waits while the function is busy with earlier blocks. It cannot wait for
                    // ever: where the function stops or panics, the receiver is dropped.
                    match send.send(full) {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(_) => ControlFlow::Break(()),
                    }
                };
                executor.rows(request, &emit)
            };
            let pool_work = pool::spawn(scope, work)?;
            let mut stopped = false;
            // Dropped before the scope waits for the other thread, in a panic too.
            let receive = receive;
            // Waits for blocks. It cannot wait for ever: the sender goes with the closure of the
            // executor's thread, which drops it at the end of all work or in a panic.
            while let Ok(mut block) = receive.recv() {
                if (self.function)(&made(&block)).is_break() {
                    stopped = true;
                    break;
                }
                block.clear();
                // Where the shelf is full, the block is simply dropped.
                let _ = give_back.try_send(block);
            }
            drop(receive);
            let work = match pool_work.join() {
                Ok(work) => work,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            Ok((work, stopped))
        })?;
        refusal.check()?;
        execution.stats.record(work?);
        if stopped {
            return Err(Error::Stopped);
        }
        for block in building {
            let block = block.into_inner().unwrap_or_else(|e| e.into_inner());
            if !block.queries.is_empty() && (self.function)(&made(&block)).is_break() {
                return Err(Error::Stopped);
            }
        }
        Ok(())
    }
}
