//! The ε-join on a device: the index, counts, and the border to the sinks.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Instant;

use super::device::{Device, Stage};
use super::driver::{self, Fault};
use super::index::{Builder, Making, Ordered, Sent, Shape, Table};
use super::job::{self, Pattern};
use super::launch::{Counters, GpuJoin, Mode};
use super::product::Products;
use super::session::{self, Session};
use super::slabs::Slabs;
use super::upload::Hands;
use crate::error::Result;
use crate::exec::flat::Flat;
use crate::exec::part::check_positions;
use crate::exec::pool::Pool;
use crate::exec::{Emit, Executor, LaidOut, Meeting, OnDevice, Part, Request, Rows, Work};
use crate::index::Run;
use crate::memory::{as_atomic_u32, copied, with_capacity};
use crate::metric::{Metric, Threshold};
use crate::monitor::{Monitor, Phase};
use crate::options::DuplicateRemoval;
use crate::plan::{Detail, OnGpu};
use crate::points::Points;
use crate::scalar::Scalar;
use crate::stats::GpuStats;

/// What an ε-join on a device needs to know.
pub(crate) struct Setup<'a, T> {
    pub(crate) pool: &'a Pool,
    pub(crate) device: Device,
    pub(crate) threshold: Threshold<T>,
    pub(crate) detail: &'a Detail,
    pub(crate) left: Points<'a, T>,
    /// None where the left points are joined with themselves.
    pub(crate) right: Option<Points<'a, T>>,
    pub(crate) include_self: bool,
    pub(crate) removal: DuplicateRemoval,
    pub(crate) how: &'a OnGpu,
    pub(crate) extents: &'a [(f64, f64)],
    pub(crate) monitor: Option<&'a Monitor>,
}

/// Copies the points to the device and indexes them there, or slab after slab where it cannot hold
/// them at once.
pub(crate) fn index<'a, T: Scalar>(setup: Setup<'a, T>) -> Result<Box<dyn OnDevice<T> + 'a>> {
    let mut slabs = setup.how.slabs;
    if slabs == 1 {
        match GpuJoin::new(&setup) {
            Ok(join) => return Ok(Box::new(join)),
            // Somebody else took what was free when the join was planned.
            Err(Fault::Memory { .. }) => slabs = 2,
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(Box::new(Slabs::new(setup, slabs)))
}

/// The same where the device must hold all points.
pub(crate) fn index_whole<'a, T: Scalar>(setup: Setup<'a, T>) -> Result<Box<dyn OnDevice<T> + 'a>> {
    Ok(Box::new(GpuJoin::new(&setup)?))
}

/// The same in the one lane beside which the CPU works: see [`OnDevice::in_lane`].
pub(crate) fn index_in_lane<'a, T: Scalar>(
    setup: Setup<'a, T>,
) -> Result<Box<dyn OnDevice<T> + 'a>> {
    Ok(Box::new(GpuJoin::in_session_of(setup.session().in_lane(0, 1), &setup)?))
}

impl<'a, T> Setup<'a, T> {
    fn session(&self) -> Session<'a> {
        Session::new(self.device.clone(), self.pool, self.how.clone(), self.monitor)
    }
}

impl<'a, T: Scalar> GpuJoin<'a, T> {
    /// Copies the points of both sides to the device and indexes them there.
    fn new(setup: &Setup<'a, T>) -> driver::Result<Self> {
        Self::in_session_of(setup.session(), setup)
    }

    fn in_session_of(session: Session<'a>, setup: &Setup<'a, T>) -> driver::Result<Self> {
        let right = setup.right.unwrap_or(setup.left);
        let mut join = GpuJoin::over(session, setup, right, None)?;
        if setup.right.is_some() {
            join.left = Some(join.arrange(setup.left, None)?);
        }
        Ok(join)
    }

    /// Indexes candidates, which are all of the right points or those in these rows.
    pub(super) fn over(
        session: Session<'a>,
        setup: &Setup<'a, T>,
        candidates: Points<'_, T>,
        rows: Option<&[u32]>,
    ) -> driver::Result<Self> {
        let stage = session.stage(0);
        let products = Products::of(setup, &stage)?.map(Arc::new);
        let brute_force = products.is_none() && matches!(setup.detail, Detail::Product);
        // Of a set with itself, some are multiplied while others are on the bus.
        let sent = match setup.right.is_none() && rows.is_none() && !session.is_lane() {
            true => Sent::WhenNeeded,
            false => Sent::AtOnce,
        };
        let with = products.as_deref().map(|with| (with, sent));
        let making = making(&session, setup.threshold.metric, setup.left.len(), rows, with);
        let (right, table) = side(&session, &stage, setup.detail, candidates, making)?;
        stage.finish()?;
        session.record(|stats| (stats.partitions, stats.brute_force) = (1, brute_force));
        Ok(GpuJoin {
            session,
            threshold: setup.threshold,
            detail: setup.detail,
            asking: setup.left,
            part: None,
            left: None,
            right: Arc::new(right),
            table: Arc::new(table),
            products,
            same: setup.right.is_none(),
            include_self: setup.include_self,
            removal: setup.removal,
        })
    }

