// The kd order of the device: points in leaves of 8, and boxes over them.
//
//     draw:     a sample of the points.
//     split:    the sample is split again and again, the widest dimension of each part in its
//               middle. Where each split is, is noted. With a larger sample, which has gone down
//               those splits, the parts are split again.
//     assign:   every point goes down all splits, and has the number of a small part of space, a
//               node. (Sort by that number.)
//     leaves:   the points of a node are split in the same way down to 8, and boxes drawn.
//
// Where a split is decides how fast a search is and nothing else: boxes are drawn around the
// points that are in them.
//
// Compiled with SCALAR_F32 or SCALAR_F64.
#include "network.cuh"
#include "scalar.cuh"
#include "tree.cuh"

// Points of a sample that a block splits.
#define SAMPLE 4096u
// Bits of the number of a point within a sample or a block, below its place along a split.
#define NUMBER 12u
#define NUMBERS ((1u << NUMBER) - 1)
// The place behind all points. Points have places from 1 on.
#define BEHIND ((1u << (32 - NUMBER)) - 1)
// Slots that a lane has in registers, one after the other, and those of a warp: a group.
#define EACH LEAF
#define CHUNK (EACH * WARP)
// The least part that is split, and parts that a block can have; those that are larger than a chunk;
// and the least sample that is split.
#define SMALLEST (2 * EACH)
#define PARTS (SAMPLE / SMALLEST)
#define LARGE (SAMPLE / (2 * CHUNK))
#define LEAST_SAMPLE 64u
// Dimensions that may be split, at the most.
#define DIMS 16u
#define NONE 0xffffffffu

// What a part of a block will be: full leaves but for the last, in groups that are as full as others.
// Its slots are a power of two; those without a point are all before its points, or all behind them.
struct Shape {
    // Points of the block before it, and its own.
    unsigned short first, points;
    unsigned short leaves, groups;

    // The left of the two parts that one of `size` slots is split into. Groups are not torn apart.
    __device__ __forceinline__ Shape left(u32 size) const {
        Shape part;
        part.first = first;
        part.groups = size > GROUP ? groups / 2 : 0;
        part.leaves = size > GROUP ? (groups ? (leaves * part.groups + groups - 1u) / groups : 0)
                                   : leaves / 2;
        part.points = min((u32)points, part.leaves * LEAF);
        return part;
    }
    __device__ __forceinline__ Shape right(u32 size) const {
        Shape before = left(size), part;
        part.first = first + before.points;
        part.groups = groups - before.groups;
        part.leaves = leaves - before.leaves;
        part.points = points - before.points;
        return part;
    }

    // The slots without a point are to be such that the points of the left part, and no others, are in
    // the first half of all: so many of them are before the points. The first slot of those, where they
    // stand before the points now, or behind, as an offset.
    __device__ __forceinline__ u32 empty_before(u32 size) const { return size / 2 - left(size).points; }
    __device__ __forceinline__ u32 first_empty(bool is_left) const { return is_left ? 0 : points; }
};

// Which of the parts of `size` slots, a power of two, has a slot; and where in it.
__device__ __forceinline__ u32 part_of(u32 slot, u32 size) { return slot >> (31 - __clz((int)size)); }
__device__ __forceinline__ u32 offset_of(u32 slot, u32 size) { return slot & (size - 1); }

// Points that are split, one after the other, every `step`-th of those from `begin` on.
struct Members {
    const Scalar* points;
    u64 dim;
    // The dimensions that may be split.
    const u32* dims;
    u64 dim_count;
    u64 begin, step;
    u32 count, slots;
    // Whether a slot is in the left of two parts. Slots without a point are before the points there; in
    // the right, and where there is one part, behind.
    __device__ __forceinline__ bool is_left(u32 slot, u32 size) const {
        return size < slots && part_of(slot, size) % 2 == 0;
    }

    __device__ __forceinline__ bool has(u32 number) const { return number < count; }
    __device__ __forceinline__ Scalar coordinate(u32 number, u32 j) const {
        return points[(begin + number * step) * dim + j];
    }
};

