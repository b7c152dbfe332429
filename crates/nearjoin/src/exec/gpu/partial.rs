//! Candidates that the device cannot hold at once: some of them after the others.
//!
//! Every part of the candidates is indexed and searched for all queries, and the k best of all parts
//! are the k best of what they found: the host keeps them, by what was added up and by row, and hands
//! rows out when all parts have been searched. Queries whose best do not fit into some share of the
//! host's memory are asked some after the others.

use core::ops::{ControlFlow, Range};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;

use super::driver::Fault;
use super::knn::{GpuKnn, KnnSetup};
use super::session::{Result, Session, Stop};
use super::tree::Role;
use crate::error::Error;
use crate::exec::part::check_positions;
use crate::exec::{
    Emit, Executor, Lists, Meeting, OnDevice, Part, Request, Rows, Work, sort_by_id,
};
use crate::index::Run;
use crate::memory::{copied, with_capacity};
use crate::monitor::Phase;
use crate::points::{Points, PointsBuf};
use crate::scalar::Scalar;
use crate::stats::GpuStats;

/// Bytes of the best of the queries that are asked at a time, at the most.
const BEST: usize = 1 << 30;
/// Queries whose best share a lock, and are handed out together.
const TOGETHER: usize = 256;

/// A join part by part.
pub(super) struct Partial<'a, T> {
    setup: KnnSetup<'a, T>,
    session: Session<'a>,
    /// Parts of the candidates, at the least.
    parts: usize,
    /// The rows of the points that ask, where not all of them do.
    part: Option<Vec<u32>>,
}

/// The best of some queries, ascending by what was added up and by row.
struct Best<T> {
    ids: Vec<Vec<u32>>,
    sums: Vec<Vec<T>>,
}

impl<T: Scalar> Best<T> {
    fn new(queries: usize) -> Self {
        Best { ids: vec![Vec::new(); queries], sums: vec![Vec::new(); queries] }
    }

    /// Keeps the `k` best of those of a query and of more, which ascend.
    fn merge(&mut self, query: usize, k: usize, ids: &[u32], sums: &[T]) {
        let (old_ids, old_sums) = (&self.ids[query], &self.sums[query]);
        let (mut a, mut b) = (0, 0);
        let (mut merged_ids, mut merged_sums) = (Vec::new(), Vec::new());
        while merged_ids.len() < k && (a < old_ids.len() || b < ids.len()) {
            let old_is_first = match (old_ids.get(a), ids.get(b)) {
                (Some(&old), Some(&new)) => (old_sums[a], old) < (sums[b], new),
                (old, _) => old.is_some(),
            };
            let from = if old_is_first { (old_ids[a], old_sums[a]) } else { (ids[b], sums[b]) };
            *if old_is_first { &mut a } else { &mut b } += 1;
            merged_ids.push(from.0);
            merged_sums.push(from.1);
        }
        (self.ids[query], self.sums[query]) = (merged_ids, merged_sums);
    }
}

impl<'a, T: Scalar> Partial<'a, T> {
    pub(super) fn new(setup: KnnSetup<'a, T>, parts: usize) -> Self {
        let how = setup.how.clone();
        let session = Session::new(setup.device.clone(), setup.pool, how, setup.monitor);
        Partial { setup, session, parts, part: None }
    }

