//! The measurement behind a calibration: one join, on the CPU and on the GPU.

use super::calibration::threads;
use super::{EpsJoin, Plan};
use crate::calibration::Filed;
use crate::error::Result;
use crate::gpu::{self, GpuOptions, Knobs};
use crate::memory::Buffer;
use crate::options::{Device, DuplicateRemoval};
use crate::plan::Calibration;
use crate::points::PointsBuf;
use crate::sink::{Count, CsrInto, CsrSink};
use crate::stats::Stats;

/// Points that are joined, exponential with this λ in so many dimensions.
const POINTS: usize = 1_000_000;
const LAMBDA: f64 = 40.0;
const DIMENSION: usize = 4;
/// At this ε each of them has about a hundred neighbours. With a few dozen, a plan expects up to
/// twice as much of one sample as of another, and that would be measured in place of the machine.
const EPS: f64 = 0.0036;
/// Runs of which the fastest counts, after one that does not.
const RUNS: usize = 3;

/// How fast this machine was found to be.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Calibrated {
    /// The name of the GPU.
    pub device: String,
    /// Threads that the machine runs at once. So many worked.
    pub threads: usize,
    /// Seconds of the CPU.
    pub cpu: Timing,
    /// Seconds of the GPU.
    pub gpu: Timing,
    /// What plans reckon with on this machine.
    pub calibration: Calibration,
}

/// Seconds that it took to index the points and to count their neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Timing {
    /// As they were measured.
    pub measured: f64,
    /// As a plan expects them that knows nothing of the machine.
    pub expected: f64,
}

impl Timing {
    fn ratio(self) -> f64 {
        self.measured / self.expected
    }
}

impl Calibrated {
    /// The text of a calibration file, with the name of the processor for people who read it.
    pub fn to_text(&self, processor: &str) -> String {
        let Calibrated { device, threads, calibration, .. } = self.clone();
        Filed { device, threads, calibration }.to_text(processor)
    }
}

/// Measures how fast the CPU and the GPU of this machine are, for plans that choose between them or
/// share a join among them: a million points are joined a few times on each, which takes a few
/// seconds. Nothing else should run meanwhile.
///
/// Nothing is kept. Plans go by [`calibration_file`](crate::gpu::calibration_file), which they read
/// once in a process; [`Calibrated::to_text`] is what belongs there.
///
/// # Errors
///
/// As for [`find`](crate::gpu::find) where there is no GPU, and as for
/// [`Plan::run`](crate::Plan::run).
///
/// ```no_run
/// let calibrated = nearjoin::gpu::calibrate()?;
/// println!("{} s on the cpu", calibrated.cpu.measured);
/// print!("{}", calibrated.to_text("a processor"));
/// # Ok::<(), nearjoin::Error>(())
/// ```
pub fn calibrate() -> Result<Calibrated> {
    gpu::find()?;
    calibrate_with(POINTS, &Knobs::default())
}

