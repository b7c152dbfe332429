//! How the CPU goes about a join: narrow columns, boxes, units of work.

use super::{Alternative, Asked, Multiplying, Narrow};
use crate::options::{DuplicateRemoval, Strategy};
use crate::question::Question;
use crate::summary::Summary;

/// Neighbours a point from which on a grid profits from boxes.
const CROWDED: f64 = 64.0;
/// Points from which on brute force and the directory do.
const ENOUGH: usize = 1024;
/// Queries of a unit of the KNN-join.
const KNN_UNIT: usize = 256;
/// Pairs of a piece of queries whose rows are kept until it is done, by products: no more than those of a
/// block beyond that.
pub(crate) const PIECE_PAIRS: u64 = 1 << 22;
/// Those of all threads take one in so many of the bytes that the limit allows, each in both of its rows.
const OF_LIMIT: u64 = 4;
const PAIR_BYTES: u64 = 8;
/// Distance tests for each pair of the answer from which on a pair of one set is better tested once
/// and written to the rows of both its points: as many tests as that takes.
const LISTED: f64 = 64.0;
/// What it takes to keep a row until its place is known, and each of its neighbours: written, read and
/// in fresh memory. In nanoseconds, as the cost of finding them again.
const KEEP_ROW: f64 = 5.0;
const KEEP_PAIR: f64 = 0.95;
/// Units for every thread, if there are few queries.
const UNITS: usize = 4;

/// What the CPU does, beside its strategy.
#[derive(Clone, Debug)]
pub(crate) struct OnCpu {
    /// Columns in `f32`, where the lanes can filter by them.
    pub(crate) narrow: Option<Narrow>,
    /// Whether every 16 points have a box.
    pub(crate) boxes: bool,
    /// Whether rows of one set are made of a list of its pairs, each of which is met once.
    pub(crate) listed: bool,
    /// Whether rows are kept as they are found, if there is room, and not counted first.
    pub(crate) keeps: bool,
    /// Queries of a unit of work, at the most.
    pub(crate) unit: usize,
    /// What multiplies, by products.
    pub(crate) multiplying: Multiplying,
}

impl OnCpu {
    pub(super) fn new(
        asked: &Asked<'_>,
        summary: &Summary,
        chosen: &Alternative,
        (neighbors, multiplying): (f64, Multiplying),
        threads: usize,
    ) -> Self {
        let question = asked.question;
        let narrow = match question {
            // UNICOMP asks for the exact cell of a point, which narrow columns cannot tell.
            Question::Within(within) if within.removal != DuplicateRemoval::Unicomp => {
                Narrow::new(summary, neighbors)
            }
            _ => None,
        };
        let boxes = worth_boxing(chosen.strategy, neighbors, summary.right);
        let unit = match question {
            Question::Within(_) if chosen.strategy == Strategy::Product => {
                product_unit(summary.left, neighbors, threads, asked.options.memory_limit)
            }
            Question::Within(_) => unit(summary.left),
            Question::Nearest(_) => knn_unit(summary.left, threads),
        };
        let listed = chosen.cost.tests >= LISTED * neighbors;
        let keeps = chosen.cost.per_query >= KEEP_ROW + KEEP_PAIR * neighbors;
        OnCpu { narrow, boxes, listed, keeps, unit, multiplying }
    }
}

/// Whether boxes pay. The recursive join and the trees live by them. Elsewhere they take whole
/// blocks where neighbourhoods are large; and brute force and the directory have nothing else to
/// skip points by, if there are enough of them.
pub(super) fn worth_boxing(strategy: Strategy, neighbors: f64, points: usize) -> bool {
    match strategy {
        Strategy::Ego | Strategy::Tree => true,
        Strategy::Grid => neighbors > CROWDED,
        Strategy::Product => false,
        _ => points >= ENOUGH,
    }
}

/// Queries of a unit: enough units to balance the threads, and a whole block of boxes in each.
/// It does not depend on the number of threads, since blocks end where units do, and with them
/// the order within a row.
pub(crate) fn unit(queries: usize) -> usize {
    match queries {
        0x10_0000.. => 4096,
        0x4000.. => 256,
        _ => 16,
    }
}

/// The same for the nearest, whose rows have one order whatever the units.
pub(crate) fn knn_unit(queries: usize, threads: usize) -> usize {
    KNN_UNIT.min(queries.div_ceil(UNITS * threads).next_multiple_of(16).max(16))
}

/// The same for products within ε, which keep the rows of a whole unit: fewer where those are long, or memory is
/// short.
fn product_unit(queries: usize, neighbors: f64, threads: usize, limit: Option<u64>) -> usize {
    let room = |limit: u64| limit / (OF_LIMIT * PAIR_BYTES * threads as u64);
    let pairs = limit.map_or(PIECE_PAIRS, |limit| room(limit).min(PIECE_PAIRS));
    let most = (pairs as f64 / neighbors.max(1.0)) as usize;
    knn_unit(queries, threads).min(most.next_multiple_of(16)).max(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_balance_the_threads_and_hold_whole_blocks() {
        assert_eq!([0, 1 << 13, 1 << 14, 1 << 20].map(unit), [16, 16, 256, 4096]);
        assert_eq!(knn_unit(2_000_000, 16), 256);
        assert_eq!(knn_unit(1000, 16), 16);
        assert_eq!(knn_unit(0, 1), 16);
        assert_eq!(product_unit(2_000_000, 10.0, 16, None), 256);
        assert_eq!(product_unit(2_000_000, 1e6, 16, None), 16);
        let limited = |limit: u64| product_unit(2_000_000, 10_000.0, 2, Some(limit));
        assert_eq!([0, 100 << 20, 1 << 30].map(limited), [16, 176, 256]);
    }

    #[test]
    fn boxes_pay_where_blocks_are_taken_whole() {
        assert!(worth_boxing(Strategy::Ego, 0.0, 1));
        assert!(!worth_boxing(Strategy::Grid, 10.0, 1 << 20));
        assert!(worth_boxing(Strategy::Grid, 100.0, 1 << 20));
        assert!(worth_boxing(Strategy::Brute, 1.0, 2000));
        assert!(!worth_boxing(Strategy::Directory, 1.0, 1000));
    }
}
