use super::fill::Kept;
use super::{Execution, Receive, setters};
use crate::error::{Error, Result};
use crate::exec::Request;
use crate::exec::pool::Pool;
use crate::memory::{Buffer, Zeroable};
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

    /// The distances of all rows; empty unless asked for.
    pub fn distances(&self) -> &[T] {
        self.distances.as_deref().unwrap_or_default()
    }

    /// The ids of one left point's neighbours.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn ids_of(&self, row: usize) -> &[u32] {
        &self.ids[self.range(row)]
    }

    /// The distances of one left point's neighbours; empty unless asked for.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn distances_of(&self, row: usize) -> &[T] {
        let range = self.range(row);
        self.distances.as_ref().map_or(&[], |distances| &distances[range])
    }

    fn range(&self, row: usize) -> core::ops::Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    /// The ids of every left point's neighbours, in input order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        (0..self.len()).map(|row| self.ids_of(row))
    }

    /// The arrays themselves: offsets, ids and, where asked for, distances.
    pub fn into_parts(self) -> (Buffer<u64>, Buffer<u32>, Option<Buffer<T>>) {
        (self.offsets, self.ids, self.distances)
    }
}

/// Collects a [`Csr`], allocated once at its exact size.
///
/// Large arrays lie in huge pages.
///
/// ```
/// use nearjoin::{EpsJoin, Points, sink::CsrSink};
/// let points = Points::new(&[3.0, 0.0, 1.0, 2.0], 1)?;
/// let mut sink = CsrSink::new().sorted(true);
/// EpsJoin::new(2.0).plan_self(&points)?.run(&mut sink)?;
/// let csr = sink.into_csr();
/// assert_eq!(csr.ids_of(3), [0, 1, 2]);
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

    setters!(sorted distances);

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
        let rows = execution.executor.len();
        execution.budget.check_result(offset_bytes(rows))?;
        let (mut offsets, _) = Buffer::<u64>::to_fill(rows + 1)?;
        offsets[0] = 0;
        let kept = Kept::collect(execution, self.request, &mut offsets, true)?;
        let pairs = offsets[rows];
        let bytes = result_bytes::<T>(rows, pairs, self.request);
        execution.budget.check_result(bytes)?;
        let touched = !kept.touches_pages();
        let (mut ids, mut fresh) = new(execution.pool, pairs as usize, touched)?;
        let mut distances = None;
        if self.request.distances {
            let (array, is_fresh) = new(execution.pool, pairs as usize, touched)?;
            distances = Some(array);
            fresh |= is_fresh;
        }
        kept.fill(execution, self.request, &offsets, &mut ids, distances.as_deref_mut(), fresh)?;
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

    setters!(sorted);

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
        let rows = execution.executor.len();
        if self.offsets.len() != rows + 1 {
            let (length, needed) = (self.offsets.len(), rows as u64 + 1);
            return Err(Error::Buffer { name: "offsets", length, needed });
        }
        self.offsets[0] = 0;
        let kept = Kept::collect(execution, self.request, self.offsets, false)?;
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
        kept.fill(execution, self.request, self.offsets, ids, distances, false)?;
        execution.stats.result_bytes = result_bytes::<T>(rows, needed, self.request);
        self.pairs = needed;
        Ok(())
    }
}

/// An array of the result, and whether its pages are fresh. Where they are to be `touched`, all
/// threads do that before.
fn new<V: Zeroable>(pool: &Pool, len: usize, touched: bool) -> Result<(Buffer<V>, bool)> {
    match touched {
        true => Ok((pool.install(|| Buffer::faulted_to_fill(len))?, false)),
        false => Buffer::to_fill(len),
    }
}

fn offset_bytes(rows: usize) -> u64 {
    (rows as u64 + 1) * 8
}

pub(super) fn result_bytes<T>(rows: usize, pairs: u64, request: Request) -> u64 {
    pairs.saturating_mul(pair_bytes::<T>(request)).saturating_add(offset_bytes(rows))
}

/// Bytes of a pair.
pub(super) fn pair_bytes<T>(request: Request) -> u64 {
    4 + if request.distances { size_of::<T>() as u64 } else { 0 }
}
