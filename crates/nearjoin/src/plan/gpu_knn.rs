//! How a GPU would find the nearest, and what that costs.

use super::choose::{Alternative, Detail};
use super::estimate::Cost;
use super::gpu::{self, Products, Speed};
use super::knn::tree_tests;
use crate::options::Strategy;
use crate::summary::Summary;

/// Points of a leaf.
const LEAF: usize = 8;
/// Bytes of the distances of the largest k of which the best are kept in registers.
const IN_REGISTERS: usize = 128;
/// Dimensions of points that are compared by code of their own.
const FEW_DIMS: f64 = 8.0;
/// Instructions of a warp for 32 tests of a tree, of as many as are expected, with what it takes to find
/// them; for each dimension more than a few; and for each of the k that are kept in registers, or in
/// memory. Measured on an H200, of the default calibration: 2·10⁶ queries take 0.7 ms in two dimensions
/// and 11.5 in six for k = 8, 2.6 and 29 for k = 32, 29 in two for k = 64; 10⁵ take 140 for k = 4096.
const TEST: f64 = 195.0;
const TEST_PER_DIM: f64 = 30.0;
const RANK: f64 = 1000.0;
const RANK_IN_MEMORY: f64 = 12_000.0;
/// For 32 tests of all with all; queries that a block takes, and blocks that keep a multiprocessor busy.
const BRUTE: f64 = 25.0;
const BRUTE_PER_DIM: f64 = 7.5;
const TILE: f64 = 64.0;
const BUSY: f64 = 4.0;
/// Nanoseconds to put a point in the order of the tree.
const ORDER: f64 = 0.5;
/// Slots for each point of a tree: blocks have room for the largest, and leaves may not be full.
const SLOTS: f64 = 1.5;
/// Bytes that an index takes beside its points.
const BASE: u64 = 16 << 20;
/// Instructions of a warp for 32 candidates that go on shortlists, and for as many that are measured, for each
/// dimension.
const LISTED: f64 = 14_000.0;
const MEASURED_PER_DIM: f64 = 100.0;
/// Rows and columns of a tile of products.
const SIDE: usize = 128;
/// The best of so many candidates is kept, of those that are looked at first; and of fewer where they
/// are few. There are so many groups for each that is wanted.
const GROUPS: [(usize, usize); 3] = [(64, 16), (16, 4), (2, 2)];

/// How candidates come on shortlists, by products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortlisting {
    /// Candidates that are looked at first, and in groups of how many: the best of each says how far the
    /// nearest may be.
    pub(crate) sample: usize,
    pub(crate) group: usize,
    /// Candidates that there is room for on the list of a query.
    pub(crate) room: usize,
}

impl Shortlisting {
    /// For the `k` nearest of so many; none where k is most of them.
    ///
    /// The more candidates are looked at first, the fewer are listed: about k of all for each k of the sample.
    /// What both cost together is least where they cost the same.
    pub(crate) fn new(k: usize, candidates: usize, dim: usize) -> Option<Self> {
        // A query may be among them.
        let wanted = k + 1;
        let balance = LISTED / gpu::product_test(dim);
        let best = (wanted as f64 * candidates as f64 * balance).sqrt() as usize;
        // The largest groups of which the best sample has enough; or else the smallest ones.
        let least = |&(group, many): &(usize, usize)| group * many * wanted;
        let enough = GROUPS.iter().find(|groups| least(groups) <= best.min(candidates));
        let groups = enough.or(GROUPS.last())?;
        if least(groups) > candidates {
            return None;
        }
        let sample = best.max(least(groups)).next_multiple_of(SIDE).min(candidates);
        let group = groups.0;
        // Lists differ as the k-th of a sample does.
        let expected = wanted as f64 * candidates as f64 / sample as f64;
        let room = expected * (1.5 + 8.0 / (wanted as f64).sqrt()) + 32.0;
        let room = (room as usize).max(2 * k).min(candidates.max(k));
        Some(Shortlisting { sample, group, room: room.next_multiple_of(32) })
    }

    /// Bytes of the list of a query.
    pub(crate) fn bytes(&self) -> usize {
        8 * self.room + 4
    }
}

