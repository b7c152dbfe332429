//! The queue of HybridKNN-Join (§4.5): queries in dense places first.
//!
//! ```text
//!   front                                                     back
//!   failed, at this ε │ not tried at this ε ……………………………………… │     crowded
//!   the CPU's, if it  │ ◀ the GPU takes from here,              │     the CPU's
//!   comes so far      │               the CPU from here ▶       │     alone
//! ```
//!
//! Protocol:
//! - One taker, the GPU, may fail. What it takes is lent: it is `done`, but for those that failed, or
//!   all of it comes back when the loan is dropped. Threads of the CPU do not fail: what they take is
//!   answered.
//! - A query is not tried twice at one ε. Those that failed wait until the GPU has a larger one
//!   (`reindexed`), and are then the first to be taken; or until a thread of the CPU finds nothing else.
//! - [`Queue::next`] says what the GPU does: a batch, a larger ε, or nothing more. Then the rest is the
//!   CPU's, as it is after `abandon`.
//! - A thread of the CPU that finds nothing waits while a batch is lent: some of it may come back. The
//!   GPU never waits.
//! - All of it is one mutex, which takers come by at some hundred times in a join. What a waiting
//!   thread may hope for wakes all of them: a loan is over, or the queue is closed.
//!
//! Why nobody waits for ever: a waiter waits for the one loan, which ends with its owner's work; that
//! ends or panics.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::options::RangesOptions;

/// Queries of the smallest batch of each: a warp's worth takes the GPU as long as fewer would, and a
/// leaf's worth the CPU.
const LEAST_GPU: usize = 64;
const LEAST_CPU: usize = 16;
/// The least share of a batch that is solved where ε grows fast enough, and how many batches in a row
/// may stay below. One may, where the first ε is too small. Where points lie ever more thinly, steps
/// of one size get nowhere, and dozens of rounds would each look in vain for most queries.
const LEAST_SOLVED: f64 = 0.1;
const POOR: usize = 2;

/// The queries that are still to be answered.
#[derive(Debug)]
pub(super) struct Queue {
    all: f64,
    options: RangesOptions,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Not tried at this ε, those in dense places first.
    fresh: VecDeque<u32>,
    /// Tried in vain at this ε, in the same order.
    failed: Vec<u32>,
    /// Not for the GPU.
    crowded: Vec<u32>,
    /// The next large batch, as a share of all queries: 0 where they are over.
    large: f64,
    /// Queries that are answered, or that a thread of the CPU is about to answer.
    solved: usize,
    /// Whether so many of the last batch failed that ε should grow.
    failing: bool,
    /// Batches in a row of which hardly any was solved.
    poor: usize,
    lent: bool,
    /// Whether the GPU takes no more.
    abandoned: bool,
    closed: bool,
    /// Queries that it gave away.
    tail: usize,
}

/// What the GPU does next.
#[derive(Debug)]
pub(super) enum Next<'a> {
    Batch(Lent<'a>),
    /// Indexes the points for a larger ε.
    Reindex,
    /// Nothing: all is taken, or the rest is the CPU's.
    Over,
}

/// Queries that the GPU took: they go back unless they are [`done`](Lent::done).
#[derive(Debug)]
pub(super) struct Lent<'a> {
    queue: &'a Queue,
    pub(super) queries: Vec<u32>,
}

