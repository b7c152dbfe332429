//! How a GPU goes about a join: everything that changes how fast an answer comes, and nothing of
//! what it is.

use core::fmt;
use core::time::Duration;

use super::batches::BatchModel;
use super::{Asked, Calibration, Expected, Narrow, Shortlisting, gpu, gpu_knn};
use crate::gpu::{Cooperation, GpuOptions, Schedule};
use crate::options::{Device, DuplicateRemoval};
use crate::question::Question;
use crate::summary::Summary;

/// Of the device's free memory, the share that a join uses when no limit is set.
const SHARE: f64 = 0.9;
/// Of the memory of the device, the share that an index may take before the points are cut
/// into slabs: the rest is for the answer.
const INDEX_SHARE: f64 = 0.7;
/// Distance tests for a pair of the answer from which on pairs are listed first.
const MANY_TESTS: f64 = 64.0;
/// ... from which on each pair of one set is found once and counted in both of its rows, ...
const FEW_MATCHES: f64 = 8.0;
/// ... and up to which it is the way to the host that takes time.
const EASY: f64 = 16.0;
/// How much more than expected there may be before a list is sampled: room is cheap, and a sample
/// takes as long as the slowest of its warps.
const SURE: f64 = 3.0;
/// Neighbours a point from which on boxes of 32 points pay.
const CROWDED: f64 = 48.0;
/// How much larger the box of queries that look together may be than that of one.
const LOOSE: f64 = 16.0;
/// Distance tests of one launch, at about which another one begins: some tenths of a second of a
/// large GPU, so that a join can be watched and stopped. More launches would leave more of the
/// device idle, while the last warps of each are busy.
const LAUNCH: f64 = 4e11;
/// Bytes of the pieces in which arrays of counts and offsets cross the bus.
const ARRAY_CHUNK: usize = 8 << 20;
/// Bytes of points that are sent at a time while others are multiplied, at the least.
const SENT_AT_ONCE: usize = 16 << 20;
/// Sizes of the pieces in which rows do. Larger ones would not all be kept for the next join.
const CHUNKS: [u64; 3] = [1 << 20, 2 << 20, 4 << 20];
/// Bytes of a line of the host's cache, and distance tests of a query up to which the nearest are found
/// in less time than the host takes to write a short row to its place.
const LINE: f64 = 64.0;
const QUICK_TESTS: f64 = 300.0;
/// Bytes of the smallest batch of rows, unless the result is smaller, and batches of a result; of the
/// nearest more, for the first of them takes a while to be found.
const LEAST_BATCH: u64 = 32 << 20;
const LEAST_LISTED: u64 = 8 << 20;
const BATCHES: u64 = 8;
const NEAREST_BATCHES: u64 = 16;

/// What a plan knows of a device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GpuFacts {
    pub(crate) name: String,
    /// Bytes of memory, and of those that are free.
    pub(crate) memory: u64,
    pub(crate) free: u64,
    pub(crate) multiprocessors: u32,
    /// Whether it has the matrix units that products need.
    pub(crate) matrix_units: bool,
}

/// How rows come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gathering {
    /// Counted, and found again.
    Counted,
    /// Listed as pairs, and spread.
    Listed,
}

impl fmt::Display for Gathering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Gathering::Counted => "counted and filled",
            Gathering::Listed => "listed and spread",
        })
    }
}

