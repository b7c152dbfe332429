//! Numbers become coordinates exactly, or not at all.
//!
//! `f64` to `f32` is the one exception, and happens only where it is asked for: it rounds to
//! nearest, but a finite number never becomes infinite.

use core::fmt::Debug;

use half::f16;
use nearjoin::{PointsBuf, Scalar};

use crate::error::{Error, Place, Remedy};
use crate::read::points::PointSet;

/// A type that points are joined in.
pub(crate) trait Coordinate: Scalar + bytemuck::Pod + fast_float2::FastFloat {
    /// Every integer up to this one is exact.
    const EXACT: u64;

    /// Every integer of so many decimal digits is exact.
    const EXACT_DIGITS: usize;

    fn wrap(points: PointsBuf<Self>) -> PointSet;
}

impl Coordinate for f32 {
    const EXACT: u64 = 1 << f32::MANTISSA_DIGITS;
    const EXACT_DIGITS: usize = 7;

    fn wrap(points: PointsBuf<f32>) -> PointSet {
        PointSet::F32(points)
    }
}

impl Coordinate for f64 {
    const EXACT: u64 = 1 << f64::MANTISSA_DIGITS;
    const EXACT_DIGITS: usize = 15;

    fn wrap(points: PointsBuf<f64>) -> PointSet {
        PointSet::F64(points)
    }
}

/// A type that coordinates are stored in.
pub(crate) trait Number: Copy + Debug + Send + Sync {
    /// Little-endian, as files have it.
    type Bytes: bytemuck::Pod;

    /// The nearest coordinate.
    fn nearest<T: Coordinate>(self) -> T;

    /// Whether the nearest coordinate may stand for the number.
    fn fits<T: Coordinate>(self) -> bool;

    /// What is wrong where it may not, and what to do.
    fn problem<T: Coordinate>() -> (String, Remedy);

    fn from_bytes(bytes: Self::Bytes, big_endian: bool) -> Self;

    /// The error where it may not.
    #[cold]
    fn refuse<T: Coordinate>(self, file: &str, place: Place) -> Error {
        let (problem, remedy) = Self::problem::<T>();
        Error::Value {
            file: file.to_owned(),
            place: place.into(),
            value: format!("{self:?}"),
            problem,
            remedy: Some(remedy),
        }
    }
}

macro_rules! float {
    ($($t:ty, $wide:path;)*) => {$(
        impl Number for $t {
            type Bytes = [u8; size_of::<$t>()];

            #[inline(always)]
            fn nearest<T: Coordinate>(self) -> T {
                T::from_f64($wide(self))
            }

            #[inline(always)]
            fn fits<T: Coordinate>(self) -> bool {
                // Only a finite number may fail here: NaN and infinity are told apart later.
                self.nearest::<T>().is_finite() || !$wide(self).is_finite()
            }

            fn problem<T: Coordinate>() -> (String, Remedy) {
                (beyond(T::NAME), Remedy::ReadAsF64)
            }

            #[inline(always)]
            fn from_bytes(bytes: Self::Bytes, big_endian: bool) -> Self {
                if big_endian { <$t>::from_be_bytes(bytes) } else { <$t>::from_le_bytes(bytes) }
            }
        }
    )*};
}

float! { f16, f64::from; f32, f64::from; f64, core::convert::identity; }

macro_rules! integer {
    ($($t:ty)*) => {$(
        impl Number for $t {
            type Bytes = [u8; size_of::<$t>()];

            #[inline(always)]
            fn nearest<T: Coordinate>(self) -> T {
                // Exact for every integer that fits: f64 holds all that f32 does.
                T::from_f64(self as f64)
            }

            #[inline(always)]
            #[allow(unused_comparisons)]
            fn fits<T: Coordinate>(self) -> bool {
                let magnitude = if self < 0 { (self as i64).unsigned_abs() } else { self as u64 };
                magnitude <= T::EXACT || self.nearest::<T>().to_f64() as i128 == self as i128
            }

            fn problem<T: Coordinate>() -> (String, Remedy) {
                inexact(T::NAME, Remedy::StoreAsF64)
            }

            #[inline(always)]
            fn from_bytes(bytes: Self::Bytes, big_endian: bool) -> Self {
                if big_endian { <$t>::from_be_bytes(bytes) } else { <$t>::from_le_bytes(bytes) }
            }
        }
    )*};
}

