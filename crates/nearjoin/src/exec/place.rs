//! Rows of a CSR on their way to their places.

use rayon::prelude::*;

use super::Rows;
use crate::error::{Error, Result};
use crate::memory::{RowWriter, prefetch};
use crate::scalar::Scalar;

/// Rows of which one thread sums up the lengths.
const PIECE: usize = 1 << 16;

/// Makes the lengths of rows their ends.
pub(crate) fn running_sums(lengths: &mut [u64]) -> Result<()> {
    let sums: Vec<u64> = lengths.par_chunks(PIECE).map(|piece| piece.iter().sum()).collect();
    let mut starts = Vec::with_capacity(sums.len());
    let mut end = 0u64;
    for sum in sums {
        starts.push(end);
        end = end.checked_add(sum).ok_or(Error::OutOfMemory { bytes: usize::MAX })?;
    }
    lengths.par_chunks_mut(PIECE).zip(starts).for_each(|(piece, mut end)| {
        for length in piece {
            end += *length;
            *length = end;
        }
    });
    Ok(())
}

/// Where the rows belong.
pub(crate) struct Place<'a, T> {
    offsets: &'a [u64],
    ids: RowWriter<'a, u32>,
    distances: Option<RowWriter<'a, T>>,
}

/// Queries whose places are asked for ahead of time: about two blocks.
const SOON: usize = 24;
/// Cache lines of a row that are asked for.
const LINES: usize = 4;
const IDS_PER_LINE: usize = 16;

impl<'a, T: Scalar> Place<'a, T> {
    pub(crate) fn new(
        offsets: &'a [u64],
        ids: &'a mut [u32],
        distances: Option<&'a mut [T]>,
    ) -> Self {
        Place { offsets, ids: RowWriter::new(ids), distances: distances.map(RowWriter::new) }
    }

    /// Makes what this thread has written visible before what it does next.
    pub(crate) fn finish(&self) {
        self.ids.finish();
    }

    /// The range that a row takes.
    pub(crate) fn range(&self, query: u32) -> (usize, usize) {
        let query = query as usize;
        (self.offsets[query] as usize, self.offsets[query + 1] as usize)
    }

    /// Writes rows to their places.
    pub(crate) fn rows(&self, rows: &Rows<'_, T>) {
        // Queries are neighbours in space and far apart in memory. Their offsets, and then
        // their places, are asked for while earlier rows are still being found.
        let (soon, later) = rows.ahead.split_at(rows.ahead.len().min(SOON));
        for &query in later.iter().take(SOON) {
            prefetch(&self.offsets[query as usize]);
        }
        for &query in soon {
            let (start, end) = self.range(query);
            for line in (start..end.min(start + LINES * IDS_PER_LINE)).step_by(IDS_PER_LINE) {
                self.ids.prefetch(line);
            }
        }
        for (at, &query) in rows.queries.iter().enumerate() {
            self.row(self.range(query), rows.neighbors.row(at), rows.distances(at));
        }
        self.ids.finish();
    }

    /// Writes one row to its place.
    #[allow(unsafe_code)]
    pub(crate) fn row(&self, (start, end): (usize, usize), ids: &[u32], distances: Option<&[T]>) {
        assert_eq!(ids.len(), end - start, "a row changed between two passes");
        // SAFETY: the offsets ascend, so rows do not overlap, and executors together hand out
        // each query exactly once; the row has the length that its offsets say.
        unsafe { self.ids.write(start, ids) };
        if let (Some(to), Some(distances)) = (&self.distances, distances) {
            assert_eq!(distances.len(), end - start);
            // SAFETY: as above.
            unsafe { to.write(start, distances) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_running_sums() {
        for len in [0, 1, 5, PIECE, 3 * PIECE + 7] {
            let mut ends: Vec<u64> = (0..len as u64).map(|row| row % 7).collect();
            let lengths = ends.clone();
            running_sums(&mut ends).unwrap();
            let mut end = 0;
            for (length, found) in lengths.into_iter().zip(ends) {
                end += length;
                assert_eq!(found, end);
            }
        }
        assert!(running_sums(&mut vec![u64::MAX / PIECE as u64; 3 * PIECE]).is_err());
    }
}
