//! The public door: options, the plan, and the run from top to bottom.

use core::fmt;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::exec::cpu::epsilon::CpuJoin;
use crate::exec::cpu::kernel::{Kernels, SimdLevel};
use crate::exec::pool::Pool;
use crate::filter::{Band, Filter};
use crate::index::layout::Making;
use crate::index::order::Order;
use crate::index::{Index, Layout, directory, ego, grid, order};
use crate::metric::{Metric, Threshold};
use crate::monitor::{self, Monitor, Phase};
use crate::options::{Device, DuplicateRemoval, GpuOptions, Strategy};
use crate::plan::{self, Decision, Detail, Shaping};
use crate::points::Points;
use crate::scalar::Scalar;
use crate::sink::{Count, Csr, CsrSink, Execution, Sink};
use crate::stats::Stats;
use crate::summary::{Effort, Summary};

mod gpu;

use gpu::GpuPlan;

/// The ε-join: all pairs of points within a distance ε of each other.
///
/// ```
/// use nearjoin::{EpsJoin, Metric, Points, sink::CsrSink};
///
/// let data = [0.0f32, 0.0, 1.0, 1.0, 2.0, 2.0];
/// let points = Points::new(&data, 2)?;
/// let plan = EpsJoin::new(2.0).metric(Metric::L1).plan_self(&points)?;
/// println!("{plan}");                     // what will be done, and why
///
/// let mut sink = CsrSink::new().sorted(true).distances(true);
/// let stats = plan.run(&mut sink)?;
/// let csr = sink.into_csr();
/// assert_eq!(csr.neighbors(1), [0, 2]);
/// assert_eq!(csr.distances(1), Some(&[2.0f32, 2.0][..]));
/// assert_eq!(stats.pairs, 4);
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct EpsJoin {
    eps: f64,
    metric: Metric,
    device: Device,
    strategy: Strategy,
    removal: DuplicateRemoval,
    include_self: bool,
    threads: Option<usize>,
    memory_limit: Option<u64>,
    directory_levels: usize,
    directory_fanout: usize,
    gpu: GpuOptions,
    monitor: Option<Monitor>,
}

impl EpsJoin {
    /// A join within distance `eps`, 0 or more. A pair at exactly ε matches; ε = 0 finds
    /// duplicates. For `f32` points ε is rounded to `f32` first.
    pub fn new(eps: f64) -> Self {
        EpsJoin {
            eps,
            metric: Metric::L2,
            device: Device::Auto,
            strategy: Strategy::Auto,
            removal: DuplicateRemoval::LidUnicomp,
            include_self: false,
            threads: None,
            memory_limit: None,
            directory_levels: 3,
            directory_fanout: 16,
            gpu: GpuOptions::new(),
            monitor: None,
        }
    }

    /// The distance. Default: [`Metric::L2`].
    pub fn metric(mut self, metric: Metric) -> Self {
        self.metric = metric;
        self
    }

    /// Where to run. Default: [`Device::Auto`].
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// How to find candidates. Default: [`Strategy::Auto`].
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// How sinks that profit avoid testing a pair twice. Default:
    /// [`DuplicateRemoval::LidUnicomp`].
    pub fn duplicate_removal(mut self, removal: DuplicateRemoval) -> Self {
        self.removal = removal;
        self
    }

    /// Whether, in a self-join, each point is its own neighbour. Default: no. Duplicates
    /// of a point are its neighbours either way.
    pub fn include_self(mut self, include: bool) -> Self {
        self.include_self = include;
        self
    }

    /// Number of threads. Default: those of rayon's global pool, one per core.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Bytes that the join may use beside its input. Default: four fifths of what is
    /// free when it is planned.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Levels and fan-out of [`Strategy::Directory`]. Default: 3 levels of 16.
    pub fn directory(mut self, levels: usize, fanout: usize) -> Self {
        self.directory_levels = levels;
        self.directory_fanout = fanout;
        self
    }

    /// How a GPU goes about it. Default: as the plan expects to be fastest.
    pub fn gpu(mut self, options: GpuOptions) -> Self {
        self.gpu = options;
        self
    }

    /// Lets another thread watch the join, and stop it. Default: nobody watches.
    pub fn monitor(mut self, monitor: &Monitor) -> Self {
        self.monitor = Some(monitor.clone());
        self
    }

