//! scipy, scikit-learn, pykdtree, FAISS and numpy, through one script that an interpreter runs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use nearjoin::Scalar;

use super::{Answer, Npy, Outcome, Peer, Timed, too_large};
use crate::Result;
use crate::args::{Options, Peers};
use crate::table::grouped;
use crate::workload::{Ask, Nearest, Within, Workload};

const SCRIPT: &str = include_str!("../../peers.py");
/// The script does without any of these but numpy; what is absent is said.
const VERSIONS: &str = "\
import platform, numpy
from importlib.metadata import PackageNotFoundError, version
def found(name):
    try: return f'{name} {version(name)}'
    except PackageNotFoundError: return f'no {name}'
names = ['numpy', 'scipy', 'scikit-learn', 'pykdtree', 'faiss-cpu']
print(', '.join([f'Python {platform.python_version()}', *map(found, names)]), end='')
try: from threadpoolctl import threadpool_info
except ImportError: threadpool_info = list
blas = [library for library in threadpool_info() if library['user_api'] == 'blas']
print(*(f\"; numpy's BLAS: {x['internal_api']} {x['version']} for {x.get('architecture')}\" for x in blas))";
const INSTALL: &str = "python3 -m venv .venv && \
     .venv/bin/pip install numpy scipy scikit-learn pykdtree faiss-cpu; then --python .venv/bin/python";

/// Python objects for each pair (query_ball_point) or several arrays of 8 bytes
/// (scikit-learn) are too much memory from here on.
const MOST_PAIRS: u64 = 200_000_000;

/// Trees of more dimensions than this look at nearly every point.
const TREE_DIMENSIONS: usize = 16;

/// Why a tree is not run on a case, if so.
fn slow_trees<Ask>(workload: &Workload<Ask>, options: &Options) -> Option<String> {
    let slow = !few_dimensions(workload) && !options.slow_peers;
    slow.then(|| "a tree looks at nearly every point here; --slow-peers runs it".to_owned())
}

/// Whether trees are for it. What compares all points with all points is for the others.
fn few_dimensions<Ask>(workload: &Workload<Ask>) -> bool {
    workload.dimension() <= TREE_DIMENSIONS
}

/// A Python call by the name it has in the tables and in the script.
struct Call {
    name: &'static str,
    peer: &'static str,
}

const QUERY_PAIRS: Call = Call { name: "scipy query_pairs", peer: "query-pairs" };
const BALL_POINT: Call = Call { name: "scipy query_ball_point", peer: "query-ball-point" };
const SKLEARN_GRAPH: Call = Call { name: "scikit-learn", peer: "sklearn-graph" };

const SCIPY: Call = Call { name: "scipy", peer: "scipy" };
const SCIPY_ORDER: Call = Call { name: "scipy in tree order", peer: "scipy-tree-order" };
const PYKDTREE: Call = Call { name: "pykdtree", peer: "pykdtree" };
const PYKDTREE_ORDER: Call = Call { name: "pykdtree in tree order", peer: "pykdtree-tree-order" };
const SKLEARN_TREE: Call = Call { name: "scikit-learn kd_tree", peer: "sklearn-tree" };
const SKLEARN_BRUTE: Call = Call { name: "scikit-learn brute", peer: "sklearn-brute" };

const FAISS_RANGE: Call = Call { name: "FAISS flat", peer: "faiss-range" };
const FAISS: Call = Call { name: "FAISS flat", peer: "faiss" };

const SKLEARN_RADIUS: Call = Call { name: "scikit-learn brute", peer: "sklearn-radius" };
const MATMUL: Call = Call { name: "numpy", peer: "matmul" };

/// What compares all points with all points by products, by the names in a table.
pub(crate) const FLAT: [&str; 2] = [FAISS.name, SKLEARN_BRUTE.name];

/// The interpreter, or why there is none.
pub(crate) struct Python {
    interpreter: PathBuf,
    found: std::result::Result<String, String>,
}

impl Python {
    /// Tries the imports.
    pub(crate) fn find(options: &Options) -> Self {
        let interpreter = options.python.clone();
        let Peers { numpy, scipy, sklearn, pykdtree, faiss, .. } = options.peers;
        let asked = numpy || scipy || sklearn || pykdtree || faiss;
        let found = if asked {
            let output = script(&interpreter, VERSIONS).output();
            match output {
                Ok(output) if output.status.success() => {
                    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
                }
                _ => Err(format!("not there; install with {INSTALL}")),
            }
        } else {
            Err("not asked for".into())
        };
        Python { interpreter, found }
    }

    /// Runs the chosen calls on a case of the ε-join.
    pub(super) fn within(
        &self,
        workload: &Workload<Within>,
        pairs: u64,
        options: &Options,
    ) -> Result<Vec<Peer<u64>>> {
        let many = (pairs > MOST_PAIRS)
            .then(|| format!("needs too much memory over {} pairs", grouped(MOST_PAIRS)));
        let slow = slow_trees(workload, options);
        let mut chosen = Vec::new();
        if options.peers.scipy {
            // 16 bytes for each unordered pair, in a vector that grows by doubling.
            chosen.push((QUERY_PAIRS, slow.clone().or_else(|| too_large(20 * pairs))));
            chosen.push((BALL_POINT, slow.or_else(|| many.clone())));
        }
        if options.peers.sklearn {
            chosen.push((SKLEARN_GRAPH, many.clone()));
        }
        if options.peers.faiss && !few_dimensions(workload) {
            chosen.push((FAISS_RANGE, many));
        }
        self.run(&Given::of(workload, workload.eps(), options), chosen)
    }

    /// Runs the chosen calls on a case of the KNN-join. `distances` are ours.
    pub(super) fn nearest(
        &self,
        workload: &Workload<Nearest>,
        distances: &[f64],
        options: &Options,
    ) -> Result<Vec<Peer<f64>>> {
        let trees = few_dimensions(workload);
        let slow = slow_trees(workload, options);
        let mut chosen = Vec::new();
        if options.peers.scipy {
            chosen.extend([(SCIPY, slow.clone()), (SCIPY_ORDER, slow.clone())]);
        }
        if options.peers.pykdtree {
            chosen.extend([(PYKDTREE, slow.clone()), (PYKDTREE_ORDER, slow)]);
        }
        if options.peers.sklearn {
            chosen.push((if trees { SKLEARN_TREE } else { SKLEARN_BRUTE }, None));
        }
        if options.peers.faiss && !trees {
            chosen.push((FAISS, None));
        }
        let given = Given::of(workload, workload.k() as f64, options);
        self.run(&Given { distances: Some(distances), ..given }, chosen)
    }

    /// Runs those of FAISS and scikit-learn that were chosen on points of many dimensions, for all
    /// within ε of each.
    pub(crate) fn flat_within(
        &self,
        given: &Given<'_, f32>,
        options: &Options,
    ) -> Result<Vec<Peer<u64>>> {
        self.run(given, flat(FAISS_RANGE, SKLEARN_RADIUS, options))
    }

    /// The same for the k nearest, with our distances.
    pub(crate) fn flat_nearest(
        &self,
        given: &Given<'_, f32>,
        options: &Options,
    ) -> Result<Vec<Peer<f64>>> {
        self.run(given, flat(FAISS, SKLEARN_BRUTE, options))
    }

    /// Multiplies a matrix of so many of the points, over and over if there are fewer, with another.
    /// What is found is the number of multiply-adds.
    pub(crate) fn product(
        &self,
        given: &Given<'_, f32>,
        options: &Options,
    ) -> Result<Vec<Peer<f64>>> {
        self.run(given, options.peers.numpy.then_some((MATMUL, None)).into_iter().collect())
    }

    fn run<T: Scalar, Found: FromStr>(
        &self,
        given: &Given<'_, T>,
        chosen: Vec<(Call, Option<String>)>,
    ) -> Result<Vec<Peer<Found>>> {
        let mut files = None;
        let mut peers = Vec::new();
        for (call, skip) in chosen {
            let missing = || "see the line on peers in Python".to_owned();
            let skip = skip.or_else(|| self.found.is_err().then(missing));
            let outcome = match skip {
                Some(reason) => Outcome::Skipped(reason),
                None => {
                    let (points, distances) = match &files {
                        Some(written) => written,
                        None => files.insert(given.write()?),
                    };
                    eprintln!("{}: {}", given.name, call.name);
                    let mut command = script(&self.interpreter, SCRIPT);
                    command
                        .arg(&points.path)
                        .args([call.peer, &given.value.to_string()])
                        .arg(format!("--reps={}", given.reps));
                    if let Some(threads) = given.threads {
                        command.arg(format!("--threads={threads}"));
                        command.envs(POOLS.map(|pool| (pool, threads.to_string())));
                    }
                    if let Some(distances) = distances {
                        command.arg("--distances").arg(&distances.path);
                    }
                    outcome(&mut command)?
                }
            };
            let in_f32 = call.name == FAISS.name;
            peers.push(Peer { name: call.name, answer: Answer::Lists, in_f32, outcome });
        }
        Ok(peers)
    }
}

/// The peers that compare all points with all points, by products.
fn flat(faiss: Call, sklearn: Call, options: &Options) -> Vec<(Call, Option<String>)> {
    let calls = [(options.peers.faiss, faiss), (options.peers.sklearn, sklearn)];
    calls.into_iter().filter(|(chosen, _)| *chosen).map(|(_, call)| (call, None)).collect()
}

/// What calls are given.
pub(crate) struct Given<'a, T> {
    /// The name of the case.
    pub(crate) name: &'a str,
    pub(crate) data: &'a [T],
    pub(crate) dimension: usize,
    /// ε or k, or the rows of a matrix.
    pub(crate) value: f64,
    /// Of the nearest ours, by which theirs are judged.
    pub(crate) distances: Option<&'a [T]>,
    /// With how many threads calls may work: none for all.
    pub(crate) threads: Option<usize>,
    /// Runs of which the best counts.
    pub(crate) reps: usize,
}

impl<'a> Given<'a, f64> {
    fn of<A: Ask>(workload: &'a Workload<A>, value: f64, options: &Options) -> Self {
        Given {
            name: workload.case.name,
            data: &workload.data,
            dimension: workload.dimension(),
            value,
            distances: None,
            threads: None,
            reps: options.peer_reps,
        }
    }
}

impl<T: Scalar> Given<'_, T> {
    /// The points, and our distances.
    fn write(&self) -> Result<(Npy, Option<Npy>)> {
        let points = Npy::write(self.name, self.data, self.dimension)?;
        let name = format!("{}-distances", self.name);
        let distances = self.distances.map(|ours| Npy::write(&name, ours, self.value as usize));
        Ok((points, distances.transpose()?))
    }
}

