//! A GPU that joins by itself, and the CPU that finishes what it leaves.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Instant;

use super::delivered::{Delivered, Notes};
use super::is_loss;
use super::log::{Clock, Log, ended};
use super::relay::relay;
use super::reserve::Reserve;
use crate::error::Result;
use crate::exec::flat::Flat;
use crate::exec::place::Place;
use crate::exec::pool::Pool;
use crate::exec::{
    Emit, Executor, LaidOut, Meeting, OnDevice, Part, Request, Rows, Unfinished, Work, part,
};
use crate::index::Run;
use crate::memory::copied;
use crate::options::Device;
use crate::points::Points;
use crate::scalar::Scalar;
use crate::stats::{GpuStats, HybridStats, WorkerStats};

/// A join on a device, with the CPU in reserve.
pub(crate) struct Lead<'g, 'a, T> {
    /// None where it was lost before it had an index.
    gpu: Option<Box<dyn OnDevice<T> + 'g>>,
    /// All left points.
    left: Points<'a, T>,
    /// The rows of the queries, where not all points ask.
    part: Option<Vec<u32>>,
    pool: &'a Pool,
    common: Arc<Common<'a, T>>,
}

/// What the whole and its parts have in common.
struct Common<'a, T> {
    reserve: Reserve<'a, T>,
    log: Log,
}

/// What is left of a request.
struct Rest<'a> {
    queries: Vec<u32>,
    delivered: Notes<'a>,
    meeting: Meeting,
}

impl<'g, 'a, T: Scalar> Lead<'g, 'a, T> {
    /// `gpu` is the join on the device, unless that was lost while it was indexed.
    ///
    /// # Errors
    /// If it is not there for any other reason.
    pub(crate) fn new(
        gpu: Result<Box<dyn OnDevice<T> + 'g>>,
        reserve: Reserve<'a, T>,
        left: Points<'a, T>,
        pool: &'a Pool,
    ) -> Result<Self> {
        let log = Log::new(HybridStats::default());
        let mut lead =
            Lead { gpu: None, left, part: None, pool, common: Arc::new(Common { reserve, log }) };
        match gpu {
            Ok(gpu) => lead.gpu = Some(gpu),
            Err(error) if is_loss(&error) => lead.common.log.lose(error, left.len()),
            Err(error) => return Err(error),
        }
        Ok(lead)
    }

    /// The device, as long as it is there.
    fn gpu(&self) -> Option<&(dyn OnDevice<T> + 'g)> {
        self.gpu.as_deref().filter(|_| !self.common.log.is_lost())
    }

    fn row_of(&self, number: u32) -> u32 {
        self.part.as_ref().map_or(number, |rows| rows[number as usize])
    }

    /// Asks the device for the whole of something, and the CPU where it is lost.
    fn ask(
        &self,
        on_gpu: impl FnOnce(&dyn OnDevice<T>) -> Result<Work>,
        on_cpu: impl FnOnce(&dyn Executor<T>) -> Result<Work>,
    ) -> Result<Work> {
        if let Some(gpu) = self.gpu() {
            let answer = self.common.log.timed(Device::Gpu, self.len(), || on_gpu(gpu));
            match answer {
                Err(error) if is_loss(&error) => self.common.log.lose(error, self.len()),
                answer => return answer,
            }
        }
        self.on_cpu(None, on_cpu)
    }

    /// Lets the CPU answer some queries, or all of them. Its queries are numbered by their places.
    fn on_cpu(
        &self,
        queries: Option<&[u32]>,
        work: impl FnOnce(&dyn Executor<T>) -> Result<Work>,
    ) -> Result<Work> {
        let join = self.common.reserve.join()?;
        let asked = queries.map_or(self.len(), <[u32]>::len);
        let rows = match (queries, &self.part) {
            (None, None) => return self.common.log.timed(Device::Cpu, asked, || work(join)),
            (None, Some(rows)) => copied(rows)?,
            (Some(queries), _) => queries.iter().map(|&query| self.row_of(query)).collect(),
        };
        self.common.log.timed(Device::Cpu, asked, || {
            let points = self.pool.install(|| self.left.gather(&rows))?;
            work(&*join.part(Part::Rows { rows: &rows, points: points.as_points() })?)
        })
    }

