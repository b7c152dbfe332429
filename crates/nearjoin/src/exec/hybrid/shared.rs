//! A join that both processors share: each has its own index of all points, and what is asked is
//! done in a pass over one queue of units (`pass.rs`).

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::delivered::Delivered;
use super::log::Log;
use super::units::Ranked;
use super::{at_once, is_loss};
use crate::error::{Error, Result};
use crate::exec::cpu::units::OnHost;
use crate::exec::flat::Flat;
use crate::exec::{Emit, Executor, OnDevice, Part, Request, Rows, Work};
use crate::index::Run;
use crate::monitor::{Monitor, Phase};
use crate::options::{Device, Partitioning};
use crate::plan::hybrid::{Batches, LANES};
use crate::scalar::Scalar;
use crate::stats::{GpuStats, HybridStats};

/// How a join is shared.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    /// Not `Auto`.
    pub(crate) partitioning: Partitioning,
    /// How much the streams of the GPU take on demand.
    pub(crate) batches: Batches,
    /// The share of the queries, or of the candidates, that the GPU is expected to do.
    pub(crate) gpu_share: f64,
    /// Whether one of them counts alone, and which: it meets each pair of one set once, where two
    /// would meet it twice.
    pub(crate) counts_alone: Option<Device>,
    pub(crate) monitor: Option<&'a Monitor>,
}

/// A join that both processors work on.
pub(crate) struct Shared<'a, T> {
    pub(super) cpu: Box<dyn OnHost<T> + 'a>,
    pub(super) common: Arc<Common<'a, T>>,
    pub(super) setup: Setup<'a>,
    pub(super) units: OnceLock<Ranked>,
    is_whole: bool,
}

/// What the whole and its parts have in common.
pub(super) struct Common<'a, T> {
    /// None where it was lost before it had an index.
    gpu: Option<Box<dyn OnDevice<T> + 'a>>,
    pub(super) log: Log,
}

impl<'a, T: Scalar> Shared<'a, T> {
    /// Builds both indexes at the same time.
    pub(crate) fn new(
        setup: Setup<'a>,
        cpu: impl FnOnce() -> Result<Box<dyn OnHost<T> + 'a>>,
        gpu: impl FnOnce() -> Result<Box<dyn OnDevice<T> + 'a>> + Send,
    ) -> Result<Self> {
        let (cpu, gpu) = at_once(cpu, gpu);
        Self::of(setup, cpu?, gpu)
    }

    fn of(
        setup: Setup<'a>,
        cpu: Box<dyn OnHost<T> + 'a>,
        gpu: Result<Box<dyn OnDevice<T> + 'a>>,
    ) -> Result<Self> {
        let empty = HybridStats {
            partitioning: Some(setup.partitioning),
            expected_gpu_share: setup.gpu_share,
            ..HybridStats::default()
        };
        let log = Log::new(empty);
        let gpu = match gpu {
            Err(error) if is_loss(&error) => {
                log.lose(error, cpu.len());
                None
            }
            gpu => Some(gpu?),
        };
        let common = Arc::new(Common { gpu, log });
        Ok(Shared { cpu, common, setup, units: OnceLock::new(), is_whole: true })
    }

    /// The device, as long as it is there.
    pub(super) fn gpu(&self) -> Option<&(dyn OnDevice<T> + 'a)> {
        self.common.gpu.as_deref().filter(|_| !self.common.log.is_lost())
    }

    /// Threads that may hand out rows of one stream.
    fn workers_of_lane(&self) -> usize {
        self.common.gpu.as_ref().map_or(0, |gpu| gpu.workers())
    }

    /// Asks one processor for the whole of a count, and the CPU where the GPU is lost.
    fn count_alone(&self, device: Device) -> Result<Work> {
        if let Some(gpu) = self.gpu().filter(|_| device == Device::Gpu) {
            match self.common.log.timed(Device::Gpu, self.len(), || gpu.count()) {
                Err(error) if is_loss(&error) => self.common.log.lose(error, self.len()),
                work => return work,
            }
        }
        self.common.log.timed(Device::Cpu, self.len(), || self.cpu.count_alone())
    }
}

