//! Two processors on one ε-join.
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
//!   is noted, row by row, after the sink has them ([`Delivered`]). Counts of a batch are added when
//!   the batch is done. So the rest is known at any time, and nothing comes twice.
//! - **A pair that is wanted once belongs to a row by a rule that both know**: the smaller row, or
//!   the rank that the order of the device gives, which is fetched before it may be gone.

mod lead;
mod log;
mod reserve;
mod shared;
mod units;

pub(crate) use lead::Lead;
pub(crate) use reserve::Reserve;
pub(crate) use shared::{Setup, Shared};

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::{Error, Result};
use crate::memory::{as_atomic, zeros};

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

/// The queries whose rows the sink has, by their numbers: a bit for each.
struct Delivered {
    bits: Vec<u64>,
}

impl Delivered {
    fn new(queries: usize) -> Result<Self> {
        Ok(Delivered { bits: zeros(queries.div_ceil(64))? })
    }

    fn notes(&mut self) -> Notes<'_> {
        Notes { bits: as_atomic(&mut self.bits) }
    }
}

/// The same, open to many threads. The flags guard no other memory: what was delivered is behind
/// the sink's own locks, and the rest is looked up after the threads have been joined or, in the
/// queue, after the lock that a unit came back by.
#[derive(Clone, Copy)]
struct Notes<'a> {
    bits: &'a [AtomicU64],
}

impl Notes<'_> {
    fn add(&self, queries: &[u32]) {
        for &query in queries {
            self.bits[query as usize / 64].fetch_or(1 << (query % 64), Relaxed);
        }
    }

    fn has(&self, query: u32) -> bool {
        self.bits[query as usize / 64].load(Relaxed) >> (query % 64) & 1 == 1
    }

    /// The queries that are left, of so many.
    fn rest(&self, queries: usize) -> impl Iterator<Item = u32> {
        (0..queries as u32).filter(|&query| !self.has(query))
    }
}
