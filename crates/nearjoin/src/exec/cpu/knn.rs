//! The KNN-join on the CPU: a block of queries looks at the leaves that may hold neighbours.
//!
//! ```text
//! each thread, until the queue is empty:
//!     for each block of up to 16 neighbouring queries of a unit:
//!         in lockstep, by tagged keys, or by full comparison where those leave the answer open:
//!             look at all leaves that may hold a neighbour: down a tree, or ring by ring
//!         hand the k best of each query to the sink
//! ```
//!
//! The searches are in `descend.rs` (tree) and `rings.rs` (grid), what is done with a leaf in
//! `lockstep.rs`, `ranked.rs` and `descend.rs`; brute force, in `sieve.rs`, and products, in `scores.rs`, look at
//! all points for a whole unit.
//! What becomes of the best is in `answer.rs`.
//!
//! Why no neighbour is missed: a box is passed over only if its distance from the box of the
//! block, or from a query, exceeds what that query's k-th best is at. No point in the box is
//! nearer than the box, rounding included: the lanes measure both by the same monotone steps.
//! Points at exactly the k-th distance are still looked at, since a smaller row wins a tie.

use core::ops::ControlFlow;
use core::sync::atomic::AtomicU64;
use std::sync::Arc;

use super::kernel::{Hits, NearestKernels, PAD, Ranks};
use super::lockstep::Steps;
use super::numbers::Numbers;
use super::ranked::{Doubt, Seed};
use super::rings::Seen;
use super::scores::{self, Scorer, Scores};
use super::select::{Best, SORTED};
use super::sieve::{Search, Sieve, Sifter};
use super::units::{Units, pieces};
use crate::error::Result;
use crate::exec::pool::Pool;
use crate::exec::queue::Queue;
use crate::exec::{Emit, Executor, Part, Reporter, Request, Work};
use crate::index::boxes::FAN;
use crate::index::{BoxOf, Leaves, Rings, Run};
use crate::metric::Threshold;
use crate::monitor::{Monitor, Phase};
use crate::options::Strategy;
use crate::points::Points;
use crate::scalar::Scalar;

/// Queries, and a tree, a grid, or an order without one, of the points that may be their
/// neighbours.
pub(crate) struct CpuKnn<'a, T> {
    pub(super) pool: &'a Pool,
    pub(super) kernels: NearestKernels<T>,
    /// None where the queries are the right points, in their order.
    pub(super) left: Option<Arc<Leaves<T>>>,
    pub(super) right: Arc<Leaves<T>>,
    /// The points of both sides as they were given.
    pub(super) given: [Points<'a, T>; 2],
    /// Whether both sides are of one set.
    pub(super) same: bool,
    /// The positions of the queries.
    pub(super) range: Run,
    pub(super) numbers: Numbers<'a>,
    pub(super) include_self: bool,
    /// Neighbours that are looked for: one more than are wanted where the queries cannot be told
    /// from the points by their positions, and drop themselves in the end.
    pub(super) k: usize,
    pub(super) wanted: usize,
    /// How distances are computed; its ε is not used.
    pub(super) arithmetic: Threshold<T>,
    /// Nothing with a larger accumulated distance is a neighbour.
    pub(super) cap: T,
    pub(super) finding: Arc<Finding<T>>,
    pub(super) strategy: Strategy,
    pub(super) unit: usize,
    pub(super) monitor: Option<&'a Monitor>,
    pub(super) expected_tests: f64,
}

/// How the candidates of a block are found.
// There is one of it in a join.
#[allow(clippy::large_enum_variant)]
pub(super) enum Finding<T> {
    /// Down a tree, nearest first.
    Tree,
    /// In rings of cells around the block.
    Rings(Rings<T>),
    /// All points are candidates, and go through a sieve.
    Sieve(Sieve<T>),
    /// All points are candidates, and have scores by products.
    Scores(Scores),
}

/// What is done with the best of each block of queries, by a thread.
pub(super) type Action<'a, T> = dyn Fn(&mut Worker<'_, T>, &Run) -> ControlFlow<()> + Sync + 'a;

