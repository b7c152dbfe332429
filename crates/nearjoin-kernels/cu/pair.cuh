// How a pair is decided.
//
// Compiled with SCALAR_*, NORM_* and WIDTH: how many numbers of a point are compared, its dimension
// or as many more as are 0, or 0 for any number, known when it runs.
#pragma once
#include "device.cuh"
#include "scalar.cuh"

#if WIDTH > 0
// 16 bytes of a point, or two numbers where it has no whole number of those.
template <class L> struct alignas(sizeof(L) * ((WIDTH * sizeof(L)) % 16 ? 2 : 16 / sizeof(L))) Piece {
    L x[(WIDTH * sizeof(L)) % 16 ? 2 : 16 / sizeof(L)];
};

// A point in registers.
template <class L> struct Point {
    static const u32 PIECES = WIDTH * sizeof(L) / sizeof(Piece<L>);
    Piece<L> pieces[PIECES];

    __device__ __forceinline__ L operator[](u32 j) const {
        const u32 NUMBERS = sizeof(Piece<L>) / sizeof(L);
        return pieces[j / NUMBERS].x[j % NUMBERS];
    }

    static __device__ __forceinline__ Point at(const L* points, u64 place) {
        Point point;
        const Piece<L>* from = (const Piece<L>*)(points + place * WIDTH);
#pragma unroll
        for (u32 i = 0; i < PIECES; i++) point.pieces[i] = from[i];
        return point;
    }

    __device__ __forceinline__ void store(L* points, u32 place) const {
        Piece<L>* to = (Piece<L>*)(points + place * WIDTH);
#pragma unroll
        for (u32 i = 0; i < PIECES; i++) to[i] = pieces[i];
    }

    __device__ __forceinline__ Point from_lane(u32 source) const {
        Point point;
        const u32 NUMBERS = sizeof(Piece<L>) / sizeof(L);
#pragma unroll
        for (u32 i = 0; i < PIECES; i++) {
#pragma unroll
            for (u32 w = 0; w < NUMBERS; w++)
                point.pieces[i].x[w] = __shfl_sync(ALL, pieces[i].x[w], source);
        }
        return point;
    }
};
#endif

// A difference more.
//
// L1 and L∞ are one: the sum that weighs 1 is at least the last difference, rounded as it may be,
// and the sum that weighs 0 is the largest of those before. A difference beyond all numbers is no
// number times 0, which the larger of the two leaves out.
template <class L> __device__ __forceinline__ L add(L acc, L d, L weight) {
#if defined(NORM_SQUARES)
    return fused(d, d, acc);
#elif defined(NORM_MAGNITUDES)
    d = magnitude(d);
    return larger(fused(d, weight, acc), d);
#else
#error "NORM_SQUARES or NORM_MAGNITUDES"
#endif
}

// One step of the accumulation, dimension after dimension from 0.
template <class L> __device__ __forceinline__ L step(L acc, L x, L y, L weight) {
    return add(acc, subtract(x, y), weight);
}

// The distance that users see.
__device__ __forceinline__ Scalar distance(Scalar acc) {
#if defined(NORM_SQUARES)
    return root(acc);
#else
    return acc;
#endif
}
