//! Rows of a CSR whose places hang on the lengths of those before.
//!
//! ```text
//! first pass, for each unit:   count the matches of its queries and, while there is room, note them
//! offsets = running sums of the counts
//! second pass, for each unit:  recall its matches, or find them again; write them to their places
//! ```
//!
//! Matches come in the same order whether they are recalled or found again, so the answer does not
//! hang on the room.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;

use super::epsilon::{Cover, CpuJoin, FULL_COUNT, Pass, Worker};
use crate::error::Result;
use crate::exec::place::{Place, running_sums};
use crate::exec::queue::Queue;
use crate::exec::{Executor, LaidOut, Request, Rows, Unfinished, Work};
use crate::index::{BoxOf, Run};
use crate::memory::{Buffer, as_atomic, reserve, touch_all};
use crate::monitor::Phase;
use crate::scalar::Scalar;

/// Looks at every candidate of every query, and lists those that are taken whole.
const FULL: Pass = Pass { cover: Cover::Full, counting: false };

/// Candidates to a match, fewer than which are better sorted than the matches of 16 queries.
const SORTED: u64 = 4;

/// Rows of which the lengths are known, and most of the matches.
struct Noted<'j, 'a, T> {
    join: &'j CpuJoin<'a, T>,
    request: Request,
    shelves: Vec<Shelf>,
    /// Where the notes of each unit are, if they are anywhere.
    units: Vec<Option<Spot>>,
    /// What was done so far.
    work: Work,
}

/// Where notes are.
#[derive(Clone, Copy, Debug)]
struct Spot {
    shelf: usize,
    chunk: usize,
    start: usize,
    len: usize,
}

/// The notes of one thread.
#[derive(Debug, Default)]
struct Shelf {
    chunks: Vec<Buffer<u16>>,
    /// Elements in use of the last chunk.
    used: usize,
    /// The first position of each unit that is here.
    kept: Vec<(u32, Spot)>,
}

impl Shelf {
    /// Elements of a first chunk, and of the largest.
    const CHUNKS: (usize, usize) = (1 << 15, 1 << 20);

    /// Copies the notes of a unit.
    fn keep(&mut self, shelf: usize, unit: &Run, notes: &[u16]) -> Result<()> {
        let left = self.chunks.last().map_or(0, |chunk| chunk.len() - self.used);
        if notes.len() > left {
            let (first, most) = Self::CHUNKS;
            let next = self.chunks.last().map_or(first, |chunk| 2 * chunk.len()).min(most);
            self.chunks.push(Buffer::zeroed(next.max(notes.len()))?);
            self.used = 0;
        }
        reserve(&mut self.kept, 1)?;
        let (chunk, start, len) = (self.chunks.len().saturating_sub(1), self.used, notes.len());
        if let Some(chunk) = self.chunks.last_mut() {
            chunk[start..][..len].copy_from_slice(notes);
        }
        self.used += len;
        self.kept.push((unit.start, Spot { shelf, chunk, start, len }));
        Ok(())
    }

    fn notes(&self, spot: Spot) -> &[u16] {
        // A unit without candidates has none, and needs no chunk.
        self.chunks.get(spot.chunk).map_or(&[], |chunk| &chunk[spot.start..][..spot.len])
    }
}

