//! The inner loops, in every instruction set, behind safe functions.
//!
//! Nothing outside this folder names an intrinsic. [`Kernels`] is chosen once per join
//! for an instruction set, a metric and a dimension; its methods check what the loops
//! rely on and then run them. Decisions are exact where the lanes have the points' type
//! and fused arithmetic; elsewhere pairs too close to ε come back as [`Open`], for the
//! caller to decide with [`Kernels::distances`].
#![allow(unsafe_code)]

mod generic;
mod knn;
mod level;
mod lockstep;
mod nearest;
mod product;
mod ranks;
mod scalar;
mod sort;
#[cfg(any(test, target_arch = "x86_64"))]
mod tiles;
mod vector;

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

pub(crate) use knn::{Hits, Kept, LeafJob, NearestKernels, NodeJob, Ranks};
pub use level::SimdLevel;
pub(crate) use level::level;
pub(crate) use lockstep::{Lockstep, Margin, ROWS, TAG};
pub(crate) use product::{Found, Near, PANEL, ProductJob, ProductKernels, Standing};
pub(crate) use ranks::FULL;
pub(crate) use sort::LANES as SORTED_AT_ONCE;
#[cfg(test)]
pub(crate) use tiles::tests::all_kernels;

use crate::metric::Metric;
use crate::points::Points;
use crate::scalar::Scalar;

/// Columns of candidates are padded to whole multiples of this many points.
pub(crate) const PAD: usize = 16;

/// A tile of candidates against a block of queries.
pub(crate) struct Job<'a, L> {
    /// One column per dimension, `stride` apart; beyond `len` each holds NaN up to the
    /// next multiple of [`PAD`].
    pub(crate) coords: &'a [L],
    pub(crate) stride: usize,
    pub(crate) len: usize,
    /// The candidates' names, padded like a column; may be empty for counting.
    pub(crate) labels: &'a [u32],
    /// The queries, row after row.
    pub(crate) queries: &'a [L],
    pub(crate) count: usize,
    pub(crate) dim: usize,
    /// At most this: a match.
    pub(crate) sure: L,
    /// Above this: no match.
    pub(crate) maybe: L,
}

impl<L> Job<'_, L> {
    fn check(&self) {
        let padded = self.len.next_multiple_of(PAD);
        assert!(padded <= self.stride && self.dim * self.stride <= self.coords.len());
        assert!(self.count * self.dim <= self.queries.len());
    }
}

/// Pairs that the lanes could not decide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// Which query of the block.
    pub(crate) query: u32,
    /// The first candidate of the vector.
    pub(crate) base: u32,
    /// The candidates in question, as bits from `base` on.
    pub(crate) lanes: u32,
}

impl Open {
    /// The candidates of the tile that are in question.
    pub(crate) fn candidates(self) -> impl Iterator<Item = u32> {
        (0..u32::BITS).filter(move |bit| self.lanes >> bit & 1 == 1).map(move |bit| self.base + bit)
    }
}

/// A run of points to be copied to a tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) position: u32,
    pub(crate) len: u32,
}

/// Runs of points to be copied to the columns of a tile.
pub(crate) struct GatherJob<'a, S, L> {
    pub(crate) from: &'a [S],
    pub(crate) from_stride: usize,
    pub(crate) dim: usize,
    pub(crate) pieces: &'a [Piece],
    /// The sum of the pieces' lengths.
    pub(crate) len: usize,
    /// One per dimension, subtracted where the job says so.
    pub(crate) origin: &'a [S],
    pub(crate) to: &'a mut [L],
    pub(crate) to_stride: usize,
}

impl<S, L> GatherJob<'_, S, L> {
    fn check(&self) {
        assert!(self.dim * self.from_stride <= self.from.len());
        assert!(self.dim * self.to_stride <= self.to.len() && self.dim <= self.origin.len());
        let mut len = 0;
        for piece in self.pieces {
            let padded = (piece.len as usize).next_multiple_of(PAD);
            assert!(piece.position as usize + padded <= self.from_stride);
            assert!(len + padded <= self.to_stride);
            len += piece.len as usize;
        }
        assert!(len == self.len && len.next_multiple_of(PAD) <= self.to_stride);
    }
}

/// Candidates of which those in a box go to a tile.
pub(crate) struct SiftJob<'a, L> {
    /// One column per dimension, `stride` apart, a multiple of [`PAD`]; what is no candidate is NaN.
    pub(crate) coords: &'a [L],
    pub(crate) stride: usize,
    pub(crate) labels: &'a [u32],
    /// The first candidate that is looked at, a multiple of [`PAD`].
    pub(crate) from: usize,
    pub(crate) dim: usize,
    /// The corners of the box.
    pub(crate) lo: &'a [L],
    pub(crate) hi: &'a [L],
}

/// The tile that they go to.
pub(crate) struct Sifted<'a, L> {
    pub(crate) coords: &'a mut [L],
    pub(crate) labels: &'a mut [u32],
    pub(crate) stride: usize,
    /// How many they are.
    pub(crate) len: usize,
}