__device__ __forceinline__ Scalar from_order_bits(u32 bits) {
    return (Scalar)__uint_as_float(bits >> 31 ? bits & 0x7fffffffu : ~bits);
}
__device__ __forceinline__ Scalar from_order_bits(u64 bits) {
    return (Scalar)__longlong_as_double(bits >> 63 ? (long long)(bits & 0x7fffffffffffffffull)
                                                   : (long long)~bits);
}

// The place of a coordinate between the least and the greatest, and the number of its point.
__device__ __forceinline__ u32 split_key(Scalar x, Scalar low, float scale, u32 number) {
    float place = (float)(x - low) * scale, last = (float)(BEHIND - 1);
    // Not a number where an extent is beyond all numbers, and then the first place.
    place = place > 1.0f ? place : 1.0f;
    return (u32)(place < last ? place : last) << NUMBER | number;
}

__device__ __forceinline__ float split_scale(float extent) {
    return extent > 0.0f ? (float)(BEHIND - 1) / extent : 0.0f;
}

// The slots of a lane.
struct Slots {
    u32 keys[EACH];

    static __device__ __forceinline__ Slots load(const u32* from) {
        Slots slots;
#pragma unroll
        for (u32 i = 0; i < EACH; i++) slots.keys[i] = from[i];
        return slots;
    }
    __device__ __forceinline__ void store(u32* to) const {
#pragma unroll
        for (u32 i = 0; i < EACH; i++) to[i] = keys[i];
    }

    // Puts slots of a chunk that are `stride` apart in order, `EACH / 2` or more, and then for ever
    // smaller strides.
    __device__ __forceinline__ void merge(u32 stride) {
        for (; stride >= EACH; stride /= 2) {
            u32 with = stride / EACH;
            bool lower = (lane() & with) == 0;
#pragma unroll
            for (u32 i = 0; i < EACH; i++) {
                u32 other = __shfl_xor_sync(ALL, keys[i], with);
                keys[i] = lower ? min(keys[i], other) : max(keys[i], other);
            }
        }
        merge_keys<EACH, EACH / 2>(keys);
    }

    // Sorts every `size` slots of a chunk, more than a lane has. A step compares slots from both ends of
    // a part, and then those half a part apart, so that all parts ascend.
    __device__ __forceinline__ void sort(u32 size) {
        sort_keys<0, EACH>(keys);
        for (u32 part = 2 * EACH; part <= size; part *= 2) {
            u32 with = part / EACH - 1;
            bool lower = (lane() ^ with) > lane();
            u32 others[EACH];
#pragma unroll
            for (u32 i = 0; i < EACH; i++) others[i] = __shfl_xor_sync(ALL, keys[EACH - 1 - i], with);
#pragma unroll
            for (u32 i = 0; i < EACH; i++)
                keys[i] = lower ? min(keys[i], others[i]) : max(keys[i], others[i]);
            merge(part / 4);
        }
    }
};

// The least and the greatest of `x` over lanes that differ in less than `size`.
__device__ __forceinline__ void extent_of_lanes(Bits& low, Bits& high, u32 size) {
    for (u32 with = 1; with < size; with *= 2) {
        low = min(low, __shfl_xor_sync(ALL, low, with));
        high = max(high, __shfl_xor_sync(ALL, high, with));
    }
}

// The slots of a lane, from `slot` on, as points that are split.
struct Held {
    const Members& members;
    u32 numbers[EACH];
    // Bit i: whether slot i has a point.
    u32 filled;

    __device__ __forceinline__ Held(const Members& members, const Slots& slots) : members(members), filled(0) {
#pragma unroll
        for (u32 i = 0; i < EACH; i++) {
            numbers[i] = slots.keys[i] & NUMBERS;
            filled |= (u32)members.has(numbers[i]) << i;
        }
    }
    __device__ __forceinline__ bool has(u32 i) const { return filled >> i & 1; }

