//! How many neighbours an ε gives on average, from a sample: so that nobody guesses ε.
//!
//! Some points are compared with many, and the distances are counted in bins. The running
//! sum over the bins, scaled to all points, is the average number of neighbours within
//! each distance; read backwards it is the ε for a wanted number. Bins are a fixed fraction
//! of their distance wide, because the interesting ε may be any small part of the extent:
//! bins of equal width over the mean distance would put all of it into the first. And they are
//! narrow: in a thousand dimensions a hundredth more of ε may be ten times as many neighbours.
//!
//! Below the nearest sampled pairs the curve goes on by the law that plans use ([`Tail`]).

use rayon::prelude::*;

use crate::error::Result;
use crate::metric::Metric;
use crate::points::Points;
use crate::scalar::Scalar;
use crate::summary::{Columns, ENOUGH, Sample, Tail, Unit};

/// Sampled queries, and distances computed at the most; of a plan, which does with fewer.
const QUERIES: usize = 512;
const DISTANCES: usize = 1 << 29;
const QUICK: usize = 1 << 26;
/// Coordinates in the sample of points at the most, and points at the least.
const COORDINATES: usize = 1 << 24;
const LEAST_POINTS: usize = 1024;
/// A bin is what the leading bits of the accumulated distance tell: 11 of the exponent, which are
/// its octave, and 13 of the mantissa.
const SHIFT: u32 = 39;
const OCTAVES: usize = 1 << 11;
const PER_OCTAVE: usize = 1 << (52 - SHIFT);

/// The average number of neighbours as a function of ε, estimated from a sample.
///
/// ```
/// use nearjoin::{Metric, NeighborCurve, Points};
///
/// let data: Vec<f64> = (0..20_000).map(f64::from).collect();
/// let points = Points::new(&data, 1)?;
/// let curve = NeighborCurve::of_self(&points, Metric::L2)?;
/// let eps = curve.eps(100.0).unwrap();       // 50 to the left and 50 to the right
/// assert!((40.0..60.0).contains(&eps), "{eps}");
/// let neighbors = curve.neighbors(500.0);
/// assert!((900.0..1100.0).contains(&neighbors), "{neighbors}");
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct NeighborCurve {
    unit: Unit,
    /// The bins that hold any pairs, with the sampled pairs in each and those before it.
    steps: Vec<(u32, u64)>,
    /// Neighbours on average for each sampled pair.
    weight: f64,
    /// What lies below the nearest of the sampled pairs, where not all points were compared.
    tail: Option<Tail>,
}

impl NeighborCurve {
    /// Samples a set joined with itself. A point is not its own neighbour.
    ///
    /// # Errors
    /// If the system refuses memory.
    pub fn of_self<T: Scalar>(points: &Points<'_, T>, metric: Metric) -> Result<Self> {
        Self::sample(*points, *points, true, metric, DISTANCES)
    }

    /// Samples the neighbours that left points have on the right.
    ///
    /// # Errors
    /// If the dimensions differ, or the system refuses memory.
    pub fn of<T: Scalar>(
        left: &Points<'_, T>,
        right: &Points<'_, T>,
        metric: Metric,
    ) -> Result<Self> {
        left.check_dimension(right)?;
        Self::sample(*left, *right, false, metric, DISTANCES)
    }

    /// The same from fewer distances, for a plan; of one set with itself where there is no other.
    pub(crate) fn quick<T: Scalar>(
        left: Points<'_, T>,
        right: Option<Points<'_, T>>,
        metric: Metric,
    ) -> Result<Self> {
        Self::sample(left, right.unwrap_or(left), right.is_none(), metric, QUICK)
    }

    /// The average number of neighbours within `eps`.
    pub fn neighbors(&self, eps: f64) -> f64 {
        if eps.is_nan() || eps < 0.0 {
            return 0.0;
        }
        // An ε of −0 is 0. All pairs of its bin count: where points tie, they tie at ε.
        let bin = bin(self.unit.accumulated(eps.abs()));
        let bins = self.steps.partition_point(|step| step.0 <= bin);
        let pairs = bins.checked_sub(1).map_or(0, |last| self.steps[last].1);
        match &self.tail {
            Some(tail) if pairs < ENOUGH as u64 => self.weight * tail.within(eps),
            _ => self.weight * pairs as f64,
        }
    }