    /// Copies points that ask to the device, in the order of the index; `rows` are theirs in the
    /// whole input, where only some of it is here.
    fn arrange(&self, points: Points<'_, T>, rows: Option<&[u32]>) -> driver::Result<Ordered<T>> {
        let stage = self.session.stage(0);
        let with = self.products.as_deref().map(|with| (with, Sent::AtOnce));
        let making = making(&self.session, self.threshold.metric, points.len(), rows, with);
        let (left, _) = side(&self.session, &stage, self.detail, points, making)?;
        stage.finish()?;
        Ok(left)
    }

    /// The same join for some rows of the points that ask.
    pub(super) fn of_rows<'b>(
        &'b self,
        rows: Vec<u32>,
        points: Points<'_, T>,
    ) -> driver::Result<GpuJoin<'b, T>> {
        self.in_session(self.session_for(&rows), rows, points)
    }

    /// A session of its own for a part.
    fn session_for(&self, rows: &[u32]) -> Session<'a> {
        self.session.for_share(rows.len() as f64 / self.asking.len().max(1) as f64)
    }

    fn in_session<'b>(
        &'b self,
        session: Session<'b>,
        rows: Vec<u32>,
        points: Points<'_, T>,
    ) -> driver::Result<GpuJoin<'b, T>> {
        let mut join = GpuJoin {
            session,
            threshold: self.threshold,
            detail: self.detail,
            asking: self.asking,
            part: None,
            left: None,
            right: self.right.clone(),
            table: self.table.clone(),
            products: self.products.clone(),
            same: self.same,
            include_self: self.include_self,
            removal: self.removal,
        };
        join.session.record(|stats| stats.partitions = 1);
        join.left = Some(self.session.pool.install(|| join.arrange(points, Some(&rows)))?);
        join.part = Some(rows);
        Ok(join)
    }

    /// Does work, and holds it back where the rate of the device is limited.
    fn held_back(&self, work: impl FnOnce() -> session::Result<Work>) -> session::Result<Work> {
        let began = Instant::now();
        let work = work()?;
        self.session.hold(began, work)?;
        Ok(work)
    }

    /// The position of each row in the order of the index.
    fn ranks(&self) -> session::Result<Vec<u32>> {
        let (stage, ids) = (self.session.stage(0), self.queries().ids());
        let mut ranks = with_capacity(ids.len())?;
        ranks.resize(ids.len(), 0);
        let to = as_atomic_u32(&mut ranks);
        self.session.land(&stage, ids, ids.len(), |start, rows: &[u32]| {
            let ranked = rows.iter().zip(start as u32..);
            ranked.for_each(|(&row, rank)| to[row as usize].store(rank, Relaxed));
        })?;
        Ok(ranks)
    }

    /// Begins a pass.
    fn begin(&self) -> session::Result<(Stage, Counters)> {
        self.session.enter(Phase::Counting);
        self.session.check_cancelled()?;
        let stage = self.session.stage(0);
        let counters = Counters::new(&stage)?;
        Ok((stage, counters))
    }

    fn count_pairs(&self) -> session::Result<Work> {
        let (stage, counters) = self.begin()?;
        let mut job = self.job();
        counters.describe(&mut job);
        if self.is_whole_self() {
            job.meet(self.once());
        }
        self.run(&stage, Mode::Count, &job)?;
        let mut work = self.session.told(counters.work(&stage, None)?);
        if job.pattern != Pattern::Each {
            let own = if self.include_self { self.query_count() as u64 } else { 0 };
            work.pairs = 2 * work.pairs + own;
        }
        Ok(work)
    }

    fn count_neighbors(&self, degrees: &[AtomicU64]) -> session::Result<Work> {
        let (stage, counters) = self.begin()?;
        let counted = self.count_rows(&stage, &counters, false)?;
        let pairs = AtomicU64::new(0);
        self.session.land(&stage, &counted, self.query_count(), |start, sizes: &[u32]| {
            let mut sum = 0;
            for (to, &size) in degrees[start..].iter().zip(sizes) {
                to.store(u64::from(size), Relaxed);
                sum += u64::from(size);
            }
            pairs.fetch_add(sum, Relaxed);
        })?;
        Ok(self.session.told(counters.work(&stage, Some(pairs.into_inner()))?))
    }
}

