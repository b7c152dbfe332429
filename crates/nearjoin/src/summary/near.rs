//! Sampled points in order along one dimension: by so cheap an index, millions of pairs are looked
//! at in the time that it takes to compare thousands.

use super::{Columns, spread};
use crate::metric::Metric;
use crate::points::Points;
use crate::scalar::Scalar;

/// Of all points one in so many is in the sample.
const SHARE: usize = 32;
const LEAST: usize = 2048;
/// Coordinates of the sample, at the most.
const COORDINATES: usize = 1 << 18;
/// Points for each query.
const QUERY: usize = 16;
/// Points whose spread tells the dimension of the order.
const SPREAD: usize = 256;
/// One in so many is in the smaller sample.
const FEWER: usize = 8;
/// Coordinates that are looked at for one question, at the most, and for the number of neighbours.
const WORK: usize = 1 << 15;
const NEIGHBORS_WORK: usize = 1 << 19;
/// Pairs, and queries, from which on a share is sure enough.
const SURE: usize = 512;
const QUERIES: usize = 64;

/// Sampled points, and queries that are asked one after the other until enough is known.
#[derive(Clone, Debug)]
pub(crate) struct Near {
    /// The dimension along which the points are in order.
    axis: usize,
    points: Columns,
    /// Some of these, for questions that many of them would have to be looked at for.
    few: Columns,
    /// Coordinates of the queries, in units, in no order.
    queries: Vec<f64>,
    dim: usize,
}

impl Near {
    /// A sample of at most `most` points. None where that would be most of them.
    pub(super) fn new<T: Scalar>(
        left: Points<'_, T>,
        right: Points<'_, T>,
        metric: Metric,
        is_self: bool,
        most: usize,
    ) -> Option<Self> {
        let dim = right.dimension();
        let least = LEAST.min(COORDINATES / dim);
        let len = (right.len() / SHARE).max(least).min(most).min(COORDINATES / dim);
        if len < least || right.len() < 2 * len || left.is_empty() {
            return None;
        }
        let rows: Vec<usize> = (0..len).map(|k| spread(k, len, right.len())).collect();
        let mut points = Columns::new(right, &rows, metric);
        let axis = widest(&points, dim);
        points.sort_along(axis);
        let of = (len / QUERY).next_power_of_two().min(left.len());
        // The first of them are as good as all: they come from everywhere. None is its own neighbour.
        let asked = (0..of).map(|k| {
            let row = spread(k * 619 % of, of, left.len());
            let others = (row..left.len()).chain(0..row);
            let mut others = others.filter(|row| !is_self || rows.binary_search(row).is_err());
            others.next().unwrap_or(row)
        });
        let length = points.unit().length;
        let queries = asked.flat_map(|row| left.row(row)).map(|x| x.to_f64() / length).collect();
        let few = points.every(FEWER);
        Some(Near { axis, dim, points, few, queries })
    }

    /// The share of pairs that differ by at most `limits[j]` in each listed dimension. None where
    /// too few do to tell, or too many points would have to be looked at.
    pub(super) fn fraction(&self, limits: &[(usize, f64)]) -> Option<f64> {
        const ENOUGH: usize = 32;
        let length = self.length();
        let along = limits.iter().find(|(j, _)| *j == self.axis)?.1 / length;
        let points = self.points_for(along, limits.len() * QUERIES, WORK);
        let (mut hits, mut pairs, mut work) = (0, 0, 0);
        let mut near: Vec<u8> = Vec::new();
        for (at, query) in self.queries().enumerate() {
            let window = self.window(points, query, along);
            near.clear();
            near.resize(window.len(), 1);
            for &(j, limit) in limits.iter().filter(|(j, _)| *j != self.axis) {
                let (x, limit) = (query[j], limit / length);
                for (near, y) in near.iter_mut().zip(&points.column(j)[window.clone()]) {
                    *near &= u8::from((x - y).abs() <= limit);
                }
            }
            hits += near.iter().map(|near| usize::from(*near)).sum::<usize>();
            pairs += points.len();
            work += window.len() * limits.len();
            if at >= QUERIES && (hits >= SURE || work > WORK) {
                break;
            }
        }
        (hits >= ENOUGH).then(|| hits as f64 / pairs as f64)
    }

    /// For some queries, how many points are within ε, and how many pairs that were.
    pub(super) fn within(&self, eps: f64) -> (Vec<usize>, usize) {
        let unit = self.points.unit();
        let (bound, along) = (unit.accumulated(eps), eps / unit.length);
        let of = self.queries.len() / self.dim;
        let points = self.points_for(along, self.dim * of, NEIGHBORS_WORK);
        let (mut hits, mut work) = (Vec::new(), 0);
        let mut acc = Vec::new();
        for query in self.queries() {
            let window = self.window(points, query, along);
            points.accumulate(query, window.clone(), &mut acc);
            hits.push(acc.iter().filter(|acc| **acc <= bound).count());
            work += window.len() * self.dim;
            if work > NEIGHBORS_WORK && hits.len() >= QUERIES {
                break;
            }
        }
        let pairs = hits.len() * points.len();
        (hits, pairs)
    }

    /// All points where so many windows of them are no more than can be looked at, or fewer.
    fn points_for(&self, along: f64, windows: usize, work: usize) -> &Columns {
        const PROBES: usize = 16;
        let probes = self.queries().take(PROBES);
        let probed: usize = probes.map(|query| self.window(&self.points, query, along).len()).sum();
        match probed * windows <= work * PROBES {
            true => &self.points,
            false => &self.few,
        }
    }

    /// Some of the points, in units, one after the other.
    pub(crate) fn thinned(&self, most: usize) -> Vec<f64> {
        let len = self.points.len();
        let of = most.min(len);
        let rows = (0..of).map(|k| k * len / of);
        rows.flat_map(|at| (0..self.dim).map(move |j| self.points.column(j)[at])).collect()
    }

    /// The length of a unit.
    pub(crate) fn length(&self) -> f64 {
        self.points.unit().length
    }

    fn queries(&self) -> impl Iterator<Item = &[f64]> {
        self.queries.chunks_exact(self.dim)
    }

    /// The points that are no farther than `reach` from a query along the axis.
    fn window(&self, points: &Columns, query: &[f64], reach: f64) -> core::ops::Range<usize> {
        let (column, x) = (points.column(self.axis), query[self.axis]);
        let start = column.partition_point(|y| x - y > reach);
        let end = start + column[start..].partition_point(|y| y - x <= reach);
        start..end
    }
}

/// The dimension in which the middle half of the points spreads most: outliers have no say.
fn widest(points: &Columns, dim: usize) -> usize {
    let spread = |j: usize| {
        let step = points.len().div_ceil(SPREAD);
        let mut some: Vec<f64> = points.column(j).iter().copied().step_by(step).collect();
        some.sort_unstable_by(f64::total_cmp);
        some[some.len() * 3 / 4] - some[some.len() / 4]
    };
    let spreads: Vec<f64> = (0..dim).map(spread).collect();
    (0..dim).max_by(|&a, &b| spreads[a].total_cmp(&spreads[b])).unwrap_or(0)
}
