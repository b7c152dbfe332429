//! Sampled distances: how many pairs lie within ε, and how sure that is.
//!
//! A sample of pairs is the only thing that sees the points as they lie: along a line in a
//! thousand dimensions, in clusters, or all equally far apart. So the size of a result is the
//! share of sampled pairs within ε. Where too few of them are, the nearest that there are give
//! the rate at which their number falls with the distance, and the share is carried on to ε by
//! that rate. Plans and [`NeighborCurve`](crate::NeighborCurve) count by this alone.

use rayon::prelude::*;

use super::near::Within;
use super::{Estimated, spread};
use crate::metric::Metric;
use crate::points::Points;
use crate::scalar::Scalar;
use crate::scale::exponent;

/// Sampled pairs from which on their share is believed, and from which a rate is taken.
pub(crate) const ENOUGH: usize = 64;
/// Rows or columns from which on other threads help: to wake them takes longer than fewer do.
pub(super) const TOGETHER: usize = 128;
/// Points whose distances are computed at a time.
const STRIP: usize = 1024;
/// Pairs within ε that are asked for the rate.
const RATED: usize = 1024;
/// How often ε is doubled, to find enough pairs without a look at all of them.
const DOUBLINGS: usize = 8;
/// How much of the error of a rate is left where it is taken to be the dimension.
const KNOWN: f64 = 0.5;
/// How much larger another rate may be on the way to ε.
const GROWTH: f64 = 1.25;
/// Standard deviations from what is expected to the ends of a range.
const SURE: f64 = 2.0;

/// Rows that are compared with each other, all with all.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) queries: Vec<usize>,
    pub(crate) points: Vec<usize>,
}

impl Sample {
    /// So many queries and points, spread over both sides. The rows are the same in every run.
    pub(crate) fn new(queries: usize, points: usize, left: usize, right: usize) -> Self {
        let rows = |of: usize, len: usize| (0..of).map(|k| spread(k, of, len)).collect();
        Sample { queries: rows(queries.min(left), left), points: rows(points.min(right), right) }
    }
}

/// How distances are accumulated: in a unit, and squared for L2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    metric: Metric,
    /// A power of two, so that coordinates in units are exact and their squares do not overflow.
    length: f64,
}

impl Unit {
    /// A distance as it is accumulated.
    pub(crate) fn accumulated(&self, distance: f64) -> f64 {
        self.metric.widen(0.0, distance / self.length)
    }

    /// The distance that such a number stands for.
    pub(crate) fn distance(&self, acc: f64) -> f64 {
        self.length * if self.metric == Metric::L2 { acc.sqrt() } else { acc }
    }
}

/// The sampled points, a column for each dimension, in units.
pub(crate) struct Columns {
    unit: Unit,
    len: usize,
    coords: Vec<f64>,
}

impl Columns {
    pub(crate) fn new<T: Scalar>(points: Points<'_, T>, rows: &[usize], metric: Metric) -> Self {
        let (dim, len) = (points.dimension(), rows.len());
        let mut coords = vec![0.0; len * dim];
        let fill = |(j, column): (usize, &mut [f64])| {
            for (x, &row) in column.iter_mut().zip(rows) {
                *x = points.row(row)[j].to_f64();
            }
        };
        match dim < TOGETHER {
            true => coords.chunks_mut(len.max(1)).enumerate().for_each(fill),
            false => coords.par_chunks_mut(len.max(1)).with_min_len(8).enumerate().for_each(fill),
        }
        let widest = coords.chunks(len.max(1)).map(half_extent).fold(0.0, f64::max);
        let length = power_of_two(widest);
        coords.iter_mut().for_each(|x| *x /= length);
        Columns { unit: Unit { metric, length }, len, coords }
    }

    pub(crate) fn unit(&self) -> Unit {
        self.unit
    }

    /// Hands the accumulated distances of a query from all points to `take`, strip by strip.
    pub(crate) fn from<T: Scalar>(&self, query: &[T], mut take: impl FnMut(&[f64])) {
        let Unit { metric, length } = self.unit;
        let mut acc = [0.0; STRIP];
        for start in (0..self.len).step_by(STRIP) {
            let acc = &mut acc[..STRIP.min(self.len - start)];
            acc.fill(0.0);
            for (x, column) in query.iter().zip(self.coords.chunks_exact(self.len)) {
                let (x, column) = (x.to_f64() / length, &column[start..][..acc.len()]);
                match metric {
                    Metric::L2 => widen(Metric::L2, x, column, acc),
                    Metric::L1 => widen(Metric::L1, x, column, acc),
                    Metric::Linf => widen(Metric::Linf, x, column, acc),
                }
            }
            take(acc);
        }
    }