impl Queue {
    /// Queries in their order, and those that are for the CPU alone.
    pub(super) fn new(options: RangesOptions, queries: Vec<u32>, crowded: Vec<u32>) -> Self {
        let all = (queries.len() + crowded.len()) as f64;
        let (tail, large) = (crowded.len(), options.large);
        let state = State { fresh: queries.into(), crowded, large, tail, ..State::default() };
        Queue { all, options, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked did not do so in here.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// What the GPU does next, which may look farther or not.
    pub(super) fn next(&self, grows: bool) -> Next<'_> {
        let mut state = self.lock();
        if state.closed || state.abandoned {
            return Next::Over;
        }
        let left = state.fresh.len() + state.failed.len();
        let few = left as f64 <= self.options.tail * self.all;
        let wants_more = state.failing || state.fresh.is_empty();
        if state.poor < POOR && wants_more && grows && !few {
            return Next::Reindex;
        }
        if state.poor >= POOR || state.fresh.is_empty() {
            state.abandoned = true;
            state.tail += left;
            return Next::Over;
        }
        let size = self.batch(&mut state);
        let queries = state.fresh.drain(..size).collect();
        state.lent = true;
        Next::Batch(Lent { queue: self, queries })
    }

    /// The size of a batch of the GPU. Large ones are half of the one before, or what the window
    /// leaves; when that is no more than a small one, they are over.
    fn batch(&self, state: &mut State) -> usize {
        let solved = state.solved as f64 / self.all;
        let small = self.halved(self.options.small, solved, LEAST_GPU);
        let large = state.large.min(1.0 - solved - self.options.window);
        let size = (large * self.all).round();
        let size = if size > small as f64 {
            state.large = large / 2.0;
            size as usize
        } else {
            state.large = 0.0;
            small
        };
        size.min(state.fresh.len())
    }

    /// A small batch, half as large towards the end.
    fn halved(&self, share: f64, solved: f64, least: usize) -> usize {
        let share = if solved >= self.options.halve_at { share / 2.0 } else { share };
        ((share * self.all).round() as usize).max(least)
    }

    /// A batch for a thread of the CPU, from the sparse end. None where nothing is left that could
    /// be its own.
    pub(super) fn take(&self) -> Option<Vec<u32>> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let size = self.halved(self.options.cpu, state.solved as f64 / self.all, LEAST_CPU);
            let State { fresh, failed, crowded, .. } = &mut *state;
            // Nobody else takes what is crowded, so it must not be left to the end.
            let taken: Vec<u32> = if !crowded.is_empty() {
                crowded.split_off(crowded.len().saturating_sub(size))
            } else if !fresh.is_empty() {
                fresh.split_off(fresh.len().saturating_sub(size)).into()
            } else {
                failed.split_off(failed.len().saturating_sub(size))
            };
            if !taken.is_empty() {
                state.solved += taken.len();
                return Some(taken);
            }
            if !state.lent {
                return None;
            }
            // Ends: see the top of this file.
            state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// The GPU has a larger ε: what failed is tried again.
    pub(super) fn reindexed(&self) {
        let mut state = self.lock();
        state.failing = false;
        // They were taken from the front, so they belong before all others.
        let failed = core::mem::take(&mut state.failed);
        failed.into_iter().rev().for_each(|query| state.fresh.push_front(query));
    }

    /// The GPU takes no more. Tells how many queries it leaves.
    pub(super) fn abandon(&self) -> usize {
        let mut state = self.lock();
        state.abandoned = true;
        state.fresh.len() + state.failed.len()
    }

    /// Hands out nothing more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// All that is left, and how many queries the GPU gave away.
    pub(super) fn into_rest(self) -> (Vec<u32>, usize) {
        let state = self.state.into_inner().unwrap_or_else(|e| e.into_inner());
        let rest = state.failed.into_iter().chain(state.fresh).chain(state.crowded);
        (rest.collect(), state.tail)
    }
}

impl Lent<'_> {
    /// They are answered, but for these.
    pub(super) fn done(mut self, failed: Vec<u32>) {
        let taken = core::mem::take(&mut self.queries).len();
        let mut state = self.queue.lock();
        let share = failed.len() as f64 / taken as f64;
        state.solved += taken - failed.len();
        state.failing = share >= self.queue.options.reindex_at && !failed.is_empty();
        state.poor = if 1.0 - share < LEAST_SOLVED { state.poor + 1 } else { 0 };
        state.failed.extend(failed);
    }

