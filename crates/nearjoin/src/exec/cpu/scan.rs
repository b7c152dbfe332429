//! Testing candidates: tiles of them against a block of queries.

use super::epsilon::CpuJoin;
use super::kernel::{GatherJob, Job, Lanes, Open};
use super::sheet::{Made, Sheet};
use super::tile::{Ahead, Tile};
use crate::filter::{Band, Filter};
use crate::index::layout::Columns;
use crate::index::{Layout, Run};
use crate::metric::Threshold;
use crate::scalar::Scalar;

/// What a scan does with a match.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Count,
    /// Append the candidate's input row.
    Ids,
    /// Append the candidate's position.
    Positions,
}

/// How a candidate of a tile is known.
#[derive(Clone, Copy)]
enum Candidate {
    /// By its place in the layout.
    Position(u32),
    /// By its row of the input.
    Id(u32),
}

/// What was found for the queries of a block.
pub(super) struct Matches {
    /// One count for each query of the block.
    pub(super) counts: Vec<u64>,
    pub(super) rows: Vec<Vec<u32>>,
    /// The label of each query itself, or one that no candidate has.
    pub(super) own: Vec<u32>,
    /// Whether candidates come in ascending order of their labels, so that rows ascend.
    pub(super) ascending: bool,
    open: Vec<Open>,
}

impl Matches {
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

/// The block of queries that is being scanned, in every arithmetic that may be needed.
pub(super) struct Scanner<T> {
    pub(super) matches: Matches,
    /// Distances computed so far.
    pub(super) tests: u64,
    /// The block's positions among the queries.
    block: Run,
    pub(super) filter: Option<Filter>,
    exact_band: Band<T>,
    /// The queries row after row, and the same in `f32`: relative to the layout's origin,
    /// or to the block's own.
    queries: Vec<T>,
    local_queries: Vec<f32>,
    local_spread: f32,
    origin: Vec<f64>,
    exact: Tile<T>,
    local: Tile<f32>,
    acc: Vec<T>,
}

impl<T: Scalar> Scanner<T> {
    pub(super) fn new(join: &CpuJoin<'_, T>, most: usize) -> Self {
        let dim = join.right.dim();
        let Threshold { metric, eps, .. } = join.threshold;
        Scanner {
            matches: Matches {
                counts: Vec::new(),
                rows: vec![Vec::new(); most],
                own: Vec::new(),
                ascending: false,
                open: Vec::new(),
            },
            tests: 0,
            block: 0..0,
            filter: join.kernels.filter.and(Filter::new(metric, eps.to_f64(), dim)),
            exact_band: Band::exact(&join.kernels, &join.threshold, dim),
            queries: Vec::new(),
            local_queries: Vec::new(),
            local_spread: 0.0,
            origin: vec![0.0; dim],
            exact: Tile::new(dim),
            local: Tile::new(dim),
            acc: Vec::new(),
        }
    }

    /// Loads the queries of a block and forgets the counts of the last. `origin` is asked for a place
    /// near the block where one is needed.
    pub(super) fn begin(
        &mut self,
        join: &CpuJoin<'_, T>,
        block: &Run,
        origin: impl FnOnce(&mut Vec<f64>),
    ) {
        let layout = join.queries();
        self.block = block.clone();
        self.matches.counts.clear();
        self.matches.counts.resize(block.len(), 0);
        match layout.columns() {
            Columns::Narrow { coords, .. } => {
                transpose(coords, layout, block, &mut self.local_queries);
            }
            Columns::Absent => {}
            Columns::Own(coords) => {
                transpose(coords, layout, block, &mut self.queries);
                if self.filter.is_some() {
                    origin(&mut self.origin);
                    self.relate();
                }
            }
        }
    }

    /// Makes the queries relative to the origin, in `f32`.
    fn relate(&mut self) {
        self.local_queries.clear();
        let queries = self.queries.iter().zip(self.origin.iter().cycle());
        self.local_queries.extend(queries.map(|(x, origin)| (x.to_f64() - origin) as f32));
        self.local_spread = self.local_queries.iter().fold(0.0, |a, x| x.abs().max(a));
    }

    /// Tests the points of `runs` against the block.
    pub(super) fn scan(&mut self, join: &CpuJoin<'_, T>, runs: &[Run], mode: Mode) {
        let mut ahead = Ahead { runs, done: 0 };
        while !ahead.runs.is_empty() {
            let start = ahead;
            match (self.fill_local(join, &mut ahead), &join.kernels.filter) {
                (Some(band), Some(lanes)) => {
                    label(join, &mut self.local, mode);
                    let Self { local, local_queries, matches, .. } = self;
                    matches.scan(lanes, local, local_queries, band, join.right.dim(), mode);
                    self.tests += (self.local.len * self.block.len()) as u64;
                    self.decide_open(join, mode, |scanner, at| {
                        Candidate::Position(scanner.local.position(at))
                    });
                }
                _ => {
                    ahead = start;
                    self.fill_exact(join, &mut ahead);
                    label(join, &mut self.exact, mode);
                    let Self { exact, queries, matches, exact_band, .. } = self;
                    let lanes = &join.kernels.exact;
                    matches.scan(lanes, exact, queries, *exact_band, join.right.dim(), mode);
                    self.tests += (self.exact.len * self.block.len()) as u64;
                    self.decide_open(join, mode, |scanner, at| {
                        Candidate::Position(scanner.exact.position(at))
                    });
                }
            }
        }
    }

