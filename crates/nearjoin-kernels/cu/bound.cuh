// What scores say of distances: `Scored` of filter/product.rs, which has the argument.
#pragma once
#include "device.cuh"

// The rounding of all that is computed here in double precision, and then some; and more than numbers lose
// when they are rounded to single precision.
#define TINY 1e-11
#define ROUNDED 2.4e-7

// Every member has eight bytes.
struct Bound {
    // λ: how the rounding of two points is told apart.
    double mix;
    // Of what goes into a product, by magnitude, the part that it may err by, and what it may err by beside
    // that.
    double relative, absolute;
    // The same of the sum that decides; the scale of the frame, and the longest distance in it.
    double deciding, lost;
    double scale, farthest;

    __device__ __forceinline__ double error(double norm, double beside) const {
        return relative * (0.5 * norm + beside) + absolute;
    }
    // R: what the rounding of a candidate adds to squared distances.
    __device__ __forceinline__ double moved(double spread) const {
        return spread * spread * (1.0 + 1.0 / mix);
    }
    // What the scores of a point are less by: too little, so that no candidate is missed, or too much, so that
    // none is nearer than its score says.
    __device__ __forceinline__ float less(double norm, double spread, bool much) const {
        double r = moved(spread);
        if (much)
            return __double2float_rn(0.5 * norm + r + error(norm, 0.5 * norm + r) + ROUNDED * (norm + r));
        r *= 0.5;
        return __double2float_rn(0.5 * norm - r - error(norm, 0.5 * norm + r) - ROUNDED * (norm + r));
    }
    // How far a candidate may be whose sum is at most this, in the units of the frame.
    __device__ __forceinline__ double reach(double squared) const {
        double far = __dsqrt_rn((squared + lost) / (1.0 - deciding) * (1.0 + TINY));
        return far < farthest ? far : farthest;
    }
    // The same of a sum as it is computed.
    __device__ __forceinline__ double reach_of_sum(double sum) const {
        double far = __dsqrt_rn(sum) * scale;
        return reach(far * far * (1.0 + TINY));
    }
    // How far a candidate may be whose sum is at most that of one with this score, less too much.
    __device__ __forceinline__ double reach_of_score(double score) const {
        double squared = -2.0 * (1.0 + mix) * score * (1.0 + TINY);
        return reach((squared > 0.0 ? squared : 0.0) * (1.0 + deciding) + lost);
    }
    // The least score, less too little, of a candidate within reach of a query.
    __device__ __forceinline__ float limit(double far, double spread) const {
        double t = (far + spread) * (far + spread) * (1.0 + mix), r = moved(spread);
        return __double2float_rn(0.5 * (r - t) - ROUNDED * (t + r));
    }
};