    /// The coordinate `j` of a point, as it was.
    pub(crate) fn coordinate(&self, j: usize, point: usize) -> f64 {
        self.coords[j * self.len + point] * self.unit.length
    }
}

/// Adds one dimension of the distances from `x`. The metric is a constant where this is called.
#[inline(always)]
fn widen(metric: Metric, x: f64, column: &[f64], acc: &mut [f64]) {
    for (acc, y) in acc.iter_mut().zip(column) {
        *acc = metric.widen(*acc, (x - y).abs());
    }
}

/// Half of the extent of a column, which cannot overflow.
fn half_extent(column: &[f64]) -> f64 {
    let lo = column.iter().copied().fold(f64::INFINITY, f64::min);
    let hi = column.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if lo <= hi { hi / 2.0 - lo / 2.0 } else { 0.0 }
}

/// The largest power of two that is at most `x`; 1 where that is no normal number.
fn power_of_two(x: f64) -> f64 {
    if x.is_normal() { 2f64.powi(exponent(x)) } else { 1.0 }
}

/// How many of the sampled pairs lie within a distance that few of them lie within.
///
/// Near a point whose neighbours fill `rate` dimensions, their number goes with the distance to
/// the power of `rate`. The mean of `ln(radius / distance)` over the pairs within `radius` is then
/// 1/`rate`, which is how it is found. It is no more than the dimension of the points, and is taken
/// to be that where the pairs do not tell them apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tail {
    /// Pairs that coincide, and others within `radius`.
    equal: f64,
    apart: f64,
    radius: f64,
    pub(crate) rate: f64,
    /// Whether that is the dimension of the points.
    is_dimension: bool,
}

impl Tail {
    /// Of the pairs that are nearest to each other: their distances, ascending, with the number
    /// of pairs at each.
    pub(crate) fn new(nearest: &[(f64, usize)], dim: usize) -> Option<Self> {
        let equal: usize = nearest.iter().take_while(|at| at.0 <= 0.0).map(|at| at.1).sum();
        let apart: usize = nearest.iter().filter(|at| at.0 > 0.0).map(|at| at.1).sum();
        let radius = nearest.last().map(|at| at.0).filter(|radius| *radius > 0.0)?;
        let logs: f64 = nearest
            .iter()
            .filter(|at| at.0 > 0.0)
            .map(|at| at.1 as f64 * (radius / at.0).ln())
            .sum();
        // The farthest pair, which is the radius, says nothing of the rate.
        let (apart, dim) = (apart as f64, dim as f64);
        let rate = if logs > 0.0 { (apart - 2.0).max(0.5) / logs } else { dim };
        let same = rate + rate / apart.sqrt() >= dim;
        let rate = if same { dim } else { rate };
        Some(Tail { equal: equal as f64, apart, radius, rate, is_dimension: same })
    }

    /// Pairs within `eps`, which is at most the radius.
    pub(crate) fn within(&self, eps: f64) -> f64 {
        self.equal + self.apart * (eps / self.radius).min(1.0).powf(self.rate)
    }

    /// The distance that so many pairs lie within, if there are no more than those it was made of.
    pub(crate) fn eps(&self, pairs: f64) -> Option<f64> {
        let share = (pairs - self.equal).max(0.0) / self.apart;
        (share <= 1.0).then(|| self.radius * share.powf(1.0 / self.rate))
    }

    /// How many of the pairs within `eps` would be left if the rate grew on the way there.
    fn steeper(&self, eps: f64) -> f64 {
        let growth = self.rate * (GROWTH - 1.0) * f64::from(!self.is_dimension);
        (eps / self.radius).min(1.0).powf(growth)
    }

    /// The standard deviation of the logarithm of [`Tail::within`] that is the rate's: only pairs
    /// that are apart hang on it.
    fn error(&self, eps: f64) -> f64 {
        let within = self.within(eps);
        if within <= self.equal {
            return 0.0;
        }
        let share = if self.is_dimension { KNOWN } else { 1.0 } * (1.0 - self.equal / within);
        share * self.rate * (self.radius / eps).ln().max(0.0) / self.apart.sqrt()
    }
}

/// What a sample says about the pairs within ε.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pairs {
    /// Neighbours of a left point.
    pub(crate) neighbors: Estimated,
    /// The power of the distance with which their number grows: in how many dimensions the
    /// neighbours lie.
    pub(crate) rate: f64,
}

impl Pairs {
    /// Nothing is known, and there is nothing.
    pub(crate) fn none(dim: usize) -> Self {
        Pairs { neighbors: Estimated::exactly(0.0), rate: dim as f64 }
    }

