//! scipy and scikit-learn, through one script that an interpreter runs.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{Answer, Outcome, Peer, Timed, too_large};
use crate::Result;
use crate::args::Options;
use crate::table::grouped;
use crate::workload::Workload;

const SCRIPT: &str = include_str!("../../peers.py");
const VERSIONS: &str = "\
import platform, numpy, scipy, sklearn
print(f'Python {platform.python_version()}, numpy {numpy.__version__}, '
      f'scipy {scipy.__version__}, scikit-learn {sklearn.__version__}')";
const INSTALL: &str = "python3 -m venv .venv && .venv/bin/pip install numpy scipy scikit-learn; \
     then --python .venv/bin/python";

/// Python objects for each pair (query_ball_point) or several arrays of 8 bytes
/// (scikit-learn) are too much memory from here on.
const MOST_PAIRS: u64 = 200_000_000;

/// A Python call by the name it has in the tables and in the script.
struct Call {
    name: &'static str,
    flag: &'static str,
}

const QUERY_PAIRS: Call = Call { name: "scipy query_pairs", flag: "--query-pairs" };
const BALL_POINT: Call = Call { name: "scipy query_ball_point", flag: "--query-ball-point" };
const SKLEARN: Call = Call { name: "scikit-learn", flag: "--sklearn" };

/// The interpreter, or why there is none.
pub(crate) struct Python {
    interpreter: PathBuf,
    found: std::result::Result<String, String>,
}

impl Python {
    /// Tries the imports.
    pub(crate) fn find(options: &Options) -> Self {
        let interpreter = options.python.clone();
        let found = if options.peers.scipy || options.peers.sklearn {
            let output = Command::new(&interpreter).args(["-c", VERSIONS]).output();
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

    /// Runs the chosen calls on a case.
    pub(super) fn run(
        &self,
        workload: &Workload,
        pairs: u64,
        options: &Options,
    ) -> Result<Vec<Peer>> {
        let many = (pairs > MOST_PAIRS)
            .then(|| format!("needs too much memory over {} pairs", grouped(MOST_PAIRS)));
        let mut chosen = Vec::new();
        if options.peers.scipy {
            // 16 bytes for each unordered pair, in a vector that grows by doubling.
            chosen.push((QUERY_PAIRS, too_large(20 * pairs)));
            chosen.push((BALL_POINT, many.clone()));
        }
        if options.peers.sklearn {
            chosen.push((SKLEARN, many));
        }
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        let file = PointFile::write(workload)?;
        let mut peers = Vec::new();
        for (call, skip) in chosen {
            let missing = || "see the line on peers in Python".to_owned();
            let skip = skip.or_else(|| self.found.is_err().then(missing));
            let outcome = match skip {
                Some(reason) => Outcome::Skipped(reason),
                None => {
                    eprintln!("{}: {}", workload.case.name, call.name);
                    self.call(&call, &file, workload, options.peer_reps)?
                }
            };
            peers.push(Peer { name: call.name, answer: Answer::Lists, outcome });
        }
        Ok(peers)
    }

    /// Runs the script for one call: a process each, so that one that runs out of memory
    /// takes no other with it.
    fn call(
        &self,
        call: &Call,
        file: &PointFile,
        workload: &Workload,
        reps: usize,
    ) -> Result<Outcome> {
        let output = Command::new(&self.interpreter)
            .args(["-c", SCRIPT])
            .arg(&file.path)
            .args([workload.points.to_string(), workload.dimension().to_string()])
            .args([workload.eps.to_string(), format!("--reps={reps}"), call.flag.to_owned()])
            .stderr(Stdio::piped())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let times = text.lines().next().and_then(|line| {
            let seconds = json_number(line, "seconds")?.parse().ok()?;
            let pairs = json_number(line, "pairs")?.parse().ok()?;
            Some(Timed { seconds, pairs })
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

/// The points as little-endian f64, row-major, for as long as this value lives.
struct PointFile {
    path: PathBuf,
}

impl PointFile {
    fn write(workload: &Workload) -> Result<Self> {
        let name = format!("nearjoin-bench-{}-{}.f64", workload.case.name, std::process::id());
        let file = PointFile { path: std::env::temp_dir().join(name) };
        let mut out = BufWriter::new(File::create(&file.path)?);
        for x in &workload.data {
            out.write_all(&x.to_le_bytes())?;
        }
        out.flush()?;
        Ok(file)
    }
}

impl Drop for PointFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::json_number;

    #[test]
    fn numbers_of_a_line() {
        let line = r#"{"peer": "scipy", "seconds": 0.25, "pairs": 12}"#;
        assert_eq!(json_number(line, "seconds"), Some("0.25"));
        assert_eq!(json_number(line, "pairs"), Some("12"));
        assert_eq!(json_number(line, "points"), None);
    }
}
