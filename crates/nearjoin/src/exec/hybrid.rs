//! Two processors on one join.
//!
//! ```text
//!   Lead     a GPU joins by itself; the CPU stands by, and has no index until it is needed
//!   Shared   both have their own index of all points, and take queries from one queue
//! ```
//!
//! In both, the GPU may be lost at any call, and the join goes on: what it has not delivered is
//! answered by the CPU. Three rules make that possible:
//!
//! - **A query has one name**, the row of the left input that it is, though the indexes order them
//!   differently. A unit of the queue is a range of positions in the CPU's order; to the GPU it is
//!   the list of rows that stand there.
//! - **A row is delivered whole, by one processor, or not at all.** Which rows the GPU has delivered
//!   is noted, row by row, after the sink has them (`delivered.rs`). Counts of a batch are added when
//!   the batch is done. So the rest is known at any time, and nothing comes twice.
//! - **A pair that is wanted once belongs to a row by a rule that both know**: the smaller row, or
//!   the rank that the order of the device gives, which is fetched before it may be gone.

mod delivered;
mod lead;
mod log;
mod pass;
mod relay;
mod reserve;
mod shared;
mod units;

#[cfg(test)]
mod tests;

pub(crate) use lead::Lead;
pub(crate) use reserve::Reserve;
pub(crate) use shared::{Setup, Shared};

use crate::error::Error;

/// Whether an error means that the GPU is lost, and nothing else is wrong.
fn is_loss(error: &Error) -> bool {
    matches!(error, Error::Device { .. })
}

/// The reason alone.
fn reason(error: Error) -> String {
    match error {
        Error::Device { reason, .. } => reason,
        error => error.to_string(),
    }
}
