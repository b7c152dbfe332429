//! The CPU engine: a pool of threads over one queue, and the SIMD kernels.

pub(crate) mod epsilon;
pub(crate) mod kernel;
pub(crate) mod knn;
pub(crate) mod pool;
mod scan;
pub(crate) mod select;
pub(crate) mod tile;
