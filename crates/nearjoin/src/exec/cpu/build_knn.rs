//! The index of the KNN-join on the CPU: built once, and asked by the whole or by its parts.

use std::sync::Arc;

use super::kernel::{NearestKernels, SimdLevel};
use super::knn::{CpuKnn, Finding};
use super::numbers::Numbers;
use super::scores::Scores;
use super::sieve::Sieve;
use crate::error::Result;
use crate::exec::Part;
use crate::exec::part::check_positions;
use crate::exec::pool::Pool;
use crate::index::{Leaves, Rings, order, rings, tree};
use crate::metric::Threshold;
use crate::monitor::Monitor;
use crate::options::Strategy;
use crate::plan::{Multiplying, knn_unit, scores_unit};
use crate::points::Points;
use crate::scalar::Scalar;
use crate::summary::extents;

/// What a KNN-join on the CPU needs to know.
pub(crate) struct Setup<'a, 'd, T> {
    pub(crate) pool: &'a Pool,
    pub(crate) simd: SimdLevel,
    pub(crate) arithmetic: Threshold<T>,
    pub(crate) left: Points<'a, T>,
    /// None where the left points are joined with themselves.
    pub(crate) right: Option<Points<'a, T>>,
    pub(crate) include_self: bool,
    pub(crate) k: usize,
    /// Nothing with a larger accumulated distance is a neighbour.
    pub(crate) cap: T,
    pub(crate) strategy: Strategy,
    /// Those of all points of both sides.
    pub(crate) extents: &'d [(f64, f64)],
    /// Queries of a unit of work, at the most.
    pub(crate) unit: usize,
    /// What multiplies, by products.
    pub(crate) multiplying: &'d Multiplying,
    pub(crate) monitor: Option<&'a Monitor>,
    /// Distances that will be computed, by estimate.
    pub(crate) expected_tests: f64,
}

impl<'a, T: Scalar> CpuKnn<'a, T> {
    /// Puts the points in the order of a tree or of a grid, or leaves them as they are, and
    /// boxes them.
    pub(crate) fn new(setup: Setup<'a, '_, T>) -> Result<Self> {
        let Setup { left, strategy, k, .. } = setup;
        let right = setup.right.unwrap_or(left);
        let own_extents = match setup.right {
            Some(right) => extents(right),
            None => setup.extents.to_vec(),
        };
        let (finding, right_leaves) = match strategy {
            Strategy::Brute => {
                let leaves = Leaves::new(right, order::identity(right.len())?)?;
                let sieve = Sieve::new(&leaves, setup.arithmetic.metric, setup.extents)?;
                (Finding::Sieve(sieve), leaves)
            }
            Strategy::Product => {
                let scores = Scores::new(right, setup.extents, setup.simd, setup.multiplying)?;
                (Finding::Scores(scores), Leaves::bare(right)?)
            }
            Strategy::Grid => {
                let (rings, leaves) = Rings::new(right, &own_extents)?;
                (Finding::Rings(rings), leaves)
            }
            _ => (Finding::Tree, tree::leaves(right, &own_extents)?),
        };
        let left_leaves = setup.right.map(|_| arrange(left, strategy)).transpose()?;
        // Nobody finds more than there are: the sink pads.
        let k = k.clamp(1, right.len().max(1));
        Ok(CpuKnn {
            pool: setup.pool,
            kernels: NearestKernels::new(setup.simd, setup.arithmetic.metric, left.dimension()),
            left: left_leaves.map(Arc::new),
            right: Arc::new(right_leaves),
            given: [left, right],
            same: setup.right.is_none(),
            range: 0..left.len() as u32,
            numbers: Numbers::Rows,
            include_self: setup.include_self,
            k,
            wanted: k,
            arithmetic: setup.arithmetic,
            cap: setup.cap,
            unit: match finding {
                Finding::Sieve(_) => Sieve::<T>::unit(k).min(setup.unit),
                Finding::Scores(_) => scores_unit(k).min(setup.unit),
                _ => setup.unit,
            },
            finding: Arc::new(finding),
            strategy,
            monitor: setup.monitor,
            expected_tests: setup.expected_tests,
        })
    }

    /// The same join for some of the queries.
    pub(super) fn of_part<'b>(&'b self, part: Part<'b, T>) -> Result<CpuKnn<'b, T>> {
        let asked = match part {
            Part::Rows { rows, .. } => rows.len(),
            Part::Positions { start, end } => (end - start) as usize,
        };
        let whole = CpuKnn {
            pool: self.pool,
            kernels: self.kernels,
            left: self.left.clone(),
            right: self.right.clone(),
            finding: self.finding.clone(),
            range: self.range.clone(),
            numbers: Numbers::Rows,
            expected_tests: self.expected_tests * asked as f64 / self.range.len().max(1) as f64,
            ..*self
        };
        match part {
            Part::Rows { rows, points } => {
                let left = self.pool.install(|| arrange(points, self.strategy))?;
                let own = usize::from(self.excludes_self());
                Ok(CpuKnn {
                    left: Some(Arc::new(left)),
                    given: [points, self.given[1]],
                    range: 0..rows.len() as u32,
                    numbers: Numbers::Of(rows),
                    unit: self.unit.min(knn_unit(rows.len(), self.pool.threads())),
                    k: (self.wanted + own).min(self.right.len().max(1)),
                    ..whole
                })
            }
            Part::Positions { start, end } => {
                let range = check_positions(start, end, self.queries().len());
                Ok(CpuKnn { range, numbers: Numbers::Places { first: start }, ..whole })
            }
        }
    }
}

/// Puts points that ask in an order of their own: blocks are then compact, however many the
/// others are.
fn arrange<T: Scalar>(points: Points<'_, T>, strategy: Strategy) -> Result<Leaves<T>> {
    match strategy {
        Strategy::Brute => Leaves::new(points, order::identity(points.len())?),
        Strategy::Product => Leaves::bare(points),
        Strategy::Grid => rings::leaves(points, &extents(points)),
        _ => tree::leaves(points, &extents(points)),
    }
}
