//! The first levels of the tree: points are cut into parts that fit a cache, by all threads.
//!
//! ```text
//! for each level:
//!     by a sample, the dimension in which each node spreads most, and a band around its median
//!     one pass over all points:  to which half of the last level each belongs; then, in its node,
//!                                counted if below the band, noted if in it
//!     of those noted, the one at which the node is split
//! records are written part by part
//! ```
//! A band is so wide that it misses its median once in a million times. Then, and where so many
//! points are equal that bands hold most of them, there is one part, which is split by other means.
//! Which points a part has depends on nothing but the points; in a part they keep their input order.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rayon::prelude::*;

use super::{PART, Record, key, left, longest};
use crate::error::Result;
use crate::memory::{Buffer, RowWriter, with_capacity, zeros};
use crate::points::Points;
use crate::scalar::Scalar;

/// Levels at the most: a node has a number of one byte.
const LEVELS: u32 = 8;
/// Bytes of the number of a point's node.
pub(super) const NUMBER: usize = 1;
/// Rows of a chunk at the least, and chunks at the most: each counts for every node.
const CHUNK: usize = 1 << 13;
const CHUNKS: usize = 1 << 10;
/// Points in the sample at the most, and for each of it among all.
const SAMPLE: usize = 1 << 16;
const SHARE: usize = 32;
/// Of so many points one may be in a band. Their keys take no more memory than records will.
const NOTED: usize = 3;
/// Standard deviations of a rank in the sample on either side of the median.
const SURE: f64 = 5.0;

/// All points as records, part after part, and the points of each part.
pub(super) fn cut<T: Scalar, const D: usize>(
    points: Points<'_, T>,
    dims: &[usize],
) -> Result<(Buffer<Record<T, D>>, Vec<usize>)> {
    let len = points.len();
    let levels = len.div_ceil(PART).max(1).next_power_of_two().ilog2().min(LEVELS);
    let chunk = len.div_ceil(CHUNKS).max(CHUNK);
    let mut numbers = zeros(len.div_ceil(8))?;
    let numbers = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut numbers)[..len];
    let halving = Halving { points, dims, chunk };
    let mut nodes = vec![Node { len, sample: sample(len, levels) }];
    let mut splits = vec![Split::none()];
    for _ in 0..levels {
        match halving.level(numbers, &nodes, &splits)? {
            Some(next) => splits = next,
            None => {
                // One part after all.
                numbers.par_chunks_mut(chunk).for_each(|numbers| numbers.fill(0));
                (nodes, splits) = (vec![Node { len, sample: Vec::new() }], vec![Split::none()]);
                break;
            }
        }
        nodes = halving.halves(&nodes, &splits);
    }
    let lens: Vec<usize> = nodes.iter().map(|node| node.len).collect();
    Ok((halving.records(numbers, &splits, &lens)?, lens))
}

/// Rows from all over the input, the same in every run. Some come twice.
fn sample(len: usize, levels: u32) -> Vec<u32> {
    let wanted = if levels == 0 { 0 } else { (len / SHARE).min(SAMPLE) };
    (0..wanted as u64).map(|at| (scramble(at) % len as u64) as u32).collect()
}

