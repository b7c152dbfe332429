//! The ε-grid: cells of about ε, of which only the non-empty ones are kept.
//!
//! Points are sorted by cell, the last axis fastest, so that adjacent cells along that
//! axis are one contiguous run: a *row*. The candidates of a block of queries are a
//! handful of runs, one for each row within ε.
//!
//! Why no pair is missed: `cell` is monotone (a subtraction, a product with a positive
//! number and a truncation, each monotone in floating point too), and a match `y` of `x`
//! has `x − reach ≤ y ≤ x + reach` on every axis. Rounding is monotone and `y` is
//! representable, so the rounded `x − reach` is still at most `y`. Hence the cell of `y`
//! lies between the cells of the two rounded ends.

use core::ops::ControlFlow;

use rayon::prelude::*;

use super::order::Sorted;
use super::{BoxOf, Layout, Run, push_run};
use crate::error::Result;
use crate::memory::Buffer;
use crate::metric::{Metric, Threshold};
use crate::points::Points;
use crate::scalar::Scalar;

/// A block longer along its row than this many ε is halved ...
const LONG_BLOCK: f64 = 2.0;
/// ... unless it has only this many queries left.
const SMALL_BLOCK: u32 = 4;

/// One indexed dimension of the grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Axis {
    /// The dimension of the points.
    pub(crate) dim: usize,
    /// Where cell 0 begins.
    pub(crate) origin: f64,
    /// Width of a cell.
    pub(crate) width: f64,
    /// Number of cells.
    pub(crate) cells: u64,
}

impl Axis {
    /// The cell of a coordinate; coordinates beyond the ends belong to the end cells.
    #[inline(always)]
    fn cell(&self, x: f64) -> u64 {
        (((x - self.origin) * (1.0 / self.width)) as u64).min(self.cells - 1)
    }

    /// Every coordinate of `cell` is at least this, up to `slack`.
    #[inline(always)]
    fn edge(&self, cell: u64) -> f64 {
        self.origin + cell as f64 * self.width
    }

    /// More than the rounding of `cell` and `edge` can amount to.
    fn slack(&self) -> f64 {
        (self.origin.abs() + self.cells as f64 * self.width) * 1e-14
    }
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
        self.axes
            .iter()
            .map(|axis| u128::from(axis.cells))
            .product()
    }

    fn key<T: Scalar>(&self, row: &[T]) -> u64 {
        self.axes.iter().fold(0, |key, axis| {
            key * axis.cells + axis.cell(row[axis.dim].to_f64())
        })
    }
}

/// Where the points of each cell are.
enum Table {
    /// The first position of every cell, empty ones too.
    Dense(Buffer<u32>),
    /// The non-empty cells in ascending order, and the first position of each.
    Sparse { cells: Vec<u64>, starts: Vec<u32> },
}

/// The grid over the right points, and the rows of the left ones.
pub(crate) struct Grid {
    shape: Shape,
    table: Table,
    /// The first position of each non-empty row of queries, and the end.
    rows: Vec<u32>,
}

/// The places in a sparse table where the last block's rows were found: the next
/// block's are close by.
#[derive(Debug, Default)]
pub(crate) struct Cursors(Vec<usize>);

/// Which half of the adjacent cells a block looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Every adjacent cell.
    All,
    /// UNICOMP: cells whose deciding coordinate is odd look at their even neighbours.
    Unicomp,
}

/// Sorts points by the cells of `shape`.
pub(crate) fn sort<T: Scalar>(points: Points<'_, T>, shape: &Shape) -> Sorted {
    let (data, dim) = (points.as_slice(), points.dimension());
    Sorted::by_key(points.len(), |row| shape.key(&data[row * dim..][..dim]))
}

impl Grid {
    /// Tabulates the cells of the sorted right points and the rows of the queries.
    pub(crate) fn new(shape: Shape, right: &Sorted, queries: &Sorted) -> Result<Self> {
        let cells = shape.cells();
        let dense = cells <= (2 * right.len() as u128).max(1 << 12);
        let table = if dense {
            Self::dense(cells as usize, right)?
        } else {
            Self::sparse(right)
        };
        let along = shape.axes.last().map_or(1, |axis| axis.cells);
        let mut rows = firsts(queries, |key| key / along);
        rows.push(queries.len() as u32);
        Ok(Grid { shape, table, rows })
    }