/// What OpenBLAS reads to choose its kernels and their blocks. Left alone it finds out by itself; an
/// environment that names an older processor for all programs would hold the peers back.
const CHOOSES_KERNELS: [&str; 2] = ["OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"];

/// What pools of threads read when they are loaded.
const POOLS: [&str; 3] = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"];

/// A script for an interpreter to run.
fn script(interpreter: &Path, text: &str) -> Command {
    let mut command = Command::new(interpreter);
    for name in CHOOSES_KERNELS {
        command.env_remove(name);
    }
    command.args(["-c", text]);
    command
}

/// Runs a script for one call: a process each, so that one that runs out of memory takes no
/// other with it. It prints one line, its seconds and what it found.
pub(crate) fn outcome<Found: FromStr>(command: &mut Command) -> Result<Outcome<Found>> {
    let output = command.stderr(Stdio::piped()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let times = text.lines().next().and_then(|line| {
        let seconds = json_number(line, "seconds")?.parse().ok()?;
        let found = json_number(line, "found")?.parse().ok()?;
        Some(Timed { seconds, found })
    });
    Ok(match times.filter(|_| output.status.success()) {
        Some(timed) => Outcome::Ran(timed),
        None => {
            let error = String::from_utf8_lossy(&output.stderr);
            let last = error.lines().last().unwrap_or("no output").to_owned();
            Outcome::Skipped(format!("failed ({}): {last}", output.status))
        }
    })
}

impl fmt::Display for Python {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Ok(versions) => f.write_str(versions),
            Err(reason) => f.write_str(reason),
        }
    }
}

/// The number under a key of the flat objects that the script prints.
fn json_number<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("\"{key}\":"))?;
    rest.split([',', '}']).next().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::json_number;

    #[test]
    fn numbers_of_a_line() {
        let line = r#"{"peer": "scipy", "seconds": 0.25, "found": 12}"#;
        assert_eq!(json_number(line, "seconds"), Some("0.25"));
        assert_eq!(json_number(line, "found"), Some("12"));
        assert_eq!(json_number(line, "points"), None);
    }
}
