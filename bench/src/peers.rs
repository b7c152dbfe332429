//! The other engines: which run on a case, and what they took.

mod kiddo;
mod npy;
mod python;
mod rstar;

pub(crate) use npy::Npy;
pub(crate) use python::{FLAT, Given, Python, outcome};

use crate::Result;
use crate::args::Options;
use crate::machine::available_memory;
use crate::table::grouped;
use crate::workload::{Nearest, Shape, Within, Workload};

/// What a peer was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// All neighbours.
    Lists,
    /// How many pairs.
    Count,
}

/// One peer on one case.
pub(crate) struct Peer<Found> {
    pub(crate) name: &'static str,
    pub(crate) answer: Answer,
    /// Whether it rounds the points to `f32`: then its answer is said to differ, and not to be wrong.
    pub(crate) in_f32: bool,
    pub(crate) outcome: Outcome<Found>,
}

/// What came of it.
pub(crate) enum Outcome<Found> {
    Ran(Timed<Found>),
    Skipped(String),
}

/// A time, and what was found: of an ε-join the ordered pairs, no point with itself; of a
/// KNN-join the largest share by which a distance differs from ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed<Found> {
    pub(crate) seconds: f64,
    pub(crate) found: Found,
}

impl<Found> Peer<Found> {
    /// The time, if it ran.
    pub(crate) fn seconds(&self) -> Option<f64> {
        match &self.outcome {
            Outcome::Ran(timed) => Some(timed.seconds),
            Outcome::Skipped(_) => None,
        }
    }
}

/// Runs all peers of the ε-join that were chosen. `pairs` is our own answer, by which the
/// bytes that theirs will need are known.
pub(crate) fn within(
    workload: &Workload<Within>,
    pairs: u64,
    options: &Options,
    python: &Python,
) -> Result<Vec<Peer<u64>>> {
    let mut peers = match workload.dimension() {
        2 => within_in_rust::<2>(workload, pairs, options),
        3 => within_in_rust::<3>(workload, pairs, options),
        4 => within_in_rust::<4>(workload, pairs, options),
        6 => within_in_rust::<6>(workload, pairs, options),
        _ => for_few_dimensions(&[("kiddo", options.peers.kiddo), ("rstar", options.peers.rstar)]),
    };
    if !workload.case.count_only() {
        peers.extend(python.within(workload, pairs, options)?);
    }
    Ok(peers)
}

/// Runs all peers of the KNN-join that were chosen. `distances` are ours, row by row.
pub(crate) fn nearest(
    workload: &Workload<Nearest>,
    distances: &[f64],
    options: &Options,
    python: &Python,
) -> Result<Vec<Peer<f64>>> {
    let mut peers = match workload.dimension() {
        2 => nearest_in_rust::<2>(workload, distances, options),
        3 => nearest_in_rust::<3>(workload, distances, options),
        4 => nearest_in_rust::<4>(workload, distances, options),
        6 => nearest_in_rust::<6>(workload, distances, options),
        _ => for_few_dimensions(&[("kiddo", options.peers.kiddo)]),
    };
    peers.extend(python.nearest(workload, distances, options)?);
    Ok(peers)
}

/// Peers that are not run on many dimensions: their types have the number in them.
fn for_few_dimensions<Found>(peers: &[(&'static str, bool)]) -> Vec<Peer<Found>> {
    let skipped = |name| {
        let outcome = Outcome::Skipped("its trees are for few dimensions".into());
        Peer { name, answer: Answer::Lists, in_f32: false, outcome }
    };
    peers.iter().filter(|(_, chosen)| *chosen).map(|&(name, _)| skipped(name)).collect()
}

/// Visiting more pairs than this one by one takes minutes.
const MANY_PAIRS: u64 = 5_000_000_000;

fn within_in_rust<const D: usize>(
    workload: &Workload<Within>,
    pairs: u64,
    options: &Options,
) -> Vec<Peer<u64>> {
    let points = workload.rows::<D>();
    let bound = workload.eps() * workload.eps();
    let lists = !workload.case.count_only();
    let slow = (pairs > MANY_PAIRS && !options.slow_peers)
        .then(|| "visits pairs one by one; --slow-peers runs it".to_owned());
    let mut runner = Runner::new(workload.case.name, options);

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

fn nearest_in_rust<const D: usize>(
    workload: &Workload<Nearest>,
    distances: &[f64],
    options: &Options,
) -> Vec<Peer<f64>> {
    let (points, k) = (workload.rows::<D>(), workload.k());
    let mut runner = Runner::new(workload.case.name, options);
    if options.peers.kiddo {
        runner.run("kiddo nearest_n", Answer::Lists, None, || kiddo::nearest(points, k, distances));
        runner.run("kiddo query_batch", Answer::Lists, None, || kiddo::batch(points, k, distances));
    }
    runner.peers
}

/// The share by which two distances differ: without bound if one is not a number.
fn difference(found: f64, ours: f64) -> f64 {
    if found == ours {
        return 0.0;
    }
    let share = (found - ours).abs() / found.max(ours);
    if share.is_nan() { f64::INFINITY } else { share }
}

/// Runs peers and notes what they took.
struct Runner<Found> {
    case: &'static str,
    reps: usize,
    peers: Vec<Peer<Found>>,
}

impl<Found> Runner<Found> {
    fn new(case: &'static str, options: &Options) -> Self {
        Runner { case, reps: options.peer_reps, peers: Vec::new() }
    }

    fn run(
        &mut self,
        name: &'static str,
        answer: Answer,
        skip: Option<String>,
        call: impl Fn() -> Timed<Found>,
    ) {
        let outcome = match skip {
            Some(reason) => Outcome::Skipped(reason),
            None => {
                eprintln!("{}: {name}", self.case);
                let times = (0..self.reps).map(|_| call());
                let best = times.min_by(|a, b| a.seconds.total_cmp(&b.seconds));
                best.map_or(Outcome::Skipped("no repetitions".into()), Outcome::Ran)
            }
        };
        self.peers.push(Peer { name, answer, in_f32: false, outcome });
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
