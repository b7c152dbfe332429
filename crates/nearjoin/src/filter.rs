//! Deciding pairs in fewer bits: bounds between which the points' own arithmetic must decide.

pub(crate) mod product;

use crate::metric::Metric;

/// At most `sure`: a match; above `maybe`: none; between: open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Band<L> {
    pub(crate) sure: L,
    pub(crate) maybe: L,
}

/// Decides `f64` pairs in `f32` lanes, over coordinates relative to a place near both.
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
    pub(crate) fn new(metric: Metric, eps: f64, dim: usize) -> Option<Self> {
        let unit = f64::from(f32::EPSILON) / 2.0;
        let norm_of_ones = match metric {
            Metric::L2 => (dim as f64).sqrt(),
            Metric::L1 => dim as f64,
            Metric::Linf => 1.0,
        };
        let filter = Filter {
            metric,
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
    pub(crate) fn band(&self, spread: f32) -> Option<Band<f32>> {
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
