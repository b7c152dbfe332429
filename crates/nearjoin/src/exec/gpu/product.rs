//! The ε-join by matrix products: the host's side of `halves.cu`, `product.cu` and `decide.cu`.
//!
//! ```text
//! the points in a frame, rounded to 16 bits, with thresholds            when they are indexed
//! for each piece of the matrix, in units of 128 rows by some tiles of columns
//!     the product less the thresholds: pairs that may match go to a list
//!     the list longer than its room: the piece again, in smaller ones
//!     decide the pairs of the list; count, list or write what matches
//! ```
//!
//! A piece whose list overflows has had no effect yet: what matches is told by the kernel that decides,
//! which does nothing then. A unit always fits.

use core::ops::Range;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use nearjoin_kernels::{Module, Tile};

use super::device::{Array, Stage, values};
use super::driver::{self, Args, Fault, Transfer, URGENT};
use super::epsilon::Setup;
use super::halves::{Halved, Halving};
use super::job::{Job, Pattern, float};
use super::launch::GpuJoin;
use super::matrix::{Matrix, Operand, Units};
use super::session::Result;
use super::upload::{self, Hands};
use crate::filter::product::Within;
use crate::metric::Metric;
use crate::plan::Detail;
use crate::points::Points;
use crate::scalar::Scalar;

/// Pairs that there is room for beside those that are expected, for each query and in all.
const SPARE: u64 = 8;
const SPARE_IN_ALL: u64 = 1 << 16;
/// The stream in which points are on the bus, and rounded, while others are multiplied (and not when there is nothing
/// else to do: the next copies wait for that), and pieces of them at the most; and the stream of every other
/// piece of a matrix.
const BUS: usize = URGENT;
const PIECES: usize = 16;
const OTHER: usize = URGENT - 1;
/// Pieces that the device has been given and that are not done: what one found is told late, after those that
/// were begun meanwhile.
const UNDER_WAY: usize = 4;
/// How long a thread of a pool sleeps that waits for points which another one sends, and has nothing to do.
const NAP: Duration = Duration::from_micros(50);
/// Blocks of the kernel that decides, for each multiprocessor.
const DECIDING: u64 = 8;

/// A stream for pieces of a matrix: with a list of pairs, how many are in it, and how many are sure and not in it.
type Lane<'a> = (&'a Stage, Array<[u32; 2]>, Array<u64>);

/// How products compare points.
#[derive(Debug)]
pub(super) struct Products {
    halving: Halving,
    limits: [f64; 4],
}

/// Points as numbers of 16 bits, and their thresholds.
#[derive(Debug)]
pub(super) struct Halves {
    halved: Halved,
    open: Array<f32>,
    sure: Array<f32>,
    /// How many of the points the device has. Who needs more sends them.
    sent: Mutex<usize>,
}

impl Halves {
    pub(super) fn bytes(&self) -> usize {
        self.halved.bytes() + self.open.bytes() + self.sure.bytes()
    }

    /// How many of the points the device has; as long as this is held, nobody else sends any.
    ///
    /// A thread of a pool that has to wait works for the pool meanwhile: whoever sends may need it.
    fn sent(&self) -> MutexGuard<'_, usize> {
        loop {
            match self.sent.try_lock() {
                Ok(sent) => return sent,
                Err(TryLockError::Poisoned(sent)) => return sent.into_inner(),
                Err(TryLockError::WouldBlock) => match rayon::yield_now() {
                    Some(rayon::Yield::Executed) => {}
                    Some(rayon::Yield::Idle) => std::thread::sleep(NAP),
                    None => return self.sent.lock().unwrap_or_else(PoisonError::into_inner),
                },
            }
        }
    }

    fn operand(&self) -> Operand {
        Operand { points: self.halved.points.address(), less: self.open.address() }
    }
}

impl Products {
    /// How to compare the points of a join, if it is to be by products and the device can. Where it
    /// cannot, brute force does.
    pub(super) fn of<T: Scalar>(
        setup: &Setup<'_, T>,
        stage: &Stage,
    ) -> driver::Result<Option<Self>> {
        let wanted = matches!(setup.detail, Detail::Product);
        // The highest bit of a left position says that a pair is sure.
        let has_bits = setup.left.len() <= 1 << 31;
        if !wanted || !has_bits || setup.threshold.metric != Metric::L2 {
            return Ok(None);
        }
        let halving = Halving::of(&setup.device, stage, setup.left, setup.right)?;
        Ok(halving.map(|halving| {
            let (bound, dim) = (setup.threshold.bound, setup.left.dimension());
            let limits = Within::new(bound, dim, &halving.frame, halving.summing()).limits();
            Products { halving, limits }
        }))
    }

