//! Products of all points with all: what multiplies them on the CPU, and what they cost.

use super::estimate::{Cost, block};
use super::index_cost;
use crate::options::Strategy;
use crate::summary::{Spacing, Summary};

/// Nanoseconds of one thread: one product in `f32`, and what each dimension adds; rounding a query for it, per
/// dimension.
const PRODUCT: f64 = 0.06;
const PRODUCT_PER_DIM: f64 = 0.01;
const ROUND_PER_DIM: f64 = 5.0;
/// What a dimension adds where pairs of numbers are multiplied, as a part of that: in lanes, and in tiles.
const IN_LANES: f64 = 0.5;
const IN_TILES: f64 = 0.1;
/// Deciding a pair that was left open, and what each dimension adds: of few, each of which is a place in memory of its
/// own, and of as many as there are points. By how many times as much as is lost fewer bits must save.
const OPEN: f64 = 60.0;
const OPEN_PER_DIM: f64 = 1.5;
const ALL_OPEN: f64 = 3.0;
const ALL_OPEN_PER_DIM: f64 = 0.17;
const SURE: f64 = 2.0;
/// The least reach that shortlists are made for, as a part of how far points are from their middle: of what is nearer,
/// the sums of products err by more.
const LEAST_REACH: f64 = 0.05;
/// What everything else takes, for each of the queries that are worked on together.
const BLOCK: f64 = 120.0;

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

    /// Queries whose products are made at once.
    fn grouped(self) -> f64 {
        match self {
            Multiplier::Numbers | Multiplier::Pairs => 8.0,
            Multiplier::Tiles => 16.0,
        }
    }

    /// How far rounding moves points with coordinates of all sizes, as a part of their distance from the middle of all.
    fn moves(self) -> f64 {
        match self {
            Multiplier::Numbers => 2.3e-8,
            Multiplier::Pairs | Multiplier::Tiles => 1.5e-3,
        }
    }

    /// How sums of its products err, as a part of squares of such distances.
    fn errs(self, dim: usize) -> f64 {
        let unit = f64::from(f32::EPSILON);
        (self.padded(dim) + 3) as f64 * if self == Multiplier::Numbers { unit / 2.0 } else { unit }
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
    /// How far neighbours are for which shortlists are made, where that is known.
    pub(crate) reach: Option<f64>,
    /// Pairs that are open for each query.
    open: f64,
}

impl Multiplying {
    /// For points of which nothing is known.
    pub(crate) const PLAIN: Self = Multiplying { by: Multiplier::Numbers, reach: None, open: 0.0 };

    /// What the processor has, if it is expected to take less time than `f32`; for the `k` nearest, or those within ε.
    ///
    /// Fewer bits move points farther, so that more pairs are open: how many, only a sample of the points
    /// can tell.
    pub(super) fn new(has: Multiplier, summary: &Summary, k: Option<usize>) -> Self {
        // Squares of coordinates may be beyond the largest number.
        let known = summary.spacing.filter(|spacing| spacing.size.is_finite());
        let Some(spacing) = known else { return Multiplying::PLAIN };
        let points = summary.right as f64;
        let near = match k {
            Some(k) => spacing.reach(k as f64 / points).min(summary.eps),
            None => summary.eps,
        };
        let by = |by| Multiplying::by(by, summary, &spacing, (near, k.is_some()));
        let (plain, fewer) = (by(Multiplier::Numbers), by(has));
        // What is 0 has to fit the room of the plan, too.
        let fits = has.padded(summary.dim) <= 2 * summary.dim;
        let products = |multiplying: &Multiplying| {
            points * multiplying.per_product(PRODUCT_PER_DIM, summary.dim)
        };
        let saved = products(&plain) - products(&fewer);
        let lost = fewer.deciding(summary) - plain.deciding(summary);
        if fits && SURE * lost < saved { fewer } else { plain }
    }

    /// For points whose neighbours are so far, or whose nearest are, each of which is measured in any case.
    fn by(
        by: Multiplier,
        summary: &Summary,
        spacing: &Spacing,
        (near, are_nearest): (f64, bool),
    ) -> Self {
        let Spacing { size, .. } = *spacing;
        let reach = near.max(LEAST_REACH * size);
        let (moves, errs) = (by.moves() * size, by.errs(summary.dim) * size * size);
        // By so much a squared distance may be beyond what is asked, and the pair still be open; and as far below
        // it none is sure.
        let mixed = 3.0 * moves * (near * near / reach + reach);
        let open = mixed + 2.0 * moves * near + 5.0 * moves * moves + 4.0 * errs;
        let squared = near * near;
        let decided = match are_nearest {
            true => spacing.within(near),
            false if squared > open => spacing.within((squared - open).sqrt()),
            false => 0.0,
        };
        let most = summary.right as f64;
        let open = most * (spacing.within((squared + open).sqrt()) - decided);
        // Also where that is not a number.
        Multiplying { by, reach: Some(reach), open: if open < most { open } else { most } }
    }

