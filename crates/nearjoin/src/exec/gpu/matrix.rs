//! The matrix of all pairs, in the units that blocks of matrix units take: the host's side of `Matrix` in
//! `product.cuh`.

use nearjoin_kernels::Tile;

/// Tiles of columns that a block takes one after the other, at the most.
const ALONG: u64 = 16;

/// The matrix of all pairs in units: 128 rows by some tiles of columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    rows: u64,
    runs: u64,
    /// Tiles of a unit.
    pub(super) along: u64,
    /// Whether only those above the diagonal count.
    pub(super) triangle: bool,
}

impl Units {
    /// Units of as many tiles as have room for all of their pairs in a list.
    pub(super) fn new(queries: u64, candidates: u64, triangle: bool, capacity: u64) -> Self {
        let side = Tile::SIDE as u64;
        let along = (capacity / (side * side)).clamp(1, ALONG);
        let runs = candidates.div_ceil(side).div_ceil(along);
        Units { rows: queries.div_ceil(side), runs, along, triangle }
    }

    /// Units in all. Above the diagonal, a run of columns has as many rows as end before it does.
    pub(super) fn count(&self) -> u64 {
        let Units { rows, runs, along, triangle } = *self;
        match triangle {
            false => rows * runs,
            true => along * runs * (runs - 1) / 2 + rows.min(runs * along),
        }
    }

    /// Those above the diagonal that need none of the points behind the first `points`: those of whole runs of
    /// columns among them.
    pub(super) fn among(&self, points: u64) -> u64 {
        let runs = points / (Tile::SIDE as u64 * self.along);
        if runs < self.runs { self.along * runs * (runs + 1) / 2 } else { self.count() }
    }
}

/// Points of one side, and what their sums begin with, less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub(super) points: u64,
    pub(super) less: u64,
}

/// What every product is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix {
    pub(super) left: Operand,
    /// Positions of queries, or 0 for all.
    pub(super) queries: u64,
    pub(super) query_count: u64,
    pub(super) right: Operand,
    pub(super) right_len: u64,
    pub(super) depth: usize,
    pub(super) units: Units,
    /// Where pairs that were looked at are counted.
    pub(super) tests: u64,
}

impl Matrix {
    /// The words of `Matrix` in `product.cuh`, for units from a number on.
    pub(super) fn words(&self, first_unit: u64) -> Vec<u64> {
        let Matrix { left, right, units, .. } = *self;
        let mut words = vec![left.points, left.less, self.queries, self.query_count];
        words.extend([right.points, right.less, self.right_len, self.depth as u64]);
        words.extend([u64::from(units.triangle), units.along, first_unit, self.tests]);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_all_tiles_above_the_diagonal() {
        for (points, capacity) in
            [(1, 0), (129, 1 << 20), (5000, 0), (5000, 1 << 17), (9999, 90_000)]
        {
            let units = Units::new(points, points, true, capacity);
            let of_run = |run: u64| units.rows.min((run + 1) * units.along);
            assert_eq!(units.count(), (0..units.runs).map(of_run).sum::<u64>(), "{points}");
            assert_eq!(units.among(0), 0);
            assert_eq!(units.among(points + 2048), units.count());
            let run = Tile::SIDE as u64 * units.along;
            for runs in 1..units.runs {
                assert_eq!(units.among(runs * run), (0..runs).map(of_run).sum::<u64>());
                assert_eq!(units.among(runs * run - 1), (0..runs - 1).map(of_run).sum::<u64>());
            }
            let whole = Units::new(points, points, false, capacity);
            assert_eq!(whole.count(), units.rows * units.runs);
        }
    }
}
