//! Executors: they turn work into rows of results and hand the rows to a sink.

pub(crate) mod cpu;
pub(crate) mod gpu;
pub(crate) mod queue;

use core::ops::ControlFlow;
use core::sync::atomic::AtomicU64;

use crate::monitor::Monitor;

/// What the engine did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Matches found, as often as they were counted or handed out.
    pub(crate) pairs: u64,
    /// Distances computed.
    pub(crate) tests: u64,
    /// Pairs taken without a test, because their blocks lie wholly within ε.
    pub(crate) taken: u64,
}

impl core::ops::AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        self.pairs += other.pairs;
        self.tests += other.tests;
        self.taken += other.taken;
    }
}

impl core::iter::Sum for Work {
    fn sum<I: Iterator<Item = Work>>(works: I) -> Work {
        works.fold(Work::default(), |mut total, work| {
            total += work;
            total
        })
    }
}

/// Distance tests, or pairs, after which a thread tells the monitor of them: some
/// milliseconds.
const REPORT: u64 = 1 << 23;

/// What a thread has told the monitor of, if anybody watches.
pub(crate) struct Reporter<'a> {
    monitor: Option<&'a Monitor>,
    reported: Work,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(monitor: Option<&'a Monitor>) -> Self {
        Reporter { monitor, reported: Work::default() }
    }

    /// Tells of the work of the thread so far, if enough has come since the last time, and
    /// breaks off when the monitor says so.
    #[inline(always)]
    pub(crate) fn report(&mut self, work: Work) -> ControlFlow<()> {
        self.report_above(work, REPORT)
    }

    /// Tells of the rest.
    pub(crate) fn finish(&mut self, work: Work) {
        // Nothing is left to break off.
        let _ = self.report_above(work, 0);
    }

    #[inline(always)]
    fn report_above(&mut self, work: Work, least: u64) -> ControlFlow<()> {
        let Some(monitor) = self.monitor else { return ControlFlow::Continue(()) };
        let tests = work.tests - self.reported.tests;
        let pairs = work.pairs - self.reported.pairs;
        if tests.max(pairs) >= least {
            monitor.add(tests, pairs);
            self.reported = work;
        }
        if monitor.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// A join over an index that is built: what every device can do for a sink.
pub(crate) trait Executor<T>: Sync {
    /// Counts the ordered pairs.
    fn count(&self) -> Work;
    /// Stores the number of neighbours of each query.
    fn degrees(&self, degrees: &[AtomicU64]) -> Work;
    /// Hands out the rows of all queries, some at a time, in any order and from many
    /// threads at once, until `emit` breaks off.
    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> Work;
    /// Threads that may call `emit`.
    fn workers(&self) -> usize;
}

/// Receives rows as they are made.
pub(crate) type Emit<'a, T> = dyn Fn(&Rows<'_, T>) -> ControlFlow<()> + Sync + 'a;

/// What a sink wants of an executor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    /// Each unordered pair of a self-join once, under either of its points; a point
    /// with itself never.
    pub(crate) once: bool,
    /// Distances too.
    pub(crate) distances: bool,
    /// Ids ascending within a row.
    pub(crate) sorted: bool,
}

/// The complete rows of some queries.
pub(crate) struct Rows<'a, T> {
    /// The thread that made them, from 0.
    pub(crate) worker: usize,
    /// The queries: rows of the left input.
    pub(crate) queries: &'a [u32],
    /// The neighbours of each: rows of the right input.
    pub(crate) neighbors: &'a [Vec<u32>],
    /// Their distances, where requested; else empty.
    pub(crate) distances: &'a [Vec<T>],
    /// Queries that are likely to come next.
    pub(crate) ahead: &'a [u32],
}
