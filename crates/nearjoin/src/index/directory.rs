//! The quantile directory of the indexed nested-loop join.
//!
//! Level by level, one dimension each, the points are sorted and cut into equal parts:
//! with three levels and a fan-out of sixteen, 4096 parts. A block of queries looks only
//! into parts that lie within ε of it on every level.
//!
//! Why no pair is missed: a part records the least and the greatest coordinate of its
//! points, and a match lies within `reach` of its query on every axis.

use rayon::prelude::*;

use super::layout::SLACK;
use super::order::{Keyed, sort_keyed};
use super::{BoxOf, Run, push_run};
use crate::error::Result;
use crate::memory::{Buffer, with_capacity};
use crate::points::Points;
use crate::scalar::Scalar;

/// The shape of a directory, decided by the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The dimension of each level.
    pub(crate) dims: Vec<usize>,
    /// Parts per level.
    pub(crate) fanout: usize,
}

/// A part: its points, and their extent in the dimension of its level.
#[derive(Clone, Debug)]
struct Part<T> {
    run: Run,
    lo: T,
    hi: T,
}

/// The parts of every level; part `p` of one level has the parts `p·fanout..` of the next.
pub(crate) struct Directory<T> {
    shape: Shape,
    levels: Vec<Vec<Part<T>>>,
}

/// Sorts points into the parts of `shape`: rows in index order.
pub(crate) fn sort<T: Scalar>(points: Points<'_, T>, shape: &Shape) -> Result<Buffer<u32>> {
    let mut keyed: Vec<Keyed> = with_capacity(points.len())?;
    let unsorted = (0..points.len()).into_par_iter().map(|id| Keyed { key: 0, id: id as u32 });
    unsorted.with_min_len(4096).collect_into_vec(&mut keyed);
    fractionate(points, shape, 0, &mut keyed)?;
    let mut ids = Buffer::<u32>::zeroed(keyed.len() + SLACK)?;
    ids.par_iter_mut().zip(&keyed).with_min_len(4096).for_each(|(id, k)| *id = k.id);
    Ok(ids)
}

/// Sorts by the dimension of one level, cuts, and goes on in each part.
fn fractionate<T: Scalar>(
    points: Points<'_, T>,
    shape: &Shape,
    level: usize,
    keyed: &mut [Keyed],
) -> Result<()> {
    let Some(&j) = shape.dims.get(level) else {
        return Ok(());
    };
    keyed.par_iter_mut().with_min_len(4096).for_each(|k| {
        k.key = points.row(k.id as usize)[j].order_bits();
    });
    sort_keyed(keyed)?;
    let cuts = cuts(0..keyed.len() as u32, shape.fanout);
    let mut parts = Vec::with_capacity(shape.fanout);
    let mut rest = keyed;
    for cut in cuts {
        let (part, tail) = rest.split_at_mut(cut.len());
        parts.push(part);
        rest = tail;
    }
    parts.into_par_iter().try_for_each(|part| fractionate(points, shape, level + 1, part))
}

/// Cuts a run into `parts` runs whose lengths differ by at most one.
fn cuts(run: Run, parts: usize) -> impl Iterator<Item = Run> {
    let len = u64::from(run.end - run.start);
    let at = move |part: usize| run.start + (len * part as u64 / parts as u64) as u32;
    (0..parts).map(move |part| at(part)..at(part + 1))
}

impl<T: Scalar> Directory<T> {
    /// Records the parts of points that [`sort`] has put in order.
    pub(crate) fn new(shape: Shape, points: Points<'_, T>, ids: &[u32]) -> Result<Self> {
        let mut levels: Vec<Vec<Part<T>>> = Vec::new();
        for &j in &shape.dims {
            let above = levels.last().map_or(1, Vec::len);
            let mut runs: Vec<Run> = with_capacity(above * shape.fanout)?;
            match levels.last() {
                None => runs.extend(cuts(0..ids.len() as u32, shape.fanout)),
                Some(above) => {
                    runs.extend(above.iter().flat_map(|part| cuts(part.run.clone(), shape.fanout)))
                }
            }
            let mut level = with_capacity(runs.len())?;
            let parts = runs.into_par_iter().map(|run| {
                let (mut lo, mut hi) = (T::INFINITY, T::NEG_INFINITY);
                for &id in &ids[run.start as usize..run.end as usize] {
                    let x = points.row(id as usize)[j];
                    lo = if x < lo { x } else { lo };
                    hi = if x > hi { x } else { hi };
                }
                Part { run, lo, hi }
            });
            parts.collect_into_vec(&mut level);
            levels.push(level);
        }
        Ok(Directory { shape, levels })
    }

    /// The runs of the parts within `reach` of the block `query`.
    pub(crate) fn runs(&self, reach: f64, query: &BoxOf<T>, runs: &mut Vec<Run>) {
        self.level(0, 0, reach, query, runs);
    }

    fn level(&self, level: usize, first: usize, reach: f64, query: &BoxOf<T>, runs: &mut Vec<Run>) {
        let j = self.shape.dims[level];
        let (lo, hi) = (query.lo[j].to_f64() - reach, query.hi[j].to_f64() + reach);
        let parts = &self.levels[level];
        for (at, part) in parts.iter().enumerate().skip(first).take(self.shape.fanout) {
            // An empty part has lo = ∞ and hi = −∞, which is never near.
            if part.lo.to_f64() <= hi && part.hi.to_f64() >= lo {
                if level + 1 < self.levels.len() {
                    self.level(level + 1, at * self.shape.fanout, reach, query, runs);
                } else {
                    push_run(runs, part.run.clone());
                }
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.levels.iter().map(|parts| size_of_val(&parts[..])).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_even() {
        let lengths: Vec<u32> = cuts(5..22, 4).map(|r| r.end - r.start).collect();
        assert_eq!(lengths.iter().sum::<u32>(), 17);
        assert!(lengths.iter().all(|&l| l == 4 || l == 5));
    }
}
