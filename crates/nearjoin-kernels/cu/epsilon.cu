// The ε-join.
//
// Compiled with SCALAR_F32 or SCALAR_F64, DIM (1 to 8, or 0 for any) and METRIC_*.
#include "query.cuh"

KERNEL(group_count)(const __grid_constant__ Job job) { group<COUNT>(job); }
KERNEL(group_count_both)(const __grid_constant__ Job job) { group<COUNT_BOTH>(job); }
KERNEL(group_fill)(const __grid_constant__ Job job) { group<FILL>(job); }
KERNEL(group_list)(const __grid_constant__ Job job) { group<LIST>(job); }
KERNEL(group_work)(const __grid_constant__ Job job) { group<WORK, Scalar>(job); }
KERNEL(query_count)(const __grid_constant__ Job job) { query<COUNT>(job); }
KERNEL(query_fill)(const __grid_constant__ Job job) { query<FILL>(job); }
KERNEL(query_list)(const __grid_constant__ Job job) { query<LIST>(job); }
KERNEL(query_work)(const __grid_constant__ Job job) { query<WORK>(job); }

EXPORT(group_count)
EXPORT(group_count_both)
EXPORT(group_fill)
EXPORT(group_list)
EXPORT(group_work)
EXPORT(query_count)
EXPORT(query_fill)
EXPORT(query_list)
EXPORT(query_work)
