//! The ε-join on the CPU: blocks of queries against tiles of candidates.
//!
//! ```text
//! each thread, until the queue is empty:
//!     for each block of up to 16 neighbouring queries of a unit:
//!         candidates = index(box of the block)          runs: taken whole, or tested
//!         for each tile of tested candidates:  count matches, or append them to rows
//!         decide in the points' own arithmetic what the lanes left open
//!         hand the counts or the rows to the sink
//! ```

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::kernel::{Job, Kernels, Lanes, Open};
use super::pool::Pool;
use super::tile::{Band, Filter, Tile};
use crate::exec::queue::Queue;
use crate::exec::{Emit, Executor, Request, Rows, Work};
use crate::index::grid::{Cursors, Pattern};
use crate::index::{BoxOf, Candidates, Index, Layout, Prune, Run, ego, push_run};
use crate::join::DuplicateRemoval;
use crate::metric::Threshold;
use crate::scalar::Scalar;

/// The most queries in a block.
const BLOCK: u32 = 16;

/// An index built and ready to be joined.
pub(crate) struct CpuJoin<'a, T> {
    pub(crate) pool: &'a Pool,
    pub(crate) threshold: Threshold<T>,
    pub(crate) kernels: Kernels<T>,
    pub(crate) index: Index<T>,
    /// None where the right points are joined with themselves.
    pub(crate) left: Option<Layout<T>>,
    pub(crate) right: Layout<T>,
    pub(crate) include_self: bool,
    /// Whether boxes are worth looking at.
    pub(crate) prune: bool,
    pub(crate) removal: DuplicateRemoval,
    pub(crate) unit: usize,
}

/// Which pairs a pass looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cover {
    /// Every candidate of every query.
    Full,
    /// Of each block, itself and the candidates behind it.
    Behind,
    /// As the grid's UNICOMP says.
    Unicomp,
}

