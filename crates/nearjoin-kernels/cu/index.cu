// Building indexes: keys, cells, points in the order of an index, and the quantile directory.
//
// Compiled with SCALAR_F32 or SCALAR_F64.
#include "device.cuh"
#include "grid.cuh"
#include "scan.cuh"
#include "scalar.cuh"

// ---------------------------------------------------------------- the grid

// The number of the cell and, below it, `fine` bits for each axis of the place within: bit by
// bit, all axes in turn, so that points that follow each other in a crowded cell are close.
template <class Key>
__device__ __forceinline__ void cell_keys(const Scalar* points, u64 n, u32 dim, const Grid& grid,
                                          u32 fine, Key* keys) {
    u64 row = thread_number();
    if (row >= n) return;
    u64 key = 0;
    // Loops of a known length, so that this stays in registers.
    u32 within[MAX_AXES];
#pragma unroll
    for (u32 a = 0; a < MAX_AXES; a++) {
        if (a >= grid.axes) break;
        const Axis& axis = grid.axis[a];
        double x = (double)points[row * dim + axis.dim];
        u64 cell = cell_of(axis, x);
        double place = ((x - axis.origin) * axis.per_unit - (double)cell) * (double)(1u << fine);
        double last = (double)((1u << fine) - 1);
        place = place > 0.0 ? place : 0.0;
        within[a] = (u32)(place < last ? place : last);
        key = snake(key, axis, cell);
    }
    for (u32 bit = fine; bit > 0; bit--) {
#pragma unroll
        for (u32 a = 0; a < MAX_AXES; a++)
            if (a < grid.axes) key = key << 1 | (within[a] >> (bit - 1) & 1);
    }
    keys[row] = (Key)key;
}

KERNEL(cell_keys_u32)(const Scalar* points, u64 n, u32 dim, Grid grid, u32 fine, u32* keys) {
    cell_keys(points, n, dim, grid, fine, keys);
}
KERNEL(cell_keys_u64)(const Scalar* points, u64 n, u32 dim, Grid grid, u32 fine, u64* keys) {
    cell_keys(points, n, dim, grid, fine, keys);
}

// Keys in ascending order are those of cells above their lowest `fine` bits.

// The number of points of each cell. `counts` is all zero. Only the first and the last point of
// a cell say something: sums that wrap around on the way.
template <class Key>
__device__ __forceinline__ void cell_counts(const Key* keys, u64 n, u32 fine, u32* counts) {
    u64 at = thread_number();
    if (at >= n) return;
    Key cell = keys[at] >> fine;
    if (at == 0 || keys[at - 1] >> fine != cell) atomicAdd(&counts[cell], 0u - (u32)at);
    if (at + 1 == n || keys[at + 1] >> fine != cell) atomicAdd(&counts[cell], (u32)at + 1);
}

KERNEL(cell_counts_u32)(const u32* keys, u64 n, u32 fine, u32* counts) {
    cell_counts(keys, n, fine, counts);
}
KERNEL(cell_counts_u64)(const u64* keys, u64 n, u32 fine, u32* counts) {
    cell_counts(keys, n, fine, counts);
}

// Whether a cell begins at each position.
template <class Key>
__device__ __forceinline__ void cell_begins(const Key* keys, u64 n, u32 fine, u32* begins) {
    u64 at = thread_number();
    if (at < n) begins[at] = at == 0 || keys[at - 1] >> fine != keys[at] >> fine;
}

// The non-empty cells and where they begin: `ranks` are the running sums of `begins`. The
// list ends with a cell beyond all others.
template <class Key>
__device__ __forceinline__ void cell_list(const Key* keys, u64 n, u32 fine, const u32* ranks, u64* cells,
                                          u32* starts) {
    u64 at = thread_number();
    if (at == 0) {
        cells[ranks[n]] = ~0ull;
        starts[ranks[n]] = (u32)n;
    }
    if (at >= n || ranks[at + 1] == ranks[at]) return;
    cells[ranks[at]] = keys[at] >> fine;
    starts[ranks[at]] = (u32)at;
}

KERNEL(cell_begins_u32)(const u32* keys, u64 n, u32 fine, u32* begins) {
    cell_begins(keys, n, fine, begins);
}
KERNEL(cell_begins_u64)(const u64* keys, u64 n, u32 fine, u32* begins) {
    cell_begins(keys, n, fine, begins);
}
KERNEL(cell_list_u32)(const u32* keys, u64 n, u32 fine, const u32* ranks, u64* cells,
                      u32* starts) {
    cell_list(keys, n, fine, ranks, cells, starts);
}
KERNEL(cell_list_u64)(const u64* keys, u64 n, u32 fine, const u32* ranks, u64* cells,
                      u32* starts) {
    cell_list(keys, n, fine, ranks, cells, starts);
}

// ---------------------------------------------------------------- points in index order

// Two numbers that are loaded and stored as one.
template <class T> struct __align__(2 * sizeof(T)) Pair {
    T first, second;
};

// Point after point, `stride` numbers each, an even number; what is beyond `dim` is 0. A thread
// takes two numbers of a point, which has 2^`shift` threads, as many as it needs or more.
template <class To, class Convert>
__device__ __forceinline__ void gather(const Scalar* points, u64 n, u32 dim, u32 stride,
                                       u32 shift, const u32* order, To* out, Convert convert) {
    u64 place = thread_number() >> shift;
    u32 j = 2 * ((u32)thread_number() & ((1u << shift) - 1));
    if (place >= n || j >= stride) return;
    const Scalar* from = points + (u64)order[place] * dim + j;
    Pair<Scalar> pair = {Scalar(0), Scalar(0)};
    // Rows of an odd number of coordinates do not begin where two can be loaded as one.
    if (dim % 2 == 0 && j < dim) {
        pair = *(const Pair<Scalar>*)from;
    } else {
        if (j < dim) pair.first = from[0];
        if (j + 1 < dim) pair.second = from[1];
    }
    Pair<To> converted;
    converted.first = j < dim ? convert(pair.first, j) : To(0);
    converted.second = j + 1 < dim ? convert(pair.second, j + 1) : To(0);
    *(Pair<To>*)(out + place * stride + j) = converted;
}

