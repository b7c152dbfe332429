//! The cells of a grid: which one a coordinate is in, axis by axis.

use crate::scalar::Scalar;

/// One indexed dimension of the grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Axis {
    /// The dimension of the points.
    pub(crate) dim: usize,
    /// Width of a cell.
    pub(crate) width: f64,
    /// Number of cells.
    pub(crate) cells: u64,
    /// Where cell 0 begins.
    pub(super) origin: f64,
    pub(super) per_unit: f64,
    /// More than the rounding of `cell` and `edge` can amount to.
    pub(super) slack: f64,
}

impl Axis {
    pub(crate) fn new(dim: usize, origin: f64, width: f64, cells: u64) -> Self {
        let slack = (origin.abs() + cells as f64 * width) * 1e-14;
        Axis { dim, width, cells, origin, per_unit: 1.0 / width, slack }
    }

    /// Words of an axis as a device knows it.
    pub(crate) const WORDS: usize = 6;

    /// As `Axis` of `grid.cuh`.
    pub(crate) fn to_words(self) -> [u64; Axis::WORDS] {
        let [origin, per_unit, width, slack] =
            [self.origin, self.per_unit, self.width, self.slack].map(f64::to_bits);
        [origin, per_unit, width, slack, self.cells, self.dim as u64]
    }

    /// The cell of a coordinate; coordinates beyond the ends belong to the end cells.
    #[inline(always)]
    pub(super) fn cell(&self, x: f64) -> u64 {
        let place = (x - self.origin) * self.per_unit;
        place.clamp(0.0, (self.cells - 1) as f64) as i64 as u64
    }

    /// Adds the cells of the first rows of `data` along this axis to their cells along the axes
    /// before. A row has `D` coordinates; 0 is any number.
    fn add_cells<T: Scalar, const D: usize>(&self, data: &[T], dim: usize, cells: &mut [u32]) {
        let dim = if D == 0 { dim } else { D };
        let (along, last) = (self.cells as u32, (self.cells - 1) as f64);
        for (cell, row) in cells.iter_mut().zip(data.chunks_exact(dim)) {
            let place = (row[self.dim].to_f64() - self.origin) * self.per_unit;
            // As `cell`: not a number where 0 meets ∞, and then cell 0.
            let place = if place > 0.0 { place } else { 0.0 };
            let place = if place < last { place } else { last };
            *cell = cell.wrapping_mul(along).wrapping_add(whole(place));
        }
    }

    /// Every coordinate of `cell` is at least this, up to `slack`.
    #[inline(always)]
    pub(super) fn edge(&self, cell: u64) -> f64 {
        self.origin + cell as f64 * self.width
    }
}

/// The whole part of a number from 0 to below 2³², as a cast has it. Every set of vector
/// instructions can do this; casts of the language check the range, one number at a time.
#[inline(always)]
fn whole(x: f64) -> u32 {
    // From here on numbers are whole, and their lowest bits count.
    const WHOLE: f64 = (1u64 << 52) as f64;
    let nearest = x + WHOLE;
    (nearest.to_bits() as u32).wrapping_sub(u32::from(nearest - WHOLE > x))
}

/// The shape of a grid, decided by the plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    /// Slowest first; the last one runs along the rows.
    pub(crate) axes: Vec<Axis>,
}

impl Shape {
    /// All cells, empty or not.
    pub(crate) fn cells(&self) -> u128 {
        self.axes.iter().map(|axis| u128::from(axis.cells)).product()
    }

    /// Cells of a row of them.
    pub(super) fn along(&self) -> u64 {
        self.axes.last().map_or(1, |axis| axis.cells)
    }

    /// The cells of the first rows of `data`, axis by axis: short loops that vectorise.
    pub(super) fn fill_cells<T: Scalar>(&self, data: &[T], dim: usize, cells: &mut [u32]) {
        cells.fill(0);
        for axis in &self.axes {
            // A step that is known when this is compiled takes half the time.
            match dim {
                1 => axis.add_cells::<T, 1>(data, dim, cells),
                2 => axis.add_cells::<T, 2>(data, dim, cells),
                3 => axis.add_cells::<T, 3>(data, dim, cells),
                _ => axis.add_cells::<T, 0>(data, dim, cells),
            }
        }
    }

    /// The number of the cell of a point.
    pub(crate) fn key<T: Scalar>(&self, row: &[T]) -> u64 {
        self.axes.iter().fold(0, |key, axis| key * axis.cells + axis.cell(row[axis.dim].to_f64()))
    }
}
