//! Rows of neighbours in memory, and what of them is in the answer.

use nearjoin::sink::{Csr, Neighbors};
use nearjoin::{Buffer, Scalar};

/// The neighbours of left points that follow each other.
#[derive(Debug)]
pub(crate) struct Rows<T> {
    /// Where each row begins, and the end.
    offsets: Buffer<u64>,
    ids: Buffer<u32>,
    distances: Option<Buffer<T>>,
}

impl<T: Scalar> From<Csr<T>> for Rows<T> {
    fn from(csr: Csr<T>) -> Self {
        let (offsets, ids, distances) = csr.into_parts();
        Rows { offsets, ids, distances }
    }
}

impl<T: Scalar> From<Neighbors<T>> for Rows<T> {
    /// What pads short rows is left out.
    fn from(neighbors: Neighbors<T>) -> Self {
        let k = neighbors.k();
        let (ids, distances) = neighbors.into_parts();
        let offsets: Vec<u64> = (0..=ids.len()).step_by(k).map(|at| at as u64).collect();
        let mut rows = Rows { offsets: offsets.into(), ids, distances: Some(distances) };
        if rows.ids.contains(&u32::MAX) {
            rows.sift(|_, id| id != u32::MAX);
        }
        rows
    }
}

impl<T: Scalar> Rows<T> {
    pub(crate) fn pairs(&self) -> u64 {
        self.offsets.last().copied().unwrap_or(0)
    }

    /// Where each row begins, and the end.
    pub(crate) fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids[..self.pairs() as usize]
    }

    pub(crate) fn distances(&self) -> Option<&[T]> {
        self.distances.as_ref().map(|distances| &distances[..self.pairs() as usize])
    }

    /// Keeps of each row the neighbours that come after its point. `first` is the left point of
    /// the first row.
    pub(crate) fn keep_later(&mut self, first: u32) {
        self.sift(|row, id| id > first + row);
    }

    /// Moves what is wanted of each row forward, and the offsets with it.
    fn sift(&mut self, wanted: impl Fn(u32, u32) -> bool) {
        let (ids, mut distances) = (&mut self.ids[..], self.distances.as_deref_mut());
        let (mut kept, mut start) = (0usize, 0);
        for (row, end) in self.offsets[1..].iter_mut().enumerate() {
            for at in start..*end as usize {
                let id = ids[at];
                if wanted(row as u32, id) {
                    ids[kept] = id;
                    if let Some(distances) = &mut distances {
                        distances[kept] = distances[at];
                    }
                    kept += 1;
                }
            }
            start = *end as usize;
            *end = kept as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_later_neighbours_are_kept() {
        let mut rows = Rows {
            offsets: vec![0, 3, 3, 5].into(),
            ids: vec![5, 6, 7, 5, 9].into(),
            distances: Some(vec![0.5, 0.6, 0.7, 0.8, 0.9].into()),
        };
        rows.keep_later(5);
        assert_eq!(rows.offsets(), [0, 2, 2, 3]);
        assert_eq!(rows.ids(), [6, 7, 9]);
        assert_eq!(rows.distances(), Some(&[0.6, 0.7, 0.9][..]));
    }
}
