//! Bounding boxes of blocks of points, sixteen to a block, level upon level.
//!
//! A block wholly farther than ε from a block of queries is skipped, a block wholly
//! within ε is taken without a distance test, whatever order the points stand in.

use rayon::prelude::*;

use super::{Candidates, Run, push_run};
use crate::error::Result;
use crate::exec::cpu::kernel::{BoxJob, Kernels};
use crate::memory::Buffer;
use crate::metric::Threshold;
use crate::scalar::Scalar;

/// Points in a block, and blocks in a block of the next level.
pub(crate) const FAN: usize = 16;
/// Runs shorter than this are tested outright: looking at boxes costs as much.
const WORTH_PRUNING: u32 = 48;

/// One axis-aligned box.
#[derive(Clone, Debug)]
pub(crate) struct BoxOf<T> {
    pub(crate) lo: Vec<T>,
    pub(crate) hi: Vec<T>,
}

impl<T: Scalar> BoxOf<T> {
    pub(crate) fn new() -> Self {
        BoxOf {
            lo: Vec::new(),
            hi: Vec::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.lo.clear();
        self.hi.clear();
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
    /// Boxes the points of columns `stride` apart.
    pub(crate) fn new(coords: &[T], len: usize, dim: usize, stride: usize) -> Result<Self> {
        let columns = || coords.chunks_exact(stride).map(|column| &column[..len]);
        let mut levels = vec![Level::new(len, dim, columns(), columns())?];
        while let Some(below) = levels.last().filter(|level| level.count > FAN) {
            let lo = below
                .lo
                .chunks_exact(below.stride)
                .map(|c| &c[..below.count]);
            let hi = below
                .hi
                .chunks_exact(below.stride)
                .map(|c| &c[..below.count]);
            let level = Level::new(below.count, dim, lo, hi)?;
            levels.push(level);
        }
        Ok(Boxes { dim, len, levels })
    }

    /// The highest level; it has at most 16 blocks.
    pub(crate) fn top(&self) -> usize {
        self.levels.len() - 1
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

    /// Copies one block's box.
    pub(crate) fn bound(&self, level: usize, node: usize, bound: &mut BoxOf<T>) {
        let level = &self.levels[level];
        bound.clear();
        for j in 0..self.dim {
            bound.lo.push(level.lo[j * level.stride + node]);
            bound.hi.push(level.hi[j * level.stride + node]);
        }
    }

    /// Mean extent of the lowest boxes in dimension `j`, from a sample.
    pub(crate) fn mean_extent(&self, j: usize) -> f64 {
        let level = &self.levels[0];
        let step = level.count.div_ceil(512).max(1);
        let (mut sum, mut sampled) = (0.0, 0usize);
        for node in (0..level.count).step_by(step) {
            let at = j * level.stride + node;
            sum += level.hi[at].to_f64() - level.lo[at].to_f64();
            sampled += 1;
        }
        sum / sampled.max(1) as f64
    }

    pub(crate) fn bytes(&self) -> usize {
        self.levels
            .iter()
            .map(|l| size_of_val(&l.lo[..]) + size_of_val(&l.hi[..]))
            .sum()
    }
}

impl<T: Scalar> Level<T> {
    /// Bounds every 16 of `len` boxes given by their columns.
    fn new<'a>(
        len: usize,
        dim: usize,
        lo_below: impl Iterator<Item = &'a [T]>,
        hi_below: impl Iterator<Item = &'a [T]>,
    ) -> Result<Self> {
        let count = len.div_ceil(FAN);
        let stride = count.next_multiple_of(FAN) + FAN;
        let (mut lo, mut hi) = (Buffer::zeroed(stride * dim)?, Buffer::zeroed(stride * dim)?);
        let columns = lo.chunks_exact_mut(stride).zip(hi.chunks_exact_mut(stride));
        for ((lo, hi), (lo_below, hi_below)) in columns.zip(lo_below.zip(hi_below)) {
            let boxes = lo[..count].par_iter_mut().zip(hi[..count].par_iter_mut());
            let below = lo_below.par_chunks(FAN).zip(hi_below.par_chunks(FAN));
            boxes
                .zip(below)
                .with_min_len(1024)
                .for_each(|((lo, hi), (lo_below, hi_below))| {
                    let min = |a: T, b: &T| if *b < a { *b } else { a };
                    let max = |a: T, b: &T| if *b > a { *b } else { a };
                    *lo = lo_below.iter().fold(T::INFINITY, min);
                    *hi = hi_below.iter().fold(T::NEG_INFINITY, max);
                });
        }
        Ok(Level {
            count,
            stride,
            lo,
            hi,
        })
    }
}

/// The test of boxes against a block of queries.
pub(crate) struct Prune<T> {
    kernels: Kernels<T>,
    skip_above: T,
    take_below: T,
}

impl<T: Scalar> Prune<T> {
    pub(crate) fn new(kernels: Kernels<T>, threshold: &Threshold<T>, dim: usize) -> Self {
        let (take_below, skip_above) = threshold.band(dim);
        // Rounding to the type must not narrow the band: one more unit each way.
        let nudge = 1.0 + 4.0 * T::UNIT_ROUNDOFF;
        Prune {
            kernels,
            skip_above: T::from_f64(skip_above * nudge),
            take_below: T::from_f64(take_below / nudge),
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
        let level = &boxes.levels[level];
        self.kernels.boxes(&BoxJob {
            lo: &level.lo,
            hi: &level.hi,
            stride: level.stride,
            first,
            count,
            query_lo: &query.lo,
            query_hi: &query.hi,
            dim: boxes.dim,
            skip_above: self.skip_above,
            take_below: self.take_below,
        })
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
