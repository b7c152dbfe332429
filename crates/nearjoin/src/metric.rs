//! The distances: L2, L1 and L∞, and the exact decision "is this pair within ε".

use core::fmt;
use core::str::FromStr;

use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// How the distance between two points is measured.
///
/// ```
/// use nearjoin::Metric;
/// assert_eq!("linf".parse::<Metric>()?, Metric::Linf);
/// assert_eq!(Metric::default(), Metric::L2);
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Metric {
    /// Euclidean distance: √Σ(xⱼ − yⱼ)². The default.
    #[default]
    L2,
    /// Manhattan distance: Σ|xⱼ − yⱼ|.
    L1,
    /// Chebyshev distance: max |xⱼ − yⱼ|.
    Linf,
}

impl Metric {
    /// Every metric, for tools that try them all.
    pub const ALL: [Metric; 3] = [Metric::L2, Metric::L1, Metric::Linf];

    /// Adds one dimension's real-valued gap to a running bound, in `f64`. Not fused: it
    /// bounds, with the margin of [`Threshold::band`], and need not decide.
    #[inline(always)]
    pub(crate) fn widen(self, acc: f64, gap: f64) -> f64 {
        match self {
            Metric::L2 => gap * gap + acc,
            Metric::L1 => acc + gap,
            Metric::Linf => acc.max(gap),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Metric::L2 => "l2",
            Metric::L1 => "l1",
            Metric::Linf => "linf",
        })
    }
}

impl FromStr for Metric {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name.to_ascii_lowercase().as_str() {
            "l2" | "euclidean" => Ok(Metric::L2),
            "l1" | "manhattan" | "cityblock" => Ok(Metric::L1),
            "linf" | "l∞" | "chebyshev" => Ok(Metric::Linf),
            _ => {
                Err(Error::UnknownName { what: "metric", name: name.into(), known: "l2, l1, linf" })
            }
        }
    }
}

/// ε in the points' own type, and what follows from it.
///
/// A pair matches when its accumulated distance `acc` is at most `bound`. `acc` is
/// computed dimension 0 first: L2 `fma(d, d, acc)`, L1 `acc + |d|`, L∞ the running
/// maximum, where `d = x − y` rounded once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threshold<T> {
    pub(crate) metric: Metric,
    pub(crate) eps: T,
    /// ε·ε rounded once (L2), or ε.
    pub(crate) bound: T,
    /// No matching pair differs by more than this in any one coordinate.
    ///
    /// Rounding is monotone and every step adds a non-negative term, so `acc` is at
    /// least the rounded term of each single dimension. For L2 that term is
    /// `fl(d²) ≤ fl(ε²)`, which gives `|d| ≤ ε(1 + 2u)` unless the squares underflow:
    /// then `d² < smallest`, so `|d| < √smallest`. For L1 and L∞ it is `|d| ≤ ε`. With
    /// `d = (x − y)(1 + u)` the real difference is at most `ε(1 + 4u) + 2√smallest`.
    pub(crate) reach: f64,
}

impl<T: Scalar> Threshold<T> {
    /// Validates ε and rounds it to the points' type.
    pub(crate) fn new(metric: Metric, eps: f64) -> Result<Self> {
        let rounded = T::from_f64(eps);
        if !eps.is_finite() || eps < 0.0 || !rounded.is_finite() {
            return Err(Error::Epsilon { value: eps, kind: T::NAME });
        }
        let (bound, floor) = match metric {
            Metric::L2 => (rounded.mul(rounded), 2.0 * T::SMALLEST.sqrt()),
            Metric::L1 | Metric::Linf => (rounded, 2.0 * T::SMALLEST),
        };
        let reach = if bound.is_finite() {
            rounded.to_f64() * (1.0 + 16.0 * T::UNIT_ROUNDOFF) + floor
        } else {
            f64::INFINITY
        };
        Ok(Threshold { metric, eps: rounded, bound, reach })
    }

    /// One step of the accumulation, in the arithmetic that decides.
    #[inline(always)]
    pub(crate) fn step(metric: Metric, acc: T, x: T, y: T) -> T {
        let d = x.sub(y);
        match metric {
            Metric::L2 => d.mul_add(d, acc),
            Metric::L1 => acc.add(d.abs()),
            Metric::Linf => {
                let d = d.abs();
                if acc > d { acc } else { d }
            }
        }
    }

    /// The accumulated distance of two points.
    pub(crate) fn accumulate(
        &self,
        x: impl IntoIterator<Item = T>,
        y: impl IntoIterator<Item = T>,
    ) -> T {
        let pairs = x.into_iter().zip(y);
        pairs.fold(T::ZERO, |acc, (x, y)| Self::step(self.metric, acc, x, y))
    }

    /// The distance that users see: √acc for L2, rounded once.
    #[inline(always)]
    pub(crate) fn distance(&self, acc: T) -> T {
        match self.metric {
            Metric::L2 => acc.sqrt(),
            Metric::L1 | Metric::Linf => acc,
        }
    }

    /// Bounds around `bound` that absorb the rounding of `dim` steps.
    ///
    /// Sums of non-negative terms, in any order and with or without fusing, differ
    /// from the real sum by a factor of at most `1 ± (dim + 3)u` (differences and
    /// products included) plus one underflow per step; so do two such sums from each
    /// other by twice that. A value above the second bound cannot match, one at most
    /// the first must.
    pub(crate) fn band(&self, dim: usize) -> (f64, f64) {
        let relative = 4.0 * (dim as f64 + 8.0) * T::UNIT_ROUNDOFF;
        let absolute = 8.0 * dim as f64 * T::SMALLEST;
        let bound = self.bound.to_f64();
        (bound * (1.0 - relative) - absolute, bound * (1.0 + relative) + absolute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_covers_squares_that_underflow() {
        let t = Threshold::<f64>::new(Metric::L2, 1e-200).unwrap();
        assert_eq!(t.bound, 0.0);
        // Two points 1e-170 apart: the square is 0 and the pair matches.
        assert_eq!(t.accumulate([1e-170], [0.0]), 0.0);
        assert!(t.reach > 1e-170);
    }

    #[test]
    fn epsilon_must_be_a_number_in_the_points_type() {
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Threshold::<f64>::new(Metric::L2, bad).is_err());
        }
        assert!(Threshold::<f32>::new(Metric::L1, 1e300).is_err());
        assert!(Threshold::<f32>::new(Metric::L2, 1e30).unwrap().bound.is_infinite());
    }

    #[test]
    fn names_round_trip() {
        for metric in Metric::ALL {
            assert_eq!(metric.to_string().parse::<Metric>().unwrap(), metric);
        }
        assert!("cosine".parse::<Metric>().is_err());
    }
}
