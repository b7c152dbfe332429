//! One pass of both processors over one queue.
//!
//! ```text
//! cut the queries into units, sort them by expected work
//! each stream of the GPU, on a thread of its own, until it is lost or finds nothing:
//!     take units from the heavy end; gather their rows; join them as a part; deliver
//! each thread of the CPU, until nothing is left:
//!     take a unit from the light end, or one that came back; join it; deliver
//! ```

use core::ops::Range;
use std::sync::Mutex;
use std::time::Instant;

use super::is_loss;
use super::log::{Clock, ended};
use super::shared::Shared;
use super::units::Ranked;
use crate::error::{Error, Result};
use crate::exec::cpu::units::{Named, Units};
use crate::exec::queue::Deque;
use crate::exec::{OnDevice, Work, pool};
use crate::index::Run;
use crate::monitor::Phase;
use crate::options::{Device, Partitioning};
use crate::plan::hybrid::{LANES, MANY_THREADS, MOST_PAIRS};
use crate::scalar::Scalar;

/// What a stream does with a part of the join whose queries have these numbers.
pub(super) type OnGpu<'a, T> = dyn Fn(&dyn OnDevice<T>, &[u32], usize) -> Result<Work> + Sync + 'a;

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

impl<T: Scalar> Shared<'_, T> {
    /// The workers of both, and the queue between them.
    pub(super) fn pass(
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
            None => self.units.on_demand(left, self.shared.setup.batches, LANES, MOST_PAIRS),
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
