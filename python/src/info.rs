//! What this machine has.

use nearjoin::gpu::Gpu;
use nearjoin::{Error, SimdLevel, SystemMemory};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{Failure, in_words_of_python};
use crate::run::{is_forked, run};

/// What this machine has, by name.
#[pyfunction]
pub(crate) fn info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let simd = SimdLevel::detect().map_err(Failure::from)?.to_string();
    let levels = SimdLevel::ALL.iter().filter(|level| level.is_available());
    let levels: Vec<String> = levels.map(ToString::to_string).collect();
    let memory = SystemMemory::now();
    // To open a GPU takes a while.
    let gpu = match is_forked() {
        true => Err("this process was forked after nearjoin was used".to_owned()),
        false => run(py, None, (), |(), _| {
            Ok(nearjoin::gpu::find().map_err(|error| match error {
                Error::Device { reason, .. } => reason,
                error => error.to_string(),
            }))
        })?,
    };
    let dict = PyDict::new(py);
    dict.set_item("version", env!("CARGO_PKG_VERSION"))?;
    dict.set_item("threads", threads)?;
    dict.set_item("simd", simd)?;
    dict.set_item("simd_available", levels)?;
    dict.set_item("memory_total", memory.as_ref().map(|memory| memory.total))?;
    dict.set_item("memory_available", memory.as_ref().map(|memory| memory.available))?;
    dict.set_item("why_no_gpu", gpu.as_ref().err())?;
    dict.set_item("gpu", gpu.ok().map(|gpu| of_gpu(py, gpu)).transpose()?)?;
    Ok(dict)
}

/// Gives kept memory back to the system, and tells how many bytes it was.
#[pyfunction]
pub(crate) fn release_memory() -> u64 {
    nearjoin::release_memory()
}

fn of_gpu(py: Python<'_>, gpu: Gpu) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("calibration", in_words_of_python(&gpu.calibration()))?;
    dict.set_item("name", gpu.name)?;
    dict.set_item("memory", gpu.memory)?;
    dict.set_item("free_memory", gpu.free_memory)?;
    dict.set_item("multiprocessors", gpu.multiprocessors)?;
    dict.set_item("compute_capability", gpu.capability)?;
    dict.set_item("cuda", gpu.driver)?;
    Ok(dict)
}