impl<'a, T: Scalar> CpuJoin<'a, T> {
    /// Makes `offsets[1..]` the ends of all rows.
    pub(super) fn note(
        &self,
        request: Request,
        offsets: &mut [u64],
    ) -> Result<Box<dyn LaidOut<T> + '_>> {
        if let Some(monitor) = self.monitor {
            monitor.enter(Phase::Counting, self.expected_tests(FULL_COUNT));
        }
        let (shelves, work) = self.note_units(request.room, as_atomic(&mut offsets[1..]));
        self.pool.install(|| running_sums(&mut offsets[1..]))?;
        let mut units = vec![None; self.range.len().div_ceil(self.unit)];
        for &(start, spot) in shelves.iter().flat_map(|shelf| &shelf.kept) {
            units[self.number_of(start)] = Some(spot);
        }
        Ok(Box::new(Noted { join: self, request, shelves, units, work }))
    }

    /// Counts the matches of each query, and notes them while there is room.
    fn note_units(&self, room: u64, degrees: &[AtomicU64]) -> (Vec<Shelf>, Work) {
        let shelves: Vec<Mutex<Shelf>> = (0..self.workers()).map(|_| Mutex::default()).collect();
        let room = AtomicU64::new(room);
        let counting = self.counting_each(degrees);
        let noting = |worker: &mut Worker<'_, T>, block: Run, bound: &BoxOf<T>| {
            self.note_block(worker, &block, bound);
            self.store_counts(worker, &block, degrees);
            ControlFlow::Continue(())
        };
        let queue = Queue::new(&self.range, self.unit);
        let works = self.on_threads(&queue, &|worker, recursion, unit| {
            if room.load(Relaxed) == 0 {
                return self.visit_unit(worker, recursion, unit, FULL_COUNT, &counting);
            }
            worker.scanner.notes.clear();
            self.visit_unit(worker, recursion, unit.clone(), FULL, &noting)?;
            let notes = worker.scanner.notes.as_slice();
            let bytes = size_of_val(notes) as u64;
            let fits = room.fetch_update(Relaxed, Relaxed, |room| room.checked_sub(bytes)).is_ok();
            let mut shelf = shelves[worker.number].lock().unwrap_or_else(|e| e.into_inner());
            // What is not kept is found again. So are all units that follow.
            if !fits || shelf.keep(worker.number, &unit, notes).is_err() {
                room.store(0, Relaxed);
            }
            ControlFlow::Continue(())
        });
        let open = |shelf: Mutex<Shelf>| shelf.into_inner().unwrap_or_else(|e| e.into_inner());
        (shelves.into_iter().map(open).collect(), works.into_iter().sum())
    }

    /// The number of the unit that begins at a position.
    fn number_of(&self, start: u32) -> usize {
        (start - self.range.start) as usize / self.unit
    }
}

impl<T> Noted<'_, '_, T> {
    /// Whether so many candidates match that to sort those of a block takes less than to sort the rows
    /// of its queries.
    fn has_few_candidates(&self) -> bool {
        let Work { pairs, tests, taken } = self.work;
        tests + taken < SORTED * pairs
    }
}

impl<T: Scalar> LaidOut<T> for Noted<'_, '_, T> {
    fn write(
        self: Box<Self>,
        offsets: &[u64],
        ids: &mut [u32],
        mut distances: Option<&mut [T]>,
        fresh: bool,
    ) -> Result<Work, Unfinished> {
        let Noted { join, request, .. } = *self;
        if fresh {
            join.pool.install(|| {
                touch_all(ids);
                distances.iter_mut().for_each(|distances| touch_all(distances));
            });
        }
        if let Some(monitor) = join.monitor {
            let again = self.units.iter().filter(|unit| unit.is_none()).count();
            let share = again as f64 / self.units.len().max(1) as f64;
            monitor.enter(Phase::Joining, (join.expected_tests(FULL) as f64 * share) as u64 + 1);
        }
        let place = Place::new(offsets, ids, distances);
        let emit = |rows: &Rows<'_, T>| {
            place.rows(rows);
            ControlFlow::Continue(())
        };
        let filling = join.filling(Cover::Full, request, &emit);
        let recalling = |worker: &mut Worker<'_, T>, block: Run, _: &BoxOf<T>| {
            join.recall_block(worker, &block, request);
            join.hand_out(worker, &block, request, &emit)
        };
        let queue = Queue::new(&join.range, join.unit);
        let in_order = request.sorted && self.has_few_candidates();
        let works = join.on_threads(&queue, &|worker, recursion, unit| {
            if in_order {
                worker.in_order = true;
                return join.visit_unit(worker, recursion, unit, FULL, &filling);
            }
            let Some(spot) = self.units[join.number_of(unit.start)] else {
                return join.visit_unit(worker, recursion, unit, FULL, &filling);
            };
            let notes = self.shelves[spot.shelf].notes(spot);
            worker.scanner.notes.copy_from(notes);
            join.visit_unit(worker, recursion, unit, FULL, &recalling)
        });
        let Work { pairs, tests, taken } = works.into_iter().sum();
        Ok(Work { pairs, tests: self.work.tests + tests, taken: self.work.taken + taken })
    }
}
