// Matrix units, as `matrix.cuh` asks for them.
//
// What the lanes of a warp bring lies on their stacks, and they say where: while they wait for each
// other, all can look at it.
#pragma once

namespace simt {

// How much units err, beside what they may.
extern __thread double unit_error;

// What each lane of each warp of the block brings.
inline const void*& brought(unsigned lane, unsigned which) {
    static __thread const void* all[1024][2];
    return all[threadIdx.x / 32 * 32 + lane][which];
}

inline double half(unsigned bits) {
    double magnitude = (double)(simt_bits_as<float>((bits & 0x7fffu) << 13) * 0x1p112f);
    return bits & 0x8000u ? -magnitude : magnitude;
}

// The number of 16 bits at a place of a fragment: two to a register.
inline double at(const unsigned* registers, unsigned which, unsigned k) {
    return half(registers[which] >> 16 * (k % 2) & 0xffffu);
}

// Rounds to single precision, up or down.
inline float directed(double x, bool up) {
    float near = (float)x;
    if (up ? (double)near >= x : (double)near <= x) return near;
    unsigned bits = simt_bits_as<unsigned>(near);
    if (near == 0.0f) return up ? 0x1p-149f : -0x1p-149f;
    return simt_bits_as<float>(bits + (((bits >> 31) != 0) == up ? -1u : 1u));
}

} // namespace simt

// The worst that a unit may do by the model that the filter's bound is built on: every addition errs by
// 2⁻²³ of all magnitudes so far, up for every other element and down for the rest.
inline void simt_mma_f16(float (&c)[4], const unsigned (&a)[4], const unsigned* b) {
    unsigned lane = simt::lane();
    simt::brought(lane, 0) = a;
    simt::brought(lane, 1) = b;
    __syncwarp();
    for (unsigned e = 0; e < 4; e++) {
        unsigned row = lane / 4, column = lane % 4 * 2 + e % 2;
        bool up = (row + column) % 2;
        double sum = c[e], sizes = __builtin_fabs(sum);
        for (unsigned k = 0; k < 16; k++) {
            const unsigned* left = (const unsigned*)simt::brought(row * 4 + k % 8 / 2, 0);
            const unsigned* right = (const unsigned*)simt::brought(column * 4 + k % 8 / 2, 1);
            double term = simt::at(left, e / 2 + k / 8 * 2, k) * simt::at(right, k / 8, k);
            sizes += __builtin_fabs(term);
            sum += term + (up ? sizes : -sizes) * 0x1p-23 * simt::unit_error;
        }
        c[e] = simt::directed(sum, up);
    }
    __syncwarp();
}

inline void simt_load_matrices(unsigned* to, const void* row) {
    unsigned lane = simt::lane();
    simt::brought(lane, 0) = row;
    __syncwarp();
    for (unsigned m = 0; m < 4; m++)
        to[m] = ((const unsigned*)simt::brought(m * 8 + lane / 4, 0))[lane % 4];
    __syncwarp();
}

// Copies are there at once: whoever waits for them waits for nothing.
inline void simt_copy_16(void* to, const void* from) { __builtin_memcpy(to, from, 16); }
inline void simt_commit_copies() {}
inline void simt_wait_copies(int) {}
