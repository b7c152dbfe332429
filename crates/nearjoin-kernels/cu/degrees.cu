// Counting neighbours of both points of a pair, 32 queries of a neighbourhood to a warp.
#include "group.cuh"

GROUP_KERNEL(group_degrees)(const __grid_constant__ Job job) { group<COUNT_BOTH>(job); }

EXPORT(group_degrees)
