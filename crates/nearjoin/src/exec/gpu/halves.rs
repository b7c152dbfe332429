//! Points as numbers of 16 bits for matrix units: the host's side of `halves.cu`.
//!
//! All points of a join are in one frame, whose centre is the middle of some of them. Before the first
//! join on a device, its matrix units are asked whether they do as the bound of a product has it.

use core::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use nearjoin_kernels::{Module, Tile};

use super::device::{Array, Device, Stage};
use super::driver::{self, Args, Driver};
use super::job::float;
use crate::filter::product::{Frame, Summing};
use crate::points::Points;
use crate::scalar::Scalar;
use crate::summary::middle;

/// Coordinates are at most 2¹² in the frame, or 2¹⁵: numbers of 16 bits have 15 binary places before the
/// point, and 24 behind it.
const SIZE: i32 = 12;
/// Rows of which the middle is the centre of the frame.
const SAMPLE: usize = 256;
/// Blocks that check the model of matrix units: eight for each kind of numbers.
const CHECKS: u64 = 48;

/// How points become numbers of 16 bits, and which tiles multiply them.
#[derive(Debug)]
pub(super) struct Halving {
    pub(super) frame: Frame,
    centre: Array<f64>,
    /// Numbers of a point, zeros at the end included.
    pub(super) depth: usize,
    pub(super) tile: Tile,
}

/// Points as numbers of 16 bits, up to whole tiles, and of each the squared norm and how far it was moved.
#[derive(Debug)]
pub(super) struct Halved {
    pub(super) points: Array<u16>,
    pub(super) sizes: Array<[f64; 2]>,
}

impl Halved {
    pub(super) fn bytes(&self) -> usize {
        self.points.bytes() + self.sizes.bytes()
    }
}

impl Halving {
    /// For the points of a join, if the device has matrix units that do as they should.
    pub(super) fn of<T: Scalar>(
        device: &Device,
        stage: &Stage,
        left: Points<'_, T>,
        right: Option<Points<'_, T>>,
    ) -> driver::Result<Option<Self>> {
        if !device.has_matrix_units() || !units_do_as_they_should(device, stage)? {
            return Ok(None);
        }
        let depth = left.dimension().next_multiple_of(16);
        let tile = if depth <= 128 { Tile::Narrow } else { Tile::Wide };
        let frame = frame(left, right);
        let centre = stage.copy_of(&frame.centre)?;
        Ok(Some(Halving { frame, centre, depth, tile }))
    }

    /// How sums of their products err.
    pub(super) fn summing(&self) -> Summing {
        Summing::on_matrix_units(self.depth)
    }

    /// Room for so many points. Whole tiles of columns: they are fetched without a look at where they end.
    pub(super) fn room(&self, stage: &Stage, len: usize) -> driver::Result<Halved> {
        let points = stage.array::<u16>(len.next_multiple_of(Tile::SIDE) * self.depth)?;
        Ok(Halved { points, sizes: stage.array::<[f64; 2]>(len)? })
    }

    /// Rounds points that are on the device, one after the other.
    pub(super) fn halve<T: Scalar>(
        &self,
        stage: &Stage,
        points: &Array<T>,
        len: usize,
    ) -> driver::Result<Halved> {
        let halved = self.room(stage, len)?;
        self.halve_rows(stage, points, 0..len, &halved)?;
        Ok(halved)
    }

    /// Rounds some of them, from a whole tile on to the end of one, or to the last point.
    pub(super) fn halve_rows<T: Scalar>(
        &self,
        stage: &Stage,
        points: &Array<T>,
        rows: Range<usize>,
        to: &Halved,
    ) -> driver::Result<()> {
        let (first, len) = (rows.start as u64, rows.len() as u64);
        let room = len.next_multiple_of(Tile::SIDE as u64);
        let (dim, depth) = (self.centre.len() as u64, self.depth as u64);
        let point = points.address() + first * dim * size_of::<T>() as u64;
        let args = Args::new().u64(point).u64(len).u64(room).u32(dim as u32).u32(depth as u32);
        let args = args.u64(self.centre.address()).f64(self.frame.scale);
        let args = args.u64(to.points.address() + first * depth * size_of::<u16>() as u64);
        let args = args.u64(to.sizes.address() + first * size_of::<[f64; 2]>() as u64);
        stage.launch(Module::Halves(float::<T>()), "halve", room * 32, args)
    }
}

/// The frame of all points: centred in the middle of some of them.
fn frame<T: Scalar>(left: Points<'_, T>, right: Option<Points<'_, T>>) -> Frame {
    let mut magnitudes = left.magnitudes();
    let mut rows = Vec::new();
    for points in [Some(left), right].into_iter().flatten() {
        magnitudes = magnitudes.and(points.magnitudes());
        let step = points.len().div_ceil(SAMPLE).max(1);
        rows.extend((0..points.len()).step_by(step).map(|row| points.row(row)));
    }
    let greatest = magnitudes.greatest.to_f64();
    let centre = middle(&rows, left.dimension());
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