    /// Room for so many points.
    pub(super) fn room(&self, stage: &Stage, len: usize) -> driver::Result<Halves> {
        let room = len.next_multiple_of(Tile::SIDE);
        Ok(Halves {
            halved: self.halving.room(stage, len)?,
            open: stage.array(room)?,
            sure: stage.array(room)?,
            sent: Mutex::new(0),
        })
    }

    /// Sees to it that the device has the points up to a row, which ends a tile or is the last, as soon as `bus` has
    /// done what it is given.
    pub(super) fn send<T: Scalar>(
        &self,
        (bus, hands): (&Stage, Hands),
        (points, to): (Points<'_, T>, &Array<T>),
        halves: &Halves,
        until: usize,
    ) -> driver::Result<()> {
        let mut sent = halves.sent();
        if *sent >= until {
            return Ok(());
        }
        let rows = *sent..until;
        // What was sent before has arrived, or nearly: its memory is used again.
        bus.recycle()?;
        bus.hold_on(to);
        bus.hold_on(&halves.halved.points);
        bus.hold_on(&halves.halved.sizes);
        bus.hold_on(&halves.open);
        bus.hold_on(&halves.sure);
        upload::rows(bus, points, rows.clone(), to, hands)?;
        self.halving.halve_rows(bus, to, rows.clone(), &halves.halved)?;
        let (first, len) = (rows.start as u64, rows.len() as u64);
        let room = len.next_multiple_of(Tile::SIDE as u64);
        let sizes = halves.halved.sizes.address() + first * size_of::<[f64; 2]>() as u64;
        let args = Args::new().u64(sizes).u64(len).u64(room);
        let args = args.structure(&self.limits.map(f64::to_bits));
        let place = |of: &Array<f32>| of.address() + first * size_of::<f32>() as u64;
        let args = args.u64(place(&halves.open)).u64(place(&halves.sure));
        bus.launch(Module::Halves(float::<T>()), "thresholds", room, args)?;
        if hands == Hands::One {
            // Others are in streams of their own, and find it done.
            bus.wait()?;
        }
        *sent = until;
        Ok(())
    }
}

impl<T: Scalar> GpuJoin<'_, T> {
    /// Compares all queries of a job with all candidates.
    ///
    /// Pieces of the matrix are given to the device while those before are still computed, in two streams by turns: so
    /// points of the next are on the bus meanwhile, and it has something to do when a piece comes to its end.
    pub(super) fn multiply(&self, products: &Products, stage: &Stage, job: &Job) -> Result<()> {
        let (Some(left), Some(right)) = (self.queries().halves(), self.right.halves()) else {
            return Ok(());
        };
        if job.query_count == 0 || job.right.len == 0 {
            return Ok(());
        }
        // The list is of use to this call only.
        let mark = stage.mark();
        let later = job.pattern != Pattern::Each;
        let triangle = later && job.queries == 0;
        let (list, capacity) = self.open_pairs(stage, job)?;
        let units = Units::new(job.query_count, job.right.len as u64, triangle, capacity);
        let matrix = Matrix {
            left: left.operand(),
            queries: job.queries,
            query_count: job.query_count,
            right: right.operand(),
            right_len: job.right.len as u64,
            depth: products.halving.depth,
            units,
            tests: job.tests,
        };
        // Only whoever decides looks at rows, and at whether a point is its own neighbour.
        let listed = job.degrees != 0 || job.list != 0 || job.ids != 0 || job.exclude_self;
        let compare = |(stage, list, counts): &Lane<'_>, these: &Range<u64>| {
            let sure = if listed { 0 } else { counts.address() + 8 };
            stage.fill(counts.piece(0..2), 0)?;
            let mut words = matrix.words(these.start);
            words.extend([left.sure.address(), right.sure.address(), u64::from(later)]);
            words.extend([list.address(), capacity, counts.address(), sure]);
            let (module, args) =
                (Module::Product(products.halving.tile), Args::new().structure(&words));
            let blocks = these.end - these.start;
            stage.launch_blocks(module, "product", blocks, Tile::THREADS, args)?;
            let args = Args::new().structure(&job.words()).u64(list.address()).u64(capacity);
            let args = args.u64(counts.address()).u64(counts.address() + 8);
            let threads = DECIDING * u64::from(self.session.how.device.multiprocessors) * 256;
            stage.launch(Module::Decide(float::<T>()), "decide", threads, args)?;
            stage.copy_out(counts.piece(0..1))
        };

