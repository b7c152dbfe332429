// Pairs that may be within ε of each other, by matrix units; and whether these do as they should.
//
// A sum that is negative is no match, one that is large enough surely is, and the rest is open: why, is
// said in halves.cu.
//
//     where some sum of a piece is not negative: append the pair to the warp's list
//     where that is full: append it to the list of the device
#include "product.cuh"

static_assert(SHARED_BYTES == BYTES, "as the host asks for it");

// Pairs that a warp holds back.
#define HELD 64u
// The pair needs no decision: it is a match.
#define SURE 0x80000000u

// Every member has eight bytes.
struct Sweep {
    // The numbers of points are thresholds of open pairs; these are how much more a sure one has.
    Matrix matrix;
    const float* left_sure;
    const float* right_sure;
    // Whether only points behind that on the left count: a pair is wanted once.
    u64 later;
    // Pairs that are open, and those that are sure with a mark; room for them; how many there are.
    uint2* list;
    u64 capacity;
    u64* list_len;
    // Where sure pairs are counted and not listed, or null.
    u64* sure;
};
static_assert(sizeof(Sweep) == 8 * 19, "as many words as the host writes");

// What a warp holds back.
struct Held {
    uint2 pairs[HELD];
    float4 sums[WARP];
    u32 count;
};
static_assert(SHARED_BYTES + SWEEP_BYTES + THREADS / WARP * sizeof(Held) <= MOST_SHARED,
              "a block fits the shared memory of every device");

// Appends what a warp holds back to the list. What finds no room is lost, but counted: the host sees
// that, and asks again for less at a time.
__device__ __noinline__ void flush(const Sweep& job, Held& held) {
    __syncwarp();
    u32 count = held.count;
    u64 at = 0;
    if (lane() == 0 && count) at = atomicAdd(job.list_len, (u64)count);
    at = __shfl_sync(ALL, at, 0);
    for (u32 i = lane(); i < count; i += WARP)
        if (at + i < job.capacity) job.list[at + i] = held.pairs[i];
    __syncwarp();
    if (lane() == 0) held.count = 0;
    __syncwarp();
}

// The sums of 16 rows by 8 columns, four to a lane, some of which are not negative. Gives how many are
// sure and need not be listed.
__device__ __noinline__ u32 hold(const Sweep& job, Held& held, const u32* rows, u64 column) {
    u32 sure_ones = 0;
    float4 sums = held.sums[lane()];
#pragma unroll 1
    for (u32 e = 0; e < 4; e++) {
        float sum = e == 0 ? sums.x : e == 1 ? sums.y : e == 2 ? sums.z : sums.w;
        u32 within = lane() / 4 + e / 2 * 8;
        u64 to = column + lane() % 4 * 2 + e % 2;
        u32 from = rows[within], mark = 0;
        bool hit = !(__float_as_uint(sum) >> 31) && !(job.later && from >= to);
        if (hit) {
            if (sum >= __fadd_rn(job.left_sure[from], job.right_sure[to])) mark = SURE;
            if (mark && job.sure) {
                sure_ones++;
                hit = false;
            }
        }
        u32 hits = __ballot_sync(ALL, hit);
        if (hits == 0) continue;
        u32 count = held.count;
        if (hit)
            held.pairs[count + __popc(hits & ((1u << lane()) - 1))] = make_uint2(from | mark, (u32)to);
        __syncwarp();
        if (lane() == 0) held.count = count + __popc(hits);
        __syncwarp();
        if (count + __popc(hits) > HELD - WARP) flush(job, held);
    }
    return sure_ones;
}

struct Near {
    static const bool LIMITS = false;
    const Sweep& job;
    Held& held;
    const u32* rows;
    u32 sure_ones;

    __device__ __forceinline__ const float* limits() const { return nullptr; }

    __device__ __forceinline__ void begin(const u32* rows_of_unit, u64) {
        rows = rows_of_unit;
        if (lane() == 0) held.count = 0;
    }

    __device__ __forceinline__ void tile(const Sums& sums, const Place& place) {
        u32 signs = ALL;
#pragma unroll
        for (u32 m = 0; m < 4; m++)
#pragma unroll
            for (u32 n = 0; n < 8; n++)
#pragma unroll
                for (u32 e = 0; e < 4; e++) signs &= __float_as_uint(sums[m][n][e]);
        if (!__any_sync(ALL, !(signs >> 31))) return;
#pragma unroll
        for (u32 m = 0; m < 4; m++)
#pragma unroll
            for (u32 n = 0; n < 8; n++) {
                const float* of = sums[m][n];
                u32 signs = __float_as_uint(of[0]) & __float_as_uint(of[1]) & __float_as_uint(of[2]) &
                            __float_as_uint(of[3]);
                if (!__any_sync(ALL, !(signs >> 31))) continue;
                held.sums[lane()] = make_float4(of[0], of[1], of[2], of[3]);
                sure_ones += hold(job, held, rows + place.down + m * 16, place.column + n * 8);
            }
    }

