//! The two coordinate types, `f32` and `f64`, behind one sealed trait.

use core::fmt::{Debug, Display};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A coordinate type: `f32` or `f64`.
///
/// The trait is sealed. Distances are always computed in the points' own type,
/// so an answer for `f32` points is the answer of `f32` arithmetic, on every
/// machine.
pub trait Scalar:
    sealed::Sealed
    + crate::exec::cpu::kernel::Dispatch
    + crate::memory::Zeroable
    + Copy
    + PartialOrd
    + Default
    + Debug
    + Display
    + Send
    + Sync
    + 'static
{
    /// The name of the type as users write it: `"f32"` or `"f64"`.
    const NAME: &'static str;
    /// The unit roundoff: half the distance from 1 to the next number.
    const UNIT_ROUNDOFF: f64;
    /// The smallest positive (subnormal) number.
    const SMALLEST: f64;
    /// Positive infinity.
    const INFINITY: Self;
    /// Negative infinity.
    const NEG_INFINITY: Self;
    /// Zero.
    const ZERO: Self;
    /// One.
    #[doc(hidden)]
    const ONE: Self;
    /// Not a number.
    const NAN: Self;
    /// The largest finite number.
    const MAX: Self;
    /// A distance and a row in one number, whose order is that of neighbours.
    #[doc(hidden)]
    type Near: Copy + Ord + Default + Send + Sync;
    /// Low bits of a number that a tag may take the place of.
    #[doc(hidden)]
    const TAG_BITS: u32;
    /// Bits of the mantissa, the hidden one included.
    #[doc(hidden)]
    const DIGITS: i32;
    /// Every finite number is less than 2 to this power.
    #[doc(hidden)]
    const MAX_EXP: i32;
    /// The least normal number is 2 to this power.
    #[doc(hidden)]
    const MIN_EXP: i32;

    /// Rounds to nearest, ties to even; overflows to infinity.
    fn from_f64(value: f64) -> Self;
    /// Exact.
    fn to_f64(self) -> f64;
    /// Neither NaN nor infinite.
    fn is_finite(self) -> bool;
    /// `self * b + c`, rounded once.
    fn mul_add(self, b: Self, c: Self) -> Self;
    /// The absolute value.
    fn abs(self) -> Self;
    /// The square root, rounded once.
    fn sqrt(self) -> Self;
    /// `self - other`, rounded once.
    fn sub(self, other: Self) -> Self;
    /// `self + other`, rounded once.
    fn add(self, other: Self) -> Self;
    /// `self * other`, rounded once.
    fn mul(self, other: Self) -> Self;
    /// The next larger number.
    #[doc(hidden)]
    fn next_up(self) -> Self;
    /// The largest finite number, 0 or more, for which `holds`. It must hold for 0 and, with a
    /// number, for all smaller ones.
    #[doc(hidden)]
    fn largest(holds: impl Fn(Self) -> bool) -> Self;
    /// A row number in the guise of a coordinate, to travel with one.
    #[doc(hidden)]
    fn from_id(id: u32) -> Self;
    /// The row number that [`from_id`](Scalar::from_id) hid.
    #[doc(hidden)]
    fn as_id(self) -> u32;
    /// A distance, which is not negative, and a row.
    #[doc(hidden)]
    fn near(self, row: u32) -> Self::Near;
    /// The distance and the row that [`near`](Scalar::near) put together.
    #[doc(hidden)]
    fn from_near(near: Self::Near) -> (Self, u32);
    /// The bits of `self` that are not in `bits`.
    #[doc(hidden)]
    fn without_bits(self, bits: Self) -> Self;
    /// The bits of both.
    #[doc(hidden)]
    fn with_bits(self, bits: Self) -> Self;
    /// A `u64` whose unsigned order is the order of the numbers; −0 equals +0.
    fn order_bits(self) -> u64;
    /// The memory of numbers.
    #[doc(hidden)]
    fn as_bytes(numbers: &[Self]) -> &[u8];
    /// Memory as numbers, which it must be aligned for.
    #[doc(hidden)]
    fn from_bytes(bytes: &[u8]) -> &[Self];
    /// The same, to be changed.
    #[doc(hidden)]
    fn from_bytes_mut(bytes: &mut [u8]) -> &mut [Self];
}

