//! The extension module behind the Python package `nearjoin`.
//!
//! It is the border and no more: arrays of numpy become [`points`], an answer's memory becomes
//! [`array`]s of numpy, and while a join runs Python is let go of and its signals are looked after
//! ([`run`]). What users call, with its defaults, its checks and its documentation, is in Python.

mod array;
mod batches;
mod error;
mod half;
mod info;
mod join;
mod options;
mod points;
mod read;
mod run;
mod told;

use pyo3::prelude::*;

/// What the package calls; not for users.
#[pymodule]
mod _nearjoin {
    #[pymodule_export]
    use super::batches::{Batches, eps_batches, knn_batches};
    #[pymodule_export]
    use super::info::{info, release_memory};
    #[pymodule_export]
    use super::join::{eps_count, eps_csr, eps_degrees, estimate_eps, groups, knn, plan};
    #[pymodule_export]
    use super::read::read;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
