// Matrix units: products of small matrices by a warp, and how their operands get there.
//
// For compute capability 8.0 and later. nearjoin-simt has functions of its own for all of it.
#pragma once
#include "device.cuh"

#ifdef NEARJOIN_SIMT
#define mma_f16 simt_mma_f16
#define load_matrices simt_load_matrices
#define copy_16 simt_copy_16
#define commit_copies simt_commit_copies
template <int N> inline void wait_copies() { simt_wait_copies(N); }
#else

// c += a·b: 16 × 16 numbers of 16 bits by 16 × 8, in single precision.
__device__ __forceinline__ void mma_f16(float (&c)[4], const u32 (&a)[4], const u32* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ u32 in_shared(const void* at) {
    u64 address;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(at));
    return (u32)address;
}

// Four matrices of 8 × 8 numbers of 16 bits in shared memory. Every lane has the address of a row: of
// row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(u32* to, const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(in_shared(row)));
}

// Sends 16 bytes to shared memory.
__device__ __forceinline__ void copy_16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(in_shared(to)), "l"(from)
                 : "memory");
}

// What was sent since the last call is a group.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all groups of this thread but the last N are there.
template <int N> __device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#endif
