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
mod relay;
mod reserve;
mod shared;
mod units;

pub(crate) use lead::Lead;
pub(crate) use reserve::Reserve;
pub(crate) use shared::{Setup, Shared};

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::exec::Rows;
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
    ranges: Mutex<Vec<Range<usize>>>,
}

impl Delivered {
    fn new(queries: usize) -> Result<Self> {
        Ok(Delivered { bits: zeros(queries.div_ceil(64))?, ranges: Mutex::default() })
    }

    fn notes(&mut self) -> Notes<'_> {
        Notes { bits: as_atomic(&mut self.bits), ranges: &self.ranges }
    }
}

/// The same, open to many threads. The flags guard no other memory: what was delivered is behind
/// the sink's own locks, and the rest is looked up after the threads have been joined or, in the
/// queue, after the lock that a unit came back by.
#[derive(Clone, Copy)]
struct Notes<'a> {
    bits: &'a [AtomicU64],
    /// Queries that follow each other, as those of a device do that joins alone: their bits are
    /// set when somebody wants to know.
    ranges: &'a Mutex<Vec<Range<usize>>>,
}

impl Notes<'_> {
    fn add<T>(&self, rows: &Rows<'_, T>) {
        match (rows.queries, rows.consecutive) {
            ([], _) => {}
            (&[first, ..], true) => {
                let range = first as usize..first as usize + rows.queries.len();
                self.ranges.lock().unwrap_or_else(|e| e.into_inner()).push(range);
            }
            (queries, false) => {
                for &query in queries {
                    self.bits[query as usize / 64].fetch_or(1 << (query % 64), Relaxed);
                }
            }
        }
    }

    /// Sets the bits of all that was delivered. Nobody delivers any more.
    fn settle(&self) {
        for range in self.ranges.lock().unwrap_or_else(|e| e.into_inner()).drain(..) {
            let mut start = range.start;
            while start < range.end {
                let end = range.end.min((start / 64 + 1) * 64);
                let bits = u64::MAX >> (64 - (end - start));
                self.bits[start / 64].fetch_or(bits << (start % 64), Relaxed);
                start = end;
            }
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
    use crate::exec::Lists;

    fn rows(queries: &[u32], consecutive: bool) -> Rows<'_, f32> {
        let neighbors = Lists::Flat { offsets: &[], values: &[] };
        Rows { worker: 0, queries, neighbors, distances: None, ahead: &[], consecutive }
    }

    #[test]
    fn what_was_not_delivered_is_left() {
        for (from, to) in [(0, 0), (3, 70), (64, 128), (0, 200), (199, 200), (60, 129)] {
            let left: Vec<u32> = (0..from).chain(to..200).collect();
            let queries: Vec<u32> = (from..to).collect();
            for consecutive in [false, true] {
                let mut delivered = Delivered::new(200).unwrap();
                let notes = delivered.notes();
                notes.add(&rows(&queries, consecutive));
                notes.settle();
                assert_eq!(notes.rest(200).collect::<Vec<_>>(), left, "{from}..{to}");
            }
        }
        let mut delivered = Delivered::new(100).unwrap();
        let notes = delivered.notes();
        notes.add(&rows(&[99, 3, 64], false));
        notes.add(&rows(&[4], true));
        assert_eq!(notes.rest(100).count(), 97);
        notes.settle();
        assert_eq!(notes.rest(100).count(), 96);
        assert!(notes.has(64) && notes.has(4) && !notes.has(5));
    }
}
