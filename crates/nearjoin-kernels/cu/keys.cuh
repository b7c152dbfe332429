// Neighbours as keys: ascending by distance, then by row.
#pragma once
#include "network.cuh"
#include "scalar.cuh"

#define NONE 0xffffffffu

// Distances are not negative, so that their bits ascend as they do.
#if defined(SCALAR_F32)
typedef u64 Key;
__device__ __forceinline__ Key make_key(float acc, u32 id) {
    return (u64)__float_as_uint(acc) << 32 | id;
}
__device__ __forceinline__ float acc_of(Key key) { return __uint_as_float((u32)(key >> 32)); }
__device__ __forceinline__ u32 id_of(Key key) { return (u32)key; }
__device__ __forceinline__ bool before(Key a, Key b) { return a < b; }
#else
struct alignas(16) Key {
    u64 acc;
    u32 id;
};
__device__ __forceinline__ Key make_key(double acc, u32 id) {
    Key key = {(u64)__double_as_longlong(acc), id};
    return key;
}
__device__ __forceinline__ double acc_of(Key key) { return __longlong_as_double((long long)key.acc); }
__device__ __forceinline__ u32 id_of(Key key) { return key.id; }
__device__ __forceinline__ bool before(Key a, Key b) {
    return a.acc < b.acc || (a.acc == b.acc && a.id < b.id);
}
#endif

__device__ __forceinline__ Key earlier(Key a, Key b) { return before(b, a) ? b : a; }

#if defined(SCALAR_F64)
__device__ __forceinline__ void order(Key& a, Key& b) {
    bool swapped = before(b, a);
    Key first = swapped ? b : a;
    b = swapped ? a : b;
    a = first;
}
#endif

// ---------------------------------------------------------------- in registers

// Of K keys that ascend and B more that do, B at most K, the K first. The smaller of two from opposite
// ends of both rise and then fall, and are put in order by halves.
template <u32 K, u32 B> __device__ __forceinline__ void keep_first(Key* best, const Key* more) {
    const u32 SOME = B < K ? B : K;
#pragma unroll
    for (u32 i = 0; i < SOME; i++) best[K - 1 - i] = earlier(best[K - 1 - i], more[i]);
    merge_keys<K, K / 2>(best);
}

// ---------------------------------------------------------------- in memory, by a warp

// Keys of which a byte is looked at are counted in so many bins.
#define BINS 256u

// The bits by which most keys differ, and the rest.
__device__ __forceinline__ u64 upper(Key key) {
#if defined(SCALAR_F32)
    return key;
#else
    return key.acc;
#endif
}

// A value such that `wanted` of the numbers that `number_of` has for all places, or more, are at most
// that. `equal` is how many are wanted of those that are equal to it: all of them where `wanted` are
// at most that. A number of ~0 does not count.
template <class Number>
__device__ __forceinline__ u64 select(u32 count, u32 wanted, u32* bins, u32& equal, Number number_of) {
    u64 least = ~0ull, most = 0;
    for (u32 i = lane(); i < count; i += WARP) {
        u64 number = number_of(i);
        if (number == ~0ull) continue;
        least = min(least, number);
        most = max(most, number);
    }
    for (u32 with = 1; with < WARP; with *= 2) {
        least = min(least, __shfl_xor_sync(ALL, least, with));
        most = max(most, __shfl_xor_sync(ALL, most, with));
    }
    u32 below = 0;
    // Everything above the highest bit in which two of them differ is the same for all.
    int bit = 63 - __clzll((long long)(least ^ most));
    u64 found = bit < 0 ? least : bit == 63 ? 0 : least >> (bit + 1) << (bit + 1);
    while (bit >= 0) {
        int shift = bit < 7 ? 0 : bit - 7;
        u64 known = bit == 63 ? 0 : ~0ull << (bit + 1);
        for (u32 i = lane(); i < BINS; i += WARP) bins[i] = 0;
        __syncwarp();
        for (u32 i = lane(); i < count; i += WARP) {
            u64 number = number_of(i);
            if (number != ~0ull && ((number ^ found) & known) == 0)
                atomicAdd(&bins[(number & ~known) >> shift], 1u);
        }
        __syncwarp();
        // The bin in which the wanted number is: each lane has eight of them.
        const u32 EACH = BINS / WARP;
        u32 own = 0;
        for (u32 i = 0; i < EACH; i++) own += bins[lane() * EACH + i];
        u32 sum = own;
        for (u32 step = 1; step < WARP; step *= 2) {
            u32 before = __shfl_up_sync(ALL, sum, step);
            if (lane() >= step) sum += before;
        }
        u32 holder = __ffs((int)__ballot_sync(ALL, below + sum >= wanted)) - 1;
        u32 ahead = __shfl_sync(ALL, below + sum - own, holder), bin = holder * EACH, inside = 0;
        for (u32 i = 0; i < EACH; i++) {
            inside = bins[bin];
            if (ahead + inside >= wanted) break;
            ahead += inside;
            bin++;
        }
        __syncwarp();
        below = ahead;
        found |= (u64)bin << shift;
        if (below + inside == wanted) {
            // All of this bin: where exactly the last of them is does not matter.
            equal = NONE;
            return found | ((1ull << shift) - 1);
        }
        bit = shift - 1;
    }
    equal = wanted - below;
    return found;
}

// Keeps the first `k` of `count` keys, which are more, in any order; all differ. Returns the last of
// them. All lanes of a warp.
__device__ __noinline__ Key keep_in_memory(Key* keys, u32 count, u32 k, u32* bins) {
    u32 equal;
    u64 last = select(count, k, bins, equal, [keys](u32 i) { return upper(keys[i]); });
#if defined(SCALAR_F64)
    // Of equal distances, the smaller rows.
    u32 last_id = NONE, all;
    if (equal != NONE)
        last_id = (u32)select(count, equal, bins, all, [keys, last](u32 i) {
            return keys[i].acc == last ? (u64)keys[i].id : ~0ull;
        });
#endif
    Key greatest = keys[0];
    bool some = false;
    u32 kept = 0;
    for (u32 first = 0; first < count; first += WARP) {
        u32 i = first + lane();
        Key key = keys[i < count ? i : 0];
#if defined(SCALAR_F32)
        bool stays = i < count && key <= last;
#else
        bool stays = i < count && (key.acc < last || (key.acc == last && key.id <= last_id));
#endif
        u32 mask = __ballot_sync(ALL, stays);
        // What is written lies before what is read next, and behind what others read now.
        if (stays) {
            keys[kept + __popc(mask & ((1u << lane()) - 1))] = key;
            greatest = some ? (before(greatest, key) ? key : greatest) : key;
            some = true;
        }
        kept += __popc(mask);
        __syncwarp();
    }
    // The last of all lanes that have one.
    for (u32 with = 1; with < WARP; with *= 2) {
#if defined(SCALAR_F32)
        Key other = __shfl_xor_sync(ALL, greatest, with);
#else
        Key other;
        other.acc = __shfl_xor_sync(ALL, greatest.acc, with);
        other.id = __shfl_xor_sync(ALL, greatest.id, with);
#endif
        bool theirs = __shfl_xor_sync(ALL, (u32)some, with) != 0;
        if (theirs && (!some || before(greatest, other))) greatest = other;
        some = some || theirs;
    }
    return greatest;
}
