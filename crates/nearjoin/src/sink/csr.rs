use core::ops::ControlFlow;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Mutex;

use rayon::prelude::*;

use super::{Execution, Receive};
use crate::error::{Error, Result};
use crate::exec::{Request, Rows, Work};
use crate::memory::{Buffer, RowWriter, Zeroable, as_atomic};
use crate::scalar::Scalar;

/// All neighbours, row by row: compressed sparse rows.
///
/// Row `i` holds the neighbours of left point `i`, at `offsets[i]..offsets[i + 1]` of the
/// ids and, where asked for, the distances.
#[derive(Debug, Default, PartialEq)]
pub struct Csr<T> {
    offsets: Buffer<u64>,
    ids: Buffer<u32>,
    distances: Option<Buffer<T>>,
}

impl<T: Scalar> Csr<T> {
    /// Number of rows: left points.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of pairs.
    pub fn pairs(&self) -> u64 {
        self.ids.len() as u64
    }

    /// Where each row begins, and the end: one more than there are rows.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// The neighbours of all rows.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The distances of all rows, where asked for.
    pub fn all_distances(&self) -> Option<&[T]> {
        self.distances.as_deref()
    }

    /// The neighbours of one left point.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn neighbors(&self, row: usize) -> &[u32] {
        &self.ids[self.offsets[row] as usize..self.offsets[row + 1] as usize]
    }

    /// The distances of one left point's neighbours, where asked for.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn distances(&self, row: usize) -> Option<&[T]> {
        let range = self.offsets[row] as usize..self.offsets[row + 1] as usize;
        self.distances.as_ref().map(|distances| &distances[range])
    }

    /// The rows in input order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        (0..self.len()).map(|row| self.neighbors(row))
    }

    /// The arrays themselves: offsets, ids and, where asked for, distances.
    pub fn into_parts(self) -> (Buffer<u64>, Buffer<u32>, Option<Buffer<T>>) {
        (self.offsets, self.ids, self.distances)
    }
}

/// Collects a [`Csr`], allocated once at its exact size.
///
/// Large arrays lie in huge pages that all threads have touched.
///
/// ```
/// use nearjoin::{EpsJoin, Points, sink::CsrSink};
/// let points = Points::new(&[3.0, 0.0, 1.0, 2.0], 1)?;
/// let mut sink = CsrSink::new().sorted(true);
/// EpsJoin::new(2.0).plan_self(&points)?.run(&mut sink)?;
/// let csr = sink.into_csr();
/// assert_eq!(csr.neighbors(3), [0, 1, 2]);
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Debug)]
pub struct CsrSink<T> {
    request: Request,
    csr: Csr<T>,
}

impl<T: Scalar> CsrSink<T> {
    /// Ids only, in no particular order within a row.
    pub fn new() -> Self {
        CsrSink { request: Request::default(), csr: Csr::default() }
    }

    /// Whether ids ascend within each row. Default: no.
    pub fn sorted(mut self, sorted: bool) -> Self {
        self.request.sorted = sorted;
        self
    }

    /// Whether to keep distances. Default: no.
    pub fn distances(mut self, distances: bool) -> Self {
        self.request.distances = distances;
        self
    }

    /// What was collected.
    pub fn into_csr(self) -> Csr<T> {
        self.csr
    }

    /// What was collected, borrowed.
    pub fn csr(&self) -> &Csr<T> {
        &self.csr
    }
}

impl<T: Scalar> Default for CsrSink<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Scalar> Receive<T> for CsrSink<T> {
    #[allow(private_interfaces)]
    fn receive(&mut self, execution: &mut Execution<'_, T>) -> Result<()> {
        self.csr = Csr::default();
        let rows = execution.queries;
        execution.budget.check_result(offset_bytes(rows))?;
        let mut offsets = Buffer::<u64>::zeroed(rows + 1)?;
        let kept = Kept::collect(execution, self.request, &mut offsets)?;
        let pairs = offsets[rows];
        let bytes = result_bytes::<T>(rows, pairs, self.request);
        execution.budget.check_result(bytes)?;
        let pool = execution.pool;
        let mut ids = pool.install(|| Buffer::<u32>::faulted_in(pairs as usize))?;
        let mut distances = match self.request.distances {
            true => Some(pool.install(|| Buffer::<T>::faulted_in(pairs as usize))?),
            false => None,
        };
        kept.fill(execution, self.request, &offsets, &mut ids, distances.as_deref_mut());
        execution.stats.result_bytes = bytes;
        self.csr = Csr { offsets, ids, distances };
        Ok(())
    }
}

