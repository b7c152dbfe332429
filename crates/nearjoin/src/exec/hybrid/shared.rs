//! Both processors at work on one queue.
//!
//! ```text
//! index both, at the same time
//! cut the queries into units, sort them by expected work
//! each stream of the GPU, on a thread of its own, until it is lost or finds nothing:
//!     take units from the heavy end; gather their rows; join them as a part; deliver
//! each thread of the CPU, until nothing is left:
//!     take a unit from the light end, or one that came back; join it; deliver
//! ```

use core::ops::{ControlFlow, Range};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use super::delivered::Delivered;
use super::is_loss;
use super::log::{Clock, Log, ended};
use super::units::Ranked;
use crate::error::{Error, Result};
use crate::exec::cpu::units::{Named, OnHost, Units};
use crate::exec::flat::Flat;
use crate::exec::queue::Deque;
use crate::exec::{Emit, Executor, OnDevice, Part, Request, Rows, Work, pool};
use crate::index::Run;
use crate::monitor::{Monitor, Phase};
use crate::options::{Device, Partitioning};
use crate::plan::hybrid::{LANES, MANY_THREADS, MOST_PAIRS};
use crate::scalar::Scalar;
use crate::stats::{GpuStats, HybridStats};

/// How a join is shared.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    /// Not `Auto`.
    pub(crate) partitioning: Partitioning,
    /// The share of the queries, or of the candidates, that the GPU is expected to do.
    pub(crate) gpu_share: f64,
    /// Whether one of them counts alone, and which: it meets each pair of one set once, where two
    /// would meet it twice.
    pub(crate) counts_alone: Option<Device>,
    pub(crate) monitor: Option<&'a Monitor>,
}

/// A join that both processors work on.
pub(crate) struct Shared<'a, T> {
    cpu: Box<dyn OnHost<T> + 'a>,
    common: Arc<Common<'a, T>>,
    setup: Setup<'a>,
    units: OnceLock<Ranked>,
    is_whole: bool,
}

/// What the whole and its parts have in common.
struct Common<'a, T> {
    /// None where it was lost before it had an index.
    gpu: Option<Box<dyn OnDevice<T> + 'a>>,
    log: Log,
}

/// What a stream does with a part of the join whose queries have these numbers.
type OnGpu<'a, T> = dyn Fn(&dyn OnDevice<T>, &[u32], usize) -> Result<Work> + Sync + 'a;

impl<'a, T: Scalar> Shared<'a, T> {
    /// Builds both indexes at the same time.
    pub(crate) fn new(
        setup: Setup<'a>,
        cpu: impl FnOnce() -> Result<Box<dyn OnHost<T> + 'a>>,
        gpu: impl FnOnce() -> Result<Box<dyn OnDevice<T> + 'a>> + Send,
    ) -> Result<Self> {
        // A thread of a pool must not wait for another that may need the pool.
        if rayon::current_thread_index().is_some() {
            return Self::of(setup, cpu()?, gpu());
        }
        let (cpu, gpu) = std::thread::scope(|scope| match pool::spawn(scope, gpu) {
            Ok(building) => {
                let cpu = cpu();
                // Ends: a device does what it was asked or says that it is lost.
                let gpu = building.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                (cpu, gpu)
            }
            Err(refused) => {
                let reason = format!("the thread that would ask it was refused: {refused}");
                (cpu(), Err(Error::Device { device: "gpu", reason }))
            }
        });
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
    fn gpu(&self) -> Option<&(dyn OnDevice<T> + 'a)> {
        self.common.gpu.as_deref().filter(|_| !self.common.log.is_lost())
    }

    /// Threads that may hand out rows of one stream.
    fn workers_of_lane(&self) -> usize {
        self.common.gpu.as_ref().map_or(0, |gpu| gpu.workers())
    }

    /// The workers of both, and the queue between them.
    fn pass(
        &self,
        phase: Phase,
        on_cpu: &dyn Fn(&dyn Units) -> Vec<Work>,
        on_gpu: &OnGpu<'_, T>,
    ) -> Result<Work> {
        let units = self.units.get_or_init(|| Ranked::new(&*self.cpu));
        if let Some(monitor) = self.setup.monitor {
            monitor.enter(phase, units.work() as u64);
        }
        let began = Instant::now();
        let share = match self.setup.partitioning {
            Partitioning::StaticQueries => Some(units.share_of_queries(self.setup.gpu_share)),
            Partitioning::StaticCandidates => Some(units.share_of_work(self.setup.gpu_share)),
            _ => None,
        };
        let deque = match share {
            Some(heavy) => Deque::walled(units.len(), heavy),
            None => Deque::new(units.len()),
        };
        let threads = self.cpu.workers();
        let clock = |device, number| Mutex::new(Clock::new(device, number, began));
        let pass = Pass {
            shared: self,
            units,
            deque: &deque,
            share,
            streams: (0..LANES).map(|lane| clock(Device::Gpu, lane)).collect(),
            threads: (0..threads).map(|thread| clock(Device::Cpu, thread)).collect(),
            total: Mutex::default(),
            failed: Mutex::default(),
        };
        let works = std::thread::scope(|scope| {
            let mut lanes = Vec::new();
            if let Some(gpu) = self.gpu() {
                for lane in 0..LANES {
                    let pass = &pass;
                    // A stream that has no thread is done without.
                    lanes.extend(pool::spawn(scope, move || pass.stream(gpu, lane, on_gpu)).ok());
                }
            }
            if lanes.is_empty() {
                deque.abandon();
            }
            let works = on_cpu(&pass);
            // They end as this one did: when nothing is left to take.
            for lane in lanes {
                lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
            works
        });
        pass.end(works, began)
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

/// One pass over all units.
struct Pass<'a, 'b, T> {
    shared: &'b Shared<'a, T>,
    units: &'b Ranked,
    deque: &'b Deque,
    /// Units of the GPU, where they are fixed.
    share: Option<usize>,
    streams: Vec<Mutex<Clock>>,
    threads: Vec<Mutex<Clock>>,
    /// What the GPU did.
    total: Mutex<Work>,
    /// What went wrong that is no loss of the device.
    failed: Mutex<Option<Error>>,
}

fn locked<V>(mutex: &Mutex<V>) -> std::sync::MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl<T: Scalar> Pass<'_, '_, T> {
    /// One stream of the GPU.
    fn stream(&self, gpu: &dyn OnDevice<T>, lane: usize, work: &OnGpu<'_, T>) {
        // In a panic nobody waits for what this stream would have taken.
        struct Guard<'a>(&'a Deque);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.abandon();
                }
            }
        }
        let _guard = Guard(self.deque);
        while let Some(lent) = self.deque.take_heavy(|left| self.batch(left)) {
            let units = lent.units();
            let queries = units.clone().map(|rank| self.units.positions(rank).len()).sum();
            let mut clock = locked(&self.streams[lane]);
            clock.start(units.len(), queries);
            match self.join(gpu, lane, units.clone(), queries, work) {
                Ok(work) => {
                    clock.found(work);
                    clock.stop();
                    *locked(&self.total) += work;
                    lent.done();
                }
                Err(error) => {
                    clock.fail(units.len(), queries);
                    if is_loss(&error) {
                        // Before the units come back: whoever takes them looks up what is done.
                        self.shared.common.log.lose(error, queries);
                        drop(lent);
                        self.deque.abandon();
                    } else {
                        locked(&self.failed).get_or_insert(error);
                        self.deque.close();
                    }
                    return;
                }
            }
        }
    }

