//! Pure decisions over summaries: no threads, no device, no clock.

pub(crate) mod budget;
pub(crate) mod choose;
pub(crate) mod estimate;
pub(crate) mod gpu;
pub(crate) mod knn;

use core::fmt;

pub(crate) use budget::Budget;
pub(crate) use choose::{Alternative, Detail, Shaping};

use crate::index::grid::Axis;
use crate::options::Strategy;
use crate::stats::bytes;
use crate::summary::Summary;

/// What will be done, and why.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) chosen: Alternative,
    /// Whether the user named the strategy.
    pub(crate) named: bool,
    /// Threads that share the work.
    pub(crate) threads: usize,
    /// Every strategy with its cost, the cheapest first.
    pub(crate) alternatives: Vec<Alternative>,
    /// Expected neighbours per left point.
    pub(crate) neighbors: f64,
    pub(crate) budget: Budget,
    pub(crate) points: (usize, usize),
    pub(crate) is_self: bool,
    pub(crate) dim: usize,
    pub(crate) extents: Vec<(f64, f64)>,
}

/// Decides from the summary and the options, for the CPU.
pub(crate) fn decide(
    summary: &Summary,
    wanted: Strategy,
    shaping: Shaping,
    memory_limit: Option<u64>,
    threads: usize,
) -> Decision {
    let alternatives = choose::alternatives(summary, shaping, estimate::neighbors(summary));
    choose(summary, wanted, alternatives, memory_limit, threads)
}

/// Chooses among alternatives, the cheapest of which comes first.
pub(crate) fn choose(
    summary: &Summary,
    wanted: Strategy,
    alternatives: Vec<Alternative>,
    memory_limit: Option<u64>,
    threads: usize,
) -> Decision {
    let neighbors = estimate::neighbors(summary);
    let named = wanted != Strategy::Auto;
    let chosen = alternatives.iter().find(|a| !named || a.strategy == wanted);
    let chosen = chosen.unwrap_or(&alternatives[0]).clone();
    let budget = Budget::new(memory_limit, budget::index_bytes(summary));
    Decision {
        chosen,
        named,
        threads,
        alternatives,
        neighbors,
        budget,
        points: (summary.left, summary.right),
        is_self: summary.is_self,
        dim: summary.dim,
        extents: summary.extents.clone(),
    }
}

impl Decision {
    /// Expected ordered pairs.
    pub(crate) fn pairs(&self) -> f64 {
        self.neighbors * self.points.0 as f64
    }

    /// Expected seconds to count, and to list all neighbours as CSR.
    pub(crate) fn seconds(&self) -> (f64, f64) {
        let share = 1e-9 / self.threads.max(1) as f64;
        let count = self.chosen.cost.per_query * self.points.0 as f64 * share;
        let written = self.points.0 as f64 * estimate::ROW + self.pairs() * estimate::PAIR;
        (count, 1.3 * count + written * share)
    }

    /// The shape of the index, in words.
    pub(crate) fn shape(&self) -> Vec<String> {
        self.chosen.detail.shape()
    }

    /// Expected seconds, and distance tests, of each strategy.
    pub(crate) fn costs(&self) -> impl Iterator<Item = (Strategy, f64, f64)> {
        let points = self.points.0 as f64;
        let seconds = 1e-9 * points / self.threads.max(1) as f64;
        self.alternatives
            .iter()
            .map(move |a| (a.strategy, a.cost.per_query * seconds, a.cost.tests * points))
    }
}

impl Detail {
    /// The shape of the index, in words.
    pub(crate) fn shape(&self) -> Vec<String> {
        match self {
            Detail::Brute => vec!["every point is a candidate".into()],
            Detail::Directory(shape) => {
                let (levels, parts, dims) = (shape.dims.len(), shape.fanout, &shape.dims);
                vec![format!("{levels} levels of {parts} parts over dimensions {dims:?}")]
            }
            Detail::Grid(shape) => {
                let line = |axis: &Axis| {
                    format!("dimension {}: {} cells of {:.6}", axis.dim, axis.cells, axis.width)
                };
                shape.axes.iter().map(line).collect()
            }
            Detail::Ego(dims) => {
                let first: Vec<_> = dims.iter().take(8).collect();
                vec![format!("ε-cells ordered by dimensions {first:?}")]
            }
        }
    }
}

impl Decision {
    /// What is joined, in words.
    pub(crate) fn fmt_points(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (left, right) = self.points;
        match self.is_self {
            true => writeln!(f, "join {left} points with themselves, dimension {}", self.dim),
            false => writeln!(f, "join {left} × {right} points, dimension {}", self.dim),
        }
    }

    /// The expected result, in words.
    pub(crate) fn fmt_result(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "estimated result {:.3e} pairs, {:.1} neighbours per point, {} as CSR",
            self.pairs(),
            self.neighbors,
            bytes((self.pairs() * 4.0 + self.points.0 as f64 * 8.0) as u64)
        )
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_points(f)?;
        let why = if self.named { "as asked" } else { "cheapest by estimate" };
        writeln!(f, "strategy {} ({why})", self.chosen.strategy)?;
        for line in self.shape() {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "estimated cost of indexing and counting")?;
        for (strategy, seconds, tests) in self.costs() {
            let mark = if strategy == self.chosen.strategy { '*' } else { ' ' };
            writeln!(f, "{mark} {strategy:<10} {seconds:>12.3} s {tests:>12.3e} distance tests")?;
        }
        self.fmt_result(f)?;
        write!(
            f,
            "memory: index at most {}, limit {}",
            bytes(self.budget.index),
            bytes(self.budget.limit)
        )
    }
}
