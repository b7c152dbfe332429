// What every kernel starts from.
//
// A kernel is declared with KERNEL(name) and listed once with EXPORT(name) at the end of its
// file. For CUDA both come down to a declaration. nearjoin-simt compiles the same files for
// the CPU against a header of its own, which is included first and defines NEARJOIN_SIMT,
// the two macros, and everything of CUDA that kernels may use:
//
//   __device__ __forceinline__ __noinline__ __grid_constant__ __shared__ (static arrays only) __launch_bounds__
//   what matrix.cuh has
//   threadIdx.x blockIdx.x blockDim.x gridDim.x
//   __syncthreads __syncwarp __ballot_sync __any_sync __all_sync __shfl_sync __reduce_or_sync (8.0)
//   __shfl_up_sync __shfl_xor_sync __match_any_sync __popc __popcll __ffs __clz __clzll
//   atomicAdd (unsigned, unsigned long long) atomicMax atomicMin atomicOr (unsigned)
//   __threadfence __ldg
//   fma fmaf __fmaf_rn __fma_rn __fadd_rn __dadd_rn __fsub_rn __dsub_rn __fmul_rn __dmul_rn
//   __fsqrt_rn __dsqrt_rn fabs fabsf fmax fmaxf fmin fminf min max
//   __float_as_uint __uint_as_float __double_as_longlong __longlong_as_double
//   __double2float_rn __int2double_rn __double2ll_rz
//   float2 float4 double2 uint2 uint4 and their make_ functions
#pragma once

#ifndef NEARJOIN_SIMT
#define KERNEL(name) extern "C" __global__ void name
#define EXPORT(name)
// Shared memory beyond what a block may declare: as much as `Module::shared_bytes` says.
#define DYNAMIC_SHARED(name, bytes) extern __shared__ __align__(128) unsigned char name[]
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

#define WARP 32u
#define ALL 0xffffffffu

// The lane of this thread in its warp. Blocks are one-dimensional and whole warps.
__device__ __forceinline__ u32 lane() { return threadIdx.x % WARP; }

// The number of this thread in the grid.
__device__ __forceinline__ u64 thread_number() {
    return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}
