//! The nearest by matrix products: the host's side of `scores.cu` and `shortlist.cu`.
//!
//! ```text
//! the points in a frame, rounded to 16 bits                              when they are indexed
//! for the queries, as many at a time as there is room for:
//!     the best scores of some candidates: how far the nearest of each query may be
//!     scores of all candidates: those that may be as near go on the query's list
//!     queries whose lists have no room for all: again, by what their lists say
//!     the nearest of each list                                           batch by batch: search.rs
//! queries whose lists never have room for all: brute force
//! ```
//!
//! Of a set with itself, all queries at once, each pair is multiplied once and goes on the lists of both.

use core::ops::Range;

use nearjoin_kernels::{Module, Tile};

use super::device::{Array, Device, Stage};
use super::driver::{self, Args};
use super::halves::{Halved, Halving};
use super::job::float;
use super::matrix::{Matrix, Operand, Units};
use super::search::{Search, Side};
use super::session::{Result, Session};
use crate::filter::product::Scored;
use crate::plan::Shortlisting;
use crate::points::Points;
use crate::scalar::Scalar;

/// Queries that say how far the nearest are as a rule.
const TYPICAL: usize = 256;
/// How often queries whose lists are too long are asked again, at the most.
const ROUNDS: usize = 3;
/// Bytes of the best scores of some queries, at the most.
const BEST_BYTES: usize = 1 << 30;
/// Whatever the unit, as many tiles along as there are.
const ANY: u64 = u64::MAX;

/// How products score points.
#[derive(Debug)]
pub(super) struct Scores {
    halving: Halving,
    scored: Scored,
}

/// The candidates of some queries.
pub(super) struct Shortlists {
    /// The queries, by their positions.
    pub(super) queries: Range<usize>,
    /// Those whose lists have no room for all, by their positions.
    pub(super) rest: Vec<u32>,
    lists: Array<[u32; 2]>,
    lens: Array<u32>,
    sizes: u64,
    scored: Scored,
    plan: Shortlisting,
    tests: Array<u64>,
}

impl Shortlists {
    /// The words of `Shortlist` in `shortlist.cu`; for these queries, if they are to say how far their
    /// nearest may be.
    pub(super) fn words(&self, asked: Option<(&Array<u32>, usize, &Array<f64>)>) -> Vec<u64> {
        let mut words = vec![self.lists.address(), self.plan.room as u64, self.lens.address()];
        words.extend([self.queries.start as u64, self.sizes]);
        words.extend(self.scored.words());
        words.extend(match asked {
            Some((queries, count, reach)) => [queries.address(), count as u64, reach.address()],
            None => [0; 3],
        });
        words
    }

    /// Has a stage hold on to them as long as it works with them.
    pub(super) fn held_by(&self, stage: &Stage) {
        stage.hold_on(&self.lists);
        stage.hold_on(&self.lens);
    }

    /// Pairs whose products were looked at.
    pub(super) fn tests(&self, stage: &Stage) -> driver::Result<u64> {
        Ok(stage.read(&self.tests, 0..1)?[0])
    }
}

impl Scores {
    /// How to score the points of a join, if the device can.
    pub(super) fn of<T: Scalar>(
        device: &Device,
        stage: &Stage,
        left: Points<'_, T>,
        right: Option<Points<'_, T>>,
    ) -> driver::Result<Option<Self>> {
        let halving = Halving::of(device, stage, left, right)?;
        Ok(halving.map(|halving| {
            let scored = Scored::new::<T>(left.dimension(), &halving.frame, halving.summing());
            Scores { halving, scored }
        }))
    }

    /// Points that are on the device, one after the other.
    pub(super) fn halve<T: Scalar>(
        &self,
        stage: &Stage,
        points: &Array<T>,
        len: usize,
    ) -> driver::Result<Halved> {
        self.halving.halve(stage, points, len)
    }

