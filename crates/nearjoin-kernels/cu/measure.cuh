// The sum that decides, of points that lie one after the other.
#pragma once
#include "pair.cuh"

// How many numbers are fetched before the first is used.
#define AHEAD 8u

__device__ __forceinline__ Scalar accumulated(const Scalar* x, const Scalar* y, u32 dim) {
    Scalar acc = 0;
    u32 j = 0;
    for (; j + AHEAD <= dim; j += AHEAD) {
        Scalar a[AHEAD], b[AHEAD];
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) {
            a[i] = x[j + i];
            b[i] = y[j + i];
        }
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) acc = step(acc, a[i], b[i], Scalar(1));
    }
    for (; j < dim; j++) acc = step(acc, x[j], y[j], Scalar(1));
    return acc;
}
