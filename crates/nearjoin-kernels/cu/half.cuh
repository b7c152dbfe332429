// Numbers of 16 bits, by their bits: no header of CUDA's is needed, and a CPU does the same.
#pragma once
#include "device.cuh"

typedef unsigned short u16;

// A threshold that no product reaches, and its double is a number still: those of points are below 2⁸⁴.
#define BEYOND 1e38f

// The nearest number of 16 bits, to even. What is 65520 or more is infinite.
__device__ __forceinline__ u32 half_of(float x) {
    u32 bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
    // Below 2⁻¹⁴ numbers are multiples of 2⁻²⁴, as floats from ½ to 1 are.
    if (magnitude < 0x38800000u)
        return sign | (__float_as_uint(__fadd_rn(__uint_as_float(magnitude), 0.5f)) - 0x3f000000u);
    u32 odd = magnitude >> 13 & 1u;
    return sign | (magnitude + 0xfffu + odd - 0x38000000u) >> 13;
}

// The same number; `half` is finite. The factor, 2¹¹², moves the exponent to where it belongs.
__device__ __forceinline__ float float_of(u32 half) {
    float magnitude = __fmul_rn(__uint_as_float((half & 0x7fffu) << 13), __uint_as_float(0x77800000u));
    return half & 0x8000u ? -magnitude : magnitude;
}
