// A matrix product as a filter: which pairs of points may be within ε of each other?
//
// Points are halves, numbers of 16 bits: see halves.cu. Of a pair, the product of both points less
// both thresholds is computed; where that is negative, the pair is no match. Why, is said there.
//
// A block takes a *unit*: 128 points on the left, by some tiles of columns on the right, one after
// the other. Units that follow each other have the same columns, so that these are in the cache. Of one
// set, only tiles above the diagonal are looked at.
//
//     for each tile of columns of the unit
//         sums = −(threshold of the row + threshold of the column)
//         for each step of 64 coordinates, while the next ones are on their way to shared memory
//             sums += rows · columns          (each warp 64 × 64 of them)
//         where some sum is not negative: append the pair to the warp's list
//         where the list is full: append it to that of the device
//
// Compiled with STAGES, steps in shared memory; and RESIDENT where all coordinates of the rows stay there,
// which then are 128 at the most.
#pragma once
#include "half.cuh"
#include "matrix.cuh"

// Rows and columns of a tile.
#define SIDE 128u
#define STEP 64u
#define THREADS 128u
// Blocks that a multiprocessor runs at a time.
#define BLOCKS 2
// Bytes of a step of one point: eight pieces of 16 bytes.
#define PITCH (2u * STEP)
#define LINES (RESIDENT ? SIDE : 2u * SIDE)
#define KEPT (RESIDENT ? 2u * SIDE * PITCH : 0u)
#define SHARED_BYTES (KEPT + STAGES * LINES * PITCH)
// Pairs that a warp holds back.
#define HELD 64u
// The pair needs no decision: it is a match.
#define SURE 0x80000000u

// Every member has eight bytes.
struct Sweep {
    // Queries, or all points on the left where null.
    const u16* left;
    const float* left_open;
    const float* left_sure;
    const u32* queries;
    u64 query_count;
    const u16* right;
    const float* right_open;
    const float* right_sure;
    u64 right_len;
    // Coordinates of a point, zeros at the end included: a multiple of 16.
    u64 depth;
    // Whether only tiles above the diagonal are looked at, and only points behind that on the left
    // count: both sides are one, and a pair is wanted once.
    u64 triangle, later;
    // Tiles of a unit, and the first unit.
    u64 along, first_unit;
    // Pairs that are open, and those that are sure with a mark; room for them; how many there are.
    uint2* list;
    u64 capacity;
    u64* list_len;
    // Where sure pairs are counted and not listed, or null; pairs looked at.
    u64* sure;
    u64* tests;
};
static_assert(sizeof(Sweep) == 8 * 19, "as many words as the host writes");

// What a warp holds back.
struct Warp {
    uint2 held[HELD];
    float4 sums[WARP];
    u32 count;
};

// Where a piece of a row lies: the pieces of eight rows that are read at once lie in different banks.
__device__ __forceinline__ u32 place(u32 row, u32 piece) {
    return row * PITCH + ((piece ^ (row & 7u)) << 4);
}

// The first tile of columns of a unit, and its tile of rows.
//
// Of one set, as many tiles of rows belong to a run of columns as are above its last column.
__device__ __forceinline__ void find_unit(const Sweep& job, u64 unit, u64& run, u64& row) {
    u64 rows = (job.query_count + SIDE - 1) / SIDE;
    if (!job.triangle) {
        run = unit / rows;
        row = unit % rows;
        return;
    }
    run = (u64)((__dsqrt_rn(1.0 + 8.0 * (double)unit / (double)job.along) - 1.0) * 0.5);
    while (job.along * run * (run + 1) / 2 > unit) run--;
    while (job.along * (run + 1) * (run + 2) / 2 <= unit) run++;
    row = unit - job.along * run * (run + 1) / 2;
}

// Appends what a warp holds back to the list. What finds no room is lost, but counted: the host sees
// that, and asks again for less at a time.
__device__ __noinline__ void flush(const Sweep& job, Warp& warp) {
    __syncwarp();
    u32 count = warp.count;
    u64 at = 0;
    if (lane() == 0 && count) at = atomicAdd(job.list_len, (u64)count);
    at = __shfl_sync(ALL, at, 0);
    for (u32 i = lane(); i < count; i += WARP)
        if (at + i < job.capacity) job.list[at + i] = warp.held[i];
    __syncwarp();
    if (lane() == 0) warp.count = 0;
    __syncwarp();
}

// The sums of 16 rows by 8 columns, four to a lane, some of which are not negative. Gives how many are
// sure and need not be listed.
__device__ __noinline__ u32 hold(const Sweep& job, Warp& warp, const u32* rows, u64 column) {
    u32 sure_ones = 0;
    float4 sums = warp.sums[lane()];
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
        u32 count = warp.count;
        if (hit)
            warp.held[count + __popc(hits & ((1u << lane()) - 1))] = make_uint2(from | mark, (u32)to);
        __syncwarp();
        if (lane() == 0) warp.count = count + __popc(hits);
        __syncwarp();
        if (count + __popc(hits) > HELD - WARP) flush(job, warp);
    }
    return sure_ones;
}

