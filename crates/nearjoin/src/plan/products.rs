//! Products of all points with all: what multiplies them on the CPU, and what they cost.

use super::estimate::{Cost, block};
use super::index_cost;
use crate::options::Strategy;
use crate::summary::Summary;

/// Nanoseconds of one thread: one product in `f32`, and what each dimension adds; rounding a query for it, per
/// dimension.
const PRODUCT: f64 = 0.06;
const PRODUCT_PER_DIM: f64 = 0.01;
const ROUND_PER_DIM: f64 = 5.0;
/// What a dimension adds where pairs of numbers are multiplied, as a part of that: in lanes, and in tiles.
const IN_LANES: f64 = 0.5;
const IN_TILES: f64 = 0.1;
/// Deciding a pair that was left open, and what each dimension adds; by which power of the distance
/// neighbours are taken to grow; the most that rounding may move a point by beside it, and how many times as
/// much must be saved by it as is lost.
const OPEN: f64 = 60.0;
const OPEN_PER_DIM: f64 = 1.5;
const OPEN_POWER: f64 = 32.0;
const MOST_ROUNDED: f64 = 0.005;
const SURE: f64 = 4.0;
/// What is left of a product where scores tell nothing: the difference of both points, per dimension.
const APART_PER_DIM: f64 = 0.03;
/// What everything else takes, for each of the queries that are worked on together.
const BLOCK: f64 = 120.0;
/// Queries whose products are made at once.
const GROUPED: f64 = 8.0;

/// What multiplies rounded points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Multiplier {
    /// Lanes of `f32`.
    Numbers,
    /// Lanes of pairs of fewer bits.
    Pairs,
    /// Tiles of such pairs.
    Tiles,
}

impl Multiplier {
    /// What a dimension takes of the time of one in `f32`.
    fn part(self) -> f64 {
        match self {
            Multiplier::Numbers => 1.0,
            Multiplier::Pairs => IN_LANES,
            Multiplier::Tiles => IN_TILES,
        }
    }

    /// Dimensions that are multiplied, with those in which all numbers are 0.
    pub(crate) fn padded(self, dim: usize) -> usize {
        dim.next_multiple_of(match self {
            Multiplier::Numbers => 1,
            Multiplier::Pairs => 2,
            Multiplier::Tiles => 32,
        })
    }

    /// How far rounding usually moves a point, as a part of its distance from the middle of all.
    fn moves(self) -> f64 {
        match self {
            Multiplier::Numbers => 2.5e-8,
            Multiplier::Pairs | Multiplier::Tiles => 8e-4,
        }
    }

    /// How sums of its products err, as a part of squares of such distances.
    fn errs(self, dim: usize) -> f64 {
        let unit = f64::from(f32::EPSILON);
        (dim + 3) as f64 * if self == Multiplier::Numbers { unit / 2.0 } else { unit }
    }

    /// The same in words, as `--explain` has it.
    pub(super) fn told(self) -> &'static str {
        match self {
            Multiplier::Numbers => "multiplied in f32",
            Multiplier::Pairs => "multiplied in pairs of bf16",
            Multiplier::Tiles => "multiplied in tiles of bf16",
        }
    }
}

/// What multiplies the points of a join.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Multiplying {
    pub(crate) by: Multiplier,
    /// What rounding moves a point by, beside how far its neighbours are.
    pub(crate) share: f64,
    /// Pairs that are open for each query.
    open: f64,
}

impl Multiplying {
    /// For points of which nothing is known.
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Multiplying { by: Multiplier::Numbers, share: 0.0, open: 0.0 };

    /// What the processor has, if it is expected to take less time than `f32`; for points that have so many
    /// neighbours each.
    ///
    /// Fewer bits move points farther, so that more pairs are open: how many, only a sample of the points
    /// can tell.
    pub(super) fn new(has: Multiplier, summary: &Summary, neighbors: f64) -> Self {
        let plain = Multiplying::by(Multiplier::Numbers, summary, neighbors);
        let fewer = Multiplying::by(has, summary, neighbors);
        // What is 0 has to fit the room of the plan, too.
        let fits = has.padded(summary.dim) <= 2 * summary.dim;
        let is_known = summary.pruning.is_some() && fewer.share < MOST_ROUNDED;
        let (points, dim) = (summary.right as f64, summary.dim);
        let products =
            |multiplying: &Multiplying| points * multiplying.per_product(PRODUCT_PER_DIM, dim);
        let saved = products(&plain) - products(&fewer);
        let lost = fewer.deciding(summary) - plain.deciding(summary);
        if fits && is_known && SURE * lost < saved { fewer } else { plain }
    }

