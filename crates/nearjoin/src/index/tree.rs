//! The order of a balanced kd-tree whose leaves are blocks of sixteen points.
//!
//! The points are split at a coordinate of the widest dimension, again and again, down to
//! leaves of 16. The left side of every split takes a power of two of whole leaves, so that
//! each 16 leaves, and each 16 of those, are a subtree of their own: the pyramid of
//! [`Boxes`](super::Boxes) over this order is the tree, with sixteen children to a node.
//!
//! ```text
//! parts.rs    all points, level by level, by all threads; then records, part by part
//! halves.rs   the records of a part, by one thread in its cache
//! here        leaf by leaf into the columns of the leaves
//! ```

mod halves;
mod parts;

use rayon::prelude::*;

use super::boxes::FAN;
use super::layout::SLACK;
use super::leaves::Leaves;
use crate::error::Result;
use crate::memory::{Buffer, Zeroable, with_capacity};
use crate::points::Points;
use crate::scalar::Scalar;
use halves::Room;

/// Dimensions that splits look at. Where points have more, those are taken that spread most.
const MAX_DIMS: usize = 8;
/// Points of a part, at the most.
const PART: usize = 1 << 14;

/// The points in tree order. `extents` are theirs.
pub(crate) fn leaves<T: Scalar>(
    points: Points<'_, T>,
    extents: &[(f64, f64)],
) -> Result<Leaves<T>> {
    let mut dims: Vec<usize> = (0..points.dimension()).collect();
    let width = |j: usize| extents[j].1 - extents[j].0;
    dims.sort_by(|&a, &b| width(b).total_cmp(&width(a)).then(a.cmp(&b)));
    dims.truncate(MAX_DIMS);
    match dims.len() {
        1 => leaves_by::<T, 1>(points, &dims),
        2 => leaves_by::<T, 2>(points, &dims),
        3 => leaves_by::<T, 3>(points, &dims),
        4 => leaves_by::<T, 4>(points, &dims),
        5 => leaves_by::<T, 5>(points, &dims),
        6 => leaves_by::<T, 6>(points, &dims),
        7 => leaves_by::<T, 7>(points, &dims),
        _ => leaves_by::<T, 8>(points, &dims),
    }
}

/// Bytes that finding the order takes for each point, and for each thread.
pub(crate) fn order_bytes(dim: usize, width: usize, points: usize) -> (usize, usize) {
    let dims = dim.min(MAX_DIMS);
    let record = (dims * width + size_of::<u32>()).next_multiple_of(width);
    (record + parts::NUMBER, points.min(PART) * (dims + 1) * size_of::<u64>())
}

/// A point as splits see it: its coordinates side by side, and its row.
#[derive(Clone, Copy)]
struct Record<T, const D: usize> {
    coords: [T; D],
    id: u32,
}

// Numbers without padding between them that is ever read.
impl<T: Scalar, const D: usize> Zeroable for Record<T, D> {}

/// How many of `len` points are on the left of a split: all of them if they are a leaf.
fn left(len: usize) -> usize {
    let leaves = len.div_ceil(FAN);
    match leaves {
        0 | 1 => len,
        // The largest power of two below the number of leaves.
        _ => FAN << (usize::BITS - 1 - (leaves - 1).leading_zeros()),
    }
}

/// `dims` are the dimensions of a record.
fn leaves_by<T: Scalar, const D: usize>(
    points: Points<'_, T>,
    dims: &[usize],
) -> Result<Leaves<T>> {
    let (len, dim) = (points.len(), points.dimension());
    let (mut records, lens) = parts::cut::<T, D>(points, dims)?;
    // Pieces share pages, and threads would clear the same one.
    let mut ids = Buffer::<u32>::faulted_in(len + SLACK)?;
    // Where records have not all coordinates, they are looked up.
    let whole = dims.len() == dim;
    let mut coords = Buffer::faulted_in(if whole { len.next_multiple_of(FAN) * dim } else { 0 })?;
    let pieces = pieces(&mut records, &mut ids, &mut coords, dim, &lens)?;
    pieces.into_par_iter().try_for_each_init(Room::default, |room, piece| -> Result<()> {
        let order = room.order(piece.records)?;
        for (leaf, order) in order.chunks(FAN).enumerate() {
            for (at, &record) in order.iter().enumerate() {
                let record = &piece.records[halves::number(record)];
                piece.ids[leaf * FAN + at] = record.id;
                for (x, j) in record.coords.iter().zip(dims).take(if whole { D } else { 0 }) {
                    piece.coords[(leaf * dim + j) * FAN + at] = *x;
                }
            }
        }
        Ok(())
    })?;
    drop(records);
    match whole {
        true => Leaves::of(points, coords, ids),
        false => Leaves::new(points, ids),
    }
}

/// Some leaves: their records in any order, and where ids and coordinates go.
struct Piece<'a, T, const D: usize> {
    records: &'a [Record<T, D>],
    ids: &'a mut [u32],
    coords: &'a mut [T],
}

