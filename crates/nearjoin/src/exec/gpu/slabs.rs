//! Points that the device cannot hold at once: slabs of them, one after the other.
//!
//! As in the indexed nested-loop join (§4), queries are cut into slabs along one dimension,
//! and the candidates of a slab are all points up to the reach of ε beyond its sides. Every
//! query is in exactly one slab and meets all its neighbours there: the candidates of a slab are
//! indexed, and its queries are a part of that join. Slabs that hold too many points still are
//! cut again.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

use super::epsilon::Setup;
use super::launch::GpuJoin;
use super::session::{Result, Session};
use crate::error::Error;
use crate::exec::part::check_positions;
use crate::exec::{Emit, Executor, Meeting, OnDevice, Part, Request, Rows, Work};
use crate::index::Run;
use crate::memory::{as_atomic, copied, with_capacity, zeros};
use crate::points::{Points, PointsBuf};
use crate::scalar::Scalar;
use crate::stats::GpuStats;

/// Sampled coordinates, of which the sides of slabs are quantiles.
const SAMPLE: usize = 1 << 16;
/// Slabs are cut in two at the most so many times: then one dimension cannot tell the points
/// apart.
const DEEPEST: usize = 40;

/// A join slab by slab.
pub(crate) struct Slabs<'a, T> {
    setup: Setup<'a, T>,
    session: Session<'a>,
    dim: usize,
    /// Where slabs begin, ascending: the first at −∞.
    sides: Vec<f64>,
    /// The rows of the points that ask, where not all of them do.
    part: Option<Vec<u32>>,
}

/// What is done with the part of a join that the queries of a slab are. Each of them has a number.
type WorkOn<'a, T> = dyn FnMut(&GpuJoin<'_, T>, &[u32]) -> crate::error::Result<Work> + 'a;

/// The queries of one slab.
#[derive(Clone, Copy, Debug)]
struct Slab {
    lo: f64,
    hi: f64,
}

/// Points of one slab, with their rows in the whole input.
struct Inside<T> {
    points: PointsBuf<T>,
    rows: Vec<u32>,
}

impl<'a, T: Scalar> Slabs<'a, T> {
    pub(super) fn new(setup: Setup<'a, T>, slabs: usize) -> Self {
        let Setup { extents, left, how, .. } = setup;
        let widest = |a: &usize, b: &usize| {
            let extent = |j: usize| extents[j].1 - extents[j].0;
            extent(*a).total_cmp(&extent(*b))
        };
        let dim = (0..extents.len()).max_by(widest).unwrap_or(0);
        let sample = sample(left, dim);
        let mut sides = vec![f64::NEG_INFINITY];
        sides.extend((1..slabs).filter_map(|slab| sample.get(slab * sample.len() / slabs)));
        sides.dedup();
        let session = Session::new(setup.device.clone(), setup.pool, how.clone(), setup.monitor);
        Slabs { setup, session, dim, sides, part: None }
    }

    /// Joins slab after slab. `work` gets the queries of one against their candidates, and the
    /// number that each has in this join.
    fn each(&self, work: &mut WorkOn<'_, T>) -> Result<Work> {
        let mut total = Work::default();
        let ends = self.sides[1..].iter().copied().chain([f64::INFINITY]);
        let slabs = self.sides.iter().copied().zip(ends).map(|(lo, hi)| Slab { lo, hi });
        let mut waiting: Vec<(Slab, usize)> = slabs.map(|slab| (slab, 0)).collect();
        waiting.reverse();
        while let Some((slab, depth)) = waiting.pop() {
            self.session.check_cancelled()?;
            let (numbers, queries) = self.queries(slab)?;
            if queries.rows.is_empty() {
                continue;
            }
            let reach = self.setup.threshold.reach;
            let (lo, hi) = (slab.lo - reach, slab.hi + reach);
            let right = self.setup.right.unwrap_or(self.setup.left);
            let candidates = self.inside(right, None, |x| lo <= x && x <= hi)?.1;
            match self.join(&queries, &candidates, &numbers, work) {
                Ok(done) => total += done,
                // Too large still: halves of it, if one dimension can tell them apart.
                Err(Refused::Index(stop)) if stop.is_memory() && depth < DEEPEST => {
                    let Some(middle) = self.middle(slab, &queries) else { return Err(stop) };
                    let halves = [Slab { lo: middle, ..slab }, Slab { hi: middle, ..slab }];
                    waiting.extend(halves.map(|half| (half, depth + 1)));
                    self.session.record(|stats| stats.splits += 1);
                }
                Err(Refused::Index(stop) | Refused::Work(stop)) => return Err(stop),
            }
        }
        Ok(total)
    }

    /// Indexes the candidates of a slab, and works on the part that its queries are.
    fn join(
        &self,
        queries: &Inside<T>,
        candidates: &Inside<T>,
        numbers: &[u32],
        work: &mut WorkOn<'_, T>,
    ) -> core::result::Result<Work, Refused> {
        let indexing = |fault: super::driver::Fault| Refused::Index(fault.into());
        let (points, rows) = (candidates.points.as_points(), &candidates.rows[..]);
        let index = || {
            let session = self.session.for_share(1.0);
            GpuJoin::over(session, &self.setup, points, Some(rows))
        };
        let slab = self.setup.pool.install(index).map_err(indexing)?;
        let points = queries.points.as_points();
        let join = slab.of_rows(queries.rows.clone(), points).map_err(indexing)?;
        let done = work(&join, numbers).map_err(|error| Refused::Work(error.into()));
        for part in [slab.session.take_stats(), join.session.take_stats()] {
            self.session.record(|stats| stats.add(&part));
        }
        self.session.record(|stats| stats.partitions += 1);
        done
    }