    /// Hands out the rows of what is left, or of all queries.
    fn rest(&self, rest: Option<Rest<'_>>, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        let in_blocks = request.in_blocks;
        let request = Request { in_blocks: false, ..request };
        let queries = rest.as_ref().map(|rest| &rest.queries[..]);
        self.on_cpu(queries, |join| {
            let work = |emit: &Emit<'_, T>| match &rest {
                None => join.rows(request, emit),
                Some(rest) => self.sift(join, rest, request, emit),
            };
            if in_blocks { relay(emit, work) } else { work(emit) }
        })
    }

    /// The rows of what is left. Of pairs that are wanted once, those that have not come yet.
    fn sift(
        &self,
        join: &dyn Executor<T>,
        rest: &Rest<'_>,
        request: Request,
        emit: &Emit<'_, T>,
    ) -> Result<Work> {
        let named = |rows: &Rows<'_, T>| rows.under(&rest.queries, emit);
        let Meeting::SmallerRank(ranks) = &rest.meeting else {
            // Of pairs that are wanted once, by the smaller row, as parts do it.
            return join.rows(request, &named);
        };
        // A pair with a row that has come was with it if that has the smaller rank. Of pairs of two
        // rows that have not, the smaller row has it.
        let pairs = AtomicU64::new(0);
        let work = join.rows(Request { once: false, ..request }, &|rows: &Rows<'_, T>| {
            let kept = Flat::sifted(rows, |place, other| {
                let row = rest.queries[place as usize];
                let rank = |row: u32| ranks[row as usize];
                if rest.delivered.has(other) { rank(row) < rank(other) } else { row < other }
            });
            pairs.fetch_add(kept.pairs() as u64, Relaxed);
            named(&kept.rows(rows.worker))
        })?;
        Ok(Work { pairs: pairs.into_inner(), ..work })
    }
}

impl<T: Scalar> Executor<T> for Lead<'_, '_, T> {
    fn len(&self) -> usize {
        self.part.as_ref().map_or(self.left.len(), Vec::len)
    }

    fn index_bytes(&self) -> u64 {
        self.gpu().map_or_else(|| self.host_bytes(), |gpu| gpu.index_bytes())
    }

    fn host_bytes(&self) -> u64 {
        if self.part.is_some() || !self.common.reserve.is_made() {
            return 0;
        }
        self.common.reserve.join().map_or(0, |join| join.index_bytes())
    }

    fn count(&self) -> Result<Work> {
        self.ask(|gpu| gpu.count(), |cpu| cpu.count())
    }

