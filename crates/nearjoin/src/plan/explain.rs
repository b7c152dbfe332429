//! The decision in words.

use core::fmt;

use super::{Decision, Detail, Expected, How, OnCpu, OnGpu, Together, Weighed};
use crate::gpu::Cooperation;
use crate::index::grid::Axis;
use crate::index::rings;
use crate::number;
use crate::options::Partitioning;
use crate::stats::bytes;

impl Detail {
    /// The shape of the index, line by line.
    pub(crate) fn lines(&self) -> Vec<String> {
        match self {
            Detail::Brute => vec!["every point is a candidate".into()],
            Detail::Product => {
                vec!["products of all points, and what they leave open one by one".into()]
            }
            Detail::Directory(shape) => {
                let (levels, parts, dims) = (shape.dims.len(), shape.fanout, &shape.dims);
                vec![format!("{levels} levels of {parts} parts over dimensions {dims:?}")]
            }
            Detail::Grid(shape) | Detail::Ranges { shape, .. } => {
                let line = |axis: &Axis| {
                    format!("dimension {}: {} cells of {:.6}", axis.dim, axis.cells, axis.width)
                };
                let eps = match self {
                    Detail::Ranges { eps, .. } => Some(format!("ranges of ε = {eps:.6} at first")),
                    _ => None,
                };
                eps.into_iter().chain(shape.axes.iter().map(line)).collect()
            }
            Detail::Ego(dims) => {
                let first: Vec<_> = dims.iter().take(8).collect();
                vec![format!("ε-cells ordered by dimensions {first:?}")]
            }
            Detail::Tree { leaves, of } => vec![format!("{leaves} leaves of {of} points")],
            Detail::Rings { cells, axes } => {
                vec![format!("{cells} cells of {} points, along {axes} axes", rings::PER_CELL)]
            }
        }
    }
}

impl Decision {
    /// Everything below the line that says what is asked, and where it is answered.
    pub(crate) fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (left, right) = self.points;
        match self.is_self {
            true => writeln!(f, "join {left} points with themselves, dimension {}", self.dim)?,
            false => writeln!(f, "join {left} × {right} points, dimension {}", self.dim)?,
        }
        let why = match self.why_no_products {
            Some(why) => why,
            None if self.named => "as asked",
            None => "cheapest by estimate",
        };
        writeln!(f, "strategy {} ({why})", self.chosen.strategy)?;
        for line in self.chosen.detail.lines() {
            writeln!(f, "  {line}")?;
        }
        match &self.how {
            How::Cpu(how) => self.explain_products(how, f)?,
            How::Gpu(how) => how.explain(f)?,
            How::Both(both) => {
                self.explain_products(&both.cpu, f)?;
                both.explain(f)?;
            }
            How::Ranges(by) => {
                by.first.how.explain(f)?;
                by.explain(f)?;
            }
        }
        self.explain_costs(f)?;
        self.explain_result(f)?;
        let limit = bytes(self.budget.limit);
        match &self.how {
            How::Cpu(_) | How::Both(_) | How::Ranges(_) => {
                write!(f, "memory: index at most {}, limit {limit}", bytes(self.budget.index))?;
                match self.on_gpu() {
                    Some(how) => write!(f, ", {} on the gpu", bytes(how.limit)),
                    None => Ok(()),
                }
            }
            How::Gpu(how) => {
                write!(f, "memory: limit {} on the gpu, {limit} here", bytes(how.limit))
            }
        }
    }

    fn explain_products(&self, how: &OnCpu, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.chosen.detail {
            Detail::Product => writeln!(f, "  {}", how.multiplying.by.told()),
            _ => Ok(()),
        }
    }

    fn explain_costs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.expected {
            Expected::About(_) => "indexing and counting",
            Expected::Most(_) => "indexing and searching",
        };
        writeln!(f, "estimated cost of {what}")?;
        let digits = if self.on_gpu().is_some() { 6 } else { 3 };
        for (strategy, seconds, tests) in self.costs() {
            let mark = if strategy == self.chosen.strategy { '*' } else { ' ' };
            writeln!(
                f,
                "{mark} {strategy:<10} {seconds:>12.digits$} s {:>12} distance tests",
                number::estimate(tests)
            )?;
        }
        Ok(())
    }

    fn explain_result(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.points.0;
        match self.expected {
            Expected::About(neighbors) => {
                let pairs = neighbors.times(left as f64);
                write!(f, "expected result: {}", pairs.of("pairs"))?;
                if !pairs.is_bound() {
                    write!(f, ", {} neighbours per point", number::figures(neighbors.about, 2))?;
                }
                // What there would be room for, where that is all that is known.
                let most = if pairs.is_bound() { pairs.high } else { pairs.about };
                writeln!(f, ", {} as CSR", bytes((most * 4.0 + left as f64 * 8.0) as u64))
            }
            Expected::Most(k) => {
                let pair = 4 + self.width as u64;
                let result = (left as u64).saturating_mul(k as u64).saturating_mul(pair);
                writeln!(f, "result {left} × {k}, {}", bytes(result))
            }
        }
    }
}

impl Together {
    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "on the gpu: strategy {}", self.gpu.chosen.strategy)?;
        for line in self.gpu.chosen.detail.lines() {
            writeln!(f, "  {line}")?;
        }
        if let Some(how) = self.gpu.on_gpu() {
            how.explain(f)?;
        }
        let share = 100.0 * self.gpu_share;
        match self.partitioning {
            Partitioning::StaticQueries => {
                writeln!(
                    f,
                    "shared by {}: {share:.0} % of the queries to the gpu",
                    self.partitioning
                )?;
            }
            Partitioning::StaticCandidates => {
                let by = self.partitioning;
                writeln!(f, "shared by {by}: {share:.0} % of the candidates to the gpu")?;
            }
            by => writeln!(f, "shared by {by}: about {share:.0} % to the gpu")?,
        }
        match self.counts_alone {
            Some(device) => {
                writeln!(f, "  a count is left to the {device}, which meets a pair once")
            }
            None => Ok(()),
        }
    }
}

impl Weighed {
    /// Why it is this processor, or both.
    pub(crate) fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [cpu, gpu, both] = self.seconds;
        writeln!(
            f,
            "devices: cpu {cpu:.4} s, gpu {gpu:.4} s, both {both:.4} s expected for all rows ({})",
            self.calibration
        )?;
        writeln!(f, "  {}", self.why)
    }
}

impl OnGpu {
    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.within {
            write!(f, "  threads cooperate by {}", self.cooperation)?;
            if self.cooperation != Cooperation::Cell {
                write!(f, ", {} to a query", self.threads_per_query)?;
            }
            writeln!(f, "; schedule {}; rows are {}", self.schedule, self.gathering)?;
        }
        match self.slabs {
            1 => Ok(()),
            slabs => writeln!(f, "  the points are cut into {slabs} parts"),
        }
    }
}
