//! The paper's own scheme: how it is asked for, and what it tells.

use nearjoin::{Device, KnnJoin, RangesOptions, RangesStats, Strategy};

use super::super::super::measure::Timed;

/// Where it runs: on the GPU alone, and on both.
pub(super) const DEVICES: [Device; 2] = [Device::Gpu, Device::Hybrid];

/// A KNN-join by ranges.
pub(super) fn join(k: usize, options: RangesOptions) -> KnnJoin {
    KnnJoin::new(k).strategy(Strategy::Ranges).ranges(options)
}

/// With this first batch, and nothing that is kept for the CPU (figure 11).
pub(super) fn large(share: &f64) -> RangesOptions {
    RangesOptions::new().large(*share).window(0.0)
}

/// With another first ε (figure 13).
pub(super) fn eps_factor(factor: &f64) -> RangesOptions {
    RangesOptions::new().eps_factor(*factor)
}

/// With so many threads to a query (table 7).
pub(super) fn threads(threads: &usize) -> RangesOptions {
    RangesOptions::new().threads_per_query(*threads)
}

/// What a call says of its rounds.
pub(super) struct Told {
    stats: RangesStats,
    /// Seconds without the first indexes, which the paper leaves out.
    pub(super) seconds: f64,
}

impl Told {
    pub(super) fn by(timed: &Timed) -> Self {
        let first = timed.stats.index;
        let seconds = timed.time.saturating_sub(first).as_secs_f64();
        Told { stats: timed.stats.ranges.clone().unwrap_or_default(), seconds }
    }

    /// The share of the queries that the GPU solved.
    pub(super) fn solved(&self) -> f64 {
        let RangesStats { solved_by_gpu, solved_by_cpu, .. } = self.stats;
        share(solved_by_gpu as f64, (solved_by_gpu + solved_by_cpu) as f64)
    }

    /// The share of the queries that it attempted and failed.
    pub(super) fn failed(&self) -> f64 {
        share(self.stats.failed as f64, self.stats.attempted as f64)
    }

    /// The share of the time in which it indexed the points anew, and how often.
    pub(super) fn reindexing(&self) -> (f64, u64) {
        (share(self.stats.reindex_seconds, self.seconds), self.stats.reindexed)
    }

    /// Batches of the GPU.
    pub(super) fn batches(&self) -> u64 {
        self.stats.rounds
    }

    /// The share of the queries that the GPU gave away in the end.
    pub(super) fn given_away(&self) -> f64 {
        let RangesStats { solved_by_gpu, solved_by_cpu, tail, .. } = self.stats;
        share(tail as f64, (solved_by_gpu + solved_by_cpu) as f64)
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
