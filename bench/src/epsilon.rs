//! The ε-join in the comparison.

mod ours;
pub(crate) mod scaling;

pub(crate) use ours::Ours;

use nearjoin::Stats;

use crate::Result;
use crate::args::Options;
use crate::compare::{Compared, Row};
use crate::once::Once;
use crate::peers::{self, Answer, Peer, Python};
use crate::table::{grouped, seconds, times};
use crate::workload::{Within, Workload};

impl Compared for Ours {
    type Ask = Within;
    /// Our number of pairs.
    type Reference = u64;
    /// A number of pairs.
    type Found = u64;

    const TITLE: &'static str = "Comparison";
    const COLUMNS: &'static [&'static str] = &[
        "ε",
        "pairs",
        "strategy",
        "first call, s",
        "touch, s",
        "(first − touch) ÷ fresh",
        "CSR fresh, s",
        "CSR reused, s",
        "count, s",
        "f32 CSR, s",
        "f64 ÷ f32",
    ];
    const ANSWERS: &'static [(Answer, &'static str)] =
        &[(Answer::Lists, "all neighbours, s"), (Answer::Count, "count, s")];
    /// A peer may differ by this share of the pairs: it rounds distances in another order,
    /// so a pair at ε to the last bit may fall on the other side. Any difference is reported.
    const ROUNDING: f64 = 1e-6;

    fn once(workload: &Workload<Within>) -> Result<(f64, Stats)> {
        match workload.case.count_only() {
            true => ours::count(&workload.data, workload),
            false => {
                ours::csr(&workload.data, workload).map(|(seconds, stats, _)| (seconds, stats))
            }
        }
    }

    fn measure(
        workload: &Workload<Within>,
        first: &Once,
        options: &Options,
    ) -> Result<(Self, u64)> {
        Ok((Ours::of(workload, first.pairs, options)?, first.pairs))
    }

    fn peers(
        workload: &Workload<Within>,
        &pairs: &u64,
        options: &Options,
        python: &Python,
    ) -> Result<Vec<Peer<u64>>> {
        peers::within(workload, pairs, options, python)
    }

    fn cells(row: &Row<Self>) -> Vec<String> {
        let csr = row.ours.csr.as_ref();
        let [first, touch, ratio] = row.first_cells();
        vec![
            format!("{:.4}", row.ask.0),
            grouped(row.ours.pairs),
            row.first.strategy.to_string(),
            first,
            touch,
            ratio,
            seconds(csr.map(|csr| csr.fresh)),
            seconds(csr.map(|csr| csr.reused)),
            seconds(Some(row.ours.count)),
            seconds(csr.map(|csr| csr.f32)),
            times(csr.map(|csr| csr.fresh), csr.map(|csr| csr.f32)),
        ]
    }

    fn seconds(&self, answer: Answer) -> Option<f64> {
        match answer {
            Answer::Lists => self.csr.as_ref().map(|csr| csr.fresh),
            Answer::Count => Some(self.count),
        }
    }

    fn difference(&self, found: u64) -> f64 {
        (found as f64 - self.pairs as f64) / (self.pairs as f64).max(1.0)
    }

    fn remark(&self, found: u64, rounding: bool) -> Option<String> {
        let verdict = match rounding {
            true => "within rounding at ε",
            false => "**WRONG: more than rounding explains**",
        };
        let (pairs, share) = (grouped(found), self.difference(found));
        (found != self.pairs).then(|| format!("{pairs} pairs, {share:+.1e} of ours, {verdict}"))
    }

    fn own_remark(&self) -> Option<String> {
        let found = self.csr.as_ref()?.f32_pairs;
        let (pairs, share) = (grouped(found), self.difference(found));
        (found != self.pairs).then(|| {
            format!("f32: the rounded points have {pairs} pairs, {share:+.1e} of those in f64")
        })
    }

    fn legend(reps: usize, peer_reps: usize) -> String {
        format!(
            "- Pairs are ordered, no point with itself. Points are f64. Times are from coordinates\n  \
             in memory to the answer, any index included; giving an answer's memory back is not.\n\
             - nearjoin: best of {reps} calls in a process that has joined before; first call: of a\n  \
             fresh process, CSR (a count for `clustered`). Touch: of as much fresh memory as its\n  \
             result has, by all threads of another process. The better of two each. Fresh: into memory that the call\n  \
             obtains, where it may find some kept from before; reused: into the arrays of an\n  \
             earlier answer. The ratios take fresh CSR (the count for `clustered`).\n\
             - Peers: best of {peer_reps} runs. Answers are not of one shape: kiddo within and rstar give\n  \
             rows of ids; kiddo query_tree gives ordered pairs; scipy query_pairs gives each pair\n  \
             once, on one core; query_ball_point gives Python lists; scikit-learn a matrix."
        )
    }

    fn agreement(worst: Option<f64>) -> Option<String> {
        let same = worst.is_none_or(|worst| worst == 0.0);
        same.then(|| "Every peer that ran found the same number of pairs.".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::reports;

    #[test]
    fn a_difference_is_never_hidden() {
        for (found, agree, words) in [
            (10_000_000, true, "the same number of pairs"),
            (10_000_001, true, "within rounding"),
            (10_000_100, false, "WRONG"),
        ] {
            let ours = Ours { pairs: 10_000_000, count: 1.0, csr: None };
            reports(ours, Answer::Count, found, agree, words);
        }
    }
}
