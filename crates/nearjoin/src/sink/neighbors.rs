use core::ops::ControlFlow;

use super::{Execution, Receive};
use crate::error::{Error, Result};
use crate::exec::{Lists, Request, Rows};
use crate::memory::{Buffer, RowWriter};
use crate::scalar::Scalar;

/// The k nearest of each point, in two dense arrays of n × k: ids and distances.
///
/// Row `i` belongs to left point `i` and ascends by distance, then by id. Where there are fewer
/// than k neighbours, the rest of the row has the id `u32::MAX` and the distance +∞.
///
/// A receiver that is run again uses its arrays again if they are as long as the answer: memory that
/// nobody has touched yet takes longer to write than a GPU takes to find what belongs there.
///
/// ```
/// use nearjoin::{KnnJoin, Points, sink::Neighbors};
/// let points = Points::new(&[0.0, 1.0, 3.0, 9.0], 1)?;
/// let mut neighbors = Neighbors::new();
/// KnnJoin::new(2).plan_self(&points)?.run(&mut neighbors)?;
/// assert_eq!(neighbors.ids_of(0), [1, 2]);
/// assert_eq!(neighbors.distances_of(3), [6.0, 8.0]);
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Debug, Default, PartialEq)]
pub struct Neighbors<T> {
    k: usize,
    ids: Buffer<u32>,
    distances: Buffer<T>,
}

impl<T: Scalar> Neighbors<T> {
    /// An empty receiver.
    pub fn new() -> Self {
        Neighbors { k: 0, ids: Buffer::default(), distances: Buffer::default() }
    }

    /// Number of rows: left points.
    pub fn len(&self) -> usize {
        self.ids.len().checked_div(self.k).unwrap_or(0)
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Neighbours in each row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The ids of all rows.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The distances of all rows.
    pub fn distances(&self) -> &[T] {
        &self.distances
    }

    /// The ids of one left point's neighbours.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn ids_of(&self, row: usize) -> &[u32] {
        &self.ids[row * self.k..][..self.k]
    }

    /// The distances of one left point's neighbours.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn distances_of(&self, row: usize) -> &[T] {
        &self.distances[row * self.k..][..self.k]
    }

    /// The ids of every left point's neighbours, in input order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        (0..self.len()).map(|row| self.ids_of(row))
    }

    /// The arrays themselves: ids and distances.
    pub fn into_parts(self) -> (Buffer<u32>, Buffer<T>) {
        (self.ids, self.distances)
    }
}

impl<T: Scalar> Receive<T> for Neighbors<T> {
    #[allow(private_interfaces)]
    fn receive(&mut self, execution: &mut Execution<'_, T>) -> Result<()> {
        let Some(k) = execution.k else {
            return Err(Error::Sink { sink: "Neighbors", only_for: "KNN-joins" });
        };
        // Nothing of an earlier answer is left if this one fails.
        let before = core::mem::take(self);
        let entries = execution.executor.len().checked_mul(k);
        let entries = entries.ok_or(Error::OutOfMemory { bytes: usize::MAX })?;
        let bytes = (entries as u64).saturating_mul(4 + size_of::<T>() as u64);
        execution.budget.check_result(bytes)?;
        let (mut ids, mut distances) = match before {
            Neighbors { ids, distances, .. } if ids.len() == entries => (ids, distances),
            _ => execution.pool.install(|| {
                let ids = Buffer::faulted_to_fill(entries)?;
                Ok::<_, Error>((ids, Buffer::faulted_to_fill(entries)?))
            })?,
        };
        if entries == 0 {
            *self = Neighbors { k, ids, distances };
            return Ok(());
        }
        let place = Place {
            k,
            ids: RowWriter::new(&mut ids),
            distances: RowWriter::new(&mut distances),
            lines: (4 * k).is_multiple_of(LINE),
            no_ids: vec![u32::MAX; k],
            no_distances: vec![T::INFINITY; k],
        };
        let request = Request { distances: true, ..Request::default() };
        let work = execution.executor.rows(request, &|rows: &Rows<'_, T>| {
            place.rows(rows);
            ControlFlow::Continue(())
        })?;
        execution.stats.record(work);
        execution.stats.result_bytes = bytes;
        *self = Neighbors { k, ids, distances };
        Ok(())
    }
}

/// Bytes of a line of the cache.
const LINE: usize = 64;
/// Queries whose places are asked for ahead of time: one block.
const SOON: usize = 16;

/// Where the rows belong, and what stands where there is no neighbour.
struct Place<'a, T> {
    k: usize,
    ids: RowWriter<'a, u32>,
    distances: RowWriter<'a, T>,
    /// Whether rows are whole lines.
    lines: bool,
    no_ids: Vec<u32>,
    no_distances: Vec<T>,
}

impl<T: Scalar> Place<'_, T> {
    /// Writes full rows that follow each other at once, if they are.
    #[allow(unsafe_code)]
    fn block(&self, rows: &Rows<'_, T>) -> bool {
        let (Lists::Strided { stride, lens: None, values: ids }, Some(distances)) =
            (rows.neighbors, rows.distances)
        else {
            return false;
        };
        let (Lists::Strided { values: distances, .. }, Some(&first)) =
            (distances, rows.queries.first())
        else {
            return false;
        };
        if !rows.consecutive || stride != self.k {
            return false;
        }
        let start = first as usize * self.k;
        // SAFETY: as for single rows: an executor hands out each query exactly once, and these are
        // `k` elements for each from the first on.
        unsafe {
            self.ids.write(start, ids);
            self.distances.write(start, distances);
        }
        self.ids.finish();
        true
    }

    #[allow(unsafe_code)]
    fn rows(&self, rows: &Rows<'_, T>) {
        if self.block(rows) {
            return;
        }
        // Of many rows at a time, none will be looked at soon.
        let lines = self.lines && rows.queries.len() > SOON;
        // Queries are neighbours in space and far apart in memory: the places of the next
        // are asked for while they are being found.
        for &query in rows.ahead.iter().take(SOON) {
            self.ids.prefetch(query as usize * self.k);
            self.distances.prefetch(query as usize * self.k);
        }
        for (at, &query) in rows.queries.iter().enumerate() {
            if let Some(&soon) = rows.queries.get(at + SOON).filter(|_| !lines) {
                self.ids.prefetch(soon as usize * self.k);
                self.distances.prefetch(soon as usize * self.k);
            }
            let (ids, distances) = (rows.neighbors.row(at), rows.distances(at).unwrap_or_default());
            assert!(ids.len() <= self.k && ids.len() == distances.len());
            let start = query as usize * self.k;
            let end = start + ids.len();
            let missing = self.k - ids.len();
            // SAFETY: an executor hands out each query exactly once, and what is written for
            // one is the k elements from `start` on.
            unsafe {
                if missing == 0 && lines {
                    self.ids.write_lines(start, ids);
                    self.distances.write_lines(start, distances);
                    continue;
                }
                self.ids.write_short(start, ids);
                self.ids.write_short(end, &self.no_ids[..missing]);
                self.distances.write_short(start, distances);
                self.distances.write_short(end, &self.no_distances[..missing]);
            }
        }
        self.ids.finish();
    }
}
