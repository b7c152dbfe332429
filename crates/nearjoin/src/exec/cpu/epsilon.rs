//! The ε-join on the CPU: blocks of queries against their candidates.
//!
//! ```text
//! each thread, until the queue is empty:
//!     for each block of up to 16 neighbouring queries of a unit:
//!         candidates = index(box of the block)          runs: taken whole, or tested
//!         for each tile of tested candidates:  count matches, or append them to rows
//!         decide in the points' own arithmetic what the lanes left open
//!         hand the counts or the rows to the sink
//! ```

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use super::build::Arranging;
use super::kernel::Kernels;
use super::numbers::Numbers;
use super::product::Products;
use super::scan::Scanner;
use super::sheet::{Sheet, SheetOrder};
use super::sort::RowSorter;
use super::units::Units;
use crate::error::Result;
use crate::exec::pool::Pool;
use crate::exec::queue::Queue;
use crate::exec::{Emit, Executor, LaidOut, Lists, Part, Reporter, Request, Rows, Work};
use crate::filter::Band;
use crate::index::grid::{Finder, Pattern};
use crate::index::{BoxOf, Candidates, Index, Layout, Prune, Run, ego, push_run};
use crate::metric::Threshold;
use crate::monitor::{Monitor, Phase};
use crate::options::DuplicateRemoval;
use crate::scalar::Scalar;
use crate::summary::spread;

/// The most queries in a block.
pub(super) const BLOCK: u32 = 16;

/// Blocks of queries whose candidates are counted to tell how much there is to do.
const SAMPLES: usize = 512;

/// Queries, and an index of the points that may be their neighbours.
pub(crate) struct CpuJoin<'a, T> {
    pub(super) pool: &'a Pool,
    pub(super) threshold: Threshold<T>,
    pub(super) kernels: Kernels<T>,
    pub(super) index: Arc<Index<T>>,
    /// None where the queries are the right points, in their order.
    pub(super) left: Option<Arc<Layout<'a, T>>>,
    pub(super) right: Arc<Layout<'a, T>>,
    /// Of a grid: where each row of cells of the queries begins, and the end.
    pub(super) cell_rows: Arc<[u32]>,
    /// Whether both sides are of one set.
    pub(super) same: bool,
    /// The positions of the queries.
    pub(super) range: Run,
    pub(super) numbers: Numbers<'a>,
    pub(super) include_self: bool,
    /// What ε means in narrow columns, where the layouts have them.
    pub(super) narrow: Option<Band<f32>>,
    pub(super) removal: DuplicateRemoval,
    /// Whether tests are many beside pairs, so that a pair had better be met once.
    pub(super) listed: bool,
    /// Queries per unit of work.
    pub(super) unit: usize,
    /// Who watches, if anybody does.
    pub(super) monitor: Option<&'a Monitor>,
    pub(super) arranging: Arranging,
}

/// Which pairs a pass looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cover {
    /// Every candidate of every query.
    Full,
    /// Of each block, itself and the candidates behind it.
    Behind,
    /// As the grid's UNICOMP says.
    Unicomp,
}

/// One pass over all queries.
#[derive(Clone, Copy)]
pub(super) struct Pass {
    pub(super) cover: Cover,
    /// Whether counts will do.
    pub(super) counting: bool,
    /// Whether candidates are laid out for many blocks at once, where there is a way; and in which
    /// order.
    pub(super) sheets: Option<SheetOrder>,
}

impl Pass {
    /// Counts the pairs that it looks at.
    pub(super) const fn count(cover: Cover) -> Self {
        Pass { cover, counting: true, sheets: None }
    }

    /// Finds rows.
    pub(super) fn rows(cover: Cover, request: Request) -> Self {
        let order = if request.sorted { SheetOrder::ById } else { SheetOrder::Any };
        Pass { cover, counting: false, sheets: (!request.once).then_some(order) }
    }
}

/// Counts all pairs of every query.
pub(super) const FULL_COUNT: Pass = Pass::count(Cover::Full);

