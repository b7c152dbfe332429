//! The index of the ε-join on the CPU: built once, and asked by the whole or by its parts.

use std::sync::Arc;

use super::epsilon::CpuJoin;
use super::kernel::{Kernels, SimdLevel};
use super::numbers::Numbers;
use super::product::{beside, kernels_for};
use crate::error::Result;
use crate::exec::part::{Part, check_positions};
use crate::exec::pool::Pool;
use crate::filter::product::Within;
use crate::index::layout::Making;
use crate::index::{Index, Layout, Panels, directory, ego, grid, order, panels};
use crate::memory::Buffer;
use crate::metric::Threshold;
use crate::monitor::Monitor;
use crate::options::DuplicateRemoval;
use crate::plan::{Detail, Multiplying, Narrow, OnCpu, knn_unit, unit};
use crate::points::Points;
use crate::scalar::Scalar;

/// What an ε-join on the CPU needs to know.
pub(crate) struct Setup<'a, 'd, T> {
    pub(crate) pool: &'a Pool,
    pub(crate) simd: SimdLevel,
    pub(crate) threshold: Threshold<T>,
    pub(crate) left: Points<'a, T>,
    /// None where the left points are joined with themselves.
    pub(crate) right: Option<Points<'a, T>>,
    pub(crate) include_self: bool,
    pub(crate) removal: DuplicateRemoval,
    pub(crate) detail: &'d Detail,
    /// Those of all points of both sides.
    pub(crate) extents: &'d [(f64, f64)],
    pub(crate) how: &'d OnCpu,
    /// Whether the join is shared with another device: no order of this one's own says then which
    /// of its points meets a pair that is wanted once.
    pub(crate) shared: bool,
    pub(crate) monitor: Option<&'a Monitor>,
}

/// How points are put in the order of the index: the right ones, and every set of queries.
#[derive(Clone)]
pub(super) struct Arranging {
    detail: Arc<Detail>,
    reach: f64,
    narrow: Option<Arc<Narrow>>,
    boxes: bool,
    multiplying: Multiplying,
}

/// Points that ask: in index order, and the rows of cells that they lie in, where there is a grid.
pub(super) struct Asking<'a, T> {
    pub(super) layout: Layout<'a, T>,
    pub(super) cell_rows: Arc<[u32]>,
}

impl Arranging {
    fn making(&self) -> Making<'_> {
        let narrow = self.narrow.as_ref();
        Making {
            narrow: narrow.map(|narrow| (&narrow.origin[..], narrow.spread)),
            boxes: self.boxes,
        }
    }

    fn layout<'a, T: Scalar>(
        &self,
        points: Points<'a, T>,
        ids: Buffer<u32>,
    ) -> Result<Asking<'a, T>> {
        let layout = Layout::new(points, ids, self.making())?;
        Ok(Asking { layout, cell_rows: Vec::new().into() })
    }

    /// Puts points that ask in order.
    fn asking<'a, T: Scalar>(&self, points: Points<'a, T>) -> Result<Asking<'a, T>> {
        match &*self.detail {
            Detail::Directory(shape) => self.layout(points, directory::sort(points, shape)?),
            Detail::Grid(shape) => {
                let side = grid::Side::new(points, shape, self.making())?;
                Ok(Asking { layout: side.layout, cell_rows: side.rows.into() })
            }
            Detail::Ego(dims) => self.layout(points, ego::sort(points, self.reach, dims)?),
            Detail::Product => {
                Ok(Asking { layout: Layout::bare(points)?, cell_rows: Vec::new().into() })
            }
            _ => self.layout(points, order::identity(points.len())?),
        }
    }

    /// Puts points that may be neighbours in order, and builds what finds them.
    fn asked<'a, T: Scalar>(
        &self,
        points: Points<'a, T>,
        bound: T,
        extents: &[(f64, f64)],
        simd: SimdLevel,
    ) -> Result<(Index<T>, Asking<'a, T>)> {
        match &*self.detail {
            Detail::Product => {
                let (dim, frame) = (points.dimension(), panels::frame(points, extents));
                let kernels = kernels_for(simd, &self.multiplying);
                let within = Within::new(bound, dim, &frame, kernels.summing(dim));
                let panels = Panels::new(points, frame, kernels, |point| beside(&within, point))?;
                Ok((Index::Product(panels, within), self.asking(points)?))
            }
            Detail::Grid(shape) => {
                let side = grid::Side::new(points, shape, self.making())?;
                let (grid, layout, rows) = side.into_grid(shape.clone());
                Ok((Index::Grid(grid), Asking { layout, cell_rows: rows.into() }))
            }
            Detail::Directory(shape) => {
                let ids = directory::sort(points, shape)?;
                let ordered = &ids[..points.len()];
                let directory = directory::Directory::new(shape.clone(), points, ordered)?;
                Ok((Index::Directory(directory), self.layout(points, ids)?))
            }
            Detail::Ego(_) => Ok((Index::Ego, self.asking(points)?)),
            _ => Ok((Index::Brute, self.asking(points)?)),
        }
    }
}