macro_rules! scalar {
    ($t:ident, $bits:ident, $near:ident, $tag_bits:literal) => {
        impl Scalar for $t {
            const NAME: &'static str = stringify!($t);
            const UNIT_ROUNDOFF: f64 = ($t::EPSILON / 2.0) as f64;
            const SMALLEST: f64 = $t::from_bits(1) as f64;
            const INFINITY: Self = $t::INFINITY;
            const NEG_INFINITY: Self = $t::NEG_INFINITY;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NAN: Self = $t::NAN;
            const MAX: Self = $t::MAX;
            type Near = $near;
            const TAG_BITS: u32 = $tag_bits;
            const DIGITS: i32 = $t::MANTISSA_DIGITS as i32;
            const MAX_EXP: i32 = $t::MAX_EXP;
            const MIN_EXP: i32 = $t::MIN_EXP - 1;

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                $t::is_finite(self)
            }
            #[inline(always)]
            fn mul_add(self, b: Self, c: Self) -> Self {
                $t::mul_add(self, b, c)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $t::abs(self)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $t::sqrt(self)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self * other
            }
            fn next_up(self) -> Self {
                $t::next_up(self)
            }
            fn largest(holds: impl Fn(Self) -> bool) -> Self {
                // The bits of numbers that are not negative ascend with them.
                let (mut low, mut high) = (0, $t::INFINITY.to_bits());
                while high - low > 1 {
                    let middle = low + (high - low) / 2;
                    match holds($t::from_bits(middle)) {
                        true => low = middle,
                        false => high = middle,
                    }
                }
                $t::from_bits(low)
            }
            #[inline(always)]
            fn from_id(id: u32) -> Self {
                $t::from_bits(id as $bits)
            }
            #[inline(always)]
            fn as_id(self) -> u32 {
                self.to_bits() as u32
            }
            #[inline(always)]
            fn near(self, row: u32) -> $near {
                // The bits of numbers that are not negative ascend with them.
                ($near::from(self.to_bits()) << u32::BITS) | $near::from(row)
            }
            #[inline(always)]
            fn from_near(near: $near) -> (Self, u32) {
                ($t::from_bits((near >> u32::BITS) as $bits), near as u32)
            }
            #[inline(always)]
            fn without_bits(self, bits: Self) -> Self {
                $t::from_bits(self.to_bits() & !bits.to_bits())
            }
            #[inline(always)]
            fn with_bits(self, bits: Self) -> Self {
                $t::from_bits(self.to_bits() | bits.to_bits())
            }
            #[inline(always)]
            fn order_bits(self) -> u64 {
                // Adding zero turns −0 into +0.
                let bits = (self + 0.0).to_bits();
                let flip = if bits >> ($bits::BITS - 1) == 0 {
                    1 << ($bits::BITS - 1)
                } else {
                    $bits::MAX
                };
                (bits ^ flip) as u64
            }
            fn as_bytes(numbers: &[Self]) -> &[u8] {
                bytemuck::cast_slice(numbers)
            }
            fn from_bytes(bytes: &[u8]) -> &[Self] {
                bytemuck::cast_slice(bytes)
            }
            fn from_bytes_mut(bytes: &mut [u8]) -> &mut [Self] {
                bytemuck::cast_slice_mut(bytes)
            }
        }
    };
}

scalar!(f32, u32, u64, 8);
scalar!(f64, u64, u128, 9);

#[cfg(test)]
mod tests {
    use super::Scalar;

    #[test]
    fn order_bits_follow_the_numbers() {
        let ascending =
            [f64::MIN, -1.0, -f64::MIN_POSITIVE, -5e-324, 0.0, 5e-324, 0.5, 1.0, 1e300, f64::MAX];
        for pair in ascending.windows(2) {
            assert!(pair[0].order_bits() < pair[1].order_bits(), "{pair:?}");
        }
        assert_eq!((-0.0f64).order_bits(), 0.0f64.order_bits());
        assert_eq!((-0.0f32).order_bits(), 0.0f32.order_bits());
        assert!((-1.0f32).order_bits() < (-0.5f32).order_bits());
    }
}
