//! `nearjoin info`: what this machine has.

use nearjoin::SimdLevel;

use crate::failure::{Result, say};
use crate::number;
use crate::system;

pub(crate) fn run() -> Result {
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
    let memory = match system::memory() {
        Some((all, free)) => {
            format!("{}, of which {} are available", number::bytes(all), number::bytes(free))
        }
        None => "unknown".into(),
    };
    let gpu = match system::nvidia() {
        Ok(gpu) => format!(
            "{}, driver {}: not used, this version has no GPU engine",
            gpu.devices.join(", "),
            gpu.driver
        ),
        Err(reason) => format!("none: {reason} (and this version has no GPU engine)"),
    };
    let rows = [
        ("nearjoin", env!("CARGO_PKG_VERSION").to_string()),
        ("processor", system::processor().unwrap_or_else(|| "unknown".into())),
        ("threads", threads.to_string()),
        ("SIMD", simd),
        ("memory", memory),
        ("GPU", gpu),
        ("devices", "auto (cpu), cpu".to_string()),
    ];
    let lines: Vec<_> = rows.iter().map(|(name, value)| format!("{name:<10} {value}")).collect();
    say(lines.join("\n"))
}