    // The keys of the slots by coordinates between the least and the greatest of a part, which has
    // this shape.
    __device__ __forceinline__ void keys(Slots& mine, u32 slot, u32 size, const Shape& shape,
                                         const Scalar (&x)[EACH], Scalar from, float extent) const {
        float scale = split_scale(extent);
#pragma unroll
        for (u32 i = 0; i < EACH; i++)
            if (has(i)) mine.keys[i] = split_key(x[i], from, scale, numbers[i]);
        if (filled == (1u << EACH) - 1) return;
        u32 before = shape.empty_before(size);
        u32 ordinal = offset_of(slot, size) - shape.first_empty(members.is_left(slot, size));
#pragma unroll
        for (u32 i = 0; i < EACH; i++)
            if (!has(i)) mine.keys[i] = (ordinal + i < before ? 0 : BEHIND << NUMBER) | numbers[i];
    }

    // The coordinates of a dimension, and the extent over lanes that differ in less than `lanes`.
    __device__ __forceinline__ void extent(u32 j, u32 lanes, Scalar (&x)[EACH], Bits& low, Bits& high) const {
        low = ~(Bits)0;
        high = 0;
#pragma unroll
        for (u32 i = 0; i < EACH; i++) {
            x[i] = has(i) ? members.coordinate(numbers[i], j) : (Scalar)0;
            Bits bits = order_bits(x[i]);
            low = has(i) ? min(low, bits) : low;
            high = has(i) ? max(high, bits) : high;
        }
        extent_of_lanes(low, high, lanes);
    }
};

__device__ __forceinline__ float width_of(Bits low, Bits high) {
    return low <= high ? (float)(from_order_bits(high) - from_order_bits(low)) : 0.0f;
}

// What is known of the parts of a block while they are split.
struct Parts {
    // The dimension that is split.
    unsigned short dim[PARTS];
    // Of large ones: the extents of all dimensions that may be, and of that which is.
    Bits low[DIMS][LARGE], high[DIMS][LARGE];
    Scalar from[LARGE];
    float extent[LARGE];
};

// Splits every `size` slots of the block, more than a chunk, along their widest dimension: they
// are sorted by it. `shapes` are those of the parts, or null where no slot is empty.
__device__ __forceinline__ void split_slots(const Members& members, u32* keys, Parts& parts,
                                            u32 slots, u32 size, const Shape* shapes) {
    u32 count = part_of(slots, size), warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    for (u32 i = threadIdx.x; i < DIMS * LARGE; i += blockDim.x) {
        parts.low[i / LARGE][i % LARGE] = ~(Bits)0;
        parts.high[i / LARGE][i % LARGE] = 0;
    }
    __syncthreads();
    for (u32 first = warp * CHUNK; first < slots; first += warps * CHUNK) {
        Held held(members, Slots::load(keys + first + lane() * EACH));
        for (u32 d = 0; d < members.dim_count; d++) {
            Scalar x[EACH];
            Bits low, high;
            held.extent(members.dims[d], WARP, x, low, high);
            if (lane() == 0 && low <= high) {
                atomicMin(&parts.low[d][part_of(first, size)], low);
                atomicMax(&parts.high[d][part_of(first, size)], high);
            }
        }
    }
    __syncthreads();
    for (u32 p = threadIdx.x; p < count; p += blockDim.x) {
        float widest = -1.0f;
        for (u32 d = 0; d < members.dim_count; d++) {
            float width = width_of(parts.low[d][p], parts.high[d][p]);
            if (width <= widest) continue;
            widest = width;
            parts.extent[p] = width;
            parts.from[p] = from_order_bits(parts.low[d][p]);
            parts.dim[p] = (unsigned short)members.dims[d];
        }
    }
    __syncthreads();
    for (u32 first = warp * CHUNK; first < slots; first += warps * CHUNK) {
        u32 slot = first + lane() * EACH, p = part_of(first, size);
        Slots mine = Slots::load(keys + slot);
        Held held(members, mine);
        Scalar x[EACH];
#pragma unroll
        for (u32 i = 0; i < EACH; i++)
            x[i] = held.has(i) ? members.coordinate(held.numbers[i], parts.dim[p]) : (Scalar)0;
        held.keys(mine, slot, size, shapes ? shapes[p] : Shape(), x, parts.from[p], parts.extent[p]);
        mine.sort(CHUNK);
        mine.store(keys + slot);
    }
    __syncthreads();
    for (u32 part = 2 * CHUNK; part <= size; part *= 2) {
        for (u32 i = threadIdx.x; i < slots / 2; i += blockDim.x) {
            u32 at = 2 * i - offset_of(i, part / 2);
            order(keys[at], keys[at ^ (part - 1)]);
        }
        __syncthreads();
        for (u32 stride = part / 4; stride >= CHUNK; stride /= 2) {
            for (u32 i = threadIdx.x; i < slots / 2; i += blockDim.x) {
                u32 at = 2 * i - offset_of(i, stride);
                order(keys[at], keys[at + stride]);
            }
            __syncthreads();
        }
        for (u32 first = warp * CHUNK; first < slots; first += warps * CHUNK) {
            Slots mine = Slots::load(keys + first + lane() * EACH);
            mine.merge(CHUNK / 2);
            mine.store(keys + first + lane() * EACH);
        }
        __syncthreads();
    }
}

