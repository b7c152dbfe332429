//! The strategies of the KNN-join, and what they cost.

use super::budget::panels_bytes;
use super::choose::{Alternative, Detail, sort, weighs_products};
use super::estimate::{Cost, Sharing, ball};
use super::index_cost;
use super::products::Multiplying;
use crate::index::{rings, tree};
use crate::options::Strategy;
use crate::summary::{Pruning, Summary};

/// Nanoseconds of one thread: a test of a tree, and what each dimension adds to it; the rest of a
/// query, and each of its neighbours.
const TEST: f64 = 0.9;
const TEST_PER_DIM: f64 = 0.18;
const QUERY: f64 = 60.0;
const RANK: f64 = 10.0;
/// The same for a candidate that goes through the sieve, and what loading it adds where there are
/// too few queries to share it.
const SIFT: f64 = 0.25;
const SIFT_PER_DIM: f64 = 0.043;
const BLOCK: f64 = 16.0;
/// One that passes it, which is measured and ranked.
const PASS: f64 = 40.0;
const PASS_PER_DIM: f64 = 1.5;
const LOAD_PER_DIM: f64 = 0.3;
/// The same for a candidate that has a score, and one that goes on the shortlist.
const SCORE: f64 = 0.1;
const SCORE_PER_DIM: f64 = 0.0145;
const LISTED: f64 = 60.0;
/// Bytes that the shortlists of a unit may take.
const SHORTLISTS: u64 = 1 << 26;
/// Tests of a grid for each of a tree, or for each point in cells that touch a ball.
const GRID: f64 = 1.3;

/// Every strategy, the cheapest first, for the `k` nearest. Products are not weighed for few dimensions,
/// unless they are wanted by name.
pub(super) fn alternatives(
    summary: &Summary,
    k: usize,
    wanted: Strategy,
    multiplying: Multiplying,
    sharing: &Sharing,
) -> Vec<Alternative> {
    let (points, dim) = (summary.right as f64, summary.dim as f64);
    let per_query = QUERY + RANK * k as f64;
    let searched = |tests: f64, strategy: Strategy| {
        let per_query = tests * (TEST + TEST_PER_DIM * dim) + per_query;
        Cost { tests, per_query, index: index_cost::nearest(summary, strategy) }
    };
    let block = BLOCK.min(summary.left.max(1) as f64);
    let load = LOAD_PER_DIM * (1.0 / block - 1.0 / BLOCK);
    // The i-th candidate is among the k nearest of the first i with a chance of k in i.
    let k_of_all = (k as f64).min(points.max(1.0));
    let passed = k_of_all * (1.0 + (points.max(1.0) / k_of_all).ln());
    let sifted = points * (SIFT + (SIFT_PER_DIM + load) * dim);
    let tests = tree_tests(summary, k);
    let leaves = summary.right.div_ceil(16);
    // A grid is ordered faster than a tree and searched more slowly, if the points are spread
    // evenly, and much more slowly if not: then it is not the cheaper one.
    let even = summary.pruning.is_some_and(|pruning| pruning.even);
    let in_cells = grid_tests(summary, k).max(GRID * tests);
    let ordered = if even { Strategy::Grid } else { Strategy::Tree };
    let mut all = vec![
        Alternative {
            strategy: Strategy::Tree,
            cost: searched(tests, Strategy::Tree),
            detail: Detail::Tree { leaves, of: 16 },
        },
        Alternative {
            strategy: Strategy::Grid,
            cost: searched(in_cells, ordered),
            detail: Detail::Rings {
                cells: (summary.right / rings::PER_CELL).max(1),
                axes: summary.dim.min(rings::AXES),
            },
        },
        Alternative {
            strategy: Strategy::Brute,
            cost: Cost {
                tests: points,
                per_query: sifted + passed * (PASS + PASS_PER_DIM * dim) + QUERY,
                index: index_cost::nearest(summary, Strategy::Brute),
            },
            detail: Detail::Brute,
        },
    ];
    if weighs_products(summary, wanted) {
        let listed = passed * LISTED + 1.5 * k_of_all * (PASS + PASS_PER_DIM * dim);
        let per_query = multiplying.query(summary, (SCORE, SCORE_PER_DIM)) + listed + QUERY;
        let index = index_cost::nearest(summary, Strategy::Product);
        let cost = Cost { tests: points, per_query, index };
        all.push(Alternative { strategy: Strategy::Product, cost, detail: Detail::Product });
    }
    sort(&mut all, sharing);
    all
}

