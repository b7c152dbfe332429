// What the kernels find in place of CUDA when they are compiled for the CPU.
//
// Includes nothing of the system: this is compiled with every module, and a name of the
// system's must not stand in for one that CUDA does not have.
#pragma once
#define NEARJOIN_SIMT

#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// The module's, and not the block's: a module runs one block at a time, or one on each thread of
// the system. (Not all modules: their shared memory would be taken from every thread's stack.)
#ifdef SIMT_SHARED_PER_THREAD
#define __shared__ static __thread
#else
#define __shared__ static
#endif

#include "numbers.h"

struct SimtIndex {
    unsigned x;
};
extern __thread SimtIndex threadIdx, blockIdx, blockDim, gridDim;

// ---------------------------------------------------------------- kernels and their parameters

namespace simt {

// A kernel as the launch finds it. Rust reads this too.
struct Entry {
    const char* name;
    // Calls the kernel, for the thread that is current, with parameters that lie as the
    // driver's `Args` lays them out: each aligned to its size.
    void (*call)(const unsigned char* arguments);
    // Where each parameter begins, and the end of the last.
    const unsigned long* offsets;
    unsigned long count;
    const Entry* next;
};

template <class... P> struct Parameters {
    unsigned long offsets[sizeof...(P) + 1] = {};
    constexpr Parameters() {
        unsigned long at = 0, i = 0;
        ((at = (at + alignof(P) - 1) / alignof(P) * alignof(P), offsets[i++] = at,
          at += sizeof(P)),
         ...);
        offsets[i] = at;
    }
};

template <class P> P read(const unsigned char* at) {
    P value;
    __builtin_memcpy(&value, at, sizeof(P));
    return value;
}

template <unsigned long...> struct Sequence {};
template <unsigned long N, unsigned long... I> struct Count : Count<N - 1, N - 1, I...> {};
template <unsigned long... I> struct Count<0, I...> {
    using Type = Sequence<I...>;
};

template <auto kernel, class F> struct Call;
template <auto kernel, class... P> struct Call<kernel, void (*)(P...)> {
    static constexpr Parameters<P...> parameters{};
    template <unsigned long... I>
    static void unpack(const unsigned char* arguments, Sequence<I...>) {
        kernel(read<P>(arguments + parameters.offsets[I])...);
    }
    static void call(const unsigned char* arguments) {
        unpack(arguments, typename Count<sizeof...(P)>::Type());
    }
    static Entry entry(const char* name, const Entry* next) {
        return {name, call, parameters.offsets, sizeof...(P), next};
    }
};

// ---------------------------------------------------------------- what threads wait for

// In block.cpp.
void barrier();
void warp_sync(unsigned mask);
unsigned warp_vote(unsigned mask, bool value);
unsigned long long warp_shuffle(unsigned mask, unsigned long long value, unsigned source);
unsigned warp_match(unsigned mask, unsigned long long value);

template <class T> unsigned long long bits(T value) {
    static_assert(sizeof(T) <= 8, "at most 64 bits go between lanes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return bits;
}
template <class T> T shuffle(unsigned mask, T value, unsigned source) {
    unsigned long long bits = warp_shuffle(mask, simt::bits(value), source);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}
inline unsigned lane() { return threadIdx.x % 32; }

} // namespace simt

// The kernels of the module that is being compiled.
static const simt::Entry* simt_kernels = nullptr;

#define KERNEL(name) static void name
#define EXPORT(name)                                                                             \
    static const simt::Entry simt_entry_##name =                                                 \
        simt::Call<&name, decltype(&name)>::entry(#name, simt_kernels);                          \
    static const bool simt_listed_##name = (simt_kernels = &simt_entry_##name, true);

inline void __syncthreads() { simt::barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { simt::warp_sync(mask); }
inline unsigned __ballot_sync(unsigned mask, int value) { return simt::warp_vote(mask, value); }
inline int __any_sync(unsigned mask, int value) { return simt::warp_vote(mask, value) != 0; }
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
    unsigned all = 0;
    for (unsigned bit = 0; bit < 32; bit++) all |= __any_sync(mask, value >> bit & 1u) ? 1u << bit : 0u;
    return all;
}
inline int __all_sync(unsigned mask, int value) { return simt::warp_vote(mask, value) == mask; }

// A warp may be taken as several narrower ones, of `width` lanes each.
template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    unsigned within = (unsigned)width - 1;
    return simt::shuffle(mask, value, (simt::lane() & ~within) | ((unsigned)source & within));
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
    unsigned lane = simt::lane(), within = lane & ((unsigned)width - 1);
    return simt::shuffle(mask, value, within >= by ? lane - by : lane);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32) {
    unsigned lane = simt::lane(), other = lane ^ (unsigned)with;
    return simt::shuffle(mask, value, other / (unsigned)width > lane / (unsigned)width ? lane : other);
}
template <class T> unsigned __match_any_sync(unsigned mask, T value) {
    return simt::warp_match(mask, simt::bits(value));
}

// ---------------------------------------------------------------- memory

// One thread runs at a time, and is left only where it waits: every access is atomic.
#define SIMT_ATOMIC(name, T, result)                                                             \
    inline T name(T* at, T value) {                                                              \
        T old = *at;                                                                             \
        *at = result;                                                                            \
        return old;                                                                              \
    }
SIMT_ATOMIC(atomicAdd, unsigned, old + value)
SIMT_ATOMIC(atomicAdd, unsigned long long, old + value)
SIMT_ATOMIC(atomicMax, unsigned, old < value ? value : old)
SIMT_ATOMIC(atomicMax, unsigned long long, old < value ? value : old)
SIMT_ATOMIC(atomicMin, unsigned, value < old ? value : old)
SIMT_ATOMIC(atomicMin, unsigned long long, value < old ? value : old)
SIMT_ATOMIC(atomicOr, unsigned, old | value)
#undef SIMT_ATOMIC

// Shared memory that is asked for at a launch: as much as the kernel says that it needs.
#define DYNAMIC_SHARED(name, bytes) __shared__ __attribute__((aligned(128))) unsigned char name[bytes]

inline void __threadfence() {}
template <class T> T __ldg(const T* at) { return *at; }

#include "matrix.h"
