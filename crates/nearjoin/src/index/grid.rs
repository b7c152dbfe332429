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

use core::cmp::Ordering;
use core::ops::ControlFlow;

use rayon::prelude::*;

use super::layout::Making;
use super::order::Sorted;
use super::{BoxOf, Layout, Run, push_run};
use crate::error::Result;
use crate::memory::{Buffer, check_room, with_capacity};
use crate::metric::{Metric, Threshold};
use crate::points::Points;
use crate::scalar::Scalar;

/// A table of all cells, empty ones too, is kept up to this many cells per point.
pub(crate) const DENSE: u128 = 2;
/// A block longer along its row than this many ε is halved ...
const LONG_BLOCK: f64 = 4.0;
/// ... unless it has only this many queries left.
const SMALL_BLOCK: u32 = 4;

pub(crate) use super::cells::{Axis, Shape};

/// Where the points of each cell are.
enum Table {
    /// The first position of every cell, empty ones too.
    Dense(Buffer<u32>),
    /// The non-empty cells in ascending order, and the first position of each.
    Sparse { cells: Vec<u64>, starts: Vec<u32> },
}

/// The grid over the right points.
pub(crate) struct Grid {
    shape: Shape,
    table: Table,
}

/// What a search keeps from block to block.
#[derive(Debug)]
pub(crate) struct Finder {
    /// A row whose least distance accumulates to more than this holds no match.
    limit: f64,
    windows: Vec<Window>,
    /// The least distance of each cell of each window from the block.
    gaps: Vec<f64>,
    /// The places in a sparse table where the last block's rows were found: the next
    /// block's are close by.
    cursors: Vec<usize>,
}

/// Which half of the adjacent cells a block looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Every adjacent cell.
    All,
    /// UNICOMP: cells whose deciding coordinate is odd look at their even neighbours.
    Unicomp,
}

impl Shape {
    /// Whether the grid of so many points has a table of all its cells.
    pub(crate) fn is_dense(&self, points: usize) -> bool {
        self.cells() <= (DENSE * points as u128).max(1 << 12)
    }
}

/// Points sorted by cell.
pub(crate) struct Side<'a, T> {
    pub(crate) layout: Layout<'a, T>,
    table: Table,
    /// The first position of each non-empty row of cells, and the end.
    pub(crate) rows: Vec<u32>,
}

impl<'a, T: Scalar> Side<'a, T> {
    /// Sorts points by the cells of `shape`.
    pub(crate) fn new(points: Points<'a, T>, shape: &Shape, making: Making<'_>) -> Result<Self> {
        match shape.is_dense(points.len()) {
            true => Self::dense(points, shape, making),
            false => Self::sparse(points, shape, making),
        }
    }

    fn dense(points: Points<'a, T>, shape: &Shape, making: Making<'_>) -> Result<Self> {
        let (layout, starts) = Layout::by_cell(points, shape, making)?;
        let along = shape.along() as usize;
        let cells = starts.len() - 1;
        let first_of_row = starts[..cells].iter().step_by(along);
        let mut rows: Vec<u32> = with_capacity(first_of_row.len() + 1)?;
        rows.extend(first_of_row);
        rows.push(points.len() as u32);
        rows.dedup();
        Ok(Side { layout, table: Table::Dense(starts), rows })
    }

    fn sparse(points: Points<'a, T>, shape: &Shape, making: Making<'_>) -> Result<Self> {
        let (len, along) = (points.len(), shape.along());
        let sorted = Sorted::by_key(len, |row| shape.key(points.row(row)))?;
        let mut rows = firsts(&sorted, |key| key / along)?;
        rows.push(len as u32);
        let mut starts = firsts(&sorted, |key| key)?;
        let mut cells = with_capacity(starts.len())?;
        let keys = starts.par_iter().with_min_len(1 << 13).map(|&start| sorted.key(start as usize));
        keys.collect_into_vec(&mut cells);
        starts.push(len as u32);
        let ids = sorted.ids()?;
        drop(sorted);
        let layout = Layout::new(points, ids, making)?;
        Ok(Side { layout, table: Table::Sparse { cells, starts }, rows })
    }

