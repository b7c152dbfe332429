//! What a KNN-join by ranges did.

use core::fmt;

/// What a KNN-join by ranges did, on a GPU alone or beside the CPU.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RangesStats {
    /// The first ε: that at which a point has k neighbours on average, times the factor that was
    /// asked for.
    pub eps_min: f64,
    /// The last ε.
    pub eps: f64,
    /// Batches of the GPU.
    pub rounds: u64,
    /// How often it indexed the points anew, for a larger ε, and the seconds that this took.
    pub reindexed: u64,
    /// See `reindexed`.
    pub reindex_seconds: f64,
    /// Queries that it tried, one that was tried again each time, and how many of those failed:
    /// they had fewer than k neighbours.
    pub attempted: u64,
    /// See `attempted`.
    pub failed: u64,
    /// Queries that the GPU answered, and those that the CPU did.
    pub solved_by_gpu: u64,
    /// See `solved_by_gpu`.
    pub solved_by_cpu: u64,
    /// Queries that the GPU gave away, because too few were left, too few of a batch were solved, or
    /// too many points are close to them.
    pub tail: u64,
}

impl RangesStats {
    /// Adds what was done in another pass, or for another part of the queries.
    pub fn add(&mut self, other: &RangesStats) {
        self.eps_min = self.eps_min.max(other.eps_min);
        self.eps = self.eps.max(other.eps);
        self.rounds += other.rounds;
        self.reindexed += other.reindexed;
        self.reindex_seconds += other.reindex_seconds;
        self.attempted += other.attempted;
        self.failed += other.failed;
        self.solved_by_gpu += other.solved_by_gpu;
        self.solved_by_cpu += other.solved_by_cpu;
        self.tail += other.tail;
    }
}

/// In lines that follow others.
impl fmt::Display for RangesStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\n  ranges: {} queries solved on the gpu in {} rounds, {} on the cpu; {} of {} tries \
             failed, {} queries given away",
            self.solved_by_gpu,
            self.rounds,
            self.solved_by_cpu,
            self.failed,
            self.attempted,
            self.tail
        )?;
        write!(
            f,
            "\n  ε from {:.6} to {:.6}, indexed anew {} times in {:.1} ms",
            self.eps_min,
            self.eps,
            self.reindexed,
            self.reindex_seconds * 1e3
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up() {
        let mut all = RangesStats { eps_min: 1.0, eps: 2.0, rounds: 3, ..Default::default() };
        all.add(&RangesStats { eps_min: 1.0, eps: 1.5, rounds: 2, tail: 7, ..Default::default() });
        assert_eq!((all.eps, all.rounds, all.tail), (2.0, 5, 7));
        let told = all.to_string();
        assert!(told.contains("in 5 rounds") && told.contains("ε from 1.000000 to 2"), "{told}");
    }
}
