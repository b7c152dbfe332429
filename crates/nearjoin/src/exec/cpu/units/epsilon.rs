//! An ε-join that is shared, and what its units are expected to cost.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::{Load, Named, OnHost, Units};
use crate::error::Result;
use crate::exec::cpu::epsilon::{BLOCK, Cover, CpuJoin, FULL_COUNT, Pass, Worker};
use crate::exec::cpu::numbers::Numbers;
use crate::exec::{Emit, Executor, Part, Request, Work};
use crate::index::layout::Columns;
use crate::index::{Run, ego};
use crate::scalar::Scalar;

/// Blocks of a unit whose candidates are listed.
const PROBED: usize = 2;
/// What a pair that is taken without a test costs beside a test.
const TAKEN: f64 = 0.25;

impl<T: Scalar> OnHost<T> for CpuJoin<'_, T> {
    fn positions(&self) -> Run {
        self.range.clone()
    }

    /// From the candidates of some blocks of a unit and, of one unit in `step`, from the neighbours
    /// too.
    fn loads(&self, unit: u32, step: usize) -> Vec<Load> {
        let units = self.range.len().div_ceil(unit as usize);
        let next = AtomicUsize::new(0);
        let found = self.pool.each(|number| {
            let mut worker = Worker::new(self, number);
            let mut recursion = ego::Recursion::default();
            let mut found = Vec::new();
            loop {
                let at = next.fetch_add(1, Relaxed);
                if at >= units {
                    return found;
                }
                let start = self.range.start + at as u32 * unit;
                let end = start.saturating_add(unit).min(self.range.end);
                let counted = at.is_multiple_of(step);
                found.push((at, self.load(&mut worker, &mut recursion, start..end, counted)));
            }
        });
        let mut loads = vec![Load::default(); units];
        found.into_iter().flatten().for_each(|(at, load)| loads[at] = load);
        loads
    }

    fn name_queries(&self, at: Run, named: &mut Named<T>) -> Result<()> {
        let layout = self.queries();
        let ids = &layout.ids()[at.start as usize..at.end as usize];
        named.name(&self.numbers, ids, &at, layout.dim())?;
        match layout.columns() {
            // They stand close together here, and far apart in the input.
            Columns::Own(columns) => {
                for position in at {
                    let of = |j: usize| columns[j * layout.stride() + position as usize];
                    named.coordinates.extend((0..layout.dim()).map(of));
                }
            }
            Columns::Narrow { .. } | Columns::Absent => {
                let points = layout.points();
                let each = ids.iter().map(|&id| points.row(id as usize));
                each.for_each(|point| named.coordinates.extend_from_slice(point));
            }
        }
        Ok(())
    }

    fn count_units(&self, units: &dyn Units) -> Vec<Work> {
        self.work_on(units, FULL_COUNT, &self.counting(Cover::Full))
    }

    fn degrees_of_units(&self, degrees: &[AtomicU64], units: &dyn Units) -> Vec<Work> {
        self.work_on(units, FULL_COUNT, &self.counting_each(degrees))
    }

    fn rows_of_units(&self, request: Request, emit: &Emit<'_, T>, units: &dyn Units) -> Vec<Work> {
        let pass = Pass::rows(Cover::Full, request);
        self.work_on(units, pass, &self.filling(Cover::Full, request, emit))
    }

    fn count_alone(&self) -> Result<Work> {
        let numbers = match self.numbers {
            Numbers::Shared => Numbers::Rows,
            numbers => numbers,
        };
        CpuJoin { numbers, ..self.again() }.count()
    }

    fn for_part<'b>(&'b self, part: Part<'b, T>) -> Result<Box<dyn OnHost<T> + 'b>> {
        Ok(Box::new(self.of_part(part)?))
    }
}

impl<T: Scalar> CpuJoin<'_, T> {
    /// What a unit is expected to cost, and its neighbours where they are to be counted.
    fn load(
        &self,
        worker: &mut Worker<'_, T>,
        recursion: &mut ego::Recursion,
        unit: Run,
        counted: bool,
    ) -> Load {
        let blocks = unit.len().div_ceil(BLOCK as usize);
        let [tests, taken, pairs, asked] = [const { AtomicU64::new(0) }; 4];
        for probe in 0..PROBED.min(blocks) {
            // In the middle of equal parts. Units begin at multiples of a block, and so does this.
            let block = (2 * probe + 1) * blocks / (2 * PROBED.min(blocks));
            let start = unit.start + block as u32 * BLOCK;
            let block = start..start.saturating_add(BLOCK).min(unit.end);
            // Whoever breaks it off has no use for it.
            let _ =
                self.visit_unit(worker, recursion, block, FULL_COUNT, &|worker, block, bound| {
                    let (candidates, len) = (&worker.candidates, block.len() as u64);
                    let sum = |runs: &[Run]| runs.iter().map(|run| run.len() as u64).sum::<u64>();
                    tests.fetch_add(sum(&candidates.test) * len, Relaxed);
                    taken.fetch_add((sum(&candidates.take) + candidates.taken) * len, Relaxed);
                    asked.fetch_add(len, Relaxed);
                    if counted {
                        let found = self.count_block(worker, &block, bound, Cover::Full)?;
                        pairs.fetch_add(found, Relaxed);
                    }
                    ControlFlow::Continue(())
                });
        }
        let share = unit.len() as f64 / asked.into_inner().max(1) as f64;
        let work = tests.into_inner() as f64 + TAKEN * taken.into_inner() as f64;
        let pairs = counted.then(|| pairs.into_inner() as f64 * share);
        Load { work: work * share, pairs }
    }
}
