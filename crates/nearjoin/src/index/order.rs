//! Orders of points: sorting by code, and codes that keep neighbours together.

use core::sync::atomic::Ordering::Relaxed;

use rayon::prelude::*;
use rdst::{RadixKey, RadixSort};

use super::layout::SLACK;
use crate::error::Result;
use crate::memory::{Buffer, as_atomic_u32, check_room, zeros};

/// Bits that number `len` points.
pub(crate) fn id_bits(len: usize) -> u32 {
    usize::BITS - len.saturating_sub(1).leading_zeros()
}

/// Codes with the row number in their low bits, so that no two are equal and every
/// sort gives the same order.
pub(crate) struct Sorted {
    codes: Vec<u64>,
    id_bits: u32,
}

impl Sorted {
    /// Sorts the rows `0..len` by `key`, whose values must fit `64 − id_bits(len)` bits.
    pub(crate) fn by_key(len: usize, key: impl Fn(usize) -> u64 + Sync) -> Result<Self> {
        let id_bits = id_bits(len);
        let mut codes = zeros(len)?;
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

/// An order of points, told in one of two ways.
pub(crate) enum Order {
    /// The row at each position, with [`SLACK`] elements more than there are rows.
    Ids(Buffer<u32>),
    /// The position of each row.
    Places(Buffer<u32>),
}

impl Order {
    /// The row at each position, padded by [`SLACK`].
    pub(crate) fn into_ids(self) -> Result<Buffer<u32>> {
        match self {
            Order::Ids(ids) => Ok(ids),
            Order::Places(places) => {
                let mut ids = Buffer::<u32>::zeroed(places.len() + SLACK)?;
                let to = as_atomic_u32(&mut ids);
                places.par_iter().enumerate().with_min_len(4096).for_each(|(row, &place)| {
                    to[place as usize].store(row as u32, Relaxed);
                });
                Ok(ids)
            }
        }
    }
}

/// The order of rows by cell, and where each cell begins: a counting sort. `fill_cells`
/// tells the cells of some rows from a given one on.
///
/// Rows of one cell keep their input order, whatever the number of threads.
pub(crate) fn by_cell(
    len: usize,
    cells: usize,
    fill_cells: impl Fn(usize, &mut [u32]) + Sync,
) -> Result<(Order, Buffer<u32>)> {
    const STRETCH: usize = 2048;
    // Every part counts for itself; the counts of all parts may take twice the room of
    // the cells of the rows.
    let most = (2 * len / cells.max(1)).clamp(1, rayon::current_num_threads());
    let part = len.div_ceil(most).max(1);
    let mut places = Buffer::<u32>::zeroed(len)?;
    let mut next: Vec<Buffer<u32>> = places
        .par_chunks_mut(part)
        .enumerate()
        .map(|(at, cells_of)| {
            let mut counts = Buffer::<u32>::zeroed(cells)?;
            for (stretch, cells_of) in cells_of.chunks_mut(STRETCH).enumerate() {
                fill_cells(at * part + stretch * STRETCH, cells_of);
                cells_of.iter().for_each(|&cell| counts[cell as usize] += 1);
            }
            Ok(counts)
        })
        .collect::<Result<_>>()?;
    let starts = running_sums(&mut next, cells)?;
    next.par_iter_mut().zip(places.par_chunks_mut(part)).for_each(|(next, cells_of)| {
        for place in cells_of {
            let next = &mut next[*place as usize];
            *place = *next;
            *next += 1;
        }
    });
    Ok((Order::Places(places), starts))
}

/// Turns the counts of every part into the place of its first row of each cell: cell by
/// cell, and within a cell part by part. Returns where each cell begins, and the end.
fn running_sums(counts: &mut [Buffer<u32>], cells: usize) -> Result<Buffer<u32>> {
    const STRETCH: usize = 1 << 15;
    let mut starts = Buffer::<u32>::zeroed(cells + 1)?;
    let stretches = cells.div_ceil(STRETCH);
    let mut before: Vec<u32> = (0..stretches)
        .into_par_iter()
        .map(|at| {
            let stretch = at * STRETCH..cells.min((at + 1) * STRETCH);
            counts.iter().map(|part| part[stretch.clone()].iter().sum::<u32>()).sum()
        })
        .collect();
    let mut end = 0;
    for sum in &mut before {
        end += core::mem::replace(sum, end);
    }
    starts[cells] = end;
    // One task has the same stretch of every part.
    let mut tasks: Vec<Vec<&mut [u32]>> = Vec::new();
    tasks.resize_with(stretches, Vec::new);
    for part in counts.iter_mut() {
        for (task, stretch) in tasks.iter_mut().zip(part.chunks_mut(STRETCH)) {
            task.push(stretch);
        }
    }
    let starts_of = starts[..cells].par_chunks_mut(STRETCH);
    starts_of.zip(tasks).zip(before).for_each(|((starts, mut parts), mut next)| {
        for (cell, start) in starts.iter_mut().enumerate() {
            *start = next;
            for part in &mut parts {
                next += core::mem::replace(&mut part[cell], next);
            }
        }
    });
    Ok(starts)
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
    fn counting_sort_keeps_input_order() {
        let (order, starts) = by_cell(1000, 5, |first, cells| {
            cells.iter_mut().zip(first..).for_each(|(cell, row)| *cell = [3, 1, 3][row % 3]);
        })
        .unwrap();
        let ids = order.into_ids().unwrap();
        let expected: Vec<u32> = (0..1000)
            .filter(|row| row % 3 == 1)
            .chain((0..1000).filter(|row| row % 3 != 1))
            .collect();
        assert_eq!(ids[..1000], expected);
        assert_eq!(starts[..], [0, 0, 333, 333, 1000, 1000]);
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