/// The strategies that a GPU has, the cheapest first.
pub(super) fn alternatives(
    summary: &Summary,
    k: usize,
    speed: Speed,
    products: Products,
) -> Vec<Alternative> {
    let (dim, all) = (summary.dim as f64, summary.right as f64);
    let k = k.min(summary.right.max(1));
    let cost = |tests: f64, instructions: f64, order: f64| {
        let points = (summary.left + if summary.is_self { 0 } else { summary.right }) as f64;
        let index = (speed.index * dim + order) * points / summary.left.max(1) as f64;
        let searched = instructions / 32.0 * speed.instruction;
        Cost { tests, per_query: searched + index, index: 0.0 }
    };
    let in_registers = dim <= FEW_DIMS && k * summary.width <= IN_REGISTERS;
    let ranks = |in_registers| k as f64 * if in_registers { RANK } else { RANK_IN_MEMORY };
    let tests = tree_tests(summary, k);
    let tree = tests * (TEST + TEST_PER_DIM * (dim - FEW_DIMS).max(0.0)) + ranks(in_registers);
    // Few queries leave most of the device idle.
    let idle = (speed.multiprocessors * BUSY * TILE / summary.left.max(1) as f64).max(1.0);
    let brute = idle * (all * (BRUTE + BRUTE_PER_DIM * dim) + ranks(false));
    let mut strategies = vec![
        Alternative {
            strategy: Strategy::Tree,
            cost: cost(tests, tree, ORDER),
            detail: Detail::Tree { leaves: summary.right.div_ceil(LEAF), of: LEAF },
        },
        Alternative {
            strategy: Strategy::Brute,
            cost: cost(all, brute, 0.0),
            detail: Detail::Brute,
        },
    ];
    let shortlisting = Shortlisting::new(k, summary.right, summary.dim);
    if let Some(lists) = shortlisting.filter(|_| products.are_weighed(summary)) {
        // Of one set, every pair is compared once.
        let halved = if summary.is_self { 0.5 } else { 1.0 };
        let listed = (k + 1) as f64 * all / lists.sample as f64;
        let product = (all * halved + lists.sample as f64) * gpu::product_test(summary.dim)
            + listed * LISTED
            + 1.5 * k as f64 * (MEASURED_PER_DIM * dim + RANK);
        // Few queries leave most of the device idle here too.
        let idle = (speed.multiprocessors * SIDE as f64 / summary.left.max(1) as f64).max(1.0);
        let start = gpu::PRODUCT_START / summary.left.max(1) as f64;
        let mut cost = cost(all, idle * product, 0.0);
        cost.per_query += 2.0 * start;
        strategies.push(Alternative { strategy: Strategy::Product, cost, detail: Detail::Product });
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Calibration, GpuFacts};
    use crate::summary::tests::summary;

    fn best(summary: &Summary, k: usize) -> (Strategy, f64) {
        let (name, memory, free) = ("gpu".into(), 1 << 37, 1 << 37);
        let device = GpuFacts { name, memory, free, multiprocessors: 132, matrix_units: true };
        let speed = Speed::new(&device, &Calibration::default());
        let chosen = alternatives(summary, k, speed, Products::Weighed).remove(0);
        (chosen.strategy, chosen.cost.per_query * summary.left as f64 / 1e6)
    }

    #[test]
    fn what_was_measured_is_what_is_expected() {
        // Milliseconds of an H200, with the index and without the way of the answer.
        for (points, dim, k, measured) in [
            (2_000_000, 2, 8, 1.9),
            (2_000_000, 2, 32, 3.8),
            (2_000_000, 4, 8, 4.5),
            (2_000_000, 4, 32, 9.3),
            (2_000_000, 6, 8, 14.0),
            (2_000_000, 6, 32, 32.0),
            (100_000, 2, 4096, 143.0),
        ] {
            let points = Summary { width: 4, ..summary(points, dim, 0.0) };
            let (strategy, expected) = best(&points, k);
            assert_eq!(strategy, Strategy::Tree, "{dim}-D, k {k}");
            let off = expected / measured;
            assert!((0.6..1.7).contains(&off), "{dim}-D, k {k}: {expected} ms, not {measured}");
        }
    }

    #[test]
    fn few_queries_do_not_keep_a_device_busy() {
        let few = Summary { left: 1000, is_self: false, ..summary(2_000_000, 3, 0.0) };
        assert_eq!(best(&few, 8).0, Strategy::Tree);
        // Nor is an index worth it for a handful of points.
        let small = summary(200, 3, 0.0);
        assert!(best(&small, 8).1 < 0.1);
    }
}
