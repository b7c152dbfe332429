// Sorting networks over keys in registers: every index is known to the compiler.
#pragma once
#include "device.cuh"

__device__ __forceinline__ void order(u32& a, u32& b) {
    u32 less = min(a, b);
    b = max(a, b);
    a = less;
}
__device__ __forceinline__ void order(u64& a, u64& b) {
    bool swapped = b < a;
    u64 first = swapped ? b : a;
    b = swapped ? a : b;
    a = first;
}

// Batcher's sort by merging.
template <u32 FROM, u32 N, u32 STEP> struct Merge {
    template <u32 I, class K> static __device__ __forceinline__ void pairs(K* keys) {
        if constexpr (I + STEP < FROM + N) {
            order(keys[I], keys[I + STEP]);
            pairs<I + 2 * STEP>(keys);
        }
    }
    template <class K> static __device__ __forceinline__ void run(K* keys) {
        if constexpr (2 * STEP < N) {
            Merge<FROM, N, 2 * STEP>::run(keys);
            Merge<FROM + STEP, N, 2 * STEP>::run(keys);
            pairs<FROM + STEP>(keys);
        } else {
            order(keys[FROM], keys[FROM + STEP]);
        }
    }
};
template <u32 FROM, u32 N, class K> __device__ __forceinline__ void sort_keys(K* keys) {
    if constexpr (N > 1) {
        sort_keys<FROM, N / 2>(keys);
        sort_keys<FROM + N / 2, N / 2>(keys);
        Merge<FROM, N, 1>::run(keys);
    }
}

// Puts keys that are `STRIDE` apart in order, and then for ever smaller strides.
template <u32 N, u32 STRIDE, class K> __device__ __forceinline__ void merge_keys(K* keys) {
    if constexpr (STRIDE > 0) {
#pragma unroll
        for (u32 i = 0; i < N; i++)
            if (!(i & STRIDE)) order(keys[i], keys[i | STRIDE]);
        merge_keys<N, STRIDE / 2>(keys);
    }
}
