//! The points of a join, multiplied by a power of two where squares of differences would leave the
//! range of their type.
//!
//! L2 is computed as if exponents had no end. Where the squares of differences would overflow or
//! vanish, a join works on a copy of the points, multiplied by a power of two: that is exact, so
//! every difference and every sum has the same digits, and distances are multiplied back when
//! they are reported.
//!
//! Coordinates may be so many orders apart that no power of two will do: a hundred binary orders
//! in `f32`, a thousand in `f64`. Then it is ε that must stay in range. A sum that overflows is
//! above it, as it should be, and one that vanishes is below. Where ε cannot be brought into range
//! either, and where the nearest are asked for, points that cannot be told apart are looked for,
//! and refused (`join/range.rs`).
//!
//! The differences that decide L1 and L∞ cannot vanish, and a sum that overflows is above any ε.

use core::ops::RangeInclusive;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::metric::Metric;
use crate::points::{Magnitudes, Points, PointsBuf};
use crate::scalar::Scalar;
use crate::scale::{Scale, exponent};

/// The points of a join in units that it can compute with.
#[derive(Debug)]
pub(crate) struct Sides<'a, T> {
    left: Side<'a, T>,
    /// None for a set joined with itself.
    right: Option<Side<'a, T>>,
    pub(crate) scale: Scale<T>,
    /// Whether squares of differences may vanish nevertheless.
    pub(crate) may_vanish: bool,
    /// The greatest absolute value of any coordinate, as given.
    pub(crate) greatest: T,
}

#[derive(Debug)]
enum Side<'a, T> {
    Given(Points<'a, T>),
    Scaled(PointsBuf<T>),
}

impl<T: Scalar> Side<'_, T> {
    fn points(&self) -> Points<'_, T> {
        match self {
            Side::Given(points) => *points,
            Side::Scaled(points) => points.as_points(),
        }
    }
}

impl<'a, T: Scalar> Sides<'a, T> {
    /// Copies the points where they must be scaled: for all within `eps`, or for the nearest.
    ///
    /// # Errors
    /// If the system refuses memory, or a coordinate loses digits that the nearest need. Within ε
    /// none need them: they are lost only where ε is larger by far.
    pub(crate) fn new(
        left: Points<'a, T>,
        right: Option<Points<'a, T>>,
        metric: Metric,
        eps: Option<T>,
    ) -> Result<Self> {
        let all = left.magnitudes().and(right.map_or(Magnitudes::NONE, |right| right.magnitudes()));
        let (scale, may_vanish) = choose(metric, left.dimension(), all, eps);
        let side = |points: Points<'a, T>, side| -> Result<Side<'a, T>> {
            if scale.is_none() {
                return Ok(Side::Given(points));
            }
            let lost = |at: usize| Error::Magnitudes {
                side,
                row: at / points.dimension(),
                column: at % points.dimension(),
                value: points.as_slice()[at].to_f64(),
                greatest: all.greatest.to_f64(),
                kind: T::NAME,
            };
            copy(&points, scale, eps.is_none())?.map(Side::Scaled).map_err(lost)
        };
        Ok(Sides {
            left: side(left, right.map(|_| "left"))?,
            right: right.map(|right| side(right, Some("right"))).transpose()?,
            scale,
            may_vanish,
            greatest: all.greatest,
        })
    }

    /// The points that ask.
    pub(crate) fn left(&self) -> Points<'_, T> {
        self.left.points()
    }

    /// The points that they ask of, unless they are the same.
    pub(crate) fn right(&self) -> Option<Points<'_, T>> {
        self.right.as_ref().map(Side::points)
    }

    /// Bytes of the copies.
    pub(crate) fn bytes(&self) -> u64 {
        let sides = [Some(&self.left), self.right.as_ref()].into_iter().flatten();
        let bytes = |side: &Side<'_, T>| match side {
            Side::Given(_) => 0,
            Side::Scaled(points) => size_of_val(points.as_points().as_slice()) as u64,
        };
        sides.map(bytes).sum()
    }
}