/// Points that are measured for each query.
///
/// Where there was a sample, as many as in the larger one, and more as there are more points,
/// by the growth from sample to sample: none where the points lie so that boxes tell them
/// apart, and in proportion where no box can be passed over.
///
/// Without, the points are taken to be spread evenly. In units of their mean spacing a leaf of
/// 16 is a cube `16^(1/d)` wide, and the k-th neighbour as far away as the radius of a ball that
/// holds k: so many leaves touch the ball as have their centre in the sum of both shapes, whose
/// volume is that of its parts, face by face.
pub(super) fn tree_tests(summary: &Summary, k: usize) -> f64 {
    let all = summary.right as f64;
    if let Some(Pruning { points, tests, k: sampled, .. }) = summary.pruning {
        // A sample without anything within the largest distance has no tests at all.
        let tests = tests.map(|tests| tests.max(1.0));
        let growth = (tests[1] / tests[0]).ln() / (points[1] as f64 / points[0] as f64).ln();
        let more = (all / points[1] as f64).powf(growth.clamp(0.0, 1.0));
        return (tests[1] * more * k as f64 / sampled as f64).min(all);
    }
    let dim = summary.dim as f64;
    let leaf = 16f64.powf(1.0 / dim);
    let radius = (k as f64 / ball(summary.metric, dim)).powf(1.0 / dim);
    let (mut leaves, mut faces) = (1.0, 1.0);
    for j in 1..=summary.dim.min(64) {
        faces *= (dim - j as f64 + 1.0) / j as f64;
        leaves += faces * ball(summary.metric, j as f64) * (radius / leaf).powi(j as i32);
    }
    (16.0 * leaves).min(all)
}

/// The same in a grid, if the points are spread evenly: those in the cells near a query. It has
/// few axes, so that in many dimensions a cell is narrow along some and as wide as all points
/// along the others.
fn grid_tests(summary: &Summary, k: usize) -> f64 {
    let (dim, all) = (summary.dim as f64, summary.right.max(1) as f64);
    let axes = dim.min(rings::AXES as f64);
    // Both in parts of the extent.
    let cell = (rings::PER_CELL as f64 / all).powf(1.0 / axes);
    let radius = (k as f64 / ball(summary.metric, dim) / all).powf(1.0 / dim);
    (GRID * all * (cell + 2.0 * radius).powf(axes)).min(all)
}

/// Queries of a unit by products, whose shortlists are kept at the same time.
pub(crate) fn scores_unit(k: usize) -> usize {
    let fit = SHORTLISTS / (16 * shortlist_bytes(k as u64));
    16 * fit.clamp(1, 16) as usize
}

/// Candidates of a shortlist that are measured at once, beside the k best of those before.
pub(crate) fn most_measured(k: usize) -> usize {
    k.max(256)
}

/// Bytes of a candidate on a shortlist: two scores and a row.
pub(crate) const CANDIDATE_BYTES: u64 = 12;

/// Bytes of a shortlist, at the most: candidates for some times k, and for what some panels have; a distance and a
/// row of up to 16 bytes for each that was measured.
fn shortlist_bytes(k: u64) -> u64 {
    CANDIDATE_BYTES * (5 * k + 1024) + 16 * (k + most_measured(k as usize) as u64)
}

