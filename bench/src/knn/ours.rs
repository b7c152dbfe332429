//! What nearjoin takes for a KNN-join.

use nearjoin::sink::Neighbors;
use nearjoin::{KnnJoin, Scalar, Stats};

use crate::Result;
use crate::call::timed;

/// The best of several calls.
pub(crate) struct Best<T> {
    pub(crate) seconds: f64,
    pub(crate) stats: Stats,
    /// The answer of the last call.
    pub(crate) neighbors: Neighbors<T>,
}

impl<T> Best<T> {
    /// Distances that were computed for each point.
    pub(crate) fn tests_per_point(&self) -> f64 {
        self.stats.distance_tests as f64 / self.stats.points.0.max(1) as f64
    }
}

/// Calls are not repeated once they took this many seconds together.
const ENOUGH: f64 = 60.0;

/// The best of `reps` calls, each into fresh memory, after one that warms up; of fewer where
/// they take long, and where one alone does, that one.
pub(crate) fn best<T: Scalar>(
    data: &[T],
    dimension: usize,
    k: usize,
    reps: usize,
) -> Result<Best<T>> {
    let (warm_up, stats, neighbors) = call(data, dimension, k)?;
    let seconds = if warm_up < ENOUGH { f64::INFINITY } else { warm_up };
    let mut best = Best { seconds, stats, neighbors };
    let mut spent = warm_up;
    for _ in 0..reps {
        if spent >= ENOUGH {
            break;
        }
        best.neighbors = Neighbors::new();
        let (seconds, stats, neighbors) = call(data, dimension, k)?;
        spent += seconds;
        best = Best { seconds: best.seconds.min(seconds), stats, neighbors };
    }
    Ok(best)
}

/// One call, into fresh memory.
pub(crate) fn call<T: Scalar>(
    data: &[T],
    dimension: usize,
    k: usize,
) -> Result<(f64, Stats, Neighbors<T>)> {
    let mut neighbors = Neighbors::new();
    let (seconds, stats) =
        timed(data, dimension, |points| KnnJoin::new(k).plan_self(points)?.run(&mut neighbors))?;
    Ok((seconds, stats, neighbors))
}
