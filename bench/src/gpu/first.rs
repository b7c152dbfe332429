//! The first call of a fresh process: the driver is loaded and the device opened by it.

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use nearjoin::Points;
use nearjoin::gpu::GpuOptions;

use super::cases::{CASES, FIRST_CALL, STANDARD};
use super::{Child, Failures, Target, data, measure};
use crate::Result;
use crate::args::Options;
use crate::call::agree;
use crate::table::{Table, milliseconds, times};

/// What the first two calls of a process took, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct First {
    first: f64,
    second: f64,
    pairs: u64,
}

impl fmt::Display for First {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.first, self.second, self.pairs)
    }
}

impl FromStr for First {
    type Err = Box<dyn std::error::Error>;

    fn from_str(line: &str) -> Result<Self> {
        let [first, second, pairs] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("not the line of --gpu-first: {line:?}").into());
        };
        Ok(First { first: first.parse()?, second: second.parse()?, pairs: pairs.parse()? })
    }
}

/// Two counts in this process, which must not have joined before.
pub(super) fn here(name: &str, target: &Target, options: &Options) -> Result<First> {
    let case = CASES.iter().find(|case| case.set.name == name).ok_or("no such case")?;
    let set = case.set.scaled(options.points);
    let data: Vec<f32> = data::draw(set.law, set.points, set.dimension);
    let points = Points::new(&data, set.dimension)?;
    let start = Instant::now();
    let join = target.join(set.eps(), GpuOptions::new());
    let pairs = measure::count(&join, &points)?.stats.pairs;
    let first = start.elapsed().as_secs_f64() * 1e3;
    let again = measure::count(&join, &points)?;
    agree("the second call", again.stats.pairs, pairs)?;
    Ok(First { first, second: again.ms(), pairs })
}

/// The table, each case in a process of its own.
pub(super) fn run(options: &Options, failures: &mut Failures) -> String {
    let mut table = Table::new(&["first count, ms", "first", "second", "more", "limit", "÷ limit"]);
    for case in CASES.iter().filter(|case| options.has_case(case.set.name)) {
        let name = case.set.name;
        let line = Child::First(name.into()).run(options);
        let first = line.and_then(|line| line.trim().parse::<First>());
        let Some(first) = failures.keep(name, first) else { continue };
        let more = first.first - first.second;
        let limit = (options.points.unwrap_or(STANDARD) == STANDARD).then_some(FIRST_CALL);
        table.row(vec![
            name.into(),
            milliseconds(Some(first.first)),
            milliseconds(Some(first.second)),
            milliseconds(Some(more)),
            milliseconds(limit),
            times(Some(more), limit),
        ]);
    }
    format!(
        "{table}\n\
         The first call of a fresh process opens the device and loads the kernels; f32 points.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_back() {
        let first = First { first: 400.5, second: 2.25, pairs: 7 };
        assert_eq!(first, first.to_string().parse().unwrap());
        assert!("1 2".parse::<First>().is_err());
    }
}
