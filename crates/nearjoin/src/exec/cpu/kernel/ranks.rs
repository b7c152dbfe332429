//! The loops that keep the few best candidates of 16 queries without a branch.
//!
//! A candidate's *key* is its accumulated distance with the lowest bits replaced by a tag: where
//! the candidate is noted. So the least and the greater of two keys are one instruction each,
//! whoever they belong to, and a sorting network orders the candidates of all lanes at once.
//! Keys that differ only in their tags leave the order open; the caller looks closer.

use super::generic::step_gap;
use super::nearest::HELD;
use super::vector::{Norm, Vector};
use super::{NodeJob, PAD, Ranks};
use crate::scalar::Scalar;

/// Candidates of a query that wait to be merged, when it is high time.
pub(crate) const FULL: usize = 64;
/// Tags that one leaf can take, with those that a register writes beyond.
pub(super) const LEAF: usize = 2 * PAD;

/// For each of some queries, the leaves of a node that may hold a neighbour of it, as bits.
///
/// ```text
/// for each query q:  leaves[q] = those with distance(q, box) ≤ bound[q]
/// ```
/// No query waits for what another one finds in its leaves.
#[inline(always)]
pub(super) unsafe fn near<V: Vector, N: Norm, const D: usize>(
    job: &NodeJob<'_, V::Lane>,
    mut queries: u32,
    bounds: &[V::Lane; PAD],
    leaves: &mut [u32; PAD],
) {
    let dim = if D == 0 { job.dim } else { D };
    // SAFETY: `NodeJob::check` has made sure of the boxes and of the queries; the caller promises the
    // instruction set.
    unsafe {
        let boxes = (job.lo.as_ptr().add(job.node), job.hi.as_ptr().add(job.node));
        while queries != 0 {
            let query = queries.trailing_zeros() as usize;
            queries &= queries - 1;
            let bound = V::splat(bounds[query]);
            let mut near = 0;
            let mut some = 0;
            while some < PAD {
                let mut gap = V::splat(V::Lane::ZERO);
                for j in 0..dim {
                    let q = V::splat(*job.queries.as_ptr().add(j * PAD + query));
                    let lo = V::load(boxes.0.add(j * job.box_stride + some));
                    let hi = V::load(boxes.1.add(j * job.box_stride + some));
                    gap = step_gap::<V, N>(gap, (lo, hi), (q, q));
                }
                near |= gap.le(bound) << some;
                some += V::LANES;
            }
            leaves[query] = near;
        }
    }
}

