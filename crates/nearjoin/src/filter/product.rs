//! Deciding pairs by a matrix product: what `h·h'` must be for a pair to be near, or surely near.
//!
//! Squared distances are `‖h‖² + ‖h'‖² − 2·h·h'`, and products of many points are what processors do
//! fastest. The points are rounded to fewer bits for it, and the sum errs, so a product only filters:
//! a pair is far, sure, or open, and open ones are decided in the points' own arithmetic.
//!
//! 1. `h` is a point in a [`Frame`], `s·(x − c)` with a power of two `s`, rounded; its norm `n = ‖h‖²` and
//!    the length `ρ` of what rounding took are known ([`Rounded`]).
//! 2. The sum that decides is within a factor `1 ± g` of the true `D`, and an absolute error `a`
//!    ([`Deciding`]): a match has `D ≤ t⁺ = (bound + a)/(1 − g)`, and `D ≤ t⁻ = (bound − a)/(1 + g)` is one.
//! 3. With `τ = s·√t`, `τ' = √D_h`, where `D_h = ‖h − h'‖²`, is at most `ρ + ρ'` away from `s·√D`.
//! 4. The product, less what it is compared with, errs by at most `e` of all that was added up, and by `q`
//!    for what underflows ([`Summing`]): `e·((n + n')/2 + |A| + |A'|) + q`.
//!
//! So a match has `h·h' ≥ A + A'`, where `A = ½(n − τ²/2 − 2τρ − 2ρ²)` less its half of the error; and
//! `h·h' ≥ B + B'` is a match, where `B = ½(n − τ²/2 + 2τρ)` and its half of the error, with the `τ` of t⁻:
//! then `D_h ≤ τ² − 2τ(ρ + ρ')`, so that `√D_h ≤ τ − ρ − ρ'`. Both are of one point alone.

use crate::scalar::Scalar;
use crate::scale::exponent;

/// Distances in a frame are compared as if they were no more than this: no two points in it are as far
/// from each other, and its square is in the range of `f32`.
const FARTHEST: f64 = (1u64 << 40) as f64;
/// The rounding of `f64` in whatever is said here of up to 4096 dimensions, many times.
const TINY: f64 = 1e-11;
/// The least part of a reach that rounding is taken to move a point by.
const LEAST_MIX: f64 = 1e-7;

/// Where points are before they are rounded: `s·x − s·c`, about 1 in size.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// A power of two.
    pub(crate) scale: f64,
    /// The centre, multiplied by it.
    pub(crate) centre: Vec<f64>,
}

impl Frame {
    /// Coordinates of points with these extents are at most 2 to the power `size` in it, or 16 times that
    /// where they are beyond 2¹⁰²⁰. The centre is somewhere among them: the nearer to most points, the
    /// smaller are their norms.
    ///
    /// They are less where a coordinate is so much larger than what it differs by that the scale would take
    /// it beyond all numbers.
    pub(crate) fn new(extents: &[(f64, f64)], centre: &[f64], size: i32) -> Self {
        // Halved first: an extent may be beyond the largest number.
        let radius = |((lo, hi), c): (&(f64, f64), &f64)| {
            (hi / 2.0 - c / 2.0).abs().max((c / 2.0 - lo / 2.0).abs())
        };
        let widest = extents.iter().zip(centre).map(radius).fold(0.0, f64::max);
        let power = if widest > 0.0 { size - 2 - exponent(widest) } else { 0 };
        let size_of = |((lo, hi), c): (&(f64, f64), &f64)| lo.abs().max(hi.abs()).max(c.abs());
        let largest = extents.iter().zip(centre).map(size_of).fold(0.0, f64::max);
        let most = if largest > 0.0 { 1021 - exponent(largest) } else { 1021 };
        let scale = 2f64.powi(power.min(most).clamp(-1021, 1021));
        Frame { scale, centre: centre.iter().map(|c| c * scale).collect() }
    }

    /// A coordinate, rounded once.
    #[inline(always)]
    pub(crate) fn place<T: Scalar>(&self, j: usize, x: T) -> f64 {
        x.to_f64() * self.scale - self.centre[j]
    }
}

/// What is known of a point that was rounded: of its coordinates as they are added up in `f64`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounded {
    /// `‖h‖²`.
    pub(crate) norm: f64,
    /// At least `ρ`, the length of `s·(x − c) − h`.
    pub(crate) error: f64,
}

