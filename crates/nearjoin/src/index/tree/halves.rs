//! The tree order of a part: its records are halved again and again, in the cache of one thread.
//!
//! What is moved are not records but keys of 64 bits: the distance of a coordinate from the least of
//! the part, whose bits ascend as it does, with the number of the record in the lowest ones. The
//! bits that this takes away decide nothing but on which side of a split a point stands.

use super::{PART, Record, left};
use crate::error::Result;
use crate::memory::reserve;
use crate::scalar::Scalar;

/// The bits of a record's number.
const NUMBER: u64 = PART as u64 - 1;
/// Records that are looked at to find the widest dimension.
const SEEN: usize = 64;

/// What a thread works in.
#[derive(Default)]
pub(super) struct Room {
    /// The keys of every record, side by side.
    keys: Vec<u64>,
    order: Vec<u64>,
}

/// The number of a record.
pub(super) fn number(key: u64) -> usize {
    (key & NUMBER) as usize
}

impl Room {
    /// The [`number`]s of the records in tree order; there are [`PART`] at the most.
    pub(super) fn order<T: Scalar, const D: usize>(
        &mut self,
        records: &[Record<T, D>],
    ) -> Result<&[u64]> {
        assert!(records.len() <= PART);
        let Room { keys, order } = self;
        keys.clear();
        reserve(keys, records.len() * D)?;
        order.clear();
        reserve(order, records.len())?;
        let mut least = [T::INFINITY; D];
        for record in records {
            for (least, &x) in least.iter_mut().zip(&record.coords) {
                *least = if x < *least { x } else { *least };
            }
        }
        let least = least.map(T::to_f64);
        for (record, number) in records.iter().zip(0..) {
            let key = |(x, least): (T, f64)| (x.to_f64() - least).to_bits() & !NUMBER | number;
            keys.extend(record.coords.into_iter().zip(least).map(key));
        }
        order.extend(0..records.len() as u64);
        halve::<D>(keys, order);
        Ok(order)
    }
}

/// Puts the numbers in `order` in tree order.
fn halve<const D: usize>(keys: &[u64], order: &mut [u64]) {
    let middle = left(order.len());
    if middle == order.len() {
        return;
    }
    let axis = widest::<D>(keys, order);
    order.iter_mut().for_each(|key| *key = keys[number(*key) * D + axis]);
    order.select_nth_unstable(middle);
    let (low, high) = order.split_at_mut(middle);
    halve::<D>(keys, low);
    halve::<D>(keys, high);
}

/// The dimension in which some of the records spread most.
fn widest<const D: usize>(keys: &[u64], order: &[u64]) -> usize {
    let (mut lo, mut hi) = ([u64::MAX; D], [0; D]);
    for &key in order.iter().step_by(order.len().div_ceil(SEEN)) {
        for (j, &key) in keys[number(key) * D..][..D].iter().enumerate() {
            lo[j] = lo[j].min(key);
            hi[j] = hi[j].max(key);
        }
    }
    super::longest(&lo.map(f64::from_bits), &hi.map(f64::from_bits))
}
