//! A uniform grid for the KNN-join: cells of about sixteen points, looked at ring after ring.
//!
//! Points are sorted by cell, the last axis fastest, so that adjacent cells of a row are one
//! contiguous run. Every other row runs backwards: sixteen points that turn from one row into
//! the next are then as close together as any others.
//!
//! ```text
//! row 0:  → → → →
//! row 1:  ← ← ← ←      a window of cells is a run for each of its rows
//! row 2:  → → → →
//! ```
//!
//! Why nothing beyond a window is nearer than it seems: `Axis::cell` is monotone, so a point in
//! a later slice of cells than a query has the larger coordinate, and none in the slices from
//! some one on has a smaller coordinate than the least among them. That least one is kept, as
//! it stands in the input: no edge of a cell is ever computed, and nothing is rounded.

use rayon::prelude::*;

use super::cell_sort::{self, Form, Rows, Sorted};
use super::grid::{Axis, Shape};
use super::layout::{fill_records, moves_records};
use super::leaves::Leaves;
use super::{BoxOf, Run};
use crate::error::Result;
use crate::memory::{Buffer, check_room};
use crate::points::Points;
use crate::scalar::Scalar;

/// Dimensions that are indexed: those in which the points spread most.
pub(crate) const AXES: usize = 3;
/// Points in a cell, on average.
pub(crate) const PER_CELL: usize = 16;
/// Parts of the points that are looked at side by side for the coordinates of the slices: so many,
/// and more where that takes no more room than it may, with one slice for every cell.
const PARTS: usize = 8;
const MOST_PARTS: usize = 64;

/// A grid over the right points. It has [`AXES`] axes, the last along the rows; those that
/// there are not, or in which the points do not spread, come first and have one cell.
pub(crate) struct Rings<T> {
    slices: [Slices<T>; AXES],
    /// The first position of every cell, and the end.
    starts: Buffer<u32>,
}

/// The slices of cells along one axis.
struct Slices<T> {
    axis: Axis,
    /// The greatest coordinate of all points in the slices up to each.
    below: Vec<T>,
    /// The least coordinate of all points in the slices from each on.
    above: Vec<T>,
}

/// A box of cells: its first and last slice on every axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) first: [u32; AXES],
    pub(crate) last: [u32; AXES],
}

impl Window {
    /// Whether it has cells of a row.
    pub(crate) fn has_row(&self, slow: [u32; AXES - 1]) -> bool {
        (0..AXES - 1).all(|axis| (self.first[axis]..=self.last[axis]).contains(&slow[axis]))
    }
}

impl<T: Scalar> Rings<T> {
    /// A grid over points with these extents, and the points in its order.
    pub(crate) fn new(points: Points<'_, T>, extents: &[(f64, f64)]) -> Result<(Self, Leaves<T>)> {
        let shape = shape(points.len(), extents);
        let (leaves, starts) = sort_by(points, &shape)?;
        let mut axes = [Axis::new(0, 0.0, 1.0, 1); AXES];
        axes[AXES - shape.axes.len()..].copy_from_slice(&shape.axes);
        let [a, b, c] = axes.map(|axis| Slices::new(points, axis));
        Ok((Rings { slices: [a?, b?, c?], starts }, leaves))
    }

    /// The cells that a box lies in. What is beyond the grid belongs to the cells at its end.
    pub(crate) fn window(&self, bound: &BoxOf<T>) -> Window {
        let cells = |at: &[T]| {
            core::array::from_fn(|axis| {
                let axis = &self.slices[axis].axis;
                axis.cell(at[axis.dim].to_f64()) as u32
            })
        };
        Window { first: cells(&bound.lo), last: cells(&bound.hi) }
    }

    /// The slices along an axis.
    pub(crate) fn count(&self, axis: usize) -> u32 {
        self.slices[axis].axis.cells as u32
    }

