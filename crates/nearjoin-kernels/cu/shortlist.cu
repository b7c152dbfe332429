// Shortlists: what scores of candidates are compared with, and the nearest of those that are listed.
// Compiled with SCALAR_F32 or SCALAR_F64, NORM_SQUARES and WIDTH=0.
//
//     less: what scores of each point are less by               scores.cu: best of some candidates
//     bounds: the k-th best of those says how far the nearest may be
//     limits: what a score must be then                         scores.cu: lists all that are
//     overflowing: queries with more than there is room for, which are asked again with
//         what `measure` finds in the lists that they have
//     measure: the k nearest of each list
#include "bound.cuh"
#include "half.cuh"
#include "measure.cuh"
#include "nearest.cuh"

// Warps of a block.
#define WARPS 4u

// What the scores of points are less by, too little or too much; of none, up to `room`, what nothing makes
// up for.
KERNEL(less)(const double2* sizes, u64 len, u64 room, Bound bound, u32 much, float* less) {
    u64 at = thread_number();
    if (at >= room) return;
    less[at] = at < len ? bound.less(sizes[at].x, sizes[at].y, much) : BEYOND;
}

// Some points, evenly chosen: a warp to each.
KERNEL(sampled)(const u16* halves, const float* less, u64 len, u64 count, u64 room, u32 depth, u16* to,
                float* to_less) {
    u64 i = thread_number() / WARP;
    if (i >= room) return;
    u64 from = i < count ? i * len / count : 0;
    const u32* words = (const u32*)(halves + from * depth);
    for (u32 j = lane(); j < depth / 2; j += WARP) ((u32*)(to + i * depth))[j] = words[j];
    if (lane() == 0) to_less[i] = i < count ? less[from] : BEYOND;
}

// A number that descends as scores ascend.
__device__ __forceinline__ u64 rank_of(float score) { return (u32)~order_bits(score); }

// How far the `wanted` nearest of each query may be: as far as so many groups have a candidate. A warp to
// a query.
KERNEL(__launch_bounds__(WARPS * WARP) bounds)(const float* best, u64 groups, u64 queries, u32 wanted,
                                               Bound bound, double cap, double* reach) {
    __shared__ u32 all_bins[WARPS][BINS];
    u64 query = thread_number() / WARP;
    if (query >= queries) return;
    const float* of = best + query * groups;
    u32 equal;
    u64 last = select((u32)groups, wanted, all_bins[threadIdx.x / WARP], equal,
                      [of](u32 i) { return rank_of(of[i]); });
    // The least of the scores that are no less.
    float least = __uint_as_float(0x7f800000u);
    for (u32 i = lane(); i < groups; i += WARP)
        if (rank_of(of[i]) <= last) least = fminf(least, of[i]);
    for (u32 with = 1; with < WARP; with *= 2) least = fminf(least, __shfl_xor_sync(ALL, least, with));
    if (lane() == 0) {
        double far = bound.reach_of_score((double)least);
        reach[query] = far < cap ? far : cap;
    }
}

// What the scores of candidates must be, of all queries or of these; of none, up to `room`, what nothing
// reaches.
KERNEL(limits)(const double* reach, const double2* sizes, const u32* queries, u64 len, u64 room,
               Bound bound, float* limits) {
    u64 at = thread_number();
    if (at >= room) return;
    if (at >= len) {
        limits[at] = BEYOND;
        return;
    }
    u64 query = queries ? queries[at] : at;
    limits[query] = bound.limit(reach[query], sizes[query].y);
}

// How far some queries were rounded, and how far their nearest may be: of so many, evenly chosen.
KERNEL(typical)(const double2* sizes, const double* reach, u64 len, u64 count, double2* found) {
    u64 i = thread_number();
    if (i >= count) return;
    u64 at = i * len / count;
    found[i] = make_double2(sizes[at].y, reach[at]);
}

// Queries whose lists had no room for all: their positions, and how many there are.
KERNEL(overflowing)(const u32* lens, u64 len, u64 capacity, u32* found, u32* count) {
    u64 at = thread_number();
    bool is = at < len && lens[at] > capacity;
    u32 all = __ballot_sync(ALL, is), base = 0;
    if (all == 0) return;
    if (lane() == 0) base = atomicAdd(count, (u32)__popc(all));
    base = __shfl_sync(ALL, base, 0);
    if (is) found[base + __popc(all & ((1u << lane()) - 1))] = (u32)at;
}

// Sets the lengths of some lists to 0.
KERNEL(emptied)(const u32* queries, u64 count, u32* lens) {
    u64 at = thread_number();
    if (at < count) lens[queries[at]] = 0;
}

// Every member has eight bytes.
struct Shortlist {
    // For every query from `first` on, its candidates' scores and positions, room for so many, and how
    // many there are.
    const uint2* lists;
    u64 capacity;
    const u32* lens;
    u64 first;
    const double2* sizes;
    Bound bound;
    // Queries that are asked how far their nearest may be, and where that goes; or null where rows are
    // written.
    const u32* queries;
    u64 query_count;
    double* reach;
};
static_assert(sizeof(Shortlist) == 8 * 15, "as many words as the host writes");