/// Writes CSR arrays into buffers that the caller hands in, to be used again and again.
///
/// ```
/// use nearjoin::{EpsJoin, Points, sink::CsrInto};
/// let points = Points::new(&[0.0, 1.0, 1.5], 1)?;
/// let (mut offsets, mut ids) = ([0u64; 4], [0u32; 100]);
/// let mut sink = CsrInto::new(&mut offsets, &mut ids);
/// EpsJoin::new(1.0).plan_self(&points)?.run(&mut sink)?;
/// assert_eq!(sink.pairs(), 4);
/// assert_eq!(offsets, [0, 1, 3, 4]);
/// # Ok::<(), nearjoin::Error>(())
/// ```
///
/// The buffer for offsets must have exactly one element more than there are left points;
/// those for ids and distances may be longer than needed. A buffer that is too short is
/// an error that says how long it must be; offsets are complete by then.
#[derive(Debug)]
pub struct CsrInto<'a, T> {
    request: Request,
    offsets: &'a mut [u64],
    ids: &'a mut [u32],
    distances: Option<&'a mut [T]>,
    pairs: u64,
}

impl<'a, T: Scalar> CsrInto<'a, T> {
    /// Buffers for offsets and ids.
    pub fn new(offsets: &'a mut [u64], ids: &'a mut [u32]) -> Self {
        CsrInto { request: Request::default(), offsets, ids, distances: None, pairs: 0 }
    }

    /// Whether ids ascend within each row. Default: no.
    pub fn sorted(mut self, sorted: bool) -> Self {
        self.request.sorted = sorted;
        self
    }

    /// A buffer for distances. Default: none are kept.
    pub fn distances(mut self, distances: &'a mut [T]) -> Self {
        self.distances = Some(distances);
        self.request.distances = true;
        self
    }

    /// Number of pairs written.
    pub fn pairs(&self) -> u64 {
        self.pairs
    }
}

impl<T: Scalar> Receive<T> for CsrInto<'_, T> {
    #[allow(private_interfaces)]
    fn receive(&mut self, execution: &mut Execution<'_, T>) -> Result<()> {
        let rows = execution.queries;
        if self.offsets.len() != rows + 1 {
            let (length, needed) = (self.offsets.len(), rows as u64 + 1);
            return Err(Error::Buffer { name: "offsets", length, needed });
        }
        self.offsets[0] = 0;
        let kept = Kept::collect(execution, self.request, self.offsets)?;
        let needed = self.offsets[rows];
        let fits = |name, length: usize| match needed <= length as u64 {
            true => Ok(needed as usize),
            false => Err(Error::Buffer { name, length, needed }),
        };
        let pairs = fits("ids", self.ids.len())?;
        let ids = &mut self.ids[..pairs];
        let distances = match &mut self.distances {
            Some(distances) => {
                let pairs = fits("distances", distances.len())?;
                Some(&mut distances[..pairs])
            }
            None => None,
        };
        kept.fill(execution, self.request, self.offsets, ids, distances);
        execution.stats.result_bytes = result_bytes::<T>(rows, needed, self.request);
        self.pairs = needed;
        Ok(())
    }
}

fn offset_bytes(rows: usize) -> u64 {
    (rows as u64 + 1) * 8
}

fn result_bytes<T>(rows: usize, pairs: u64, request: Request) -> u64 {
    let pair = 4 + if request.distances { size_of::<T>() as u64 } else { 0 };
    pairs.saturating_mul(pair).saturating_add(offset_bytes(rows))
}

/// The first pass: it knows the offsets and, where there was room, the rows already.
///
/// A small result is kept as it is found and copied to its place once the offsets are
/// known: one pass over the candidates. A large one is only counted, and found again:
/// two passes, but no second copy in memory.
enum Kept<T> {
    Counted,
    Rows(Vec<Arena<T>>),
}

/// Rows as one thread found them.
struct Arena<T> {
    /// Query and length of each row.
    rows: Vec<(u32, u32)>,
    ids: Chunks<u32>,
    distances: Chunks<T>,
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

impl<T: Scalar> Kept<T> {
    /// Makes `offsets[1..]` the ends of all rows.
    fn collect(
        execution: &mut Execution<'_, T>,
        request: Request,
        offsets: &mut [u64],
    ) -> Result<Self> {
        // If the estimate is too low, the rows kept so far are lost; it seldom is by much.
        let bytes = result_bytes::<T>(0, execution.expected_pairs as u64, request);
        let degrees = as_atomic(&mut offsets[1..]);
        let kept =
            if bytes <= execution.spare { Self::keep(execution, request, degrees) } else { None };
        let kept = match kept {
            Some(kept) => kept,
            None => {
                let work = execution.executor.degrees(degrees);
                execution.stats.record(work);
                Kept::Counted
            }
        };
        let mut end = 0u64;
        for offset in &mut offsets[1..] {
            end = end.checked_add(*offset).ok_or(Error::OutOfMemory { bytes: usize::MAX })?;
            *offset = end;
        }
        Ok(kept)
    }

