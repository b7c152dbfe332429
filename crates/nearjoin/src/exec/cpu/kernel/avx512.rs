//! AVX-512: sixteen `f32` or eight `f64` lanes, with hardware compress.
//!
//! Compressing in a register and storing the whole register is deliberate: compressing
//! straight to memory is microcoded on some processors and many times slower.

use core::arch::x86_64::*;

use super::vector::Vector;

#[derive(Clone, Copy)]
pub(super) struct F32x16(__m512);
#[derive(Clone, Copy)]
pub(super) struct F64x8(__m512d);

/// Whether this processor has what the kernels below are compiled for.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && super::avx2::is_available()
}

impl Vector for F32x16 {
    type Lane = f32;
    type Labels = __m512i;
    const LANES: usize = 16;
    const FUSED: bool = true;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY (here and below): the caller promises AVX-512 and valid pointers.
        unsafe { F32x16(_mm512_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as above.
        unsafe { F32x16(_mm512_loadu_ps(from)) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { F32x16(_mm512_add_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { F32x16(_mm512_sub_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        // SAFETY: as above.
        unsafe { F32x16(_mm512_abs_ps(self.0)) }
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { F32x16(_mm512_max_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        // SAFETY: as above.
        unsafe { F32x16(_mm512_fmadd_ps(self.0, b.0, c.0)) }
    }
    #[inline(always)]
    unsafe fn le(self, other: Self) -> u32 {
        // SAFETY: as above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LE_OQ>(self.0, other.0) as u32 }
    }
    #[inline(always)]
    unsafe fn popcount(mask: u32) -> u32 {
        super::vector::popcnt(mask)
    }
    #[inline(always)]
    unsafe fn splat_label(label: u32) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_set1_epi32(label as i32) }
    }
    #[inline(always)]
    unsafe fn load_labels(from: *const u32) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn labels_ne(a: __m512i, b: __m512i) -> u32 {
        // SAFETY: as above.
        unsafe { _mm512_cmpneq_epi32_mask(a, b) as u32 }
    }
    #[inline(always)]
    unsafe fn compress(labels: __m512i, mask: u32, to: *mut u32) {
        // SAFETY: as above.
        unsafe {
            _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi32(mask as __mmask16, labels));
        }
    }
}

impl Vector for F64x8 {
    type Lane = f64;
    type Labels = __m256i;
    const LANES: usize = 8;
    const FUSED: bool = true;

    #[inline(always)]
    unsafe fn splat(x: f64) -> Self {
        // SAFETY: as above.
        unsafe { F64x8(_mm512_set1_pd(x)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: as above.
        unsafe { F64x8(_mm512_loadu_pd(from)) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { F64x8(_mm512_add_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { F64x8(_mm512_sub_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        // SAFETY: as above.
        unsafe { F64x8(_mm512_abs_pd(self.0)) }
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { F64x8(_mm512_max_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        // SAFETY: as above.
        unsafe { F64x8(_mm512_fmadd_pd(self.0, b.0, c.0)) }
    }
    #[inline(always)]
    unsafe fn le(self, other: Self) -> u32 {
        // SAFETY: as above.
        unsafe { _mm512_cmp_pd_mask::<_CMP_LE_OQ>(self.0, other.0) as u32 }
    }
    #[inline(always)]
    unsafe fn popcount(mask: u32) -> u32 {
        super::vector::popcnt(mask)
    }
    #[inline(always)]
    unsafe fn splat_label(label: u32) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_set1_epi32(label as i32) }
    }
    #[inline(always)]
    unsafe fn load_labels(from: *const u32) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn labels_ne(a: __m256i, b: __m256i) -> u32 {
        // SAFETY: as above.
        unsafe { _mm256_cmpneq_epi32_mask(a, b) as u32 }
    }
    #[inline(always)]
    unsafe fn compress(labels: __m256i, mask: u32, to: *mut u32) {
        // SAFETY: as above.
        unsafe {
            _mm256_storeu_si256(to.cast(), _mm256_maskz_compress_epi32(mask as __mmask8, labels));
        }
    }
}

super::level! {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,popcnt")]
    F32x16, F64x8
}
