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

use std::sync::{Arc, Mutex, PoisonError, Weak};

use nearjoin_kernels::{Module, Tile};

use super::device::{Array, Device, Stage};
use super::driver::{self, Args, Driver, Fault};
use super::epsilon::Setup;
use super::job::{Job, Pattern, float};
use super::launch::GpuJoin;
use super::session::Result;
use crate::filter::product::{Frame, Summing, Within};
use crate::metric::Metric;
use crate::plan::Detail;
use crate::points::Points;
use crate::scalar::Scalar;

/// Coordinates are at most 2¹² in the frame, or 2¹⁵: numbers of 16 bits have 15 binary places before the
/// point, and 24 behind it.
const SIZE: i32 = 12;
/// Rows of which the middle is the centre of the frame.
const SAMPLE: usize = 256;
/// Tiles of columns that a block takes one after the other, at the most.
const ALONG: u64 = 16;
/// Pairs that there is room for beside those that are expected, for each query and in all.
const SPARE: u64 = 8;
const SPARE_IN_ALL: u64 = 1 << 16;
/// Blocks of the kernel that decides, for each multiprocessor.
const DECIDING: u64 = 8;
/// Blocks that check the model of matrix units.
const CHECKS: u64 = 40;

/// How products compare points.
#[derive(Debug)]
pub(super) struct Products {
    scale: f64,
    centre: Array<f64>,
    /// Numbers of a point, zeros at the end included.
    depth: usize,
    tile: Tile,
    limits: [f64; 4],
}

/// Points as numbers of 16 bits, and their thresholds.
#[derive(Debug)]
pub(super) struct Halves {
    points: Array<u16>,
    open: Array<f32>,
    sure: Array<f32>,
}

impl Halves {
    pub(super) fn bytes(&self) -> usize {
        self.points.bytes() + self.open.bytes() + self.sure.bytes()
    }

    fn words(&self) -> [u64; 3] {
        [self.points.address(), self.open.address(), self.sure.address()]
    }
}

impl Products {
    /// How to compare the points of a join, if it is to be by products and the device can. Where it
    /// cannot, brute force does.
    pub(super) fn of<T: Scalar>(
        setup: &Setup<'_, T>,
        stage: &Stage,
    ) -> driver::Result<Option<Self>> {
        let capability = setup.device.capability();
        let has_units = capability >= Module::Product(Tile::Narrow).least_capability();
        let wanted = matches!(setup.detail, Detail::Product { .. });
        // The highest bit of a left position says that a pair is sure.
        let has_bits = setup.left.len() <= 1 << 31;
        if !wanted || !has_units || !has_bits || setup.threshold.metric != Metric::L2 {
            return Ok(None);
        }
        if !units_do_as_they_should(&setup.device, stage)? {
            return Ok(None);
        }
        let dim = setup.left.dimension();
        let depth = dim.next_multiple_of(16);
        let tile = if depth <= 128 { Tile::Narrow } else { Tile::Wide };
        let frame = frame(setup.left, setup.right);
        let summing = Summing::on_matrix_units(depth);
        let limits = Within::new(setup.threshold.bound, dim, &frame, summing).limits();
        let centre = stage.copy_of(&frame.centre)?;
        Ok(Some(Products { scale: frame.scale, centre, depth, tile, limits }))
    }

    /// Points that are on the device, one after the other, for products.
    pub(super) fn halves<T: Scalar>(
        &self,
        stage: &Stage,
        points: &Array<T>,
        len: usize,
    ) -> driver::Result<Halves> {
        let module = Module::Halves(float::<T>());
        let (dim, depth) = (self.centre.len(), self.depth);
        // Whole tiles of columns: they are fetched without a look at where they end.
        let room = len.next_multiple_of(Tile::SIDE);
        let halves = stage.array::<u16>(room * depth)?;
        let sizes = stage.array::<[f64; 2]>(len)?;
        let (open, sure) = (stage.array::<f32>(room)?, stage.array::<f32>(room)?);
        let args = Args::new().u64(points.address()).u64(len as u64).u64(room as u64);
        let args = args.u32(dim as u32).u32(depth as u32).u64(self.centre.address());
        let args = args.f64(self.scale).u64(halves.address()).u64(sizes.address());
        stage.launch(module, "halve", room as u64 * 32, args)?;
        let args = Args::new().u64(sizes.address()).u64(len as u64).u64(room as u64);
        let args = args.structure(&self.limits.map(f64::to_bits));
        let args = args.u64(open.address()).u64(sure.address());
        stage.launch(module, "thresholds", room as u64, args)?;
        Ok(Halves { points: halves, open, sure })
    }
}

/// The frame of all points: centred in the middle of some of them.
fn frame<T: Scalar>(left: Points<'_, T>, right: Option<Points<'_, T>>) -> Frame {
    let sets = [Some(left), right];
    let mut magnitudes = left.magnitudes();
    let mut centre = vec![0.0; left.dimension()];
    let rows =
        |points: &Points<'_, T>| (0..points.len()).step_by(points.len().div_ceil(SAMPLE).max(1));
    let all: usize = sets.iter().flatten().map(|points| rows(points).count()).sum();
    for points in sets.iter().flatten() {
        magnitudes = magnitudes.and(points.magnitudes());
        for row in rows(points) {
            for (sum, x) in centre.iter_mut().zip(points.row(row)) {
                *sum += x.to_f64() / all as f64;
            }
        }
    }
    let greatest = magnitudes.greatest.to_f64();
    Frame::new(&vec![(-greatest, greatest); centre.len()], &centre, SIZE)
}

