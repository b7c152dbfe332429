//! The k nearest of all that lie within ε.
//!
//! A row with k neighbours or more holds the k nearest: whatever is nearer than one of its neighbours
//! has a smaller sum, and is in it too, and so is all that ties. They are chosen by their sums before
//! the square root, which the host computes again in the deciding arithmetic: two sums may have one
//! root.

use rayon::prelude::*;

use crate::exec::flat::Flat;
use crate::exec::pool::Pool;
use crate::exec::{Request, Rows};
use crate::metric::Threshold;
use crate::points::Points;
use crate::scalar::Scalar;

/// Rows that a thread takes at a time.
const CHUNK: usize = 1024;

/// Which neighbours are wanted.
pub(super) struct Nearest<'a, T> {
    pub(super) left: Points<'a, T>,
    pub(super) right: Points<'a, T>,
    pub(super) arithmetic: Threshold<T>,
    pub(super) k: usize,
    /// Neighbours of a row that is complete: k, or as many as there are.
    pub(super) enough: usize,
}

/// Of some rows, those that are answered, and the places of those that are not.
pub(super) struct Sorted<T> {
    pub(super) solved: Flat<T>,
    pub(super) failed: Vec<u32>,
}

impl<T: Scalar> Nearest<'_, T> {
    /// Sorts rows of a batch, whose queries are places in it. A batch has numbers in the join, and
    /// rows of the left points. `all`: whether every row is complete, however short. The threads of
    /// a pool may help.
    pub(super) fn of(
        &self,
        block: &Rows<'_, T>,
        (numbers, rows): (&[u32], &[u32]),
        request: Request,
        all: bool,
        pool: Option<&Pool>,
    ) -> Vec<Sorted<T>> {
        let enough = if all { 0 } else { self.enough };
        let chunk = |first: usize| {
            let end = block.queries.len().min(first + CHUNK);
            let mut sorted = Sorted { solved: Flat::empty(request.distances), failed: Vec::new() };
            let mut near: Vec<T::Near> = Vec::new();
            for at in first..end {
                let (place, ids) = (block.queries[at], block.neighbors.row(at));
                if ids.len() < enough {
                    sorted.failed.push(place);
                    continue;
                }
                self.choose(rows[place as usize], ids, request.sorted, &mut near);
                let row = near.iter().map(|&near| T::from_near(near));
                let row = row.map(|(acc, id)| (id, self.arithmetic.distance(acc)));
                sorted.solved.push(numbers[place as usize], row);
            }
            sorted
        };
        let starts = (0..block.queries.len()).step_by(CHUNK);
        match pool {
            Some(pool) => {
                let starts: Vec<usize> = starts.collect();
                pool.install(|| starts.into_par_iter().map(chunk).collect())
            }
            None => starts.map(chunk).collect(),
        }
    }

    /// The k nearest of some points, ascending by sum and row, or by row alone.
    fn choose(&self, row: u32, ids: &[u32], by_id: bool, near: &mut Vec<T::Near>) {
        let point = self.left.row(row as usize);
        near.clear();
        near.extend(ids.iter().map(|&id| {
            let other = self.right.row(id as usize);
            self.arithmetic.accumulate(point.iter().copied(), other.iter().copied()).near(id)
        }));
        if near.len() > self.k {
            near.select_nth_unstable(self.k - 1);
            near.truncate(self.k);
        }
        match by_id {
            true => near.sort_unstable_by_key(|&near| T::from_near(near).1),
            false => near.sort_unstable(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Lists;
    use crate::metric::Metric;
    use crate::scale::Scale;

    /// Two sums with one root are told apart, and ties go to the smaller row.
    #[test]
    fn sums_decide_and_not_their_roots() {
        let up = 1f32.next_up();
        let root = |x: f32| (x * x).sqrt();
        assert_eq!(root(1.0), 1.0);
        // 1 + 2⁻²³ has the root 1: sums of 1 and a small square.
        let small = (up - 1.0).sqrt();
        let right = [1.0, small, 1.0, 0.0, 0.0, 1.0, 3.0, 0.0];
        let right = Points::new(&right, 2).unwrap();
        let left = Points::new(&[0.0f32, 0.0], 2).unwrap();
        let arithmetic = Threshold::none(Metric::L2, Scale::NONE);
        let nearest = Nearest { left, right, arithmetic, k: 2, enough: 2 };
        let offsets = [0, 4, 5];
        let block = Rows {
            worker: 0,
            queries: &[0, 1],
            neighbors: Lists::Flat { offsets: &offsets, values: &[3, 2, 0, 1, 3] },
            distances: None,
            ahead: &[],
            consecutive: true,
        };
        let request = Request { distances: true, ..Request::default() };
        let [sorted] = &nearest.of(&block, (&[7, 8], &[0, 0]), request, false, None)[..] else {
            panic!("one chunk");
        };
        assert_eq!((&sorted.solved.queries[..], &sorted.failed[..]), (&[7][..], &[1][..]));
        assert_eq!(sorted.solved.neighbors, [1, 2]);
        assert_eq!(sorted.solved.distances, [1.0, 1.0]);
        let all = nearest.of(&block, (&[7, 8], &[0, 0]), request, true, None);
        assert_eq!(all[0].solved.offsets, [0, 2, 3]);
    }
}
