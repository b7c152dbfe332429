//! Points made to defeat an index, beside uniform ones of the same number and dimension.

use std::collections::HashMap;

use crate::Result;
use crate::args::Options;
use crate::table::{Table, grouped, seconds, times};
use crate::workload::{Ask, Nearest, Shape, draw};

use super::ours;

/// The adversarial section.
pub(crate) fn run(options: &Options) -> Result<String> {
    let mut table = Table::new(&[
        "case",
        "points",
        "k",
        "strategy",
        "tests per point",
        "nearjoin, s",
        "uniform: tests per point",
        "uniform, s",
        "÷ uniform",
    ]);
    // What uniform points took, by number, dimension and k.
    let mut uniform = HashMap::new();
    for case in options.chosen(Nearest::ADVERSARIAL) {
        eprintln!("{}: nearjoin", case.name);
        let workload = case.workload(options.points);
        let (points, dimension, k) = (workload.points, case.dimension, workload.k());
        let found = ours::best(&workload.data, dimension, k, options.reps)?;
        drop(workload);
        let same = (points, dimension, k);
        let (plain, plain_tests) = match uniform.get(&same) {
            Some(&took) => took,
            None => {
                let data = draw(Shape::Uniform, points, dimension);
                let best = ours::best(&data, dimension, k, options.reps)?;
                let took = (best.seconds, best.tests_per_point());
                uniform.insert(same, took);
                took
            }
        };
        table.row(vec![
            case.name.into(),
            grouped(points as u64),
            k.to_string(),
            found.stats.strategy.to_string(),
            format!("{:.1}", found.tests_per_point()),
            seconds(Some(found.seconds)),
            format!("{plain_tests:.1}"),
            seconds(Some(plain)),
            times(Some(found.seconds), Some(plain)),
        ]);
    }
    Ok(format!(
        "## Adversarial points\n\n{table}\n\
         f64; best of {} calls after one that warms up, of fewer where they take over a minute.\n\
         Uniform: as many points in [0, 100]^d. Tests are distances computed.\n\
         `equal`: all in one place. `duplicates`: 100 in each place. `outlier`: uniform, and one\n\
         at 10¹² in every dimension. `line`: on the diagonal. `lattice`: whole coordinates.\n",
        options.reps
    ))
}
