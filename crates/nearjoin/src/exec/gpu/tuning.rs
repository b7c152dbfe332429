//! How the device works: what the options say, and what follows from the plan.

use crate::options::{Cooperation, Schedule};

/// How rows come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gathering {
    /// Counted, and found again.
    Counted,
    /// Listed as pairs, and spread.
    Listed,
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
    /// Bytes that cross the bus at a time.
    pub(crate) chunk_bytes: usize,
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

    /// The size of batches for a result of `total` bytes: enough of them that the first is
    /// soon on the bus, and not so many that queries of a batch are far from each other.
    pub(super) fn batch_bytes(&self, total: u64) -> u64 {
        const LEAST: u64 = 32 << 20;
        const BATCHES: u64 = 8;
        self.batch.unwrap_or((total / BATCHES).max(LEAST)).min(self.most_batch).max(4)
    }
}
