//! The kernels, written once over [`Vector`]; each instruction set instantiates them.

use super::vector::{Norm, Vector};
use super::{BoxJob, Job, Open};
use crate::metric::{Metric, Threshold};
use crate::scalar::Scalar;

/// Accumulated distances of `Q` queries to the `LANES` candidates from `base` on.
///
/// ```text
/// for j in 0..dim:  for each query b:  acc[b] = step(acc[b], query[b][j] − candidate[j])
/// ```
/// `D` is the dimension, or 0 where it is only known at run time.
#[inline(always)]
unsafe fn accumulate<V: Vector, N: Norm, const D: usize, const Q: usize>(
    job: &Job<'_, V::Lane>,
    query: usize,
    base: usize,
) -> [V; Q] {
    let dim = if D == 0 { job.dim } else { D };
    // SAFETY: `Job::check` has made sure of `dim` columns of whole vectors and of the
    // queries; the caller promises the instruction set.
    unsafe {
        let mut acc = [V::splat(V::Lane::ZERO); Q];
        for j in 0..dim {
            let x = V::load(job.coords.as_ptr().add(j * job.stride + base));
            for (b, acc) in acc.iter_mut().enumerate() {
                let q = V::splat(*job.queries.get_unchecked((query + b) * dim + j));
                *acc = N::step(*acc, q.sub(x));
            }
        }
        acc
    }
}

/// Splits the lanes of `acc` into those that surely match, which are returned, and
/// those too close to ε to tell, which are noted in `open`.
#[inline(always)]
unsafe fn decide<V: Vector, const EXACT: bool>(
    acc: V,
    sure: V,
    maybe: V,
    query: usize,
    base: usize,
    open: &mut Vec<Open>,
) -> u32 {
    // SAFETY: the caller promises the instruction set.
    unsafe {
        let sure = acc.le(sure);
        if !EXACT {
            let mut undecided = acc.le(maybe) & !sure;
            if undecided != 0 {
                while undecided != 0 {
                    let candidate = base as u32 + undecided.trailing_zeros();
                    open.push(Open {
                        query: query as u32,
                        candidate,
                    });
                    undecided &= undecided - 1;
                }
            }
        }
        sure
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
        let mut query = 0;
        while query + 4 <= job.count {
            count_some::<V, N, D, EXACT, 4>(job, query, counts, open);
            query += 4;
        }
        while query < job.count {
            count_some::<V, N, D, EXACT, 1>(job, query, counts, open);
            query += 1;
        }
    }
}

