//! Candidates gathered into a small contiguous tile, and what ε means in its arithmetic.

use super::kernel::{Kernels, PAD, Piece};
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

/// At most `sure`: a match; above `maybe`: none; between: open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Band<L> {
    pub(super) sure: L,
    pub(super) maybe: L,
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

/// Decides `f64` pairs in `f32` lanes, over coordinates relative to the block.
///
/// Let `s` bound every relative coordinate. Rounding one to `f32` errs by at most `s·2⁻²⁴`,
/// so the difference of two is off by at most `s·2⁻²³`. By the triangle inequality the
/// vector of differences is off by at most the norm of that error, `E`, whatever the
/// metric. So a pair whose computed distance is above `ε + E` cannot match and one at most
/// `ε − E` must. `relative` covers what errs in proportion to the distance itself: the
/// subtraction and the accumulation in `f32`, and the `f64` arithmetic that would have
/// decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter {
    metric: Metric,
    eps: f64,
    /// `E / s`.
    error: f64,
    relative: f64,
}

impl Filter {
    /// None where ε is so small or large that squares in `f32` under- or overflow.
    pub(crate) fn new<T: Scalar>(threshold: &Threshold<T>, dim: usize) -> Option<Self> {
        let eps = threshold.eps.to_f64();
        let unit = f64::from(f32::EPSILON) / 2.0;
        let norm_of_ones = match threshold.metric {
            Metric::L2 => (dim as f64).sqrt(),
            Metric::L1 => dim as f64,
            Metric::Linf => 1.0,
        };
        let filter = Filter {
            metric: threshold.metric,
            eps,
            error: 2.01 * unit * norm_of_ones,
            relative: (4 * dim + 24) as f64 * unit,
        };
        (1e-12..1e12).contains(&eps).then_some(filter)
    }

    /// The band for coordinates up to `spread`, if it is so narrow that hardly any of the
    /// `neighbors` that a query is expected to have fall into it.
    ///
    /// A pair in the band costs two visits to the input, hundreds of times a test.
    pub(crate) fn narrow_band(&self, spread: f64, neighbors: f64) -> Option<Band<f32>> {
        let spread = (spread * (1.0 + 1e-6)) as f32;
        let relative = self.error * f64::from(spread) / self.eps;
        self.band(spread).filter(|_| relative < 1.0 / 512.0 && relative * neighbors < 0.04)
    }

    /// The band for coordinates up to `spread`, unless it is too wide to be of use.
    pub(super) fn band(&self, spread: f32) -> Option<Band<f32>> {
        let error = self.error * f64::from(spread);
        // Also false for a spread that is not a number.
        if !(error <= self.eps / 8.0 && spread <= 1e12) {
            return None;
        }
        let (lo, hi) = (self.eps - error, self.eps + error);
        let (lo, hi) = match self.metric {
            Metric::L2 => (lo * lo, hi * hi),
            Metric::L1 | Metric::Linf => (lo, hi),
        };
        Some(Band {
            sure: (lo * (1.0 - self.relative)) as f32,
            maybe: (hi * (1.0 + self.relative)) as f32,
        })
    }
}
