// Scores of candidates, by matrix units: the best of some for every query, and all that are good enough.
//
// A score is the product of two points less a number of each, which shortlist.cu computes: the larger,
// the nearer.
#include "product.cuh"

static_assert(SHARED_BYTES == BYTES, "as the host asks for it");

// ---------------------------------------------------------------- the best of some

// Every member has eight bytes.
struct Best {
    Matrix matrix;
    // For every query, the best of every 16 candidates, or of every two: of each tile 8 numbers, or 64.
    float* best;
    u64 groups;
    u64 by_twos;
};
static_assert(sizeof(Best) == 8 * 15, "as many words as the host writes");

struct KeepBest {
    static const bool LIMITS = false;
    const Best& job;
    u64 first_row;

    __device__ __forceinline__ const float* limits() const { return nullptr; }
    __device__ __forceinline__ void begin(const u32*, u64 row) { first_row = row * SIDE; }

    __device__ __forceinline__ void tile(const Sums& sums, const Place& place) {
        u64 tile = place.column / SIDE;
#pragma unroll
        for (u32 m = 0; m < 4; m++)
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                u64 row = first_row + place.down + m * 16 + h * 8 + lane() / 4;
                if (row >= job.matrix.query_count) continue;
                float* to = job.best + row * job.groups;
                float best = -BEYOND;
#pragma unroll
                for (u32 n = 0; n < 8; n++) {
                    float both = fmaxf(sums[m][n][2 * h], sums[m][n][2 * h + 1]);
                    best = fmaxf(best, both);
                    if (job.by_twos) to[tile * 64 + place.across / 2 + n * 4 + lane() % 4] = both;
                }
                if (!job.by_twos) to[tile * 8 + place.across / 16 + lane() % 4] = best;
            }
    }

    __device__ __forceinline__ void end() {}
};

KERNEL(__launch_bounds__(THREADS, BLOCKS) best_scores)(const __grid_constant__ Best job) {
    DYNAMIC_SHARED(shared, SHARED_BYTES);
    KeepBest keep = {job, 0};
    sweep(job.matrix, shared, keep);
}

// ---------------------------------------------------------------- all that are good enough

// Candidates that a warp holds back. A piece of 16 × 8 may have that many.
#define HELD 192u
#define PIECE (4u * WARP)

// Every member has eight bytes.
struct Listing {
    Matrix matrix;
    // The least score of a candidate of each query: of those on the left, and of those on the right where
    // each pair is met once and may count for both, or null.
    const float* left_limits;
    const float* right_limits;
    // Whether a point is no neighbour of itself; what queries are called on the right, or null where that
    // is their position, and `first_name`; what candidates are, or null where that is their position.
    u64 exclude_self;
    const u32* names;
    u64 first_name;
    const u32* ids;
    // For every query, its candidates' scores and positions, room for so many, and how many there are.
    uint2* lists;
    u64 capacity;
    u32* lens;
};
static_assert(sizeof(Listing) == 8 * 21, "as many words as the host writes");

// What a warp holds back: scores, with the row within the unit and the column from its first on.
struct Held {
    uint2 pairs[HELD];
    float4 sums[WARP];
    u32 count;
};

// Where the candidates of a unit belong.
struct Unit {
    const u32* rows;
    u64 row;
    u64 column;
};

// What finds no room is lost, but counted: the host sees that.
__device__ __forceinline__ void append(const Listing& job, u32 query, u32 candidate, u32 score) {
    if (job.exclude_self) {
        u32 name = job.names ? job.names[query] : query + (u32)job.first_name;
        if (name == (job.ids ? job.ids[candidate] : candidate)) return;
    }
    u32 at = atomicAdd(&job.lens[query], 1u);
    if (at < job.capacity) job.lists[query * job.capacity + at] = make_uint2(score, candidate);
}