/// Notes the candidates of some leaves of a node for one query. Returns the leaves that are
/// left when it is time to merge.
///
/// ```text
/// for each leaf:  for each candidate c:  note it if distance(q, c) ≤ bound[q]
/// ```
/// No branch hangs on how many of a leaf are noted: a processor could not foresee it.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
pub(super) unsafe fn rank<V: Vector, N: Norm, const D: usize>(
    job: &NodeJob<'_, V::Lane>,
    query: usize,
    mut leaves: u32,
    ranks: &mut Ranks<V::Lane>,
) -> u32 {
    let dim = if D == 0 { job.dim } else { D };
    // SAFETY: `NodeJob::check` has made sure of the candidates in every column and of the
    // queries; `NearestKernels::rank` of the leaves and of the tags for another one; the caller
    // promises the instruction set.
    unsafe {
        let zero = V::splat(V::Lane::ZERO);
        let queries = job.queries.as_ptr().add(query);
        let bound = V::splat(*ranks.bounds.get_unchecked(query));
        // In registers, where they fit: a store between two loads could change them.
        let mut held = [zero; HELD];
        if D != 0 {
            for j in 0..dim {
                held[j] = V::splat(*queries.add(j * PAD));
            }
        }
        let notes = query * Ranks::<V::Lane>::TAGS;
        let (noted, names) = (ranks.acc.as_mut_ptr().add(notes), ranks.ids.as_mut_ptr().add(notes));
        // The candidate at `own`, if there is one, is the query itself.
        let own = ranks.own.wrapping_add(query).wrapping_sub(job.first);
        let mut len = *ranks.len.get_unchecked(query) as usize;
        let full = *ranks.merged.get_unchecked(query) as usize + FULL;
        while leaves != 0 && len < full {
            let leaf = leaves.trailing_zeros() as usize * PAD;
            leaves &= leaves - 1;
            let coords = job.coords.as_ptr().add((job.first + leaf) * dim);
            let ids = job.ids.as_ptr().add(job.first + leaf);
            // The last leaf may be short; what stands behind it is no point.
            let mut wanted = ((1u64 << (job.len - leaf).min(PAD)) - 1) as u32;
            let me = own.wrapping_sub(leaf);
            if me < PAD {
                wanted &= !(1 << me);
            }
            let mut some = 0;
            while some < PAD {
                let mut acc = zero;
                for j in 0..dim {
                    let q = if D != 0 { held[j] } else { V::splat(*queries.add(j * PAD)) };
                    acc = N::step(acc, q.sub(V::load(coords.add(j * PAD + some))));
                }
                let found = acc.le(bound) & (wanted >> some);
                V::compress_lanes(acc, found, noted.add(len));
                V::compress(V::load_labels(ids.add(some)), found, names.add(len));
                len = V::add_popcount(len as u32, found) as usize;
                some += V::LANES;
            }
            ranks.tests += PAD as u64;
        }
        *ranks.len.get_unchecked_mut(query) = len as u32;
        leaves
    }
}

/// Puts the least and the greater of two keys in order, pair by pair.
macro_rules! exchange {
    ($v:ident: $($a:literal $b:literal),*) => {
        $(
            let (x, y) = ($v[$a], $v[$b]);
            $v[$a] = x.min(y);
            $v[$b] = x.max(y);
        )*
    };
}

/// Sorts 8 registers, lane by lane: a network of 19 exchanges.
#[inline(always)]
unsafe fn sort_8<V: Vector>(v: &mut [V; PAD]) {
    // SAFETY: the caller promises the instruction set.
    unsafe {
        exchange!(v: 0 2, 1 3, 4 6, 5 7);
        exchange!(v: 0 4, 1 5, 2 6, 3 7);
        exchange!(v: 0 1, 2 3, 4 5, 6 7);
        exchange!(v: 2 4, 3 5);
        exchange!(v: 1 4, 3 6);
        exchange!(v: 1 2, 3 4, 5 6);
    }
}

/// Sorts 16 registers, lane by lane: a network of 61 exchanges in nine layers.
#[inline(always)]
unsafe fn sort_16<V: Vector>(v: &mut [V; PAD]) {
    // SAFETY: the caller promises the instruction set.
    unsafe {
        exchange!(v: 0 5, 1 4, 2 12, 3 13, 6 7, 8 9, 10 15, 11 14);
        exchange!(v: 0 2, 1 10, 3 6, 4 7, 5 14, 8 11, 9 12, 13 15);
        exchange!(v: 0 8, 1 3, 2 11, 4 13, 5 9, 6 10, 7 15, 12 14);
        exchange!(v: 0 1, 2 4, 3 8, 5 6, 7 12, 9 10, 11 13, 14 15);
        exchange!(v: 1 3, 2 5, 4 8, 6 9, 7 11, 10 13, 12 14);
        exchange!(v: 1 2, 3 5, 4 11, 6 8, 7 9, 10 12, 13 14);
        exchange!(v: 2 3, 4 5, 6 7, 8 9, 10 11, 12 13);
        exchange!(v: 4 6, 5 7, 8 10, 9 11);
        exchange!(v: 3 4, 5 6, 7 8, 9 10, 11 12);
    }
}

