//! Rows of a block in ascending order of their ids, and distances with them.

use super::kernel::{Kernels, SORTED_AT_ONCE};
use crate::index::Run;
use crate::scalar::Scalar;

/// Rows up to this length are sorted by a network, all rows of a block at once.
const NETWORK: usize = 512;
/// Bits of a digit of longer ones.
const DIGIT: u32 = 11;

/// Room to sort in.
#[derive(Debug, Default)]
pub(super) struct RowSorter {
    ids: Vec<[u32; SORTED_AT_ONCE]>,
    /// An id, and below it where its distance is.
    places: Vec<[u64; SORTED_AT_ONCE]>,
    keys: Vec<u64>,
    other_keys: Vec<u64>,
    digits: Vec<u32>,
}

/// What is sorted: an id alone, or with its place in the row.
trait Key: Copy + Default {
    const LAST: Self;
    fn id(self) -> u32;
}

impl Key for u32 {
    const LAST: u32 = u32::MAX;
    fn id(self) -> u32 {
        self
    }
}

impl Key for u64 {
    const LAST: u64 = u64::MAX;
    fn id(self) -> u32 {
        (self >> 32) as u32
    }
}

impl RowSorter {
    /// Sorts up to [`SORTED_AT_ONCE`] rows.
    pub(super) fn sort<T: Scalar>(&mut self, kernels: &Kernels<T>, rows: &mut [Vec<u32>]) {
        let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
        if longest > NETWORK {
            for row in rows {
                self.keys.clear();
                self.keys.extend(row.iter().map(|&id| u64::from(id) << 32));
                self.sort_keys();
                row.iter_mut().zip(&self.keys).for_each(|(id, key)| *id = key.id());
            }
            return;
        }
        to_columns(&mut self.ids, longest, rows, |_, id| id);
        kernels.sort_u32(&mut self.ids);
        for (lane, row) in rows.iter_mut().enumerate() {
            row.iter_mut().zip(&self.ids).for_each(|(id, column)| *id = column[lane]);
        }
    }

    /// The same, and their distances with them. `moved` is room for those of a row.
    pub(super) fn sort_with<T: Scalar>(
        &mut self,
        kernels: &Kernels<T>,
        rows: &mut [Vec<u32>],
        distances: &mut [Vec<T>],
        moved: &mut Vec<T>,
    ) {
        let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
        let key = |place: usize, id: u32| u64::from(id) << 32 | place as u64;
        let mut put = |row: &mut [u32], distances: &mut [T], at: &dyn Fn(usize) -> u64| {
            moved.clear();
            moved.extend_from_slice(distances);
            for (k, (id, distance)) in row.iter_mut().zip(distances).enumerate() {
                let key = at(k);
                (*id, *distance) = (key.id(), moved[key as u32 as usize]);
            }
        };
        let network = longest <= NETWORK;
        if network {
            to_columns(&mut self.places, longest, rows, key);
            kernels.sort_u64(&mut self.places);
        }
        for (lane, (row, distances)) in rows.iter_mut().zip(distances).enumerate() {
            if !network {
                self.keys.clear();
                self.keys.extend(row.iter().enumerate().map(|(place, &id)| key(place, id)));
                self.sort_keys();
            }
            let (columns, keys) = (&self.places, &self.keys);
            match network {
                true => put(row, distances, &|k| columns[k][lane]),
                false => put(row, distances, &|k| keys[k]),
            }
        }
    }

    /// Makes of some runs of positions one for each position, in ascending order of their ids.
    pub(super) fn singles<'r>(
        &mut self,
        runs: impl Iterator<Item = &'r Run>,
        ids: &[u32],
        singles: &mut Vec<Run>,
    ) {
        self.keys.clear();
        for position in runs.flat_map(Clone::clone) {
            self.keys.push(u64::from(ids[position as usize]) << 32 | u64::from(position));
        }
        self.sort_keys();
        let positions = self.keys.iter().map(|&key| key as u32);
        singles.clear();
        singles.extend(positions.map(|position| position..position + 1));
    }

    /// Sorts keys by the upper half, a digit at a time, of the bits in which they differ.
    fn sort_keys(&mut self) {
        let Self { keys, other_keys, digits, .. } = self;
        let Some(&first) = keys.first() else { return };
        let differ = keys.iter().fold(0, |differ, key| differ | (key ^ first));
        let differ = (differ >> 32) as u32;
        other_keys.resize(keys.len(), 0);
        let mut shift = differ.trailing_zeros();
        while shift < u32::BITS - differ.leading_zeros() {
            let digit = |key: u64| (key.id() >> shift) as usize % (1 << DIGIT);
            digits.clear();
            digits.resize(1 << DIGIT, 0);
            keys.iter().for_each(|&key| digits[digit(key)] += 1);
            let mut end = 0;
            for count in digits.iter_mut() {
                (*count, end) = (end, end + *count);
            }
            for &key in keys.iter() {
                let place = &mut digits[digit(key)];
                other_keys[*place as usize] = key;
                *place += 1;
            }
            core::mem::swap(keys, other_keys);
            shift += DIGIT;
        }
    }
}

/// Makes a lane of each row, all as long as the longest.
fn to_columns<K: Key>(
    columns: &mut Vec<[K; SORTED_AT_ONCE]>,
    longest: usize,
    rows: &[Vec<u32>],
    key: impl Fn(usize, u32) -> K,
) {
    columns.clear();
    columns.resize(longest, [K::LAST; SORTED_AT_ONCE]);
    for (lane, row) in rows.iter().enumerate() {
        for (place, (column, &id)) in columns.iter_mut().zip(row).enumerate() {
            column[lane] = key(place, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::cpu::kernel::SimdLevel;
    use crate::metric::Metric;

    #[test]
    fn short_and_long_rows() {
        let kernels = Kernels::<f64>::new(SimdLevel::Scalar, Metric::L2, 2);
        let mut sorter = RowSorter::default();
        for (longest, most) in [(0, 1), (1, 9), (40, 1000), (NETWORK, 3000), (5000, u32::MAX)] {
            let mut seed = longest as u32;
            let mut rows: Vec<Vec<u32>> = (0..SORTED_AT_ONCE)
                .map(|lane| {
                    let next = |_| {
                        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        ((u64::from(seed) * u64::from(most)) >> 32) as u32
                    };
                    (0..longest * lane / (SORTED_AT_ONCE - 1)).map(next).collect()
                })
                .collect();
            let of = |row: &Vec<u32>| row.iter().map(|&id| f64::from(id) / 2.0).collect();
            let mut distances: Vec<Vec<f64>> = rows.iter().map(of).collect();
            let mut expected = rows.clone();
            expected.iter_mut().for_each(|row| row.sort_unstable());
            let mut without = rows.clone();
            sorter.sort(&kernels, &mut without);
            assert_eq!(without, expected);
            sorter.sort_with(&kernels, &mut rows, &mut distances, &mut Vec::new());
            assert_eq!(rows, expected);
            assert!(rows.iter().zip(&distances).all(|(row, distances)| of(row) == *distances));
        }
    }
}