    /// Plans the join of a set with itself.
    ///
    /// # Errors
    /// If ε or an option is out of range, or the device is not available.
    pub fn plan_self<'a, T: Scalar>(&self, points: &Points<'a, T>) -> Result<Plan<'a, T>> {
        self.plan_sides(*points, None)
    }

    /// Plans the join of two sets: for each left point, its neighbours on the right.
    ///
    /// # Errors
    /// As for [`EpsJoin::plan_self`], or if the dimensions differ.
    pub fn plan<'a, T: Scalar>(
        &self,
        left: &Points<'a, T>,
        right: &Points<'a, T>,
    ) -> Result<Plan<'a, T>> {
        left.check_dimension(right)?;
        self.plan_sides(*left, Some(*right))
    }

    fn plan_sides<'a, T: Scalar>(
        &self,
        left: Points<'a, T>,
        right: Option<Points<'a, T>>,
    ) -> Result<Plan<'a, T>> {
        let start = Instant::now();
        self.check_options()?;
        monitor::enter(&self.monitor, Phase::Planning);
        let threshold = Threshold::new(self.metric, self.eps)?;
        let simd = SimdLevel::detect()?;
        let pool = Pool::new(self.threads)?;
        let shaping = Shaping {
            levels: self.directory_levels,
            fanout: self.directory_fanout,
            whole_cells: self.removal == DuplicateRemoval::Unicomp,
        };
        let on_gpu = self.device == Device::Gpu;
        let effort = if on_gpu { gpu::effort::<T>() } else { Effort::FULL };
        let summary = pool.install(|| Summary::new(left, right, &threshold, effort));
        let (decision, gpu, why_not) = match on_gpu {
            true => {
                let (decision, gpu) = gpu::decide(self, gpu::open(self)?, &summary, shaping)?;
                (decision, Some(gpu), None)
            }
            false => {
                let limit = self.memory_limit;
                let decision =
                    plan::decide(&summary, self.strategy, shaping, limit, pool.threads());
                gpu::consider(self, &summary, shaping, decision)?
            }
        };
        let planning = start.elapsed();
        let options = self.clone();
        Ok(Plan { options, left, right, threshold, simd, pool, decision, gpu, why_not, planning })
    }

    /// Whether ε and the options are in range and the device is there: what a plan would
    /// say, before there are points.
    ///
    /// ```
    /// use nearjoin::{Device, EpsJoin};
    /// assert!(EpsJoin::new(0.5).check::<f32>().is_ok());
    /// assert!(EpsJoin::new(-1.0).check::<f32>().is_err());
    /// ```
    ///
    /// # Errors
    /// As for [`EpsJoin::plan_self`].
    pub fn check<T: Scalar>(&self) -> Result<()> {
        Threshold::<T>::new(self.metric, self.eps)?;
        self.check_options()
    }

    fn check_options(&self) -> Result<()> {
        gpu::check(self)?;
        if !Strategy::EPSILON.contains(&self.strategy) {
            let known = Strategy::EPSILON;
            return Err(Error::Strategy { strategy: self.strategy, known });
        }
        check_threads(self.threads)?;
        if !(1..=8).contains(&self.directory_levels) {
            let value = self.directory_levels;
            return Err(Error::Option { name: "directory levels", value, allowed: "1 to 8" });
        }
        let parts = self.directory_fanout.checked_pow(self.directory_levels as u32);
        if self.directory_fanout < 2 || parts.is_none_or(|parts| parts > 1 << 24) {
            let allowed = "2 or more, with at most 2^24 parts over all levels";
            return Err(Error::Option {
                name: "directory fan-out",
                value: self.directory_fanout,
                allowed,
            });
        }
        Ok(())
    }
}

/// Whether there are some threads, and not too many: beyond, starting them takes longer than
/// any join that they could help.
pub(crate) fn check_threads(threads: Option<usize>) -> Result<()> {
    match threads.filter(|threads| !(1..=1024).contains(threads)) {
        Some(value) => Err(Error::Option { name: "threads", value, allowed: "1 to 1024" }),
        None => Ok(()),
    }
}

