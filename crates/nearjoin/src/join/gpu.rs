//! The ε-join on a GPU: whether, how, and the run.

use core::fmt;
use std::time::Instant;

use super::{EpsJoin, Plan};
use crate::error::{Error, Result};
use crate::exec::Executor;
use crate::exec::gpu;
use crate::exec::gpu::device::Device as Opened;
use crate::exec::gpu::driver::Fault;
use crate::exec::gpu::epsilon::{GpuJoin, Setup};
use crate::exec::gpu::index::Shape;
use crate::exec::gpu::partition::Partitioned;
use crate::exec::gpu::tuning::{Gathering, Tuning};
use crate::filter::{Band, Filter};
use crate::monitor;
use crate::options::{Cooperation, Device, DuplicateRemoval, Schedule, Strategy};
use crate::plan::{self, Decision, Detail, Shaping};
use crate::scalar::Scalar;
use crate::sink::{Execution, Sink};
use crate::stats::{GpuStats, Stats, bytes};
use crate::summary::{Effort, Summary};

/// Joins that take the CPU less than this are not worth the way to a GPU, of which the first
/// in a process takes some tenths of a second to be opened.
const WORTH: f64 = 0.5;
/// Of the device's free memory, the share that a join uses when no limit is set.
const SHARE: f64 = 0.9;
/// Of the memory of the device, the share that an index may take before the points are cut
/// into parts: the rest is for the answer.
const INDEX_SHARE: f64 = 0.7;
/// Distance tests for a pair of the answer from which on pairs are listed first.
const MANY_TESTS: f64 = 64.0;

/// Neighbours a point from which on boxes of 32 points pay.
const CROWDED: f64 = 48.0;
/// How much larger the box of queries that look together may be than that of one.
const LOOSE: f64 = 16.0;

/// How a GPU will do it.
pub(super) struct GpuPlan {
    device: Opened,
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
        _ => {}
    }
    let wrong = |k: &usize| !matches!(k, 1 | 2 | 4 | 8 | 16 | 32);
    if let Some(value) = options.gpu.threads_per_query.filter(wrong) {
        let allowed = "1, 2, 4, 8, 16 or 32";
        return Err(Error::Option { name: "threads per query", value, allowed });
    }
    if options.device == Device::Gpu {
        open(options).map_err(|error| match error {
            Error::Device { device, reason } => {
                Error::Device { device, reason: format!("{reason}; or use the device auto or cpu") }
            }
            error => error,
        })?;
    }
    Ok(())
}

/// How much of the points to look at. What lies beyond the extents of a sample belongs to the
/// end cells of a grid; but narrow points must not.
pub(super) fn effort<T: Scalar>() -> Effort {
    match size_of::<T>() == size_of::<f32>() {
        true => Effort::QUICK,
        false => Effort::QUICK.with_extents(),
    }
}

/// The device that the options name.
pub(super) fn open(options: &EpsJoin) -> Result<Opened> {
    let driver = match &options.gpu.knobs.driver {
        Some(driver) => driver.clone(),
        None => gpu::open()?,
    };
    Ok(Opened::new(driver))
}

/// Where the options leave it open, whether a GPU does it; if none does, why.
pub(super) fn consider(
    options: &EpsJoin,
    summary: &Summary,
    shaping: Shaping,
    on_cpu: Decision,
) -> Result<(Decision, Option<GpuPlan>, Option<String>)> {
    if options.device != Device::Auto {
        return Ok((on_cpu, None, None));
    }
    if options.strategy == Strategy::Ego {
        return Ok((on_cpu, None, Some("it does not have the strategy ego".into())));
    }
    let (_, seconds) = on_cpu.seconds();
    if seconds < WORTH {
        let why = format!("the join takes the cpu some {seconds:.3} s, which is too little");
        return Ok((on_cpu, None, Some(why)));
    }
    let device = match open(options) {
        Ok(device) => device,
        Err(Error::Device { reason, .. }) => return Ok((on_cpu, None, Some(reason))),
        Err(error) => return Err(error),
    };
    let (decision, plan) = match decide(options, device, summary, shaping) {
        Ok(decided) => decided,
        Err(Error::Device { reason, .. }) => return Ok((on_cpu, None, Some(reason))),
        Err(error) => return Err(error),
    };
    let (_, there) = self::seconds(&decision);
    let why = match (plan.partitions, there < seconds) {
        (1, true) => return Ok((decision, Some(plan), None)),
        (1, false) => format!("the join would take {there:.3} s there"),
        _ => format!("its {} of free memory do not hold the points", bytes(plan.limit)),
    };
    Ok((on_cpu, None, Some(why)))
}

