//! HybridKNN-Join: the k nearest by ranges.
//!
//! ```text
//! ε = that at which a point has k neighbours on average; the device indexes the points for it
//! queries are queued, those in crowded cells first                          order.rs, queue.rs
//! the device, until nothing is left for it:                                         rounds.rs
//!     take queries from the dense end; find all within ε of each
//!     of rows with k or more, the k nearest are the answer                          nearest.rs
//!     the others have failed, and go back
//!     if too many have, index the points for a larger ε
//! each thread of the CPU meanwhile, or all when the device is done:                   pass.rs
//!     take queries from the sparse end; look for them in a tree
//! ```
//!
//! Beside the CPU (`Device::Hybrid`) the device takes large batches at first and small ones later.
//! Alone (`Device::Gpu`) it takes all that is left, and the CPU has no index until the device has
//! given the last few queries away.

mod nearest;
mod order;
mod pass;
mod queue;
mod rounds;

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use nearest::Nearest;
use order::{Order, Populations};

use super::log::Log;
use super::reserve::Reserve;
use super::{at_once, is_loss, made};
use crate::error::Result;
use crate::exec::cpu::units::OnHost;
use crate::exec::gpu::ranges::Ranges as OnGpu;
use crate::exec::part::check_positions;
use crate::exec::{Emit, Executor, OnDevice, Part, Request, Rows, Work};
use crate::index::Run;
use crate::memory::{copied, with_capacity};
use crate::metric::Threshold;
use crate::monitor::Phase;
use crate::options::{Partitioning, RangesOptions};
use crate::plan::Asked;
use crate::plan::ranges::{ByRanges, Round, Within};
use crate::points::Points;
use crate::question;
use crate::scalar::Scalar;
use crate::stats::{GpuStats, HybridStats, RangesStats};

/// What a join by ranges needs to know.
pub(crate) struct Setup<'a, T> {
    pub(crate) gpu: OnGpu<'a, T>,
    pub(crate) by: &'a ByRanges,
    pub(crate) asked: Asked<'a>,
    pub(crate) nearest: question::Nearest,
    /// How distances are computed; nothing beyond its bound is a neighbour.
    pub(crate) arithmetic: Threshold<T>,
    /// Distances that will be computed, by estimate.
    pub(crate) expected_tests: f64,
}

/// A KNN-join by ranges.
pub(crate) struct Ranges<'a, T> {
    common: Arc<Common<'a, T>>,
    /// The rows of the queries, where not all points ask.
    part: Option<Vec<u32>>,
    order: OnceLock<Order>,
}

/// What the whole and its parts have in common.
struct Common<'a, T> {
    setup: Setup<'a, T>,
    /// The index of the first ε; none where the device was lost before it had one.
    first: Option<Box<dyn OnDevice<T> + 'a>>,
    cpu: Cpu<'a, T>,
    populations: OnceLock<Populations>,
    log: Log,
    told: Mutex<RangesStats>,
}

/// The CPU's part.
enum Cpu<'a, T> {
    /// It takes from the queue too.
    Beside(Box<dyn OnHost<T> + 'a>),
    /// It has what is left.
    After(Reserve<'a, T>),
}

impl<'a, T: Scalar> Setup<'a, T> {
    fn first(&self) -> Result<Box<dyn OnDevice<T> + 'a>> {
        let pool = self.gpu.pool;
        pool.install(|| self.gpu.index(self.threshold(self.by.eps)?.0, &self.by.first, false))
    }

    /// What decides within an ε, and whether nothing beyond it is a neighbour.
    fn threshold(&self, eps: f64) -> Result<(Threshold<T>, bool)> {
        match self.nearest.max_distance {
            Some(most) if most <= eps => Ok((self.arithmetic, true)),
            _ => {
                let Threshold { metric, scale, .. } = self.arithmetic;
                Ok((Threshold::new(metric, eps, scale)?, false))
            }
        }
    }

    /// How the device looks within an ε.
    fn round(&self, eps: f64, threshold: &Threshold<T>) -> Round {
        let (scaled, reach) = (threshold.eps.to_f64(), threshold.reach);
        self.by.round(&self.asked, Within { eps, scaled, reach })
    }

    fn right(&self) -> Points<'a, T> {
        self.gpu.right.unwrap_or(self.gpu.left)
    }

    /// Neighbours of a row that is complete: k, or as many as there are points to be neighbours.
    fn enough(&self) -> usize {
        let own = self.gpu.right.is_none() && !self.gpu.include_self;
        self.nearest.k.min(self.right().len().saturating_sub(usize::from(own)))
    }

    fn nearest(&self) -> Nearest<'a, T> {
        Nearest {
            left: self.gpu.left,
            right: self.right(),
            arithmetic: self.arithmetic,
            k: self.nearest.k,
            enough: self.enough(),
        }
    }

    /// Whether the CPU finishes what the device leaves when it is lost.
    fn rescues(&self) -> bool {
        self.by.first.how.rescue
    }
}

impl<'a, T: Scalar> Common<'a, T> {
    /// The device, as long as it is there.
    fn gpu(&self) -> Option<&(dyn OnDevice<T> + 'a)> {
        self.first.as_deref().filter(|_| !self.log.is_lost())
    }
}

impl<'a, T: Scalar> Ranges<'a, T> {
    /// On the device, and on the CPU what is left.
    pub(crate) fn led(setup: Setup<'a, T>, reserve: Reserve<'a, T>) -> Result<Self> {
        let first = setup.first();
        Self::of(setup, first, Cpu::After(reserve), HybridStats::default())
    }

