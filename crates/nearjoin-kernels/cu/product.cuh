// Products of many points by matrix units: tiles of 128 × 128 sums, and what becomes of each.
//
// Points are halves, numbers of 16 bits: see halves.cu. Of a pair, the product of both points less a
// number of each is computed.
//
// A block takes a *unit*: 128 points on the left, by some tiles of columns on the right, one after
// the other. Units that follow each other have the same columns, so that these are in the cache. Of one
// set, only tiles above the diagonal are looked at.
//
//     for each tile of columns of the unit
//         sums = −(number of the row + number of the column)
//         for each step of 64 coordinates, while the next ones are on their way to shared memory
//             sums += rows · columns          (each warp 64 × 64 of them)
//         hand the sums to `End`
//
// An `End` is what becomes of sums. It has
//
//     LIMITS                 whether columns have another number, which it gets with a tile
//     limits()               that of the first column, or null where there is none this time
//     begin(rows, row)       before the first tile: the rows of the unit, and which tile of rows it is
//     tile(sums, at)         the sums of a warp, 64 × 64, and where they are
//     end()                  behind the last one
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
// Tiles whose numbers of columns are in shared memory: one is on its way while another is looked at.
#define TILES (STAGES + 1)
// Bytes that a sweep declares beside that, and the most that a block has on any device with matrix units: 99 KiB
// on those for desktops, more on others.
#define SWEEP_BYTES (SIDE * 4u + 2u * TILES * SIDE * 4u)
#define MOST_SHARED (99u * 1024u)

// Every member has eight bytes.
struct Matrix {
    // Points on the left, with what their sums begin with, less; positions of queries among them, or all
    // where null.
    const u16* left;
    const float* left_less;
    const u32* queries;
    u64 query_count;
    const u16* right;
    const float* right_less;
    u64 right_len;
    // Coordinates of a point, zeros at the end included: a multiple of 16.
    u64 depth;
    // Whether both sides are one, and only tiles above the diagonal are looked at.
    u64 triangle;
    // Tiles of a unit, and the first unit.
    u64 along, first_unit;
    // Pairs looked at.
    u64* tests;
};
static_assert(sizeof(Matrix) == 8 * 12, "as many words as the host writes");

// Sums of a warp: 64 rows by 64 columns, 4 × 8 pieces of 16 × 8, of which a lane has four each: of rows
// lane / 4 and 8 more, and of two columns from lane % 4 · 2 on.
typedef float Sums[4][8][4];

// Where the sums of a warp are.
struct Place {
    // The first row within the unit, and the first column within the tile and of all.
    u32 down, across;
    u64 column;
    // Another number of the columns of the tile, in shared memory.
    const float* limits;
};

// Where a piece of a row lies: the pieces of eight rows that are read at once lie in different banks.
__device__ __forceinline__ u32 place(u32 row, u32 piece) {
    return row * PITCH + ((piece ^ (row & 7u)) << 4);
}