/// Sorts a bitonic sequence of 8 registers.
#[inline(always)]
unsafe fn smooth_8<V: Vector>(v: &mut [V; PAD]) {
    // SAFETY: the caller promises the instruction set.
    unsafe {
        exchange!(v: 0 4, 1 5, 2 6, 3 7);
        exchange!(v: 0 2, 1 3, 4 6, 5 7);
        exchange!(v: 0 1, 2 3, 4 5, 6 7);
    }
}

/// Sorts a bitonic sequence of 16 registers.
#[inline(always)]
unsafe fn smooth_16<V: Vector>(v: &mut [V; PAD]) {
    // SAFETY: the caller promises the instruction set.
    unsafe {
        exchange!(v: 0 8, 1 9, 2 10, 3 11, 4 12, 5 13, 6 14, 7 15);
        exchange!(v: 0 4, 1 5, 2 6, 3 7, 8 12, 9 13, 10 14, 11 15);
        exchange!(v: 0 2, 1 3, 4 6, 5 7, 8 10, 9 11, 12 14, 13 15);
        exchange!(v: 0 1, 2 3, 4 5, 6 7, 8 9, 10 11, 12 13, 14 15);
    }
}

/// New keys that are merged at a time into so many.
pub(super) const fn group(room: usize) -> usize {
    if room == 8 { 8 } else { 16 }
}

/// Merges a group of keys into the best `ROOM` of a register of queries. Returns the least that is
/// dropped.
///
/// ```text
/// sort the new keys
/// the last 16 (8) of the best:  the lesser of each and of the sorted keys backwards
/// the best are bitonic now: smooth them
/// ```
#[inline(always)]
#[allow(clippy::needless_range_loop)]
pub(super) unsafe fn merge_group<V: Vector, const ROOM: usize>(
    mut new: [V; PAD],
    keys: *mut V::Lane,
) -> V {
    let group = group(ROOM);
    // SAFETY: the caller promises the instruction set, and `ROOM` rows of 16 keys.
    unsafe {
        if ROOM == 8 {
            sort_8(&mut new);
        } else {
            sort_16(&mut new);
        }
        let none = V::splat(V::Lane::MAX);
        let tail = keys.add((ROOM - group) * PAD);
        let (mut best, mut dropped) = ([none; PAD], none);
        for i in 0..group {
            let (old, new) = (V::load(tail.add(i * PAD)), new[group - 1 - i]);
            best[i] = old.min(new);
            dropped = dropped.min(old.max(new));
        }
        if ROOM == 8 {
            smooth_8(&mut best);
        } else if ROOM == 16 {
            smooth_16(&mut best);
        }
        for i in 0..group {
            best[i].store(tail.add(i * PAD));
        }
        if ROOM > 16 {
            smooth::<V, ROOM>(keys);
        }
        dropped
    }
}