/// What is done with each block of queries.
pub(super) type Action<'a, T> =
    dyn Fn(&mut Worker<'_, T>, Run, &BoxOf<T>) -> ControlFlow<()> + Sync + 'a;

/// The same, before it is made an object.
pub(super) trait BlockAction<T>:
    Fn(&mut Worker<'_, T>, Run, &BoxOf<T>) -> ControlFlow<()> + Sync
{
}
impl<T, F: Fn(&mut Worker<'_, T>, Run, &BoxOf<T>) -> ControlFlow<()> + Sync> BlockAction<T> for F {}

/// What a thread keeps from block to block.
pub(super) struct Worker<'a, T> {
    pub(super) number: usize,
    pub(super) work: Work,
    pub(super) reporter: Reporter<'a>,
    pub(super) scanner: Scanner<T>,
    pub(super) prune: Prune<T>,
    pub(super) runs: Vec<Run>,
    pub(super) candidates: Candidates,
    pub(super) finder: Finder,
    pub(super) distances: Vec<Vec<T>>,
    pub(super) sorter: RowSorter,
    /// The candidates of the block, where they are laid out for many at once.
    pub(super) sheet: Sheet<T>,
    /// The queries of a piece, where pairs are told by products.
    pub(super) products: Products<T>,
    pub(super) moved: Vec<T>,
    pub(super) numbers: Vec<u32>,
}

impl<'a, T: Scalar> CpuJoin<'a, T> {
    /// The points that ask, and others that do not.
    pub(super) fn queries(&self) -> &Layout<'a, T> {
        self.left.as_ref().unwrap_or(&self.right)
    }

    pub(super) fn excludes_self(&self) -> bool {
        self.same && !self.include_self
    }

    /// The row of the whole input that the query at a position is.
    pub(super) fn row_of(&self, position: u32) -> u32 {
        self.numbers.row(self.queries().ids()[position as usize])
    }

    /// The pass that meets each unordered pair once, if the options allow it and all points ask.
    pub(super) fn once(&self) -> Cover {
        match (self.removal, &*self.index) {
            _ if !self.numbers.is_whole() => Cover::Full,
            (DuplicateRemoval::None, _) => Cover::Full,
            (DuplicateRemoval::Unicomp, Index::Grid(_)) => Cover::Unicomp,
            _ => Cover::Behind,
        }
    }

    /// Runs `action` on every block of queries, on all threads.
    pub(super) fn work(&self, pass: Pass, action: &Action<'_, T>) -> Work {
        let queue = Queue::new(&self.range, self.unit);
        if let Some(monitor) = self.monitor {
            let phase = if pass.counting { Phase::Counting } else { Phase::Joining };
            monitor.enter(phase, self.expected_tests(pass));
        }
        self.work_on(&queue, pass, action).into_iter().sum()
    }

    /// Runs `action` on the blocks of some units, on all threads. Tells what each of them did.
    pub(super) fn work_on(
        &self,
        units: &dyn Units,
        pass: Pass,
        action: &Action<'_, T>,
    ) -> Vec<Work> {
        // What was cancelled stays so: a second pass over a part of the counts would find rows
        // longer than their places.
        if self.monitor.is_some_and(Monitor::is_cancelled) {
            units.close();
        }
        let watched: &Action<'_, T> = &|worker, block, bound| {
            action(worker, block, bound)?;
            let work = worker.work();
            worker.reporter.report(work)
        };
        self.pool.each_of(units.threads(self.pool.threads()), |number| {
            let mut worker = Worker::new(self, number);
            let mut recursion = ego::Recursion::default();
            while let Some(unit) = units.take(number) {
                if self.visit_unit(&mut worker, &mut recursion, unit, pass, watched).is_break() {
                    units.close();
                }
            }
            let work = worker.work();
            worker.reporter.finish(work);
            work
        })
    }

    /// The distance tests of a pass, from the candidates of a sample of the queries.
    fn expected_tests(&self, pass: Pass) -> u64 {
        let queries = self.range.len();
        let blocks = queries.div_ceil(BLOCK as usize);
        let samples = SAMPLES.min(blocks);
        // Sheets have more queries than are asked for here.
        let pass = Pass { sheets: None, ..pass };
        let mut worker = Worker::new(self, 0);
        let mut recursion = ego::Recursion::default();
        let tests = AtomicU64::new(0);
        let asked = AtomicU64::new(0);
        for sample in 0..samples {
            // Units begin at multiples of a block, and so does this.
            let start = self.range.start + spread(sample, samples, blocks) as u32 * BLOCK;
            let unit = start..start.saturating_add(BLOCK).min(self.range.end);
            let _ =
                self.visit_unit(&mut worker, &mut recursion, unit, pass, &|worker, block, _| {
                    let listed = worker.candidates.test.iter().map(|run| run.len() as u64);
                    let own = if pass.cover == Cover::Full { 0 } else { block.len() as u64 };
                    tests.fetch_add((listed.sum::<u64>() + own) * block.len() as u64, Relaxed);
                    asked.fetch_add(block.len() as u64, Relaxed);
                    ControlFlow::Continue(())
                });
        }
        let per_query = tests.into_inner() as f64 / asked.into_inner().max(1) as f64;
        ((per_query * queries as f64) as u64).max(1)
    }

    /// Cuts a unit into blocks, finds the candidates of each, and runs `action`.
    pub(super) fn visit_unit(
        &self,
        worker: &mut Worker<'_, T>,
        recursion: &mut ego::Recursion,
        unit: Run,
        Pass { cover, counting, sheets }: Pass,
        action: &Action<'_, T>,
    ) -> ControlFlow<()> {
        let queries = self.queries();
        let mut bound = BoxOf::new();
        match &*self.index {
            Index::Grid(grid) => {
                let one_cell = cover == Cover::Unicomp;
                let pattern = if one_cell { Pattern::Unicomp } else { Pattern::All };
                let reach = self.threshold.reach;
                let queries_in = (queries, &self.cell_rows[..]);
                grid.blocks(queries_in, unit, BLOCK, reach, one_cell, |block| {
                    queries.bound(&block, &mut bound);
                    let Worker { runs, finder, .. } = worker;
                    runs.clear();
                    grid.runs(&self.threshold, &block, &bound, pattern, finder, runs);
                    self.sift(worker, &block, &bound, cover);
                    action(worker, block, &bound)
                })
            }
            Index::Ego => {
                let (Some(queries), Some(right)) = (queries.boxes(), self.right.boxes()) else {
                    unreachable!("the recursive join has boxes")
                };
                let prune = worker.prune;
                let behind = cover == Cover::Behind;
                let lowest = usize::from(sheets.is_some());
                let join = ego::Join { queries, right, prune: &prune, behind, counting, lowest };
                if let Some(order) = sheets {
                    let each = ego::Join { lowest: 0, ..join };
                    let mut apart = ego::Recursion::default();
                    return join.run(unit, recursion, &mut |group, around, found| {
                        let Worker { sheet, scanner, sorter, candidates, .. } = worker;
                        if order == SheetOrder::ById {
                            found.test.append(&mut found.take);
                        }
                        if !Sheet::<T>::has_room(&found.test, self.right.dim()) {
                            sheet.clear();
                            return each_block(&each, group, &mut apart, worker, action);
                        }
                        sheet.lay_out(self, scanner.filter, &found.test, order, around, sorter);
                        core::mem::swap(&mut candidates.take, &mut found.take);
                        for start in group.clone().step_by(BLOCK as usize) {
                            queries.bound(0, start as usize / BLOCK as usize, &mut bound);
                            action(worker, start..group.end.min(start + BLOCK), &bound)?;
                        }
                        ControlFlow::Continue(())
                    });
                }
                each_block(&join, unit, recursion, worker, action)
            }
            Index::Product(..) => self.visit_products(worker, &unit, cover, action),
            Index::Brute | Index::Directory(_) => {
                for start in unit.clone().step_by(BLOCK as usize) {
                    let block = start..unit.end.min(start.saturating_add(BLOCK));
                    queries.bound(&block, &mut bound);
                    worker.runs.clear();
                    match &*self.index {
                        Index::Directory(directory) => {
                            directory.runs(self.threshold.reach, &bound, &mut worker.runs);
                        }
                        _ => push_run(&mut worker.runs, 0..self.right.len() as u32),
                    }
                    self.sift(worker, &block, &bound, cover);
                    action(worker, block, &bound)?;
                }
                ControlFlow::Continue(())
            }
        }
    }

    /// Sorts the runs of a block into those to take and those to test.
    fn sift(&self, worker: &mut Worker<'_, T>, block: &Run, bound: &BoxOf<T>, cover: Cover) {
        let Worker { runs, candidates, prune, .. } = worker;
        if cover == Cover::Behind {
            keep_behind(runs, block.end);
        }
        candidates.clear();
        match self.right.boxes() {
            None => core::mem::swap(runs, &mut candidates.test),
            Some(boxes) => {
                for run in runs.drain(..) {
                    prune.split(boxes, run, bound, candidates);
                }
            }
        }
    }
}