    /// On one axis, a coordinate of a box and one of points beyond it that do not differ more
    /// than any others: the points are those of `slice` and of all slices farther away. None
    /// where the box lies in the slice; `own` is the window of the box.
    pub(crate) fn apart(
        &self,
        axis: usize,
        slice: u32,
        own: &Window,
        bound: &BoxOf<T>,
    ) -> Option<(T, T)> {
        let Slices { axis: Axis { dim, .. }, below, above } = &self.slices[axis];
        if slice < own.first[axis] {
            Some((bound.lo[*dim], below[slice as usize]))
        } else if slice > own.last[axis] {
            Some((above[slice as usize], bound.hi[*dim]))
        } else {
            None
        }
    }

    /// The positions of the points in some adjacent cells of a row.
    pub(crate) fn run(&self, slow: [u32; AXES - 1], first: u32, last: u32) -> Run {
        let row = slow[0] as usize * self.count(1) as usize + slow[1] as usize;
        let along = self.count(AXES - 1) as usize;
        let ends = [first, last].map(|at| row * along + turn(row, at as usize, along));
        self.starts[ends[0].min(ends[1])]..self.starts[ends[0].max(ends[1]) + 1]
    }

    /// The position of a point near a box, if there are points at all.
    pub(crate) fn near(&self, bound: &BoxOf<T>) -> usize {
        let [slow @ .., at] = self.window(bound).first;
        let points = self.starts[self.starts.len() - 1] as usize;
        (self.run(slow, at, at).start as usize).min(points.saturating_sub(1))
    }

    pub(crate) fn bytes(&self) -> usize {
        let slices = self.slices.iter().map(|s| size_of_val(&s.below[..]) * 2);
        slices.sum::<usize>() + size_of_val(&self.starts[..])
    }
}

impl<T: Scalar> Slices<T> {
    fn new(points: Points<'_, T>, axis: Axis) -> Result<Self> {
        let count = axis.cells as usize;
        if count == 1 {
            // Nothing lies beyond a single slice.
            return Ok(Slices { axis, below: Vec::new(), above: Vec::new() });
        }
        // Those of every part, and of all.
        let room = PARTS * (points.len() / PER_CELL) / count;
        let parts = room.clamp(PARTS, MOST_PARTS).min(4 * rayon::current_num_threads());
        check_room::<(T, T)>((parts + 1) * count)?;
        let none = || vec![(T::INFINITY, T::NEG_INFINITY); count];
        let join = |slice: &mut (T, T), (lo, hi): (T, T)| {
            slice.0 = if lo < slice.0 { lo } else { slice.0 };
            slice.1 = if hi > slice.1 { hi } else { slice.1 };
        };
        let dim = points.dimension();
        let part = points.len().div_ceil(parts).max(1);
        let slices = points
            .as_slice()
            .par_chunks(part * dim)
            .map(|rows| {
                let mut slices = none();
                for &x in rows[axis.dim..].iter().step_by(dim) {
                    join(&mut slices[axis.cell(x.to_f64()) as usize], (x, x));
                }
                slices
            })
            .reduce_with(|mut all, part| {
                all.iter_mut().zip(part).for_each(|(slice, extent)| join(slice, extent));
                all
            })
            .unwrap_or_else(none);
        let (mut below, mut above) = (vec![T::ZERO; count], vec![T::ZERO; count]);
        let mut reach = (T::INFINITY, T::NEG_INFINITY);
        for (below, &slice) in below.iter_mut().zip(&slices) {
            join(&mut reach, slice);
            *below = reach.1;
        }
        reach = (T::INFINITY, T::NEG_INFINITY);
        for (above, &slice) in above.iter_mut().zip(&slices).rev() {
            join(&mut reach, slice);
            *above = reach.0;
        }
        Ok(Slices { axis, below, above })
    }
}

/// The points in the order of a grid over them.
pub(crate) fn leaves<T: Scalar>(
    points: Points<'_, T>,
    extents: &[(f64, f64)],
) -> Result<Leaves<T>> {
    sort_by(points, &shape(points.len(), extents)).map(|(leaves, _)| leaves)
}

/// Bytes that finding the order of a grid takes beside the points in order and where cells begin.
pub(crate) fn order_bytes(points: usize, dim: usize, width: usize, threads: usize) -> usize {
    let rows = Rows { len: points, cells: points / PER_CELL, dim, width };
    match moves_records(&rows, threads) {
        // Of two sets, one may be few.
        true => rows.sort_bytes(threads).max(rows.order_bytes(threads)),
        false => rows.order_bytes(threads),
    }
}

