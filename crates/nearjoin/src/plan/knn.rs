//! Decisions for the KNN-join, from a tree that was tried on samples.

use core::fmt;

use super::Budget;
use super::estimate::ball;
use crate::index::rings;
use crate::metric::Metric;
use crate::options::Strategy;
use crate::stats::bytes;

/// Nanoseconds of one thread: a test of a tree, what each dimension adds to it, and to the order
/// of a point; the rest of a query, and each of its neighbours.
const TEST: f64 = 0.9;
const TEST_PER_DIM: f64 = 0.18;
const ORDER_PER_DIM: f64 = 30.0;
const ORDER: f64 = 200.0;
const RANK: f64 = 10.0;
/// The same for a candidate that goes through the sieve.
const SIFT: f64 = 0.25;
const SIFT_PER_DIM: f64 = 0.043;
/// Tests of a grid for each of a tree, or for each point in cells that touch a ball.
const GRID: f64 = 1.3;

/// What is asked, as far as the decision depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) k: usize,
    /// Number of left and right points.
    pub(crate) points: (usize, usize),
    pub(crate) is_self: bool,
    pub(crate) dim: usize,
    /// Bytes of one coordinate.
    pub(crate) width: usize,
    pub(crate) metric: Metric,
    /// What a tree took on samples of the points; none if there are few points.
    pub(crate) trial: Option<Trial>,
}

/// Distance tests per query that trees over samples took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// Points in the smaller and the larger sample, and the tests.
    pub(crate) points: [usize; 2],
    pub(crate) tests: [f64; 2],
    /// Neighbours that were asked for.
    pub(crate) k: usize,
}

/// What will be done, and why.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) strategy: Strategy,
    named: bool,
    question: Question,
    /// Strategies with their expected distance tests per query and nanoseconds, the cheapest
    /// first.
    alternatives: Vec<(Strategy, f64, f64)>,
    threads: usize,
    pub(crate) budget: Budget,
}

impl Decision {
    pub(crate) fn new(
        question: &Question,
        wanted: Strategy,
        memory_limit: Option<u64>,
        threads: usize,
    ) -> Self {
        let (all, dim) = (question.points.1 as f64, question.dim as f64);
        let tests = tree_tests(question);
        let per_query = ORDER + ORDER_PER_DIM * dim + RANK * question.k as f64;
        let tree = (Strategy::Tree, tests, tests * (TEST + TEST_PER_DIM * dim) + per_query);
        let brute = (Strategy::Brute, all, all * (SIFT + SIFT_PER_DIM * dim));
        // A grid is ordered faster than a tree and searched more slowly, if the points are spread
        // evenly, and much more slowly if not. Nothing here tells, so it is never the cheaper one.
        let tests = grid_tests(question).max(GRID * tests);
        let grid = (Strategy::Grid, tests, tests * (TEST + TEST_PER_DIM * dim) + per_query);
        let mut alternatives = vec![tree, grid, brute];
        alternatives.sort_by(|a, b| a.2.total_cmp(&b.2));
        let named = wanted != Strategy::Auto;
        let strategy = if named { wanted } else { alternatives[0].0 };
        let budget = Budget::new(memory_limit, index_bytes(question, strategy, threads));
        Decision { strategy, named, question: *question, alternatives, threads, budget }
    }

    /// Expected distance tests of the strategy that will run.
    pub(crate) fn tests(&self) -> f64 {
        let chosen = self.alternatives.iter().find(|(strategy, ..)| *strategy == self.strategy);
        chosen.map_or(0.0, |(_, tests, _)| tests * self.question.points.0 as f64)
    }

    /// The shape of the index, in words.
    pub(crate) fn shape(&self) -> Vec<String> {
        vec![match self.strategy {
            Strategy::Brute => "every point is a candidate".into(),
            Strategy::Grid => {
                let cells = (self.question.points.1 / rings::PER_CELL).max(1);
                let axes = self.question.dim.min(rings::AXES);
                format!("{cells} cells of {} points, along {axes} axes", rings::PER_CELL)
            }
            _ => format!("{} leaves of 16 points", self.question.points.1.div_ceil(16)),
        }]
    }

    /// Expected seconds, and distance tests, of each strategy.
    pub(crate) fn costs(&self) -> impl Iterator<Item = (Strategy, f64, f64)> {
        let queries = self.question.points.0 as f64;
        let seconds = 1e-9 * queries / self.threads.max(1) as f64;
        self.alternatives
            .iter()
            .map(move |&(strategy, tests, cost)| (strategy, cost * seconds, tests * queries))
    }
}

