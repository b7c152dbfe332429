//! The index on the device: keys, radix sort, gather, cells or parts. Nothing of it comes back
//! to the host on the way.

use nearjoin_kernels::{Module, Norm, width};

use super::device::{Array, Stage};
use super::driver::{Args, Result};
use super::job::{self, Finder, MAX_AXES, Side, float};
use super::product::{Halves, Products};
use super::sort::{DIGIT, Key, Sorted, running_sums, sort_by_key};
use super::upload::{self, Hands};
use crate::index::{directory, grid};
use crate::plan::Detail;
use crate::points::Points;
use crate::scalar::Scalar;

/// A table of all cells, empty ones too, is kept up to this many cells, or so many a point:
/// it is read once while it is made, at the speed of the device's memory.
const DENSE: u128 = 1 << 26;
const DENSE_PER_POINT: u128 = 8;
/// Bits of the order within a cell, of all axes together and of each, at the most.
const FINE: u32 = 12;
const FINE_PER_AXIS: u32 = 4;
/// Neighbours of a point for each cell of the finest order that a cell is cut into, at the most:
/// the points of such a cell are then a handful, as a cell is far smaller than what is within
/// reach. Points are denser in places, but order costs little where it is not needed.
const NEIGHBORS_PER_FINE_CELL: f64 = 16.0;

/// What the index will be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    Brute,
    Directory(&'a directory::Shape),
    Grid(&'a grid::Shape),
}

impl<'a> Shape<'a> {
    /// What a plan has decided: it knows what a device has no index for.
    pub(super) fn of(detail: &'a Detail) -> Self {
        match detail {
            Detail::Directory(shape) => Shape::Directory(shape),
            Detail::Grid(shape) => Shape::Grid(shape),
            _ => Shape::Brute,
        }
    }
}

/// How points are laid out for the join.
#[derive(Clone, Copy, Debug)]
pub(super) struct Making<'a> {
    /// How they will be compared.
    pub(super) norm: Norm,
    /// Where narrow points are relative to, if there are any.
    pub(super) origin: Option<&'a [f64]>,
    /// Numbers of the rows in the answer: others than those of the input where only a part of
    /// it is here.
    pub(super) ids: Option<&'a [u32]>,
    /// Whether every 32 points have a box.
    pub(super) boxes: bool,
    /// Neighbours that a point is expected to have.
    pub(super) neighbors: f64,
    /// Who brings them to the device.
    pub(super) hands: Hands,
    /// How products compare them, where they do; and when they are sent then.
    pub(super) products: Option<(&'a Products, Sent)>,
}

/// When points are sent to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    AtOnce,
    /// By whoever first needs them.
    WhenNeeded,
}

/// Points in index order.
pub(super) struct Ordered<T> {
    points: Array<T>,
    narrow: Option<Array<f32>>,
    boxes: Option<Boxes<T>>,
    /// Rows of what was given, and rows of the whole input.
    rows: Array<u32>,
    ids: Option<Array<u32>>,
    len: usize,
    /// The same for products: then points lie as they were given.
    halves: Option<Halves>,
}

/// Boxes of points, or of narrow ones.
enum Boxes<T> {
    Points(Array<T>),
    Narrow(Array<f32>),
}

impl<T> Ordered<T> {
    /// The address of the boxes, or 0.
    pub(super) fn boxes(&self) -> u64 {
        match &self.boxes {
            Some(Boxes::Points(boxes)) => boxes.address(),
            Some(Boxes::Narrow(boxes)) => boxes.address(),
            None => 0,
        }
    }

    pub(super) fn side(&self) -> Side {
        Side {
            points: self.points.address(),
            ids: self.ids().address(),
            len: self.len,
            narrow: self.narrow.as_ref().map_or(0, Array::address),
        }
    }

    /// The rows of the whole input, in index order.
    pub(super) fn ids(&self) -> &Array<u32> {
        self.ids.as_ref().unwrap_or(&self.rows)
    }

