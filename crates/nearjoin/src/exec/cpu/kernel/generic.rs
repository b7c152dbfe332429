//! The kernels, written once over [`Vector`]; each instruction set instantiates them.

use super::vector::{Norm, Vector};
use super::{BoxJob, GatherJob, Job, Open, PAD, Piece, SiftJob, Sifted};
use crate::metric::{Metric, Threshold};
use crate::scalar::Scalar;

/// `Q` queries in registers, as far as there are registers for them.
///
/// The places of a job are copied here, too: the kernels write through raw pointers, and
/// the compiler would read the job again after every write.
#[derive(Clone, Copy)]
struct Group<V: Vector, const Q: usize> {
    held: [[V; HELD]; Q],
    queries: *const V::Lane,
    coords: *const V::Lane,
    stride: usize,
    dim: usize,
}

/// Dimensions up to which the coordinates of four queries are held in registers, as far as there are.
const HELD: usize = 6;

impl<V: Vector, const Q: usize> Group<V, Q> {
    #[inline(always)]
    unsafe fn new<const D: usize>(job: &Job<'_, V::Lane>, query: usize) -> Self {
        let dim = if D == 0 { job.dim } else { D };
        // SAFETY: `Job::check` has made sure of the queries; the caller promises the
        // instruction set.
        unsafe {
            let queries = job.queries.as_ptr().add(query * dim);
            let mut held = [[V::splat(V::Lane::ZERO); HELD]; Q];
            if D != 0 && D <= HELD {
                for (b, held) in held.iter_mut().enumerate() {
                    for (j, held) in held.iter_mut().enumerate().take(D) {
                        *held = V::splat(*queries.add(b * D + j));
                    }
                }
            }
            Group { held, queries, coords: job.coords.as_ptr(), stride: job.stride, dim }
        }
    }

    /// Accumulated distances to the `LANES` candidates from `base` on.
    ///
    /// ```text
    /// for j in 0..dim:  for each query b:  acc[b] = step(acc[b], query[b][j] − candidate[j])
    /// ```
    /// `D` is the dimension, or 0 where it is only known at run time.
    #[inline(always)]
    unsafe fn accumulate<N: Norm, const D: usize>(&self, base: usize) -> [V; Q] {
        let dim = if D == 0 { self.dim } else { D };
        // SAFETY: `Job::check` has made sure of `dim` columns of whole vectors and of the
        // queries; the caller promises the instruction set.
        unsafe {
            let mut acc = [V::splat(V::Lane::ZERO); Q];
            for j in 0..dim {
                let x = V::load(self.coords.add(j * self.stride + base));
                for (b, acc) in acc.iter_mut().enumerate() {
                    let q = if D != 0 && D <= HELD {
                        self.held[b][j]
                    } else {
                        V::splat(*self.queries.add(b * dim + j))
                    };
                    *acc = N::step(*acc, q.sub(x));
                }
            }
            acc
        }
    }
}

/// The lanes that surely match, for each of `Q` queries; None where no query matches any.
/// Those too close to ε to tell are noted in `open`, which has room for one note per query
/// and vector. Where matches are [`rare`] a branch skips vectors without one; elsewhere it
/// would be mispredicted too often.
///
/// Nothing is called here: a call, however rare, would push every register of the loop to
/// the stack.
#[inline(always)]
unsafe fn decide<V: Vector, const D: usize, const EXACT: bool, const Q: usize>(
    acc: [V; Q],
    sure: V,
    maybe: V,
    query: usize,
    base: usize,
    open: &mut *mut Open,
) -> Option<[u32; Q]> {
    // SAFETY: the caller promises the instruction set and the room.
    unsafe {
        let mut masks = [0; Q];
        let mut any = 0;
        for b in 0..Q {
            masks[b] = acc[b].le(maybe);
            any |= masks[b];
        }
        if rare(D) && any == 0 {
            return None;
        }
        if !EXACT {
            let mut undecided = [0; Q];
            let mut any = 0;
            for b in 0..Q {
                let surely = acc[b].le(sure);
                undecided[b] = masks[b] ^ surely;
                any |= undecided[b];
                masks[b] = surely;
            }
            if any != 0 {
                for (b, lanes) in undecided.into_iter().enumerate() {
                    let (query, base) = ((query + b) as u32, base as u32);
                    open.write(Open { query, base, lanes });
                    *open = open.add(usize::from(lanes != 0));
                }
            }
        }
        Some(masks)
    }
}