    /// A side that cuts a slab in two, neither of them empty.
    fn middle(&self, slab: Slab, queries: &Inside<T>) -> Option<f64> {
        let sample = sample(queries.points.as_points(), self.dim);
        let middle = sample[sample.len() / 2];
        let above = sample.iter().copied().find(|&x| x > middle);
        let side = if middle > sample[0] { Some(middle) } else { above };
        side.filter(|&side| slab.lo < side && side < slab.hi)
    }

    /// The queries of a slab, with their numbers.
    fn queries(&self, slab: Slab) -> Result<(Vec<u32>, Inside<T>)> {
        let part = self.part.as_deref();
        self.inside(self.setup.left, part, |x| slab.lo <= x && x < slab.hi)
    }

    /// Of all points, or of those in some rows, the ones inside, with their numbers.
    fn inside(
        &self,
        points: Points<'_, T>,
        of: Option<&[u32]>,
        inside: impl Fn(f64) -> bool + Sync,
    ) -> Result<(Vec<u32>, Inside<T>)> {
        let row_of = |number: usize| of.map_or(number as u32, |rows| rows[number]);
        let is_inside =
            |number: &usize| inside(points.row(row_of(*number) as usize)[self.dim].to_f64());
        self.setup.pool.install(|| {
            let all = 0..of.map_or(points.len(), <[u32]>::len);
            let numbers = all.into_par_iter().filter(is_inside).map(|number| number as u32);
            let numbers: Vec<u32> = numbers.collect();
            let mut rows: Vec<u32> = with_capacity(numbers.len())?;
            let of_numbers = numbers.par_iter().map(|&number| row_of(number as usize));
            of_numbers.collect_into_vec(&mut rows);
            let points = points.gather(&rows)?;
            Ok((numbers, Inside { points, rows }))
        })
    }

    /// The same join for some rows.
    fn of_rows(&self, rows: Vec<u32>) -> Slabs<'_, T> {
        let Setup { ref device, .. } = self.setup;
        let setup = Setup { device: device.clone(), ..self.setup };
        Slabs {
            setup,
            // The part of every slab has the share of its own queries.
            session: self.session.for_share(1.0),
            dim: self.dim,
            sides: self.sides.clone(),
            part: Some(rows),
        }
    }
}

/// Where a slab came to grief: only for want of memory for its index is it cut in two.
enum Refused {
    Index(super::session::Stop),
    Work(super::session::Stop),
}

/// Coordinates of some points, in order.
fn sample<T: Scalar>(points: Points<'_, T>, dim: usize) -> Vec<f64> {
    let step = points.len().div_ceil(SAMPLE).max(1);
    let rows = (0..points.len()).step_by(step);
    let mut sample: Vec<f64> = rows.map(|row| points.row(row)[dim].to_f64()).collect();
    sample.sort_by(f64::total_cmp);
    sample
}

impl<T: Scalar> Executor<T> for Slabs<'_, T> {
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
        Ok(self.each(&mut |join, _| join.count())?)
    }

    fn degrees(&self, degrees: &[AtomicU64]) -> crate::error::Result<Work> {
        Ok(self.each(&mut |join, numbers| {
            let mut local = zeros(numbers.len())?;
            let work = join.degrees(as_atomic(&mut local))?;
            for (&number, degree) in numbers.iter().zip(local) {
                degrees[number as usize].store(degree, Relaxed);
            }
            Ok(work)
        })?)
    }

    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> crate::error::Result<Work> {
        let stopped = AtomicBool::new(false);
        Ok(self.each(&mut |join, numbers| {
            if stopped.load(Relaxed) {
                return Ok(Work::default());
            }
            join.rows(request, &|block: &Rows<'_, T>| {
                let flow = block.under(numbers, emit);
                stopped.fetch_or(flow.is_break(), Relaxed);
                flow
            })
        })?)
    }

    fn rows_at(&self, positions: Run) -> crate::error::Result<Vec<u32>> {
        // There is no order of all points: positions are numbers.
        let row_of = |number: u32| self.part.as_ref().map_or(number, |rows| rows[number as usize]);
        Ok(positions.map(row_of).collect())
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

    fn makes_blocks(&self) -> bool {
        true
    }

    fn gpu_stats(&self) -> Option<GpuStats> {
        let stats = self.session.take_stats();
        self.session.record(|stats| stats.partitions = 0);
        Some(stats)
    }
}

impl<T: Scalar> OnDevice<T> for Slabs<'_, T> {
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
        // A plan shares only what the device can hold at once.
        let reason = "it has no lanes for points that it cannot hold at once".into();
        Err(Error::Device { device: "gpu", reason })
    }

    fn meeting(&self) -> crate::error::Result<Meeting> {
        // The queries of every slab are a part.
        Ok(Meeting::SmallerRow)
    }
}
