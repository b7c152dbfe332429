//! Points in leaves of sixteen, for the KNN-join.
//!
//! ```text
//! leaf 0: x₀ … x₁₅ y₀ … y₁₅ z₀ … z₁₅   leaf 1: x₁₆ … x₃₁ y₁₆ … y₃₁ z₁₆ … z₃₁   …
//! ```
//! A search jumps from leaf to leaf: what it reads of one lies in one place.

use rayon::prelude::*;

use super::boxes::{BoxOf, Boxes, FAN};
use super::layout::extent;
use super::order;
use crate::error::Result;
use crate::exec::cpu::kernel::NodeJob;
use crate::memory::Buffer;
use crate::points::Points;
use crate::scalar::Scalar;

/// Leaves gathered by one task.
const CHUNK: usize = 512;

/// Points in an order that keeps neighbours together, with boxes around every 16 of them,
/// every 16 boxes, and so on.
pub(crate) struct Leaves<T> {
    len: usize,
    dim: usize,
    coords: Buffer<T>,
    ids: Buffer<u32>,
    boxes: Boxes<T>,
    least: Vec<Vec<u32>>,
}

impl<T: Scalar> Leaves<T> {
    /// Puts points in order: `ids` are their rows, padded to whole leaves at least.
    pub(crate) fn new(points: Points<'_, T>, ids: Buffer<u32>) -> Result<Self> {
        let (len, dim) = (points.len(), points.dimension());
        let mut coords = Buffer::faulted_in(len.next_multiple_of(FAN) * dim)?;
        let chunks = coords.par_chunks_mut(CHUNK * FAN * dim);
        chunks.zip(ids[..len].par_chunks(CHUNK * FAN)).for_each(|(coords, ids)| {
            for (leaf, ids) in coords.chunks_exact_mut(FAN * dim).zip(ids.chunks(FAN)) {
                for (at, &id) in ids.iter().enumerate() {
                    for (column, &x) in leaf.chunks_exact_mut(FAN).zip(points.row(id as usize)) {
                        column[at] = x;
                    }
                }
            }
        });
        Self::of(points, coords, ids)
    }

    /// Points in the order that they have, for whoever has their coordinates in a form of their own:
    /// there are no leaves and no boxes.
    pub(crate) fn bare(points: Points<'_, T>) -> Result<Self> {
        let (len, dim) = (points.len(), points.dimension());
        let (coords, ids) = (Buffer::zeroed(0)?, order::identity(len)?);
        let boxes = Boxes::new(0, dim, |_, _| (T::ZERO, T::ZERO))?;
        Ok(Leaves { len, dim, coords, ids, boxes, least: Vec::new() })
    }

    /// The same with the coordinates of all leaves, in that order.
    pub(crate) fn of(points: Points<'_, T>, coords: Buffer<T>, ids: Buffer<u32>) -> Result<Self> {
        let (len, dim) = (points.len(), points.dimension());
        let boxes = Boxes::new(len, dim, |j, points| {
            let first = points.start as usize * dim + j * FAN;
            extent(&coords[first..first + points.len()])
        })?;
        let least = boxes.least_rows(&ids[..len])?;
        Ok(Leaves { len, dim, coords, ids, boxes, least })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn dim(&self) -> usize {
        self.dim
    }

    /// The input rows, in index order.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids[..self.len]
    }

    /// The coordinates of all leaves: `16 · dim` elements each, a column after the other.
    pub(crate) fn coords(&self) -> &[T] {
        &self.coords
    }

    /// The coordinates of one leaf.
    pub(crate) fn leaf(&self, leaf: usize) -> &[T] {
        &self.coords[leaf * FAN * self.dim..][..FAN * self.dim]
    }

    /// The coordinates of the point at a position.
    pub(crate) fn point(&self, position: usize) -> impl Iterator<Item = T> {
        self.leaf(position / FAN)[position % FAN..].iter().step_by(FAN).copied()
    }

    pub(crate) fn boxes(&self) -> &Boxes<T> {
        &self.boxes
    }

    /// The leaves of a block of level 1, beside 16 queries: a column of 16 per dimension.
    pub(crate) fn node_job<'a>(&'a self, queries: &'a [T], node: usize) -> NodeJob<'a, T> {
        let (lo, hi, box_stride) = self.boxes.columns(0);
        let first = node * FAN * FAN;
        NodeJob {
            coords: &self.coords,
            ids: &self.ids,
            first,
            len: (self.len - first).min(FAN * FAN),
            lo,
            hi,
            box_stride,
            node: node * FAN,
            queries,
            dim: self.dim,
        }
    }

    /// The least row of a block of a level.
    pub(crate) fn least_row(&self, level: usize, node: usize) -> u32 {
        self.least[level][node]
    }

    /// Copies the box of a leaf.
    pub(crate) fn bound(&self, leaf: usize, bound: &mut BoxOf<T>) {
        self.boxes.bound(0, leaf, bound);
    }

    pub(crate) fn bytes(&self) -> usize {
        let least: usize = self.least.iter().map(|level| size_of_val(&level[..])).sum();
        size_of_val(&self.coords[..]) + size_of_val(&self.ids[..]) + self.boxes.bytes() + least
    }
}
