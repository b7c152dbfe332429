//! The GPU engine.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;

use crate::error::{Error, Result};

mod delivery;
pub(crate) mod device;
pub mod driver;
pub(crate) mod epsilon;
mod halves;
mod index;
mod job;
pub(crate) mod knn;
pub(crate) mod launch;
mod matrix;
mod partial;
mod pieces;
mod product;
pub(crate) mod ranges;
mod ring;
mod rows;
mod sample;
mod scores;
mod search;
mod session;
mod slabs;
mod sort;
mod tree;
mod upload;

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cuda")]
use cuda as backend;

#[cfg(not(feature = "cuda"))]
mod disabled;
#[cfg(not(feature = "cuda"))]
use disabled as backend;

static OPENED: AtomicBool = AtomicBool::new(false);

/// Whether the GPU of this process has been opened.
pub(crate) fn is_open() -> bool {
    OPENED.load(Relaxed)
}

/// The GPU of this process, opened when it is first asked for; or why there is none.
pub(crate) fn open() -> Result<Arc<dyn driver::Driver>> {
    match backend::open() {
        Ok(driver) => {
            OPENED.store(true, Relaxed);
            Ok(driver)
        }
        Err(reason) => Err(Error::Device { device: "gpu", reason }),
    }
}