/// The points in the order of the cells, and where each cell begins.
fn sort_by<T: Scalar>(points: Points<'_, T>, shape: &Shape) -> Result<(Leaves<T>, Buffer<u32>)> {
    let (data, dim) = (points.as_slice(), points.dimension());
    let along = shape.along() as usize;
    let fill_cells = |first: usize, cells: &mut [u32]| {
        shape.fill_cells(&data[first * dim..], dim, cells);
        for cell in cells {
            let (row, at) = (*cell as usize / along, *cell as usize % along);
            *cell = (row * along + turn(row, at, along)) as u32;
        }
    };
    let cells = shape.cells() as usize;
    let rows = Rows { len: points.len(), cells, dim, width: size_of::<T>() };
    if moves_records(&rows, rayon::current_num_threads()) {
        let fill = |first: usize, records: &mut [T], width: usize| {
            fill_records(&data[first * dim..], dim, records, width, |_, x| x);
        };
        let Sorted { coords, ids, starts } =
            cell_sort::sort(&rows, Form::Leaves, fill_cells, fill)?;
        return Ok((Leaves::of(points, coords, ids)?, starts));
    }
    let (ids, starts) = cell_sort::order(points.len(), cells, fill_cells)?;
    Ok((Leaves::new(points, ids)?, starts))
}

/// Where in the order of a row of cells one of them stands; and the other way round.
fn turn(row: usize, at: usize, along: usize) -> usize {
    if row.is_multiple_of(2) { at } else { along - 1 - at }
}

