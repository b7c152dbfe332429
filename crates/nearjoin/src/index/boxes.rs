//! Bounding boxes of blocks of points, sixteen to a block, level upon level.
//!
//! A block wholly farther than ε from a block of queries is skipped, a block wholly
//! within ε is taken without a distance test, whatever order the points stand in.

use rayon::prelude::*;

use super::{Candidates, Run, push_run};
use crate::error::Result;
use crate::exec::cpu::kernel::{BoxJob, Kernels};
use crate::memory::{Buffer, with_capacity};
use crate::metric::Threshold;
use crate::scalar::Scalar;

/// Points in a block, and blocks in a block of the next level.
pub(crate) const FAN: usize = 16;
/// Runs shorter than this are tested outright: looking at boxes costs as much.
const WORTH_PRUNING: u32 = 48;

/// One axis-aligned box.
#[derive(Clone, Debug, Default)]
pub(crate) struct BoxOf<T> {
    pub(crate) lo: Vec<T>,
    pub(crate) hi: Vec<T>,
}

impl<T: Scalar> BoxOf<T> {
    pub(crate) fn new() -> Self {
        BoxOf { lo: Vec::new(), hi: Vec::new() }
    }

    pub(crate) fn clear(&mut self) {
        self.lo.clear();
        self.hi.clear();
    }

    /// The middle of the box.
    pub(crate) fn middle(&self, middle: &mut Vec<f64>) {
        middle.clear();
        let sides = self.lo.iter().zip(&self.hi);
        middle.extend(sides.map(|(lo, hi)| lo.to_f64() + (hi.to_f64() - lo.to_f64()) / 2.0));
    }

    /// A box around one point.
    pub(crate) fn set(&mut self, point: impl Iterator<Item = T>) {
        self.clear();
        self.lo.extend(point);
        self.hi.extend_from_slice(&self.lo);
    }
}

/// The boxes of one level, a column per dimension.
struct Level<T> {
    count: usize,
    stride: usize,
    lo: Buffer<T>,
    hi: Buffer<T>,
}

/// A pyramid of boxes: level 0 bounds 16 points each, level ℓ bounds 16ˡ⁺¹.
pub(crate) struct Boxes<T> {
    dim: usize,
    len: usize,
    levels: Vec<Level<T>>,
}

impl<T: Scalar> Boxes<T> {
    /// Boxes every 16 of `len` points, whose extent in dimension `j` is given, and every 16
    /// boxes, up to a handful.
    pub(crate) fn new(
        len: usize,
        dim: usize,
        extent: impl Fn(usize, &Run) -> (T, T) + Sync,
    ) -> Result<Self> {
        let mut levels = vec![Level::new(len, dim, extent)?];
        while let Some(below) = levels.last().filter(|level| level.count > FAN) {
            let level = Level::new(below.count, dim, |j, boxes: &Run| {
                let range = |bounds: &Buffer<T>, pick: fn(T, T) -> T, start: T| {
                    let first = j * below.stride + boxes.start as usize;
                    bounds[first..][..boxes.len()].iter().fold(start, |a, &b| pick(a, b))
                };
                let lo = range(&below.lo, |a, b| if b < a { b } else { a }, T::INFINITY);
                let hi = range(&below.hi, |a, b| if b > a { b } else { a }, T::NEG_INFINITY);
                (lo, hi)
            })?;
            levels.push(level);
        }
        Ok(Boxes { dim, len, levels })
    }

    /// The highest level; it has at most 16 blocks.
    pub(crate) fn top(&self) -> usize {
        self.levels.len() - 1
    }

    /// The least row of every block, by level. `ids` are the rows of the points.
    pub(crate) fn least_rows(&self, ids: &[u32]) -> Result<Vec<Vec<u32>>> {
        let least = |rows: &[u32]| rows.iter().copied().fold(u32::MAX, u32::min);
        let mut levels: Vec<Vec<u32>> = Vec::new();
        for _ in &self.levels {
            let below = levels.last().map_or(ids, |level| level);
            let mut level = with_capacity(below.len().div_ceil(FAN))?;
            below.par_chunks(FAN).with_min_len(1024).map(least).collect_into_vec(&mut level);
            levels.push(level);
        }
        Ok(levels)
    }

    /// Number of blocks on a level.
    pub(crate) fn count(&self, level: usize) -> usize {
        self.levels[level].count
    }

    /// The points of a block.
    pub(crate) fn run(&self, level: usize, node: usize) -> Run {
        let points = FAN.pow(level as u32 + 1);
        (node * points) as u32..((node + 1) * points).min(self.len) as u32
    }

