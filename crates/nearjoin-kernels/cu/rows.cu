// Pairs into rows, and rows into order. Compiled with SCALAR_F32 or SCALAR_F64.
#include "scalar.cuh"

// ---------------------------------------------------------------- pairs into rows
//
// Rows first..end of those that a list of pairs makes; they begin at `base`. `mirror`: each pair
// stands for both of its directions. `cursors` say where the next neighbour of each row goes.

struct Rows {
    u64 first, end, base;
    u64* cursors;
    u32* ids;
    Scalar* distances;

    __device__ __forceinline__ void add(u32 row, u32 neighbor, Scalar distance) const {
        if (row < first || row >= end) return;
        u64 to = atomicAdd(&cursors[row], 1ull) - base;
        ids[to] = neighbor;
        if (distances) distances[to] = distance;
    }
};

KERNEL(pair_rows)(const uint2* list, const Scalar* list_distances, u64 n, u32 mirror, Rows rows) {
    u64 at = thread_number();
    if (at >= n) return;
    uint2 pair = list[at];
    Scalar distance = rows.distances ? list_distances[at] : Scalar(0);
    rows.add(pair.x, pair.y, distance);
    if (mirror) rows.add(pair.y, pair.x, distance);
}

// Every row with itself.
KERNEL(self_rows)(Rows rows) {
    u64 row = rows.first + thread_number();
    if (row < rows.end) rows.add((u32)row, (u32)row, Scalar(0));
}

KERNEL(copy_u64)(const u64* from, u64 n, u64* to) {
    u64 at = thread_number();
    if (at < n) to[at] = from[at];
}

// Large first: what is left to the largest number.
KERNEL(invert)(u32* values, u64 n) {
    u64 at = thread_number();
    if (at < n) values[at] = ~values[at];
}

// The batch of each query: the first whose rows end behind its own.
KERNEL(query_batches)(const u32* left_rows, u64 n, const u32* ends, u32 batches, u32* keys) {
    u64 at = thread_number();
    if (at >= n) return;
    u32 row = left_rows[at], batch = 0, size = batches;
    while (size > 0) {
        u32 half = size / 2;
        if (ends[batch + half] <= row) {
            batch += half + 1;
            size -= half + 1;
        } else {
            size = half;
        }
    }
    keys[at] = batch;
}

// ---------------------------------------------------------------- rows into order

// Ids ascending within each row of first..first + rows, distances with them: a warp to a
// row. Rows of more than SORTED are left as they are.
#define SORTED 512u
#define SORT_WARPS 4u

KERNEL(sort_rows)(const u64* offsets, u64 first, u64 rows, u64 base, u32* ids,
                  Scalar* distances) {
    __shared__ u64 keys_of[SORT_WARPS][SORTED];
    __shared__ Scalar distances_of[SORT_WARPS][SORTED];
    u32 warp = threadIdx.x / WARP;
    u64* keys = keys_of[warp];
    u64 row = thread_number() / WARP;
    if (row >= rows) return;
    u64 begin = offsets[first + row] - base;
    u64 length = offsets[first + row + 1] - base - begin;
    if (length < 2 || length > SORTED) return;
    u32 size = 2;
    while (size < length) size *= 2;
    // The place in the row stands below the id, to find the distance by.
    for (u32 i = lane(); i < size; i += WARP) {
        keys[i] = i < length ? (u64)ids[begin + i] << 32 | i : ~0ull;
        if (distances && i < length) distances_of[warp][i] = distances[begin + i];
    }
    __syncwarp();
    for (u32 run = 2; run <= size; run *= 2) {
        for (u32 gap = run / 2; gap > 0; gap /= 2) {
            for (u32 i = lane(); i < size / 2; i += WARP) {
                u32 a = i / gap * 2 * gap + i % gap, b = a + gap;
                bool up = (a & run) == 0;
                u64 x = keys[a], y = keys[b];
                if ((x > y) == up) {
                    keys[a] = y;
                    keys[b] = x;
                }
            }
            __syncwarp();
        }
    }
    for (u32 i = lane(); i < length; i += WARP) {
        ids[begin + i] = (u32)(keys[i] >> 32);
        if (distances) distances[begin + i] = distances_of[warp][(u32)keys[i]];
    }
}

EXPORT(pair_rows)
EXPORT(self_rows)
EXPORT(copy_u64)
EXPORT(invert)
EXPORT(query_batches)
EXPORT(sort_rows)
