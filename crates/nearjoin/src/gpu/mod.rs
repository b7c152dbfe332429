//! GPUs: which there is, how it goes about a join, and what it did.

mod options;

#[doc(hidden)]
pub use crate::exec::gpu::driver;
#[doc(hidden)]
pub use crate::join::calibrate::calibrate_with;
pub use crate::join::calibrate::{Calibrated, Timing, calibrate};
// For the benchmark and for tests.
#[doc(hidden)]
pub use crate::plan::{Calibration, batches::BatchModel};
pub use crate::stats::GpuStats;
#[doc(hidden)]
pub use options::Knobs;
pub use options::{Cooperation, GpuOptions, Schedule};

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::exec;
use crate::join::calibration;

/// The GPU that joins can run on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gpu {
    /// The name its maker gave it.
    pub name: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of memory that were free when it was asked. Memory that nearjoin keeps for its
    /// next join is free.
    pub free_memory: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Compute capability: `(9, 0)` is 9.0.
    pub capability: (u32, u32),
    /// The CUDA version that the driver supports: `(12, 4)` is 12.4.
    pub driver: (u32, u32),
}

/// The GPU that joins can run on: the first that the driver names, which
/// `CUDA_VISIBLE_DEVICES` can change.
///
/// It is opened when it is first asked for, and that takes a while; without a GPU, the answer
/// comes at once. Either stays the answer as long as the process runs.
///
/// # Errors
///
/// [`Error::Device`] if there is none: no driver, one that is too old (for a CUDA before 12.0),
/// no GPU, one that is too old (a compute capability below 7.5), or all its memory is taken.
/// The reason says which, and what to do.
///
/// ```
/// match nearjoin::gpu::find() {
///     Ok(gpu) => println!("{} with {} bytes", gpu.name, gpu.memory),
///     Err(error) => println!("{error}"),
/// }
/// ```
pub fn find() -> Result<Gpu> {
    let driver = exec::gpu::open()?;
    let free_memory = driver
        .free_memory()
        .map_err(|fault| Error::Device { device: "gpu", reason: fault.to_string() })?;
    let properties = driver.properties().clone();
    Ok(Gpu {
        name: properties.name,
        memory: properties.memory,
        free_memory,
        multiprocessors: properties.multiprocessors,
        capability: properties.capability,
        driver: properties.driver,
    })
}

impl Gpu {
    /// Whether plans for this GPU rest on a calibration of the machine, as a clause.
    pub fn calibration(&self) -> String {
        calibration::for_machine(&self.name).told
    }
}

/// Where the calibration file of this machine is, or would be: what `NEARJOIN_CALIBRATION` names,
/// else `nearjoin/calibration` in `$XDG_CONFIG_HOME` or in `$HOME/.config` (on Windows in
/// `%APPDATA%`). None where that variable is empty, or none of them is set.
pub fn calibration_file() -> Option<PathBuf> {
    calibration::file().ok()
}