// The same for every `size` slots of a chunk, in the registers of a warp, where this lane has those
// from `slot` on. `shape` is that of its part. Gives the dimension.
__device__ __forceinline__ u32 split_chunk(const Members& members, Slots& mine, u32 slot, u32 size,
                                           const Shape& shape) {
    Held held(members, mine);
    Scalar x[EACH] = {}, from = 0;
    float widest = -1.0f;
    u32 dim = 0;
    for (u32 d = 0; d < members.dim_count; d++) {
        u32 j = members.dims[d];
        Scalar here[EACH];
        Bits low, high;
        held.extent(j, size / EACH, here, low, high);
        float width = width_of(low, high);
        if (width <= widest) continue;
        widest = width;
        from = from_order_bits(low);
        dim = j;
#pragma unroll
        for (u32 i = 0; i < EACH; i++) x[i] = here[i];
    }
    held.keys(mine, slot, size, shape, x, from, widest);
    mine.sort(size);
    return dim;
}

// Splits every `size` slots of a sample: a power of two, `SMALLEST` or more. None is empty.
__device__ __forceinline__ void split(const Members& members, u32* keys, Parts& parts, u32 slots,
                                      u32 size) {
    if (size > CHUNK) {
        split_slots(members, keys, parts, slots, size, nullptr);
        return;
    }
    for (u32 first = threadIdx.x / WARP * CHUNK; first < slots; first += blockDim.x / WARP * CHUNK) {
        // A sample may be smaller than a chunk: then the last lanes repeat what others do.
        u32 slot = first + lane() * EACH % slots;
        Slots mine = Slots::load(keys + slot);
        u32 dim = split_chunk(members, mine, slot, size, Shape());
        __syncwarp();
        if (lane() * EACH >= slots) continue;
        mine.store(keys + slot);
        if (offset_of(slot, size) == 0) parts.dim[part_of(slot, size)] = (unsigned short)dim;
    }
    __syncthreads();
}

// ---------------------------------------------------------------- space, by a sample

// Copies `count` of `len` points, spread over all of them.
KERNEL(tree_draw)(const Scalar* points, u64 len, u32 dim, u64 count, Scalar* sample) {
    u64 number = thread_number();
    if (number >= count) return;
    u64 row = number * len / count, step = len / count;
    // Not the first of each part, lest the order of the input has a period.
    if (step > 1) row += (u32)((u32)number * 2654435761u >> 8) % step;
    for (u32 j = 0; j < dim; j++) sample[number * dim + j] = points[row * dim + j];
}
EXPORT(tree_draw)

// Notes where the parts of one level are split: in the middle of the sample, or above its least
// coordinate where many are equal to that. Points below it are on the left.
__device__ __forceinline__ void note_splits(const Members& members, const u32* keys,
                                            const Parts& parts, u32 size, u32 count,
                                            u32* split_dims, Scalar* split_values) {
    for (u32 p = threadIdx.x; p < count; p += blockDim.x) {
        u32 j = parts.dim[p], end = (p + 1) * size;
        Scalar least = members.coordinate(keys[p * size] & NUMBERS, j);
        // The first from the middle on that is above the least, by halves.
        u32 low = end - size / 2, high = end;
        while (low < high) {
            u32 middle = (low + high) / 2;
            if (members.coordinate(keys[middle] & NUMBERS, j) > least) high = middle;
            else low = middle + 1;
        }
        split_dims[p] = j;
        split_values[p] = low < end ? members.coordinate(keys[low] & NUMBERS, j) : INFINITE;
    }
}