    /// The ε that gives this many neighbours on average; none if that is more than there
    /// are points to be neighbours. 0 where points coincide often enough.
    pub fn eps(&self, neighbors: f64) -> Option<f64> {
        let wanted = neighbors / self.weight;
        let below = self.tail.filter(|_| wanted < ENOUGH as f64);
        if let Some(eps) = below.and_then(|tail| tail.eps(wanted)) {
            return Some(eps);
        }
        let at = self.steps.partition_point(|&(_, pairs)| (pairs as f64) < wanted);
        self.steps.get(at).map(|step| end(&self.unit, step.0))
    }

    /// The curve itself: distances, ascending, with the average number of neighbours within
    /// each; only where the number changes.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let point = |&(bin, pairs): &(u32, u64)| (end(&self.unit, bin), self.weight * pairs as f64);
        self.steps.iter().map(point).filter(|(eps, _)| eps.is_finite())
    }

    fn sample<T: Scalar>(
        left: Points<'_, T>,
        right: Points<'_, T>,
        is_self: bool,
        metric: Metric,
        distances: usize,
    ) -> Result<Self> {
        let dim = left.dimension();
        let queries = QUERIES.min(left.len());
        let most = (COORDINATES / dim).min(distances / queries.max(1)).max(LEAST_POINTS);
        let Sample { queries, points } = Sample::new(queries, most, left.len(), right.len());
        let columns = Columns::new(right, &points, metric);
        let (bins, pairs) = queries
            .par_iter()
            .with_min_len(QUERIES / 16)
            .fold(none, |(mut bins, pairs), &row| {
                columns.from(left.row(row), |strip| strip.iter().for_each(|acc| bins.add(*acc)));
                let own = is_self && points.binary_search(&row).is_ok();
                if own {
                    bins.remove_zero();
                }
                (bins, pairs + (points.len() - usize::from(own)) as u64)
            })
            .reduce(none, |(mut bins, pairs), (more, others)| {
                bins.merge(more);
                (bins, pairs + others)
            });
        let others = right.len().saturating_sub(usize::from(is_self)) as f64;
        let weight = if pairs > 0 { others / pairs as f64 } else { 0.0 };
        let (unit, steps) = (columns.unit(), bins.running_sums());
        let tail = if points.len() < right.len() { tail(&unit, &steps, dim) } else { None };
        Ok(NeighborCurve { unit, steps, weight, tail })
    }
}

/// The law below the nearest of the sampled pairs.
fn tail(unit: &Unit, steps: &[(u32, u64)], dim: usize) -> Option<Tail> {
    let enough = steps.partition_point(|step| step.1 < ENOUGH as u64);
    let nearest = steps.get(..=enough).unwrap_or(steps);
    let mut before = 0;
    let at = |&(bin, pairs): &(u32, u64)| {
        (end(unit, bin), (pairs - core::mem::replace(&mut before, pairs)) as usize)
    };
    Tail::new(&nearest.iter().map(at).collect::<Vec<_>>(), dim)
}

/// The bin of an accumulated distance.
fn bin(acc: f64) -> u32 {
    (acc.to_bits() >> SHIFT) as u32
}

/// The distance at which a bin ends. That of 0 ends there.
fn end(unit: &Unit, bin: u32) -> f64 {
    let end = if bin == 0 { 0 } else { (u64::from(bin) + 1) << SHIFT };
    unit.distance(f64::from_bits(end))
}

/// Distances, counted. Octaves that hold none take no memory.
struct Bins(Vec<Option<Box<[u64; PER_OCTAVE]>>>);

/// Nothing counted.
fn none() -> (Bins, u64) {
    (Bins((0..OCTAVES).map(|_| None).collect()), 0)
}

impl Bins {
    fn add(&mut self, acc: f64) {
        let bin = bin(acc) as usize;
        let octave = &mut self.0[bin / PER_OCTAVE % OCTAVES];
        octave.get_or_insert_with(|| Box::new([0; PER_OCTAVE]))[bin % PER_OCTAVE] += 1;
    }

    /// Takes out the distance of a point from itself.
    fn remove_zero(&mut self) {
        self.0[0].iter_mut().for_each(|bins| bins[0] -= 1);
    }

