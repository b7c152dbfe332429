//! The ε-join on a GPU: whether, how, and the run.

use core::fmt;
use std::time::Instant;

use super::{EpsJoin, Plan};
use crate::error::{Error, Result};
use crate::exec::Executor;
use crate::exec::gpu;
use crate::exec::gpu::device::Device as Opened;
use crate::exec::gpu::epsilon::{GpuJoin, Setup};
use crate::exec::gpu::index::Shape;
use crate::exec::gpu::partition::Partitioned;
use crate::exec::gpu::tuning::{Gathering, Tuning};
use crate::filter::{Band, Filter};
use crate::monitor;
use crate::options::{Cooperation, Device, DuplicateRemoval, Schedule, Strategy};
use crate::plan::{self, Alternative, Decision, Detail, Shaping};
use crate::scalar::Scalar;
use crate::sink::{Execution, Sink};
use crate::stats::{GpuStats, Stats, bytes};
use crate::summary::Summary;

/// Joins that take the CPU less than this are not worth the way to a GPU, of which the first
/// in a process takes some tenths of a second to be opened.
const WORTH: f64 = 0.5;
/// Of the device's free memory, the share that a join uses when no limit is set.
const SHARE: f64 = 0.9;
/// Of the memory of the device, the share that an index may take before the points are cut
/// into parts: the rest is for the answer.
const INDEX_SHARE: f64 = 0.7;
/// Distance tests for a pair of the answer from which on pairs are listed first.
const MANY_TESTS: f64 = 16.0;

/// How a GPU will do it.
pub(super) struct GpuPlan {
    device: Opened,
    /// The cheapest first.
    alternatives: Vec<Alternative>,
    chosen: usize,
    named: bool,
    tuning: Tuning,
    partitions: usize,
    /// Bytes of the device that the join may use.
    limit: u64,
}

/// Whether the options for a GPU are in range, and it has the strategy.
pub(super) fn check(options: &EpsJoin) -> Result<()> {
    match options.device {
        Device::Hybrid => {
            let reason = "this version joins on one device at a time; use auto, cpu or gpu".into();
            return Err(Error::Device { device: "hybrid", reason });
        }
        Device::Gpu if options.strategy == Strategy::Ego => {
            let known = &[Strategy::Auto, Strategy::Brute, Strategy::Directory, Strategy::Grid];
            return Err(Error::Strategy { strategy: options.strategy, known });
        }
        Device::Gpu if options.gpu.knobs.driver.is_none() => {
            gpu::open()?;
        }
        _ => {}
    }
    match options.gpu.threads_per_query.filter(|k| !matches!(k, 1 | 2 | 4 | 8 | 16 | 32)) {
        Some(value) => {
            Err(Error::Option { name: "threads per query", value, allowed: "1, 2, 4, 8, 16 or 32" })
        }
        None => Ok(()),
    }
}

/// Decides whether a GPU does it; if none does although it might, why.
pub(super) fn consider(
    options: &EpsJoin,
    summary: &Summary,
    shaping: Shaping,
    decision: &Decision,
) -> Result<(Option<GpuPlan>, Option<String>)> {
    let open = || match &options.gpu.knobs.driver {
        Some(driver) => Ok(driver.clone()),
        None => gpu::open(),
    };
    match options.device {
        Device::Gpu => GpuPlan::new(options, Opened::new(open()?), summary, shaping, decision)
            .map(|plan| (Some(plan), None)),
        Device::Auto if options.strategy != Strategy::Ego => {
            let (_, seconds) = decision.seconds();
            if seconds < WORTH {
                let why =
                    format!("the join takes the cpu some {seconds:.3} s, which is too little");
                return Ok((None, Some(why)));
            }
            let driver = match open() {
                Ok(driver) => driver,
                Err(Error::Device { reason, .. }) => return Ok((None, Some(reason))),
                Err(error) => return Err(error),
            };
            let plan = GpuPlan::new(options, Opened::new(driver), summary, shaping, decision)?;
            let (_, on_gpu) = plan.seconds(summary.left, decision.pairs());
            match on_gpu < seconds && plan.partitions == 1 {
                true => Ok((Some(plan), None)),
                false => Ok((None, Some(format!("it would take {on_gpu:.3} s there")))),
            }
        }
        _ => Ok((None, None)),
    }
}

