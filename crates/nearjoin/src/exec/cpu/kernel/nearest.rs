//! The loops of the KNN-join, written once over [`Vector`].

use super::generic::step_gap;
use super::vector::{Norm, Vector};
use super::{BoxJob, Hits, Kept, LeafJob, PAD};
use crate::scalar::Scalar;

/// The least distance between each of up to 16 boxes and the box of a block of queries, and
/// which of them are within the limit.
///
/// ```text
/// for each box:  gap = Σ step(max(lo − query.hi, query.lo − hi, 0))
/// ```
/// Why nothing is lost: as for `boxes`, no pair of points from the two boxes has a smaller
/// accumulated distance than this, rounding included where lanes are fused.
#[inline(always)]
pub(super) unsafe fn gaps<V: Vector, N: Norm>(
    job: &BoxJob<'_, V::Lane>,
    limit: V::Lane,
    gaps: &mut [V::Lane; PAD],
) -> u32 {
    // SAFETY: `BoxJob::check` has made sure of whole vectors in every column; the caller
    // promises the instruction set.
    unsafe {
        let zero = V::splat(V::Lane::ZERO);
        let limit = V::splat(limit);
        let mut near = 0;
        let mut base = 0;
        while base < PAD {
            let mut gap = zero;
            for j in 0..job.dim {
                let at = j * job.stride + job.first + base;
                let lo = V::load(job.lo.as_ptr().add(at));
                let hi = V::load(job.hi.as_ptr().add(at));
                let q_lo = V::splat(*job.query_lo.get_unchecked(j));
                let q_hi = V::splat(*job.query_hi.get_unchecked(j));
                gap = step_gap::<V, N>(gap, (lo, hi), (q_lo, q_hi));
            }
            near |= gap.le(limit) << base;
            gap.store(gaps.as_mut_ptr().add(base));
            base += V::LANES;
        }
        near & ((1u64 << job.count) - 1) as u32
    }
}

/// Which of 16 queries a box may hold a neighbour of: its distance is at most their bounds.
#[inline(always)]
pub(super) unsafe fn active<V: Vector, N: Norm>(
    job: &LeafJob<'_, V::Lane>,
    bounds: &[V::Lane; PAD],
) -> u32 {
    // SAFETY: `LeafJob::check` has made sure of the box and of the queries; the caller promises
    // the instruction set.
    unsafe {
        let queries = job.queries.as_ptr();
        let mut active = 0;
        let mut base = 0;
        while base < PAD {
            let mut gap = V::splat(V::Lane::ZERO);
            for j in 0..job.dim {
                let q = V::load(queries.add(j * PAD + base));
                let at = j * job.box_stride + job.node;
                let lo = V::splat(*job.lo.get_unchecked(at));
                let hi = V::splat(*job.hi.get_unchecked(at));
                gap = step_gap::<V, N>(gap, (lo, hi), (q, q));
            }
            active |= gap.le(V::load(bounds.as_ptr().add(base))) << base;
            base += V::LANES;
        }
        active
    }
}

/// Queries that share a load of the candidates.
const TOGETHER: usize = 8;

/// Which of 16 candidates may be within the limit of each of 16 queries, as bits. Returns
/// whether there is one.
///
/// ```text
/// for each 8 queries:  for each dimension j:  acc[q] = step(acc[q], query[q][j] − x[j])
///     hits[q] = (acc[q] ≤ limit[q])
/// ```
#[inline(always)]
#[allow(clippy::needless_range_loop)]
pub(super) unsafe fn sieve<V: Vector<Lane = f32>, N: Norm>(
    candidates: &[f32],
    queries: &[f32],
    limits: &[f32; PAD],
    hits: &mut [u32; PAD],
) -> bool {
    // SAFETY: `NearestKernels::sieve` has made sure that both are columns of 16, as many of one
    // as of the other; the caller promises the instruction set.
    unsafe {
        let dim = queries.len() / PAD;
        let mut any = 0;
        *hits = [0; PAD];
        let mut first = 0;
        while first < PAD {
            let mut base = 0;
            while base < PAD {
                let mut acc = [V::splat(0.0); TOGETHER];
                for j in 0..dim {
                    let x = V::load(candidates.as_ptr().add(j * PAD + base));
                    let queries = queries.as_ptr().add(j * PAD + first);
                    for q in 0..TOGETHER {
                        acc[q] = N::step(acc[q], V::splat(*queries.add(q)).sub(x));
                    }
                }
                for q in 0..TOGETHER {
                    let near = acc[q].le(V::splat(limits[first + q]));
                    hits[first + q] |= near << base;
                    any |= near;
                }
                base += V::LANES;
            }
            first += TOGETHER;
        }
        any != 0
    }
}