impl<L> SiftJob<'_, L> {
    fn check(&self, to: &Sifted<'_, L>) {
        assert!(self.stride.is_multiple_of(PAD) && self.from.is_multiple_of(PAD));
        assert!(self.dim * self.stride <= self.coords.len() && self.stride <= self.labels.len());
        assert!(self.dim <= self.lo.len() && self.dim <= self.hi.len());
        assert!(self.dim * to.stride <= to.coords.len() && to.stride <= to.labels.len());
        assert!(to.stride.is_multiple_of(PAD) && to.stride >= 2 * PAD);
    }
}

/// Up to 16 bounding boxes against the box of a block of queries.
pub(crate) struct BoxJob<'a, T> {
    pub(crate) lo: &'a [T],
    pub(crate) hi: &'a [T],
    pub(crate) stride: usize,
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) query_lo: &'a [T],
    pub(crate) query_hi: &'a [T],
    pub(crate) dim: usize,
}

impl<T> BoxJob<'_, T> {
    fn check(&self) {
        assert!(self.count <= 16 && self.first + 16 <= self.stride);
        let columns = self.dim * self.stride;
        assert!(columns <= self.lo.len() && columns <= self.hi.len());
        assert!(self.dim <= self.query_lo.len() && self.dim <= self.query_hi.len());
    }
}

