//! What happened: phases, work and bytes.

mod hybrid;
mod ranges;

pub use hybrid::{HybridStats, Lost, WorkerStats};
pub use ranges::RangesStats;

use core::fmt;
use std::time::Duration;

use crate::exec::Work;
use crate::exec::cpu::kernel::SimdLevel;
use crate::gpu::{Cooperation, Schedule};
use crate::options::Strategy;

/// What a join did, and how long each phase took.
///
/// ```
/// use nearjoin::{EpsJoin, Points, sink::Count};
/// let data: Vec<f32> = (0..1000).map(|i| (i % 37) as f32).collect();
/// let points = Points::new(&data, 1)?;
/// let stats = EpsJoin::new(1.0).plan_self(&points)?.run(&mut Count::new())?;
/// println!("{stats}");
/// assert_eq!(stats.points, (1000, 1000));
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Points on the left and on the right; the same number twice for a self-join.
    pub points: (usize, usize),
    /// Coordinates per point.
    pub dimension: usize,
    /// The strategy that ran.
    pub strategy: Strategy,
    /// The instruction set that was used.
    pub simd: SimdLevel,
    /// Threads that worked.
    pub threads: usize,
    /// Ordered pairs in the answer. Where each pair is delivered once, it counts once.
    pub pairs: u64,
    /// Pairs of points that were compared, over all passes: by their distance, or by a product.
    pub distance_tests: u64,
    /// Pairs that needed no distance, because their blocks lie wholly within ε.
    pub pairs_taken: u64,
    /// Time to summarise the points and to decide.
    pub plan: Duration,
    /// Time to build the index.
    pub index: Duration,
    /// Time to join and to fill the sink.
    pub execute: Duration,
    /// Bytes of the index, beside the input.
    pub index_bytes: u64,
    /// Bytes of the result that the sink holds.
    pub result_bytes: u64,
    /// What a GPU did, where one was used.
    pub gpu: Option<GpuStats>,
    /// What the CPU and a GPU did together, where both could: they shared the work, or the CPU
    /// stood by.
    pub hybrid: Option<HybridStats>,
    /// What a KNN-join by ranges did.
    pub ranges: Option<RangesStats>,
}

/// What a GPU did.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct GpuStats {
    /// The name of the device.
    pub device: String,
    /// How threads shared the work.
    pub cooperation: Cooperation,
    /// Threads to a query, where each looks for its own candidates.
    pub threads_per_query: u32,
    /// In which order work was taken.
    pub schedule: Schedule,
    /// Parts that the points were cut into because the device could not hold them at once.
    pub partitions: usize,
    /// Whether every pair was measured in place of products: the matrix units of the device do not round as
    /// the proof of products has it.
    pub brute_force: bool,
    /// Batches that the rows of the answer were made in.
    pub batches: usize,
    /// Pieces of work that had to be done again, because what they found was more than their list had
    /// room for, or memory was short.
    pub splits: usize,
    /// Bytes of a piece that crosses the bus.
    pub chunk_bytes: usize,
    /// Bytes that went to the device and came back.
    pub bytes_in: u64,
    /// See `bytes_in`.
    pub bytes_out: u64,
    /// Seconds that the rows were expected to take to the host, by the model of batches, and
    /// that they took; 0 where there were none.
    pub predicted_seconds: f64,
    /// See `predicted_seconds`.
    pub delivery_seconds: f64,
}

impl GpuStats {
    /// Adds what was done for a part of the queries, or in another pass. How it worked is the same
    /// in all of them.
    pub fn add(&mut self, part: &GpuStats) {
        self.brute_force |= part.brute_force;
        self.batches += part.batches;
        self.splits += part.splits;
        self.bytes_in += part.bytes_in;
        self.bytes_out += part.bytes_out;
        self.chunk_bytes = self.chunk_bytes.max(part.chunk_bytes);
        self.predicted_seconds += part.predicted_seconds;
        self.delivery_seconds += part.delivery_seconds;
    }
}

impl Stats {
    /// Planning, indexing and executing together.
    pub fn total(&self) -> Duration {
        self.plan + self.index + self.execute
    }

    pub(crate) fn record(&mut self, work: Work) {
        self.pairs = work.pairs;
        self.distance_tests += work.tests;
        self.pairs_taken += work.taken;
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (left, right) = self.points;
        writeln!(
            f,
            "{} pairs of {} × {} points in {:.3} s ({} on {})",
            self.pairs,
            left,
            right,
            self.total().as_secs_f64(),
            self.strategy,
            match &self.gpu {
                Some(gpu) => gpu.device.clone(),
                None => format!("{} threads, {}", self.threads, self.simd),
            }
        )?;
        writeln!(
            f,
            "  plan {:.1} ms, index {:.1} ms, execute {:.1} ms",
            self.plan.as_secs_f64() * 1e3,
            self.index.as_secs_f64() * 1e3,
            self.execute.as_secs_f64() * 1e3
        )?;
        write!(
            f,
            "  {} distance tests, {} pairs taken whole; index {}, result {}",
            self.distance_tests,
            self.pairs_taken,
            bytes(self.index_bytes),
            bytes(self.result_bytes)
        )?;
        if let Some(gpu) = &self.gpu {
            write!(
                f,
                "\n  {}: {} in, {} out, {} batches ({} made again)",
                gpu.device,
                bytes(gpu.bytes_in),
                bytes(gpu.bytes_out),
                gpu.batches,
                gpu.splits
            )?;
            if gpu.brute_force {
                write!(f, "; by brute force, its matrix units round otherwise than products may")?;
            }
        }
        self.hybrid.iter().try_for_each(|hybrid| write!(f, "{hybrid}"))?;
        self.ranges.iter().try_for_each(|ranges| write!(f, "{ranges}"))
    }
}

/// Bytes as people read them: `1.50 GiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_as_people_read_them() {
        assert_eq!(super::bytes(0), "0 B");
        assert_eq!(super::bytes(1023), "1023 B");
        assert_eq!(super::bytes(1536), "1.50 KiB");
        assert_eq!(super::bytes(u64::MAX), "16777216.00 TiB");
    }
}
