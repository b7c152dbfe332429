//! One pass over the points and a sample of pairs: all that the plan knows of the data.

mod distances;
mod estimated;
mod near;
mod pruning;
mod spacing;

use distances::TOGETHER;
pub(crate) use distances::{Columns, ENOUGH, Pairs, Sample, Tail, Unit};
pub use estimated::Estimated;
pub(crate) use near::Near;
use near::{Wanted, Within};
pub(crate) use pruning::{Pruning, median};
pub(crate) use spacing::{Spacing, middle};

use rayon::prelude::*;

use crate::metric::{Metric, Threshold};
use crate::points::Points;
use crate::scalar::Scalar;

/// Dimensions from which on nothing is known of boxes without a try, and matrix products are weighed: with
/// fewer they are never the fastest.
pub(crate) const MANY_DIMS: usize = 9;

/// How much is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Pairs that are compared, and coordinates of such pairs.
    pairs: usize,
    coordinates: usize,
    /// Of these pairs so many are kept, for questions that are asked often.
    kept: usize,
    /// Points among which near pairs are looked for, at the most.
    ordered: usize,
    /// Rows whose extents are taken for those of all; all of them where there is no number.
    extents: Option<usize>,
    /// Neighbours for which it is tried how well boxes tell points apart, and coordinates of the points that
    /// are put into boxes.
    nearest: Option<usize>,
    boxed: usize,
}

impl Effort {
    /// For joins that take the CPU milliseconds at least.
    pub(crate) const FULL: Effort = Effort {
        pairs: 1 << 18,
        coordinates: 1 << 24,
        kept: 1 << 13,
        ordered: 1 << 13,
        extents: None,
        nearest: None,
        boxed: 1 << 19,
    };
    /// For a device that indexes and joins in less time than it takes to look at all points.
    pub(crate) const QUICK: Effort = Effort {
        pairs: 1 << 14,
        coordinates: 1 << 22,
        kept: 1 << 10,
        ordered: 0,
        extents: Some(4096),
        nearest: None,
        boxed: 1 << 15,
    };

    /// The same for points of so many dimensions: in many, the extents of fewer rows, since they say
    /// little and cost as much as a join by products.
    pub(crate) fn for_dimensions(self, dim: usize) -> Self {
        let rows = |rows: usize| rows.min((EXTENT_COORDINATES / dim.max(1)).max(LEAST_EXTENTS));
        Effort { extents: self.extents.map(rows), ..self }
    }

    /// The same, with the extents of all points.
    pub(crate) fn with_extents(self) -> Self {
        Effort { extents: None, ..self }
    }

    /// For the `k` nearest: no pairs within ε, but how well boxes tell points apart.
    pub(crate) fn nearest(k: usize) -> Self {
        Effort { pairs: 0, nearest: Some(k), ..Effort::FULL }
    }

    /// The same for a device that searches a tree in less time than it takes to look at all points.
    /// In few dimensions nothing else is worth trying, so that nothing need be known; in many, it is
    /// tried how well boxes tell points apart.
    pub(crate) fn quickly_nearest(k: usize, dim: usize) -> Self {
        /// Dimensions in which boxes tell any points apart.
        const FEW: usize = 8;
        let quick = Effort { pairs: 0, ..Effort::QUICK.for_dimensions(dim) };
        match dim > FEW {
            true => Effort { nearest: Some(k), ..quick },
            // Every row is somewhere else in memory.
            false => Effort { extents: Some(256), ..quick },
        }
    }

    /// Queries, and points to compare each of them with: a share of all pairs that takes some
    /// hundredths of the time of comparing all of them, and more where that is nothing.
    fn sample(&self, left: usize, right: usize, dim: usize) -> Sample {
        let all = left.saturating_mul(right);
        let share = (all / SHARE).max(LEAST_COORDINATES / dim);
        // An index may be faster by far: for every eight points no more than a pair.
        let share = share.min(((left + right) / 8).max(LEAST_PAIRS));
        let pairs = share.min(self.pairs).min(self.coordinates / dim).max(1);
        // Queries differ in how many neighbours they have: a sample of few would not show it.
        let queries = (pairs / 4).isqrt().clamp(1, left.max(1));
        let points = (pairs / queries).clamp(1, right.max(1)).min(MOST_ROWS);
        let queries = (pairs / points).clamp(1, left.max(1)).min(MOST_ROWS);
        Sample::new(queries, points, left, right)
    }
}

/// Of all pairs one in so many is compared, or so many coordinates where that is more.
const SHARE: usize = 256;
const LEAST_COORDINATES: usize = 1 << 14;
/// Pairs that take no time beside any join of many points.
const LEAST_PAIRS: usize = 1 << 18;
/// Rows of a side in the sample: each is a place in memory of its own.
const MOST_ROWS: usize = 1 << 13;
/// Coordinates of the pairs that are kept, at the most.
const KEPT_COORDINATES: usize = 1 << 18;

