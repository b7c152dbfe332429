//! The distances: L2, L1 and L∞, and the exact decision "is this pair within ε".

use core::fmt;
use core::str::FromStr;

use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::scale::Scale;

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
/// A pair matches when its distance, as it is reported, is at most ε: when its accumulated
/// distance `acc` is at most `bound`. `acc` is computed dimension 0 first: L2 `fma(d, d, acc)`,
/// L1 `acc + |d|`, L∞ the running maximum, where `d = x − y` rounded once. All of it is in the
/// units of [`Scale`], which are the user's own unless their squares would leave the range of
/// the type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threshold<T> {
    pub(crate) metric: Metric,
    pub(crate) scale: Scale<T>,
    /// The largest distance that matches.
    pub(crate) eps: T,
    /// The largest `acc` that matches.
    pub(crate) bound: T,
    /// No matching pair differs by more than this in any one coordinate.
    ///
    /// Rounding is monotone and every step adds a non-negative term, so `acc` is at
    /// least the rounded term of each single dimension. For L2 that term is
    /// `fl(d²) ≤ bound`, and `fl(√bound) = ε`, which gives `|d| ≤ ε(1 + 3u)` unless the
    /// squares underflow: then `d² < smallest`, so `|d| < √smallest`. For L1 and L∞ it is
    /// `|d| ≤ ε`. With `d = (x − y)(1 + u)` the real difference is at most
    /// `ε(1 + 5u) + 2√smallest`.
    pub(crate) reach: f64,
}

impl<T: Scalar> Threshold<T> {
    /// Validates ε, rounds it to the points' type, and finds the bound.
    pub(crate) fn new(metric: Metric, eps: f64, scale: Scale<T>) -> Result<Self> {
        let rounded = Self::check(eps)?;
        // Only equal points are at a distance of 0, and their largest difference says so even
        // where squares vanish.
        let metric = if rounded == T::ZERO { Metric::Linf } else { metric };
        let mut threshold = Self::none(metric, scale);
        // The distance ascends with `acc`, and a number that is not negative with its bits.
        threshold.bound = T::largest(|acc| threshold.distance(acc) <= rounded);
        threshold.eps = threshold.root(threshold.bound);
        let floor = match metric {
            Metric::L2 => 2.0 * T::SMALLEST.sqrt(),
            Metric::L1 | Metric::Linf => 2.0 * T::SMALLEST,
        };
        threshold.reach = threshold.eps.to_f64() * (1.0 + 16.0 * T::UNIT_ROUNDOFF) + floor;
        Ok(threshold)
    }

    /// No ε: no distance is too large.
    pub(crate) fn none(metric: Metric, scale: Scale<T>) -> Self {
        let (eps, bound, reach) = (T::INFINITY, T::INFINITY, f64::INFINITY);
        Threshold { metric, scale, eps, bound, reach }
    }

    /// ε in the points' type, unless it is not a distance there.
    pub(crate) fn check(eps: f64) -> Result<T> {
        let rounded = T::from_f64(eps);
        if !eps.is_finite() || eps < 0.0 || !rounded.is_finite() {
            return Err(Error::Epsilon { value: eps, kind: T::NAME });
        }
        Ok(rounded)
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

    /// The distance that users see, in their units: √acc for L2, rounded once.
    #[inline(always)]
    pub(crate) fn distance(&self, acc: T) -> T {
        self.scale.undo(self.root(acc))
    }

    /// The same in the units of the scale.
    #[inline(always)]
    fn root(&self, acc: T) -> T {
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

    /// ε as the distance of each of some sums: all sums up to the bound have a distance of at
    /// most ε, and the next has not.
    fn bound_is_the_last<T: Scalar>(metric: Metric, accs: impl Iterator<Item = f64>) {
        for acc in accs {
            let arithmetic = Threshold::<T>::none(metric, Scale::NONE);
            let eps = arithmetic.distance(T::from_f64(acc));
            let t = Threshold::<T>::new(metric, eps.to_f64(), Scale::NONE).unwrap();
            assert!(T::from_f64(acc) <= t.bound, "{metric} {acc:e}");
            assert!(t.distance(t.bound) <= eps);
            assert!(t.distance(t.bound.next_up()) > eps);
            // It is ε² or a few units beside it.
            if metric == Metric::L2 && acc > 1e-30 {
                let off = t.bound.to_f64() / (eps.to_f64() * eps.to_f64()) - 1.0;
                assert!(off.abs() <= 6.0 * T::UNIT_ROUNDOFF, "{acc:e}: {off:e}");
            }
        }
    }

    #[test]
    fn a_reported_distance_is_within_itself() {
        let sums = || (1..2000).map(|i| f64::from(i) * 0.377).chain([3.0, 1e-40, 1e30]);
        for metric in Metric::ALL {
            bound_is_the_last::<f32>(metric, sums());
            bound_is_the_last::<f64>(metric, sums());
        }
    }

    #[test]
    fn zero_means_equal_coordinates() {
        for metric in Metric::ALL {
            let t = Threshold::<f32>::new(metric, 0.0, Scale::NONE).unwrap();
            assert!(t.accumulate([1e-23], [0.0]) > t.bound);
            assert!(t.accumulate([1e-23], [1e-23]) <= t.bound);
        }
    }

    #[test]
    fn reach_covers_squares_that_underflow() {
        let t = Threshold::<f64>::new(Metric::L2, 1e-200, Scale::NONE).unwrap();
        assert_eq!(t.bound, 0.0);
        // Two points 1e-170 apart: the square is 0 and the pair matches.
        assert_eq!(t.accumulate([1e-170], [0.0]), 0.0);
        assert!(t.reach > 1e-170);
    }

    #[test]
    fn epsilon_must_be_a_number_in_the_points_type() {
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Threshold::<f64>::check(bad).is_err());
        }
        assert!(Threshold::<f32>::check(1e300).is_err());
        let all = Threshold::<f32>::new(Metric::L2, 1e30, Scale::NONE).unwrap();
        assert_eq!(all.bound, f32::MAX);
    }

    #[test]
    fn names_round_trip() {
        for metric in Metric::ALL {
            assert_eq!(metric.to_string().parse::<Metric>().unwrap(), metric);
        }
        assert!("cosine".parse::<Metric>().is_err());
    }
}