/// The same, before it is made an object.
pub(super) trait BlockAction<T: Scalar>:
    Fn(&mut Worker<'_, T>, &Run) -> ControlFlow<()> + Sync
{
}
impl<T: Scalar, F: Fn(&mut Worker<'_, T>, &Run) -> ControlFlow<()> + Sync> BlockAction<T> for F {}

/// What a thread keeps from block to block.
pub(super) struct Worker<'a, T: Scalar> {
    pub(super) number: usize,
    pub(super) work: Work,
    /// The best of queries in lockstep, where they go so, and whether that is worth a try.
    pub(super) steps: Option<Steps>,
    pub(super) steps_doubt: Doubt,
    /// The best as the keys tell them; none for a large k.
    pub(super) ranks: Option<Ranks<T>>,
    /// The best by full comparison.
    pub(super) best: Best<T>,
    /// The best of a whole unit, where every point is a candidate.
    sifter: Sifter<T>,
    scorer: Scorer<T>,
    pub(super) way: Way,
    /// The query that looks alone, where one does.
    pub(super) only: Option<usize>,
    pub(super) doubt: Doubt,
    pub(super) hits: Hits<T>,
    /// The queries, a column of 16 per dimension, and the box around them.
    pub(super) queries: Vec<T>,
    pub(super) bound: BoxOf<T>,
    /// What each query's k-th best is at, as the lanes may compare with it.
    pub(super) bounds: [T; PAD],
    /// The largest of them, and from where on keys do not tell: NaN where they do not matter.
    pub(super) limit: T,
    pub(super) floor: T,
    /// Whether something was passed over that keys do not tell from the best.
    pub(super) open: bool,
    pub(super) seen: Seen,
    pub(super) seeds: [Seed; PAD],
    /// A query as a box.
    pub(super) point: BoxOf<T>,
    /// The rows of the queries themselves, where they are no neighbours; else one that no
    /// point has.
    pub(super) own: [u32; PAD],
    reporter: Reporter<'a>,
    pub(super) rows: Vec<Vec<u32>>,
    pub(super) distances: Vec<Vec<T>>,
    pub(super) pairs: Vec<(u32, T)>,
    pub(super) numbers: Vec<u32>,
}

/// How the best of a block are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Lockstep,
    Ranks,
    Best,
}

impl<'a, T: Scalar> CpuKnn<'a, T> {
    /// The points that ask, and others that do not.
    pub(super) fn queries(&self) -> &Leaves<T> {
        self.left.as_ref().unwrap_or(&self.right)
    }

    pub(super) fn excludes_self(&self) -> bool {
        self.same && !self.include_self
    }

    /// Whether a search leaves queries out that come upon themselves, by their positions.
    pub(super) fn passes_itself(&self) -> bool {
        self.left.is_none() && self.excludes_self()
    }

    /// Finds the best of every query, and runs `action` on each block, on all threads.
    fn work(&self, phase: Phase, action: &Action<'_, T>) -> Work {
        let queue = Queue::new(&self.range, self.unit);
        if let Some(monitor) = self.monitor {
            monitor.enter(phase, self.expected_tests as u64);
        }
        self.work_on(&queue, action).into_iter().sum()
    }

    /// The same for the queries of some units. Tells what each thread did.
    pub(super) fn work_on(&self, units: &dyn Units, action: &Action<'_, T>) -> Vec<Work> {
        // What was cancelled stays so.
        if self.monitor.is_some_and(Monitor::is_cancelled) {
            units.close();
        }
        self.pool.each_of(units.threads(self.pool.threads()), |number| {
            let mut worker = Worker::new(self, number);
            while let Some(unit) = units.take(number) {
                if self.visit_unit(&mut worker, &unit, action).is_break() {
                    units.close();
                }
            }
            worker.reporter.finish(worker.work);
            worker.work
        })
    }

