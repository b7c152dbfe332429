//! Where a join runs: the device is opened here, and its facts go to the plan.

use crate::error::{Error, Result};
use crate::exec::gpu;
use crate::exec::gpu::device::Device as Opened;
use crate::memory::SystemMemory;
use crate::options::{Device, Strategy};
use crate::plan::{self, Asked, Decision, Host};
use crate::question::Question;
use crate::scalar::Scalar;
use crate::summary::{Effort, Summary};

/// Whether the device has the join and the strategy, and is there.
pub(super) fn check(asked: &Asked<'_>) -> Result<()> {
    let (options, known) = (asked.options, asked.question.strategies());
    let on_gpu = match (options.device, asked.question) {
        (Device::Gpu, Question::Within(_)) => true,
        (Device::Gpu | Device::Hybrid, Question::Nearest(_)) => {
            let device = if options.device == Device::Gpu { "gpu" } else { "hybrid" };
            let reason = "this version has no KNN-join for GPUs; use auto or cpu".into();
            return Err(Error::Device { device, reason });
        }
        (Device::Hybrid, Question::Within(_)) => {
            let reason = "this version joins on one device at a time; use auto, cpu or gpu".into();
            return Err(Error::Device { device: "hybrid", reason });
        }
        (Device::Auto | Device::Cpu, _) => false,
    };
    let gpu_has = &[Strategy::Auto, Strategy::Brute, Strategy::Directory, Strategy::Grid];
    let known = if on_gpu { gpu_has } else { known };
    if !known.contains(&options.strategy) {
        return Err(Error::Strategy { strategy: options.strategy, known });
    }
    if on_gpu {
        open(asked).map_err(|error| match error {
            Error::Device { device, reason } => {
                Error::Device { device, reason: format!("{reason}; or use the device auto or cpu") }
            }
            error => error,
        })?;
    }
    Ok(())
}

/// How much of the points to look at.
pub(super) fn effort<T: Scalar>(asked: &Asked<'_>) -> Effort {
    match (asked.question, asked.options.device) {
        (Question::Nearest(nearest), _) => Effort::nearest(nearest.k),
        // What lies beyond the extents of a sample belongs to the end cells of a grid; but narrow
        // points must not.
        (_, Device::Gpu) if size_of::<T>() == size_of::<f32>() => Effort::QUICK,
        (_, Device::Gpu) => Effort::QUICK.with_extents(),
        _ => Effort::FULL,
    }
}

/// Decides where a join runs, and how. A GPU is opened only if one was named, or is likely to be
/// worth it.
pub(super) fn decide(
    asked: &Asked<'_>,
    summary: &Summary,
    threads: usize,
) -> Result<(Decision, Option<Opened>)> {
    let calibration = asked.options.gpu.knobs.calibration.unwrap_or_default();
    // The system is asked only where its answer is wanted: that takes as long as a small join.
    let system = asked.options.memory_limit.map_or_else(SystemMemory::now, |_| None);
    let memory = system.map_or(u64::MAX, |memory| memory.beside_threads(threads));
    let host = Host { threads, memory, calibration };
    if let (Device::Gpu, Question::Within(within)) = (asked.options.device, asked.question) {
        let device = open(asked)?;
        let decision = plan::on_gpu(asked, within, summary, &host, &device.facts()?);
        return Ok((decision, Some(device)));
    }
    let mut on_cpu = plan::on_cpu(asked, summary, &host);
    on_cpu.why_no_gpu = match plan::worth_a_gpu(asked, &on_cpu, &host) {
        Err(reason) => reason,
        Ok(within) => match open(asked).and_then(|device| Ok((device.facts()?, device))) {
            Err(Error::Device { reason, .. }) => Some(reason),
            Err(error) => return Err(error),
            Ok((facts, device)) => {
                let on_gpu = plan::on_gpu(asked, within, summary, &host, &facts);
                match plan::prefer_gpu(&on_cpu, &on_gpu) {
                    Ok(()) => return Ok((on_gpu, Some(device))),
                    Err(reason) => Some(reason),
                }
            }
        },
    };
    Ok((on_cpu, None))
}

/// The device that the options name, or that of the machine.
fn open(asked: &Asked<'_>) -> Result<Opened> {
    let driver = match &asked.options.gpu.knobs.driver {
        Some(driver) => driver.clone(),
        None => gpu::open()?,
    };
    Ok(Opened::new(driver))
}
