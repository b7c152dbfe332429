//! What a join kernel is told: the host's side of `Job` in `join.cuh`.

use nearjoin_kernels::{Float, Norm};

use crate::index::grid;
use crate::metric::Metric;
use crate::scalar::Scalar;

/// The most axes of a grid, and levels of a directory, that kernels know.
pub(super) const MAX_AXES: usize = 6;
const MAX_LEVELS: usize = 8;

/// The points' type, as modules are told it.
pub(super) fn float<T: Scalar>() -> Float {
    if size_of::<T>() == 4 { Float::F32 } else { Float::F64 }
}

/// How differences are added up.
pub(super) fn norm(metric: Metric) -> Norm {
    match metric {
        Metric::L2 => Norm::Squares,
        Metric::L1 | Metric::Linf => Norm::Magnitudes,
    }
}

/// What a magnitude counts for beside those before it.
pub(super) fn weight(metric: Metric) -> f64 {
    if metric == Metric::Linf { 0.0 } else { 1.0 }
}

/// How candidates are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Finder {
    #[default]
    Brute = 0,
    Directory = 1,
    Grid = 2,
}

/// Which of them are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pattern {
    #[default]
    Each = 0,
    Linear = 1,
    Unicomp = 2,
    Later = 3,
}

/// Addresses, numbers and shapes, each a word. Addresses may be 0 where `join.cuh` says so.
#[derive(Clone, Debug, Default)]
pub(super) struct Job {
    pub(super) left: Side,
    pub(super) left_rows: u64,
    pub(super) right: Side,
    pub(super) right_boxes: u64,
    pub(super) dim: usize,
    /// Numbers from one point to the next, or 0 where they lie in columns.
    pub(super) stride: usize,
    pub(super) bound: f64,
    pub(super) sure: f64,
    pub(super) maybe: f64,
    pub(super) reach: f64,
    pub(super) limit: f64,
    pub(super) loose: f64,
    pub(super) weight: f64,
    pub(super) finder: Finder,
    pub(super) pattern: Pattern,
    pub(super) exclude_self: bool,
    pub(super) axes: Vec<grid::Axis>,
    pub(super) starts: u64,
    pub(super) cells: u64,
    pub(super) cell_count: u64,
    pub(super) fanout: usize,
    pub(super) part_lo: u64,
    pub(super) part_hi: u64,
    pub(super) level_dims: Vec<usize>,
    pub(super) queries: u64,
    pub(super) query_count: u64,
    pub(super) units: u64,
    pub(super) first_unit: u64,
    pub(super) end_unit: u64,
    pub(super) head: u64,
    pub(super) threads_per_query: u32,
    pub(super) mirror: bool,
    pub(super) tests: u64,
    pub(super) pairs: u64,
    pub(super) taken: u64,
    pub(super) degrees: u64,
    pub(super) offsets: u64,
    pub(super) base: u64,
    pub(super) cursors: u64,
    pub(super) ids: u64,
    pub(super) distances: u64,
    pub(super) list: u64,
    pub(super) list_distances: u64,
    pub(super) capacity: u64,
    pub(super) list_len: u64,
    pub(super) work: u64,
}

/// Points in index order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Side {
    pub(super) points: u64,
    pub(super) ids: u64,
    pub(super) len: usize,
    pub(super) narrow: u64,
}

impl Job {
    /// Looks at candidates by a pattern that meets each unordered pair once, unless it is `Each`.
    pub(super) fn meet(&mut self, pattern: Pattern) {
        self.pattern = pattern;
        // What comes later is not the query itself: nobody need look.
        self.exclude_self &= pattern != Pattern::Later;
    }

    /// As the kernels read it.
    pub(super) fn words(&self) -> Vec<u64> {
        let mut words = vec![
            self.left.points,
            self.left.ids,
            self.left_rows,
            self.left.len as u64,
            self.right.points,
            self.right.ids,
            self.right.len as u64,
            self.left.narrow,
            self.right.narrow,
            self.right_boxes,
            self.dim as u64,
            self.stride as u64,
            self.bound.to_bits(),
            self.sure.to_bits(),
            self.maybe.to_bits(),
            self.reach.to_bits(),
            self.limit.to_bits(),
            self.loose.to_bits(),
            self.weight.to_bits(),
            self.finder as u64,
            self.pattern as u64,
            u64::from(self.exclude_self),
        ];
        words.extend(grid_words(&self.axes));
        words.extend([self.starts, self.cells, self.cell_count]);
        words.extend([self.level_dims.len() as u64, self.fanout as u64]);
        words.extend([self.part_lo, self.part_hi]);
        words.extend((0..MAX_LEVELS).map(|l| self.level_dims.get(l).map_or(0, |&dim| dim as u64)));
        words.extend([
            self.queries,
            self.query_count,
            self.units,
            self.first_unit,
            self.end_unit,
            self.head,
            u64::from(self.threads_per_query),
            u64::from(self.mirror),
            self.tests,
            self.pairs,
            self.taken,
            self.degrees,
            self.offsets,
            self.base,
            self.cursors,
            self.ids,
            self.distances,
            self.list,
            self.list_distances,
            self.capacity,
            self.list_len,
            self.work,
        ]);
        words
    }
}

/// `Grid` of `grid.cuh`.
pub(super) fn grid_words(axes: &[grid::Axis]) -> Vec<u64> {
    let mut words = vec![axes.len() as u64];
    for axis in axes {
        words.extend(axis.to_words());
    }
    words.resize(1 + MAX_AXES * grid::Axis::WORDS, 0);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_without_axes_is_as_long_as_any() {
        assert_eq!(grid_words(&[]).len(), 37);
        assert_eq!(grid_words(&[grid::Axis::new(3, 0.0, 1.0, 7)]).len(), 37);
    }
}