    /// What finds these points.
    pub(crate) fn into_grid(self, shape: Shape) -> (Grid, Layout<'a, T>, Vec<u32>) {
        (Grid { shape, table: self.table }, self.layout, self.rows)
    }
}

impl Grid {
    /// Cuts `unit` into blocks of at most `most` queries, each of one row, or of one
    /// cell where `one_cell`; none much longer along the row than `reach`. `rows` are the rows of
    /// cells of the queries: the first position of each, and the end.
    pub(crate) fn blocks<T: Scalar>(
        &self,
        (queries, rows): (&Layout<'_, T>, &[u32]),
        unit: Run,
        most: u32,
        reach: f64,
        one_cell: bool,
        mut visit: impl FnMut(Run) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(along) = self.shape.axes.last() else {
            return ControlFlow::Continue(());
        };
        let x = |position: u32| queries.coordinate(along.dim, position);

        let mut row = rows.partition_point(|&first| first <= unit.start);
        let mut start = unit.start;
        while start < unit.end {
            let end = rows[row].min(unit.end);
            if start == end {
                row += 1;
                continue;
            }
            // Even blocks: a row of 17 is 9 and 8, not 16 and 1.
            let left = end - start;
            let mut size = left.div_ceil(left.div_ceil(most));
            if one_cell {
                let cell = along.cell(x(start));
                size = (1..size).find(|&n| along.cell(x(start + n)) != cell).unwrap_or(size);
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
        finder: &mut Finder,
        runs: &mut Vec<Run>,
    ) {
        let Some((along, slow)) = self.shape.axes.split_last() else { return };
        let limit = finder.limit;
        let reach = threshold.reach;
        finder.begin(threshold, slow, query);
        let (lo, hi) = (query.lo[along.dim].to_f64(), query.hi[along.dim].to_f64());
        let mut search = Search {
            grid: self,
            finder,
            metric: threshold.metric,
            limit,
            along: *along,
            lo,
            hi,
            first: along.cell(lo - reach),
            last: along.cell(hi + reach),
            block,
            runs,
            row: 0,
        };
        if slow.is_empty() {
            search.row(0, 0.0, pattern == Pattern::All);
        } else {
            search.slow_axis(0, 0, 0.0, pattern == Pattern::All);
        }
    }

    /// The positions of the cells `first..=last`, which lie in one row.
    #[inline(always)]
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
        match &self.table {
            Table::Dense(starts) => size_of_val(&starts[..]),
            Table::Sparse { cells, starts } => size_of_val(&cells[..]) + size_of_val(&starts[..]),
        }
    }
}

/// The cells of one slow axis within reach of a block.
#[derive(Clone, Copy, Debug)]
struct Window {
    cells: u64,
    /// The block's own cell.
    own: u64,
    first: u64,
    /// Where the windows' gaps begin and end in [`Finder::gaps`].
    gaps: (usize, usize),
}

impl Finder {
    pub(crate) fn new<T: Scalar>(threshold: &Threshold<T>, dim: usize) -> Self {
        let (_, limit) = threshold.band(dim);
        Finder { limit, windows: Vec::new(), gaps: Vec::new(), cursors: Vec::new() }
    }

    /// Finds the cells within reach of a block on every slow axis, with the least
    /// distance of each.
    fn begin<T: Scalar>(&mut self, threshold: &Threshold<T>, slow: &[Axis], query: &BoxOf<T>) {
        self.windows.clear();
        self.gaps.clear();
        for axis in slow {
            let (lo, hi) = (query.lo[axis.dim].to_f64(), query.hi[axis.dim].to_f64());
            let own = axis.cell(lo);
            let first = axis.cell(lo - threshold.reach);
            let last = axis.cell(hi + threshold.reach);
            let start = self.gaps.len();
            for cell in first..=last {
                // The end cells reach beyond their edges, but only outwards: the edge
                // that faces the block is a true one.
                let gap = match cell.cmp(&own) {
                    Ordering::Less => lo - axis.edge(cell + 1) - axis.slack,
                    Ordering::Equal => 0.0,
                    Ordering::Greater => axis.edge(cell) - hi - axis.slack,
                };
                self.gaps.push(gap.max(0.0));
            }
            let gaps = (start, self.gaps.len());
            self.windows.push(Window { cells: axis.cells, own, first, gaps });
        }
    }
}

/// One block's walk over the rows within reach.
struct Search<'a> {
    grid: &'a Grid,
    finder: &'a mut Finder,
    metric: Metric,
    /// A row whose least distance accumulates to more holds no match.
    limit: f64,
    along: Axis,
    /// The block's extent along the row, and the cells within reach of it.
    lo: f64,
    hi: f64,
    first: u64,
    last: u64,
    block: &'a Run,
    runs: &'a mut Vec<Run>,
    /// Rows looked up so far: the number of the cursor.
    row: usize,
}

impl Search<'_> {
    /// Walks the cells of slow axis `a` within reach. `acc` is the least distance of the
    /// row so far; `decided` says that UNICOMP has given the pair of rows to this block.
    fn slow_axis(&mut self, a: usize, key: u64, acc: f64, decided: bool) {
        let window = self.finder.windows[a];
        let innermost = a + 1 == self.finder.windows.len();
        for at in window.gaps.0..window.gaps.1 {
            let cell = window.first + (at - window.gaps.0) as u64;
            let mut decided = decided;
            if !decided && cell != window.own {
                if window.own.is_multiple_of(2) {
                    continue;
                }
                decided = true;
            }
            let acc = self.metric.widen(acc, self.finder.gaps[at]);
            if acc > self.limit {
                continue;
            }
            let key = key * window.cells + cell;
            if innermost {
                self.row(key, acc, decided);
            } else {
                self.slow_axis(a + 1, key, acc, decided);
            }
        }
    }

