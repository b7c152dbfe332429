//! Which rows have been delivered.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;

use crate::error::Result;
use crate::exec::Rows;
use crate::memory::{as_atomic, copied, zeros};

/// The queries whose rows the sink has, by their numbers: a bit for each.
pub(super) struct Delivered {
    bits: Vec<u64>,
    ranges: Mutex<Vec<Range<usize>>>,
    lists: Mutex<Vec<Vec<u32>>>,
}

/// Queries of a list from which on it is kept until somebody wants to know: copying it takes less
/// than a locked operation for each.
const LONG: usize = 64;

impl Delivered {
    pub(super) fn new(queries: usize) -> Result<Self> {
        let (ranges, lists) = (Mutex::default(), Mutex::default());
        Ok(Delivered { bits: zeros(queries.div_ceil(64))?, ranges, lists })
    }

    pub(super) fn notes(&mut self) -> Notes<'_> {
        Notes { bits: as_atomic(&mut self.bits), ranges: &self.ranges, lists: &self.lists }
    }
}

/// The same, open to many threads. The flags guard no other memory: what was delivered is behind
/// the sink's own locks, and the rest is looked up after the threads have been joined or, in the
/// queue, after the lock that a unit came back by.
#[derive(Clone, Copy)]
pub(super) struct Notes<'a> {
    bits: &'a [AtomicU64],
    /// Queries that follow each other, as those of a device do that joins alone: their bits are
    /// set when somebody wants to know.
    ranges: &'a Mutex<Vec<Range<usize>>>,
    /// Others that came many at a time.
    lists: &'a Mutex<Vec<Vec<u32>>>,
}

impl Notes<'_> {
    pub(super) fn add<T>(&self, rows: &Rows<'_, T>) {
        match (rows.queries, rows.consecutive) {
            ([], _) => {}
            (&[first, ..], true) => {
                let range = first as usize..first as usize + rows.queries.len();
                self.ranges.lock().unwrap_or_else(|e| e.into_inner()).push(range);
            }
            (queries, false) if queries.len() < LONG => self.set(queries),
            (queries, false) => match copied(queries) {
                Ok(list) => self.lists.lock().unwrap_or_else(|e| e.into_inner()).push(list),
                // There is no room for it.
                Err(_) => self.set(queries),
            },
        }
    }

    /// Sets the bits of some queries at once.
    pub(super) fn set(&self, queries: &[u32]) {
        for &query in queries {
            self.bits[query as usize / 64].fetch_or(1 << (query % 64), Relaxed);
        }
    }

    /// Sets the bits of all that was delivered. Nobody delivers any more.
    pub(super) fn settle(&self) {
        for range in self.ranges.lock().unwrap_or_else(|e| e.into_inner()).drain(..) {
            let mut start = range.start;
            while start < range.end {
                let end = range.end.min((start / 64 + 1) * 64);
                let bits = u64::MAX >> (64 - (end - start));
                self.bits[start / 64].fetch_or(bits << (start % 64), Relaxed);
                start = end;
            }
        }
        for list in self.lists.lock().unwrap_or_else(|e| e.into_inner()).drain(..) {
            self.set(&list);
        }
    }

    pub(super) fn has(&self, query: u32) -> bool {
        self.bits[query as usize / 64].load(Relaxed) >> (query % 64) & 1 == 1
    }

    /// The queries that are left, of so many.
    pub(super) fn rest(&self, queries: usize) -> impl Iterator<Item = u32> {
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
