// The cell-cooperative join: a warp takes 32 queries that follow each other in the order of
// the index, finds the candidates of their box, and tests them together.
//
//     for each unit of 32 queries
//         halve it while its box is much larger than what one query needs
//         for each run of candidates within reach of the box
//             for each 32 of them
//                 skip them if their box is farther than ε from every query
//                 take them all if it lies within ε of every query
//                 else copy them to shared memory, and
//                 for each of them: every lane tests it against its own query
//
// A box that is too large holds points that are neighbours in the order but not in space.
// Then 8 queries go together, four lanes to each, or one, with all lanes to itself.
#pragma once
#include "find.cuh"

// What becomes of a match.
enum {
    // It counts for its query.
    COUNT,
    // For its query and, pairs being found once, for the candidate too.
    COUNT_BOTH,
    // Its row goes to its place.
    FILL,
    // The pair is appended to a list.
    LIST,
    // Nothing is tested: how many tests there would be.
    WORK
};

#define GROUP_THREADS 256u
#define GROUP_WARPS (GROUP_THREADS / WARP)
// Blocks that a multiprocessor should have room for: enough warps to wait for memory in turn.
#if defined(SCALAR_F32)
#define GROUP_BLOCKS 4
#else
#define GROUP_BLOCKS 3
#endif
#define GROUP_KERNEL(name) KERNEL(__launch_bounds__(GROUP_THREADS, GROUP_BLOCKS) name)
// Pairs that a warp holds back before it appends them to the list.
#define HELD 128u

// Shared memory of a warp.
template <int MODE, class L> struct Workspace {
    Search search;
#if WIDTH > 0
    alignas(16) L tile[WARP * WIDTH];
#endif
    u32 ids[WARP];
    uint2 held[MODE == LIST ? HELD : 1];
    Scalar held_distances[MODE == LIST ? HELD : 1];
};

