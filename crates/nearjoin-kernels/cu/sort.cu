// Running sums over arrays, and a stable radix sort of keys with values.
//
// The sort goes over the keys from their lowest digit, of up to eight bits, to the highest. For
// each digit: `radix_count` counts the digits of each tile of keys, the running sums of the
// counts, digit after digit and within one tile after tile, say where each tile's keys of a
// digit go, and `radix_scatter` puts them there, equal digits in the order in which they came.
//
// The keys are read twice for a digit. A sort in which tiles tell each other their counts reads
// them once, a fifth less traffic, but its tiles wait for each other.
#include "device.cuh"
#include "scan.cuh"

#define THREADS 256u
#define ITEMS 16u
#define TILE (THREADS * ITEMS)
#define DIGITS 256u

// ---------------------------------------------------------------- running sums
//
// Where an element of a tile lies in shared memory: with a gap after every 32, so that the
// elements that the lanes of a warp have at the same time, ITEMS apart, are in different banks.
__device__ __forceinline__ u32 spread(u32 at) { return at + at / WARP; }

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

// Each thread has ITEMS elements in a row, so that one sum per thread is enough. They go through
// shared memory, so that threads next to each other read and write next to each other.
template <class Sum>
__device__ __forceinline__ void scan_tiles(const u32* in, u64 n, const Sum* sums, Sum* out) {
    __shared__ Sum staged[TILE + TILE / WARP];
    u64 base = (u64)blockIdx.x * TILE;
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        u32 at = i * THREADS + threadIdx.x;
        staged[spread(at)] = base + at < n ? in[base + at] : 0;
    }
    __syncthreads();
    Sum values[ITEMS], sum = 0, total;
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        values[i] = staged[spread(threadIdx.x * ITEMS + i)];
        sum += values[i];
    }
    Sum before = sums[blockIdx.x] + block_exclusive(sum, total);
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        staged[spread(threadIdx.x * ITEMS + i)] = before;
        before += values[i];
    }
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        u32 at = i * THREADS + threadIdx.x;
        if (base + at <= n) out[base + at] = staged[spread(at)];
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

// A digit is the bits of a key from `shift` on that `mask` has.
template <class Key> __device__ __forceinline__ u32 digit_of(Key key, u32 shift, u32 mask) {
    return (u32)(key >> shift) & mask;
}

// The lanes of the warp with the same digit. Votes on its bits are faster than
// __match_any_sync; those on bits that no digit has are cheaper than to ask whether it has them.
__device__ __forceinline__ u32 lanes_with(u32 digit) {
    u32 lanes = ALL;
#pragma unroll
    for (u32 bit = 1; bit < DIGITS; bit *= 2) {
        u32 set = __ballot_sync(ALL, digit & bit);
        lanes &= digit & bit ? set : ~set;
    }
    return lanes;
}

// Keys of a tile that each thread has: `TILE` of sort.rs. As many as registers and shared memory
// have room for, so that the runs of digits are long.
const u32 PER_THREAD_U32 = 24, PER_THREAD_U64 = 16;

// counts[digit * tiles + tile]
template <class Key, u32 PER_THREAD>
__device__ __forceinline__ void radix_count(const Key* keys, u64 n, u32 shift, u32 mask,
                                            u32* counts) {
    const u32 SIZE = THREADS * PER_THREAD;
    __shared__ u32 histogram[DIGITS];
    histogram[threadIdx.x] = 0;
    __syncthreads();
    u64 base = (u64)blockIdx.x * SIZE + threadIdx.x;
    Key key[PER_THREAD];
#pragma unroll
    for (u32 i = 0; i < PER_THREAD; i++) {
        u64 at = base + i * THREADS;
        key[i] = at < n ? keys[at] : Key(0);
    }
#pragma unroll
    for (u32 i = 0; i < PER_THREAD; i++)
        if (base + i * THREADS < n) atomicAdd(&histogram[digit_of(key[i], shift, mask)], 1u);
    __syncthreads();
    if (threadIdx.x <= mask)
        counts[(u64)threadIdx.x * gridDim.x + blockIdx.x] = histogram[threadIdx.x];
}

