//! kiddo: its fastest immutable tree, asked point by point and tree against tree.
//!
//! Both ways compare with ≤, in squared distances, and find each point itself, so as
//! many pairs as there are points are taken off. Of its leaf stores `FlatVec` is faster
//! here than the `VecOfArenas` of the `ImmutableKdTree` alias. Points are asked for in
//! the tree's own order, which saves a fifth beside the order of the input.

use std::time::Instant;

use kiddo::leaf_strategies::FlatVec;
use kiddo::{Eytzinger, KdTree, SquaredEuclidean};
use rayon::prelude::*;

use super::Timed;

const LEAF: usize = 32;
const CHUNK: usize = 2048;

type Tree<const D: usize> = KdTree<f64, u32, Eytzinger, FlatVec<f64, u32, D, LEAF>, D, LEAF>;
type L2 = SquaredEuclidean<f64>;

/// Rows of neighbours for one chunk of queries: whose they are, where each row ends, and
/// the ids.
#[derive(Default)]
struct Rows {
    queries: Vec<u32>,
    ends: Vec<usize>,
    ids: Vec<u32>,
}

/// `query().within().unsorted()` for each point, over all cores; every neighbour's id is
/// kept.
pub(super) fn lists<const D: usize>(points: &[[f64; D]], bound: f64) -> Timed {
    let start = Instant::now();
    let tree = build(points);
    let queries: Vec<(u32, [f64; D])> = tree.iter().collect();
    let chunk = |chunk: &[(u32, [f64; D])]| {
        let mut scratch = tree.create_scratch::<L2>();
        let mut rows = Rows::default();
        for (id, point) in chunk {
            let query = tree.query(point).within::<L2>(bound).unsorted().without_distances();
            query.with_scratch(&mut scratch).visit(|found| rows.ids.push(found.item));
            rows.queries.push(*id);
            rows.ends.push(rows.ids.len());
        }
        rows
    };
    let rows: Vec<Rows> = queries.par_chunks(CHUNK).map(chunk).collect();
    let seconds = start.elapsed().as_secs_f64();
    let found = rows.iter().map(|rows| rows.ids.len() as u64).sum::<u64>();
    assert_eq!(
        rows.iter().map(|rows| rows.queries.len().min(rows.ends.len())).sum::<usize>(),
        points.len()
    );
    Timed { seconds, pairs: found - points.len() as u64 }
}

/// `query_tree().within()`, which gives pairs in no order. It refuses a tree with itself,
/// so the tree is built twice.
pub(super) fn pairs<const D: usize>(points: &[[f64; D]], bound: f64) -> Timed {
    let start = Instant::now();
    let (left, right) = rayon::join(|| build(points), || build(points));
    let found = left.query_tree(&right).within::<L2>(bound).without_distances().execute();
    let seconds = start.elapsed().as_secs_f64();
    Timed { seconds, pairs: (found.len() - points.len()) as u64 }
}

/// The same as [`lists`], but keeping only how many.
pub(super) fn count<const D: usize>(points: &[[f64; D]], bound: f64) -> Timed {
    let start = Instant::now();
    let tree = build(points);
    let queries: Vec<(u32, [f64; D])> = tree.iter().collect();
    let chunk = |chunk: &[(u32, [f64; D])]| {
        let mut scratch = tree.create_scratch::<L2>();
        let mut found = 0u64;
        for (_, point) in chunk {
            let query = tree.query(point).within::<L2>(bound).unsorted();
            let query = query.without_items().without_distances();
            query.with_scratch(&mut scratch).visit(|_| found += 1);
        }
        found
    };
    let found: u64 = queries.par_chunks(CHUNK).map(chunk).sum();
    let seconds = start.elapsed().as_secs_f64();
    Timed { seconds, pairs: found - points.len() as u64 }
}

/// `query_tree().within().count()`, which takes whole subtrees where it can.
pub(super) fn tree_count<const D: usize>(points: &[[f64; D]], bound: f64) -> Timed {
    let start = Instant::now();
    let (left, right) = rayon::join(|| build(points), || build(points));
    let found = left.query_tree(&right).within::<L2>(bound).count();
    let seconds = start.elapsed().as_secs_f64();
    Timed { seconds, pairs: (found - points.len()) as u64 }
}

fn build<const D: usize>(points: &[[f64; D]]) -> Tree<D> {
    Tree::<D>::new_from_slice(points).expect("finite points make a tree")
}

#[cfg(test)]
mod tests {
    #[test]
    fn within_means_at_most() {
        let points = [[0.0, 0.0], [0.3, 0.4], [5.0, 5.0]];
        let bound = 0.5f64 * 0.5;
        assert_eq!(super::lists(&points, bound).pairs, 2);
        assert_eq!(super::pairs(&points, bound).pairs, 2);
        assert_eq!(super::count(&points, bound).pairs, 2);
        assert_eq!(super::tree_count(&points, bound).pairs, 2);
    }
}
