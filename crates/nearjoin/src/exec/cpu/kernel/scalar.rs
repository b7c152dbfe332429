//! The portable path: arrays of eight lanes in plain loops, which compilers vectorise.
//!
//! Multiply and add are not fused here. A fused operation that the hardware lacks is a
//! slow library call, so this path treats its own sums as a filter: pairs within
//! rounding of ε are left open, and decided by `mul_add` one by one.

use super::vector::Vector;
use crate::scalar::Scalar;

const LANES: usize = 8;

#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Array<T, const FUSED: bool>([T; LANES]);

impl<T: Scalar, const FUSED: bool> Array<T, FUSED> {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(T, T) -> T) -> Self {
        Array(core::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl<T: Scalar, const FUSED: bool> Vector for Array<T, FUSED> {
    type Lane = T;
    type Labels = [u32; LANES];
    const LANES: usize = LANES;
    const FUSED: bool = FUSED;

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
    unsafe fn store(self, to: *mut T) {
        // SAFETY: the caller promises `LANES` writable elements.
        unsafe { to.cast::<[T; LANES]>().write_unaligned(self.0) }
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
    unsafe fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    unsafe fn with_bits(self, bits: Self) -> Self {
        self.zip(bits, T::with_bits)
    }
    #[inline(always)]
    unsafe fn without_bits(self, bits: Self) -> Self {
        self.zip(bits, T::without_bits)
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        if FUSED {
            return Array(core::array::from_fn(|i| self.0[i].mul_add(b.0[i], c.0[i])));
        }
        Array(core::array::from_fn(|i| self.0[i].mul(b.0[i]).add(c.0[i])))
    }
    #[inline(always)]
    unsafe fn le(self, other: Self) -> u32 {
        lanes(|i| self.0[i] <= other.0[i])
    }
    #[inline(always)]
    unsafe fn lt(self, other: Self) -> u32 {
        lanes(|i| self.0[i] < other.0[i])
    }
    #[inline(always)]
    unsafe fn eq(self, other: Self) -> u32 {
        lanes(|i| self.0[i] == other.0[i])
    }
    #[inline(always)]
    unsafe fn select(mask: u32, yes: Self, no: Self) -> Self {
        Array(core::array::from_fn(|i| if mask >> i & 1 == 1 { yes.0[i] } else { no.0[i] }))
    }
    #[inline(always)]
    unsafe fn select_labels(mask: u32, yes: Self::Labels, no: Self::Labels) -> Self::Labels {
        core::array::from_fn(|i| if mask >> i & 1 == 1 { yes[i] } else { no[i] })
    }
    #[inline(always)]
    unsafe fn store_labels(labels: Self::Labels, to: *mut u32) {
        // SAFETY: the caller promises `LANES` writable elements.
        unsafe { to.cast::<[u32; LANES]>().write_unaligned(labels) }
    }
    #[inline(always)]
    unsafe fn labels_lt(a: Self::Labels, b: Self::Labels) -> u32 {
        lanes(|i| a[i] < b[i])
    }
    #[inline(always)]
    unsafe fn shuffle_labels(a: Self::Labels, b: Self::Labels) -> (Self::Labels, Self::Labels) {
        let from = |first: usize| {
            core::array::from_fn(|i| if i % 2 == 0 { a[first + i / 2] } else { b[first + i / 2] })
        };
        (from(0), from(LANES / 2))
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
        lanes(|i| a[i] != b[i])
    }
    #[inline(always)]
    unsafe fn compress(labels: Self::Labels, mask: u32, to: *mut u32) {
        // SAFETY: the caller promises `LANES` writable elements.
        unsafe { pack(labels, mask, to) }
    }
    #[inline(always)]
    unsafe fn compress_lanes(self, mask: u32, to: *mut T) {
        // SAFETY: the caller promises `LANES` writable elements.
        unsafe { pack(self.0, mask, to) }
    }
}

/// Writes the elements in `mask` one after the other.
///
/// # Safety
/// `to` must be valid for `LANES` elements.
#[inline(always)]
unsafe fn pack<T: Copy>(from: [T; LANES], mut mask: u32, mut to: *mut T) {
    while mask != 0 {
        // SAFETY: `to` advances at most `LANES` times, all writable by contract.
        unsafe {
            to.write(from[mask.trailing_zeros() as usize]);
            to = to.add(1);
        }
        mask &= mask - 1;
    }
}

/// The lanes for which something holds, as bits.
#[inline(always)]
fn lanes(holds: impl Fn(usize) -> bool) -> u32 {
    let mut mask = 0;
    for i in 0..LANES {
        mask |= u32::from(holds(i)) << i;
    }
    mask
}

// Processors with AVX2 do not come here, and there are few others of their family left: most
// dimensions share the kernels for any.
#[cfg(target_arch = "x86_64")]
super::level! {
    Array<f32, false>, Array<f64, false>; Array<f32, true>, Array<f64, true>;
    tile 1 x 4;
    2 3
}

#[cfg(not(target_arch = "x86_64"))]
super::level! {
    Array<f32, false>, Array<f64, false>; Array<f32, true>, Array<f64, true>;
    tile 1 x 4;
    1 2 3 4 5 6 7 8
}
