//! How the device works: what the options say, and what follows from the plan.

use core::fmt;

use super::batches::BatchModel;
use crate::options::{Cooperation, Schedule};

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

/// Everything that changes how fast an answer comes, and nothing of what it is.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
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
    /// Bytes that cross the bus at a time, if that was asked for.
    pub(crate) chunk: Option<usize>,
    /// Bytes of the device that a batch may take, three of which exist at a time.
    pub(crate) most_batch: u64,
    /// A size that batches should have, if that was asked for.
    pub(crate) batch: Option<u64>,
    /// Bytes of the device that a list with its rows may take.
    pub(crate) list_bytes: u64,
    /// A factor on sampled sizes, for tests of what happens when they are wrong.
    pub(crate) estimate: f64,
}

impl Tuning {
    /// Whether several threads may write to one row, in any order.
    pub(super) fn shares_rows(&self) -> bool {
        self.cooperation != Cooperation::Cell && self.threads_per_query > 1
    }

    /// Bytes that cross the bus at a time, for a result of `total` bytes, and the seconds that
    /// it will take; `kept` bytes of host memory are pinned already.
    pub(super) fn chunk(&self, total: u64, kept: u64) -> (usize, f64) {
        // Up to 4 MiB: larger ones would not all be kept for the next join.
        let sizes: [u64; 3] = core::array::from_fn(|k| 1 << (20 + k));
        let model = BatchModel::of_the_bus(total);
        let chunk = match self.chunk {
            Some(bytes) => bytes.max(64) as u64,
            None => model.best(total, kept, &sizes).unwrap_or(sizes[2]),
        };
        (chunk as usize, model.seconds(total, chunk, kept))
    }

    /// The size of batches for a result of `total` bytes. With several, the first is soon on the
    /// bus; but queries of a batch are farther from each other than all are, and share fewer
    /// candidates. So there is one, unless `easy`: where pairs take few tests.
    pub(super) fn batch_bytes(&self, total: u64, easy: bool) -> u64 {
        const LEAST: u64 = 32 << 20;
        const BATCHES: u64 = 8;
        let bytes = if easy { (total / BATCHES).max(LEAST) } else { total };
        self.batch.unwrap_or(bytes).min(self.most_batch).max(4)
    }
}
