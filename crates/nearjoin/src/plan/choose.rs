//! Which strategy, in which shape, from estimated costs.

use super::cpu;
use super::estimate::{self, Cost, Sharing};
use super::products::Multiplying;
use super::trial::Tried;
use crate::index::grid::{Axis, Shape};
use crate::index::{directory, order};
use crate::metric::Metric;
use crate::options::Strategy;
use crate::summary::{MANY_DIMS, Summary};

/// The most dimensions a grid indexes.
const MAX_AXES: usize = 6;
/// Cells are this much wider than ε, so that rounding never puts two points within ε
/// more than one cell apart.
pub(super) const MARGIN: f64 = 1.0 + 1e-6;

/// One strategy with its shape and its cost.
#[derive(Clone, Debug)]
pub(crate) struct Alternative {
    pub(crate) strategy: Strategy,
    pub(crate) cost: Cost,
    pub(crate) detail: Detail,
}

/// What a strategy's index will look like.
#[derive(Clone, Debug)]
pub(crate) enum Detail {
    Brute,
    Directory(directory::Shape),
    Grid(Shape),
    /// Dimensions in the order of their selectivity.
    Ego(Vec<usize>),
    /// Products of all points with all points.
    Product,
    /// A balanced tree, for the nearest.
    Tree {
        /// Points of a leaf.
        of: usize,
        leaves: usize,
    },
    /// Cells that are looked at ring after ring, for the nearest.
    Rings {
        cells: usize,
        axes: usize,
    },
    /// A grid for ε-joins of some queries after the other, at first of this ε, for the nearest.
    Ranges {
        eps: f64,
        shape: Shape,
    },
}

/// Options that shape an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shaping {
    pub(crate) levels: usize,
    pub(crate) fanout: usize,
    /// UNICOMP needs cells of a whole ε along every axis.
    pub(crate) whole_cells: bool,
}

/// How much more than another a strategy may cost by a rough estimate and still be tried.
const CONTENDER: f64 = 4.0;

/// Every strategy, the cheapest first. The recursive join and the directory are tried on a sample
/// where they are wanted by name; or where their index alone does not take longer than all of another,
/// and all of them not much longer by a rough estimate.
pub(super) fn alternatives(
    summary: &Summary,
    shaping: Shaping,
    neighbors: f64,
    wanted: Strategy,
    multiplying: Multiplying,
    sharing: &Sharing,
) -> Vec<Alternative> {
    let dims = summary.by_selectivity();
    let brute = Alternative {
        strategy: Strategy::Brute,
        cost: estimate::brute(summary),
        detail: Detail::Brute,
    };
    let boxed = cpu::worth_boxing(Strategy::Grid, neighbors, summary.right);
    let mut tried = estimate::tried(summary, &dims, neighbors, boxed);
    let grid = grid(summary, &dims, shaping, if boxed { tried.taken } else { 0.0 });
    let least = brute.cost.nanoseconds(sharing).min(grid.cost.nanoseconds(sharing));
    let is_open = |strategy: Strategy, cost: &Cost| {
        let is_contender = cost.nanoseconds(sharing) < CONTENDER * least;
        wanted == strategy || is_contender && cost.index / sharing.threads < least
    };
    let rough = ego(summary, &dims, tried);
    if !boxed && is_open(Strategy::Ego, &rough.cost) {
        tried = estimate::tried(summary, &dims, neighbors, true);
    }
    // Parts that hold half of all points are no better than none.
    let rough = directory(summary, &dims, shaping, false);
    let is_any_good = rough.cost.tests < brute.cost.tests / 2.0 || wanted == Strategy::Directory;
    let try_it = is_any_good && is_open(Strategy::Directory, &rough.cost);
    let directory = if try_it { directory(summary, &dims, shaping, true) } else { rough };
    let mut all = vec![brute, directory, grid, ego(summary, &dims, tried)];
    if weighs_products(summary, wanted) {
        let cost = multiplying.epsilon(summary);
        all.push(Alternative { strategy: Strategy::Product, cost, detail: Detail::Product });
    }
    sort(&mut all, sharing);
    all
}