impl<T: Scalar> CpuJoin<'_, T> {
    /// The points that ask.
    pub(crate) fn queries(&self) -> &Layout<T> {
        self.left.as_ref().unwrap_or(&self.right)
    }

    fn is_self(&self) -> bool {
        self.left.is_none()
    }

    fn excludes_self(&self) -> bool {
        self.is_self() && !self.include_self
    }

    pub(crate) fn bytes(&self) -> usize {
        self.right.bytes() + self.left.as_ref().map_or(0, Layout::bytes) + self.index.bytes()
    }

    fn once(&self) -> Cover {
        match (self.removal, &self.index) {
            (DuplicateRemoval::None, _) => Cover::Full,
            (DuplicateRemoval::Unicomp, Index::Grid(_)) => Cover::Unicomp,
            _ => Cover::Behind,
        }
    }

    /// Runs `action` on every block of queries, on all threads of the current pool.
    fn work(&self, cover: Cover, action: &Action<'_, T>) -> Work {
        let queue = Queue::new(self.queries().len(), self.unit);
        let works = self.pool.each(|worker| {
            let mut scratch = Scratch::new(self, worker);
            while let Some(unit) = queue.take() {
                if self
                    .visit_unit(&mut scratch, unit, cover, action)
                    .is_break()
                {
                    queue.close();
                }
            }
            scratch.work
        });
        let mut total = Work::default();
        works.into_iter().for_each(|work| total += work);
        total
    }

    /// Cuts a unit into blocks, finds the candidates of each, and runs `action`.
    fn visit_unit(
        &self,
        scratch: &mut Scratch<T>,
        unit: Run,
        cover: Cover,
        action: &Action<'_, T>,
    ) -> ControlFlow<()> {
        let queries = self.queries();
        let mut bound = core::mem::replace(&mut scratch.bound, BoxOf::new());
        let flow = match &self.index {
            Index::Grid(grid) => {
                let one_cell = cover == Cover::Unicomp;
                let pattern = if one_cell {
                    Pattern::Unicomp
                } else {
                    Pattern::All
                };
                let reach = self.threshold.reach;
                grid.blocks(queries, unit, BLOCK, reach, one_cell, |block| {
                    queries.bound(&block, &mut bound);
                    let Scratch { runs, cursors, .. } = scratch;
                    runs.clear();
                    grid.runs(&self.threshold, &block, &bound, pattern, cursors, runs);
                    self.sift(scratch, &block, &bound, cover);
                    action(self, scratch, block, &bound)
                })
            }
            Index::Ego => {
                let join = ego::Join {
                    queries,
                    right: &self.right,
                    prune: &scratch.prune.clone(),
                };
                let mut recursion = core::mem::take(&mut scratch.recursion);
                let flow = join.run(unit, &mut recursion, &mut |block, bound, candidates| {
                    core::mem::swap(&mut scratch.candidates, candidates);
                    if cover == Cover::Behind {
                        keep_behind(&mut scratch.candidates.take, block.end);
                        keep_behind(&mut scratch.candidates.test, block.end);
                    }
                    let flow = action(self, scratch, block, bound);
                    core::mem::swap(&mut scratch.candidates, candidates);
                    flow
                });
                scratch.recursion = recursion;
                flow
            }
            Index::Brute | Index::Directory(_) => (|| {
                for start in unit.clone().step_by(BLOCK as usize) {
                    let block = start..unit.end.min(start + BLOCK);
                    queries.bound(&block, &mut bound);
                    scratch.runs.clear();
                    match &self.index {
                        Index::Directory(directory) => {
                            directory.runs(self.threshold.reach, &bound, &mut scratch.runs);
                        }
                        _ => push_run(&mut scratch.runs, 0..self.right.len() as u32),
                    }
                    self.sift(scratch, &block, &bound, cover);
                    action(self, scratch, block, &bound)?;
                }
                ControlFlow::Continue(())
            })(),
        };
        scratch.bound = bound;
        flow
    }

    /// Sorts the runs of a block into those to take and those to test.
    fn sift(&self, scratch: &mut Scratch<T>, block: &Run, bound: &BoxOf<T>, cover: Cover) {
        let Scratch {
            runs,
            candidates,
            prune,
            ..
        } = scratch;
        if cover == Cover::Behind {
            keep_behind(runs, block.end);
        }
        candidates.clear();
        if !self.prune {
            core::mem::swap(runs, &mut candidates.test);
            return;
        }
        for run in runs.drain(..) {
            prune.split(self.right.boxes(), run, bound, candidates);
        }
    }

    /// Counts the matches of each query of a block into `scratch.matches.counts`. Returns their
    /// sum or, where pairs are covered once, the number of unordered pairs.
    fn count_block(
        &self,
        scratch: &mut Scratch<T>,
        block: &Run,
        bound: &BoxOf<T>,
        cover: Cover,
    ) -> u64 {
        scratch.begin(self, block, bound);
        let mut within = 0;
        if cover != Cover::Full {
            // Pairs inside the block, each seen from both sides, and self pairs.
            self.scan(scratch, core::slice::from_ref(block), Mode::Count);
            within = (scratch.matches.counts.iter().sum::<u64>() - block.len() as u64) / 2;
            scratch.matches.counts.fill(0);
        }
        let candidates = core::mem::take(&mut scratch.candidates);
        self.scan(scratch, &candidates.test, Mode::Count);
        let taken: u64 = candidates.take.iter().map(|run| run.len() as u64).sum();
        scratch.candidates = candidates;
        scratch.work.taken += taken * block.len() as u64;
        for count in &mut scratch.matches.counts {
            *count += taken;
        }
        within + scratch.matches.counts.iter().sum::<u64>()
    }

    /// Writes the matches of each query of a block to `scratch.matches.rows`.
    fn fill_block(
        &self,
        scratch: &mut Scratch<T>,
        block: &Run,
        bound: &BoxOf<T>,
        cover: Cover,
        request: Request,
    ) {
        scratch.begin(self, block, bound);
        scratch.matches.rows.iter_mut().for_each(Vec::clear);
        // Ids will do as labels, unless something else hangs on the positions.
        let by_position = request.once || request.distances;
        let ids = self.right.ids();
        let exclude = self.excludes_self() || request.once;
        scratch.matches.own.clear();
        scratch
            .matches
            .own
            .extend(block.clone().map(|position| match (exclude, by_position) {
                (false, _) => u32::MAX,
                (true, true) => position,
                (true, false) => ids[position as usize],
            }));
        let mode = if by_position {
            Mode::Positions
        } else {
            Mode::Ids
        };

        if request.once && cover != Cover::Full {
            self.scan(scratch, core::slice::from_ref(block), mode);
            scratch.keep_later(block);
        }
        let candidates = core::mem::take(&mut scratch.candidates);
        self.scan(scratch, &candidates.test, mode);
        for run in &candidates.take {
            let own_run = self.is_self() && exclude;
            for (row, query) in scratch.matches.rows.iter_mut().zip(block.clone()) {
                let parts = if own_run && run.contains(&query) {
                    [run.start..query, query + 1..run.end]
                } else {
                    [run.clone(), run.end..run.end]
                };
                for part in parts {
                    match mode {
                        Mode::Positions => row.extend(part),
                        _ => row.extend_from_slice(&ids[part.start as usize..part.end as usize]),
                    }
                }
            }
            scratch.work.taken += (run.len() * block.len()) as u64;
        }
        scratch.candidates = candidates;
        if request.once && cover == Cover::Full {
            scratch.keep_later(block);
        }
        if by_position {
            self.positions_to_ids(scratch, block, request.distances);
        }
        if request.sorted {
            scratch.sort_rows(block.len(), request.distances);
        }
    }

    /// Replaces the positions in the rows by ids, and computes distances on the way.
    fn positions_to_ids(&self, scratch: &mut Scratch<T>, block: &Run, distances: bool) {
        let ids = self.right.ids();
        for (at, row) in scratch
            .matches
            .rows
            .iter_mut()
            .enumerate()
            .take(block.len())
        {
            if distances {
                self.queries()
                    .point(block.start + at as u32, &mut scratch.point);
                let (coords, stride) = (self.right.coords(), self.right.stride());
                let to = &mut scratch.distances[at];
                self.kernels
                    .distances(coords, stride, &scratch.point, row, to);
                to.iter_mut()
                    .for_each(|acc| *acc = self.threshold.distance(*acc));
            }
            row.iter_mut()
                .for_each(|label| *label = ids[*label as usize]);
        }
    }

    /// Tests the points of `runs` against the block that `scratch` was begun with.
    fn scan(&self, scratch: &mut Scratch<T>, runs: &[Run], mode: Mode) {
        let mut ahead = Ahead { runs, done: 0 };
        while !ahead.runs.is_empty() {
            let start = ahead;
            match self.fill_local(scratch, &mut ahead, mode) {
                Some(band) => self.scan_local(scratch, band, mode),
                None => {
                    ahead = start;
                    self.scan_exact(scratch, &mut ahead, mode);
                }
            }
        }
    }

    /// Fills the tile of relative `f32` coordinates, unless `f32` cannot tell near from
    /// far here.
    fn fill_local(
        &self,
        scratch: &mut Scratch<T>,
        ahead: &mut Ahead<'_>,
        mode: Mode,
    ) -> Option<Band<f32>> {
        let filter = scratch.filter?;
        let Scratch {
            local,
            origin,
            local_queries,
            ..
        } = scratch;
        self.fill(local, ahead, mode, |j, from, len, to| {
            if let Some(from) = T::as_f64(from) {
                self.kernels.localize(from, len, origin[j], to);
            }
        });
        let mut spread = self.kernels.spread(local_queries);
        for column in local.coords.chunks_exact(local.stride) {
            spread = spread.max(self.kernels.spread(&column[..local.len]));
        }
        filter.band(spread)
    }

    fn scan_local(&self, scratch: &mut Scratch<T>, band: Band<f32>, mode: Mode) {
        let Some(lanes) = &self.kernels.filter else {
            return;
        };
        let Scratch {
            local,
            local_queries,
            matches,
            ..
        } = scratch;
        matches.scan(lanes, local, local_queries, band, self.right.dim(), mode);
        scratch.work.tests += (scratch.local.len * scratch.matches.counts.len()) as u64;
        self.decide_open(&mut scratch.matches, &scratch.local, &scratch.queries, mode);
    }

    fn scan_exact(&self, scratch: &mut Scratch<T>, ahead: &mut Ahead<'_>, mode: Mode) {
        let Scratch {
            exact,
            queries,
            matches,
            exact_band,
            ..
        } = scratch;
        self.fill(exact, ahead, mode, |_, from, len, to| {
            to[..len].copy_from_slice(&from[..len]);
        });
        matches.scan(
            &self.kernels.exact,
            exact,
            queries,
            *exact_band,
            self.right.dim(),
            mode,
        );
        scratch.work.tests += (scratch.exact.len * scratch.matches.counts.len()) as u64;
        self.decide_open(&mut scratch.matches, &scratch.exact, &scratch.queries, mode);
    }

    /// Fills a tile with the points ahead, and pads it.
    fn fill<L: Scalar>(
        &self,
        tile: &mut Tile<L>,
        ahead: &mut Ahead<'_>,
        mode: Mode,
        column: impl Fn(usize, &[T], usize, &mut [L]),
    ) {
        tile.clear();
        while let Some((run, rest)) = ahead.runs.split_first() {
            if tile.is_full() {
                break;
            }
            let run = run.start + ahead.done..run.end;
            let taken = tile.gather(&self.right, run.clone(), &column);
            let labels = &mut tile.labels[tile.len - taken..tile.len];
            match mode {
                Mode::Count => {}
                Mode::Ids => {
                    labels.copy_from_slice(&self.right.ids()[run.start as usize..][..taken])
                }
                Mode::Positions => labels.iter_mut().zip(run.start..).for_each(|(l, p)| *l = p),
            }
            if taken == run.len() {
                *ahead = Ahead {
                    runs: rest,
                    done: 0,
                };
            } else {
                ahead.done += taken as u32;
            }
        }
        tile.pad(self.right.dim());
    }

    /// Decides what the lanes left open, in the arithmetic that counts.
    fn decide_open<L: Scalar>(
        &self,
        matches: &mut Matches<T>,
        tile: &Tile<L>,
        queries: &[T],
        mode: Mode,
    ) {
        let dim = self.right.dim();
        let Matches {
            open,
            acc,
            counts,
            rows,
            own,
        } = matches;
        for Open { query, candidate } in open.drain(..) {
            let (query, position) = (query as usize, tile.position(candidate));
            let point = &queries[query * dim..][..dim];
            let (coords, stride) = (self.right.coords(), self.right.stride());
            self.kernels
                .distances(coords, stride, point, &[position], acc);
            if acc[0] > self.threshold.bound {
                continue;
            }
            let label = match mode {
                Mode::Count => {
                    counts[query] += 1;
                    continue;
                }
                Mode::Ids => self.right.ids()[position as usize],
                Mode::Positions => position,
            };
            if label != own[query] {
                rows[query].push(label);
            }
        }
    }
}