    /// Only these are left: the device was lost on the way.
    pub(super) fn back(mut self, left: Vec<u32>) {
        let taken = core::mem::replace(&mut self.queries, left).len();
        self.queue.lock().solved += taken - self.queries.len();
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.lent = false;
        state.failed.append(&mut self.queries);
        // Which of them the sink has, nobody knows after a panic.
        state.closed |= std::thread::panicking();
        drop(state);
        self.queue.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(options: RangesOptions, queries: u32) -> Queue {
        Queue::new(options, (0..queries).collect(), Vec::new())
    }

    /// A batch, of which so many fail: the last ones.
    fn round(queue: &Queue, failed: usize) -> usize {
        let Next::Batch(lent) = queue.next(true) else { panic!("{queue:?}") };
        let size = lent.queries.len();
        let failed = lent.queries[size - failed..].to_vec();
        lent.done(failed);
        size
    }

    #[test]
    fn batches_halve_until_the_window_is_all_that_is_left() {
        let queue = queue(RangesOptions::new(), 100_000);
        // 0.4; min(0.2, 1 − 0.4 − 0.4); 1 − 0.6 − 0.4 = 0, and then small ones.
        assert_eq!([round(&queue, 0), round(&queue, 0)], [40_000, 20_000]);
        assert_eq!([round(&queue, 0), round(&queue, 0)], [500, 500]);
    }

    #[test]
    fn failures_and_the_cpu_move_the_window() {
        let queue = queue(RangesOptions::new().reindex_at(1.0), 100_000);
        // A tenth of the queries comes back: 1 − 0.3 − 0.4 leaves room for 0.2, and 0.1 after that.
        assert_eq!(round(&queue, 10_000), 40_000);
        assert_eq!(round(&queue, 0), 20_000);
        assert_eq!(round(&queue, 0), 10_000);
        assert_eq!(round(&queue, 0), 500);
        let queue = self::queue(RangesOptions::new(), 100_000);
        assert_eq!(round(&queue, 0), 40_000);
        let taken: usize = (0..20).map_while(|_| queue.take()).map(|taken| taken.len()).sum();
        assert_eq!(taken, 10_000);
        // 1 − 0.4 − 0.1 − 0.4.
        assert_eq!([round(&queue, 0), round(&queue, 0)], [10_000, 500]);
    }

    #[test]
    fn a_first_batch_leaves_the_window_too() {
        let queue = queue(RangesOptions::new().large(0.9).window(0.5), 1000);
        assert_eq!(round(&queue, 0), 500);
        // A window of 0 is none: batches halve down to small ones.
        let options = RangesOptions::new().window(0.0).small(0.1).halve_at(1.0);
        let queue = self::queue(options, 1000);
        assert_eq!([(); 4].map(|()| round(&queue, 0)), [400, 200, 100, 100]);
    }

    #[test]
    fn a_gpu_alone_takes_all_that_is_left() {
        let queue = queue(RangesOptions::new().large(1.0).small(1.0).window(0.0), 1000);
        assert_eq!(round(&queue, 700), 1000);
        assert!(matches!(queue.next(true), Next::Reindex));
        queue.reindexed();
        assert_eq!(round(&queue, 100), 700);
        // Fewer than a quarter failed, and nothing else is left to try.
        assert!(matches!(queue.next(true), Next::Reindex));
        queue.reindexed();
        assert_eq!(round(&queue, 50), 100);
        // A twentieth is not worth another index.
        assert!(matches!(queue.next(true), Next::Over));
        let (rest, tail) = queue.into_rest();
        assert_eq!((rest, tail), ((950..1000).collect(), 50));
    }

    #[test]
    fn both_take_from_their_ends_and_batches_halve_at_last() {
        let queue = queue(RangesOptions::new().large(0.5).small(0.1).cpu(0.1), 10_000);
        let Next::Batch(lent) = queue.next(true) else { panic!("{queue:?}") };
        assert_eq!(lent.queries, (0..5000).collect::<Vec<_>>());
        lent.done(Vec::new());
        assert_eq!(queue.take().unwrap(), (9000..10_000).collect::<Vec<_>>());
        assert_eq!(round(&queue, 0), 1000);
        assert_eq!(queue.take().unwrap().len(), 1000);
        assert_eq!(round(&queue, 0), 1000);
        let Next::Batch(lent) = queue.next(true) else { panic!("{queue:?}") };
        assert_eq!(lent.queries.len(), 1000);
        // 90 % are answered.
        lent.done((7500..8000).collect());
        assert!(queue.take().is_some_and(|taken| taken == (7500..8000).collect::<Vec<_>>()));
        assert!(matches!(queue.next(true), Next::Over));
        let queue = self::queue(RangesOptions::new().large(0.95).window(0.05), 100_000);
        assert_eq!(queue.take().unwrap().len(), 500);
        assert_eq!(round(&queue, 0), 94_500);
        assert_eq!((round(&queue, 0), queue.take().unwrap().len()), (250, 250));
    }

    #[test]
    fn a_query_is_tried_once_at_each_distance() {
        let queue = queue(RangesOptions::new(), 10_000);
        assert_eq!(round(&queue, 900), 4000);
        // 22 % failed: on with those that were not tried.
        let Next::Batch(lent) = queue.next(true) else { panic!("{queue:?}") };
        assert_eq!(lent.queries[0], 4000);
        let half = lent.queries[lent.queries.len() / 2..].to_vec();
        lent.done(half);
        assert!(matches!(queue.next(true), Next::Reindex));
        // Where ε cannot grow there is no other index.
        assert!(matches!(queue.next(false), Next::Batch(_)));
        queue.reindexed();
        let Next::Batch(lent) = queue.next(true) else { panic!("{queue:?}") };
        assert_eq!(lent.queries[0], 3100);
    }

    #[test]
    fn a_gpu_that_solves_hardly_any_gives_up() {
        let queue = queue(RangesOptions::new(), 10_000);
        assert_eq!(round(&queue, 3900), 4000);
        assert!(matches!(queue.next(true), Next::Reindex));
        queue.reindexed();
        let size = round(&queue, 1);
        assert_eq!((size, queue.lock().poor), (2000, 0));
        for _ in 0..2 {
            queue.reindexed();
            let Next::Batch(lent) = queue.next(true) else { panic!("{queue:?}") };
            let all = lent.queries.clone();
            lent.done(all);
        }
        assert!(matches!(queue.next(true), Next::Over));
        let answered = 100 + 1999;
        let (rest, tail) = queue.into_rest();
        assert_eq!((rest.len(), tail), (10_000 - answered, 10_000 - answered));
    }

    #[test]
    fn what_is_crowded_is_the_cpus() {
        let queue = Queue::new(RangesOptions::new(), (0..100).collect(), (100..120).collect());
        assert_eq!(queue.take().unwrap(), (104..120).collect::<Vec<_>>());
        assert_eq!(queue.take().unwrap(), (100..104).collect::<Vec<_>>());
        assert_eq!(queue.take().unwrap(), (84..100).collect::<Vec<_>>());
        assert_eq!(queue.into_rest().1, 20);
    }

    #[test]
    fn a_thread_waits_for_what_may_come_back() {
        let queue = queue(RangesOptions::new().large(1.0).window(0.0), 100);
        let Next::Batch(lent) = queue.next(true) else { panic!("{queue:?}") };
        let taken = std::thread::scope(|scope| {
            let taker = scope.spawn(|| core::iter::from_fn(|| queue.take()).flatten().count());
            std::thread::sleep(core::time::Duration::from_millis(20));
            // Lost, after it had answered some.
            lent.back((90..100).collect());
            // The taker may have some of them already.
            assert!(queue.abandon() <= 10);
            taker.join().unwrap()
        });
        assert_eq!(taken, 10);
        assert!(matches!(queue.next(true), Next::Over));
    }

    #[test]
    fn a_closed_queue_lets_nobody_wait() {
        let queue = queue(RangesOptions::new().large(1.0).window(0.0), 100);
        let Next::Batch(lent) = queue.next(true) else { panic!("{queue:?}") };
        queue.close();
        assert_eq!(queue.take(), None);
        assert!(matches!(queue.next(true), Next::Over));
        drop(lent);
        assert_eq!(queue.into_rest().0.len(), 100);
    }
}
