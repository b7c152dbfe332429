//! Result sizes and costs, from the sample alone.
//!
//! Costs are in nanoseconds of one thread. The constants were fitted to measurements on
//! two x86-64 machines with AVX-512; they need only be right to a factor of two, since
//! they choose between strategies that differ by more.

use super::index_cost;
use super::knn::tree_tests;
use super::quantiles;
use super::trial::{self, Tried};
use crate::index::grid::Axis;
use crate::metric::Metric;
use crate::options::Strategy;
use crate::summary::Summary;

/// One distance test, and what each dimension adds.
const TEST: f64 = 0.08;
const TEST_PER_DIM: f64 = 0.03;
/// Gathering one candidate into a tile, per dimension.
const GATHER_PER_DIM: f64 = 0.12;
/// Looking up one row of cells.
const LOOKUP: f64 = 6.0;
/// Reaching the points of a row that are not in the cache.
const COLD: f64 = 60.0;
/// Everything else a block of queries costs.
const BLOCK: f64 = 120.0;
/// Comparing one group of sixteen boxes with a block, per dimension.
const BOXES_PER_DIM: f64 = 2.5;
/// Bringing a row of the result to its place, and a pair of it.
pub(crate) const ROW: f64 = 50.0;
pub(crate) const PAIR: f64 = 2.0;
/// Dimensions up to which the recursive join was measured.
const FITTED: usize = 8;
/// Queries in a full block.
const QUERIES: f64 = 16.0;

/// Volume of the unit ball of a metric.
pub(super) fn ball(metric: Metric, dim: f64) -> f64 {
    // V(d) = V(d − 2) · 2π/d for L2, 2ᵈ/d! for L1, 2ᵈ for L∞.
    let mut volume = match metric {
        Metric::L2 if (dim as u64).is_multiple_of(2) => 1.0,
        _ => 2.0,
    };
    let (mut d, step) = match metric {
        Metric::L2 if (dim as u64).is_multiple_of(2) => (2.0, 2.0),
        Metric::L2 => (3.0, 2.0),
        Metric::L1 | Metric::Linf => (2.0, 1.0),
    };
    while d <= dim {
        volume *= match metric {
            Metric::L2 => 2.0 * core::f64::consts::PI / d,
            Metric::L1 => 2.0 / d,
            Metric::Linf => 2.0,
        };
        d += step;
    }
    volume
}

/// A strategy's expected work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Distance tests per left point.
    pub(crate) tests: f64,
    /// Nanoseconds per left point.
    pub(crate) per_query: f64,
    /// Nanoseconds of the index, of both sides.
    pub(crate) index: f64,
}

/// Threads that share the index, and that share so many queries: few queries are few units of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    pub(crate) threads: f64,
    pub(crate) busy: f64,
    pub(crate) queries: f64,
}

impl Sharing {
    /// Queries that go to `threads` threads in units.
    pub(crate) fn new(queries: usize, unit: usize, threads: usize) -> Self {
        let units = queries.div_ceil(unit).max(1);
        let busy = threads.max(1).min(units) as f64;
        Sharing { threads: threads.max(1) as f64, busy, queries: queries as f64 }
    }

    /// A device, whose costs are those of all its threads.
    pub(crate) fn device(queries: usize) -> Self {
        Sharing { threads: 1.0, busy: 1.0, queries: queries as f64 }
    }

    /// Nanoseconds of nanoseconds that every query takes one thread.
    pub(crate) fn queries(&self, per_query: f64) -> f64 {
        per_query * self.queries / self.busy
    }
}

impl Cost {
    /// Nanoseconds of all of it.
    pub(crate) fn nanoseconds(&self, sharing: &Sharing) -> f64 {
        self.index / sharing.threads + sharing.queries(self.per_query)
    }
}

fn test(dim: usize) -> f64 {
    TEST + TEST_PER_DIM * dim as f64
}

/// The cost of `tests` candidates per query, gathered for `block` queries at once.
fn tested(dim: usize, tests: f64, block: f64) -> f64 {
    tests * (test(dim) + GATHER_PER_DIM * dim as f64 / block)
}

