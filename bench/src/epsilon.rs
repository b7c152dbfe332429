//! The comparison of ε-joins and its tables.

mod ours;
pub(crate) mod scaling;

use std::fmt;

use crate::Result;
use crate::args::Options;
use crate::once::Once;
use crate::peers::{self, Answer, Outcome, Peer, Python};
use crate::report::{Beside, peers_table};
use crate::table::{Table, grouped, seconds, times};
use crate::workload::{Ask, Case, Within};
use ours::Ours;

/// One CSR call on the case of this name, or one count where the case allows no more.
pub(crate) fn once(name: &str, points: Option<usize>) -> Result<Once> {
    let case = Case::<Within>::all().find(|case| case.name == name).ok_or("no such case")?;
    Once::here(&case.workload(points), |workload| match case.count_only() {
        true => ours::count(&workload.data, workload),
        false => ours::csr(&workload.data, workload).map(|(seconds, stats, _)| (seconds, stats)),
    })
}

/// A peer may differ by this share of the pairs: it rounds distances in another order,
/// so a pair at ε to the last bit may fall on the other side. Any difference is reported.
const ROUNDING: f64 = 1e-6;

/// One case: our times and the peers'.
struct Row {
    name: &'static str,
    points: usize,
    eps: f64,
    ours: Ours,
    peers: Vec<Peer<u64>>,
}

/// Every engine on every chosen case.
pub(crate) struct Comparison {
    reps: usize,
    peer_reps: usize,
    rows: Vec<Row>,
}

impl Comparison {
    /// Runs it all.
    pub(crate) fn run(options: &Options, python: &Python) -> Result<Self> {
        let mut rows = Vec::new();
        for case in options.chosen(Within::CASES) {
            let workload = case.workload(options.points);
            eprintln!("{}: nearjoin", case.name);
            let ours = Ours::measure(&workload, options)?;
            let peers = peers::within(&workload, ours.pairs, options, python)?;
            let (points, eps) = (workload.points, workload.eps());
            rows.push(Row { name: case.name, points, eps, ours, peers });
        }
        Ok(Comparison { reps: options.reps, peer_reps: options.peer_reps, rows })
    }

    /// Whether every peer found as many pairs as we did, but for rounding.
    pub(crate) fn agree(&self) -> bool {
        self.rows.iter().all(|row| row.worst() <= ROUNDING)
    }

    fn ours_table(&self) -> Table {
        let mut table = Table::new(&[
            "nearjoin",
            "points",
            "ε",
            "pairs",
            "strategy",
            "first call, s",
            "CSR fresh, s",
            "CSR reused, s",
            "count, s",
            "f32 CSR, s",
            "f64 ÷ f32",
        ]);
        for row in &self.rows {
            let csr = row.ours.csr.as_ref();
            table.row(vec![
                row.name.into(),
                grouped(row.points as u64),
                format!("{:.4}", row.eps),
                grouped(row.ours.pairs),
                row.ours.strategy.to_string(),
                seconds(Some(row.ours.first)),
                seconds(csr.map(|csr| csr.fresh)),
                seconds(csr.map(|csr| csr.reused)),
                seconds(Some(row.ours.count)),
                seconds(csr.map(|csr| csr.f32)),
                times(csr.map(|csr| csr.fresh), csr.map(|csr| csr.f32)),
            ]);
        }
        table
    }

    /// The peers that were asked for one kind of answer, beside our own time for it.
    fn peers_table(&self, answer: Answer) -> Option<Table> {
        let title = match answer {
            Answer::Lists => "all neighbours, s",
            Answer::Count => "count, s",
        };
        let rows = self.rows.iter().filter_map(|row| {
            let (ours, first) = row.our_times(answer);
            let peers = row.peers.iter().filter(|peer| peer.answer == answer);
            Some(Beside { name: row.name, ours: ours?, first, peers: peers.collect() })
        });
        peers_table(title, &rows.collect::<Vec<_>>())
    }
}

impl Row {
    /// Our best time for an answer, and that of the first call if it gave this answer.
    fn our_times(&self, answer: Answer) -> (Option<f64>, Option<f64>) {
        match (answer, &self.ours.csr) {
            (Answer::Lists, csr) => (csr.as_ref().map(|csr| csr.fresh), Some(self.ours.first)),
            (Answer::Count, Some(_)) => (Some(self.ours.count), None),
            (Answer::Count, None) => (Some(self.ours.count), Some(self.ours.first)),
        }
    }