// Some queries, spread over the lanes of a warp, and what to do with a run of candidates.
template <int MODE, class L> struct Scan {
    const Job& job;
    Workspace<MODE, L>& shared;
#if WIDTH > 0
    Point<L> query;
#endif
    u32 position, id, row;
    bool active;
    // The last position of all queries that look together.
    u32 last;
    // What a distance must not exceed: of lanes without a query, nothing is that near.
    L bound;
    const L weight;
    // Lane l tests every `parts`-th candidate, from `part` on, for query l % (32 / parts).
    u32 parts, part;
    u32 count;
    u64 cursor;
    u32 held;
    // Of all queries of a warp together: candidates, tests of one query, pairs taken.
    u64 candidates, tested;
    u64 taken;

    __device__ __forceinline__ Scan(const Job& job, Workspace<MODE, L>& shared)
        : job(job), shared(shared), weight((L)job.weight), held(0), candidates(0), tested(0), taken(0) {}

    __device__ __forceinline__ void operator()(u32 begin, u32 end) {
        candidates += end - begin;
        if (MODE != WORK) test_all(begin, end);
    }

    __device__ __forceinline__ void test_all(u32 begin, u32 end) {
#if WIDTH > 0
        const L* points = sizeof(L) == sizeof(Scalar) ? (const L*)job.right
                                                      : (const L*)job.right_narrow;
        // Boxes are those of 32 positions from a multiple of 32 on: of use in long runs.
        bool boxed = job.right_boxes && end - begin >= 2 * WARP;
        for (u32 base = begin, next; base < end; base = next) {
            next = boxed ? (base / WARP + 1) * WARP : base + WARP;
            if (next > end || next < base) next = end;
            u32 here = next - base;
            if (boxed && here == WARP && decide_box(base)) continue;
            tested += here;
            __syncwarp();
            if (lane() < here) {
                Point<L>::at(points, base + lane()).store(shared.tile, lane());
                if (MODE != COUNT) shared.ids[lane()] = job.right_ids[base + lane()];
            }
            __syncwarp();
            bool later = job.pattern != LATER || base > last;
            if (MODE == COUNT && parts == 1 && later && count_all(here)) {
            } else if (MODE != COUNT && parts == 1 && keep_all(here, base)) {
            } else if (parts == 1) {
#pragma unroll 4
                for (u32 c = 0; c < here; c++) test(c, base + c, true);
            } else {
                for (u32 first = 0; first < here; first += parts) {
                    u32 c = first + part;
                    test(c < here ? c : 0, base + c, c < here);
                }
            }
        }
#else
        tested += end - begin;
        for (u32 first = begin; first < end; first += parts) {
            u32 at = first + part;
            bool valid = at < end;
            if (MODE != COUNT) {
                __syncwarp();
                if (lane() < parts && first + lane() < end)
                    shared.ids[lane()] = job.right_ids[first + lane()];
                __syncwarp();
            }
            Scalar acc = 0;
            u64 candidate = valid ? at : begin;
            for (u32 j = 0; j < job.dim; j += 16) {
                u32 stop = j + 16 < job.dim ? j + 16 : (u32)job.dim;
                for (u32 i = j; i < stop; i++)
                    acc = step(acc, left_coordinate(job, position, i),
                               right_coordinate(job, candidate, i), weight);
                // Sums only grow.
                if (!__any_sync(ALL, acc <= (Scalar)job.bound)) break;
            }
            decide(acc <= (Scalar)job.bound && valid, acc, part, at);
        }
#endif
    }

#if WIDTH > 0
    // Whether the box of the 32 candidates from `base` on decides for all of them, and the
    // matches are where they belong.
    //
    // The gap between a point and a box, and the largest difference, are measured by the
    // operations that decide a pair, dimension 0 first. Each is monotone, rounding included, so
    // that no candidate in the box is nearer, or farther, than its box says.
    __device__ __forceinline__ bool decide_box(u32 base) {
        const L* boxes = (const L*)job.right_boxes;
        Point<L> lo = Point<L>::at(boxes, 2 * (base / WARP)),
                 hi = Point<L>::at(boxes, 2 * (base / WARP) + 1);
        L least = 0, most = 0;
#pragma unroll
        for (u32 j = 0; j < WIDTH; j++) {
            L below = subtract(query[j], lo[j]), above = subtract(hi[j], query[j]);
            L inside = below < above ? below : above, far = below < above ? above : below;
            least = add(least, inside < L(0) ? -inside : L(0), weight);
            most = add(most, far, weight);
        }
        bool narrow = sizeof(L) < sizeof(Scalar);
        L maybe = narrow ? (L)job.maybe : (L)job.bound, sure = narrow ? (L)job.sure : (L)job.bound;
        if (!__any_sync(ALL, active && least <= maybe)) return true;
        // Lists, and rows with distances, need the distance of every pair. Pairs of a query with
        // itself, and pairs found twice, are told apart one by one.
        if (MODE == LIST || (MODE == FILL && (job.distances || parts > 1))) return false;
        bool all = !active || most <= sure;
        if (MODE == FILL && job.exclude_self && job.left != job.right) all = false;
        if (job.pattern == LATER) all = all && base > position;
        if (MODE == FILL && job.exclude_self) all = all && position - base >= WARP;
        if (!__all_sync(ALL, all)) return false;
        u32 actives = __ballot_sync(ALL, active && part == 0);
        taken += (u64)(WARP * __popc(actives));
        if (active && part == 0) count += WARP;
        if (MODE == COUNT_BOTH)
            atomicAdd(&job.degrees[job.right_ids[base + lane()]], (u32)__popc(actives));
        if (MODE == FILL) {
            u32 neighbor = job.right_ids[base + lane()];
            for (u32 q = 0; q < WARP; q++) {
                u64 to = __shfl_sync(ALL, cursor, q);
                if (actives >> q & 1) job.ids[to + lane()] = neighbor;
            }
            if (active) cursor += WARP;
        }
        return true;
    }

    // The accumulated distance of candidate `c` of the tile.
    __device__ __forceinline__ L accumulated(u32 c) const {
        Point<L> candidate = Point<L>::at(shared.tile, c);
        L acc = 0;
#pragma unroll
        for (u32 j = 0; j < WIDTH; j++) acc = step(acc, query[j], candidate[j], weight);
        return acc;
    }

    // Counts the matches among the candidates of the tile, all of which count. False if single
    // precision leaves some of them open.
    __device__ __forceinline__ bool count_all(u32 here) {
        if (sizeof(L) == sizeof(Scalar)) {
#pragma unroll 8
            for (u32 c = 0; c < here; c++) count += accumulated(c) <= bound;
            return true;
        }
        L least = active ? (L)job.sure : L(-1), most = active ? (L)job.maybe : L(-1);
        u32 sure = 0, maybe = 0;
#pragma unroll 8
        for (u32 c = 0; c < here; c++) {
            L acc = accumulated(c);
            sure += acc <= least;
            maybe += acc <= most;
        }
        if (__any_sync(ALL, sure != maybe)) return false;
        count += sure;
        return true;
    }

    // Puts the matches among the candidates of the tile where they belong: each lane notes which
    // of them are, and then looks only at those. False, with nothing done, where it cannot.
    __device__ __forceinline__ bool keep_all(u32 here, u32 base) {
        u32 matches = 0;
        if (sizeof(L) == sizeof(Scalar)) {
#pragma unroll 8
            for (u32 c = 0; c < here; c++) matches |= (u32)(accumulated(c) <= bound) << c;
        } else {
            L least = active ? (L)job.sure : L(-1), most = active ? (L)job.maybe : L(-1);
            bool open = false;
#pragma unroll 8
            for (u32 c = 0; c < here; c++) {
                L acc = accumulated(c);
                matches |= (u32)(acc <= least) << c;
                open = open || (acc <= most && !(acc <= least));
            }
            if (__any_sync(ALL, open)) return false;
        }
        if (job.pattern == LATER && base <= position) {
            u32 before = position - base + 1;
            matches = before < WARP ? matches & (ALL << before) : 0;
        }
        if (MODE != FILL && !__any_sync(ALL, matches != 0)) return true;
        if (MODE == COUNT_BOTH) {
            count += __popc(matches);
            count_candidates(matches);
            return true;
        }
        u32 to = 0;
        if (MODE == LIST) {
            if (job.exclude_self)
                for (u32 rest = matches; rest; rest &= rest - 1)
                    if (shared.ids[__ffs(rest) - 1] == id) matches &= ~(rest & (0u - rest));
            u32 mine = __popc(matches), up_to = mine;
            for (u32 step = 1; step < WARP; step *= 2) {
                u32 before = __shfl_up_sync(ALL, up_to, step);
                if (lane() >= step) up_to += before;
            }
            u32 all = __shfl_sync(ALL, up_to, WARP - 1);
            // As one candidate at a time: there is always room for those of a whole warp.
            if (all > HELD - WARP) return false;
            if (held + all > HELD - WARP) flush();
            to = held + up_to - mine;
            held += all;
            count += mine;
            if (job.mirror) count_candidates(matches);
        }
        for (; matches; matches &= matches - 1) {
            u32 c = __ffs(matches) - 1, neighbor = shared.ids[c];
            if (MODE == LIST) {
                shared.held[to] = make_uint2(row, neighbor);
                if (job.list_distances)
                    shared.held_distances[to] = distance(exact((Scalar)accumulated(c), base + c));
                to++;
            } else {
                if (job.exclude_self && neighbor == id) continue;
                job.ids[cursor] = neighbor;
                if (job.distances)
                    job.distances[cursor] = distance(exact((Scalar)accumulated(c), base + c));
                cursor++;
            }
        }
        return true;
    }

    // Counts matches for the candidates of the tile: bit c of a lane is that of candidate c, and
    // all those of candidate c go to lane c.
    __device__ __forceinline__ void count_candidates(u32 matches) {
        u32 low = 0x0000ffffu;
        for (u32 step = WARP / 2; step > 0; step /= 2) {
            u32 other = __shfl_xor_sync(ALL, matches, step);
            matches = lane() & step ? (matches & ~low) | (other >> step & low)
                                    : (matches & low) | (other & low) << step;
            low ^= low << step / 2;
        }
        if (matches) atomicAdd(&job.degrees[shared.ids[lane()]], (u32)__popc(matches));
    }

    // Candidate `c` of the tile, which is at `at` on the right.
    __device__ __forceinline__ void test(u32 c, u32 at, bool valid) {
        L acc = accumulated(c);
        bool match;
        if (sizeof(L) == sizeof(Scalar)) {
            match = acc <= (L)job.bound;
        } else {
            match = acc <= (L)job.sure;
            if (!match && acc <= (L)job.maybe && valid)
                match = accumulate(job, position, at) <= (Scalar)job.bound;
        }
        decide(match && valid, (Scalar)acc, c, at);
    }
#endif

    // `acc` is exact where the lanes are of the points' own type.
    __device__ __forceinline__ void decide(bool match, Scalar acc, u32 c, u32 at) {
        match = match && active;
        if (job.pattern == LATER) match = match && at > position;
        if (MODE == COUNT) {
            count += match;
        } else if (MODE == COUNT_BOTH) {
            count += match;
            if (parts == 1) {
                u32 matches = __ballot_sync(ALL, match);
                if (matches && lane() == 0) atomicAdd(&job.degrees[shared.ids[c]], (u32)__popc(matches));
            } else if (match) {
                atomicAdd(&job.degrees[shared.ids[c]], 1u);
            }
        } else if (MODE == FILL) {
            u32 neighbor = shared.ids[c];
            if (job.exclude_self) match = match && neighbor != id;
            u64 to = cursor;
            if (parts == 1) {
                cursor += match;
            } else {
                // The lanes of one query write side by side.
                u32 matches = __ballot_sync(ALL, match) & mates();
                to += __popc(matches & ((1u << lane()) - 1));
                cursor += __popc(matches);
            }
            if (match) {
                job.ids[to] = neighbor;
                if (job.distances) job.distances[to] = distance(exact(acc, at));
            }
        } else if (MODE == LIST) {
            u32 neighbor = shared.ids[c];
            if (job.exclude_self) match = match && neighbor != id;
            u32 matches = __ballot_sync(ALL, match);
            if (matches == 0) return;
            if (match) {
                u32 to = held + __popc(matches & ((1u << lane()) - 1));
                shared.held[to] = make_uint2(row, neighbor);
                if (job.list_distances) shared.held_distances[to] = distance(exact(acc, at));
                count++;
                if (job.mirror) atomicAdd(&job.degrees[neighbor], 1u);
            }
            held += __popc(matches);
            if (held > HELD - WARP) flush();
        }
    }

    __device__ __forceinline__ Scalar exact(Scalar acc, u32 at) const {
        return sizeof(L) == sizeof(Scalar) ? acc : accumulate(job, position, at);
    }

    // The lanes that share this lane's query.
    __device__ __forceinline__ u32 mates() const {
        u32 queries = WARP / parts, mates = 0;
        for (u32 l = lane() % queries; l < WARP; l += queries) mates |= 1u << l;
        return mates;
    }

    // Appends what is held back to the list. What finds no room is lost, but counted: the
    // host sees that, and asks again for less at a time.
    __device__ __noinline__ void flush() {
        __syncwarp();
        u64 at = 0;
        if (lane() == 0 && held) at = atomicAdd(job.list_len, (u64)held);
        at = __shfl_sync(ALL, at, 0);
        for (u32 i = lane(); i < held; i += WARP) {
            if (at + i >= job.capacity) continue;
            job.list[at + i] = shared.held[i];
            if (job.list_distances) job.list_distances[at + i] = shared.held_distances[i];
        }
        __syncwarp();
        held = 0;
    }
};

