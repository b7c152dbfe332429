// The nearest neighbours of points, down a tree or among all.
//
// Compiled with SCALAR_*, NORM_* and WIDTH.
#include "nearest.cuh"

#if WIDTH > 0
// ---------------------------------------------------------------- 32 queries together, k up to 32

// Keys that wait in shared memory for each lane, those that are sorted at a time, and lanes of a block.
#define WAITING 16u
#define SOME_WAITING 8u
#define TOGETHER 128u
// Lanes that want a leaf, at the most, if others measure its points for them.
#define SHARED 16u

// Numbers that are loaded 16 bytes at a time.
template <u32 COUNT> struct Numbers {
    static const u32 EACH = 16 / sizeof(Scalar);
    struct alignas(16) Quarter {
        Scalar x[EACH];
    } pieces[COUNT / EACH];

    __device__ __forceinline__ Scalar number(u32 i) const { return pieces[i / EACH].x[i % EACH]; }
    static __device__ __forceinline__ Numbers load(const Scalar* from) {
        Numbers found;
#pragma unroll
        for (u32 i = 0; i < COUNT / EACH; i++) found.pieces[i] = ((const Quarter*)from)[i];
        return found;
    }
};

// A box: least and greatest coordinates in turn.
struct Box : Numbers<2 * WIDTH> {
    __device__ __forceinline__ Scalar low(u32 j) const { return number(2 * j); }
    __device__ __forceinline__ Scalar high(u32 j) const { return number(2 * j + 1); }
    static __device__ __forceinline__ Box at(const Scalar* boxes, u64 box) {
        Box found;
        (Numbers&)found = load(boxes + box * 2 * WIDTH);
        return found;
    }
};

// Half of the points of a leaf.
typedef Numbers<LEAF / 2 * WIDTH> Half;

// Some numbers that are written at once.
template <class V, u32 COUNT> struct alignas(sizeof(V) * COUNT > 16 ? 16 : sizeof(V) * COUNT) Some {
    V x[COUNT];
};

// Writes the row of a lane, `AT_ONCE` numbers at a time, of which k is a multiple.
template <u32 K, u32 AT_ONCE>
__device__ __forceinline__ void write_row(const Search& search, const Key (&best)[K], u32* ids,
                                          Scalar* distances) {
#pragma unroll
    for (u32 i = 0; i < K; i += AT_ONCE) {
        if (i >= search.k) break;
        Some<u32, AT_ONCE> names;
        Some<Scalar, AT_ONCE> values;
#pragma unroll
        for (u32 n = 0; n < AT_ONCE; n++) {
            names.x[n] = id_of(best[i + n]);
            values.x[n] = search.answer.value(best[i + n]);
        }
        *(Some<u32, AT_ONCE>*)(ids + i) = names;
        if (distances) *(Some<Scalar, AT_ONCE>*)(distances + i) = values;
    }
}

