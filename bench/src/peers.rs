//! The other engines: which run on a case, and what they took.

mod kiddo;
mod python;
mod rstar;

pub(crate) use python::Python;

use crate::Result;
use crate::args::Options;
use crate::machine::available_memory;
use crate::table::grouped;
use crate::workload::{Shape, Workload};

/// What a peer was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// All neighbours.
    Lists,
    /// How many pairs.
    Count,
}

/// One peer on one case.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) answer: Answer,
    pub(crate) outcome: Outcome,
}

/// What came of it.
pub(crate) enum Outcome {
    Ran(Timed),
    Skipped(String),
}

/// A time and the ordered pairs that were found, no point with itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) seconds: f64,
    pub(crate) pairs: u64,
}

impl Peer {
    /// The time, if it ran.
    pub(crate) fn seconds(&self) -> Option<f64> {
        match &self.outcome {
            Outcome::Ran(timed) => Some(timed.seconds),
            Outcome::Skipped(_) => None,
        }
    }
}

/// Runs all peers that were chosen. `pairs` is our own answer, by which the bytes that
/// theirs will need are known.
pub(crate) fn run(
    workload: &Workload,
    pairs: u64,
    options: &Options,
    python: &Python,
) -> Result<Vec<Peer>> {
    let mut peers = match workload.dimension() {
        2 => in_rust::<2>(workload, pairs, options),
        3 => in_rust::<3>(workload, pairs, options),
        4 => in_rust::<4>(workload, pairs, options),
        6 => in_rust::<6>(workload, pairs, options),
        other => return Err(format!("no peers for dimension {other}").into()),
    };
    if !workload.case.count_only() {
        peers.extend(python.run(workload, pairs, options)?);
    }
    Ok(peers)
}

/// Visiting more pairs than this one by one takes minutes.
const MANY_PAIRS: u64 = 5_000_000_000;

fn in_rust<const D: usize>(workload: &Workload, pairs: u64, options: &Options) -> Vec<Peer> {
    let (points, rest) = workload.data.as_chunks::<D>();
    assert!(rest.is_empty(), "rows of {D}");
    let bound = workload.eps * workload.eps;
    let lists = !workload.case.count_only();
    let slow = (pairs > MANY_PAIRS && !options.slow_peers)
        .then(|| "visits pairs one by one; --slow-peers runs it".to_owned());
    let mut runner = Runner { workload, reps: options.peer_reps, peers: Vec::new() };

    if options.peers.kiddo {
        if lists {
            let skip = too_large(8 * pairs);
            runner.run("kiddo within", Answer::Lists, skip, || kiddo::lists(points, bound));
            let skip = too_large(18 * pairs);
            runner.run("kiddo query_tree", Answer::Lists, skip, || kiddo::pairs(points, bound));
        }
        runner.run("kiddo within count", Answer::Count, slow, || kiddo::count(points, bound));
        runner.run("kiddo query_tree count", Answer::Count, None, || {
            kiddo::tree_count(points, bound)
        });
    }
    if options.peers.rstar {
        let slow = (workload.case.shape != Shape::Uniform && !options.slow_peers)
            .then(|| "takes very long here; --slow-peers runs it".to_owned());
        if lists {
            let skip = slow.or_else(|| too_large(8 * pairs));
            runner.run("rstar", Answer::Lists, skip, || rstar::run(points, bound, true));
        } else {
            runner.run("rstar count", Answer::Count, slow, || rstar::run(points, bound, false));
        }
    }
    runner.peers
}

/// Runs peers and notes what they took.
struct Runner<'a> {
    workload: &'a Workload,
    reps: usize,
    peers: Vec<Peer>,
}

impl Runner<'_> {
    fn run(
        &mut self,
        name: &'static str,
        answer: Answer,
        skip: Option<String>,
        call: impl Fn() -> Timed,
    ) {
        let outcome = match skip {
            Some(reason) => Outcome::Skipped(reason),
            None => {
                eprintln!("{}: {name}", self.workload.case.name);
                let times = (0..self.reps).map(|_| call());
                let best = times.min_by(|a, b| a.seconds.total_cmp(&b.seconds));
                best.map_or(Outcome::Skipped("no repetitions".into()), Outcome::Ran)
            }
        };
        self.peers.push(Peer { name, answer, outcome });
    }
}

/// Why an answer of this many bytes cannot be had, if so.
fn too_large(bytes: u64) -> Option<String> {
    let free = available_memory()?;
    (bytes > free).then(|| {
        let mebibytes = |bytes: u64| grouped(bytes >> 20);
        format!("needs about {} MiB, {} MiB are free", mebibytes(bytes), mebibytes(free))
    })
}
