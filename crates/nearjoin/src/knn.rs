//! The door of the KNN-join: options, the plan, and the run from top to bottom.

use core::fmt;
use core::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::exec::cpu::kernel::{NearestKernels, SimdLevel};
use crate::exec::cpu::knn::{CpuKnn, Finding};
use crate::exec::cpu::sieve::Sieve;
use crate::exec::pool::Pool;
use crate::index::{Leaves, Rings, order, rings, tree};
use crate::join::{Estimate, check_threads};
use crate::metric::{Metric, Threshold};
use crate::monitor::{self, Monitor, Phase};
use crate::options::{Device, Strategy};
use crate::plan::knn::{Decision, Question, Trial};
use crate::points::{Points, PointsBuf};
use crate::scalar::Scalar;
use crate::sink::{Block, Callback, Execution, KnnSink, Neighbors};
use crate::stats::Stats;
use crate::summary::{extents, spread};

/// The KNN-join: the k nearest points of each point.
///
/// Neighbours ascend by distance, and those at the same distance by id: the answer is the same
/// on every strategy, thread count and instruction set.
///
/// ```
/// use nearjoin::{KnnJoin, Points, sink::Neighbors};
///
/// let data = [0.0f32, 0.0, 1.0, 0.0, 0.0, 2.0, 5.0, 5.0];
/// let points = Points::new(&data, 2)?;
/// let plan = KnnJoin::new(2).plan_self(&points)?;
/// println!("{plan}");                     // what will be done, and why
///
/// let mut neighbors = Neighbors::new();
/// plan.run(&mut neighbors)?;
/// assert_eq!(neighbors.ids_of(0), [1, 2]);
/// assert_eq!(neighbors.distances_of(0), [1.0, 2.0]);
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct KnnJoin {
    k: usize,
    metric: Metric,
    device: Device,
    strategy: Strategy,
    include_self: bool,
    max_distance: Option<f64>,
    pad: bool,
    threads: Option<usize>,
    memory_limit: Option<u64>,
    monitor: Option<Monitor>,
}

impl KnnJoin {
    /// A join with the `k` nearest, 1 or more.
    pub fn new(k: usize) -> Self {
        KnnJoin {
            k,
            metric: Metric::L2,
            device: Device::Auto,
            strategy: Strategy::Auto,
            include_self: false,
            max_distance: None,
            pad: false,
            threads: None,
            memory_limit: None,
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

    /// How to find candidates: one of [`Strategy::KNN`]. [`Strategy::Tree`] copes with points of
    /// every kind; [`Strategy::Grid`] is for points spread evenly in one to three dimensions;
    /// [`Strategy::Brute`] compares all. Default: [`Strategy::Auto`].
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Whether, in a self-join, each point is its own neighbour. Default: no. Duplicates of
    /// a point are its neighbours either way.
    pub fn include_self(mut self, include: bool) -> Self {
        self.include_self = include;
        self
    }

    /// No neighbours farther away than this; one at exactly this distance is a neighbour.
    /// Rows may then be shorter than k, or empty. Default: none.
    pub fn max_distance(mut self, distance: f64) -> Self {
        self.max_distance = Some(distance);
        self
    }

    /// Whether k may be more than there are points to be neighbours: rows are then shorter,
    /// and dense arrays padded. Default: no, that is an error.
    pub fn pad(mut self, pad: bool) -> Self {
        self.pad = pad;
        self
    }

    /// Number of threads. Default: those of rayon's global pool, one per core.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Bytes that the join may use beside its input. Default: four fifths of what is free
    /// when it is planned.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
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
    /// If k or an option is out of range, k is more than there are other points and padding is
    /// not asked for, or the device is not available.
    pub fn plan_self<'a, T: Scalar>(&self, points: &Points<'a, T>) -> Result<KnnPlan<'a, T>> {
        self.plan_sides(*points, None)
    }

