//! The KNN-join on a device: its index, its batches, and the border to the sinks.
//!
//! ```text
//! for each batch of queries, in the order of the index, on the next of three streams:
//!     find the nearest of each: rows of k, in pieces
//!     send the pieces off
//! each of some threads, until all have landed:
//!     wait for a piece, and hand its rows to the sink
//! ```
//!
//! Rows of a batch belong to all places of the answer. Where they are whole lines of the cache, or the
//! search takes long anyway, that costs nothing: the host writes them while the device finds others.
//! Short rows that are found quickly are put in the order of the input on the device, all of them
//! before the first is sent: a host would take longer to write them to their places, half a line each,
//! than the bus takes to bring them. (To send some of the input's rows while others are found would need
//! queries by row, and those that are neighbours in space would no longer share a search: tried, and
//! three times as slow.)

use core::ops::{ControlFlow, Range};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Instant;

use super::device::{Array, Device, Stage};
use super::driver::{self, Fault, Transfer};
use super::job::norm;
use super::partial::Partial;
use super::pieces::Delivery;
use super::ring::with_landers;
use super::scores::{Scores, Shortlists};
use super::search::{Layout, Room, Search, Side, Wants};
use super::session::{Result, Session, Stop};
use super::tree::{Growing, Role};
use super::upload::{self, Hands};
use crate::exec::part::check_positions;
use crate::exec::pool::Pool;
use crate::exec::{Emit, Executor, Lists, Meeting, OnDevice, Part, Request, Rows, Work};
use crate::index::Run;
use crate::memory::copied;
use crate::metric::Threshold;
use crate::monitor::{Monitor, Phase};
use crate::options::Strategy;
use crate::plan::{OnGpu, Shortlisting};
use crate::points::Points;
use crate::scalar::Scalar;
use crate::stats::GpuStats;

/// Streams that batches go through in turn, each with memory of its own.
const STREAMS: usize = 3;
/// Threads that hand rows to a sink, at the most: that write rows here and there, or many that follow
/// each other; and beside others that work.
const LANDING: usize = 12;
const LANDING_IN_ORDER: usize = 8;
const LANDING_IN_LANE: usize = 2;

/// What a KNN-join on a device needs to know.
#[derive(Clone)]
pub(crate) struct KnnSetup<'a, T> {
    pub(crate) pool: &'a Pool,
    pub(crate) device: Device,
    /// How distances are computed; nothing beyond its bound is a neighbour.
    pub(crate) arithmetic: Threshold<T>,
    pub(crate) left: Points<'a, T>,
    /// None where the left points are joined with themselves.
    pub(crate) right: Option<Points<'a, T>>,
    pub(crate) include_self: bool,
    pub(crate) k: usize,
    pub(crate) strategy: Strategy,
    pub(crate) how: &'a OnGpu,
    /// Those of all points of both sides.
    pub(crate) extents: &'a [(f64, f64)],
    pub(crate) monitor: Option<&'a Monitor>,
}

/// Copies the points to the device and indexes them there, or some of the candidates after the others
/// where it cannot hold them at once.
pub(crate) fn index<'a, T: Scalar>(
    setup: KnnSetup<'a, T>,
) -> crate::error::Result<Box<dyn OnDevice<T> + 'a>> {
    let mut parts = setup.how.slabs;
    if parts == 1 {
        match GpuKnn::new(&setup) {
            Ok(join) => return Ok(Box::new(join)),
            // Somebody else took what was free when the join was planned.
            Err(Fault::Memory { .. }) => parts = 2,
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(Box::new(Partial::new(setup, parts)))
}

/// Queries on the device, and an index of the points that may be their neighbours.
pub(crate) struct GpuKnn<'a, T> {
    pub(super) session: Session<'a>,
    arithmetic: Threshold<T>,
    extents: &'a [(f64, f64)],
    strategy: Strategy,
    /// All points that may ask, as the host has them.
    asking: Points<'a, T>,
    /// Which of them do, where it is a part.
    part: Option<Vec<u32>>,
    /// None where the queries are the right points, in their order.
    left: Option<Side<T>>,
    /// What the queries are called on the right, where it is a part of one set.
    names: Option<Array<u32>>,
    right: Arc<Side<T>>,
    candidates: usize,
    /// How products score candidates, where they do.
    scores: Option<Arc<Scores>>,
    /// Whether points find themselves and should not.
    excludes_self: bool,
    k: usize,
}

