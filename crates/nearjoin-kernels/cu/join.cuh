// What a join within ε is told.
//
// Compiled with SCALAR_*, NORM_* and WIDTH. With ANY_LAYOUT, points may lie in either of two ways
// that are else those of a width: point after point, or column after column.
#pragma once
#include "device.cuh"
#include "grid.cuh"
#include "pair.cuh"

#define MAX_LEVELS 8

// How candidates are found.
enum { BRUTE = 0, DIRECTORY = 1, GRID = 2 };

// Which of them are looked at, in a join of a set with itself that wants each pair once.
enum {
    // All, from both sides.
    EACH = 0,
    // Those in cells with a higher number, cell by cell (LINEARCOORD).
    LINEAR = 1,
    // Cells with an odd coordinate look at their neighbours on that axis (UNICOMP).
    UNICOMP = 2,
    // Those that come later in the order of the index (LID-UNICOMP).
    LATER = 3
};

// Every member has eight bytes, so that it is the same structure on the host.
struct Job {
    // Points in index order with their rows in the input. Left are the queries; the rows of
    // their answers may be numbered in another way.
    const Scalar* left;
    const u32* left_ids;
    const u32* left_rows;
    u64 left_len;
    const Scalar* right;
    const u32* right_ids;
    u64 right_len;
    // The same in single precision relative to one origin, or null.
    const float* left_narrow;
    const float* right_narrow;
    // The boxes of every 32 points on the right, least and greatest coordinates in turn, of the
    // points that the lanes test; or null.
    const void* right_boxes;
    u64 dim;
    // Numbers from one point to the next, or 0 where they lie in columns.
    u64 stride;

    // A pair matches when its accumulated distance is at most this.
    double bound;
    // In single precision: at most `sure` it must, above `maybe` it cannot.
    double sure, maybe;
    // No match differs by more in any coordinate.
    double reach;
    // A box whose least distance accumulates to more than this, in any order and rounded
    // anyhow, holds no match.
    double limit;
    // Queries look together while the space within reach of all is at most so many times that
    // within reach of one.
    double loose;
    // What the magnitude of a difference counts for beside those before it: 1 for L1, 0 for L∞.
    double weight;

    u64 finder;
    u64 pattern;
    // Whether a pair of equal rows of the input is no pair.
    u64 exclude_self;

    // The grid: where each cell begins, of all (`cells` is null) or of those in a list.
    Grid grid;
    const u32* starts;
    const u64* cells;
    u64 cell_count;

    // The directory: the extents of the parts, level after level.
    u64 levels, fanout;
    const Scalar* part_lo;
    const Scalar* part_hi;
    u64 level_dim[MAX_LEVELS];

    // The queries: positions on the left, or all in order where null.
    const u32* queries;
    u64 query_count;
    // Units of work from `first_unit` up to `end_unit`, in an order, or as they are where it is
    // null; and the head of the queue, or null.
    const u32* units;
    u64 first_unit, end_unit;
    u32* head;
    // Threads to a query.
    u64 threads_per_query;

    // Whether a pair that is found once counts for both of its points.
    u64 mirror;

    // Distances computed, pairs found, and pairs that needed no distance.
    u64* tests;
    u64* pairs;
    u64* taken;
    // By row of the answer: neighbours, and where they go.
    u32* degrees;
    const u64* offsets;
    u64 base;
    // Where the next neighbour of a row goes, if many threads write it.
    u32* cursors;
    u32* ids;
    Scalar* distances;
    // A list of pairs, rows of the answer and of the right input, and its room.
    uint2* list;
    Scalar* list_distances;
    u64 capacity;
    u64* list_len;
    // Work of each unit.
    u32* work;
};
static_assert(sizeof(Job) == 8 * 96, "as many words as the host writes");

// A bound on the distance of boxes: a gap more. Rounded anyhow, with `limit` to cover it.
__device__ __forceinline__ double widen(double acc, double gap, double weight) {
#if defined(NORM_SQUARES)
    return gap * gap + acc;
#else
    double sum = acc + weight * gap;
    return sum > gap ? sum : gap;
#endif
}

// What the other axes leave of the limit along the last one.
__device__ __forceinline__ double left_over(double limit, double acc, double weight) {
#if defined(NORM_SQUARES)
    // `limit` has the rounding of sums in it; the factor has that of the root.
    return __dsqrt_rn(limit - acc) * (1.0 + 1e-15);
#else
    return limit - weight * acc;
#endif
}

// One coordinate of a point on the left or the right.
__device__ __forceinline__ Scalar coordinate(const Job& job, const Scalar* points, u64 len,
                                             u64 place, u32 j) {
#if defined(ANY_LAYOUT)
    return job.stride ? points[place * job.stride + j] : points[(u64)j * len + place];
#elif WIDTH > 0
    return points[place * WIDTH + j];
#else
    return points[(u64)j * len + place];
#endif
}
__device__ __forceinline__ Scalar left_coordinate(const Job& job, u64 place, u32 j) {
    return coordinate(job, job.left, job.left_len, place, j);
}
__device__ __forceinline__ Scalar right_coordinate(const Job& job, u64 place, u32 j) {
    return coordinate(job, job.right, job.right_len, place, j);
}

// The accumulated distance of two points, in the arithmetic that decides.
__device__ __noinline__ Scalar accumulate(const Job& job, u64 left, u64 right) {
    Scalar acc = 0, weight = (Scalar)job.weight;
#if WIDTH > 0
    Point<Scalar> x = Point<Scalar>::at(job.left, left), y = Point<Scalar>::at(job.right, right);
#pragma unroll
    for (u32 j = 0; j < WIDTH; j++) acc = step(acc, x[j], y[j], weight);
#else
    for (u32 j = 0; j < job.dim; j++)
        acc = step(acc, left_coordinate(job, left, j), right_coordinate(job, right, j), weight);
#endif
    return acc;
}