    /// Plans the join of two sets: for each left point, its nearest on the right.
    ///
    /// # Errors
    /// As for [`KnnJoin::plan_self`], or if the dimensions differ.
    pub fn plan<'a, T: Scalar>(
        &self,
        left: &Points<'a, T>,
        right: &Points<'a, T>,
    ) -> Result<KnnPlan<'a, T>> {
        left.check_dimension(right)?;
        self.plan_sides(*left, Some(*right))
    }

    /// Whether k and the options are in range and the device is there: what a plan would say,
    /// before there are points.
    ///
    /// # Errors
    /// As for [`KnnJoin::plan_self`].
    pub fn check<T: Scalar>(&self) -> Result<()> {
        Threshold::<T>::new(self.metric, self.max_distance.unwrap_or(0.0))?;
        if let Device::Gpu | Device::Hybrid = self.device {
            let device = if self.device == Device::Gpu { "gpu" } else { "hybrid" };
            let reason = "this version has no KNN-join for GPUs; use auto or cpu".into();
            return Err(Error::Device { device, reason });
        }
        if !Strategy::KNN.contains(&self.strategy) {
            let known = Strategy::KNN;
            return Err(Error::Strategy { strategy: self.strategy, known });
        }
        check_threads(self.threads)?;
        if self.k == 0 {
            return Err(Error::Option { name: "k", value: 0, allowed: "1 or more" });
        }
        Ok(())
    }

    fn plan_sides<'a, T: Scalar>(
        &self,
        left: Points<'a, T>,
        right: Option<Points<'a, T>>,
    ) -> Result<KnnPlan<'a, T>> {
        let start = Instant::now();
        self.check::<T>()?;
        monitor::enter(&self.monitor, Phase::Planning);
        let candidates = right.unwrap_or(left).len();
        let own = usize::from(right.is_none() && !self.include_self && candidates > 0);
        // Nobody asks for neighbours of no points.
        if self.k > candidates - own && !self.pad && !left.is_empty() {
            return Err(Error::TooFewPoints { k: self.k, points: candidates - own });
        }
        let threshold = Threshold::new(self.metric, self.max_distance.unwrap_or(0.0))?;
        let simd = SimdLevel::detect()?;
        let pool = Pool::new(self.threads)?;
        let decision = Decision::new(
            &Question {
                k: self.k,
                points: (left.len(), candidates),
                is_self: right.is_none(),
                dim: left.dimension(),
                width: size_of::<T>(),
                metric: self.metric,
                trial: self.trial(left, right)?,
            },
            self.strategy,
            self.memory_limit,
            pool.threads(),
        );
        let planning = start.elapsed();
        let options = self.clone();
        Ok(KnnPlan { options, left, right, threshold, simd, pool, decision, planning })
    }

    /// Asks a tree over samples of the right for neighbours of a sample of the left.
    fn trial<T: Scalar>(
        &self,
        left: Points<'_, T>,
        right: Option<Points<'_, T>>,
    ) -> Result<Option<Trial>> {
        let right = right.unwrap_or(left);
        let most = (TRIAL_COORDINATES / left.dimension()).clamp(TRIAL / 16, TRIAL);
        // A sample of most points would be as good as a join.
        if right.len() <= 2 * most || left.is_empty() {
            return Ok(None);
        }
        let sample = |points: Points<'_, T>, of: usize| {
            PointsBuf::from_rows((0..of).map(|at| points.row(spread(at, of, points.len()))))
        };
        let queries = sample(left, (TRIAL_GROUPS * TRIAL_QUERIES).min(left.len()))?;
        let queries = queries.as_points();
        let k = self.k.min(TRIAL_K);
        let join = KnnJoin { k, strategy: Strategy::Tree, pad: true, ..self.clone() };
        let join = KnnJoin { monitor: None, memory_limit: None, threads: Some(1), ..join };
        let points = [most / 4, most];
        let mut tests = [0.0; 2];
        for (points, tests) in points.iter().zip(&mut tests) {
            let right = sample(right, *points)?;
            let right = right.as_points();
            // The group in the middle: a point far away from all others speaks for itself alone.
            let mut groups = Vec::new();
            for first in (0..queries.len()).step_by(TRIAL_QUERIES) {
                let group = queries.rows(first..queries.len().min(first + TRIAL_QUERIES));
                let mut ignore = Callback::new(|_: &Block<T>| ControlFlow::Continue(()));
                let stats = join.plan(&group, &right)?.run(&mut ignore)?;
                groups.push(stats.distance_tests as f64 / group.len() as f64);
            }
            groups.sort_by(f64::total_cmp);
            *tests = groups[groups.len() / 2];
        }
        Ok(Some(Trial { points, tests, k }))
    }
}