    /// From the accumulated distances of some queries, a row for each, from points that were
    /// chosen at random. `of`: all left points, and all right points that each may have.
    pub(crate) fn new(
        rows: &[Vec<f64>],
        unit: &Unit,
        eps: f64,
        dim: usize,
        of: (usize, usize),
    ) -> Self {
        let pairs: usize = rows.iter().map(Vec::len).sum();
        if pairs == 0 {
            return Pairs::none(dim);
        }
        let bound = unit.accumulated(eps);
        let hits = within(rows, bound);
        let total: usize = hits.iter().sum();
        let all = of.0 as f64 * of.1 as f64;
        let per_pair = of.1 as f64 / pairs as f64;
        if total >= ENOUGH || pairs as f64 >= all {
            let some = rows.iter().flat_map(|row| {
                let hits = row.iter().filter(|acc| **acc <= bound);
                hits.take(RATED.div_ceil(rows.len()))
            });
            let rate = rate(some, bound, unit.metric).min(dim as f64);
            let range = range(total as f64, deviation(&hits, pairs, of));
            return Pairs { neighbors: range.times(per_pair), rate };
        }
        let mut nearest = near_pairs(rows, bound);
        let last = ENOUGH.min(pairs) - 1;
        // Accumulated distances are not negative: their order is that of their bits.
        nearest.select_nth_unstable_by_key(last, |acc| acc.to_bits());
        nearest.truncate(last + 1);
        nearest.sort_unstable_by_key(|acc| acc.to_bits());
        let farthest = nearest[last];
        let nearest: Vec<_> = nearest.iter().map(|acc| (unit.distance(*acc), 1)).collect();
        let Some(tail) = Tail::new(&nearest, dim) else {
            let range = range(total as f64, deviation(&hits, pairs, of));
            return Pairs { neighbors: range.times(per_pair), rate: dim as f64 };
        };
        let spread = deviation(&within(rows, farthest), pairs, of);
        let error = tail.error(eps);
        let mut estimated = range(tail.within(eps), spread.hypot(error));
        // Towards smaller distances a rate that is not the dimension may still grow.
        estimated.low *= tail.steeper(eps);
        // What was seen within ε itself allows so many, whatever lies on the way there: clusters
        // that are smaller than the distances of the nearest pairs show in no rate.
        let seen = total as f64 + 2.0 * (total as f64).sqrt() + 3.0;
        estimated.high = if total == 0 { seen } else { estimated.high.max(seen) };
        estimated.about = estimated.about.min(estimated.high);
        estimated.low = estimated.low.min(estimated.about);
        estimated.high = estimated.high.min(pairs as f64);
        Pairs { neighbors: estimated.times(per_pair), rate: tail.rate }
    }

    /// The same, or what more pairs say where that is surer.
    pub(super) fn surer(self, within: &Within, dim: usize, of: (usize, usize)) -> Self {
        let total: usize = within.hits.iter().sum();
        if total < ENOUGH {
            return self;
        }
        let neighbors = range(total as f64, deviation(&within.hits, within.pairs, of));
        let neighbors = neighbors.times(of.1 as f64 / within.pairs as f64);
        match neighbors.high * self.neighbors.low < self.neighbors.high * neighbors.low {
            true => Pairs { neighbors, rate: within.rate.min(dim as f64) },
            false => self,
        }
    }
}

/// The accumulated distances of enough pairs, or of all, with none that is nearer left out.
fn near_pairs(rows: &[Vec<f64>], bound: f64) -> Vec<f64> {
    let mut bound = bound;
    for _ in 0..DOUBLINGS {
        bound *= 4.0;
        if within(rows, bound).iter().sum::<usize>() >= ENOUGH {
            return rows.iter().flatten().copied().filter(|acc| *acc <= bound).collect();
        }
    }
    rows.concat()
}

/// How many of each row are within a bound.
fn within(rows: &[Vec<f64>], bound: f64) -> Vec<usize> {
    let hits = |row: &Vec<f64>| row.iter().filter(|acc| **acc <= bound).count();
    match rows.len() < TOGETHER {
        true => rows.iter().map(hits).collect(),
        false => rows.par_iter().with_min_len(16).map(hits).collect(),
    }
}

/// The range around a number of sampled pairs whose logarithm errs by so much.
fn range(about: f64, deviation: f64) -> Estimated {
    if about <= 0.0 && deviation > 0.0 {
        return Estimated::between(0.0, 0.0, 3.0);
    }
    // What a sample does not show is not in its deviation either: the larger, the less sure it is.
    let factor = (SURE * deviation * (1.0 + deviation)).exp();
    Estimated::between(about, about / factor, about * factor)
}

