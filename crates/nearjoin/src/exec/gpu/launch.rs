//! Launches of the ε-join: what a kernel is told, which one runs, and over which queries.

use std::sync::Arc;

use nearjoin_kernels::{Family, Module, width};

use super::device::{Array, Stage};
use super::driver::{self, Args};
use super::index::{Ordered, Table};
use super::job::{Finder, Job, Pattern, float, norm, weight};
use super::product::Products;
use super::session::{Result, Session};
use super::sort::sort_by_key;
use crate::exec::Work;
use crate::gpu::{Cooperation, Schedule};
use crate::metric::Threshold;
use crate::options::DuplicateRemoval;
use crate::plan::Detail;
use crate::points::Points;
use crate::scalar::Scalar;

/// The queries of a unit of the cell-cooperative kernels: those of a warp.
const WARP: u64 = 32;

/// Queries on the device, and an index of the points that may be their neighbours.
pub(crate) struct GpuJoin<'a, T> {
    pub(super) session: Session<'a>,
    pub(super) threshold: Threshold<T>,
    pub(super) detail: &'a Detail,
    /// All points that may ask, as the host has them.
    pub(super) asking: Points<'a, T>,
    /// Which of them do, where it is a part.
    pub(super) part: Option<Vec<u32>>,
    /// None where the queries are the right points, in their order.
    pub(super) left: Option<Ordered<T>>,
    pub(super) right: Arc<Ordered<T>>,
    pub(super) table: Arc<Table<T>>,
    /// How products compare points, where they do.
    pub(super) products: Option<Arc<Products>>,
    /// Whether both sides are of one set.
    pub(super) same: bool,
    pub(super) include_self: bool,
    pub(super) removal: DuplicateRemoval,
}

/// What becomes of matches: the kernels of `group.cuh` and `query.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Count,
    CountBoth,
    Fill,
    List,
    Work,
}

/// Counters that kernels add to.
pub(super) struct Counters {
    array: Array<u64>,
}

impl Counters {
    pub(super) fn new(stage: &Stage) -> driver::Result<Self> {
        Ok(Counters { array: stage.zeroed(4)? })
    }

    pub(super) fn describe(&self, job: &mut Job) {
        job.tests = self.array.address();
        job.pairs = job.tests + 8;
        job.list_len = job.tests + 16;
        job.taken = job.tests + 24;
    }

    /// Tests, pairs, the length of the list, and pairs that needed no test.
    pub(super) fn read(&self, stage: &Stage) -> driver::Result<[u64; 4]> {
        let values = stage.read(&self.array, 0..4)?;
        Ok([values[0], values[1], values[2], values[3]])
    }

    /// The work that was counted: of rows, with the pairs that they have.
    pub(super) fn work(&self, stage: &Stage, pairs: Option<u64>) -> driver::Result<Work> {
        let [tests, found, _, taken] = self.read(stage)?;
        Ok(Work { pairs: pairs.unwrap_or(found), tests, taken })
    }
}

impl<'a, T: Scalar> GpuJoin<'a, T> {
    /// The points that ask.
    pub(super) fn queries(&self) -> &Ordered<T> {
        self.left.as_ref().unwrap_or(&self.right)
    }

    /// Number of queries.
    pub(super) fn query_count(&self) -> usize {
        self.queries().len()
    }

    /// Whether the queries are all points of one set, in the order of the index: then an order of
    /// the device can say which of the two points of a pair meets the other.
    pub(super) fn is_whole_self(&self) -> bool {
        self.left.is_none()
    }

    /// Whether points find themselves and should not.
    fn excludes_self(&self) -> bool {
        self.same && !self.include_self
    }

    /// What every launch is told.
    pub(super) fn job(&self) -> Job {
        let threshold = &self.threshold;
        let (dim, metric) = (self.asking.dimension(), threshold.metric);
        let how = &self.session.how;
        let band = how.narrow.as_ref().map(|narrow| narrow.band);
        let mut job = Job {
            left: self.queries().side(),
            left_rows: self.queries().rows().address(),
            right: self.right.side(),
            right_boxes: self.right.boxes(),
            dim,
            stride: match self.products {
                Some(_) => dim,
                None => width(norm(metric), dim),
            },
            bound: threshold.bound.to_f64(),
            sure: band.map_or(0.0, |band| f64::from(band.sure)),
            maybe: band.map_or(0.0, |band| f64::from(band.maybe)),
            reach: threshold.reach,
            limit: threshold.band(dim).1,
            loose: how.loose,
            weight: weight(metric),
            finder: Finder::Brute,
            pattern: Pattern::Each,
            exclude_self: self.excludes_self(),
            query_count: self.query_count() as u64,
            threads_per_query: how.threads_per_query,
            ..Job::default()
        };
        self.table.describe(&mut job);
        job
    }

