//! nearjoin answers two questions about points, exactly, on whatever the machine has:
//! which pairs lie within a distance ε of each other (the ε-join), and which k points are
//! nearest (the KNN-join).
//!
//! ```
//! use nearjoin::{Points, eps_join};
//!
//! let data = [0.0, 0.0,  0.3, 0.4,  5.0, 5.0];
//! let points = Points::new(&data, 2)?;
//! let csr = eps_join(&points, 0.5)?;
//! assert_eq!(csr.neighbors(0), [1]); // at exactly 0.5: within means ≤
//! assert_eq!(csr.neighbors(1), [0]);
//! assert!(csr.neighbors(2).is_empty());
//! # Ok::<(), nearjoin::Error>(())
//! ```
//!
//! [`EpsJoin`] and [`KnnJoin`] have the options, [`Plan`] explains what will be done before it is done,
//! and the [`sink`] receives the answer in the shape that is wanted: a count, degrees,
//! CSR arrays, pairs, or blocks as they are found.
//!
//! A join has one right answer. Every strategy, thread count and instruction set gives
//! that one, bit for bit: distances are computed in the points' own type, dimension 0
//! first, with fused multiply-add, and a pair matches when its distance is ≤ ε.

mod curve;
mod error;
mod exec;
mod filter;
mod gpu;
mod index;
mod join;
mod knn;
mod memory;
mod metric;
mod monitor;
mod options;
pub mod oracle;
mod plan;
mod points;
mod scalar;
pub mod sink;
mod stats;
mod summary;

pub use curve::NeighborCurve;
pub use error::{Error, Result};
pub use exec::cpu::kernel::SimdLevel;
pub use exec::gpu::batches::BatchModel;
#[doc(hidden)]
pub use exec::gpu::driver;
pub use gpu::{Gpu, gpu};
pub use join::{EpsJoin, Estimate, Plan, count_pairs, eps_join, eps_join_between};
pub use knn::{KnnJoin, KnnPlan, knn_join, knn_join_between};
pub use memory::Buffer;
pub use metric::Metric;
pub use monitor::{Monitor, Phase, Progress};
#[doc(hidden)]
pub use options::Knobs;
pub use options::{Cooperation, Device, DuplicateRemoval, GpuOptions, Schedule, Strategy};
pub use points::{MAX_DIMENSION, MAX_POINTS, Points, PointsBuf};
pub use scalar::Scalar;
pub use sink::{Csr, KnnSink, Neighbors, Sink};
pub use stats::{GpuStats, Stats};
