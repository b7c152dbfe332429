//! Many dimensions on the CPU: joins by matrix products, with a few threads and all, beside peers that
//! compare all points with all points by products too.

mod set;

use nearjoin::Strategy;

use self::set::{Judged, Set, Verdict};
use crate::Result;
use crate::args::Options;
use crate::crossover::{Ask, Spread};
use crate::gpu::data::Law;
use crate::gpu::measure::Engine;
use crate::peers::{FLAT, Outcome, Python};
use crate::table::{Table, grouped, seconds, times};

/// Points, unless the options say otherwise.
const POINTS: usize = 50_000;
/// Rows and columns of the product whose rate is compared.
const MATRIX: usize = 12_000;

/// How points are spread, and in how many dimensions.
struct Case {
    /// Its name in the table, and in files.
    name: &'static str,
    file: &'static str,
    spread: Spread,
    dimension: usize,
    has_peers: bool,
}

const fn normal(file: &'static str, dimension: usize, has_peers: bool) -> Case {
    Case { name: "normal", file, spread: Spread::Law(Law::Normal), dimension, has_peers }
}

const CASES: [Case; 6] = [
    normal("normal-32", 32, false),
    normal("normal-100", 100, true),
    Case {
        name: "inner 20",
        file: "inner-20",
        spread: Spread::Inner(20),
        dimension: 100,
        has_peers: true,
    },
    Case {
        name: "five copies",
        file: "copies",
        spread: Spread::Copies(5),
        dimension: 100,
        has_peers: false,
    },
    Case {
        name: "two heaps",
        file: "heaps",
        spread: Spread::Heaps,
        dimension: 100,
        has_peers: false,
    },
    normal("normal-384", 384, false),
];

/// Our ways, in the order of the table.
const STRATEGIES: [Strategy; 3] = [Strategy::Brute, Strategy::Product, Strategy::Auto];

/// The section. The second is false if a peer disagrees with us.
pub(crate) fn run(options: &Options, python: &Python) -> Result<(String, bool)> {
    let all = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let mut threads = vec![1, 2, all];
    threads.sort_unstable();
    threads.dedup();
    let mut report = Report::new();
    for case in &CASES {
        let data = case.spread.draw(options.points.unwrap_or(POINTS), case.dimension);
        let set = Set::of(case, &data, options)?;
        for &threads in &threads {
            report.add(&set, threads, python)?;
        }
    }
    Ok((report.text(options), report.agree))
}

/// The tables.
struct Report {
    joins: Table,
    rates: Table,
    notes: Vec<String>,
    agree: bool,
}

impl Report {
    fn new() -> Self {
        let joins = Table::new(&[
            "f32, s",
            "threads",
            "asked",
            "pairs",
            "brute",
            "product",
            "brute ÷ product",
            "auto",
            "auto chose",
            FLAT[0],
            "FAISS ÷ auto",
            FLAT[1],
            "scikit-learn ÷ auto",
        ]);
        let rates = Table::new(&[
            "10⁹ multiply-adds/s",
            "threads",
            "count by products",
            "numpy's product",
            "count ÷ numpy",
        ]);
        Report { joins, rates, notes: Vec::new(), agree: true }
    }

    /// Measures a set with so many threads.
    fn add(&mut self, set: &Set<'_>, threads: usize, python: &Python) -> Result<()> {
        for ask in Ask::ALL {
            eprintln!("{}, {}: nearjoin, {threads} threads", set.title(), ask.name());
            let ours = set.ours(ask, threads)?;
            let peers = set.peers(ask, threads, python)?;
            self.joins.row(cells(set, ask, threads, &ours, &peers)?);
            for peer in peers {
                self.note(&format!("{}, {}", set.title(), ask.name()), peer);
            }
            if let (Ask::Count, [_, product, _]) = (ask, &ours) {
                self.rate(set, threads, product, python)?;
            }
        }
        Ok(())
    }

