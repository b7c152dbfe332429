//! Where a join runs: the device is opened here, and its facts go to the plan.

use super::{calibration, ranges};
use crate::error::{Error, Result};
use crate::exec::cpu::kernel::SimdLevel;
use crate::exec::gpu;
use crate::exec::gpu::device::Device as Opened;
use crate::memory::SystemMemory;
use crate::options::Device;
use crate::plan::{self, Asked, Decision, GpuFacts, Host, Multiplier, Role, Weighed, hybrid};
use crate::question::Question;
use crate::scalar::Scalar;
use crate::summary::{Effort, Summary};

/// Whether the device has the join and the strategy, and is there.
pub(super) fn check(asked: &Asked<'_>) -> Result<()> {
    let options = asked.options;
    if ranges::asked(asked).is_some() {
        return ranges::check(asked);
    }
    let on_gpu = options.device == Device::Gpu;
    let known = match on_gpu {
        true => asked.question.gpu_strategies(),
        false => asked.question.strategies(),
    };
    if !known.contains(&options.strategy) {
        return Err(Error::Strategy { strategy: options.strategy, known });
    }
    // A device that is lost at once can be done without, too.
    if on_gpu && !options.rescue { check_open(asked, "use the device auto or cpu") } else { Ok(()) }
}

/// Whether the device is there; and if not, what else can be done.
pub(super) fn check_open(asked: &Asked<'_>, instead: &str) -> Result<()> {
    open(asked).map(drop).map_err(|error| match error {
        Error::Device { device, reason } => {
            Error::Device { device, reason: format!("{reason}; or {instead}") }
        }
        error => error,
    })
}

/// What was decided, and what it rests on.
pub(super) struct Decided {
    pub(super) decision: Decision,
    /// The device, where a GPU has a part in it.
    pub(super) device: Option<Opened>,
    pub(super) host: Host,
}

impl Decided {
    /// Of what the CPU and the GPU would do, what was found the best.
    fn new(
        asked: &Asked<'_>,
        [on_cpu, on_gpu]: [Decision; 2],
        weighed: Weighed,
        opened: Opened,
        host: Host,
    ) -> Self {
        let device = (weighed.role != Role::Cpu).then_some(opened);
        let decision = hybrid::settle(asked, on_cpu, on_gpu, weighed);
        Decided { decision, device, host }
    }
}

/// All that the CPU looks at before it joins.
fn full_effort(asked: &Asked<'_>) -> Effort {
    match asked.question {
        Question::Nearest(nearest) => Effort::nearest(nearest.k),
        Question::Within(_) => Effort::FULL,
    }
}

/// How much of the points, of so many dimensions, to look at first.
fn effort<T: Scalar>(asked: &Asked<'_>, dim: usize) -> Effort {
    match (asked.question, asked.options.device) {
        (Question::Nearest(nearest), Device::Gpu | Device::Hybrid) => {
            Effort::quickly_nearest(nearest.k, dim)
        }
        // What lies beyond the extents of a sample belongs to the end cells of a grid; but narrow
        // points must not.
        (_, Device::Gpu | Device::Hybrid) if size_of::<T>() == size_of::<f32>() => {
            Effort::QUICK.for_dimensions(dim)
        }
        (_, Device::Gpu | Device::Hybrid) => Effort::QUICK.with_extents(),
        _ => full_effort(asked),
    }
}

/// What is known of the machine before a device is.
pub(super) fn host(asked: &Asked<'_>, threads: usize) -> Host {
    // The system is asked only where its answer is wanted: that takes as long as a small join.
    let system = asked.options.memory_limit.map_or_else(SystemMemory::now, |_| None);
    let memory = system.map_or(u64::MAX, |memory| memory.beside_threads(threads));
    let knobs = &asked.options.gpu.knobs;
    let gpu_is_open = gpu::is_open() && knobs.driver.is_none();
    let multiplier = SimdLevel::detect().map_or(Multiplier::Numbers, SimdLevel::multiplier);
    let calibration = knobs.calibration.unwrap_or_default();
    Host { threads, memory, gpu_is_open, multiplier, calibration }
}

