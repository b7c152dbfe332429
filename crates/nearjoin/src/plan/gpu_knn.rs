//! How a GPU would find the nearest, and what that costs.

use super::choose::{Alternative, Detail};
use super::estimate::Cost;
use super::gpu::Speed;
use super::knn::tree_tests;
use crate::options::Strategy;
use crate::summary::Summary;

/// Points of a leaf.
const LEAF: usize = 8;
/// Instructions of a warp for 32 tests of a tree, with what it takes to find them, and for each
/// dimension; for each of the k that are kept; and for 32 tests of all with all. Measured on an H200,
/// of the default calibration: 0.9 ms for 2·10⁶ queries in two dimensions, 20 ms in six.
const TEST: f64 = 130.0;
const TEST_PER_DIM: f64 = 12.0;
const RANK: f64 = 25.0;
const BRUTE: f64 = 10.0;
const BRUTE_PER_DIM: f64 = 3.0;
/// Nanoseconds to put a point in the order of the tree.
const ORDER: f64 = 0.5;
/// Slots for each point of a tree: blocks have room for the largest, and leaves may not be full.
const SLOTS: f64 = 1.5;
/// Bytes that an index takes beside its points.
const BASE: u64 = 16 << 20;

/// The strategies that a GPU has, the cheapest first.
pub(super) fn alternatives(summary: &Summary, k: usize, speed: Speed) -> Vec<Alternative> {
    let (dim, all) = (summary.dim as f64, summary.right as f64);
    let cost = |tests: f64, instructions: f64, order: f64| {
        let points = (summary.left + if summary.is_self { 0 } else { summary.right }) as f64;
        let index = (speed.index * dim + order) * points / summary.left.max(1) as f64;
        let searched = (instructions + RANK * k as f64) / 32.0 * speed.instruction;
        Cost { tests, per_query: searched + index, index: 0.0 }
    };
    let tests = tree_tests(summary, k);
    let mut strategies = vec![
        Alternative {
            strategy: Strategy::Tree,
            cost: cost(tests, tests * (TEST + TEST_PER_DIM * dim), ORDER),
            detail: Detail::Tree { leaves: summary.right.div_ceil(LEAF), of: LEAF },
        },
        Alternative {
            strategy: Strategy::Brute,
            cost: cost(all, all * (BRUTE + BRUTE_PER_DIM * dim), 0.0),
            detail: Detail::Brute,
        },
    ];
    strategies.sort_by(|a, b| a.cost.per_query.total_cmp(&b.cost.per_query));
    strategies
}

/// Bytes of the device that the join takes while its index is built: the points as they come, in the
/// order of the nodes and in leaves, with boxes; keys and places with room to sort them.
pub(super) fn index_bytes(summary: &Summary) -> u64 {
    let points = summary.right + if summary.is_self { 0 } else { summary.left };
    let point = (summary.dim.next_multiple_of(2) * summary.width) as f64;
    let slot = point * (1.0 + 2.0 / LEAF as f64) + 9.0;
    (points as f64 * (2.0 * point + SLOTS * slot + 24.0)) as u64 + BASE
}
