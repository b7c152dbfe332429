//! Rows that are kept until it is known where they belong.

use super::Rows;
use crate::error::Result;
use crate::memory::{Buffer, Zeroable, reserve};
use crate::scalar::Scalar;

/// Rows as one thread found them.
pub(crate) struct Arena<T> {
    /// Query and length of each row.
    rows: Vec<(u32, u32)>,
    ids: Chunks<u32>,
    distances: Chunks<T>,
    has_distances: bool,
}

/// Numbers in large pieces of memory; what is appended together stays together.
struct Chunks<T> {
    chunks: Vec<Buffer<T>>,
    /// Elements in use of each chunk.
    used: Vec<usize>,
}

impl<T: Zeroable> Chunks<T> {
    const CHUNK: usize = 1 << 20;

    fn new() -> Self {
        Chunks { chunks: Vec::new(), used: Vec::new() }
    }

    fn append(&mut self, row: &[T]) -> Result<()> {
        let full = |(used, chunk): (&usize, &Buffer<T>)| chunk.len() - used < row.len();
        if self.used.last().zip(self.chunks.last()).is_none_or(full) {
            self.chunks.push(Buffer::zeroed(row.len().max(Self::CHUNK))?);
            self.used.push(0);
        }
        if let Some((used, chunk)) = self.used.last_mut().zip(self.chunks.last_mut()) {
            chunk[*used..][..row.len()].copy_from_slice(row);
            *used += row.len();
        }
        Ok(())
    }

    /// The rows, given their lengths in the order in which they were appended.
    fn rows(&self, lengths: impl Iterator<Item = usize>) -> impl Iterator<Item = &[T]> {
        let (mut chunk, mut start) = (0, 0);
        lengths.map(move |length| {
            while self.used[chunk] - start < length {
                (chunk, start) = (chunk + 1, 0);
            }
            let row = &self.chunks[chunk][start..][..length];
            start += length;
            row
        })
    }
}

impl<T: Scalar> Arena<T> {
    pub(crate) fn new() -> Self {
        let (ids, distances) = (Chunks::new(), Chunks::new());
        Arena { rows: Vec::new(), ids, distances, has_distances: false }
    }

    /// Copies some rows.
    pub(crate) fn keep(&mut self, rows: &Rows<'_, T>) -> Result<()> {
        reserve(&mut self.rows, rows.queries.len())?;
        self.has_distances = rows.distances.is_some();
        for (at, &query) in rows.queries.iter().enumerate() {
            let row = rows.neighbors.row(at);
            self.rows.push((query, row.len() as u32));
            self.ids.append(row)?;
            if let Some(distances) = rows.distances(at) {
                self.distances.append(distances)?;
            }
        }
        Ok(())
    }

    /// Every query, its ids and, where there are any, its distances.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u32, &[u32], Option<&[T]>)> {
        let lengths = || self.rows.iter().map(|&(_, length)| length as usize);
        let mut distances = self.has_distances.then(|| self.distances.rows(lengths()));
        let rows = self.rows.iter().zip(self.ids.rows(lengths()));
        rows.map(move |(&(query, _), ids)| {
            (query, ids, distances.as_mut().and_then(Iterator::next))
        })
    }
}