/// Whether few candidates match: the volume of a ball beside that of the cells around it
/// shrinks quickly with the dimension. 0 stands for more than eight.
const fn rare(dim: usize) -> bool {
    dim == 0 || dim >= 5
}

/// Runs `body` over the queries of a job, some at a time, with a place for open notes.
#[inline(always)]
unsafe fn in_groups<L>(
    job: &Job<'_, L>,
    lanes: usize,
    open: &mut Vec<Open>,
    mut four: impl FnMut(usize, &mut *mut Open),
    mut one: impl FnMut(usize, &mut *mut Open),
) {
    open.reserve(job.len.div_ceil(lanes) * job.count + 4);
    // SAFETY: every query and vector leaves at most one note, and up to three more are
    // written but not kept; all fit the capacity, and those kept are written.
    unsafe {
        let mut to = open.as_mut_ptr().add(open.len());
        let mut query = 0;
        while query + 4 <= job.count {
            four(query, &mut to);
            query += 4;
        }
        while query < job.count {
            one(query, &mut to);
            query += 1;
        }
        open.set_len(to.offset_from(open.as_ptr()) as usize);
    }
}

/// Adds to `counts[q]` the number of candidates that surely match query `q`.
///
/// ```text
/// for each query:  for each candidate:  counts[query] += (distance ≤ ε)
/// ```
#[inline(always)]
pub(super) unsafe fn count<V: Vector, N: Norm, const D: usize, const EXACT: bool>(
    job: &Job<'_, V::Lane>,
    counts: &mut [u64],
    open: &mut Vec<Open>,
) {
    // SAFETY: the caller promises the instruction set and a checked job.
    unsafe {
        let counts = counts.as_mut_ptr();
        in_groups(
            job,
            V::LANES,
            open,
            |query, open| count_some::<V, N, D, EXACT, 4>(job, query, counts, open),
            |query, open| count_some::<V, N, D, EXACT, 1>(job, query, counts, open),
        );
    }
}

#[inline(always)]
unsafe fn count_some<V: Vector, N: Norm, const D: usize, const EXACT: bool, const Q: usize>(
    job: &Job<'_, V::Lane>,
    query: usize,
    counts: *mut u64,
    open: &mut *mut Open,
) {
    // SAFETY: the caller promises the instruction set, a checked job and a count for
    // each query.
    unsafe {
        let (sure, maybe, len) = (V::splat(job.sure), V::splat(job.maybe), job.len);
        let group = Group::<V, Q>::new::<D>(job, query);
        let mut hits = [0u32; Q];
        let mut base = 0;
        while base < len {
            let acc = group.accumulate::<N, D>(base);
            let masks = decide::<V, D, EXACT, Q>(acc, sure, maybe, query, base, open);
            if let Some(masks) = masks {
                for b in 0..Q {
                    hits[b] = V::add_popcount(hits[b], masks[b]);
                }
            }
            base += V::LANES;
        }
        for (b, hits) in hits.into_iter().enumerate() {
            *counts.add(query + b) += u64::from(hits);
        }
    }
}

