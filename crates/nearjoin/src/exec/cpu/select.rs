//! The k best candidates of each of 16 queries.

use super::kernel::{Hits, Kept, PAD, Ranks};
use crate::scalar::Scalar;

/// Up to this many are kept in order by the lanes; beyond, they are collected.
pub(crate) const SORTED: usize = 64;

/// A position that is far from every other.
pub(crate) const NOBODY: usize = usize::MAX / 2;

/// The k best candidates of 16 queries.
///
/// Few are kept in ascending order by the kernel, which shifts each new one to its place in
/// all lanes at once. Many are appended; when twice as many have come together, the k best of
/// them are selected and the others dropped: a constant amount of work for each, whatever k
/// is.
pub(crate) struct Best<T: Scalar> {
    k: usize,
    /// Whether few are kept in order.
    sorted: bool,
    /// Many: room for so many.
    room: usize,
    queries: usize,
    /// The i-th best of query q at `16 · i + q`.
    acc: Vec<T>,
    ids: Vec<u32>,
    /// Those of query q from `room · q` on, and how many.
    many: Vec<T::Near>,
    len: [usize; PAD],
    /// What is not less is among the k best no more.
    worst: [T::Near; PAD],
    /// The largest row among those in the last place, where it is known.
    last: Option<u32>,
}

impl<T: Scalar> Best<T> {
    /// In order, if they are few.
    pub(crate) fn new(k: usize) -> Self {
        if k > SORTED {
            return Self::collecting(k);
        }
        Self::with_room(k, k, 0)
    }

    /// Collected, whatever k is.
    pub(crate) fn collecting(k: usize) -> Self {
        Self::with_room(k, 0, Self::room(k))
    }

    /// Bytes of the collected best of 16 queries.
    pub(crate) fn collected_bytes(k: usize) -> usize {
        Self::room(k) * PAD * size_of::<T::Near>()
    }

    fn room(k: usize) -> usize {
        k.saturating_add(k.max(16))
    }

    fn with_room(k: usize, few: usize, many: usize) -> Self {
        Best {
            k,
            sorted: many == 0,
            room: many,
            queries: 0,
            acc: vec![T::INFINITY; few * PAD],
            ids: vec![u32::MAX; few * PAD],
            many: vec![T::Near::default(); many * PAD],
            len: [0; PAD],
            worst: [T::INFINITY.near(u32::MAX); PAD],
            last: None,
        }
    }

    /// Another query asks.
    pub(crate) fn turn(&mut self) {
        self.last = None;
    }

    /// Forgets all, for so many queries, none of whose neighbours is farther than `cap`.
    pub(crate) fn clear(&mut self, queries: usize, cap: T) {
        self.queries = queries;
        self.worst = [T::INFINITY.near(u32::MAX); PAD];
        self.last = None;
        self.len = [0; PAD];
        self.ids.fill(u32::MAX);
        // What comes at exactly the cap still goes before the row that is none. A lane
        // without a query keeps nothing.
        for row in self.acc.chunks_exact_mut(PAD) {
            row[..queries].fill(cap);
            row[queries..].fill(T::NEG_INFINITY);
        }
    }

    /// Whether few are kept in order, by a kernel.
    pub(crate) fn is_sorted(&self) -> bool {
        self.sorted
    }

    /// The largest row in the k-th place of any query, or of one alone: a candidate as far as
    /// all of these, with a larger row, is among the best of none.
    pub(crate) fn last_row(&mut self, only: Option<usize>) -> u32 {
        if let Some(last) = self.last {
            return last;
        }
        let queries = only.map_or(0..self.queries, |query| query..query + 1);
        let last = if self.sorted {
            let rows = &self.ids[(self.k - 1) * PAD..][queries];
            rows.iter().copied().fold(0, u32::max)
        } else {
            queries.map(|query| self.cut(query)).fold(0, u32::max)
        };
        self.last = Some(last);
        last
    }

