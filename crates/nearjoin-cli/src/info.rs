//! `nearjoin info`: what this machine has.

use nearjoin::gpu::Gpu;
use nearjoin::{Error, SimdLevel, SystemMemory};

use crate::failure::{Result, say};
use crate::{args, calibrate, number, system};

pub(crate) fn run(args: &args::Info) -> Result {
    match args.calibrate {
        true => calibrate::run(),
        false => say(table(&rows())),
    }
}

/// What this machine has, by name.
fn rows() -> Vec<(&'static str, String)> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let levels: Vec<_> = SimdLevel::ALL
        .iter()
        .map(|level| match level.is_available() {
            true => level.to_string(),
            false => format!("no {level}"),
        })
        .collect();
    let simd = match SimdLevel::detect() {
        Ok(level) => format!("{level} ({})", levels.join(", ")),
        Err(error) => error.to_string(),
    };
    let memory = match SystemMemory::now() {
        Some(SystemMemory { total, available, .. }) => {
            format!("{}, of which {} are available", number::bytes(total), number::bytes(available))
        }
        None => "unknown".into(),
    };
    let found = nearjoin::gpu::find();
    let calibration = found.as_ref().ok().map(|gpu| ("calibration", gpu.calibration()));
    let (gpu, devices) = match found {
        Ok(gpu) => (describe(&gpu), "auto (the fastest for joins within ε), cpu, gpu, hybrid"),
        Err(Error::Device { reason, .. }) => (format!("none: {reason}"), "auto (cpu), cpu"),
        Err(error) => (format!("none: {error}"), "auto (cpu), cpu"),
    };
    let mut rows = vec![
        ("nearjoin", env!("CARGO_PKG_VERSION").to_string()),
        ("processor", system::processor().unwrap_or_else(|| "unknown".into())),
        ("threads", threads.to_string()),
        ("SIMD", simd),
        ("memory", memory),
        ("GPU", gpu),
        ("devices", devices.to_string()),
    ];
    rows.extend(calibration);
    rows
}

/// Names and values, line by line.
pub(crate) fn table(rows: &[(&str, String)]) -> String {
    let widest = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("{name:<widest$}  {value}");
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn describe(gpu: &Gpu) -> String {
    let (memory, free) = (number::bytes(gpu.memory), number::bytes(gpu.free_memory));
    let (capability, driver) = (gpu.capability, gpu.driver);
    format!(
        "{}, {memory}, of which {free} are free, compute capability {}.{}, driver for CUDA {}.{}",
        gpu.name, capability.0, capability.1, driver.0, driver.1
    )
}
