//! A KNN-join that is shared.

use core::sync::atomic::AtomicU64;

use super::{Load, Named, OnHost, Units};
use crate::error::Result;
use crate::exec::cpu::knn::{CpuKnn, Finding};
use crate::exec::{Emit, Executor, Part, Request, Work};
use crate::index::Run;
use crate::scalar::Scalar;

impl<T: Scalar> OnHost<T> for CpuKnn<'_, T> {
    fn positions(&self) -> Run {
        self.range.clone()
    }

    /// Every query is taken to cost the same. A search goes on until it has k, so where points lie
    /// thinly it looks farther and meets about as many; only trying would tell the difference, and
    /// a try is the search itself. Units of equal cost stay in the order of the index, and a batch
    /// of units that follow each other is compact in space, as a device likes it.
    fn loads(&self, unit: u32, _step: usize) -> Vec<Load> {
        let per_query = self.expected_tests / self.range.len().max(1) as f64;
        let load = |start: u32| {
            let queries = (self.range.end - start).min(unit) as f64;
            Load { work: per_query * queries, pairs: Some(self.wanted as f64 * queries) }
        };
        self.range.clone().step_by(unit as usize).map(load).collect()
    }

    fn name_queries(&self, at: Run, named: &mut Named<T>) -> Result<()> {
        let leaves = self.queries();
        let ids = &leaves.ids()[at.start as usize..at.end as usize];
        named.name(&self.numbers, ids, &at, leaves.dim())?;
        match *self.finding {
            Finding::Scores(_) => {
                let points = ids.iter().map(|&id| self.given[0].row(id as usize));
                points.for_each(|point| named.coordinates.extend_from_slice(point));
            }
            _ => at.for_each(|position| named.coordinates.extend(leaves.point(position as usize))),
        }
        Ok(())
    }

    fn count_units(&self, units: &dyn Units) -> Vec<Work> {
        self.work_on(units, &self.counting())
    }

    fn degrees_of_units(&self, degrees: &[AtomicU64], units: &dyn Units) -> Vec<Work> {
        self.work_on(units, &self.counting_each(degrees))
    }

    /// Nobody wants pairs of the nearest once: the other point of a pair need not have it.
    fn rows_of_units(&self, request: Request, emit: &Emit<'_, T>, units: &dyn Units) -> Vec<Work> {
        self.work_on(units, &self.filling(request, emit))
    }

    fn count_alone(&self) -> Result<Work> {
        self.count()
    }

    fn for_part<'b>(&'b self, part: Part<'b, T>) -> Result<Box<dyn OnHost<T> + 'b>> {
        Ok(Box::new(self.of_part(part)?))
    }
}