impl GpuPlan {
    fn new(
        options: &EpsJoin,
        device: Opened,
        summary: &Summary,
        shaping: Shaping,
        decision: &Decision,
    ) -> Result<Self> {
        let alternatives = plan::gpu::alternatives(summary, shaping);
        let named = options.strategy != Strategy::Auto;
        let wanted = |a: &Alternative| !named || a.strategy == options.strategy;
        let chosen = alternatives.iter().position(wanted).unwrap_or(0);
        let free = device.free_memory()?;
        let limit = options.gpu.memory_limit.unwrap_or((free as f64 * SHARE) as u64);
        let index = index_bytes(summary);
        let room = (limit as f64 * INDEX_SHARE).max(1.0);
        let partitions = (index as f64 / room).ceil().clamp(1.0, 1e6) as usize;
        let partitions = options.gpu.knobs.partitions.unwrap_or(partitions);
        let rest = limit.saturating_sub(index / partitions as u64);
        let tests = alternatives[chosen].cost.tests;
        let tuning = tuning(options, tests, decision.neighbors, rest);
        Ok(GpuPlan { device, alternatives, chosen, named, tuning, partitions, limit })
    }

    pub(super) fn chosen(&self) -> &Alternative {
        &self.alternatives[self.chosen]
    }

    /// Expected seconds, and distance tests, of each strategy.
    pub(super) fn costs(&self, queries: usize) -> impl Iterator<Item = (Strategy, f64, f64)> {
        let queries = queries as f64;
        self.alternatives
            .iter()
            .map(move |a| (a.strategy, a.cost.per_query * queries * 1e-9, a.cost.tests * queries))
    }

    /// Expected seconds to count, and to bring all neighbours to the host.
    pub(super) fn seconds(&self, queries: usize, pairs: f64) -> (f64, f64) {
        const BUS: f64 = 40e9;
        let count = self.chosen().cost.per_query * queries as f64 * 1e-9;
        (count, 2.0 * count + (pairs * 4.0 + queries as f64 * 8.0) / BUS)
    }

    pub(super) fn explain(&self, decision: &Decision, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let properties = self.device.properties();
        let tuning = &self.tuning;
        writeln!(f, "gpu: {}, {} of memory", properties.name, bytes(properties.memory))?;
        decision.fmt_points(f)?;
        let why = if self.named { "as asked" } else { "cheapest by estimate" };
        writeln!(f, "strategy {} ({why})", self.chosen().strategy)?;
        for line in self.chosen().detail.shape() {
            writeln!(f, "  {line}")?;
        }
        write!(f, "  threads cooperate by {}", tuning.cooperation)?;
        if tuning.cooperation != Cooperation::Cell {
            write!(f, ", {} to a query", tuning.threads_per_query)?;
        }
        writeln!(f, "; schedule {}; rows are {}", tuning.schedule, tuning.gathering)?;
        if self.partitions > 1 {
            writeln!(f, "  the points are cut into {} parts", self.partitions)?;
        }
        writeln!(f, "estimated cost of indexing and counting")?;
        for (strategy, seconds, tests) in self.costs(decision.points.0) {
            let mark = if strategy == self.chosen().strategy { '*' } else { ' ' };
            writeln!(f, "{mark} {strategy:<10} {seconds:>12.6} s {tests:>12.3e} distance tests")?;
        }
        decision.fmt_result(f)?;
        write!(
            f,
            "memory: limit {} on the gpu, {} here",
            bytes(self.limit),
            bytes(decision.budget.limit)
        )
    }

    /// Indexes on the device, joins, and fills the sink.
    pub(super) fn run<T: Scalar, S: Sink<T>>(
        &self,
        plan: &Plan<'_, T>,
        sink: &mut S,
        start: Instant,
    ) -> Result<Stats> {
        let setup = self.setup(plan);
        if self.partitions > 1 {
            let join = Partitioned::new(setup, &plan.decision.extents, self.partitions);
            return self.execute(plan, sink, start, &join, 0, || join.stats());
        }
        let join = plan.pool.install(|| GpuJoin::new(setup, None))?;
        self.execute(plan, sink, start, &join, join.bytes(), || join.stats())
    }

