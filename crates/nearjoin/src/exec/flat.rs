//! Rows copied, with their lists one after the other.

use super::{Lists, Rows};
use crate::error::Result;
use crate::memory::reserve;
use crate::scalar::Scalar;

/// Rows in memory of their own.
pub(crate) struct Flat<T> {
    pub(crate) queries: Vec<u32>,
    /// Where each row begins, and the end.
    pub(crate) offsets: Vec<u64>,
    pub(crate) neighbors: Vec<u32>,
    /// Empty where nobody asked for distances.
    pub(crate) distances: Vec<T>,
    has_distances: bool,
}

impl<T: Scalar> Flat<T> {
    /// No rows.
    pub(crate) fn new() -> Self {
        Flat {
            queries: Vec::new(),
            offsets: vec![0],
            neighbors: Vec::new(),
            distances: Vec::new(),
            has_distances: false,
        }
    }

    /// No rows, of which each will have distances or not.
    pub(crate) fn empty(has_distances: bool) -> Self {
        Flat { has_distances, ..Flat::new() }
    }

    /// Appends a row of ids with their distances, which are dropped where nobody asked for them.
    pub(crate) fn push(&mut self, query: u32, row: impl Iterator<Item = (u32, T)>) {
        for (id, distance) in row {
            self.neighbors.push(id);
            self.distances.extend(self.has_distances.then_some(distance));
        }
        self.queries.push(query);
        self.offsets.push(self.neighbors.len() as u64);
    }

    pub(crate) fn clear(&mut self) {
        self.queries.clear();
        self.offsets.truncate(1);
        self.neighbors.clear();
        self.distances.clear();
    }

    /// Appends rows.
    pub(crate) fn append(&mut self, rows: &Rows<'_, T>) -> Result<()> {
        let pairs = rows.neighbors.total() as usize;
        self.has_distances = rows.distances.is_some();
        reserve(&mut self.queries, rows.queries.len())?;
        reserve(&mut self.offsets, rows.queries.len())?;
        reserve(&mut self.neighbors, pairs)?;
        reserve(&mut self.distances, if self.has_distances { pairs } else { 0 })?;
        for (at, &query) in rows.queries.iter().enumerate() {
            self.queries.push(query);
            self.neighbors.extend_from_slice(rows.neighbors.row(at));
            self.offsets.push(self.neighbors.len() as u64);
            self.distances.extend_from_slice(rows.distances(at).unwrap_or_default());
        }
        Ok(())
    }

    /// Some rows of which only those neighbours are kept that `keep` says, of a query and a
    /// neighbour.
    pub(crate) fn sifted(rows: &Rows<'_, T>, keep: impl Fn(u32, u32) -> bool) -> Self {
        let mut kept = Flat::empty(rows.distances.is_some());
        for (at, &query) in rows.queries.iter().enumerate() {
            let distances = rows.distances(at).unwrap_or_default();
            for (k, &neighbor) in rows.neighbors.row(at).iter().enumerate() {
                if keep(query, neighbor) {
                    kept.neighbors.push(neighbor);
                    kept.distances.extend(distances.get(k));
                }
            }
            kept.queries.push(query);
            kept.offsets.push(kept.neighbors.len() as u64);
        }
        kept
    }

    /// Some rows without those of the queries that `drop` says.
    pub(crate) fn without(rows: &Rows<'_, T>, drop: impl Fn(u32) -> bool) -> Self {
        let mut kept = Flat::empty(rows.distances.is_some());
        for (at, &query) in rows.queries.iter().enumerate().filter(|(_, query)| !drop(**query)) {
            kept.queries.push(query);
            kept.neighbors.extend_from_slice(rows.neighbors.row(at));
            kept.distances.extend_from_slice(rows.distances(at).unwrap_or_default());
            kept.offsets.push(kept.neighbors.len() as u64);
        }
        kept
    }

    /// Number of pairs.
    pub(crate) fn pairs(&self) -> usize {
        self.neighbors.len()
    }

    /// The rows, as those of a worker.
    pub(crate) fn rows(&self, worker: usize) -> Rows<'_, T> {
        let offsets = &self.offsets;
        let distances = Lists::Flat { offsets, values: &self.distances };
        Rows {
            worker,
            queries: &self.queries,
            neighbors: Lists::Flat { offsets, values: &self.neighbors },
            distances: self.has_distances.then_some(distances),
            ahead: &[],
            consecutive: false,
        }
    }
}
