//! The search of a KNN-join down a tree of boxes, and the full comparison of a leaf.

use core::ops::Range;

use super::kernel::{LeafJob, PAD};
use super::knn::{CpuKnn, Way, Worker};
use super::select::largest;
use crate::index::Boxes;
use crate::index::boxes::FAN;
use crate::scalar::Scalar;

impl<T: Scalar> CpuKnn<'_, T> {
    /// Visits some of up to 16 blocks of one level, nearest first.
    pub(super) fn visit(
        &self,
        worker: &mut Worker<'_, T>,
        boxes: &Boxes<T>,
        level: usize,
        nodes: Range<usize>,
        some: u32,
    ) {
        let mut gaps = [T::ZERO; PAD];
        let first = nodes.start;
        let job = boxes.job(level, first, nodes.len(), &worker.bound);
        let near = self.kernels.gaps(&job, worker.limit, &mut gaps) & some;
        let (order, len) = nearest_first(&gaps, near);
        for &(gap, node) in &order[..len] {
            let node = first + node;
            if gap > worker.limit {
                break;
            }
            if gap >= worker.floor {
                worker.open = true;
                break;
            }
            // As far as the last of every query: a larger row comes after it.
            if gap == worker.limit
                && worker.way == Way::Best
                && self.right.least_row(level, node) > worker.best.last_row(worker.only)
            {
                continue;
            }
            if level > 0
                && let (Way::Ranks, Some(ranks)) = (worker.way, &worker.ranks)
            {
                if level == 1 {
                    self.node(worker, boxes, node, u32::MAX);
                    continue;
                }
                // Queries of another set may be far apart, with nothing to find in between.
                if self.left.is_some()
                    && self.active(boxes, level, node, &worker.queries, &ranks.bounds) == 0
                {
                    continue;
                }
            }
            if level == 0 && worker.way == Way::Lockstep {
                self.step(worker, node);
            } else if level == 0 {
                self.leaf(worker, boxes.columns(level), node);
            } else {
                let below = node * FAN..boxes.count(level - 1).min((node + 1) * FAN);
                self.visit(worker, boxes, level - 1, below, u32::MAX);
            }
        }
    }

    /// Measures the points of a leaf.
    fn leaf(&self, worker: &mut Worker<'_, T>, (lo, hi, stride): (&[T], &[T], usize), node: usize) {
        let right = &self.right;
        let first = node * FAN;
        let last = right.len().min(first + FAN);
        let ids = &right.ids()[first..last];
        let Worker { hits, queries, bounds, best, own, .. } = worker;
        let job = LeafJob {
            coords: right.leaf(node),
            lo,
            hi,
            box_stride: stride,
            node,
            queries,
            dim: right.dim(),
        };
        let asking = if worker.only.is_some() { 1 } else { FAN };
        worker.work.tests += (asking * ids.len()) as u64;
        if best.is_sorted() {
            self.kernels.keep(&job, ids, own, &mut best.kept());
            worker.limit = best.limit();
            return;
        }
        self.kernels.leaf(&job, bounds, hits);
        best.take(hits, ids, own, bounds);
        worker.limit = largest(bounds);
    }
}

/// Some of 16 blocks, the nearest first, with their gaps, and how many there are.
pub(super) fn nearest_first<T: Scalar>(
    gaps: &[T; PAD],
    mut some: u32,
) -> ([(T, usize); PAD], usize) {
    let mut order = [(T::ZERO, 0); PAD];
    let mut len = 0;
    while some != 0 {
        let node = some.trailing_zeros() as usize;
        some &= some - 1;
        let gap = gaps[node];
        let mut at = len;
        while at > 0 && gap < order[at - 1].0 {
            order[at] = order[at - 1];
            at -= 1;
        }
        order[at] = (gap, node);
        len += 1;
    }
    (order, len)
}
