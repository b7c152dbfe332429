// The candidates of a box of queries, as runs of positions on the right.
//
// A warp looks for them together: each lane looks at one row of cells, or one part of the
// directory, at a time, and the runs are then visited one after the other by all lanes.
#pragma once
#include "join.cuh"

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
__device__ __forceinline__ uint2 cells_of_row(const Job& job, u64 row, u64 first, u64 last) {
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

// The box of some queries on the dimensions of the index, axes of the grid or levels of the
// directory, and what it means for a search: the places to look at, rows of cells within reach,
// parts of the directory, or everything at once.
//
// It lies in shared memory, one for each warp: in registers it would leave room for few warps.
// Its larger functions are not inlined: the kernels of a module share them, and what they cost
// is spread over all candidates of a run.
struct Search {
    double lo[MAX_AXES], hi[MAX_AXES];
    // The grid: the first cell and the number of cells on each slow axis.
    u32 first[MAX_AXES], count[MAX_AXES];
    // How many places there are.
    u32 places;
    // The directory: parts of the last level in one of the first.
    u32 family;

    // Makes this the search of `queries` lanes from lane `from` on, a power of two, each of
    // which has a query. All lanes of the warp. Gives how much more space is within reach of
    // their box than of a point.
    __device__ __noinline__ double around(const Job& job, u32 position, u32 from, u32 queries) {
        u32 indexed = (u32)(job.finder == GRID ? job.grid.axes : job.finder == DIRECTORY ? job.levels : 0);
        double loose = 1.0;
        u32 all = 1;
        __syncwarp();
        for (u32 a = 0; a < indexed; a++) {
            u32 j = (u32)(job.finder == GRID ? job.grid.axis[a].dim : job.level_dim[a]);
            double least = (double)left_coordinate(job, position, j), most = least;
            for (u32 bit = 1; bit < queries; bit *= 2) {
                double other = __shfl_xor_sync(ALL, least, bit);
                least = other < least ? other : least;
                other = __shfl_xor_sync(ALL, most, bit);
                most = other > most ? other : most;
            }
            least = __shfl_sync(ALL, least, from);
            most = __shfl_sync(ALL, most, from);
            u32 begin = 0, cells = 1;
            if (job.finder == GRID) {
                const Axis& axis = job.grid.axis[a];
                double alone = axis.width + 2.0 * job.reach, more = most - least + 2.0 * job.reach;
                if (axis.cells > 1 && more > alone) loose *= more / alone;
                if (a + 1 < indexed) {
                    begin = (u32)cell_of(axis, least - job.reach);
                    cells = (u32)cell_of(axis, most + job.reach) - begin + 1;
                    all *= cells;
                }
            }
            if (lane() == 0) {
                lo[a] = least;
                hi[a] = most;
                first[a] = begin;
                count[a] = cells;
            }
        }
        if (lane() == 0) set_places(job, all);
        __syncwarp();
        return loose;
    }

    // Makes this the search of one query, on its own.
    __device__ __noinline__ void around(const Job& job, u32 position) {
        u32 indexed = (u32)(job.finder == GRID ? job.grid.axes : job.finder == DIRECTORY ? job.levels : 0);
        u32 all = 1;
        for (u32 a = 0; a < indexed; a++) {
            u32 j = (u32)(job.finder == GRID ? job.grid.axis[a].dim : job.level_dim[a]);
            lo[a] = hi[a] = (double)left_coordinate(job, position, j);
            if (job.finder != GRID || a + 1 == indexed) continue;
            const Axis& axis = job.grid.axis[a];
            first[a] = (u32)cell_of(axis, lo[a] - job.reach);
            count[a] = (u32)cell_of(axis, hi[a] + job.reach) - first[a] + 1;
            all *= count[a];
        }
        set_places(job, all);
    }

    __device__ __forceinline__ void set_places(const Job& job, u32 rows) {
        family = 1;
        places = rows;
        if (job.finder != DIRECTORY) return;
        for (u32 l = 1; l < job.levels; l++) family *= (u32)job.fanout;
        places = family * (u32)job.fanout;
    }

    // The run at one place; none where it is beyond reach.
    __device__ __noinline__ uint2 at(const Job& job, u32 place) const {
        uint2 none = make_uint2(0, 0);
        if (place >= places) return none;
        if (job.finder == GRID) return row(job, place);
        if (job.finder == BRUTE) return make_uint2(0, (u32)job.right_len);
        if (!part_in_reach(job, place)) return none;
        return make_uint2((u32)((u64)place * job.right_len / places),
                          (u32)(((u64)place + 1) * job.right_len / places));
    }

    // The first place from `place` on that is worth a look.
    __device__ __forceinline__ u32 skip(const Job& job, u32 place) const {
        if (job.finder != DIRECTORY) return place;
        while (place < places && !near(job, 0, 0, place / family))
            place = (place / family + 1) * family;
        return place;
    }

    // A row of cells, by its number in the window: the cell on each slow axis is a digit.
    __device__ __forceinline__ uint2 row(const Job& job, u32 place) const {
        u32 below = places;
        u64 row = 0;
        double acc = 0.0;
        u32 along = (u32)job.grid.axes - 1;
        for (u32 a = 0; a < along; a++) {
            const Axis& axis = job.grid.axis[a];
            below /= count[a];
            u32 digit = place / below;
            place -= digit * below;
            u64 cell = first[a] + digit;
            // The edge of the cell that faces the box. The end cells have no end: what lies
            // beyond the grid, points and boxes, belongs to them.
            double gap = 0.0;
            if (cell + 1 < axis.cells && lo[a] > edge(axis, cell + 1))
                gap = lo[a] - edge(axis, cell + 1) - axis.slack;
            else if (cell > 0 && hi[a] < edge(axis, cell))
                gap = edge(axis, cell) - hi[a] - axis.slack;
            acc = widen(acc, gap > 0.0 ? gap : 0.0, job.weight);
            row = snake(row, axis, cell);
        }
        if (acc > job.limit) return make_uint2(0, 0);
        double reach = left_over(job.limit, acc, job.weight);
        reach = reach < job.reach ? reach : job.reach;
        const Axis& axis = job.grid.axis[along];
        return cells_of_row(job, row, cell_of(axis, lo[along] - reach),
                            cell_of(axis, hi[along] + reach));
    }

    // Whether a part of the last level, and all that hold it, are within reach of the box.
    __device__ __forceinline__ bool part_in_reach(const Job& job, u32 part) const {
        u32 base = 0, parts = (u32)job.fanout, above = family;
        for (u32 l = 0; l < job.levels; l++) {
            if (!near(job, l, base, part / above)) return false;
            base += parts;
            parts *= (u32)job.fanout;
            above = above > job.fanout ? above / (u32)job.fanout : 1;
        }
        return true;
    }

    __device__ __forceinline__ bool near(const Job& job, u32 level, u32 base, u32 part) const {
        return (double)job.part_lo[base + part] <= hi[level] + job.reach &&
               (double)job.part_hi[base + part] >= lo[level] - job.reach;
    }
};

// Calls visit(begin, end) for every run with a point within reach; all lanes of the warp, with
// the same runs. Runs begin at `floor` at the earliest.
template <class Visit>
__device__ __forceinline__ void find(const Job& job, const Search& search, u32 floor,
                                     Visit& visit) {
    for (u32 base = search.skip(job, 0); base < search.places;
         base = search.skip(job, base + WARP)) {
        uint2 run = search.at(job, base + lane());
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