/// Appends to `rows[q]` the labels of the candidates that surely match query `q`,
/// except the query's own.
///
/// ```text
/// for each query:  for each candidate:
///     if distance ≤ ε and label ≠ own[query]:  rows[query].push(label)
/// ```
#[inline(always)]
pub(super) unsafe fn rows<V: Vector, N: Norm, const D: usize, const EXACT: bool>(
    job: &Job<'_, V::Lane>,
    own: &[u32],
    rows: &mut [Vec<u32>],
    open: &mut Vec<Open>,
) {
    // Room for every candidate and one more vector, so that a whole register may be
    // stored wherever a row ends.
    for row in &mut rows[..job.count] {
        row.reserve(job.len + 2 * V::LANES);
    }
    // SAFETY: the caller promises the instruction set and a checked job.
    unsafe {
        let (own, rows) = (own.as_ptr(), rows.as_mut_ptr());
        in_groups(
            job,
            V::LANES,
            open,
            |query, open| rows_some::<V, N, D, EXACT, 4>(job, query, own, rows, open),
            |query, open| rows_some::<V, N, D, EXACT, 1>(job, query, own, rows, open),
        );
    }
}

#[inline(always)]
unsafe fn rows_some<V: Vector, N: Norm, const D: usize, const EXACT: bool, const Q: usize>(
    job: &Job<'_, V::Lane>,
    query: usize,
    own: *const u32,
    rows: *mut Vec<u32>,
    open: &mut *mut Open,
) {
    // SAFETY: the caller promises the instruction set, a checked job, a row and a label
    // for each query, and the rows' capacity; `set_len` covers written elements only.
    unsafe {
        let (sure, maybe, len) = (V::splat(job.sure), V::splat(job.maybe), job.len);
        let group = Group::<V, Q>::new::<D>(job, query);
        let all_labels = job.labels.as_ptr();
        let mut to = [core::ptr::null_mut::<u32>(); Q];
        let mut self_label = [V::splat_label(0); Q];
        for b in 0..Q {
            let row = &mut *rows.add(query + b);
            to[b] = row.as_mut_ptr().add(row.len());
            self_label[b] = V::splat_label(*own.add(query + b));
        }
        let mut base = 0;
        while base < len {
            let acc = group.accumulate::<N, D>(base);
            let masks = decide::<V, D, EXACT, Q>(acc, sure, maybe, query, base, open);
            if let Some(masks) = masks {
                let labels = V::load_labels(all_labels.add(base));
                for b in 0..Q {
                    let mask = masks[b] & V::labels_ne(labels, self_label[b]);
                    V::compress(labels, mask, to[b]);
                    to[b] = to[b].add(V::add_popcount(0, mask) as usize);
                }
            }
            base += V::LANES;
        }
        for (b, to) in to.into_iter().enumerate() {
            let row = &mut *rows.add(query + b);
            let len = to.offset_from(row.as_ptr()) as usize;
            row.set_len(len);
        }
    }
}

/// One dimension of the least distance between two extents: nothing where they overlap.
#[inline(always)]
pub(super) unsafe fn step_gap<V: Vector, N: Norm>(acc: V, (lo, hi): (V, V), other: (V, V)) -> V {
    // SAFETY: the caller promises the instruction set.
    unsafe {
        let zero = V::splat(V::Lane::ZERO);
        N::step(acc, lo.sub(other.1).max(other.0.sub(hi)).max(zero))
    }
}

