//! Rows of one set made of a list of its pairs, each of which was met once: where tests cost more than
//! writing.
//!
//! ```text
//! first pass, for each block:   its pairs, each once: (a, b) → the bins of a and of b
//! for each bin:                 its pairs → their rows; each row in ascending order, so that it does
//!                               not hang on which thread came first
//! ```
//!
//! The rows are the product, or are handed out some at a time.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

use super::epsilon::{Cover, CpuJoin, Pass};
use crate::error::Result;
use crate::exec::bins::{Binned, Bins, Expected, Places};
use crate::exec::{Emit, Executor, LaidOut, Lists, Request, Rows, Unfinished, Work};
use crate::monitor::Monitor;
use crate::scalar::Scalar;

/// Rows that one thread makes ready for counts at a time.
const ROWS: usize = 1 << 12;
/// Rows that are handed out at a time.
const STEP: usize = 16;

/// The pairs of a set, each in two bins.
struct Listed<'j, 'a, T> {
    join: &'j CpuJoin<'a, T>,
    pairs: Binned<T>,
    /// Bytes that may be kept for others when the rows are written.
    room: u64,
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
        self.work(Pass::rows(cover, request), &self.filling(cover, request, &emit))
    }

    /// Stores the number of neighbours of each point.
    pub(super) fn degrees_of_pairs(&self, degrees: &[AtomicU64]) -> Result<Work> {
        let own = u64::from(self.include_self);
        let store = |degree: &AtomicU64| degree.store(own, Relaxed);
        self.pool.install(|| degrees.par_iter().with_min_len(ROWS).for_each(store));
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

    /// Lists all pairs, if there is room for them.
    fn list_pairs(&self, request: Request) -> Option<(Binned<T>, Work)> {
        let mut expected = Expected {
            queries: self.range.len(),
            workers: self.workers(),
            pairs: request.expected_pairs,
            distances: false,
            once: true,
            own: self.include_self,
        };
        // Where pairs are rare, as they are where they are listed, there may well be fewer than
        // expected.
        while expected.bytes::<T>() > request.room as f64 {
            if expected.pairs < 1.0 {
                return None;
            }
            expected.pairs *= 0.75;
        }
        // Three numbers for each that is found.
        let left = request.room as f64 - expected.bytes::<T>();
        let most = expected.pairs / 2.0 + left / 12.0;
        let bins = Bins::new(expected, most as u64);
        let work = self.each_once(|rows| bins.keep_both(rows));
        Some((bins.into_all()?, work))
    }

    /// Makes `offsets[1..]` the ends of all rows, if pairs are to be listed and there is room for them.
    pub(super) fn list(
        &self,
        request: Request,
        offsets: &mut [u64],
    ) -> Option<Box<dyn LaidOut<T> + '_>> {
        if !self.lists() {
            return None;
        }
        let (pairs, work) = self.list_pairs(request)?;
        self.pool.install(|| pairs.ends(&mut offsets[1..]));
        Some(Box::new(Listed { join: self, pairs, room: request.room, work }))
    }
}

/// Rows that are handed out.
///
/// Whoever waits for them may be a thread of the pool that sorts and builds, so that nothing here
/// is done there.
impl<T: Scalar> CpuJoin<'_, T> {
    /// Hands out all rows, if pairs are to be listed and there is room for them.
    pub(super) fn rows_of_pairs(
        &self,
        request: Request,
        emit: &Emit<'_, T>,
    ) -> Option<Result<Work>> {
        if !self.lists() || request.once {
            return None;
        }
        let (listed, work) = self.list_pairs(request)?;
        let pairs = self.in_both_rows(work.pairs);
        self.monitor.inspect(|monitor| monitor.add(0, pairs - work.pairs));
        let work = Work { pairs, ..work };
        if self.is_cancelled() {
            return Some(Ok(work));
        }
        let handed_out = listed
            .hand_out(self.pool, |worker, places| self.hand_out(worker, places, request, emit));
        Some(handed_out.map(|()| work))
    }

    fn is_cancelled(&self) -> bool {
        self.monitor.is_some_and(Monitor::is_cancelled)
    }

    /// Puts rows in order and hands them out.
    fn hand_out(
        &self,
        worker: usize,
        places: Places<'_, T>,
        request: Request,
        emit: &Emit<'_, T>,
    ) -> ControlFlow<()> {
        let (mut queries, mut distances, mut ids) = (Vec::new(), Vec::new(), places.ids);
        for start in (0..places.offsets.len() - 1).step_by(STEP) {
            if self.is_cancelled() {
                return ControlFlow::Break(());
            }
            let offsets = &places.offsets[start..places.offsets.len().min(start + STEP + 1)];
            let (these, rest) =
                ids.split_at_mut((offsets[offsets.len() - 1] - offsets[0]) as usize);
            let first = places.first + start;
            distances.resize(if request.distances { these.len() } else { 0 }, T::ZERO);
            let wanted = request.distances.then_some(&mut distances[..]);
            self.arrange(Places { first, offsets, ids: these, distances: wanted });
            queries.clear();
            queries.extend((first as u32..).take(offsets.len() - 1));
            let distances = Lists::Flat { offsets, values: &distances[..] };
            emit(&Rows {
                worker,
                queries: &queries,
                neighbors: Lists::Flat { offsets, values: these },
                distances: request.distances.then_some(distances),
                ahead: &[],
                consecutive: true,
            })?;
            ids = rest;
        }
        ControlFlow::Continue(())
    }

    /// Puts rows in order, and computes their distances.
    fn arrange(&self, places: Places<'_, T>) {
        let Places { first, offsets, ids, mut distances } = places;
        let mut sums = Vec::new();
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
        distances: Option<&mut [T]>,
        _fresh: bool,
    ) -> Result<Work, Unfinished> {
        let Listed { join, pairs, room, work } = *self;
        let discard = pairs.bytes() > room;
        let places = Places { first: 0, offsets, ids, distances };
        pairs.fill(join.pool, places, discard, |places| join.arrange(places));
        Ok(Work { pairs: join.in_both_rows(work.pairs), ..work })
    }
}