    fn setup<'a, T: Scalar>(&self, plan: &'a Plan<'_, T>) -> Setup<'a, T> {
        let chosen = self.chosen();
        let queries = plan.left.len() as f64;
        Setup {
            pool: &plan.pool,
            device: self.device.clone(),
            threshold: plan.threshold,
            shape: match &chosen.detail {
                Detail::Directory(shape) => Shape::Directory(shape.clone()),
                Detail::Grid(shape) => Shape::Grid(shape.clone()),
                Detail::Brute | Detail::Ego(_) => Shape::Brute,
            },
            left: plan.left,
            right: plan.right,
            include_self: plan.options.include_self,
            removal: plan.options.removal,
            narrow: narrow(plan),
            tuning: self.tuning.clone(),
            monitor: plan.options.monitor.as_ref(),
            expected_tests: chosen.cost.tests * queries,
            expected_pairs: plan.estimated_pairs(),
        }
    }

    fn execute<T: Scalar, S: Sink<T>>(
        &self,
        plan: &Plan<'_, T>,
        sink: &mut S,
        start: Instant,
        executor: &dyn Executor<T>,
        index_bytes: usize,
        told: impl Fn() -> GpuStats,
    ) -> Result<Stats> {
        let monitor = &plan.options.monitor;
        let mut stats = plan.stats(start.elapsed(), index_bytes as u64);
        monitor::check(monitor)?;
        let start = Instant::now();
        let mut budget = plan.decision.budget;
        // The index is elsewhere: all memory here is for the answer.
        budget.index = 0;
        sink.receive(&mut Execution {
            executor,
            pool: &plan.pool,
            queries: plan.left.len(),
            is_self: plan.right.is_none(),
            include_self: plan.options.include_self,
            expected_pairs: plan.estimated_pairs(),
            spare: 0,
            budget,
            stats: &mut stats,
        })?;
        monitor::check(monitor)?;
        stats.execute = start.elapsed();
        stats.gpu = Some(told());
        Ok(stats)
    }
}

fn tuning(options: &EpsJoin, tests: f64, neighbors: f64, rest: u64) -> Tuning {
    let gpu = &options.gpu;
    let by_cell =
        !matches!(options.removal, DuplicateRemoval::LinearCoord | DuplicateRemoval::Unicomp)
            && gpu.threads_per_query.is_none();
    let cooperation = match gpu.cooperation {
        Cooperation::Auto if by_cell => Cooperation::Cell,
        Cooperation::Auto => Cooperation::Thread,
        named => named,
    };
    let threads = match cooperation {
        Cooperation::Warp => 32,
        _ => gpu.threads_per_query.unwrap_or(1),
    };
    let listed = gpu.knobs.listed.unwrap_or(tests > MANY_TESTS * neighbors.max(0.01));
    Tuning {
        cooperation,
        threads_per_query: threads as u32,
        schedule: match gpu.schedule {
            Schedule::Auto => Schedule::IndexOrder,
            named => named,
        },
        gathering: if listed { Gathering::Listed } else { Gathering::Counted },
        chunk: gpu.chunk_bytes,
        most_batch: (rest / 6).max(1 << 20),
        batch: gpu.batch_bytes,
        list_bytes: rest / 5 * 4,
        estimate: gpu.knobs.estimate.unwrap_or(1.0),
    }
}

fn index_bytes(summary: &Summary) -> u64 {
    let points = summary.right + if summary.is_self { 0 } else { summary.left };
    points as u64 * plan::gpu::bytes_per_point(summary.dim, summary.width) + (64 << 20)
}

/// `f64` points in `f32` relative to the middle of the domain, unless that is too large beside
/// ε.
fn narrow<T: Scalar>(plan: &Plan<'_, T>) -> Option<(Vec<f64>, Band<f32>)> {
    if size_of::<T>() == size_of::<f32>() {
        return None;
    }
    let Decision { dim, extents, neighbors, .. } = &plan.decision;
    let middle = |(lo, hi): &(f64, f64)| lo + (hi - lo) / 2.0;
    let spread = extents.iter().map(|(lo, hi)| (hi - lo) / 2.0).fold(0.0, f64::max);
    let band = Filter::new(&plan.threshold, *dim)?.narrow_band(spread, *neighbors)?;
    Some((extents.iter().map(middle).collect(), band))
}