    fn dense(cells: usize, sorted: &Sorted) -> Result<Table> {
        const CHUNK: usize = 1 << 14;
        let mut starts = Buffer::<u32>::zeroed(cells + 1)?;
        starts
            .par_chunks_mut(CHUNK)
            .enumerate()
            .for_each(|(chunk, starts)| {
                let first = chunk * CHUNK;
                let mut position = sorted.position(first as u64);
                for (at, start) in starts.iter_mut().enumerate() {
                    while position < sorted.len() && sorted.key(position) < (first + at) as u64 {
                        position += 1;
                    }
                    *start = position as u32;
                }
            });
        Ok(Table::Dense(starts))
    }

    fn sparse(sorted: &Sorted) -> Table {
        let mut starts = firsts(sorted, |key| key);
        let cells = starts
            .iter()
            .map(|&start| sorted.key(start as usize))
            .collect();
        starts.push(sorted.len() as u32);
        Table::Sparse { cells, starts }
    }

    /// Cuts `unit` into blocks of at most `most` queries, each of one row, or of one
    /// cell where `one_cell`; none much longer along the row than `reach`.
    pub(crate) fn blocks<T: Scalar>(
        &self,
        queries: &Layout<T>,
        unit: Run,
        most: u32,
        reach: f64,
        one_cell: bool,
        mut visit: impl FnMut(Run) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(along) = self.shape.axes.last() else {
            return ControlFlow::Continue(());
        };
        let column = queries.column(along.dim);
        let x = |position: u32| column[position as usize].to_f64();
        let mut row = self.rows.partition_point(|&first| first <= unit.start);
        let mut start = unit.start;
        while start < unit.end {
            let end = self.rows[row].min(unit.end);
            if start == end {
                row += 1;
                continue;
            }
            // Even blocks: a row of 17 is 9 and 8, not 16 and 1.
            let left = end - start;
            let mut size = left.div_ceil(left.div_ceil(most));
            if one_cell {
                let cell = along.cell(x(start));
                size = (1..size)
                    .find(|&n| along.cell(x(start + n)) != cell)
                    .unwrap_or(size);
            } else {
                while size > SMALL_BLOCK && x(start + size - 1) - x(start) > LONG_BLOCK * reach {
                    size = size.div_ceil(2);
                }
            }
            visit(start..start + size)?;
            start += size;
        }
        ControlFlow::Continue(())
    }

    /// The runs of candidates of a block of queries, all of one row and, for UNICOMP,
    /// of one cell. UNICOMP leaves out the part of that cell up to the block's end.
    pub(crate) fn runs<T: Scalar>(
        &self,
        threshold: &Threshold<T>,
        block: &Run,
        query: &BoxOf<T>,
        pattern: Pattern,
        cursors: &mut Cursors,
        runs: &mut Vec<Run>,
    ) {
        let (_, limit) = threshold.band(query.lo.len());
        let mut search = Search {
            grid: self,
            threshold,
            limit,
            query,
            pattern,
            cursors,
            block,
            runs,
            row: 0,
        };
        search.slow_axis(0, 0, 0.0, pattern == Pattern::All);
    }

    /// The positions of the cells `first..=last`, which lie in one row.
    fn lookup(&self, first: u64, last: u64, cursor: &mut usize) -> Run {
        match &self.table {
            Table::Dense(starts) => starts[first as usize]..starts[last as usize + 1],
            Table::Sparse { cells, starts } => {
                let begin = gallop(cells, *cursor, first);
                let mut end = begin;
                while end < cells.len() && cells[end] <= last {
                    end += 1;
                }
                *cursor = begin;
                starts[begin]..starts[end]
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let table = match &self.table {
            Table::Dense(starts) => size_of_val(&starts[..]),
            Table::Sparse { cells, starts } => size_of_val(&cells[..]) + size_of_val(&starts[..]),
        };
        table + size_of_val(&self.rows[..])
    }
}

/// One block's walk over the rows within reach.
struct Search<'a, T> {
    grid: &'a Grid,
    threshold: &'a Threshold<T>,
    /// A row whose least distance accumulates to more holds no match.
    limit: f64,
    query: &'a BoxOf<T>,
    pattern: Pattern,
    block: &'a Run,
    cursors: &'a mut Cursors,
    runs: &'a mut Vec<Run>,
    /// Rows looked up so far: the number of the cursor.
    row: usize,
}

impl<T: Scalar> Search<'_, T> {
    /// Walks the cells of slow axis `a` within reach. `acc` is the least distance of the
    /// row so far; `decided` says that UNICOMP has given the pair of rows to this block.
    fn slow_axis(&mut self, a: usize, key: u64, acc: f64, decided: bool) {
        let axes = &self.grid.shape.axes;
        if a + 1 == axes.len() {
            return self.row(key, acc, decided);
        }
        let axis = axes[a];
        let (lo, hi) = (
            self.query.lo[axis.dim].to_f64(),
            self.query.hi[axis.dim].to_f64(),
        );
        let reach = self.threshold.reach;
        let own = axis.cell(lo);
        let slack = axis.slack();
        for cell in axis.cell(lo - reach)..=axis.cell(hi + reach) {
            let mut decided = decided;
            if !decided && cell != own {
                if own % 2 == 0 {
                    continue;
                }
                decided = true;
            }
            // The end cells reach beyond their edges, but only outwards: the edge
            // that faces the block is a true one.
            let gap = if cell > own {
                axis.edge(cell) - hi - slack
            } else if cell < own {
                lo - axis.edge(cell + 1) - slack
            } else {
                0.0
            };
            let acc = self.threshold.widen(acc, gap.max(0.0));
            if acc <= self.limit {
                self.slow_axis(a + 1, key * axis.cells + cell, acc, decided);
            }
        }
    }

