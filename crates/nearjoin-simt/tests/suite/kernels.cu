// Kernels that try out what others rely on.
#include "device.cuh"

struct Range {
    u64 begin, end;
    double scale;
};

// The sum of a block's numbers, by halves.
KERNEL(sum)(const u32* in, u32 n, u32* out) {
    __shared__ u32 sums[256];
    u64 at = thread_number();
    sums[threadIdx.x] = at < n ? in[at] : 0;
    __syncthreads();
    for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

// What a warp of 32 lanes knows of its values, five words a lane.
KERNEL(warp)(const u32* in, u32* out) {
    u32 value = in[threadIdx.x];
    u32* mine = out + threadIdx.x * 5;
    mine[0] = __ballot_sync(ALL, value % 2);
    mine[1] = __match_any_sync(ALL, value);
    u32 sum = value;
    for (u32 step = 1; step < WARP; step *= 2) {
        u32 before = __shfl_up_sync(ALL, sum, step);
        if (lane() >= step) sum += before;
    }
    mine[2] = sum;
    // Half the lanes on their own, and the others meanwhile.
    u32 half = lane() < 16 ? 0x0000ffffu : 0xffff0000u;
    double greatest = value;
    if (lane() < 16) {
        for (u32 step = 8; step > 0; step /= 2)
            greatest = fmax(greatest, __shfl_xor_sync(half, greatest, step));
    } else {
        greatest = __shfl_sync(half, greatest, 31);
    }
    __syncwarp();
    mine[3] = (u32)greatest;
    mine[4] = (u32)__any_sync(ALL, value == 7) | (u32)__all_sync(ALL, value < 100) << 1;
}

// Counts numbers below 8, and their greatest and least.
KERNEL(tally)(const u32* in, u32 n, u32* counts, u64* total, u32* greatest, u32* least) {
    u64 at = thread_number();
    if (at >= n) return;
    if (in[at] < 8) atomicAdd(&counts[in[at]], 1u);
    atomicAdd(total, (u64)in[at]);
    atomicMax(greatest, in[at]);
    atomicMin(least, in[at]);
    atomicOr(counts + 8, 1u << in[at] % 32);
}

// Parameters of every size and alignment.
KERNEL(parameters)(u32 a, Range range, float b, double c, u32 d, u64 e, double* out) {
    if (threadIdx.x != 0) return;
    out[0] = a;
    out[1] = (double)range.begin;
    out[2] = (double)range.end;
    out[3] = range.scale;
    out[4] = b;
    out[5] = c;
    out[6] = d;
    out[7] = (double)e;
}

KERNEL(fused)(const double2* in, double* out, const float2* narrow, float* narrow_out) {
    double2 x = in[threadIdx.x];
    out[threadIdx.x] = __fma_rn(x.x, x.x, x.y);
    float2 y = narrow[threadIdx.x];
    narrow_out[threadIdx.x] = __fmaf_rn(y.x, y.x, y.y);
}

// Not fused: an addition of a product that has been rounded.
KERNEL(apart)(const double2* in, double* out) {
    double2 x = in[threadIdx.x];
    out[threadIdx.x] = x.x * x.x + x.y;
}

KERNEL(turn)(const float4* in, uint4* out) {
    float4 x = __ldg(in + threadIdx.x);
    out[threadIdx.x] = make_uint4(__float_as_uint(x.w), __float_as_uint(x.z),
                                  __float_as_uint(x.y), __float_as_uint(x.x));
}

// Errors that a device would not tell.

KERNEL(some_at_the_barrier)(u32 absent) {
    if (thread_number() == absent) return;
    __syncthreads();
}

KERNEL(some_in_the_vote)(u32 absent) {
    if (thread_number() == absent) return;
    __ballot_sync(ALL, 1);
}

KERNEL(different_masks)() {
    __ballot_sync(lane() == 3 ? ALL : 0x0000ffffu << lane() / 16 * 16, 1);
}

KERNEL(beyond)(u32* out, u32 n) { out[thread_number() + n] = 1; }

KERNEL(beyond_shared)(u32* out) {
    __shared__ u32 shared[32];
    u32* at = shared + threadIdx.x;
    at[1] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = shared[threadIdx.x];
}

// There is no barrier between what the first thread writes and the others read.
KERNEL(race)(u32* out) {
    __shared__ u32 shared;
    if (threadIdx.x == 31) shared = 0;
    __syncthreads();
    if (threadIdx.x == 0) shared = 1;
    out[thread_number()] = shared;
}

KERNEL(add)(u32* at, u32 value) { at[thread_number()] += value; }

EXPORT(sum)
EXPORT(warp)
EXPORT(tally)
EXPORT(parameters)
EXPORT(fused)
EXPORT(apart)
EXPORT(turn)
EXPORT(some_at_the_barrier)
EXPORT(some_in_the_vote)
EXPORT(different_masks)
EXPORT(beyond)
EXPORT(beyond_shared)
EXPORT(race)
EXPORT(add)