/// Coordinates whose extents are taken for those of all, about, and rows at the least.
const EXTENT_COORDINATES: usize = 1 << 16;
const LEAST_EXTENTS: usize = 256;

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
    /// ε, and as the grid sees it: no match differs by more in any coordinate.
    pub(crate) eps: f64,
    pub(crate) reach: f64,
    pub(crate) metric: Metric,
    /// Differences of some of the sampled pairs, a column for each dimension.
    pub(crate) differences: Vec<Vec<f64>>,
    /// Pairs that are near each other, where there are many points.
    pub(crate) near: Option<Near>,
    /// Neighbours within ε of a left point, by the sample.
    pub(crate) pairs: Pairs,
    /// How well boxes tell points apart, where that was asked and there are enough of them.
    pub(crate) pruning: Option<Pruning>,
    /// How far points are from each other, where products may be weighed.
    pub(crate) spacing: Option<Spacing>,
}

impl Summary {
    pub(crate) fn new<T: Scalar>(
        left: Points<'_, T>,
        right: Option<Points<'_, T>>,
        threshold: &Threshold<T>,
        effort: Effort,
    ) -> Self {
        let other = right.unwrap_or(left);
        let of = |points| match effort.extents {
            None => extents(points),
            Some(rows) => sampled_extents(points, rows),
        };
        let mut extents = of(left);
        if right.is_some() {
            for (extent, other) in extents.iter_mut().zip(of(other)) {
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
            eps: threshold.eps.to_f64(),
            reach: threshold.reach,
            metric: threshold.metric,
            differences: Vec::new(),
            near: None,
            pairs: Pairs::none(dim),
            pruning: None,
            spacing: None,
        };
        // In many dimensions only a try tells whether boxes are any good within ε, either.
        let tried = effort.nearest.or((dim >= MANY_DIMS && effort.ordered > 0).then_some(1));
        let nearest = match effort.nearest {
            Some(_) => *threshold,
            None => Threshold::none(threshold.metric, threshold.scale),
        };
        if let Some(k) = tried {
            let wanted = pruning::Wanted {
                threshold: &nearest,
                k,
                extents: &summary.extents,
                is_self: summary.is_self,
                coordinates: effort.boxed,
            };
            (summary.pruning, summary.spacing) = Pruning::sample(left, other, &wanted);
        }
        summary.sample(left, other, threshold, effort);
        summary
    }

    /// Compares a few queries with some points each. The rows are spread over the input
    /// with a jitter, so that neither sorted nor periodic input misleads; they are the
    /// same in every run.
    fn sample<T: Scalar>(
        &mut self,
        left: Points<'_, T>,
        right: Points<'_, T>,
        t: &Threshold<T>,
        effort: Effort,
    ) {
        if left.is_empty() || right.is_empty() || effort.pairs == 0 {
            return;
        }
        let (dim, is_self) = (self.dim, self.is_self);
        let Sample { queries, points } = effort.sample(left.len(), right.len(), dim);
        let columns = Columns::new(right, &points, t.metric);
        let pairs = queries.len() * points.len();
        let step = pairs.div_ceil(effort.kept.min(KEPT_COORDINATES / dim)).max(1);
        let asked = queries.par_iter().with_min_len(8).enumerate().map(|(q, &row)| {
            let query = left.row(row);
            let mut distances = Vec::with_capacity(points.len());
            columns.from(query, |strip| distances.extend_from_slice(strip));
            let own = points.binary_search(&row).ok().filter(|_| is_self);
            if let Some(own) = own {
                distances.swap_remove(own);
            }
            // Every step-th of all pairs, whichever query it is of.
            let first = (step - q * points.len() % step) % step;
            let kept = (first..points.len()).step_by(step).filter(|p| own != Some(*p));
            (distances, kept.collect::<Vec<_>>())
        });
        let (distances, kept): (Vec<_>, Vec<_>) = asked.collect::<Vec<_>>().into_iter().unzip();
        let difference = |j: usize| {
            let mut differences = Vec::with_capacity(pairs / step + 1);
            for (row, kept) in queries.iter().zip(&kept) {
                let x = left.row(*row)[j].to_f64();
                differences.extend(kept.iter().map(|&p| (x - columns.coordinate(j, p)).abs()));
            }
            differences
        };
        // Few columns are filled before another thread would wake.
        self.differences = match dim < TOGETHER {
            true => (0..dim).map(difference).collect(),
            false => (0..dim).into_par_iter().with_min_len(8).map(difference).collect(),
        };
        let others = right.len() - usize::from(is_self);
        let of = (left.len(), others);
        let (pairs, near) = rayon::join(
            || Pairs::new(&distances, &columns.unit(), self.eps, dim, of),
            || self.look_nearby(left, right, effort.ordered),
        );
        self.pairs = pairs;
        if let Some((near, within)) = near {
            if let Some(within) = within {
                self.pairs = self.pairs.surer(&within, dim, of);
            }
            self.near = Some(near);
        }
    }

    /// Looks for pairs that are near each other among so many points at the most.
    fn look_nearby<T: Scalar>(
        &self,
        left: Points<'_, T>,
        right: Points<'_, T>,
        most: usize,
    ) -> Option<(Near, Option<Within>)> {
        if most == 0 {
            return None;
        }
        let wanted = Wanted {
            metric: self.metric,
            is_self: self.is_self,
            eps: self.eps,
            reach: self.reach,
            extents: &self.extents,
            dims: &self.by_selectivity(),
            most,
        };
        Near::new(left, right, &wanted)
    }

    /// Dimensions, the one that tells most pairs apart first.
    pub(crate) fn by_selectivity(&self) -> Vec<usize> {
        let selectivity = |j: usize| {
            let (lo, hi) = self.extents[j];
            // The extent breaks ties that the sample cannot.
            (self.fraction(&[(j, self.reach)]), -(hi - lo))
        };
        let mut dims: Vec<(usize, (f64, f64))> =
            (0..self.dim).map(|j| (j, selectivity(j))).collect();
        dims.sort_by(|a, b| a.1.0.total_cmp(&b.1.0).then(a.1.1.total_cmp(&b.1.1)));
        dims.into_iter().map(|(j, _)| j).collect()
    }

    /// The fraction of pairs that differ by at most `limits[j]` in each listed dimension: by
    /// near pairs, or else by any that were sampled. Where the sample holds too few, the dimensions
    /// are taken to be independent.
    pub(crate) fn fraction(&self, limits: &[(usize, f64)]) -> f64 {
        const ENOUGH: usize = 8;
        if let Some(fraction) = self.near.as_ref().and_then(|near| near.fraction(limits)) {
            return fraction;
        }
        let pairs = self.differences.first().map_or(0, Vec::len);
        if pairs == 0 {
            return 0.0;
        }
        // One long loop after the other, which vectorise: a plan asks some hundred times.
        let mut near = vec![1u8; pairs];
        for &(j, limit) in limits {
            for (near, difference) in near.iter_mut().zip(&self.differences[j]) {
                *near &= u8::from(*difference <= limit);
            }
        }
        let hits = near.iter().map(|near| usize::from(*near)).sum::<usize>();
        let fraction = hits as f64 / pairs as f64;
        if hits >= ENOUGH {
            return fraction;
        }
        if let [(j, limit)] = *limits {
            // Few pairs are that near, or none: as many as if the points were spread evenly,
            // at least.
            let (lo, hi) = self.extents[j];
            let even = if hi > lo { (2.0 * limit / (hi - lo)).min(1.0) } else { 1.0 };
            return fraction.max(even);
        }
        limits.iter().map(|limit| self.fraction(&[*limit])).product()
    }
}

/// Row `k` of `of` sampled ones, out of `len`.
pub(crate) fn spread(k: usize, of: usize, len: usize) -> usize {
    let jitter = (k as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let first = share(k, of, len);
    let room = (share(k + 1, of, len) - first).max(1);
    (first + jitter as usize % room).min(len - 1)
}

/// `k · len / of`. Numbers of 128 bits take long to divide, and are seldom needed.
fn share(k: usize, of: usize, len: usize) -> usize {
    match k.checked_mul(len) {
        Some(product) => product / of,
        None => (k as u128 * len as u128 / of as u128) as usize,
    }
}

/// The extents of sampled rows: of use where what lies beyond is not wrong, only slower.
fn sampled_extents<T: Scalar>(points: Points<'_, T>, rows: usize) -> Vec<(f64, f64)> {
    let rows = points.len().min(rows);
    let mut extents = vec![(f64::INFINITY, f64::NEG_INFINITY); points.dimension()];
    for row in (0..rows).map(|k| spread(k, rows, points.len())) {
        for (extent, x) in extents.iter_mut().zip(points.row(row)) {
            let x = x.to_f64();
            *extent = (extent.0.min(x), extent.1.max(x));
        }
    }
    extents
}

pub(crate) fn extents<T: Scalar>(points: Points<'_, T>) -> Vec<(f64, f64)> {
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
pub(crate) mod tests {
    use super::*;

    /// The summary of so many `f64` points that nobody has seen, in a cube of side 1.
    pub(crate) fn summary(points: usize, dim: usize, eps: f64) -> Summary {
        Summary {
            left: points,
            right: points,
            is_self: true,
            dim,
            width: 8,
            extents: vec![(0.0, 1.0); dim],
            eps,
            reach: eps,
            metric: Metric::L2,
            differences: Vec::new(),
            near: None,
            pairs: Pairs::none(dim),
            pruning: None,
            spacing: None,
        }
    }

    /// What boxes leave of points that they cannot tell apart.
    pub(crate) const PRUNING: Pruning =
        Pruning { points: [512, 2048], tests: [512.0, 2048.0], k: 1, even: false };

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
        let threshold = Threshold::new(Metric::L2, 100.0, crate::scale::Scale::NONE).unwrap();
        let summary = Summary::new(points, None, &threshold, Effort::FULL);
        assert_eq!(summary.extents, [(0.0, 9999.0)]);
        let fraction = summary.fraction(&[(0, 1000.0)]);
        assert!((0.15..0.25).contains(&fraction), "{fraction}");
    }
}
