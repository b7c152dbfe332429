//! A join whose index is built: the run, of the whole or of some rows.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::{Plan, ranges};
use crate::error::{Error, Result};
use crate::exec::cpu::build::Setup as CpuSetup;
use crate::exec::cpu::build_knn::Setup as CpuKnnSetup;
use crate::exec::cpu::epsilon::CpuJoin;
use crate::exec::cpu::knn::CpuKnn;
use crate::exec::cpu::units::OnHost;
use crate::exec::gpu::epsilon::{self as gpu_epsilon, Setup as GpuSetup};
use crate::exec::gpu::knn::{self as gpu_knn, KnnSetup as GpuKnnSetup};
use crate::exec::hybrid::{Lead, Reserve, Setup as Sharing, Shared};
use crate::exec::{Executor, OnDevice, Part};
use crate::memory;
use crate::monitor::{self, Phase};
use crate::plan::hybrid::Batches;
use crate::plan::{Asked, Budget, Decision, How, OnCpu, OnGpu, on_cpu};
use crate::question::Question;
use crate::scalar::Scalar;
use crate::sink::{Execution, Sink};
use crate::stats::Stats;
use crate::summary::{Effort, Summary};

/// A join whose index is built. It can be asked again and again, for all left points or for some.
pub struct Indexed<'a, T> {
    plan: &'a Plan<'a, T>,
    executor: Box<dyn Executor<T> + 'a>,
    took: Duration,
    /// Whether a run has told how long planning and indexing took.
    told: AtomicBool,
}

impl<'a, T: Scalar> Indexed<'a, T> {
    pub(super) fn new(plan: &'a Plan<'a, T>) -> Result<Self> {
        plan.check_memory()?;
        monitor::check(&plan.options.monitor)?;
        let start = Instant::now();
        monitor::enter(&plan.options.monitor, Phase::Indexing);
        // Both indexes of a shared join are built at once, each by the pool: whoever waits for them
        // must not be a thread of it.
        let executor = match plan.decision.how {
            How::Both(_) | How::Ranges(_) => executor(plan)?,
            _ => plan.pool.install(|| executor(plan))?,
        };
        Ok(Indexed { plan, executor, took: start.elapsed(), told: AtomicBool::new(false) })
    }

    /// Bytes of this machine's memory that the index takes, and a search beside it: none where they
    /// are on a GPU.
    pub fn bytes(&self) -> u64 {
        self.budget(self.executor.host_bytes()).index
    }

    /// The memory that is left for a result, beside so many bytes of an index. They are fewer than
    /// the plan reckoned with: what sorting took is given back.
    fn budget(&self, index: u64) -> Budget {
        let decision = &self.plan.decision;
        Budget { index: index + decision.search_bytes, ..decision.budget }
    }

    /// Joins all left points, and fills the sink. The first run tells in its [`Stats`] how long
    /// planning and indexing took.
    ///
    /// # Errors
    /// As for [`Plan::run`].
    pub fn run<S: Sink<T>>(&self, sink: &mut S) -> Result<Stats> {
        self.execute(&*self.executor, true, Duration::ZERO, sink)
    }

    /// The same for some rows of the left points, which the sink has as rows from 0 on. All right
    /// points are candidates, and of a self-join no point is its own neighbour, as in the whole.
    /// Where pairs of a self-join are wanted once, they are those of these rows with larger ones:
    /// the runs of several ranges together have each pair once.
    ///
    /// # Errors
    /// As for [`Plan::run`].
    ///
    /// # Panics
    /// If there are no such rows.
    pub fn run_rows<S: Sink<T>>(&self, rows: Range<usize>, sink: &mut S) -> Result<Stats> {
        let points = self.plan.sides.left().rows(rows.clone());
        let mut numbers = memory::with_capacity(rows.len())?;
        numbers.extend(rows.start as u32..rows.end as u32);
        self.run_part(Part::Rows { rows: &numbers, points }, sink)
    }

    /// The same for rows of the left points that need not follow each other: the sink has row `i`
    /// for the left point `rows[i]`.
    ///
    /// ```
    /// use nearjoin::{KnnJoin, Points, sink::Neighbors};
    /// let points = Points::new(&[0.0, 1.0, 1.5, 9.0], 1)?;
    /// let plan = KnnJoin::new(1).plan_self(&points)?;
    /// let mut neighbors = Neighbors::new();
    /// plan.index()?.run_some(&[3, 0], &mut neighbors)?;
    /// assert_eq!(neighbors.ids(), [2, 1]);
    /// # Ok::<(), nearjoin::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Plan::run`].
    ///
    /// # Panics
    /// If there are no such rows.
    pub fn run_some<S: Sink<T>>(&self, rows: &[u32], sink: &mut S) -> Result<Stats> {
        let points = self.plan.pool.install(|| self.plan.sides.left().gather(rows))?;
        self.run_part(Part::Rows { rows, points: points.as_points() }, sink)
    }

