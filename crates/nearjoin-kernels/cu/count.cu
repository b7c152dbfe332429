// Counting neighbours, 32 queries of a neighbourhood to a warp.
#include "group.cuh"

GROUP_KERNEL(group_count)(const __grid_constant__ Job job) { group<COUNT>(job); }
GROUP_KERNEL(group_count_both)(const __grid_constant__ Job job) { group<COUNT_BOTH>(job); }
GROUP_KERNEL(group_work)(const __grid_constant__ Job job) { group<WORK>(job); }

EXPORT(group_count)
EXPORT(group_count_both)
EXPORT(group_work)
