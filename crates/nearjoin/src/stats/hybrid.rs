//! What the CPU and a GPU did together.

use core::fmt;

use crate::options::{Device, Partitioning};

/// What the CPU and a GPU did together.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HybridStats {
    /// How they shared the work: never [`Partitioning::Auto`]. None where one of them did it and
    /// the other stood by.
    pub partitioning: Option<Partitioning>,
    /// The share of the candidates that the GPU was expected to take, from 0 to 1.
    pub expected_gpu_share: f64,
    /// Everybody who worked: threads of the CPU, and streams of the GPU.
    pub workers: Vec<WorkerStats>,
    /// Seconds that they worked, over all passes.
    pub seconds: f64,
    /// Seconds, over all passes, for which one of the processors had ended its work and the other
    /// had not.
    pub apart: f64,
    /// How the GPU was lost, if it was.
    pub lost: Option<Lost>,
}

impl HybridStats {
    /// The load-imbalance ratio: how much of the time one of the processors had nothing left to do,
    /// from 0 to 1. It is 0 where one of them stood by.
    pub fn imbalance(&self) -> f64 {
        if self.seconds > 0.0 { self.apart / self.seconds } else { 0.0 }
    }

    /// The workers of one of the processors together.
    pub fn of(&self, device: Device) -> WorkerStats {
        let mut all = WorkerStats { device, ..WorkerStats::default() };
        self.workers.iter().filter(|worker| worker.device == device).for_each(|w| all.add(w));
        all
    }

    /// Adds what was done in another pass, or for another part of the queries.
    pub fn add(&mut self, other: &HybridStats) {
        self.partitioning = self.partitioning.or(other.partitioning);
        self.expected_gpu_share = self.expected_gpu_share.max(other.expected_gpu_share);
        let begin = self.seconds;
        for worker in &other.workers {
            let same = |known: &&mut WorkerStats| {
                (known.device, known.number) == (worker.device, worker.number)
            };
            let known = match self.workers.iter_mut().find(same) {
                Some(known) => known,
                None => {
                    let WorkerStats { device, number, .. } = *worker;
                    self.workers.push(WorkerStats { device, number, ..Default::default() });
                    let last = self.workers.len() - 1;
                    &mut self.workers[last]
                }
            };
            known.add(worker);
            let shifted = worker.spans.iter().map(|&(from, to)| (from + begin, to + begin));
            known.spans.extend(shifted);
        }
        self.seconds += other.seconds;
        self.apart += other.apart;
        match (&mut self.lost, &other.lost) {
            (Some(lost), Some(again)) => lost.queries += again.queries,
            (None, Some(lost)) => self.lost = Some(lost.clone()),
            (_, None) => {}
        }
    }
}

/// What one of those did who worked together: a thread of the CPU, or a stream of the GPU.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WorkerStats {
    /// The CPU or the GPU.
    pub device: Device,
    /// Which of its threads or streams, from 0.
    pub number: usize,
    /// Units of work that it did, and the queries in them.
    pub units: u64,
    /// See `units`.
    pub queries: u64,
    /// Distances that it computed.
    pub distance_tests: u64,
    /// Pairs that it found.
    pub pairs: u64,
    /// Seconds that it worked, and that it waited for others.
    pub busy: f64,
    /// See `busy`.
    pub idle: f64,
    /// When it worked, in seconds since the first of all workers began; what is close together is
    /// one span.
    pub spans: Vec<(f64, f64)>,
}

impl Default for WorkerStats {
    fn default() -> Self {
        WorkerStats {
            device: Device::Cpu,
            number: 0,
            units: 0,
            queries: 0,
            distance_tests: 0,
            pairs: 0,
            busy: 0.0,
            idle: 0.0,
            spans: Vec::new(),
        }
    }
}

impl WorkerStats {
    /// Adds the figures of another, but for its spans.
    fn add(&mut self, other: &WorkerStats) {
        self.units += other.units;
        self.queries += other.queries;
        self.distance_tests += other.distance_tests;
        self.pairs += other.pairs;
        self.busy += other.busy;
        self.idle += other.idle;
    }
}

/// How a GPU was lost in the middle of a join.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Lost {
    /// What went wrong, as a clause.
    pub reason: String,
    /// Queries that the CPU answered in its place.
    pub queries: u64,
}

/// In lines that follow others.
impl fmt::Display for HybridStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(partitioning) = self.partitioning {
            let (gpu, cpu) = (self.of(Device::Gpu), self.of(Device::Cpu));
            let all = (gpu.distance_tests + cpu.distance_tests).max(1) as f64;
            write!(
                f,
                "\n  shared by {partitioning}: {:.0} % of the tests on the gpu, imbalance {:.2}",
                100.0 * gpu.distance_tests as f64 / all,
                self.imbalance()
            )?;
        }
        match &self.lost {
            Some(lost) => write!(f, "\n  {lost}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the gpu was lost ({}), and the cpu answered {} queries in its place",
            self.reason, self.queries
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_add_up_one_behind_the_other() {
        let worker = |device, number, busy, span| WorkerStats {
            device,
            number,
            units: 2,
            busy,
            spans: vec![span],
            ..WorkerStats::default()
        };
        let mut first = HybridStats {
            workers: vec![worker(Device::Gpu, 0, 1.0, (0.0, 1.0))],
            seconds: 2.0,
            apart: 0.5,
            ..HybridStats::default()
        };
        let mut second = first.clone();
        second.workers.push(worker(Device::Cpu, 0, 0.5, (0.5, 1.0)));
        second.lost = Some(Lost { reason: "it is gone".into(), queries: 7 });
        first.add(&second);
        assert_eq!(first.workers[0].spans, [(0.0, 1.0), (2.0, 3.0)]);
        assert_eq!(first.workers[1].spans, [(2.5, 3.0)]);
        assert_eq!((first.of(Device::Gpu).units, first.of(Device::Gpu).busy), (4, 2.0));
        assert_eq!((first.seconds, first.imbalance()), (4.0, 0.25));
        assert!(first.to_string().contains("lost (it is gone), and the cpu answered 7 queries"));
    }
}
