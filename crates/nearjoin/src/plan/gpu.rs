//! How a GPU would do it: which index, in which shape, and what that costs.
//!
//! Costs are in nanoseconds a query. A warp's instructions are what is counted: they decide
//! between shapes, and the rate that makes times of them is the machine's calibration, right to a
//! factor of two or so.

use super::choose::{Detail, axis, directory};
use super::{Alternative, Calibration, GpuFacts, Shaping, estimate};
use crate::index::grid::{Axis, Shape};
use crate::index::order;
use crate::metric::Metric;
use crate::options::Strategy;
use crate::summary::{MANY_DIMS, Summary};

/// Queries that look for candidates together.
const TOGETHER: f64 = 32.0;
/// Axes of a grid at the most.
const MAX_AXES: usize = 6;
/// Instructions of a test beside those of its dimensions, of looking up a row of cells, and of
/// each axis that it has; of starting on a run of candidates.
const TEST: f64 = 6.0;
const TEST_PER_DIM: f64 = 2.0;
const LOOKUP: f64 = 120.0;
const LOOKUP_PER_AXIS: f64 = 60.0;
const RUN: f64 = 40.0;
/// Of a test by matrix products, in instructions of a warp for 32 of them; and nanoseconds that the
/// kernels of a product take beside that. Measured on an H200, of the default calibration: 10⁵ points with
/// themselves take 2.3 ms in 64 dimensions, 3.8 in 128 and 22.4 in 768.
const PRODUCT: f64 = 3.0;
const PRODUCT_PER_DIM: f64 = 0.235;
pub(super) const PRODUCT_START: f64 = 1e5;
/// Bytes that an index takes beside its points.
const BASE: u64 = 64 << 20;

/// Whether a join may be by matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Products {
    /// The device cannot.
    None,
    /// Where they are likely to be the best.
    Weighed,
    /// Wherever they can tell anything.
    Named,
}

impl Products {
    pub(super) fn new(wanted: Strategy, device: &GpuFacts) -> Self {
        match (device.matrix_units, wanted) {
            (false, _) => Products::None,
            (true, Strategy::Product) => Products::Named,
            (true, _) => Products::Weighed,
        }
    }

    pub(super) fn are_weighed(self, summary: &Summary) -> bool {
        let many = match self {
            Products::None => false,
            Products::Weighed => summary.dim >= MANY_DIMS,
            Products::Named => true,
        };
        many && summary.metric == Metric::L2
    }
}

/// How fast the device is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    /// Nanoseconds of an instruction, of all warps together.
    pub(super) instruction: f64,
    /// Nanoseconds a coordinate to bring it to the device and to index it.
    pub(super) index: f64,
    pub(super) multiprocessors: f64,
}

impl Speed {
    pub(super) fn new(device: &GpuFacts, machine: &Calibration) -> Self {
        let multiprocessors = f64::from(device.multiprocessors.max(1));
        let instruction = machine.gpu_instruction * machine.gpu_multiprocessors / multiprocessors;
        Speed { instruction, index: machine.gpu_index, multiprocessors }
    }
}

/// The strategies that a GPU has, the cheapest first.
pub(super) fn alternatives(
    summary: &Summary,
    shaping: Shaping,
    speed: Speed,
    products: Products,
) -> Vec<Alternative> {
    let dims = summary.by_selectivity();
    let brute = Alternative {
        strategy: Strategy::Brute,
        cost: cost(summary, speed, summary.right as f64, 1.0, 0),
        detail: Detail::Brute,
    };
    let levels = Shaping { levels: shaping.levels.min(MAX_AXES), ..shaping };
    let mut parts = directory(summary, &dims, levels, false);
    let all_parts = (shaping.fanout as f64).powi(levels.levels as i32);
    parts.cost = cost(summary, speed, parts.cost.tests, all_parts / 8.0, levels.levels);
    let mut all = vec![brute, parts, grid(summary, &dims, shaping, speed)];
    if products.are_weighed(summary) {
        all.push(product(summary, speed));
    }
    all.sort_by(|a, b| a.cost.per_query.total_cmp(&b.cost.per_query));
    all
}

/// Instructions of a warp for 32 tests by matrix products.
pub(super) fn product_test(dim: usize) -> f64 {
    PRODUCT + PRODUCT_PER_DIM * dim.next_multiple_of(16) as f64
}

