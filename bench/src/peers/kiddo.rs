//! kiddo: its fastest immutable tree, asked point by point and tree against tree.
//!
//! Both ways compare with ≤, in squared distances, and find each point itself, so as
//! many pairs as there are points are taken off. Of its leaf stores `FlatVec` is faster
//! here than the `VecOfArenas` of the `ImmutableKdTree` alias. Points are asked for in
//! the tree's own order, which saves a fifth beside the order of the input.
//!
//! Of the nearest, one more is asked for, as the point itself is one of them, and stays.

use std::num::NonZero;
use std::time::Instant;

use kiddo::leaf_strategies::FlatVec;
use kiddo::{Eytzinger, KdTree, SquaredEuclidean};
use rayon::prelude::*;

use super::{Timed, difference};

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
pub(super) fn lists<const D: usize>(points: &[[f64; D]], bound: f64) -> Timed<u64> {
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
    Timed { seconds, found: found - points.len() as u64 }
}

/// `query_tree().within()`, which gives pairs in no order. It refuses a tree with itself,
/// so the tree is built twice.
pub(super) fn pairs<const D: usize>(points: &[[f64; D]], bound: f64) -> Timed<u64> {
    let start = Instant::now();
    let (left, right) = rayon::join(|| build(points), || build(points));
    let found = left.query_tree(&right).within::<L2>(bound).without_distances().execute();
    let seconds = start.elapsed().as_secs_f64();
    Timed { seconds, found: (found.len() - points.len()) as u64 }
}

/// The same as [`lists`], but keeping only how many.
pub(super) fn count<const D: usize>(points: &[[f64; D]], bound: f64) -> Timed<u64> {
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
    Timed { seconds, found: found - points.len() as u64 }
}

/// `query_tree().within().count()`, which takes whole subtrees where it can.
pub(super) fn tree_count<const D: usize>(points: &[[f64; D]], bound: f64) -> Timed<u64> {
    let start = Instant::now();
    let (left, right) = rayon::join(|| build(points), || build(points));
    let found = left.query_tree(&right).within::<L2>(bound).count();
    let seconds = start.elapsed().as_secs_f64();
    Timed { seconds, found: (found - points.len()) as u64 }
}

/// The nearest of one chunk of queries: whose they are, and k + 1 ids and squared distances
/// for each.
#[derive(Default)]
struct NearestRows {
    queries: Vec<u32>,
    ids: Vec<u32>,
    squares: Vec<f64>,
}

/// `query().nearest_n()` for each point in the tree's order, over all cores.
pub(super) fn nearest<const D: usize>(
    points: &[[f64; D]],
    k: usize,
    distances: &[f64],
) -> Timed<f64> {
    let start = Instant::now();
    let tree = build(points);
    let queries: Vec<(u32, [f64; D])> = tree.iter().collect();
    let chunk = |chunk: &[(u32, [f64; D])]| {
        let mut scratch = tree.create_scratch::<L2>();
        let mut rows = NearestRows::default();
        for (id, point) in chunk {
            let query = tree.query(point).nearest_n::<L2>(with_itself(k));
            for found in query.with_scratch(&mut scratch).execute() {
                rows.ids.push(found.item);
                rows.squares.push(found.distance);
            }
            rows.queries.push(*id);
        }
        rows
    };
    let rows: Vec<NearestRows> = queries.par_chunks(CHUNK).map(chunk).collect();
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(rows.iter().map(|rows| rows.ids.len()).sum::<usize>(), points.len() * (k + 1));
    let rows = rows.iter().flat_map(|rows| {
        let squares = rows.squares.chunks(k + 1);
        rows.queries.iter().zip(squares).map(|(&id, row)| (id as usize, row.to_vec()))
    });
    Timed { seconds, found: worst(rows, k, distances) }
}

/// `query_batch().nearest_n()` of all points, which has its own threads and order.
pub(super) fn batch<const D: usize>(
    points: &[[f64; D]],
    k: usize,
    distances: &[f64],
) -> Timed<f64> {
    let start = Instant::now();
    let tree = build(points);
    let found = tree.query_batch(points).nearest_n::<L2>(with_itself(k)).execute();
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(found.len(), points.len());
    let rows = found.iter().map(|row| row.iter().map(|found| found.distance).collect());
    Timed { seconds, found: worst(rows.enumerate(), k, distances) }
}

fn with_itself(k: usize) -> NonZero<usize> {
    NonZero::<usize>::MIN.saturating_add(k)
}

/// The largest share by which a distance differs from ours. The rows are of squares and
/// begin with the point itself.
fn worst(rows: impl Iterator<Item = (usize, Vec<f64>)>, k: usize, distances: &[f64]) -> f64 {
    let row = |(id, squares): (usize, Vec<f64>)| {
        let ours = &distances[id * k..][..k];
        let pairs = squares[1..].iter().zip(ours);
        pairs.map(|(square, &ours)| difference(square.sqrt(), ours)).fold(0.0, f64::max)
    };
    rows.map(row).fold(0.0, f64::max)
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
        assert_eq!(super::lists(&points, bound).found, 2);
        assert_eq!(super::pairs(&points, bound).found, 2);
        assert_eq!(super::count(&points, bound).found, 2);
        assert_eq!(super::tree_count(&points, bound).found, 2);
    }
    #[test]
    fn the_nearest_are_compared() {
        let points = [[0.0, 0.0], [0.3, 0.4], [3.3, 4.4]];
        let ours = [0.5, 0.5, 5.0];
        assert!(super::nearest(&points, 1, &ours).found < 1e-15);
        assert!(super::batch(&points, 1, &ours).found < 1e-15);
        let wrong = [0.5, 0.5, 4.0];
        assert!((super::nearest(&points, 1, &wrong).found - 0.2).abs() < 1e-15);
        assert!((super::batch(&points, 1, &wrong).found - 0.2).abs() < 1e-15);
    }
}