/// A join that is decided but not run. It borrows the points.
///
/// `Display` explains the choice: the strategy with the estimated cost of each
/// alternative, the shape of the index, the expected result and the memory.
pub struct Plan<'a, T> {
    options: EpsJoin,
    left: Points<'a, T>,
    right: Option<Points<'a, T>>,
    threshold: Threshold<T>,
    simd: SimdLevel,
    pool: Pool,
    decision: Decision,
    /// How a GPU will do it, if one will.
    gpu: Option<GpuPlan>,
    /// Why none will although it might.
    why_not: Option<String>,
    planning: Duration,
}

impl<T: Scalar> Plan<'_, T> {
    /// The strategy that will run: never [`Strategy::Auto`].
    pub fn strategy(&self) -> Strategy {
        self.decision.chosen.strategy
    }

    /// Where the join will run: never [`Device::Auto`].
    pub fn device(&self) -> Device {
        if self.gpu.is_some() { Device::Gpu } else { Device::Cpu }
    }

    /// Why a GPU that could have been used will not be, in a sentence: there is none, or the
    /// join is too small to be worth it. None where the device was named.
    pub fn why_no_gpu(&self) -> Option<&str> {
        self.why_not.as_deref()
    }

    /// The instruction set that will be used.
    pub fn simd(&self) -> SimdLevel {
        self.simd
    }

    /// The estimated number of ordered pairs.
    pub fn estimated_pairs(&self) -> f64 {
        self.decision.pairs()
    }

    /// What each strategy would cost, the cheapest first: of these the plan has chosen.
    pub fn estimates(&self) -> Vec<Estimate> {
        let estimate =
            |(strategy, seconds, distance_tests)| Estimate { strategy, seconds, distance_tests };
        match &self.gpu {
            Some(_) => gpu::costs(&self.decision).map(estimate).collect(),
            None => self.decision.costs().map(estimate).collect(),
        }
    }

    /// Seconds that indexing and counting will take, and indexing and listing all neighbours
    /// as CSR: right to a factor of about two.
    pub fn estimated_seconds(&self) -> (f64, f64) {
        match &self.gpu {
            Some(_) => gpu::seconds(&self.decision),
            None => self.decision.seconds(),
        }
    }

    /// The shape of the index, line by line.
    pub fn index_shape(&self) -> Vec<String> {
        self.decision.shape()
    }

    /// Threads that will work.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Bytes that the index will take at the most while it is built.
    pub fn index_bytes(&self) -> u64 {
        self.decision.budget.index
    }

    /// Bytes that the join may use beside its input.
    pub fn memory_limit(&self) -> u64 {
        self.decision.budget.limit
    }

    /// Whether the index fits the memory limit: what [`Plan::run`] would say first.
    ///
    /// # Errors
    /// If it does not.
    pub fn check_memory(&self) -> Result<()> {
        // The index of a GPU is not in this memory.
        if self.gpu.is_some() { Ok(()) } else { self.decision.budget.check_index() }
    }

    /// Builds the index, joins, and fills the sink. A plan can be run again.
    ///
    /// # Errors
    /// If the index or the result does not fit the memory limit, the system refuses
    /// memory, or the sink stops the join.
    pub fn run<S: Sink<T>>(&self, sink: &mut S) -> Result<Stats> {
        let monitor = &self.options.monitor;
        self.check_memory()?;
        monitor::check(monitor)?;
        let start = Instant::now();
        monitor::enter(monitor, Phase::Indexing);
        if let Some(gpu) = &self.gpu {
            return gpu.run(self, sink, start);
        }
        let join = self.pool.install(|| self.index())?;
        let mut stats = self.stats(start.elapsed(), join.bytes() as u64);

        monitor::check(monitor)?;
        let start = Instant::now();
        sink.receive(&mut Execution {
            executor: &join,
            pool: &self.pool,
            queries: join.queries().len(),
            is_self: self.right.is_none(),
            include_self: self.options.include_self,
            expected_pairs: self.estimated_pairs(),
            spare: self.spare(join.bytes()),
            budget: self.decision.budget,
            stats: &mut stats,
        })?;
        monitor::check(monitor)?;
        stats.execute = start.elapsed();
        Ok(stats)
    }

    /// Sorts the points and builds what finds candidates among them.
    fn index(&self) -> Result<CpuJoin<'_, T>> {
        let kernels = Kernels::new(self.simd, self.options.metric, self.decision.dim);
        let narrow = kernels.filter.and_then(|_| self.narrow());
        let making = Making {
            narrow: narrow.as_ref().map(|narrow| (&narrow.origin[..], narrow.spread)),
            boxes: self.worth_boxing(),
        };
        let layout = |points, order| Layout::new(points, order, making);
        let right = self.right.unwrap_or(self.left);
        let other = self.right.map(|_| self.left);
        let (index, right, left) = match &self.decision.chosen.detail {
            Detail::Brute => {
                let left = other.map(|left| layout(left, Order::Ids(order::identity(left.len())?)));
                (Index::Brute, layout(right, Order::Ids(order::identity(right.len())?))?, left)
            }
            Detail::Directory(shape) => {
                let left =
                    other.map(|left| layout(left, Order::Ids(directory::sort(left, shape)?)));
                let ids = directory::sort(right, shape)?;
                let ordered = &ids[..right.len()];
                let directory = directory::Directory::new(shape.clone(), right, ordered);
                (Index::Directory(directory), layout(right, Order::Ids(ids))?, left)
            }
            Detail::Grid(shape) => {
                let left = other.map(|left| grid::Side::new(left, shape)).transpose()?;
                let side = grid::Side::new(right, shape)?;
                let (grid, order, left_order) = grid::Grid::new(shape.clone(), side, left);
                let left = other.zip(left_order).map(|(left, order)| layout(left, order));
                (Index::Grid(grid), layout(right, order)?, left)
            }
            Detail::Ego(dims) => {
                let sort = |points| ego::sort(points, self.threshold.reach, dims).map(Order::Ids);
                let left = other.map(|left| layout(left, sort(left)?));
                (Index::Ego, layout(right, sort(right)?)?, left)
            }
        };
        let left = left.transpose()?;
        let unit = unit(left.as_ref().unwrap_or(&right).len());
        Ok(CpuJoin {
            pool: &self.pool,
            threshold: self.threshold,
            kernels,
            index,
            left,
            right,
            include_self: self.options.include_self,
            narrow: narrow.map(|narrow| narrow.band),
            removal: self.options.removal,
            unit,
            monitor: self.options.monitor.as_ref(),
        })
    }

    /// Columns in `f32` relative to the middle of the domain, unless that is too large
    /// beside ε. UNICOMP asks for the exact cell of a point, which they cannot tell.
    fn narrow(&self) -> Option<Narrow> {
        if self.options.removal == DuplicateRemoval::Unicomp {
            return None;
        }
        let middle = |(lo, hi): &(f64, f64)| lo + (hi - lo) / 2.0;
        let origin = self.decision.extents.iter().map(middle).collect();
        let half = |(lo, hi): &(f64, f64)| (hi - lo) / 2.0;
        let spread = self.decision.extents.iter().map(half).fold(0.0, f64::max);
        let band = Filter::new(&self.threshold, self.decision.dim)?
            .narrow_band(spread, self.decision.neighbors)?;
        Some(Narrow { origin, spread, band })
    }

    /// Whether boxes pay. The recursive join lives by them. Elsewhere they take whole
    /// blocks where neighbourhoods are large; and brute force and the directory have
    /// nothing else to skip points by, if there are enough of them.
    fn worth_boxing(&self) -> bool {
        match self.decision.chosen.strategy {
            Strategy::Ego => true,
            Strategy::Grid => self.decision.neighbors > 64.0,
            _ => self.decision.points.1 >= 1024,
        }
    }

    /// Of three times the input, which an index may use, the bytes that this one leaves;
    /// and no more than lets a result of that size stand twice within the limit.
    fn spare(&self, index: usize) -> u64 {
        let right = self.right.map_or(0, |right| size_of_val(right.as_slice()));
        let input = size_of_val(self.left.as_slice()) + right;
        let budget = &self.decision.budget;
        let left = budget.limit.saturating_sub(budget.index) / 2;
        left.min((3 * input).saturating_sub(index) as u64)
    }

    fn stats(&self, index: Duration, index_bytes: u64) -> Stats {
        Stats {
            points: self.decision.points,
            dimension: self.decision.dim,
            strategy: self.strategy(),
            simd: self.simd,
            threads: self.pool.threads(),
            pairs: 0,
            distance_tests: 0,
            pairs_taken: 0,
            plan: self.planning,
            index,
            execute: Duration::ZERO,
            index_bytes,
            result_bytes: 0,
            gpu: None,
        }
    }
}

