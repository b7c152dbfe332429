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
    // 0 where numbers are not wanted, or distances.
    u64 ids_at;
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

// Writes the best of a query to where rows are put in order.
__device__ __forceinline__ void write_keys(const Search& search, const Key* keys, u32 count, u64 row) {
    Key* to = search.rows + row * search.row_room;
    for (u32 i = lane(); i < search.row_room; i += WARP)
        to[i] = i < count ? keys[i] : make_key(INFINITE, NONE);
}

// How far a box is from another, or from a point, along one dimension: by the operations that
// decide a pair, each of which is monotone. So no two points of them are nearer than that adds up to.
__device__ __forceinline__ Scalar gap(Scalar low, Scalar high, Scalar from, Scalar to) {
    return larger(larger(subtract(low, to), subtract(from, high)), (Scalar)0);
}
__device__ __forceinline__ Scalar gap(Scalar low, Scalar high, Scalar x) {
    return subtract(x, min(larger(x, low), high));
}

__device__ __forceinline__ u32 first_of(u32 lanes) { return __ffs((int)lanes) - 1; }

// The lane that has the least number; all differ.
__device__ __forceinline__ u32 lane_of_least(u32 x) {
    u32 least = x;
#pragma unroll
    for (u32 with = 1; with < WARP; with *= 2) least = min(least, __shfl_xor_sync(ALL, least, with));
    return first_of(__ballot_sync(ALL, x == least));
}

// What of a tree has been looked at. Lane i remembers box i of every 32, in a bit for each level.
//
//     look at the boxes of the highest level
//     as long as there are boxes that may hold a neighbour:
//         take the nearest of them, and look at the boxes in it
//         if those are leaves, open all that may hold a neighbour, the nearest first
//         when none is left, go on in the level above
//
// `measure` says how far a box is, and in which order boxes are taken; `may_hold` whether it may hold
// a neighbour still; `reached` for which lanes it does, and is asked by all before they look into
// a box; `open` gets a leaf and those lanes, or where it takes some `AT_ONCE`, every eight lanes their
// own.
//
// Whatever says where the warp is comes from ballots: the compiler knows of those, and of no shuffle,
// that they are the same in all lanes, and keeps it in registers that all lanes share.
template <u32 AT_ONCE, class Measure, class MayHold, class Reached, class Open>
__device__ __forceinline__ void descend(const Search& search, Measure measure, MayHold may_hold,
                                        Reached reached, Open open) {
    u32 level = (u32)search.levels - 1, first = 0, lefts = 0;
    u32 left = __ballot_sync(ALL, lane() < search.level[level].count);
    while (true) {
        float rank = 0;
        Scalar far = measure(level, first, left, rank);
        // The rank, with the lane in place of its last bits; behind all, of what may hold none: it never
        // will, for bounds only shrink.
        auto key = [&]() {
            bool may = (left >> lane() & 1) && may_hold(level, first + lane(), far);
            left = __ballot_sync(ALL, may);
            return may ? (__float_as_uint(rank) & ~(WARP - 1)) | lane() : NONE;
        };
        bool goes_down = false;
        u32 chosen = 0;
        if (level > 0) {
            while (!goes_down) {
                u32 mine = key();
                if (left == 0) break;
                chosen = lane_of_least(mine);
                left &= ~(1u << chosen);
                goes_down = reached(level, first + chosen) != 0;
            }
        } else {
            u32 mine = key(), leaves = __popc(left), place = 0;
            for (u32 rest = left; rest != 0; rest &= rest - 1)
                place += __shfl_sync(ALL, mine, first_of(rest)) < mine;
            for (u32 i = 0; i < leaves; i += AT_ONCE) {
                u32 leaf = first_of(__ballot_sync(ALL, place == i));
                if constexpr (AT_ONCE == 1) {
                    u32 wanting = reached(0, first + leaf);
                    if (wanting != 0) open(first + leaf, wanting);
                } else {
                    for (u32 n = 1; n < AT_ONCE; n++) {
                        u32 next = __ballot_sync(ALL, i + n < leaves && place == i + n);
                        if (lane() / LEAF == n) leaf = next ? first_of(next) : NONE;
                    }
                    Scalar away = __shfl_sync(ALL, far, leaf % WARP);
                    bool may = leaf != NONE && may_hold(0, first + leaf, away);
                    u32 wanting = __ballot_sync(ALL, may);
                    if (wanting != 0) open(may ? first + leaf : NONE, wanting);
                }
            }
        }
        if (goes_down) {
            lefts = (lefts & ~(1u << level)) | (left >> lane() & 1) << level;
            first = (first + chosen) * WARP;
            level--;
            left = __ballot_sync(ALL, first + lane() < search.level[level].count);
        } else {
            // Up, past levels of which nothing is left.
            do {
                if (++level == search.levels) return;
                first = first / WARP / WARP * WARP;
                left = __ballot_sync(ALL, lefts >> level & 1);
            } while (left == 0);
        }
    }
}