template <int MODE, class L> struct Group {
    const Job& job;
    Scan<MODE, L> scan;
    // Of this lane's query, before queries are spread over lanes.
    u32 position;
    bool active;
    u64 tests, pairs;

    __device__ __forceinline__ Group(const Job& job, Workspace<MODE, L>& shared)
        : job(job), scan(job, shared), tests(0), pairs(0) {}

    // Queries first..first + 32.
    __device__ __forceinline__ void unit(u32 unit) {
        u64 at = (u64)unit * WARP + lane();
        active = at < job.query_count;
        if (!active) at = job.query_count - 1;
        position = job.queries ? job.queries[at] : (u32)at;
        u64 before = scan.candidates;
        Search& search = scan.shared.search;
        bool together = search.around(job, position, 0, WARP) <= job.loose || job.finder != GRID;
        for (u32 from = 0, queries; from < WARP; from += queries) {
            queries = WARP;
            if (!together) {
                queries = from % 8 == 0 && search.around(job, position, from, 8) <= job.loose ? 8 : 1;
                if (queries == 1) search.around(job, position, from, 1);
            }
            part(from, queries);
        }
        if (MODE == WORK && lane() == 0) {
            u64 work = scan.candidates - before;
            job.work[unit] = work < ALL ? (u32)work : ALL;
        }
    }

    // `queries` of them, from lane `from` on, whose search is at hand.
    __device__ __forceinline__ void part(u32 from, u32 queries) {
        u32 source = from + lane() % queries;
        bool some = __shfl_sync(ALL, active, source);
        u32 actives = __ballot_sync(ALL, some);
        if (actives == 0) return;
        scan.active = some;
        scan.bound = some ? (L)job.bound : L(-1);
        scan.position = __shfl_sync(ALL, position, source);
        scan.parts = WARP / queries;
        scan.part = lane() / queries;
        scan.count = 0;
        if (MODE == FILL || MODE == LIST) scan.id = job.left_ids[scan.position];
        if (MODE != WORK) scan.row = job.left_rows[scan.position];
        if (MODE == FILL) scan.cursor = job.offsets[scan.row] - job.base;
#if WIDTH > 0
        scan.query = Point<L>::at(sizeof(L) == sizeof(Scalar) ? (const L*)job.left
                                                              : (const L*)job.left_narrow,
                                  scan.position);
#endif
        // Positions ascend from lane to lane.
        scan.last = __shfl_sync(ALL, position, from + queries - 1);
        u32 floor = job.pattern == LATER ? __shfl_sync(ALL, position, from) : 0;
        u64 before = scan.tested;
        find(job, scan.shared.search, floor, scan);
        tests += (scan.tested - before) * (__popc(actives) / scan.parts);
        if (MODE == FILL || MODE == WORK || (MODE == LIST && !job.degrees)) return;
        u32 count = scan.count;
#pragma unroll 1
        for (u32 step = queries; step < WARP; step *= 2) count += __shfl_xor_sync(ALL, count, step);
        if (!scan.active || scan.part != 0) return;
        // Those of a list have left themselves out.
        if (MODE != LIST && job.pattern == EACH && job.exclude_self) count--;
        pairs += count;
        if (MODE == COUNT_BOTH || MODE == LIST)
            atomicAdd(&job.degrees[scan.row], count);
        else if (job.degrees)
            job.degrees[scan.row] = count;
    }

    __device__ __forceinline__ void finish() {
        if (MODE == LIST) scan.flush();
        if (MODE == WORK) return;
        if (MODE == COUNT || MODE == COUNT_BOTH) {
            for (u32 step = WARP / 2; step > 0; step /= 2) pairs += __shfl_xor_sync(ALL, pairs, step);
            if (lane() == 0 && job.pairs) atomicAdd(job.pairs, pairs);
        }
        if (lane() != 0) return;
        atomicAdd(job.tests, tests);
        if (scan.taken) atomicAdd(job.taken, scan.taken);
    }
};

template <int MODE, class L>
__device__ __forceinline__ void group(const Job& job, Workspace<MODE, L>* workspace) {
    Group<MODE, L> group(job, workspace[threadIdx.x / WARP]);
    // With a queue, whoever is done takes the next unit; else each warp has one.
    for (;;) {
        u32 next = 0;
        if (lane() == 0) next = job.head ? atomicAdd(job.head, 1u) : (u32)(job.first_unit + thread_number() / WARP);
        next = __shfl_sync(ALL, next, 0);
        if (next >= job.end_unit) break;
        group.unit(job.units ? job.units[next] : next);
        if (!job.head) break;
    }
    group.finish();
}

// Double precision is filtered in single where there are narrow points; the same memory serves
// both.
template <int MODE> __device__ __forceinline__ void group(const Job& job) {
    __shared__ Workspace<MODE, Scalar> workspace[GROUP_WARPS];
#if defined(SCALAR_F64) && WIDTH > 0
    if (MODE != WORK && job.left_narrow)
        return group<MODE, float>(job, (Workspace<MODE, float>*)workspace);
#endif
    group<MODE, Scalar>(job, workspace);
}