type CountFn<L> = unsafe fn(&Job<'_, L>, &mut [u64], &mut Vec<Open>);
type RowsFn<L> = unsafe fn(&Job<'_, L>, &[u32], &mut [Vec<u32>], &mut Vec<Open>);
type SiftFn<L> = unsafe fn(&SiftJob<'_, L>, &mut Sifted<'_, L>) -> usize;
type BoxesFn<T> = unsafe fn(&BoxJob<'_, T>, T, T) -> (u32, u32);
type LocalizeFn = unsafe fn(&mut GatherJob<'_, f64, f32>) -> f32;
type GatherFn<T> = unsafe fn(&mut GatherJob<'_, T, T>);
type LabelsFn = unsafe fn(&[u32], &[Piece], &mut [u32]);
type DistancesFn<T> = unsafe fn(Metric, &[T], &[T], &[u32], &mut Vec<T>);

/// The loops over lanes of one type.
#[derive(Clone, Copy)]
pub(crate) struct Lanes<L> {
    count: CountFn<L>,
    rows: RowsFn<L>,
    sift: SiftFn<L>,
}

impl<L: Scalar> Lanes<L> {
    /// Adds to `counts[q]` the matches of query `q`; undecided ones go to `open`.
    pub(crate) fn count(&self, job: &Job<'_, L>, counts: &mut [u64], open: &mut Vec<Open>) {
        job.check();
        assert!(job.count <= counts.len());
        // SAFETY: the job is checked, and `Kernels::new` has made sure that the
        // processor has the instruction set.
        unsafe { (self.count)(job, counts, open) }
    }

    /// Appends to `rows[q]` the labels that match query `q`, except `own[q]`.
    pub(crate) fn rows(
        &self,
        job: &Job<'_, L>,
        own: &[u32],
        rows: &mut [Vec<u32>],
        open: &mut Vec<Open>,
    ) {
        job.check();
        assert!(job.len.next_multiple_of(PAD) <= job.labels.len());
        assert!(job.count <= own.len() && job.count <= rows.len());
        // SAFETY: as for `count`, and labels are padded.
        unsafe { (self.rows)(job, own, rows, open) }
    }

    /// Copies the candidates in a box to a tile, as many as it has room for. Returns where the next
    /// ones are.
    pub(crate) fn sift(&self, job: &SiftJob<'_, L>, to: &mut Sifted<'_, L>) -> usize {
        job.check(to);
        // SAFETY: as for `count`.
        unsafe { (self.sift)(job, to) }
    }
}

/// Every loop that a join over points of type `T` needs.
#[derive(Clone, Copy)]
pub(crate) struct Kernels<T> {
    /// Whether `exact` leaves nothing open.
    pub(crate) fused: bool,
    /// Lanes of the points' own type.
    pub(crate) exact: Lanes<T>,
    /// Lanes of `f32` that filter `f64` points.
    pub(crate) filter: Option<Lanes<f32>>,
    metric: Metric,
    boxes: BoxesFn<T>,
    localize: LocalizeFn,
    gather: GatherFn<T>,
    gather_f32: GatherFn<f32>,
    labels: LabelsFn,
    sort_rows: unsafe fn(&mut [Vec<u32>], &mut Vec<[u32; SORTED_AT_ONCE]>),
    sort_u64: unsafe fn(&mut [[u64; SORTED_AT_ONCE]]),
    distances: DistancesFn<T>,
}

impl<T: Scalar> Kernels<T> {
    /// The kernels for a level that [`SimdLevel::is_available`].
    pub(crate) fn new(level: SimdLevel, metric: Metric, dim: usize) -> Self {
        assert!(level.is_available());
        T::kernels(level, metric, dim)
    }

    /// Which of the boxes may hold a match, and which nothing but matches.
    pub(crate) fn boxes(&self, job: &BoxJob<'_, T>, skip_above: T, take_below: T) -> (u32, u32) {
        job.check();
        // SAFETY: the job is checked; the level is available.
        unsafe { (self.boxes)(job, skip_above, take_below) }
    }

    /// Fills the columns of a tile with coordinates relative to the origin, as `f32`.
    /// Returns the largest absolute value.
    pub(crate) fn localize(&self, job: &mut GatherJob<'_, f64, f32>) -> f32 {
        job.check();
        // SAFETY: the job is checked; the level is available.
        unsafe { (self.localize)(job) }
    }

    /// Fills the columns of a tile with the coordinates as they are.
    pub(crate) fn gather(&self, job: &mut GatherJob<'_, T, T>) {
        job.check();
        // SAFETY: the job is checked; the level is available.
        unsafe { (self.gather)(job) }
    }

    /// The same for columns of `f32`, whatever the points' type.
    pub(crate) fn gather_f32(&self, job: &mut GatherJob<'_, f32, f32>) {
        job.check();
        // SAFETY: the job is checked; the level is available.
        unsafe { (self.gather_f32)(job) }
    }

    /// Copies the labels of all pieces, one after the other.
    pub(crate) fn labels(&self, from: &[u32], pieces: &[Piece], to: &mut [u32]) {
        let mut len = 0;
        for piece in pieces {
            let padded = (piece.len as usize).next_multiple_of(PAD);
            assert!(piece.position as usize + padded <= from.len());
            assert!(len + padded <= to.len());
            len += piece.len as usize;
        }
        // SAFETY: whole chunks lie within both slices; the level is available.
        unsafe { (self.labels)(from, pieces, to) }
    }

    /// Puts up to 16 rows in ascending order. `columns` is room to do it in.
    pub(crate) fn sort_rows(
        &self,
        rows: &mut [Vec<u32>],
        columns: &mut Vec<[u32; SORTED_AT_ONCE]>,
    ) {
        assert!(rows.len() <= SORTED_AT_ONCE);
        // SAFETY: the level is available.
        unsafe { (self.sort_rows)(rows, columns) }
    }

    /// Puts the numbers of every lane in ascending order.
    pub(crate) fn sort_u64(&self, columns: &mut [[u64; SORTED_AT_ONCE]]) {
        // SAFETY: the level is available.
        unsafe { (self.sort_u64)(columns) }
    }

    /// Accumulated distances, in the deciding arithmetic, of `query` and the rows `ids`.
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
}

/// Chooses the kernels of a type. Part of the sealed [`Scalar`].
pub trait Dispatch: Sized {
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn kernels(level: SimdLevel, metric: Metric, dim: usize) -> Kernels<Self>;
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn nearest_kernels(level: SimdLevel, metric: Metric, dim: usize) -> NearestKernels<Self>;
    /// The same slice, where the type is `f64`: it can be filtered in `f32`.
    #[doc(hidden)]
    fn as_f64(values: &[Self]) -> Option<&[f64]>;
}

impl Dispatch for f32 {
    fn as_f64(_: &[f32]) -> Option<&[f64]> {
        None
    }
    #[allow(private_interfaces)]
    fn kernels(level: SimdLevel, metric: Metric, dim: usize) -> Kernels<f32> {
        match level {
            SimdLevel::Scalar => scalar::kernels_f32(metric, dim),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => avx2::kernels_f32(metric, dim),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 | SimdLevel::Amx => avx512::kernels_f32(metric, dim),
        }
    }
    #[allow(private_interfaces)]
    fn nearest_kernels(level: SimdLevel, metric: Metric, dim: usize) -> NearestKernels<f32> {
        match level {
            SimdLevel::Scalar => scalar::nearest_f32(metric, dim),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => avx2::nearest_f32(metric, dim),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 | SimdLevel::Amx => avx512::nearest_f32(metric, dim),
        }
    }
}

impl Dispatch for f64 {
    fn as_f64(values: &[f64]) -> Option<&[f64]> {
        Some(values)
    }
    #[allow(private_interfaces)]
    fn kernels(level: SimdLevel, metric: Metric, dim: usize) -> Kernels<f64> {
        match level {
            SimdLevel::Scalar => scalar::kernels_f64(metric, dim),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => avx2::kernels_f64(metric, dim),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 | SimdLevel::Amx => avx512::kernels_f64(metric, dim),
        }
    }
    #[allow(private_interfaces)]
    fn nearest_kernels(level: SimdLevel, metric: Metric, dim: usize) -> NearestKernels<f64> {
        match level {
            SimdLevel::Scalar => scalar::nearest_f64(metric, dim),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => avx2::nearest_f64(metric, dim),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 | SimdLevel::Amx => avx512::nearest_f64(metric, dim),
        }
    }
}
