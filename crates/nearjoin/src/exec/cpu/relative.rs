//! Points in `f32`, relative to a block of queries: how far off their distances may be, and whether
//! the nearest by those are the nearest.
//!
//! Let h be the norm of the queries' largest coordinates relative to their middle, and u = 2⁻²⁴.
//! Rounding a relative coordinate x to `f32` errs by at most u·|x|, and a candidate at distance d from
//! a query is no farther than h + d from the middle. So a difference errs by no more than u·(2h + 3d)
//! on each axis, and by the triangle inequality a distance by the norm of such errors; a sum of dim
//! terms adds a share of dim·u, fused or not, and so does the arithmetic of `f32` points. [`Relative`]
//! takes more than that: what a distance d in `f32` stands for is between `d·(1 − share) − more` and
//! `d·(1 + share) + more`.
//!
//! Why the k best are right: candidates that are not among the k were dropped with a key that is
//! known, were farther than a bound when they were looked at, or are in a box that is. Coordinates are
//! rounded monotonically, so no point is nearer than its box in `f32` either. Bounds only get tighter;
//! so if what the last bound and the least key that was dropped stand for is beyond the k-th of the
//! kept, in the deciding arithmetic, no other candidate is as near. If not, which means a tie almost
//! always, the block is searched again by other means.

use super::kernel::{Margin, NearestKernels, PAD, TAG};
use crate::index::BoxOf;
use crate::metric::Metric;
use crate::scalar::Scalar;

/// Keys below this may have lost digits.
const LEAST: f32 = 1.0 / (1u64 << 60) as f32;

/// Where `f32` coordinates are relative to, and what their distances are worth.
pub(super) struct Relative {
    pub(super) middle: Vec<f64>,
    /// A power of two that makes the box of the queries about 1 wide.
    pub(super) scale: f64,
    metric: Metric,
    share: f64,
    more: f64,
}

impl Relative {
    pub(super) fn new(dim: usize, metric: Metric) -> Self {
        let share = (dim as f64 + 8.0) * f64::from(f32::EPSILON);
        Relative { middle: vec![0.0; dim], scale: 1.0, metric, share, more: 0.0 }
    }

    /// Whether keys are squares of distances.
    fn squares(&self) -> bool {
        self.metric == Metric::L2
    }

    /// Puts a block of `len` queries, columns of 16, into `to`. Returns whether `f32` can tell their
    /// neighbours apart.
    pub(super) fn begin<T: Scalar>(
        &mut self,
        kernels: &NearestKernels<T>,
        (queries, bound): (&[T], &BoxOf<T>),
        len: usize,
        to: &mut [f32],
    ) -> bool {
        let mut widest = 0.0f64;
        for (middle, (lo, hi)) in self.middle.iter_mut().zip(bound.lo.iter().zip(&bound.hi)) {
            let half = (hi.to_f64() - lo.to_f64()) / 2.0;
            *middle = lo.to_f64() + half;
            widest = widest.max(half);
        }
        // In this range no square of a distance that matters leaves that of the type.
        let most = f64::from(T::MAX_EXP / 8).exp2();
        if !(1.0 / most < widest && widest < most) {
            return false;
        }
        let power_above = f64::from_bits(((widest.to_bits() >> 52) + 1) << 52);
        self.scale = 1.0 / power_above;
        kernels.relate(queries, &self.middle, self.scale, to);
        let mut norm = 0.0f64;
        for column in to.chunks_exact(PAD) {
            let far = column[..len].iter().fold(0.0f32, |far, x| far.max(x.abs()));
            let far = f64::from(far);
            norm = match self.metric {
                Metric::L2 => norm + far * far,
                Metric::L1 => norm + far,
                Metric::Linf => norm.max(far),
            };
        }
        let norm = if self.squares() { norm.sqrt() } else { norm };
        self.more = 1.5 * norm * f64::from(f32::EPSILON);
        true
    }

    /// How a key becomes a bound: by what the k-th may stand for, and by what that may look like.
    pub(super) fn margin(&self) -> Margin {
        let (share, more) = ((4.0 * self.share) as f32, (3.0 * self.more) as f32);
        Margin { squares: self.squares(), share, more }
    }

    /// A bound as boxes in the points' own type are compared with it.
    pub(super) fn outer<T: Scalar>(&self, bound: f32) -> T {
        if bound >= f32::MAX / 2.0 {
            return T::INFINITY;
        }
        let once = f64::from(bound) / self.scale;
        let outer = if self.squares() { once / self.scale } else { once };
        T::from_f64(outer * (1.0 + 1e-6))
    }

    /// Whether no other candidate can be as near as the last of a query's best, which has the key
    /// `last` and is at `acc`: the next has a key of at least `next`, or is beyond the bound.
    pub(super) fn is_sure<T: Scalar>(&self, last: f32, acc: T, next: f32, bound: f32) -> bool {
        if last < LEAST {
            return false;
        }
        let next = f32::from_bits(next.to_bits() & !TAG).min(bound);
        let distance = |acc: f64| if self.squares() { acc.sqrt() } else { acc };
        let others = distance(f64::from(next)) * (1.0 - self.share) - self.more;
        others > distance(acc.to_f64()) * self.scale * (1.0 + self.share)
    }
}