    /// The rows of the answer, in index order.
    pub(super) fn rows(&self) -> &Array<u32> {
        &self.rows
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn halves(&self) -> Option<&Halves> {
        self.halves.as_ref()
    }

    /// Its points: where they lie as they were given, those.
    pub(super) fn points(&self) -> &Array<T> {
        &self.points
    }

    pub(super) fn bytes(&self) -> usize {
        let narrow = self.narrow.as_ref().map_or(0, Array::bytes);
        let halves = self.halves.as_ref().map_or(0, Halves::bytes);
        let ids = self.ids.as_ref().map_or(0, Array::bytes);
        self.points.bytes() + narrow + self.rows.bytes() + ids + halves
    }
}

/// Where the points of each cell, or part, are.
pub(super) enum Table<T> {
    None,
    Cells { axes: Vec<grid::Axis>, starts: Array<u32>, cells: Option<Array<u64>>, count: usize },
    Parts { shape: directory::Shape, lo: Array<T>, hi: Array<T> },
}

impl<T> Table<T> {
    pub(super) fn describe(&self, job: &mut job::Job) {
        match self {
            Table::None => job.finder = Finder::Brute,
            Table::Cells { axes, starts, cells, count } => {
                job.finder = Finder::Grid;
                job.axes = axes.clone();
                job.starts = starts.address();
                job.cells = cells.as_ref().map_or(0, Array::address);
                job.cell_count = *count as u64;
            }
            Table::Parts { shape, lo, hi } => {
                job.finder = Finder::Directory;
                job.fanout = shape.fanout;
                job.level_dims = shape.dims.clone();
                (job.part_lo, job.part_hi) = (lo.address(), hi.address());
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Table::None => 0,
            Table::Cells { starts, cells, .. } => {
                starts.bytes() + cells.as_ref().map_or(0, Array::bytes)
            }
            Table::Parts { lo, hi, .. } => lo.bytes() + hi.bytes(),
        }
    }
}

/// One side of a join.
pub(super) struct Builder<'a, T> {
    pub(super) stage: &'a Stage,
    pub(super) points: Points<'a, T>,
    pub(super) making: Making<'a>,
}

impl<T: Scalar> Builder<'_, T> {
    /// Copies the points to the device and puts them in the order of the index. The table is
    /// that of these points.
    pub(super) fn build(self, shape: &Shape<'_>) -> Result<(Ordered<T>, Table<T>)> {
        if let Some((products, sent)) = self.making.products {
            return Ok((self.halve(products, sent)?, Table::None));
        }
        let raw = upload::points(self.stage, self.points, self.making.hands)?;
        let (order, table) = match shape {
            Shape::Brute => (self.identity()?, Table::None),
            Shape::Grid(shape) => self.grid(&raw, shape)?,
            Shape::Directory(shape) => self.directory(&raw, shape)?,
        };
        Ok((self.gather(&raw, order)?, table))
    }

    /// Points as they were given, and halves of them.
    fn halve(&self, products: &Products, sent: Sent) -> Result<Ordered<T>> {
        let raw = self.stage.array::<T>(self.points.as_slice().len())?;
        let halves = products.room(self.stage, self.len())?;
        if sent == Sent::AtOnce {
            let (bus, to) = ((self.stage, self.making.hands), (self.points, &raw));
            products.send(bus, to, &halves, self.len())?;
        }
        let ids = match self.making.ids {
            Some(ids) => Some(upload::words(self.stage, ids, self.making.hands)?),
            None => None,
        };
        let (rows, len) = (self.identity()?, self.len());
        Ok(Ordered { points: raw, narrow: None, boxes: None, rows, ids, len, halves: Some(halves) })
    }

    fn len(&self) -> usize {
        self.points.len()
    }

    fn launch(&self, name: &'static str, threads: usize, args: Args) -> Result<()> {
        self.stage.launch(Module::Index(float::<T>()), name, threads as u64, args)
    }