impl<T: Scalar> fmt::Display for Plan<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ε = {} ({}, {}) on the ", self.threshold.eps, self.options.metric, T::NAME)?;
        if let Some(gpu) = &self.gpu {
            return gpu.explain(&self.decision, f);
        }
        writeln!(f, "cpu: {} threads, {} kernels", self.pool.threads(), self.simd)?;
        if let Some(why) = &self.why_not {
            writeln!(f, "no gpu: {why}")?;
        }
        self.decision.fmt(f)
    }
}

impl<T: Scalar> fmt::Debug for Plan<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("options", &self.options)
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}

/// What a strategy is expected to cost: right to a factor of about two, which is enough to
/// choose by.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// The strategy.
    pub strategy: Strategy,
    /// Seconds to index the points and to count their neighbours.
    pub seconds: f64,
    /// Distances that would be computed.
    pub distance_tests: f64,
}

/// Narrow columns: their origin, the largest distance from it, and ε in their terms.
struct Narrow {
    origin: Vec<f64>,
    spread: f64,
    band: Band<f32>,
}

/// Queries per unit of work: enough units to balance the threads, and a whole block of
/// boxes in each. It does not depend on the number of threads, since blocks end where units
/// do, and with them the order within a row.
fn unit(queries: usize) -> usize {
    match queries {
        0x10_0000.. => 4096,
        0x4000.. => 256,
        _ => 16,
    }
}