    /// The pattern that meets each unordered pair once, if the options allow it.
    pub(super) fn once(&self) -> Pattern {
        let by_query = self.session.how.cooperation != Cooperation::Cell;
        match self.removal {
            DuplicateRemoval::None => Pattern::Each,
            DuplicateRemoval::LinearCoord if by_query => Pattern::Linear,
            DuplicateRemoval::Unicomp if by_query => Pattern::Unicomp,
            _ => Pattern::Later,
        }
    }

    /// A pattern that meets each unordered pair once, whatever the options.
    pub(super) fn strictly_once(&self) -> Pattern {
        match self.once() {
            Pattern::Each => Pattern::Later,
            pattern => pattern,
        }
    }

    /// Runs a kernel over all queries of a job.
    pub(super) fn run(&self, stage: &Stage, mode: Mode, job: &Job) -> Result<()> {
        if let Some(products) = &self.products {
            return self.multiply(products, stage, job);
        }
        let units = self.units(job);
        let mut job = job.clone();
        if mode != Mode::Work && self.session.how.schedule != Schedule::IndexOrder {
            job.units = self.order_by_work(stage, &job, units)?.address();
        }
        self.launch(stage, mode, &mut job, units)
    }

    /// Units of work of a job.
    pub(super) fn units(&self, job: &Job) -> u64 {
        match self.session.how.cooperation {
            Cooperation::Cell => job.query_count.div_ceil(WARP),
            _ => job.query_count,
        }
    }

    /// Runs a kernel over the first `units` of a job.
    pub(super) fn launch(
        &self,
        stage: &Stage,
        mode: Mode,
        job: &mut Job,
        units: u64,
    ) -> Result<()> {
        let how = &self.session.how;
        let by_cell = how.cooperation == Cooperation::Cell;
        let queue = match how.schedule {
            Schedule::WorkQueue if mode != Mode::Work => Some(stage.array::<u32>(1)?),
            _ => None,
        };
        let all = self.query_count() as u64 / if by_cell { WARP } else { 1 };
        let share = units as f64 / all.max(1) as f64;
        let launches = how.launches(share);
        let step = units.div_ceil(launches).max(1);
        for first in (0..units).step_by(step as usize) {
            (job.first_unit, job.end_unit) = (first, units.min(first + step));
            let here = job.end_unit - first;
            let threads_per_unit = if by_cell { WARP } else { u64::from(job.threads_per_query) };
            let mut threads = here * threads_per_unit;
            if let Some(queue) = &queue {
                stage.fill(queue.piece(0..1), first as u32)?;
                job.head = queue.address();
                // As many as the device runs at once, and no more: they come back for more.
                threads = threads.min(stage.resident_threads());
            }
            let (family, kernel) = self.kernel(mode);
            let norm = norm(self.threshold.metric);
            let module = Module::join(family, float::<T>(), norm, job.dim);
            let args = Args::new().structure(&job.words());
            stage.launch(module, kernel, threads, args)?;
            if launches > 1 {
                stage.wait()?;
                self.session.check_cancelled()?;
                if mode != Mode::Work {
                    let done = share * here as f64 / units as f64;
                    // Whoever shares a join tells of the tests that were made.
                    let tests = if self.session.is_lane() { 0.0 } else { how.expected_tests };
                    self.session.add(tests * done, 0);
                }
            }
        }
        Ok(())
    }

    /// The family of the module, and the kernel.
    fn kernel(&self, mode: Mode) -> (Family, &'static str) {
        match (self.session.how.cooperation == Cooperation::Cell, mode) {
            (true, Mode::Count) => (Family::Count, "group_count"),
            (true, Mode::CountBoth) => (Family::Degrees, "group_degrees"),
            (true, Mode::Fill) => (Family::Fill, "group_fill"),
            (true, Mode::List) => (Family::List, "group_list"),
            (true, Mode::Work) => (Family::Query, "group_work"),
            (false, Mode::Count | Mode::CountBoth) => (Family::Query, "query_count"),
            (false, Mode::Fill) => (Family::Query, "query_fill"),
            (false, Mode::List) => (Family::Query, "query_list"),
            (false, Mode::Work) => (Family::Query, "query_work"),
        }
    }

    /// SORTBYWL: the units, those with most candidates first.
    fn order_by_work(&self, stage: &Stage, job: &Job, units: u64) -> Result<Array<u32>> {
        let work = stage.array::<u32>(units as usize)?;
        let mut job = job.clone();
        job.work = work.address();
        self.run(stage, Mode::Work, &job)?;
        // Ascending, as the sort does it, by what is left to the largest number.
        let args = Args::new().u64(work.address()).u64(units);
        stage.launch(Module::Rows(float::<T>()), "invert", units, args)?;
        Ok(sort_by_key(stage, work, None, 32)?.values)
    }
}
