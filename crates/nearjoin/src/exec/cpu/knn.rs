//! The KNN-join on the CPU: blocks of queries go down a tree of boxes, nearest first, or through
//! the cells of a grid.
//!
//! ```text
//! each thread, until the queue is empty:
//!     for each block of up to 16 neighbouring queries of a unit:
//!         visit(root):  for each child, nearest first:
//!             stop if it is farther than the k-th neighbour of every query
//!             an inner node:  visit(child)
//!             a leaf:  measure its 16 points for each query that it may matter to
//!         hand the k best of each query to the sink
//! ```
//!
//! Why no neighbour is missed: a box is passed over only if its distance from the box of the
//! block, or from a query, exceeds what that query's k-th best is at. No point in the box is
//! nearer than the box, rounding included: the lanes measure both by the same monotone steps.
//! Points at exactly the k-th distance are still looked at, since a smaller row wins a tie.

use core::ops::{ControlFlow, Range};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::kernel::{FULL, Hits, Kernels, LeafJob, NearestKernels, NodeJob, PAD, Ranks};
use super::pool::Pool;
use super::rings::Seen;
use super::select::{Best, NOBODY, SORTED, largest};
use super::sieve::{Search, Sieve, Sifter};
use super::sort_by_id;
use crate::exec::queue::Queue;
use crate::exec::{Emit, Executor, Reporter, Request, Rows, Work};
use crate::index::boxes::FAN;
use crate::index::{BoxOf, Boxes, Leaves, Rings, Run};
use crate::metric::Threshold;
use crate::monitor::{Monitor, Phase};
use crate::points::Points;
use crate::scalar::Scalar;

/// A tree, a grid, or an order without one, ready to be asked.
pub(crate) struct CpuKnn<'a, T> {
    pub(crate) pool: &'a Pool,
    pub(crate) kernels: NearestKernels<T>,
    /// What decides, and the points that it decides on.
    pub(crate) deciding: Kernels<T>,
    pub(crate) points: (Points<'a, T>, Points<'a, T>),
    /// None where the right points are joined with themselves.
    pub(crate) left: Option<Leaves<T>>,
    pub(crate) right: Leaves<T>,
    pub(crate) include_self: bool,
    pub(crate) k: usize,
    /// How distances are computed; its ε is not used.
    pub(crate) arithmetic: Threshold<T>,
    /// Nothing with a larger accumulated distance is a neighbour.
    pub(crate) cap: T,
    /// The cells around which leaves are looked for; none where it is from the top of a tree.
    pub(crate) rings: Option<Rings<T>>,
    /// Whether boxes are passed over. Without, every point is a candidate.
    pub(crate) prune: bool,
    /// Through which all candidates go, where none are passed over.
    pub(crate) sieve: Option<Sieve<T>>,
    pub(crate) unit: usize,
    pub(crate) monitor: Option<&'a Monitor>,
    /// Distances that will be computed, by estimate.
    pub(crate) expected_tests: u64,
}

/// What is done with the best of each block of queries, by a thread; and the queries after it.
type Action<'a, T> =
    dyn Fn(usize, &mut Worker<'_, T>, &[u32], &[u32]) -> ControlFlow<()> + Sync + 'a;

/// What a thread keeps from block to block.
pub(super) struct Worker<'a, T: Scalar> {
    work: Work,
    /// The best as the keys tell them; none for a large k.
    ranks: Option<Ranks<T>>,
    /// The best by full comparison.
    best: Best<T>,
    /// The best of a whole unit, where every point is a candidate.
    sifter: Sifter<T>,
    pub(super) way: Way,
    /// Grows where keys leave the answer open, and shrinks with every block.
    doubt: u32,
    hits: Hits<T>,
    /// The queries, a column of 16 per dimension, and the box around them.
    queries: Vec<T>,
    pub(super) bound: BoxOf<T>,
    /// What each query's k-th best is at, as the lanes may compare with it.
    bounds: [T; PAD],
    /// The largest of them, and from where on keys do not tell: NaN where they do not matter.
    pub(super) limit: T,
    pub(super) floor: T,
    /// Whether something was passed over that keys do not tell from the best.
    pub(super) open: bool,
    pub(super) seen: Seen,
    /// For each query, the leaves of a node that were looked at before all others, as bits.
    seeds: [(usize, u32); PAD],
    /// A query as a box.
    point: BoxOf<T>,
    /// The rows of the queries themselves, where they are no neighbours; else one that no
    /// point has.
    own: [u32; PAD],
    reporter: Reporter<'a>,
    rows: Vec<Vec<u32>>,
    distances: Vec<Vec<T>>,
    pairs: Vec<(u32, T)>,
}

