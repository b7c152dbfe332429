//! The units of a shared join, in the order of the queue: those with most work first.

use core::ops::Range;

use crate::exec::cpu::units::OnHost;
use crate::index::Run;
use crate::plan::batches;
use crate::plan::hybrid::{Batches, SAMPLED_UNITS, unit};

/// Units by their ranks.
pub(super) struct Ranked {
    /// Positions in the CPU's order of each.
    positions: Vec<Run>,
    /// The work of all before each, and of all; queries likewise.
    work: Vec<f64>,
    queries: Vec<f64>,
    /// The same for pairs: inferred from some of them.
    pairs: Vec<f64>,
}

impl Ranked {
    /// Cuts the queries of a join into units, and sorts them by what they are expected to cost.
    pub(super) fn new<T>(cpu: &dyn OnHost<T>) -> Self {
        let all = cpu.positions();
        let size = unit(all.len());
        let loads = cpu.loads(size, all.len().div_ceil(size as usize).div_ceil(SAMPLED_UNITS));
        let mut order: Vec<usize> = (0..loads.len()).collect();
        order.sort_by(|&a, &b| loads[b].work.total_cmp(&loads[a].work));
        let positions = order.iter().map(|&unit| {
            let start = all.start + unit as u32 * size;
            start..start.saturating_add(size).min(all.end)
        });
        let positions: Vec<Run> = positions.collect();
        let sampled = order.iter().enumerate();
        let sampled = sampled.filter_map(|(rank, &unit)| Some((rank, loads[unit].pairs? as u64)));
        let sampled: Vec<(usize, u64)> = sampled.collect();
        Ranked {
            // A unit without candidates costs something too.
            work: sums(order.iter().map(|&unit| loads[unit].work.max(1.0))),
            queries: sums(positions.iter().map(|positions| positions.len() as f64)),
            pairs: sums(batches::inferred(&sampled, order.len()).map(|pairs| pairs as f64)),
            positions,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    /// The positions of a unit.
    pub(super) fn positions(&self, rank: usize) -> Run {
        self.positions[rank].clone()
    }

    /// Expected work of all units.
    pub(super) fn work(&self) -> f64 {
        self.work[self.len()]
    }

    /// How many units from the heavy end have a share of all queries.
    pub(super) fn share_of_queries(&self, share: f64) -> usize {
        nearest(&self.queries, self.queries[self.len()] * share)
    }

    /// ... of all candidates.
    pub(super) fn share_of_work(&self, share: f64) -> usize {
        nearest(&self.work, self.work() * share)
    }

    /// A batch for one of `lanes` streams, of those units that are left at the heavy end: a part of
    /// their work, so that batches shrink towards the end, and no more than so many pairs.
    pub(super) fn on_demand(
        &self,
        left: Range<usize>,
        batches: Batches,
        lanes: usize,
        most_pairs: f64,
    ) -> usize {
        let work = self.work[left.end] - self.work[left.start];
        let work = work / (batches.of_rest * lanes as f64);
        self.batch(left, work.max(self.work() * batches.least), most_pairs)
    }

    /// A batch of a fixed share, which has one for each stream at least.
    pub(super) fn planned(
        &self,
        left: Range<usize>,
        share: usize,
        lanes: usize,
        most_pairs: f64,
    ) -> usize {
        self.batch(left, self.work[share] / lanes as f64, most_pairs)
    }

    fn batch(&self, left: Range<usize>, work: f64, most_pairs: f64) -> usize {
        let full = |sums: &[f64], most: f64| {
            let begin = sums[left.start];
            sums[left.start + 1..=left.end].partition_point(|end| end - begin <= most)
        };
        full(&self.work, work).min(full(&self.pairs, most_pairs)).max(1)
    }
}

/// The sums of all numbers before each, and of all.
fn sums(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sums = vec![0.0];
    for number in numbers {
        sums.push(sums[sums.len() - 1] + number);
    }
    sums
}

/// Where a running sum comes nearest to a value.
fn nearest(sums: &[f64], value: f64) -> usize {
    let behind = sums.partition_point(|&sum| sum < value).min(sums.len() - 1);
    let before = behind.saturating_sub(1);
    if value - sums[before] < sums[behind] - value { before } else { behind }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(work: &[f64], pairs: &[f64]) -> Ranked {
        Ranked {
            positions: (0..work.len() as u32).map(|unit| unit * 16..unit * 16 + 16).collect(),
            work: sums(work.iter().copied()),
            queries: sums(work.iter().map(|_| 16.0)),
            pairs: sums(pairs.iter().copied()),
        }
    }

    #[test]
    fn shares_are_of_queries_or_of_candidates() {
        let units = ranked(&[60.0, 20.0, 10.0, 10.0], &[1.0; 4]);
        assert_eq!(units.share_of_queries(0.5), 2);
        assert_eq!(units.share_of_work(0.5), 1);
        assert_eq!(units.share_of_work(0.88), 3);
        assert_eq!((units.share_of_work(0.0), units.share_of_work(1.0)), (0, 4));
    }

    #[test]
    fn batches_shrink_and_hold_no_more_pairs_than_they_may() {
        let units = ranked(&[1.0; 100], &[10.0; 100]);
        let batches = Batches { of_rest: 2.0, least: 0.01 };
        let first = units.on_demand(0..100, batches, 1, f64::INFINITY);
        let later = units.on_demand(80..100, batches, 1, f64::INFINITY);
        assert!(first > later && later >= 1, "{first}, {later}");
        assert_eq!(units.on_demand(0..100, batches, 1, 35.0), 3);
        assert_eq!(units.on_demand(99..100, batches, 3, 0.0), 1);
        assert_eq!(units.planned(0..60, 60, 3, f64::INFINITY), 20);
    }
}