/// Bytes that a search takes beside the index: for every thread, the best of its queries. Twice k,
/// 16 queries at a time, a distance and a row for each; by brute force as many again, up to 64 MiB.
pub(super) fn search_bytes(summary: &Summary, k: usize, strategy: Strategy, threads: usize) -> u64 {
    let k = k.min(summary.right) as u64;
    let block = 2 * k.max(16) * 16 * 2 * summary.width as u64;
    let best = match strategy {
        Strategy::Brute => block + (16 * block).min(block.max(1 << 26)),
        // Shortlists in place of the best, and what was found last.
        Strategy::Product => {
            let (unit, dim) = (scores_unit(k as usize) as u64, summary.dim as u64);
            block + unit * (shortlist_bytes(k) + 4 * dim)
        }
        _ => block,
    };
    threads as u64 * best
}

/// Bytes that the index takes while it is built: the points in order with their boxes and ids; while
/// they are sorted a record for each and the keys of some, or its cell and the counts of the cells; or
/// all of them as `f32`.
pub(super) fn index_bytes(summary: &Summary, strategy: Strategy, threads: usize) -> u64 {
    if strategy == Strategy::Product {
        return panels_bytes(summary);
    }
    let Summary { dim, width, .. } = *summary;
    let points = summary.right + if summary.is_self { 0 } else { summary.left };
    let point = dim * width;
    let order = match strategy {
        // Where each cell begins, and which leaves each thread saw. The coordinates of up to as many
        // slices as there are cells, in eight parts, come after the sort.
        Strategy::Grid => {
            let sorting = rings::order_bytes(points, dim, width, threads);
            points * (1 + threads.div_ceil(32)) + sorting.max(points * 2 * width)
        }
        Strategy::Brute => points * dim * size_of::<f32>(),
        _ => {
            let (of_point, of_thread) = tree::order_bytes(dim, width, points);
            points * of_point + threads * of_thread
        }
    };
    // Every level of boxes has up to two blocks of 16 more than it needs, on both sides.
    let padding = 2 * 8 * 2 * 32 * point as u64;
    points as u64 * (point + point / 7 + 2 + 4) as u64 + padding + order as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;
    use crate::plan::Multiplier;
    use crate::summary::tests::{PRUNING, summary};

    #[test]
    fn a_sample_without_tests_is_a_tree_without_tests() {
        let tests = |tests: [f64; 2]| {
            let pruning = Some(Pruning { k: 8, tests, ..PRUNING });
            tree_tests(&Summary { pruning, ..summary(1_000_000, 2, 1.0) }, 8)
        };
        assert_eq!(tests([0.0, 0.0]), 1.0);
        assert_eq!(tests([30.0, 0.0]), 1.0);
        assert_eq!(tests([40.0, 40.0]), 40.0);
        assert_eq!(tests([512.0, 2048.0]), 1_000_000.0);
        assert!(tests([0.0, 5.0]) <= 1_000_000.0);
    }

    #[test]
    fn boxes_that_prune_make_a_tree_and_others_do_not() {
        let first = |metric: Metric, dim: usize, tests: [f64; 2]| {
            let pruning = Some(Pruning { k: 10, tests, ..PRUNING });
            let summary = Summary { pruning, metric, ..summary(1_000_000, dim, 1.0) };
            let sharing = Sharing::new(1_000_000, 256, 4);
            let multiplying = Multiplying::new(Multiplier::Numbers, &summary, Some(10));
            alternatives(&summary, 10, Strategy::Auto, multiplying, &sharing)[0].strategy
        };
        for metric in Metric::ALL {
            assert_eq!(first(metric, 32, [200.0, 220.0]), Strategy::Tree);
        }
        assert_eq!(first(Metric::L2, 32, [512.0, 2048.0]), Strategy::Product);
        assert_eq!(first(Metric::L1, 32, [512.0, 2048.0]), Strategy::Brute);
        assert_eq!(first(Metric::L2, 8, [512.0, 2048.0]), Strategy::Brute);
    }
}
