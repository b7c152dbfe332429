// What a search for the nearest is told, and how a warp goes down a tree.
#pragma once
#include "keys.cuh"
#include "pair.cuh"
#include "tree.cuh"

#define LEVELS 8

// A level of a tree: its boxes, and the least row in each.
struct Level {
    const Scalar* boxes;
    const u32* least;
    u64 count;
};

// Rows of the answer, in pieces that cross the bus as they are: the numbers of their queries, then
// `k` ids for each, then `k` distances.
struct Answer {
    unsigned char* pieces;
    u64 rows_per_piece;
    u64 piece_bytes;
    u64 ids_at;
    // 0 where they are not wanted.
    u64 distances_at;
    // Whether what was added up is wanted and not the distance.
    u64 raw;
    u64 k;

    __device__ __forceinline__ unsigned char* piece(u64 row) const {
        return pieces + row / rows_per_piece * piece_bytes;
    }
    __device__ __forceinline__ u32* query(u64 row) const {
        return (u32*)piece(row) + row % rows_per_piece;
    }
    __device__ __forceinline__ u32* ids(u64 row) const {
        return (u32*)(piece(row) + ids_at) + row % rows_per_piece * k;
    }
    __device__ __forceinline__ Scalar* distances(u64 row) const {
        return (Scalar*)(piece(row) + distances_at) + row % rows_per_piece * k;
    }
    // The distance of a key; of none it is beyond all.
    __device__ __forceinline__ Scalar value(Key key) const {
        if (id_of(key) == NONE) return INFINITE;
        return raw ? acc_of(key) : distance(acc_of(key));
    }
};

// Every member has eight bytes, so that it is the same structure on the host.
struct Search {
    // The queries, in leaves, or one after the other where all points are candidates. Their numbers in the
    // answer, and what those are in the right input, or null where that is the same; their places if
    // they are counted without gaps, or null where rows stand by number.
    const Scalar* left;
    const u32* left_numbers;
    const u32* left_names;
    const u32* left_places;
    // Slots of queries that are asked for, some of which are empty; and the place of the first.
    u64 first, end;
    u64 first_place;

    // The candidates, in leaves.
    const Scalar* right;
    const u32* right_ids;
    u64 right_len;
    u64 levels;
    Level level[LEVELS];

    u64 dim;
    // What the magnitude of a difference counts for beside those before it.
    double weight;
    // Nothing that adds up to more is a neighbour.
    double cap;
    // Whether a point is no neighbour of itself.
    u64 exclude_self;
    u64 k;

    Answer answer;
    // Room for keys of rows that are not in order yet, `row_room` for each; and for candidates,
    // `room` for each query that is looked for at a time.
    Key* rows;
    u64 row_room;
    Key* waiting;
    u64 room;
    u64* tests;
};
static_assert(sizeof(Search) == 8 * (16 + 3 * LEVELS + 7 + 5), "as many words as the host writes");

// The row of the answer of a query.
__device__ __forceinline__ u64 row_of(const Search& search, u64 slot, u32 number) {
    return (search.left_places ? search.left_places[slot] : number) - search.first_place;
}

// How far a box is from another, or from a point, along one dimension: by the operations that
// decide a pair, each of which is monotone. So no two points of them are nearer than that adds up to.
__device__ __forceinline__ Scalar gap(Scalar low, Scalar high, Scalar from, Scalar to) {
    return larger(larger(subtract(low, to), subtract(from, high)), (Scalar)0);
}
__device__ __forceinline__ Scalar gap(Scalar low, Scalar high, Scalar x) {
    return subtract(x, min(larger(x, low), high));
}

// What of a tree has been looked at. Lane i remembers level i.
//
//     look at the boxes of the highest level
//     as long as there are boxes that may hold a neighbour:
//         take the nearest of them
//         look at the boxes in it, or open it if it is a leaf
//         when none is left, go on in the level above
//
// `measure` says how far a box is, and in which order boxes are taken; `may_hold` whether it may hold
// a neighbour still; `reached` whether it does for some query, and is asked by all lanes before they
// look into a box; `open` gets one leaf, or for every eight lanes one.
template <u32 AT_ONCE, class Measure, class MayHold, class Reached, class Open>
__device__ __forceinline__ void descend(const Search& search, Measure measure, MayHold may_hold,
                                        Reached reached, Open open) {
    u32 level = (u32)search.levels - 1, first = 0, count = (u32)search.level[level].count;
    u32 left = count >= WARP ? ALL : (1u << count) - 1, firsts = 0, lefts = 0;
    while (true) {
        float rank = 0;
        Scalar far = measure(level, first, left, rank);
        bool goes_down = false;
        u32 chosen = 0;
        while (!goes_down) {
            bool may = (left >> lane() & 1) && may_hold(level, first + lane(), far);
            // What may hold none now never will: bounds only shrink.
            left = __ballot_sync(ALL, may);
            if (left == 0) break;
            u32 mine = NONE;
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                // The rank, with the lane in place of its last bits.
                u32 key = left >> lane() & 1 ? (__float_as_uint(rank) & ~(WARP - 1)) | lane() : NONE;
                for (u32 with = 1; with < WARP; with *= 2)
                    key = min(key, __shfl_xor_sync(ALL, key, with));
                chosen = key % WARP;
                left &= ~(1u << chosen);
                if (AT_ONCE == 1 || lane() / LEAF == i) mine = first + chosen;
                if (level > 0 || left == 0) break;
            }
            if (!reached(level, first + chosen)) continue;
            goes_down = level > 0;
            if (!goes_down) open(mine);
        }
        if (goes_down) {
            if (lane() == level) {
                firsts = first;
                lefts = left;
            }
            first = (first + chosen) * WARP;
            level--;
            count = (u32)search.level[level].count - first;
            left = count >= WARP ? ALL : (1u << count) - 1;
        } else {
            // Up, past levels of which nothing is left.
            do {
                if (++level == search.levels) return;
                left = __shfl_sync(ALL, lefts, level);
            } while (left == 0);
            first = __shfl_sync(ALL, firsts, level);
        }
    }
}
