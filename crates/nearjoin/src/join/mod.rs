//! The public door: a join with its options, and from points to a plan.

pub(crate) mod calibrate;
pub(crate) mod calibration;
mod device;
mod indexed;
mod partition;
mod plan;
mod range;
mod ranges;

pub use indexed::Indexed;
pub use plan::{Estimate, Plan};

use std::time::Instant;

use device::Decided;

use crate::error::Result;
use crate::exec::cpu::kernel::SimdLevel;
use crate::exec::pool::Pool;
use crate::gpu::GpuOptions;
use crate::metric::Metric;
use crate::monitor::{self, Monitor, Phase};
use crate::options::{Device, DuplicateRemoval, Options, Partitioning, RangesOptions, Strategy};
use crate::plan::Asked;
use crate::points::Points;
use crate::question::{Nearest, Question, Within};
use crate::scalar::Scalar;
use crate::sides::Sides;
use crate::sink::{Count, Csr, CsrSink, Groups, Neighbors};
use crate::summary::Summary;

/// A question with its options: an [`EpsJoin`] or a [`KnnJoin`]. Both have the same options but
/// for the few that their questions bring.
#[derive(Clone, Debug)]
pub struct Join<Q> {
    question: Q,
    options: Options,
}

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
/// assert_eq!(csr.ids_of(1), [0, 2]);
/// assert_eq!(csr.distances_of(1), [2.0f32, 2.0]);
/// assert_eq!(stats.pairs, 4);
/// # Ok::<(), nearjoin::Error>(())
/// ```
pub type EpsJoin = Join<Within>;

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
pub type KnnJoin = Join<Nearest>;

impl Join<Within> {
    /// A join within distance `eps`, 0 or more. A pair at exactly ε matches; ε = 0 finds
    /// duplicates. For `f32` points ε is rounded to `f32` first.
    pub fn new(eps: f64) -> Self {
        Join { question: Within::new(eps), options: Options::default() }
    }

    /// How sinks that profit avoid testing a pair twice. Default:
    /// [`DuplicateRemoval::LidUnicomp`].
    pub fn duplicate_removal(mut self, removal: DuplicateRemoval) -> Self {
        self.question.removal = removal;
        self
    }

    /// Levels and fan-out of [`Strategy::Directory`]. Default: 3 levels of 16.
    pub fn directory(mut self, levels: usize, fanout: usize) -> Self {
        (self.question.levels, self.question.fanout) = (levels, fanout);
        self
    }
}

impl Join<Nearest> {
    /// A join with the `k` nearest, 1 or more.
    pub fn new(k: usize) -> Self {
        Join { question: Nearest::new(k), options: Options::default() }
    }

    /// No neighbours farther away than this; one at exactly this distance is a neighbour.
    /// Rows may then be shorter than k, or empty. Default: none.
    pub fn max_distance(mut self, distance: f64) -> Self {
        self.question.max_distance = Some(distance);
        self
    }

    /// Whether k may be more than there are points to be neighbours: rows are then shorter,
    /// and dense arrays padded. Default: no, that is an error.
    pub fn pad(mut self, pad: bool) -> Self {
        self.question.pad = pad;
        self
    }

    /// How [`Strategy::Ranges`] goes about it. Default: as in the paper.
    pub fn ranges(mut self, options: RangesOptions) -> Self {
        self.question.ranges = options;
        self
    }
}

impl<Q: Copy + Into<Question>> Join<Q> {
    /// The distance. Default: [`Metric::L2`].
    pub fn metric(mut self, metric: Metric) -> Self {
        self.options.metric = metric;
        self
    }

    /// Where to run. Default: [`Device::Auto`].
    pub fn device(mut self, device: Device) -> Self {
        self.options.device = device;
        self
    }

