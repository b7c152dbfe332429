//! The ε-join on the device: counting, and laying out rows.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;

use nearjoin_kernels as kernels;

use super::batches::SAMPLED;
use super::device::{Array, Device, Stage};
use super::driver::{self, Args};
use super::index::{Builder, Making, Ordered, Shape, Table};
use super::job::{Finder, Job, Pattern};
use super::ring;
use super::sort::sort_by_key;
use super::tuning::Tuning;
use crate::error::{Error, Result};
use crate::exec::pool::Pool;
use crate::exec::{Emit, Executor, LaidOut, Request, Work};
use crate::filter::Band;
use crate::metric::Threshold;
use crate::monitor::{Monitor, Phase};
use crate::options::{Cooperation, DuplicateRemoval, Schedule};
use crate::points::Points;
use crate::scalar::Scalar;
use crate::stats::GpuStats;

/// The queries of a unit of the cell-cooperative kernels: those of a warp.
const WARP: u64 = 32;
/// Distance tests of one launch, at about which another one begins: some tenths of a second of a
/// large GPU, so that a join can be watched and stopped. More launches would leave more of the
/// device idle, while the last warps of each are busy.
const LAUNCH: f64 = 4e11;
/// Bytes of the pieces in which arrays of counts and offsets cross the bus.
const ARRAY_CHUNK: usize = 8 << 20;

/// What a join on a device needs to know.
pub(crate) struct Setup<'a, T> {
    pub(crate) pool: &'a Pool,
    pub(crate) device: Device,
    pub(crate) threshold: Threshold<T>,
    pub(crate) shape: Shape,
    pub(crate) left: Points<'a, T>,
    pub(crate) right: Option<Points<'a, T>>,
    pub(crate) include_self: bool,
    pub(crate) removal: DuplicateRemoval,
    /// Narrow points: their origin, and ε in their terms.
    pub(crate) narrow: Option<(Vec<f64>, Band<f32>)>,
    pub(crate) tuning: Tuning,
    pub(crate) monitor: Option<&'a Monitor>,
    /// Distance tests that are expected, of all queries.
    pub(crate) expected_tests: f64,
    pub(crate) expected_pairs: f64,
}

/// The rows of the whole input that the points here are.
pub(crate) struct Ids {
    pub(crate) left: Vec<u32>,
    pub(crate) right: Vec<u32>,
    /// Whether the whole input is one set, joined with itself.
    pub(crate) same: bool,
}

/// A join whose index is on the device.
pub(crate) struct GpuJoin<'a, T> {
    pub(super) setup: Setup<'a, T>,
    left: Option<Ordered<T>>,
    right: Ordered<T>,
    table: Table<T>,
    /// Whether both sides are parts of one set that is joined with itself.
    parts_of_one: bool,
    stats: Mutex<GpuStats>,
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

impl From<driver::Fault> for Error {
    fn from(fault: driver::Fault) -> Self {
        Error::Device { device: "gpu", reason: fault.to_string() }
    }
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
        let values = stage.read(&self.array, 4)?;
        Ok([values[0], values[1], values[2], values[3]])
    }
}

impl<'a, T: Scalar> GpuJoin<'a, T> {
    /// Copies the points to the device and indexes them there.
    ///
    /// `ids` are the rows of the whole input, where only some of it is here.
    pub(crate) fn new(setup: Setup<'a, T>, ids: Option<Ids>) -> driver::Result<Self> {
        let stage = setup.device.stage(0);
        let origin = setup.narrow.as_ref().map(|(origin, _)| origin.clone());
        let parts_of_one = ids.as_ref().is_some_and(|ids| ids.same);
        let (left_ids, right_ids) = ids.map(|ids| (ids.left, ids.right)).unzip();
        let side = |points, ids| {
            let making = Making { origin: origin.clone(), ids, boxes: setup.tuning.boxes };
            Builder { stage: &stage, points, making }.build(&setup.shape)
        };
        let (right, table) = side(setup.right.unwrap_or(setup.left), right_ids)?;
        let left = match setup.right {
            Some(_) => Some(side(setup.left, left_ids)?.0),
            None => None,
        };
        stage.finish()?;
        let coordinate = size_of::<T>() as u64;
        let points = (setup.left.len() + setup.right.map_or(0, |right| right.len())) as u64;
        let stats = GpuStats {
            device: setup.device.driver.properties().name.clone(),
            cooperation: setup.tuning.cooperation,
            threads_per_query: setup.tuning.threads_per_query,
            schedule: setup.tuning.schedule,
            partitions: 1,
            bytes_in: points * setup.left.dimension() as u64 * coordinate,
            ..GpuStats::default()
        };
        Ok(GpuJoin { setup, left, right, table, parts_of_one, stats: Mutex::new(stats) })
    }

