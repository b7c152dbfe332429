//! The ε-join by products: many queries against panels of all candidates.
//!
//! ```text
//! for each piece of a unit, up to 256 queries:
//!     for each run of panels:
//!         products of all queries and all candidates      far: most of them
//!         sure pairs are counted, or appended to rows; open ones are decided first
//!     its blocks are handed out as those of any other strategy
//! a piece whose rows are so long that they take too much memory is done block by block
//! ```
//!
//! Why no pair is missed or made up is in [`crate::filter::product`].

use core::ops::ControlFlow;

use super::epsilon::{Action, BLOCK, Cover, CpuJoin, Worker};
use super::kernel::{Found, Near, PANEL, ProductJob, ProductKernels, SimdLevel};
use super::units::pieces;
use crate::exec::{Reporter, Request, Work};
use crate::filter::product::{Rounded, Within};
use crate::index::panels::pack;
use crate::index::{BoxOf, Index, Panels, Run};
use crate::plan::{Multiplier, Multiplying, PIECE_PAIRS};
use crate::points::Points;
use crate::scalar::Scalar;

/// Queries that pass over the candidates together.
pub(super) const PIECE: usize = 256;
/// Panels between two looks at what was found: a few hundred candidates.
const PANELS: usize = 12;

/// Words in a line of the cache.
const LINE: usize = 16;
/// Neighbours in the rows of a piece of several blocks, at the most.
const MOST_IN_ROWS: usize = PIECE_PAIRS as usize;

/// The loops over products that a plan is for.
pub(super) fn kernels_for(simd: SimdLevel, multiplying: &Multiplying) -> ProductKernels {
    #[cfg(test)]
    if let Some(forced) = tests::forced() {
        return forced;
    }
    match (multiplying.by, ProductKernels::of_pairs(simd)) {
        (Multiplier::Numbers, _) | (_, None) => ProductKernels::new(simd),
        (Multiplier::Pairs | Multiplier::Tiles, Some(pairs)) => pairs,
    }
}

/// Queries in groups, rounded as the candidates are.
#[derive(Default)]
pub(super) struct Grouped {
    coords: Vec<u32>,
    /// So many words are skipped, that the first one begins a line of the cache.
    skipped: usize,
    /// What their products are compared with; more than any where there is no query.
    pub(super) beside: [Vec<f32>; 2],
    pub(super) rounded: Vec<Rounded>,
}

impl Grouped {
    /// Rounds some rows of the points.
    pub(super) fn pack<T: Scalar>(
        &mut self,
        panels: &Panels,
        points: Points<'_, T>,
        rows: &Run,
        beside: impl Fn(Rounded) -> [f32; 2],
    ) {
        let (words, groups) = (panels.words(), panels.kernels().groups);
        let padded = rows.len().next_multiple_of(groups.points);
        self.coords.resize(padded * words + LINE, 0);
        self.skipped = self.coords.as_ptr().align_offset(size_of::<[u32; LINE]>()).min(LINE);
        self.rounded.clear();
        self.rounded.resize(rows.len(), Rounded::default());
        let all = rows.start as usize..rows.end as usize;
        let coords = self.coords[self.skipped..].chunks_exact_mut(groups.points * words);
        let these = all.step_by(groups.points).zip(self.rounded.chunks_mut(groups.points));
        for ((first, rounded), to) in these.zip(coords) {
            let rows = first..first + rounded.len();
            pack(panels.rounding(), groups, points, rows, to, rounded);
        }
        let [first, second] = &mut self.beside;
        first.clear();
        second.clear();
        for &of_point in &self.rounded {
            let [a, b] = beside(of_point);
            first.push(a);
            second.push(b);
        }
        first.resize(padded, f32::INFINITY);
        second.resize(padded, f32::INFINITY);
    }

    /// All of them against some panels.
    pub(super) fn job<'a>(
        &'a self,
        panels: &'a Panels,
        some: core::ops::Range<usize>,
    ) -> ProductJob<'a> {
        let (coords, [open, sure]) = panels.some(some);
        let [query_open, query_sure] = &self.beside;
        ProductJob {
            panels: coords,
            open,
            sure,
            queries: &self.coords[self.skipped..],
            query_open,
            query_sure,
            words: panels.words(),
        }
    }
}

