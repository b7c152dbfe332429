// The candidates of a box of queries, as runs of positions on the right.
//
// A warp looks for them together: each lane looks at one row of cells, or one part of the
// directory, at a time, and the runs are then visited one after the other by all lanes.
#pragma once
#include "join.cuh"

// Slow axes that a grid may have in this dimension: what the compiler must unroll for.
#if DIM > 0 && DIM < MAX_AXES
#define SLOW_AXES (DIM - 1)
#else
#define SLOW_AXES (MAX_AXES - 1)
#endif
// Dimensions of the index, of any kind, that a box is bounded on.
#define BOXED (SLOW_AXES + 1)

// The box of some queries on the dimensions of the index: axes of the grid or levels of the
// directory.
struct Box {
    double lo[BOXED], hi[BOXED];

    // The box of one query.
    __device__ __noinline__ Box(const Job& job, u32 position) {
        u32 indexed = (u32)(job.finder == GRID ? job.grid.axes : job.finder == DIRECTORY ? job.levels : 0);
        for (u32 a = 0; a < BOXED; a++) {
            lo[a] = hi[a] = 0.0;
            if (a >= indexed) continue;
            u32 j = (u32)(job.finder == GRID ? job.grid.axis[a].dim : job.level_dim[a]);
            lo[a] = hi[a] = (double)coordinate(job.left, job.left_len, position, j);
        }
    }

    // The box of this and that of the lane whose number differs in one bit.
    __device__ __noinline__ void join(u32 bit) {
        for (u32 a = 0; a < BOXED; a++) {
            double other = __shfl_xor_sync(ALL, lo[a], bit);
            lo[a] = other < lo[a] ? other : lo[a];
            other = __shfl_xor_sync(ALL, hi[a], bit);
            hi[a] = other > hi[a] ? other : hi[a];
        }
    }

    // The box of another lane.
    __device__ __noinline__ void take(u32 source) {
        for (u32 a = 0; a < BOXED; a++) {
            lo[a] = __shfl_sync(ALL, lo[a], source);
            hi[a] = __shfl_sync(ALL, hi[a], source);
        }
    }

    // How much more space is within reach of the box than of a point.
    __device__ __noinline__ double looseness(const Job& job) const {
        double loose = 1.0;
        for (u32 a = 0; a < job.grid.axes; a++) {
            if (job.grid.axis[a].cells == 1) continue;
            double alone = job.grid.axis[a].width + 2.0 * job.reach;
            double more = hi[a] - lo[a] + 2.0 * job.reach;
            if (more > alone) loose *= more / alone;
        }
        return loose;
    }
};

// The first of `len` ascending cells that is at least `cell`.
__device__ __forceinline__ u64 lower_bound(const u64* cells, u64 len, u64 cell) {
    u64 lo = 0;
    while (len > 0) {
        u64 half = len / 2;
        if (cells[lo + half] < cell) {
            lo += half + 1;
            len -= half + 1;
        } else {
            len = half;
        }
    }
    return lo;
}

// The positions of the cells first..=last along a row.
__device__ __noinline__ uint2 cells_of_row(const Job& job, u64 row, u64 first, u64 last) {
    const Axis& along = job.grid.axis[job.grid.axes - 1];
    u64 from = snake(row, along, first), to = snake(row, along, last);
    if (row & 1) {
        u64 swap = from;
        from = to;
        to = swap;
    }
    if (job.cells) {
        u64 begin = lower_bound(job.cells, job.cell_count, from);
        u64 end = begin + lower_bound(job.cells + begin, job.cell_count - begin, to + 1);
        return make_uint2(job.starts[begin], job.starts[end]);
    }
    return make_uint2(job.starts[from], job.starts[to + 1]);
}

// What a search looks at one after the other: rows of cells within reach, parts of the
// directory, or everything at once.
//
// Its larger functions are not inlined: the kernels of a module share them, and what they
// cost is spread over all candidates of a run.
struct Search {
    const Job& job;
    Box box;
    // How many there are.
    u32 places;
    // The grid: the first cell and the number of cells on each slow axis.
    u32 first[SLOW_AXES + 1], count[SLOW_AXES + 1];
    // The directory: parts of the last level in one of the first.
    u32 family;