// A lane for each query, the k best of it in registers.
//
//     a leaf that a lane's own bound reaches: all lanes measure its points, each for itself, or
//             where few want it, every eight lanes for one of those
//         what may be nearer than a lane's k-th best waits
//     when more than half of the room of some lane is full: all sort eight that wait, and keep the best
template <u32 K> __device__ __forceinline__ void nearest(const Search& search) {
    __shared__ Key waiting[TOGETHER / WARP][WAITING][WARP];
    __shared__ u32 sharing[TOGETHER / WARP][SHARED];
    u64 slot = search.first + thread_number();
    if (slot - lane() >= search.end) return;
    u32 number = slot < search.end ? search.left_numbers[slot] : NONE;
    bool asks = number != NONE;
    u32 asking = __ballot_sync(ALL, asks);
    if (asking == 0) return;
    // A lane without a query has another's, and wants nothing.
    u64 stand_in = slot - lane() + first_of(asking);
    Point<Scalar> x = Point<Scalar>::at(search.left, asks ? slot : stand_in);
    u32 own = !search.exclude_self || !asks ? NONE
              : search.left_names           ? search.left_names[number]
                                            : number;
    Scalar weight = (Scalar)search.weight;

    // The box around all queries.
    Scalar from[WIDTH], to[WIDTH];
#pragma unroll
    for (u32 j = 0; j < WIDTH; j++) {
        from[j] = to[j] = x[j];
        for (u32 with = 1; with < WARP; with *= 2) {
            from[j] = min(from[j], __shfl_xor_sync(ALL, from[j], with));
            to[j] = max(to[j], __shfl_xor_sync(ALL, to[j], with));
        }
    }

    Key best[K];
#pragma unroll
    for (u32 i = 0; i < K; i++) best[i] = make_key((Scalar)search.cap, NONE);
    // What the k-th best is at; of all lanes the worst.
    Key last = best[0];
    Scalar bound = asks ? (Scalar)search.cap : (Scalar)-1, worst = (Scalar)search.cap;
    u32 worst_id = NONE, waits = 0;
    u64 tests = 0;
    Key(&mine)[WAITING][WARP] = waiting[threadIdx.x / WARP];
    u32(&those)[SHARED] = sharing[threadIdx.x / WARP];

    auto flush = [&]() {
        Key more[SOME_WAITING];
#pragma unroll
        for (u32 i = 0; i < SOME_WAITING; i++) {
            more[i] = i < waits ? mine[waits - 1 - i][lane()] : make_key(INFINITE, NONE);
            // What was found may be the query itself.
            if (id_of(more[i]) == own) more[i] = make_key(INFINITE, NONE);
        }
        waits -= min(waits, SOME_WAITING);
        sort_keys<0, SOME_WAITING>(more);
        keep_first<K, SOME_WAITING>(best, more);
        last = best[K - 1];
        if (search.k < K) {
#pragma unroll
            for (u32 i = 0; i < K; i++)
                if (i + 1 == search.k) last = best[i];
        }
        if (asks) bound = acc_of(last);
        worst = bound;
        worst_id = asks ? id_of(last) : 0;
        for (u32 with = 1; with < WARP; with *= 2) {
            worst = larger(worst, __shfl_xor_sync(ALL, worst, with));
            worst_id = max(worst_id, __shfl_xor_sync(ALL, worst_id, with));
        }
    };

    descend<1>(
        search,
        [&](u32 level, u32 first, u32 left, float& rank) {
            Scalar far = INFINITE;
            if (left >> lane() & 1) {
                Box box = Box::at(search.level[level].boxes, first + lane());
                far = 0;
                rank = 0;
#pragma unroll
                for (u32 j = 0; j < WIDTH; j++) {
                    far = add(far, gap(box.low(j), box.high(j), from[j], to[j]), weight);
                    Scalar middle = from[j] + (to[j] - from[j]) / 2;
                    float off = (float)gap(box.low(j), box.high(j), middle);
                    rank += off * off;
                }
            }
            return far;
        },
        [&](u32 level, u32 box, Scalar far) {
            // A smaller row wins a tie.
            return far < worst || (far == worst && search.level[level].least[box] < worst_id);
        },
        [&](u32 level, u32 at) {
            // Queries may be far apart, and the box around them large: each looks for itself.
            Box box = Box::at(search.level[level].boxes, at);
            Scalar far = 0;
#pragma unroll
            for (u32 j = 0; j < WIDTH; j++)
                far = add(far, gap(box.low(j), box.high(j), x[j]), weight);
            // A smaller row wins a tie.
            u32 wanting = __ballot_sync(ALL, far < bound), tied = __ballot_sync(ALL, far == bound);
            if (tied)
                wanting |= __ballot_sync(
                    ALL, far == bound && search.level[level].least[at] < id_of(last));
            return wanting;
        },
        [&](u32 leaf, u32 wanting) {
            if (__popc(wanting) <= SHARED) {
                u64 place = (u64)leaf * LEAF + lane() % LEAF;
                Point<Scalar> y = Point<Scalar>::at(search.right, place);
                // Those lanes, in ascending order.
                u32 many = __popc(wanting), before_it = __popc(wanting & ((1u << lane()) - 1));
                bool wants = wanting >> lane() & 1;
                tests += LEAF * many;
                if (wants) those[before_it] = lane();
                __syncwarp();
                // Every eight lanes take the next of them.
                for (u32 taken = 0; taken < many; taken += WARP / LEAF) {
                    u32 taker = taken + lane() / LEAF, whose = those[taker] % WARP;
                    Scalar acc = 0;
#pragma unroll
                    for (u32 j = 0; j < WIDTH; j++)
                        acc = step(acc, __shfl_sync(ALL, x[j], whose), y[j], weight);
                    Scalar its_bound = __shfl_sync(ALL, bound, whose);
                    u32 its_waits = __shfl_sync(ALL, waits, whose);
                    bool hit = taker < many && acc <= its_bound;
                    u32 hits = __ballot_sync(ALL, hit);
                    if (hits == 0) continue;
                    if (hit) {
                        u32 ahead = hits >> lane() / LEAF * LEAF & ((1u << lane() % LEAF) - 1);
                        mine[its_waits + __popc(ahead)][whose] = make_key(acc, search.right_ids[place]);
                    }
                    u32 group = before_it - taken;
                    if (wants && group < WARP / LEAF)
                        waits += __popc(hits >> group * LEAF & ((1u << LEAF) - 1));
                }
                __syncwarp();
            } else {
                tests += LEAF * __popc(asking);
#pragma unroll 1
                for (u32 half = 0; half < LEAF; half += LEAF / 2) {
                    u64 place = (u64)leaf * LEAF + half;
                    Half y = Half::load(search.right + place * WIDTH);
#pragma unroll
                    for (u32 i = 0; i < LEAF / 2; i++) {
                        Scalar acc = 0;
#pragma unroll
                        for (u32 j = 0; j < WIDTH; j++)
                            acc = step(acc, x[j], y.number(i * WIDTH + j), weight);
                        if (acc <= bound) {
                            Key key = make_key(acc, search.right_ids[place + i]);
                            if (before(key, last)) mine[waits++][lane()] = key;
                        }
                    }
                }
            }
            if (__any_sync(ALL, waits > WAITING - LEAF)) flush();
        });
    while (__any_sync(ALL, waits > 0)) flush();

    if (asks) {
        u64 row = row_of(search, slot, number);
        if (search.answer.ids_at) *search.answer.query(row) = number;
        u32* ids = search.answer.ids(row);
        Scalar* distances = search.answer.distances_at ? search.answer.distances(row) : nullptr;
        // As many at a time as rows allow.
        if (search.k % 4 == 0) write_row<K, 4>(search, best, ids, distances);
        else if (search.k % 2 == 0) write_row<K, 2>(search, best, ids, distances);
        else write_row<K, 1>(search, best, ids, distances);
    }
    if (lane() == 0) atomicAdd(search.tests, tests);
}