    fn right(&self) -> Points<'a, T> {
        self.setup.right.unwrap_or(self.setup.left)
    }

    fn row_of(&self, number: u32) -> u32 {
        self.part.as_ref().map_or(number, |rows| rows[number as usize])
    }

    /// The same join for some rows.
    fn of_rows(&self, rows: Vec<u32>) -> Partial<'_, T> {
        // The parts of the candidates have the share of all.
        let session = self.session.for_share(1.0);
        Partial { setup: self.setup.clone(), session, parts: self.parts, part: Some(rows) }
    }

    fn hand_out(&self, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        self.session.enter(Phase::Joining);
        let row = self.setup.k.min(self.right().len()) * (4 + size_of::<T>()) + 64;
        let mut at_once = (BEST / row).max(TOGETHER);
        let (mut total, mut start) = (Work::default(), 0);
        while start < self.len() {
            let numbers = start..self.len().min(start + at_once);
            let (best, tests) = match self.search(numbers.clone()) {
                // Nothing has been handed out: fewer of them.
                Err(stop) if stop.is_memory() && numbers.len() > TOGETHER => {
                    at_once = numbers.len() / 2;
                    continue;
                }
                found => found?,
            };
            let (pairs, flow) = self.deliver(numbers.start, best, request, emit);
            total += self.session.told(Work { pairs, tests, ..Work::default() });
            if flow.is_break() {
                break;
            }
            start = numbers.end;
        }
        Ok(total)
    }

    /// The best of some queries among all candidates, and the distances that were computed.
    fn search(&self, numbers: Range<usize>) -> Result<(Vec<Mutex<Best<T>>>, u64)> {
        let mut rows = with_capacity(numbers.len())?;
        rows.extend(numbers.clone().map(|number| self.row_of(number as u32)));
        let points = self.setup.pool.install(|| self.setup.left.gather(&rows))?;
        let best = (0..numbers.len()).step_by(TOGETHER);
        let best = best.map(|at| Mutex::new(Best::new(TOGETHER.min(numbers.len() - at))));
        let best: Vec<Mutex<Best<T>>> = best.collect();
        let (all, mut tests) = (self.right().len(), 0);
        let size = all.div_ceil(self.parts).max(1);
        let ranges = (0..all).step_by(size).map(|start| start..all.min(start + size));
        let mut waiting: Vec<Range<usize>> = ranges.rev().collect();
        while let Some(range) = waiting.pop() {
            self.session.check_cancelled()?;
            match self.search_part(range.clone(), &rows, &points, &best) {
                Ok(work) => tests += work.tests,
                // Nothing of it is kept before its memory is there: halves of it.
                Err(Refused::Index(stop)) if stop.is_memory() && range.len() > 1 => {
                    let middle = range.start + range.len() / 2;
                    waiting.extend([middle..range.end, range.start..middle]);
                    self.session.record(|stats| stats.splits += 1);
                }
                Err(Refused::Index(stop) | Refused::Work(stop)) => return Err(stop),
            }
        }
        Ok((best, tests))
    }

    /// Searches some of the candidates for the queries in some rows.
    fn search_part(
        &self,
        candidates: Range<usize>,
        rows: &[u32],
        points: &PointsBuf<T>,
        best: &[Mutex<Best<T>>],
    ) -> core::result::Result<Work, Refused> {
        let refused = |fault: Fault| Refused::Index(fault.into());
        let names: Vec<u32> = (candidates.start as u32..candidates.end as u32).collect();
        let index = || {
            let session = self.session.for_share(1.0 / self.parts as f64);
            let here = self.right().rows(candidates.clone());
            GpuKnn::over(session, &self.setup, here, Some(&names), Role::Candidates)
        };
        let index = self.setup.pool.install(index).map_err(refused)?;
        let rows = copied(rows).map_err(|error| Refused::Work(error.into()))?;
        let join = index.of_rows(rows, points.as_points()).map_err(refused)?;
        let request = Request { distances: true, ..Request::default() };
        let done = join.hand_out(request, true, &|rows: &Rows<'_, T>| {
            for (at, &query) in rows.queries.iter().enumerate() {
                let (lock, within) = (query as usize / TOGETHER, query as usize % TOGETHER);
                let (ids, sums) = (rows.neighbors.row(at), rows.distances(at).unwrap_or_default());
                let mut best = best[lock].lock().unwrap_or_else(|e| e.into_inner());
                best.merge(within, self.setup.k, ids, sums);
            }
            ControlFlow::Continue(())
        });
        for part in [index.session.take_stats(), join.session.take_stats()] {
            self.session.record(|stats| stats.add(&part));
        }
        self.session.record(|stats| stats.partitions += 1);
        done.map_err(Refused::Work)
    }

    /// Hands out the rows of queries from a number on.
    fn deliver(
        &self,
        first: usize,
        best: Vec<Mutex<Best<T>>>,
        request: Request,
        emit: &Emit<'_, T>,
    ) -> (u64, ControlFlow<()>) {
        let (mut number, mut pairs) = (first as u32, 0);
        for some in best {
            let Best { mut ids, mut sums } = some.into_inner().unwrap_or_else(|e| e.into_inner());
            for (ids, sums) in ids.iter_mut().zip(&mut sums) {
                pairs += ids.len() as u64;
                sums.iter_mut().for_each(|sum| *sum = self.setup.arithmetic.distance(*sum));
                if request.sorted {
                    sort_by_id(ids, sums, &mut Vec::new());
                }
            }
            let queries: Vec<u32> = (number..number + ids.len() as u32).collect();
            number += queries.len() as u32;
            let flow = emit(&Rows {
                worker: 0,
                queries: &queries,
                neighbors: Lists::Each(&ids),
                distances: request.distances.then_some(Lists::Each(&sums)),
                ahead: &[],
                consecutive: true,
            });
            if flow.is_break() {
                return (pairs, flow);
            }
        }
        (pairs, ControlFlow::Continue(()))
    }
}

