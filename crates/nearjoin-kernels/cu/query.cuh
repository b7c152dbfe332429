// The join as in the papers: each query looks for its own candidates, with 1 to 32 threads.
//
//     for each query, of which this thread is one of k
//         for each run of candidates in the cells around it
//             test every k-th of them
#pragma once
#include "group.cuh"

template <int MODE> struct Query {
    const Job& job;
    u32 threads, part;
    u32 position, id, row;
    // The coordinates of the query, and how far they lie apart; those of candidates lie so too.
    const Scalar* point;
    u64 pitch, candidate_pitch;
    u32 count;
    u64 cursor;
    u64 tests, pairs;

    __device__ __forceinline__ Query(const Job& job)
        : job(job), threads((u32)job.threads_per_query),
          part((u32)(threadIdx.x % job.threads_per_query)), pitch(job.stride ? 1 : job.left_len),
          candidate_pitch(job.stride ? 1 : job.right_len), tests(0), pairs(0) {}

    __device__ __forceinline__ void run(u32 begin, u32 end) {
        if (begin >= end) return;
        tests += (end - begin - part + threads - 1) / threads;
        if (MODE != WORK) test_all(begin, end);
    }

    __device__ __forceinline__ Scalar accumulated(u32 at) const {
        const Scalar* candidate = job.right + (u64)at * (job.stride ? job.stride : 1);
        Scalar acc = 0, weight = (Scalar)job.weight;
        for (u32 j = 0; j < job.dim; j++)
            acc = step(acc, point[j * pitch], candidate[j * candidate_pitch], weight);
        return acc;
    }

    __device__ __forceinline__ void test_all(u32 begin, u32 end) {
#pragma unroll 1
        for (u32 at = begin + part; at < end; at += threads) {
            Scalar acc = accumulated(at);
            if (!(acc <= (Scalar)job.bound)) continue;
            if (MODE == COUNT) {
                count++;
                if (job.mirror) atomicAdd(&job.degrees[job.right_ids[at]], 1u);
                continue;
            }
            u32 neighbor = job.right_ids[at];
            if (job.exclude_self && neighbor == id) continue;
            if (MODE == FILL) {
                u64 to = job.offsets[row] - job.base;
                to += threads == 1 ? cursor++ : (u64)atomicAdd(&job.cursors[row], 1u);
                job.ids[to] = neighbor;
                if (job.distances) job.distances[to] = distance(acc);
            } else {
                if (job.degrees) atomicAdd(&job.degrees[row], 1u);
                if (job.mirror) atomicAdd(&job.degrees[neighbor], 1u);
                u64 to = atomicAdd(job.list_len, (u64)1);
                if (to >= job.capacity) continue;
                job.list[to] = make_uint2(row, neighbor);
                if (job.list_distances) job.list_distances[to] = distance(acc);
            }
        }
    }

    // The runs of candidates at one place of the search.
    //
    // Patterns that take a row of cells from end to end: one run. Those that look at cell
    // after cell, LINEARCOORD and, in the query's own row, UNICOMP: a run for each.
    __device__ __forceinline__ void place(const Search& search, u32 place) {
        u64 pattern = job.pattern;
        bool by_cell = false, itself = false;
        u64 cells = 0, own_cells = 0, own = 0, first = 0, last = 0;
        if (job.finder == GRID && (pattern == LINEAR || pattern == UNICOMP)) {
            // UNICOMP: a pair of rows belongs to the one whose cell is odd on the first axis
            // on which they differ.
            bool same = true, mine = false;
            u32 rest = place, below = search.places;
            for (u32 a = 0; a < job.grid.axes; a++) {
                const Axis& axis = job.grid.axis[a];
                double x = search.lo[a];
                own = cell_of(axis, x);
                if (a + 1 == job.grid.axes) {
                    first = cell_of(axis, x - job.reach);
                    last = cell_of(axis, x + job.reach);
                    break;
                }
                below /= search.count[a];
                u64 cell = search.first[a] + rest / below;
                rest %= below;
                if (same && cell != own) {
                    same = false;
                    mine = own & 1;
                }
                cells = snake(cells, axis, cell);
                own_cells = snake(own_cells, axis, own);
            }
            if (pattern == UNICOMP && !same && !mine) return;
            by_cell = pattern == LINEAR || same;
        }
        const Axis& along = job.grid.axis[by_cell ? job.grid.axes - 1 : 0];
        u64 own_cell = by_cell ? snake(own_cells, along, own) : 0;
        for (u64 cell = first; cell <= last; cell++) {
            uint2 found;
            if (by_cell) {
                u64 number = snake(cells, along, cell);
                itself = number == own_cell;
                if (!itself && (pattern == LINEAR ? number < own_cell : !(own & 1))) continue;
                found = cells_of_row(job, cells, cell, cell);
            } else {
                found = search.at(job, place);
                cell = last;
            }
            bool later = itself || pattern == LATER || (job.finder != GRID && pattern != EACH);
            u32 begin = later && found.x <= position ? position + 1 : found.x;
            run(begin, found.y);
        }
    }

    __device__ __forceinline__ void unit(u32 unit) {
        position = job.queries ? job.queries[unit] : unit;
        id = job.left_ids[position];
        row = job.left_rows[position];
        point = job.left + (u64)position * (job.stride ? job.stride : 1);
        count = 0;
        cursor = 0;
        u64 before = tests;
        Search search;
        search.around(job, position);
        for (u32 at = search.skip(job, 0); at < search.places; at = search.skip(job, at + 1))
            place(search, at);
        if (MODE == WORK && part == 0) {
            u64 work = (tests - before) * threads;
            job.work[unit] = work < ALL ? (u32)work : ALL;
        }
        if (MODE != COUNT) return;
        // Each finds itself once, and one of its threads takes that back.
        if (job.pattern == EACH && job.exclude_self && part == 0) count--;
        // Sums of the threads' shares, one of which may be −1 on the way.
        pairs += (u64)(long long)(int)count;
        if (job.degrees) {
            if (threads == 1 && job.pattern == EACH)
                job.degrees[row] = count;
            else
                atomicAdd(&job.degrees[row], count);
        }
    }
};

template <int MODE> __device__ __forceinline__ void query(const Job& job) {
    Query<MODE> query(job);
    u32 k = query.threads, leader = lane() / k * k;
    u32 mates = k == WARP ? ALL : ((1u << k) - 1) << leader;
    for (;;) {
        u32 next = (u32)(job.first_unit + thread_number() / k);
        if (job.head) {
            if (query.part == 0) next = atomicAdd(job.head, 1u);
            next = __shfl_sync(mates, next, leader);
        }
        if (next >= job.end_unit) break;
        query.unit(job.units ? job.units[next] : next);
        if (!job.head) break;
    }
    if (MODE == WORK) return;
    // The warp is together again.
    u64 pairs = query.pairs, tests = query.tests;
    __syncwarp();
    for (u32 step = WARP / 2; step > 0; step /= 2) {
        pairs += __shfl_xor_sync(ALL, pairs, step);
        tests += __shfl_xor_sync(ALL, tests, step);
    }
    if (lane() == 0) {
        if (MODE == COUNT && job.pairs) atomicAdd(job.pairs, pairs);
        atomicAdd(job.tests, tests);
    }
}