// Splits the sample of each part of space `levels` times. All splits stand level after level; those
// of `above` levels are there. `begins` says where the sample of each part begins, and the end; it is
// null where there is one part of `len`. A part with too few points is not split: all are on its left.
KERNEL(tree_split)(const Scalar* points, u32 dim, const u32* dims, u32 dim_count, const u32* begins,
                   u64 len, u32 above, u32 levels, u32* split_dims, Scalar* split_values) {
    alignas(16) __shared__ u32 keys[SAMPLE];
    __shared__ Parts parts;
    Members members = {points, dim, dims, dim_count, begins ? begins[blockIdx.x] : 0, 1, LEAST_SAMPLE, 0};
    u64 all = begins ? begins[blockIdx.x + 1] - members.begin : len;
    while (members.count < SAMPLE && 2 * members.count <= all) members.count *= 2;
    members.step = max(all / members.count, 1ull);
    u32 slots = members.slots = all < LEAST_SAMPLE ? 0 : members.count;
    for (u32 slot = threadIdx.x; slot < slots; slot += blockDim.x) keys[slot] = slot;
    __syncthreads();
    for (u32 level = 0; level < levels; level++) {
        u32 count = 1u << level, size = slots >> level;
        u64 to = (1ull << (above + level)) - 1 + ((u64)blockIdx.x << level);
        if (size >= SMALLEST) {
            split(members, keys, parts, slots, size);
            note_splits(members, keys, parts, size, count, split_dims + to, split_values + to);
        } else {
            for (u32 p = threadIdx.x; p < count; p += blockDim.x) {
                split_dims[to + p] = 0;
                split_values[to + p] = INFINITE;
            }
        }
        __syncthreads();
    }
}
EXPORT(tree_split)

// Sends every point down the splits: the number of the part of space that it is in.
KERNEL(tree_assign)(const Scalar* points, u64 len, u32 dim, u32 levels, const u32* split_dims,
                    const Scalar* split_values, u32* keys) {
    u64 row = thread_number();
    if (row >= len) return;
    const Scalar* point = points + row * dim;
    u32 at = 1;
    for (u32 level = 0; level < levels; level++)
        at = 2 * at + !(point[split_dims[at - 1]] < split_values[at - 1]);
    keys[row] = at - (1u << levels);
}
EXPORT(tree_assign)

// Copies points in an order.
KERNEL(tree_gather)(const Scalar* points, u64 len, u32 dim, const u32* order, Scalar* out) {
    u64 place = thread_number() / dim, j = thread_number() % dim;
    if (place < len) out[place * dim + j] = points[(u64)order[place] * dim + j];
}
EXPORT(tree_gather)

// ---------------------------------------------------------------- leaves and boxes

// How many blocks each node is cut into: one, unless many points are equal.
KERNEL(tree_cuts)(const u32* begins, u64 nodes, u32* cuts) {
    u64 node = thread_number();
    if (node >= nodes) return;
    cuts[node] = (begins[node + 1] - begins[node] + BLOCK - 1) / BLOCK;
}
EXPORT(tree_cuts)

// Where each block begins, and the end: `cuts` are running sums.
KERNEL(tree_blocks)(const u32* begins, u64 nodes, const u32* cuts, u32* blocks) {
    u64 node = thread_number();
    if (node >= nodes) return;
    u32 first = cuts[node], count = cuts[node + 1] - first, len = begins[node + 1] - begins[node];
    for (u32 i = 0; i < count; i++) blocks[first + i] = begins[node] + (u32)((u64)len * i / count);
    if (node + 1 == nodes) blocks[cuts[nodes]] = begins[nodes];
}
EXPORT(tree_blocks)

