//! Points from files, and joins into files.
//!
//! [`read()`] loads points from Parquet, Arrow IPC, CSV and NPY; [`mod@write`] streams pairs into
//! Parquet, Arrow IPC, CSV and NPZ while they are found. A file appears under its name
//! only when it is complete.

mod error;
mod format;
pub mod quote;
pub mod read;
pub mod write;

pub use error::{Error, Place, Remedy, Result};
pub use format::{DType, Format, OutputFormat};
pub use read::{Loaded, PointSet, Progress, ReadOptions, Source, read, read_bytes};