    /// On both. Builds both indexes at the same time.
    pub(crate) fn shared(
        setup: Setup<'a, T>,
        cpu: impl FnOnce() -> Result<Box<dyn OnHost<T> + 'a>>,
    ) -> Result<Self> {
        let (cpu, first) = at_once(cpu, || setup.first());
        let partitioning = Some(Partitioning::Dyn);
        let shared = HybridStats { partitioning, ..HybridStats::default() };
        Self::of(setup, first, Cpu::Beside(cpu?), shared)
    }

    fn of(
        setup: Setup<'a, T>,
        first: Result<Box<dyn OnDevice<T> + 'a>>,
        cpu: Cpu<'a, T>,
        empty: HybridStats,
    ) -> Result<Self> {
        let log = Log::new(empty);
        let first = match first {
            Err(error) if is_loss(&error) && setup.rescues() => {
                log.lose(error, setup.gpu.left.len());
                None
            }
            first => Some(first?),
        };
        let (populations, told) = (OnceLock::new(), Mutex::default());
        let common = Arc::new(Common { setup, first, cpu, populations, log, told });
        Ok(Ranges { common, part: None, order: OnceLock::new() })
    }

    /// The options of the queue: a device that works alone takes all that is left at a time.
    fn options(&self) -> RangesOptions {
        let options = self.common.setup.nearest.ranges;
        match self.common.cpu {
            Cpu::Beside(_) => options,
            Cpu::After(_) => options.large(1.0).small(1.0).window(0.0),
        }
    }

    /// The queries in the order of the queue.
    fn order(&self) -> Result<&Order> {
        let setup = &self.common.setup;
        let (cells, pool) = (&setup.by.cells, setup.gpu.pool);
        made(&self.order, || {
            let populations = made(&self.common.populations, || {
                pool.install(|| Populations::new(cells, setup.right()))
            })?;
            let most = setup.by.most_in_a_cell(setup.enough());
            let asking = (setup.gpu.left, self.part.as_deref());
            pool.install(|| Order::new(cells, asking, populations, most))
        })
    }

    fn row_of(&self, number: u32) -> u32 {
        self.part.as_ref().map_or(number, |rows| rows[number as usize])
    }

    /// The rows of some queries.
    fn rows_of(&self, numbers: &[u32]) -> Result<Vec<u32>> {
        let mut rows = with_capacity(numbers.len())?;
        rows.extend(numbers.iter().map(|&number| self.row_of(number)));
        Ok(rows)
    }

    /// Hands out all rows.
    fn pass(&self, phase: Phase, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        if let Some(monitor) = self.common.setup.gpu.monitor {
            monitor.enter(phase, self.common.setup.expected_tests as u64);
        }
        pass::run(self, request, emit)
    }
}

impl<T: Scalar> Executor<T> for Ranges<'_, T> {
    fn len(&self) -> usize {
        self.part.as_ref().map_or(self.common.setup.gpu.left.len(), Vec::len)
    }

    fn index_bytes(&self) -> u64 {
        match self.part {
            None => {
                let on_gpu = self.common.gpu().map_or(0, |gpu| gpu.index_bytes());
                on_gpu + self.host_bytes()
            }
            Some(_) => 0,
        }
    }

    fn host_bytes(&self) -> u64 {
        match &self.common.cpu {
            _ if self.part.is_some() => 0,
            Cpu::Beside(cpu) => cpu.index_bytes(),
            Cpu::After(reserve) if !reserve.is_made() => 0,
            Cpu::After(reserve) => reserve.join().map_or(0, |join| join.index_bytes()),
        }
    }

    /// Who counts the nearest finds them.
    fn count(&self) -> Result<Work> {
        self.pass(Phase::Counting, Request::default(), &|_| ControlFlow::Continue(()))
    }

    fn degrees(&self, degrees: &[AtomicU64]) -> Result<Work> {
        self.pass(Phase::Counting, Request::default(), &|rows: &Rows<'_, T>| {
            for (at, &query) in rows.queries.iter().enumerate() {
                degrees[query as usize].store(rows.neighbors.row(at).len() as u64, Relaxed);
            }
            ControlFlow::Continue(())
        })
    }

    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        self.pass(Phase::Joining, request, emit)
    }

    fn rows_at(&self, positions: Run) -> Result<Vec<u32>> {
        // The order of the device may be lost with it: positions are numbers.
        Ok(positions.map(|position| self.row_of(position)).collect())
    }

    fn part<'b>(&'b self, part: Part<'b, T>) -> Result<Box<dyn Executor<T> + 'b>> {
        let rows = match part {
            Part::Rows { rows, .. } => copied(rows)?,
            Part::Positions { start, end } => {
                self.rows_at(check_positions(start, end, self.len()))?
            }
        };
        let (common, order) = (self.common.clone(), OnceLock::new());
        Ok(Box::new(Ranges { common, part: Some(rows), order }))
    }

    /// Threads of the CPU, and the one that asks the device.
    fn workers(&self) -> usize {
        self.common.setup.gpu.pool.threads() + 1
    }

    fn gpu_stats(&self) -> Option<GpuStats> {
        if let Some(stats) = self.common.first.as_ref().and_then(|gpu| gpu.gpu_stats()) {
            self.common.log.on_gpu(&stats);
        }
        self.common.log.take_gpu()
    }

    fn hybrid_stats(&self) -> Option<HybridStats> {
        Some(self.common.log.take())
    }

    fn ranges_stats(&self) -> Option<RangesStats> {
        let mut told = self.common.told.lock().unwrap_or_else(|e| e.into_inner());
        Some(core::mem::take(&mut *told))
    }
}