// What a tree is written to.
struct Leaves {
    // Numbers of a point, or 0 where the points of a leaf lie in columns; and boxes likewise.
    u64 width;
    Scalar* points;
    // All are `NONE`.
    u32* ids;
    // The places of points if they are counted without gaps; of queries.
    u32* places;
    // Boxes and least rows of the leaves, and of groups of 32 of them. None of queries.
    Scalar* leaf_boxes;
    u32* leaf_least;
    u64 leaf_count;
    Scalar* group_boxes;
    u32* group_least;
    u64 group_count;
};

__device__ __forceinline__ void store_box(Scalar* boxes, u64 width, u64 count, u64 box, u32 j,
                                          Bits low, Bits high) {
    bool some = low <= high;
    boxes[box_place(width, count, box, 2 * j)] = some ? from_order_bits(low) : INFINITE;
    boxes[box_place(width, count, box, 2 * j + 1)] = some ? from_order_bits(high) : -INFINITE;
}

// Splits the points of each block down to leaves, and writes them there. The points lie in the order
// of the blocks, and `rows` are theirs; `names` are those in the answer, or null.
KERNEL(__launch_bounds__(512, 2) tree_leaves)(const Scalar* points, const u32* blocks, u32 dim, const u32* dims, u32 dim_count,
                    const u32* rows, const u32* names, Leaves leaves) {
    alignas(16) __shared__ u32 keys[BLOCK];
    __shared__ Parts parts;
    // Of the parts of a level and of the next; and for each leaf, points of the block before it.
    __shared__ Shape shapes[BLOCK / GROUP], halves[BLOCK / GROUP];
    __shared__ unsigned short firsts[BLOCK / LEAF];
    u64 begin = blocks[blockIdx.x];
    u32 count = blocks[blockIdx.x + 1] - (u32)begin;
    Members members = {points, dim, dims, dim_count, begin, 1, count, GROUP};
    u32& slots = members.slots;
    u32 warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    u32 leaf_count = (count + LEAF - 1) / LEAF, group_count = (leaf_count + WARP - 1) / WARP;
    while (slots < group_count * GROUP) slots *= 2;
    for (u32 slot = threadIdx.x; slot < slots; slot += blockDim.x) keys[slot] = slot;
    if (threadIdx.x == 0) {
        Shape whole = {0, (unsigned short)count, (unsigned short)leaf_count,
                       (unsigned short)group_count};
        shapes[0] = whole;
    }
    __syncthreads();
    for (u32 size = slots; size > GROUP; size /= 2) {
        split_slots(members, keys, parts, slots, size, shapes);
        for (u32 p = threadIdx.x; p < part_of(slots, size); p += blockDim.x) {
            halves[2 * p] = shapes[p].left(size);
            halves[2 * p + 1] = shapes[p].right(size);
        }
        __syncthreads();
        for (u32 p = threadIdx.x; p < 2 * part_of(slots, size); p += blockDim.x) shapes[p] = halves[p];
        __syncthreads();
    }
    bool is = lane() < slots / GROUP && shapes[lane()].points > 0;
    u32 groups_of = __ballot_sync(ALL, is); // of all, those that have points
    for (u32 first = warp * GROUP; first < slots; first += warps * GROUP) {
        u32 slot = first + lane() * EACH;
        Slots mine = Slots::load(keys + slot);
        Shape shape = shapes[first / GROUP];
        for (u32 size = GROUP; size > LEAF; size /= 2) {
            split_chunk(members, mine, slot, size, shape);
            shape = offset_of(slot, size) < size / 2 ? shape.left(size) : shape.right(size);
        }
        mine.store(keys + slot);
        firsts[slot / LEAF] = shape.first;
    }
    __syncthreads();

    u64 numbers = leaves.width ? leaves.width : dim, first_group = blockIdx.x * (BLOCK / GROUP);
    // A warp to a group, four leaves at a time. Those with points stand before those without.
    u32 full = __popc(groups_of);
    for (u32 group = warp; group < BLOCK / GROUP; group += warps) {
        u64 at = first_group + group, first = at * GROUP;
        if (group >= full) {
            if (!leaves.group_boxes) break;
            if (lane() == 0) leaves.group_least[at] = NONE;
            for (u32 j = lane(); j < numbers; j += WARP)
                store_box(leaves.group_boxes, leaves.width, leaves.group_count, at, j, ~(Bits)0, 0);
            continue;
        }
        // The group-th of those with points.
        u32 rest = groups_of;
        for (u32 i = 0; i < group; i++) rest &= rest - 1;
        u32 from = (u32)(__ffs((int)rest) - 1) * GROUP, least_of_group = NONE;
        for (u32 i = 0; i < GROUP; i += WARP) {
            u32 number = keys[from + i + lane()] & NUMBERS, id = NONE;
            if (members.has(number)) {
                u32 row = rows[begin + number];
                id = names ? names[row] : row;
            }
            leaves.ids[first + i + lane()] = id;
            if (leaves.places) {
                u32 before = __ballot_sync(ALL, id != NONE) & ((1u << lane()) - 1);
                before = __popc(before >> (lane() & ~(LEAF - 1)));
                u32 leaf = (from + i + lane()) / LEAF;
                leaves.places[first + i + lane()] = (u32)begin + firsts[leaf] + before;
            }
            if (!leaves.leaf_least) continue;
            for (u32 with = 1; with < LEAF; with *= 2) id = min(id, __shfl_xor_sync(ALL, id, with));
            if (lane() % LEAF == 0) leaves.leaf_least[(first + i + lane()) / LEAF] = id;
            least_of_group = min(least_of_group, id);
        }
        if (leaves.group_least) {
            for (u32 with = LEAF; with < WARP; with *= 2)
                least_of_group = min(least_of_group, __shfl_xor_sync(ALL, least_of_group, with));
            if (lane() == 0) leaves.group_least[at] = least_of_group;
        }
        for (u32 j = 0; j < numbers; j++) {
            Bits low_of_group = ~(Bits)0, high_of_group = 0;
            for (u32 i = 0; i < GROUP; i += WARP) {
                u32 number = keys[from + i + lane()] & NUMBERS;
                bool is = members.has(number);
                Scalar x = NOT_A_NUMBER;
                if (is) x = j < dim ? members.coordinate(number, j) : (Scalar)0;
                leaves.points[point_place(leaves.width, dim, first + i + lane(), j)] = x;
                if (!leaves.leaf_boxes) continue;
                Bits low = is ? order_bits(x) : ~(Bits)0, high = is ? order_bits(x) : 0;
                extent_of_lanes(low, high, LEAF);
                if (lane() % LEAF == 0)
                    store_box(leaves.leaf_boxes, leaves.width, leaves.leaf_count,
                              (first + i + lane()) / LEAF, j, low, high);
                low_of_group = min(low_of_group, low);
                high_of_group = max(high_of_group, high);
            }
            if (!leaves.group_boxes) continue;
            extent_of_lanes(low_of_group, high_of_group, WARP);
            if (lane() == 0)
                store_box(leaves.group_boxes, leaves.width, leaves.group_count, at, j, low_of_group,
                          high_of_group);
        }
    }
}
EXPORT(tree_leaves)

// Draws the boxes of a level around every 32 of the level below, a warp to each.
KERNEL(tree_boxes)(const Scalar* below, const u32* least_below, u64 count_below, u32 width, u32 dim,
                   Scalar* boxes, u32* least, u64 count) {
    u64 box = thread_number() / WARP, child = box * WARP + lane();
    if (box >= count) return;
    bool is = child < count_below;
    u32 row = is ? least_below[child] : NONE;
    for (u32 with = 1; with < WARP; with *= 2) row = min(row, __shfl_xor_sync(ALL, row, with));
    if (lane() == 0) least[box] = row;
    for (u32 j = 0; j < (width ? width : dim); j++) {
        Bits low = ~(Bits)0, high = 0;
        if (is) {
            Scalar lo = below[box_place(width, count_below, child, 2 * j)];
            Scalar hi = below[box_place(width, count_below, child, 2 * j + 1)];
            // One without points is beyond all numbers.
            if (lo <= hi) {
                low = order_bits(lo);
                high = order_bits(hi);
            }
        }
        extent_of_lanes(low, high, WARP);
        if (lane() == 0) store_box(boxes, width, count, box, j, low, high);
    }
}
EXPORT(tree_boxes)
