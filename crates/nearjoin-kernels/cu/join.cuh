// What a join is told, and how a pair is decided.
//
// Compiled with SCALAR_*, DIM (0: any dimension, known when it runs) and METRIC_*.
#pragma once
#include "device.cuh"
#include "grid.cuh"
#include "scalar.cuh"

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
static_assert(sizeof(Job) == 8 * 94, "as many words as the host writes");

#if DIM > 0
// Numbers from one point to the next, so that a point is loaded in as few pieces as possible.
#if DIM == 1
#define STRIDE 1
#else
#define STRIDE ((DIM + 1) / 2 * 2)
#endif

template <class L> struct alignas(sizeof(L) * (STRIDE % 2 ? 1 : (STRIDE * sizeof(L)) % 16 ? 2 : 16 / sizeof(L))) Piece {
    L x[STRIDE % 2 ? 1 : (STRIDE * sizeof(L)) % 16 ? 2 : 16 / sizeof(L)];
};

// A point in registers.
template <class L> struct Point {
    static const u32 PIECES = STRIDE * sizeof(L) / sizeof(Piece<L>);
    Piece<L> pieces[PIECES];

    __device__ __forceinline__ L operator[](u32 j) const {
        const u32 WIDTH = sizeof(Piece<L>) / sizeof(L);
        return pieces[j / WIDTH].x[j % WIDTH];
    }

    static __device__ __forceinline__ Point at(const L* points, u64 place) {
        Point point;
        const Piece<L>* from = (const Piece<L>*)(points + place * STRIDE);
#pragma unroll
        for (u32 i = 0; i < PIECES; i++) point.pieces[i] = from[i];
        return point;
    }

    __device__ __forceinline__ void store(L* points, u32 place) const {
        Piece<L>* to = (Piece<L>*)(points + place * STRIDE);
#pragma unroll
        for (u32 i = 0; i < PIECES; i++) to[i] = pieces[i];
    }

    __device__ __forceinline__ Point from_lane(u32 source) const {
        Point point;
        const u32 WIDTH = sizeof(Piece<L>) / sizeof(L);
#pragma unroll
        for (u32 i = 0; i < PIECES; i++) {
#pragma unroll
            for (u32 w = 0; w < WIDTH; w++)
                point.pieces[i].x[w] = __shfl_sync(ALL, pieces[i].x[w], source);
        }
        return point;
    }
};
#endif

// A difference more.
template <class L> __device__ __forceinline__ L add(L acc, L d) {
#if defined(METRIC_L2)
    return fused(d, d, acc);
#elif defined(METRIC_L1)
    return plus(acc, magnitude(d));
#elif defined(METRIC_LINF)
    d = magnitude(d);
    return acc > d ? acc : d;
#else
#error "METRIC_L2, METRIC_L1 or METRIC_LINF"
#endif
}

// One step of the accumulation, dimension after dimension from 0.
template <class L> __device__ __forceinline__ L step(L acc, L x, L y) {
    return add(acc, subtract(x, y));
}

// The distance that users see.
__device__ __forceinline__ Scalar distance(Scalar acc) {
#if defined(METRIC_L2)
    return root(acc);
#else
    return acc;
#endif
}

// A bound on the distance of boxes: a gap more. Rounded anyhow, with `limit` to cover it.
__device__ __forceinline__ double widen(double acc, double gap) {
#if defined(METRIC_L2)
    return gap * gap + acc;
#elif defined(METRIC_L1)
    return acc + gap;
#else
    return acc > gap ? acc : gap;
#endif
}

// What the other axes leave of the limit along the last one.
__device__ __forceinline__ double left_over(double limit, double acc) {
#if defined(METRIC_L2)
    // `limit` has the rounding of sums in it; the factor has that of the root.
    return __dsqrt_rn(limit - acc) * (1.0 + 1e-15);
#elif defined(METRIC_L1)
    return limit - acc;
#else
    return limit;
#endif
}

// One coordinate of a point on the left or the right.
__device__ __forceinline__ Scalar coordinate(const Scalar* points, u64 len, u64 place, u32 j) {
#if DIM > 0
    return points[place * STRIDE + j];
#else
    return points[(u64)j * len + place];
#endif
}

// The accumulated distance of two points, in the arithmetic that decides.
__device__ __noinline__ Scalar accumulate(const Job& job, u64 left, u64 right) {
    Scalar acc = 0;
#if DIM > 0
    Point<Scalar> x = Point<Scalar>::at(job.left, left), y = Point<Scalar>::at(job.right, right);
#pragma unroll
    for (u32 j = 0; j < DIM; j++) acc = step(acc, x[j], y[j]);
#else
    for (u32 j = 0; j < job.dim; j++)
        acc = step(acc, coordinate(job.left, job.left_len, left, j),
                   coordinate(job.right, job.right_len, right, j));
#endif
    return acc;
}
