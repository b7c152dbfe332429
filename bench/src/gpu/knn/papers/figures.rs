//! What the paper on HybridKNN-Join has: M. Gowanlock, "Hybrid KNN-Join: Parallel Nearest Neighbor
//! Searches Exploiting CPU and GPU Architectural Features". Its plots have no numbers: of figures 11
//! to 13, 16 and 19 there is what its text says.

use super::super::super::data::Law;
use super::super::cases::{self, Case};

/// Where its times were measured: they leave out the first indexes of both processors.
pub(crate) const MACHINE: &str = "NVIDIA GP100, two Intel E5-2620 v4 of 16 cores together";

/// Points of a synthetic set.
pub(crate) const POINTS: usize = 10_000_000;

/// The k of tables 8 and 9.
pub(crate) const KS: [usize; 3] = [8, 32, 96];

/// The k of tables 6 and 7 and of figures 11 to 13, where they have one.
pub(crate) const K: usize = 32;

/// Figure 12: the load imbalance is below this in every case.
pub(crate) const IMBALANCE: f64 = 0.10;

/// Figure 19(b): the GPU generally solves a smaller share of the queries than this.
pub(crate) const SOLVED: f64 = 0.5;

/// The first batches of figure 11, a few of its range.
pub(crate) const LARGE: [f64; 6] = [0.05, 0.2, 0.4, 0.6, 0.8, 1.0];

/// What the text says of figure 11.
pub(crate) const LARGE_SAYS: &str = "much the same from 0.3 to 0.6, and Unif6D best at 0.4";

/// The factors of figure 13.
pub(crate) const FACTORS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];

/// What the text says of figure 13.
pub(crate) const FACTORS_SAYS: &str = "2 is slightly better than 1 for Unif2D and Expo2D";

/// Threads to a query, and k, of table 7.
pub(crate) const THREADS: [usize; 4] = [1, 8, 16, 32];
pub(crate) const THREADS_KS: [usize; 3] = [8, 32, 128];

/// A synthetic set, and its figures.
#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) name: &'static str,
    law: Law,
    pub(crate) dimension: usize,
    /// Table 6, at k = 32: seconds, and the shares of them to find ε and to order the queue.
    pub(crate) seconds: f64,
    pub(crate) finding_eps: f64,
    pub(crate) ordering: f64,
    /// Table 7: seconds, for each k and each number of threads.
    pub(crate) threads: Option<[[f64; 4]; 3]>,
    /// Table 8: failed of attempted queries, for each of [`KS`].
    pub(crate) failed: [f64; 3],
    /// Table 9: the share of the time to index anew, and how often, for each of [`KS`].
    pub(crate) reindexing: [(f64, u64); 3],
    /// Figure 15: batches of a GPU that works alone.
    pub(crate) batches_alone: Option<u64>,
}

impl Set {
    /// The points, and how many nearest are asked for.
    pub(crate) fn case(&self, points: usize, k: usize) -> Case {
        cases::law(self.name, self.law, self.dimension, k).points(points.max(k + 1))
    }

    /// Seconds of HybridKNN-Join with its default options, where a table has them.
    pub(crate) fn seconds(&self, k: usize) -> Option<f64> {
        if k == K {
            return Some(self.seconds);
        }
        let row = THREADS_KS.iter().position(|&of| of == k)?;
        let default = THREADS.iter().position(|&threads| threads == 8)?;
        self.threads.map(|threads| threads[row][default])
    }
}

/// The synthetic sets, exponential ones with λ = 40.
pub(crate) const SETS: &[Set] = &[
    Set {
        name: "Unif2D",
        law: Law::Uniform,
        dimension: 2,
        seconds: 9.82,
        finding_eps: 0.063,
        ordering: 0.068,
        threads: None,
        failed: [0.163, 0.135, 0.162],
        reindexing: [(0.030, 1), (0.024, 1), (0.021, 1)],
        batches_alone: None,
    },
    Set {
        name: "Unif4D",
        law: Law::Uniform,
        dimension: 4,
        seconds: 19.54,
        finding_eps: 0.037,
        ordering: 0.035,
        threads: Some([
            [11.75, 12.23, 12.50, 14.00],
            [20.35, 19.99, 20.15, 21.74],
            [41.65, 37.27, 38.27, 40.23],
        ]),
        failed: [0.217, 0.198, 0.273],
        reindexing: [(0.028, 1), (0.018, 1), (0.017, 1)],
        batches_alone: None,
    },
    Set {
        name: "Unif6D",
        law: Law::Uniform,
        dimension: 6,
        seconds: 74.50,
        finding_eps: 0.012,
        ordering: 0.011,
        threads: Some([
            [41.33, 42.62, 44.85, 52.15],
            [90.01, 73.99, 78.15, 84.43],
            [184.45, 168.01, 172.23, 172.67],
        ]),
        failed: [0.270, 0.236, 0.211],
        reindexing: [(0.015, 1), (0.009, 1), (0.005, 1)],
        batches_alone: Some(4),
    },
    Set {
        name: "Expo2D",
        law: Law::Exponential,
        dimension: 2,
        seconds: 10.82,
        finding_eps: 0.057,
        ordering: 0.063,
        threads: None,
        failed: [0.087, 0.058, 0.041],
        reindexing: [(0.061, 1), (0.027, 1), (0.020, 1)],
        batches_alone: None,
    },
    Set {
        name: "Expo4D",
        law: Law::Exponential,
        dimension: 4,
        seconds: 22.97,
        finding_eps: 0.038,
        ordering: 0.035,
        threads: None,
        failed: [0.257, 0.280, 0.296],
        reindexing: [(0.083, 3), (0.034, 2), (0.021, 2)],
        batches_alone: None,
    },
    Set {
        name: "Expo6D",
        law: Law::Exponential,
        dimension: 6,
        seconds: 77.21,
        finding_eps: 0.013,
        ordering: 0.011,
        threads: None,
        failed: [0.342, 0.274, 0.250],
        reindexing: [(0.036, 2), (0.017, 2), (0.011, 2)],
        batches_alone: Some(64),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_those_of_the_default_options() {
        let of =
            |name: &str, k| SETS.iter().find(|set| set.name == name).and_then(|set| set.seconds(k));
        assert_eq!(of("Unif6D", 8), Some(42.62));
        assert_eq!(of("Unif6D", 32), Some(74.50));
        assert_eq!(of("Unif6D", 96), None);
        assert_eq!(of("Expo2D", 8), None);
        for set in SETS {
            assert!(set.name.ends_with(&format!("{}D", set.dimension)), "{}", set.name);
        }
    }
}
