//! The KNN-join in the comparison.

pub(crate) mod adversarial;
mod ours;

use nearjoin::Stats;
use nearjoin::sink::Neighbors;

use crate::Result;
use crate::args::Options;
use crate::compare::{Compared, Row};
use crate::once::Once;
use crate::peers::{self, Answer, Peer, Python};
use crate::table::{seconds, times};
use crate::workload::{Nearest, Workload};

/// What nearjoin took for a case, in seconds, the best of several calls each.
pub(crate) struct Ours {
    tests_per_point: f64,
    f64: f64,
    f32: f64,
}

impl Compared for Ours {
    type Ask = Nearest;
    /// Our answer.
    type Reference = Neighbors<f64>;
    /// The largest share by which a distance differs from ours.
    type Found = f64;

    const TITLE: &'static str = "Comparison of KNN-joins";
    const COLUMNS: &'static [&'static str] = &[
        "k",
        "strategy",
        "tests per point",
        "first call, s",
        "touch, s",
        "(first − touch) ÷ f64",
        "f64, s",
        "f32, s",
        "f64 ÷ f32",
    ];
    const ANSWERS: &'static [(Answer, &'static str)] = &[(Answer::Lists, "ids and distances, s")];
    /// A distance may differ by this share: engines round in another order, and scikit-learn's
    /// brute force subtracts products.
    const ROUNDING: f64 = 1e-12;

    fn once(workload: &Workload<Nearest>) -> Result<(f64, Stats)> {
        let (seconds, stats, _) = ours::call(&workload.data, workload.dimension(), workload.k())?;
        Ok((seconds, stats))
    }

    fn measure(
        workload: &Workload<Nearest>,
        _: &Once,
        options: &Options,
    ) -> Result<(Self, Neighbors<f64>)> {
        let (dimension, k) = (workload.dimension(), workload.k());
        let f32 = ours::best(&workload.to_f32(), dimension, k, options.reps)?.seconds;
        let best = ours::best(&workload.data, dimension, k, options.reps)?;
        let tests_per_point = best.tests_per_point();
        Ok((Ours { tests_per_point, f64: best.seconds, f32 }, best.neighbors))
    }

    fn peers(
        workload: &Workload<Nearest>,
        ours: &Neighbors<f64>,
        options: &Options,
        python: &Python,
    ) -> Result<Vec<Peer<f64>>> {
        peers::nearest(workload, ours.distances(), options, python)
    }

    fn cells(row: &Row<Self>) -> Vec<String> {
        let [first, touch, ratio] = row.first_cells();
        vec![
            row.ask.0.to_string(),
            row.first.strategy.to_string(),
            format!("{:.1}", row.ours.tests_per_point),
            first,
            touch,
            ratio,
            seconds(Some(row.ours.f64)),
            seconds(Some(row.ours.f32)),
            times(Some(row.ours.f64), Some(row.ours.f32)),
        ]
    }

    fn seconds(&self, answer: Answer) -> Option<f64> {
        (answer == Answer::Lists).then_some(self.f64)
    }

    fn difference(&self, found: f64) -> f64 {
        found
    }

    fn remark(&self, found: f64, rounding: bool) -> Option<String> {
        (!rounding).then(|| format!("**WRONG: a distance differs by {found:.1e} of itself**"))
    }

    fn legend(reps: usize, peer_reps: usize) -> String {
        format!(
            "- Points are f64 unless a column says otherwise. Times are from coordinates in memory\n  \
             to ids and distances, any index included; giving an answer's memory back is not.\n\
             - nearjoin: no point is its own neighbour. Best of {reps} calls into memory that they\n  \
             obtain, where they may find some kept from before, after one that warms up; of fewer\n  \
             where they take over a minute. First call: of a fresh process. Touch: of as much fresh\n  \
             memory as its result has, by all threads of another process. The better of two each.\n  \
             Tests are distances computed.\n\
             - Peers: best of {peer_reps} runs. They cannot leave the point itself out, so they are asked for\n  \
             k + 1 and keep it. In tree order: queries in the order of the tree's leaves, rows of\n  \
             the answer too, as for kiddo nearest_n; otherwise in the order of the input.\n\
             - scipy in tree order has `balanced_tree=False, compact_nodes=False`, which is built\n  \
             sooner and asked no slower; pykdtree has no order of its own to give, and takes that\n  \
             of such a tree, whose making is within its time."
        )
    }

    fn agreement(worst: Option<f64>) -> Option<String> {
        let worst = worst.filter(|&worst| worst <= Self::ROUNDING)?;
        Some(format!(
            "Every peer that ran found the same distances: the largest difference is {worst:.1e} of\n  \
             the distance."
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::reports;

    #[test]
    fn a_difference_is_never_hidden() {
        for (found, agree, words) in [
            (1e-15, true, "the same distances"),
            (1e-9, false, "WRONG"),
            (f64::INFINITY, false, "WRONG"),
            (f64::NAN, false, "WRONG"),
        ] {
            let ours = Ours { tests_per_point: 9.0, f64: 1.0, f32: 1.0 };
            reports(ours, Answer::Lists, found, agree, words);
        }
    }
}
