// Counting neighbours, 32 queries of a neighbourhood to a warp.
#include "group.cuh"

GROUP_KERNEL(group_count)(const __grid_constant__ Job job) { group<COUNT>(job); }

EXPORT(group_count)
