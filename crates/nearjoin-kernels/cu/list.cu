// Appending pairs to a list, 32 queries of a neighbourhood to a warp.
#include "group.cuh"

GROUP_KERNEL(group_list)(const __grid_constant__ Job job) { group<LIST>(job); }

EXPORT(group_list)