    /// For tests: the same for some positions in the order of the index, multiples of 16 or the
    /// end; and the rows of the left points that are there.
    #[doc(hidden)]
    pub fn run_positions<S: Sink<T>>(
        &self,
        positions: Range<u32>,
        sink: &mut S,
    ) -> Result<Vec<u32>> {
        let Range { start, end } = positions;
        self.run_part(Part::Positions { start, end }, sink)?;
        self.executor.rows_at(positions)
    }

    fn run_part<S: Sink<T>>(&self, part: Part<'_, T>, sink: &mut S) -> Result<Stats> {
        monitor::check(&self.plan.options.monitor)?;
        let start = Instant::now();
        monitor::enter(&self.plan.options.monitor, Phase::Indexing);
        if let Part::Rows { rows, .. } = part {
            // The rows are put in order beside the index, which takes what so many points of it did.
            let points = self.plan.sides.left().len()
                + self.plan.sides.right().map_or(0, |right| right.len());
            let share = rows.len() as f64 / points.max(1) as f64;
            let order = (self.plan.decision.budget.index as f64 * share) as u64;
            self.budget(self.executor.host_bytes() + order).check_index()?;
        }
        let part = self.executor.part(part)?;
        self.execute(&*part, false, start.elapsed(), sink)
    }

    /// Fills the sink with the rows of an executor, which took some time to be made.
    fn execute<S: Sink<T>>(
        &self,
        executor: &dyn Executor<T>,
        is_whole: bool,
        made: Duration,
        sink: &mut S,
    ) -> Result<Stats> {
        let Plan { question, options, decision, pool, .. } = self.plan;
        let share = executor.len() as f64 / self.plan.sides.left().len().max(1) as f64;
        let shared = if is_whole { 0 } else { self.executor.index_bytes() };
        let index_bytes = shared + executor.index_bytes();
        let shared = if is_whole { 0 } else { self.executor.host_bytes() };
        let here = shared + executor.host_bytes();
        let told = self.told.load(Relaxed);
        let (plan, index) = match told {
            false => (self.plan.planning, self.took),
            true => (Duration::ZERO, Duration::ZERO),
        };
        let mut stats = Stats {
            points: (executor.len(), decision.points.1),
            dimension: decision.dim,
            strategy: self.plan.strategy(),
            simd: self.plan.simd,
            threads: pool.threads(),
            pairs: 0,
            distance_tests: 0,
            pairs_taken: 0,
            plan,
            index: index + made,
            execute: Duration::ZERO,
            index_bytes,
            result_bytes: 0,
            gpu: None,
            hybrid: None,
            ranges: None,
        };
        monitor::check(&options.monitor)?;
        let start = Instant::now();
        sink.receive(&mut Execution {
            executor,
            pool,
            is_whole,
            is_symmetric: self.plan.sides.right().is_none() && question.is_symmetric(),
            include_self: options.include_self,
            k: match question {
                Question::Within(_) => None,
                Question::Nearest(nearest) => Some(nearest.k),
            },
            expected_pairs: decision.pairs() * share,
            spare: decision.spare(index_bytes),
            keeps: decision.keeps(),
            budget: self.budget(here),
            monitor: &options.monitor,
            stats: &mut stats,
        })?;
        monitor::check(&options.monitor)?;
        stats.execute = start.elapsed();
        stats.gpu = executor.gpu_stats();
        if let Some(gpu) = stats.gpu.as_mut().filter(|_| !told && !is_whole) {
            // What the index took.
            self.executor.gpu_stats().iter().for_each(|index| gpu.add(index));
        }
        stats.hybrid = executor.hybrid_stats();
        stats.ranges = executor.ranges_stats();
        self.told.store(true, Relaxed);
        Ok(stats)
    }
}

impl<T> core::fmt::Debug for Indexed<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Indexed").field("took", &self.took).finish_non_exhaustive()
    }
}