/// Compares up to 16 boxes with the box of a block of queries: which may hold a match
/// (first mask), and which hold nothing but matches (second).
///
/// ```text
/// for each box:  lower = Σ step(max(lo − query.hi, query.lo − hi, 0))
///                upper = Σ step(max(hi − query.lo, query.hi − lo))
/// near if lower ≤ skip_above;  inside if upper ≤ take_below
/// ```
/// Why no pair is lost or invented: the distance of any two points of the boxes lies
/// between `lower` and `upper`. How rounding is accounted for is argued where the two
/// limits are made, in `Prune::new`.
#[inline(always)]
pub(super) unsafe fn boxes<V: Vector, N: Norm>(
    job: &BoxJob<'_, V::Lane>,
    skip_above: V::Lane,
    take_below: V::Lane,
) -> (u32, u32) {
    // SAFETY: `BoxJob::check` has made sure of whole vectors in every column; the
    // caller promises the instruction set.
    unsafe {
        let zero = V::splat(V::Lane::ZERO);
        let (skip, take) = (V::splat(skip_above), V::splat(take_below));
        let (mut near, mut inside) = (0, 0);
        let mut base = 0;
        while base < job.count {
            let (mut lower, mut upper) = (zero, zero);
            for j in 0..job.dim {
                let at = j * job.stride + job.first + base;
                let lo = V::load(job.lo.as_ptr().add(at));
                let hi = V::load(job.hi.as_ptr().add(at));
                let q_lo = V::splat(*job.query_lo.get_unchecked(j));
                let q_hi = V::splat(*job.query_hi.get_unchecked(j));
                lower = step_gap::<V, N>(lower, (lo, hi), (q_lo, q_hi));
                upper = N::step(upper, hi.sub(q_lo).max(q_hi.sub(lo)));
            }
            near |= lower.le(skip) << base;
            inside |= upper.le(take) << base;
            base += V::LANES;
        }
        let valid = ((1u64 << job.count) - 1) as u32;
        (near & valid, inside & near & valid)
    }
}

/// Copies the pieces, in chunks of 16, to the front of every column of `to`, padded with
/// NaN to a whole vector; returns the largest absolute value written, where `SPREAD`.
///
/// ```text
/// for each dimension j:  for each piece:  to[j] ++= convert(from[j][piece], origin[j])
/// ```
#[inline(always)]
pub(super) unsafe fn gather<S: Scalar, L: Scalar, const SPREAD: bool>(
    job: &mut GatherJob<'_, S, L>,
    convert: impl Fn(S, S) -> L,
) -> L {
    let mut lanes = [L::ZERO; PAD];
    for j in 0..job.dim {
        // SAFETY: `GatherJob::check` has made sure that every piece, rounded up to whole
        // chunks, lies in its column on both sides.
        unsafe {
            let from = job.from.as_ptr().add(j * job.from_stride);
            let column = job.to.as_mut_ptr().add(j * job.to_stride);
            let origin = *job.origin.get_unchecked(j);
            let mut to = column;
            for piece in job.pieces {
                let from = from.add(piece.position as usize);
                let mut at = 0;
                while at < piece.len as usize {
                    // Whole arrays, so that the compiler sees no overlap and vectorises.
                    let chunk = from.add(at).cast::<[S; PAD]>().read_unaligned();
                    let mut converted = [L::ZERO; PAD];
                    for k in 0..PAD {
                        converted[k] = convert(chunk[k], origin);
                    }
                    to.add(at).cast::<[L; PAD]>().write_unaligned(converted);
                    at += PAD;
                }
                to = to.add(piece.len as usize);
            }
            if SPREAD {
                // Whole chunks are read back: the padding must not count.
                for k in job.len..job.len.next_multiple_of(PAD) {
                    column.add(k).write(L::ZERO);
                }
                for chunk in 0..job.len.div_ceil(PAD) {
                    let chunk = column.add(chunk * PAD).cast::<[L; PAD]>().read_unaligned();
                    for (lane, x) in lanes.iter_mut().zip(chunk) {
                        let x = x.abs();
                        *lane = if *lane > x { *lane } else { x };
                    }
                }
            }
            for k in job.len..job.len.next_multiple_of(PAD) {
                column.add(k).write(L::NAN);
            }
        }
    }
    lanes.into_iter().fold(L::ZERO, |a, b| if a > b { a } else { b })
}