    __device__ __forceinline__ void end() {
        flush(job, held);
        if (!job.sure) return;
        u64 sum = sure_ones;
        for (u32 step = WARP / 2; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
        if (lane() == 0 && sum) atomicAdd(job.sure, sum);
    }
};

KERNEL(__launch_bounds__(THREADS, BLOCKS) product)(const __grid_constant__ Sweep job) {
    DYNAMIC_SHARED(shared, SHARED_BYTES);
    __shared__ Held held[THREADS / WARP];
    Near near = {job, held[threadIdx.x / WARP], nullptr, 0};
    sweep(job.matrix, shared, near);
}

// ---------------------------------------------------------------- the model of matrix units

#if RESIDENT // one module has it for all
// Products of 16 coordinates that are added up.
#define CHAIN 64u

__device__ __forceinline__ u32 scrambled(u32 x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

// A number of 16 bits: of a size, or of any size, and of either sign where that is asked for.
__device__ __forceinline__ u32 operand(u32 kind, u32 side, u32 line, u32 k) {
    u32 random = scrambled(((blockIdx.x * 2 + side) * 16 + line) * 16 * CHAIN + k);
    bool positive = kind == 0 || kind == 3 || kind == 5;
    u32 sign = positive ? 0 : random & 0x8000u, digits = random >> 16 & 0x3ffu;
    if (kind == 4) return sign | digits;
    u32 exponent = kind == 1 ? 1 + (random >> 26) % 27 : kind == 5 && k >= 16 ? 8 : 14;
    return sign | exponent << 10 | digits;
}

// The largest error of sums, as a part of what they may err by: for each addition, 2⁻²³ of all magnitudes that
// have gone into them by then.
//
//     for each of some kinds of numbers: positive, of any size, of either sign, such that the sum is
//     about 0, subnormal, a few large ones before small ones
//         a chain of products, as a filter makes it; the same in double precision; how far apart are they?
KERNEL(check_units)(u32* worst) {
    u32 kind = blockIdx.x % 6, l = lane();
    float sums[4];
    double exact[4], allowed[4];
    for (u32 e = 0; e < 4; e++) {
        u32 row = l / 4 + e / 2 * 8, column = l % 4 * 2 + e % 2;
        double sum = 0.0, sizes = 0.0;
        for (u32 k = 0; k < 16 * CHAIN; k++) {
            double x = (double)float_of(operand(kind, 0, row, k)), y = (double)float_of(operand(kind, 1, column, k));
            sum = __fma_rn(x, y, sum);
            // As often as there are steps from its own on.
            sizes += fabs(__dmul_rn(x, y)) * (double)(CHAIN - k / 16);
        }
        sums[e] = __double2float_rn(kind == 2 ? 0.0 : -sum * (kind == 3 ? 1.0 : 0.5));
        exact[e] = sum + (double)sums[e];
        // Sixteen products and what was there before, in each step.
        allowed[e] = (sizes + fabs((double)sums[e]) * CHAIN) * 17.0 * 1.1920928955078125e-7;
    }
    for (u32 at = 0; at < CHAIN; at++) {
        u32 a[4], b[2];
        for (u32 i = 0; i < 4; i++) {
            u32 row = l / 4 + i % 2 * 8, k = at * 16 + i / 2 * 8 + l % 4 * 2;
            a[i] = operand(kind, 0, row, k) | operand(kind, 0, row, k + 1) << 16;
        }
        for (u32 i = 0; i < 2; i++) {
            u32 k = at * 16 + i * 8 + l % 4 * 2;
            b[i] = operand(kind, 1, l / 4, k) | operand(kind, 1, l / 4, k + 1) << 16;
        }
        mma_f16(sums, a, b);
    }
    for (u32 e = 0; e < 4; e++) {
        double off = fabs((double)sums[e] - exact[e]) / allowed[e];
        // What is no number is beyond all of them.
        float ratio = off <= 1e30 ? __double2float_rn(off) : 1e30f;
        atomicMax(worst, __float_as_uint(ratio));
    }
}

EXPORT(check_units)
#endif

EXPORT(product)
