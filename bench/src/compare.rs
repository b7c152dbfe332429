//! The comparison of a join with its peers, and its tables: written once for both joins.

use std::fmt;

use nearjoin::Stats;

use crate::Result;
use crate::args::Options;
use crate::once::Once;
use crate::peers::{Answer, Outcome, Peer, Python};
use crate::table::{Table, grouped, seconds, times};
use crate::workload::{Ask, Workload};

/// What nearjoin took for a case of a join, and what the comparison must know of that join.
pub(crate) trait Compared: Sized {
    /// What the join is asked for.
    type Ask: Ask;
    /// What the peers are given to check their answers by, or to know how large they will be.
    type Reference;
    /// What a peer found.
    type Found: Copy;

    /// The title of the section.
    const TITLE: &'static str;
    /// The columns of our own table, after the case and its points.
    const COLUMNS: &'static [&'static str];
    /// What is asked of peers, and the title of the table for it.
    const ANSWERS: &'static [(Answer, &'static str)];
    /// The largest difference of a peer's answer that rounding explains.
    const ROUNDING: f64;

    /// One call for the whole answer, or for a count where the case allows no more.
    fn once(workload: &Workload<Self::Ask>) -> Result<(f64, Stats)>;

    /// Measures nearjoin, after the first call of a fresh process.
    fn measure(
        workload: &Workload<Self::Ask>,
        first: &Once,
        options: &Options,
    ) -> Result<(Self, Self::Reference)>;

    /// Runs the peers that were chosen.
    fn peers(
        workload: &Workload<Self::Ask>,
        reference: &Self::Reference,
        options: &Options,
        python: &Python,
    ) -> Result<Vec<Peer<Self::Found>>>;

    /// The cells of a case, one for each column.
    fn cells(row: &Row<Self>) -> Vec<String>;

    /// Our best time for an answer, if the case has it.
    fn seconds(&self, answer: Answer) -> Option<f64>;

    /// The share by which what a peer found differs from ours.
    fn difference(&self, found: Self::Found) -> f64;

    /// What a reader should know of what a peer found.
    fn remark(&self, found: Self::Found, rounding: bool) -> Option<String>;

    /// What a reader should know of what nearjoin found.
    fn own_remark(&self) -> Option<String> {
        None
    }

    /// How the times were taken.
    fn legend(reps: usize, peer_reps: usize) -> String;

    /// That all peers agree, if they do: `worst` is the largest difference of those that ran.
    fn agreement(worst: Option<f64>) -> Option<String>;
}

/// One case: our times and the peers'.
pub(crate) struct Row<J: Compared> {
    pub(crate) name: &'static str,
    pub(crate) points: usize,
    pub(crate) ask: J::Ask,
    /// The first call of a fresh process.
    pub(crate) first: Once,
    /// Seconds to touch as much memory as its result has, in another one.
    pub(crate) touch: f64,
    pub(crate) ours: J,
    pub(crate) peers: Vec<Peer<J::Found>>,
}

/// Every engine on every chosen case.
pub(crate) struct Comparison<J: Compared> {
    reps: usize,
    peer_reps: usize,
    rows: Vec<Row<J>>,
}

/// Runs the section. The second is false if a peer disagrees with us.
pub(crate) fn run<J: Compared>(options: &Options, python: &Python) -> Result<(String, bool)> {
    let comparison = Comparison::<J>::run(options, python)?;
    Ok((comparison.to_string(), comparison.agree()))
}

impl<J: Compared> Comparison<J> {
    fn run(options: &Options, python: &Python) -> Result<Self> {
        let mut rows = Vec::new();
        for case in options.chosen(J::Ask::CASES) {
            let workload = case.workload(options.points);
            eprintln!("{}: nearjoin", case.name);
            let (first, touch) = Once::beside_touch(case.name, options)?;
            let (ours, reference) = J::measure(&workload, &first, options)?;
            let peers = J::peers(&workload, &reference, options, python)?;
            let (points, ask) = (workload.points, workload.ask);
            rows.push(Row { name: case.name, points, ask, first, touch, ours, peers });
        }
        Ok(Comparison { reps: options.reps, peer_reps: options.peer_reps, rows })
    }

    /// The largest difference of a peer that ran.
    fn worst(&self) -> Option<f64> {
        self.rows.iter().flat_map(Row::differences).reduce(f64::max)
    }

    /// Whether every peer found what we did, but for rounding.
    fn agree(&self) -> bool {
        self.worst().is_none_or(|worst| worst <= J::ROUNDING)
    }

    fn ours_table(&self) -> Table {
        let mut table = Table::new(&[&["nearjoin", "points"], J::COLUMNS].concat());
        for row in &self.rows {
            let mut cells = vec![row.name.into(), grouped(row.points as u64)];
            cells.extend(J::cells(row));
            table.row(cells);
        }
        table
    }