impl<T: Scalar> Executor<T> for CpuJoin<'_, T> {
    fn len(&self) -> usize {
        self.range.len()
    }

    fn index_bytes(&self) -> u64 {
        let left = self.left.as_ref().map_or(0, |left| left.bytes());
        let rows = size_of_val(&self.cell_rows[..]);
        (match self.numbers {
            Numbers::Rows | Numbers::Shared => {
                self.right.bytes() + left + self.index.bytes() + rows
            }
            Numbers::Places { .. } => 0,
            Numbers::Of(_) => left + rows,
        }) as u64
    }

    fn count(&self) -> Result<Work> {
        let cover = if self.same { self.once() } else { Cover::Full };
        let mut total = self.work(Pass::count(cover), &self.counting(cover));
        if cover != Cover::Full {
            // Once-only passes have left self pairs out.
            let own = if self.include_self { self.range.len() as u64 } else { 0 };
            total.pairs = 2 * total.pairs + own;
        }
        Ok(total)
    }

    fn degrees(&self, degrees: &[AtomicU64]) -> Result<Work> {
        if self.lists() {
            return self.degrees_of_pairs(degrees);
        }
        Ok(self.work(FULL_COUNT, &self.counting_each(degrees)))
    }

    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        if let Some(work) = self.rows_of_pairs(request, emit) {
            return work;
        }
        let cover = if request.once { self.once() } else { Cover::Full };
        Ok(self.work(Pass::rows(cover, request), &self.filling(cover, request, emit)))
    }

    fn lay_out(
        &self,
        request: Request,
        offsets: &mut [u64],
    ) -> Option<Result<Box<dyn LaidOut<T> + '_>>> {
        self.list(request, offsets).map(Ok)
    }

    fn rows_at(&self, positions: Run) -> Result<Vec<u32>> {
        Ok(positions.map(|position| self.row_of(position)).collect())
    }

    fn part<'b>(&'b self, part: Part<'b, T>) -> Result<Box<dyn Executor<T> + 'b>> {
        Ok(Box::new(self.of_part(part)?))
    }

    fn workers(&self) -> usize {
        self.pool.threads()
    }
}