    /// What a reader should know of a peer's answer.
    fn note(&mut self, asked: &str, peer: Judged) {
        let note = match peer.verdict {
            Verdict::Same => return,
            Verdict::Rounded(how) => format!("{asked}, {}: {how}.", peer.name),
            Verdict::Wrong(how) => {
                self.agree = false;
                format!("{asked}, {}: **WRONG: {how}**.", peer.name)
            }
            Verdict::Skipped(reason) => format!("{}: skipped, {reason}.", peer.name),
        };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The rate at which our count multiplies, beside that of a product in numpy.
    fn rate(
        &mut self,
        set: &Set<'_>,
        threads: usize,
        count: &Engine<Strategy>,
        python: &Python,
    ) -> Result<()> {
        let n = set.points() as f64;
        let multiplied = n * (n - 1.0) / 2.0 * set.case.dimension as f64;
        let ours = count.ms().map(|ms| multiplied / (ms * 1e6));
        let mut theirs = None;
        for peer in set.product(MATRIX, threads, python)? {
            match peer.outcome {
                Outcome::Ran(timed) => theirs = Some(timed.found / timed.seconds / 1e9),
                Outcome::Skipped(reason) => {
                    let verdict = Verdict::Skipped(reason);
                    self.note("", Judged { name: peer.name, seconds: None, verdict });
                }
            }
        }
        let rate = |rate: Option<f64>| rate.map_or("–".into(), |rate| format!("{rate:.1}"));
        let cells = [rate(ours), rate(theirs), times(ours, theirs)];
        self.rates.row([vec![set.title(), threads.to_string()], cells.into()].concat());
        Ok(())
    }

    fn text(&self, options: &Options) -> String {
        let notes: String = self.notes.iter().map(|note| format!("- {note}\n")).collect();
        format!(
            "## Many dimensions on the CPU\n\n{}\n{}\n\
             - Seconds from coordinates in memory to the answer, any index included. ε is for about one neighbour.\n  \
             Inner 20: normal in 20 dimensions that are turned among all, with a hundredth of that in every one.\n\
             - nearjoin: all found the same. Best of {} calls, all in turn, after one that warms up; one call where that\n  \
             takes over {} seconds. `NEARJOIN_SIMD` chooses the instruction set.\n\
             - Peers: best of {} runs, with as many threads. They cannot leave the point itself out: they look for k + 1.\n  \
             For a CSR FAISS gives offsets, ids and distances, and scikit-learn an array of ids for each point.\n\
             - Multiply-adds: of a count those of every pair once, whether it needs them or not; of numpy a product of\n  \
             {} × d and d × {} in f32 into memory that it has, best of {}.\n\
             {notes}",
            self.joins,
            self.rates,
            options.reps,
            set::SLOW.as_secs(),
            options.peer_reps,
            grouped(MATRIX as u64),
            grouped(MATRIX as u64),
            options.reps,
        )
    }
}

/// A row of the joins.
fn cells(
    set: &Set<'_>,
    ask: Ask,
    threads: usize,
    ours: &[Engine<Strategy>; 3],
    peers: &[Judged],
) -> Result<Vec<String>> {
    let [brute, product, auto] = ours.each_ref().map(|way| way.ms().map(|ms| ms / 1e3));
    let chosen = ours[2].best.as_ref().ok_or("auto was not measured")?;
    let peer = |name| peers.iter().find(|peer| peer.name == name)?.seconds;
    let [faiss, sklearn] = FLAT.map(peer);
    Ok(vec![
        set.title(),
        threads.to_string(),
        ask.name().into(),
        grouped(chosen.stats.pairs),
        seconds(brute),
        seconds(product),
        times(brute, product),
        seconds(auto),
        chosen.stats.strategy.to_string(),
        seconds(faiss),
        times(faiss, auto),
        seconds(sklearn),
        times(sklearn, auto),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_a_row_and_an_absent_peer_a_line() {
        let line = "--product --points 300 --reps 1 --python /no/such/python";
        let options = crate::args::parse(line.split(' ').map(String::from)).unwrap();
        let (text, agree) = run(&options, &Python::find(&options)).unwrap();
        assert!(agree, "{text}");
        for asked in ["count", "CSR", "k = 10"] {
            let rows = |case: &str| {
                let rows =
                    text.lines().filter(|line| line.starts_with(&format!("| {case}, 300 × ")));
                rows.filter(|line| line.contains(&format!(" {asked} |"))).count()
            };
            assert_eq!(rows("normal"), 3 * rows("inner 20"), "{text}");
            assert!(rows("inner 20") > 0, "{text}");
        }
        for peer in [FLAT[0], FLAT[1], "numpy"] {
            assert_eq!(text.matches(&format!("\n- {peer}: skipped, ")).count(), 1, "{text}");
        }
    }
}