/// Queries of a full block: all of them, if they are few.
pub(super) fn block(summary: &Summary) -> f64 {
    QUERIES.min(summary.left.max(1) as f64)
}

/// Every point against every point.
pub(crate) fn brute(summary: &Summary) -> Cost {
    let tests = summary.right as f64;
    let block = block(summary);
    Cost {
        tests,
        per_query: tested(summary.dim, tests, block) + BLOCK / block,
        index: index_cost::epsilon(summary, Strategy::Brute, 0),
    }
}

/// The directory with `fanout` parts on each of some levels, tried on a sample where that is wanted.
/// `dims`: all dimensions, the most selective first.
pub(crate) fn directory(
    summary: &Summary,
    dims: &[usize],
    levels: usize,
    fanout: usize,
    try_it: bool,
) -> Cost {
    let tried = || try_it.then(|| quantiles::tests(summary, dims, levels, fanout)).flatten();
    let dims = &dims[..levels];
    let tests = match summary.eps == 0.0 {
        true => piles(summary.pairs.neighbors.about),
        false => tried().unwrap_or_else(|| slices(summary, dims, fanout)),
    };
    let tests = tests.min(summary.right as f64);
    let parts = (fanout * dims.len()) as f64 * 4.0;
    let block = block(summary);
    Cost {
        tests,
        per_query: tested(summary.dim, tests, block) + (BLOCK + parts) / block,
        index: index_cost::epsilon(summary, Strategy::Directory, dims.len()),
    }
}

/// Tests of the directory where no sample of the points is there: as if its dimensions were
/// independent. A part is in order along the dimension of the last level, and boxes cut it there.
fn slices(summary: &Summary, dims: &[usize], fanout: usize) -> f64 {
    let part = 1.0 / fanout as f64;
    let in_part = summary.right as f64 * part.powi(dims.len() as i32);
    let fraction = |(level, &j): (usize, &usize)| {
        let is_last = level + 1 == dims.len();
        let slice = if is_last { part * (QUERIES / in_part).min(1.0) } else { part };
        (summary.fraction(&[(j, summary.reach)]) + 2.0 * slice).min(1.0)
    };
    summary.right as f64 * dims.iter().enumerate().map(fraction).product::<f64>()
}

/// Cells to one side of a block's own that are within reach of it: the last of them only if one of its
/// queries, which are anywhere in their cell, is near enough to that side.
fn beyond(reach_in_cells: f64, queries: f64) -> f64 {
    let whole = reach_in_cells.floor();
    whole + 1.0 - (1.0 - (reach_in_cells - whole)).powf(queries)
}

/// A grid of these axes, the last one along the rows. Where it has boxes, it takes neighbours without
/// a test as the recursive join does.
pub(crate) fn grid(summary: &Summary, axes: &[Axis], taken: f64) -> Cost {
    let Some((along, slow)) = axes.split_last() else {
        return brute(summary);
    };
    let reach = summary.reach;
    let points = summary.right as f64;
    // Points in the row of a query, and of those within ε along it: a block holds up
    // to sixteen of them and may be twice as long as ε.
    let half: Vec<_> = slow.iter().map(|axis| (axis.dim, axis.width / 2.0)).collect();
    let near = [&half[..], &[(along.dim, reach)]].concat();
    let in_row = points * if half.is_empty() { 1.0 } else { summary.fraction(&half) };
    let in_reach = points * summary.fraction(&near);
    // Queries are spread as the points are, if they are as many.
    let density = summary.left as f64 / points.max(1.0);
    let (in_row, in_reach) = (in_row * density, in_reach * density);
    let block = (in_reach + 1.0).max((in_row + 1.0).min(4.0)).min(block(summary));
    let length = reach * ((block - 1.0) / in_reach.max(1e-9)).min(2.0);
    let across = |axis: &Axis| (axis.dim, axis.width * (0.5 + beyond(reach / axis.width, block)));
    let mut limits: Vec<_> = slow.iter().map(across).collect();
    limits.push((along.dim, reach + along.width + length / 2.0));
    let tests = (points * summary.fraction(&limits) - taken).max(block);
    let rows: f64 = slow
        .iter()
        .map(|axis| (1.0 + 2.0 * (reach / axis.width).ceil()).min(axis.cells as f64))
        .product();
    let cells: f64 = axes.iter().map(|axis| axis.cells as f64).product();
    // Where queries are sparse, no other has looked at those points before.
    let cold = COLD * (1.0 - density).max(0.0);
    // A table that does not fit the cache costs a miss per row.
    let lookup = if cells <= 2.0 * points { LOOKUP } else { 4.0 * LOOKUP };
    let per_query = tested(summary.dim, tests, block) + (BLOCK + rows * (lookup + cold)) / block;
    Cost { tests, per_query, index: index_cost::epsilon(summary, Strategy::Grid, 0) }
}

