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
//! assert_eq!(csr.ids_of(0), [1]); // at exactly 0.5: within means ≤
//! assert_eq!(csr.ids_of(1), [0]);
//! assert!(csr.ids_of(2).is_empty());
//! # Ok::<(), nearjoin::Error>(())
//! ```
//!
//! [`EpsJoin`] and [`KnnJoin`] have the options, [`Plan`] explains what will be done before it is
//! done, [`Indexed`] answers again and again over one index,
//! and the [`sink`] receives the answer in the shape that is wanted: a count, degrees,
//! CSR arrays, pairs, groups of points that hang together, or blocks as they are found.
//!
//! A join has one right answer. Every strategy, thread count and instruction set gives
//! that one, bit for bit: distances are computed in the points' own type, dimension 0
//! first, with fused multiply-add, and a pair matches when its distance is ≤ ε.

mod calibration;
mod curve;
mod error;
mod exec;
mod filter;
pub mod gpu;
mod index;
mod join;
mod memory;
mod metric;
mod monitor;
#[doc(hidden)]
pub mod number;
mod options;
pub mod oracle;
pub mod partition;
mod plan;
mod points;
mod question;
mod scalar;
mod scale;
mod sides;
pub mod sink;
mod stats;
mod summary;

pub use curve::NeighborCurve;
pub use error::{Error, Needs, Result};
pub use exec::cpu::kernel::SimdLevel;
pub use exec::pool::start_threads;
pub use join::{
    EpsJoin, Estimate, Indexed, Join, KnnJoin, Plan, components, count_pairs, dbscan, eps_join,
    eps_join_between, knn_join, knn_join_between,
};
pub use memory::{Buffer, SystemMemory, release_memory};
pub use metric::Metric;
pub use monitor::{Monitor, Phase, Progress};
pub use options::{Device, DuplicateRemoval, Partitioning, RangesOptions, Strategy};
pub use points::{MAX_DIMENSION, MAX_POINTS, Points, PointsBuf};
pub use question::{Nearest, Question, Within};
pub use scalar::Scalar;
pub use sink::{Csr, Neighbors, Sink};
pub use stats::{HybridStats, Lost, RangesStats, Stats, WorkerStats};
pub use summary::Estimated;