/// Streams with memory for batches of so many queries at the most, or of a unit.
struct Rooms<T> {
    of_stages: Vec<(Stage, Room<T>)>,
    rows: usize,
}

impl<'a, T: Scalar> GpuKnn<'a, T> {
    /// Copies the points of both sides to the device and indexes them there.
    fn new(setup: &KnnSetup<'a, T>) -> driver::Result<Self> {
        let session =
            Session::new(setup.device.clone(), setup.pool, setup.how.clone(), setup.monitor);
        let right = setup.right.unwrap_or(setup.left);
        let role = if setup.right.is_none() { Role::Both } else { Role::Candidates };
        let mut join = Self::over(session, setup, right, None, role)?;
        if setup.right.is_some() {
            join.left = Some(join.side(setup.left, None, Role::Queries)?);
        }
        Ok(join)
    }

    /// Indexes candidates, which are all of the right points or those in these rows.
    pub(super) fn over(
        session: Session<'a>,
        setup: &KnnSetup<'a, T>,
        candidates: Points<'_, T>,
        rows: Option<&[u32]>,
        role: Role,
    ) -> driver::Result<Self> {
        let stage = session.stage(0);
        let none = Side::Rows { points: stage.array(0)?, ids: None, len: 0, halved: None };
        let scores = match setup.strategy == Strategy::Product {
            true => Scores::of(&setup.device, &stage, setup.left, setup.right)?.map(Arc::new),
            false => None,
        };
        stage.finish()?;
        let brute_force = scores.is_none() && setup.strategy == Strategy::Product;
        session.record(|stats| (stats.partitions, stats.brute_force) = (1, brute_force));
        let mut join = GpuKnn {
            session,
            arithmetic: setup.arithmetic,
            extents: setup.extents,
            strategy: setup.strategy,
            asking: setup.left,
            part: None,
            left: None,
            names: None,
            right: Arc::new(none),
            candidates: candidates.len(),
            scores,
            excludes_self: setup.right.is_none() && !setup.include_self,
            k: setup.k.min(candidates.len()),
        };
        join.right = Arc::new(join.side(candidates, rows, role)?);
        Ok(join)
    }

    /// Copies points to the device, and puts them in order.
    fn side(
        &self,
        points: Points<'_, T>,
        names: Option<&[u32]>,
        role: Role,
    ) -> driver::Result<Side<T>> {
        let (stage, hands) = (self.session.stage(0), Hands::of(self.session.is_lane()));
        let sent = size_of_val(points.as_slice()) as u64;
        self.session.record(|stats| stats.bytes_in += sent);
        let side = match self.strategy {
            Strategy::Brute | Strategy::Product => {
                let ids = match names {
                    Some(names) => Some(upload::words(&stage, names, hands)?),
                    None => None,
                };
                let len = points.len();
                let points = upload::points(&stage, points, hands)?;
                let halved = match &self.scores {
                    Some(scores) => Some(scores.halve(&stage, &points, len)?),
                    None => None,
                };
                Side::Rows { points, ids, len, halved }
            }
            _ => {
                let (norm, extents) = (norm(self.arithmetic.metric), self.extents);
                Side::Tree(
                    Growing { stage: &stage, points, norm, extents, names, role, hands }.grow()?,
                )
            }
        };
        stage.finish()?;
        Ok(side)
    }