    fn batch(&self, left: Range<usize>) -> usize {
        match self.share {
            Some(share) => self.units.planned(left, share, LANES, MOST_PAIRS),
            None => self.units.on_demand(left, LANES, MOST_PAIRS),
        }
    }

    /// Joins the queries of some units on the device.
    fn join(
        &self,
        gpu: &dyn OnDevice<T>,
        lane: usize,
        units: Range<usize>,
        queries: usize,
        work: &OnGpu<'_, T>,
    ) -> Result<Work> {
        let mut named = Named::new(queries)?;
        for rank in units {
            self.shared.cpu.name_queries(self.units.positions(rank), &mut named)?;
        }
        let part = gpu.in_lane((lane, LANES), named.rows, &named.coordinates)?;
        let done = work(&*part, &named.numbers, lane);
        if let Some(stats) = part.gpu_stats() {
            self.shared.common.log.on_gpu(&stats);
        }
        if let (Some(monitor), Ok(done)) = (self.shared.setup.monitor, &done) {
            monitor.add(done.tests, 0);
        }
        done
    }

    /// What all did, when it has ended.
    fn end(self, works: Vec<Work>, began: Instant) -> Result<Work> {
        let unlocked = |clock: Mutex<Clock>| clock.into_inner().unwrap_or_else(|e| e.into_inner());
        let threads = self.threads.into_iter().map(unlocked).zip(works.iter());
        let threads = threads.map(|(mut clock, work)| {
            clock.found(*work);
            clock
        });
        let clocks = self.streams.into_iter().map(unlocked).chain(threads);
        self.shared.common.log.add(&ended(clocks, began));
        match self.failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
            Some(error) => Err(error),
            None => {
                let on_gpu = self.total.into_inner().unwrap_or_else(|e| e.into_inner());
                Ok(works.into_iter().chain([on_gpu]).sum())
            }
        }
    }
}

/// The light end, for the threads of the CPU.
impl<T: Scalar> Units for Pass<'_, '_, T> {
    fn take(&self, thread: usize) -> Option<Run> {
        let mut clock = locked(&self.threads[thread]);
        clock.stop();
        let positions = self.units.positions(self.deque.take_light()?);
        clock.start(1, positions.len());
        Some(positions)
    }

    fn close(&self) {
        self.deque.close();
    }

    fn threads(&self, all: usize) -> usize {
        if all >= MANY_THREADS && self.shared.gpu().is_some() { all - 1 } else { all }
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
                        delivered.add(rows);
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