/// Whether sums of matrix units are as near as [`Summing::on_matrix_units`] has it. A device is asked
/// once.
fn units_do_as_they_should(device: &Device, stage: &Stage) -> driver::Result<bool> {
    type Known = Vec<(Weak<dyn Driver>, bool)>;
    static KNOWN: Mutex<Known> = Mutex::new(Vec::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let this = Arc::downgrade(&device.driver);
    let found = known().iter().find(|(driver, _)| driver.ptr_eq(&this)).map(|(_, sound)| *sound);
    if let Some(sound) = found {
        return Ok(sound);
    }
    let worst = stage.zeroed::<u32>(1)?;
    let args = Args::new().u64(worst.address());
    stage.launch_blocks(Module::Product(Tile::Narrow), "check_units", CHECKS, 32, args)?;
    let sound = f32::from_bits(stage.read(&worst, 0..1)?[0]) <= 1.0;
    let mut known = known();
    known.retain(|(driver, _)| driver.strong_count() > 0);
    known.push((this, sound));
    Ok(sound)
}

/// The matrix of all pairs in units: 128 rows by some tiles of columns.
#[derive(Clone, Copy, Debug)]
struct Units {
    rows: u64,
    runs: u64,
    /// Tiles of a unit.
    along: u64,
    /// Whether only those above the diagonal count.
    triangle: bool,
}

impl Units {
    /// Units of as many tiles as have room for all of their pairs in a list.
    fn new(queries: u64, candidates: u64, triangle: bool, capacity: u64) -> Self {
        let side = Tile::SIDE as u64;
        let along = (capacity / (side * side)).clamp(1, ALONG);
        let runs = candidates.div_ceil(side).div_ceil(along);
        Units { rows: queries.div_ceil(side), runs, along, triangle }
    }

    /// Units in all. Above the diagonal, a run of columns has as many rows as end before it does.
    fn count(&self) -> u64 {
        let Units { rows, runs, along, triangle } = *self;
        match triangle {
            false => rows * runs,
            true => along * runs * (runs - 1) / 2 + rows.min(runs * along),
        }
    }
}

impl<T: Scalar> GpuJoin<'_, T> {
    /// Compares all queries of a job with all candidates.
    pub(super) fn multiply(&self, products: &Products, stage: &Stage, job: &Job) -> Result<()> {
        let (Some(left), Some(right)) = (self.queries().halves(), self.right.halves()) else {
            return Ok(());
        };
        if job.query_count == 0 || job.right.len == 0 {
            return Ok(());
        }
        let later = job.pattern != Pattern::Each;
        let triangle = later && job.queries == 0;
        let (list, capacity) = self.open_pairs(stage, job)?;
        // How many pairs are in it, and how many are sure and not in it.
        let counts = stage.array::<u64>(2)?;
        let units = Units::new(job.query_count, job.right.len as u64, triangle, capacity);
        // Only whoever decides looks at rows, and at whether a point is its own neighbour.
        let listed = job.degrees != 0 || job.list != 0 || job.ids != 0 || job.exclude_self;
        let sure = if listed { 0 } else { counts.address() + 8 };
        let share = job.query_count as f64 / self.query_count() as f64;
        let launches = self.session.how.launches(share);
        let all = units.count();
        let mut most = all.div_ceil(launches);
        let mut first = 0;
        while first < all {
            let here = most.min(all - first);
            stage.fill(counts.piece(0..2), 0)?;
            let mut words = left.words().to_vec();
            words.extend([job.queries, job.query_count]);
            words.extend(right.words());
            words.extend([job.right.len as u64, products.depth as u64]);
            words.extend([u64::from(triangle), u64::from(later), units.along, first]);
            words.extend([list.address(), capacity, counts.address(), sure, job.tests]);
            let (module, args) = (Module::Product(products.tile), Args::new().structure(&words));
            stage.launch_blocks(module, "product", here, Tile::THREADS, args)?;
            let args = Args::new().structure(&job.words()).u64(list.address()).u64(capacity);
            let args = args.u64(counts.address()).u64(counts.address() + 8);
            let threads = DECIDING * u64::from(self.session.how.device.multiprocessors) * 256;
            stage.launch(Module::Decide(float::<T>()), "decide", threads, args)?;
            let found = stage.read(&counts, 0..1)?[0];
            if found > capacity {
                // As many as have room if they are all like these, and less.
                let fits = here as f64 * capacity as f64 / found as f64;
                most = ((fits * 0.8) as u64).clamp(1, (here - 1).max(1));
                self.session.record(|stats| stats.splits += 1);
                continue;
            }
            first += here;
            if here < all {
                self.session.check_cancelled()?;
                let tests =
                    if self.session.is_lane() { 0.0 } else { self.session.how.expected_tests };
                self.session.add(tests * share * here as f64 / all as f64, 0);
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_all_tiles_above_the_diagonal() {
        for (points, capacity) in
            [(1, 0), (129, 1 << 20), (5000, 0), (5000, 1 << 17), (9999, 90_000)]
        {
            let units = Units::new(points, points, true, capacity);
            let of_run = |run: u64| units.rows.min((run + 1) * units.along);
            assert_eq!(units.count(), (0..units.runs).map(of_run).sum::<u64>(), "{points}");
            let whole = Units::new(points, points, false, capacity);
            assert_eq!(whole.count(), units.rows * units.runs);
        }
    }
}