/// Tests of boxes where points match that are equal: those of boxes that hold the ends of two piles,
/// and of queries in such boxes, the piles of both.
fn piles(neighbors: f64) -> f64 {
    2.0 * QUERIES + 2.0 * (neighbors + 1.0).min(QUERIES)
}

/// Tests of the recursive join where no sample of the points is there.
///
/// Around a ball that holds `neighbors` points, a box of sixteen is about
/// `(16 · volume of the unit ball / neighbors)^(1/dim)` of its radius wide; only boxes that
/// cross the surface are tested. The factor 1.1 is fitted, in few dimensions; in many it is those
/// in which the neighbours lie that count.
fn spheres(summary: &Summary, dims: usize, neighbors: f64) -> f64 {
    let mut dim = dims.clamp(1, summary.dim) as f64;
    if dims > FITTED {
        dim = summary.pairs.rate.round().clamp(1.0, dim);
    }
    let side = (16.0 * ball(summary.metric, dim) / neighbors.max(1e-6)).powf(1.0 / dim);
    let outer = (1.0 + 1.1 * side).powf(dim);
    let inner = (1.0 - 1.1 * side).max(0.0).powf(dim);
    neighbors * (outer - inner)
}

/// What the recursive join does for each query, tried on a sample where that is wanted.
pub(super) fn tried(summary: &Summary, dims: &[usize], neighbors: f64, try_it: bool) -> Tried {
    if summary.eps == 0.0 {
        // A grid with boxes takes all of a pile but its ends.
        let taken = if neighbors > QUERIES { f64::INFINITY } else { 0.0 };
        return Tried { tests: piles(neighbors), taken };
    }
    let tried = try_it.then(|| trial::ego(summary, dims, neighbors)).flatten();
    let tried = tried
        .unwrap_or_else(|| Tried { tests: spheres(summary, dims.len(), neighbors), taken: 0.0 });
    // Where boxes were tried for the nearest, as in many dimensions, they are no better within ε.
    let boxes = summary.pruning.map_or(0.0, |_| tree_tests(summary, neighbors.max(1.0) as usize));
    Tried { tests: tried.tests.max(boxes).min(summary.right as f64), ..tried }
}

/// The recursive join over boxes of sixteen points.
pub(super) fn ego(summary: &Summary, tried: Tried) -> Cost {
    let tests = tried.tests;
    let groups = tests / 32.0 + 16.0;
    let block = block(summary);
    let per_query = tested(summary.dim, tests, block)
        + (BLOCK + groups * BOXES_PER_DIM * summary.dim as f64) / block;
    Cost { tests, per_query, index: index_cost::epsilon(summary, Strategy::Ego, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_of_unit_balls() {
        use core::f64::consts::PI;
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12 * b, "{a} {b}");
        near(ball(Metric::L2, 1.0), 2.0);
        near(ball(Metric::L2, 2.0), PI);
        near(ball(Metric::L2, 3.0), 4.0 / 3.0 * PI);
        near(ball(Metric::L2, 6.0), PI.powi(3) / 6.0);
        near(ball(Metric::L1, 3.0), 8.0 / 6.0);
        near(ball(Metric::Linf, 3.0), 8.0);
    }
}
