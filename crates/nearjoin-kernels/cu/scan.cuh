// Running sums within a warp and a block.
#pragma once
#include "device.cuh"

// The sum of the values of all lanes up to and with this one.
template <class T> __device__ __forceinline__ T warp_inclusive(T value) {
    for (u32 step = 1; step < WARP; step *= 2) {
        T before = __shfl_up_sync(ALL, value, step);
        if (lane() >= step) value += before;
    }
    return value;
}

// The sum of the values of all threads before this one; `total` is that of all. The block
// has at most 1024 threads.
template <class T> __device__ __forceinline__ T block_exclusive(T value, T& total) {
    __shared__ T sums[WARP];
    u32 warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    T inclusive = warp_inclusive(value);
    __syncthreads(); // an earlier call may still be reading
    if (lane() == WARP - 1) sums[warp] = inclusive;
    __syncthreads();
    if (warp == 0) {
        T sum = lane() < warps ? sums[lane()] : T(0);
        sums[lane()] = warp_inclusive(sum);
    }
    __syncthreads();
    total = sums[warps - 1];
    return inclusive - value + (warp == 0 ? T(0) : sums[warp - 1]);
}