/// Builds the index where the plan says, and what joins there.
fn executor<'a, T: Scalar>(plan: &'a Plan<'a, T>) -> Result<Box<dyn Executor<T> + 'a>> {
    let Plan { options, decision, sides, pool, .. } = plan;
    match &decision.how {
        How::Cpu(how) => Ok(on_host(plan, decision, how, false)?),
        How::Gpu(how) => {
            let led = on_device(plan, decision, how, false);
            if !how.rescue {
                return Ok(led?);
            }
            let reserve = Reserve::new(move || reserve(plan));
            Ok(Box::new(Lead::new(led, reserve, sides.left(), pool)?))
        }
        How::Both(both) => {
            let setup = Sharing {
                partitioning: both.partitioning,
                batches: Batches::of(&plan.question),
                gpu_share: both.gpu_share,
                counts_alone: both.counts_alone,
                monitor: options.monitor.as_ref(),
            };
            let on_cpu = || pool.install(|| on_host(plan, decision, &both.cpu, true));
            let on_gpu = || match both.gpu.on_gpu() {
                Some(how) => pool.install(|| on_device(plan, &both.gpu, how, true)),
                None => Err(no_device()),
            };
            Ok(Box::new(Shared::new(setup, on_cpu, on_gpu)?))
        }
        How::Ranges(by) => ranges::executor(plan, by),
    }
}

/// A plan decides for a GPU only with one at hand, and only what it can do.
pub(super) fn no_device() -> Error {
    Error::Device { device: "gpu", reason: "the plan has no device".into() }
}

/// The join on the device, which may share it with the CPU.
fn on_device<'a, T: Scalar>(
    plan: &'a Plan<'a, T>,
    decision: &'a Decision,
    how: &'a OnGpu,
    shared: bool,
) -> Result<Box<dyn OnDevice<T> + 'a>> {
    let Plan { question, options, sides, threshold, pool, .. } = plan;
    let device = plan.device.clone().ok_or_else(no_device)?;
    match question {
        Question::Within(within) => {
            let setup = GpuSetup {
                pool,
                device,
                threshold: *threshold,
                detail: &decision.chosen.detail,
                left: sides.left(),
                right: sides.right(),
                include_self: options.include_self,
                removal: within.removal,
                how,
                extents: &decision.extents,
                monitor: options.monitor.as_ref(),
            };
            if shared { gpu_epsilon::index_whole(setup) } else { gpu_epsilon::index(setup) }
        }
        Question::Nearest(nearest) => gpu_knn::index(GpuKnnSetup {
            pool,
            device,
            arithmetic: *threshold,
            left: sides.left(),
            right: sides.right(),
            include_self: options.include_self,
            k: nearest.k,
            strategy: decision.chosen.strategy,
            how,
            extents: &decision.extents,
            monitor: options.monitor.as_ref(),
        }),
    }
}

/// The join on the CPU, which may share it with a device.
pub(super) fn on_host<'a, T: Scalar>(
    plan: &'a Plan<'a, T>,
    decision: &Decision,
    how: &OnCpu,
    shared: bool,
) -> Result<Box<dyn OnHost<T> + 'a>> {
    let Plan { question, options, sides, threshold, pool, simd, .. } = plan;
    match question {
        Question::Within(within) => Ok(Box::new(CpuJoin::new(CpuSetup {
            pool,
            simd: *simd,
            threshold: *threshold,
            left: sides.left(),
            right: sides.right(),
            include_self: options.include_self,
            removal: within.removal,
            detail: &decision.chosen.detail,
            extents: &decision.extents,
            how,
            shared,
            monitor: options.monitor.as_ref(),
        })?)),
        // Whoever shares it: no order says which point of a pair of the nearest has it.
        Question::Nearest(nearest) => Ok(Box::new(CpuKnn::new(CpuKnnSetup {
            pool,
            simd: *simd,
            arithmetic: *threshold,
            left: sides.left(),
            right: sides.right(),
            include_self: options.include_self,
            k: nearest.k,
            cap: threshold.bound,
            strategy: decision.chosen.strategy,
            extents: &decision.extents,
            unit: how.unit,
            multiplying: &how.multiplying,
            monitor: options.monitor.as_ref(),
            expected_tests: decision.tests(),
        })?)),
    }
}

/// Plans and indexes the same join on the CPU, in place of a device that is lost.
pub(super) fn reserve<'a, T: Scalar>(plan: &'a Plan<'a, T>) -> Result<Box<dyn Executor<T> + 'a>> {
    let Plan { question, options, sides, threshold, pool, host, .. } = plan;
    monitor::check(&options.monitor)?;
    monitor::enter(&options.monitor, Phase::Indexing);
    let effort = match question {
        Question::Within(_) => Effort::FULL,
        Question::Nearest(nearest) => Effort::nearest(nearest.k),
    };
    Ok(pool.install(|| {
        let summary = Summary::new(sides.left(), sides.right(), threshold, effort);
        let decision = on_cpu(&Asked { question, options }, &summary, host);
        decision.budget.check_index()?;
        let Some(how) = decision.on_cpu() else { return Err(no_device()) };
        on_host(plan, &decision, how, false)
    })?)
}
