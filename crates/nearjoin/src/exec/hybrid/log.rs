//! Who worked when, and on what.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use super::reason;
use crate::error::{Error, Result};
use crate::exec::Work;
use crate::options::Device;
use crate::stats::{GpuStats, HybridStats, Lost, WorkerStats};

/// Seconds between two spans that are shown as one.
const GAP: f64 = 2e-4;
/// Spans of a worker at the most: beyond, the last one grows.
const SPANS: usize = 512;

/// What was done since it was last asked, over all passes.
pub(super) struct Log {
    told: Mutex<HybridStats>,
    gpu: Mutex<GpuStats>,
    /// Whether the GPU is lost, in this pass or before.
    gone: AtomicBool,
    empty: HybridStats,
}

impl Log {
    /// `empty` says how work is shared.
    pub(super) fn new(empty: HybridStats) -> Self {
        Log {
            told: Mutex::new(empty.clone()),
            gpu: Mutex::default(),
            gone: AtomicBool::new(false),
            empty,
        }
    }

    fn told(&self) -> MutexGuard<'_, HybridStats> {
        self.told.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Adds a pass.
    pub(super) fn add(&self, pass: &HybridStats) {
        self.told().add(pass);
    }

    /// Notes that the GPU is lost, and how many queries the CPU answers in its place. The first
    /// reason stays.
    pub(super) fn lose(&self, error: Error, queries: usize) {
        self.gone.store(true, Relaxed);
        let mut told = self.told();
        let lost = told.lost.get_or_insert_with(|| Lost { reason: reason(error), queries: 0 });
        lost.queries += queries as u64;
    }

    /// Whether the GPU is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// Does something that one processor does alone, and adds it.
    pub(super) fn timed(
        &self,
        device: Device,
        queries: usize,
        work: impl FnOnce() -> Result<Work>,
    ) -> Result<Work> {
        let began = Instant::now();
        let mut clock = Clock::new(device, 0, began);
        clock.start(1, queries);
        let work = work();
        match &work {
            Ok(work) => clock.found(*work),
            Err(_) => clock.fail(1, queries),
        }
        self.add(&ended(core::iter::once(clock), began));
        work
    }

    /// Adds what the device did.
    pub(super) fn on_gpu(&self, stats: &GpuStats) {
        let mut all = self.gpu.lock().unwrap_or_else(|e| e.into_inner());
        if all.device.is_empty() {
            let device = stats.device.clone();
            let GpuStats { cooperation, threads_per_query, schedule, partitions, .. } = *stats;
            *all = GpuStats {
                device,
                cooperation,
                threads_per_query,
                schedule,
                partitions,
                ..GpuStats::default()
            };
        }
        all.add(stats);
    }

    /// What was done since this was last asked.
    pub(super) fn take(&self) -> HybridStats {
        core::mem::replace(&mut self.told(), self.empty.clone())
    }

    pub(super) fn take_gpu(&self) -> Option<GpuStats> {
        let taken = core::mem::take(&mut *self.gpu.lock().unwrap_or_else(|e| e.into_inner()));
        (!taken.device.is_empty()).then_some(taken)
    }
}

/// One worker of a pass.
pub(super) struct Clock {
    stats: WorkerStats,
    began: Instant,
    /// When it began what it is at.
    since: Option<f64>,
}

impl Clock {
    /// A worker of a pass that began at this time.
    pub(super) fn new(device: Device, number: usize, began: Instant) -> Self {
        let stats = WorkerStats { device, number, ..WorkerStats::default() };
        Clock { stats, began, since: None }
    }

    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// It begins to work on some units.
    pub(super) fn start(&mut self, units: usize, queries: usize) {
        self.since = Some(self.now());
        self.stats.units += units as u64;
        self.stats.queries += queries as u64;
    }

    /// It has worked since the pass began.
    pub(super) fn start_with_pass(&mut self, units: usize, queries: usize) {
        self.start(units, queries);
        self.since = Some(0.0);
    }

    /// It is done with what it was at, if it was at anything.
    pub(super) fn stop(&mut self) {
        let Some(start) = self.since.take() else { return };
        let end = self.now();
        self.stats.busy += end - start;
        let spans = &mut self.stats.spans;
        let full = spans.len() >= SPANS;
        match spans.last_mut().filter(|last| full || start - last.1 < GAP) {
            Some(last) => last.1 = end,
            None => spans.push((start, end)),
        }
    }

    /// It did not do what it was at: somebody else will.
    pub(super) fn fail(&mut self, units: usize, queries: usize) {
        self.stop();
        self.stats.units -= units as u64;
        self.stats.queries -= queries as u64;
    }

    pub(super) fn found(&mut self, work: Work) {
        self.stats.distance_tests += work.tests;
        self.stats.pairs += work.pairs;
    }
}

/// A pass that has ended, from the clocks of all workers.
pub(super) fn ended(clocks: impl Iterator<Item = Clock>, began: Instant) -> HybridStats {
    let seconds = began.elapsed().as_secs_f64();
    let mut pass = HybridStats { seconds, ..HybridStats::default() };
    for mut clock in clocks {
        clock.stop();
        clock.stats.idle = (seconds - clock.stats.busy).max(0.0);
        pass.workers.push(clock.stats);
    }
    let end = |device| {
        let of = pass.workers.iter().filter(|worker| worker.device == device);
        of.filter_map(|worker| worker.spans.last()).map(|span| span.1).reduce(f64::max)
    };
    // Where one of them stood by, nobody waited for it.
    if let (Some(gpu), Some(cpu)) = (end(Device::Gpu), end(Device::Cpu)) {
        pass.apart = (gpu - cpu).abs();
    }
    pass
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn a_pass_tells_who_was_busy_and_who_ended_first() {
        let began = Instant::now();
        let mut gpu = Clock::new(Device::Gpu, 1, began);
        let mut cpu = Clock::new(Device::Cpu, 0, began);
        gpu.start(4, 100);
        cpu.start(1, 16);
        std::thread::sleep(Duration::from_millis(2));
        cpu.stop();
        cpu.found(Work { pairs: 3, tests: 7, taken: 0 });
        std::thread::sleep(Duration::from_millis(4));
        gpu.stop();
        let pass = ended([gpu, cpu].into_iter(), began);
        assert!(pass.apart >= 0.004 && pass.seconds >= 0.006, "{pass:?}");
        let (gpu, cpu) = (pass.of(Device::Gpu), pass.of(Device::Cpu));
        assert_eq!((gpu.units, gpu.queries, cpu.units, cpu.pairs), (4, 100, 1, 3));
        assert!(gpu.busy > cpu.busy && cpu.idle > gpu.idle, "{pass:?}");
        let log = Log::new(HybridStats::default());
        log.add(&pass);
        let lost = |reason: &str| Error::Device { device: "gpu", reason: reason.into() };
        assert!(!log.is_lost());
        log.lose(lost("gone"), 5);
        log.lose(lost("again"), 2);
        let told = log.take();
        assert_eq!(told.lost, Some(Lost { reason: "gone".into(), queries: 7 }));
        assert_eq!((log.take(), log.is_lost()), (HybridStats::default(), true));
    }
}
