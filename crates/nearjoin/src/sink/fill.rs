//! How the rows of a CSR get to their places: found once and kept, or counted and found
//! again.

use core::ops::ControlFlow;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Mutex;

use rayon::prelude::*;

use super::Execution;
use super::csr::result_bytes;
use crate::error::Result;
use crate::exec::arena::Arena;
use crate::exec::place::{Place, running_sums};
use crate::exec::{LaidOut, Request, Rows};
use crate::memory::as_atomic;
use crate::scalar::Scalar;

/// How far above the expected number of pairs there has to be room for them.
const MARGIN: f64 = 1.1;

/// The first pass: it knows the offsets and, where there was room, the rows already.
///
/// A small result is kept as it is found and copied to its place once the offsets are
/// known: one pass over the candidates. A large one is only counted, and found again:
/// two passes, but no second copy in memory.
///
/// A device that makes rows in the order of the input decides that by itself.
pub(super) enum Kept<'a, T> {
    Counted,
    Rows(Vec<Arena<T>>),
    LaidOut(Box<dyn LaidOut<T> + 'a>),
}

impl<'a, T: Scalar> Kept<'a, T> {
    /// Makes `offsets[1..]` the ends of all rows.
    pub(super) fn collect(
        execution: &mut Execution<'a, T>,
        request: Request,
        offsets: &mut [u64],
    ) -> Result<Self> {
        let room = execution.spare;
        let bytes = result_bytes::<T>(0, (MARGIN * execution.expected_pairs) as u64, request);
        if let Some(rows) = execution.executor.lay_out(Request { room, ..request }, offsets) {
            return Ok(Kept::LaidOut(rows?));
        }
        // If the estimate is too low, the rows kept so far are lost.
        let degrees = as_atomic(&mut offsets[1..]);
        let kept = if bytes <= room { Self::keep(execution, request, degrees)? } else { None };
        let kept = match kept {
            Some(kept) => kept,
            None => {
                let work = execution.executor.degrees(degrees)?;
                execution.stats.record(work);
                Kept::Counted
            }
        };
        execution.pool.install(|| running_sums(&mut offsets[1..]))?;
        Ok(kept)
    }

    /// Keeps all rows, or none if they turn out to be more than expected.
    fn keep(
        execution: &mut Execution<'_, T>,
        request: Request,
        degrees: &[AtomicU64],
    ) -> Result<Option<Self>> {
        let arenas: Vec<Mutex<Arena<T>>> =
            (0..execution.executor.workers()).map(|_| Mutex::new(Arena::new())).collect();
        let most = execution.spare / (4 + size_of::<T>() as u64 * u64::from(request.distances));
        let pairs = AtomicU64::new(0);
        let too_many = AtomicBool::new(false);
        let work = execution.executor.rows(request, &|rows: &Rows<'_, T>| {
            let mut arena = arenas[rows.worker].lock().unwrap_or_else(|e| e.into_inner());
            let found = rows.neighbors.total();
            let in_all = pairs.fetch_add(found, Relaxed) + found;
            let lengths = rows.queries.iter().enumerate();
            lengths.for_each(|(at, &query)| {
                degrees[query as usize].store(rows.neighbors.row(at).len() as u64, Relaxed);
            });
            if in_all > most || arena.keep(rows).is_err() {
                too_many.store(true, Relaxed);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        execution.stats.record(work);
        if too_many.into_inner() {
            return Ok(None);
        }
        let open = |arena: Mutex<Arena<T>>| arena.into_inner().unwrap_or_else(|e| e.into_inner());
        Ok(Some(Kept::Rows(arenas.into_iter().map(open).collect())))
    }

    /// Whether whoever writes the rows touches the pages of their arrays, while rows are on their
    /// way.
    pub(super) fn touches_pages(&self) -> bool {
        matches!(self, Kept::LaidOut(_))
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
            Kept::Rows(arenas) => {
                let place = Place::new(offsets, ids, distances);
                execution.pool.install(|| arenas.par_iter().for_each(|arena| place.arena(arena)));
            }
            Kept::LaidOut(rows) => {
                execution.stats.record(rows.write(offsets, ids, distances, fresh)?);
            }
        }
        Ok(())
    }
}
