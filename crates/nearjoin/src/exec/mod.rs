//! Executors: they turn work into rows of results and hand the rows to a sink.

pub(crate) mod cpu;
pub(crate) mod queue;

use core::ops::ControlFlow;
use core::sync::atomic::AtomicU64;

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
