//! Units of queries that threads take from somewhere, and what units are expected to cost.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::epsilon::{BLOCK, Cover, CpuJoin, FULL_COUNT, Pass, Worker};
use super::numbers::Numbers;
use crate::error::Result;
use crate::exec::queue::Queue;
use crate::exec::{Emit, Request, Work};
use crate::index::layout::Columns;
use crate::index::{Run, ego};
use crate::memory::{reserve, with_capacity};
use crate::points::{Points, PointsBuf};
use crate::scalar::Scalar;

/// Where the threads of a pass get their queries from.
pub(crate) trait Units: Sync {
    /// The next unit for a thread, which is done with the one before.
    fn take(&self, thread: usize) -> Option<Run>;
    /// Hands out nothing more.
    fn close(&self);
    /// How many of so many threads should come for units.
    fn threads(&self, all: usize) -> usize {
        all
    }
}

impl Units for Queue {
    fn take(&self, _thread: usize) -> Option<Run> {
        Queue::take(self)
    }

    fn close(&self) {
        Queue::close(self);
    }
}

/// What a unit is expected to cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    /// Distance tests, and something for each pair that needs none.
    pub(crate) work: f64,
    /// Neighbours of all its queries, where they were sampled.
    pub(crate) pairs: Option<f64>,
}

/// Queries by names that every device understands.
pub(crate) struct Named<T> {
    /// Their rows of the whole input.
    pub(crate) rows: Vec<u32>,
    /// Their numbers in the join.
    pub(crate) numbers: Vec<u32>,
    pub(crate) coordinates: Vec<T>,
}

impl<T> Named<T> {
    /// Room for so many.
    pub(crate) fn new(queries: usize) -> Result<Self> {
        let (rows, numbers) = (with_capacity(queries)?, with_capacity(queries)?);
        Ok(Named { rows, numbers, coordinates: Vec::new() })
    }
}

/// Blocks of a unit whose candidates are listed.
const PROBED: usize = 2;
/// What a pair that is taken without a test costs beside a test.
const TAKEN: f64 = 0.25;

/// Passes over units that others share.
impl<T: Scalar> CpuJoin<'_, T> {
    /// Counts the pairs of some units: what each thread did.
    pub(crate) fn count_units(&self, units: &dyn Units) -> Vec<Work> {
        self.work_on(units, FULL_COUNT, &self.counting(Cover::Full))
    }

    /// Counts the neighbours of the queries of some units.
    pub(crate) fn degrees_of_units(&self, degrees: &[AtomicU64], units: &dyn Units) -> Vec<Work> {
        self.work_on(units, FULL_COUNT, &self.counting_each(degrees))
    }

    /// Hands out the rows of some units. Pairs that are wanted once are those with larger rows.
    pub(crate) fn rows_of_units(
        &self,
        request: Request,
        emit: &Emit<'_, T>,
        units: &dyn Units,
    ) -> Vec<Work> {
        let pass = Pass { cover: Cover::Full, counting: false };
        self.work_on(units, pass, &self.filling(Cover::Full, request, emit))
    }

    /// Some rows of points, copied by all threads.
    pub(crate) fn gather(&self, points: Points<'_, T>, rows: &[u32]) -> Result<PointsBuf<T>> {
        self.pool.install(|| points.gather(rows))
    }

    /// Threads that work.
    pub(crate) fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// The same join as one that nobody shares, if it is of all queries.
    pub(crate) fn alone(&self) -> CpuJoin<'_, T> {
        let numbers = match self.numbers {
            Numbers::Shared => Numbers::Rows,
            numbers => numbers,
        };
        CpuJoin { numbers, ..self.again() }
    }

    /// The positions of all queries.
    pub(crate) fn positions(&self) -> Run {
        self.range.clone()
    }

    /// Appends the queries at some positions to a list that another device understands.
    pub(crate) fn name_queries(&self, at: Run, named: &mut Named<T>) -> Result<()> {
        let layout = self.queries();
        let ids = &layout.ids()[at.start as usize..at.end as usize];
        named.rows.extend(ids.iter().map(|&id| self.numbers.row(id)));
        match self.numbers {
            Numbers::Places { first } => named.numbers.extend(at.clone().map(|p| p - first)),
            _ => named.numbers.extend_from_slice(ids),
        }
        reserve(&mut named.coordinates, ids.len() * layout.dim())?;
        match layout.columns() {
            // They stand close together here, and far apart in the input.
            Columns::Own(columns) => {
                for position in at {
                    let of = |j: usize| columns[j * layout.stride() + position as usize];
                    named.coordinates.extend((0..layout.dim()).map(of));
                }
            }
            Columns::Narrow { .. } => {
                let points = layout.points();
                let each = ids.iter().map(|&id| points.row(id as usize));
                each.for_each(|point| named.coordinates.extend_from_slice(point));
            }
        }
        Ok(())
    }

    /// What every `unit` queries are expected to cost: from the candidates of some of their blocks
    /// and, of one unit in `step`, from the neighbours too.
    pub(crate) fn loads(&self, unit: u32, step: usize) -> Vec<Load> {
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
            // Nothing breaks it off.
            let _ =
                self.visit_unit(worker, recursion, block, FULL_COUNT, &|worker, block, bound| {
                    let (candidates, len) = (&worker.candidates, block.len() as u64);
                    let sum = |runs: &[Run]| runs.iter().map(|run| run.len() as u64).sum::<u64>();
                    tests.fetch_add(sum(&candidates.test) * len, Relaxed);
                    taken.fetch_add((sum(&candidates.take) + candidates.taken) * len, Relaxed);
                    asked.fetch_add(len, Relaxed);
                    if counted {
                        pairs.fetch_add(
                            self.count_block(worker, &block, bound, Cover::Full),
                            Relaxed,
                        );
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