impl<T: Scalar> Executor<T> for CpuJoin<'_, T> {
    fn count(&self) -> Work {
        let cover = if self.is_self() {
            self.once()
        } else {
            Cover::Full
        };
        let mut total = self.work(cover, &|worker, scratch, block, bound| {
            let found = worker.count_block(scratch, &block, bound, cover);
            scratch.work.pairs += found;
            ControlFlow::Continue(())
        });
        if self.is_self() {
            let points = self.right.len() as u64;
            // Once-only passes have left self pairs out, full passes have them in.
            total.pairs = match cover {
                Cover::Full => total.pairs - if self.include_self { 0 } else { points },
                _ => 2 * total.pairs + if self.include_self { points } else { 0 },
            };
        }
        total
    }

    fn degrees(&self, degrees: &[AtomicU64]) -> Work {
        let own = u64::from(self.excludes_self());
        self.work(Cover::Full, &|worker, scratch, block, bound| {
            worker.count_block(scratch, &block, bound, Cover::Full);
            let ids = &worker.queries().ids()[block.start as usize..block.end as usize];
            for (id, count) in ids.iter().zip(&scratch.matches.counts) {
                degrees[*id as usize].store(count - own, Relaxed);
                scratch.work.pairs += count - own;
            }
            ControlFlow::Continue(())
        })
    }

    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> Work {
        let cover = if request.once {
            self.once()
        } else {
            Cover::Full
        };
        self.work(cover, &|worker, scratch, block, bound| {
            worker.fill_block(scratch, &block, bound, cover, request);
            let queries = &worker.queries().ids()[block.start as usize..block.end as usize];
            let neighbors = &scratch.matches.rows[..queries.len()];
            scratch.work.pairs += neighbors.iter().map(|row| row.len() as u64).sum::<u64>();
            let distances = if request.distances {
                &scratch.distances[..]
            } else {
                &[]
            };
            emit(&Rows {
                worker: scratch.worker,
                queries,
                neighbors,
                distances,
            })
        })
    }

    fn workers(&self) -> usize {
        self.pool.threads()
    }
}