    /// Appends the run of one row, as far along as a match can be.
    fn row(&mut self, key: u64, acc: f64, decided: bool) {
        let axis = self.grid.shape.axes[self.grid.shape.axes.len() - 1];
        let (lo, hi) = (
            self.query.lo[axis.dim].to_f64(),
            self.query.hi[axis.dim].to_f64(),
        );
        let mut reach = self.threshold.reach;
        if acc > 0.0 {
            // What the other axes leave of ε. `limit` has the rounding in it.
            let left = match self.threshold.metric {
                Metric::L2 => (self.limit - acc).sqrt() * (1.0 + 1e-15),
                Metric::L1 => self.limit - acc,
                Metric::Linf => reach,
            };
            reach = reach.min(left);
        }
        let base = key * axis.cells;
        let (first, last) = (axis.cell(lo - reach), axis.cell(hi + reach));
        if self.cursors.0.len() <= self.row + 1 {
            self.cursors.0.resize(self.row + 2, 0);
        }
        let mut look = |cells: core::ops::RangeInclusive<u64>| {
            let cursor = &mut self.cursors.0[self.row];
            self.grid
                .lookup(base + cells.start(), base + cells.end(), cursor)
        };
        if decided {
            let run = look(first..=last);
            push_run(self.runs, run);
        } else {
            let own = axis.cell(lo);
            let cell = look(own..=own);
            push_run(self.runs, self.block.end..cell.end);
            if own % 2 == 1 {
                if first < own {
                    let before = look(own - 1..=own - 1);
                    push_run(self.runs, before);
                }
                if last > own {
                    let after = look(own + 1..=own + 1);
                    push_run(self.runs, after);
                }
            }
        }
        self.row += 1;
    }
}

/// The first index from which `cells` are at least `key`, searched outwards from `from`
/// in steps that double.
fn gallop(cells: &[u64], from: usize, key: u64) -> usize {
    let from = from.min(cells.len());
    let mut step = 1;
    if from == cells.len() || cells[from] >= key {
        let mut hi = from;
        while hi >= step && cells[hi - step] >= key {
            hi -= step;
            step *= 2;
        }
        let lo = hi.saturating_sub(step);
        lo + cells[lo..hi].partition_point(|&cell| cell < key)
    } else {
        let mut lo = from;
        while lo + step < cells.len() && cells[lo + step] < key {
            lo += step;
            step *= 2;
        }
        let hi = (lo + step).min(cells.len());
        lo + cells[lo..hi].partition_point(|&cell| cell < key)
    }
}

/// The positions at which `group` of the key changes.
fn firsts(sorted: &Sorted, group: impl Fn(u64) -> u64 + Sync) -> Vec<u32> {
    (0..sorted.len())
        .into_par_iter()
        .with_min_len(1 << 15)
        .filter(|&at| at == 0 || group(sorted.key(at)) != group(sorted.key(at - 1)))
        .map(|at| at as u32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn galloping_finds_what_a_search_finds() {
        let cells: Vec<u64> = (0..200)
            .map(|i| i * i % 977 + 3 * i)
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect();
        for from in 0..=cells.len() {
            for key in 0..1600 {
                assert_eq!(
                    gallop(&cells, from, key),
                    cells.partition_point(|&c| c < key)
                );
            }
        }
    }
}
