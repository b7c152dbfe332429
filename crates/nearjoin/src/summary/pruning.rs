//! How well boxes tell points apart: what decides between a tree and brute force for the nearest.
//!
//! No formula sees the intrinsic dimension of points: a line in 64 dimensions is as easy as one
//! in one dimension. So boxes are drawn around leaves of two samples, as a tree would draw them around all points,
//! and those are counted that are no farther from a query than its k-th neighbour in the sample.
//! The growth from the smaller sample to the larger tells of all points.

use rayon::prelude::*;

use super::spacing::{self, Spacing};
use super::{MANY_DIMS, spread};
use crate::metric::{Metric, Threshold};
use crate::points::Points;
use crate::scalar::Scalar;

/// Points of the larger sample.
const SAMPLE: usize = 2048;
/// Groups of queries, queries in each, and neighbours that are looked for.
const GROUPS: usize = 5;
const QUERIES: usize = 16;
const NEIGHBORS: usize = 64;
/// Coordinates that are worth another thread.
const TOGETHER: usize = 1 << 15;
/// Points of a leaf.
const LEAF: usize = 16;
/// Axes of a grid at the most, and how many more than evenly spread points may share a cell.
const AXES: usize = 3;
const EVEN: f64 = 1.5;
/// What a search looks at beyond the leaves that it must: its bounds are not tight from the start.
const BEYOND: f64 = 1.25;
/// Of few points, one in so many asks how far the others are.
const FEW: usize = 64;

/// Points that a search would look at, in samples of two sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pruning {
    /// Points in the smaller and the larger sample, and those looked at for a query.
    pub(crate) points: [usize; 2],
    pub(crate) tests: [f64; 2],
    /// Neighbours that were looked for.
    pub(crate) k: usize,
    /// Whether the points fill their extent evenly, as a grid would like them to.
    pub(crate) even: bool,
}

/// What is asked of samples.
pub(super) struct Wanted<'a, T> {
    pub(super) threshold: &'a Threshold<T>,
    pub(super) k: usize,
    pub(super) extents: &'a [(f64, f64)],
    /// Whether a query is among the points, and not its own neighbour.
    pub(super) is_self: bool,
    /// Coordinates of a sample, at the most.
    pub(super) coordinates: usize,
}

impl Pruning {
    /// And how far points are from each other, where products may be weighed. None where there are so few
    /// points that a sample would be most of them: then fewer queries tell how far they are.
    pub(super) fn sample<T: Scalar>(
        left: Points<'_, T>,
        right: Points<'_, T>,
        wanted: &Wanted<'_, T>,
    ) -> (Option<Self>, Option<Spacing>) {
        let (k, dim) = (wanted.k.min(NEIGHBORS), left.dimension());
        let Threshold { bound, metric, .. } = *wanted.threshold;
        let most = (wanted.coordinates / dim).clamp(SAMPLE / 16, SAMPLE);
        let are_few = right.len() <= 2 * most;
        let is_spaced = metric == Metric::L2 && dim >= MANY_DIMS && right.len() >= spacing::LEAST;
        if left.is_empty() || are_few && !is_spaced {
            return (None, None);
        }
        let queries = if are_few { left.len().div_ceil(FEW) } else { left.len() };
        let queries = Sampled::new(left, queries.min(GROUPS * QUERIES));
        let look = |points: usize, is_spaced: bool, is_boxed: bool| {
            let sampled = Sampled::new(right, points);
            let boxes = if is_boxed { boxes(&sampled, dim) } else { Vec::new() };
            let looks = queries.rows.par_iter().zip(queries.coordinates.par_chunks(dim));
            let looks = looks.map(|(&row, query)| {
                let own = if wanted.is_self { row } else { usize::MAX };
                let mut distances = sampled.distances(query, own, metric);
                let looked_at = looked_at(&boxes, query, &mut distances, k, bound.to_f64(), metric);
                let ranks = is_spaced.then(|| spacing::ranks(&mut distances));
                (looked_at as f64, ranks.unwrap_or_default())
            });
            let (looked_at, ranks): (Vec<f64>, Vec<_>) = looks.collect();
            // The group in the middle, so that one outlier decides nothing.
            let average = |group: &[f64]| group.iter().sum::<f64>() / group.len() as f64;
            let mut groups: Vec<f64> = looked_at.chunks(QUERIES).map(average).collect();
            let tests = (BEYOND * median(&mut groups)).min(points as f64);
            let points = (&queries.coordinates[..], &sampled.coordinates[..]);
            (tests, is_spaced.then(|| Spacing::new(points, dim, &ranks)))
        };
        if are_few {
            return (None, look(most.min(right.len()), true, false).1);
        }
        let points = [most / 4, most];
        let of_fewer = || look(points[0], false, true).0;
        let even = || is_even(&Sampled::new(right, most).coordinates, dim, wanted.extents);
        let of_more = || rayon::join(|| look(points[1], is_spaced, true), even);
        let (fewer, ((more, spacing), even)) = rayon::join(of_fewer, of_more);
        (Some(Pruning { points, tests: [fewer, more], k, even }), spacing)
    }
}