/// Puts candidates in order that are nearly so: by distance, then by row.
pub(super) fn insert_all<T: Scalar>(ids: &mut [u32], acc: &mut [T]) {
    for from in 1..ids.len() {
        let (id, x) = (ids[from], acc[from]);
        let mut at = from;
        while at > 0 && (x < acc[at - 1] || x == acc[at - 1] && id < ids[at - 1]) {
            (ids[at], acc[at]) = (ids[at - 1], acc[at - 1]);
            at -= 1;
        }
        (ids[at], acc[at]) = (id, x);
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::super::kernel::SimdLevel;
    use super::*;
    use crate::metric::Threshold;

    const METRICS: [Metric; 3] = [Metric::L2, Metric::L1, Metric::Linf];

    /// Queries around `center`, as far from it as `size` says, and candidates ten times as far.
    fn points(rng: &mut StdRng, dim: usize, center: f64, size: f64) -> (Vec<f64>, Vec<f64>) {
        let mut around = |size: f64| -> Vec<f64> {
            (0..dim * PAD).map(|_| center + size * rng.random_range(-1.0..1.0)).collect()
        };
        (around(size), around(10.0 * size))
    }

    fn bound_of(queries: &[f64]) -> BoxOf<f64> {
        let mut bound = BoxOf::new();
        for column in queries.chunks_exact(PAD) {
            bound.lo.push(column.iter().copied().fold(f64::INFINITY, f64::min));
            bound.hi.push(column.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        }
        bound
    }

    /// The distance of query and candidate 0, in `f64` and, relative, in `f32`.
    fn both(metric: Metric, x: (&[f64], &[f64]), y: (&[f32], &[f32])) -> (f64, f64) {
        let (mut wide, mut narrow) = (0.0, 0.0);
        for j in (0..x.0.len()).step_by(PAD) {
            wide = Threshold::<f64>::step(metric, wide, x.0[j], x.1[j]);
            narrow = Threshold::<f32>::step(metric, narrow, y.0[j], y.1[j]);
        }
        let narrow = f64::from(narrow);
        if metric == Metric::L2 { (wide.sqrt(), narrow.sqrt()) } else { (wide, narrow) }
    }

    #[test]
    fn distances_are_as_accurate_as_they_say() {
        let mut rng = StdRng::seed_from_u64(17);
        for metric in METRICS {
            for dim in 1..=8 {
                let kernels = NearestKernels::new(SimdLevel::Scalar, metric, dim);
                let mut relative = Relative::new(dim, metric);
                let mut worst = 0.0f64;
                for (center, size) in [(0.0, 1.0), (1e9, 3e-3), (-7.0, 1e-20), (1e30, 1e25)] {
                    for _ in 0..200 {
                        let (queries, candidates) = points(&mut rng, dim, center, size);
                        let bound = bound_of(&queries);
                        let mut q = vec![0.0; dim * PAD];
                        let mut c = q.clone();
                        let asking = (&queries[..], &bound);
                        if !relative.begin(&kernels, asking, PAD, &mut q) {
                            continue;
                        }
                        kernels.relate(&candidates, &relative.middle, relative.scale, &mut c);
                        let (wide, narrow) = both(metric, (&queries, &candidates), (&q, &c));
                        let off = (wide * relative.scale - narrow).abs();
                        let allowed = narrow * relative.share + relative.more;
                        assert!(off <= allowed, "{metric} {dim} {center} {size}: {off} {allowed}");
                        worst = worst.max(off / allowed);
                    }
                }
                // The margin is no larger than it has to be, by some factor.
                assert!(worst > 1e-3, "{metric} {dim}: {worst}");
            }
        }
    }

    #[test]
    fn nothing_is_sure_of_a_tie() {
        let mut relative = Relative::new(2, Metric::L2);
        relative.more = 1e-7;
        let (last, acc) = (0.25f32, 0.25f64);
        assert!(relative.is_sure(last, acc, 0.2502, f32::MAX));
        assert!(!relative.is_sure(last, acc, 0.25, f32::MAX), "a tie");
        assert!(!relative.is_sure(last, acc, 0.250_000_1, f32::MAX), "as good as a tie");
        assert!(!relative.is_sure(last, acc, f32::MAX, 0.25), "something beyond the bound");
        assert!(!relative.is_sure(0.0, 0.0f64, 0.25, f32::MAX), "digits may be lost");
    }

    #[test]
    fn a_bound_is_beyond_all_that_may_be_as_near() {
        for metric in METRICS {
            let mut relative = Relative::new(3, metric);
            relative.more = 2e-7;
            for last in [1e-12f32, 1e-3, 0.7, 40.0, 1e12] {
                let bound = relative.margin().widen(last);
                // The farthest that the last one may be.
                let far = if metric == Metric::L2 { f64::from(last).sqrt() } else { last.into() };
                let far = far * (1.0 + relative.share) + relative.more;
                let acc = if metric == Metric::L2 { far * far } else { far };
                assert!(relative.is_sure(last, acc, f32::MAX, bound), "{metric} {last}");
                assert!(relative.outer::<f64>(bound) > acc);
            }
        }
    }

    #[test]
    fn order_is_by_distance_and_then_by_row() {
        let (mut ids, mut acc) = (vec![9, 4, 7, 1, 5], vec![2.0, 1.0, 1.0, 3.0, 1.0]);
        insert_all(&mut ids, &mut acc);
        assert_eq!((ids, acc), (vec![4, 5, 7, 9, 1], vec![1.0, 1.0, 1.0, 2.0, 3.0]));
    }
}