/// Splits parts that are too large, and tells all that there are then.
fn pieces<'a, T: Scalar, const D: usize>(
    mut records: &'a mut [Record<T, D>],
    mut ids: &'a mut [u32],
    mut coords: &'a mut [T],
    dim: usize,
    lens: &[usize],
) -> Result<Vec<Piece<'a, T, D>>> {
    let mut rest = &mut *records;
    let mut large = with_capacity(lens.len())?;
    for &len in lens {
        let (part, behind) = rest.split_at_mut(len);
        large.push(part);
        rest = behind;
    }
    large.into_par_iter().for_each(split);
    let mut pieces = with_capacity(lens.len() + records.len() / (PART / 4))?;
    let mut waiting: Vec<usize> = lens.iter().rev().copied().collect();
    while let Some(len) = waiting.pop() {
        if len > PART {
            waiting.extend([len - left(len), left(len)]);
            continue;
        }
        let (of_piece, behind) = records.split_at_mut(len);
        let (own_ids, other_ids) = ids.split_at_mut(len);
        // Only the last leaf of all is not full.
        let own = (len.next_multiple_of(FAN) * dim).min(coords.len());
        let (own_coords, other_coords) = coords.split_at_mut(own);
        pieces.push(Piece { records: of_piece, ids: own_ids, coords: own_coords });
        (records, ids, coords) = (behind, other_ids, other_coords);
    }
    Ok(pieces)
}

/// Puts records in tree order down to parts. No two are equal, since ids break ties: what is on
/// either side is the same in every run.
fn split<T: Scalar, const D: usize>(records: &mut [Record<T, D>]) {
    if records.len() <= PART {
        return;
    }
    let axis = widest(records);
    let middle = left(records.len());
    records.select_nth_unstable_by_key(middle, |record| key(record.coords[axis], record.id));
    let (low, high) = records.split_at_mut(middle);
    rayon::join(|| split(low), || split(high));
}

/// A coordinate and a row, which breaks ties.
fn key<T: Scalar>(x: T, id: u32) -> u128 {
    u128::from(x.order_bits()) << 32 | u128::from(id)
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
    longest(&lo, &hi)
}

/// The longest side of a box.
fn longest<T: Scalar>(lo: &[T], hi: &[T]) -> usize {
    // Halved, so that no extent overflows.
    let half = |j: usize| hi[j].to_f64() / 2.0 - lo[j].to_f64() / 2.0;
    (1..lo.len()).fold(0, |best, j| if half(j) > half(best) { j } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::extents;

    /// The rows in order, which are checked to be all, with their coordinates in leaves.
    fn rows<T: Scalar>(data: &[T], dim: usize) -> Vec<u32> {
        let points = Points::new(data, dim).unwrap();
        let leaves = leaves(points, &extents(points)).unwrap();
        for (position, &id) in leaves.ids().iter().enumerate() {
            assert!(leaves.point(position).eq(points.row(id as usize).iter().copied()));
        }
        let mut rows = leaves.ids().to_vec();
        rows.sort_unstable();
        assert_eq!(rows, (0..points.len() as u32).collect::<Vec<_>>());
        leaves.ids().to_vec()
    }

    fn scattered(len: usize) -> Vec<f64> {
        (0..len as u64).map(|i| (parts::scramble(i) >> 40) as f64).collect()
    }

    #[test]
    fn every_row_once_and_leaves_are_compact() {
        for n in [0usize, 1, 15, 16, 17, 255, 256, 257, 5000, 70_001] {
            rows(&scattered(2 * n), 2);
        }
        let data: Vec<f64> =
            (0..64 * 64).flat_map(|i| [f64::from(i % 64), f64::from(i / 64)]).collect();
        for leaf in rows(&data, 2).chunks(16) {
            let width = |j: usize| {
                let column = leaf.iter().map(|&id| data[2 * id as usize + j]);
                let (lo, hi) = column.fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(x), b.max(x)));
                hi - lo
            };
            assert_eq!((width(0), width(1)), (3.0, 3.0));
        }
    }

    #[test]
    fn points_of_every_dimension_and_type() {
        for dim in 1..=10 {
            let data = scattered(40_000 * dim);
            rows(&data, dim);
            rows(&data.iter().map(|&x| x as f32).collect::<Vec<_>>(), dim);
        }
    }

    #[test]
    fn the_order_is_the_same_on_any_number_of_threads() {
        let data = scattered(3 * 100_000);
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| rows(&data, 3))
        };
        let one = on(1);
        assert!([2, 3, 8].into_iter().all(|threads| on(threads) == one));
    }

    #[test]
    fn points_that_are_equal_or_nearly_so() {
        rows(&vec![7.0; 100_000], 2);
        let mut data: Vec<f64> = (0..100_000).map(|i| f64::from(i % 3)).collect();
        data[5] = 1e300;
        data[10] = -1e300;
        rows(&data, 2);
        let far: Vec<f64> = scattered(200_000).iter().map(|x| 1e9 + x / 1e7).collect();
        rows(&far, 2);
    }
}
