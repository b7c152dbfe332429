//! Points in index order, one array per dimension.

use rayon::prelude::*;

use super::Run;
use super::boxes::{BoxOf, Boxes};
use super::cell_sort::{self, Form, Rows, Sorted};
use super::cells::Shape;
use crate::error::Result;
use crate::memory::Buffer;
use crate::points::Points;
use crate::scalar::Scalar;

/// Elements that every column has beyond its last point, so that kernels may read
/// whole vectors from any position.
pub(crate) const SLACK: usize = 64;
/// Points gathered by one task.
const CHUNK: usize = 8192;

/// Points reordered so that neighbours stand close together.
pub(crate) struct Layout<'a, T> {
    points: Points<'a, T>,
    stride: usize,
    columns: Columns<T>,
    ids: Buffer<u32>,
    boxes: Option<Boxes<T>>,
}

/// The coordinates in index order, a column per dimension.
pub(crate) enum Columns<T> {
    /// As they are.
    Own(Buffer<T>),
    /// Relative to `origin`, as `f32`: half the memory and twice the lanes. Whatever is
    /// too close to call is looked up in the input.
    Narrow { coords: Buffer<f32>, origin: Vec<f64>, error: f64 },
    /// None: whoever looks at them has them in a form of their own.
    Absent,
}

/// How a layout is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Making<'a> {
    /// The origin of narrow columns and the largest distance from it, where they will do.
    pub(crate) narrow: Option<(&'a [f64], f64)>,
    /// Whether boxes will be looked at.
    pub(crate) boxes: bool,
}

/// The order of the points in a layout.
enum Order<'a> {
    /// The row at each position, with [`SLACK`] elements more than there are rows.
    Ids(Buffer<u32>),
    /// That of their cells, of which there is a table.
    Cells(&'a Shape),
}

impl<'a, T: Scalar> Layout<'a, T> {
    /// Puts `points` in the order of `ids`, which are padded by [`SLACK`].
    pub(crate) fn new(points: Points<'a, T>, ids: Buffer<u32>, making: Making<'_>) -> Result<Self> {
        Self::ordered(points, Order::Ids(ids), making).map(|(layout, _)| layout)
    }

    /// Leaves `points` in the order that they have, without columns.
    pub(crate) fn bare(points: Points<'a, T>) -> Result<Self> {
        let ids = super::order::identity(points.len())?;
        Ok(Layout { points, stride: 0, columns: Columns::Absent, ids, boxes: None })
    }

    /// Puts `points` in the order of their cells. Returns where each cell begins, and the end.
    pub(crate) fn by_cell(
        points: Points<'a, T>,
        shape: &Shape,
        making: Making<'_>,
    ) -> Result<(Self, Buffer<u32>)> {
        Self::ordered(points, Order::Cells(shape), making)
    }

    fn ordered(
        points: Points<'a, T>,
        order: Order<'_>,
        making: Making<'_>,
    ) -> Result<(Self, Buffer<u32>)> {
        let stride = points.len().next_multiple_of(16) + SLACK;
        let (columns, ids, starts) = match making.narrow {
            None => {
                let Sorted { coords, ids, starts } = arrange(points, order, stride, |_, x| x)?;
                (Columns::Own(coords), ids, starts)
            }
            Some((origin, spread)) => {
                let narrow = |j: usize, x: T| (x.to_f64() - origin[j]) as f32;
                let Sorted { coords, ids, starts } = arrange(points, order, stride, narrow)?;
                // One rounding to `f32` and two in `f64`.
                let error = spread * f64::from(f32::EPSILON);
                (Columns::Narrow { coords, origin: origin.to_vec(), error }, ids, starts)
            }
        };
        let mut layout = Layout { points, stride, columns, ids, boxes: None };
        if making.boxes {
            let extent = |j: usize, run: &Run| layout.extent(j, run);
            layout.boxes = Some(Boxes::new(layout.len(), layout.dim(), extent)?);
        }
        Ok((layout, starts))
    }

    pub(crate) fn len(&self) -> usize {
        self.points.len()
    }

    pub(crate) fn dim(&self) -> usize {
        self.points.dimension()
    }

    /// Elements from one column to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    pub(crate) fn columns(&self) -> &Columns<T> {
        &self.columns
    }

    /// The input, which decides.
    pub(crate) fn points(&self) -> Points<'a, T> {
        self.points
    }

    /// The input rows, in index order.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids[..self.points.len()]
    }

    /// The same with the slack behind them.
    pub(crate) fn padded_ids(&self) -> &[u32] {
        &self.ids
    }

    /// The boxes of its blocks, where they were asked for.
    pub(crate) fn boxes(&self) -> Option<&Boxes<T>> {
        self.boxes.as_ref()
    }

    /// The coordinate `j` of the point at `position`, as exactly as the columns have it.
    #[inline(always)]
    pub(crate) fn coordinate(&self, j: usize, position: u32) -> f64 {
        let at = j * self.stride + position as usize;
        match &self.columns {
            Columns::Own(coords) => coords[at].to_f64(),
            Columns::Narrow { coords, origin, .. } => origin[j] + f64::from(coords[at]),
            Columns::Absent => self.points.row(self.ids[position as usize] as usize)[j].to_f64(),
        }
    }

    /// Least and greatest coordinate `j` of a run that is not empty, rounded outwards.
    #[inline(always)]
    pub(crate) fn extent(&self, j: usize, run: &Run) -> (T, T) {
        let range = j * self.stride + run.start as usize..j * self.stride + run.end as usize;
        match &self.columns {
            Columns::Own(coords) => extent(&coords[range]),
            Columns::Narrow { coords, origin, error } => {
                let (lo, hi) = extent(&coords[range]);
                let lo = origin[j] + f64::from(lo) - error;
                let hi = origin[j] + f64::from(hi) + error;
                (T::from_f64(lo), T::from_f64(hi))
            }
            Columns::Absent => unreachable!("nobody asks for extents of points without columns"),
        }
    }

    /// A box around the points of a run that is not empty.
    pub(crate) fn bound(&self, run: &Run, bound: &mut BoxOf<T>) {
        bound.clear();
        for j in 0..self.dim() {
            let (lo, hi) = self.extent(j, run);
            bound.lo.push(lo);
            bound.hi.push(hi);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let columns = match &self.columns {
            Columns::Own(coords) => size_of_val(&coords[..]),
            Columns::Narrow { coords, .. } => size_of_val(&coords[..]),
            Columns::Absent => 0,
        };
        columns + size_of_val(&self.ids[..]) + self.boxes.as_ref().map_or(0, Boxes::bytes)
    }
}

