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
    // For every query, the best of every 64, 16 or 2 candidates: of each tile so many numbers.
    float* best;
    u64 groups;
    u64 of_tile;
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
        float* of_warp = job.best + tile * job.of_tile + place.across * job.of_tile / SIDE;
        bool by_twos = job.of_tile == 64, by_many = job.of_tile == 2;
#pragma unroll
        for (u32 m = 0; m < 4; m++)
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                u64 row = first_row + place.down + m * 16 + h * 8 + lane() / 4;
                bool there = row < job.matrix.query_count;
                float* to = of_warp + row * job.groups;
                float best = -BEYOND;
#pragma unroll
                for (u32 n = 0; n < 8; n++)
                    best = fmaxf(best, fmaxf(sums[m][n][2 * h], sums[m][n][2 * h + 1]));
                if (by_twos) {
#pragma unroll
                    for (u32 n = 0; n < 8; n++)
                        if (there) to[n * 4 + lane() % 4] = fmaxf(sums[m][n][2 * h], sums[m][n][2 * h + 1]);
                    continue;
                }
                if (by_many) {
                    best = fmaxf(best, __shfl_xor_sync(ALL, best, 1));
                    best = fmaxf(best, __shfl_xor_sync(ALL, best, 2));
                }
                // All four lanes of a row write the same number, or one each.
                if (there) to[by_many ? 0 : lane() % 4] = best;
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

// Candidates that each lane holds back, at the most: as many as there is shared memory for. A piece of 16 × 8 may
// give it four.
#define HELD (RESIDENT ? 12u : 16u)

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

// What a warp holds back: scores, with the row within the unit, the column from the unit's first on, and
// for whom each is good enough.
struct Held {
    uint2 pairs[HELD][WARP];
    float4 sums[WARP];
};
static_assert(SHARED_BYTES + SWEEP_BYTES + SIDE * sizeof(float) + THREADS / WARP * sizeof(Held) <= MOST_SHARED,
              "a block fits the shared memory of every device");
#define FOR_ROW 0x40000000u
#define FOR_COLUMN 0x80000000u
// No query.
#define NONE 0xffffffffu

// Whose list a candidate goes on, or none.
__device__ __forceinline__ u32 asks(const Listing& job, u32 query, u32 candidate) {
    if (!job.exclude_self) return query;
    u32 name = job.names ? job.names[query] : query + (u32)job.first_name;
    return name == (job.ids ? job.ids[candidate] : candidate) ? NONE : query;
}

// Appends what the lanes of a warp hold back, `count` in this one, to the lists of queries. What finds no room
// is lost, but counted: the host sees that.
//
// Places in lists are taken for some candidates before any is written, so that their ways to memory overlap.
__device__ __noinline__ void flush(const Listing& job, const Held& held, u32 count, const u32* rows,
                                   u64 column) {
    const u32 TOGETHER = 4;
    for (u32 first = 0; first < count; first += TOGETHER) {
        u32 queries[2 * TOGETHER], candidates[2 * TOGETHER], scores[TOGETHER], at[2 * TOGETHER];
#pragma unroll
        for (u32 i = 0; i < TOGETHER; i++) {
            uint2 pair = held.pairs[first + i < count ? first + i : first][lane()];
            if (first + i >= count) pair.x &= ~(FOR_ROW | FOR_COLUMN);
            u32 from = rows[pair.x % SIDE];
            u32 to = (u32)column + (pair.x & ~(FOR_ROW | FOR_COLUMN)) / SIDE;
            queries[2 * i] = pair.x & FOR_ROW ? asks(job, from, to) : NONE;
            queries[2 * i + 1] = pair.x & FOR_COLUMN ? asks(job, to, from) : NONE;
            candidates[2 * i] = to;
            candidates[2 * i + 1] = from;
            scores[i] = pair.y;
        }
#pragma unroll
        for (u32 i = 0; i < 2 * TOGETHER; i++)
            if (queries[i] != NONE) at[i] = atomicAdd(&job.lens[queries[i]], 1u);
#pragma unroll
        for (u32 i = 0; i < 2 * TOGETHER; i++)
            if (queries[i] != NONE && at[i] < job.capacity)
                job.lists[queries[i] * job.capacity + at[i]] = make_uint2(scores[i / 2], candidates[i]);
    }
}