/// How the points of a side are laid out: all of the input, or these rows of it; `queries` is the number of
/// points that ask.
fn making<'a>(
    session: &'a Session<'_>,
    metric: Metric,
    queries: usize,
    rows: Option<&'a [u32]>,
    products: Option<(&'a Products, Sent)>,
) -> Making<'a> {
    Making {
        norm: job::norm(metric),
        origin: session.how.narrow.as_ref().map(|narrow| &narrow.origin[..]),
        ids: rows,
        boxes: session.how.boxes,
        neighbors: session.how.expected_pairs / queries.max(1) as f64,
        hands: Hands::of(session.is_lane()),
        products,
    }
}

/// Copies points to the device, and puts them in the order of the index.
fn side<T: Scalar>(
    session: &Session<'_>,
    stage: &Stage,
    detail: &Detail,
    points: Points<'_, T>,
    making: Making<'_>,
) -> driver::Result<(Ordered<T>, Table<T>)> {
    let sent = size_of_val(points.as_slice()) as u64;
    session.record(|stats| stats.bytes_in += sent);
    Builder { stage, points, making }.build(&Shape::of(detail))
}

impl<T: Scalar> Executor<T> for GpuJoin<'_, T> {
    fn len(&self) -> usize {
        self.query_count()
    }

    fn index_bytes(&self) -> u64 {
        let left = self.left.as_ref().map_or(0, Ordered::bytes);
        (match self.part {
            None => self.right.bytes() + left + self.table.bytes(),
            Some(_) => left,
        }) as u64
    }

    fn host_bytes(&self) -> u64 {
        0
    }

    fn count(&self) -> Result<Work> {
        Ok(self.held_back(|| self.count_pairs())?)
    }

    fn degrees(&self, degrees: &[AtomicU64]) -> Result<Work> {
        Ok(self.held_back(|| self.count_neighbors(degrees))?)
    }

    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        let Some(rows) = self.part.as_ref().filter(|_| request.once) else {
            return Ok(self.held_back(|| self.hand_out(request, emit))?);
        };
        // Both points of a pair are queries, perhaps of different parts.
        let found = AtomicU64::new(0);
        let request = Request { once: false, ..request };
        let halve = |block: &Rows<'_, T>| {
            let halved = Flat::sifted(block, |place, neighbor| neighbor > rows[place as usize]);
            found.fetch_add(halved.pairs() as u64, Relaxed);
            emit(&halved.rows(block.worker))
        };
        let work = self.held_back(|| self.hand_out(request, &halve))?;
        Ok(Work { pairs: found.into_inner(), ..work })
    }

    fn rows_at(&self, positions: Run) -> Result<Vec<u32>> {
        let stage = self.session.stage(0);
        let range = positions.start as usize..positions.end as usize;
        Ok(stage.read(self.queries().ids(), range)?)
    }

    fn part<'b>(&'b self, part: Part<'b, T>) -> Result<Box<dyn Executor<T> + 'b>> {
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
        1
    }

    fn makes_blocks(&self) -> bool {
        true
    }

    fn lay_out(
        &self,
        request: Request,
        offsets: &mut [u64],
    ) -> Option<Result<Box<dyn LaidOut<T> + '_>>> {
        let found = self.find_rows(request).and_then(|found| {
            found.land_offsets(offsets)?;
            Ok(Box::new(found) as Box<dyn LaidOut<T>>)
        });
        Some(found.map_err(Into::into))
    }

    fn gpu_stats(&self) -> Option<GpuStats> {
        Some(self.session.take_stats())
    }
}

impl<T: Scalar> OnDevice<T> for GpuJoin<'_, T> {
    fn for_rows(&self, rows: Vec<u32>, points: Points<'_, T>) -> Result<Box<dyn OnDevice<T> + '_>> {
        Ok(Box::new(self.of_rows(rows, points)?))
    }

    fn in_lane<'b>(
        &'b self,
        (lane, lanes): (usize, usize),
        rows: Vec<u32>,
        coordinates: &[T],
    ) -> Result<Box<dyn OnDevice<T> + 'b>> {
        let session = self.session_for(&rows).in_lane(lane, lanes);
        Ok(Box::new(self.in_session(session, rows, self.asking.of_these(coordinates))?))
    }

    fn meeting(&self) -> Result<Meeting> {
        match self.strictly_once() {
            _ if self.part.is_some() => Ok(Meeting::SmallerRow),
            Pattern::Later => Ok(Meeting::SmallerRank(self.ranks()?)),
            _ => Ok(Meeting::Unknown),
        }
    }
}
