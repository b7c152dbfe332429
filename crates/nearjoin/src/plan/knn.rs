//! Decisions for the KNN-join: the same rules, and no sample.

use core::fmt;

use super::Budget;
use super::estimate::{self, ball};
use crate::metric::Metric;
use crate::options::Strategy;
use crate::stats::bytes;

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
        let all = question.points.1 as f64;
        let per_test = estimate::test(question.dim);
        // A tree costs its order, and tests that wait for boxes.
        let tests = tree_tests(question);
        let tree = (Strategy::Tree, tests, tests * per_test * 1.5 + 200.0);
        let brute = (Strategy::Brute, all, all * per_test);
        let mut alternatives = vec![tree, brute];
        alternatives.sort_by(|a, b| a.2.total_cmp(&b.2));
        let named = wanted != Strategy::Auto;
        let strategy = if named { wanted } else { alternatives[0].0 };
        let budget = Budget::new(memory_limit, index_bytes(question));
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

/// Points that are measured for each query: those of all leaves near a leaf of queries.
///
/// In units of the mean spacing a leaf of 16 points is `16^(1/d)` wide, and the k-th neighbour
/// is as far as the radius of a ball that holds k points.
fn tree_tests(question: &Question) -> f64 {
    let dim = question.dim as f64;
    let leaf = 16f64.powf(1.0 / dim);
    let radius = (question.k as f64 / ball(question.metric, dim)).powf(1.0 / dim);
    (2.0 * leaf + 2.0 * radius).powf(dim).min(question.points.1 as f64)
}

/// Bytes that the index takes while it is built: the points in order with their boxes and ids,
/// and a record for each while they are sorted.
fn index_bytes(question: &Question) -> u64 {
    let points = question.points.1 + if question.is_self { 0 } else { question.points.0 };
    let point = question.dim * question.width;
    let record = (question.dim.min(8) * question.width + 4).next_multiple_of(question.width);
    points as u64 * (point + point / 7 + 1 + 4 + record) as u64
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Question { k, points: (left, right), is_self, dim, width, .. } = self.question;
        match is_self {
            true => writeln!(f, "join {left} points with themselves, dimension {dim}")?,
            false => writeln!(f, "join {left} × {right} points, dimension {dim}")?,
        }
        let why = if self.named { "as asked" } else { "cheapest by estimate" };
        writeln!(f, "strategy {} ({why})", self.strategy)?;
        for line in self.shape() {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "estimated cost")?;
        for (strategy, seconds, tests) in self.costs() {
            let mark = if strategy == self.strategy { '*' } else { ' ' };
            writeln!(f, "{mark} {strategy:<10} {seconds:>12.3} s {tests:>12.3e} distance tests")?;
        }
        writeln!(f, "result {left} × {k}, {}", bytes((left * k * (4 + width)) as u64))?;
        write!(
            f,
            "memory: index at most {}, limit {}",
            bytes(self.budget.index),
            bytes(self.budget.limit)
        )
    }
}