/// For tests: the same with another number of points, and on another device.
#[doc(hidden)]
pub fn calibrate_with(points: usize, knobs: &Knobs) -> Result<Calibrated> {
    let points = reference(points)?;
    let points = points.as_points();
    let (threads, default) = (threads(), Calibration::default());
    let plan = |device, listed| {
        let knobs = Knobs { calibration: Some(default), listed, ..knobs.clone() };
        EpsJoin::new(eps(points.len()))
            .device(device)
            .duplicate_removal(DuplicateRemoval::None)
            .threads(threads)
            .gpu(GpuOptions::new().knobs(knobs))
            .plan_self(&points)
    };
    let there = plan(Device::Gpu, None)?;
    let gpu = counted(&there)?;
    let mut sink = CsrSink::new();
    let collected = fastest(|| {
        sink = CsrSink::new();
        Ok(seconds(&there.run(&mut sink)?))
    })?;
    let (mut offsets, mut ids, _) = sink.into_csr().into_parts();
    let mut device = String::new();
    // Pairs that are listed take the device hardly any time to be sent: what is left is the bus.
    let listed = plan(Device::Gpu, Some(true))?;
    let delivered = fastest(|| {
        let stats = listed.run(&mut CsrInto::new(&mut offsets, &mut ids))?;
        let stats = stats.gpu.unwrap_or_default();
        device = stats.device;
        Ok(stats.delivery_seconds)
    })?;
    let cpu = counted(&plan(Device::Cpu, None)?)?;

    let bus = rate(size_of_val(&*ids), delivered).unwrap_or(default.bus);
    // What a plan expects of a CSR is two counts and the way back, which is no faster than the bus.
    let bytes = size_of_val(&*ids) + size_of_val(&*offsets);
    let landing = rate(bytes, collected - 2.0 * gpu.measured).map_or(bus, |rate| rate.min(bus));
    let calibration = Calibration { cpu: cpu.ratio(), gpu: gpu.ratio(), bus, landing, ..default };
    Ok(Calibrated { device, threads, cpu, gpu, calibration })
}

/// The ε that gives each of so many points as many neighbours as if there were [`POINTS`].
fn eps(points: usize) -> f64 {
    EPS * (POINTS as f64 / points as f64).powf(1.0 / DIMENSION as f64)
}

/// The points that are joined: the same on every machine.
fn reference(points: usize) -> Result<PointsBuf<f32>> {
    let mut state = 0u64;
    let mut data = Buffer::zeroed(points * DIMENSION)?;
    for x in data.iter_mut() {
        // SplitMix64, of which 53 bits are a number in (0, 1].
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let uniform = ((bits >> 11) + 1) as f64 / (1u64 << 53) as f64;
        *x = (-uniform.ln() / LAMBDA) as f32;
    }
    PointsBuf::from_buffer(data, DIMENSION)
}

/// Times a count, beside what the plan expects.
fn counted(plan: &Plan<'_, f32>) -> Result<Timing> {
    let measured = fastest(|| Ok(seconds(&plan.run(&mut Count::new())?)))?;
    Ok(Timing { measured, expected: plan.estimated_seconds().0 })
}

/// The least of some runs, after one that opens, loads, pins and wakes whatever a first one must.
fn fastest(mut run: impl FnMut() -> Result<f64>) -> Result<f64> {
    run()?;
    (0..RUNS).try_fold(f64::INFINITY, |least, _| Ok(run()?.min(least)))
}

/// Seconds of what a plan reckons with: it is made by then.
fn seconds(stats: &Stats) -> f64 {
    (stats.index + stats.execute).as_secs_f64()
}

/// Bytes a second, if so many seconds can tell.
fn rate(bytes: usize, seconds: f64) -> Option<f64> {
    let rate = bytes as f64 / seconds;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_has_about_a_hundred_neighbours_however_many_there_are() {
        for points in [2_000, 20_000] {
            let buffer = reference(points).unwrap();
            let mut count = Count::new();
            let join = EpsJoin::new(eps(points)).device(Device::Cpu);
            join.plan_self(&buffer.as_points()).unwrap().run(&mut count).unwrap();
            let neighbors = count.pairs() as f64 / points as f64;
            assert!((50.0..150.0).contains(&neighbors), "{neighbors} of {points}");
        }
    }

    #[test]
    fn the_points_are_exponential() {
        let buffer = reference(10_000).unwrap();
        let data = buffer.as_points().as_slice();
        let mean = data.iter().map(|&x| f64::from(x)).sum::<f64>() / data.len() as f64;
        assert!((mean * LAMBDA - 1.0).abs() < 0.02, "{mean}");
        assert_eq!(data, reference(10_000).unwrap().as_points().as_slice());
    }

    #[test]
    fn rates_are_numbers() {
        assert_eq!(rate(100, 0.5), Some(200.0));
        assert_eq!((rate(100, 0.0), rate(100, -1.0), rate(0, 0.0)), (None, None, None));
    }
}
