// CUDA's functions of numbers, with its roundings, and its small vectors.
#pragma once

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }

// The compiler is told to contract nothing (-ffp-contract=off) and rounds to nearest, so that
// the operators are CUDA's functions of the same rounding. Where the processor has no fused
// multiplication, the C library's computes the same.
inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline double __dadd_rn(double x, double y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline double __dsqrt_rn(double x) { return __builtin_sqrt(x); }

inline float fabsf(float x) { return __builtin_fabsf(x); }
inline float fabs(float x) { return __builtin_fabsf(x); }
inline double fabs(double x) { return __builtin_fabs(x); }

// As in PTX: a number wins over NaN, and +0 is more than -0.
template <class F> F simt_max(F x, F y) {
    if (x == y) return __builtin_signbit(x) ? y : x;
    return x > y || y != y ? x : y;
}
template <class F> F simt_min(F x, F y) {
    if (x == y) return __builtin_signbit(x) ? x : y;
    return x < y || y != y ? x : y;
}
inline float fmaxf(float x, float y) { return simt_max(x, y); }
inline float fmax(float x, float y) { return simt_max(x, y); }
inline double fmax(double x, double y) { return simt_max(x, y); }
inline float fminf(float x, float y) { return simt_min(x, y); }
inline float fmin(float x, float y) { return simt_min(x, y); }
inline double fmin(double x, double y) { return simt_min(x, y); }
inline float max(float x, float y) { return simt_max(x, y); }
inline double max(double x, double y) { return simt_max(x, y); }
inline float min(float x, float y) { return simt_min(x, y); }
inline double min(double x, double y) { return simt_min(x, y); }
#define SIMT_ORDER(T)                                                                            \
    inline T max(T x, T y) { return x < y ? y : x; }                                             \
    inline T min(T x, T y) { return y < x ? y : x; }
SIMT_ORDER(int)
SIMT_ORDER(unsigned)
SIMT_ORDER(long long)
SIMT_ORDER(unsigned long long)
#undef SIMT_ORDER

template <class To, class From> To simt_bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
}
inline unsigned __float_as_uint(float x) { return simt_bits_as<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return simt_bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return simt_bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return simt_bits_as<double>(x); }

inline float __double2float_rn(double x) { return (float)x; }
inline double __int2double_rn(int x) { return x; }
// Saturates, as CUDA does and C++ does not; NaN is the least number.
inline long long __double2ll_rz(double x) {
    if (x >= 9223372036854775808.0) return 0x7fffffffffffffffll;
    if (x >= -9223372036854775808.0) return (long long)x;
    return -0x7fffffffffffffffll - 1;
}

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
