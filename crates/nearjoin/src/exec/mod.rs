//! Executors: they turn work into rows of results and hand the rows to a sink.

pub(crate) mod bins;
pub(crate) mod cpu;
pub(crate) mod flat;
pub(crate) mod gpu;
pub(crate) mod hybrid;
pub(crate) mod part;
pub(crate) mod place;
pub(crate) mod pool;
pub(crate) mod queue;
pub(crate) mod sync;

use core::ops::ControlFlow;
use core::sync::atomic::AtomicU64;

pub(crate) use part::Part;

use crate::error::{Error, Result};
use crate::index::Run;
use crate::monitor::Monitor;
use crate::points::Points;
use crate::scalar::Scalar;
use crate::stats::{GpuStats, HybridStats, RangesStats};

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

/// Some queries, and an index of the points that may be their neighbours: what every device can
/// do for a sink. Queries are numbered from 0; those of a whole join are rows of the left input.
pub(crate) trait Executor<T>: Send + Sync {
    /// Number of queries.
    fn len(&self) -> usize;
    /// Bytes of the index, wherever it is; of a part, those that it does not share.
    fn index_bytes(&self) -> u64;
    /// Those of them that are in this machine's memory.
    fn host_bytes(&self) -> u64 {
        self.index_bytes()
    }
    /// Counts the ordered pairs.
    fn count(&self) -> Result<Work>;
    /// Stores the number of neighbours of each query.
    fn degrees(&self, degrees: &[AtomicU64]) -> Result<Work>;
    /// Hands out the rows of all queries, some at a time, in any order and from many
    /// threads at once, until `emit` breaks off.
    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> Result<Work>;
    /// The rows of the left input at some positions in the order of the index.
    fn rows_at(&self, positions: Run) -> Result<Vec<u32>>;
    /// The same join for some of the queries of the whole: see [`part`]. It shares the index.
    fn part<'b>(&'b self, part: Part<'b, T>) -> Result<Box<dyn Executor<T> + 'b>>;
    /// Threads that may call `emit`. A part has no more than the whole.
    fn workers(&self) -> usize;
    /// Whether it is the thread that calls `rows` which calls `emit`, with many rows at a time
    /// and one list after the other.
    fn makes_blocks(&self) -> bool {
        false
    }
    /// Finds all rows, or counts them, and makes `offsets[1..]` the ends of all of them; for
    /// devices that make rows in the order of the queries' numbers. Others leave this to the sink.
    fn lay_out(
        &self,
        _request: Request,
        _offsets: &mut [u64],
    ) -> Option<Result<Box<dyn LaidOut<T> + '_>>> {
        None
    }
    /// What a GPU has done since this was last asked, where it is one.
    fn gpu_stats(&self) -> Option<GpuStats> {
        None
    }
    /// What the CPU and a GPU have done together since this was last asked, where both could.
    fn hybrid_stats(&self) -> Option<HybridStats> {
        None
    }
    /// What was done by ranges since this was last asked, where the nearest are found so.
    fn ranges_stats(&self) -> Option<RangesStats> {
        None
    }
}

/// A join on a device that may be lost in the middle of it.
pub(crate) trait OnDevice<T>: Executor<T> {
    /// The same join for some rows of the left input, given with their coordinates.
    fn for_rows(&self, rows: Vec<u32>, points: Points<'_, T>) -> Result<Box<dyn OnDevice<T> + '_>>;
    /// The same in one of several lanes, of so many, beside which others work on other rows: it keeps
    /// to a stream and to a share of the memory. The caller enters the phases of whoever watches, and
    /// tells them of its distance tests.
    fn in_lane<'b>(
        &'b self,
        lane: (usize, usize),
        rows: Vec<u32>,
        coordinates: &[T],
    ) -> Result<Box<dyn OnDevice<T> + 'b>>;
    /// By which order the rows of a request with each pair once say under which of its points a
    /// pair is.
    fn meeting(&self) -> Result<Meeting>;
}

/// Under which of its points a pair is that is wanted once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// Under that whose row is smaller.
    SmallerRow,
    /// Under that whose rank is smaller: the ranks of all rows.
    SmallerRank(Vec<u32>),
    /// By an order that only the device knows.
    Unknown,
}

/// Rows of which the offsets are known.
pub(crate) trait LaidOut<T> {
    /// Writes them one after the other. `offsets` are those that were asked for; `fresh`, whether
    /// nobody has touched the pages of the arrays yet.
    fn write(
        self: Box<Self>,
        offsets: &[u64],
        ids: &mut [u32],
        distances: Option<&mut [T]>,
        fresh: bool,
    ) -> Result<Work, Unfinished>;
}

