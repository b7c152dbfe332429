//! The search of a KNN-join in lockstep: the 16 queries of a leaf, a lane each, look at the same
//! leaves one after the other.
//!
//! ```text
//! for each leaf that may hold a neighbour, the queries' own first:
//!     note the candidates that are within the bound of some query, by their distances in f32
//!     merge those that wait into the best; bound = the k-th best, moved outwards
//! for each query:  the k best in the deciding arithmetic, in order
//! ```
//!
//! In few dimensions the queries of a leaf share most of their candidates, and to measure one that
//! another has no use for costs less than to find out. Why the answer is right: see `relative.rs`.

use super::kernel::{Lockstep, Margin, PAD, ROWS, TAG};
use super::knn::{CpuKnn, Way, Worker};
use super::relative::{Relative, insert_all};
use super::select::SORTED;
use crate::index::Run;
use crate::index::boxes::FAN;
use crate::metric::Metric;
use crate::scalar::Scalar;

/// The most dimensions in which queries go in lockstep.
const DIMENSIONS: usize = 3;

/// Queries in lockstep, and where their candidates are.
pub(super) struct Steps {
    relative: Relative,
    lanes: Lockstep,
    /// The leaves that tags stand for, and the first number of a leaf.
    leaves: Vec<u32>,
    first: usize,
    /// Where the best are whose leaves have no number any more: as the keys.
    places: Vec<u32>,
    own: usize,
}

impl Steps {
    /// For the `k` best, if queries should go in lockstep.
    pub(super) fn new(k: usize, dim: usize, metric: Metric) -> Option<Self> {
        if k > SORTED || dim > DIMENSIONS {
            return None;
        }
        let room = k.next_power_of_two().clamp(8, SORTED);
        let lanes = Lockstep {
            k,
            keys: vec![f32::MAX; room * PAD],
            rows: vec![f32::MAX; ROWS * PAD],
            waiting: 0,
            dropped: [f32::MAX; PAD],
            bounds: [f32::NAN; PAD],
            queries: vec![0.0; dim * PAD],
            candidates: vec![0.0; dim * PAD],
            margin: Margin::default(),
        };
        Some(Steps {
            relative: Relative::new(dim, metric),
            lanes,
            leaves: Vec::new(),
            first: room.div_ceil(PAD),
            places: vec![0; room * PAD],
            own: 0,
        })
    }

    /// Forgets all, for `len` other queries.
    fn clear(&mut self, len: usize) {
        self.lanes.margin = self.relative.margin();
        self.lanes.keys.fill(f32::MAX);
        self.lanes.waiting = 0;
        self.lanes.dropped = [f32::MAX; PAD];
        // A lane without a query compares with NaN, which is never within.
        self.lanes.bounds = core::array::from_fn(|q| if q < len { f32::MAX } else { f32::NAN });
        self.leaves.clear();
    }

    /// What is farther than this can be no neighbour of any query, as the boxes measure it.
    fn limit<T: Scalar>(&self) -> T {
        self.relative.outer(self.lanes.bounds.iter().fold(0.0, |most, &bound| bound.max(most)))
    }

    /// The position of the candidate that is so far up among the best of a query.
    fn position(&self, rank: usize, query: usize) -> u32 {
        let tag = (self.lanes.keys[rank * PAD + query].to_bits() & TAG) as usize;
        match (tag / PAD).checked_sub(self.first) {
            None => self.places[tag * PAD + query],
            Some(leaf) => self.leaves[leaf] * FAN as u32 + (tag % PAD) as u32,
        }
    }

    /// Notes where the best are, so that all numbers of leaves are free. None may wait.
    fn rename(&mut self) {
        let mut places = [0; SORTED * PAD];
        for (at, place) in places.iter_mut().enumerate().take(self.places.len()) {
            let (rank, query) = (at / PAD, at % PAD);
            if self.lanes.keys[at] < f32::MAX {
                *place = self.position(rank, query);
                let key = &mut self.lanes.keys[at];
                *key = f32::from_bits(key.to_bits() & !TAG | rank as u32);
            }
        }
        self.places.iter_mut().zip(places).for_each(|(place, new)| *place = new);
        self.leaves.clear();
    }
}