/// A copy of the points, multiplied; or the first coordinate that would lose digits, where
/// none may.
fn copy<T: Scalar>(
    points: &Points<'_, T>,
    scale: Scale<T>,
    exact: bool,
) -> Result<core::result::Result<PointsBuf<T>, usize>> {
    const CHUNK: usize = 1 << 14;
    let mut scaled = Buffer::zeroed(points.as_slice().len())?;
    let chunks = scaled.par_chunks_mut(CHUNK).zip(points.as_slice().par_chunks(CHUNK));
    let lost = chunks.enumerate().find_map_first(|(chunk, (to, from))| {
        for (to, x) in to.iter_mut().zip(from) {
            *to = scale.apply(*x);
        }
        let lost = |(scaled, x): (&T, &T)| exact && scale.undo(*scaled) != *x;
        Some(chunk * CHUNK + to.iter().zip(from).position(lost)?)
    });
    Ok(match lost {
        Some(at) => Err(at),
        None => Ok(PointsBuf::from_buffer(scaled, points.dimension())?),
    })
}

/// The exponents by which squares of differences neither overflow nor vanish: an empty range
/// where there are none.
///
/// The greatest magnitude is below 2ᵉ, so differences are below 2ᵉ⁺¹, and the sum of `dim`
/// squares, rounded up at every step, below dim·2²ᵉ⁺³. Numbers of at least 2ᶠ in magnitude are
/// multiples of 2ᶠ⁻ᵖ⁺¹, where p is the number of digits; so are their differences, and one that
/// is not 0 has a square of at least 2²⁽ᶠ⁻ᵖ⁺¹⁾.
fn in_range<T: Scalar>(magnitudes: Magnitudes<T>, dim: usize) -> RangeInclusive<i32> {
    // Subnormal numbers are multiples of what the least normal number is one of.
    let least = exponent(magnitudes.least).max(T::MIN_EXP);
    let lowest = (T::MIN_EXP + 1).div_euclid(2) - (least - T::DIGITS + 1);
    lowest..=most_bits::<T>(dim) - exponent(magnitudes.greatest) - 1
}

/// The sum of `dim` squares of differences of numbers below 2 to this power is finite.
fn most_bits<T: Scalar>(dim: usize) -> i32 {
    let terms = dim.next_power_of_two().ilog2() as i32;
    (T::MAX_EXP - 3 - terms).div_euclid(2)
}