type Action<'a, T> =
    dyn Fn(&CpuJoin<'_, T>, &mut Scratch<T>, Run, &BoxOf<T>) -> ControlFlow<()> + Sync + 'a;

/// What a scan does with a match.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Count,
    /// Append the candidate's input row.
    Ids,
    /// Append the candidate's position.
    Positions,
}

/// Runs still to be scanned, and how many points of the first of them are done.
#[derive(Clone, Copy)]
struct Ahead<'a> {
    runs: &'a [Run],
    done: u32,
}

/// What was found for the queries of a block.
struct Matches<T> {
    counts: Vec<u64>,
    rows: Vec<Vec<u32>>,
    /// The label of each query itself, or one that no candidate has.
    own: Vec<u32>,
    open: Vec<Open>,
    acc: Vec<T>,
}

impl<T: Scalar> Matches<T> {
    /// Tests the candidates of a tile.
    fn scan<L: Scalar>(
        &mut self,
        lanes: &Lanes<L>,
        tile: &Tile<L>,
        queries: &[L],
        band: Band<L>,
        dim: usize,
        mode: Mode,
    ) {
        let job = Job {
            coords: &tile.coords,
            stride: tile.stride,
            len: tile.len,
            labels: &tile.labels,
            queries,
            count: self.counts.len(),
            dim,
            sure: band.sure,
            maybe: band.maybe,
        };
        match mode {
            Mode::Count => lanes.count(&job, &mut self.counts, &mut self.open),
            _ => lanes.rows(&job, &self.own, &mut self.rows, &mut self.open),
        }
    }
}