/// Least and greatest of some numbers, in lanes that do not wait for each other.
#[inline(always)]
pub(super) fn extent<L: Scalar>(numbers: &[L]) -> (L, L) {
    const LANES: usize = 4;
    let (mut lo, mut hi) = ([numbers[0]; LANES], [numbers[0]; LANES]);
    let (fours, rest) = numbers.as_chunks::<LANES>();
    for four in fours {
        for lane in 0..LANES {
            lo[lane] = least(lo[lane], four[lane]);
            hi[lane] = most(hi[lane], four[lane]);
        }
    }
    for (lane, &x) in rest.iter().enumerate() {
        lo[lane] = least(lo[lane], x);
        hi[lane] = most(hi[lane], x);
    }
    let [a, b, c, d] = lo;
    let [e, f, g, h] = hi;
    (least(least(a, b), least(c, d)), most(most(e, f), most(g, h)))
}

#[inline(always)]
fn least<L: Scalar>(a: L, b: L) -> L {
    if b < a { b } else { a }
}

#[inline(always)]
fn most<L: Scalar>(a: L, b: L) -> L {
    if b > a { b } else { a }
}

/// Points of more dimensions are gathered: their rows are long enough.
const MAX_RECORD: usize = 15;

/// Whether points are sorted by cell along with their rows, and not gathered when the order of the
/// rows is known.
pub(crate) fn moves_records(rows: &Rows, threads: usize) -> bool {
    rows.dim <= MAX_RECORD && !rows.are_few(threads)
}

/// The rows in order, and columns of converted coordinates.
fn arrange<T: Scalar, L: Scalar>(
    points: Points<'_, T>,
    order: Order<'_>,
    stride: usize,
    convert: impl Fn(usize, T) -> L + Sync,
) -> Result<Sorted<L>> {
    let (len, dim, data) = (points.len(), points.dimension(), points.as_slice());
    let (ids, starts) = match order {
        Order::Ids(ids) => (ids, Buffer::default()),
        Order::Cells(shape) => {
            let cells = shape.cells() as usize;
            let fill_cells = |first: usize, cells: &mut [u32]| {
                shape.fill_cells(&data[first * dim..], dim, cells);
            };
            let rows = Rows { len, cells, dim, width: size_of::<L>() };
            if moves_records(&rows, rayon::current_num_threads()) {
                let form = Form::Columns { stride };
                return cell_sort::sort(&rows, form, fill_cells, |first, records, width| {
                    fill_records(&data[first * dim..], dim, records, width, &convert);
                });
            }
            cell_sort::order(len, cells, fill_cells)?
        }
    };
    let coords = gather(points, &ids[..len], stride, convert)?;
    Ok(Sorted { coords, ids, starts })
}

/// Writes the converted coordinates of the first rows of `data` to the front of records.
pub(super) fn fill_records<T: Scalar, L: Scalar>(
    data: &[T],
    dim: usize,
    records: &mut [L],
    width: usize,
    convert: impl Fn(usize, T) -> L,
) {
    for j in 0..dim {
        let column = data[j..].iter().step_by(dim);
        for (record, &x) in records.chunks_exact_mut(width).zip(column) {
            record[j] = convert(j, x);
        }
    }
}

/// Columns of the converted coordinates of some rows.
fn gather<T: Scalar, L: Scalar>(
    points: Points<'_, T>,
    ids: &[u32],
    stride: usize,
    convert: impl Fn(usize, T) -> L + Sync,
) -> Result<Buffer<L>> {
    let mut coords = Buffer::faulted_in(stride * points.dimension())?;
    let tasks = column_chunks(&mut coords, stride, ids.len()).into_par_iter();
    tasks.zip(ids.par_chunks(CHUNK)).for_each(|(mut columns, ids)| {
        for (at, &id) in ids.iter().enumerate() {
            let row = points.row(id as usize);
            for (j, (column, &x)) in columns.iter_mut().zip(row).enumerate() {
                column[at] = convert(j, x);
            }
        }
    });
    Ok(coords)
}

/// Chunks of columns: one task has the same chunk of every column.
fn column_chunks<L>(coords: &mut [L], stride: usize, len: usize) -> Vec<Vec<&mut [L]>> {
    let mut tasks = Vec::new();
    tasks.resize_with(len.div_ceil(CHUNK), Vec::new);
    for column in coords.chunks_exact_mut(stride) {
        for (task, chunk) in tasks.iter_mut().zip(column[..len].chunks_mut(CHUNK)) {
            task.push(chunk);
        }
    }
    tasks
}