/// What is wrong with a number that is too large for `kind`.
pub(crate) fn beyond(kind: &str) -> String {
    format!("is beyond the range of {kind}")
}

/// What is wrong with an integer that would have to be rounded to `kind`. The wider type comes
/// first; `round` says how the file can allow it.
pub(crate) fn inexact(kind: &str, round: Remedy) -> (String, Remedy) {
    let remedy = if kind == f32::NAME { Remedy::ReadAsF64 } else { round };
    (format!("has no exact {kind}"), remedy)
}

integer! { i8 i16 i32 i64 u8 u16 u32 u64 }

/// Writes numbers to every `stride`-th coordinate.
///
/// The error is the index of the first number that may not become a coordinate.
pub(crate) fn convert<N: Number, T: Coordinate>(
    numbers: &[N],
    out: &mut [T],
    stride: usize,
) -> Result<(), usize> {
    let mut all_fit = true;
    match stride {
        1 => {
            for (number, out) in numbers.iter().zip(out) {
                *out = number.nearest();
                all_fit &= number.fits::<T>();
            }
        }
        _ => {
            for (number, out) in numbers.iter().zip(out.iter_mut().step_by(stride)) {
                *out = number.nearest();
                all_fit &= number.fits::<T>();
            }
        }
    }
    match all_fit {
        true => Ok(()),
        false => Err(numbers.iter().position(|number| !number.fits::<T>()).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_fit_where_they_are_exact() {
        assert!((1i64 << 53).fits::<f64>() && !((1i64 << 53) + 1).fits::<f64>());
        assert!((-(1i64 << 53)).fits::<f64>() && !(-(1i64 << 53) - 1).fits::<f64>());
        assert!((1i64 << 60).fits::<f64>() && i64::MIN.fits::<f64>() && !i64::MAX.fits::<f64>());
        assert!((1u64 << 63).fits::<f64>() && !u64::MAX.fits::<f64>());
        assert!((1i32 << 24).fits::<f32>() && !((1i32 << 24) + 1).fits::<f32>());
        assert!(i64::MIN.fits::<f32>() && !(u32::MAX).fits::<f32>() && u32::MAX.fits::<f64>());
        assert!(i8::MIN.fits::<f32>() && u16::MAX.fits::<f32>());
        assert_eq!((1i64 << 60).nearest::<f64>(), 1_152_921_504_606_846_976.0);
    }

    #[test]
    fn floats_fit_where_they_stay_finite() {
        assert!(1e300f64.fits::<f64>() && !1e300f64.fits::<f32>() && !(-1e39f64).fits::<f32>());
        assert!(f64::NAN.fits::<f32>() && f64::INFINITY.fits::<f32>());
        // Halfway between the largest f32 and the next power of two rounds away.
        assert!(3.402_823_5e38f64.fits::<f32>() && !3.402_823_567_797_337e38f64.fits::<f32>());
        assert_eq!(0.1f64.nearest::<f32>(), 0.1f32);
        assert_eq!(0.1f32.nearest::<f64>(), f64::from(0.1f32));
    }

    #[test]
    fn the_first_misfit_is_named() {
        let mut out = [0.0f32; 6];
        assert_eq!(convert(&[1i64, 1 << 40, (1 << 40) + 1], &mut out, 2), Err(2));
        assert_eq!(convert(&[1i64, 2, 3], &mut out[1..], 2), Ok(()));
        assert_eq!((out[1], out[3], out[5]), (1.0, 2.0, 3.0));
    }
}