    /// The raw points as every kernel takes them.
    fn args(&self, raw: &Array<T>) -> Args {
        let dim = self.points.dimension() as u32;
        Args::new().u64(raw.address()).u64(self.len() as u64).u32(dim)
    }

    fn identity(&self) -> Result<Array<u32>> {
        let order = self.stage.array(self.len())?;
        let args = Args::new().u64(self.len() as u64).u64(order.address());
        self.launch("identity", self.len(), args)?;
        Ok(order)
    }

    fn grid(&self, raw: &Array<T>, shape: &grid::Shape) -> Result<(Array<u32>, Table<T>)> {
        let cells = shape.cells();
        let fine = self.fine(shape);
        let bits = bits(shape) + fine;
        let dense = DENSE.min(u128::from(u32::MAX) - 1).min(DENSE_PER_POINT * self.len() as u128);
        if cells <= dense.max(1 << 16) {
            return match bits {
                0..=32 => self.dense::<u32>(raw, shape, bits, ["cell_keys_u32", "cell_counts_u32"]),
                _ => self.dense::<u64>(raw, shape, bits, ["cell_keys_u64", "cell_counts_u64"]),
            };
        }
        match bits {
            0..=32 => {
                let names = ["cell_keys_u32", "cell_begins_u32", "cell_list_u32"];
                self.sparse::<u32>(raw, shape, bits, names)
            }
            _ => {
                let names = ["cell_keys_u64", "cell_begins_u64", "cell_list_u64"];
                self.sparse::<u64>(raw, shape, bits, names)
            }
        }
    }

    /// Bits below the number of a cell that order the points in it: where boxes of 32 of them
    /// should be small.
    fn fine(&self, shape: &grid::Shape) -> u32 {
        let axes = shape.axes.len() as u32;
        if self.making.boxes { fine_bits(bits(shape), axes, self.making.neighbors) } else { 0 }
    }

    fn cell_order<K: Key>(
        &self,
        raw: &Array<T>,
        shape: &grid::Shape,
        kernel: &'static str,
        bits: u32,
    ) -> Result<Sorted<K>> {
        let keys = self.stage.array::<K>(self.len())?;
        let fine = self.fine(shape) / shape.axes.len() as u32;
        let args = self.args(raw).structure(&job::grid_words(&shape.axes)).u32(fine);
        self.launch(kernel, self.len(), args.u64(keys.address()))?;
        sort_by_key(self.stage, keys, None, bits)
    }