    /// Drops what is not among the k best of a query, where many are kept. Returns the row of
    /// the last of them, or one that no point has.
    fn cut(&mut self, query: usize) -> u32 {
        let many = &mut self.many[query * self.room..][..self.len[query]];
        if many.len() < self.k {
            return u32::MAX;
        }
        let worst = *many.select_nth_unstable(self.k - 1).1;
        self.len[query] = self.k;
        self.worst[query] = worst;
        T::from_near(worst).1
    }

    /// The best, for a kernel.
    pub(crate) fn kept(&mut self) -> Kept<'_, T> {
        self.last = None;
        Kept { k: self.k, acc: &mut self.acc, ids: &mut self.ids }
    }

    /// The largest k-th distance of all queries, where few are kept.
    pub(crate) fn limit(&self) -> T {
        largest(&self.acc[(self.k - 1) * PAD..][..PAD])
    }

    /// Takes a candidate, where many are kept. Returns the new bound, if there is one:
    /// nothing farther can be among the k best.
    #[inline(always)]
    pub(crate) fn offer(&mut self, query: usize, near: T::Near) -> Option<T> {
        if near >= self.worst[query] {
            return None;
        }
        self.last = None;
        let len = self.len[query];
        self.many[query * self.room..][len] = near;
        self.len[query] = len + 1;
        // The first k give a bound already.
        if len + 1 != self.k && len + 1 < self.room {
            return None;
        }
        self.cut(query);
        Some(T::from_near(self.worst[query]).0)
    }

    /// Takes what a leaf had, where many are kept, and tightens the bounds. `ids` are the rows of
    /// its points; each query's `own` is left out.
    pub(crate) fn take(
        &mut self,
        hits: &Hits<T>,
        ids: &[u32],
        own: &[u32; PAD],
        bounds: &mut [T; PAD],
    ) {
        // The last leaf may be short; what stands behind it is no point.
        let valid = ((1u64 << ids.len()) - 1) as u32;
        for hit in 0..hits.count {
            let query = hits.query[hit] as usize;
            let mut lanes = hits.lanes[hit] & valid;
            while lanes != 0 {
                let lane = lanes.trailing_zeros() as usize;
                lanes &= lanes - 1;
                if ids[lane] != own[query]
                    && let Some(bound) = self.offer(query, hits.acc[hit][lane].near(ids[lane]))
                {
                    bounds[query] = bound;
                }
            }
        }
    }

    /// Takes out the best of a query in ascending order: rows and accumulated distances.
    pub(crate) fn finish(&mut self, query: usize, ids: &mut Vec<u32>, acc: &mut Vec<T>) {
        ids.clear();
        acc.clear();
        if self.sorted {
            // Columns of 16 are read down; what is missing stands last.
            ids.extend(self.ids[query..].iter().step_by(PAD));
            acc.extend(self.acc[query..].iter().step_by(PAD));
            while ids.last() == Some(&u32::MAX) {
                ids.pop();
            }
            acc.truncate(ids.len());
            return;
        }
        self.cut(query);
        let best = &mut self.many[query * self.room..][..self.len[query]];
        best.sort_unstable();
        ids.extend(best.iter().map(|&near| T::from_near(near).1));
        acc.extend(best.iter().map(|&near| T::from_near(near).0));
    }
}

impl<T: Scalar> Ranks<T> {
    /// What is farther is not noted: sums that overflow would not leave room for a tag.
    fn largest() -> T {
        T::from_f64(T::MAX.to_f64() / 2.0)
    }

    /// The key without its tag: at most the distance.
    fn floor(key: T) -> T {
        key.without_bits(T::from_id(Self::TAGS as u32 - 1))
    }

    /// Whether a key stands for no candidate.
    fn is_none(key: T) -> bool {
        key > Self::largest()
    }