/// Points that are measured for each query.
///
/// Where there was a trial, as many as in the larger sample, and more as there are more points,
/// by the growth from sample to sample: none where the points lie so that boxes tell them
/// apart, and in proportion where no box can be passed over.
///
/// Without, the points are taken to be spread evenly. In units of their mean spacing a leaf of
/// 16 is a cube `16^(1/d)` wide, and the k-th neighbour as far away as the radius of a ball that
/// holds k: so many leaves touch the ball as have their centre in the sum of both shapes, whose
/// volume is that of its parts, face by face.
fn tree_tests(question: &Question) -> f64 {
    let all = question.points.1 as f64;
    if let Some(Trial { points, tests, k }) = question.trial {
        // A trial that found nothing within its cap has no tests at all.
        let tests = tests.map(|tests| tests.max(1.0));
        let growth = (tests[1] / tests[0]).ln() / (points[1] as f64 / points[0] as f64).ln();
        let more = (all / points[1] as f64).powf(growth.clamp(0.0, 1.0));
        return (tests[1] * more * question.k as f64 / k as f64).min(all);
    }
    let dim = question.dim as f64;
    let leaf = 16f64.powf(1.0 / dim);
    let radius = (question.k as f64 / ball(question.metric, dim)).powf(1.0 / dim);
    let (mut leaves, mut faces) = (1.0, 1.0);
    for j in 1..=question.dim.min(64) {
        faces *= (dim - j as f64 + 1.0) / j as f64;
        leaves += faces * ball(question.metric, j as f64) * (radius / leaf).powi(j as i32);
    }
    (16.0 * leaves).min(all)
}

/// The same in a grid, if the points are spread evenly: those in the cells near a query. It has
/// few axes, so that in many dimensions a cell is narrow along some and as wide as all points
/// along the others.
fn grid_tests(question: &Question) -> f64 {
    let (dim, all) = (question.dim as f64, question.points.1.max(1) as f64);
    let axes = dim.min(rings::AXES as f64);
    // Both in parts of the extent.
    let cell = (rings::PER_CELL as f64 / all).powf(1.0 / axes);
    let radius = (question.k as f64 / ball(question.metric, dim) / all).powf(1.0 / dim);
    (GRID * all * (cell + 2.0 * radius).powf(axes)).min(all)
}

/// Bytes that the index takes while it is built, and a search beside it: the points in order with
/// their boxes and ids; while they are sorted a record for each, or its cell and the counts of the
/// cells; or all of them as `f32`. And for every thread, the best of its queries.
fn index_bytes(question: &Question, strategy: Strategy, threads: usize) -> u64 {
    let points = question.points.1 + if question.is_self { 0 } else { question.points.0 };
    let point = question.dim * question.width;
    let order = match strategy {
        // Beside the cells of the points: where each cell begins, and per thread how many it
        // has and which leaves it saw; the coordinates of up to as many slices, in eight parts.
        Strategy::Grid => {
            4 + 1 + threads.min(32).div_ceil(4) + threads.div_ceil(32) + 2 * question.width
        }
        Strategy::Brute => question.dim * size_of::<f32>(),
        _ => (question.dim.min(8) * question.width + 4).next_multiple_of(question.width),
    };
    // Twice k, 16 queries at a time, a distance and a row for each; by brute force as many
    // again, up to 64 MiB.
    let k = question.k.min(question.points.1) as u64;
    let block = 2 * k.max(16) * 16 * 2 * question.width as u64;
    let best = match strategy {
        Strategy::Brute => block + (16 * block).min(block.max(1 << 26)),
        _ => block,
    };
    // Every level of boxes has up to two blocks of 16 more than it needs, on both sides.
    let padding = 2 * 8 * 2 * 32 * point as u64;
    points as u64 * (point + point / 7 + 2 + 4 + order) as u64 + padding + threads as u64 * best
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Question { k, points: (left, right), is_self, dim, width, .. } = self.question;
        match is_self {
            true => writeln!(f, "join {left} points with themselves, dimension {dim}")?,
            false => writeln!(f, "join {left} × {right} points, dimension {dim}")?,
        }
        let why = match (self.named, self.question.trial) {
            (true, _) => "as asked".into(),
            (false, None) => "cheapest by estimate".into(),
            (false, Some(trial)) => {
                format!("cheapest by a trial on a sample of {} points", trial.points[1])
            }
        };
        writeln!(f, "strategy {} ({why})", self.strategy)?;
        for line in self.shape() {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "estimated cost")?;
        for (strategy, seconds, tests) in self.costs() {
            let mark = if strategy == self.strategy { '*' } else { ' ' };
            writeln!(f, "{mark} {strategy:<10} {seconds:>12.3} s {tests:>12.3e} distance tests")?;
        }
        let result = (left as u64).saturating_mul(k as u64).saturating_mul(4 + width as u64);
        writeln!(f, "result {left} × {k}, {}", bytes(result))?;
        write!(
            f,
            "memory: index at most {}, limit {}",
            bytes(self.budget.index),
            bytes(self.budget.limit)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_without_tests_is_a_tree_without_tests() {
        let tests = |tests: [f64; 2]| {
            tree_tests(&Question {
                k: 8,
                points: (1_000_000, 1_000_000),
                is_self: true,
                dim: 2,
                width: 8,
                metric: Metric::L2,
                trial: Some(Trial { points: [512, 2048], tests, k: 8 }),
            })
        };
        assert_eq!(tests([0.0, 0.0]), 1.0);
        assert_eq!(tests([30.0, 0.0]), 1.0);
        assert_eq!(tests([40.0, 40.0]), 40.0);
        assert_eq!(tests([512.0, 2048.0]), 1_000_000.0);
        assert!(tests([0.0, 5.0]) <= 1_000_000.0);
    }
}
