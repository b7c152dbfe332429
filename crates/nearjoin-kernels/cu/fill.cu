// Writing rows to their places, 32 queries of a neighbourhood to a warp.
#include "group.cuh"

GROUP_KERNEL(group_fill)(const __grid_constant__ Job job) { group<FILL>(job); }

EXPORT(group_fill)
