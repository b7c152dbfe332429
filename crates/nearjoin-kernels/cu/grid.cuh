// The ε-grid as the device sees it.
//
// Cells are numbered row by row, every other row backwards, and so are the rows of every
// slower axis: a *snake*. Points that follow each other in the order of cells are then close
// together even where a row ends, and the cells within reach along the last axis are still
// one run of positions.
//
// Why no pair is missed: `cell_of` is monotone, rounding included, and a match y of x has
// x − reach ≤ y ≤ x + reach on every axis; so its cell lies between the cells of the two
// ends. Coordinates beyond the ends of the grid belong to the end cells.
#pragma once
#include "device.cuh"

#define MAX_AXES 6

struct Axis {
    double origin, per_unit, width;
    // More than the rounding of `cell_of` and `edge` can amount to.
    double slack;
    u64 cells;
    // The dimension of the points.
    u64 dim;
};

struct Grid {
    // The last one runs along the rows.
    u64 axes;
    Axis axis[MAX_AXES];
};

__device__ __forceinline__ u64 cell_of(const Axis& axis, double x) {
    double place = (x - axis.origin) * axis.per_unit, last = (double)(axis.cells - 1);
    // Not a number where 0 meets ∞, and then cell 0.
    place = place > 0.0 ? place : 0.0;
    return (u64)(place < last ? place : last);
}

// Every coordinate of a cell is at least this, up to `slack`.
__device__ __forceinline__ double edge(const Axis& axis, u64 cell) {
    return axis.origin + (double)cell * axis.width;
}

// The number of the row, or the cell, that follows `row` on one axis more.
__device__ __forceinline__ u64 snake(u64 row, const Axis& axis, u64 cell) {
    return row * axis.cells + (row & 1 ? axis.cells - 1 - cell : cell);
}