/// The neighbours within ε of every point, as CSR.
///
/// ```
/// let points = nearjoin::Points::new(&[0.0, 1.0, 1.5], 1)?;
/// let csr = nearjoin::eps_join(&points, 1.0)?;
/// assert_eq!(csr.offsets(), [0, 1, 3, 4]);
/// # Ok::<(), nearjoin::Error>(())
/// ```
///
/// # Errors
/// If ε is not a distance, or the result does not fit the memory.
pub fn eps_join<T: Scalar>(points: &Points<'_, T>, eps: f64) -> Result<Csr<T>> {
    let mut sink = CsrSink::new();
    EpsJoin::new(eps).plan_self(points)?.run(&mut sink)?;
    Ok(sink.into_csr())
}

/// The neighbours on the right within ε of every point on the left, as CSR.
///
/// ```
/// use nearjoin::{Points, eps_join_between};
/// let stars = Points::new(&[0.0, 10.0], 1)?;
/// let catalogue = Points::new(&[9.5, 0.25, 10.25], 1)?;
/// let mut rows: Vec<Vec<u32>> =
///     eps_join_between(&stars, &catalogue, 0.5)?.iter().map(|row| row.to_vec()).collect();
/// rows[1].sort();
/// assert_eq!(rows, [vec![1], vec![0, 2]]);
/// # Ok::<(), nearjoin::Error>(())
/// ```
///
/// # Errors
/// As for [`eps_join`], or if the dimensions differ.
pub fn eps_join_between<T: Scalar>(
    left: &Points<'_, T>,
    right: &Points<'_, T>,
    eps: f64,
) -> Result<Csr<T>> {
    let mut sink = CsrSink::new();
    EpsJoin::new(eps).plan(left, right)?.run(&mut sink)?;
    Ok(sink.into_csr())
}

/// The number of ordered pairs of different points within ε of each other.
///
/// ```
/// let points = nearjoin::Points::new(&[0.0, 1.0, 1.5], 1)?;
/// assert_eq!(nearjoin::count_pairs(&points, 1.0)?, 4);
/// # Ok::<(), nearjoin::Error>(())
/// ```
///
/// # Errors
/// If ε is not a distance, or the index does not fit the memory.
pub fn count_pairs<T: Scalar>(points: &Points<'_, T>, eps: f64) -> Result<u64> {
    let mut sink = Count::new();
    EpsJoin::new(eps).plan_self(points)?.run(&mut sink)?;
    Ok(sink.pairs())
}
