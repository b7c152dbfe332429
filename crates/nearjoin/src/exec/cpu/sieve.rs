//! Brute force: every query against every candidate, most of them through lanes of `f32`.
//!
//! ```text
//! for each tile of leaves that stays in the cache:
//!     for each block of 16 queries of a unit:
//!         for each leaf:  note the candidates whose rounded distance is at most the limit
//!             measure the leaf for the queries that have some, and keep the k best
//! ```
//!
//! Why no neighbour is missed: the limit of a query is its bound, widened by all that rounding
//! to `f32` can do to a distance ([`Sieve::limit`]). What the sieve lets through is measured in
//! the deciding arithmetic.

use core::ops::ControlFlow;

use rayon::prelude::*;

use super::kernel::{Hits, LeafJob, NearestKernels, PAD};
use super::select::Best;
use crate::error::Result;
use crate::exec::Work;
use crate::index::boxes::FAN;
use crate::index::{Leaves, Run};
use crate::memory::Buffer;
use crate::metric::Metric;
use crate::scalar::Scalar;
use crate::scale::exponent;

/// Bytes of candidates that stay in the cache while the queries of a unit pass over them.
const TILE: usize = 1 << 18;
/// Bytes that the best of a unit's queries may take.
const UNIT_BYTES: usize = 1 << 26;

/// The right points as `f32`, and what is known about the rounding.
pub(crate) struct Sieve<T> {
    metric: Metric,
    dim: usize,
    /// Leaf after leaf, a column of 16 per dimension.
    coords: Buffer<f32>,
    convert: Convert<T>,
    /// The largest error of a difference of two points: Euclidean, summed, or in one
    /// coordinate, as the metric has it.
    error: f64,
}

/// How coordinates become `f32`: `(x − origin) · scale`, where that takes anything.
struct Convert<T> {
    origin: Vec<T>,
    /// A power of two, so that coordinates are of the order of 1.
    scale: f64,
}

impl<T: Scalar> Convert<T> {
    /// Fills columns of 16 from columns of 16.
    fn columns(&self, from: &[T], to: &mut [f32]) {
        for (j, (from, to)) in from.chunks_exact(FAN).zip(to.chunks_exact_mut(FAN)).enumerate() {
            for (x, to) in from.iter().zip(to) {
                // Exact for `f32`, whose origin is 0 and whose scale is 1.
                *to = (x.sub(self.origin[j]).to_f64() * self.scale) as f32;
            }
        }
    }
}

impl<T: Scalar> Sieve<T> {
    /// `extents` are those of all points of both sides.
    pub(crate) fn new(right: &Leaves<T>, metric: Metric, extents: &[(f64, f64)]) -> Result<Self> {
        let dim = right.dim();
        let exact = T::UNIT_ROUNDOFF >= f64::from(f32::EPSILON) / 2.0;
        // Halved first: an extent may be beyond the largest number.
        let radius = |j: usize| extents[j].1 / 2.0 - extents[j].0 / 2.0;
        let widest = (0..dim).map(radius).fold(0.0, f64::max);
        let convert = match exact {
            true => Convert { origin: vec![T::ZERO; dim], scale: 1.0 },
            false => Convert {
                origin: extents.iter().map(|(lo, hi)| T::from_f64(lo / 2.0 + hi / 2.0)).collect(),
                scale: power_of_two_above(widest).recip(),
            },
        };
        // Both points are rounded, each by half a unit of the last place of its coordinate.
        // Beside it, the rounding of `f64` and what is too small for `f32` are nothing.
        let rounding = |j: usize| match exact {
            true => 0.0,
            false => 2.5 * f64::from(f32::EPSILON) / 2.0 * radius(j) * convert.scale + 1e-44,
        };
        let errors = (0..dim).map(rounding);
        let error = match metric {
            Metric::L2 => errors.map(|e| e * e).sum::<f64>().sqrt(),
            Metric::L1 => errors.sum(),
            Metric::Linf => errors.fold(0.0, f64::max),
        };
        let mut coords = Buffer::zeroed(right.coords().len())?;
        let leaves = coords.par_chunks_mut(FAN * dim).zip(right.coords().par_chunks(FAN * dim));
        leaves.with_min_len(64).for_each(|(to, from)| convert.columns(from, to));
        Ok(Sieve { metric, dim, coords, convert, error })
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.coords[..])
    }

    /// Queries of a unit, whose `k` best are kept at the same time.
    pub(crate) fn unit(k: usize) -> usize {
        let block = Best::<T>::collected_bytes(k);
        FAN * (UNIT_BYTES / block).clamp(1, 16)
    }

    /// The distance in lanes of no candidate within `bound` is more than this.
    ///
    /// With the error of the coordinates, the distance is at most its true value plus `error`;
    /// the steps of the lanes, and those of the deciding arithmetic, add a factor of at most
    /// `1 + (dim + 3)u` each, and one underflow each: squares of the deciding arithmetic may
    /// vanish that, with the scale of the lanes, do not.
    fn limit(&self, bound: T) -> f32 {
        let dim = self.dim as f64;
        let rounding = 1.0 + 4.0 * (dim + 8.0) * f64::from(f32::EPSILON) / 2.0;
        let (scale, bound) = (self.convert.scale, bound.to_f64());
        let distance = match self.metric {
            Metric::L2 => (bound + 2.0 * dim * T::SMALLEST).sqrt() * scale + self.error,
            Metric::L1 | Metric::Linf => bound * scale + self.error,
        };
        let limit = match self.metric {
            Metric::L2 => distance * distance * rounding,
            Metric::L1 | Metric::Linf => distance * rounding,
        };
        ((limit + 8.0 * dim * f32::SMALLEST) as f32).next_up()
    }
}