/// Copies the candidates in a box to the front of a tile, in their order, padded with NaN to whole
/// chunks of 16, until the tile has no room for another chunk. Returns where the next ones are.
///
/// ```text
/// for each candidate:  if lo ≤ candidate ≤ hi in every dimension:  tile.push(candidate)
/// ```
#[inline(always)]
pub(super) unsafe fn sift<V: Vector>(
    job: &SiftJob<'_, V::Lane>,
    to: &mut Sifted<'_, V::Lane>,
) -> usize {
    let (mut at, mut len) = (job.from, 0);
    // SAFETY: `SiftJob::check` has made sure of `dim` columns of whole chunks on both sides, and of
    // the corners. A chunk is written where another one would fit, and padded there; the caller
    // promises the instruction set.
    unsafe {
        while at < job.stride && len + 2 * PAD <= to.stride {
            // Whole chunks, however many registers they are: the next call begins with one.
            let end = at + PAD;
            while at < end {
                let mut inside = u32::MAX >> (u32::BITS - V::LANES as u32);
                for j in 0..job.dim {
                    let x = V::load(job.coords.as_ptr().add(j * job.stride + at));
                    inside &= V::splat(*job.lo.get_unchecked(j)).le(x);
                    inside &= x.le(V::splat(*job.hi.get_unchecked(j)));
                }
                for j in 0..job.dim {
                    let x = V::load(job.coords.as_ptr().add(j * job.stride + at));
                    x.compress_lanes(inside, to.coords.as_mut_ptr().add(j * to.stride + len));
                }
                let labels = V::load_labels(job.labels.as_ptr().add(at));
                V::compress(labels, inside, to.labels.as_mut_ptr().add(len));
                len = V::add_popcount(len as u32, inside) as usize;
                at += V::LANES;
            }
        }
        for j in 0..job.dim {
            for k in len..len.next_multiple_of(PAD) {
                to.coords.as_mut_ptr().add(j * to.stride + k).write(V::Lane::NAN);
            }
        }
    }
    to.len = len;
    at
}

/// Copies the labels of the pieces, in chunks of 16.
#[inline(always)]
pub(super) unsafe fn gather_labels(from: &[u32], pieces: &[Piece], to: &mut [u32]) {
    // SAFETY: the caller has checked that every piece, rounded up to whole chunks, lies
    // within both slices.
    unsafe {
        let mut to = to.as_mut_ptr();
        for piece in pieces {
            let from = from.as_ptr().add(piece.position as usize);
            let mut at = 0;
            while at < piece.len as usize {
                core::ptr::copy_nonoverlapping(from.add(at), to.add(at), PAD);
                at += PAD;
            }
            to = to.add(piece.len as usize);
        }
    }
}

/// Distances that are added up at once.
const AT_ONCE: usize = 8;

/// The deciding arithmetic for listed candidates: `out[i]` is the accumulated distance
/// of `query` and row `ids[i]` of `data`.
#[inline(always)]
pub(super) fn distances<T: Scalar>(
    metric: Metric,
    data: &[T],
    query: &[T],
    ids: &[u32],
    out: &mut Vec<T>,
) {
    let dim = query.len();
    out.clear();
    out.reserve(ids.len());
    // Plain loops: the body of a closure is compiled without the instruction set of the
    // function around it, and there `mul_add` is a library call.
    //
    // A sum waits for its last step, and a row for memory: several at once wait together.
    let (many, few) = ids.as_chunks::<AT_ONCE>();
    for ids in many {
        let rows = ids.map(|id| &data[id as usize * dim..][..dim]);
        let mut sums = [T::ZERO; AT_ONCE];
        for j in 0..dim {
            for i in 0..AT_ONCE {
                sums[i] = Threshold::step(metric, sums[i], query[j], rows[i][j]);
            }
        }
        out.extend_from_slice(&sums);
    }
    for &id in few {
        let row = &data[id as usize * dim..][..dim];
        let mut acc = T::ZERO;
        for j in 0..dim {
            acc = Threshold::step(metric, acc, query[j], row[j]);
        }
        out.push(acc);
    }
}