/// Decides where a join runs, and how. A GPU is opened only if one was named, or is likely to be
/// worth it.
pub(super) fn decide<T: Scalar>(
    asked: &Asked<'_>,
    dim: usize,
    summarise: &dyn Fn(Effort) -> Summary,
    threads: usize,
) -> Result<Decided> {
    let (host, device) = (host(asked, threads), asked.options.device);
    if !matches!(device, Device::Gpu | Device::Hybrid) {
        let has_it = asked.question.gpu_strategies().contains(&asked.options.strategy);
        if let (Question::Nearest(nearest), Device::Auto, true) =
            (asked.question, device, host.gpu_is_open && has_it)
        {
            // It may take less time to search than the CPU takes to look at all points.
            let summary = summarise(Effort::quickly_nearest(nearest.k, dim));
            let decided = decide_freely(asked, &summary, host)?;
            if decided.decision.on_cpu().is_none() {
                return Ok(decided);
            }
        }
        return decide_freely(asked, &summarise(effort::<T>(asked, dim)), host);
    }
    let lost = |reason: String| {
        let mut decision = plan::on_cpu(asked, &summarise(full_effort(asked)), &host);
        decision.why_no_gpu = Some(reason);
        Ok(Decided { decision, device: None, host })
    };
    let (facts, opened) = match open(asked).and_then(|device| Ok((device.facts()?, device))) {
        Err(Error::Device { reason, .. }) if device == Device::Hybrid || asked.options.rescue => {
            return lost(reason);
        }
        opened => opened?,
    };
    let (host, told) = calibrated(asked, host, &facts);
    let summary = summarise(effort::<T>(asked, dim));
    let on_gpu = plan::on_gpu(asked, &summary, &host, &facts);
    if device == Device::Gpu {
        return Ok(Decided { decision: on_gpu, device: Some(opened), host });
    }
    let mut on_cpu = plan::on_cpu(asked, &summary, &host);
    let weighed = hybrid::weigh(asked.options, &on_cpu, &on_gpu, told);
    if weighed.role != Role::Gpu {
        // The CPU works, and it looks at all points before it does.
        let share = if weighed.role == Role::Both { 1.0 - weighed.gpu_share } else { 1.0 };
        on_cpu = plan::on_cpu_for(asked, &summarise(full_effort(asked)), &host, share);
    }
    Ok(Decided::new(asked, [on_cpu, on_gpu], weighed, opened, host))
}

/// Decides where the options leave the device open, or name the CPU.
fn decide_freely(asked: &Asked<'_>, summary: &Summary, host: Host) -> Result<Decided> {
    let mut on_cpu = plan::on_cpu(asked, summary, &host);
    on_cpu.why_no_gpu = match plan::worth_a_gpu(asked, &on_cpu, &host) {
        Err(reason) => reason,
        Ok(()) => match open(asked).and_then(|device| Ok((device.facts()?, device))) {
            Err(Error::Device { reason, .. }) => Some(reason),
            Err(error) => return Err(error),
            Ok((facts, opened)) => {
                let (host, told) = calibrated(asked, host, &facts);
                let on_cpu = plan::on_cpu(asked, summary, &host);
                let on_gpu = plan::on_gpu(asked, summary, &host, &facts);
                let weighed = hybrid::weigh(asked.options, &on_cpu, &on_gpu, told);
                let on_cpu = match weighed.role {
                    Role::Both => plan::on_cpu_for(asked, summary, &host, 1.0 - weighed.gpu_share),
                    _ => on_cpu,
                };
                return Ok(Decided::new(asked, [on_cpu, on_gpu], weighed, opened, host));
            }
        },
    };
    Ok(Decided { decision: on_cpu, device: None, host })
}

/// The machine with its calibration, unless one was given, and what is to be told of it.
pub(super) fn calibrated(asked: &Asked<'_>, host: Host, facts: &GpuFacts) -> (Host, String) {
    if asked.options.gpu.knobs.calibration.is_some() {
        return (host, "by a calibration that was given".into());
    }
    let known = calibration::for_machine(&facts.name);
    (Host { calibration: known.calibration, ..host }, known.told)
}

/// The device that the options name, or that of the machine.
pub(super) fn open(asked: &Asked<'_>) -> Result<Opened> {
    let driver = match &asked.options.gpu.knobs.driver {
        Some(driver) => driver.clone(),
        None => gpu::open()?,
    };
    Ok(Opened::new(driver))
}
