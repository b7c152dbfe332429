//! The comparison of KNN-joins and its tables.

pub(crate) mod adversarial;
mod ours;

use std::fmt;

use nearjoin::Strategy;

use crate::Result;
use crate::args::Options;
use crate::once::Once;
use crate::peers::{self, Outcome, Peer, Python};
use crate::report::{Beside, peers_table};
use crate::table::{Table, grouped, seconds, times};
use crate::workload::{Ask, Case, Nearest};

/// A distance may differ by this share: engines round in another order, and scikit-learn's
/// brute force subtracts products.
const ROUNDING: f64 = 1e-12;

/// One call on the case of this name.
pub(crate) fn once(name: &str, points: Option<usize>) -> Result<Once> {
    let case = Case::<Nearest>::all().find(|case| case.name == name).ok_or("no such case")?;
    Once::here(&case.workload(points), |workload| {
        let (seconds, stats, _) = ours::call(&workload.data, case.dimension, workload.k())?;
        Ok((seconds, stats))
    })
}

/// What nearjoin took for a case.
struct Ours {
    strategy: Strategy,
    tests_per_point: f64,
    /// The first call of a fresh process, in seconds.
    first: f64,
    f64: f64,
    f32: f64,
}

/// One case: our times and the peers'.
struct Row {
    name: &'static str,
    points: usize,
    k: usize,
    ours: Ours,
    peers: Vec<Peer<f64>>,
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
        for case in options.chosen(Nearest::CASES) {
            let workload = case.workload(options.points);
            let (points, k) = (workload.points, workload.k());
            eprintln!("{}: nearjoin", case.name);
            let first = Once::elsewhere(case.name, options)?.seconds;
            let f32 = ours::best(&workload.to_f32(), case.dimension, k, options.reps)?.seconds;
            let best = ours::best(&workload.data, case.dimension, k, options.reps)?;
            let peers = peers::nearest(&workload, best.neighbors.distances(), options, python)?;
            let ours = Ours {
                strategy: best.stats.strategy,
                tests_per_point: best.tests_per_point(),
                first,
                f64: best.seconds,
                f32,
            };
            rows.push(Row { name: case.name, points, k, ours, peers });
        }
        Ok(Comparison { reps: options.reps, peer_reps: options.peer_reps, rows })
    }

    /// Whether every peer found our distances, but for rounding.
    pub(crate) fn agree(&self) -> bool {
        self.rows.iter().flat_map(Row::differences).all(|(_, found)| found <= ROUNDING)
    }

    fn ours_table(&self) -> Table {
        let mut table = Table::new(&[
            "nearjoin",
            "points",
            "k",
            "strategy",
            "tests per point",
            "first call, s",
            "f64, s",
            "f32, s",
            "f64 ÷ f32",
        ]);
        for Row { name, points, k, ours, .. } in &self.rows {
            table.row(vec![
                (*name).into(),
                grouped(*points as u64),
                k.to_string(),
                ours.strategy.to_string(),
                format!("{:.1}", ours.tests_per_point),
                seconds(Some(ours.first)),
                seconds(Some(ours.f64)),
                seconds(Some(ours.f32)),
                times(Some(ours.f64), Some(ours.f32)),
            ]);
        }
        table
    }
}

impl Row {
    /// By what share the distances of each peer that ran differ from ours at most.
    fn differences(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.peers.iter().filter_map(|peer| match &peer.outcome {
            Outcome::Ran(timed) => Some((peer.name, timed.found)),
            Outcome::Skipped(_) => None,
        })
    }

    /// What a reader should know of this case.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for peer in &self.peers {
            let name = format!("`{}`, {}", self.name, peer.name);
            match &peer.outcome {
                Outcome::Skipped(reason) => notes.push(format!("{name}: skipped, {reason}.")),
                // Not a number is wrong too.
                Outcome::Ran(timed) if timed.found <= ROUNDING => {}
                Outcome::Ran(timed) => notes.push(format!(
                    "{name}: **WRONG: a distance differs by {:.1e} of itself**.",
                    timed.found
                )),
            }
        }
        notes
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## Comparison of KNN-joins\n\n{}", self.ours_table())?;
        let rows = self.rows.iter().map(|row| Beside {
            name: row.name,
            ours: row.ours.f64,
            first: Some(row.ours.first),
            peers: row.peers.iter().collect(),
        });
        if let Some(table) = peers_table("ids and distances, s", &rows.collect::<Vec<_>>()) {
            writeln!(f, "{table}")?;
        }
        writeln!(
            f,
            "- Points are f64 unless a column says otherwise. Times are from coordinates in memory\n  \
             to ids and distances, any index included; giving an answer's memory back is not.\n\
             - nearjoin: no point is its own neighbour. Best of {} calls into fresh memory after\n  \
             one that warms up, of fewer where they take over a minute; first call: of a fresh\n  \
             process. Tests are distances computed.\n\
             - Peers: best of {} runs. They cannot leave the point itself out, so they are asked for\n  \
             k + 1 and keep it. In tree order: queries in the order of the tree's leaves, rows of\n  \
             the answer too, as for kiddo nearest_n; otherwise in the order of the input.\n\
             - scipy in tree order has `balanced_tree=False, compact_nodes=False`, which is built\n  \
             sooner and asked no slower; pykdtree has no order of its own to give, and takes that\n  \
             of such a tree, whose making is within its time.",
            self.reps, self.peer_reps
        )?;
        let differences = self.rows.iter().flat_map(Row::differences);
        if let Some(worst) = differences.map(|(_, found)| found).reduce(f64::max)
            && self.agree()
        {
            writeln!(
                f,
                "- Every peer that ran found the same distances: the largest difference is {worst:.1e} of\n  \
                 the distance."
            )?;
        }
        self.rows.iter().flat_map(Row::notes).try_for_each(|note| writeln!(f, "- {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{Answer, Timed};

    fn compared(found: f64) -> Comparison {
        let ours =
            Ours { strategy: Strategy::Tree, tests_per_point: 9.0, first: 2.0, f64: 1.0, f32: 1.0 };
        let outcome = Outcome::Ran(Timed { seconds: 3.0, found });
        let peers = vec![Peer { name: "peer", answer: Answer::Lists, outcome }];
        let row = Row { name: "case", points: 10, k: 8, ours, peers };
        Comparison { reps: 1, peer_reps: 1, rows: vec![row] }
    }

    #[test]
    fn a_difference_is_never_hidden() {
        let same = compared(1e-15);
        assert!(same.agree() && same.to_string().contains("the same distances"));
        assert!(same.to_string().contains("3.00 ×"));
        for wrong in [1e-9, f64::INFINITY, f64::NAN] {
            let wrong = compared(wrong);
            assert!(!wrong.agree() && wrong.to_string().contains("WRONG"));
        }
    }
}