/// A power of two of the order of `x` that has an inverse.
fn power_of_two_above(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    2f64.powi((exponent(x) + 1).clamp(-1021, 1021))
}

/// The two sides, and what is asked.
pub(crate) struct Search<'a, T> {
    pub(crate) sieve: &'a Sieve<T>,
    pub(crate) kernels: &'a NearestKernels<T>,
    pub(crate) left: &'a Leaves<T>,
    pub(crate) right: &'a Leaves<T>,
    pub(crate) cap: T,
    /// Whether no point is its own neighbour.
    pub(crate) excluded: bool,
}

/// What a thread keeps from unit to unit.
pub(crate) struct Sifter<T: Scalar> {
    k: usize,
    /// The best of each block of a unit, and what the k-th of each query is at: in the points'
    /// type, and as the sieve has it.
    best: Vec<Best<T>>,
    bounds: Vec<[T; PAD]>,
    limits: Vec<[f32; PAD]>,
    /// The queries of each block: a column of 16 per dimension.
    queries: Vec<f32>,
    hits: Hits<T>,
}

impl<T: Scalar> Sifter<T> {
    pub(crate) fn new(k: usize) -> Self {
        Sifter {
            k,
            best: Vec::new(),
            bounds: Vec::new(),
            limits: Vec::new(),
            queries: Vec::new(),
            hits: Hits::new(),
        }
    }

    /// The best of a block of the unit.
    pub(crate) fn best(&mut self, block: usize) -> &mut Best<T> {
        &mut self.best[block]
    }

    /// Finds the best of all queries of a unit. `report` hears of the work after every tile,
    /// and may break it off: nothing is complete then.
    pub(crate) fn unit(
        &mut self,
        search: &Search<'_, T>,
        unit: &Run,
        mut report: impl FnMut(Work) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let sieve = search.sieve;
        let leaf_len = FAN * sieve.dim;
        let blocks = unit.len().div_ceil(FAN);
        self.best.resize_with(blocks.max(self.best.len()), || Best::collecting(self.k));
        self.bounds.clear();
        self.limits.clear();
        self.queries.resize(blocks * leaf_len, 0.0);
        for block in 0..blocks {
            let first = unit.start as usize + block * FAN;
            let len = FAN.min(unit.end as usize - first);
            self.best[block].clear(len, search.cap);
            let cap = sieve.limit(search.cap);
            self.limits.push(core::array::from_fn(|q| if q < len { cap } else { -1.0 }));
            self.bounds.push([search.cap; PAD]);
            let to = &mut self.queries[block * leaf_len..][..leaf_len];
            sieve.convert.columns(search.left.leaf(first / FAN), to);
        }
        let tile = (TILE / (4 * leaf_len)).max(1);
        let leaves = search.right.len().div_ceil(FAN);
        for first in (0..leaves).step_by(tile) {
            let tile = first..leaves.min(first + tile);
            for block in 0..blocks {
                self.tile(search, unit.start as usize + block * FAN, block, tile.clone());
            }
            let points = search.right.len().min(tile.end * FAN) - tile.start * FAN;
            let tests = (unit.len() * points) as u64;
            report(Work { tests, ..Work::default() })?;
        }
        ControlFlow::Continue(())
    }