    /// What the dimensions of a product take, each so much in `f32`.
    fn per_product(&self, per_dim: f64, dim: usize) -> f64 {
        per_dim * self.by.part() * self.by.padded(dim) as f64
    }

    /// What it takes to decide the pairs of a query that are open.
    fn deciding(&self, summary: &Summary) -> f64 {
        let (all, dim) = (summary.right as f64, summary.dim as f64);
        let of_few = self.open * (OPEN + OPEN_PER_DIM * dim);
        of_few.min(all * (ALL_OPEN + ALL_OPEN_PER_DIM * dim))
    }

    /// The products of a query with all points, each of which takes so long in `f32`, and more for each
    /// dimension; and pairs that are left open.
    pub(super) fn query(&self, summary: &Summary, (each, per_dim): (f64, f64)) -> f64 {
        let (left, grouped) = (summary.left.max(1) as f64, self.by.grouped());
        let padded = (left / grouped).ceil() * grouped / left;
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
    use crate::summary::tests::summary;

    const FEWER: [Multiplier; 2] = [Multiplier::Pairs, Multiplier::Tiles];

    /// Points at least so far from a query beside the middle of all, which grow by a power of it.
    fn spaced(points: usize, dim: usize, nearest: f64, power: f64) -> Summary {
        let ranks = core::array::from_fn(|at| nearest * 2048f64.powf(at as f64 / 6.0 / power));
        let spacing = Some(Spacing { size: 1.0, of: 2048, ranks });
        Summary { spacing, eps: f64::INFINITY, ..summary(points, dim, 1.0) }
    }

    fn chosen(has: Multiplier, summary: &Summary) -> Multiplier {
        Multiplying::new(has, summary, Some(10)).by
    }

    #[test]
    fn fewer_bits_pay_where_hardly_any_pair_is_open() {
        for has in FEWER {
            let pays =
                |points, nearest, power| chosen(has, &spaced(points, 100, nearest, power)) == has;
            assert!(pays(50_000, 1.0, 30.0));
            assert!(pays(50_000, 1.0, 10.0));
            assert!(!pays(50_000, 0.01, 30.0), "near points far from the centre");
            assert!(!pays(50_000, 100.0, 1e6), "all points are about as far");
            // Nearer than rounding can tell, where nothing else is.
            let within = |eps| Summary { eps, ..spaced(50_000, 100, 1.0, 30.0) };
            for (eps, by) in [(1e-6, has), (0.8, has), (1.2, Multiplier::Numbers)] {
                assert_eq!(Multiplying::new(has, &within(eps), None).by, by, "ε {eps}");
            }
            let unknown = Multiplying::new(has, &summary(50_000, 100, 1.0), None);
            assert_eq!(unknown, Multiplying::PLAIN, "nothing is known");
            for size in [f64::INFINITY, f64::NAN] {
                let mut summary = spaced(50_000, 100, size, 30.0);
                summary.spacing.as_mut().unwrap().size = size;
                assert_eq!(Multiplying::new(has, &summary, Some(10)), Multiplying::PLAIN);
            }
        }
        let few = |dim| spaced(50_000, dim, 1.0, 20.0);
        assert_eq!(chosen(Multiplier::Tiles, &few(15)), Multiplier::Numbers, "mostly 0");
        assert_eq!(chosen(Multiplier::Tiles, &few(16)), Multiplier::Tiles);
        assert_eq!(chosen(Multiplier::Numbers, &few(100)), Multiplier::Numbers);
    }

    #[test]
    fn products_that_tell_nothing_cost_the_distances_of_all() {
        let cost = |nearest: f64| {
            let summary = spaced(50_000, 100, nearest, 30.0);
            Multiplying::new(Multiplier::Numbers, &summary, Some(10)).epsilon(&summary).per_query
        };
        assert!(cost(0.1) < 1.1 * cost(1.0));
        assert!(cost(1e-5) > 10.0 * cost(1.0));
        assert!(cost(1e-9) < 50.0 * cost(1.0));
    }

    /// Copies of a point are nearer than any product tells, and the others as far as ever.
    #[test]
    fn copies_leave_few_pairs_open() {
        let summary = spaced(50_000, 100, 1.0, 30.0);
        let mut spacing = summary.spacing.unwrap();
        spacing.ranks[..2].fill(0.0);
        let copies = Summary { spacing: Some(spacing), ..summary.clone() };
        let of = |summary: &Summary| Multiplying::new(Multiplier::Numbers, summary, Some(10));
        assert!(
            of(&copies).epsilon(&copies).per_query < 2.0 * of(&summary).epsilon(&summary).per_query
        );
        assert_eq!(of(&copies).reach, Some(LEAST_REACH));
    }
}
