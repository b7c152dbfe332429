//! AVX2 with FMA: eight `f32` or four `f64` lanes, compressing by table and permute.

use core::arch::x86_64::*;

use super::vector::Vector;

#[derive(Clone, Copy)]
pub(super) struct F32x8(__m256);
#[derive(Clone, Copy)]
pub(super) struct F64x4(__m256d);

/// Whether this processor has what the kernels below are compiled for.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
}

/// For each mask of eight lanes, the lanes it holds, packed to the front.
static PACK8: [[u32; 8]; 256] = pack();

const fn pack() -> [[u32; 8]; 256] {
    let mut table = [[0; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut at) = (0, 0);
        while lane < 8 {
            if mask >> lane & 1 == 1 {
                table[mask][at] = lane as u32;
                at += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    table
}

impl Vector for F32x8 {
    type Lane = f32;
    type Labels = __m256i;
    const LANES: usize = 8;
    const FUSED: bool = true;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY (here and below): the caller promises AVX2, FMA and valid pointers.
        unsafe { F32x8(_mm256_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as above.
        unsafe { F32x8(_mm256_loadu_ps(from)) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { F32x8(_mm256_add_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { F32x8(_mm256_sub_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        // SAFETY: as above.
        unsafe { F32x8(_mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0)) }
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { F32x8(_mm256_max_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        // SAFETY: as above.
        unsafe { F32x8(_mm256_fmadd_ps(self.0, b.0, c.0)) }
    }
    #[inline(always)]
    unsafe fn le(self, other: Self) -> u32 {
        // SAFETY: as above.
        unsafe { _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_LE_OQ>(self.0, other.0)) as u32 }
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
        unsafe { !_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b))) as u32 & 0xff }
    }
    #[inline(always)]
    unsafe fn compress(labels: __m256i, mask: u32, to: *mut u32) {
        // SAFETY: as above; a mask of eight lanes is below 256.
        unsafe {
            let lanes = _mm256_loadu_si256(PACK8.get_unchecked(mask as usize).as_ptr().cast());
            _mm256_storeu_si256(to.cast(), _mm256_permutevar8x32_epi32(labels, lanes));
        }
    }
}

impl Vector for F64x4 {
    type Lane = f64;
    type Labels = __m128i;
    const LANES: usize = 4;
    const FUSED: bool = true;

    #[inline(always)]
    unsafe fn splat(x: f64) -> Self {
        // SAFETY: as above.
        unsafe { F64x4(_mm256_set1_pd(x)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: as above.
        unsafe { F64x4(_mm256_loadu_pd(from)) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { F64x4(_mm256_add_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { F64x4(_mm256_sub_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        // SAFETY: as above.
        unsafe { F64x4(_mm256_andnot_pd(_mm256_set1_pd(-0.0), self.0)) }
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { F64x4(_mm256_max_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        // SAFETY: as above.
        unsafe { F64x4(_mm256_fmadd_pd(self.0, b.0, c.0)) }
    }
    #[inline(always)]
    unsafe fn le(self, other: Self) -> u32 {
        // SAFETY: as above.
        unsafe { _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_LE_OQ>(self.0, other.0)) as u32 }
    }
    #[inline(always)]
    unsafe fn popcount(mask: u32) -> u32 {
        super::vector::popcnt(mask)
    }
    #[inline(always)]
    unsafe fn splat_label(label: u32) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_set1_epi32(label as i32) }
    }
    #[inline(always)]
    unsafe fn load_labels(from: *const u32) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_loadu_si128(from.cast()) }
    }
    #[inline(always)]
    unsafe fn labels_ne(a: __m128i, b: __m128i) -> u32 {
        // SAFETY: as above.
        unsafe { !_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(a, b))) as u32 & 0xf }
    }
    #[inline(always)]
    unsafe fn compress(labels: __m128i, mask: u32, to: *mut u32) {
        // SAFETY: as above; a mask of four lanes is below 16, and its packed lanes are
        // the first four of the table's row.
        unsafe {
            let lanes = _mm_loadu_si128(PACK8.get_unchecked(mask as usize).as_ptr().cast());
            let packed = _mm_permutevar_ps(_mm_castsi128_ps(labels), lanes);
            _mm_storeu_si128(to.cast(), _mm_castps_si128(packed));
        }
    }
}

super::level! {
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
    F32x8, F64x4
}