    /// The blocks `first..first + count` of a level, at most 16, beside a box of queries.
    pub(crate) fn job<'a>(
        &'a self,
        level: usize,
        first: usize,
        count: usize,
        query: &'a BoxOf<T>,
    ) -> BoxJob<'a, T> {
        let (lo, hi, stride) = self.columns(level);
        let (query_lo, query_hi) = (&query.lo[..], &query.hi[..]);
        BoxJob { lo, hi, stride, first, count, query_lo, query_hi, dim: self.dim }
    }

    /// The boxes of a level: least and greatest coordinates, a column per dimension, and the
    /// elements from one column to the next.
    pub(crate) fn columns(&self, level: usize) -> (&[T], &[T], usize) {
        let level = &self.levels[level];
        (&level.lo, &level.hi, level.stride)
    }

    /// Copies one block's box.
    pub(crate) fn bound(&self, level: usize, node: usize, bound: &mut BoxOf<T>) {
        let level = &self.levels[level];
        bound.clear();
        for j in 0..self.dim {
            bound.lo.push(level.lo[j * level.stride + node]);
            bound.hi.push(level.hi[j * level.stride + node]);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.levels.iter().map(|l| size_of_val(&l.lo[..]) + size_of_val(&l.hi[..])).sum()
    }
}

impl<T: Scalar> Level<T> {
    /// Bounds every 16 of `len` things, whose extent in dimension `j` is given.
    fn new(len: usize, dim: usize, extent: impl Fn(usize, &Run) -> (T, T) + Sync) -> Result<Self> {
        let count = len.div_ceil(FAN);
        let stride = count.next_multiple_of(FAN) + FAN;
        let (mut lo, mut hi) = (Buffer::zeroed(stride * dim)?, Buffer::zeroed(stride * dim)?);
        let columns = lo.chunks_exact_mut(stride).zip(hi.chunks_exact_mut(stride));
        for (j, (lo, hi)) in columns.enumerate() {
            let boxes = lo[..count].par_iter_mut().zip(hi[..count].par_iter_mut());
            boxes.enumerate().with_min_len(1024).for_each(|(node, (lo, hi))| {
                let of = (node * FAN) as u32..len.min((node + 1) * FAN) as u32;
                (*lo, *hi) = extent(j, &of);
            });
        }
        Ok(Level { count, stride, lo, hi })
    }
}

/// The test of boxes against a block of queries.
#[derive(Clone, Copy)]
pub(crate) struct Prune<T> {
    kernels: Kernels<T>,
    skip_above: T,
    take_below: T,
}

impl<T: Scalar> Prune<T> {
    /// Where the lanes are fused, boxes are measured by the very operations that decide a
    /// pair, in the same order. Each is monotone, rounding included, so the result for the
    /// greatest differences of two boxes is at least that of any pair from them, the result
    /// for the least at most: ε itself is the limit, and ε = 0 takes equal points whole.
    /// Elsewhere the limits are widened by all that rounding can do; a greatest distance
    /// of 0 is one for every pair, fused or not.
    pub(crate) fn new(kernels: Kernels<T>, threshold: &Threshold<T>, dim: usize) -> Self {
        if kernels.fused {
            let bound = threshold.bound;
            return Prune { kernels, skip_above: bound, take_below: bound };
        }
        let (take_below, skip_above) = threshold.band(dim);
        // Rounding to the type must not narrow the band: one more unit each way.
        let nudge = 1.0 + 4.0 * T::UNIT_ROUNDOFF;
        Prune {
            kernels,
            skip_above: T::from_f64(skip_above * nudge),
            take_below: T::from_f64((take_below / nudge).max(0.0)),
        }
    }

    /// Which of the blocks `first..first + count` of a level may match, and which match
    /// wholly, as bits; at most 16 blocks.
    pub(crate) fn classify(
        &self,
        boxes: &Boxes<T>,
        level: usize,
        first: usize,
        count: usize,
        query: &BoxOf<T>,
    ) -> (u32, u32) {
        let job = boxes.job(level, first, count, query);
        self.kernels.boxes(&job, self.skip_above, self.take_below)
    }

    /// Sorts the points of `run` into taken, tested and skipped, coarse blocks first.
    pub(crate) fn split(&self, boxes: &Boxes<T>, run: Run, query: &BoxOf<T>, out: &mut Candidates) {
        if run.end - run.start < WORTH_PRUNING {
            push_run(&mut out.test, run);
            return;
        }
        // Begin on the lowest level where a handful of blocks cover the run.
        let mut level = 0;
        let mut points = FAN;
        while level < boxes.top() && run.len() > points * FAN {
            level += 1;
            points *= FAN;
        }
        self.descend(boxes, level, &run, run.clone(), query, out);
    }

    /// `within` is the part of `run` that the parent block covers.
    fn descend(
        &self,
        boxes: &Boxes<T>,
        level: usize,
        run: &Run,
        within: Run,
        query: &BoxOf<T>,
        out: &mut Candidates,
    ) {
        let points = FAN.pow(level as u32 + 1);
        let last = (within.end as usize).div_ceil(points);
        let mut first = within.start as usize / points;
        while first < last {
            let count = FAN.min(last - first);
            let (near, inside) = self.classify(boxes, level, first, count, query);
            let mut left = near;
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                let block = boxes.run(level, first + bit as usize);
                let part = block.start.max(run.start)..block.end.min(run.end);
                if inside >> bit & 1 == 1 {
                    push_run(&mut out.take, part);
                } else if level == 0 {
                    push_run(&mut out.test, part);
                } else {
                    self.descend(boxes, level - 1, run, part, query, out);
                }
            }
            first += count;
        }
    }
}
