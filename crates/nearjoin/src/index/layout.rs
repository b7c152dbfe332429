//! Points in index order, one array per dimension.

use rayon::prelude::*;

use super::Run;
use super::boxes::{BoxOf, Boxes};
use crate::error::Result;
use crate::memory::Buffer;
use crate::points::Points;
use crate::scalar::Scalar;

/// Elements that every column has beyond its last point, so that kernels may read
/// whole vectors from any position.
const SLACK: usize = 64;
/// Points gathered by one task.
const CHUNK: usize = 8192;

/// Points reordered so that neighbours stand close together.
pub(crate) struct Layout<T> {
    len: usize,
    dim: usize,
    stride: usize,
    coords: Buffer<T>,
    ids: Buffer<u32>,
    boxes: Boxes<T>,
}

impl<T: Scalar> Layout<T> {
    /// Gathers `points` in the order of `ids`, and boxes every 16 of them.
    pub(crate) fn new(points: Points<'_, T>, ids: Buffer<u32>) -> Result<Self> {
        let (len, dim) = (points.len(), points.dimension());
        let stride = len.next_multiple_of(16) + SLACK;
        let mut coords = Buffer::zeroed(stride * dim)?;

        // One task fills the same chunk of every column, so that each input row is
        // read once.
        let chunks = len.div_ceil(CHUNK);
        let mut tasks: Vec<Vec<&mut [T]>> = Vec::new();
        tasks.resize_with(chunks, || Vec::with_capacity(dim));
        for column in coords.chunks_exact_mut(stride) {
            for (task, chunk) in tasks.iter_mut().zip(column[..len].chunks_mut(CHUNK)) {
                task.push(chunk);
            }
        }
        let data = points.as_slice();
        tasks
            .into_par_iter()
            .zip(ids.par_chunks(CHUNK))
            .for_each(|(mut columns, ids)| {
                for (at, &id) in ids.iter().enumerate() {
                    let row = &data[id as usize * dim..][..dim];
                    for (column, &x) in columns.iter_mut().zip(row) {
                        column[at] = x;
                    }
                }
            });
        let boxes = Boxes::new(&coords, len, dim, stride)?;
        Ok(Layout {
            len,
            dim,
            stride,
            coords,
            ids,
            boxes,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn dim(&self) -> usize {
        self.dim
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// All columns, `stride` apart.
    pub(crate) fn coords(&self) -> &[T] {
        &self.coords
    }

    /// One dimension of all points, and the slack behind them.
    pub(crate) fn column(&self, j: usize) -> &[T] {
        &self.coords[j * self.stride..][..self.stride]
    }

    /// The input rows, in index order.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    pub(crate) fn boxes(&self) -> &Boxes<T> {
        &self.boxes
    }

    /// Copies the point at `position` to `row`.
    pub(crate) fn point(&self, position: u32, row: &mut Vec<T>) {
        row.clear();
        row.extend((0..self.dim).map(|j| self.coords[j * self.stride + position as usize]));
    }

    /// The bounding box of the points of a run that is not empty.
    pub(crate) fn bound(&self, run: &Run, bound: &mut BoxOf<T>) {
        bound.clear();
        for j in 0..self.dim {
            let column = &self.coords[j * self.stride..][run.start as usize..run.end as usize];
            let (mut lo, mut hi) = (column[0], column[0]);
            for &x in column {
                lo = if x < lo { x } else { lo };
                hi = if x > hi { x } else { hi };
            }
            bound.lo.push(lo);
            bound.hi.push(hi);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.coords[..]) + size_of_val(&self.ids[..]) + self.boxes.bytes()
    }
}