/// What passes do with every block.
impl<T: Scalar> CpuJoin<'_, T> {
    /// Counts pairs: all of them, or those that a pass meets once.
    pub(super) fn counting(&self, cover: Cover) -> impl BlockAction<T> {
        // A full pass finds every point in its own row.
        let own = u64::from(cover == Cover::Full && self.excludes_self());
        move |worker: &mut Worker<'_, T>, block: Run, bound: &BoxOf<T>| {
            let pairs = self.count_block(worker, &block, bound, cover)?;
            worker.work.pairs += pairs - own * block.len() as u64;
            ControlFlow::Continue(())
        }
    }

    /// Counts the neighbours of each query.
    pub(super) fn counting_each(&self, degrees: &[AtomicU64]) -> impl BlockAction<T> {
        let own = u64::from(self.excludes_self());
        move |worker: &mut Worker<'_, T>, block: Run, bound: &BoxOf<T>| {
            let pairs = self.count_block(worker, &block, bound, Cover::Full)?;
            worker.work.pairs += pairs - own * block.len() as u64;
            let (numbers, _) = self.numbers.of(self.queries().ids(), &block, &mut worker.numbers);
            for (number, count) in numbers.iter().zip(&worker.scanner.matches.counts) {
                degrees[*number as usize].store(count - own, Relaxed);
            }
            ControlFlow::Continue(())
        }
    }

    /// Finds rows, and hands them out.
    pub(super) fn filling(
        &self,
        cover: Cover,
        request: Request,
        emit: &Emit<'_, T>,
    ) -> impl BlockAction<T> {
        move |worker: &mut Worker<'_, T>, block: Run, bound: &BoxOf<T>| {
            self.fill_block(worker, &block, bound, cover, request)?;
            let (queries, ahead) =
                self.numbers.of(self.queries().ids(), &block, &mut worker.numbers);
            let neighbors = Lists::Each(&worker.scanner.matches.rows[..queries.len()]);
            worker.work.pairs += neighbors.total();
            let distances = request.distances.then_some(Lists::Each(&worker.distances[..]));
            let (worker, consecutive) = (worker.number, false);
            emit(&Rows { worker, queries, neighbors, distances, ahead, consecutive })
        }
    }
}

/// Runs `action` on the blocks of a unit, with the candidates that the recursive join finds.
fn each_block<T: Scalar>(
    join: &ego::Join<'_, T>,
    unit: Run,
    recursion: &mut ego::Recursion,
    worker: &mut Worker<'_, T>,
    action: &Action<'_, T>,
) -> ControlFlow<()> {
    join.run(unit, recursion, &mut |block, bound, candidates| {
        core::mem::swap(&mut worker.candidates, candidates);
        let flow = action(worker, block, bound);
        core::mem::swap(&mut worker.candidates, candidates);
        flow
    })
}

/// Cuts off everything before `end`.
fn keep_behind(runs: &mut Vec<Run>, end: u32) {
    runs.retain_mut(|run| {
        run.start = run.start.max(end);
        run.start < run.end
    });
}

impl<'a, T: Scalar> Worker<'a, T> {
    pub(super) fn new(join: &CpuJoin<'a, T>, number: usize) -> Self {
        let dim = join.right.dim();
        Worker {
            number,
            work: Work::default(),
            reporter: Reporter::new(join.monitor),
            scanner: Scanner::new(join, BLOCK as usize),
            prune: Prune::new(join.kernels, &join.threshold, dim),
            runs: Vec::new(),
            candidates: Candidates::default(),
            finder: Finder::new(&join.threshold, dim),
            distances: vec![Vec::new(); BLOCK as usize],
            sorter: RowSorter::default(),
            sheet: Sheet::new(),
            products: Products::new(),
            moved: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// The work so far, distance tests included.
    fn work(&self) -> Work {
        Work { tests: self.scanner.tests + self.products.tests, ..self.work }
    }
}