/// A number that is as good as random.
pub(super) fn scramble(x: u64) -> u64 {
    let x = (x + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// A node of the tree: how many points it has, and those of the sample.
struct Node {
    len: usize,
    sample: Vec<u32>,
}

/// Where the median of a node is looked for.
struct Band<T> {
    column: usize,
    lo: T,
    hi: T,
}

/// Where a node is split.
#[derive(Clone, Copy)]
struct Split<T> {
    column: usize,
    /// The first point on the right.
    at: T,
    id: u32,
}

impl<T: Scalar> Split<T> {
    /// All points are on the left.
    fn none() -> Self {
        Split { column: 0, at: T::INFINITY, id: 0 }
    }

    /// 1 if a point is on the right, else 0.
    #[inline(always)]
    fn side(&self, row: &[T], id: u32) -> u8 {
        let x = row[self.column];
        u8::from((x > self.at) | ((x == self.at) & (id >= self.id)))
    }
}

/// What a chunk of the rows has for each node: how many points are below its band, and the
/// [`key`]s of those in it, node after node.
struct Found {
    below: Vec<u32>,
    keys: Vec<u128>,
    ends: Vec<u32>,
}

impl Found {
    fn of(&self, node: usize) -> &[u128] {
        let start = if node == 0 { 0 } else { self.ends[node - 1] };
        &self.keys[start as usize..self.ends[node] as usize]
    }
}

/// A point in a band.
#[derive(Clone, Copy)]
struct Noted<T> {
    x: T,
    id: u32,
    node: u8,
}

/// What levels have in common.
struct Halving<'a, T> {
    points: Points<'a, T>,
    /// The dimensions that may be split.
    dims: &'a [usize],
    /// Rows of a chunk.
    chunk: usize,
}

impl<T: Scalar> Halving<'_, T> {
    /// Splits all nodes of a level. `numbers` are those of the level before, where `splits` were
    /// found. None where bands do not do.
    fn level(
        &self,
        numbers: &mut [u8],
        nodes: &[Node],
        splits: &[Split<T>],
    ) -> Result<Option<Vec<Split<T>>>> {
        let bands: Vec<Band<T>> = nodes.par_iter().map(|node| self.band(node)).collect();
        let chunks = numbers.par_chunks_mut(self.chunk).enumerate();
        let room = || vec![Noted { x: T::ZERO, id: 0, node: 0 }; self.chunk + 1];
        let noted = AtomicUsize::new(0);
        let found = chunks.map_init(room, |room, (chunk, numbers)| {
            self.find(chunk * self.chunk, numbers, splits, &bands, room, &noted)
        });
        let found: Vec<Option<Found>> = found.collect::<Result<_>>()?;
        let found: Option<Vec<Found>> = found.into_iter().collect();
        let Some(found) = found else { return Ok(None) };
        let all = nodes.par_iter().zip(&bands).enumerate();
        let splits = all.map(|(number, (node, band))| self.median(number, node, band, &found));
        let splits: Vec<Option<Split<T>>> = splits.collect::<Result<_>>()?;
        Ok(splits.into_iter().collect())
    }

    /// Where to look for the median of a node.
    fn band(&self, node: &Node) -> Band<T> {
        let (all, sampled) = (node.len as f64, node.sample.len() as f64);
        let rank = left(node.len) as f64 / all.max(1.0);
        let all_of_it = Band { column: self.dims[0], lo: T::NEG_INFINITY, hi: T::INFINITY };
        if left(node.len) == node.len {
            return Band { lo: T::INFINITY, ..all_of_it };
        }
        if node.sample.is_empty() {
            return all_of_it;
        }
        let row = |id: &u32| self.points.row(*id as usize);
        let extent = |&j: &usize| {
            let column = node.sample.iter().map(|id| row(id)[j]);
            column.fold((T::INFINITY, T::NEG_INFINITY), |(lo, hi), x| {
                (if x < lo { x } else { lo }, if x > hi { x } else { hi })
            })
        };
        let (lo, hi): (Vec<T>, Vec<T>) = self.dims.iter().map(extent).unzip();
        let column = self.dims[longest(&lo, &hi)];
        let mut xs: Vec<T> = node.sample.iter().map(|id| row(id)[column]).collect();
        let margin = SURE * (sampled * rank * (1.0 - rank)).sqrt() + 2.0;
        let mut nth = |at: f64, beyond: T| match (0.0..sampled).contains(&at) {
            true => *xs.select_nth_unstable_by_key(at as usize, |x| x.order_bits()).1,
            false => beyond,
        };
        let lo = nth(rank * sampled - margin, all_of_it.lo);
        Band { column, lo, hi: nth(rank * sampled + margin, all_of_it.hi) }
    }

    /// Numbers the rows of a chunk, and tells which are below a band or in it. None where those of
    /// all chunks, which are counted, are too many.
    #[allow(clippy::too_many_arguments)]
    fn find(
        &self,
        first: usize,
        numbers: &mut [u8],
        splits: &[Split<T>],
        bands: &[Band<T>],
        noted: &mut [Noted<T>],
        all_noted: &AtomicUsize,
    ) -> Result<Option<Found>> {
        let dim = self.points.dimension();
        let rows = self.points.as_slice()[first * dim..].chunks_exact(dim);
        let mut below = vec![0u32; bands.len()];
        let mut count = 0;
        for ((number, row), id) in numbers.iter_mut().zip(rows).zip(first as u32..) {
            *number = 2 * *number + splits[*number as usize].side(row, id);
            let band = &bands[*number as usize];
            let x = row[band.column];
            below[*number as usize] += u32::from(x < band.lo);
            noted[count] = Noted { x, id, node: *number };
            count += usize::from((x >= band.lo) & (x <= band.hi));
        }
        if all_noted.fetch_add(count, Relaxed) + count > self.points.len() / NOTED {
            return Ok(None);
        }
        let noted = &noted[..count];
        let mut ends = vec![0u32; bands.len() + 1];
        noted.iter().for_each(|point| ends[point.node as usize + 1] += 1);
        (0..bands.len()).for_each(|node| ends[node + 1] += ends[node]);
        let mut keys = with_capacity(count)?;
        keys.resize(count, 0);
        for point in noted {
            let end = &mut ends[point.node as usize];
            keys[*end as usize] = key(point.x, point.id);
            *end += 1;
        }
        Ok(Some(Found { below, keys, ends }))
    }

    /// Where a node is split, if that is in its band.
    fn median(
        &self,
        number: usize,
        node: &Node,
        band: &Band<T>,
        found: &[Found],
    ) -> Result<Option<Split<T>>> {
        let middle = left(node.len);
        if middle == node.len {
            return Ok(Some(Split::none()));
        }
        let below: usize = found.iter().map(|found| found.below[number] as usize).sum();
        let in_band = found.iter().map(|found| found.of(number).len()).sum();
        let mut keys = with_capacity(in_band)?;
        found.iter().for_each(|found| keys.extend_from_slice(found.of(number)));
        let median = middle.checked_sub(below).filter(|&at| at < keys.len());
        Ok(median.map(|at| {
            let id = *keys.select_nth_unstable(at).1 as u32;
            Split { column: band.column, at: self.points.row(id as usize)[band.column], id }
        }))
    }

    /// The nodes of the next level.
    fn halves(&self, nodes: &[Node], splits: &[Split<T>]) -> Vec<Node> {
        let halves = nodes.par_iter().zip(splits).flat_map_iter(|(node, split)| {
            let (low, high): (Vec<u32>, Vec<u32>) = node
                .sample
                .iter()
                .partition(|&&id| split.side(self.points.row(id as usize), id) == 0);
            let middle = left(node.len);
            [Node { len: middle, sample: low }, Node { len: node.len - middle, sample: high }]
        });
        halves.collect()
    }

    /// The records of all parts, which have so many points. `numbers` are those of the level
    /// before, where `splits` were found.
    #[allow(unsafe_code)]
    fn records<const D: usize>(
        &self,
        numbers: &mut [u8],
        splits: &[Split<T>],
        lens: &[usize],
    ) -> Result<Buffer<Record<T, D>>> {
        let dim = self.points.dimension();
        let rows = |first: usize| {
            let rows = self.points.as_slice()[first * dim..].chunks_exact(dim);
            rows.zip(first as u32..)
        };
        let chunks = numbers.par_chunks_mut(self.chunk).enumerate();
        let counted = chunks.map(|(chunk, numbers)| {
            let mut counts = vec![0u32; lens.len()];
            for (number, (row, id)) in numbers.iter_mut().zip(rows(chunk * self.chunk)) {
                *number = 2 * *number + splits[*number as usize].side(row, id);
                counts[*number as usize] += 1;
            }
            counts
        });
        let mut places: Vec<Vec<u32>> = counted.collect();
        let mut end = 0;
        for (part, &len) in lens.iter().enumerate() {
            let mut place = end as u32;
            for places in &mut places {
                place += core::mem::replace(&mut places[part], place);
            }
            end += len;
            assert_eq!(place as usize, end);
        }
        // All threads write all over it: they would wait for each other's page faults.
        let mut records = Buffer::<Record<T, D>>::faulted_in(self.points.len())?;
        let to = RowWriter::new(&mut records);
        let chunks = numbers.par_chunks(self.chunk).zip(places).enumerate();
        chunks.for_each(|(chunk, (numbers, mut places))| {
            for (&number, (row, id)) in numbers.iter().zip(rows(chunk * self.chunk)) {
                let coords = core::array::from_fn(|at| row[self.dims[at]]);
                let place = &mut places[number as usize];
                // SAFETY: by running sums, every chunk has places of its own in every part. It
                // passes each once.
                unsafe { to.write_short(*place as usize, &[Record { coords, id }]) };
                *place += 1;
            }
        });
        Ok(records)
    }
}
