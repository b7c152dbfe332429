//! How the rows of a CSR get to their places: found once and kept, or counted and found
//! again.

use core::ops::ControlFlow;

use super::Execution;
use super::csr::pair_bytes;
use crate::error::Result;
use crate::exec::bins::{self, Binned, Bins, Places};
use crate::exec::place::{Place, running_sums};
use crate::exec::{LaidOut, Request, Rows};
use crate::memory::as_atomic;
use crate::monitor;
use crate::scalar::Scalar;

/// How far above the expected number of pairs there has to be room for them.
pub(super) const MARGIN: f64 = 1.1;

/// The first pass: it knows the offsets and, where there was room, the rows already.
///
/// Rows are kept as they are found and copied to their places once the offsets are known: one
/// pass over the candidates. Where there is no room for that, or to find them again costs
/// less, they are only counted first: two passes, but no second copy in memory.
///
/// A device that makes rows in the order of the input decides that by itself.
pub(super) enum Kept<'a, T> {
    Counted,
    Rows(Binned<T>),
    LaidOut(Box<dyn LaidOut<T> + 'a>),
}

impl<'a, T: Scalar> Kept<'a, T> {
    /// Makes `offsets[1..]` the ends of all rows. `fresh`: their arrays will be new, so that rows may
    /// be given back while those are filled.
    pub(super) fn collect(
        execution: &mut Execution<'a, T>,
        request: Request,
        offsets: &mut [u64],
        fresh: bool,
    ) -> Result<Self> {
        // What is in bins stands in the result too, before it goes.
        let left = execution.budget.limit.saturating_sub(execution.budget.index);
        let neighbors = left / (bins::NEIGHBOR_BYTES + pair_bytes::<T>(request));
        let room = execution.spare.min(neighbors.saturating_mul(bins::NEIGHBOR_BYTES));
        let listing = Request { room, expected_pairs: execution.expected_pairs, ..request };
        if let Some(rows) = execution.executor.lay_out(listing, offsets) {
            return Ok(Kept::LaidOut(rows?));
        }
        // If the estimate is too low, the rows kept so far are lost.
        if let Some(kept) = Self::keep(execution, request, fresh)? {
            execution.pool.install(|| kept.ends(&mut offsets[1..]));
            return Ok(Kept::Rows(kept));
        }
        let work = execution.executor.degrees(as_atomic(&mut offsets[1..]))?;
        execution.stats.record(work);
        // Of a join that was cancelled some are not there.
        monitor::check(execution.monitor)?;
        execution.pool.install(|| running_sums(&mut offsets[1..]))?;
        Ok(Kept::Counted)
    }

    /// Keeps all rows, or none if there is no room for them, or if they turn out to be more than
    /// expected.
    fn keep(
        execution: &mut Execution<'_, T>,
        request: Request,
        fresh: bool,
    ) -> Result<Option<Binned<T>>> {
        let expected = bins::Expected {
            queries: execution.executor.len(),
            workers: execution.executor.workers(),
            pairs: MARGIN * execution.expected_pairs,
            distances: request.distances,
            once: false,
            own: false,
        };
        let Some(most) = execution.most_kept(&expected, fresh) else { return Ok(None) };
        let bins = Bins::new(expected, most / pair_bytes::<T>(request));
        let work = execution.executor.rows(request, &|rows: &Rows<'_, T>| bins.keep(rows))?;
        execution.stats.record(work);
        Ok(bins.into_all())
    }

    /// Whether whoever writes the rows touches the pages of their arrays, while rows are on their
    /// way.
    pub(super) fn touches_pages(&self) -> bool {
        !matches!(self, Kept::Counted)
    }

    /// Puts every row in its place. `fresh`: nobody has touched the pages of the arrays.
    pub(super) fn fill(
        self,
        execution: &mut Execution<'_, T>,
        request: Request,
        offsets: &[u64],
        ids: &mut [u32],
        distances: Option<&mut [T]>,
        fresh: bool,
    ) -> Result<()> {
        match self {
            Kept::Counted => {
                let place = Place::new(offsets, ids, distances);
                let work = execution.executor.rows(request, &|rows: &Rows<'_, T>| {
                    place.rows(rows);
                    ControlFlow::Continue(())
                })?;
                execution.stats.record(work);
            }
            Kept::Rows(kept) => {
                // What is more than may stand beside the result must not be kept for others either.
                let discard = kept.bytes() > execution.spare;
                let places = Places { first: 0, offsets, ids, distances };
                kept.fill(execution.pool, places, discard, |_| ());
            }
            Kept::LaidOut(rows) => {
                execution.stats.record(rows.write(offsets, ids, distances, fresh)?);
            }
        }
        Ok(())
    }
}