/// Points of the larger sample on which a tree is tried, and coordinates that it has at the
/// most; groups of queries, queries in each, and neighbours that they ask for.
const TRIAL: usize = 2048;
const TRIAL_COORDINATES: usize = 1 << 19;
const TRIAL_GROUPS: usize = 5;
const TRIAL_QUERIES: usize = 16;
const TRIAL_K: usize = 64;

/// A KNN-join that is decided but not run. It borrows the points.
///
/// `Display` explains the choice.
pub struct KnnPlan<'a, T> {
    options: KnnJoin,
    left: Points<'a, T>,
    right: Option<Points<'a, T>>,
    threshold: Threshold<T>,
    simd: SimdLevel,
    pool: Pool,
    decision: Decision,
    planning: Duration,
}

impl<T: Scalar> KnnPlan<'_, T> {
    /// The strategy that will run: never [`Strategy::Auto`].
    pub fn strategy(&self) -> Strategy {
        self.decision.strategy
    }

    /// The instruction set that will be used.
    pub fn simd(&self) -> SimdLevel {
        self.simd
    }

    /// Threads that will work.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Neighbours of all points together, if each has its k.
    pub fn estimated_pairs(&self) -> f64 {
        self.left.len() as f64 * self.options.k as f64
    }

    /// What each strategy would cost, the cheapest first: of these the plan has chosen. The
    /// seconds are those to index the points and to find their neighbours.
    pub fn estimates(&self) -> Vec<Estimate> {
        let estimate =
            |(strategy, seconds, distance_tests)| Estimate { strategy, seconds, distance_tests };
        self.decision.costs().map(estimate).collect()
    }

    /// The shape of the index, line by line.
    pub fn index_shape(&self) -> Vec<String> {
        self.decision.shape()
    }

    /// Bytes that the index will take at the most while it is built.
    pub fn index_bytes(&self) -> u64 {
        self.decision.budget.index
    }

    /// Bytes that the join may use beside its input.
    pub fn memory_limit(&self) -> u64 {
        self.decision.budget.limit
    }

    /// Whether the index fits the memory limit: what [`KnnPlan::run`] would say first.
    ///
    /// # Errors
    /// If it does not.
    pub fn check_memory(&self) -> Result<()> {
        self.decision.budget.check_index()
    }

    /// Builds the index, joins, and fills the sink. A plan can be run again.
    ///
    /// # Errors
    /// If the index or the result does not fit the memory limit, the system refuses memory,
    /// the sink stops the join, or a monitor cancels it.
    pub fn run<S: KnnSink<T>>(&self, sink: &mut S) -> Result<Stats> {
        let monitor = &self.options.monitor;
        self.check_memory()?;
        monitor::check(monitor)?;
        let start = Instant::now();
        monitor::enter(monitor, Phase::Indexing);
        let join = self.pool.install(|| self.index())?;
        let mut stats = self.stats(start.elapsed(), join.bytes() as u64);

        monitor::check(monitor)?;
        let start = Instant::now();
        let mut execution = Execution {
            executor: &join,
            pool: &self.pool,
            queries: join.queries().len(),
            is_self: self.right.is_none(),
            include_self: self.options.include_self,
            expected_pairs: self.estimated_pairs(),
            spare: self.decision.budget.limit.saturating_sub(self.decision.budget.index) / 2,
            budget: self.decision.budget,
            stats: &mut stats,
        };
        sink.receive_knn(&mut execution, self.options.k)?;
        monitor::check(monitor)?;
        stats.execute = start.elapsed();
        Ok(stats)
    }

    /// Puts the points in the order of a tree or of a grid, or leaves them as they are, and
    /// boxes them.
    fn index(&self) -> Result<CpuKnn<'_, T>> {
        let (left, right) = (self.left, self.right.unwrap_or(self.left));
        let (metric, dim) = (self.options.metric, left.dimension());
        let strategy = self.decision.strategy;
        let (finding, right_leaves) = match strategy {
            Strategy::Brute => {
                let leaves = Leaves::new(right, order::identity(right.len())?)?;
                let extents = match self.right {
                    Some(right) => both(&extents(left), &extents(right)),
                    None => extents(left),
                };
                (Finding::Sieve(Sieve::new(&leaves, metric, &extents)?), leaves)
            }
            Strategy::Grid => {
                let (rings, ids) = Rings::new(right, &extents(right))?;
                (Finding::Rings(rings), Leaves::new(right, ids)?)
            }
            _ => (Finding::Tree, Leaves::new(right, tree::sort(right, &extents(right))?)?),
        };
        let left_leaves = |_| {
            let ids = match strategy {
                Strategy::Brute => order::identity(left.len()),
                // A grid of its own: blocks are compact however many the other points are.
                Strategy::Grid => rings::sort(left, &extents(left)),
                _ => tree::sort(left, &extents(left)),
            };
            Leaves::new(left, ids?)
        };
        Ok(CpuKnn {
            unit: match finding {
                Finding::Sieve(_) => Sieve::<T>::unit(self.options.k.min(right.len())),
                _ => 256,
            }
            // Some units for every thread, if there are few queries.
            .min(left.len().div_ceil(4 * self.pool.threads()).next_multiple_of(16).max(16)),
            finding,
            pool: &self.pool,
            kernels: NearestKernels::new(self.simd, metric, dim),
            left: self.right.map(left_leaves).transpose()?,
            right: right_leaves,
            include_self: self.options.include_self,
            // Nobody finds more than there are: the sink pads.
            k: self.options.k.clamp(1, right.len().max(1)),
            arithmetic: self.threshold,
            cap: match self.options.max_distance {
                Some(_) => self.threshold.bound,
                None => T::INFINITY,
            },
            monitor: self.options.monitor.as_ref(),
            expected_tests: self.decision.tests() as u64,
        })
    }

    fn stats(&self, index: Duration, index_bytes: u64) -> Stats {
        Stats {
            points: (self.left.len(), self.right.unwrap_or(self.left).len()),
            dimension: self.left.dimension(),
            strategy: self.decision.strategy,
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

/// The extents of two sets of points together.
fn both(left: &[(f64, f64)], right: &[(f64, f64)]) -> Vec<(f64, f64)> {
    left.iter().zip(right).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))).collect()
}

