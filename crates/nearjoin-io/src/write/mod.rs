//! Results into files: pairs, arrays, degrees, labels and points.
//!
//! A [`Target`] is a file in the making; it gets its name when it is complete. A
//! [`PairWriter`] streams a table of pairs into it while the join goes on, an [`NpzCsr`] the
//! rows of a CSR matrix, an [`NpzNeighbors`] rows of k neighbours each; [`write_degrees`],
//! [`write_labels`] and [`write_points`] write what is in memory.

mod archive;
mod arrow;
mod columns;
mod csv;
mod ids;
mod npy;
mod npz;
mod numbers;
mod pairs;
mod parquet;
mod pipeline;
mod points;
mod table;
mod target;
mod unfinished;

pub use ids::check_ids;
pub use npz::{NpzCsr, NpzNeighbors};
pub use numbers::{write_degrees, write_labels};
pub use pairs::{PairColumns, PairWriter};
pub use points::write_points;
pub use target::Target;
pub use unfinished::{remove_unfinished, remove_unfinished_by};

/// What a finished file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// Pairs, or rows of a table of degrees, labels or points.
    pub pairs: u64,
    /// Bytes of the file.
    pub bytes: u64,
}
