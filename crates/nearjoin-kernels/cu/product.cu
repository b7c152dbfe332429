// Pairs that may be within ε of each other, by matrix units; and whether these do as they should.
#include "product.cuh"

static_assert(SHARED_BYTES == BYTES, "as the host asks for it");

KERNEL(__launch_bounds__(THREADS, BLOCKS) product)(const __grid_constant__ Sweep job) {
    DYNAMIC_SHARED(shared, SHARED_BYTES);
    sweep(job, shared);
}

// ---------------------------------------------------------------- the model of matrix units

#if RESIDENT // one module has it for all
// Products of 16 coordinates that are added up.
#define CHAIN 64u

__device__ __forceinline__ u32 scrambled(u32 x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

// A number of 16 bits: of a size, or of any size, and of either sign where that is asked for.
__device__ __forceinline__ u32 operand(u32 kind, u32 side, u32 line, u32 k) {
    u32 random = scrambled(((blockIdx.x * 2 + side) * 16 + line) * 16 * CHAIN + k);
    u32 sign = kind == 0 || kind == 3 ? 0 : random & 0x8000u, digits = random >> 16 & 0x3ffu;
    if (kind == 4) return sign | digits;
    u32 exponent = kind == 1 ? 1 + (random >> 26) % 27 : 14;
    return sign | exponent << 10 | digits;
}

// The largest error of sums, in 2⁻²³ of all magnitudes that went into them for each addition.
//
//     for each of some kinds of numbers: positive, of any size, of either sign, such that the sum is
//     about 0, subnormal
//         a chain of products, as a filter makes it; the same in double precision; how far apart are they?
KERNEL(check_units)(u32* worst) {
    u32 kind = blockIdx.x % 5, l = lane();
    float sums[4];
    double exact[4], sizes[4];
    for (u32 e = 0; e < 4; e++) {
        u32 row = l / 4 + e / 2 * 8, column = l % 4 * 2 + e % 2;
        double sum = 0.0, size = 0.0;
        for (u32 k = 0; k < 16 * CHAIN; k++) {
            double x = (double)float_of(operand(kind, 0, row, k)), y = (double)float_of(operand(kind, 1, column, k));
            sum = __fma_rn(x, y, sum);
            size += fabs(__dmul_rn(x, y));
        }
        sums[e] = __double2float_rn(kind == 2 ? 0.0 : -sum * (kind == 3 ? 1.0 : 0.5));
        exact[e] = sum + (double)sums[e];
        sizes[e] = size + fabs((double)sums[e]);
    }
    for (u32 at = 0; at < CHAIN; at++) {
        u32 a[4], b[2];
        for (u32 i = 0; i < 4; i++) {
            u32 row = l / 4 + i % 2 * 8, k = at * 16 + i / 2 * 8 + l % 4 * 2;
            a[i] = operand(kind, 0, row, k) | operand(kind, 0, row, k + 1) << 16;
        }
        for (u32 i = 0; i < 2; i++) {
            u32 k = at * 16 + i * 8 + l % 4 * 2;
            b[i] = operand(kind, 1, l / 4, k) | operand(kind, 1, l / 4, k + 1) << 16;
        }
        mma_f16(sums, a, b);
    }
    for (u32 e = 0; e < 4; e++) {
        double off = fabs((double)sums[e] - exact[e]) / (sizes[e] * (17.0 * CHAIN) * 1.1920928955078125e-7);
        // What is no number is beyond all of them.
        float ratio = off <= 1e30 ? __double2float_rn(off) : 1e30f;
        atomicMax(worst, __float_as_uint(ratio));
    }
}

EXPORT(check_units)
#endif

EXPORT(product)