    /// One block of queries against a tile of leaves.
    fn tile(
        &mut self,
        search: &Search<'_, T>,
        first: usize,
        block: usize,
        leaves: core::ops::Range<usize>,
    ) {
        let Search { sieve, kernels, right, .. } = *search;
        let leaf_len = FAN * sieve.dim;
        let queries = &self.queries[block * leaf_len..][..leaf_len];
        let (lo, hi, box_stride) = right.boxes().columns(0);
        let mut own = [u32::MAX; PAD];
        if search.excluded {
            own = core::array::from_fn(|q| (first + q) as u32);
        }
        let (limits, all_bounds) = (&mut self.limits[block], &mut self.bounds[block]);
        let mut passed = [0; PAD];
        for leaf in leaves {
            let candidates = &sieve.coords[leaf * leaf_len..][..leaf_len];
            if !kernels.sieve(candidates, queries, limits, &mut passed) {
                continue;
            }
            let mut bounds = [T::NAN; PAD];
            for (q, bound) in bounds.iter_mut().enumerate() {
                if passed[q] != 0 {
                    *bound = all_bounds[q];
                }
            }
            let job = LeafJob {
                coords: right.leaf(leaf),
                lo,
                hi,
                box_stride,
                node: leaf,
                queries: search.left.leaf(first / FAN),
                dim: sieve.dim,
            };
            kernels.leaf(&job, &bounds, &mut self.hits);
            let ids = &right.ids()[leaf * FAN..right.len().min((leaf + 1) * FAN)];
            self.best[block].take(&self.hits, ids, &own, &mut bounds);
            for q in 0..PAD {
                if passed[q] != 0 && bounds[q] < all_bounds[q] {
                    all_bounds[q] = bounds[q];
                    limits[q] = sieve.limit(bounds[q]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::order;
    use crate::points::Points;
    use crate::summary::extents;

    /// What the lanes get of a pair is never more than the limit of its distance.
    #[test]
    fn the_limit_covers_all_rounding() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        for (scale, offset) in
            [(1.0, 0.0), (1.0, 1e9), (1e-9, 1.0), (1e150, 0.0), (1e-170, 0.0), (1e-310, 0.0)]
        {
            for dim in [1, 3, 40] {
                let data: Vec<f64> = (0..32 * dim).map(|_| offset + scale * random()).collect();
                let points = Points::new(&data, dim).unwrap();
                let leaves = Leaves::new(points, order::identity(32).unwrap()).unwrap();
                for metric in [Metric::L2, Metric::L1, Metric::Linf] {
                    let sieve = Sieve::new(&leaves, metric, &extents(points)).unwrap();
                    check(&sieve, points, metric);
                }
            }
        }
    }

    fn check(sieve: &Sieve<f64>, points: Points<'_, f64>, metric: Metric) {
        use crate::metric::Threshold;
        use crate::scale::Scale;
        let (dim, threshold) = (points.dimension(), Threshold::<f64>::none(metric, Scale::NONE));
        let lane = |row: usize, j: usize| sieve.coords[row / FAN * FAN * dim + j * FAN + row % FAN];
        for a in 0..points.len() {
            for b in 0..points.len() {
                let pair = points.row(a).iter().copied().zip(points.row(b).iter().copied());
                let (left, right): (Vec<f64>, Vec<f64>) = pair.unzip();
                let bound = threshold.accumulate(left, right);
                let seen = (0..dim)
                    .fold(0f32, |acc, j| Threshold::step(metric, acc, lane(a, j), lane(b, j)));
                assert!(seen <= sieve.limit(bound), "{metric}: {seen:e} for {bound:e}");
            }
        }
    }
}