/// Decides how a GPU does it.
pub(super) fn decide(
    options: &EpsJoin,
    device: Opened,
    summary: &Summary,
    shaping: Shaping,
) -> Result<(Decision, GpuPlan)> {
    let alternatives = plan::gpu::alternatives(summary, shaping);
    let decision = plan::choose(summary, options.strategy, alternatives, options.memory_limit, 1);
    let free = device.free_memory()?;
    let limit = options.gpu.memory_limit.unwrap_or((free as f64 * SHARE) as u64);
    let index = index_bytes(summary);
    let room = (limit as f64 * INDEX_SHARE).max(1.0);
    let partitions = (index as f64 / room).ceil().clamp(1.0, 1e6) as usize;
    let partitions = options.gpu.knobs.partitions.unwrap_or(partitions);
    let rest = limit.saturating_sub(index / partitions as u64);
    let tuning = tuning(options, decision.chosen.cost.tests, decision.neighbors, rest);
    Ok((decision, GpuPlan { device, tuning, partitions, limit }))
}

/// Expected seconds, and distance tests, of each strategy.
pub(super) fn costs(decision: &Decision) -> impl Iterator<Item = (Strategy, f64, f64)> {
    let queries = decision.points.0 as f64;
    let alternatives = decision.alternatives.iter();
    alternatives
        .map(move |a| (a.strategy, a.cost.per_query * queries * 1e-9, a.cost.tests * queries))
}

/// Expected seconds to count, and to bring all neighbours to the host.
pub(super) fn seconds(decision: &Decision) -> (f64, f64) {
    const BUS: f64 = 40e9;
    let queries = decision.points.0 as f64;
    let count = decision.chosen.cost.per_query * queries * 1e-9;
    (count, 2.0 * count + (decision.pairs() * 4.0 + queries * 8.0) / BUS)
}

impl GpuPlan {
    pub(super) fn explain(&self, decision: &Decision, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let properties = self.device.properties();
        let tuning = &self.tuning;
        writeln!(f, "gpu: {}, {} of memory", properties.name, bytes(properties.memory))?;
        decision.fmt_points(f)?;
        let why = if decision.named { "as asked" } else { "cheapest by estimate" };
        writeln!(f, "strategy {} ({why})", decision.chosen.strategy)?;
        for line in decision.shape() {
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
        for (strategy, seconds, tests) in costs(decision) {
            let mark = if strategy == decision.chosen.strategy { '*' } else { ' ' };
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
        let mut partitions = self.partitions;
        if partitions == 1 {
            match plan.pool.install(|| GpuJoin::new(self.setup(plan), None)) {
                Ok(join) => {
                    return self.execute(plan, sink, start, &join, join.bytes(), || join.stats());
                }
                // Somebody else took what was free when the join was planned.
                Err(Fault::Memory { .. }) => partitions = 2,
                Err(fault) => return Err(fault.into()),
            }
        }
        let join = Partitioned::new(self.setup(plan), &plan.decision.extents, partitions);
        self.execute(plan, sink, start, &join, 0, || join.stats())
    }

    fn setup<'a, T: Scalar>(&self, plan: &'a Plan<'_, T>) -> Setup<'a, T> {
        let chosen = &plan.decision.chosen;
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
        boxes: gpu.knobs.boxes.unwrap_or(neighbors > CROWDED),
        loose: gpu.knobs.loose.unwrap_or(LOOSE),
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