impl<'a, T: Scalar> CpuJoin<'a, T> {
    /// Sorts the points and builds what finds candidates among them.
    pub(crate) fn new(setup: Setup<'a, '_, T>) -> Result<Self> {
        let Setup { threshold, left, right, how, .. } = setup;
        let kernels = Kernels::new(setup.simd, threshold.metric, left.dimension());
        // Not every instruction set has lanes that filter by narrow columns.
        let narrow = how.narrow.clone().filter(|_| kernels.filter.is_some());
        let band = narrow.as_ref().map(|narrow| narrow.band);
        let arranging = Arranging {
            detail: Arc::new(setup.detail.clone()),
            reach: threshold.reach,
            narrow: narrow.map(Arc::new),
            boxes: how.boxes,
            multiplying: how.multiplying,
        };
        let asking = right.map(|_| arranging.asking(left)).transpose()?;
        let (index, right_side) =
            arranging.asked(right.unwrap_or(left), threshold.bound, setup.extents, setup.simd)?;
        let (left, cell_rows) = match asking {
            Some(asking) => (Some(Arc::new(asking.layout)), asking.cell_rows),
            None => (None, right_side.cell_rows),
        };
        let queries = setup.left.len();
        Ok(CpuJoin {
            pool: setup.pool,
            threshold,
            kernels,
            index: Arc::new(index),
            left,
            right: Arc::new(right_side.layout),
            cell_rows,
            same: right.is_none(),
            range: 0..queries as u32,
            numbers: if setup.shared { Numbers::Shared } else { Numbers::Rows },
            include_self: setup.include_self,
            narrow: band,
            removal: setup.removal,
            listed: how.listed,
            unit: how.unit,
            monitor: setup.monitor,
            arranging,
        })
    }

    /// The same join over the same index.
    pub(super) fn again(&self) -> CpuJoin<'_, T> {
        CpuJoin {
            index: self.index.clone(),
            left: self.left.clone(),
            right: self.right.clone(),
            cell_rows: self.cell_rows.clone(),
            range: self.range.clone(),
            arranging: self.arranging.clone(),
            ..*self
        }
    }

    /// The same join for some of the queries.
    pub(super) fn of_part<'b>(&'b self, part: Part<'b, T>) -> Result<CpuJoin<'b, T>> {
        let whole = self.again();
        match part {
            Part::Rows { rows, points } => {
                let asking = self.pool.install(|| self.arranging.asking(points))?;
                Ok(CpuJoin {
                    left: Some(Arc::new(asking.layout)),
                    cell_rows: asking.cell_rows,
                    range: 0..rows.len() as u32,
                    unit: match self.has_products() {
                        true => self.unit.min(knn_unit(rows.len(), self.pool.threads())),
                        false => unit(rows.len()),
                    },
                    numbers: Numbers::Of(rows),
                    ..whole
                })
            }
            Part::Positions { start, end } => {
                let range = check_positions(start, end, self.queries().len());
                Ok(CpuJoin { range, numbers: Numbers::Places { first: start }, ..whole })
            }
        }
    }
}
