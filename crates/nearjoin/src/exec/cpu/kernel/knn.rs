//! The loops of the KNN-join behind safe functions: the leaves and nodes that they look at, and what
//! they keep of them.

use super::lockstep::{Lockstep, ROWS};
use super::{BoxJob, DistancesFn, FULL, PAD, SimdLevel, ranks};
use crate::metric::Metric;
use crate::points::Points;
use crate::scalar::Scalar;

/// Up to 16 queries against the 16 candidates of a leaf.
pub(crate) struct LeafJob<'a, T> {
    /// The candidates, a column of 16 per dimension.
    pub(crate) coords: &'a [T],
    /// The leaf's box: column `j` at `j · box_stride + node`.
    pub(crate) lo: &'a [T],
    pub(crate) hi: &'a [T],
    pub(crate) box_stride: usize,
    pub(crate) node: usize,
    /// The queries, a column of 16 per dimension.
    pub(crate) queries: &'a [T],
    pub(crate) dim: usize,
}

impl<T> LeafJob<'_, T> {
    fn check(&self) {
        assert!(self.dim * PAD <= self.coords.len());
        self.check_box();
    }

    fn check_box(&self) {
        let boxes = self.dim * self.box_stride;
        assert!(self.node < self.box_stride && boxes <= self.lo.len() && boxes <= self.hi.len());
        assert!(self.dim * PAD <= self.queries.len());
    }
}

/// Up to 16 queries against a node: up to 16 leaves of 16 candidates.
pub(crate) struct NodeJob<'a, T> {
    /// The points of all leaves, in each a column of 16 per dimension, and their rows; the
    /// node's first candidate, and how many there are.
    pub(crate) coords: &'a [T],
    pub(crate) ids: &'a [u32],
    pub(crate) first: usize,
    pub(crate) len: usize,
    /// The boxes of the leaves: column `j` from `j · box_stride + node` on.
    pub(crate) lo: &'a [T],
    pub(crate) hi: &'a [T],
    pub(crate) box_stride: usize,
    pub(crate) node: usize,
    /// The queries, a column of 16 per dimension.
    pub(crate) queries: &'a [T],
    pub(crate) dim: usize,
}

impl<T> NodeJob<'_, T> {
    fn check(&self) {
        let padded = self.first + self.len.next_multiple_of(PAD);
        assert!(self.first.is_multiple_of(PAD) && self.len <= PAD * PAD);
        assert!(padded * self.dim <= self.coords.len() && padded <= self.ids.len());
        let boxes = self.dim * self.box_stride;
        assert!(self.node + PAD <= self.box_stride);
        assert!(boxes <= self.lo.len() && boxes <= self.hi.len());
        assert!(self.dim * PAD <= self.queries.len());
    }

    /// The leaves, as bits.
    pub(crate) fn leaves(&self) -> u32 {
        ((1u64 << self.len.div_ceil(PAD)) - 1) as u32
    }
}

/// What a leaf had for the queries: of each that it had something for, the candidates in
/// question as bits, and the accumulated distances of all 16.
pub(crate) struct Hits<T> {
    pub(crate) count: usize,
    pub(crate) query: [u32; PAD],
    pub(crate) lanes: [u32; PAD],
    pub(crate) acc: [[T; PAD]; PAD],
}

impl<T: Scalar> Hits<T> {
    pub(crate) fn new() -> Self {
        Hits { count: 0, query: [0; PAD], lanes: [0; PAD], acc: [[T::ZERO; PAD]; PAD] }
    }
}

/// The k best of each of 16 queries, ascending: the i-th of query q at `16 · i + q`. What is
/// not there yet has the row `u32::MAX`.
pub(crate) struct Kept<'a, T> {
    pub(crate) k: usize,
    pub(crate) acc: &'a mut [T],
    pub(crate) ids: &'a mut [u32],
}

/// The best of 16 queries by keys with tags, and the candidates that wait.
pub(crate) struct Ranks<T> {
    pub(crate) k: usize,
    /// The least keys, ascending: the i-th of query q at `16 · i + q`; 8, 16, 32 or 64 of them.
    /// `MAX`, with or without a tag, where there is none yet.
    pub(crate) keys: Vec<T>,
    /// Candidates by tag: the accumulated distances and the rows of query q from
    /// `q · TAGS` on; how many are noted, and how many of them are merged.
    pub(crate) acc: Vec<T>,
    pub(crate) ids: Vec<u32>,
    pub(crate) len: [u32; PAD],
    pub(crate) merged: [u32; PAD],
    /// The least key that was dropped.
    pub(crate) dropped: [T; PAD],
    /// What is farther is not among the best; and what was never wanted.
    pub(crate) bounds: [T; PAD],
    pub(crate) caps: [T; PAD],
    /// The position of query 0 among the candidates, where queries are no neighbours of
    /// their own; else one that no candidate has.
    pub(crate) own: usize,
    /// Distances computed for single queries.
    pub(crate) tests: u64,
}

impl<T: Scalar> Ranks<T> {
    /// Tags that there are.
    pub(crate) const TAGS: usize = 1 << T::TAG_BITS;