/// Cuts off everything before `end`.
fn keep_behind(runs: &mut Vec<Run>, end: u32) {
    runs.retain_mut(|run| {
        run.start = run.start.max(end);
        run.start < run.end
    });
}

/// What a thread needs to work, kept from block to block.
struct Scratch<T> {
    worker: usize,
    work: Work,
    prune: std::rc::Rc<Prune<T>>,
    filter: Option<Filter>,
    exact_band: Band<T>,
    bound: BoxOf<T>,
    runs: Vec<Run>,
    candidates: Candidates,
    cursors: Cursors,
    recursion: ego::Recursion,
    /// The queries of the block, row after row, and relative to `origin` in `f32`.
    queries: Vec<T>,
    local_queries: Vec<f32>,
    origin: Vec<f64>,
    exact: Tile<T>,
    local: Tile<f32>,
    matches: Matches<T>,
    distances: Vec<Vec<T>>,
    point: Vec<T>,
    pairs: Vec<(u32, T)>,
}

impl<T: Scalar> Scratch<T> {
    fn new(join: &CpuJoin<'_, T>, worker: usize) -> Self {
        let dim = join.right.dim();
        let filter = join.kernels.filter.and(Filter::new(&join.threshold, dim));
        Scratch {
            worker,
            work: Work::default(),
            prune: std::rc::Rc::new(Prune::new(join.kernels, &join.threshold, dim)),
            filter,
            exact_band: Band::exact(&join.kernels, &join.threshold, dim),
            bound: BoxOf::new(),
            runs: Vec::new(),
            candidates: Candidates::default(),
            cursors: Cursors::default(),
            recursion: ego::Recursion::default(),
            queries: Vec::new(),
            local_queries: Vec::new(),
            origin: Vec::new(),
            exact: Tile::new(dim),
            local: Tile::new(dim),
            matches: Matches {
                counts: Vec::new(),
                rows: vec![Vec::new(); BLOCK as usize],
                own: Vec::new(),
                open: Vec::new(),
                acc: Vec::new(),
            },
            distances: vec![Vec::new(); BLOCK as usize],
            point: Vec::new(),
            pairs: Vec::new(),
        }
    }

    /// Loads the queries of a block.
    fn begin(&mut self, join: &CpuJoin<'_, T>, block: &Run, bound: &BoxOf<T>) {
        let (layout, dim) = (join.queries(), join.right.dim());
        self.matches.counts.clear();
        self.matches.counts.resize(block.len(), 0);
        self.queries.clear();
        self.queries.resize(block.len() * dim, T::ZERO);
        for j in 0..dim {
            let column = &layout.column(j)[block.start as usize..block.end as usize];
            for (at, &x) in column.iter().enumerate() {
                self.queries[at * dim + j] = x;
            }
        }
        if self.filter.is_some() {
            self.origin.clear();
            let sides = bound.lo.iter().zip(&bound.hi);
            self.origin
                .extend(sides.map(|(lo, hi)| lo.to_f64() + (hi.to_f64() - lo.to_f64()) / 2.0));
            self.local_queries.clear();
            let origin = self.origin.iter().cycle();
            let queries = self.queries.iter().zip(origin);
            self.local_queries
                .extend(queries.map(|(x, origin)| (x.to_f64() - origin) as f32));
        }
    }

    /// Keeps of each row the positions behind its query's own.
    fn keep_later(&mut self, block: &Run) {
        for (row, query) in self.matches.rows.iter_mut().zip(block.clone()) {
            row.retain(|&position| position > query);
        }
    }

    fn sort_rows(&mut self, rows: usize, distances: bool) {
        for (row, distances_of) in self
            .matches
            .rows
            .iter_mut()
            .zip(&mut self.distances)
            .take(rows)
        {
            if !distances {
                row.sort_unstable();
                continue;
            }
            self.pairs.clear();
            self.pairs
                .extend(row.iter().copied().zip(distances_of.iter().copied()));
            self.pairs.sort_unstable_by_key(|pair| pair.0);
            row.iter_mut()
                .zip(&self.pairs)
                .for_each(|(id, pair)| *id = pair.0);
            distances_of
                .iter_mut()
                .zip(&self.pairs)
                .for_each(|(d, pair)| *d = pair.1);
        }
    }
}