impl Rounded {
    /// From the sums of the squares of `h`, and of what is between it and its place in the frame.
    ///
    /// The place itself is off by 2⁻⁵³ of its length, which is at most `‖h‖ + ρ`, and by what underflows:
    /// the squares of 4096 numbers below 10⁻¹⁶¹.
    pub(crate) fn new(norm: f64, squared_error: f64) -> Self {
        let error = squared_error.sqrt() * (1.0 + TINY) + norm.sqrt() * f64::EPSILON + 1e-150;
        Rounded { norm, error }
    }
}

/// The numbers that are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Digits {
    F32,
    /// The first 16 bits of an `f32`, two of them in a word: half the memory, and half the time where
    /// the processor multiplies such pairs.
    Bf16,
}

impl Digits {
    /// Numbers in a word of 32 bits.
    pub(crate) fn in_word(self) -> usize {
        match self {
            Digits::F32 => 1,
            Digits::Bf16 => 2,
        }
    }

    /// Words that a point takes.
    pub(crate) fn words(self, dim: usize) -> usize {
        dim.div_ceil(self.in_word())
    }

    /// The nearest such number to a place in the frame, give or take one.
    #[inline(always)]
    pub(crate) fn round(self, place: f64) -> f32 {
        let x = place as f32;
        match self {
            Digits::F32 => x,
            // Processors take what is subnormal for 0.
            Digits::Bf16 if x.abs() < f32::MIN_POSITIVE => 0.0,
            Digits::Bf16 => {
                let bits = x.to_bits();
                f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
            }
        }
    }

    /// How sums of their products err. Those of pairs are added up in `f32`, in steps of which no
    /// more is assumed than that they err by a unit of the last place, and that what is subnormal is
    /// lost.
    pub(crate) fn summing(self, dim: usize) -> Summing {
        match self {
            Digits::F32 => Summing::new(dim, f32::UNIT_ROUNDOFF, f32::SMALLEST),
            Digits::Bf16 => {
                Summing::new(dim + 1, 2.0 * f32::UNIT_ROUNDOFF, f64::from(f32::MIN_POSITIVE))
            }
        }
    }
}

/// How a sum of products errs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summing {
    /// At most this of the sum of all magnitudes, that of what the sum begins with included.
    pub(crate) relative: f64,
    /// And at most this for all that underflows.
    pub(crate) absolute: f64,
}

impl Summing {
    /// Products that are added up in any order, `terms` of them, by steps that err by `unit` of what
    /// they give: a product and a sum, or both at once. `smallest` is what one may lose to underflow.
    pub(crate) fn new(terms: usize, unit: f64, smallest: f64) -> Self {
        // A term passes through its own rounding, every sum, and two with what it is compared with.
        let steps = (terms + 3) as f64 * unit;
        let relative = steps / (1.0 - steps);
        Summing { relative, absolute: 2.0 * terms as f64 * smallest }
    }

    /// Matrix units that multiply numbers of 16 bits and add up in `f32`, 16 products at a time.
    ///
    /// A model of them, which is checked on a device before it is relied on: products are exact, and
    /// every addition, of a product or of what was there before, errs by at most 2⁻²³ of all magnitudes so
    /// far. Units that were looked at err by less than a twentieth of that.
    pub(crate) fn on_matrix_units(terms: usize) -> Self {
        let steps = (terms as f64 * (17.0 / 16.0) + 16.0) * 2f64.powi(-23);
        // Products have no more than 2⁻⁴⁸ as their last digit: nothing underflows.
        Summing { relative: steps / (1.0 - steps), absolute: 1e-30 }
    }

    /// The error of one point's part in a product: of terms that are `norm / 2` together, and of what
    /// the sum is compared with, `beside` before its own error is taken off or added.
    fn of(&self, norm: f64, beside: f64) -> f64 {
        self.with_its_own() * (norm / 2.0 + beside) + self.absolute
    }

    /// The relative error, with what it adds to the thresholds that it is itself a part of.
    fn with_its_own(&self) -> f64 {
        self.relative * (1.0 + 4.0 * self.relative) + TINY
    }
}