    /// For the `k` best, 64 at the most.
    pub(crate) fn new(k: usize) -> Self {
        let room = k.next_power_of_two().clamp(8, SORTED);
        Ranks {
            k,
            keys: vec![T::MAX; room * PAD],
            acc: vec![T::MAX; Self::TAGS * PAD],
            ids: vec![u32::MAX; Self::TAGS * PAD],
            len: [0; PAD],
            merged: [0; PAD],
            dropped: [T::MAX; PAD],
            bounds: [T::NEG_INFINITY; PAD],
            caps: [T::NEG_INFINITY; PAD],
            own: NOBODY,
            tests: 0,
        }
    }

    /// Forgets all, for so many queries, none of whose neighbours is farther than `cap`.
    pub(crate) fn clear(&mut self, queries: usize, cap: T, own: usize) {
        self.keys.fill(T::MAX);
        self.len = [0; PAD];
        self.merged = [0; PAD];
        self.dropped = [T::MAX; PAD];
        let largest = Self::largest();
        let cap = if cap < largest { cap } else { largest };
        self.caps = core::array::from_fn(|q| if q < queries { cap } else { T::NEG_INFINITY });
        self.bounds = self.caps;
        self.own = own;
    }

    /// What no candidate beyond can be among the best of any query, and from where on one may
    /// be as near as a query's last.
    pub(crate) fn limits(&self) -> (T, T) {
        let limit = largest(&self.bounds);
        (limit, Self::floor(limit))
    }

    /// Notes the best of a query anew, and nothing else. None may wait.
    pub(crate) fn compact(&mut self, query: usize) {
        let room = self.keys.len() / PAD;
        let mut noted = [(T::ZERO, 0); SORTED];
        for (rank, noted) in noted.iter_mut().enumerate().take(room) {
            let at = self.note(rank, query);
            *noted = (self.acc[at], self.ids[at]);
        }
        for (rank, &(acc, id)) in noted.iter().enumerate().take(room) {
            let at = query * Self::TAGS + rank;
            (self.acc[at], self.ids[at]) = (acc, id);
            let key = &mut self.keys[rank * PAD + query];
            if !Self::is_none(*key) {
                *key = Self::floor(*key).with_bits(T::from_id(rank as u32));
            }
        }
        self.len[query] = room as u32;
        self.merged[query] = room as u32;
    }

    /// Where the candidate is noted that is so far up among the best of a query.
    fn note(&self, rank: usize, query: usize) -> usize {
        let tag = self.keys[rank * PAD + query].as_id() as usize % Self::TAGS;
        query * Self::TAGS + tag
    }

    /// Whether the keys leave open which are the k best of some query: the next one's differs
    /// from the last one's in its tag alone, or candidates may be too far to be noted.
    pub(crate) fn is_open(&self, queries: usize, cap: T) -> bool {
        let next = self.keys.get(self.k * PAD..).filter(|rest| !rest.is_empty());
        let next = next.unwrap_or(&self.dropped);
        let last = &self.keys[(self.k - 1) * PAD..];
        (0..queries).any(|q| match Self::is_none(last[q]) {
            true => cap > Self::largest(),
            false => Self::floor(last[q]) == Self::floor(next[q]),
        })
    }

    /// Takes out the best of a query in ascending order: rows and accumulated distances.
    pub(crate) fn finish(&self, query: usize, ids: &mut Vec<u32>, acc: &mut Vec<T>) {
        ids.resize(self.k, 0);
        acc.resize(self.k, T::ZERO);
        let mut len = 0;
        let mut in_order = true;
        let mut before = T::ZERO.near(0);
        for (rank, (id, acc)) in ids.iter_mut().zip(acc.iter_mut()).enumerate() {
            if Self::is_none(self.keys[rank * PAD + query]) {
                break;
            }
            let at = self.note(rank, query);
            (*acc, *id) = (self.acc[at], self.ids[at]);
            let near = acc.near(*id);
            in_order &= before <= near;
            before = near;
            len = rank + 1;
        }
        ids.truncate(len);
        acc.truncate(len);
        if !in_order {
            // Keys that differ in their tags alone.
            let mut all: Vec<_> = acc.iter().zip(&*ids).map(|(acc, &id)| acc.near(id)).collect();
            all.sort_unstable();
            for ((acc, id), near) in acc.iter_mut().zip(ids).zip(all) {
                (*acc, *id) = T::from_near(near);
            }
        }
    }
}