    /// A table of all cells.
    fn dense<K: Key>(
        &self,
        raw: &Array<T>,
        shape: &grid::Shape,
        bits: u32,
        [cell_keys, cell_counts]: [&'static str; 2],
    ) -> Result<(Array<u32>, Table<T>)> {
        let cells = shape.cells() as usize;
        let sorted = self.cell_order::<K>(raw, shape, cell_keys, bits)?;
        let starts = self.stage.zeroed::<u32>(cells + 1)?;
        let args = Args::new().u64(sorted.keys.address()).u64(self.len() as u64);
        let args = args.u32(self.fine(shape)).u64(starts.address());
        self.launch(cell_counts, self.len(), args)?;
        running_sums::<u32>(self.stage, starts.address(), cells, starts.address())?;
        let axes = shape.axes.clone();
        Ok((sorted.values, Table::Cells { axes, starts, cells: None, count: cells }))
    }

    /// A list of the non-empty cells. How many there are is known to the device alone: the
    /// list has room for as many as there are points, and ends with a cell beyond all others.
    fn sparse<K: Key>(
        &self,
        raw: &Array<T>,
        shape: &grid::Shape,
        bits: u32,
        [cell_keys, cell_begins, cell_list]: [&'static str; 3],
    ) -> Result<(Array<u32>, Table<T>)> {
        let len = self.len();
        let sorted = self.cell_order::<K>(raw, shape, cell_keys, bits)?;
        let ranks = self.stage.array::<u32>(len + 1)?;
        let fine = self.fine(shape);
        let args = || Args::new().u64(sorted.keys.address()).u64(len as u64).u32(fine);
        self.launch(cell_begins, len, args().u64(ranks.address()))?;
        running_sums::<u32>(self.stage, ranks.address(), len, ranks.address())?;
        let cells = self.stage.array::<u64>(len + 1)?;
        let starts = self.stage.array::<u32>(len + 1)?;
        self.stage.fill(cells.piece(0..len + 1), u32::MAX)?;
        self.stage.fill(starts.piece(0..len + 1), len as u32)?;
        let args = args().u64(ranks.address()).u64(cells.address()).u64(starts.address());
        self.launch(cell_list, len, args)?;
        let axes = shape.axes.clone();
        Ok((sorted.values, Table::Cells { axes, starts, cells: Some(cells), count: len }))
    }

    /// Sorts by one dimension after the other, within the parts of the levels before.
    fn directory(
        &self,
        raw: &Array<T>,
        shape: &directory::Shape,
    ) -> Result<(Array<u32>, Table<T>)> {
        let len = self.len();
        let levels = shape.dims.len().min(MAX_AXES);
        let shape = directory::Shape { dims: shape.dims[..levels].to_vec(), ..*shape };
        let parts = |level: usize| shape.fanout.pow(level as u32 + 1);
        let all: usize = (0..levels).map(parts).sum();
        let (lo, hi) = (self.stage.array::<T>(all)?, self.stage.array::<T>(all)?);
        let part_of_row = self.stage.array::<u32>(len)?;
        let mut order = self.identity()?;
        for (level, &dim) in shape.dims.iter().enumerate() {
            order = match size_of::<T>() {
                4 => self.by_coordinate::<u32>(raw, dim, order)?,
                _ => self.by_coordinate::<u64>(raw, dim, order)?,
            };
            if level > 0 {
                // Stable: within a part, the coordinates stay in order.
                let keys = self.stage.array::<u32>(len)?;
                let args = Args::new().u64(part_of_row.address()).u64(len as u64);
                let args = args.u64(order.address()).u64(keys.address());
                self.launch("gather_u32", len, args)?;
                let bits = usize::BITS - (parts(level - 1) - 1).leading_zeros();
                order = sort_by_key(self.stage, keys, Some(order), bits)?.values;
            }
            let args = Args::new().u64(order.address()).u64(len as u64);
            let args = args.u64(parts(level) as u64).u64(part_of_row.address());
            self.launch("assign_parts", len, args)?;
        }
        let mut base = 0;
        for (level, &dim) in shape.dims.iter().enumerate() {
            let to = |array: &Array<T>| array.address() + (base * size_of::<T>()) as u64;
            let args = self.args(raw).u32(dim as u32).u64(order.address());
            let args = args.u64(parts(level) as u64).u64(to(&lo)).u64(to(&hi));
            self.launch("part_extents", parts(level) * 32, args)?;
            base += parts(level);
        }
        Ok((order, Table::Parts { shape, lo, hi }))
    }

    fn by_coordinate<K: Key>(
        &self,
        raw: &Array<T>,
        dim: usize,
        order: Array<u32>,
    ) -> Result<Array<u32>> {
        let keys = self.stage.array::<K>(self.len())?;
        let args = self.args(raw).u32(dim as u32).u64(order.address()).u64(keys.address());
        self.launch("coordinate_keys", self.len(), args)?;
        Ok(sort_by_key(self.stage, keys, Some(order), 8 * size_of::<T>() as u32)?.values)
    }

    fn gather(&self, raw: &Array<T>, order: Array<u32>) -> Result<Ordered<T>> {
        let (len, dim) = (self.len(), self.points.dimension());
        let width = width(self.making.norm, dim);
        let specialised = width > 0;
        let stride = if specialised { width } else { dim };
        let points = self.stage.array::<T>(len * stride)?;
        // A thread to two numbers, and to a point a power of two of them.
        let shift = stride.div_ceil(2).next_power_of_two().ilog2();
        let by_point = || self.args(raw).u32(stride as u32).u32(shift).u64(order.address());
        if specialised {
            let args = by_point().u64(points.address());
            self.launch("gather_points", len << shift, args)?;
        } else {
            let args = self.args(raw).u64(order.address()).u64(points.address());
            self.launch("gather_columns", len * stride, args)?;
        }
        let narrow = match &self.making.origin {
            Some(origin) if specialised => {
                let origin = self.stage.copy_of::<f64>(origin)?;
                let narrow = self.stage.array::<f32>(len * stride)?;
                let args = by_point().u64(origin.address()).u64(narrow.address());
                self.launch("gather_narrow", len << shift, args)?;
                Some(narrow)
            }
            _ => None,
        };
        let boxes = match (&narrow, self.making.boxes && specialised) {
            (_, false) => None,
            (Some(narrow), true) => {
                let boxes = self.boxes("narrow_boxes", narrow.address(), stride)?;
                Some(Boxes::Narrow(boxes))
            }
            (None, true) => {
                Some(Boxes::Points(self.boxes("point_boxes", points.address(), stride)?))
            }
        };
        let ids = match &self.making.ids {
            Some(ids) => {
                let given = upload::words(self.stage, ids, self.making.hands)?;
                let ids = self.stage.array::<u32>(len)?;
                let args = Args::new().u64(given.address()).u64(len as u64);
                let args = args.u64(order.address()).u64(ids.address());
                self.launch("gather_u32", len, args)?;
                Some(ids)
            }
            None => None,
        };
        Ok(Ordered { points, narrow, boxes, rows: order, ids, len, halves: None })
    }

    fn boxes<L>(&self, kernel: &'static str, points: u64, stride: usize) -> Result<Array<L>> {
        let boxes = self.len().div_ceil(32);
        let array = self.stage.array::<L>(2 * boxes * stride)?;
        let args = Args::new().u64(points).u64(self.len() as u64).u32(stride as u32);
        self.launch(kernel, boxes * 32, args.u64(array.address()))?;
        Ok(array)
    }
}

/// Bits of the number of a cell.
fn bits(shape: &grid::Shape) -> u32 {
    128 - (shape.cells() - 1).leading_zeros()
}

/// Bits of the order within a cell, as many for each axis: those that so many neighbours are worth,
/// and more if the last digit of the sort has room for them.
fn fine_bits(cell: u32, axes: u32, neighbors: f64) -> u32 {
    let most = (FINE / axes).clamp(1, FINE_PER_AXIS) * axes;
    let worth = (neighbors / NEIGHBORS_PER_FINE_CELL).max(1.0).log2().ceil() as u32;
    let worth = worth.next_multiple_of(axes).min(most);
    let room = (cell + worth).next_multiple_of(DIGIT).min(62).saturating_sub(cell);
    room.min(most) / axes * axes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_within_cells_takes_a_digit_more_only_where_points_are_many() {
        // A digit that would be there anyway is filled.
        assert_eq!(fine_bits(26, 2, 60.0), 6);
        assert_eq!(fine_bits(26, 2, 1e4), 8);
        assert_eq!(fine_bits(18, 3, 100.0), 6);
        assert_eq!(fine_bits(18, 3, 1e4), 12);
        assert_eq!(fine_bits(24, 2, 1.0), 0);
        assert_eq!(fine_bits(20, 1, 1e9), 4);
        assert_eq!(fine_bits(20, 6, 1e9), 12);
        // Keys have 64 bits, and cells may have them all.
        assert_eq!(fine_bits(60, 2, 1e9), 2);
        assert_eq!(fine_bits(100, 6, 1e9), 0);
    }
}