/// Whether products are weighed: where distances are roots of sums of squares, which at ε = 0 they are not;
/// and not for few dimensions, unless they are wanted by name.
pub(super) fn weighs_products(summary: &Summary, wanted: Strategy) -> bool {
    let many = wanted == Strategy::Product || summary.dim >= MANY_DIMS;
    many && summary.metric == Metric::L2
}

/// Puts the cheapest first.
pub(super) fn sort(all: &mut [Alternative], sharing: &Sharing) {
    let cost = |a: &Alternative| a.cost.nanoseconds(sharing);
    all.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
}

pub(super) fn directory(
    summary: &Summary,
    dims: &[usize],
    shaping: Shaping,
    try_it: bool,
) -> Alternative {
    let levels = shaping.levels.min(dims.len());
    let cost = estimate::directory(summary, dims, levels, shaping.fanout, try_it);
    let shape = directory::Shape { dims: dims[..levels].to_vec(), fanout: shaping.fanout };
    Alternative { strategy: Strategy::Directory, cost, detail: Detail::Directory(shape) }
}

fn ego(summary: &Summary, dims: &[usize], tried: Tried) -> Alternative {
    let cost = estimate::ego(summary, tried);
    Alternative { strategy: Strategy::Ego, cost, detail: Detail::Ego(dims.to_vec()) }
}

/// The cheapest grid: how many dimensions to index, and how wide the cells.
fn grid(summary: &Summary, dims: &[usize], shaping: Shaping, taken: f64) -> Alternative {
    let mut best: Option<(Cost, Shape)> = None;
    for indexed in 1..=dims.len().min(MAX_AXES) {
        for factor in [1.0, 4.0, 16.0] {
            let Some(shape) = shape(summary, &dims[..indexed], factor, shaping) else {
                continue;
            };
            let cost = estimate::grid(summary, &shape.axes, taken);
            if best.as_ref().is_none_or(|(least, _)| cost.per_query < least.per_query) {
                best = Some((cost, shape));
            }
        }
    }
    let (cost, shape) = best.unwrap_or_else(|| {
        (estimate::brute(summary), Shape { axes: vec![axis(summary, 0, f64::INFINITY, 1)] })
    });
    Alternative { strategy: Strategy::Grid, cost, detail: Detail::Grid(shape) }
}

/// A grid over `dims` with cells of about `factor` ε, or wider where keys run out of bits.
fn shape(summary: &Summary, dims: &[usize], factor: f64, shaping: Shaping) -> Option<Shape> {
    let width = summary.reach * MARGIN * factor;
    let points = summary.left.max(summary.right);
    let bits = (63 - order::id_bits(points)) / dims.len() as u32;
    let most = 1u64 << bits.min(31);
    if !width.is_finite() {
        return None;
    }
    let (&along, slow) = dims.split_last()?;
    let mut axes: Vec<Axis> = slow.iter().map(|&j| axis(summary, j, width, most)).collect();
    let cells: f64 = axes.iter().map(|axis| axis.cells as f64).product();
    let fine = [4.0, 2.0].map(|finer| axis(summary, along, width / finer, most));
    // Finer cells along the rows cost nothing but a longer table, and runs end closer to
    // where they must: as long as the table stays small beside the points.
    let affordable = |axis: &&Axis| {
        !shaping.whole_cells && cells * axis.cells as f64 <= 0.5 * summary.right as f64
    };
    let coarse = axis(summary, along, width, most);
    axes.push(*fine.iter().find(affordable).unwrap_or(&coarse));
    Some(Shape { axes })
}

/// One axis of at most `most` cells, at least `width` wide each.
pub(super) fn axis(summary: &Summary, j: usize, width: f64, most: u64) -> Axis {
    let (lo, hi) = summary.extents[j];
    let extent = hi - lo;
    // Cells so small that their reciprocal overflows or their edges are subnormal cannot
    // be told apart reliably, and one that takes in everything is always right.
    let width = width.max(extent / most as f64 * MARGIN);
    if !(extent.is_finite() && extent > 0.0 && (1e-290..1e290).contains(&width)) {
        return Axis::new(j, if lo.is_finite() { lo } else { 0.0 }, f64::MAX, 1);
    }
    let cells = (extent / width).min((most - 1) as f64) as u64 + 1;
    Axis::new(j, lo, width, cells)
}