/// The number in the middle of some.
pub(crate) fn median(numbers: &mut [f64]) -> f64 {
    let middle = numbers.len() / 2;
    *numbers.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// Whether points lie evenly in cells over the dimensions in which they spread most: whether a
/// point shares its cell with hardly more others than it would if they did. The extents are those of
/// all points, which one outlier that no sample has makes large.
fn is_even(points: &[f64], dim: usize, extents: &[(f64, f64)]) -> bool {
    let len = points.len() / dim;
    let width = |j: usize| extents[j].1 / 2.0 - extents[j].0 / 2.0;
    let mut dims: Vec<usize> = (0..dim).collect();
    dims.sort_by(|&a, &b| width(b).total_cmp(&width(a)));
    dims.truncate(AXES);
    let slices = ((len / LEAF) as f64).powf(1.0 / dims.len() as f64) as usize;
    let mut cells = vec![0usize; slices.pow(dims.len() as u32)];
    for point in points.chunks_exact(dim) {
        let slice = |j: &usize| {
            let along = (point[*j] / 2.0 - extents[*j].0 / 2.0) / width(*j);
            ((along * slices as f64) as usize).min(slices - 1)
        };
        cells[dims.iter().map(slice).fold(0, |cell, at| cell * slices + at)] += 1;
    }
    let shared: usize = cells.iter().map(|&points| points * points.saturating_sub(1)).sum();
    shared as f64 * cells.len() as f64 <= EVEN * (len * len) as f64
}

/// Rows from all over the input, in ascending order, and their coordinates.
struct Sampled {
    rows: Vec<usize>,
    coordinates: Vec<f64>,
}

impl Sampled {
    fn new<T: Scalar>(points: Points<'_, T>, of: usize) -> Self {
        let rows: Vec<usize> = (0..of).map(|at| spread(at, of, points.len())).collect();
        let coordinates = rows.iter().flat_map(|&row| points.row(row)).map(|x| x.to_f64());
        Sampled { coordinates: coordinates.collect(), rows }
    }

    /// How far each is from a query, beside the row `own`, before any root is taken.
    fn distances(&self, query: &[f64], own: usize, metric: Metric) -> Vec<f64> {
        let points = self.coordinates.chunks_exact(query.len());
        let apart = |point: &[f64]| total(metric, point, query, |x, y| (x - y).abs());
        let mut distances: Vec<f64> = points.map(apart).collect();
        if let Ok(own) = self.rows.binary_search(&own) {
            distances[own] = f64::INFINITY;
        }
        distances
    }
}

/// Sides of the boxes of leaves of sampled points, dimension after dimension.
fn boxes(sampled: &Sampled, dim: usize) -> Vec<(f64, f64)> {
    let points = &sampled.coordinates;
    let mut order: Vec<u32> = (0..sampled.rows.len() as u32).collect();
    split(points, dim, &mut order);
    let mut boxes = Vec::with_capacity(order.len().div_ceil(LEAF) * dim);
    boxes.extend(order.chunks(LEAF).flat_map(|leaf| extents(points, dim, leaf)));
    boxes
}

/// Points of the leaves that are no farther from a query than the `k`-th of its distances, or `cap`. Of leaves
/// at exactly that distance a search opens few: those with smaller rows than it has found.
fn looked_at(
    boxes: &[(f64, f64)],
    query: &[f64],
    distances: &mut [f64],
    k: usize,
    cap: f64,
    metric: Metric,
) -> usize {
    let k = k.min(distances.len()) - 1;
    let bound = cap.min(*distances.select_nth_unstable_by(k, f64::total_cmp).1);
    let outside = |leaf: &[(f64, f64)]| {
        total(metric, leaf, query, |(lo, hi), x| (lo - x).max(x - hi).max(0.0))
    };
    let (mut nearer, mut tied) = (0, 0);
    for leaf in boxes.chunks_exact(query.len()) {
        let outside = outside(leaf);
        nearer += usize::from(outside < bound);
        tied += usize::from(outside == bound);
    }
    LEAF * (nearer + tied.min(k / LEAF + 1))
}

/// The sum of the gaps between two things, as the metric has it: several sums side by side, which processors
/// add up at once. It ascends with every gap.
fn total<A: Copy>(metric: Metric, a: &[A], b: &[f64], gap: impl Fn(A, f64) -> f64) -> f64 {
    const SUMS: usize = 8;
    let mut sums = [0.0; SUMS];
    let (all_a, all_b) = (a.chunks_exact(SUMS), b.chunks_exact(SUMS));
    let rest = all_a.remainder().iter().zip(all_b.remainder());
    for (a, b) in all_a.zip(all_b) {
        for (sum, (&a, &b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum = metric.widen(*sum, gap(a, b));
        }
    }
    for (sum, (&a, &b)) in sums.iter_mut().zip(rest) {
        *sum = metric.widen(*sum, gap(a, b));
    }
    match metric {
        Metric::Linf => sums.into_iter().fold(0.0, f64::max),
        Metric::L2 | Metric::L1 => sums.into_iter().sum(),
    }
}

/// Least and greatest coordinate of some points, per dimension.
fn extents(points: &[f64], dim: usize, rows: &[u32]) -> Vec<(f64, f64)> {
    // Side by side, as processors compare several at once.
    let (mut lo, mut hi) = (vec![f64::INFINITY; dim], vec![f64::NEG_INFINITY; dim]);
    for &row in rows {
        let point = &points[row as usize * dim..][..dim];
        for ((lo, hi), &x) in lo.iter_mut().zip(&mut hi).zip(point) {
            *lo = if x < *lo { x } else { *lo };
            *hi = if x > *hi { x } else { *hi };
        }
    }
    lo.into_iter().zip(hi).collect()
}

/// Puts rows in the order of a balanced tree: halves along the dimension in which they spread
/// most, down to leaves.
fn split(points: &[f64], dim: usize, rows: &mut [u32]) {
    if rows.len() <= LEAF {
        return;
    }
    let extents = extents(points, dim, rows);
    // Halved first: an extent may be beyond the largest number.
    let width = |j: &usize| extents[*j].1 / 2.0 - extents[*j].0 / 2.0;
    let widest = (0..dim).max_by(|a, b| width(a).total_cmp(&width(b))).unwrap_or(0);
    let middle = (rows.len() / 2).next_multiple_of(LEAF).min(rows.len() - 1);
    let coordinate = |row: u32| points[row as usize * dim + widest];
    rows.select_nth_unstable_by(middle, |&a, &b| {
        coordinate(a).total_cmp(&coordinate(b)).then(a.cmp(&b))
    });
    let (all, (low, high)) = (rows.len(), rows.split_at_mut(middle));
    if all * dim >= TOGETHER {
        rayon::join(|| split(points, dim, low), || split(points, dim, high));
    } else {
        split(points, dim, low);
        split(points, dim, high);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::Scale;

    /// Points along a line, or all over a cube.
    fn pruning(dim: usize, line: bool) -> Pruning {
        let mut x = 7u64;
        let mut random = || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 40) as f64
        };
        let data: Vec<f64> = (0..20_000)
            .flat_map(|_| {
                let along = random();
                (0..dim).map(|_| if line { along } else { random() }).collect::<Vec<_>>()
            })
            .collect();
        let points = Points::new(&data, dim).unwrap();
        sample(points).0.unwrap()
    }

    fn sample(points: Points<'_, f64>) -> (Option<Pruning>, Option<Spacing>) {
        let wanted = Wanted {
            threshold: &Threshold::none(Metric::L2, Scale::NONE),
            k: 8,
            extents: &crate::summary::extents(points),
            is_self: true,
            coordinates: 1 << 19,
        };
        Pruning::sample(points, points, &wanted)
    }

    #[test]
    fn a_line_is_easy_in_any_dimension_and_a_cube_is_not() {
        for dim in [1, 16] {
            let line = pruning(dim, true);
            assert!(line.tests[1] < 100.0, "{dim}-D: {line:?}");
        }
        assert!(!pruning(16, true).even && pruning(2, false).even && pruning(3, false).even);
        let cube = pruning(32, false);
        assert!(cube.tests[1] > 1000.0 && cube.tests[1] > 2.0 * cube.tests[0], "{cube:?}");
    }

    #[test]
    fn few_points_are_not_sampled() {
        let data = vec![1.0; 4000];
        assert_eq!(sample(Points::new(&data, 1).unwrap()), (None, None));
    }

    /// Among equal points the smaller rows win, and boxes know theirs; and one outlier leaves the
    /// others in one cell.
    #[test]
    fn equal_points_are_easy_and_an_outlier_is_not_even() {
        let sample = |data: &[f64]| sample(Points::new(data, 2).unwrap()).0.unwrap();
        let equal = sample(&vec![3.0; 40_000]);
        assert!(equal.tests[1] < 100.0, "{equal:?}");
        let mut x = 7u64;
        let mut random = || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 40) as f64
        };
        let mut data: Vec<f64> = (0..40_000).map(|_| random()).collect();
        assert!(sample(&data).even);
        data[..2].fill(1e12);
        assert!(!sample(&data).even);
    }
}
