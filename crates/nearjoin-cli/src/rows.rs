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

/// Which neighbours of a point are in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    All,
    /// All but the point itself.
    Others,
    /// Those that come after the point.
    Later,
}

impl Keep {
    fn wants(self, own: u32, id: u32) -> bool {
        match self {
            Keep::All => true,
            Keep::Others => id != own,
            Keep::Later => id > own,
        }
    }
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
            rows.sift(usize::MAX, |_, id| id != u32::MAX);
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

    /// Keeps what is in the answer; where that leaves something out, the first `most` of each
    /// row. `first` is the left point of the first row.
    pub(crate) fn keep(&mut self, first: u32, keep: Keep, most: usize) {
        if keep != Keep::All {
            self.sift(most, |row, id| keep.wants(first + row, id));
        }
    }

    /// Moves the first `most` of each row that are wanted forward, and the offsets with them.
    fn sift(&mut self, most: usize, wanted: impl Fn(u32, u32) -> bool) {
        let (ids, mut distances) = (&mut self.ids[..], self.distances.as_deref_mut());
        let (mut kept, mut start) = (0usize, 0);
        for (row, end) in self.offsets[1..].iter_mut().enumerate() {
            let full = kept.saturating_add(most);
            for at in start..*end as usize {
                let id = ids[at];
                if kept < full && wanted(row as u32, id) {
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

    fn rows() -> Rows<f64> {
        Rows {
            offsets: vec![0, 3, 3, 5].into(),
            ids: vec![5, 6, 7, 5, 9].into(),
            distances: Some(vec![0.5, 0.6, 0.7, 0.8, 0.9].into()),
        }
    }

    fn kept(first: u32, keep: Keep, most: usize) -> (Vec<u64>, Vec<u32>, Vec<f64>) {
        let mut rows = rows();
        rows.keep(first, keep, most);
        (rows.offsets().to_vec(), rows.ids().to_vec(), rows.distances().unwrap().to_vec())
    }

    #[test]
    fn what_is_kept_of_rows() {
        let others = kept(5, Keep::Others, usize::MAX);
        assert_eq!(others, (vec![0, 2, 2, 4], vec![6, 7, 5, 9], vec![0.6, 0.7, 0.8, 0.9]));
        let later = kept(5, Keep::Later, usize::MAX);
        assert_eq!(later, (vec![0, 2, 2, 3], vec![6, 7, 9], vec![0.6, 0.7, 0.9]));
        let all = kept(5, Keep::All, usize::MAX);
        assert_eq!(all.1, [5, 6, 7, 5, 9]);
    }

    #[test]
    fn of_one_too_many_the_point_itself_goes_or_the_last() {
        assert_eq!(kept(5, Keep::Others, 2).1, [6, 7, 5, 9]);
        assert_eq!(kept(90, Keep::Others, 2).1, [5, 6, 5, 9]);
        assert_eq!(kept(90, Keep::Others, 1), (vec![0, 1, 1, 2], vec![5, 5], vec![0.5, 0.8]));
    }
}
