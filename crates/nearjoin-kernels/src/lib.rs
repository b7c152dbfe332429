//! The CUDA kernels of nearjoin: their sources, and the PTX made from them.
//!
//! `cargo xtask kernels` compiles `cu/` into `ptx/`, for compute capability 7.5 and later.
//! The PTX is committed, so that a build needs no CUDA compiler, and a join nothing but the
//! driver. A *module* is one source file compiled for one type, dimension and metric.

/// PTX with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module {
    /// The name, that of the file in `ptx/`: `sort`, `index_f32`, `epsilon_f32_2_l2`, …
    pub name: &'static str,
    /// The text that a driver compiles.
    pub ptx: &'static str,
}

/// Dimensions that have modules of their own; all others share one, with a `0` in its name.
pub const DIMENSIONS: core::ops::RangeInclusive<usize> = 1..=8;
