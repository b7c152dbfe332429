// Running sums over arrays, and a stable radix sort of keys with values.
//
// The sort goes over the keys from their lowest digit of eight bits to the highest. For each
// digit: `radix_count` counts the digits of each tile of keys, the running sums of the counts,
// digit after digit and within one tile after tile, say where each tile's keys of a digit
// go, and `radix_scatter` puts them there, equal digits in the order in which they came.
#include "device.cuh"
#include "scan.cuh"

#define THREADS 256u
#define ITEMS 16u
#define TILE (THREADS * ITEMS)
#define DIGITS 256u

// ---------------------------------------------------------------- running sums
//
// Three kernels: the sum of each tile; the running sums of those; the running sums of the
// elements, each tile from its own start. `out` may be the array itself and has an element
// more: the total.

template <class Sum> __device__ __forceinline__ void tile_sums(const u32* in, u64 n, Sum* sums) {
    u64 base = (u64)blockIdx.x * TILE;
    Sum sum = 0, total;
    for (u32 i = 0; i < ITEMS; i++) {
        u64 at = base + i * THREADS + threadIdx.x;
        if (at < n) sum += in[at];
    }
    block_exclusive(sum, total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// One block.
template <class Sum> __device__ __forceinline__ void scan_sums(Sum* sums, u64 n) {
    Sum carry = 0;
    for (u64 base = 0; base < n; base += blockDim.x) {
        u64 at = base + threadIdx.x;
        Sum value = at < n ? sums[at] : Sum(0), total;
        Sum before = block_exclusive(value, total);
        if (at < n) sums[at] = carry + before;
        carry += total;
    }
}

// Each thread has ITEMS elements in a row, so that one sum per thread is enough.
template <class Sum>
__device__ __forceinline__ void scan_tiles(const u32* in, u64 n, const Sum* sums, Sum* out) {
    u64 base = (u64)blockIdx.x * TILE + threadIdx.x * ITEMS;
    u32 values[ITEMS];
    Sum sum = 0, total;
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        values[i] = base + i < n ? in[base + i] : 0;
        sum += values[i];
    }
    Sum at = sums[blockIdx.x] + block_exclusive(sum, total);
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        if (base + i <= n) out[base + i] = at;
        at += values[i];
    }
}

KERNEL(tile_sums_u32)(const u32* in, u64 n, u32* sums) { tile_sums(in, n, sums); }
KERNEL(tile_sums_u64)(const u32* in, u64 n, u64* sums) { tile_sums(in, n, sums); }
KERNEL(scan_sums_u32)(u32* sums, u64 n) { scan_sums(sums, n); }
KERNEL(scan_sums_u64)(u64* sums, u64 n) { scan_sums(sums, n); }
KERNEL(scan_tiles_u32)(const u32* in, u64 n, const u32* sums, u32* out) {
    scan_tiles(in, n, sums, out);
}
KERNEL(scan_tiles_u64)(const u32* in, u64 n, const u64* sums, u64* out) {
    scan_tiles(in, n, sums, out);
}

// ---------------------------------------------------------------- radix sort

// counts[digit * tiles + tile]
template <class Key>
__device__ __forceinline__ void radix_count(const Key* keys, u64 n, u32 shift, u32* counts) {
    __shared__ u32 histogram[DIGITS];
    histogram[threadIdx.x] = 0;
    __syncthreads();
    u64 base = (u64)blockIdx.x * TILE;
    for (u32 i = 0; i < ITEMS; i++) {
        u64 at = base + i * THREADS + threadIdx.x;
        if (at < n) atomicAdd(&histogram[(u32)(keys[at] >> shift) & (DIGITS - 1)], 1u);
    }
    __syncthreads();
    counts[(u64)threadIdx.x * gridDim.x + blockIdx.x] = histogram[threadIdx.x];
}

// `places` are the running sums of `counts`. Without `values`, the value of a key is its
// place.
template <class Key>
__device__ __forceinline__ void radix_scatter(const Key* keys, const u32* values, u64 n,
                                              u32 shift, const u32* places, Key* keys_out,
                                              u32* values_out) {
    const u32 WARPS = THREADS / WARP;
    __shared__ u32 counters[WARPS][DIGITS];
    u32 warp = threadIdx.x / WARP;
    for (u32 w = 0; w < WARPS; w++) counters[w][threadIdx.x] = 0;
    __syncthreads();

    // Each warp has ITEMS * 32 keys in a row. The rank of a key among those of its digit:
    // those of the warp's earlier rounds, and those of lower lanes.
    u64 base = (u64)blockIdx.x * TILE + warp * (WARP * ITEMS) + lane();
    Key key[ITEMS];
    u32 rank[ITEMS];
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        u64 at = base + i * WARP;
        bool valid = at < n;
        key[i] = valid ? keys[at] : Key(0);
        u32 digit = valid ? (u32)(key[i] >> shift) & (DIGITS - 1) : DIGITS;
        u32 peers = __match_any_sync(ALL, digit);
        u32 below = __popc(peers & ((1u << lane()) - 1));
        u32 before = valid ? counters[warp][digit] : 0;
        __syncwarp();
        if (valid && below == 0) counters[warp][digit] = before + __popc(peers);
        __syncwarp();
        rank[i] = before + below;
    }
    __syncthreads();

    // Where the keys of each warp and digit begin.
    u32 place = places[(u64)threadIdx.x * gridDim.x + blockIdx.x];
    for (u32 w = 0; w < WARPS; w++) {
        u32 count = counters[w][threadIdx.x];
        counters[w][threadIdx.x] = place;
        place += count;
    }
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        u64 at = base + i * WARP;
        if (at >= n) continue;
        u32 to = counters[warp][(u32)(key[i] >> shift) & (DIGITS - 1)] + rank[i];
        keys_out[to] = key[i];
        values_out[to] = values ? values[at] : (u32)at;
    }
}

KERNEL(radix_count_u32)(const u32* keys, u64 n, u32 shift, u32* counts) {
    radix_count(keys, n, shift, counts);
}
KERNEL(radix_count_u64)(const u64* keys, u64 n, u32 shift, u32* counts) {
    radix_count(keys, n, shift, counts);
}
KERNEL(radix_scatter_u32)(const u32* keys, const u32* values, u64 n, u32 shift,
                          const u32* places, u32* keys_out, u32* values_out) {
    radix_scatter(keys, values, n, shift, places, keys_out, values_out);
}
KERNEL(radix_scatter_u64)(const u64* keys, const u32* values, u64 n, u32 shift,
                          const u32* places, u64* keys_out, u32* values_out) {
    radix_scatter(keys, values, n, shift, places, keys_out, values_out);
}

EXPORT(tile_sums_u32)
EXPORT(tile_sums_u64)
EXPORT(scan_sums_u32)
EXPORT(scan_sums_u64)
EXPORT(scan_tiles_u32)
EXPORT(scan_tiles_u64)
EXPORT(radix_count_u32)
EXPORT(radix_count_u64)
EXPORT(radix_scatter_u32)
EXPORT(radix_scatter_u64)
