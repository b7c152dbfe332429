//! Multiplying by a power of two, and back.

use rayon::prelude::*;

use crate::scalar::Scalar;

/// A power of two that points are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale<T> {
    exponent: i32,
    /// The power of two, and the one that undoes it: two factors, since one may be out of range.
    factors: (T, T),
    undo: (T, T),
}

impl<T: Scalar> Scale<T> {
    /// The points as they are.
    pub(crate) const NONE: Self =
        Scale { exponent: 0, factors: (T::ONE, T::ONE), undo: (T::ONE, T::ONE) };

    /// Two to this power.
    pub(crate) fn new(exponent: i32) -> Self {
        Scale { exponent, factors: factors(exponent), undo: factors(-exponent) }
    }

    /// The exponent.
    pub(crate) fn exponent(&self) -> i32 {
        self.exponent
    }

    /// A number, multiplied: exact unless it becomes subnormal.
    #[inline(always)]
    pub(crate) fn apply(&self, number: T) -> T {
        number.mul(self.factors.0).mul(self.factors.1)
    }

    /// Whether the points stay as they are.
    pub(crate) fn is_none(&self) -> bool {
        self.exponent == 0
    }

    /// A distance of scaled points as one of the points.
    ///
    /// Rounded once, where it is subnormal. A second factor is there for exponents of more than
    /// 100, and the product with the first is then beyond the subnormal numbers.
    #[inline(always)]
    pub(crate) fn undo(&self, distance: T) -> T {
        distance.mul(self.undo.0).mul(self.undo.1)
    }

    /// The same for many distances.
    pub(crate) fn undo_all(&self, distances: &mut [T]) {
        if !self.is_none() {
            distances.par_iter_mut().for_each(|distance| *distance = self.undo(*distance));
        }
    }

    /// The largest difference whose square may be lost. The square of a larger one is at least
    /// 2¹⁶ times the least normal number, and 4096 others that vanish beside it are less than a
    /// thirtieth of its last digit.
    pub(crate) fn vanishing() -> T {
        power(T::MIN_EXP / 2 + 8)
    }
}

/// `2ᵉ ≤ x < 2ᵉ⁺¹` for some `x` above 0.
pub(crate) fn exponent<T: Scalar>(x: T) -> i32 {
    let x = x.to_f64();
    let bits = |x: f64| (x.to_bits() >> 52) as i32 - 1023;
    if x < f64::MIN_POSITIVE { bits(x * 2f64.powi(64)) - 64 } else { bits(x) }
}

/// 2ᵉ as a product of two numbers of the type, the second 1 where it may be.
fn factors<T: Scalar>(exponent: i32) -> (T, T) {
    let most = -T::MIN_EXP - T::DIGITS;
    let first = if exponent.abs() <= most { exponent } else { exponent / 2 };
    (power(first), power(exponent - first))
}

/// 2ᵉ, which must be in range.
fn power<T: Scalar>(exponent: i32) -> T {
    T::from_f64(2f64.powi(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exponent_is_that_of_the_leading_digit() {
        for e in [-149, -127, -126, -1, 0, 1, 127] {
            assert_eq!(exponent(2f64.powi(e) as f32), e);
        }
        for e in [-1074, -1023, -1022, 0, 1023] {
            let x = if e < -1022 { f64::from_bits(1 << (e + 1074)) } else { 2f64.powi(e) };
            assert_eq!(exponent(x), e);
        }
    }

    #[test]
    fn there_and_back() {
        for exponent in [-900, -71, -1, 1, 120, 206, 1000, 1579] {
            let x = if exponent < 0 { 2f64.powi(400) } else { 2f64.powi(-1000) };
            let scale = Scale::<f64>::new(exponent);
            assert_eq!(scale.undo(scale.apply(x)), x, "2^{exponent}");
        }
        // From the smallest number up, and back.
        for exponent in [1, 100, 101, 149, 206] {
            let (x, scale) = (f32::from_bits(3), Scale::<f32>::new(exponent));
            assert!(scale.apply(x) > x);
            assert_eq!(scale.undo(scale.apply(x)), x, "2^{exponent}");
        }
    }
}
