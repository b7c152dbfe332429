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

use core::ops::Range;
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
        let Some(&first) = queries.first() else { return };
        // Without a branch for each, so that lanes compare them.
        let follow = queries.iter().zip(first..).fold(true, |all, (&q, next)| all & (q == next));
        if follow {
            return self.add_range(first as usize..first as usize + queries.len());
        }
        for &query in queries {
            self.bits[query as usize / 64].fetch_or(1 << (query % 64), Relaxed);
        }
    }

    /// The same for queries that follow each other, as those of a device do: a word at a time.
    fn add_range(&self, queries: Range<usize>) {
        let mut start = queries.start;
        while start < queries.end {
            let end = queries.end.min((start / 64 + 1) * 64);
            let bits = u64::MAX >> (64 - (end - start));
            self.bits[start / 64].fetch_or(bits << (start % 64), Relaxed);
            start = end;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_delivered_is_left() {
        for (from, to) in [(0, 0), (3, 70), (64, 128), (0, 200), (199, 200), (60, 129)] {
            let mut delivered = Delivered::new(200).unwrap();
            let notes = delivered.notes();
            let queries: Vec<u32> = (from..to).collect();
            notes.add(&queries);
            let left: Vec<u32> = (0..from).chain(to..200).collect();
            assert_eq!(notes.rest(200).collect::<Vec<_>>(), left, "{from}..{to}");
        }
        let mut delivered = Delivered::new(100).unwrap();
        let notes = delivered.notes();
        notes.add(&[99, 3, 64]);
        notes.add(&[4]);
        assert_eq!(notes.rest(100).count(), 96);
        assert!(notes.has(64) && notes.has(4) && !notes.has(5));
    }
}
