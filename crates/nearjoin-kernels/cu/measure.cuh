// The sum that decides, of points that lie one after the other.
#pragma once
#include "pair.cuh"

// How many numbers are fetched before the first is used.
#define AHEAD 16u

// As many numbers as are fetched at once.
struct alignas(16) Fetched {
    Scalar x[16 / sizeof(Scalar)];
};

__device__ __forceinline__ Scalar accumulated(const Scalar* x, const Scalar* y, u32 dim) {
    Scalar acc = 0;
    u32 j = 0;
    // Lanes have points here and there: what is fetched at once is one request for each of them.
    const u32 AT_ONCE = sizeof(Fetched) / sizeof(Scalar);
    bool whole = dim % AT_ONCE == 0;
    for (; j + AHEAD <= dim; j += AHEAD) {
        alignas(16) Scalar a[AHEAD];
        alignas(16) Scalar b[AHEAD];
#pragma unroll
        for (u32 i = 0; i < AHEAD; i += AT_ONCE) {
            if (whole) {
                *(Fetched*)(a + i) = *(const Fetched*)(x + j + i);
                *(Fetched*)(b + i) = *(const Fetched*)(y + j + i);
            } else {
#pragma unroll
                for (u32 k = i; k < i + AT_ONCE; k++) {
                    a[k] = x[j + k];
                    b[k] = y[j + k];
                }
            }
        }
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) acc = step(acc, a[i], b[i], Scalar(1));
    }
    for (; j < dim; j++) acc = step(acc, x[j], y[j], Scalar(1));
    return acc;
}
