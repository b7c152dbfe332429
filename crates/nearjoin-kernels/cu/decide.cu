// Pairs that a filter has left open, decided in the arithmetic of the join; and what becomes of matches.
// Compiled with SCALAR_F32 or SCALAR_F64, NORM_SQUARES and WIDTH=0.
//
//     for each pair of the list
//         if it is sure, or its distance is at most the bound
//             count it, for its rows too where they are wanted
//             or append it to the list of matches, or write it to its row
//
// Points lie one after the other, `stride` numbers each. A list that was longer than its room is left
// alone: the host sees that, and asks again for less.
#include "join.cuh"
#include "measure.cuh"

#define SURE 0x80000000u

// `sure` are matches that are not in the list.
KERNEL(decide)(const __grid_constant__ Job job, const uint2* list, u64 capacity, const u64* len,
               const u64* sure) {
    u64 pairs = *len;
    if (pairs > capacity) return;
    bool measure = job.distances || job.list_distances;
    u64 found = 0;
    // Lanes of a warp go on together.
    for (u64 first = thread_number() - lane(); first < pairs; first += (u64)gridDim.x * blockDim.x) {
        u64 at = first + lane();
        bool match = at < pairs;
        u32 row = 0, neighbor = 0;
        Scalar acc = 0;
        if (match) {
            uint2 pair = list[at];
            u32 left = pair.x & ~SURE, right = pair.y;
            row = job.left_rows[left];
            neighbor = job.right_ids[right];
            match = !(job.exclude_self && job.left_ids[left] == neighbor);
            if (match && (measure || !(pair.x & SURE))) {
                const Scalar *x = job.left + left * job.stride, *y = job.right + right * job.stride;
                acc = accumulated(x, y, (u32)job.dim);
                match = acc <= (Scalar)job.bound;
            }
        }
        u32 matches = __ballot_sync(ALL, match);
        if (matches == 0) continue;
        u64 base = 0;
        if (job.list && lane() == 0) base = atomicAdd(job.list_len, (u64)__popc(matches));
        base = __shfl_sync(ALL, base, 0);
        found += match;
        if (!match) continue;
        if (job.degrees) {
            atomicAdd(&job.degrees[row], 1u);
            if (job.mirror) atomicAdd(&job.degrees[neighbor], 1u);
        }
        if (job.list) {
            u64 to = base + __popc(matches & ((1u << lane()) - 1));
            if (to >= job.capacity) continue;
            job.list[to] = make_uint2(row, neighbor);
            if (job.list_distances) job.list_distances[to] = distance(acc);
        } else if (job.ids) {
            u64 to = job.offsets[row] - job.base + atomicAdd(&job.cursors[row], 1u);
            job.ids[to] = neighbor;
            if (job.distances) job.distances[to] = distance(acc);
        }
    }
    __syncwarp();
    for (u32 step = WARP / 2; step > 0; step /= 2) found += __shfl_xor_sync(ALL, found, step);
    if (lane() != 0) return;
    if (thread_number() == 0) found += *sure;
    if (found && job.pairs) atomicAdd(job.pairs, found);
}

EXPORT(decide)
