//! Rows of a block in ascending order of their ids, and distances with them.

use super::kernel::{Kernels, SORTED_AT_ONCE};
use crate::index::Run;
use crate::scalar::Scalar;

/// Rows up to this length are sorted by a network, all rows of a block at once.
const NETWORK: usize = 512;
/// Bits of a digit of longer ones, and of candidates.
const DIGIT: u32 = 8;
/// Keys up to which two digits tell most of them apart.
const TWO_DIGITS: usize = 2000;

/// Room to sort in.
#[derive(Debug, Default)]
pub(super) struct RowSorter {
    ids: Vec<[u32; SORTED_AT_ONCE]>,
    /// An id, and below it where its distance is.
    places: Vec<[u64; SORTED_AT_ONCE]>,
    keys: Vec<u64>,
    other_keys: Vec<u64>,
}

/// The id of a key, which has it above its place.
fn id(key: u64) -> u32 {
    (key >> 32) as u32
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
                row.iter_mut().zip(&self.keys).for_each(|(id, key)| *id = self::id(*key));
            }
            return;
        }
        kernels.sort_rows(rows, &mut self.ids);
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
                (*id, *distance) = (self::id(key), moved[key as u32 as usize]);
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

    /// The positions of some runs, each below its id; in ascending order of those, if they are to be
    /// `sorted`.
    pub(super) fn keys(&mut self, runs: &[Run], ids: &[u32], sorted: bool) -> &[u64] {
        self.keys.clear();
        for position in runs.iter().flat_map(Clone::clone) {
            self.keys.push(u64::from(ids[position as usize]) << 32 | u64::from(position));
        }
        if sorted {
            self.sort_keys();
        }
        &self.keys
    }

    /// Sorts keys by the upper half: by two or three digits of the highest bits in which they differ,
    /// and by insertion what those leave; or by all digits, where that is much.
    fn sort_keys(&mut self) {
        let Some(&first) = self.keys.first() else { return };
        let differ = self.keys.iter().fold(0, |differ, key| differ | (key ^ first));
        let bits = u32::BITS - ((differ >> 32) as u32).leading_zeros();
        let (all, enough) =
            (bits.div_ceil(DIGIT), if self.keys.len() <= TWO_DIGITS { 2 } else { 3 });
        if all > enough {
            self.sort_digits(bits - enough * DIGIT, enough);
            if insert_all(&mut self.keys) {
                return;
            }
        }
        self.sort_digits(0, all);
    }

    /// Sorts keys by some digits of the upper half, from a bit on. Those that are equal stay in order.
    fn sort_digits(&mut self, lowest: u32, digits: u32) {
        let Self { keys, other_keys, .. } = self;
        other_keys.resize(keys.len(), 0);
        for shift in (0..digits).map(|at| u32::BITS + lowest + at * DIGIT) {
            let digit = |key: u64| (key >> shift) as u8 as usize;
            let mut places = [0u32; 1 << DIGIT];
            keys.iter().for_each(|&key| places[digit(key)] += 1);
            let mut end = 0;
            for count in &mut places {
                (*count, end) = (end, end + *count);
            }
            for &key in keys.iter() {
                let place = &mut places[digit(key)];
                other_keys[*place as usize] = key;
                *place += 1;
            }
            core::mem::swap(keys, other_keys);
        }
    }
}

/// Sorts keys that are nearly in order. Gives up, with all keys still there, when they are not.
fn insert_all(keys: &mut [u64]) -> bool {
    let mut moves = 0;
    for from in 1..keys.len() {
        let key = keys[from];
        let mut at = from;
        while at > 0 && key < keys[at - 1] {
            keys[at] = keys[at - 1];
            at -= 1;
        }
        keys[at] = key;
        moves += from - at;
        if moves > 4 * keys.len() {
            return false;
        }
    }
    true
}

/// Makes a lane of the keys of each row, all as long as the longest by what comes last.
fn to_columns(
    columns: &mut Vec<[u64; SORTED_AT_ONCE]>,
    longest: usize,
    rows: &[Vec<u32>],
    key: impl Fn(usize, u32) -> u64,
) {
    columns.clear();
    columns.resize(longest, [u64::MAX; SORTED_AT_ONCE]);
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

    /// Ids that share their highest bits with many others: what two digits leave is much.
    #[test]
    fn ids_in_a_few_heaps() {
        let mut sorter = RowSorter::default();
        for (heaps, length) in [(1, 3000u32), (2, 1500), (3, 700), (40, 50), (700, 3)] {
            let heap = |heap: u32| (0..length).map(move |i| heap * 5_000_000 + i * 7919 % 60_000);
            let mut expected: Vec<u64> =
                (0..heaps).flat_map(heap).map(|id| u64::from(id) << 32 | 7).collect();
            sorter.keys.clone_from(&expected);
            sorter.sort_keys();
            expected.sort_unstable();
            assert_eq!(sorter.keys, expected, "{heaps}");
        }
    }

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