// Measures the candidates of a query that are in its list and that `wanted` wants, and appends what is
// near enough to keys. Gives how many there are then.
//
// Their positions are put together first, so that lanes have one each.
template <class Wanted>
__device__ __forceinline__ u32 measured(const Search& search, const Scalar* x, const uint2* list, u32 len,
                                        Key* keys, u32 count, Key last, u64& tests, Wanted wanted) {
    u32 end = count;
    for (u32 from = 0; from < len; from += WARP) {
        u32 i = from + lane();
        bool is = i < len && wanted(__uint_as_float(list[i < len ? i : 0].x));
        u32 some = __ballot_sync(ALL, is);
        if (is) keys[end + __popc(some & ((1u << lane()) - 1))] = make_key(0, list[i].y);
        end += __popc(some);
    }
    __syncwarp();
    tests += end - count;
    for (u32 from = count; from < end; from += WARP) {
        u32 i = from + lane();
        bool is = i < end;
        u32 at = id_of(keys[is ? i : from]);
        Key key = last;
        if (is) {
            Scalar acc = accumulated(x, search.right + at * search.dim, (u32)search.dim);
            key = make_key(acc, search.right_ids ? search.right_ids[at] : at);
            is = acc <= (Scalar)search.cap && before(key, last);
        }
        u32 some = __ballot_sync(ALL, is);
        // Behind what was read, or where it was.
        if (is) keys[count + __popc(some & ((1u << lane()) - 1))] = key;
        count += __popc(some);
        __syncwarp();
    }
    return count;
}

// The k nearest of a list; a warp to a query.
//
//     those with the k best scores are measured; the last of them says how far the others may be
//     those whose scores say that they may be nearer are measured too
//     the k nearest of them all
//
// A list that had no room for all has no row: its query's number is none.
KERNEL(__launch_bounds__(WARPS * WARP) measure)(__grid_constant__ const Search search,
                                                __grid_constant__ const Shortlist shortlist) {
    __shared__ u32 all_bins[WARPS][BINS];
    u32* bins = all_bins[threadIdx.x / WARP];
    u64 worker = thread_number() / WARP, workers = (u64)gridDim.x * WARPS, tests = 0;
    bool tells = shortlist.reach != nullptr;
    u64 queries = tells ? shortlist.query_count : search.end - search.first;
    Key* keys = search.waiting + worker * search.room;
    const Bound& bound = shortlist.bound;
    u32 k = (u32)search.k;
    for (u64 i = worker; i < queries; i += workers) {
        // Which of the lists, and of all queries.
        u64 at = tells ? shortlist.queries[i] : search.first + i - shortlist.first;
        u64 query = shortlist.first + at;
        u32 len = shortlist.lens[at];
        bool whole = len <= shortlist.capacity;
        if (!tells && lane() == 0) *search.answer.query(i) = whole ? (u32)query : NONE;
        if (!tells && !whole) continue;
        if (!whole) len = (u32)shortlist.capacity;
        const uint2* list = shortlist.lists + at * shortlist.capacity;
        const Scalar* x = search.left + query * search.dim;
        Key last = make_key(INFINITE, NONE);
        u32 equal;
        u64 best = ~0ull;
        if (len > k)
            best = select(len, k, bins, equal, [list](u32 i) { return rank_of(__uint_as_float(list[i].x)); });
        u32 count = measured(search, x, list, len, keys, 0, last, tests,
                             [best](float score) { return rank_of(score) <= best; });
        double far = bound.reach_of_sum(search.cap);
        if (count >= k) {
            last = keep_in_memory(keys, count, k, bins);
            __syncwarp();
            count = k;
            double nearer = bound.reach_of_sum((double)acc_of(last));
            far = nearer < far ? nearer : far;
        }
        if (best != ~0ull) {
            float limit = bound.limit(far, shortlist.sizes[at].y);
            count = measured(search, x, list, len, keys, count, last, tests, [best, limit](float score) {
                return rank_of(score) > best && score >= limit;
            });
            if (count > k) {
                last = keep_in_memory(keys, count, k, bins);
                __syncwarp();
                count = k;
            }
        }
        if (tells) {
            double nearer = bound.reach_of_sum((double)acc_of(last));
            if (lane() == 0 && count == k && nearer < shortlist.reach[at]) shortlist.reach[at] = nearer;
        } else {
            write_keys(search, keys, count, i);
        }
        __syncwarp();
    }
    if (lane() == 0 && tests) atomicAdd(search.tests, tests);
}

EXPORT(less)
EXPORT(sampled)
EXPORT(bounds)
EXPORT(limits)
EXPORT(typical)
EXPORT(overflowing)
EXPORT(emptied)
EXPORT(measure)