/// How the sum that decides errs.
#[derive(Clone, Copy, Debug)]
struct Deciding {
    /// Two roundings of a difference that is squared, and one for every sum.
    relative: f64,
    /// What squares and sums lose to underflow, in the units of the frame.
    absolute: f64,
    scale: f64,
}

impl Deciding {
    fn new<T: Scalar>(dim: usize, scale: f64) -> Self {
        let relative = 1.01 * (dim + 4) as f64 * T::UNIT_ROUNDOFF;
        Deciding { relative, absolute: 2.0 * dim as f64 * T::SMALLEST * scale * scale, scale }
    }

    /// A sum that decided, in the units of the frame.
    fn squared(&self, sum: impl Scalar) -> f64 {
        let root = sum.to_f64().sqrt() * self.scale;
        root * root
    }

    /// No pair that such a sum is decided for is farther apart.
    fn reach(&self, sum: impl Scalar) -> f64 {
        self.farthest(self.squared(sum))
    }

    /// No pair with at most this sum is farther apart.
    fn farthest(&self, squared: f64) -> f64 {
        let most = (squared + self.absolute) / (1.0 - self.relative) * (1.0 + TINY);
        most.sqrt().min(FARTHEST)
    }

    /// No pair that is no farther apart has a larger sum: below 0 where that cannot be said.
    fn surely(&self, squared: f64) -> f64 {
        let least = (squared - self.absolute) / (1.0 + self.relative) * (1.0 - TINY);
        if least > 0.0 { least.sqrt().min(FARTHEST) } else { -1.0 }
    }
}

/// Which products say that a pair is within ε.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within {
    summing: Summing,
    /// `τ` of t⁺ and of t⁻.
    open: f64,
    sure: f64,
}

impl Within {
    /// `bound` is the largest sum that matches.
    pub(crate) fn new<T: Scalar>(bound: T, dim: usize, frame: &Frame, summing: Summing) -> Self {
        let deciding = Deciding::new::<T>(dim, frame.scale);
        let sure = deciding.surely(deciding.squared(bound));
        Within { summing, open: deciding.reach(bound), sure }
    }

    /// What thresholds are made of, for whoever computes them elsewhere by the same formulas: `τ` of t⁺
    /// and of t⁻, and the errors of a sum.
    pub(crate) fn limits(&self) -> [f64; 4] {
        [self.open, self.sure, self.summing.with_its_own(), self.summing.absolute]
    }

    /// `A`: a pair whose product is below that of both its points does not match.
    pub(crate) fn open(&self, point: Rounded) -> f32 {
        let Rounded { norm, error } = point;
        let reach = self.open * self.open / 4.0 + error * (self.open + error);
        let least = norm / 2.0 - reach - self.summing.of(norm, norm / 2.0 + reach);
        (least as f32).next_down()
    }

    /// `B`: a pair whose product is no less than that of both its points matches.
    pub(crate) fn sure(&self, point: Rounded) -> f32 {
        let Rounded { norm, error } = point;
        if self.sure < 0.0 {
            return f32::INFINITY;
        }
        let (reach, lost) = (self.sure * self.sure / 4.0, self.sure * error);
        let least = norm / 2.0 - reach + lost + self.summing.of(norm, norm / 2.0 + reach + lost);
        (least as f32).next_up()
    }
}