/// What is made of the pairs of a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Counts,
    /// Rows of neighbours: without the query itself, or only those with larger rows.
    Rows {
        others: bool,
        later: bool,
    },
}

/// The queries that pass over the candidates together, and what was found for them.
pub(super) struct Products<T> {
    /// Those that rows or counts are made for at once: a block of them where rows are long.
    piece: Run,
    /// Whether each query looks at candidates behind it only.
    behind: bool,
    made: Option<Wanted>,
    pub(super) counts: Vec<u64>,
    pub(super) rows: Vec<Vec<u32>>,
    pub(super) tests: u64,
    queries: Grouped,
    found: Found,
    /// Candidates that are open, and their sums.
    asked: Vec<u32>,
    sums: Vec<T>,
}

impl<T: Scalar> Products<T> {
    pub(super) fn new() -> Self {
        Products {
            piece: 0..0,
            behind: false,
            made: None,
            counts: Vec::new(),
            rows: Vec::new(),
            tests: 0,
            queries: Grouped::default(),
            found: Found::default(),
            asked: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// The next queries. What they are near to is looked for when it is asked for.
    pub(super) fn begin(&mut self, piece: Run, behind: bool) {
        (self.piece, self.behind, self.made) = (piece, behind, None);
    }

    /// The places of a block among the queries.
    pub(super) fn places(&self, block: &Run) -> core::ops::Range<usize> {
        let at = |position: u32| (position - self.piece.start) as usize;
        at(block.start)..at(block.end)
    }

    /// Finds the neighbours of all queries, or if those are too many of a block of them, unless that is
    /// done or somebody breaks it off: then nothing is complete.
    pub(super) fn make(
        &mut self,
        join: &CpuJoin<'_, T>,
        (wanted, block): (Wanted, &Run),
        reporter: &mut Reporter<'_>,
        work: Work,
    ) -> ControlFlow<()> {
        let is_there = self.piece.start <= block.start && block.end <= self.piece.end;
        if is_there && self.made == Some(wanted) {
            return ControlFlow::Continue(());
        }
        if !is_there {
            self.piece = block.clone();
        }
        self.made = Some(wanted);
        let Index::Product(panels, within) = &*join.index else {
            unreachable!("there are panels where pairs are told by products")
        };
        self.counts.clear();
        self.counts.resize(self.piece.len(), 0);
        self.clear_rows();
        let sides = |of_point| beside(within, of_point);
        self.queries.pack(panels, join.queries().points(), &self.piece, sides);
        let all = join.right.len().div_ceil(PANEL);
        let first = if self.behind { self.piece.start as usize / PANEL } else { 0 };
        for start in (first..all).step_by(PANELS) {
            let some = start..all.min(start + PANELS);
            let candidates = join.right.len().min(some.end * PANEL) - some.start * PANEL;
            let job = self.queries.job(panels, some);
            self.found.clear();
            panels.kernels().near(&job, &mut self.found);
            self.tests += (candidates * self.piece.len()) as u64;
            self.sort_out(join, wanted, (start * PANEL) as u32);
            reporter.report(Work { tests: work.tests + self.tests, ..work })?;
            if self.piece != *block && self.rows.iter().map(Vec::len).sum::<usize>() > MOST_IN_ROWS
            {
                // Only this block, and then those behind it as they are asked for.
                self.piece = 0..0;
                return self.make(join, (wanted, block), reporter, work);
            }
        }
        ControlFlow::Continue(())
    }

    /// Makes all rows empty. They keep their memory, unless that has become too much.
    fn clear_rows(&mut self) {
        if self.rows.iter().map(Vec::capacity).sum::<usize>() > 2 * MOST_IN_ROWS {
            self.rows.clear();
        }
        self.rows.iter_mut().for_each(Vec::clear);
        self.rows.resize(self.piece.len().max(self.rows.len()), Vec::new());
    }

    /// Counts or appends what some panels had, the first candidate of which is `first`.
    fn sort_out(&mut self, join: &CpuJoin<'_, T>, wanted: Wanted, first: u32) {
        for at in 0..self.found.near.len() {
            let mut near = self.found.near[at];
            near.base += first;
            let place = near.query as usize;
            let own = join.row_of(self.piece.start + near.query);
            let lanes = near.open
                & match wanted {
                    _ if self.behind => after(own, near.base),
                    Wanted::Rows { later: true, .. } => after(own, near.base),
                    Wanted::Rows { others: true, .. } => !lane_of(own, near.base),
                    _ => u32::MAX,
                };
            let open = lanes & !near.sure;
            let lanes =
                if open == 0 { lanes } else { lanes & near.sure | self.decide(join, near, open) };
            match wanted {
                Wanted::Counts => self.counts[place] += u64::from(lanes.count_ones()),
                Wanted::Rows { .. } => {
                    self.rows[place].extend(near.candidates(lanes).map(|(candidate, _)| candidate));
                }
            }
        }
    }

    /// Decides pairs in the points' own arithmetic: which of these lanes match.
    fn decide(&mut self, join: &CpuJoin<'_, T>, near: Near, lanes: u32) -> u32 {
        let row = (self.piece.start + near.query) as usize;
        let query = join.queries().points().row(row);
        self.asked.clear();
        self.asked.extend(near.candidates(lanes).map(|(candidate, _)| candidate));
        join.kernels.distances(join.right.points(), query, &self.asked, &mut self.sums);
        let matches = near.candidates(lanes).zip(&self.sums);
        let matches = matches.filter(|(_, sum)| **sum <= join.threshold.bound);
        matches.fold(0, |matches, ((_, lane), _)| matches | 1 << lane)
    }
}

/// What products with a point are compared with.
pub(super) fn beside(within: &Within, point: Rounded) -> [f32; 2] {
    [within.open(point), within.sure(point)]
}

/// The lane of a row among candidates from `base` on.
fn lane_of(row: u32, base: u32) -> u32 {
    row.checked_sub(base).and_then(|lane| 1u32.checked_shl(lane)).unwrap_or(0)
}

/// The lanes that come after it.
fn after(row: u32, base: u32) -> u32 {
    match row.checked_sub(base) {
        None => u32::MAX,
        Some(lane) => u32::MAX.checked_shl(lane + 1).unwrap_or(0),
    }
}

impl<T: Scalar> CpuJoin<'_, T> {
    /// Whether pairs are told by products.
    pub(super) fn has_products(&self) -> bool {
        matches!(*self.index, Index::Product(..))
    }

    /// Runs `action` on the blocks of a unit, whose candidates are told by products.
    pub(super) fn visit_products(
        &self,
        worker: &mut Worker<'_, T>,
        unit: &Run,
        cover: Cover,
        action: &Action<'_, T>,
    ) -> ControlFlow<()> {
        // Nobody looks at it.
        let bound = BoxOf::new();
        let behind = cover != Cover::Full;
        for piece in pieces(unit, self.unit.min(PIECE)) {
            worker.products.begin(piece.clone(), behind);
            worker.candidates.clear();
            let first = if behind { piece.start } else { 0 };
            worker.candidates.test.push(first..self.right.len() as u32);
            for block in pieces(&piece, BLOCK as usize) {
                action(worker, block, &bound)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Counts the matches of each query of a block, and all of them.
    pub(super) fn count_products(
        &self,
        worker: &mut Worker<'_, T>,
        block: &Run,
    ) -> ControlFlow<(), u64> {
        let Worker { products, reporter, work, scanner, .. } = worker;
        products.make(self, (Wanted::Counts, block), reporter, *work)?;
        let counts = &mut scanner.matches.counts;
        counts.clear();
        counts.extend_from_slice(&products.counts[products.places(block)]);
        ControlFlow::Continue(counts.iter().sum())
    }

    /// Finds the matches of each query of a block, in ascending order.
    pub(super) fn fill_products(
        &self,
        worker: &mut Worker<'_, T>,
        block: &Run,
        request: Request,
    ) -> ControlFlow<()> {
        let Worker { products, reporter, work, scanner, .. } = worker;
        let wanted = Wanted::Rows { others: self.excludes_self(), later: request.once };
        products.make(self, (wanted, block), reporter, *work)?;
        let places = products.places(block);
        let rows = scanner.matches.rows.iter_mut().zip(&mut products.rows[places]);
        rows.for_each(|(row, found)| core::mem::swap(row, found));
        scanner.matches.ascending = true;
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests;