/// All points with all points, by matrix products.
fn product(summary: &Summary, speed: Speed) -> Alternative {
    let tests = summary.right as f64;
    // Of one set, every pair is compared once.
    let halved = if summary.is_self { 0.5 } else { 1.0 };
    let instructions = tests * halved * product_test(summary.dim);
    let points = (summary.left + if summary.is_self { 0 } else { summary.right }) as f64;
    let index = speed.index * summary.dim as f64 * points;
    let once = (index + PRODUCT_START) / summary.left.max(1) as f64;
    let per_query = instructions / TOGETHER * speed.instruction + once;
    let cost = estimate::Cost { tests, per_query, index: 0.0 };
    Alternative { strategy: Strategy::Product, cost, detail: Detail::Product }
}

/// The cost of `tests` candidates for each of some queries, found at `rows` places.
fn cost(summary: &Summary, speed: Speed, tests: f64, rows: f64, axes: usize) -> estimate::Cost {
    let test = TEST + TEST_PER_DIM * summary.dim as f64;
    let lookup = (LOOKUP + LOOKUP_PER_AXIS * axes as f64) / TOGETHER;
    let runs = rows.min(tests);
    let instructions = tests * test + rows * lookup + runs * RUN;
    let points = (summary.left + if summary.is_self { 0 } else { summary.right }) as f64;
    let index = speed.index * summary.dim as f64 * points / summary.left.max(1) as f64;
    estimate::Cost {
        tests,
        per_query: instructions / TOGETHER * speed.instruction + index,
        index: 0.0,
    }
}

/// The cheapest grid: how many dimensions to index, and how wide the cells.
fn grid(summary: &Summary, dims: &[usize], shaping: Shaping, speed: Speed) -> Alternative {
    let mut best: Option<Alternative> = None;
    for indexed in 1..=dims.len().min(MAX_AXES) {
        for width in [1.0, 0.5] {
            for along in [1.0, 0.25] {
                let whole = width >= 1.0 && along >= 1.0;
                if shaping.whole_cells && !whole {
                    continue;
                }
                let Some(axes) = shape(summary, &dims[..indexed], width, along) else { continue };
                let cost = grid_cost(summary, &axes, speed);
                let detail = Detail::Grid(Shape { axes });
                let grid = Alternative { strategy: Strategy::Grid, cost, detail };
                let least = best.as_ref().map(|best| best.cost.per_query);
                if least.is_none_or(|least| cost.per_query < least) {
                    best = Some(grid);
                }
            }
        }
    }
    best.unwrap_or_else(|| Alternative {
        strategy: Strategy::Grid,
        cost: cost(summary, speed, summary.right as f64, 1.0, 1),
        detail: Detail::Grid(Shape { axes: vec![axis(summary, 0, f64::INFINITY, 1)] }),
    })
}

/// Axes with cells of `width` ε, and of `along` times that along the rows.
fn shape(summary: &Summary, dims: &[usize], width: f64, along: f64) -> Option<Vec<Axis>> {
    let width = summary.reach * super::choose::MARGIN * width;
    if !width.is_finite() {
        return None;
    }
    let points = summary.left.max(summary.right);
    let bits = (63 - order::id_bits(points)) / dims.len() as u32;
    let most = 1u64 << bits.min(30);
    let (&last, slow) = dims.split_last()?;
    let mut axes: Vec<Axis> = slow.iter().map(|&j| axis(summary, j, width, most)).collect();
    axes.push(axis(summary, last, width * along, most));
    Some(axes)
}

