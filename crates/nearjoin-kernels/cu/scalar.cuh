// The points' own type, and the arithmetic that decides a pair.
#pragma once
#include "device.cuh"

#if defined(SCALAR_F32)
typedef float Scalar;
typedef u32 Bits;
#define INFINITE __uint_as_float(0x7f800000u)
#define NOT_A_NUMBER __uint_as_float(0x7fc00000u)
#elif defined(SCALAR_F64)
typedef double Scalar;
typedef u64 Bits;
#define INFINITE __longlong_as_double(0x7ff0000000000000ll)
#define NOT_A_NUMBER __longlong_as_double(0x7ff8000000000000ll)
#else
#error "SCALAR_F32 or SCALAR_F64"
#endif

__device__ __forceinline__ u32 order_bits(float x) {
    u32 bits = __float_as_uint(__fadd_rn(x, 0.0f));
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ u64 order_bits(double x) {
    u64 bits = (u64)__double_as_longlong(__dadd_rn(x, 0.0));
    return bits >> 63 ? ~bits : bits | 0x8000000000000000ull;
}

__device__ __forceinline__ float subtract(float x, float y) { return __fsub_rn(x, y); }
__device__ __forceinline__ double subtract(double x, double y) { return __dsub_rn(x, y); }
__device__ __forceinline__ float fused(float x, float y, float z) { return __fmaf_rn(x, y, z); }
__device__ __forceinline__ double fused(double x, double y, double z) { return __fma_rn(x, y, z); }
__device__ __forceinline__ float root(float x) { return __fsqrt_rn(x); }
__device__ __forceinline__ double root(double x) { return __dsqrt_rn(x); }
__device__ __forceinline__ float magnitude(float x) { return fabsf(x); }
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }
__device__ __forceinline__ float larger(float x, float y) { return fmaxf(x, y); }
__device__ __forceinline__ double larger(double x, double y) { return fmax(x, y); }
