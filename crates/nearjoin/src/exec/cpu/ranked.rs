//! The search of a KNN-join by tagged keys: the leaves next to a block first, then leaf by leaf
//! for each query, and all that was noted merged from time to time.
//!
//! Why the k best are right: a key is the distance with its lowest bits replaced, so of two keys
//! that differ in more than those, the lesser is the nearer. Where the k-th and the next one, or
//! one that was dropped, do not, or a block of boxes was passed over that begins as far away, the
//! block of queries is searched again by full comparison.

use super::descend::nearest_first;
use super::kernel::{FULL, LeafJob, NodeJob, PAD, Ranks};
use super::knn::{CpuKnn, Finding, Way, Worker};
use super::select::NOBODY;
use crate::index::boxes::FAN;
use crate::index::{BoxOf, Boxes, Run};
use crate::scalar::Scalar;

/// Candidates that wait for better company after a node.
const FEW: usize = 12;
/// Neighbours that a leaf next to a block is good for.
const SEED: usize = 8;

/// Whether keys are worth a try: where they left block after block open, twice as many others
/// pass without each time.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    failures: u32,
    pause: u32,
}

impl Doubt {
    /// Whether to try them on another block.
    pub(super) fn trusts(&mut self) -> bool {
        let trusts = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        trusts
    }

    pub(super) fn learn(&mut self, open: bool) {
        self.failures = if open { (self.failures + 1).min(16) } else { 0 };
        // A tie here and there is no reason to pause.
        self.pause = if self.failures > 1 { 1 << self.failures } else { 0 };
    }
}

/// The leaves of the node next to a query, the nearest first, and those that were looked at
/// before all others, as bits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seed {
    node: usize,
    order: [usize; FAN],
    count: usize,
    done: u32,
}