    fn degrees(&self, degrees: &[AtomicU64]) -> Result<Work> {
        self.ask(|gpu| gpu.degrees(degrees), |cpu| cpu.degrees(degrees))
    }

    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        let Some(gpu) = self.gpu() else { return self.rest(None, request, emit) };
        let meeting = match request.once {
            true => gpu.meeting(),
            false => Ok(Meeting::SmallerRow),
        };
        let mut meeting = match meeting {
            Err(error) if is_loss(&error) => {
                self.common.log.lose(error, self.len());
                return self.rest(None, request, emit);
            }
            meeting => meeting?,
        };
        let mut delivered = Delivered::new(self.len())?;
        let delivered = delivered.notes();
        let (pairs, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
        let note = |rows: &Rows<'_, T>| {
            let flow = emit(rows);
            delivered.add(rows);
            pairs.fetch_add(rows.neighbors.total(), Relaxed);
            stopped.fetch_or(flow.is_break(), Relaxed);
            flow
        };
        let done = self.common.log.timed(Device::Gpu, self.len(), || {
            if meeting != Meeting::Unknown {
                return gpu.rows(request, &note);
            }
            // An order that would be lost with the device: both directions, and one is dropped here.
            let work = gpu.rows(Request { once: false, ..request }, &|rows: &Rows<'_, T>| {
                let halved = Flat::sifted(rows, |query, other| other > self.row_of(query));
                note(&halved.rows(rows.worker))
            })?;
            Ok(Work { pairs: pairs.load(Relaxed), ..work })
        });
        if meeting == Meeting::Unknown {
            meeting = Meeting::SmallerRow;
        }
        match done {
            // The sink has had enough, and knows why.
            Err(error) if is_loss(&error) && stopped.load(Relaxed) => {
                self.common.log.lose(error, 0);
                Ok(Work { pairs: pairs.into_inner(), ..Work::default() })
            }
            Err(error) if is_loss(&error) => {
                delivered.settle();
                let queries: Vec<u32> = delivered.rest(self.len()).collect();
                self.common.log.lose(error, queries.len());
                self.common.log.add(&delivered_by_gpu(self.len() - queries.len(), &pairs));
                let mut total = Work { pairs: pairs.into_inner(), ..Work::default() };
                if queries.is_empty() {
                    return Ok(total);
                }
                total += self.rest(Some(Rest { queries, delivered, meeting }), request, emit)?;
                Ok(total)
            }
            done => done,
        }
    }

    fn rows_at(&self, positions: Run) -> Result<Vec<u32>> {
        // The order of the device may be lost with it: positions are numbers.
        Ok(positions.map(|position| self.row_of(position)).collect())
    }

    fn part<'b>(&'b self, part: Part<'b, T>) -> Result<Box<dyn Executor<T> + 'b>> {
        let (rows, gathered) = match part {
            Part::Rows { rows, .. } => (copied(rows)?, None),
            Part::Positions { start, end } => {
                let rows = self.rows_at(part::check_positions(start, end, self.len()))?;
                let gathered = self.left.gather(&rows)?;
                (rows, Some(gathered))
            }
        };
        let points = match (&part, &gathered) {
            (Part::Rows { points, .. }, _) => *points,
            (_, Some(points)) => points.as_points(),
            _ => self.left,
        };
        let mut join = Lead {
            gpu: None,
            left: self.left,
            part: Some(rows),
            pool: self.pool,
            common: self.common.clone(),
        };
        if let Some(gpu) = self.gpu() {
            match gpu.for_rows(copied(join.part.as_deref().unwrap_or_default())?, points) {
                Ok(gpu) => join.gpu = Some(gpu),
                Err(error) if is_loss(&error) => join.common.log.lose(error, join.len()),
                Err(error) => return Err(error),
            }
        }
        Ok(Box::new(join))
    }

    fn workers(&self) -> usize {
        let on_gpu = self.gpu().map_or(0, |gpu| gpu.workers());
        self.pool.threads().max(on_gpu)
    }

    fn makes_blocks(&self) -> bool {
        self.gpu().is_some_and(|gpu| gpu.makes_blocks())
    }

    fn lay_out(
        &self,
        request: Request,
        offsets: &mut [u64],
    ) -> Option<Result<Box<dyn LaidOut<T> + '_>>> {
        let gpu = self.gpu()?;
        let began = Instant::now();
        match gpu.lay_out(request, offsets)? {
            Ok(rows) => Some(Ok(Box::new(Watched { lead: self, rows, request, began }))),
            // The sink counts rows, or keeps them, as it does without a device.
            Err(error) if is_loss(&error) => {
                self.common.log.lose(error, self.len());
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    fn gpu_stats(&self) -> Option<GpuStats> {
        self.gpu.as_ref().and_then(|gpu| gpu.gpu_stats())
    }

    fn hybrid_stats(&self) -> Option<HybridStats> {
        Some(self.common.log.take())
    }
}

/// Rows that a device delivered before it was lost.
fn delivered_by_gpu(queries: usize, pairs: &AtomicU64) -> HybridStats {
    let (queries, pairs) = (queries as u64, pairs.load(Relaxed));
    let gpu = WorkerStats { device: Device::Gpu, queries, pairs, ..WorkerStats::default() };
    HybridStats { workers: vec![gpu], ..HybridStats::default() }
}

/// Rows that a device is about to write.
struct Watched<'b, 'g, 'a, T> {
    lead: &'b Lead<'g, 'a, T>,
    rows: Box<dyn LaidOut<T> + 'b>,
    request: Request,
    /// When they began to be found.
    began: Instant,
}

impl<T: Scalar> LaidOut<T> for Watched<'_, '_, '_, T> {
    fn write(
        self: Box<Self>,
        offsets: &[u64],
        ids: &mut [u32],
        mut distances: Option<&mut [T]>,
        fresh: bool,
    ) -> Result<Work, Unfinished> {
        let Watched { lead, rows, request, began } = *self;
        let mut clock = Clock::new(Device::Gpu, 0, began);
        clock.start_with_pass(1, lead.len());
        let done = rows.write(offsets, ids, distances.as_deref_mut(), fresh);
        let (unfinished, written) = match done {
            Err(unfinished) if is_loss(&unfinished.error) => {
                let written = unfinished.work;
                clock.found(written);
                clock.fail(0, lead.len() - unfinished.from);
                (Some(unfinished), written)
            }
            done => {
                let work = done?;
                clock.found(work);
                (None, work)
            }
        };
        lead.common.log.add(&ended(core::iter::once(clock), began));
        let Some(Unfinished { error, from, .. }) = unfinished else { return Ok(written) };
        let queries: Vec<u32> = (from as u32..lead.len() as u32).collect();
        lead.common.log.lose(error, queries.len());
        if queries.is_empty() {
            return Ok(written);
        }
        let place = Place::new(offsets, ids, distances);
        let mut total = written;
        total += lead.on_cpu(Some(&queries), |join| {
            join.rows(request, &|rows: &Rows<'_, T>| {
                for (at, &place_of) in rows.queries.iter().enumerate() {
                    let range = place.range(queries[place_of as usize]);
                    place.row(range, rows.neighbors.row(at), rows.distances(at));
                }
                place.finish();
                ControlFlow::Continue(())
            })
        })?;
        Ok(total)
    }
}