// What sends the steps of a unit to shared memory, one after the other.
//
// A thread sends the same piece of every so many rows, whose places differ by a constant.
struct Sender {
    const Sweep& job;
    unsigned char* shared;
    // Positions on the left, and thresholds of columns for each step in shared memory.
    const u32* rows;
    float* opens;
    // The next step: of which column, and where it goes.
    u64 column;
    u32 step, stage;

    static const u32 APART = THREADS / 8;

    // One step of the rows of the unit.
    __device__ __forceinline__ void send_rows(unsigned char* to) const {
        u32 piece = threadIdx.x % 8, first = threadIdx.x / 8;
        if (step * STEP + piece * 8 >= job.depth) return;
        to += place(first, piece);
        const u16* from = job.left + step * STEP + piece * 8;
#pragma unroll
        for (u32 i = 0; i < SIDE / APART; i++)
            copy_16(to + i * APART * PITCH, from + rows[first + i * APART] * job.depth);
    }

    // One step of a tile of columns.
    __device__ __forceinline__ void send_columns(unsigned char* to) const {
        u32 piece = threadIdx.x % 8, first = threadIdx.x / 8;
        if (step * STEP + piece * 8 >= job.depth) return;
        to += place(first, piece);
        const u16* from = job.right + (column + first) * job.depth + step * STEP + piece * 8;
#pragma unroll
        for (u32 i = 0; i < SIDE / APART; i++) {
            copy_16(to + i * APART * PITCH, from);
            from += APART * (u32)job.depth;
        }
    }

    // The next step.
    __device__ __forceinline__ void send(u32 steps) {
        unsigned char* to = shared + KEPT + stage * (LINES * PITCH);
        if (!RESIDENT) send_rows(to);
        send_columns(RESIDENT ? to : to + SIDE * PITCH);
        if (step == 0 && threadIdx.x < SIDE / 4)
            copy_16(opens + stage * SIDE + threadIdx.x * 4, job.right_open + column + threadIdx.x * 4);
        stage = stage + 1 < STAGES ? stage + 1 : 0;
        if (++step == steps) {
            step = 0;
            column += SIDE;
        }
    }
};

// The operands of one product of 64 × 64 by 16 coordinates.
struct Operands {
    u32 a[4][4], b[4][4];

    __device__ __forceinline__ void load(const unsigned char* left, const unsigned char* right,
                                         u32 across, u32 down, u32 k) {
        u32 l = lane();
#pragma unroll
        for (u32 m = 0; m < 4; m++)
            load_matrices(a[m], left + place(down + m * 16 + l % 16, k * 2 + l / 16));
#pragma unroll
        for (u32 n = 0; n < 4; n++)
            load_matrices(b[n], right + place(across + n * 16 + l % 8 + l / 16 * 8, k * 2 + l / 8 % 2));
    }
};

// Sums of 64 × 64 more by 16 coordinates.
__device__ __forceinline__ void multiply(float (&sums)[4][8][4], const Operands& by) {
#pragma unroll
    for (u32 m = 0; m < 4; m++)
#pragma unroll
        for (u32 n = 0; n < 8; n++) mma_f16(sums[m][n], by.a[m], &by.b[n / 2][n % 2 * 2]);
}

// Where the columns of a step in shared memory are.
__device__ __forceinline__ const unsigned char* columns_of(const unsigned char* shared, u32 stage) {
    return shared + KEPT + stage * (LINES * PITCH) + (RESIDENT ? 0 : SIDE * PITCH);
}

// One unit, by a block.
__device__ __forceinline__ void sweep(const Sweep& job, unsigned char* shared) {
    __shared__ Warp warps[THREADS / WARP];
    __shared__ u32 rows[SIDE];
    __shared__ float4 opens_of[STAGES * SIDE / 4];
    float* opens = (float*)opens_of;
    u32 number = threadIdx.x / WARP, l = lane();
    Warp& warp = warps[number];
    u32 down = number % 2 * 64, across = number / 2 * 64;

    u64 run, row;
    find_unit(job, job.first_unit + blockIdx.x, run, row);
    u64 tile = run * job.along, tiles = (job.right_len + SIDE - 1) / SIDE;
    u64 end = tile + job.along < tiles ? tile + job.along : tiles;
    if (job.triangle && tile < row) tile = row;

    // Rows beyond the last query are the last one, with a threshold that nothing reaches.
    for (u32 i = threadIdx.x; i < SIDE; i += THREADS) {
        u64 at = row * SIDE + i < job.query_count ? row * SIDE + i : job.query_count - 1;
        rows[i] = job.queries ? job.queries[at] : (u32)at;
    }
    if (l == 0) warp.count = 0;
    __syncthreads();
    float row_open[4][2];
#pragma unroll
    for (u32 m = 0; m < 4; m++)
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            u32 at = down + m * 16 + h * 8 + l / 4;
            bool there = row * SIDE + at < job.query_count;
            row_open[m][h] = there ? job.left_open[rows[at]] : __uint_as_float(0x7f800000u);
        }

    u32 steps = (u32)((job.depth + STEP - 1) / STEP), all = (u32)(end - tile) * steps;
    Sender sender = {job, shared, rows, opens, tile * SIDE, 0, 0};
    if (RESIDENT) {
        for (; sender.step < steps; sender.step++) sender.send_rows(shared + sender.step * (SIDE * PITCH));
        sender.step = 0;
    }