/// What scores say of distances: which candidates may be among the nearest of a query.
///
/// A score is a product less what is known of its points, so that the larger it is, the nearer they are. What a
/// candidate's products are less by is a number `C'` of its own, and there are two of it: by the one no candidate
/// is missed, and by the other none is nearer than its score says. With `e` and `q` for the errors of sums as
/// above, `D_h ≤ n + n' − 2P` and twice the error of both points.
///
/// How far rounding moves a pair, `2τρ'`, belongs to both of its points: the `τ` of the one that asks, and the
/// `ρ'` of the other. For any `λ > 0` it is at most `λτ² + ρ'²/λ`, and hardly more where `λ` is about `ρ'/τ`. So with
/// `R = ρ²(1 + 1/λ)`:
///
/// - **No candidate is missed.** One within reach `τ` of a query has `√D_h ≤ τ + ρ + ρ'`, so `D_h ≤ T + R'` where
///   `T = (τ + ρ)²(1 + λ)`. With `C' = ½(n' − R')` less its error, its score `P − C'` is no less than the query's limit
///   `½(n − T)` less its own.
/// - **None is nearer than its score says.** `s²D ≤ (√D_h + ρ + ρ')² ≤ (1 + λ)D_h + 2R + 2R'`. With `C' = ½n' + R'` and
///   its error, `D_h ≤ n − 2(P − C') − 2R'` and twice the error of the query, so that
///   `s²D ≤ (1 + λ)(n − 2(P − C')) + 2R` and that. The k-th best score of some candidates so bounds how far the k
///   nearest of all are.
///
/// One point that was moved far, as an outlier is, spoils its own `R` and nobody else's.
///
/// Where products are computed elsewhere, for many queries at once and for both points of a pair (`Bound` in
/// `bound.cuh`), a score is `S = P − C − C'`, one number for both: with `C = ½(n − R)` less its error, a candidate
/// within reach of a query has `S ≥ ½(R − T)`, which is of the query alone; and with `C = ½n + R` and its error,
/// `s²D ≤ −2(1 + λ)S`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scored {
    mix: f64,
    summing: Summing,
    deciding: Deciding,
}

impl Scored {
    /// With a `λ` for points that are as far from their nearest as from the centre: numbers of 16 bits move
    /// them by about a ten-thousandth of that.
    pub(crate) fn new<T: Scalar>(dim: usize, frame: &Frame, summing: Summing) -> Self {
        Scored { mix: 1e-4, summing, deciding: Deciding::new::<T>(dim, frame.scale) }
    }

    /// The same for points that were moved so far, and whose nearest are about as far as that.
    pub(crate) fn for_typical(self, error: f64, reach: f64) -> Self {
        let mix = if reach > 0.0 { error / reach } else { 1.0 };
        // The least also where it is not a number.
        Scored { mix: if mix > LEAST_MIX { mix.min(1.0) } else { LEAST_MIX }, ..self }
    }

    /// `R`.
    fn moved(&self, error: f64) -> f64 {
        error * error * (1.0 + 1.0 / self.mix)
    }

    /// `C'` of a candidate: by which it is not missed, and by which it is no nearer than its score says.
    pub(crate) fn less(&self, candidate: Rounded) -> [f32; 2] {
        let (half, moved) = (candidate.norm / 2.0, self.moved(candidate.error));
        let error = |moved: f64| self.summing.of(candidate.norm, half + moved);
        let few = half - moved / 2.0 - error(moved / 2.0);
        let much = half + moved + error(moved);
        [(few as f32).next_down(), (much as f32).next_up()]
    }

    /// How far in the frame a candidate may be whose sum is at most this.
    pub(crate) fn reach(&self, sum: impl Scalar) -> f64 {
        self.deciding.reach(sum)
    }

    /// No candidate with a lower score, by the first of its [numbers](Self::less), is within `reach` of the query.
    pub(crate) fn limit(&self, query: Rounded, reach: f64) -> f32 {
        let far = (reach + query.error) * (reach + query.error) * (1.0 + self.mix);
        let error = self.summing.of(query.norm, query.norm / 2.0 + far / 2.0);
        let least = query.norm / 2.0 - far / 2.0 - error;
        (least as f32).next_down()
    }

    /// How far in the frame a candidate may be whose sum is at most that of one with this score, by the second of
    /// its [numbers](Self::less).
    pub(crate) fn reach_of(&self, query: Rounded, score: f32) -> f64 {
        let error = 2.0 * self.summing.of(query.norm, 0.0);
        let squared = (query.norm - 2.0 * f64::from(score) + error).max(0.0);
        let far = (1.0 + self.mix) * squared + 2.0 * self.moved(query.error);
        let sum = far * (1.0 + self.deciding.relative) + self.deciding.absolute;
        self.deciding.farthest(sum)
    }

    /// The words of `Bound` in `bound.cuh`.
    pub(crate) fn words(&self) -> [u64; 7] {
        let Scored { mix, summing, deciding } = self;
        let sums = [summing.with_its_own(), summing.absolute];
        let sum = [deciding.relative, deciding.absolute, deciding.scale];
        [*mix, sums[0], sums[1], sum[0], sum[1], sum[2], FARTHEST].map(f64::to_bits)
    }
}

#[cfg(test)]
mod tests;
