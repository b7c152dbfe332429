//! What was planned and what was done, as dictionaries.

use std::time::Duration;

use nearjoin::gpu::GpuStats;
use nearjoin::{Device, HybridStats, Plan, Scalar, Stats, WorkerStats};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::in_words_of_python;

/// A plan without its points.
pub(crate) struct Planned {
    text: String,
    strategy: String,
    device: Device,
    pairs: f64,
    seconds: (f64, f64),
    threads: usize,
    index_bytes: u64,
    memory_limit: u64,
    why_no_gpu: Option<String>,
}

impl Planned {
    pub(crate) fn of<T: Scalar>(plan: &Plan<'_, T>) -> Self {
        Planned {
            text: in_words_of_python(&plan.to_string()),
            strategy: plan.strategy().to_string(),
            device: plan.device(),
            pairs: plan.estimated_pairs(),
            seconds: plan.estimated_seconds(),
            threads: plan.threads(),
            index_bytes: plan.index_bytes(),
            memory_limit: plan.memory_limit(),
            why_no_gpu: plan.why_no_gpu().map(ToOwned::to_owned),
        }
    }
}

impl<'py> IntoPyObject<'py> for Planned {
    type Target = PyDict;
    type Output = Bound<'py, PyDict>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("text", self.text)?;
        dict.set_item("strategy", self.strategy)?;
        dict.set_item("device", self.device.to_string())?;
        dict.set_item("estimated_pairs", self.pairs)?;
        dict.set_item("estimated_seconds", self.seconds.1)?;
        dict.set_item("threads", self.threads)?;
        dict.set_item("index_bytes", self.index_bytes)?;
        dict.set_item("memory_limit", self.memory_limit)?;
        dict.set_item("why_no_gpu", self.why_no_gpu)?;
        Ok(dict)
    }
}

/// What a join did, and where.
pub(crate) struct Done {
    pub(crate) stats: Stats,
    pub(crate) device: Device,
    /// How long it took to look for coordinates that are no numbers.
    pub(crate) check: Duration,
}

impl<'py> IntoPyObject<'py> for Done {
    type Target = PyDict;
    type Output = Bound<'py, PyDict>;
    type Error = PyErr;

    /// The fields that matter to a caller, in the words of the program's `--stats`.
    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Done { stats, device, check } = self;
        let dict = PyDict::new(py);
        dict.set_item("pairs", stats.pairs)?;
        let points = PyDict::new(py);
        points.set_item("left", stats.points.0)?;
        points.set_item("right", stats.points.1)?;
        dict.set_item("points", points)?;
        dict.set_item("dimension", stats.dimension)?;
        dict.set_item("strategy", stats.strategy.to_string())?;
        dict.set_item("device", device.to_string())?;
        dict.set_item("simd", stats.simd.to_string())?;
        dict.set_item("threads", stats.threads)?;
        dict.set_item("distance_tests", stats.distance_tests)?;
        dict.set_item("pairs_taken", stats.pairs_taken)?;
        let seconds = PyDict::new(py);
        seconds.set_item("check", check.as_secs_f64())?;
        seconds.set_item("plan", stats.plan.as_secs_f64())?;
        seconds.set_item("index", stats.index.as_secs_f64())?;
        seconds.set_item("execute", stats.execute.as_secs_f64())?;
        seconds.set_item("total", (check + stats.total()).as_secs_f64())?;
        dict.set_item("seconds", seconds)?;
        let bytes = PyDict::new(py);
        bytes.set_item("index", stats.index_bytes)?;
        bytes.set_item("result", stats.result_bytes)?;
        dict.set_item("bytes", bytes)?;
        dict.set_item("gpu", stats.gpu.map(|gpu| of_gpu(py, gpu)).transpose()?)?;
        let hybrid = stats.hybrid.as_ref().map(|hybrid| of_hybrid(py, hybrid));
        dict.set_item("hybrid", hybrid.transpose()?)?;
        Ok(dict)
    }
}

fn of_gpu(py: Python<'_>, gpu: GpuStats) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("device", gpu.device)?;
    dict.set_item("partitions", gpu.partitions)?;
    dict.set_item("brute_force", gpu.brute_force)?;
    dict.set_item("batches", gpu.batches)?;
    dict.set_item("splits", gpu.splits)?;
    dict.set_item("bytes_in", gpu.bytes_in)?;
    dict.set_item("bytes_out", gpu.bytes_out)?;
    dict.set_item("delivery_seconds", gpu.delivery_seconds)?;
    Ok(dict)
}

fn of_hybrid<'py>(py: Python<'py>, hybrid: &HybridStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("partitioning", hybrid.partitioning.map(|by| by.to_string()))?;
    dict.set_item("expected_gpu_share", hybrid.expected_gpu_share)?;
    dict.set_item("seconds", hybrid.seconds)?;
    dict.set_item("imbalance", hybrid.imbalance())?;
    let lost = hybrid.lost.as_ref().map(|lost| (&lost.reason, lost.queries));
    dict.set_item("lost", lost)?;
    let workers: PyResult<Vec<_>> = hybrid.workers.iter().map(|one| of_worker(py, one)).collect();
    dict.set_item("workers", PyList::new(py, workers?)?)?;
    Ok(dict)
}

fn of_worker<'py>(py: Python<'py>, worker: &WorkerStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("device", worker.device.to_string())?;
    dict.set_item("queries", worker.queries)?;
    dict.set_item("pairs", worker.pairs)?;
    dict.set_item("busy_seconds", worker.busy)?;
    dict.set_item("idle_seconds", worker.idle)?;
    Ok(dict)
}
