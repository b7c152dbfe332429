//! The search of a KNN-join in a grid: rings of cells around a block of queries.
//!
//! ```text
//! window = the cells that the block lies in
//! repeat:
//!     for each row of cells that is new in the window:  look at its leaves
//!     for each axis, to both sides:
//!         if what lies beyond the window there may be near enough:  grow to that side
//! until it grows to no side
//! ```
//!
//! Why no neighbour is missed: a point that is not in the window lies beyond it on some axis, to
//! a side where the difference of coordinates alone amounts to more than what the k-th best of
//! every query is at. A distance is a sum, or a maximum, of steps that are never negative and
//! monotone, rounding included: it is not less than the step of one of its differences, and
//! that is not less than the step of the least difference. A leaf may hold points of several
//! cells, and is looked at whole when the first of them comes into the window.

use super::kernel::PAD;
use super::knn::{CpuKnn, Way, Worker};
use crate::index::boxes::FAN;
use crate::index::rings::{AXES, Window};
use crate::index::{Rings, Run};
use crate::metric::Threshold;
use crate::scalar::Scalar;

/// Leaves that were looked at: of each node of 16 the last search, and which, as bits.
pub(super) struct Seen {
    search: u32,
    nodes: Vec<(u32, u32)>,
}

impl Seen {
    /// For so many leaves.
    pub(super) fn new(leaves: usize) -> Self {
        Seen { search: 0, nodes: vec![(0, 0); leaves.div_ceil(FAN)] }
    }

    /// Forgets all.
    fn clear(&mut self) {
        self.search = self.search.wrapping_add(1);
        if self.search == 0 {
            self.nodes.fill((0, 0));
            self.search = 1;
        }
    }

    /// Notes some leaves of a node. Returns those that are new.
    fn add(&mut self, node: usize, leaves: u32) -> u32 {
        let seen = &mut self.nodes[node];
        if seen.0 != self.search {
            *seen = (self.search, 0);
        }
        let new = leaves & !seen.1;
        seen.1 |= leaves;
        new
    }
}

impl<T: Scalar> CpuKnn<'_, T> {
    /// Looks at the leaves around a block, ring after ring.
    pub(super) fn walk(&self, worker: &mut Worker<'_, T>, rings: &Rings<T>) {
        worker.seen.clear();
        let own = rings.window(&worker.bound);
        let (mut window, mut before) = (own, None);
        let (mut radius, mut step) = (0, 1);
        loop {
            self.ring(worker, rings, &own, &window, before.as_ref());
            self.settle(worker, 0);
            if worker.open {
                return;
            }
            let (grown, least) = self.grown(worker, rings, &own, &window, step);
            if grown == window {
                return;
            }
            // As in a tree: keys will not tell whether what is there is nearer.
            if least >= worker.floor {
                worker.open = true;
                return;
            }
            before = Some(window);
            window = grown;
            // Where there is little for long, not every ring is worth a look.
            radius += step;
            step = (radius / 2).max(1);
        }
    }

    /// The window grown by some slices to every side where something may be near enough, and
    /// how near it may be.
    fn grown(
        &self,
        worker: &Worker<'_, T>,
        rings: &Rings<T>,
        own: &Window,
        window: &Window,
        step: u32,
    ) -> (Window, T) {
        let (mut grown, mut least) = (*window, T::INFINITY);
        let mut is_near = |axis: usize, slice: u32| {
            let gap = self.slice_gap(worker, rings, own, axis, slice);
            least = if gap < least { gap } else { least };
            gap <= worker.limit
        };
        for axis in 0..AXES {
            let (first, last) = (window.first[axis], window.last[axis]);
            if first > 0 && is_near(axis, first - 1) {
                grown.first[axis] = first.saturating_sub(step);
            }
            if last + 1 < rings.count(axis) && is_near(axis, last + 1) {
                grown.last[axis] = (last + step).min(rings.count(axis) - 1);
            }
        }
        (grown, least)
    }

    /// The least that a point in a slice, or beyond it, can be from the block.
    fn slice_gap(
        &self,
        worker: &Worker<'_, T>,
        rings: &Rings<T>,
        own: &Window,
        axis: usize,
        slice: u32,
    ) -> T {
        let step = |(x, y)| Threshold::step(self.arithmetic.metric, T::ZERO, x, y);
        rings.apart(axis, slice, own, &worker.bound).map_or(T::ZERO, step)
    }

    /// Looks at the leaves of a window that were not in the one before.
    fn ring(
        &self,
        worker: &mut Worker<'_, T>,
        rings: &Rings<T>,
        own: &Window,
        window: &Window,
        before: Option<&Window>,
    ) {
        let (first, last) = (window.first[2], window.last[2]);
        for x in window.first[0]..=window.last[0] {
            if self.slice_gap(worker, rings, own, 0, x) > worker.limit {
                continue;
            }
            for y in window.first[1]..=window.last[1] {
                if self.slice_gap(worker, rings, own, 1, y) > worker.limit {
                    continue;
                }
                match before.filter(|before| before.has_row([x, y])) {
                    None => self.run(worker, rings.run([x, y], first, last)),
                    Some(before) => {
                        if first < before.first[2] {
                            self.run(worker, rings.run([x, y], first, before.first[2] - 1));
                        }
                        if last > before.last[2] {
                            self.run(worker, rings.run([x, y], before.last[2] + 1, last));
                        }
                    }
                }
            }
        }
    }

    /// Looks at the leaves of a run that are near enough and new.
    fn run(&self, worker: &mut Worker<'_, T>, run: Run) {
        if run.is_empty() || worker.open {
            return;
        }
        let boxes = self.right.boxes();
        let leaves = run.start as usize / FAN..(run.end as usize - 1) / FAN + 1;
        for node in leaves.start / FAN..(leaves.end - 1) / FAN + 1 {
            let first = node * FAN;
            let (from, to) = (leaves.start.max(first) - first, leaves.end.min(first + FAN) - first);
            let leaves = worker.seen.add(node, (1 << to) - (1 << from));
            if leaves == 0 {
                continue;
            }
            let count = FAN.min(boxes.count(0) - first);
            if worker.way != Way::Ranks {
                self.visit(worker, boxes, 0, first..first + count, leaves);
                continue;
            }
            let job = boxes.job(0, first, count, &worker.bound);
            let mut gaps = [T::ZERO; PAD];
            let near = self.kernels.gaps(&job, worker.limit, &mut gaps) & leaves;
            // As in a tree: keys will not tell whether what is there is nearer.
            worker.open |= (0..PAD).any(|leaf| near >> leaf & 1 == 1 && gaps[leaf] >= worker.floor);
            if worker.open {
                return;
            }
            if near != 0 {
                self.node(worker, boxes, node, near);
            }
        }
    }
}