    /// How to find candidates: one of [`Strategy::EPSILON`] or of [`Strategy::KNN`]. Default:
    /// [`Strategy::Auto`].
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.options.strategy = strategy;
        self
    }

    /// How the CPU and a GPU share the work, where both do it. Default: [`Partitioning::Auto`].
    pub fn partitioning(mut self, partitioning: Partitioning) -> Self {
        self.options.partitioning = partitioning;
        self
    }

    /// Whether the CPU finishes what a GPU that was named, and fails in the middle, leaves: nothing
    /// is lost or doubled, and [`Stats::hybrid`](crate::Stats::hybrid) says what happened. Default:
    /// no, that is an error. [`Device::Auto`] and [`Device::Hybrid`] always do.
    pub fn rescue(mut self, rescue: bool) -> Self {
        self.options.rescue = rescue;
        self
    }

    /// Whether, in a self-join, each point is its own neighbour. Default: no. Duplicates
    /// of a point are its neighbours either way.
    pub fn include_self(mut self, include: bool) -> Self {
        self.options.include_self = include;
        self
    }

    /// Number of threads. Default: those of rayon's global pool, one per core.
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.threads = Some(threads);
        self
    }

    /// Bytes that the join may use beside its input. Default: four fifths of what this process
    /// may still have when it is planned, as [`SystemMemory`](crate::SystemMemory) tells.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.options.memory_limit = Some(bytes);
        self
    }

    /// How a GPU goes about it. Default: as the plan expects to be fastest.
    pub fn gpu(mut self, options: GpuOptions) -> Self {
        self.options.gpu = options;
        self
    }

    /// Lets another thread watch the join, and stop it. Default: nobody watches.
    pub fn monitor(mut self, monitor: &Monitor) -> Self {
        self.options.monitor = Some(monitor.clone());
        self
    }

    /// Plans the join of a set with itself.
    ///
    /// # Errors
    /// If ε, k or an option is out of range, k is more than there are other points and padding is
    /// not asked for, or the device is not available.
    pub fn plan_self<'a, T: Scalar>(&self, points: &Points<'a, T>) -> Result<Plan<'a, T>> {
        self.plan_sides(*points, None)
    }

    /// Plans the join of two sets: for each left point, its neighbours on the right.
    ///
    /// # Errors
    /// As for [`Join::plan_self`], or if the dimensions differ.
    pub fn plan<'a, T: Scalar>(
        &self,
        left: &Points<'a, T>,
        right: &Points<'a, T>,
    ) -> Result<Plan<'a, T>> {
        left.check_dimension(right)?;
        self.plan_sides(*left, Some(*right))
    }

    /// Whether ε, k and the options are in range and the device is there: what a plan would say,
    /// before there are points.
    ///
    /// ```
    /// use nearjoin::{EpsJoin, KnnJoin};
    /// assert!(EpsJoin::new(0.5).check::<f32>().is_ok());
    /// assert!(EpsJoin::new(-1.0).check::<f32>().is_err());
    /// assert!(KnnJoin::new(0).check::<f32>().is_err());
    /// ```
    ///
    /// # Errors
    /// As for [`Join::plan_self`].
    pub fn check<T: Scalar>(&self) -> Result<()> {
        let question = self.question.into();
        question.check_distance::<T>()?;
        self.options.check()?;
        question.check()?;
        device::check(&Asked { question: &question, options: &self.options })
    }

    /// Summarises the points, and decides.
    fn plan_sides<'a, T: Scalar>(
        &self,
        left: Points<'a, T>,
        right: Option<Points<'a, T>>,
    ) -> Result<Plan<'a, T>> {
        let start = Instant::now();
        self.check::<T>()?;
        let (question, options) = (self.question.into(), self.options.clone());
        let candidates = right.unwrap_or(left).len();
        let own = usize::from(right.is_none() && !options.include_self && candidates > 0);
        question.check_points(left.len(), candidates - own)?;
        monitor::enter(&options.monitor, Phase::Planning);
        let simd = SimdLevel::detect()?;
        let pool = Pool::new(options.threads)?;
        let eps = question.eps()?;
        let sides = pool.install(|| Sides::new(left, right, options.metric, eps))?;
        let (left, right) = (sides.left(), sides.right());
        let threshold = question.threshold(options.metric, sides.scale)?;
        range::check_near(&options, &sides, &threshold, eps)?;
        let asked = Asked { question: &question, options: &options };
        let summarise = |effort| pool.install(|| Summary::new(left, right, &threshold, effort));
        let Decided { mut decision, device, host } = match ranges::asked(&asked) {
            Some(nearest) => {
                let points = ranges::Given { sides: &sides, threshold: &threshold, pool: &pool };
                points.decide(&asked, nearest, &summarise)?
            }
            None => device::decide::<T>(&asked, left.dimension(), &summarise, pool.threads())?,
        };
        range::check_far(&sides, &threshold)?;
        decision.keep_beside(sides.bytes());
        let planning = start.elapsed();
        Ok(Plan {
            question,
            options,
            sides,
            threshold,
            simd,
            pool,
            decision,
            device,
            host,
            planning,
        })
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

/// The connected component of each point: points are in one if there is a way between them over pairs
/// within ε. They are numbered from 0 in the order of their first points.
///
/// ```
/// let points = nearjoin::Points::new(&[0.0, 5.0, 0.5, 1.0], 1)?;
/// assert_eq!(nearjoin::components(&points, 0.5)?, [0, 1, 0, 0]);
/// # Ok::<(), nearjoin::Error>(())
/// ```
///
/// # Errors
/// If ε is not a distance, or the system refuses memory.
pub fn components<T: Scalar>(points: &Points<'_, T>, eps: f64) -> Result<Vec<u32>> {
    groups(points, eps, Groups::components())
}

/// The cluster of each point by DBSCAN, or [`Groups::NOISE`]: see [`Groups`]. A core has `min_points`
/// points within ε, itself included.
///
/// ```
/// use nearjoin::{Points, dbscan, sink::Groups};
/// let points = Points::new(&[0.0, 5.0, 0.5, 1.0], 1)?;
/// assert_eq!(dbscan(&points, 0.5, 3)?, [0, Groups::NOISE, 0, 0]);
/// # Ok::<(), nearjoin::Error>(())
/// ```
///
/// # Errors
/// If ε is not a distance, `min_points` is 0, or the system refuses memory.
pub fn dbscan<T: Scalar>(points: &Points<'_, T>, eps: f64, min_points: usize) -> Result<Vec<u32>> {
    groups(points, eps, Groups::dbscan(min_points))
}

fn groups<T: Scalar>(points: &Points<'_, T>, eps: f64, mut sink: Groups) -> Result<Vec<u32>> {
    EpsJoin::new(eps).plan_self(points)?.run(&mut sink)?;
    Ok(sink.into_parts().0)
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