impl<T: Scalar> CpuKnn<'_, T> {
    /// Makes the rows of a block in lockstep, unless `f32` leaves open what belongs to them.
    pub(super) fn in_lockstep(&self, worker: &mut Worker<'_, T>, block: &Run) -> bool {
        let Worker { steps: Some(steps), queries, bound, work, .. } = worker else { return false };
        let (asking, len) = ((&queries[..], &*bound), block.len());
        let Steps { relative, lanes, .. } = steps;
        if !relative.begin(&self.kernels, asking, len, &mut lanes.queries) {
            worker.steps_doubt.learn(true);
            return false;
        }
        steps.clear(len);
        // The leaf of the queries themselves.
        steps.own = block.start as usize / FAN;
        steps.leaves.push(steps.own as u32);
        steps.lanes.candidates.copy_from_slice(&steps.lanes.queries);
        let tag = (steps.first * PAD) as u32;
        self.kernels.measure(&mut steps.lanes, len, tag, self.passes_itself());
        self.absorb_above(steps, 0);
        work.tests += (len * len) as u64;
        (worker.way, worker.open) = (Way::Lockstep, false);
        (worker.limit, worker.floor) = (steps.limit(), T::NAN);
        self.search(worker);
        let found = self.finish_steps(worker, block);
        worker.steps_doubt.learn(!found);
        found
    }

    /// Looks at a leaf for all queries.
    pub(super) fn step(&self, worker: &mut Worker<'_, T>, leaf: usize) {
        let Worker { steps: Some(steps), work, .. } = worker else { return };
        if leaf == steps.own {
            return;
        }
        let len = FAN.min(self.right.len() - leaf * FAN);
        let number = steps.first + steps.leaves.len();
        let Steps { relative, lanes, .. } = steps;
        let Relative { middle, scale, .. } = relative;
        self.kernels.relate(self.right.leaf(leaf), middle, *scale, &mut lanes.candidates);
        self.kernels.measure(lanes, len, (number * PAD) as u32, false);
        work.tests += (FAN * len) as u64;
        steps.leaves.push(leaf as u32);
        let full = (number + 1) * PAD > TAG as usize;
        let few = if full { 0 } else { steps.lanes.group() - 1 };
        if self.absorb_above(steps, few) {
            worker.limit = steps.limit();
        }
        if full {
            steps.rename();
        }
    }

    /// Merges candidates while more than so many wait. Returns whether there were any.
    fn absorb_above(&self, steps: &mut Steps, few: usize) -> bool {
        let any = steps.lanes.waiting > few;
        while steps.lanes.waiting > few {
            self.kernels.absorb(&mut steps.lanes);
        }
        any
    }

    /// Puts the best of each query in order, as rows. Returns whether they are.
    fn finish_steps(&self, worker: &mut Worker<'_, T>, block: &Run) -> bool {
        let Worker { steps: Some(steps), queries, rows, distances, .. } = worker else {
            return false;
        };
        self.absorb_above(steps, 0);
        let last = (self.k - 1) * PAD;
        for query in 0..block.len() {
            let Lockstep { keys, dropped, bounds, .. } = &steps.lanes;
            if keys[last + query] == f32::MAX {
                return false;
            }
            let (row, acc) = (&mut rows[query], &mut distances[query]);
            row.clear();
            row.extend((0..self.k).map(|rank| steps.position(rank, query)));
            let farthest = self.in_order(queries, query, row, acc);
            let next = keys.get(last + PAD + query).unwrap_or(&dropped[query]);
            if !steps.relative.is_sure(keys[last + query], farthest, *next, bounds[query]) {
                return false;
            }
        }
        true
    }

    /// Makes a row of candidates, by their positions: rows in the order of their distances, which
    /// are put beside them. Returns the last distance.
    fn in_order(&self, queries: &[T], query: usize, row: &mut [u32], acc: &mut Vec<T>) -> T {
        acc.resize(row.len(), T::ZERO);
        self.kernels.decide(self.right.coords(), queries, query, row, acc);
        let ids = self.right.ids();
        row.iter_mut().for_each(|position| *position = ids[*position as usize]);
        insert_all(row, acc);
        acc[row.len() - 1]
    }
}
