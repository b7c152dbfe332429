//! Candidates that are laid out for some blocks of queries at once: in the order of their ids where rows
//! are to ascend, so that they do as they are found.
//!
//! ```text
//! for up to 256 queries that are neighbours in space:
//!     gather the candidates of all of them, sort them by id where that is wanted: a sheet
//!     for each block of 16 of them:
//!         take from the sheet what lies within ε of the block's box in every dimension
//!         test that, as any other candidates
//! ```
//!
//! A sheet is about as long as the rows of a few of its queries, and is sorted for all of them. Where that
//! is too long, each block has candidates of its own, and rows are sorted.

use super::epsilon::CpuJoin;
use super::kernel::{Lanes, PAD, SiftJob};
use super::sort::RowSorter;
use super::tile::Tile;
use crate::filter::{Band, Filter};
use crate::index::layout::Columns;
use crate::index::{BoxOf, Run};
use crate::scalar::Scalar;

/// Bytes of a sheet, at the most: each thread has one.
const MOST_BYTES: usize = 4 << 20;

/// The candidates of the blocks that come next.
#[derive(Debug)]
pub(super) struct Sheet<T> {
    pub(super) made: Made,
    /// What local coordinates are relative to.
    pub(super) origin: Vec<f64>,
    pub(super) local: Ordered<f32>,
    pub(super) exact: Ordered<T>,
}

/// The order of candidates on a sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SheetOrder {
    /// As they come.
    Any,
    /// Ascending by id.
    ById,
}

/// Which lanes a sheet is made for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Made {
    /// There is none.
    Not,
    /// Those of `f32` that filter `f64`, and what ε means there.
    Local(Band<f32>),
    /// Those of the points' own type.
    Exact,
}

/// Candidates, column by column.
#[derive(Debug)]
pub(super) struct Ordered<L> {
    coords: Vec<L>,
    ids: Vec<u32>,
    stride: usize,
    /// The largest absolute coordinate.
    spread: L,
}

impl<T: Scalar> Sheet<T> {
    pub(super) fn new() -> Self {
        let (local, exact) = (Ordered::new(), Ordered::new());
        Sheet { made: Made::Not, origin: Vec::new(), local, exact }
    }

    /// Whether candidates come from here.
    pub(super) fn is_made(&self) -> bool {
        !matches!(self.made, Made::Not)
    }

    /// Whether a sheet has room for the points of some runs, in the lanes that take more, with the keys
    /// that they are sorted by.
    pub(super) fn has_room(runs: &[Run], dim: usize) -> bool {
        let points: usize = runs.iter().map(|run| run.len()).sum();
        let point = dim * (size_of::<f32>() + size_of::<T>()) + 2 * size_of::<u64>();
        points.saturating_mul(point) <= MOST_BYTES
    }

    /// There is no sheet.
    pub(super) fn clear(&mut self) {
        self.made = Made::Not;
    }

    /// Lays out the points of some runs, for queries in a box.
    pub(super) fn lay_out(
        &mut self,
        join: &CpuJoin<'_, T>,
        filter: Option<Filter>,
        runs: &[Run],
        order: SheetOrder,
        bound: &BoxOf<T>,
        sorter: &mut RowSorter,
    ) {
        let (right, dim) = (&join.right, join.right.dim());
        let keys = sorter.keys(runs, right.ids(), order == SheetOrder::ById);
        let at = |j: usize, position: u32| j * right.stride() + position as usize;
        self.made = match right.columns() {
            Columns::Narrow { coords, .. } => {
                self.local.fill(dim, keys, |j, position| coords[at(j, position)]);
                let Some(band) = join.narrow else {
                    unreachable!("narrow columns come with a band")
                };
                Made::Local(band)
            }
            Columns::Absent => Made::Not,
            Columns::Own(coords) => {
                bound.middle(&mut self.origin);
                let band = filter.zip(T::as_f64(coords)).and_then(|(filter, coords)| {
                    let origin = &self.origin;
                    let local = |j: usize, x: f64| (x - origin[j]) as f32;
                    self.local.fill(dim, keys, |j, position| local(j, coords[at(j, position)]));
                    // No query is farther from the middle of its box than a corner.
                    let corner = |(j, x): (usize, &T)| local(j, x.to_f64()).abs();
                    let corners = bound.lo.iter().enumerate().chain(bound.hi.iter().enumerate());
                    filter.band(corners.map(corner).fold(self.local.spread, f32::max))
                });
                if band.is_none() {
                    self.exact.fill(dim, keys, |j, position| coords[at(j, position)]);
                }
                band.map_or(Made::Exact, Made::Local)
            }
        };
    }
}

impl<L: Scalar> Ordered<L> {
    fn new() -> Self {
        Ordered { coords: Vec::new(), ids: Vec::new(), stride: 0, spread: L::ZERO }
    }

    /// Fills the columns with the candidates that `keys` name, which have an id above a position.
    fn fill(&mut self, dim: usize, keys: &[u64], coordinate: impl Fn(usize, u32) -> L) {
        self.stride = keys.len().next_multiple_of(PAD);
        self.coords.resize(self.stride * dim, L::ZERO);
        self.ids.resize(self.stride, 0);
        for (id, key) in self.ids.iter_mut().zip(keys) {
            *id = (key >> 32) as u32;
        }
        self.spread = L::ZERO;
        for (j, column) in self.coords.chunks_exact_mut(self.stride.max(1)).enumerate().take(dim) {
            for (to, &key) in column.iter_mut().zip(keys) {
                *to = coordinate(j, key as u32);
                self.spread = if to.abs() > self.spread { to.abs() } else { self.spread };
            }
            column[keys.len()..].fill(L::NAN);
        }
    }

    /// Those that may be within `reach` of some queries.
    pub(super) fn around(&self, queries: &[L], dim: usize, reach: f64) -> Rest<'_, L> {
        // Why no match is lost: in every dimension it is at most `reach` away from its query. Columns and
        // queries are off, and the corners are rounded, by less than a millionth of themselves; what
        // matches is no larger than the largest here, and its query by `reach` at most.
        let far = reach * (1.0 + 1e-6) + self.spread.to_f64() * 1e-6;
        let extent = |j: usize| {
            let along = queries[j..].iter().step_by(dim).map(|x| x.to_f64());
            let none = (f64::INFINITY, f64::NEG_INFINITY);
            let (lo, hi) = along.fold(none, |(lo, hi), x| (lo.min(x), hi.max(x)));
            (L::from_f64(lo - far), L::from_f64(hi + far))
        };
        let (lo, hi) = (0..dim).map(extent).unzip();
        Rest { sheet: self, dim, lo, hi, from: 0 }
    }
}

/// The candidates in a box that were not handed out yet.
pub(super) struct Rest<'a, L> {
    sheet: &'a Ordered<L>,
    dim: usize,
    lo: Vec<L>,
    hi: Vec<L>,
    from: usize,
}

impl<L: Scalar> Rest<'_, L> {
    /// Fills a tile with the next ones, unless there are none.
    pub(super) fn fill(&mut self, lanes: &Lanes<L>, tile: &mut Tile<L>) -> bool {
        let Rest { sheet, dim, lo, hi, from } = self;
        if *from >= sheet.stride {
            return false;
        }
        let Ordered { coords, ids: labels, stride, .. } = sheet;
        let job = SiftJob { coords, stride: *stride, labels, from: *from, dim: *dim, lo, hi };
        *from = tile.sift(lanes, &job);
        true
    }
}
