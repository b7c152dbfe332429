//! Rows of neighbours as numpy's arrays: sparse as CSR, or dense with k in each row.

use core::marker::PhantomData;

use nearjoin::Scalar;

use super::Written;
use super::archive::{Archive, Array, BUFFER};
use super::npy::Kind;
use super::target::Target;
use crate::error::{Error, Result};

/// Entries that are gathered before they are handed to an array.
const STEP: usize = BUFFER / 8;

/// Writes a CSR matrix row by row, as an `.npz` file with the arrays `indptr` (`int64`),
/// `indices` (`int32`, or `uint32` where there are more right points than that has numbers),
/// `distances` if asked for, and `shape` (`int64`: left and right points).
///
/// ```
/// use nearjoin::{Points, eps_join};
/// use nearjoin_io::write::{NpzCsr, Target};
/// let path = std::env::temp_dir().join("nearjoin-csr.npz");
/// let csr = eps_join(&Points::new(&[0.0, 0.5, 9.0], 1)?, 1.0)?;
/// let mut writer = NpzCsr::<f64>::new(Target::create(&path)?, 3, 3, 2, false)?;
/// writer.rows(csr.offsets(), csr.ids(), None)?;
/// assert_eq!(writer.finish()?.pairs, 2);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```python
/// z = numpy.load("out.npz")
/// m = scipy.sparse.csr_array((z["distances"], z["indices"], z["indptr"]), shape=z["shape"])
/// ```
#[derive(Debug)]
pub struct NpzCsr<T: Scalar> {
    archive: Archive,
    indptr: Array,
    indices: Array,
    distances: Option<Array>,
    shape: [u64; 2],
    pairs: u64,
    rows_done: u64,
    pairs_done: u64,
    scalar: PhantomData<T>,
}

impl<T: Scalar> NpzCsr<T> {
    /// A matrix of `left` rows over `right` columns with exactly `pairs` entries.
    ///
    /// # Errors
    /// If the file cannot be written, or only from its beginning to its end as a pipe.
    pub fn new(target: Target, left: u64, right: u64, pairs: u64, distances: bool) -> Result<Self> {
        Self::with_zip64(target, left, right, pairs, distances, false)
    }

    /// With the fields for large files although they are not needed: for tests.
    #[doc(hidden)]
    pub fn with_zip64(
        target: Target,
        left: u64,
        right: u64,
        pairs: u64,
        distances: bool,
        zip64: bool,
    ) -> Result<Self> {
        let mut archive = Archive::new(target, zip64)?;
        let indptr = archive.array("indptr", Kind::Int, 8, &[left + 1])?;
        let kind = if right <= i32::MAX as u64 { Kind::Int } else { Kind::Unsigned };
        let indices = archive.array("indices", kind, 4, &[pairs])?;
        let distances = match distances {
            true => Some(archive.array("distances", Kind::Float, size_of::<T>(), &[pairs])?),
            false => None,
        };
        let shape = archive.array("shape", Kind::Int, 8, &[2])?;
        archive.write(shape, bytemuck::cast_slice(&[left, right]))?;
        archive.write(indptr, &0u64.to_ne_bytes())?;
        archive.reserve()?;
        Ok(NpzCsr {
            archive,
            indptr,
            indices,
            distances,
            shape: [left, right],
            pairs,
            rows_done: 0,
            pairs_done: 0,
            scalar: PhantomData,
        })
    }

