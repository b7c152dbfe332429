//! How many neighbours an ε gives on average, from a sample: so that nobody guesses ε.
//!
//! Some points are compared with many, and the distances are counted in bins. The running
//! sum over the bins, scaled to all points, is the average number of neighbours within
//! each distance; read backwards it is the ε for a wanted number. Bins are a fixed fraction
//! of their distance wide, because the interesting ε may be any small part of the extent:
//! bins of equal width over the mean distance would put all of it into the first.

use rayon::prelude::*;

use crate::error::Result;
use crate::memory::Buffer;
use crate::metric::Metric;
use crate::points::Points;
use crate::scalar::Scalar;
use crate::summary::spread;

/// Sampled queries, and distances computed at the most.
const QUERIES: usize = 512;
const DISTANCES: usize = 1 << 29;
/// Coordinates in the sample of points at the most.
const COORDINATES: usize = 1 << 24;
/// Points whose distances are computed before they are counted.
const STRIP: usize = 1024;
/// A bin is what the leading bits of the distance tell: 11 of the exponent, 6 of the
/// mantissa, so bins are at most 1.6 % wide, and no scale is too small or too large.
const SHIFT: u32 = 46;
const BINS: usize = 1 << (64 - SHIFT - 1);

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
    metric: Metric,
    /// The distance that the bins call 1.
    unit: f64,
    /// Sampled pairs in each bin and those before it.
    cumulative: Vec<u64>,
    /// Neighbours on average for each sampled pair.
    weight: f64,
}

impl NeighborCurve {
    /// Samples a set joined with itself. A point is not its own neighbour.
    ///
    /// # Errors
    /// If the system refuses memory.
    pub fn of_self<T: Scalar>(points: &Points<'_, T>, metric: Metric) -> Result<Self> {
        Self::sample(*points, *points, true, metric)
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
        Self::sample(*left, *right, false, metric)
    }

    /// The average number of neighbours within `eps`.
    pub fn neighbors(&self, eps: f64) -> f64 {
        if eps.is_nan() || eps < 0.0 {
            return 0.0;
        }
        let distance = eps / self.unit;
        let acc = if self.metric == Metric::L2 { distance * distance } else { distance };
        self.weight * self.cumulative[bin(acc)] as f64
    }

    /// The ε that gives this many neighbours on average; none if that is more than there
    /// are points to be neighbours. 0 where points coincide often enough.
    pub fn eps(&self, neighbors: f64) -> Option<f64> {
        let wanted = neighbors / self.weight;
        let at = self.cumulative.partition_point(|&pairs| (pairs as f64) < wanted);
        let reached = *self.cumulative.get(at)? as f64;
        if at == 0 {
            return Some(0.0);
        }
        let before = self.cumulative[at - 1] as f64;
        // Inside the bin the pairs are taken to be spread evenly.
        let part = (wanted - before) / (reached - before).max(1.0);
        let (start, end) = (self.start(at), self.start(at + 1));
        Some(if end.is_finite() { start + part * (end - start) } else { start })
    }

    /// The curve itself: distances, ascending, with the average number of neighbours within
    /// each; only where the number changes.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let changes = |at: &usize| *at == 0 || self.cumulative[*at] > self.cumulative[*at - 1];
        let point = |at: usize| (self.start(at + 1), self.weight * self.cumulative[at] as f64);
        (0..BINS - 1).filter(changes).map(point).filter(|(eps, n)| eps.is_finite() && *n > 0.0)
    }

    /// Where a bin begins.
    fn start(&self, bin: usize) -> f64 {
        let acc = f64::from_bits((bin as u64) << SHIFT);
        self.unit * if self.metric == Metric::L2 { acc.sqrt() } else { acc }
    }

    fn sample<T: Scalar>(
        left: Points<'_, T>,
        right: Points<'_, T>,
        is_self: bool,
        metric: Metric,
    ) -> Result<Self> {
        let dim = left.dimension();
        let queries = QUERIES.min(left.len());
        let most = (COORDINATES / dim).min(DISTANCES / queries.max(1)).max(STRIP);
        let compared = right.len().min(most);
        let rows: Vec<usize> = (0..compared).map(|k| spread(k, compared, right.len())).collect();
        let mut columns = Buffer::<f64>::zeroed(compared * dim)?;
        columns.par_chunks_mut(compared.max(1)).enumerate().for_each(|(j, column)| {
            for (x, &row) in column.iter_mut().zip(&rows) {
                *x = right.row(row)[j].to_f64();
            }
        });
        let unit = columns.par_chunks(compared.max(1)).map(half_extent);
        let unit = unit.reduce(|| f64::MIN_POSITIVE, f64::max);

        let sum = |mut a: (Vec<u64>, u64), b: (Vec<u64>, u64)| {
            a.0.iter_mut().zip(b.0).for_each(|(a, b)| *a += b);
            (a.0, a.1 + b.1)
        };
        let (bins, pairs) = (0..queries)
            .into_par_iter()
            .with_min_len(QUERIES / 16)
            .fold(none, |(mut counts, pairs), q| {
                let row = spread(q, queries, left.len());
                let query: Vec<f64> = left.row(row).iter().map(|x| x.to_f64()).collect();
                let mut acc = [0.0; STRIP];
                for start in (0..compared).step_by(STRIP) {
                    let acc = &mut acc[..STRIP.min(compared - start)];
                    acc.fill(0.0);
                    for (x, column) in query.iter().zip(columns.chunks_exact(compared)) {
                        accumulate(metric, *x, unit, &column[start..start + acc.len()], acc);
                    }
                    acc.iter().for_each(|acc| counts[bin(*acc)] += 1);
                }
                let own = u64::from(is_self && rows.binary_search(&row).is_ok());
                counts[0] -= own;
                (counts, pairs + compared as u64 - own)
            })
            .reduce(none, sum);

        let mut sum = 0;
        let running = |count: u64| {
            sum += count;
            sum
        };
        let candidates = right.len().saturating_sub(usize::from(is_self)) as f64;
        let weight = if pairs > 0 { candidates / pairs as f64 } else { 0.0 };
        let cumulative = bins.into_iter().map(running).collect();
        Ok(NeighborCurve { metric, unit, cumulative, weight })
    }
}

/// Nothing counted.
fn none() -> (Vec<u64>, u64) {
    (vec![0; BINS], 0)
}

/// The bin of a distance in units, squared for L2.
fn bin(acc: f64) -> usize {
    // An ε of −0 is 0.
    (acc.abs().to_bits() >> SHIFT) as usize
}

/// Adds one dimension of the distances from `x`, in units.
fn accumulate(metric: Metric, x: f64, unit: f64, column: &[f64], acc: &mut [f64]) {
    let per_unit = 1.0 / unit;
    for (acc, y) in acc.iter_mut().zip(column) {
        *acc = metric.widen(*acc, ((x - y) * per_unit).abs());
    }
}

/// Half of the extent of a column, which cannot overflow.
fn half_extent(column: &[f64]) -> f64 {
    let lo = column.iter().copied().fold(f64::INFINITY, f64::min);
    let hi = column.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if lo <= hi { hi / 2.0 - lo / 2.0 } else { 0.0 }
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