    /// Tests the candidates of a sheet against the block, in their order.
    pub(super) fn scan_sheet(&mut self, join: &CpuJoin<'_, T>, sheet: &Sheet<T>) {
        let (dim, reach, mode) = (join.right.dim(), join.threshold.reach, Mode::Ids);
        match (sheet.made, &join.kernels.filter) {
            (Made::Local(band), Some(lanes)) => {
                let mut rest = sheet.local.around(&self.local_queries, dim, reach);
                while rest.fill(lanes, &mut self.local) {
                    let Self { local, local_queries, matches, .. } = self;
                    matches.scan(lanes, local, local_queries, band, dim, mode);
                    self.tests += (self.local.len * self.block.len()) as u64;
                    self.decide_open(join, mode, |scanner, at| {
                        Candidate::Id(scanner.local.labels[at as usize])
                    });
                }
            }
            _ => {
                let lanes = &join.kernels.exact;
                let mut rest = sheet.exact.around(&self.queries, dim, reach);
                while rest.fill(lanes, &mut self.exact) {
                    let Self { exact, queries, matches, exact_band, .. } = self;
                    matches.scan(lanes, exact, queries, *exact_band, dim, mode);
                    self.tests += (self.exact.len * self.block.len()) as u64;
                    self.decide_open(join, mode, |scanner, at| {
                        Candidate::Id(scanner.exact.labels[at as usize])
                    });
                }
            }
        }
    }

    /// Fills the `f32` tile, from `f32` columns or relative to the block; unless `f32`
    /// cannot tell near from far here.
    fn fill_local(&mut self, join: &CpuJoin<'_, T>, ahead: &mut Ahead<'_>) -> Option<Band<f32>> {
        let (filter, right) = (self.filter?, &join.right);
        let (local, from_stride, dim) = (&mut self.local, right.stride(), right.dim());
        local.claim(ahead);
        let (pieces, len, to_stride) = (&local.pieces[..], local.len, local.stride);
        let to = &mut local.coords;
        match right.columns() {
            Columns::Narrow { coords: from, .. } => {
                let origin = &self.local_queries;
                let mut job =
                    GatherJob { from, from_stride, dim, pieces, len, origin, to, to_stride };
                join.kernels.gather_f32(&mut job);
                join.narrow
            }
            Columns::Absent => None,
            Columns::Own(coords) => {
                let (from, origin) = (T::as_f64(coords)?, &self.origin);
                let mut job =
                    GatherJob { from, from_stride, dim, pieces, len, origin, to, to_stride };
                let spread = join.kernels.localize(&mut job);
                filter.band(spread.max(self.local_spread))
            }
        }
    }

    /// Fills the tile of the points' own type.
    fn fill_exact(&mut self, join: &CpuJoin<'_, T>, ahead: &mut Ahead<'_>) {
        let Columns::Own(from) = join.right.columns() else {
            unreachable!("narrow columns come with a band")
        };
        self.exact.claim(ahead);
        join.kernels.gather(&mut GatherJob {
            from,
            from_stride: join.right.stride(),
            dim: join.right.dim(),
            pieces: &self.exact.pieces,
            len: self.exact.len,
            origin: &self.queries,
            to: &mut self.exact.coords,
            to_stride: self.exact.stride,
        });
    }

    /// Decides what the lanes left open, in the arithmetic that counts.
    fn decide_open(
        &mut self,
        join: &CpuJoin<'_, T>,
        mode: Mode,
        candidate_at: impl Fn(&Self, u32) -> Candidate,
    ) {
        let mut open = core::mem::take(&mut self.matches.open);
        let notes = open.drain(..).flat_map(|note| note.candidates().map(move |c| (note.query, c)));
        for (query, at) in notes {
            let candidate = candidate_at(self, at);
            let asking = join.queries().ids()[(self.block.start + query) as usize];
            let id = match candidate {
                Candidate::Position(position) => join.right.ids()[position as usize],
                Candidate::Id(id) => id,
            };
            let point = join.queries().points().row(asking as usize);
            join.kernels.distances(join.right.points(), point, &[id], &mut self.acc);
            if self.acc[0] > join.threshold.bound {
                continue;
            }
            let query = query as usize;
            let label = match (mode, candidate) {
                (Mode::Count, _) => {
                    self.matches.counts[query] += 1;
                    continue;
                }
                (Mode::Positions, Candidate::Position(position)) => position,
                _ => id,
            };
            if label == self.matches.own[query] {
                continue;
            }
            let row = &mut self.matches.rows[query];
            let at = match self.matches.ascending {
                true => row.partition_point(|&other| other < label),
                false => row.len(),
            };
            row.insert(at, label);
        }
        self.matches.open = open;
    }
}

/// Names the candidates of a tile.
fn label<T: Scalar, L: Scalar>(join: &CpuJoin<'_, T>, tile: &mut Tile<L>, mode: Mode) {
    match mode {
        Mode::Count => {}
        Mode::Ids => join.kernels.labels(join.right.padded_ids(), &tile.pieces, &mut tile.labels),
        Mode::Positions => {
            let mut labels = &mut tile.labels[..];
            for piece in &tile.pieces {
                let (these, rest) = labels.split_at_mut(piece.len as usize);
                these.iter_mut().zip(piece.position..).for_each(|(l, p)| *l = p);
                labels = rest;
            }
        }
    }
}

/// Copies the points of a block from columns to rows.
fn transpose<T: Scalar, L: Scalar>(
    columns: &[L],
    layout: &Layout<'_, T>,
    block: &Run,
    rows: &mut Vec<L>,
) {
    let (dim, stride) = (layout.dim(), layout.stride());
    rows.clear();
    rows.resize(block.len() * dim, L::ZERO);
    for j in 0..dim {
        let column = &columns[j * stride..][block.start as usize..block.end as usize];
        for (at, &x) in column.iter().enumerate() {
            rows[at * dim + j] = x;
        }
    }
}
