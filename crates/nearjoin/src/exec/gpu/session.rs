//! A session on a device: what every join there uses, whatever it computes.
//!
//! The device with its streams and the memory that it keeps pinned, the threads that land results,
//! who watches, and what is told in the end.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::device::{Array, Device, Stage};
use super::driver::Fault;
use super::ring;
use crate::error::Error;
use crate::exec::Work;
use crate::exec::pool::Pool;
use crate::monitor::{Monitor, Phase};
use crate::plan::OnGpu;
use crate::stats::GpuStats;

/// Why work on a device came to an end before it was done.
///
/// Memory that was refused, a device that is lost and a caller that has had enough stay apart up
/// to the border of the executor: only for want of memory is less tried.
#[derive(Debug)]
pub(super) enum Stop {
    /// The device did not do what it was asked.
    Fault(Fault),
    /// Something else: the host has no memory, or the monitor has cancelled the join.
    Other(Error),
}

pub(super) type Result<T> = core::result::Result<T, Stop>;

impl Stop {
    /// Whether less of the same may do.
    pub(super) fn is_memory(&self) -> bool {
        matches!(self, Stop::Fault(Fault::Memory { .. }))
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Stop::Fault(fault)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Other(error)
    }
}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Fault(fault) => fault.into(),
            Stop::Other(error) => error,
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Error::Device { device: "gpu", reason: fault.to_string() }
    }
}

/// What every join on a device uses.
pub(super) struct Session<'a> {
    pub(super) device: Device,
    pub(super) pool: &'a Pool,
    pub(super) how: OnGpu,
    monitor: Option<&'a Monitor>,
    /// The one stream of all work, where others work beside it: they enter the phases.
    lane: Option<usize>,
    /// Until when the device is held back, where its rate is limited.
    held: Arc<Mutex<Option<Instant>>>,
    opened: Instant,
    stats: Mutex<GpuStats>,
}

/// The longest that is slept before somebody is asked whether to go on.
const NAP: Duration = Duration::from_millis(20);

impl<'a> Session<'a> {
    pub(super) fn new(
        device: Device,
        pool: &'a Pool,
        how: OnGpu,
        monitor: Option<&'a Monitor>,
    ) -> Self {
        let stats = GpuStats {
            device: how.device.name.clone(),
            cooperation: how.cooperation,
            threads_per_query: how.threads_per_query,
            schedule: how.schedule,
            ..GpuStats::default()
        };
        let (lane, held, opened) = (None, Arc::default(), Instant::now());
        Session { device, pool, how, monitor, lane, held, opened, stats: Mutex::new(stats) }
    }

    /// A session of its own for a share of the queries.
    pub(super) fn for_share(&self, share: f64) -> Self {
        let (device, how) = (self.device.clone(), self.how.for_share(share));
        let session = Session::new(device, self.pool, how, self.monitor);
        Session { lane: self.lane, held: self.held.clone(), opened: self.opened, ..session }
    }

    /// The same in one stream, beside those of other lanes.
    pub(super) fn in_lane(self, lane: usize, lanes: usize) -> Self {
        Session { lane: Some(lane), how: self.how.among(lanes), ..self }
    }

    /// Whether others work beside it, on threads of the pool perhaps: it does not ask for those.
    pub(super) fn is_lane(&self) -> bool {
        self.lane.is_some()
    }

    pub(super) fn stage(&self, stream: usize) -> Stage {
        self.device.stage(self.lane.unwrap_or(stream))
    }

    /// Holds work that began at a time back until a device would be done with it that does no more
    /// distance tests a second than the options say.
    pub(super) fn hold(&self, began: Instant, work: Work) -> Result<()> {
        let Some(rate) = self.how.rate else { return Ok(()) };
        let takes = Duration::try_from_secs_f64(work.tests as f64 / rate).unwrap_or_default();
        let until = {
            let mut held = self.held.lock().unwrap_or_else(|e| e.into_inner());
            let until = held.map_or(began, |held| held.max(began)) + takes;
            *held.insert(until)
        };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(NAP));
            self.check_cancelled()?;
        }
    }

    fn stats(&self) -> MutexGuard<'_, GpuStats> {
        self.stats.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(super) fn record(&self, change: impl FnOnce(&mut GpuStats)) {
        change(&mut self.stats());
    }

    /// What the device has done since this was last asked.
    pub(super) fn take_stats(&self) -> GpuStats {
        let mut stats = self.stats();
        let device = stats.device.clone();
        let GpuStats { cooperation, threads_per_query, schedule, .. } = *stats;
        let GpuStats { partitions, brute_force, .. } = *stats;
        let fresh =
            GpuStats { device, cooperation, threads_per_query, schedule, ..Default::default() };
        core::mem::replace(&mut stats, GpuStats { partitions, brute_force, ..fresh })
    }

    /// Enters a phase for whoever watches.
    pub(super) fn enter(&self, phase: Phase) {
        if let Some(monitor) = self.monitor.filter(|_| self.lane.is_none()) {
            monitor.enter(phase, self.how.expected_tests.max(1.0) as u64);
        }
    }

    /// Tells whoever watches of work.
    pub(super) fn add(&self, tests: f64, pairs: u64) {
        if let Some(monitor) = self.monitor {
            monitor.add(tests as u64, pairs);
        }
    }

    /// Tells of the pairs of a piece of work.
    pub(super) fn told(&self, work: Work) -> Work {
        self.add(0.0, work.pairs);
        work
    }

    pub(super) fn check_cancelled(&self) -> Result<()> {
        if self.how.lost_after.is_some_and(|after| self.opened.elapsed() > after) {
            return Err(Fault::Failed { reason: "it was to be lost by now".into() }.into());
        }
        match self.monitor {
            Some(monitor) if monitor.is_cancelled() => Err(Error::Cancelled.into()),
            _ => Ok(()),
        }
    }

    /// Bytes of the pieces in which a result crosses the bus.
    pub(super) fn chunk(&self, total: u64) -> usize {
        let (chunk, seconds) = self.how.chunk(total, self.device.kept_host_memory());
        self.record(|stats| {
            stats.chunk_bytes = chunk;
            stats.predicted_seconds += seconds;
        });
        chunk
    }

    /// Brings numbers of the device to the host: see [`ring::land`].
    pub(super) fn land<V: bytemuck::Pod + Send + Sync>(
        &self,
        stage: &Stage,
        array: &Array<V>,
        len: usize,
        take: impl Fn(usize, &[V]) + Sync,
    ) -> Result<()> {
        let pool = Some(self.pool).filter(|_| !self.is_lane());
        let bytes = ring::land(stage, pool, self.how.array_chunk(), array, len, take)?;
        self.record(|stats| stats.bytes_out += bytes);
        Ok(())
    }
}