/// What a GPU does, beside its strategy.
#[derive(Clone, Debug)]
pub(crate) struct OnGpu {
    pub(crate) device: GpuFacts,
    /// Whether it is asked for all within ε: of the nearest, nothing is said of how threads share the
    /// work, in which order, or how rows come about.
    pub(crate) within: bool,
    /// Not `Auto`.
    pub(crate) cooperation: Cooperation,
    pub(crate) threads_per_query: u32,
    /// Not `Auto`.
    pub(crate) schedule: Schedule,
    pub(crate) gathering: Gathering,
    /// Whether every 32 points in index order have a box.
    pub(crate) boxes: bool,
    /// How much larger the box of queries that look together may be than that of one.
    pub(crate) loose: f64,
    /// `f64` points in `f32`.
    pub(crate) narrow: Option<Narrow>,
    /// Slabs that the points are cut into, because the device cannot hold them at once.
    pub(crate) slabs: usize,
    /// Bytes of the device that the join may use.
    pub(crate) limit: u64,
    /// Bytes of the device that a list with its rows may take.
    pub(crate) list_bytes: u64,
    /// A factor on sampled sizes, for tests of what happens when they are wrong.
    pub(crate) estimate: f64,
    /// Neighbours that a point is expected to have, or k.
    neighbors: f64,
    /// Whether rows of the nearest are put in order on the device, for tests.
    in_order: Option<bool>,
    /// Distance tests that are expected, and pairs.
    pub(crate) expected_tests: f64,
    pub(crate) expected_pairs: f64,
    /// The most pairs there may be, where that is not much more than what is expected: a list that
    /// has room for them needs no sample.
    pub(crate) most_pairs: Option<f64>,
    /// Bytes that cross the bus at a time, and of a batch of rows, if that was asked for.
    chunk: Option<usize>,
    batch: Option<u64>,
    /// Bytes of the device that a batch may take, three of which exist at a time.
    most_batch: u64,
    /// Bytes of points that are sent at a time while others are multiplied, at the least.
    pub(crate) sent_at_once: usize,
    /// Whether the CPU finishes what the device leaves when it is lost.
    pub(crate) rescue: bool,
    /// How long after its index the device is said to be lost, for tests.
    pub(crate) lost_after: Option<Duration>,
    /// Distance tests a second, where the device is to do no more.
    pub(crate) rate: Option<f64>,
    calibration: Calibration,
}

impl OnGpu {
    /// `tests`: distance tests that a query is expected to take.
    pub(super) fn new(
        asked: &Asked<'_>,
        summary: &Summary,
        device: &GpuFacts,
        calibration: &Calibration,
        expected: Expected,
        tests: f64,
    ) -> Self {
        let options = &asked.options.gpu;
        let neighbors = expected.neighbors();
        let limit = options.memory_limit.unwrap_or((device.free as f64 * SHARE) as u64);
        let within = matches!(expected, Expected::About(_));
        let index = match within {
            true => gpu::index_bytes(summary),
            false => gpu_knn::index_bytes(summary),
        };
        let room = (limit as f64 * INDEX_SHARE).max(1.0);
        let slabs = (index as f64 / room).ceil().clamp(1.0, 1e6) as usize;
        let slabs = options.knobs.partitions.unwrap_or(slabs);
        let rest = limit.saturating_sub(index / slabs as u64);
        let (cooperation, threads_per_query) = cooperation(asked.question, options);
        let listed = tests > MANY_TESTS * neighbors.max(0.01);
        let queries = summary.left as f64;
        OnGpu {
            device: device.clone(),
            within,
            cooperation,
            threads_per_query,
            schedule: match options.schedule {
                Schedule::Auto => Schedule::IndexOrder,
                named => named,
            },
            gathering: match options.knobs.listed.unwrap_or(listed) {
                true => Gathering::Listed,
                false => Gathering::Counted,
            },
            boxes: options.knobs.boxes.unwrap_or(neighbors > CROWDED),
            loose: options.knobs.loose.unwrap_or(LOOSE),
            narrow: Narrow::new(summary, neighbors),
            slabs,
            limit,
            list_bytes: rest / 5 * 4,
            estimate: options.knobs.estimate.unwrap_or(1.0),
            neighbors,
            in_order: options.knobs.in_order,
            expected_tests: tests * queries,
            expected_pairs: neighbors * queries,
            most_pairs: expected.most(SURE).map(|most| most * queries),
            chunk: options.chunk_bytes,
            batch: options.batch_bytes,
            most_batch: (rest / 6).max(1 << 20),
            sent_at_once: options.knobs.sent_at_once.unwrap_or(SENT_AT_ONCE),
            rescue: asked.options.device != Device::Gpu || asked.options.rescue,
            lost_after: options.knobs.lost_after,
            rate: options.rate_limit.filter(|rate| *rate > 0.0),
            calibration: *calibration,
        }
    }

    /// The same for a share of the queries.
    pub(crate) fn for_share(&self, share: f64) -> Self {
        let expected_tests = self.expected_tests * share;
        let expected_pairs = self.expected_pairs * share;
        // Some queries are not as all are.
        OnGpu { expected_tests, expected_pairs, most_pairs: None, ..self.clone() }
    }

    /// The same where so many share the memory of the device.
    pub(crate) fn among(self, many: usize) -> Self {
        let many = many.max(1) as u64;
        let most_batch = (self.most_batch / many).max(1 << 20);
        OnGpu { list_bytes: self.list_bytes / many, most_batch, ..self }
    }