impl<T: Scalar> Executor<T> for Shared<'_, T> {
    fn len(&self) -> usize {
        self.cpu.len()
    }

    fn index_bytes(&self) -> u64 {
        self.cpu.index_bytes()
    }

    fn count(&self) -> Result<Work> {
        match self.setup.counts_alone.filter(|_| self.is_whole) {
            Some(device) => self.count_alone(device),
            None => {
                self.pass(Phase::Counting, &|units| self.cpu.count_units(units), &|part, _, _| {
                    part.count()
                })
            }
        }
    }

    fn degrees(&self, degrees: &[AtomicU64]) -> Result<Work> {
        self.pass(
            Phase::Counting,
            &|units| self.cpu.degrees_of_units(degrees, units),
            &|part, numbers, _| {
                let mut own = crate::memory::zeros(numbers.len())?;
                let work = part.degrees(crate::memory::as_atomic(&mut own))?;
                for (&number, degree) in numbers.iter().zip(own) {
                    degrees[number as usize].store(degree, Relaxed);
                }
                Ok(work)
            },
        )
    }

    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        let mut delivered = Delivered::new(self.len())?;
        let delivered = delivered.notes();
        let (threads, of_lane) = (self.cpu.workers(), self.workers_of_lane());
        // Of a batch that failed, some rows may be there. Its pairs are counted by whoever does it.
        let by_cpu = |rows: &Rows<'_, T>| {
            if !self.common.log.is_lost() || !rows.queries.iter().any(|&q| delivered.has(q)) {
                return emit(rows);
            }
            let rest = Flat::without(rows, |query| delivered.has(query));
            if rest.queries.is_empty() {
                ControlFlow::Continue(())
            } else {
                emit(&rest.rows(rows.worker))
            }
        };
        let work = self.pass(
            Phase::Joining,
            &|units| self.cpu.rows_of_units(request, &by_cpu, units),
            &|part, numbers, lane| {
                let stopped = AtomicBool::new(false);
                let work = part.rows(request, &|rows: &Rows<'_, T>| {
                    let worker = threads + lane * of_lane + rows.worker;
                    let flow = Rows { worker, ..*rows }.under(numbers, |rows| {
                        let flow = emit(rows);
                        // Looked up while others deliver still.
                        delivered.set(rows.queries);
                        flow
                    });
                    stopped.fetch_or(flow.is_break(), Relaxed);
                    flow
                });
                match stopped.into_inner() {
                    true => Err(Error::Stopped),
                    false => work,
                }
            },
        );
        match work {
            // The sink knows why.
            Err(Error::Stopped) => Ok(Work::default()),
            work => work,
        }
    }

    fn rows_at(&self, positions: Run) -> Result<Vec<u32>> {
        self.cpu.rows_at(positions)
    }

    fn part<'b>(&'b self, part: Part<'b, T>) -> Result<Box<dyn Executor<T> + 'b>> {
        Ok(Box::new(Shared {
            cpu: self.cpu.for_part(part)?,
            common: self.common.clone(),
            setup: self.setup,
            units: OnceLock::new(),
            is_whole: false,
        }))
    }

    fn workers(&self) -> usize {
        self.cpu.workers() + LANES * self.workers_of_lane()
    }

    fn gpu_stats(&self) -> Option<GpuStats> {
        if let Some(stats) = self.common.gpu.as_ref().and_then(|gpu| gpu.gpu_stats()) {
            self.common.log.on_gpu(&stats);
        }
        self.common.log.take_gpu()
    }

    fn hybrid_stats(&self) -> Option<HybridStats> {
        Some(self.common.log.take())
    }
}