    /// The candidates of some queries.
    pub(super) fn shortlists<T: Scalar>(
        &self,
        session: &Session<'_>,
        stage: &Stage,
        search: &Search<'_, T>,
        plan: Shortlisting,
        queries: Range<usize>,
    ) -> Result<Shortlists> {
        let whole = queries.len() == search.left.places().all();
        let asked = Asked {
            scores: self,
            session,
            stage,
            search,
            plan,
            // Both sides are one, and all of it asks.
            both: whole && core::ptr::eq(search.left, search.right),
            queries,
        };
        asked.shortlists()
    }
}

/// Queries that are asked for their candidates.
struct Asked<'a, T> {
    scores: &'a Scores,
    session: &'a Session<'a>,
    stage: &'a Stage,
    search: &'a Search<'a, T>,
    plan: Shortlisting,
    both: bool,
    queries: Range<usize>,
}

impl<T: Scalar> Asked<'_, T> {
    fn shortlists(&self) -> Result<Shortlists> {
        let (stage, count) = (self.stage, self.queries.len());
        // What takes most comes first: if it is refused, little is lost.
        let lists = stage.array::<[u32; 2]>(count * self.plan.room)?;
        let lens = stage.zeroed::<u32>(count)?;
        let tests = stage.zeroed::<u64>(1)?;
        let reach = self.reach(&self.scores.scored, &tests)?;
        let scored = self.for_typical(&reach)?;
        let (sizes, rest) = (self.sizes(), Vec::new());
        let queries = self.queries.clone();
        let plan = self.plan;
        let mut found = Shortlists { queries, rest, lists, lens, sizes, scored, plan, tests };

        let limits = stage.array::<f32>(count.next_multiple_of(Tile::SIDE))?;
        self.limit(&found, &reach, None, &limits)?;
        let (left_less, right_less) = self.both_less(&scored, false)?;
        let left_less = left_less.as_ref().unwrap_or(&right_less);
        self.list(&found, (left_less, &right_less), &limits, None)?;

        let mut before = usize::MAX;
        for round in 0.. {
            let (over, many) = self.overflowing(&found)?;
            if many == 0 {
                break;
            }
            // Where scores cannot tell candidates apart, as among equal points, nothing helps.
            if round == ROUNDS || many > before / 2 {
                let first = self.queries.start as u32;
                found.rest = stage.read(&over, 0..many)?;
                found.rest.iter_mut().for_each(|at| *at += first);
                found.rest.sort_unstable();
                break;
            }
            before = many;
            self.session.record(|stats| stats.splits += 1);
            self.search.tighten(stage, &found, (&over, many, &reach))?;
            self.limit(&found, &reach, Some((&over, many)), &limits)?;
            let args = Args::new().u64(over.address()).u64(many as u64).u64(found.lens.address());
            stage.launch(module::<T>(), "emptied", many as u64, args)?;
            self.list(&found, (left_less, &right_less), &limits, Some((&over, many)))?;
        }
        stage.finish()?;
        Ok(found)
    }

    /// All points on the left, of which some ask.
    fn all_left(&self) -> usize {
        self.search.left.places().all()
    }

    /// All points on the right.
    fn all_right(&self) -> usize {
        self.search.right.places().all()
    }

    fn left(&self) -> &Halved {
        self.search.left.halved()
    }

    fn right(&self) -> &Halved {
        self.search.right.halved()
    }

    /// Where the sizes of the queries are.
    fn sizes(&self) -> u64 {
        self.left().sizes.address() + (self.queries.start * size_of::<[f64; 2]>()) as u64
    }

    /// The queries from one of them on, as a side of products.
    fn operand(&self, less: &Array<f32>, from: usize) -> Operand {
        let first = (self.queries.start + from) as u64;
        let point = (self.scores.halving.depth * size_of::<u16>()) as u64;
        let points = self.left().points.address() + first * point;
        Operand { points, less: less.address() + first * size_of::<f32>() as u64 }
    }

    /// What the scores of points are less by, too little or too much.
    fn less(
        &self,
        scored: &Scored,
        points: &Halved,
        len: usize,
        much: bool,
    ) -> driver::Result<Array<f32>> {
        let room = len.next_multiple_of(Tile::SIDE);
        let less = self.stage.array::<f32>(room)?;
        let args = Args::new().u64(points.sizes.address()).u64(len as u64).u64(room as u64);
        let args = args.structure(&scored.words()).u32(u32::from(much)).u64(less.address());
        self.stage.launch(module::<T>(), "less", room as u64, args)?;
        Ok(less)
    }

    /// The same of both sides: of the left one only where it is another.
    fn both_less(
        &self,
        scored: &Scored,
        much: bool,
    ) -> driver::Result<(Option<Array<f32>>, Array<f32>)> {
        let right = self.less(scored, self.right(), self.all_right(), much)?;
        let left = match core::ptr::eq(self.left(), self.right()) {
            true => None,
            false => Some(self.less(scored, self.left(), self.all_left(), much)?),
        };
        Ok((left, right))
    }

    /// How far the nearest of each query may be, by some of the candidates.
    fn reach(&self, scored: &Scored, tests: &Array<u64>) -> Result<Array<f64>> {
        let (stage, depth, plan) = (self.stage, self.scores.halving.depth, self.plan);
        let (left_less, right_less) = self.both_less(scored, true)?;
        let left_less = left_less.as_ref().unwrap_or(&right_less);
        let room = plan.sample.next_multiple_of(Tile::SIDE);
        let (sample, sample_less) = (stage.array::<u16>(room * depth)?, stage.array::<f32>(room)?);
        let args = Args::new().u64(self.right().points.address()).u64(right_less.address());
        let args = args.u64(self.all_right() as u64).u64(plan.sample as u64).u64(room as u64);
        let args = args.u32(depth as u32).u64(sample.address()).u64(sample_less.address());
        stage.launch(module::<T>(), "sampled", room as u64 * 32, args)?;

        let (all, groups) = (self.queries.len(), room / plan.group);
        let at_once = (BEST_BYTES / (4 * groups)).max(Tile::SIDE) / Tile::SIDE * Tile::SIDE;
        let best = stage.array::<f32>(at_once.min(all) * groups)?;
        let reach = stage.array::<f64>(all)?;
        let cap = scored.reach(self.search.arithmetic.bound);
        for first in (0..all).step_by(at_once) {
            let here = at_once.min(all - first);
            let matrix = Matrix {
                left: self.operand(left_less, first),
                queries: 0,
                query_count: here as u64,
                right: Operand { points: sample.address(), less: sample_less.address() },
                right_len: plan.sample as u64,
                depth,
                units: Units::new(here as u64, plan.sample as u64, false, ANY),
                tests: tests.address(),
            };
            let of_tile = (Tile::SIDE / plan.group) as u64;
            self.multiply(&matrix, "best_scores", &[best.address(), groups as u64, of_tile], 0.0)?;
            let wanted = self.search.layout.k + usize::from(self.search.exclude_self);
            let args = Args::new().u64(best.address()).u64(groups as u64).u64(here as u64);
            let args = args.u32(wanted as u32).structure(&scored.words()).f64(cap);
            let args = args.u64(reach.address() + 8 * first as u64);
            stage.launch_blocks(module::<T>(), "bounds", (here as u64).div_ceil(4), 128, args)?;
        }
        Ok(reach)
    }

    /// The bound for points like these.
    fn for_typical(&self, reach: &Array<f64>) -> Result<Scored> {
        let (all, some) = (self.queries.len(), TYPICAL.min(self.queries.len()));
        let found = self.stage.array::<[f64; 2]>(some)?;
        let args = Args::new().u64(self.sizes()).u64(reach.address()).u64(all as u64);
        let args = args.u64(some as u64).u64(found.address());
        self.stage.launch(module::<T>(), "typical", some as u64, args)?;
        let found = self.stage.read(&found, 0..some)?;
        let middle = |which: usize| {
            let mut values: Vec<f64> = found.iter().map(|of| of[which]).collect();
            *values.select_nth_unstable_by(some / 2, f64::total_cmp).1
        };
        Ok(self.scores.scored.for_typical(middle(0), middle(1)))
    }

    /// What the scores of candidates must be, for all queries or for these.
    fn limit(
        &self,
        lists: &Shortlists,
        reach: &Array<f64>,
        these: Option<(&Array<u32>, usize)>,
        limits: &Array<f32>,
    ) -> driver::Result<()> {
        let (queries, len, room) = match these {
            Some((queries, many)) => (queries.address(), many, many),
            None => (0, self.queries.len(), limits.len()),
        };
        let args = Args::new().u64(reach.address()).u64(self.sizes()).u64(queries);
        let args = args.u64(len as u64).u64(room as u64).structure(&lists.scored.words());
        self.stage.launch(module::<T>(), "limits", room as u64, args.u64(limits.address()))
    }

    /// Lists the candidates of all queries, or of these.
    fn list(
        &self,
        lists: &Shortlists,
        (left_less, right_less): (&Array<f32>, &Array<f32>),
        limits: &Array<f32>,
        these: Option<(&Array<u32>, usize)>,
    ) -> Result<()> {
        let both = self.both && these.is_none();
        let (queries, count) = match these {
            Some((queries, many)) => (queries.address(), many as u64),
            None => (0, self.queries.len() as u64),
        };
        let matrix = Matrix {
            left: self.operand(left_less, 0),
            queries,
            query_count: count,
            right: Operand { points: self.right().points.address(), less: right_less.address() },
            right_len: self.all_right() as u64,
            depth: self.scores.halving.depth,
            units: Units::new(count, self.all_right() as u64, both, ANY),
            tests: lists.tests.address(),
        };
        let search = self.search;
        let first = self.queries.start as u64;
        let names = search.names.map_or(0, |names| names.address() + 4 * first);
        let right_limits = if both { limits.address() } else { 0 };
        let more = [
            limits.address(),
            right_limits,
            u64::from(search.exclude_self),
            names,
            first,
            search.right.ids(),
            lists.lists.address(),
            self.plan.room as u64,
            lists.lens.address(),
        ];
        self.multiply(&matrix, "list_scores", &more, count as f64 / self.all_left() as f64)
    }

    /// Runs a kernel over all units of a matrix, some at a time; as a share of the whole join.
    fn multiply(
        &self,
        matrix: &Matrix,
        kernel: &'static str,
        more: &[u64],
        share: f64,
    ) -> Result<()> {
        let (all, how) = (matrix.units.count(), &self.session.how);
        let at_once = all.div_ceil(how.launches(share)).max(1);
        for first in (0..all).step_by(at_once as usize) {
            let here = at_once.min(all - first);
            let mut words = matrix.words(first);
            words.extend(more);
            let module = Module::Scores(self.scores.halving.tile);
            let args = Args::new().structure(&words);
            self.stage.launch_blocks(module, kernel, here, Tile::THREADS, args)?;
            if here < all {
                self.stage.wait()?;
                self.session.check_cancelled()?;
            }
            let tests = if self.session.is_lane() { 0.0 } else { how.expected_tests };
            self.session.add(tests * share * here as f64 / all as f64, 0);
        }
        Ok(())
    }

    /// Queries whose lists have no room for all, and how many they are.
    fn overflowing(&self, lists: &Shortlists) -> Result<(Array<u32>, usize)> {
        let (stage, all) = (self.stage, self.queries.len());
        let (found, count) = (stage.array::<u32>(all)?, stage.zeroed::<u32>(1)?);
        let args = Args::new().u64(lists.lens.address()).u64(all as u64);
        let args = args.u64(self.plan.room as u64).u64(found.address()).u64(count.address());
        stage.launch(module::<T>(), "overflowing", all as u64, args)?;
        let many = stage.read(&count, 0..1)?[0] as usize;
        Ok((found, many))
    }
}

fn module<T: Scalar>() -> Module {
    Module::Shortlist(float::<T>())
}

impl<T> Side<T> {
    fn halved(&self) -> &Halved {
        match self {
            Side::Rows { halved: Some(halved), .. } => halved,
            _ => unreachable!("points of a join by products are rounded when they are indexed"),
        }
    }

    /// What its points are called, where not by their positions; or 0.
    fn ids(&self) -> u64 {
        match self {
            Side::Rows { ids, .. } => ids.as_ref().map_or(0, Array::address),
            Side::Tree(_) => 0,
        }
    }
}
