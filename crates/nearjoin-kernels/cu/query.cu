// The join as in the papers, each query with 1 to 32 threads; and how many candidates the queries
// of a warp have together, for the order by workload. Points may lie in either way: one module does
// for all dimensions.
#define ANY_LAYOUT
#include "query.cuh"

KERNEL(query_count)(const __grid_constant__ Job job) { query<COUNT>(job); }
KERNEL(query_fill)(const __grid_constant__ Job job) { query<FILL>(job); }
KERNEL(query_list)(const __grid_constant__ Job job) { query<LIST>(job); }
KERNEL(query_work)(const __grid_constant__ Job job) { query<WORK>(job); }
GROUP_KERNEL(group_work)(const __grid_constant__ Job job) { group<WORK>(job); }

EXPORT(query_count)
EXPORT(query_fill)
EXPORT(query_list)
EXPORT(query_work)
EXPORT(group_work)