    /// What the device has done so far.
    pub(crate) fn stats(&self) -> GpuStats {
        self.stats.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Bytes of the index on the device.
    pub(crate) fn bytes(&self) -> usize {
        self.right.bytes() + self.left.as_ref().map_or(0, Ordered::bytes) + self.table.bytes()
    }

    /// The points that ask.
    fn queries(&self) -> &Ordered<T> {
        self.left.as_ref().unwrap_or(&self.right)
    }

    pub(super) fn len(&self) -> usize {
        self.queries().len()
    }

    pub(super) fn is_self(&self) -> bool {
        self.left.is_none()
    }

    /// Whether points find themselves and should not: in a self-join, or where both sides are
    /// parts of one set.
    fn excludes_self(&self) -> bool {
        (self.is_self() || self.parts_of_one) && !self.setup.include_self
    }

    pub(super) fn record(&self, change: impl FnOnce(&mut GpuStats)) {
        change(&mut self.stats.lock().unwrap_or_else(|e| e.into_inner()));
    }

    pub(super) fn check_cancelled(&self) -> Result<()> {
        match self.setup.monitor {
            Some(monitor) if monitor.is_cancelled() => Err(Error::Cancelled),
            _ => Ok(()),
        }
    }

    pub(super) fn job(&self) -> Job {
        let threshold = &self.setup.threshold;
        let dim = self.setup.left.dimension();
        let band = self.setup.narrow.as_ref().map(|(_, band)| *band);
        let mut job = Job {
            left: self.queries().side(),
            left_rows: self.queries().rows().address(),
            right: self.right.side(),
            right_boxes: self.right.boxes(),
            dim,
            bound: threshold.bound.to_f64(),
            sure: band.map_or(0.0, |band| f64::from(band.sure)),
            maybe: band.map_or(0.0, |band| f64::from(band.maybe)),
            reach: threshold.reach,
            limit: threshold.band(dim).1,
            loose: self.setup.tuning.loose,
            finder: Finder::Brute,
            pattern: Pattern::Each,
            exclude_self: self.excludes_self(),
            axes: Vec::new(),
            starts: 0,
            cells: 0,
            cell_count: 0,
            fanout: 0,
            part_lo: 0,
            part_hi: 0,
            level_dims: Vec::new(),
            queries: 0,
            query_count: self.len() as u64,
            units: 0,
            first_unit: 0,
            end_unit: 0,
            head: 0,
            threads_per_query: self.setup.tuning.threads_per_query,
            mirror: false,
            tests: 0,
            pairs: 0,
            taken: 0,
            degrees: 0,
            offsets: 0,
            base: 0,
            cursors: 0,
            ids: 0,
            distances: 0,
            list: 0,
            list_distances: 0,
            capacity: 0,
            list_len: 0,
            work: 0,
        };
        self.table.describe(&mut job);
        job
    }

    /// The pattern that meets each unordered pair once, if the options allow it.
    pub(super) fn once(&self) -> Pattern {
        let by_query = self.setup.tuning.cooperation != Cooperation::Cell;
        match self.setup.removal {
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
        let units = self.units(job);
        let mut job = job.clone();
        if mode != Mode::Work && self.setup.tuning.schedule != Schedule::IndexOrder {
            job.units = self.order_by_work(stage, &job, units)?.address();
        }
        self.launch(stage, mode, &mut job, units)
    }

    /// Units of work of a job.
    fn units(&self, job: &Job) -> u64 {
        match self.setup.tuning.cooperation {
            Cooperation::Cell => job.query_count.div_ceil(WARP),
            _ => job.query_count,
        }
    }

    /// Runs a kernel over the first `units` of a job.
    fn launch(&self, stage: &Stage, mode: Mode, job: &mut Job, units: u64) -> Result<()> {
        let by_cell = self.setup.tuning.cooperation == Cooperation::Cell;
        let queue = match self.setup.tuning.schedule {
            Schedule::WorkQueue if mode != Mode::Work => Some(stage.array::<u32>(1)?),
            _ => None,
        };
        let all = self.len() as u64 / if by_cell { WARP } else { 1 };
        let share = units as f64 / all.max(1) as f64;
        let launches = (self.setup.expected_tests * share / LAUNCH).ceil().clamp(1.0, 1e6) as u64;
        let step = units.div_ceil(launches).max(1);
        for first in (0..units).step_by(step as usize) {
            (job.first_unit, job.end_unit) = (first, units.min(first + step));
            let here = job.end_unit - first;
            let threads_per_unit = if by_cell { WARP } else { u64::from(job.threads_per_query) };
            let mut threads = here * threads_per_unit;
            if let Some(queue) = &queue {
                stage.driver.fill(stage.stream, queue.address(), first as u32, 1)?;
                job.head = queue.address();
                // As many as the device runs at once, and no more: they come back for more.
                let properties = stage.driver.properties();
                threads = threads.min(u64::from(properties.multiprocessors) * 2048);
            }
            let (family, kernel) = self.kernel(mode);
            let metric = self.setup.threshold.metric.to_string();
            let module = kernels::epsilon(family, T::NAME, job.dim, &metric);
            let args = Args::new().structure(&job.words());
            stage.launch(module, kernel, threads, args)?;
            if launches > 1 {
                stage.driver.synchronize(stage.stream)?;
                self.check_cancelled()?;
                if let Some(monitor) = self.setup.monitor.filter(|_| mode != Mode::Work) {
                    let tests = self.setup.expected_tests * share * here as f64 / units as f64;
                    monitor.add(tests as u64, 0);
                }
            }
        }
        Ok(())
    }

    /// The family of the module, and the kernel.
    fn kernel(&self, mode: Mode) -> (&'static str, &'static str) {
        match (self.setup.tuning.cooperation == Cooperation::Cell, mode) {
            (true, Mode::Count) => ("count", "group_count"),
            (true, Mode::CountBoth) => ("count", "group_count_both"),
            (true, Mode::Fill) => ("fill", "group_fill"),
            (true, Mode::List) => ("list", "group_list"),
            (true, Mode::Work) => ("count", "group_work"),
            (false, Mode::Count | Mode::CountBoth) => ("query", "query_count"),
            (false, Mode::Fill) => ("query", "query_fill"),
            (false, Mode::List) => ("query", "query_list"),
            (false, Mode::Work) => ("query", "query_work"),
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
        stage.launch(kernels::rows(T::NAME), "invert", units, args)?;
        Ok(sort_by_key(stage, work, None, 32)?.values)
    }

    /// Enters a phase for whoever watches.
    pub(super) fn enter(&self, phase: Phase) {
        if let Some(monitor) = self.setup.monitor {
            monitor.enter(phase, self.setup.expected_tests.max(1.0) as u64);
        }
    }

    /// The neighbours of every row: `degrees` by row, on the device.
    pub(super) fn count_rows(
        &self,
        stage: &Stage,
        counters: &Counters,
        once: bool,
    ) -> Result<Array<u32>> {
        let degrees = stage.zeroed::<u32>(self.len() + 1)?;
        let mut job = self.job();
        counters.describe(&mut job);
        job.degrees = degrees.address();
        let mut mode = Mode::Count;
        if once {
            job.pattern = self.strictly_once();
        } else if self.mirrors() {
            job.pattern = self.once();
            job.mirror = true;
            mode = Mode::CountBoth;
            if self.setup.include_self {
                stage.driver.fill(stage.stream, degrees.address(), 1, self.len())?;
            }
        }
        self.run(stage, mode, &job)?;
        Ok(degrees)
    }

    /// Whether finding each pair once pays although both of its rows want it: where tests are
    /// many and matches few.
    pub(super) fn mirrors(&self) -> bool {
        self.is_self()
            && self.once() != Pattern::Each
            && self.setup.expected_tests > 8.0 * self.setup.expected_pairs
    }

    /// Whether pairs take so few tests that it is their way to the host that takes time.
    pub(super) fn is_easy(&self) -> bool {
        self.setup.expected_tests < 16.0 * self.setup.expected_pairs
    }

    pub(super) fn work(
        &self,
        stage: &Stage,
        counters: &Counters,
        pairs: Option<u64>,
    ) -> Result<Work> {
        let [tests, found, _, taken] = counters.read(stage)?;
        let work = Work { pairs: pairs.unwrap_or(found), tests, taken };
        if let Some(monitor) = self.setup.monitor {
            monitor.add(0, work.pairs);
        }
        Ok(work)
    }

    /// How many pairs all rows have together, by those of one unit of queries in a hundred,
    /// spread over the order of the index.
    pub(super) fn estimate_pairs(&self) -> Result<f64> {
        let stage = self.setup.device.stage(0);
        let counters = Counters::new(&stage)?;
        let mut job = self.job();
        counters.describe(&mut job);
        let units = self.units(&job);
        let sampled: Vec<u32> = (0..units as u32).step_by(SAMPLED).collect();
        let sample = stage.copy_of(&sampled)?;
        job.units = sample.address();
        self.launch(&stage, Mode::Count, &mut job, sampled.len() as u64)?;
        let [_, pairs, ..] = counters.read(&stage)?;
        Ok(pairs as f64 * units as f64 / sampled.len().max(1) as f64)
    }

    /// The sizes of one row in a hundred, ascending by row: (row, size).
    pub(super) fn sample_rows(&self) -> Result<Vec<(usize, u64)>> {
        const NOT_SAMPLED: u32 = u32::MAX;
        let stage = self.setup.device.stage(0);
        let counters = Counters::new(&stage)?;
        let sampled: Vec<u32> = (0..self.len() as u32).step_by(SAMPLED).collect();
        let queries = stage.copy_of(&sampled)?;
        let degrees = stage.array::<u32>(self.len())?;
        stage.driver.fill(stage.stream, degrees.address(), NOT_SAMPLED, self.len())?;
        let mut job = self.job();
        counters.describe(&mut job);
        job.degrees = degrees.address();
        (job.queries, job.query_count) = (queries.address(), sampled.len() as u64);
        // One thread to a row: then its size is stored, and not added to what is there.
        job.threads_per_query = 1;
        self.run(&stage, Mode::Count, &job)?;
        let rows = Mutex::new(Vec::new());
        self.land(&stage, degrees.address(), self.len(), |start, sizes: &[u32]| {
            let sizes = sizes.iter().enumerate().filter(|(_, size)| **size != NOT_SAMPLED);
            let sizes = sizes.map(|(at, size)| (start + at, u64::from(*size)));
            rows.lock().unwrap_or_else(|e| e.into_inner()).extend(sizes);
        })?;
        let mut rows = rows.into_inner().unwrap_or_else(|e| e.into_inner());
        rows.sort_unstable();
        Ok(rows)
    }

    /// Points that may be neighbours.
    pub(super) fn right_len(&self) -> usize {
        self.right.len()
    }

    /// Bytes of the pieces in which a result crosses the bus, as the model says, or the
    /// options.
    pub(super) fn chunk(&self, total: u64) -> usize {
        let kept = self.setup.device.driver.kept_host_memory();
        let (chunk, seconds) = self.setup.tuning.chunk(total, kept);
        self.record(|stats| {
            stats.chunk_bytes = chunk;
            stats.predicted_seconds = seconds;
        });
        chunk
    }

    /// Brings numbers of the device to the host: see [`ring::land`].
    pub(super) fn land<V: bytemuck::Pod + Send + Sync>(
        &self,
        stage: &Stage,
        address: u64,
        len: usize,
        take: impl Fn(usize, &[V]) + Sync,
    ) -> Result<()> {
        let chunk = self.setup.tuning.chunk.unwrap_or(ARRAY_CHUNK);
        let bytes = ring::land(stage, self.setup.pool, chunk, address, len, take)?;
        self.record(|stats| stats.bytes_out += bytes);
        Ok(())
    }
}

impl<T: Scalar> Executor<T> for GpuJoin<'_, T> {
    fn count(&self) -> Result<Work> {
        self.enter(Phase::Counting);
        self.check_cancelled()?;
        let stage = self.setup.device.stage(0);
        let counters = Counters::new(&stage)?;
        let mut job = self.job();
        counters.describe(&mut job);
        if self.is_self() {
            job.pattern = self.once();
        }
        self.run(&stage, Mode::Count, &job)?;
        let mut work = self.work(&stage, &counters, None)?;
        if job.pattern != Pattern::Each {
            let own = if self.setup.include_self { self.len() as u64 } else { 0 };
            work.pairs = 2 * work.pairs + own;
        }
        Ok(work)
    }

    fn degrees(&self, degrees: &[AtomicU64]) -> Result<Work> {
        self.enter(Phase::Counting);
        self.check_cancelled()?;
        let stage = self.setup.device.stage(0);
        let counters = Counters::new(&stage)?;
        let counted = self.count_rows(&stage, &counters, false)?;
        let pairs = AtomicU64::new(0);
        self.land(&stage, counted.address(), self.len(), |start, sizes: &[u32]| {
            let mut sum = 0;
            for (to, &size) in degrees[start..].iter().zip(sizes) {
                to.store(u64::from(size), Relaxed);
                sum += u64::from(size);
            }
            pairs.fetch_add(sum, Relaxed);
        })?;
        self.work(&stage, &counters, Some(pairs.into_inner()))
    }

    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        self.hand_out(request, emit)
    }

    fn workers(&self) -> usize {
        1
    }

    fn makes_blocks(&self) -> bool {
        true
    }

    fn lay_out(
        &self,
        request: Request,
        offsets: &mut [u64],
    ) -> Option<Result<Box<dyn LaidOut<T> + '_>>> {
        let found = self.find_rows(request).and_then(|found| {
            found.land_offsets(offsets)?;
            Ok(Box::new(found) as Box<dyn LaidOut<T>>)
        });
        Some(found)
    }
}