    fn merge(&mut self, more: Bins) {
        for (octave, more) in self.0.iter_mut().zip(more.0) {
            match (octave, more) {
                (Some(octave), Some(more)) => {
                    octave.iter_mut().zip(more.iter()).for_each(|(a, b)| *a += b);
                }
                (octave, Some(more)) => *octave = Some(more),
                (_, None) => {}
            }
        }
    }

    /// The bins that hold any, with the number up to there.
    fn running_sums(&self) -> Vec<(u32, u64)> {
        let mut sum = 0;
        let mut steps = Vec::new();
        for (octave, bins) in self.0.iter().enumerate() {
            for (at, &count) in bins.iter().flat_map(|bins| bins.iter().enumerate()) {
                sum += count;
                if count > 0 {
                    steps.push(((octave * PER_OCTAVE + at) as u32, sum));
                }
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lattice(side: u32) -> Vec<f64> {
        (0..side * side).flat_map(|i| [f64::from(i % side), f64::from(i / side)]).collect()
    }

    #[test]
    fn there_and_back() {
        let data = lattice(200);
        let points = Points::new(&data, 2).unwrap();
        for metric in Metric::ALL {
            let curve = NeighborCurve::of_self(&points, metric).unwrap();
            for wanted in [20.0, 100.0, 1000.0] {
                let eps = curve.eps(wanted).unwrap();
                let found = curve.neighbors(eps * 1.001);
                assert!((0.9..1.2).contains(&(found / wanted)), "{metric} {wanted} {eps} {found}");
            }
            assert_eq!(curve.neighbors(0.5), 0.0);
            assert_eq!(curve.eps(40_000.0), None);
            let all = curve.neighbors(1e6);
            assert!((all - 39_999.0).abs() < 1e-6, "{all}");
        }
    }

    #[test]
    fn one_outlier_does_not_hide_the_others() {
        let mut data = lattice(100);
        let near = NeighborCurve::of_self(&Points::new(&data, 2).unwrap(), Metric::L2).unwrap();
        data.extend([9.97e36, -9.97e36]);
        let far = NeighborCurve::of_self(&Points::new(&data, 2).unwrap(), Metric::L2).unwrap();
        let (near, far) = (near.eps(50.0).unwrap(), far.eps(50.0).unwrap());
        assert!((far / near - 1.0).abs() < 0.1, "{near} {far}");
    }

    #[test]
    fn odd_distances_have_an_answer() {
        let data = lattice(20);
        let points = Points::new(&data, 2).unwrap();
        for metric in Metric::ALL {
            let curve = NeighborCurve::of_self(&points, metric).unwrap();
            assert_eq!(curve.neighbors(-1.0), 0.0);
            assert_eq!(curve.neighbors(-0.0), 0.0);
            assert_eq!(curve.neighbors(f64::NAN), 0.0);
            assert!((curve.neighbors(f64::INFINITY) - 399.0).abs() < 1e-6);
        }
    }

    #[test]
    fn points_that_coincide_need_no_distance() {
        let data = vec![3.0f32; 500];
        let points = Points::new(&data, 1).unwrap();
        let curve = NeighborCurve::of_self(&points, Metric::L2).unwrap();
        assert_eq!(curve.neighbors(0.0), 499.0);
        assert_eq!(curve.eps(400.0), Some(0.0));
    }

    #[test]
    fn none_one_and_extreme_points() {
        let none = Points::<f64>::new(&[], 3).unwrap();
        let curve = NeighborCurve::of_self(&none, Metric::L2).unwrap();
        assert_eq!((curve.eps(1.0), curve.neighbors(1.0)), (None, 0.0));
        let one = Points::new(&[1.0, 2.0, 3.0], 3).unwrap();
        assert_eq!(NeighborCurve::of_self(&one, Metric::L1).unwrap().eps(1.0), None);
        assert_eq!(NeighborCurve::of(&none, &one, Metric::L1).unwrap().eps(1.0), None);
        let far = [-1e308, 1e308, 0.0, 1e-300];
        let far = Points::new(&far, 1).unwrap();
        let curve = NeighborCurve::of_self(&far, Metric::L2).unwrap();
        assert!(curve.points().all(|(eps, n)| eps.is_finite() && n.is_finite()));
    }
}