    /// The peers that were asked for one kind of answer, beside our own time for it: a column
    /// for each that ran, and the ratio of the fastest. None if none ran.
    fn peers_table(&self, answer: Answer, title: &str) -> Option<Table> {
        let mut names: Vec<&str> = Vec::new();
        for peer in self.rows.iter().flat_map(|row| row.ran(answer)) {
            if !names.contains(&peer.name) {
                names.push(peer.name);
            }
        }
        if names.is_empty() {
            return None;
        }
        let ratios = ["fastest peer ÷ nearjoin", "÷ first call"];
        let mut table = Table::new(&[&[title, "nearjoin"], &names[..], &ratios].concat());
        for row in &self.rows {
            let Some(ours) = row.ours.seconds(answer) else { continue };
            let fastest = row.ran(answer).filter_map(Peer::seconds).reduce(f64::min);
            let mut cells = vec![row.name.to_owned(), seconds(Some(ours))];
            cells.extend(names.iter().map(|&name| {
                let peer = row.ran(answer).find(|peer| peer.name == name);
                seconds(peer.and_then(Peer::seconds))
            }));
            cells.extend([times(fastest, Some(ours)), times(fastest, row.first_seconds(answer))]);
            table.row(cells);
        }
        Some(table)
    }
}

impl<J: Compared> Row<J> {
    /// The first call: its seconds, those that touching the result's memory takes, and how many
    /// times a later one like it the rest is.
    pub(crate) fn first_cells(&self) -> [String; 3] {
        let later = self.ours.seconds(Answer::Lists).or_else(|| self.ours.seconds(Answer::Count));
        let rest = self.first.seconds - self.touch;
        [seconds(Some(self.first.seconds)), seconds(Some(self.touch)), times(Some(rest), later)]
    }

    /// The peers that were asked for this answer and ran.
    fn ran(&self, answer: Answer) -> impl Iterator<Item = &Peer<J::Found>> {
        self.peers.iter().filter(move |peer| peer.answer == answer && peer.seconds().is_some())
    }

    /// The time of the first call, if it gave this answer: it gives the largest that the case
    /// has.
    fn first_seconds(&self, answer: Answer) -> Option<f64> {
        let given = match self.ours.seconds(Answer::Lists) {
            Some(_) => Answer::Lists,
            None => Answer::Count,
        };
        (given == answer).then_some(self.first.seconds)
    }

    /// The difference of what a peer found, without bound if it is not a number.
    fn difference(&self, found: J::Found) -> f64 {
        let share = self.ours.difference(found).abs();
        if share.is_nan() { f64::INFINITY } else { share }
    }

    /// The difference of each peer that ran, and computes as we do.
    fn differences(&self) -> impl Iterator<Item = f64> {
        let in_f64 = self.peers.iter().filter(|peer| !peer.in_f32);
        in_f64.filter_map(|peer| match &peer.outcome {
            Outcome::Ran(timed) => Some(self.difference(timed.found)),
            Outcome::Skipped(_) => None,
        })
    }

    /// What a reader should know of this case.
    fn notes(&self) -> Vec<String> {
        let of_peers = self.peers.iter().filter_map(|peer| {
            let remark = match &peer.outcome {
                Outcome::Skipped(reason) => format!("skipped, {reason}"),
                Outcome::Ran(timed) if peer.in_f32 => {
                    let share = self.difference(timed.found);
                    format!("in f32, and differs by up to {share:.1e} of what we found")
                }
                Outcome::Ran(timed) => {
                    let rounding = self.difference(timed.found) <= J::ROUNDING;
                    self.ours.remark(timed.found, rounding)?
                }
            };
            Some(format!("`{}`, {}: {remark}.", self.name, peer.name))
        });
        let own = self.ours.own_remark().map(|remark| format!("`{}`, {remark}.", self.name));
        of_peers.chain(own).collect()
    }
}

impl<J: Compared> fmt::Display for Comparison<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}\n\n{}", J::TITLE, self.ours_table())?;
        for &(answer, title) in J::ANSWERS {
            if let Some(table) = self.peers_table(answer, title) {
                writeln!(f, "{table}")?;
            }
        }
        writeln!(f, "{}", J::legend(self.reps, self.peer_reps))?;
        let notes = self.rows.iter().flat_map(Row::notes);
        J::agreement(self.worst())
            .into_iter()
            .chain(notes)
            .try_for_each(|note| writeln!(f, "- {note}"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::peers::Timed;

    /// Our call of one second and a first one of two, beside a peer that took three.
    fn compared<J: Compared>(ours: J, answer: Answer, found: J::Found) -> Comparison<J> {
        let case = &J::Ask::CASES[0];
        let outcome = Outcome::Ran(Timed { seconds: 3.0, found });
        let row = Row {
            name: "case",
            points: 10,
            ask: case.workload(Some(10)).ask,
            first: "2 10000000 grid 0 0 0 0 0".parse().unwrap(),
            touch: 0.5,
            ours,
            peers: vec![Peer { name: "peer", answer, in_f32: false, outcome }],
        };
        Comparison { reps: 1, peer_reps: 1, rows: vec![row] }
    }

    /// What is reported of a peer that found this must say so, and whether it agrees.
    pub(crate) fn reports<J: Compared>(
        ours: J,
        answer: Answer,
        found: J::Found,
        agree: bool,
        words: &str,
    ) {
        let comparison = compared(ours, answer, found);
        let text = comparison.to_string();
        assert_eq!(comparison.agree(), agree, "{text}");
        assert!(text.contains(words) && text.contains("3.00 ×"), "{text}");
        assert!(text.contains("0.5000") && text.contains("1.50 ×"), "{text}");
        assert_eq!(text.contains("WRONG"), !agree, "{text}");
        assert_eq!(text.contains("Every peer"), words.contains("the same"), "{text}");
    }
}