impl<T: Scalar> CpuKnn<'_, T> {
    /// Finds the best of every query of a block by their keys, unless those leave them open.
    pub(super) fn by_ranks(&self, worker: &mut Worker<'_, T>, block: &Run, excluded: bool) -> bool {
        let Some(ranks) = &mut worker.ranks else { return false };
        let own = if excluded { block.start as usize } else { NOBODY };
        ranks.clear(block.len(), self.cap, own);
        (worker.limit, worker.floor) = ranks.limits();
        (worker.way, worker.open) = (Way::Ranks, false);
        self.seed(worker, self.right.boxes(), block);
        self.search(worker);
        let Some(ranks) = &mut worker.ranks else { return false };
        self.merge_above(ranks, 0);
        worker.work.tests += core::mem::take(&mut ranks.tests);
        let open = worker.open || ranks.is_open(block.len(), self.cap);
        worker.doubt.learn(open);
        !open
    }

    /// Looks at the leaves next to each query first, so that there are bounds for all others.
    fn seed(&self, worker: &mut Worker<'_, T>, boxes: &Boxes<T>, block: &Run) {
        if self.left.is_none() {
            // The leaves around the block's own serve all of its queries.
            let node = block.start as usize / (FAN * FAN);
            let seed = Seed { node, ..self.nearest(boxes, 0, node * FAN, &worker.bound) };
            worker.seeds = [seed; PAD];
        } else {
            let mut point = core::mem::take(&mut worker.point);
            for (query, seed) in worker.seeds.iter_mut().enumerate().take(block.len()) {
                point.set(worker.queries[query..].iter().step_by(PAD).copied());
                let down = |node: usize, level| {
                    node * FAN + self.nearest(boxes, level, node * FAN, &point).order[0]
                };
                let node = match &*self.finding {
                    Finding::Rings(rings) => rings.near(&point) / (FAN * FAN),
                    _ => (1..=boxes.top()).rev().fold(0, down),
                };
                *seed = Seed { node, ..self.nearest(boxes, 0, node * FAN, &point) };
            }
            worker.point = point;
        }
        let Worker { ranks: Some(ranks), queries, seeds, .. } = worker else { return };
        for at in 0..self.k.div_ceil(SEED) {
            for (query, seed) in seeds.iter_mut().enumerate().take(block.len()) {
                if let Some(leaf) = seed.order[..seed.count].get(at) {
                    seed.done |= 1 << leaf;
                    let job = self.right.node_job(queries, seed.node);
                    self.rank(&job, query, 1 << leaf, ranks);
                }
            }
            self.merge_above(ranks, 0);
        }
        (worker.limit, worker.floor) = ranks.limits();
    }

    /// Up to 16 blocks of a level from `first` on, the nearest to a box first.
    fn nearest(&self, boxes: &Boxes<T>, level: usize, first: usize, bound: &BoxOf<T>) -> Seed {
        let count = FAN.min(boxes.count(level) - first);
        let mut gaps = [T::ZERO; PAD];
        let job = boxes.job(level, first, count, bound);
        let all = self.kernels.gaps(&job, T::INFINITY, &mut gaps);
        let (order, count) = nearest_first(&gaps, all);
        Seed { count, order: order.map(|(_, node)| node), ..Seed::default() }
    }

    /// Notes the candidates of some leaves for a query.
    fn rank(&self, job: &NodeJob<'_, T>, query: usize, leaves: u32, ranks: &mut Ranks<T>) {
        let mut left = leaves;
        while left != 0 {
            left = self.kernels.rank(job, query, left, ranks);
            if ranks.waiting(query) >= FULL {
                self.merge(ranks, query - query % self.kernels.lanes());
            }
        }
    }

    /// Merges the registers in which more than so many wait for some query. Returns whether
    /// there was one.
    fn merge_above(&self, ranks: &mut Ranks<T>, few: usize) -> bool {
        let mut any = false;
        for lane in (0..PAD).step_by(self.kernels.lanes()) {
            let waiting = (lane..lane + self.kernels.lanes()).map(|query| ranks.waiting(query));
            if waiting.fold(0, usize::max) > few {
                self.merge(ranks, lane);
                any = true;
            }
        }
        any
    }

    /// Merges what waits in a register of queries, and finds tags for more.
    fn merge(&self, ranks: &mut Ranks<T>, lane: usize) {
        self.kernels.merge(ranks, lane);
        for query in lane..lane + self.kernels.lanes() {
            if !ranks.has_tags(query) {
                ranks.compact(query);
            }
        }
    }

    /// Which queries a block of a level may hold neighbours of.
    pub(super) fn active(
        &self,
        boxes: &Boxes<T>,
        level: usize,
        node: usize,
        queries: &[T],
        bounds: &[T; PAD],
    ) -> u32 {
        let (lo, hi, box_stride) = boxes.columns(level);
        let dim = self.right.dim();
        self.kernels
            .active(&LeafJob { coords: &[], lo, hi, box_stride, node, queries, dim }, bounds)
    }

    /// Notes the candidates of some of up to 16 leaves, query by query.
    pub(super) fn node(
        &self,
        worker: &mut Worker<'_, T>,
        boxes: &Boxes<T>,
        node: usize,
        some: u32,
    ) {
        let Worker { ranks: Some(ranks), queries, .. } = worker else { return };
        let job = self.right.node_job(queries, node);
        let all = some & job.leaves();
        let mut active = match boxes.top() {
            0 => u32::from(u16::MAX),
            _ => self.active(boxes, 1, node, queries, &ranks.bounds),
        };
        let mut near = [0; PAD];
        self.kernels.near(&job, active, &ranks.bounds, &mut near);
        while active != 0 {
            let query = active.trailing_zeros() as usize;
            active &= active - 1;
            let seed = &worker.seeds[query];
            let done = if seed.node == node { seed.done } else { 0 };
            self.rank(&job, query, near[query] & all & !done, ranks);
        }
        self.settle(worker, FEW);
    }

    /// Brings the bounds up to date with the candidates of a block, where more than so many
    /// wait for some query.
    pub(super) fn settle(&self, worker: &mut Worker<'_, T>, few: usize) {
        if let (Way::Ranks, Some(ranks)) = (worker.way, &mut worker.ranks)
            && self.merge_above(ranks, few)
        {
            (worker.limit, worker.floor) = ranks.limits();
        }
    }
}
