// Points as numbers of 16 bits, and what a product of them leaves open. Compiled with SCALAR_F32 or
// SCALAR_F64.
//
// `filter/product.rs` says why no match is lost, and has the same formulas: h is a point in its frame,
// rounded; n is ‖h‖², and ρ at least the length of what rounding took. Of what a product less both
// thresholds comes to:
//
//     negative: no match                       threshold A = n/2 − r − e,  r = τ²/4 + ρ(τ + ρ), τ of t⁺
//     at least B + B' − A − A': a match        B = n/2 − τ²/4 + τρ + e, τ of t⁻
//
// e is the point's part of the error of a product. Here A is `open`, and `sure` is B − A.
#include "half.cuh"
#include "scalar.cuh"

// One warp to a point: halves with zeros up to `depth`, n and ρ. Points from `len` to `room` are 0.
KERNEL(halve)(const Scalar* points, u64 len, u64 room, u32 dim, u32 depth, const double* centre,
              double scale, u16* halves, double2* sizes) {
    u64 at = thread_number() / WARP;
    if (at >= room) return;
    if (at >= len) dim = 0;
    const Scalar* x = points + at * dim;
    double norm = 0.0, lost = 0.0;
    for (u32 j = 2 * lane(); j < depth; j += 2 * WARP) {
        u32 both = 0;
        for (u32 h = 0; h < 2; h++) {
            if (j + h >= dim) continue;
            double y = __dsub_rn(__dmul_rn((double)x[j + h], scale), centre[j + h]);
            u32 half = half_of(__double2float_rn(y));
            double near = (double)float_of(half), off = __dsub_rn(y, near);
            norm = __fma_rn(near, near, norm);
            lost = __fma_rn(off, off, lost);
            both |= half << 16 * h;
        }
        ((u32*)(halves + at * depth))[j / 2] = both;
    }
    for (u32 step = WARP / 2; step > 0; step /= 2) {
        norm += __shfl_xor_sync(ALL, norm, step);
        lost += __shfl_xor_sync(ALL, lost, step);
    }
    double spread = __dsqrt_rn(lost) * (1.0 + 1e-11) + __dsqrt_rn(norm) * 2.3e-16 + 1e-300;
    if (lane() == 0 && at < len) sizes[at] = make_double2(norm, spread);
}

// What thresholds are made of: τ of t⁺ and of t⁻, which is negative where nothing is sure; and of what
// goes into a product, by magnitude, the part that it may err by, and what it may err by beside that.
struct Limits {
    double open, sure, relative, absolute;

    __device__ __forceinline__ double error(double norm, double beside) const {
        return relative * (0.5 * norm + beside) + absolute;
    }
};

// Thresholds of points; and of none, up to `room`, which nothing reaches.
//
// What is infinite has no place in a sum that errs: those of no points are finite, and two of them are.
KERNEL(thresholds)(const double2* sizes, u64 len, u64 room, Limits limits, float* open, float* sure) {
    u64 at = thread_number();
    if (at >= room) return;
    if (at >= len) {
        open[at] = sure[at] = BEYOND;
        return;
    }
    double norm = sizes[at].x, spread = sizes[at].y;
    double reach = 0.25 * limits.open * limits.open + spread * (limits.open + spread);
    double sum = norm + reach;
    // 2⁻²² of all numbers here is more than their rounding to single precision.
    double least = 0.5 * norm - reach - limits.error(norm, 0.5 * norm + reach) - 2.4e-7 * sum;
    open[at] = __double2float_rn(least);
    double near = 0.25 * limits.sure * limits.sure, lost = limits.sure * spread;
    double most = 0.5 * norm - near + lost + limits.error(norm, 0.5 * norm + reach + lost);
    double between = most - least + 4.8e-7 * (sum + near + lost);
    sure[at] = limits.sure < 0.0 ? __uint_as_float(0x7f800000u) : __double2float_rn(between);
}

EXPORT(halve)
EXPORT(thresholds)