// Holds back those of the sums of 16 rows by 8 columns, four to a lane, that are good enough; `first` says where
// the piece is. Gives how many this lane holds back then.
//
// One piece of code for all of a tile, as it is seldom needed and would be fetched from afar.
__device__ __noinline__ u32 hold(const Listing& job, Held& held, u32 count, const u32* rows, u64 column,
                                 const float* row_limits, const float* limits, u32 first) {
    u32 down = lane() / 4, across = lane() % 4 * 2;
    float4 sums = held.sums[lane()];
    float of_rows[2] = {row_limits[down], row_limits[down + 8]};
    float of_columns[2] = {BEYOND, BEYOND};
    if (limits) {
        of_columns[0] = limits[across];
        of_columns[1] = limits[across + 1];
    }
#pragma unroll
    for (u32 e = 0; e < 4; e++) {
        float sum = e == 0 ? sums.x : e == 1 ? sums.y : e == 2 ? sums.z : sums.w;
        u32 whose = (sum >= of_rows[e / 2] ? FOR_ROW : 0) | (sum >= of_columns[e % 2] ? FOR_COLUMN : 0);
        u32 at = first + down + e / 2 * 8 + (across + e % 2) * SIDE;
        if (whose) held.pairs[count++][lane()] = make_uint2(at | whose, __float_as_uint(sum));
    }
    if (__any_sync(ALL, count > HELD - 4)) {
        flush(job, held, count, rows, column);
        count = 0;
    }
    return count;
}

struct ListGood {
    static const bool LIMITS = true;
    const Listing& job;
    Held& held;
    // Of the rows of the unit.
    float* row_limits;
    const u32* rows;
    u64 row;
    // The first column of the unit; and how many candidates this lane holds back.
    u64 column;
    u32 count;

    __device__ __forceinline__ const float* limits() const { return job.right_limits; }

    __device__ __forceinline__ void begin(const u32* rows_of_unit, u64 row_of_unit) {
        rows = rows_of_unit;
        row = row_of_unit;
        for (u32 i = threadIdx.x; i < SIDE; i += THREADS)
            row_limits[i] =
                row * SIDE + i < job.matrix.query_count ? job.left_limits[rows[i]] : BEYOND;
    }

    // Every sum is compared with the lower of its limits, those of all pieces before any is looked at again: one
    // vote, and not one after the other. (One comparison for the four of a lane, with the lowest of their limits,
    // takes half as long, and is no use: limits differ by more than sums do.)
    __device__ __forceinline__ void tile(const Sums& sums, const Place& place) {
        // Those that wait have columns of the same unit, whose first one is a whole number of units.
        u64 width = job.matrix.along * SIDE;
        column = place.column / width * width;
        // On the diagonal, pairs are met from both sides.
        const float* limits = job.right_limits && place.column / SIDE != row ? place.limits : nullptr;
        const float* of_rows = row_limits + place.down;
        u32 l = lane(), hits = 0;
        float of_row[4][2];
#pragma unroll
        for (u32 m = 0; m < 4; m++)
#pragma unroll
            for (u32 h = 0; h < 2; h++) of_row[m][h] = of_rows[m * 16 + h * 8 + l / 4];
#pragma unroll
        for (u32 n = 0; n < 8; n++) {
            float2 of_column = make_float2(BEYOND, BEYOND);
            if (limits) of_column = *(const float2*)(limits + n * 8 + l % 4 * 2);
#pragma unroll
            for (u32 m = 0; m < 4; m++) {
                const float* of = sums[m][n];
                // All four, without a branch.
                u32 hit = of[0] >= fminf(of_row[m][0], of_column.x);
                hit |= of[1] >= fminf(of_row[m][0], of_column.y);
                hit |= of[2] >= fminf(of_row[m][1], of_column.x);
                hit |= of[3] >= fminf(of_row[m][1], of_column.y);
                hits |= hit << (n * 4 + m);
            }
        }
        hits = __reduce_or_sync(ALL, hits);
        if (hits == 0) return;
        u32 first = (u32)(place.column - column) * SIDE + place.down;
#pragma unroll
        for (u32 n = 0; n < 8; n++) {
            if ((hits >> n * 4 & 15u) == 0) continue;
#pragma unroll
            for (u32 m = 0; m < 4; m++) {
                if ((hits >> (n * 4 + m) & 1u) == 0) continue;
                const float* of = sums[m][n];
                held.sums[l] = make_float4(of[0], of[1], of[2], of[3]);
                count = hold(job, held, count, rows, column, of_rows + m * 16,
                             limits ? limits + n * 8 : nullptr, first + m * 16 + n * 8 * SIDE);
            }
        }
    }

    __device__ __forceinline__ void end() { flush(job, held, count, rows, column); }
};

KERNEL(__launch_bounds__(THREADS, BLOCKS) list_scores)(const __grid_constant__ Listing job) {
    DYNAMIC_SHARED(shared, SHARED_BYTES);
    __shared__ Held held[THREADS / WARP];
    __shared__ float row_limits[SIDE];
    ListGood list = {job, held[threadIdx.x / WARP], row_limits, nullptr, 0, 0, 0};
    sweep(job.matrix, shared, list);
}

EXPORT(best_scores)
EXPORT(list_scores)