/// How the best of a block are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Ranks,
    Best,
}

/// Doubt about keys that a block adds which they leave open, and beyond which they are not
/// tried.
const DOUBT: u32 = 8;
const MOST_DOUBT: u32 = 64;
/// Candidates that wait for better company after a node.
const FEW: usize = 12;
/// Neighbours that a leaf next to a block is good for.
const SEED: usize = 8;

impl<'a, T: Scalar> CpuKnn<'a, T> {
    /// The points that ask.
    pub(crate) fn queries(&self) -> &Leaves<T> {
        self.left.as_ref().unwrap_or(&self.right)
    }

    pub(crate) fn bytes(&self) -> usize {
        let sieve = self.sieve.as_ref().map_or(0, Sieve::bytes);
        let rings = self.rings.as_ref().map_or(0, Rings::bytes);
        self.right.bytes() + self.left.as_ref().map_or(0, Leaves::bytes) + sieve + rings
    }

    /// Finds the best of every query, and runs `action` on each block, on all threads.
    fn work(&self, phase: Phase, action: &Action<'_, T>) -> Work {
        let queue = Queue::new(self.queries().len(), self.unit);
        if let Some(monitor) = self.monitor {
            monitor.enter(phase, self.expected_tests);
            if monitor.is_cancelled() {
                return Work::default();
            }
        }
        let works = self.pool.each(|number| {
            let mut worker = Worker::new(self);
            while let Some(unit) = queue.take() {
                if let Some(sieve) = &self.sieve {
                    self.sift(&mut worker, sieve, &unit);
                }
                for start in unit.clone().step_by(FAN) {
                    let block = start..unit.end.min(start.saturating_add(FAN as u32));
                    match self.sieve {
                        None => self.block(&mut worker, &block),
                        Some(_) => {
                            let number = (start - unit.start) as usize / FAN;
                            core::mem::swap(&mut worker.best, worker.sifter.best(number));
                        }
                    }
                    let (ids, ahead) =
                        self.queries().ids()[block.start as usize..].split_at(block.len());
                    if action(number, &mut worker, ids, ahead).is_break()
                        || worker.reporter.report(worker.work).is_break()
                    {
                        queue.close();
                        break;
                    }
                }
            }
            worker.reporter.finish(worker.work);
            worker.work
        });
        works.into_iter().sum()
    }

    /// Finds the best of every query of a unit among all points.
    fn sift(&self, worker: &mut Worker<'_, T>, sieve: &Sieve<T>, unit: &Run) {
        let search = Search {
            sieve,
            lanes: &self.kernels,
            kernels: &self.deciding,
            queries: self.queries(),
            left: self.points.0,
            right: self.points.1,
            cap: self.cap,
            excluded: self.left.is_none() && !self.include_self,
        };
        let Worker { sifter, work, reporter, .. } = worker;
        sifter.unit(&search, unit, |tile| {
            *work += tile;
            reporter.report(*work).is_break()
        });
    }

    /// Finds the best of every query of a block.
    fn block(&self, worker: &mut Worker<'_, T>, block: &Run) {
        let queries = self.queries();
        let (leaf, len) = (block.start as usize / FAN, block.len());
        worker.queries.copy_from_slice(queries.leaf(leaf));
        queries.bound(leaf, &mut worker.bound);
        let excluded = self.left.is_none() && !self.include_self;
        worker.doubt = worker.doubt.saturating_sub(1);
        if worker.doubt < MOST_DOUBT && self.by_ranks(worker, block, excluded) {
            return;
        }
        worker.way = Way::Best;
        let cap = self.cap;
        worker.best.clear(len, cap);
        (worker.limit, worker.floor) = (cap, T::NAN);
        // A lane without a query compares with NaN, which is never within.
        worker.bounds = core::array::from_fn(|q| if q < len { cap } else { T::NAN });
        let ids = &queries.ids()[block.start as usize..block.end as usize];
        worker.own = [u32::MAX; PAD];
        if excluded {
            worker.own[..len].copy_from_slice(ids);
        }
        if self.left.is_none() {
            self.search(worker);
            return;
        }
        // Queries of another set may be far apart: one by one.
        for query in 0..len {
            worker.bound.set(worker.queries[query..].iter().step_by(PAD).copied());
            worker.bounds = [T::NAN; PAD];
            worker.bounds[query] = cap;
            worker.limit = cap;
            self.search(worker);
        }
    }