// As many blocks at once as registers allow without spilling much, and shared memory.
KERNEL(__launch_bounds__(TOGETHER, sizeof(Scalar) > 4 ? 6 : WIDTH > 4 ? 7 : 8) nearest_8)(__grid_constant__ const Search search) {
    nearest<8>(search);
}
EXPORT(nearest_8)
KERNEL(__launch_bounds__(TOGETHER, 5) nearest_16)(__grid_constant__ const Search search) {
    nearest<16>(search);
}
EXPORT(nearest_16)
#if defined(SCALAR_F32)
// In double precision so many do not fit.
KERNEL(__launch_bounds__(TOGETHER, 4) nearest_32)(__grid_constant__ const Search search) {
    nearest<32>(search);
}
EXPORT(nearest_32)
#endif
#endif

// ---------------------------------------------------------------- a warp for each query, any k

// Lanes of a block.
#define ALONE 128u

// The candidates of a query wait in memory, and the k best of them are kept when there is no more
// room. Every eight lanes take a leaf.
KERNEL(nearest_any)(__grid_constant__ const Search search) {
    __shared__ u32 all_bins[ALONE / WARP][BINS];
    u32* bins = all_bins[threadIdx.x / WARP];
    u64 worker = thread_number() / WARP, workers = (u64)gridDim.x * (ALONE / WARP);
    Key* keys = search.waiting + worker * search.room;
    Scalar weight = (Scalar)search.weight;
    u64 tests = 0;
    for (u64 slot = search.first + worker; slot < search.end; slot += workers) {
        u32 number = search.left_numbers[slot];
        if (number == NONE) continue;
        u64 row = row_of(search, slot, number);
        if (lane() == 0) *search.answer.query(row) = number;
        u32 own = !search.exclude_self ? NONE : search.left_names ? search.left_names[number] : number;
#if WIDTH > 0
        Point<Scalar> x = Point<Scalar>::at(search.left, slot);
#else
        const Scalar* x = search.left + point_place(0, search.dim, slot, 0);
#endif
        Key last = make_key((Scalar)search.cap, NONE);
        u32 count = 0;
        descend<WARP / LEAF>(
            search,
            [&](u32 level, u32 first, u32 left, float& rank) {
                Scalar far = INFINITE;
                if (left >> lane() & 1) {
                    const Level& at = search.level[level];
                    far = 0;
#if WIDTH > 0
#pragma unroll
                    for (u32 j = 0; j < WIDTH; j++)
                        far = add(far,
                                  gap(at.boxes[box_place(WIDTH, 0, first + lane(), 2 * j)],
                                      at.boxes[box_place(WIDTH, 0, first + lane(), 2 * j + 1)], x[j]),
                                  weight);
#else
                    for (u32 j = 0; j < search.dim; j++)
                        far = add(far,
                                  gap(at.boxes[box_place(0, at.count, first + lane(), 2 * j)],
                                      at.boxes[box_place(0, at.count, first + lane(), 2 * j + 1)],
                                      x[j * LEAF]),
                                  weight);
#endif
                    rank = (float)far;
                }
                return far;
            },
            [&](u32 level, u32 box, Scalar far) {
                return far < acc_of(last) ||
                       (far == acc_of(last) && search.level[level].least[box] < id_of(last));
            },
            // That is how far it was measured.
            [&](u32, u32) { return ALL; },
            [&](u32 leaf, u32) {
                Scalar acc = 0;
                Key key = last;
                bool is = false;
                if (leaf != NONE) {
                    u64 place = (u64)leaf * LEAF + lane() % LEAF;
#if WIDTH > 0
                    Point<Scalar> y = Point<Scalar>::at(search.right, place);
#pragma unroll
                    for (u32 j = 0; j < WIDTH; j++) acc = step(acc, x[j], y[j], weight);
#else
                    const Scalar* y = search.right + point_place(0, search.dim, place, 0);
                    for (u32 j = 0; j < search.dim; j++)
                        acc = step(acc, x[j * LEAF], y[j * LEAF], weight);
#endif
                    if (acc <= acc_of(last)) {
                        u32 id = search.right_ids[place];
                        key = make_key(acc, id);
                        is = id != own && before(key, last);
                    }
                }
                u32 found = __ballot_sync(ALL, is);
                tests += LEAF * (WARP / LEAF);
                if (is) keys[count + __popc(found & ((1u << lane()) - 1))] = key;
                count += __popc(found);
                if (count + WARP > search.room) {
                    __syncwarp();
                    last = keep_in_memory(keys, count, (u32)search.k, bins);
                    count = (u32)search.k;
                }
            });
        __syncwarp();
        if (count > search.k) {
            keep_in_memory(keys, count, (u32)search.k, bins);
            count = (u32)search.k;
        }
        write_keys(search, keys, count, row);
        __syncwarp();
    }
    if (lane() == 0) atomicAdd(search.tests, tests);
}
EXPORT(nearest_any)

