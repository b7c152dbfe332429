// How the leaves of a tree, and its boxes, lie in memory.
//
// A leaf has 8 points, a group 32 leaves, and so on: every 32 boxes have a box. Each level is one
// array, and the children of a box follow each other. A block, of sixteen groups, is what is put in
// order at a time. Slots may be empty: their points are not numbers, and no row is theirs.
//
// Of a width that has modules of its own, points lie one after the other, and so do boxes: the
// least and the greatest coordinate of each dimension in turn. Of any other, the points of a leaf
// lie in columns of 8, and boxes in columns as long as the level.
#pragma once
#include "device.cuh"

#define LEAF 8u
#define GROUP (LEAF * WARP)
#define BLOCK 4096u

__device__ __forceinline__ u64 point_place(u64 width, u64 dim, u64 slot, u32 j) {
    return width ? slot * width + j : (slot / LEAF * dim + j) * LEAF + slot % LEAF;
}

// The place of the least coordinate of a dimension at 2j, and of the greatest at 2j + 1.
__device__ __forceinline__ u64 box_place(u64 width, u64 count, u64 box, u32 which) {
    return width ? box * 2 * width + which : (u64)which * count + box;
}
