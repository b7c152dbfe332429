//! AVX2 with FMA: eight `f32` or four `f64` lanes, compressing by table and permute.

use core::arch::x86_64::*;

use super::vector::{Vector, vector};

/// Whether this processor has what the kernels below are compiled for.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
}

/// For each mask of eight lanes, the lanes it holds, packed to the front. Masks of four
/// lanes are the first sixteen, with the first half of each row.
static PACK: [[u32; 8]; 256] = pack();

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

macro_rules! compare_f32 {
    ($how:ident, $a:expr, $b:expr) => {
        _mm256_movemask_ps(_mm256_cmp_ps::<$how>($a, $b)) as u32
    };
}

macro_rules! compare_f64 {
    ($how:ident, $a:expr, $b:expr) => {
        _mm256_movemask_pd(_mm256_cmp_pd::<$how>($a, $b)) as u32
    };
}

/// All bits of the lanes whose bits are set.
macro_rules! spread {
    (8 x 32, $mask:expr) => {{
        let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32($mask as i32), bits), bits)
    }};
    (4 x 64, $mask:expr) => {{
        let bits = _mm256_setr_epi64x(1, 2, 4, 8);
        _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(i64::from($mask)), bits), bits)
    }};
    (4 x 32, $mask:expr) => {{
        let bits = _mm_setr_epi32(1, 2, 4, 8);
        _mm_cmpeq_epi32(_mm_and_si128(_mm_set1_epi32($mask as i32), bits), bits)
    }};
}

/// Two registers of eight labels, shuffled: within their halves first.
macro_rules! shuffle {
    ($a:expr, $b:expr) => {{
        let (even, odd) = (_mm256_unpacklo_epi32($a, $b), _mm256_unpackhi_epi32($a, $b));
        (_mm256_permute2x128_si256::<0x20>(even, odd), _mm256_permute2x128_si256::<0x31>(even, odd))
    }};
}
pub(super) use shuffle;

vector! {
    F32x8(__m256) of 8 f32, named by __m256i;
    plain: _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_add_ps, _mm256_sub_ps, _mm256_max_ps, _mm256_min_ps,
        _mm256_fmadd_ps, _mm256_or_ps, _mm256_andnot_ps;
    abs: |x| _mm256_andnot_ps(_mm256_set1_ps(-0.0), x);
    compare: compare_f32;
    select: |mask, yes, no|
        _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(spread!(8 x 32, mask))),
        _mm256_blendv_epi8(no, yes, spread!(8 x 32, mask));
    labels: |label| _mm256_set1_epi32(label), |from| _mm256_loadu_si256(from.cast()),
        |labels, to| _mm256_storeu_si256(to.cast(), labels);
    ne: |a, b| !_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b))) as u32 & 0xff;
    lt: |a, b| {
        // Unsigned: with the sign bits turned, signed comparison does it.
        let sign = _mm256_set1_epi32(i32::MIN);
        let less = _mm256_cmpgt_epi32(_mm256_xor_si256(b, sign), _mm256_xor_si256(a, sign));
        _mm256_movemask_ps(_mm256_castsi256_ps(less)) as u32
    };
    shuffle: |a, b| shuffle!(a, b);
    compress: |lanes, mask, to| {
        let order = _mm256_loadu_si256(PACK[mask as usize & 0xff].as_ptr().cast());
        _mm256_storeu_si256(to.cast(), _mm256_permutevar8x32_epi32(lanes, order));
    }, {
        let order = _mm256_loadu_si256(PACK[mask as usize & 0xff].as_ptr().cast());
        _mm256_storeu_ps(to, _mm256_permutevar8x32_ps(lanes, order));
    };
}

vector! {
    F64x4(__m256d) of 4 f64, named by __m128i;
    plain: _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_add_pd, _mm256_sub_pd, _mm256_max_pd, _mm256_min_pd,
        _mm256_fmadd_pd, _mm256_or_pd, _mm256_andnot_pd;
    abs: |x| _mm256_andnot_pd(_mm256_set1_pd(-0.0), x);
    compare: compare_f64;
    select: |mask, yes, no|
        _mm256_blendv_pd(no, yes, _mm256_castsi256_pd(spread!(4 x 64, mask))),
        _mm_blendv_epi8(no, yes, spread!(4 x 32, mask));
    labels: |label| _mm_set1_epi32(label), |from| _mm_loadu_si128(from.cast()),
        |labels, to| _mm_storeu_si128(to.cast(), labels);
    ne: |a, b| !_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(a, b))) as u32 & 0xf;
    lt: |a, b| {
        let sign = _mm_set1_epi32(i32::MIN);
        let less = _mm_cmpgt_epi32(_mm_xor_si128(b, sign), _mm_xor_si128(a, sign));
        _mm_movemask_ps(_mm_castsi128_ps(less)) as u32
    };
    shuffle: |a, b| (_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
    compress: |lanes, mask, to| {
        let order = _mm_loadu_si128(PACK[mask as usize & 0xf].as_ptr().cast());
        let packed = _mm_permutevar_ps(_mm_castsi128_ps(lanes), order);
        _mm_storeu_si128(to.cast(), _mm_castps_si128(packed));
    }, {
        // Each lane is a pair of the table's.
        let mut pairs = mask & 1 | mask << 1 & 4 | mask << 2 & 16 | mask << 3 & 64;
        pairs |= pairs << 1;
        let order = _mm256_loadu_si256(PACK[pairs as usize & 0xff].as_ptr().cast());
        let packed = _mm256_permutevar8x32_ps(_mm256_castpd_ps(lanes), order);
        _mm256_storeu_ps(to.cast(), packed);
    };
}

super::level! {
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
    F32x8, F64x4; F32x8, F64x4;
    tile 3 x 4;
    1 2 3 4 5 6 7 8
}