#if WIDTH == 0
// ---------------------------------------------------------------- all points, in tiles

// Queries and candidates of a tile, those of a thread, and dimensions that are loaded at a time.
#define TILE 64u
#define OWN 4u
#define DEEP 16u

// A block takes 64 queries, and 64 candidates after the other: each thread measures four with four.
// Points lie one after the other, as in the input.
KERNEL(nearest_brute)(__grid_constant__ const Search search) {
    __shared__ Scalar queries[DEEP][TILE], candidates[DEEP][TILE];
    __shared__ Key lasts[TILE];
    __shared__ u32 counts[TILE], owns[TILE];
    __shared__ u32 all_bins[(TILE / OWN) * (TILE / OWN) / WARP][BINS];
    const u32 SIDE = TILE / OWN;
    u32 warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    u32 across = threadIdx.x % SIDE * OWN, down = threadIdx.x / SIDE * OWN;
    Scalar weight = (Scalar)search.weight;
    u64 tests = 0, tiles = (search.end - search.first + TILE - 1) / TILE;
    Key* room = search.waiting + (u64)blockIdx.x * TILE * search.room;
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        u64 first = search.first + tile * TILE;
        u32 here = (u32)min((u64)TILE, search.end - first);
        for (u32 q = threadIdx.x; q < TILE; q += blockDim.x) {
            u32 number = (u32)(q < here ? first + q : first);
            counts[q] = 0;
            lasts[q] = make_key((Scalar)search.cap, NONE);
            owns[q] = !search.exclude_self ? NONE
                      : search.left_names  ? search.left_names[number]
                                           : number;
        }
        __syncthreads();
        for (u64 from = 0; from < search.right_len; from += TILE) {
            Scalar acc[OWN][OWN] = {};
            for (u64 depth = 0; depth < search.dim; depth += DEEP) {
                u32 deep = (u32)min((u64)DEEP, search.dim - depth);
                for (u32 i = threadIdx.x; i < TILE * DEEP; i += blockDim.x) {
                    u32 point = i / DEEP, j = i % DEEP;
                    bool is = j < deep;
                    u64 query = first + point, candidate = from + point;
                    queries[j][point] = is && point < here ? search.left[query * search.dim + depth + j] : 0;
                    candidates[j][point] =
                        is && candidate < search.right_len ? search.right[candidate * search.dim + depth + j] : 0;
                }
                __syncthreads();
                for (u32 j = 0; j < deep; j++) {
                    Scalar x[OWN], y[OWN];
#pragma unroll
                    for (u32 i = 0; i < OWN; i++) {
                        x[i] = queries[j][down + i];
                        y[i] = candidates[j][across + i];
                    }
#pragma unroll
                    for (u32 q = 0; q < OWN; q++)
#pragma unroll
                        for (u32 c = 0; c < OWN; c++) acc[q][c] = step(acc[q][c], x[q], y[c], weight);
                }
                __syncthreads();
            }
#pragma unroll
            for (u32 q = 0; q < OWN; q++) {
                if (down + q >= here) continue;
                Key last = lasts[down + q];
#pragma unroll
                for (u32 c = 0; c < OWN; c++) {
                    u64 candidate = from + across + c;
                    if (candidate >= search.right_len || !(acc[q][c] <= acc_of(last))) continue;
                    u32 id = search.right_ids ? search.right_ids[candidate] : (u32)candidate;
                    Key key = make_key(acc[q][c], id);
                    if (id == owns[down + q] || !before(key, last)) continue;
                    u32 at = atomicAdd(&counts[down + q], 1u);
                    room[(down + q) * search.room + at] = key;
                }
            }
            tests += OWN * OWN;
            __syncthreads();
            for (u32 q = warp; q < here; q += warps) {
                u32 count = counts[q];
                if (count + TILE <= search.room) continue;
                Key last = keep_in_memory(room + q * search.room, count, (u32)search.k, all_bins[warp]);
                __syncwarp();
                if (lane() == 0) {
                    lasts[q] = last;
                    counts[q] = (u32)search.k;
                }
            }
            __syncthreads();
        }
        __syncthreads();
        for (u32 q = warp; q < here; q += warps) {
            u32 count = counts[q];
            Key* keys = room + q * search.room;
            if (count > search.k) {
                keep_in_memory(keys, count, (u32)search.k, all_bins[warp]);
                count = (u32)search.k;
            }
            __syncwarp();
            u64 row = first + q - search.first;
            write_keys(search, keys, count, row);
            if (lane() == 0) *search.answer.query(row) = (u32)(first + q);
            __syncwarp();
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(search.tests, tests * blockDim.x);
}
EXPORT(nearest_brute)

// ---------------------------------------------------------------- rows in order

// Keys that are sorted in shared memory.
#if defined(SCALAR_F32)
#define SORTED 4096u
#else
#define SORTED 2048u
#endif

// Puts the keys of each row in order, a block to a row, and writes ids and distances. A row that is
// longer than shared memory has room for a power of two of keys, and is sorted where it is.
KERNEL(nearest_rows)(__grid_constant__ const Search search, u64 rows) {
    __shared__ Key keys[SORTED];
    u32 length = 1;
    while (length < search.row_room) length *= 2;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        Key* all = search.rows + row * search.row_room;
        u32 tile = length < SORTED ? length : SORTED;
        for (u32 part = tile; part <= length; part *= 2) {
            // Steps between tiles, in memory.
            if (part > tile) {
                for (u32 i = threadIdx.x; i < length / 2; i += blockDim.x) {
                    u32 at = i / (part / 2) * part + i % (part / 2);
                    order(all[at], all[at ^ (part - 1)]);
                }
                __syncthreads();
                for (u32 stride = part / 4; stride >= tile; stride /= 2) {
                    for (u32 i = threadIdx.x; i < length / 2; i += blockDim.x) {
                        u32 at = i / stride * 2 * stride + i % stride;
                        order(all[at], all[at + stride]);
                    }
                    __syncthreads();
                }
            }
            for (u32 begin = 0; begin < length; begin += tile) {
                for (u32 i = threadIdx.x; i < tile; i += blockDim.x)
                    keys[i] = begin + i < search.row_room ? all[begin + i] : make_key(INFINITE, NONE);
                __syncthreads();
                // All steps within a tile the first time, later those that are left.
                for (u32 inner = part == tile ? 2 : tile; inner <= tile; inner *= 2) {
                    u32 stride = inner / 2;
                    if (part == tile) {
                        for (u32 i = threadIdx.x; i < tile / 2; i += blockDim.x) {
                            u32 at = i / (inner / 2) * inner + i % (inner / 2);
                            order(keys[at], keys[at ^ (inner - 1)]);
                        }
                        __syncthreads();
                        stride = inner / 4;
                    }
                    for (; stride > 0; stride /= 2) {
                        for (u32 i = threadIdx.x; i < tile / 2; i += blockDim.x) {
                            u32 at = i / stride * 2 * stride + i % stride;
                            order(keys[at], keys[at + stride]);
                        }
                        __syncthreads();
                    }
                }
                for (u32 i = threadIdx.x; i < tile; i += blockDim.x)
                    if (begin + i < search.row_room) all[begin + i] = keys[i];
                __syncthreads();
            }
        }
        u32* ids = search.answer.ids(row);
        Scalar* distances = search.answer.distances_at ? search.answer.distances(row) : nullptr;
        for (u32 i = threadIdx.x; i < search.k; i += blockDim.x) {
            ids[i] = id_of(all[i]);
            if (distances) distances[i] = search.answer.value(all[i]);
        }
        __syncthreads();
    }
}
EXPORT(nearest_rows)
#endif
