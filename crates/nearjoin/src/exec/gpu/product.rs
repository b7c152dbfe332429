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

use nearjoin_kernels::{Module, Tile};

use super::device::{Array, Stage};
use super::driver::{self, Args, Fault};
use super::epsilon::Setup;
use super::halves::Halving;
use super::job::{Job, Pattern, float};
use super::launch::GpuJoin;
use super::matrix::{Matrix, Operand, Units};
use super::session::Result;
use crate::filter::product::Within;
use crate::metric::Metric;
use crate::plan::Detail;
use crate::scalar::Scalar;

/// Pairs that there is room for beside those that are expected, for each query and in all.
const SPARE: u64 = 8;
const SPARE_IN_ALL: u64 = 1 << 16;
/// Blocks of the kernel that decides, for each multiprocessor.
const DECIDING: u64 = 8;

/// How products compare points.
#[derive(Debug)]
pub(super) struct Products {
    halving: Halving,
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

    fn operand(&self) -> Operand {
        Operand { points: self.points.address(), less: self.open.address() }
    }
}

impl Products {
    /// How to compare the points of a join, if it is to be by products and the device can. Where it
    /// cannot, brute force does.
    pub(super) fn of<T: Scalar>(
        setup: &Setup<'_, T>,
        stage: &Stage,
    ) -> driver::Result<Option<Self>> {
        let wanted = matches!(setup.detail, Detail::Product { .. });
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

    /// Points that are on the device, one after the other, for products.
    pub(super) fn halves<T: Scalar>(
        &self,
        stage: &Stage,
        points: &Array<T>,
        len: usize,
    ) -> driver::Result<Halves> {
        let halved = self.halving.halve(stage, points, len)?;
        let room = len.next_multiple_of(Tile::SIDE);
        let (open, sure) = (stage.array::<f32>(room)?, stage.array::<f32>(room)?);
        let args = Args::new().u64(halved.sizes.address()).u64(len as u64).u64(room as u64);
        let args = args.structure(&self.limits.map(f64::to_bits));
        let args = args.u64(open.address()).u64(sure.address());
        stage.launch(Module::Halves(float::<T>()), "thresholds", room as u64, args)?;
        Ok(Halves { points: halved.points, open, sure })
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
        let sure = if listed { 0 } else { counts.address() + 8 };
        let share = job.query_count as f64 / self.query_count() as f64;
        let launches = self.session.how.launches(share);
        let all = units.count();
        let mut most = all.div_ceil(launches);
        let mut first = 0;
        while first < all {
            let here = most.min(all - first);
            stage.fill(counts.piece(0..2), 0)?;
            let mut words = matrix.words(first);
            words.extend([left.sure.address(), right.sure.address(), u64::from(later)]);
            words.extend([list.address(), capacity, counts.address(), sure]);
            let (module, args) =
                (Module::Product(products.halving.tile), Args::new().structure(&words));
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