/// Rows that could not all be written.
#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) error: Error,
    /// Rows from here on are not in their places; those before are.
    pub(crate) from: usize,
    /// What was done for them.
    pub(crate) work: Work,
}

impl From<Error> for Unfinished {
    fn from(error: Error) -> Self {
        Unfinished { error, from: 0, work: Work::default() }
    }
}

impl From<Unfinished> for Error {
    fn from(unfinished: Unfinished) -> Self {
        unfinished.error
    }
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
    /// Flat, and on the thread that asks: of executors that say that they make blocks.
    pub(crate) in_blocks: bool,
    /// Bytes that may be used to keep what was found before rows are laid out or handed out.
    pub(crate) room: u64,
    /// About how many pairs that will be.
    pub(crate) expected_pairs: f64,
}

/// The complete rows of some queries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a, T> {
    /// The thread that made them, from 0.
    pub(crate) worker: usize,
    /// The queries, by their numbers.
    pub(crate) queries: &'a [u32],
    /// The neighbours of each: rows of the right input.
    pub(crate) neighbors: Lists<'a, u32>,
    /// Their distances, where requested.
    pub(crate) distances: Option<Lists<'a, T>>,
    /// Queries that are likely to come next.
    pub(crate) ahead: &'a [u32],
    /// Whether the numbers of the queries are known to follow each other.
    pub(crate) consecutive: bool,
}

/// A list of values for each of some queries.
#[derive(Debug)]
pub(crate) enum Lists<'a, V> {
    /// As a thread keeps them while it looks for more.
    Each(&'a [Vec<V>]),
    /// One after the other; `offsets` say where each begins, and the end, from any start.
    Flat { offsets: &'a [u64], values: &'a [V] },
    /// One after the other, each with room for `stride` of them; `lens` say how many it has, where
    /// not all are full.
    Strided { stride: usize, lens: Option<&'a [u32]>, values: &'a [V] },
}

impl<V> Clone for Lists<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V> Copy for Lists<'_, V> {}

impl<'a, V> Lists<'a, V> {
    /// The list of one query.
    #[inline(always)]
    pub(crate) fn row(&self, at: usize) -> &'a [V] {
        match *self {
            Lists::Each(lists) => &lists[at],
            Lists::Flat { offsets, values } => {
                let place = |offset: u64| (offset - offsets[0]) as usize;
                &values[place(offsets[at])..place(offsets[at + 1])]
            }
            Lists::Strided { stride, lens, values } => {
                let len = lens.map_or(stride, |lens| lens[at] as usize);
                &values[at * stride..][..len]
            }
        }
    }

    /// Values in all lists.
    pub(crate) fn total(&self) -> u64 {
        match *self {
            Lists::Each(lists) => lists.iter().map(|list| list.len() as u64).sum(),
            Lists::Flat { values, .. } | Lists::Strided { lens: None, values, .. } => {
                values.len() as u64
            }
            Lists::Strided { lens: Some(lens), .. } => lens.iter().copied().map(u64::from).sum(),
        }
    }
}

impl<T> Rows<'_, T> {
    /// Hands the rows on, whose queries are places in a list, under the numbers that are there.
    pub(crate) fn under<R>(&self, numbers: &[u32], to: impl FnOnce(&Rows<'_, T>) -> R) -> R {
        let queries: Vec<u32> = self.queries.iter().map(|&place| numbers[place as usize]).collect();
        let Rows { worker, neighbors, distances, .. } = *self;
        let (queries, consecutive) = (&queries[..], false);
        to(&Rows { worker, queries, neighbors, distances, ahead: &[], consecutive })
    }

    /// The distances of one query, where requested.
    #[inline(always)]
    pub(crate) fn distances(&self, at: usize) -> Option<&[T]> {
        self.distances.as_ref().map(|distances| distances.row(at))
    }
}

/// Puts the ids of a row in ascending order, and its distances with them. `pairs` is room to
/// do it in.
pub(crate) fn sort_by_id<T: Scalar>(
    ids: &mut [u32],
    distances: &mut [T],
    pairs: &mut Vec<(u32, T)>,
) {
    pairs.clear();
    pairs.extend(ids.iter().copied().zip(distances.iter().copied()));
    pairs.sort_unstable_by_key(|pair| pair.0);
    ids.iter_mut().zip(&*pairs).for_each(|(id, pair)| *id = pair.0);
    distances.iter_mut().zip(&*pairs).for_each(|(distance, pair)| *distance = pair.1);
}