    /// Looks at all leaves that may hold a neighbour of a block.
    fn search(&self, worker: &mut Worker<'_, T>) {
        let boxes = self.right.boxes();
        let top = boxes.top();
        match &self.rings {
            Some(rings) => self.walk(worker, rings),
            None if top == 0 && worker.way == Way::Ranks => self.node(worker, boxes, 0, u32::MAX),
            None => self.visit(worker, boxes, top, 0..boxes.count(top), u32::MAX),
        }
    }

    /// Finds the best of every query of a block by their keys, unless those leave them open.
    fn by_ranks(&self, worker: &mut Worker<'_, T>, block: &Run, excluded: bool) -> bool {
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
        if worker.open || ranks.is_open(block.len(), self.cap) {
            worker.doubt += DOUBT;
            return false;
        }
        true
    }

    /// Looks at the leaves next to a block first, so that there are bounds for all others.
    fn seed(&self, worker: &mut Worker<'_, T>, boxes: &Boxes<T>, block: &Run) {
        let seeds = self.k.div_ceil(SEED);
        let mut order = [[0; FAN]; PAD];
        let mut found = 0;
        if self.left.is_none() {
            // The leaves around the block's own, which serve all of its queries.
            let node = block.start as usize / (FAN * FAN);
            let (leaves, count) = self.nearest(boxes, 0, node * FAN, &worker.bound);
            order = [leaves; PAD];
            found = count;
            worker.seeds = [(node, 0); PAD];
        } else {
            let mut point = core::mem::take(&mut worker.point);
            for query in 0..block.len() {
                point.set(worker.queries[query..].iter().step_by(PAD).copied());
                let down =
                    |node, level| node * FAN + self.nearest(boxes, level, node * FAN, &point).0[0];
                let node = match &self.rings {
                    Some(rings) => rings.near(&point) / (FAN * FAN),
                    None => (1..=boxes.top()).rev().fold(0, down),
                };
                (order[query], found) = self.nearest(boxes, 0, node * FAN, &point);
                worker.seeds[query] = (node, 0);
            }
            worker.point = point;
        }
        let Worker { ranks: Some(ranks), queries, .. } = worker else { return };
        for seed in 0..seeds.min(found) {
            for query in 0..block.len() {
                let (leaf, (node, leaves)) = (order[query][seed], &mut worker.seeds[query]);
                let job = self.right.node_job(queries, *node);
                if job.leaves() >> leaf & 1 == 1 {
                    *leaves |= 1 << leaf;
                    self.rank(&job, query, 1 << leaf, ranks);
                }
            }
            self.merge_above(ranks, 0);
        }
        (worker.limit, worker.floor) = ranks.limits();
    }