    fn by(by: Multiplier, summary: &Summary, neighbors: f64) -> Self {
        let spread = summary.pruning.map_or(1.0, |pruning| pruning.spread);
        let share = by.moves() * spread;
        // Both points are moved, and both ways are open; sums err by the norms of both.
        let band = 4.0 * share + 4.0 * by.errs(summary.dim) * spread * spread;
        let open = neighbors.max(1.0) * ((1.0 + band).powf(OPEN_POWER) - 1.0);
        // Also where the spread is not a number.
        let most = summary.right as f64;
        Multiplying { by, share, open: if open < most { open } else { most } }
    }

    /// What the dimensions of a product take, each so much in `f32`.
    fn per_product(&self, per_dim: f64, dim: usize) -> f64 {
        per_dim * self.by.part() * self.by.padded(dim) as f64
    }

    /// What it takes to decide the pairs of a query that are open: one by one, or in `f32` the differences of all.
    fn deciding(&self, summary: &Summary) -> f64 {
        let dim = summary.dim as f64;
        let one_by_one = self.open * (OPEN + OPEN_PER_DIM * dim);
        match self.by {
            Multiplier::Numbers => one_by_one.min(summary.right as f64 * APART_PER_DIM * dim),
            _ => one_by_one,
        }
    }

    /// The products of a query with all points, each of which takes so long in `f32`, and more for each
    /// dimension; and pairs that are left open.
    pub(super) fn query(&self, summary: &Summary, (each, per_dim): (f64, f64)) -> f64 {
        let left = summary.left.max(1) as f64;
        let padded = (left / GROUPED).ceil() * GROUPED / left;
        let product = each + self.per_product(per_dim, summary.dim);
        let rounding = ROUND_PER_DIM * summary.dim as f64;
        padded * summary.right as f64 * product + self.deciding(summary) + rounding
    }

    /// An ε-join of all points with all.
    pub(super) fn epsilon(&self, summary: &Summary) -> Cost {
        let query = self.query(summary, (PRODUCT, PRODUCT_PER_DIM));
        let index = index_cost::epsilon(summary, Strategy::Product, 0);
        Cost { tests: summary.right as f64, per_query: query + BLOCK / block(summary), index }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Pruning;
    use crate::summary::tests::{PRUNING, summary};

    const FEWER: [Multiplier; 2] = [Multiplier::Pairs, Multiplier::Tiles];

    fn chosen(
        has: Multiplier,
        points: usize,
        dim: usize,
        neighbors: f64,
        spread: f64,
    ) -> Multiplier {
        let pruning = Some(Pruning { spread, ..PRUNING });
        let summary = Summary { pruning, ..summary(points, dim, 1.0) };
        Multiplying::new(has, &summary, neighbors).by
    }

    #[test]
    fn fewer_bits_pay_where_hardly_any_pair_is_open() {
        for has in FEWER {
            let pays =
                |points, neighbors, spread| chosen(has, points, 100, neighbors, spread) == has;
            assert!(pays(50_000, 1.0, 1.0));
            assert!(pays(50_000, 10.0, 1.0));
            assert!(!pays(50_000, 1.0, 100.0), "near points far from the centre");
            assert!(!pays(50_000, 10_000.0, 1.0), "many neighbours");
            assert!(!pays(500, 10.0, 1.0), "few points");
            assert!(!pays(50_000, 1.0, f64::INFINITY), "equal points");
            assert!(!pays(50_000, 1.0, f64::NAN));
            let unknown = Multiplying::new(has, &summary(50_000, 100, 1.0), 1.0);
            assert_eq!(unknown.by, Multiplier::Numbers, "nothing is known");
        }
        assert_eq!(
            chosen(Multiplier::Tiles, 50_000, 15, 1.0, 1.0),
            Multiplier::Numbers,
            "mostly 0"
        );
        assert_eq!(chosen(Multiplier::Tiles, 50_000, 16, 1.0, 1.0), Multiplier::Tiles);
        assert_eq!(chosen(Multiplier::Numbers, 50_000, 100, 1.0, 1.0), Multiplier::Numbers);
    }

    #[test]
    fn products_that_tell_nothing_cost_a_difference_each() {
        let cost = |spread| {
            let pruning = Some(Pruning { spread, ..PRUNING });
            let summary = Summary { pruning, ..summary(50_000, 100, 1.0) };
            Multiplying::new(Multiplier::Numbers, &summary, 10.0).epsilon(&summary).per_query
        };
        assert!(cost(10.0) < 1.01 * cost(1.0));
        assert!(cost(1000.0) > 2.0 * cost(1.0));
        assert!(cost(1e9) < 10.0 * cost(1.0));
    }
}