        let share = job.query_count as f64 / self.query_count() as f64;
        let (how, all) = (&self.session.how, units.count());
        let expected = if self.session.is_lane() { 0.0 } else { how.expected_tests * share };
        let mut most = all.div_ceil(how.launches(share));
        let (bus, other) = (self.session.stage(BUS), self.session.stage(OTHER));
        let mut waiting = self.pieces(right, &units);
        let mut lanes = vec![(stage, list, stage.array::<u64>(2)?)];
        if waiting.len() > 1 {
            match other.array(capacity as usize) {
                Ok(list) => {
                    other.wait_for(stage)?;
                    lanes.push((&other, list, other.array(2)?));
                }
                // One piece after the other then.
                Err(Fault::Memory { .. }) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        let mut under_way: VecDeque<(Range<u64>, Box<dyn Transfer>)> = VecDeque::new();
        loop {
            if let Some((these, points)) = waiting.pop_front() {
                let end = these.end.min(these.start + most);
                if end < these.end {
                    waiting.push_front((end..these.end, points));
                }
                // Others may wait for the same points. A thread of a pool would be given their work.
                let hands = match (self.session.is_lane(), rayon::current_thread_index()) {
                    (false, Some(_)) => Hands::Own,
                    (is_lane, _) => Hands::of(is_lane),
                };
                let (from, to) = ((&bus, hands), self.right.points());
                products.send(from, (self.asking, to), right, points)?;
                lanes.rotate_left(1);
                // Whoever has sent them, if not this stream itself.
                lanes[0].0.wait_for(&self.session.device.stage(BUS))?;
                let these = these.start..end;
                let found = compare(&lanes[0], &these)?;
                under_way.push_back((these, found));
                if under_way.len() < UNDER_WAY && !waiting.is_empty() {
                    continue;
                }
            }
            let Some((these, found)) = under_way.pop_front() else { break };
            let found = values::<u64>(&*found.wait()?, 0, 8)[0];
            let here = these.end - these.start;
            if found > capacity {
                // As many as have room if they are all like these, and less.
                let fits = here as f64 * capacity as f64 / found as f64;
                most = ((fits * 0.8) as u64).clamp(1, (here - 1).max(1));
                waiting.push_front((these, 0));
                self.session.record(|stats| stats.splits += 1);
                continue;
            }
            if here < all {
                self.session.check_cancelled()?;
                self.session.add(expected * here as f64 / all as f64, 0);
            }
        }
        drop(lanes);
        other.finish()?;
        bus.finish()?;
        Ok(stage.finish_since(mark)?)
    }

    /// Pieces of a matrix, and how many of its points each needs: all at once, or some after the others where
    /// these are still to be sent.
    fn pieces(&self, points: &Halves, units: &Units) -> VecDeque<(Range<u64>, usize)> {
        let (len, sent) = (self.right.len(), *points.sent());
        if !units.triangle || sent > 0 {
            return [(0..units.count(), len)].into();
        }
        let run = Tile::SIDE * units.along as usize;
        let most = self.session.how.sent_at_once / (self.asking.dimension() * size_of::<T>());
        // Little at first, so that the device soon has something to do.
        let (mut pieces, mut rows, mut first, mut end) = (VecDeque::new(), most / 4, 0, 0);
        while end < len {
            end = len.min(end + rows.max(len / PIECES).max(1).next_multiple_of(run));
            let last = if end < len { units.among(end as u64) } else { units.count() };
            pieces.push_back((first..last, end));
            (first, rows) = (last, most.min(2 * rows));
        }
        pieces
    }

    /// A list for pairs that are open, and its room: that of those that are expected, of less where the
    /// device has not as much, and of one tile at the least.
    fn open_pairs(&self, stage: &Stage, job: &Job) -> driver::Result<(Array<[u32; 2]>, u64)> {
        let how = &self.session.how;
        let least = (Tile::SIDE * Tile::SIDE) as u64;
        let expected = (how.expected_pairs * how.estimate) as u64;
        let wanted = expected.saturating_add(SPARE * job.query_count + SPARE_IN_ALL);
        let mut capacity = wanted.min(how.list_bytes / 32).max(least);
        loop {
            match stage.array::<[u32; 2]>(capacity as usize) {
                Err(Fault::Memory { .. }) if capacity > least => {
                    capacity = (capacity / 4).max(least);
                }
                list => return list.map(|list| (list, capacity)),
            }
        }
    }
}