/// The standard deviation of the logarithm of a sum of hits: by chance, and because queries, and
/// points, differ in how many they have. Where all of them were asked, that makes no error.
fn deviation(hits: &[usize], pairs: usize, (left, right): (usize, usize)) -> f64 {
    let queries = hits.len() as f64;
    let points = pairs as f64 / queries;
    let (left, right) = (left as f64, right as f64);
    let all_queries = (1.0 - queries / left).max(0.0);
    let all_points = (1.0 - points / right).max(0.0);
    let mean = hits.iter().sum::<usize>() as f64 / queries;
    if mean <= 0.0 {
        return if pairs as f64 >= left * right { 0.0 } else { 1.0 };
    }
    let squares: f64 = hits.iter().map(|&hits| (hits as f64 - mean).powi(2)).sum();
    let variance = squares / (queries - 1.0).max(1.0);
    let differ = (variance - mean).max(0.0) / (mean * mean);
    let chance = (1.0 - pairs as f64 / (left * right)).max(0.0) / (mean * queries);
    (chance + differ * (all_queries / queries + all_points / points)).sqrt()
}

/// The power of the distance with which the number of pairs grows, from the accumulated distances of
/// some of those within a bound.
pub(super) fn rate<'a>(hits: impl Iterator<Item = &'a f64>, bound: f64, metric: Metric) -> f64 {
    let (mut pairs, mut logs) = (0.0, 0.0);
    for &acc in hits.filter(|acc| **acc > 0.0) {
        pairs += 1.0;
        logs += (bound / acc).ln().max(0.0);
    }
    // The logarithm of a square is twice that of its root.
    let power = if metric == Metric::L2 { 2.0 } else { 1.0 };
    if logs > 0.0 { power * pairs / logs } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of which as many lie within a distance as it has to the power of `rate`.
    fn nearest(rate: f64) -> Vec<(f64, usize)> {
        (1..=ENOUGH).map(|i| ((i as f64).powf(1.0 / rate), 1)).collect()
    }

    #[test]
    fn a_tail_finds_the_rate_and_goes_both_ways() {
        let line = Tail::new(&nearest(1.0), 768).unwrap();
        assert!((0.9..1.1).contains(&line.rate), "{line:?}");
        let steep = Tail::new(&nearest(40.0), 768).unwrap();
        assert!((36.0..44.0).contains(&steep.rate), "{steep:?}");
        // Too close to the dimension to be told apart from it.
        assert_eq!(Tail::new(&nearest(1.9), 2).unwrap().rate, 2.0);
        for tail in [line, steep] {
            let pairs = tail.within(tail.eps(5.0).unwrap());
            assert!((pairs - 5.0).abs() < 1e-6, "{tail:?}: {pairs}");
            assert_eq!(tail.eps(1000.0), None);
        }
    }

    #[test]
    fn pairs_that_coincide_stay_at_any_distance() {
        let mut pairs = vec![(0.0, 7)];
        pairs.extend(nearest(2.0));
        let tail = Tail::new(&pairs, 2).unwrap();
        assert_eq!(tail.within(0.0), 7.0);
        assert_eq!(tail.error(0.0), 0.0);
        assert_eq!(tail.eps(7.0), Some(0.0));
        assert_eq!(Tail::new(&[(0.0, 64)], 2), None);
    }

    #[test]
    fn no_hits_are_a_bound_and_all_pairs_are_the_truth() {
        let unit = Unit { metric: Metric::L1, length: 1.0 };
        let rows = vec![vec![1.0; 100]; 10];
        let some = Pairs::new(&rows, &unit, 1e-3, 1, (1000, 1000)).neighbors;
        assert!(some.about < 3.0 && some.high <= 3.0 && some.low <= some.about, "{some:?}");
        let all = Pairs::new(&rows, &unit, 1e-3, 1, (10, 100)).neighbors;
        assert_eq!(all, Estimated::exactly(0.0));
        let all = Pairs::new(&rows, &unit, 1.0, 1, (10, 100)).neighbors;
        assert_eq!(all, Estimated::exactly(100.0));
    }

    #[test]
    fn queries_that_differ_make_a_sum_less_sure() {
        let even = deviation(&[10; 10], 1000, (1000, 1000));
        let mut hits = [0; 10];
        hits[3] = 100;
        let uneven = deviation(&hits, 1000, (1000, 1000));
        assert!(even < 0.15 && uneven > 0.9, "{even} {uneven}");
        assert!(deviation(&hits, 1000, (10, 100)) < 1e-9);
    }
}