    /// Adds the next rows: row `i` of them has the next `offsets[i + 1] - offsets[i]` ids.
    /// `ids` and `distances` are those of these rows alone, so `offsets` may begin anywhere.
    ///
    /// # Errors
    /// If the file cannot be written, or there are more rows or pairs than announced.
    ///
    /// # Panics
    /// If the slices do not have the lengths that `offsets` say, or distances are to be
    /// written and there are none.
    pub fn rows(&mut self, offsets: &[u64], ids: &[u32], distances: Option<&[T]>) -> Result<()> {
        let (Some(begin), Some(end)) = (offsets.first(), offsets.last()) else { return Ok(()) };
        assert_eq!(end - begin, ids.len() as u64, "as many ids as the offsets say");
        let before = self.pairs_done;
        self.rows_done += offsets.len() as u64 - 1;
        self.pairs_done += ids.len() as u64;
        if self.rows_done > self.shape[0] || self.pairs_done > self.pairs {
            return Err(self.miscounted());
        }
        let mut ends = Vec::with_capacity(STEP.min(offsets.len()));
        for some in offsets[1..].chunks(STEP) {
            ends.clear();
            ends.extend(some.iter().map(|offset| offset - begin + before));
            self.archive.write(self.indptr, bytemuck::cast_slice(&ends))?;
        }
        self.archive.write(self.indices, bytemuck::cast_slice(ids))?;
        if let Some(array) = self.distances {
            let distances = distances.unwrap_or_default();
            assert_eq!(distances.len(), ids.len(), "as many distances as ids");
            self.archive.write_scalars(array, distances)?;
        }
        Ok(())
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If the file cannot be written, or there were fewer rows or pairs than announced.
    pub fn finish(self) -> Result<Written> {
        if self.rows_done != self.shape[0] || self.pairs_done != self.pairs {
            return Err(self.miscounted());
        }
        let bytes = self.archive.finish()?;
        Ok(Written { pairs: self.pairs, bytes })
    }

    fn miscounted(&self) -> Error {
        let (rows, pairs) = (self.shape[0], self.pairs);
        Error::Format {
            file: self.archive.name().into(),
            problem: format!(
                "{rows} rows and {pairs} pairs were announced, not {} and {}",
                self.rows_done, self.pairs_done
            ),
        }
    }
}

/// Writes the k nearest neighbours of each left point, row by row, as an `.npz` file with two
/// arrays of n × k in C order: `indices` (`uint32`) and `distances` (the points' type). Where a
/// row has fewer than k neighbours, the rest of it is 4294967295 and +∞.
///
/// ```
/// use nearjoin::{Points, knn_join};
/// use nearjoin_io::write::{NpzNeighbors, Target};
/// let path = std::env::temp_dir().join("nearjoin-neighbors.npz");
/// let nearest = knn_join(&Points::new(&[0.0, 0.5, 9.0], 1)?, 2)?;
/// let mut writer = NpzNeighbors::<f64>::new(Target::create(&path)?, 3, 2)?;
/// writer.rows(&[0, 2, 4, 6], nearest.ids(), nearest.distances())?;
/// assert_eq!(writer.finish()?.pairs, 6);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```python
/// z = numpy.load("out.npz")
/// z["indices"].shape == z["distances"].shape == (n, k)
/// ```
#[derive(Debug)]
pub struct NpzNeighbors<T: Scalar> {
    archive: Archive,
    indices: Array,
    distances: Array,
    /// Rows, and neighbours in each.
    shape: [u64; 2],
    rows_done: u64,
    pairs_done: u64,
    /// Entries that no array has yet.
    ids: Vec<u32>,
    reals: Vec<T>,
}

impl<T: Scalar> NpzNeighbors<T> {
    /// `left` rows of `k` neighbours.
    ///
    /// # Errors
    /// If the file cannot be written, or only from its beginning to its end as a pipe, or the
    /// arrays would be larger than any file.
    pub fn new(target: Target, left: u64, k: u64) -> Result<Self> {
        let mut archive = Archive::new(target, false)?;
        let shape = [left, k];
        let indices = archive.array("indices", Kind::Unsigned, 4, &shape)?;
        let distances = archive.array("distances", Kind::Float, size_of::<T>(), &shape)?;
        archive.reserve()?;
        Ok(NpzNeighbors {
            archive,
            indices,
            distances,
            shape,
            rows_done: 0,
            pairs_done: 0,
            ids: Vec::new(),
            reals: Vec::new(),
        })
    }

    /// Adds the next rows: row `i` of them has the next `offsets[i + 1] - offsets[i]` ids, at
    /// most k, nearest first. `ids` and `distances` are those of these rows alone, so `offsets`
    /// may begin anywhere.
    ///
    /// # Errors
    /// If the file cannot be written, or there are more rows than announced.
    ///
    /// # Panics
    /// If the slices do not have the lengths that `offsets` say, or a row has more than k.
    pub fn rows(&mut self, offsets: &[u64], ids: &[u32], distances: &[T]) -> Result<()> {
        let (Some(begin), Some(end)) = (offsets.first(), offsets.last()) else { return Ok(()) };
        assert_eq!(end - begin, ids.len() as u64, "as many ids as the offsets say");
        assert_eq!(distances.len(), ids.len(), "as many distances as ids");
        self.rows_done += offsets.len() as u64 - 1;
        self.pairs_done += ids.len() as u64;
        if self.rows_done > self.shape[0] {
            return Err(self.miscounted());
        }
        for row in offsets.windows(2) {
            let range = (row[0] - begin) as usize..(row[1] - begin) as usize;
            let missing = self.shape[1].checked_sub(range.len() as u64);
            let Some(missing) = missing else { panic!("a row has at most k neighbours") };
            self.ids.extend_from_slice(&ids[range.clone()]);
            self.reals.extend_from_slice(&distances[range]);
            self.pad(missing)?;
        }
        self.flush()
    }

    /// Fills a row up.
    fn pad(&mut self, mut missing: u64) -> Result<()> {
        loop {
            let some = (STEP as u64).min(missing) as usize;
            self.ids.resize(self.ids.len() + some, u32::MAX);
            self.reals.resize(self.reals.len() + some, T::INFINITY);
            missing -= some as u64;
            if self.ids.len() >= STEP {
                self.flush()?;
            }
            if missing == 0 {
                return Ok(());
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.archive.write(self.indices, bytemuck::cast_slice(&self.ids))?;
        self.archive.write_scalars(self.distances, &self.reals)?;
        self.ids.clear();
        self.reals.clear();
        Ok(())
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If the file cannot be written, or there were fewer rows than announced.
    pub fn finish(self) -> Result<Written> {
        if self.rows_done != self.shape[0] {
            return Err(self.miscounted());
        }
        let bytes = self.archive.finish()?;
        Ok(Written { pairs: self.pairs_done, bytes })
    }

    fn miscounted(&self) -> Error {
        Error::Format {
            file: self.archive.name().into(),
            problem: format!("{} rows were announced, not {}", self.shape[0], self.rows_done),
        }
    }
}
