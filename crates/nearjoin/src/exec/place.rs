//! Rows of a CSR on their way to their places.

use super::Rows;
use crate::memory::{RowWriter, prefetch};
use crate::scalar::Scalar;

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

    pub(crate) fn has_distances(&self) -> bool {
        self.distances.is_some()
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