    /// The same join for some rows of the points that ask.
    pub(super) fn of_rows<'b>(
        &'b self,
        rows: Vec<u32>,
        points: Points<'_, T>,
    ) -> driver::Result<GpuKnn<'b, T>> {
        self.in_session(self.session.for_share(self.share(&rows)), rows, points, self.strategy)
    }

    /// The share of some rows in all that ask.
    fn share(&self, rows: &[u32]) -> f64 {
        rows.len() as f64 / self.asking.len().max(1) as f64
    }

    fn in_session<'b>(
        &'b self,
        session: Session<'b>,
        rows: Vec<u32>,
        points: Points<'_, T>,
        strategy: Strategy,
    ) -> driver::Result<GpuKnn<'b, T>> {
        let mut join = GpuKnn {
            session,
            arithmetic: self.arithmetic,
            extents: self.extents,
            strategy,
            asking: self.asking,
            part: None,
            left: None,
            names: None,
            right: self.right.clone(),
            candidates: self.candidates,
            scores: self.scores.clone().filter(|_| strategy == Strategy::Product),
            excludes_self: self.excludes_self,
            k: self.k,
        };
        join.session.record(|stats| stats.partitions = 1);
        let (left, names) = self.session.pool.install(|| {
            let left = join.side(points, None, Role::Queries)?;
            let stage = join.session.stage(0);
            let names = match join.excludes_self {
                true => Some(upload::words(&stage, &rows, Hands::of(join.session.is_lane()))?),
                false => None,
            };
            stage.finish()?;
            Ok::<_, Fault>((left, names))
        })?;
        (join.left, join.names, join.part) = (Some(left), names, Some(rows));
        Ok(join)
    }

    fn queries(&self) -> &Side<T> {
        self.left.as_ref().unwrap_or(&self.right)
    }

    fn query_count(&self) -> usize {
        self.queries().places().all()
    }

    /// Hands out all rows; where `raw`, with what was added up in place of distances.
    pub(super) fn hand_out(&self, request: Request, raw: bool, emit: &Emit<'_, T>) -> Result<Work> {
        let began = Instant::now();
        self.session.enter(Phase::Joining);
        self.session.check_cancelled()?;
        if self.candidates == 0 || self.query_count() == 0 {
            return self.hand_out_nothing(request, emit);
        }
        let work = self.find_all(request, raw, emit)?;
        self.session.record(|stats| stats.delivery_seconds += began.elapsed().as_secs_f64());
        self.session.hold(began, work)?;
        Ok(self.session.told(work))
    }

    /// Finds the nearest of all queries, and hands them out.
    fn find_all(&self, request: Request, raw: bool, emit: &Emit<'_, T>) -> Result<Work> {
        let all = self.arithmetic.bound == T::INFINITY;
        let enough = self.candidates - usize::from(self.excludes_self) >= self.k;
        let short = !(all && enough);
        let queries = self.query_count();
        let row = 4 + self.k * (4 + if request.distances { size_of::<T>() } else { 0 });
        let bytes = (queries * row) as u64;
        let chunk = self.session.chunk(bytes);
        let layout = |numbers| {
            let wants = Wants { numbers, distances: request.distances, raw };
            Layout::new::<T>(self.k, wants, chunk)
        };
        let dim = self.asking.dimension();
        let shortlisting = match self.scores.is_some() {
            true => self.session.how.shortlisting(self.k, self.candidates, dim),
            false => None,
        };
        let mut search = Search {
            left: self.queries(),
            names: self.names.as_ref(),
            right: &self.right,
            dim,
            arithmetic: self.arithmetic,
            exclude_self: self.excludes_self,
            layout: layout(true),
            multiprocessors: self.session.how.device.multiprocessors,
            shortlisting,
        };
        let in_order = self.session.how.in_order(bytes) && !self.session.is_lane();
        if in_order && search.in_registers() {
            search.layout = layout(false);
        }
        let mut delivery = Delivery { request, layout: search.layout, short, gaps: false, emit };
        if let (Some(scores), Some(plan)) = (&self.scores, shortlisting) {
            let (mut work, rest) = self.by_scores(scores, plan, &search, &mut delivery)?;
            work += self.by_brute_force(rest, request, raw, emit)?;
            return Ok(work);
        }
        let rooms = match self.rooms(&search) {
            // Not for all rows at once.
            Err(Fault::Memory { .. }) if search.in_order() => {
                self.session.record(|stats| stats.splits += 1);
                search.layout = layout(true);
                delivery.layout = search.layout;
                self.rooms(&search)?
            }
            rooms => rooms?,
        };
        let units = 0..search.left.places().units();
        Ok(self.batches(&search, &rooms, &delivery, units, None)?.0)
    }

    /// Finds the nearest by shortlists, of as many queries at a time as there is room for. Gives those
    /// whose lists never had room for all, and that are still to be found; none where the sink has had
    /// enough.
    fn by_scores(
        &self,
        scores: &Scores,
        plan: Shortlisting,
        search: &Search<'_, T>,
        delivery: &mut Delivery<'_, T>,
    ) -> Result<(Work, Vec<u32>)> {
        let queries = self.query_count();
        let fit = self.session.how.list_bytes as usize / 2 / plan.bytes();
        let (mut at_once, mut first) = (fit.clamp(1, queries), 0);
        let (mut total, mut rest) = (Work::default(), Vec::new());
        // Beside the first lists: those that follow take no more.
        let mut rooms = None;
        while first < queries {
            let some = first..queries.min(first + at_once);
            let stage = self.session.stage(0);
            let lists = scores.shortlists(&self.session, &stage, search, plan, some.clone());
            let lists = match lists {
                Err(stop) if stop.is_memory() && some.len() > 1 => {
                    at_once = some.len() / 2;
                    self.session.record(|stats| stats.splits += 1);
                    continue;
                }
                lists => lists?,
            };
            total.tests += lists.tests(&stage)?;
            delivery.gaps = !lists.rest.is_empty();
            let rooms = match &mut rooms {
                Some(rooms) => rooms,
                none => none.insert(self.rooms(search)?),
            };
            let (work, stopped) =
                self.batches(search, rooms, delivery, some.clone(), Some(&lists))?;
            total += work;
            if stopped {
                return Ok((total, Vec::new()));
            }
            rest.extend(lists.rest);
            first = some.end;
        }
        Ok((total, rest))
    }

    /// Finds the nearest of some queries, by their positions, among all.
    fn by_brute_force(
        &self,
        queries: Vec<u32>,
        request: Request,
        raw: bool,
        emit: &Emit<'_, T>,
    ) -> Result<Work> {
        if queries.is_empty() {
            return Ok(Work::default());
        }
        let row_of = |&at: &u32| self.part.as_ref().map_or(at, |rows| rows[at as usize]);
        let rows: Vec<u32> = queries.iter().map(row_of).collect();
        let points = match self.session.is_lane() {
            true => self.asking.gather(&rows)?,
            false => self.session.pool.install(|| self.asking.gather(&rows))?,
        };
        let session = self.session.for_share(self.share(&rows));
        let join = self.in_session(session, rows, points.as_points(), Strategy::Brute)?;
        let work = join.find_all(request, raw, &|rows: &Rows<'_, T>| {
            let numbers: Vec<u32> = rows.queries.iter().map(|&at| queries[at as usize]).collect();
            emit(&Rows { queries: &numbers, consecutive: false, ..*rows })
        })?;
        let done = join.session.take_stats();
        self.session.record(|stats| stats.add(&done));
        Ok(work)
    }

    /// Every row is empty.
    fn hand_out_nothing(&self, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        let queries: Vec<u32> = (0..self.query_count() as u32).collect();
        let (stride, lens) = (0, Some(&vec![0; queries.len()][..]));
        // Whoever has had enough has had all.
        let _ = emit(&Rows {
            worker: 0,
            queries: &queries,
            neighbors: Lists::Strided { stride, lens, values: &[] },
            distances: request.distances.then_some(Lists::Strided { stride, lens, values: &[] }),
            ahead: &[],
            consecutive: true,
        });
        Ok(Work::default())
    }

    /// Makes rows of some units batch by batch, and delivers them. Says too whether the sink has had enough.
    fn batches(
        &self,
        search: &Search<'_, T>,
        rooms: &Rooms<T>,
        delivery: &Delivery<'_, T>,
        units: Range<usize>,
        lists: Option<&Shortlists>,
    ) -> Result<(Work, bool)> {
        let (session, places) = (&self.session, search.left.places());
        let rooms_of = &rooms.of_stages;
        let (pairs, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
        // Lists are gone before the rooms are, whatever happens meanwhile.
        let marks: Vec<usize> = rooms_of.iter().map(|(stage, _)| stage.mark()).collect();
        for (stage, _) in rooms_of {
            lists.iter().for_each(|lists| lists.held_by(stage));
        }
        let layout = &search.layout;
        let landers = session.pool.threads().min(match (session.is_lane(), search.in_order()) {
            (true, _) => LANDING_IN_LANE,
            (_, true) => LANDING_IN_ORDER,
            _ => LANDING,
        });
        let land = |worker: usize, (transfer, rows): (Box<dyn Transfer>, (usize, usize))| {
            let host = transfer.wait()?;
            if !stopped.load(Relaxed) {
                let (found, flow) = delivery.piece(worker, host, rows, &self.arithmetic);
                pairs.fetch_add(found, Relaxed);
                stopped.fetch_or(flow.is_break(), Relaxed);
            }
            Ok(())
        };
        let batch = |number: usize, unit: usize| {
            let (stage, room) = &rooms_of[number % rooms_of.len()];
            let end = places.batch(unit, rooms.rows).min(units.end);
            search.run(stage, room, unit..end, lists)?;
            Ok::<_, Stop>((stage, room, end))
        };
        // The first is under way while threads start.
        let mut first = Some(batch(0, units.start)?);
        with_landers(landers, land, |send| {
            let (mut unit, mut number) = (units.start, 0);
            while unit < units.end && !stopped.load(Relaxed) {
                let (stage, room, end) = match first.take() {
                    Some(first) => first,
                    None => batch(number, unit)?,
                };
                let count = places.before(end) - places.before(unit);
                for first in (0..count).step_by(layout.rows_per_piece) {
                    let here = layout.rows_per_piece.min(count - first);
                    let start = first / layout.rows_per_piece * layout.piece_bytes;
                    let piece = room.pieces.piece(start..start + layout.piece_bytes);
                    send((stage.copy_out(piece)?, (places.before(unit) + first, here)))?;
                    session.check_cancelled()?;
                    if stopped.load(Relaxed) {
                        break;
                    }
                }
                (unit, number) = (end, number + 1);
                let share = count as f64 / self.query_count().max(1) as f64;
                // Whoever shares a join tells of the tests that were made; whoever made lists has told.
                let told = session.is_lane() || lists.is_some();
                session.add(if told { 0.0 } else { session.how.expected_tests * share }, 0);
            }
            let rows = places.before(units.end) - places.before(units.start);
            let bytes = (rows * layout.piece_bytes / layout.rows_per_piece) as u64;
            session.record(|stats| {
                stats.batches += number;
                stats.bytes_out += bytes;
            });
            Ok(())
        })?;
        let mut work = Work { pairs: pairs.into_inner(), ..Work::default() };
        for ((stage, room), mark) in rooms_of.iter().zip(marks) {
            work.tests += search.take_tests(stage, room)?;
            stage.finish_since(mark)?;
        }
        Ok((work, stopped.into_inner()))
    }

    /// Streams with memory for their batches: for smaller ones where memory is refused.
    fn rooms(&self, search: &Search<'_, T>) -> driver::Result<Rooms<T>> {
        let (how, places, queries) = (&self.session.how, search.left.places(), self.query_count());
        let streams = if self.session.is_lane() || search.in_order() { 1 } else { STREAMS };
        let total = (queries * search.row_bytes()) as u64;
        // Few warps with a query each would be idle while the last of a batch is found.
        let fit = match search.in_registers() {
            true => how.nearest_batch_bytes(total),
            false => how.batch_bytes(total, true),
        } as usize
            / search.row_bytes();
        let mut rows = match search.in_order() {
            true => queries,
            false => fit.min(queries.div_ceil(how.launches(1.0) as usize)).max(1),
        };
        loop {
            // A batch ends with a unit, and has at least one.
            let most = rows.max(places.largest()).min(queries);
            let room = |stream| {
                let stage = self.session.stage(stream);
                let room = search.room(&stage, most)?;
                Ok((stage, room))
            };
            match (0..streams).map(room).collect() {
                Ok(of_stages) => return Ok(Rooms { of_stages, rows }),
                Err(Fault::Memory { .. }) if rows > places.largest() && !search.in_order() => {
                    rows = (rows / 2).max(places.largest());
                    self.session.record(|stats| stats.splits += 1);
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Counts the neighbours of every query, and tells of each.
    fn count_rows(&self, told: impl Fn(u32, usize) + Sync) -> Result<Work> {
        self.hand_out(Request::default(), false, &|rows: &Rows<'_, T>| {
            for (at, &query) in rows.queries.iter().enumerate() {
                told(query, rows.neighbors.row(at).len());
            }
            ControlFlow::Continue(())
        })
    }
}

impl<T: Scalar> Executor<T> for GpuKnn<'_, T> {
    fn len(&self) -> usize {
        self.query_count()
    }

    fn index_bytes(&self) -> u64 {
        let left = self.left.as_ref().map_or(0, Side::bytes);
        (match self.part {
            None => self.right.bytes() + left,
            Some(_) => left,
        }) as u64
    }

    fn host_bytes(&self) -> u64 {
        0
    }

    fn count(&self) -> crate::error::Result<Work> {
        Ok(self.count_rows(|_, _| ())?)
    }

    fn degrees(&self, degrees: &[AtomicU64]) -> crate::error::Result<Work> {
        Ok(self.count_rows(|query, len| degrees[query as usize].store(len as u64, Relaxed))?)
    }

    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> crate::error::Result<Work> {
        Ok(self.hand_out(request, false, emit)?)
    }

    fn rows_at(&self, positions: Run) -> crate::error::Result<Vec<u32>> {
        let row_of = |number: u32| self.part.as_ref().map_or(number, |rows| rows[number as usize]);
        let numbers: Vec<u32> = match self.queries() {
            Side::Rows { .. } => positions.collect(),
            Side::Tree(tree) => {
                let ordered = tree.ids_in_order(&self.session.stage(0))?;
                ordered[positions.start as usize..positions.end as usize].to_vec()
            }
        };
        Ok(numbers.into_iter().map(row_of).collect())
    }

    fn part<'b>(&'b self, part: Part<'b, T>) -> crate::error::Result<Box<dyn Executor<T> + 'b>> {
        match part {
            Part::Rows { rows, points } => Ok(Box::new(self.of_rows(copied(rows)?, points)?)),
            // The device has no use for positions that the host knows: rows do as well.
            Part::Positions { start, end } => {
                let rows = self.rows_at(check_positions(start, end, self.query_count()))?;
                let points = self.session.pool.install(|| self.asking.gather(&rows))?;
                Ok(Box::new(self.of_rows(rows, points.as_points())?))
            }
        }
    }

    fn workers(&self) -> usize {
        self.session.pool.threads().min(LANDING)
    }

    fn gpu_stats(&self) -> Option<GpuStats> {
        Some(self.session.take_stats())
    }
}

impl<T: Scalar> OnDevice<T> for GpuKnn<'_, T> {
    fn for_rows(
        &self,
        rows: Vec<u32>,
        points: Points<'_, T>,
    ) -> crate::error::Result<Box<dyn OnDevice<T> + '_>> {
        Ok(Box::new(self.of_rows(rows, points)?))
    }

    fn in_lane<'b>(
        &'b self,
        (lane, lanes): (usize, usize),
        rows: Vec<u32>,
        coordinates: &[T],
    ) -> crate::error::Result<Box<dyn OnDevice<T> + 'b>> {
        let session = self.session.for_share(self.share(&rows)).in_lane(lane, lanes);
        let points = self.asking.of_these(coordinates);
        Ok(Box::new(self.in_session(session, rows, points, self.strategy)?))
    }

    fn meeting(&self) -> crate::error::Result<Meeting> {
        // Nobody wants pairs of the nearest once.
        Ok(Meeting::SmallerRow)
    }
}