KERNEL(gather_points)(const Scalar* points, u64 n, u32 dim, u32 stride, u32 shift,
                      const u32* order, Scalar* out) {
    gather(points, n, dim, stride, shift, order, out, [](Scalar x, u32) { return x; });
}

// Column after column.
KERNEL(gather_columns)(const Scalar* points, u64 n, u32 dim, const u32* order, Scalar* out) {
    u64 at = thread_number();
    u64 j = at / n, place = at % n;
    if (j < dim) out[at] = points[(u64)order[place] * dim + j];
}

// Single precision, relative to an origin: as `gather_points`.
KERNEL(gather_narrow)(const Scalar* points, u64 n, u32 dim, u32 stride, u32 shift,
                      const u32* order, const double* origin, float* out) {
    gather(points, n, dim, stride, shift, order, out,
           [=](Scalar x, u32 j) { return (float)((double)x - origin[j]); });
}

// The boxes of every 32 points, `stride` numbers each: least coordinates, greatest, and so on.
// A warp to a box; the last one may have fewer points.
template <class L>
__device__ __forceinline__ void boxes_of(const L* points, u64 n, u32 stride, L* boxes) {
    u64 box = thread_number() / WARP, at = box * WARP + lane();
    if (box * WARP >= n) return;
    if (at >= n) at = n - 1;
    for (u32 j = 0; j < stride; j++) {
        L least = points[at * stride + j], most = least;
        for (u32 step = WARP / 2; step > 0; step /= 2) {
            L other = __shfl_xor_sync(ALL, least, step);
            least = other < least ? other : least;
            other = __shfl_xor_sync(ALL, most, step);
            most = other > most ? other : most;
        }
        if (lane() == 0) {
            boxes[2 * box * stride + j] = least;
            boxes[(2 * box + 1) * stride + j] = most;
        }
    }
}

KERNEL(point_boxes)(const Scalar* points, u64 n, u32 stride, Scalar* boxes) {
    boxes_of(points, n, stride, boxes);
}
KERNEL(narrow_boxes)(const float* points, u64 n, u32 stride, float* boxes) {
    boxes_of(points, n, stride, boxes);
}

// Values of an array in an order.
KERNEL(gather_u32)(const u32* values, u64 n, const u32* order, u32* out) {
    u64 at = thread_number();
    if (at < n) out[at] = values[order[at]];
}

// The order in which the rows came.
KERNEL(identity)(u64 n, u32* order) {
    u64 at = thread_number();
    if (at < n) order[at] = (u32)at;
}

// ---------------------------------------------------------------- the quantile directory

// Bits that ascend with one coordinate of the rows of an order; −0 equals +0.
KERNEL(coordinate_keys)(const Scalar* points, u64 n, u32 dim, u32 j, const u32* order,
                        Bits* keys) {
    u64 at = thread_number();
    if (at < n) keys[at] = order_bits(points[(u64)order[at] * dim + j]);
}

// Part `k` of `parts` is the positions from k·n/parts on.
KERNEL(assign_parts)(const u32* order, u64 n, u64 parts, u32* part_of_row) {
    u64 at = thread_number();
    if (at >= n) return;
    // The last part that begins at or before this position.
    u64 part = (at * parts + parts - 1) / n;
    while (part >= parts || part * n / parts > at) part--;
    while (part + 1 < parts && (part + 1) * n / parts <= at) part++;
    part_of_row[order[at]] = (u32)part;
}

// The extent of each part in one coordinate: a warp to a part. An empty part reaches from ∞
// to −∞.
KERNEL(part_extents)(const Scalar* points, u64 n, u32 dim, u32 j, const u32* order, u64 parts,
                     Scalar* lo, Scalar* hi) {
    u64 part = thread_number() / WARP;
    if (part >= parts) return;
    u64 begin = part * n / parts, end = (part + 1) * n / parts;
    Scalar least = INFINITE, most = -INFINITE;
    for (u64 at = begin + lane(); at < end; at += WARP) {
        Scalar x = points[(u64)order[at] * dim + j];
        least = x < least ? x : least;
        most = x > most ? x : most;
    }
    for (u32 step = WARP / 2; step > 0; step /= 2) {
        Scalar other = __shfl_xor_sync(ALL, least, step);
        least = other < least ? other : least;
        other = __shfl_xor_sync(ALL, most, step);
        most = other > most ? other : most;
    }
    if (lane() == 0) {
        lo[part] = least;
        hi[part] = most;
    }
}

EXPORT(cell_keys_u32)
EXPORT(cell_keys_u64)
EXPORT(cell_counts_u32)
EXPORT(cell_counts_u64)
EXPORT(cell_begins_u32)
EXPORT(cell_begins_u64)
EXPORT(cell_list_u32)
EXPORT(cell_list_u64)
EXPORT(gather_points)
EXPORT(gather_columns)
EXPORT(gather_narrow)
EXPORT(point_boxes)
EXPORT(narrow_boxes)
EXPORT(gather_u32)
EXPORT(identity)
EXPORT(coordinate_keys)
EXPORT(assign_parts)
EXPORT(part_extents)