/// The largest of some bounds. NaN, which stands where there is no query, is larger than none.
pub(crate) fn largest<T: Scalar>(bounds: &[T]) -> T {
    bounds.iter().copied().fold(T::NEG_INFINITY, larger)
}

fn larger<T: Scalar>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::cpu::kernel::{NearestKernels, SimdLevel};
    use crate::index::{Leaves, order};
    use crate::metric::Metric;
    use crate::points::Points;

    #[test]
    fn the_best_of_many_with_ties() {
        for k in [65, 100, 500] {
            let all: Vec<(f32, u32)> = (0..3000u32)
                .map(|i| ((i * 37 % 101) as f32, i.wrapping_mul(7919) % 3001))
                .collect();
            let mut best = Best::new(k);
            for round in 0..2 {
                best.clear(2, f32::INFINITY);
                let mut bound = f32::INFINITY;
                for &near in &all {
                    if near.0 <= bound {
                        bound = best.offer(1, near.0.near(near.1)).unwrap_or(bound);
                    }
                }
                let mut expected = all.clone();
                expected.sort_unstable_by_key(|near| near.0.near(near.1));
                expected.truncate(k);
                let (mut ids, mut acc) = (Vec::new(), Vec::new());
                best.finish(1, &mut ids, &mut acc);
                let found: Vec<_> = acc.iter().copied().zip(ids.iter().copied()).collect();
                assert_eq!(found, expected, "{k} {round}");
                best.finish(0, &mut ids, &mut acc);
                assert!(ids.is_empty() && acc.is_empty());
            }
        }
    }

    /// Candidates that come nearer and nearer use up the tags many times.
    fn ever_nearer<T: Scalar>(level: SimdLevel, k: usize) {
        let points: Vec<T> = (0..4096).map(|i| T::from_f64(f64::from(5000 - i))).collect();
        let points = Points::new(&points, 1).unwrap();
        let leaves = Leaves::new(points, order::identity(points.len()).unwrap()).unwrap();
        let kernels = NearestKernels::<T>::new(level, Metric::L2, 1);
        let queries: Vec<T> = (0..16).map(|q| T::from_f64(f64::from(q) * 0.25)).collect();
        let mut ranks = Ranks::new(k);
        ranks.clear(16, T::INFINITY, NOBODY);
        for node in 0..16 {
            let job = leaves.node_job(&queries, node);
            for query in 0..16 {
                let mut left = job.leaves();
                while left != 0 {
                    left = kernels.rank(&job, query, left, &mut ranks);
                    kernels.merge(&mut ranks, query - query % kernels.lanes());
                    if !ranks.has_tags(query) {
                        ranks.compact(query);
                    }
                }
            }
        }
        assert!(!ranks.is_open(16, T::INFINITY));
        let (mut ids, mut acc) = (Vec::new(), Vec::new());
        for (query, x) in queries.iter().enumerate() {
            ranks.finish(query, &mut ids, &mut acc);
            assert!(ids.iter().copied().eq((4096 - k as u32..4096).rev()), "{level} {k} {query}");
            let nearest = points.row(4095)[0].sub(*x);
            assert!(acc[0] == nearest.mul(nearest), "{level} {k} {query}");
        }
    }

    #[test]
    fn tags_are_used_again() {
        for &level in SimdLevel::ALL.iter().filter(|level| level.is_available()) {
            for k in [1, 8, 9, 32, 33, 64] {
                ever_nearer::<f32>(level, k);
                ever_nearer::<f64>(level, k);
            }
        }
    }
}
