//! The CPU engine: a pool of threads over one queue, and the SIMD kernels.

mod answer;
mod block;
pub(crate) mod build;
pub(crate) mod build_knn;
mod descend;
pub(crate) mod epsilon;
pub(crate) mod kernel;
pub(crate) mod knn;
mod listed;
mod lockstep;
mod numbers;
mod product;
mod ranked;
mod relative;
mod rings;
mod scan;
pub(crate) mod scores;
pub(crate) mod select;
mod sheet;
pub(crate) mod sieve;
mod sort;
pub(crate) mod tile;
pub(crate) mod units;
