//! Candidates gathered into a small contiguous tile, and what ε means in its arithmetic.

use super::kernel::{Kernels, Lanes, PAD, Piece, SiftJob, Sifted};
use crate::filter::Band;
use crate::index::Run;
use crate::metric::{Metric, Threshold};
use crate::scalar::Scalar;

/// Bytes of coordinates in a tile: it should stay in the first-level cache with the
/// rows that are written beside it.
const TILE_BYTES: usize = 24 << 10;

/// Candidates of one block, column by column.
#[derive(Debug)]
pub(super) struct Tile<L> {
    pub(super) coords: Vec<L>,
    pub(super) labels: Vec<u32>,
    pub(super) stride: usize,
    pub(super) len: usize,
    pub(super) pieces: Vec<Piece>,
    capacity: usize,
}

impl<L: Scalar> Tile<L> {
    pub(super) fn new(dim: usize) -> Self {
        let capacity = (TILE_BYTES / (dim * size_of::<L>())).clamp(128, 2048) / PAD * PAD;
        let stride = capacity + 2 * PAD;
        Tile {
            coords: vec![L::ZERO; stride * dim],
            labels: vec![0; stride],
            stride,
            len: 0,
            pieces: Vec::new(),
            capacity,
        }
    }

    /// Chooses the points that the tile will hold next, as many as fit.
    pub(super) fn claim(&mut self, ahead: &mut Ahead<'_>) {
        self.len = 0;
        self.pieces.clear();
        while let Some((run, rest)) = ahead.runs.split_first() {
            let position = run.start + ahead.done;
            let (left, room) = (run.end - position, (self.capacity - self.len) as u32);
            let len = left.min(room);
            if len == 0 {
                break;
            }
            self.pieces.push(Piece { position, len });
            self.len += len as usize;
            if len < left {
                ahead.done += len;
                break;
            }
            *ahead = Ahead { runs: rest, done: 0 };
        }
    }

    /// Fills the tile with candidates of a sheet, as many as fit. Returns where the next are.
    pub(super) fn sift(&mut self, lanes: &Lanes<L>, job: &SiftJob<'_, L>) -> usize {
        self.pieces.clear();
        let (coords, labels) = (&mut self.coords[..], &mut self.labels[..]);
        let mut to = Sifted { coords, labels, stride: self.stride, len: 0 };
        let next = lanes.sift(job, &mut to);
        self.len = to.len;
        next
    }

    /// The position of a candidate in the layout.
    pub(super) fn position(&self, candidate: u32) -> u32 {
        let mut before = 0;
        for piece in &self.pieces {
            if candidate < before + piece.len {
                return piece.position + (candidate - before);
            }
            before += piece.len;
        }
        unreachable!("candidate {candidate} of {before}")
    }
}

/// Runs still to be scanned, and how many points of the first of them are done.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'a> {
    pub(super) runs: &'a [Run],
    pub(super) done: u32,
}

impl<T: Scalar> Band<T> {
    /// For lanes of the points' own type. They leave nothing open where they are fused,
    /// where the metric multiplies nothing, and where only a distance of 0 matches: a sum
    /// of squares is 0 fused or not.
    pub(super) fn exact(kernels: &Kernels<T>, threshold: &Threshold<T>, dim: usize) -> Self {
        let same = threshold.metric != Metric::L2 || threshold.bound == T::ZERO;
        if kernels.fused || same {
            return Band { sure: threshold.bound, maybe: threshold.bound };
        }
        let (sure, maybe) = threshold.band(dim);
        let nudge = 1.0 + 4.0 * T::UNIT_ROUNDOFF;
        Band { sure: T::from_f64(sure / nudge), maybe: T::from_f64(maybe * nudge) }
    }
}