/// Measures the 16 candidates of a leaf for each query that its box may hold a neighbour of.
///
/// ```text
/// for each query q:  if distance(q, box) ≤ bound[q]:
///     for each candidate c:  acc[c] = distance(q, c);  lanes |= (acc[c] ≤ bound[q])
///     if lanes:  keep acc and lanes
/// ```
#[inline(always)]
pub(super) unsafe fn leaf<V: Vector, N: Norm, const D: usize>(
    job: &LeafJob<'_, V::Lane>,
    bounds: &[V::Lane; PAD],
    hits: &mut Hits<V::Lane>,
) {
    let dim = if D == 0 { job.dim } else { D };
    // SAFETY: `LeafJob::check` has made sure of 16 candidates in every column, of the box
    // and of the queries; the caller promises the instruction set.
    unsafe {
        let zero = V::splat(V::Lane::ZERO);
        let queries = job.queries.as_ptr();
        let mut active = active::<V, N>(job, bounds);
        let coords = job.coords.as_ptr();
        let mut count = 0;
        while active != 0 {
            let query = active.trailing_zeros() as usize;
            active &= active - 1;
            let bound = V::splat(*bounds.get_unchecked(query));
            let to = hits.acc.as_mut_ptr().add(count).cast::<V::Lane>();
            let mut lanes = 0;
            let mut base = 0;
            while base < PAD {
                let mut acc = zero;
                for j in 0..dim {
                    let x = V::load(coords.add(j * PAD + base));
                    acc = N::step(acc, V::splat(*queries.add(j * PAD + query)).sub(x));
                }
                acc.store(to.add(base));
                lanes |= acc.le(bound) << base;
                base += V::LANES;
            }
            // `count` is at most the number of queries seen, so below 16.
            *hits.query.get_unchecked_mut(count) = query as u32;
            *hits.lanes.get_unchecked_mut(count) = lanes;
            count += usize::from(lanes != 0);
        }
        hits.count = count;
    }
}

/// Puts the candidates of a leaf where they belong among the k best of 16 queries, which are
/// the lanes.
///
/// ```text
/// for each candidate c:  for each query q:  if (distance(q, c), id) < kept[q][k − 1]:
///     shift the later ones of kept[q] by one, and put it into the gap
/// ```
// Where D is 0 the loops go beyond what is held.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
pub(super) unsafe fn keep<V: Vector, N: Norm, const D: usize>(
    job: &LeafJob<'_, V::Lane>,
    ids: &[u32],
    own: &[u32; PAD],
    kept: &mut Kept<'_, V::Lane>,
) {
    let dim = if D == 0 { job.dim } else { D };
    // SAFETY: `LeafJob::check` has made sure of 16 candidates in every column, of the box
    // and of the queries, `NearestKernels::keep` of the room for the best; the caller
    // promises the instruction set.
    unsafe {
        let zero = V::splat(V::Lane::ZERO);
        let queries = job.queries.as_ptr();
        let last = (kept.k - 1) * PAD;
        let (kept_acc, kept_ids) = (kept.acc.as_mut_ptr(), kept.ids.as_mut_ptr());
        let coords = job.coords.as_ptr();
        let mut base = 0;
        while base < PAD {
            let mut bound = V::load(kept_acc.add(last + base));
            let mut held = [zero; HELD];
            let mut gap = zero;
            for j in 0..dim {
                let q = V::load(queries.add(j * PAD + base));
                if D != 0 {
                    held[j] = q;
                }
                let at = j * job.box_stride + job.node;
                let lo = V::splat(*job.lo.get_unchecked(at));
                let hi = V::splat(*job.hi.get_unchecked(at));
                gap = step_gap::<V, N>(gap, (lo, hi), (q, q));
            }
            if gap.le(bound) == 0 {
                base += V::LANES;
                continue;
            }
            let own = V::load_labels(own.as_ptr().add(base));
            for (c, &id) in ids.iter().enumerate() {
                let mut acc = zero;
                for j in 0..dim {
                    let q = if D != 0 { held[j] } else { V::load(queries.add(j * PAD + base)) };
                    acc = N::step(acc, q.sub(V::splat(*coords.add(j * PAD + c))));
                }
                let mut lanes = acc.le(bound);
                if lanes == 0 {
                    continue;
                }
                let id = V::splat_label(id);
                lanes &= V::labels_ne(id, own);
                let mut at = last + base;
                lanes &= before::<V>(acc, id, bound, V::load_labels(kept_ids.add(at)));
                // Lanes in which the new one goes to `at` or before it.
                while lanes != 0 {
                    let (mut next_acc, mut next_id) = (acc, id);
                    let mut further = 0;
                    if at >= PAD {
                        let above = V::load(kept_acc.add(at - PAD));
                        let above_id = V::load_labels(kept_ids.add(at - PAD));
                        further = lanes & before::<V>(acc, id, above, above_id);
                        next_acc = V::select(further, above, acc);
                        next_id = V::select_labels(further, above_id, id);
                    }
                    let old = V::load(kept_acc.add(at));
                    let old_id = V::load_labels(kept_ids.add(at));
                    V::select(lanes, next_acc, old).store(kept_acc.add(at));
                    V::store_labels(V::select_labels(lanes, next_id, old_id), kept_ids.add(at));
                    lanes = further;
                    at = at.wrapping_sub(PAD);
                }
                bound = V::load(kept_acc.add(last + base));
            }
            base += V::LANES;
        }
    }
}

/// Dimensions of which the queries are held in registers.
pub(super) const HELD: usize = 8;

/// Lanes in which one candidate comes before another: nearer, or as near with the smaller row.
#[inline(always)]
unsafe fn before<V: Vector>(acc: V, id: V::Labels, other: V, other_id: V::Labels) -> u32 {
    // SAFETY: the caller promises the instruction set.
    unsafe { acc.lt(other) | acc.eq(other) & V::labels_lt(id, other_id) }
}