    /// The share of our pairs by which another number differs.
    fn difference(&self, pairs: u64) -> f64 {
        (pairs as f64 - self.ours.pairs as f64) / (self.ours.pairs as f64).max(1.0)
    }

    /// The largest difference of a peer that ran.
    fn worst(&self) -> f64 {
        let ran = self.peers.iter().filter_map(|peer| match &peer.outcome {
            Outcome::Ran(timed) => Some(self.difference(timed.found).abs()),
            Outcome::Skipped(_) => None,
        });
        ran.fold(0.0, f64::max)
    }

    /// What a reader should know of this case.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for peer in &self.peers {
            let name = format!("`{}`, {}", self.name, peer.name);
            match &peer.outcome {
                Outcome::Skipped(reason) => notes.push(format!("{name}: skipped, {reason}.")),
                Outcome::Ran(timed) if timed.found != self.ours.pairs => {
                    let pairs = grouped(timed.found);
                    let share = self.difference(timed.found);
                    let verdict = match share.abs() <= ROUNDING {
                        true => "within rounding at ε",
                        false => "**WRONG: more than rounding explains**",
                    };
                    notes.push(format!("{name}: {pairs} pairs, {share:+.1e} of ours, {verdict}."));
                }
                Outcome::Ran(_) => {}
            }
        }
        if let Some(csr) = &self.ours.csr {
            let share = self.difference(csr.f32_pairs);
            if share != 0.0 {
                let pairs = grouped(csr.f32_pairs);
                notes.push(format!(
                    "`{}`, f32: the rounded points have {pairs} pairs, {share:+.1e} of those in f64.",
                    self.name
                ));
            }
        }
        notes
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## Comparison\n\n{}", self.ours_table())?;
        for answer in [Answer::Lists, Answer::Count] {
            if let Some(table) = self.peers_table(answer) {
                writeln!(f, "{table}")?;
            }
        }
        writeln!(
            f,
            "- Pairs are ordered, no point with itself. Points are f64. Times are from coordinates\n  \
             in memory to the answer, any index included; giving an answer's memory back is not.\n\
             - nearjoin: best of {} calls in a process that has joined before; first call: of a\n  \
             fresh process, CSR (a count for `clustered`). Fresh: into memory that the call\n  \
             obtains; reused: into the arrays of an earlier answer. The ratios take fresh CSR.\n\
             - Peers: best of {} runs. Answers are not of one shape: kiddo within and rstar give\n  \
             rows of ids; kiddo query_tree gives ordered pairs; scipy query_pairs gives each pair\n  \
             once, on one core; query_ball_point gives Python lists; scikit-learn a matrix.",
            self.reps, self.peer_reps
        )?;
        let notes: Vec<String> = self.rows.iter().flat_map(Row::notes).collect();
        if self.rows.iter().all(|row| row.worst() == 0.0) {
            writeln!(f, "- Every peer that ran found the same number of pairs.")?;
        }
        notes.iter().try_for_each(|note| writeln!(f, "- {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Timed;
    use nearjoin::Strategy;

    fn compared(pairs: u64) -> Comparison {
        let strategy = Strategy::Grid;
        let ours = Ours { pairs: 10_000_000, strategy, count: 1.0, csr: None, first: 2.0 };
        let outcome = Outcome::Ran(Timed { seconds: 3.0, found: pairs });
        let peers = vec![Peer { name: "peer", answer: Answer::Count, outcome }];
        let row = Row { name: "case", points: 10, eps: 1.0, ours, peers };
        Comparison { reps: 1, peer_reps: 1, rows: vec![row] }
    }

    #[test]
    fn a_difference_is_never_hidden() {
        let same = compared(10_000_000);
        assert!(same.agree() && same.to_string().contains("the same number of pairs"));
        assert!(same.to_string().contains("3.00 ×"));

        let rounded = compared(10_000_001);
        assert!(rounded.agree() && rounded.to_string().contains("within rounding"));

        let wrong = compared(10_000_100);
        assert!(!wrong.agree() && wrong.to_string().contains("WRONG"));
    }
}