// The first tile of columns of a unit, and its tile of rows.
//
// Of one set, as many tiles of rows belong to a run of columns as are above its last column.
__device__ __forceinline__ void find_unit(const Matrix& job, u64 unit, u64& run, u64& row) {
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

// What sends the steps of a unit to shared memory, one after the other.
//
// A thread sends the same piece of every so many rows, whose places differ by a constant.
struct Sender {
    const Matrix& job;
    unsigned char* shared;
    // Positions on the left; the numbers of the columns of some tiles, in shared memory; and the other
    // ones of all columns, or null.
    const u32* rows;
    float *less, *limits;
    const float* all_limits;
    // The next step: of which column, and where it and the numbers of its tile go.
    u64 column;
    u32 step, stage, ring;

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
        if (step == 0) {
            u32 at = threadIdx.x % WARP * 4;
            if (threadIdx.x < WARP) copy_16(less + ring * SIDE + at, job.right_less + column + at);
            else if (all_limits && threadIdx.x < 2 * WARP)
                copy_16(limits + ring * SIDE + at, all_limits + column + at);
        }
        stage = stage + 1 < STAGES ? stage + 1 : 0;
        if (++step == steps) {
            step = 0;
            column += SIDE;
            ring = ring + 1 < TILES ? ring + 1 : 0;
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
__device__ __forceinline__ void multiply(Sums& sums, const Operands& by) {
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
template <class End>
__device__ __forceinline__ void sweep(const Matrix& job, unsigned char* shared, End& end) {
    __shared__ u32 rows[SIDE];
    __shared__ float4 less_of[TILES * SIDE / 4], limits_of[End::LIMITS ? TILES * SIDE / 4 : 1];
    float *less = (float*)less_of, *limits = (float*)limits_of;
    u32 number = threadIdx.x / WARP, l = lane();
    Place place = {number % 2 * 64, number / 2 * 64, 0, nullptr};
    u32 down = place.down, across = place.across;

    u64 run, row;
    find_unit(job, job.first_unit + blockIdx.x, run, row);
    u64 tile = run * job.along, tiles = (job.right_len + SIDE - 1) / SIDE;
    u64 last_tile = tile + job.along < tiles ? tile + job.along : tiles;
    if (job.triangle && tile < row) tile = row;

    // Rows beyond the last query are the last one, with a number that nothing makes up for.
    for (u32 i = threadIdx.x; i < SIDE; i += THREADS) {
        u64 at = row * SIDE + i < job.query_count ? row * SIDE + i : job.query_count - 1;
        rows[i] = job.queries ? job.queries[at] : (u32)at;
    }
    __syncthreads();
    end.begin(rows, row);
    __syncthreads();
    float row_less[4][2];
#pragma unroll
    for (u32 m = 0; m < 4; m++)
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            u32 at = down + m * 16 + h * 8 + l / 4;
            bool there = row * SIDE + at < job.query_count;
            row_less[m][h] = there ? job.left_less[rows[at]] : BEYOND;
        }

    u32 steps = (u32)((job.depth + STEP - 1) / STEP), all = (u32)(last_tile - tile) * steps;
    Sender sender = {job, shared, rows, less, limits, end.limits(), tile * SIDE, 0, 0, 0};
    if (RESIDENT) {
        for (; sender.step < steps; sender.step++) sender.send_rows(shared + sender.step * (SIDE * PITCH));
        sender.step = 0;
    }
#pragma unroll
    for (u32 s = 0; s + 1 < STAGES; s++) {
        if (s < all) sender.send(steps);
        commit_copies();
    }

    Sums sums;
    // Those of the next product are on their way while this one is computed.
    Operands operands[2];
    place.column = tile * SIDE + across;
    wait_copies<STAGES - 2>();
    __syncthreads();
    const unsigned char* kept = shared;
    u32 stage = 0, ring = 0;
    operands[0].load(RESIDENT ? kept : shared, columns_of(shared, 0), across, down, 0);
    for (u32 s = 0, step = 0; s < all; s++) {
        const unsigned char* from = RESIDENT ? kept : shared + stage * (LINES * PITCH);
        const unsigned char* with = columns_of(shared, stage);
        if (step == 0) {
            const float* of_tile = less + ring * SIDE + across;
#pragma unroll
            for (u32 n = 0; n < 8; n++) {
                float2 of = *(const float2*)(of_tile + n * 8 + l % 4 * 2);
#pragma unroll
                for (u32 m = 0; m < 4; m++) {
                    sums[m][n][0] = -__fadd_rn(row_less[m][0], of.x);
                    sums[m][n][1] = -__fadd_rn(row_less[m][0], of.y);
                    sums[m][n][2] = -__fadd_rn(row_less[m][1], of.x);
                    sums[m][n][3] = -__fadd_rn(row_less[m][1], of.y);
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
        place.limits = limits + ring * SIDE + across;
        end.tile(sums, place);
        place.column += SIDE;
        ring = ring + 1 < TILES ? ring + 1 : 0;
    }
    wait_copies<0>();
    end.end();
    if (threadIdx.x == 0) {
        u64 high = (row + 1) * SIDE < job.query_count ? SIDE : job.query_count - row * SIDE;
        u64 beyond = last_tile * SIDE < job.right_len ? last_tile * SIDE : job.right_len;
        if (tile < last_tile) atomicAdd(job.tests, high * (beyond - tile * SIDE));
    }
}
