//! The portable path: arrays of eight lanes in plain loops, which compilers vectorise.
//!
//! Multiply and add are not fused here. A fused operation that the hardware lacks is a
//! slow library call, so this path treats its own sums as a filter: pairs within
//! rounding of ε are left open, and decided by `mul_add` one by one.

use super::vector::Vector;
use crate::scalar::Scalar;

const LANES: usize = 8;

#[derive(Clone, Copy)]
pub(super) struct Array<T>([T; LANES]);

impl<T: Scalar> Array<T> {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(T, T) -> T) -> Self {
        Array(core::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl<T: Scalar> Vector for Array<T> {
    type Lane = T;
    type Labels = [u32; LANES];
    const LANES: usize = LANES;
    const FUSED: bool = false;

    #[inline(always)]
    unsafe fn splat(x: T) -> Self {
        Array([x; LANES])
    }
    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller promises `LANES` readable elements.
        Array(unsafe { from.cast::<[T; LANES]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.zip(other, T::add)
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        self.zip(other, T::sub)
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        Array(self.0.map(T::abs))
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        Array(core::array::from_fn(|i| self.0[i].mul(b.0[i]).add(c.0[i])))
    }
    #[inline(always)]
    unsafe fn le(self, other: Self) -> u32 {
        let mut mask = 0;
        for i in 0..LANES {
            mask |= u32::from(self.0[i] <= other.0[i]) << i;
        }
        mask
    }
    #[inline(always)]
    unsafe fn splat_label(label: u32) -> Self::Labels {
        [label; LANES]
    }
    #[inline(always)]
    unsafe fn load_labels(from: *const u32) -> Self::Labels {
        // SAFETY: the caller promises `LANES` readable elements.
        unsafe { from.cast::<[u32; LANES]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn labels_ne(a: Self::Labels, b: Self::Labels) -> u32 {
        let mut mask = 0;
        for i in 0..LANES {
            mask |= u32::from(a[i] != b[i]) << i;
        }
        mask
    }
    #[inline(always)]
    unsafe fn compress(labels: Self::Labels, mut mask: u32, to: *mut u32) {
        let mut out = to;
        while mask != 0 {
            // SAFETY: `out` advances at most `LANES` times, all writable by contract.
            unsafe {
                out.write(labels[mask.trailing_zeros() as usize]);
                out = out.add(1);
            }
            mask &= mask - 1;
        }
    }
}

super::level! {
    Array<f32>, Array<f64>
}