    /// Keeps all rows, or none if they turn out to be more than expected.
    fn keep(
        execution: &mut Execution<'_, T>,
        request: Request,
        degrees: &[AtomicU64],
    ) -> Option<Self> {
        let arenas: Vec<Mutex<Arena<T>>> =
            (0..execution.executor.workers()).map(|_| Mutex::new(Arena::new())).collect();
        let most = execution.spare / (4 + size_of::<T>() as u64 * u64::from(request.distances));
        let pairs = AtomicU64::new(0);
        let too_many = AtomicBool::new(false);
        let work = execution.executor.rows(request, &|rows: &Rows<'_, T>| {
            let mut arena = arenas[rows.worker].lock().unwrap_or_else(|e| e.into_inner());
            let found = rows.neighbors.iter().map(|row| row.len() as u64).sum::<u64>();
            let in_all = pairs.fetch_add(found, Relaxed) + found;
            if in_all > most || arena.keep(rows, degrees).is_err() {
                too_many.store(true, Relaxed);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        execution.stats.record(work);
        if too_many.into_inner() {
            return None;
        }
        let open = |arena: Mutex<Arena<T>>| arena.into_inner().unwrap_or_else(|e| e.into_inner());
        Some(Kept::Rows(arenas.into_iter().map(open).collect()))
    }

    /// Puts every row in its place.
    fn fill(
        self,
        execution: &mut Execution<'_, T>,
        request: Request,
        offsets: &[u64],
        ids: &mut [u32],
        distances: Option<&mut [T]>,
    ) {
        let place =
            Place { offsets, ids: RowWriter::new(ids), distances: distances.map(RowWriter::new) };
        match self {
            Kept::Counted => {
                let work = execution.executor.rows(request, &|rows: &Rows<'_, T>| {
                    place.rows(rows);
                    ControlFlow::Continue(())
                });
                execution.stats.record(Work { pairs: work.pairs, ..work });
            }
            Kept::Rows(arenas) => execution.pool.install(|| {
                arenas.par_iter().for_each(|arena| arena.place(&place));
            }),
        }
    }
}

impl<T: Scalar> Arena<T> {
    fn new() -> Self {
        Arena { rows: Vec::new(), ids: Chunks::new(), distances: Chunks::new() }
    }

    fn keep(&mut self, rows: &Rows<'_, T>, degrees: &[AtomicU64]) -> Result<()> {
        for (at, &query) in rows.queries.iter().enumerate() {
            let row = &rows.neighbors[at];
            degrees[query as usize].store(row.len() as u64, Relaxed);
            self.rows.push((query, row.len() as u32));
            self.ids.append(row)?;
            if let Some(distances) = rows.distances.get(at) {
                self.distances.append(distances)?;
            }
        }
        Ok(())
    }

    fn place(&self, place: &Place<'_, T>) {
        let lengths = || self.rows.iter().map(|&(_, length)| length as usize);
        let mut distances = place.distances.is_some().then(|| self.distances.rows(lengths()));
        for (&(query, _), ids) in self.rows.iter().zip(self.ids.rows(lengths())) {
            let distances = distances.as_mut().and_then(Iterator::next);
            place.row(place.range(query), ids, distances);
        }
        place.ids.finish();
    }
}

/// Where the rows belong.
struct Place<'a, T> {
    offsets: &'a [u64],
    ids: RowWriter<'a, u32>,
    distances: Option<RowWriter<'a, T>>,
}

impl<T: Scalar> Place<'_, T> {
    /// The range that a row takes.
    fn range(&self, query: u32) -> (usize, usize) {
        let query = query as usize;
        (self.offsets[query] as usize, self.offsets[query + 1] as usize)
    }

    fn rows(&self, rows: &Rows<'_, T>) {
        // Queries are neighbours in space and far apart in memory: ask for all their
        // places at once, so that the cache misses overlap.
        const AT_ONCE: usize = 16;
        const LINES: usize = 4;
        let mut ranges = [(0, 0); AT_ONCE];
        for (batch, queries) in rows.queries.chunks(AT_ONCE).enumerate() {
            for (range, &query) in ranges.iter_mut().zip(queries) {
                *range = self.range(query);
                for line in (range.0..range.1.min(range.0 + 16 * LINES)).step_by(16) {
                    self.ids.prefetch(line);
                }
            }
            for (at, &range) in ranges.iter().enumerate().take(queries.len()) {
                let at = batch * AT_ONCE + at;
                let distances = rows.distances.get(at).map(|distances| &distances[..]);
                self.row(range, &rows.neighbors[at], distances);
            }
        }
        self.ids.finish();
    }

    #[allow(unsafe_code)]
    fn row(&self, (start, end): (usize, usize), ids: &[u32], distances: Option<&[T]>) {
        assert_eq!(ids.len(), end - start, "a row changed between two passes");
        // SAFETY: the offsets ascend, so rows do not overlap, and an executor hands out
        // each query exactly once; the row has the length that its offsets say.
        unsafe { self.ids.write(start, ids) };
        if let (Some(to), Some(distances)) = (&self.distances, distances) {
            assert_eq!(distances.len(), end - start);
            // SAFETY: as above.
            unsafe { to.write(start, distances) };
        }
    }
}