fn grid_cost(summary: &Summary, axes: &[Axis], speed: Speed) -> estimate::Cost {
    let Some((along, slow)) = axes.split_last() else {
        return cost(summary, speed, summary.right as f64, 1.0, 1);
    };
    let points = summary.right as f64;
    let reach = summary.reach;
    let extent = |axis: &Axis| {
        let (lo, hi) = summary.extents[axis.dim];
        (hi - lo).max(0.0)
    };
    let width = |axis: &Axis| if axis.cells == 1 { extent(axis) } else { axis.width };
    // The space that queries of one warp take, axis by axis from the last: as many cells as
    // hold enough points.
    let mut taken: Vec<f64> = slow.iter().map(width).collect();
    let half: Vec<_> = slow.iter().map(|axis| (axis.dim, width(axis) / 2.0)).collect();
    let in_row = points * if half.is_empty() { 1.0 } else { summary.fraction(&half) };
    let mut rows_needed = (TOGETHER / in_row.max(1e-9)).max(1.0);
    let length = extent(along) * (TOGETHER / in_row.max(1e-9)).min(1.0);
    for (taken, axis) in taken.iter_mut().zip(slow).rev() {
        let cells = rows_needed.min(axis.cells as f64);
        *taken *= cells;
        rows_needed = (rows_needed / axis.cells as f64).max(1.0);
    }
    let mut limits: Vec<_> = slow
        .iter()
        .zip(&taken)
        .map(|(axis, taken)| (axis.dim, reach + (taken + width(axis)) / 2.0))
        .collect();
    limits.push((along.dim, reach + width(along) + length / 2.0));
    let tests = points * summary.fraction(&limits);
    let rows: f64 = slow
        .iter()
        .zip(&taken)
        .map(|(axis, taken)| {
            ((taken + 2.0 * reach) / width(axis).max(f64::MIN_POSITIVE) + 1.0)
                .min(axis.cells as f64)
        })
        .product();
    // A search in a list of cells instead of a look into a table.
    let cells: f64 = axes.iter().map(|axis| axis.cells as f64).product();
    let lookups = if cells > 8.0 * points { 4.0 } else { 1.0 };
    cost(summary, speed, tests, rows * lookups, axes.len())
}

/// Bytes of the device that the join takes while its index is built.
pub(super) fn index_bytes(summary: &Summary) -> u64 {
    let points = summary.right + if summary.is_self { 0 } else { summary.left };
    points as u64 * bytes_per_point(summary.dim, summary.width) + BASE
}

/// The same for each point: the
/// points as they come and in index order, keys and places with room to sort them, cells.
fn bytes_per_point(dim: usize, width: usize) -> u64 {
    let narrow = if width == 8 { 4 * dim } else { 0 };
    (width * (dim + dim.next_multiple_of(2)) + narrow + 2 * (8 + 4) + 12 + 8) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Threshold;
    use crate::plan::{Calibration, GpuFacts};
    use crate::points::Points;
    use crate::scale::Scale;
    use crate::summary::Effort;
    use crate::summary::tests::summary;

    fn decide(points: usize, dim: usize, eps: f64) -> Vec<Alternative> {
        let mut x = 1u64;
        let mut random = || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 40) as f32 / (1 << 24) as f32
        };
        let data: Vec<f32> = (0..points * dim).map(|_| random()).collect();
        let points = Points::new(&data, dim).unwrap();
        let threshold = Threshold::new(Metric::L2, eps, Scale::NONE).unwrap();
        let summary = Summary::new(points, None, &threshold, Effort::QUICK);
        let shaping = Shaping { levels: 3, fanout: 16, whole_cells: false };
        let speed = Speed { instruction: 1.0 / 400.0, index: 0.7, multiprocessors: 100.0 };
        alternatives(&summary, shaping, speed, Products::Weighed)
    }

    #[test]
    fn a_plane_is_indexed_and_a_large_ball_is_not() {
        assert_eq!(decide(100_000, 2, 0.01)[0].strategy, Strategy::Grid);
        assert_eq!(decide(5_000, 8, 10.0)[0].strategy, Strategy::Brute);
        // In many dimensions, products take its place.
        let best = decide(50_000, 16, 10.0);
        assert_eq!([best[0].strategy, best[1].strategy], [Strategy::Product, Strategy::Brute]);
    }

    #[test]
    fn products_cost_what_was_measured() {
        // Milliseconds of an H200 for 10⁵ points, without their way there.
        for (dim, measured) in [(64, 2.3), (128, 3.8), (768, 22.4)] {
            let points = Summary { width: 4, ..summary(100_000, dim, 1.0) };
            let (name, memory, free) = ("gpu".into(), 1 << 37, 1 << 37);
            let device = GpuFacts { name, memory, free, multiprocessors: 132, matrix_units: true };
            let speed = Speed { index: 0.0, ..Speed::new(&device, &Calibration::default()) };
            let expected = product(&points, speed).cost.per_query * 0.1;
            let off = expected / measured;
            assert!((0.8..1.25).contains(&off), "{dim}-D: {expected} ms, not {measured}");
        }
    }

    #[test]
    fn few_candidates_are_expected_where_few_are_near() {
        let grid = &decide(100_000, 2, 0.01)[0];
        assert!(grid.cost.tests < 1000.0, "{}", grid.cost.tests);
    }
}