#pragma unroll
    for (u32 s = 0; s + 1 < STAGES; s++) {
        if (s < all) sender.send(steps);
        commit_copies();
    }

    float sums[4][8][4];
    // Those of the next product are on their way while this one is computed.
    Operands operands[2];
    u32 sure_ones = 0;
    u64 column = tile * SIDE;
    wait_copies<STAGES - 2>();
    __syncthreads();
    const unsigned char* kept = shared;
    u32 stage = 0;
    operands[0].load(RESIDENT ? kept : shared, columns_of(shared, 0), across, down, 0);
    for (u32 s = 0, step = 0; s < all; s++) {
        const unsigned char* from = RESIDENT ? kept : shared + stage * (LINES * PITCH);
        const unsigned char* with = columns_of(shared, stage);
        if (step == 0) {
            const float* open = opens + stage * SIDE + across;
#pragma unroll
            for (u32 n = 0; n < 8; n++) {
                float2 of = *(const float2*)(open + n * 8 + l % 4 * 2);
#pragma unroll
                for (u32 m = 0; m < 4; m++) {
                    sums[m][n][0] = -__fadd_rn(row_open[m][0], of.x);
                    sums[m][n][1] = -__fadd_rn(row_open[m][0], of.y);
                    sums[m][n][2] = -__fadd_rn(row_open[m][1], of.x);
                    sums[m][n][3] = -__fadd_rn(row_open[m][1], of.y);
                }
            }
        }
        if (s + STAGES - 1 < all) sender.send(steps);
        commit_copies();
        stage = stage + 1 < STAGES ? stage + 1 : 0;
        u32 left = (u32)job.depth - step * STEP;
        bool last = ++step == steps;
        kept = last ? shared : kept + SIDE * PITCH;
        const unsigned char* next = RESIDENT ? kept : shared + stage * (LINES * PITCH);
        if (left >= STEP) {
#pragma unroll
            for (u32 k = 0; k < STEP / 16; k++) {
                if (k + 1 < STEP / 16) {
                    operands[(k + 1) % 2].load(from, with, across, down, k + 1);
                } else {
                    // The next step is there, and nobody reads this one any more.
                    wait_copies<STAGES - 2>();
                    __syncthreads();
                    operands[0].load(next, columns_of(shared, stage), across, down, 0);
                }
                multiply(sums, operands[k % 2]);
            }
        } else {
#pragma unroll 1
            for (u32 k = 1;; k++) {
                multiply(sums, operands[0]);
                if (k * 16 >= left) break;
                operands[0].load(from, with, across, down, k);
            }
            wait_copies<STAGES - 2>();
            __syncthreads();
            operands[0].load(next, columns_of(shared, stage), across, down, 0);
        }
        if (!last) continue;

        step = 0;
        u32 signs = ALL;
#pragma unroll
        for (u32 m = 0; m < 4; m++)
#pragma unroll
            for (u32 n = 0; n < 8; n++)
#pragma unroll
                for (u32 e = 0; e < 4; e++) signs &= __float_as_uint(sums[m][n][e]);
        if (__any_sync(ALL, !(signs >> 31))) {
#pragma unroll
            for (u32 m = 0; m < 4; m++)
#pragma unroll
                for (u32 n = 0; n < 8; n++) {
                    const float* of = sums[m][n];
                    u32 signs = __float_as_uint(of[0]) & __float_as_uint(of[1]) &
                                __float_as_uint(of[2]) & __float_as_uint(of[3]);
                    if (!__any_sync(ALL, !(signs >> 31))) continue;
                    warp.sums[l] = make_float4(of[0], of[1], of[2], of[3]);
                    u32 first = down + m * 16;
                    sure_ones += hold(job, warp, rows + first, column + across + n * 8);
                }
        }
        column += SIDE;
    }
    wait_copies<0>();
    flush(job, warp);
    if (job.sure) {
        u64 sum = sure_ones;
        for (u32 step = WARP / 2; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
        if (l == 0 && sum) atomicAdd(job.sure, sum);
    }
    if (threadIdx.x == 0) {
        u64 high = (row + 1) * SIDE < job.query_count ? SIDE : job.query_count - row * SIDE;
        u64 last = end * SIDE < job.right_len ? end * SIDE : job.right_len;
        if (tile < end) atomicAdd(job.tests, high * (last - tile * SIDE));
    }
}