    /// Up to 16 blocks of a level from `first` on, the nearest to a box first, and how many.
    fn nearest(
        &self,
        boxes: &Boxes<T>,
        level: usize,
        first: usize,
        bound: &BoxOf<T>,
    ) -> ([usize; FAN], usize) {
        let count = FAN.min(boxes.count(level) - first);
        let mut gaps = [T::ZERO; PAD];
        self.kernels.gaps(&boxes.job(level, first, count, bound), T::INFINITY, &mut gaps);
        let mut order = core::array::from_fn(|at| at);
        order[..count].sort_unstable_by(|&a, &b| {
            gaps[a].partial_cmp(&gaps[b]).unwrap_or(core::cmp::Ordering::Equal)
        });
        (order, count)
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
    fn active(
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
        while active != 0 {
            let query = active.trailing_zeros() as usize;
            active &= active - 1;
            let (seeded, seeds) = worker.seeds[query];
            let leaves = if seeded == node { all & !seeds } else { all };
            self.rank(&job, query, leaves, ranks);
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
        let limit = if self.prune { worker.limit } else { T::INFINITY };
        let first = nodes.start;
        let job = boxes.job(level, first, nodes.len(), &worker.bound);
        let near = self.kernels.gaps(&job, limit, &mut gaps) & some;
        let mut order = [(T::ZERO, 0usize); PAD];
        let mut len = 0;
        let mut left = near;
        while left != 0 {
            let node = left.trailing_zeros() as usize;
            left &= left - 1;
            let gap = gaps[node];
            let mut at = len;
            while at > 0 && gap < order[at - 1].0 {
                order[at] = order[at - 1];
                at -= 1;
            }
            order[at] = (gap, node);
            len += 1;
        }
        for &(gap, node) in &order[..len] {
            let node = first + node;
            if self.prune {
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
                    && self.right.least_row(level, node) > worker.best.last_row()
                {
                    continue;
                }
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
            if level == 0 {
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
        worker.work.tests += (FAN * ids.len()) as u64;
        if best.is_sorted() {
            self.kernels.keep(&job, ids, own, &mut best.kept());
            worker.limit = best.limit();
            return;
        }
        self.kernels.leaf(&job, bounds, hits);
        if hits.count == 0 {
            return;
        }
        // The last leaf may be short; what stands behind it is no point.
        let valid = ((1u64 << ids.len()) - 1) as u32;
        for hit in 0..hits.count {
            let query = hits.query[hit] as usize;
            let mut lanes = hits.lanes[hit] & valid;
            while lanes != 0 {
                let lane = lanes.trailing_zeros() as usize;
                lanes &= lanes - 1;
                if ids[lane] != own[query]
                    && let Some(bound) = best.offer(query, hits.acc[hit][lane].near(ids[lane]))
                {
                    bounds[query] = bound;
                }
            }
        }
        worker.limit = largest(bounds);
    }
}

impl<'a, T: Scalar> Worker<'a, T> {
    fn new(join: &CpuKnn<'a, T>) -> Self {
        Worker {
            work: Work::default(),
            ranks: (join.k <= SORTED && join.prune).then(|| Ranks::new(join.k)),
            // Queries of another set are looked at one by one, and so are their best.
            best: match join.sieve.is_some() || join.left.is_some() {
                true => Best::collecting(join.k),
                false => Best::new(join.k),
            },
            sifter: Sifter::new(join.k),
            way: Way::Best,
            doubt: 0,
            hits: Hits::new(),
            queries: vec![T::ZERO; join.right.dim() * PAD],
            bound: BoxOf::new(),
            bounds: [T::NAN; PAD],
            limit: T::INFINITY,
            floor: T::NAN,
            open: false,
            seen: Seen::new(join.rings.as_ref().map_or(0, |_| join.right.len().div_ceil(FAN))),
            seeds: [(0, 0); PAD],
            point: BoxOf::new(),
            own: [u32::MAX; PAD],
            reporter: Reporter::new(join.monitor),
            rows: vec![Vec::new(); PAD],
            distances: vec![Vec::new(); PAD],
            pairs: Vec::new(),
        }
    }

    /// Makes rows of the best of each query.
    fn fill(&mut self, join: &CpuKnn<'_, T>, queries: usize, request: Request) {
        for query in 0..queries {
            let (row, distances) = (&mut self.rows[query], &mut self.distances[query]);
            match (self.way, &self.ranks) {
                (Way::Ranks, Some(ranks)) => ranks.finish(query, row, distances),
                _ => self.best.finish(query, row, distances),
            }
            self.work.pairs += row.len() as u64;
            if request.sorted {
                sort_by_id(row, distances, &mut self.pairs);
            }
            if request.distances {
                distances.iter_mut().for_each(|acc| *acc = join.arithmetic.distance(*acc));
            }
        }
    }
}

impl<T: Scalar> Executor<T> for CpuKnn<'_, T> {
    fn count(&self) -> Work {
        self.work(Phase::Counting, &|_, worker, queries, _| {
            worker.fill(self, queries.len(), Request::default());
            ControlFlow::Continue(())
        })
    }

    fn degrees(&self, degrees: &[AtomicU64]) -> Work {
        self.work(Phase::Counting, &|_, worker, queries, _| {
            worker.fill(self, queries.len(), Request::default());
            for (query, row) in queries.iter().zip(&worker.rows) {
                degrees[*query as usize].store(row.len() as u64, Relaxed);
            }
            ControlFlow::Continue(())
        })
    }

    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> Work {
        self.work(Phase::Joining, &|number, worker, queries, ahead| {
            worker.fill(self, queries.len(), request);
            let neighbors = &worker.rows[..queries.len()];
            let distances =
                if request.distances { &worker.distances[..queries.len()] } else { &[] };
            emit(&Rows { worker: number, queries, neighbors, distances, ahead })
        })
    }

    fn workers(&self) -> usize {
        self.pool.threads()
    }
}
