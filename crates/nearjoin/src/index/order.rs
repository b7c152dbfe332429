//! Orders of points: sorting by code, and codes that keep neighbours together.

use rayon::prelude::*;
use rdst::{RadixKey, RadixSort};

use super::layout::SLACK;
use crate::error::Result;
use crate::memory::{Buffer, check_room};

/// Bits that number `len` points.
pub(crate) fn id_bits(len: usize) -> u32 {
    usize::BITS - len.saturating_sub(1).leading_zeros()
}

/// Codes with the row number in their low bits, so that no two are equal and every
/// sort gives the same order.
pub(crate) struct Sorted {
    codes: Buffer<u64>,
    id_bits: u32,
}

impl Sorted {
    /// Sorts the rows `0..len` by `key`, whose values must fit `64 − id_bits(len)` bits.
    pub(crate) fn by_key(len: usize, key: impl Fn(usize) -> u64 + Sync) -> Result<Self> {
        let id_bits = id_bits(len);
        let mut codes = Buffer::<u64>::faulted_in(len)?;
        codes.par_iter_mut().enumerate().with_min_len(4096).for_each(|(row, code)| {
            *code = key(row) << id_bits | row as u64;
        });
        check_room::<u64>(len)?;
        codes.radix_sort_unstable();
        Ok(Sorted { codes, id_bits })
    }

    /// The keys in ascending order.
    pub(crate) fn key(&self, position: usize) -> u64 {
        self.codes[position] >> self.id_bits
    }

    pub(crate) fn len(&self) -> usize {
        self.codes.len()
    }

    /// Where each run of equal keys ends.
    pub(crate) fn ends(&self) -> impl Iterator<Item = usize> {
        let mut end = 0;
        self.codes.chunk_by(|a, b| a >> self.id_bits == b >> self.id_bits).map(move |run| {
            end += run.len();
            end
        })
    }

    /// The rows in the order of their keys.
    pub(crate) fn ids(&self) -> Result<Buffer<u32>> {
        let mut ids = Buffer::<u32>::zeroed(self.codes.len() + SLACK)?;
        let mask = (1u64 << self.id_bits) - 1;
        let pairs = ids.par_iter_mut().zip(self.codes.par_iter()).with_min_len(4096);
        pairs.for_each(|(id, &code)| *id = (code & mask) as u32);
        Ok(ids)
    }
}

/// The rows in input order.
pub(crate) fn identity(len: usize) -> Result<Buffer<u32>> {
    let mut ids = Buffer::<u32>::zeroed(len + SLACK)?;
    ids[..len].par_iter_mut().enumerate().with_min_len(4096).for_each(|(row, id)| *id = row as u32);
    Ok(ids)
}

/// A key of 64 bits with its row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed {
    pub(crate) key: u64,
    pub(crate) id: u32,
}

impl RadixKey for Keyed {
    const LEVELS: usize = 12;

    #[inline]
    fn get_level(&self, level: usize) -> u8 {
        match level {
            0..4 => (self.id >> (8 * level)) as u8,
            _ => (self.key >> (8 * (level - 4))) as u8,
        }
    }
}

/// Sorts by key, then by row.
pub(crate) fn sort_keyed(keyed: &mut [Keyed]) -> Result<()> {
    check_room::<Keyed>(keyed.len())?;
    keyed.radix_sort_unstable();
    Ok(())
}

/// Interleaves the lowest `bits` bits of each coordinate, first coordinate highest.
pub(crate) fn interleave(coordinates: &[u32], bits: u32) -> u64 {
    let mut code = 0;
    for bit in (0..bits).rev() {
        for &coordinate in coordinates {
            code = code << 1 | u64::from(coordinate >> bit & 1);
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaving_two_coordinates() {
        assert_eq!(interleave(&[0b10, 0b01], 2), 0b1001);
        assert_eq!(interleave(&[3, 0], 2), 0b1010);
    }

    #[test]
    fn equal_keys_keep_input_order() {
        let sorted = Sorted::by_key(1000, |row| (row % 3) as u64).unwrap();
        let ids = sorted.ids().unwrap();
        let expected: Vec<u32> =
            (0..3).flat_map(|k| (0..1000).filter(move |row| row % 3 == k)).collect();
        assert_eq!(ids[..1000], expected);
        assert_eq!(sorted.key(333), 0);
    }

    #[test]
    fn bits_for_ids() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(id_bits), [0, 0, 1, 2, 2, 3]);
    }

    #[test]
    fn keyed_sort_breaks_ties_by_row() {
        let mut keyed: Vec<Keyed> =
            (0..500u32).rev().map(|id| Keyed { key: (u64::from(id) / 100) << 40, id }).collect();
        sort_keyed(&mut keyed).unwrap();
        assert!(keyed.windows(2).all(|w| w[0].id < w[1].id));
    }
}