    /// How candidates for the `k` nearest of so many come on shortlists by products, if they can.
    pub(crate) fn shortlisting(
        &self,
        k: usize,
        candidates: usize,
        dim: usize,
    ) -> Option<Shortlisting> {
        let lists = Shortlisting::new(k, candidates, dim)?;
        let room = (lists.room as f64 * self.estimate) as usize;
        Some(Shortlisting { room: room.max(k).next_multiple_of(4), ..lists })
    }

    /// Whether several threads may write to one row, in any order.
    pub(crate) fn shares_rows(&self) -> bool {
        self.cooperation != Cooperation::Cell && self.threads_per_query > 1
    }

    /// Whether finding each pair of one set once pays although both of its rows want it: where
    /// tests are many and matches few.
    pub(crate) fn mirrors(&self) -> bool {
        self.expected_tests > FEW_MATCHES * self.expected_pairs
    }

    /// Whether rows of the nearest, of so many bytes in all, are put in the order of the input before
    /// they are sent: if they are short, and found in less time than it takes the host to do it.
    pub(crate) fn in_order(&self, bytes: u64) -> bool {
        let queries = self.expected_pairs / self.neighbors.max(1.0);
        let whole_lines = (4.0 * self.neighbors) % LINE == 0.0;
        let quick = self.expected_tests < QUICK_TESTS * queries;
        let fits = bytes <= self.batch.unwrap_or(3 * self.most_batch);
        self.in_order.unwrap_or(quick && !whole_lines && fits) && bytes <= 3 * self.most_batch
    }

    /// Launches that a share of all queries is done in.
    pub(crate) fn launches(&self, share: f64) -> u64 {
        (self.expected_tests * share / LAUNCH).ceil().clamp(1.0, 1e6) as u64
    }

    /// Bytes of counts and offsets that cross the bus at a time.
    pub(crate) fn array_chunk(&self) -> usize {
        self.chunk.unwrap_or(ARRAY_CHUNK)
    }

    /// Bytes that cross the bus at a time, for a result of `total` bytes, and the seconds that
    /// it will take; `kept` bytes of host memory are pinned already.
    pub(crate) fn chunk(&self, total: u64, kept: u64) -> (usize, f64) {
        let model = BatchModel::of_the_bus(&self.calibration, total);
        let chunk = match self.chunk {
            Some(bytes) => bytes.max(64) as u64,
            None => model.best(total, kept, &CHUNKS).unwrap_or(CHUNKS[2]),
        };
        (chunk as usize, model.seconds(total, chunk, kept))
    }

    /// The size of batches for a result of `total` bytes. With several, the first is soon on the
    /// bus. What was listed can be cut anywhere; but queries of a batch that look again are
    /// farther from each other than all are, and share fewer candidates, so there is one batch of
    /// those, unless pairs take few tests.
    pub(crate) fn batch_bytes(&self, total: u64, listed: bool) -> u64 {
        let easy = self.expected_tests < EASY * self.expected_pairs;
        let bytes = match (listed, easy) {
            (true, _) => (total / BATCHES).max(LEAST_LISTED),
            (false, true) => (total / BATCHES).max(LEAST_BATCH),
            (false, false) => total,
        };
        self.batch.unwrap_or(bytes).min(self.most_batch).max(4)
    }

    /// The same for rows of the nearest, where queries that follow each other are neighbours.
    pub(crate) fn nearest_batch_bytes(&self, total: u64) -> u64 {
        let bytes = (total / NEAREST_BATCHES).max(LEAST_LISTED);
        self.batch.unwrap_or(bytes).min(self.most_batch).max(4)
    }
}

/// How threads share the work, and how many there are to a query. Cell-cooperative kernels were
/// the fastest in every case that was measured, but do not know the patterns that are decided by
/// the cell of one query.
fn cooperation(question: &Question, options: &GpuOptions) -> (Cooperation, u32) {
    let by_query = match question {
        Question::Within(within) => {
            matches!(within.removal, DuplicateRemoval::LinearCoord | DuplicateRemoval::Unicomp)
        }
        Question::Nearest(_) => false,
    };
    let cooperation = match options.cooperation {
        Cooperation::Auto if by_query || options.threads_per_query.is_some() => Cooperation::Thread,
        Cooperation::Auto => Cooperation::Cell,
        named => named,
    };
    let threads = match cooperation {
        Cooperation::Warp => 32,
        _ => options.threads_per_query.unwrap_or(1),
    };
    (cooperation, threads as u32)
}
