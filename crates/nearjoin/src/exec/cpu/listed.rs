//! Rows of one set made of a list of its pairs, each of which was met once: where tests cost more than
//! writing.
//!
//! ```text
//! first pass, for each block:   its pairs, each once → a list; count a pair for both its points
//! offsets = running sums of the counts
//! for each pair (a, b) of the list:   b → row a, a → row b
//! for each row:   in ascending order, so that it does not hang on which thread came first
//! ```

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;

use rayon::prelude::*;

use super::epsilon::{Cover, CpuJoin, Pass};
use crate::error::Result;
use crate::exec::arena::Arena;
use crate::exec::place::running_sums;
use crate::exec::{Executor, LaidOut, Request, Rows, Unfinished, Work};
use crate::memory::{Buffer, RowWriter, as_atomic, as_atomic_u32, touch_all};
use crate::monitor::Monitor;
use crate::scalar::Scalar;

/// Rows that one thread puts in order at a time.
const ROWS: usize = 1 << 12;

/// The pairs of a set, each once.
struct Listed<'j, 'a, T> {
    join: &'j CpuJoin<'a, T>,
    arenas: Vec<Arena<T>>,
    work: Work,
}

impl<T: Scalar> CpuJoin<'_, T> {
    /// Whether pairs had better be met once, and can be.
    pub(super) fn lists(&self) -> bool {
        self.listed && self.same && self.once() != Cover::Full
    }

    /// Hands out the rows of a pass that meets each pair once.
    fn each_once(&self, emit: impl Fn(&Rows<'_, T>) -> ControlFlow<()> + Sync) -> Work {
        let (cover, request) = (self.once(), Request { once: true, ..Request::default() });
        self.work(Pass { cover, counting: false }, &self.filling(cover, request, &emit))
    }

    /// Counts the neighbours of each point, which must be zero before.
    pub(super) fn degrees_of_pairs(&self, degrees: &[AtomicU64]) -> Result<Work> {
        self.begin_degrees(degrees);
        let mut work = self.each_once(|rows| {
            add_degrees(rows, degrees);
            ControlFlow::Continue(())
        });
        work.pairs = self.in_both_rows(work.pairs);
        Ok(work)
    }

    /// Neighbours of all points, of which so many pairs were met.
    fn in_both_rows(&self, pairs: u64) -> u64 {
        2 * pairs + if self.include_self { self.range.len() as u64 } else { 0 }
    }

    /// What each point has before its first pair.
    fn begin_degrees(&self, degrees: &[AtomicU64]) {
        let own = u64::from(self.include_self);
        let store = |degree: &AtomicU64| degree.store(own, Relaxed);
        self.pool.install(|| degrees.par_iter().with_min_len(ROWS).for_each(store));
    }

    /// Makes `offsets[1..]` the ends of all rows, if pairs are to be listed and there is room for them.
    pub(super) fn list(
        &self,
        request: Request,
        offsets: &mut [u64],
    ) -> Result<Option<Box<dyn LaidOut<T> + '_>>> {
        // A row needs two numbers in the list, and one to tell where it ends.
        let heads = 12 * self.range.len() as u64;
        if !self.lists() || request.room < heads {
            return Ok(None);
        }
        let most = (request.room - heads) / size_of::<u32>() as u64;
        let Some((arenas, work)) = self.list_pairs(most, as_atomic(&mut offsets[1..])) else {
            return Ok(None);
        };
        self.pool.install(|| running_sums(&mut offsets[1..]))?;
        Ok(Some(Box::new(Listed { join: self, arenas, work })))
    }

    /// Lists all pairs, if they are not too many.
    fn list_pairs(&self, most: u64, degrees: &[AtomicU64]) -> Option<(Vec<Arena<T>>, Work)> {
        self.begin_degrees(degrees);
        let arenas: Vec<Mutex<Arena<T>>> =
            (0..self.workers()).map(|_| Mutex::new(Arena::new())).collect();
        let (pairs, too_many) = (AtomicU64::new(0), AtomicBool::new(false));
        let work = self.each_once(|rows| {
            add_degrees(rows, degrees);
            let found = rows.neighbors.total();
            let in_all = pairs.fetch_add(found, Relaxed) + found;
            let mut arena = arenas[rows.worker].lock().unwrap_or_else(|e| e.into_inner());
            if in_all > most || arena.keep(rows).is_err() {
                too_many.store(true, Relaxed);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        let open = |arena: Mutex<Arena<T>>| arena.into_inner().unwrap_or_else(|e| e.into_inner());
        let arenas = arenas.into_iter().map(open).collect();
        (!too_many.into_inner()).then_some((arenas, work))
    }
}

/// Counts each pair for both its points.
fn add_degrees<T>(rows: &Rows<'_, T>, degrees: &[AtomicU64]) {
    for (at, &query) in rows.queries.iter().enumerate() {
        let neighbors = rows.neighbors.row(at);
        degrees[query as usize].fetch_add(neighbors.len() as u64, Relaxed);
        for &neighbor in neighbors {
            degrees[neighbor as usize].fetch_add(1, Relaxed);
        }
    }
}

impl<T: Scalar> LaidOut<T> for Listed<'_, '_, T> {
    fn write(
        self: Box<Self>,
        offsets: &[u64],
        ids: &mut [u32],
        mut distances: Option<&mut [T]>,
        fresh: bool,
    ) -> Result<Work, Unfinished> {
        let join = self.join;
        let pairs = join.in_both_rows(self.work.pairs);
        // Of a join that was cancelled some pairs are missing, and rows are not as long as they were
        // said to be.
        if !join.monitor.is_some_and(Monitor::is_cancelled) {
            let mut filled = Buffer::<u32>::zeroed(join.range.len())?;
            join.pool.install(|| {
                if fresh {
                    touch_all(ids);
                    distances.iter_mut().for_each(|distances| touch_all(distances));
                }
                let spread = Spread::new(offsets, ids, &mut filled);
                self.arenas.par_iter().for_each(|arena| spread.arena(arena));
                if join.include_self {
                    (0..join.range.len() as u32)
                        .into_par_iter()
                        .for_each(|row| spread.add(row, &[row]));
                }
                join.arrange(0, offsets, ids, distances);
            });
        }
        Ok(Work { pairs, ..self.work })
    }
}

/// Pairs on their way to both their rows.
struct Spread<'a> {
    offsets: &'a [u64],
    ids: RowWriter<'a, u32>,
    /// Neighbours that each row has already.
    filled: &'a [AtomicU32],
}

impl<'a> Spread<'a> {
    fn new(offsets: &'a [u64], ids: &'a mut [u32], filled: &'a mut [u32]) -> Self {
        Spread { offsets, ids: RowWriter::new(ids), filled: as_atomic_u32(filled) }
    }

    fn arena<T: Scalar>(&self, arena: &Arena<T>) {
        for (query, neighbors, _) in arena.rows() {
            self.add(query, neighbors);
            neighbors.iter().for_each(|&neighbor| self.add(neighbor, &[query]));
        }
    }

    /// Appends to a row.
    #[allow(unsafe_code)]
    fn add(&self, row: u32, neighbors: &[u32]) {
        let row = row as usize;
        let filled = self.filled[row].fetch_add(neighbors.len() as u32, Relaxed);
        let start = self.offsets[row] + u64::from(filled);
        assert!(start + neighbors.len() as u64 <= self.offsets[row + 1], "a row is full");
        // SAFETY: each call takes elements of its row that no other call has taken, and rows do not
        // overlap, since offsets ascend.
        unsafe { self.ids.write_short(start as usize, neighbors) };
    }
}

impl<T: Scalar> CpuJoin<'_, T> {
    /// Puts the rows from the first on in order, and computes their distances.
    fn arrange(&self, first: usize, offsets: &[u64], ids: &mut [u32], distances: Option<&mut [T]>) {
        let rows = offsets.len() - 1;
        if rows > ROWS {
            let (front, back) = (&offsets[..=rows / 2], &offsets[rows / 2..]);
            let (ids, more_ids) = ids.split_at_mut((back[0] - front[0]) as usize);
            let (distances, more) = match distances {
                Some(distances) => {
                    let (distances, more) = distances.split_at_mut(ids.len());
                    (Some(distances), Some(more))
                }
                None => (None, None),
            };
            rayon::join(
                || self.arrange(first, front, ids, distances),
                || self.arrange(first + rows / 2, back, more_ids, more),
            );
            return;
        }
        let (mut distances, mut sums) = (distances, Vec::new());
        for (at, ends) in offsets.windows(2).enumerate() {
            let range = (ends[0] - offsets[0]) as usize..(ends[1] - offsets[0]) as usize;
            let row = &mut ids[range.clone()];
            row.sort_unstable();
            if let Some(distances) = &mut distances {
                let points = self.right.points();
                self.kernels.distances(points, points.row(first + at), row, &mut sums);
                let to = distances[range].iter_mut().zip(&sums);
                to.for_each(|(to, &sum)| *to = self.threshold.distance(sum));
            }
        }
    }
}