// Appends what a warp holds back to the lists of queries.
__device__ __noinline__ void flush(const Listing& job, Held& held, const Unit& unit) {
    __syncwarp();
    u32 count = held.count;
    for (u32 i = lane(); i < count; i += WARP) {
        uint2 pair = held.pairs[i];
        u32 from = unit.rows[pair.x % SIDE], to = (u32)(unit.column + pair.x / SIDE);
        float score = __uint_as_float(pair.y);
        if (score >= job.left_limits[from]) append(job, from, to, pair.y);
        // On the diagonal, pairs are met from both sides.
        if (job.right_limits && to / SIDE != unit.row && score >= job.right_limits[to])
            append(job, to, from, pair.y);
    }
    __syncwarp();
    if (lane() == 0) held.count = 0;
    __syncwarp();
}

// The sums of 16 rows by 8 columns, four to a lane, some of which are good enough. `first` is where the first
// of them is.
__device__ __noinline__ void hold(const Listing& job, Held& held, const Unit& unit,
                                  const float* row_limits, const float* limits, u32 first) {
    float4 sums = held.sums[lane()];
#pragma unroll
    for (u32 e = 0; e < 4; e++) {
        float sum = e == 0 ? sums.x : e == 1 ? sums.y : e == 2 ? sums.z : sums.w;
        u32 down = lane() / 4 + e / 2 * 8, across = lane() % 4 * 2 + e % 2;
        float limit = row_limits[down];
        if (limits) limit = fminf(limit, limits[across]);
        if (sum >= limit) {
            u32 at = atomicAdd(&held.count, 1u);
            held.pairs[at] = make_uint2(first + down + across * SIDE, __float_as_uint(sum));
        }
    }
    __syncwarp();
    if (held.count > HELD - PIECE) flush(job, held, unit);
}

struct ListGood {
    static const bool LIMITS = true;
    const Listing& job;
    Held& held;
    // Of the rows of the unit.
    float* row_limits;
    Unit unit;

    __device__ __forceinline__ const float* limits() const { return job.right_limits; }

    __device__ __forceinline__ void begin(const u32* rows, u64 row) {
        unit = {rows, row, 0};
        for (u32 i = threadIdx.x; i < SIDE; i += THREADS)
            row_limits[i] =
                row * SIDE + i < job.matrix.query_count ? job.left_limits[rows[i]] : BEYOND;
        if (lane() == 0) held.count = 0;
    }

    // What a sum must be for either of its points.
    __device__ __forceinline__ void tile(const Sums& sums, const Place& place) {
        // Those that wait have columns of the same unit, whose first one is a whole number of units.
        u64 width = job.matrix.along * SIDE;
        unit.column = place.column / width * width;
        bool both = job.right_limits && place.column / SIDE != unit.row;
        u32 l = lane(), first = (u32)(place.column - unit.column) * SIDE + place.down;
        float2 of_columns[8];
#pragma unroll
        for (u32 n = 0; n < 8; n++) {
            of_columns[n] = make_float2(BEYOND, BEYOND);
            if (both) of_columns[n] = *(const float2*)(place.limits + n * 8 + l % 4 * 2);
        }
#pragma unroll
        for (u32 m = 0; m < 4; m++) {
            const float* of_rows = row_limits + place.down + m * 16;
            float upper = of_rows[l / 4], lower = of_rows[l / 4 + 8];
#pragma unroll
            for (u32 n = 0; n < 8; n++) {
                const float* of = sums[m][n];
                float2 limit = of_columns[n];
                bool hit = of[0] >= fminf(upper, limit.x) || of[1] >= fminf(upper, limit.y) ||
                           of[2] >= fminf(lower, limit.x) || of[3] >= fminf(lower, limit.y);
                if (!__any_sync(ALL, hit)) continue;
                held.sums[l] = make_float4(of[0], of[1], of[2], of[3]);
                hold(job, held, unit, of_rows, both ? place.limits + n * 8 : nullptr,
                     first + m * 16 + n * 8 * SIDE);
            }
        }
    }

    __device__ __forceinline__ void end() { flush(job, held, unit); }
};

KERNEL(__launch_bounds__(THREADS, BLOCKS) list_scores)(const __grid_constant__ Listing job) {
    DYNAMIC_SHARED(shared, SHARED_BYTES);
    __shared__ Held held[THREADS / WARP];
    __shared__ float row_limits[SIDE];
    ListGood list = {job, held[threadIdx.x / WARP], row_limits, {nullptr, 0, 0}};
    sweep(job.matrix, shared, list);
}

EXPORT(best_scores)
EXPORT(list_scores)