#[inline(always)]
unsafe fn count_some<V: Vector, N: Norm, const D: usize, const EXACT: bool, const Q: usize>(
    job: &Job<'_, V::Lane>,
    query: usize,
    counts: &mut [u64],
    open: &mut Vec<Open>,
) {
    // SAFETY: the caller promises the instruction set and a checked job.
    unsafe {
        let (sure, maybe) = (V::splat(job.sure), V::splat(job.maybe));
        let mut hits = [0u32; Q];
        let mut base = 0;
        while base < job.len {
            let acc = accumulate::<V, N, D, Q>(job, query, base);
            for b in 0..Q {
                let mask = decide::<V, EXACT>(acc[b], sure, maybe, query + b, base, open);
                hits[b] += mask.count_ones();
            }
            base += V::LANES;
        }
        for b in 0..Q {
            counts[query + b] += u64::from(hits[b]);
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
    // SAFETY: the caller promises the instruction set and a checked job.
    unsafe {
        let mut query = 0;
        while query + 2 <= job.count {
            rows_some::<V, N, D, EXACT, 2>(job, query, own, rows, open);
            query += 2;
        }
        if query < job.count {
            rows_some::<V, N, D, EXACT, 1>(job, query, own, rows, open);
        }
    }
}

#[inline(always)]
unsafe fn rows_some<V: Vector, N: Norm, const D: usize, const EXACT: bool, const Q: usize>(
    job: &Job<'_, V::Lane>,
    query: usize,
    own: &[u32],
    rows: &mut [Vec<u32>],
    open: &mut Vec<Open>,
) {
    // SAFETY: the caller promises the instruction set and a checked job. Each row has
    // room for every candidate and one more vector, so that a whole register may be
    // stored wherever the row ends; `set_len` covers written elements only.
    unsafe {
        let (sure, maybe) = (V::splat(job.sure), V::splat(job.maybe));
        let mut to = [core::ptr::null_mut::<u32>(); Q];
        let mut self_label = [V::splat_label(0); Q];
        for b in 0..Q {
            let row = &mut rows[query + b];
            row.reserve(job.len + 2 * V::LANES);
            to[b] = row.as_mut_ptr().add(row.len());
            self_label[b] = V::splat_label(own[query + b]);
        }
        let mut base = 0;
        while base < job.len {
            let acc = accumulate::<V, N, D, Q>(job, query, base);
            let labels = V::load_labels(job.labels.as_ptr().add(base));
            for b in 0..Q {
                let mut mask = decide::<V, EXACT>(acc[b], sure, maybe, query + b, base, open);
                mask &= V::labels_ne(labels, self_label[b]);
                V::compress(labels, mask, to[b]);
                to[b] = to[b].add(mask.count_ones() as usize);
            }
            base += V::LANES;
        }
        for b in 0..Q {
            let row = &mut rows[query + b];
            let len = to[b].offset_from(row.as_ptr()) as usize;
            row.set_len(len);
        }
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
/// Why no pair is lost or invented: the real distance of any two points of the boxes
/// lies between the real `lower` and `upper`; [`Threshold::band`] has widened the two
/// bounds by more than all the rounding on both sides.
#[inline(always)]
pub(super) unsafe fn boxes<V: Vector, N: Norm>(job: &BoxJob<'_, V::Lane>) -> (u32, u32) {
    // SAFETY: `BoxJob::check` has made sure of whole vectors in every column; the
    // caller promises the instruction set.
    unsafe {
        let zero = V::splat(V::Lane::ZERO);
        let (skip, take) = (V::splat(job.skip_above), V::splat(job.take_below));
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
                lower = N::step(lower, lo.sub(q_hi).max(q_lo.sub(hi)).max(zero));
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

/// Copies `from − origin` to `to`, in chunks of 16: both must have room for that.
#[inline(always)]
pub(super) unsafe fn localize(from: *const f64, len: usize, origin: f64, to: *mut f32) {
    let mut at = 0;
    while at < len {
        for k in 0..16 {
            // SAFETY: the caller promises room for `len` rounded up to 16.
            unsafe {
                to.add(at + k)
                    .write((from.add(at + k).read() - origin) as f32)
            };
        }
        at += 16;
    }
}

/// The largest absolute value of `len` numbers.
#[inline(always)]
pub(super) fn spread(values: &[f32]) -> f32 {
    let (blocks, rest) = values.as_chunks::<16>();
    let mut lanes = [0.0f32; 16];
    for block in blocks {
        for (lane, x) in lanes.iter_mut().zip(block) {
            let x = x.abs();
            *lane = if *lane > x { *lane } else { x };
        }
    }
    rest.iter()
        .map(|x| x.abs())
        .chain(lanes)
        .fold(0.0, f32::max)
}

/// The deciding arithmetic for listed candidates: `out[i]` is the accumulated distance
/// of `query` and the point at `positions[i]`.
#[inline(always)]
pub(super) fn distances<T: Scalar>(
    metric: Metric,
    coords: &[T],
    stride: usize,
    query: &[T],
    positions: &[u32],
    out: &mut Vec<T>,
) {
    out.clear();
    out.extend(positions.iter().map(|&position| {
        let column = coords.iter().skip(position as usize).step_by(stride);
        column
            .zip(query)
            .fold(T::ZERO, |acc, (&y, &x)| Threshold::step(metric, acc, x, y))
    }));
}
