//! The order of a balanced kd-tree whose leaves are blocks of sixteen points.
//!
//! The points are split at a coordinate of the widest dimension, again and again, down to
//! leaves of 16. The left side of every split takes a power of two of whole leaves, so that
//! each 16 leaves, and each 16 of those, are a subtree of their own: the pyramid of
//! [`Boxes`](super::Boxes) over this order is the tree, with sixteen children to a node.

use rayon::prelude::*;

use super::boxes::FAN;
use super::layout::SLACK;
use crate::error::Result;
use crate::memory::{Buffer, with_capacity};
use crate::points::Points;
use crate::scalar::Scalar;

/// Dimensions that splits look at. Where points have more, those are taken that spread most.
const MAX_DIMS: usize = 8;
/// Sides with more points are split in parallel.
const PARALLEL: usize = 1 << 13;

/// The rows in tree order, padded by [`SLACK`]. `extents` are those of the points.
pub(crate) fn sort<T: Scalar>(
    points: Points<'_, T>,
    extents: &[(f64, f64)],
) -> Result<Buffer<u32>> {
    let mut dims: Vec<usize> = (0..points.dimension()).collect();
    let width = |j: usize| extents[j].1 - extents[j].0;
    dims.sort_by(|&a, &b| width(b).total_cmp(&width(a)).then(a.cmp(&b)));
    dims.truncate(MAX_DIMS);
    match dims.len() {
        1 => sort_by::<T, 1>(points, &dims),
        2 => sort_by::<T, 2>(points, &dims),
        3 => sort_by::<T, 3>(points, &dims),
        4 => sort_by::<T, 4>(points, &dims),
        5 => sort_by::<T, 5>(points, &dims),
        6 => sort_by::<T, 6>(points, &dims),
        7 => sort_by::<T, 7>(points, &dims),
        _ => sort_by::<T, 8>(points, &dims),
    }
}

/// A point as splits see it: its coordinates side by side, and its row.
#[derive(Clone, Copy)]
struct Record<T, const D: usize> {
    coords: [T; D],
    id: u32,
}

fn sort_by<T: Scalar, const D: usize>(
    points: Points<'_, T>,
    dims: &[usize],
) -> Result<Buffer<u32>> {
    let record = |row: usize| {
        let point = points.row(row);
        Record { coords: core::array::from_fn(|at| point[dims[at]]), id: row as u32 }
    };
    let mut records: Vec<Record<T, D>> = with_capacity(points.len())?;
    (0..points.len()).into_par_iter().with_min_len(4096).map(record).collect_into_vec(&mut records);
    split(&mut records);
    let mut ids = Buffer::<u32>::zeroed(points.len() + SLACK)?;
    ids.par_iter_mut().zip(&records).with_min_len(4096).for_each(|(id, record)| *id = record.id);
    Ok(ids)
}

/// Puts records in tree order. No two are equal, since ids break ties: the order is the same
/// in every run.
fn split<T: Scalar, const D: usize>(records: &mut [Record<T, D>]) {
    let leaves = records.len().div_ceil(FAN);
    if leaves <= 1 {
        return;
    }
    // The largest power of two below the number of leaves.
    let left = 1usize << (usize::BITS - 1 - (leaves - 1).leading_zeros());
    let axis = widest(records);
    let middle = left * FAN;
    records.select_nth_unstable_by_key(middle, |record| {
        u128::from(record.coords[axis].order_bits()) << 32 | u128::from(record.id)
    });
    let parallel = records.len() > PARALLEL;
    let (low, high) = records.split_at_mut(middle);
    if parallel {
        rayon::join(|| split(low), || split(high));
    } else {
        split(low);
        split(high);
    }
}

/// The dimension in which the records spread most.
fn widest<T: Scalar, const D: usize>(records: &[Record<T, D>]) -> usize {
    let mut lo = records[0].coords;
    let mut hi = lo;
    for record in records {
        for j in 0..D {
            let x = record.coords[j];
            lo[j] = if x < lo[j] { x } else { lo[j] };
            hi[j] = if x > hi[j] { x } else { hi[j] };
        }
    }
    let mut best = 0;
    for j in 1..D {
        // Halved, so that no extent overflows.
        let half = |j: usize| hi[j].to_f64() / 2.0 - lo[j].to_f64() / 2.0;
        if half(j) > half(best) {
            best = j;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_once_and_leaves_are_compact() {
        for n in [0usize, 1, 15, 16, 17, 255, 256, 257, 5000] {
            let data: Vec<f64> =
                (0..2 * n).map(|i| ((i * 7919 + i * i * 31) % 10_007) as f64).collect();
            let points = Points::new(&data, 2).unwrap();
            let ids = sort(points, &[(0.0, 10_007.0); 2]).unwrap();
            let mut rows = ids[..n].to_vec();
            rows.sort_unstable();
            assert_eq!(rows, (0..n as u32).collect::<Vec<_>>(), "{n}");
        }
        let data: Vec<f64> =
            (0..64 * 64).flat_map(|i| [f64::from(i % 64), f64::from(i / 64)]).collect();
        let points = Points::new(&data, 2).unwrap();
        let ids = sort(points, &[(0.0, 63.0); 2]).unwrap();
        for leaf in ids[..4096].chunks(16) {
            let width = |j: usize| {
                let column = leaf.iter().map(|&id| data[2 * id as usize + j]);
                let (lo, hi) = column.fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(x), b.max(x)));
                hi - lo
            };
            assert_eq!((width(0), width(1)), (3.0, 3.0));
        }
    }
}