impl<T: Scalar> fmt::Display for KnnPlan<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "k = {} ({}, {}) on the cpu: {} threads, {} kernels",
            self.options.k,
            self.options.metric,
            T::NAME,
            self.pool.threads(),
            self.simd,
        )?;
        self.decision.fmt(f)
    }
}

impl<T: Scalar> fmt::Debug for KnnPlan<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnnPlan")
            .field("options", &self.options)
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}

/// The `k` nearest other points of every point.
///
/// ```
/// let points = nearjoin::Points::new(&[0.0, 1.0, 1.5], 1)?;
/// let neighbors = nearjoin::knn_join(&points, 1)?;
/// assert_eq!(neighbors.ids(), [1, 2, 1]);
/// # Ok::<(), nearjoin::Error>(())
/// ```
///
/// # Errors
/// If k is 0 or more than there are other points, or the result does not fit the memory.
pub fn knn_join<T: Scalar>(points: &Points<'_, T>, k: usize) -> Result<Neighbors<T>> {
    let mut neighbors = Neighbors::new();
    KnnJoin::new(k).plan_self(points)?.run(&mut neighbors)?;
    Ok(neighbors)
}

/// The `k` nearest points on the right of every point on the left.
///
/// ```
/// use nearjoin::{Points, knn_join_between};
/// let stars = Points::new(&[0.0, 10.0], 1)?;
/// let catalogue = Points::new(&[9.5, 0.25, 10.25], 1)?;
/// let neighbors = knn_join_between(&stars, &catalogue, 2)?;
/// assert_eq!(neighbors.ids_of(1), [2, 0]);
/// # Ok::<(), nearjoin::Error>(())
/// ```
///
/// # Errors
/// As for [`knn_join`], or if the dimensions differ.
pub fn knn_join_between<T: Scalar>(
    left: &Points<'_, T>,
    right: &Points<'_, T>,
    k: usize,
) -> Result<Neighbors<T>> {
    let mut neighbors = Neighbors::new();
    KnnJoin::new(k).plan(left, right)?.run(&mut neighbors)?;
    Ok(neighbors)
}