/// Cells of [`PER_CELL`] points, were they spread evenly: about as long as wide, over the
/// dimensions in which they spread at least that far.
fn shape(len: usize, extents: &[(f64, f64)]) -> Shape {
    let cells = (len / PER_CELL) as f64;
    // Halved, so that no extent overflows.
    let half = |dim: usize| extents[dim].1 / 2.0 - extents[dim].0 / 2.0;
    let mut dims: Vec<usize> = (0..extents.len()).filter(|&dim| half(dim) > 0.0).collect();
    dims.sort_by(|&a, &b| half(b).total_cmp(&half(a)).then(a.cmp(&b)));
    dims.truncate(if cells < 2.0 { 0 } else { AXES });
    // The logarithm of half a side of a cell: volumes may be beyond any number.
    let mut side = 0.0;
    while let Some(&last) = dims.last() {
        let volume: f64 = dims.iter().map(|&dim| half(dim).ln()).sum();
        side = (volume - cells.ln()) / dims.len() as f64;
        if half(last).ln() > side {
            break;
        }
        dims.pop();
    }
    let axis = |&dim: &usize| {
        // No cell less for a rounding.
        let count = ((half(dim).ln() - side).exp() + 1e-6).floor().max(1.0);
        Axis::new(dim, extents[dim].0, half(dim) / count * 2.0, count as u64)
    };
    // The widest along the rows: few rows are long runs.
    Shape { axes: dims.iter().rev().map(axis).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::extents;

    fn scattered(len: usize, scale: &[f64]) -> Vec<f64> {
        let dim = scale.len();
        let number = |i: usize| ((i * 7919 + i * i * 31) % 10_007) as f64 / 10_007.0;
        (0..len * dim).map(|i| number(i) * scale[i % dim]).collect()
    }

    fn counts(len: usize, scale: &[f64]) -> Vec<(usize, u64)> {
        let extents: Vec<_> = scale.iter().map(|&scale| (0.0, scale)).collect();
        shape(len, &extents).axes.iter().map(|axis| (axis.dim, axis.cells)).collect()
    }

    #[test]
    fn cells_are_about_cubic_and_as_many_as_wanted() {
        assert_eq!(counts(1600, &[5.0]), [(0, 100)]);
        assert_eq!(counts(1600, &[1.0, 4.0]), [(0, 5), (1, 20)]);
        assert_eq!(counts(16_000, &[3.0, 3.0, 3.0]), [(2, 10), (1, 10), (0, 10)]);
        assert_eq!(counts(16_000, &[1.0, 9.0, 0.0, 9.0, 9.0]), [(4, 10), (3, 10), (1, 10)]);
        // Flat, without extent, or too few.
        assert_eq!(counts(1600, &[1e-9, 1.0]), [(1, 100)]);
        assert_eq!(counts(1600, &[0.0, 0.0]), []);
        assert_eq!(counts(31, &[1.0, 1.0]), []);
        let far = shape(1600, &[(-1.7e308, 1.7e308), (-1.7e308, 1.7e308)]);
        assert_eq!(far.axes.iter().map(|axis| axis.cells).collect::<Vec<_>>(), [10, 10]);
        assert_eq!(shape(0, &[(f64::INFINITY, f64::NEG_INFINITY)]).axes, []);
    }

    #[test]
    fn every_window_has_its_points_and_those_beyond_are_beyond() {
        for (len, scale) in [
            (1000, &[1.0][..]),
            (1000, &[7.0, 1.0]),
            (3000, &[1.0, 2.0, 3.0]),
            (900, &[1.0, 1.0, 0.0, 1.0, 1.0]),
            (20, &[1.0, 1.0]),
        ] {
            let data = scattered(len, scale);
            let points = Points::new(&data, scale.len()).unwrap();
            let (rings, leaves) = Rings::new(points, &extents(points)).unwrap();
            let ids = leaves.ids();
            let mut rows = ids.to_vec();
            rows.sort_unstable();
            assert_eq!(rows, (0..len as u32).collect::<Vec<_>>());
            let counts: [u32; AXES] = core::array::from_fn(|axis| rings.count(axis));
            for (a, b) in [(0, 1), (5, 19), (2, 2), (7, 11)] {
                let row = |at: usize| points.row(at).to_vec();
                let lo = row(a).iter().zip(row(b)).map(|(&a, b)| a.min(b)).collect();
                let hi = row(a).iter().zip(row(b)).map(|(&a, b)| a.max(b)).collect();
                let bound = BoxOf { lo, hi };
                let own = rings.window(&bound);
                assert!((0..AXES).all(|axis| own.last[axis] < counts[axis]));
                let mut inside = Vec::new();
                for x in own.first[0]..=own.last[0] {
                    for y in own.first[1]..=own.last[1] {
                        let run = rings.run([x, y], own.first[2], own.last[2]);
                        inside.extend_from_slice(&ids[run.start as usize..run.end as usize]);
                    }
                }
                let cell = |row: u32| {
                    let point = points.row(row as usize).to_vec();
                    rings.window(&BoxOf { lo: point.clone(), hi: point }).first
                };
                let is_in = |cell: [u32; AXES]| {
                    (0..AXES).all(|axis| (own.first[axis]..=own.last[axis]).contains(&cell[axis]))
                };
                inside.sort_unstable();
                let expected: Vec<u32> = (0..len as u32).filter(|&row| is_in(cell(row))).collect();
                assert_eq!(inside, expected);
                for (axis, count) in counts.into_iter().enumerate() {
                    let dim = rings.slices[axis].axis.dim;
                    let x = |row: u32| points.row(row as usize)[dim];
                    for slice in 0..count {
                        let beyond = |row: &u32| match slice < own.first[axis] {
                            true => cell(*row)[axis] <= slice,
                            false => cell(*row)[axis] >= slice,
                        };
                        let beyond: Vec<u32> = (0..len as u32).filter(beyond).collect();
                        match rings.apart(axis, slice, &own, &bound) {
                            None => assert!(slice >= own.first[axis] && slice <= own.last[axis]),
                            Some((a, b)) if slice < own.first[axis] => {
                                assert!(a == bound.lo[dim] && a > b);
                                assert_eq!(b, beyond.iter().map(|&r| x(r)).fold(-1.0, f64::max));
                            }
                            Some((a, b)) => {
                                assert!(b == bound.hi[dim] && a > b);
                                assert_eq!(a, beyond.iter().map(|&r| x(r)).fold(9e9, f64::min));
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn no_points_are_one_empty_cell() {
        let points = Points::<f32>::new(&[], 2).unwrap();
        let (rings, _) = Rings::new(points, &extents(points)).unwrap();
        assert_eq!(rings.run([0, 0], 0, 0), 0..0);
    }
}