    /// Appends the run of one row, as far along as a match can be.
    #[inline(always)]
    fn row(&mut self, key: u64, acc: f64, decided: bool) {
        let (mut first, mut last) = (self.first, self.last);
        // What the other axes leave of ε, where it is worth the square root.
        if acc > 0.2 * self.limit && self.metric != Metric::Linf {
            let left = match self.metric {
                // `limit` has the rounding of sums in it; the factor has that of the root.
                Metric::L2 => (self.limit - acc).sqrt() * (1.0 + 1e-15),
                _ => self.limit - acc,
            };
            first = first.max(self.along.cell(self.lo - left));
            last = last.min(self.along.cell(self.hi + left));
        }
        if self.finder.cursors.len() <= self.row {
            self.finder.cursors.push(0);
        }
        let base = key * self.along.cells;
        let cursor = &mut self.finder.cursors[self.row];
        self.row += 1;
        if decided {
            push_run(self.runs, self.grid.lookup(base + first, base + last, cursor));
            return;
        }
        // UNICOMP's own row: cells at an odd place look both ways, the others only at
        // the rest of themselves.
        let own = self.along.cell(self.lo);
        let cell = self.grid.lookup(base + own, base + own, cursor);
        push_run(self.runs, self.block.end..cell.end);
        if own % 2 == 1 {
            if first < own {
                push_run(self.runs, self.grid.lookup(base + own - 1, base + own - 1, cursor));
            }
            if last > own {
                push_run(self.runs, self.grid.lookup(base + own + 1, base + own + 1, cursor));
            }
        }
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
fn firsts(sorted: &Sorted, group: impl Fn(u64) -> u64 + Sync) -> Result<Vec<u32>> {
    // Those of each thread, and all of them.
    check_room::<u32>(2 * sorted.len())?;
    let firsts = (0..sorted.len())
        .into_par_iter()
        .with_min_len(1 << 15)
        .filter(|&at| at == 0 || group(sorted.key(at)) != group(sorted.key(at - 1)))
        .map(|at| at as u32)
        .collect();
    Ok(firsts)
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
                assert_eq!(gallop(&cells, from, key), cells.partition_point(|&c| c < key));
            }
        }
    }
}
