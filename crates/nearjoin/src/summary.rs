//! One pass over the points and a sample of pairs: all that the plan knows of the data.

use rayon::prelude::*;

use crate::metric::Threshold;
use crate::points::Points;
use crate::scalar::Scalar;

/// Sampled queries, and points that each of them is compared with.
const QUERIES: usize = 64;
const POINTS: usize = 4096;
/// Of these pairs one in so many is kept, for questions that are asked often.
const KEPT: usize = 4;
/// Coordinates in the sample at the most.
const COORDINATES: usize = 1 << 18;
/// Radii at which sampled pairs are counted: ε·2ᵏ.
pub(crate) const RADII: usize = 12;

/// What is known of the points before anything is decided.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    /// Number of left and right points.
    pub(crate) left: usize,
    pub(crate) right: usize,
    pub(crate) is_self: bool,
    pub(crate) dim: usize,
    /// Bytes of one coordinate.
    pub(crate) width: usize,
    /// Least and greatest coordinate of all points, per dimension.
    pub(crate) extents: Vec<(f64, f64)>,
    /// ε as the grid sees it: no match differs by more in any coordinate.
    pub(crate) reach: f64,
    /// Differences per dimension of some of the sampled pairs, pair after pair.
    pub(crate) differences: Vec<f64>,
    /// Number of sampled pairs, and how many of them lie within ε·2ᵏ.
    pub(crate) pairs: usize,
    pub(crate) within: [usize; RADII],
}

impl Summary {
    pub(crate) fn new<T: Scalar>(
        left: Points<'_, T>,
        right: Option<Points<'_, T>>,
        threshold: &Threshold<T>,
    ) -> Self {
        let other = right.unwrap_or(left);
        let mut extents = extents(left);
        if right.is_some() {
            for (extent, other) in extents.iter_mut().zip(self::extents(other)) {
                *extent = (extent.0.min(other.0), extent.1.max(other.1));
            }
        }
        let dim = left.dimension();
        let mut summary = Summary {
            left: left.len(),
            right: other.len(),
            is_self: right.is_none(),
            dim,
            width: size_of::<T>(),
            extents,
            reach: threshold.reach,
            differences: Vec::new(),
            pairs: 0,
            within: [0; RADII],
        };
        summary.sample(left, other, threshold);
        summary
    }

    /// Compares a few queries with some points each. The rows are spread over the input
    /// with a jitter, so that neither sorted nor periodic input misleads; they are the
    /// same in every run.
    fn sample<T: Scalar>(&mut self, left: Points<'_, T>, right: Points<'_, T>, t: &Threshold<T>) {
        if left.is_empty() || right.is_empty() {
            return;
        }
        let queries = QUERIES.min(left.len());
        let points = POINTS.min(right.len()).min((COORDINATES / (queries * self.dim)).max(8));
        let bounds: Vec<f64> = (0..RADII)
            .map(|k| {
                let radius = t.eps.to_f64() * f64::from(1u32 << k);
                t.metric.widen(0.0, radius)
            })
            .collect();
        for q in 0..queries {
            let i = spread(q, queries, left.len());
            for p in 0..points {
                let j = spread(p + q * points, queries * points, right.len());
                if self.is_self && i == j {
                    continue;
                }
                let (x, y) = (left.row(i), right.row(j));
                let keep = p % KEPT == 0;
                let mut acc = 0.0;
                for (x, y) in x.iter().zip(y) {
                    let difference = (x.to_f64() - y.to_f64()).abs();
                    if keep {
                        self.differences.push(difference);
                    }
                    acc = t.metric.widen(acc, difference);
                }
                self.pairs += 1;
                for (within, bound) in self.within.iter_mut().zip(&bounds) {
                    *within += usize::from(acc <= *bound);
                }
            }
        }
    }

    /// The fraction of sampled pairs that differ by at most `limits[j]` in each listed
    /// dimension. Where the sample holds too few, the dimensions are taken to be
    /// independent.
    pub(crate) fn fraction(&self, limits: &[(usize, f64)]) -> f64 {
        const ENOUGH: usize = 8;
        let pairs = self.differences.len() / self.dim;
        if pairs == 0 {
            return 0.0;
        }
        let near = |pair: &[f64]| limits.iter().all(|&(j, limit)| pair[j] <= limit);
        let hits = self.differences.chunks_exact(self.dim).filter(|pair| near(pair)).count();
        if hits >= ENOUGH || limits.len() == 1 {
            return hits as f64 / pairs as f64;
        }
        limits.iter().map(|limit| self.fraction(&[*limit])).product()
    }
}

/// Row `k` of `of` sampled ones, out of `len`.
fn spread(k: usize, of: usize, len: usize) -> usize {
    let jitter = (k as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let (k, of, len) = (k as u128, of as u128, len as u128);
    let first = k * len / of;
    let room = ((k + 1) * len / of - first).max(1);
    (first + u128::from(jitter) % room).min(len - 1) as usize
}

fn extents<T: Scalar>(points: Points<'_, T>) -> Vec<(f64, f64)> {
    let dim = points.dimension();
    let none = || (vec![T::INFINITY; dim], vec![T::NEG_INFINITY; dim]);
    fn least<T: Scalar>(a: T, b: T) -> T {
        if b < a { b } else { a }
    }
    fn most<T: Scalar>(a: T, b: T) -> T {
        if b > a { b } else { a }
    }
    let (lo, hi) = points
        .as_slice()
        .par_chunks(dim * 8192)
        .map(|chunk| {
            // Several rows at a time, so that the loop is long enough to vectorise.
            let rows = (64 / dim).max(1);
            let (mut lo, mut hi) =
                (vec![T::INFINITY; rows * dim], vec![T::NEG_INFINITY; rows * dim]);
            for rows in chunk.chunks(rows * dim) {
                for ((lo, hi), &x) in lo.iter_mut().zip(&mut hi).zip(rows) {
                    *lo = least(*lo, x);
                    *hi = most(*hi, x);
                }
            }
            let fold = |lanes: &[T], start: T, f: fn(T, T) -> T| -> Vec<T> {
                (0..dim)
                    .map(|j| lanes.iter().skip(j).step_by(dim).fold(start, |a, &b| f(a, b)))
                    .collect()
            };
            (fold(&lo, T::INFINITY, least), fold(&hi, T::NEG_INFINITY, most))
        })
        .reduce(none, |a, b| {
            let lo = a.0.iter().zip(b.0).map(|(a, b)| least(*a, b)).collect();
            let hi = a.1.iter().zip(b.1).map(|(a, b)| most(*a, b)).collect();
            (lo, hi)
        });
    lo.iter().zip(&hi).map(|(lo, hi)| (lo.to_f64(), hi.to_f64())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;

    #[test]
    fn sampled_rows_are_in_range_and_spread() {
        for len in [1, 2, 63, 1000, 1 << 20] {
            let rows: Vec<usize> = (0..64).map(|k| spread(k, 64, len)).collect();
            assert!(rows.iter().all(|&row| row < len));
            assert!(rows.is_sorted());
        }
    }

    #[test]
    fn fractions_of_a_line() {
        let data: Vec<f64> = (0..10_000).map(f64::from).collect();
        let points = Points::new(&data, 1).unwrap();
        let threshold = Threshold::new(Metric::L2, 100.0).unwrap();
        let summary = Summary::new(points, None, &threshold);
        assert_eq!(summary.extents, [(0.0, 9999.0)]);
        let fraction = summary.fraction(&[(0, 1000.0)]);
        assert!((0.15..0.25).contains(&fraction), "{fraction}");
    }
}