/// Where a part came to grief: only for want of memory for its index is it cut in two.
enum Refused {
    Index(Stop),
    Work(Stop),
}

impl<T: Scalar> Executor<T> for Partial<'_, T> {
    fn len(&self) -> usize {
        self.part.as_ref().map_or(self.setup.left.len(), Vec::len)
    }

    fn index_bytes(&self) -> u64 {
        0
    }

    fn host_bytes(&self) -> u64 {
        0
    }

    fn count(&self) -> crate::error::Result<Work> {
        Ok(self.hand_out(Request::default(), &|_: &Rows<'_, T>| ControlFlow::Continue(()))?)
    }

    fn degrees(&self, degrees: &[AtomicU64]) -> crate::error::Result<Work> {
        Ok(self.hand_out(Request::default(), &|rows: &Rows<'_, T>| {
            for (at, &query) in rows.queries.iter().enumerate() {
                degrees[query as usize].store(rows.neighbors.row(at).len() as u64, Relaxed);
            }
            ControlFlow::Continue(())
        })?)
    }

    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> crate::error::Result<Work> {
        Ok(self.hand_out(request, emit)?)
    }

    fn rows_at(&self, positions: Run) -> crate::error::Result<Vec<u32>> {
        // There is no order of all points: positions are numbers.
        Ok(positions.map(|number| self.row_of(number)).collect())
    }

    fn part<'b>(&'b self, part: Part<'b, T>) -> crate::error::Result<Box<dyn Executor<T> + 'b>> {
        let rows = match part {
            Part::Rows { rows, .. } => copied(rows)?,
            Part::Positions { start, end } => {
                self.rows_at(check_positions(start, end, self.len()))?
            }
        };
        Ok(Box::new(self.of_rows(rows)))
    }

    fn workers(&self) -> usize {
        1
    }

    fn gpu_stats(&self) -> Option<GpuStats> {
        let stats = self.session.take_stats();
        self.session.record(|stats| stats.partitions = 0);
        Some(stats)
    }
}

impl<T: Scalar> OnDevice<T> for Partial<'_, T> {
    fn for_rows(
        &self,
        rows: Vec<u32>,
        _points: Points<'_, T>,
    ) -> crate::error::Result<Box<dyn OnDevice<T> + '_>> {
        Ok(Box::new(self.of_rows(rows)))
    }

    fn in_lane<'b>(
        &'b self,
        _lane: (usize, usize),
        _rows: Vec<u32>,
        _coordinates: &[T],
    ) -> crate::error::Result<Box<dyn OnDevice<T> + 'b>> {
        // A plan shares no join whose points the device cannot hold.
        let reason = "it cannot hold the points that it would share".into();
        Err(Error::Device { device: "gpu", reason })
    }

    fn meeting(&self) -> crate::error::Result<Meeting> {
        Ok(Meeting::SmallerRow)
    }
}
