//! The loops of a KNN-join in which 16 queries, the lanes, look at one candidate after the other.
//!
//! Distances are computed in `f32`, relative to the middle of the queries, whatever the type of the
//! points: they find the best, and the deciding arithmetic puts those in order. Keys are those of
//! `ranks.rs`. All lanes look at the same candidate, so a tag is the same for all of them, and a row
//! of 16 keys is one register: nothing has to be gathered before keys are sorted.

use super::PAD;
use super::ranks::{group, merge_group};
use super::vector::{Norm, Vector};
use crate::metric::{Metric, Threshold};
use crate::scalar::Scalar;

/// The bits of a key that are its tag.
pub(crate) const TAG: u32 = 0xff;

/// Rows of keys that may wait: less than a group of them, a leaf, and one that is written and not kept.
pub(crate) const ROWS: usize = 2 * PAD;

/// The best of 16 queries, and the candidates that wait.
pub(crate) struct Lockstep {
    pub(crate) k: usize,
    /// The least keys, ascending: the i-th of query q at `16 · i + q`; 8, 16, 32 or 64 of them.
    /// `MAX` where there is none yet.
    pub(crate) keys: Vec<f32>,
    /// Rows of keys that are to be merged.
    pub(crate) rows: Vec<f32>,
    pub(crate) waiting: usize,
    /// The least key that was dropped.
    pub(crate) dropped: [f32; PAD],
    /// What is farther is not noted. NaN where there is no query.
    pub(crate) bounds: [f32; PAD],
    /// The queries, and the candidates of a leaf: a column of 16 per dimension.
    pub(crate) queries: Vec<f32>,
    pub(crate) candidates: Vec<f32>,
    /// How a key becomes a bound.
    pub(crate) margin: Margin,
}

impl Lockstep {
    /// Rows that are merged at a time.
    pub(crate) fn group(&self) -> usize {
        group(self.keys.len() / PAD)
    }
}

/// What a distance in `f32` may be off: by a share of it, and by so much more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Margin {
    /// Whether keys are squares of distances.
    pub(crate) squares: bool,
    pub(crate) share: f32,
    pub(crate) more: f32,
}

impl Margin {
    /// The bound of what may be as near as something that has this key: moved outwards twice.
    #[inline(always)]
    pub(crate) fn widen(self, key: f32) -> f32 {
        let distance = if self.squares { key.sqrt() } else { key };
        let widened = distance + distance * self.share + self.more;
        if self.squares { widened * widened } else { widened }
    }
}

/// Columns of 16 relative to a middle, times a power of two.
#[inline(always)]
pub(super) fn relate<T: Scalar>(from: &[T], middle: &[f64], scale: f64, to: &mut [f32]) {
    // Plain loops, as in `distances`.
    for j in 0..middle.len() {
        let (from, to) = (&from[j * PAD..][..PAD], &mut to[j * PAD..][..PAD]);
        for i in 0..PAD {
            to[i] = ((from[i].to_f64() - middle[j]) * scale) as f32;
        }
    }
}

/// Measures the first `len` candidates, and appends a row of keys for each that is within the bound
/// of some query.
///
/// ```text
/// for each candidate c:  for each query q:
///     key = distance(q, c) with the tag in its lowest bits, or MAX where that is above bound[q]
///     keep the row of keys if one of them is below MAX
/// ```
/// Candidate i is left out for query i where `own` says so.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
pub(super) unsafe fn measure<V: Vector<Lane = f32>, N: Norm, const D: usize>(
    steps: &mut Lockstep,
    len: usize,
    tag: u32,
    own: bool,
) {
    let dim = if D == 0 { steps.queries.len() / PAD } else { D };
    // SAFETY: `NearestKernels::measure` has made sure of columns of 16 and of room for the rows;
    // the caller promises the instruction set.
    unsafe {
        let none = V::splat(f32::MAX);
        let tags = V::splat(f32::from_bits(TAG));
        let (queries, candidates) = (steps.queries.as_ptr(), steps.candidates.as_ptr());
        let mut waiting = steps.waiting;
        for c in 0..len {
            let row = steps.rows.as_mut_ptr().add(waiting * PAD);
            let tag = V::splat(f32::from_bits(tag + c as u32));
            let mut any = 0;
            let mut base = 0;
            while base < PAD {
                let mut acc = V::splat(0.0);
                for j in 0..dim {
                    let q = V::load(queries.add(j * PAD + base));
                    acc = N::step(acc, q.sub(V::splat(*candidates.add(j * PAD + c))));
                }
                let mut near = acc.le(V::load(steps.bounds.as_ptr().add(base)));
                near &= !((u32::from(own) << c) >> base);
                let key = acc.without_bits(tags).with_bits(tag);
                V::select(near, key, none).store(row.add(base));
                any |= near;
                base += V::LANES;
            }
            waiting += usize::from(any != 0);
        }
        steps.waiting = waiting;
    }
}

/// Merges the last group of rows that wait into the best, and tightens the bounds.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
pub(super) unsafe fn absorb<V: Vector<Lane = f32>, const ROOM: usize>(steps: &mut Lockstep) {
    let group = group(ROOM);
    // SAFETY: `NearestKernels::absorb` has made sure of the keys and of the rows; the caller
    // promises the instruction set.
    unsafe {
        let first = steps.waiting.saturating_sub(group);
        let none = V::splat(f32::MAX);
        let mut base = 0;
        while base < PAD {
            let mut new = [none; PAD];
            for i in 0..group {
                if first + i < steps.waiting {
                    new[i] = V::load(steps.rows.as_ptr().add((first + i) * PAD + base));
                }
            }
            let dropped = steps.dropped.as_mut_ptr().add(base);
            let least = merge_group::<V, ROOM>(new, steps.keys.as_mut_ptr().add(base));
            V::load(dropped).min(least).store(dropped);
            base += V::LANES;
        }
        steps.waiting = first;
    }
    let last = &steps.keys[(steps.k - 1) * PAD..][..PAD];
    for q in 0..PAD {
        let bound = steps.margin.widen(f32::from_bits(last[q].to_bits() | TAG));
        let old = steps.bounds[q];
        // A NaN stays, and what has no number does not become a bound.
        steps.bounds[q] = if bound < old { bound } else { old };
    }
}

/// The deciding arithmetic for query `q` of a block and some candidates by their positions in
/// leaves: `out[i]` is their accumulated distance.
#[inline(always)]
pub(super) fn decide<T: Scalar>(
    metric: Metric,
    coords: &[T],
    queries: &[T],
    q: usize,
    positions: &[u32],
    out: &mut [T],
) {
    let dim = queries.len() / PAD;
    // Plain loops, as in `distances`.
    for i in 0..positions.len() {
        let position = positions[i] as usize;
        let leaf = &coords[position / PAD * PAD * dim..][..PAD * dim];
        let mut acc = T::ZERO;
        for j in 0..dim {
            acc =
                Threshold::step(metric, acc, queries[j * PAD + q], leaf[j * PAD + position % PAD]);
        }
        out[i] = acc;
    }
}