// `places` are the running sums of `counts`. Without `values`, the value of a key is its
// place.
//
//   rank each key of the tile among those of its digit
//   put the keys in shared memory, digit after digit
//   copy them out: keys of one digit are one run there and here
//   the same with the values
//
// What the last tile lacks are keys with all bits set: they come last in the tile, and are not
// copied out.
template <class Key, u32 PER_THREAD>
__device__ __forceinline__ void radix_scatter(const Key* keys, const u32* values, u64 n,
                                              u32 shift, u32 mask, const u32* places,
                                              Key* keys_out, u32* values_out) {
    const u32 WARPS = THREADS / WARP, SIZE = THREADS * PER_THREAD;
    __shared__ u32 counters[WARPS][DIGITS];
    // From a place in the tile to the place in the output, for each digit; it may wrap around.
    __shared__ u32 moves[DIGITS];
    __shared__ union {
        Key key[SIZE];
        u32 value[SIZE];
    } staged;
    u32 warp = threadIdx.x / WARP;
    for (u32 w = 0; w < WARPS; w++) counters[w][threadIdx.x] = 0;

    // Each warp has PER_THREAD * 32 keys in a row.
    u64 base = (u64)blockIdx.x * SIZE;
    u32 size = n - base < SIZE ? (u32)(n - base) : SIZE;
    u32 own = warp * (WARP * PER_THREAD) + lane();
    Key key[PER_THREAD];
    u32 place[PER_THREAD];
#pragma unroll
    for (u32 i = 0; i < PER_THREAD; i++) {
        u32 at = own + i * WARP;
        key[i] = at < size ? keys[base + at] : ~Key(0);
    }
    __syncthreads();
    // The rank of a key among those of its digit: those of the warp's earlier rounds, and those
    // of lower lanes. Few keys take few rounds.
#pragma unroll
    for (u32 i = 0; i < PER_THREAD; i++) {
        if (own - lane() + i * WARP >= size) break;
        u32 digit = digit_of(key[i], shift, mask);
        u32 peers = lanes_with(digit);
        u32 below = __popc(peers & ((1u << lane()) - 1));
        u32 before = counters[warp][digit];
        __syncwarp();
        if (below == 0) counters[warp][digit] = before + __popc(peers);
        __syncwarp();
        place[i] = before + below;
    }
    __syncthreads();

    // Where the keys of each warp and digit begin.
    u32 count = 0, total;
    for (u32 w = 0; w < WARPS; w++) count += counters[w][threadIdx.x];
    u32 begin = block_exclusive(count, total);
    if (threadIdx.x <= mask)
        moves[threadIdx.x] = places[(u64)threadIdx.x * gridDim.x + blockIdx.x] - begin;
    for (u32 w = 0; w < WARPS; w++) {
        u32 of_warp = counters[w][threadIdx.x];
        counters[w][threadIdx.x] = begin;
        begin += of_warp;
    }
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < PER_THREAD; i++) {
        if (own + i * WARP >= size) break;
        place[i] += counters[warp][digit_of(key[i], shift, mask)];
        staged.key[place[i]] = key[i];
    }
    // On their way while the keys leave.
    u32 value[PER_THREAD], to[PER_THREAD];
#pragma unroll
    for (u32 i = 0; i < PER_THREAD; i++) {
        u32 at = own + i * WARP;
        value[i] = !values ? (u32)base + at : at < size ? values[base + at] : 0;
    }
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < PER_THREAD; i++) {
        u32 at = i * THREADS + threadIdx.x;
        to[i] = moves[digit_of(staged.key[at], shift, mask)] + at;
        if (at < size) keys_out[to[i]] = staged.key[at];
    }
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < PER_THREAD; i++)
        if (own + i * WARP < size) staged.value[place[i]] = value[i];
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < PER_THREAD; i++) {
        u32 at = i * THREADS + threadIdx.x;
        if (at < size) values_out[to[i]] = staged.value[at];
    }
}

// Without its number of threads, a kernel would get registers for the most that a block can have.
#define SORT_KERNEL(name) KERNEL(__launch_bounds__(THREADS) name)

SORT_KERNEL(radix_count_u32)(const u32* keys, u64 n, u32 shift, u32 mask, u32* counts) {
    radix_count<u32, PER_THREAD_U32>(keys, n, shift, mask, counts);
}
SORT_KERNEL(radix_count_u64)(const u64* keys, u64 n, u32 shift, u32 mask, u32* counts) {
    radix_count<u64, PER_THREAD_U64>(keys, n, shift, mask, counts);
}
SORT_KERNEL(radix_scatter_u32)(const u32* keys, const u32* values, u64 n, u32 shift, u32 mask,
                               const u32* places, u32* keys_out, u32* values_out) {
    radix_scatter<u32, PER_THREAD_U32>(keys, values, n, shift, mask, places, keys_out,
                                       values_out);
}
SORT_KERNEL(radix_scatter_u64)(const u64* keys, const u32* values, u64 n, u32 shift, u32 mask,
                               const u32* places, u64* keys_out, u32* values_out) {
    radix_scatter<u64, PER_THREAD_U64>(keys, values, n, shift, mask, places, keys_out,
                                       values_out);
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
