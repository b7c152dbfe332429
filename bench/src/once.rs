//! One call in a process of its own: what a program that joins once will see.
//!
//! The first call starts the threads and touches every page for the first time, and only
//! a fresh process has a peak of memory that is this call's alone. So the parent runs
//! itself with `--once` and reads one line.

use std::fmt;
use std::fs;
use std::process::{Command, Stdio};
use std::str::FromStr;

use nearjoin::Strategy;

use crate::Result;
use crate::args::{Join, Options};
use crate::compare::Compared;
use crate::fresh::touch_elsewhere;
use crate::machine::process_memory;
use crate::table::{Table, grouped, mebibytes, seconds};
use crate::workload::Case;

/// What one call took.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Once {
    pub(crate) seconds: f64,
    pub(crate) pairs: u64,
    pub(crate) strategy: Strategy,
    /// Resident bytes before the call, with the points in memory.
    before: u64,
    /// The most resident bytes during the call.
    peak: u64,
    input: u64,
    index: u64,
    result: u64,
}

impl Once {
    /// One call in this process, on the case of this name.
    pub(crate) fn here<J: Compared>(name: &str, points: Option<usize>) -> Result<Self> {
        let case = Case::<J::Ask>::all().find(|case| case.name == name).ok_or("no such case")?;
        let workload = case.workload(points);
        // Forget the peak that making the points left; where the system does not allow
        // it, the peak is an upper bound.
        let _ = fs::write("/proc/self/clear_refs", "5");
        let before = process_memory("VmRSS").unwrap_or(0);
        let (seconds, stats) = J::once(&workload)?;
        Ok(Once {
            seconds,
            pairs: stats.pairs,
            strategy: stats.strategy,
            before,
            peak: process_memory("VmHWM").unwrap_or(0),
            input: size_of_val(&workload.data[..]) as u64,
            index: stats.index_bytes,
            result: stats.result_bytes,
        })
    }

    /// The first call, and the seconds to touch as much memory as its result has, in fresh processes:
    /// the better of two, in turn. A virtual machine may have to get memory from its host, which
    /// takes several times as long; the second of each finds what those before it have left.
    pub(crate) fn beside_touch(name: &str, options: &Options) -> Result<(Self, f64)> {
        let round = || -> Result<(Self, f64)> {
            let once = Once::elsewhere(name, options)?;
            let touch = touch_elsewhere(once.result)?;
            Ok((once, touch))
        };
        let ((one, touch), (other, touch_again)) = (round()?, round()?);
        let better = if other.seconds < one.seconds { other } else { one };
        Ok((better, touch.min(touch_again)))
    }

    /// The same in a fresh process.
    pub(crate) fn elsewhere(name: &str, options: &Options) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--once", name]).stderr(Stdio::inherit());
        if options.join == Join::Knn {
            command.arg("--knn");
        }
        if let Some(points) = options.points {
            command.args(["--points", &points.to_string()]);
        }
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!("--once {name} failed: {}", output.status).into());
        }
        String::from_utf8(output.stdout)?.trim().parse()
    }
}

impl fmt::Display for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Once { seconds, pairs, strategy, before, peak, input, index, result } = self;
        write!(f, "{seconds} {pairs} {strategy} {before} {peak} {input} {index} {result}")
    }
}

impl FromStr for Once {
    type Err = Box<dyn std::error::Error>;

    fn from_str(line: &str) -> Result<Self> {
        let [seconds, pairs, strategy, before, peak, input, index, result] =
            line.split(' ').collect::<Vec<_>>()[..]
        else {
            return Err(format!("not the line of --once: {line:?}").into());
        };
        Ok(Once {
            seconds: seconds.parse()?,
            pairs: pairs.parse()?,
            strategy: strategy.parse()?,
            before: before.parse()?,
            peak: peak.parse()?,
            input: input.parse()?,
            index: index.parse()?,
            result: result.parse()?,
        })
    }
}

/// The memory section.
pub(crate) fn memory(options: &Options) -> Result<String> {
    let mut table = Table::new(&[
        "case",
        "pairs",
        "first call, s",
        "before, MiB",
        "peak, MiB",
        "added, MiB",
        "input, MiB",
        "index, MiB",
        "result, MiB",
        "(added − result) ÷ input",
    ]);
    for name in &options.cases {
        let once = Once::elsewhere(name, options)?;
        let added = once.peak.saturating_sub(once.before);
        let scratch = added.saturating_sub(once.result) as f64 / once.input as f64;
        table.row(vec![
            name.clone(),
            grouped(once.pairs),
            seconds(Some(once.seconds)),
            mebibytes(once.before),
            mebibytes(once.peak),
            mebibytes(added),
            mebibytes(once.input),
            mebibytes(once.index),
            mebibytes(once.result),
            format!("{scratch:.2}"),
        ]);
    }
    let call = match options.join {
        Join::Eps => {
            "One CSR call of f64 points (one count for `clustered`), each in a fresh process."
        }
        Join::Knn => "One call of f64 points for ids and distances, each in a fresh process.",
    };
    Ok(format!(
        "## Memory\n\n{table}\n{call}\n\
         Before and peak are VmRSS and VmHWM of that process, the points included; index and\n\
         result are what the engine reports.\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_back() {
        let once = Once::here::<crate::knn::Ours>("uniform4-k8", Some(1000)).unwrap();
        assert_eq!(once.pairs, 8000);
        assert_eq!(once, once.to_string().parse().unwrap());
        assert!("1 2 3".parse::<Once>().is_err());
    }
}