    /// Candidates of a query that are not merged.
    pub(crate) fn waiting(&self, query: usize) -> usize {
        (self.len[query] - self.merged[query]) as usize
    }

    /// Whether there are tags for another leaf.
    pub(crate) fn has_tags(&self, query: usize) -> bool {
        self.len[query] as usize + FULL + ranks::LEAF <= Self::TAGS
    }
}

type SieveFn = unsafe fn(&[f32], &[f32], &[f32; PAD], &mut [u32; PAD]) -> bool;
type ActiveFn<T> = unsafe fn(&LeafJob<'_, T>, &[T; PAD]) -> u32;
type NearFn<T> = unsafe fn(&NodeJob<'_, T>, u32, &[T; PAD], &mut [u32; PAD]);
type RankFn<T> = unsafe fn(&NodeJob<'_, T>, usize, u32, &mut Ranks<T>) -> u32;
type MergeFn<T> = unsafe fn(&mut Ranks<T>, usize);
type RelateFn<T> = unsafe fn(&[T], &[f64], f64, &mut [f32]);
type MeasureFn = unsafe fn(&mut Lockstep, usize, u32, bool);
type AbsorbFn = unsafe fn(&mut Lockstep);
type DecideFn<T> = unsafe fn(Metric, &[T], &[T], usize, &[u32], &mut [T]);
type GapsFn<T> = unsafe fn(&BoxJob<'_, T>, T, &mut [T; PAD]) -> u32;
type LeafFn<T> = unsafe fn(&LeafJob<'_, T>, &[T; PAD], &mut Hits<T>);
type KeepFn<T> = unsafe fn(&LeafJob<'_, T>, &[u32], &[u32; PAD], &mut Kept<'_, T>);

/// Every loop that a KNN-join over points of type `T` needs. All but the sieve and
/// those of lockstep compute in the deciding arithmetic, in every instruction set: what is nearer hangs
/// on the last bit.
#[derive(Clone, Copy)]
pub(crate) struct NearestKernels<T> {
    pub(super) gaps: GapsFn<T>,
    pub(super) leaf: LeafFn<T>,
    pub(super) keep: KeepFn<T>,
    pub(super) sieve: SieveFn,
    pub(super) active: ActiveFn<T>,
    pub(super) near: NearFn<T>,
    pub(super) rank: RankFn<T>,
    /// For 8, 16, 32 and 64 keys.
    pub(super) merge: [MergeFn<T>; 4],
    pub(super) relate: RelateFn<T>,
    pub(super) measure: MeasureFn,
    /// For 8, 16, 32 and 64 keys.
    pub(super) absorb: [AbsorbFn; 4],
    pub(super) decide: DecideFn<T>,
    pub(super) distances: DistancesFn<T>,
    pub(super) metric: Metric,
    pub(super) lanes: usize,
}

impl<T: Scalar> NearestKernels<T> {
    /// The kernels for a level that [`SimdLevel::is_available`].
    pub(crate) fn new(level: SimdLevel, metric: Metric, dim: usize) -> Self {
        assert!(level.is_available());
        T::nearest_kernels(level, metric, dim)
    }

    /// The distances of the boxes, and which of them are within the limit.
    pub(crate) fn gaps(&self, job: &BoxJob<'_, T>, limit: T, gaps: &mut [T; PAD]) -> u32 {
        job.check();
        // SAFETY: the job is checked; the level is available.
        unsafe { (self.gaps)(job, limit, gaps) }
    }

    /// Measures the candidates of a leaf. Those farther from a query than its bound are of no
    /// interest to it; a bound is below 0, or NaN, where there is no query.
    pub(crate) fn leaf(&self, job: &LeafJob<'_, T>, bounds: &[T; PAD], hits: &mut Hits<T>) {
        job.check();
        // SAFETY: the job is checked; the level is available.
        unsafe { (self.leaf)(job, bounds, hits) }
    }

    /// Which of 16 candidates may be within the limit of each of 16 queries, as bits: both are
    /// columns of 16. Returns whether there is one.
    pub(crate) fn sieve(
        &self,
        candidates: &[f32],
        queries: &[f32],
        limits: &[f32; PAD],
        hits: &mut [u32; PAD],
    ) -> bool {
        assert!(candidates.len() == queries.len() && queries.len().is_multiple_of(PAD));
        // SAFETY: the columns are checked; the level is available.
        unsafe { (self.sieve)(candidates, queries, limits, hits) }
    }

    /// Which of the queries the box of a leaf may hold a neighbour of.
    pub(crate) fn active(&self, job: &LeafJob<'_, T>, bounds: &[T; PAD]) -> u32 {
        job.check_box();
        // SAFETY: the box is checked; the level is available.
        unsafe { (self.active)(job, bounds) }
    }

    /// For each of some queries, the leaves of a node that may be within its bound, as bits.
    pub(crate) fn near(
        &self,
        job: &NodeJob<'_, T>,
        queries: u32,
        bounds: &[T; PAD],
        leaves: &mut [u32; PAD],
    ) {
        job.check();
        assert!(queries >> PAD == 0);
        // SAFETY: the job and the queries are checked; the level is available.
        unsafe { (self.near)(job, queries, bounds, leaves) }
    }

    /// Notes the candidates of some leaves for one query, until it is time to
    /// [`merge`](NearestKernels::merge); returns the leaves that are left.
    pub(crate) fn rank(
        &self,
        job: &NodeJob<'_, T>,
        query: usize,
        leaves: u32,
        ranks: &mut Ranks<T>,
    ) -> u32 {
        job.check();
        assert!(leaves & !job.leaves() == 0);
        let notes = Ranks::<T>::TAGS * PAD;
        assert!(ranks.acc.len() == notes && ranks.ids.len() == notes);
        let (len, merged) = (ranks.len[query] as usize, ranks.merged[query] as usize);
        assert!(merged <= len && merged + FULL + ranks::LEAF <= Ranks::<T>::TAGS);
        // SAFETY: the job and the leaves are checked, and so are the tags: at most a leaf is
        // noted where less than `FULL` wait. The level is available.
        unsafe { (self.rank)(job, query, leaves, ranks) }
    }

    /// Merges what waits in one register of queries.
    pub(crate) fn merge(&self, ranks: &mut Ranks<T>, lane: usize) {
        let room = ranks.keys.len() / PAD;
        assert!(lane.is_multiple_of(self.lanes) && lane < PAD);
        assert!(matches!(room, 8 | 16 | 32 | 64) && (1..=room).contains(&ranks.k));
        assert!(ranks.acc.len() == Ranks::<T>::TAGS * PAD);
        for query in lane..lane + self.lanes {
            let (len, merged) = (ranks.len[query] as usize, ranks.merged[query] as usize);
            assert!(len <= Ranks::<T>::TAGS && len - merged <= FULL + PAD);
        }
        // SAFETY: what waits is noted, and not more than there are rows for; the level is
        // available.
        unsafe { (self.merge[room.trailing_zeros() as usize - 3])(ranks, lane) }
    }

    /// Columns of 16 relative to a middle, times a power of two.
    pub(crate) fn relate(&self, from: &[T], middle: &[f64], scale: f64, to: &mut [f32]) {
        // SAFETY: the level is available.
        unsafe { (self.relate)(from, middle, scale, to) }
    }

    /// Measures the first `len` candidates of a leaf for all queries, and notes those that are
    /// within a bound, with tags from `tag` on. Candidate i is query i where `own` says so.
    pub(crate) fn measure(&self, steps: &mut Lockstep, len: usize, tag: u32, own: bool) {
        assert!(len <= PAD && steps.queries.len() == steps.candidates.len());
        assert!(steps.queries.len().is_multiple_of(PAD));
        assert!(steps.rows.len() == ROWS * PAD && steps.waiting + len < ROWS);
        // SAFETY: columns and rows are checked; the level is available.
        unsafe { (self.measure)(steps, len, tag, own) }
    }

    /// Merges the last of the candidates that wait.
    pub(crate) fn absorb(&self, steps: &mut Lockstep) {
        let room = steps.keys.len() / PAD;
        assert!(matches!(room, 8 | 16 | 32 | 64) && (1..=room).contains(&steps.k));
        assert!(steps.rows.len() == ROWS * PAD && steps.waiting <= ROWS);
        // SAFETY: keys and rows are checked; the level is available.
        unsafe { (self.absorb[room.trailing_zeros() as usize - 3])(steps) }
    }

    /// The accumulated distances of query `q` of a block, which is columns of 16, and candidates at
    /// some positions in leaves.
    pub(crate) fn decide(
        &self,
        coords: &[T],
        queries: &[T],
        q: usize,
        positions: &[u32],
        out: &mut [T],
    ) {
        // SAFETY: the level is available.
        unsafe { (self.decide)(self.metric, coords, queries, q, positions, out) }
    }

    /// The accumulated distances of `query` and the rows `ids`.
    pub(crate) fn distances(
        &self,
        points: Points<'_, T>,
        query: &[T],
        ids: &[u32],
        out: &mut Vec<T>,
    ) {
        assert_eq!(query.len(), points.dimension());
        // SAFETY: the level is available.
        unsafe { (self.distances)(self.metric, points.as_slice(), query, ids, out) }
    }

    /// Queries in a register.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    /// Puts the candidates of a leaf, named by `ids`, where they belong among the best; each
    /// query's `own` is left out.
    pub(crate) fn keep(
        &self,
        job: &LeafJob<'_, T>,
        ids: &[u32],
        own: &[u32; PAD],
        kept: &mut Kept<'_, T>,
    ) {
        job.check();
        assert!(ids.len() <= PAD && kept.k > 0);
        assert!(kept.k * PAD <= kept.acc.len() && kept.k * PAD <= kept.ids.len());
        // SAFETY: the job is checked, and so is the room; the level is available.
        unsafe { (self.keep)(job, ids, own, kept) }
    }
}