/// Merges the waiting candidates of a register of queries into their best, group by group, and
/// tightens the bounds: to the k-th key, all tags included.
///
/// What is dropped is remembered by its least key.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
pub(super) unsafe fn merge<V: Vector, const ROOM: usize>(ranks: &mut Ranks<V::Lane>, base: usize) {
    let group = group(ROOM);
    // SAFETY: `NearestKernels::merge` has made sure of the lengths; the caller promises the
    // instruction set.
    unsafe {
        let none = V::splat(V::Lane::MAX);
        let tags = V::Lane::from_id(Ranks::<V::Lane>::TAGS as u32 - 1);
        let mut rows = 0;
        for query in base..base + V::LANES {
            let waiting = ranks.len[query] - ranks.merged[query];
            rows = if waiting > rows { waiting } else { rows };
        }
        let rows = rows as usize;
        // The keys of those that wait, a row for each of every query.
        let mut fresh = core::mem::MaybeUninit::<[V::Lane; WAITING * PAD]>::uninit();
        let fresh = fresh.as_mut_ptr().cast::<V::Lane>();
        for row in 0..rows.next_multiple_of(group) {
            none.store(fresh.add(row * V::LANES));
        }
        for lane in 0..V::LANES {
            let query = base + lane;
            let noted = ranks.acc.as_ptr().add(query * Ranks::<V::Lane>::TAGS);
            let (mut tag, len) = (ranks.merged[query], ranks.len[query]);
            let mut at = lane;
            while tag < len {
                let acc = *noted.add(tag as usize);
                *fresh.add(at) = acc.without_bits(tags).with_bits(V::Lane::from_id(tag));
                tag += 1;
                at += V::LANES;
            }
            ranks.merged[query] = len;
        }
        let keys = ranks.keys.as_mut_ptr().add(base);
        let mut dropped = V::load(ranks.dropped.as_ptr().add(base));
        let mut row = 0;
        while row < rows {
            let mut new = [none; PAD];
            for i in 0..group {
                new[i] = V::load(fresh.add((row + i) * V::LANES));
            }
            dropped = dropped.min(merge_group::<V, ROOM>(new, keys));
            row += group;
        }
        dropped.store(ranks.dropped.as_mut_ptr().add(base));
        let bound = V::load(keys.add((ranks.k - 1) * PAD)).with_bits(V::splat(tags));
        bound
            .min(V::load(ranks.caps.as_ptr().add(base)))
            .store(ranks.bounds.as_mut_ptr().add(base));
    }
}

/// Rows for those that wait: a leaf can come on top of what does not fill.
const WAITING: usize = FULL + PAD;

/// Sorts a bitonic sequence of `ROOM` keys in memory.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn smooth<V: Vector, const ROOM: usize>(keys: *mut V::Lane) {
    // SAFETY: as for `merge`.
    unsafe {
        let mut distance = ROOM / 2;
        while distance >= PAD {
            let mut at = 0;
            while at < ROOM {
                for i in at..at + distance {
                    let (low, high) = (keys.add(i * PAD), keys.add((i + distance) * PAD));
                    let (x, y) = (V::load(low), V::load(high));
                    x.min(y).store(low);
                    x.max(y).store(high);
                }
                at += 2 * distance;
            }
            distance /= 2;
        }
        let mut at = 0;
        while at < ROOM {
            let mut chunk = [V::splat(V::Lane::ZERO); PAD];
            for i in 0..PAD {
                chunk[i] = V::load(keys.add((at + i) * PAD));
            }
            smooth_16(&mut chunk);
            for i in 0..PAD {
                chunk[i].store(keys.add((at + i) * PAD));
            }
            at += PAD;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scalar::Array;
    use super::*;

    type Lanes = Array<f32, true>;

    /// A network that sorts every sequence of zeros and ones sorts everything.
    fn sorts_bits(
        len: usize,
        sort: unsafe fn(&mut [Lanes; PAD]),
        inputs: impl Iterator<Item = u32>,
    ) {
        for bits in inputs {
            // SAFETY: plain loops run everywhere.
            unsafe {
                let mut v = [Lanes::splat(9.0); PAD];
                for (i, v) in v.iter_mut().enumerate().take(len) {
                    *v = Lanes::splat((bits >> i & 1) as f32);
                }
                sort(&mut v);
                assert!(v.windows(2).all(|pair| pair[1].lt(pair[0]) == 0), "{bits:b}");
            }
        }
    }

    #[test]
    fn networks_sort() {
        sorts_bits(8, sort_8, 0..1 << 8);
        sorts_bits(16, sort_16, 0..1 << 16);
    }

    #[test]
    fn networks_smooth_what_rises_and_falls() {
        let bitonic = |len: u32| {
            (0..len).flat_map(move |from| {
                (from..=len).map(move |to| ((1u32 << to) - 1) >> from << from)
            })
        };
        sorts_bits(8, smooth_8, bitonic(8));
        sorts_bits(16, smooth_16, bitonic(16));
    }
}