    /// Cuts a unit into blocks, finds the best of their queries, and runs `action`.
    fn visit_unit(
        &self,
        worker: &mut Worker<'_, T>,
        unit: &Run,
        action: &Action<'_, T>,
    ) -> ControlFlow<()> {
        // Units that others share may be larger than those that brute force has room for.
        for piece in pieces(unit, self.unit) {
            match &*self.finding {
                Finding::Sieve(sieve) => self.sift(worker, sieve, &piece)?,
                Finding::Scores(scores) => {
                    let Worker { scorer, work, reporter, .. } = worker;
                    scorer.unit(&self.scoring(scores), &piece, |panels| {
                        *work += panels;
                        reporter.report(*work)
                    })?;
                }
                _ => {}
            }
            for (number, block) in pieces(&piece, FAN).enumerate() {
                match &*self.finding {
                    Finding::Sieve(_) => {
                        core::mem::swap(&mut worker.best, worker.sifter.best(number));
                    }
                    Finding::Scores(scores) => {
                        let Worker { scorer, best, .. } = worker;
                        scorer.finish(&self.scoring(scores), &piece, &block, best);
                    }
                    _ => self.block(worker, &block),
                }
                action(worker, &block)?;
                worker.reporter.report(worker.work)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// A search among all points by their scores.
    fn scoring<'b>(&'b self, scores: &'b Scores) -> scores::Search<'b, T> {
        let [left, right] = self.given;
        let (kernels, excluded) = (&self.kernels, self.passes_itself());
        scores::Search { scores, kernels, left, right, cap: self.cap, excluded }
    }

    /// Finds the best of every query of a unit among all points.
    fn sift(&self, worker: &mut Worker<'_, T>, sieve: &Sieve<T>, unit: &Run) -> ControlFlow<()> {
        let search = Search {
            sieve,
            kernels: &self.kernels,
            left: self.queries(),
            right: &self.right,
            cap: self.cap,
            excluded: self.passes_itself(),
        };
        let Worker { sifter, work, reporter, .. } = worker;
        sifter.unit(&search, unit, |tile| {
            *work += tile;
            reporter.report(*work)
        })
    }

    /// Finds the best of every query of a block.
    fn block(&self, worker: &mut Worker<'_, T>, block: &Run) {
        let queries = self.queries();
        let (leaf, len) = (block.start as usize / FAN, block.len());
        worker.queries.copy_from_slice(queries.leaf(leaf));
        queries.bound(leaf, &mut worker.bound);
        if worker.steps_doubt.trusts() && self.in_lockstep(worker, block) {
            return;
        }
        let excluded = self.passes_itself();
        if worker.doubt.trusts() && self.by_ranks(worker, block, excluded) {
            return;
        }
        (worker.way, worker.open) = (Way::Best, false);
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
            worker.only = Some(query);
            worker.best.turn();
            self.search(worker);
        }
    }

    /// Looks at all leaves that may hold a neighbour of a block.
    pub(super) fn search(&self, worker: &mut Worker<'_, T>) {
        let boxes = self.right.boxes();
        let top = boxes.top();
        match &*self.finding {
            Finding::Rings(rings) => self.walk(worker, rings),
            _ if top == 0 && worker.way == Way::Ranks => self.node(worker, boxes, 0, u32::MAX),
            _ => self.visit(worker, boxes, top, 0..boxes.count(top), u32::MAX),
        }
    }
}

impl<'a, T: Scalar> Worker<'a, T> {
    fn new(join: &CpuKnn<'a, T>, number: usize) -> Self {
        let sifts = matches!(*join.finding, Finding::Sieve(_) | Finding::Scores(_));
        let (dim, metric) = (join.right.dim(), join.arithmetic.metric);
        // Queries of another set may be far apart, and with a cap there may be fewer than k.
        let together = !sifts && join.left.is_none() && join.cap == T::INFINITY;
        let seen = match *join.finding {
            Finding::Rings(_) => join.right.len().div_ceil(FAN),
            _ => 0,
        };
        Worker {
            number,
            work: Work::default(),
            steps: together.then(|| Steps::new(join.k, dim, metric)).flatten(),
            steps_doubt: Doubt::default(),
            ranks: (join.k <= SORTED && !sifts).then(|| Ranks::new(join.k)),
            // Queries of another set are looked at one by one, and so are their best.
            best: match sifts || join.left.is_some() {
                true => Best::collecting(join.k),
                false => Best::new(join.k),
            },
            sifter: Sifter::new(join.k),
            scorer: Scorer::new(join.k),
            way: Way::Best,
            only: None,
            doubt: Doubt::default(),
            hits: Hits::new(),
            queries: vec![T::ZERO; join.right.dim() * PAD],
            bound: BoxOf::new(),
            bounds: [T::NAN; PAD],
            limit: T::INFINITY,
            floor: T::NAN,
            open: false,
            seen: Seen::new(seen),
            seeds: [Seed::default(); PAD],
            point: BoxOf::new(),
            own: [u32::MAX; PAD],
            reporter: Reporter::new(join.monitor),
            rows: vec![Vec::new(); PAD],
            distances: vec![Vec::new(); PAD],
            pairs: Vec::new(),
            numbers: Vec::new(),
        }
    }
}

impl<T: Scalar> Executor<T> for CpuKnn<'_, T> {
    fn len(&self) -> usize {
        self.range.len()
    }

    fn index_bytes(&self) -> u64 {
        let finding = match &*self.finding {
            Finding::Tree => 0,
            Finding::Rings(rings) => rings.bytes(),
            Finding::Sieve(sieve) => sieve.bytes(),
            Finding::Scores(scores) => scores.bytes(),
        };
        let left = self.left.as_ref().map_or(0, |left| left.bytes());
        (match self.numbers {
            Numbers::Rows | Numbers::Shared => self.right.bytes() + left + finding,
            Numbers::Places { .. } => 0,
            Numbers::Of(_) => left,
        }) as u64
    }

    fn count(&self) -> Result<Work> {
        Ok(self.work(Phase::Counting, &self.counting()))
    }

    fn degrees(&self, degrees: &[AtomicU64]) -> Result<Work> {
        Ok(self.work(Phase::Counting, &self.counting_each(degrees)))
    }

    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        Ok(self.work(Phase::Joining, &self.filling(request, emit)))
    }

    fn rows_at(&self, positions: Run) -> Result<Vec<u32>> {
        let ids = &self.queries().ids()[positions.start as usize..positions.end as usize];
        Ok(ids.iter().map(|&id| self.numbers.row(id)).collect())
    }

    fn part<'b>(&'b self, part: Part<'b, T>) -> Result<Box<dyn Executor<T> + 'b>> {
        Ok(Box::new(self.of_part(part)?))
    }

    fn workers(&self) -> usize {
        self.pool.threads()
    }
}