/// The scale for points of some magnitudes, and whether squares of differences may be out of range
/// nevertheless. `eps` is what differences are compared with; of the nearest, with each other.
fn choose<T: Scalar>(
    metric: Metric,
    dim: usize,
    magnitudes: Magnitudes<T>,
    eps: Option<T>,
) -> (Scale<T>, bool) {
    if metric != Metric::L2 || magnitudes.greatest == T::ZERO || eps == Some(T::ZERO) {
        return (Scale::NONE, false);
    }
    // A number below 2ᵉ is brought to about 1, or as near to that as the range is.
    let about_one = |number: T, range: RangeInclusive<i32>| match range.contains(&0) {
        true => Scale::NONE,
        false => Scale::new((-1 - exponent(number)).clamp(*range.start(), *range.end())),
    };
    let range = in_range(magnitudes, dim);
    match eps {
        _ if !range.is_empty() => (about_one(magnitudes.greatest, range), false),
        None => (Scale::new(*range.end()), true),
        Some(eps) => {
            // No coordinate overflows, and ε is as far from both ends as that allows.
            let highest = T::MAX_EXP - 1 - exponent(magnitudes.greatest);
            let vanishing = exponent(Scale::<T>::vanishing());
            let lowest = (vanishing + 1 - exponent(eps)).min(highest);
            let scale =
                about_one(eps, lowest..=highest.min(most_bits::<T>(dim) - 1 - exponent(eps)));
            (scale, true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn magnitudes<T: Scalar>(least: f64, greatest: f64) -> Magnitudes<T> {
        Magnitudes { least: T::from_f64(least), greatest: T::from_f64(greatest) }
    }

    #[test]
    fn ordinary_points_stay_as_they_are() {
        for metric in Metric::ALL {
            for dim in [1, 3, 768, 4096] {
                assert!(choose::<f32>(metric, dim, magnitudes(1e-12, 1e16), None).0.is_none());
                assert!(choose::<f64>(metric, dim, magnitudes(1e-130, 1e150), None).0.is_none());
                assert!(choose::<f64>(metric, dim, Magnitudes::NONE, None).0.is_none());
            }
        }
    }

    /// Whatever the magnitudes: the largest sum of squares is finite, and unless it is said that
    /// squares may vanish, the smallest is normal; and the way back gives the number.
    fn squares_stay_in_range<T: Scalar>(exponents: core::ops::Range<i32>) {
        let two = |e: i32| T::from_f64(2f64.powi(e.max(-1022))).to_f64();
        for dim in [1, 3, 4096] {
            for above in exponents.clone().step_by(7) {
                for below in (exponents.start..=above).step_by(11) {
                    let greatest = T::from_f64(two(above));
                    let greatest = greatest.add(greatest.mul(T::from_f64(0.999)));
                    let least = T::from_f64(two(below));
                    let (scale, vanish) =
                        choose(Metric::L2, dim, Magnitudes { least, greatest }, None);
                    let scaled = |x: T| scale.apply(x);
                    let widest = scaled(greatest).add(scaled(greatest));
                    let sum = (0..dim).fold(T::ZERO, |acc, _| widest.mul_add(widest, acc));
                    assert!(sum.is_finite(), "{above} {below} {dim}");
                    if !vanish {
                        // The least difference, of two numbers of about the least magnitude.
                        let d = scaled(least.next_up()).sub(scaled(least));
                        let normal = 2f64.powi(T::MIN_EXP);
                        assert!(d.mul(d).to_f64() >= normal, "{above} {below} {dim}");
                        assert!(scale.undo(d) == least.next_up().sub(least));
                    }
                }
            }
        }
    }

    #[test]
    fn squares_stay_in_range_f32() {
        squares_stay_in_range::<f32>(-126..127);
    }

    #[test]
    fn squares_stay_in_range_f64() {
        squares_stay_in_range::<f64>(-1022..1023);
    }

    /// Coordinates over the whole range: ε is brought where its square is in range, unless the
    /// greatest coordinate forbids it.
    #[test]
    fn epsilon_stays_in_range() {
        let all = magnitudes::<f32>(1e-45, 1.0);
        for exponent in (-149..127).step_by(3) {
            let eps = 2f64.powi(exponent) as f32;
            let (scale, vanish) = choose(Metric::L2, 3, all, Some(eps));
            let eps = scale.apply(eps);
            assert!(vanish && scale.apply(1.0).is_finite());
            assert!(eps >= Scale::vanishing() || exponent < -126, "2^{exponent} becomes {eps:e}");
            assert!((12.0 * eps * eps).is_finite(), "2^{exponent} becomes {eps:e}");
        }
        let (scale, _) = choose(Metric::L2, 3, all, Some(0.1));
        assert!(scale.is_none(), "an ordinary ε needs no copy");
    }

    #[test]
    fn digits_that_would_be_lost_are_named() {
        let data = [1e38f32, 2.0, 3e38, 1.1e-45];
        let points = Points::new(&data, 2).unwrap();
        let error = Sides::new(points, None, Metric::L2, None).unwrap_err();
        let found = matches!(error, Error::Magnitudes { side: None, row: 1, column: 1, .. });
        assert!(found, "{error}");
    }
}
