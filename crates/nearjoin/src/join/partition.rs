//! A join shared out among parts of space: what they cost, told by a sample.

use super::{EpsJoin, Join};
use crate::curve::NeighborCurve;
use crate::error::Result;
use crate::options::Device;
use crate::partition::{Partition, Sample};
use crate::points::PointsBuf;
use crate::question::Question;
use crate::scalar::Scalar;
use crate::sink::Degrees;
use crate::summary::spread;

/// Nanoseconds of one thread for a point, wherever it goes, and for a pair.
const POINT: f64 = 100.0;
const PAIR: f64 = 4.0;
/// Neighbours in the sample that tell how dense it is around a point; and so many are found, at the most.
const ENOUGH: f64 = 8.0;
const MOST: f64 = 64.0;

impl<Q: Copy + Into<Question>> Join<Q> {
    /// Cuts space into boxes whose points make about equal work, by samples of both sides, or of one set joined with
    /// itself: `parts` of them, or fewer where points coincide. Some thousand points for each part are enough.
    ///
    /// Within ε a point costs the more, the more neighbours it has: a dense box is a small one. How dense it is
    /// around a point is told by some neighbours in the sample, also where they are farther away than ε.
    ///
    /// See [`partition`](crate::partition) for what to do with it.
    ///
    /// # Errors
    /// If ε, k or the number of parts is out of range, the dimensions differ, or the system refuses memory.
    pub fn partition<T: Scalar>(
        &self,
        left: &Sample<'_, T>,
        right: Option<&Sample<'_, T>>,
        parts: usize,
    ) -> Result<Partition> {
        let question = self.question.into();
        question.check_distance::<T>()?;
        question.check()?;
        right.map_or(Ok(()), |right| left.points.check_dimension(&right.points))?;
        let neighbors = match question {
            Question::Within(within) => self.neighbors(left, right, within.eps)?,
            Question::Nearest(nearest) => vec![nearest.k as f64; left.points.len()],
        };
        let each = stands_for(left);
        let mut weights: Vec<f64> =
            neighbors.iter().map(|neighbors| each * (POINT + PAIR * neighbors)).collect();
        let Some(right) = right else { return Partition::balanced(&left.points, &weights, parts) };
        weights.resize(weights.len() + right.points.len(), stands_for(right) * POINT);
        let both = [left.points.as_slice(), right.points.as_slice()].concat();
        let both = PointsBuf::from_vec(both, left.points.dimension())?;
        Partition::balanced(&both.as_points(), &weights, parts)
    }

    /// How many neighbours each of the sampled left points has among all points, by estimate.
    fn neighbors<T: Scalar>(
        &self,
        left: &Sample<'_, T>,
        right: Option<&Sample<'_, T>>,
        eps: f64,
    ) -> Result<Vec<f64>> {
        let (metric, other) = (self.options.metric, right.unwrap_or(left));
        if left.points.is_empty() || other.points.is_empty() {
            return Ok(vec![0.0; left.points.len()]);
        }
        let curve = match right {
            None => NeighborCurve::of_self(&left.points, metric)?,
            Some(right) => NeighborCurve::of(&left.points, &right.points, metric)?,
        };
        // So far that the sample has neighbours: then they are taken to thin out alike everywhere.
        let wide = curve.eps(ENOUGH).map_or(eps, |wide| wide.max(eps));
        let found = curve.neighbors(wide);
        let within = if wide > eps { curve.neighbors(eps) / found } else { 1.0 };
        let all = other.points.len();
        let keep = ((all as f64 * MOST / found) as usize).clamp(1, all);
        // Not one in so many: points may be periodic.
        let rows: Vec<usize> = (0..keep).map(|at| spread(at, keep, all)).collect();
        let some = PointsBuf::from_rows(rows.iter().map(|row| other.points.row(*row)))?;
        let mut degrees = Degrees::new();
        let join = EpsJoin::new(wide).metric(metric).device(Device::Cpu);
        let join =
            self.options.threads.map_or(join.clone(), |threads| join.clone().threads(threads));
        join.plan(&left.points, &some.as_points())?.run(&mut degrees)?;
        let mut found = degrees.as_slice().to_vec();
        if right.is_none() {
            // A point is not its own neighbour.
            rows.iter().for_each(|row| found[*row] = found[*row].saturating_sub(1));
        }
        let each = within * other.of as f64 / keep as f64;
        Ok(found.into_iter().map(|found| each * found as f64).collect())
    }
}

/// Points that one of a sample stands for.
fn stands_for<T: Scalar>(sample: &Sample<'_, T>) -> f64 {
    sample.of as f64 / sample.points.len().max(1) as f64
}