    __device__ __noinline__ Search(const Job& job, const Box& box)
        : job(job), box(box), places(1), family(1) {
        if (job.finder == GRID) {
            for (u32 a = 0; a + 1 < job.grid.axes; a++) {
                const Axis& axis = job.grid.axis[a];
                first[a] = (u32)cell_of(axis, box.lo[a] - job.reach);
                count[a] = (u32)cell_of(axis, box.hi[a] + job.reach) - first[a] + 1;
                places *= count[a];
            }
        } else if (job.finder == DIRECTORY) {
            for (u32 l = 1; l < job.levels; l++) family *= (u32)job.fanout;
            places = family * (u32)job.fanout;
        }
    }

    // The run at one place; none where it is beyond reach.
    __device__ __noinline__ uint2 at(u32 place) const {
        uint2 none = make_uint2(0, 0);
        if (place >= places) return none;
        if (job.finder == GRID) return row(place);
        if (job.finder == BRUTE) return make_uint2(0, (u32)job.right_len);
        if (!part_in_reach(place)) return none;
        return make_uint2((u32)((u64)place * job.right_len / places),
                          (u32)(((u64)place + 1) * job.right_len / places));
    }

    // The first place from `place` on that is worth a look.
    __device__ __noinline__ u32 skip(u32 place) const {
        if (job.finder != DIRECTORY) return place;
        while (place < places && !near(0, 0, place / family)) place = (place / family + 1) * family;
        return place;
    }

    // A row of cells, by its number in the window: the cell on each slow axis is a digit.
    __device__ __forceinline__ uint2 row(u32 place) const {
        u32 below = places;
        u64 row = 0;
        double acc = 0.0;
        for (u32 a = 0; a + 1 < job.grid.axes; a++) {
            const Axis& axis = job.grid.axis[a];
            below /= count[a];
            u32 digit = place / below;
            place -= digit * below;
            u64 cell = first[a] + digit;
            // The edge of the cell that faces the box. The end cells reach beyond their
            // edges, but only outwards.
            double before = box.lo[a] - edge(axis, cell + 1), after = edge(axis, cell) - box.hi[a];
            double gap = (before > after ? before : after) - axis.slack;
            acc = widen(acc, gap > 0.0 ? gap : 0.0);
            row = snake(row, axis, cell);
        }
        if (acc > job.limit) return make_uint2(0, 0);
        double reach = left_over(job.limit, acc);
        reach = reach < job.reach ? reach : job.reach;
        u32 along = (u32)job.grid.axes - 1;
        const Axis& axis = job.grid.axis[along];
        return cells_of_row(job, row, cell_of(axis, box.lo[along] - reach),
                            cell_of(axis, box.hi[along] + reach));
    }

    // Whether a part of the last level, and all that hold it, are within reach of the box.
    __device__ __forceinline__ bool part_in_reach(u32 part) const {
        u32 base = 0, parts = (u32)job.fanout, above = family;
        for (u32 l = 0; l < job.levels; l++) {
            if (!near(l, base, part / above)) return false;
            base += parts;
            parts *= (u32)job.fanout;
            above = above > job.fanout ? above / (u32)job.fanout : 1;
        }
        return true;
    }

    __device__ __forceinline__ bool near(u32 level, u32 base, u32 part) const {
        return (double)job.part_lo[base + part] <= box.hi[level] + job.reach &&
               (double)job.part_hi[base + part] >= box.lo[level] - job.reach;
    }
};

// Calls visit(begin, end) for every run with a point within reach of the box; all lanes of
// the warp, with the same runs. Runs begin at `floor` at the earliest.
template <class Visit>
__device__ __forceinline__ void find(const Job& job, const Box& box, u32 floor, Visit& visit) {
    Search search(job, box);
    for (u32 base = search.skip(0); base < search.places; base = search.skip(base + WARP)) {
        uint2 run = search.at(base + lane());
        u32 begin = run.x > floor ? run.x : floor, end = run.y;
        u32 found = __ballot_sync(ALL, begin < end);
        while (found) {
            u32 source = __ffs(found) - 1;
            found &= found - 1;
            u32 from = __shfl_sync(ALL, begin, source), to = __shfl_sync(ALL, end, source);
            visit(from, to);
        }
    }
}
