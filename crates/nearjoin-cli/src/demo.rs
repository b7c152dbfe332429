//! `nearjoin demo`: points made, joined, shown and checked.

use std::time::Instant;

use nearjoin::sink::{Count, CsrSink};
use nearjoin::{Csr, EpsJoin, Metric, NeighborCurve, Points, oracle};

use crate::args::{self, Shape};
use crate::failure::{Failure, Result, say};
use crate::generate;
use crate::number;
use crate::options;
use crate::plot;
use crate::report::{Extent, Histogram};
use crate::system;

/// Average neighbours of a point.
const NEIGHBORS: f64 = 24.0;
/// Rows that are compared with brute force.
const CHECKED: usize = 200;

pub(crate) fn run(args: &args::Demo) -> Result {
    if !(100..=50_000_000).contains(&args.n.0) {
        return Err(Failure::usage(format!("-n {}: it must be 100 to 50,000,000", args.n.0)));
    }
    options::use_threads(None)?;
    let n = args.n.0 as usize;
    let (width, _) = system::terminal();
    let width = width.clamp(40, 80);
    let ascii = !system::speaks_unicode();

    let points = generate::points::<f64>(Shape::Clustered, n, 2, 7)?;
    let points = points.as_points();
    say(format!(
        "{} points in the plane: clusters of all sizes, and a few anywhere.\n",
        number::count(n as u64)
    ))?;
    let rows = || points.as_slice().chunks_exact(2).map(|row| [row[0], row[1]]);
    if let Some(extent) = Extent::of(rows()) {
        say(plot::density(rows(), extent, width, 18, ascii))?;
    }

    let start = Instant::now();
    let curve = NeighborCurve::of_self(&points, Metric::L2)?;
    let eps = curve.eps(NEIGHBORS).unwrap_or(1.0);
    // Two digits are enough for an ε that people will read.
    let eps = format!("{eps:.1e}").parse::<f64>().unwrap_or(eps);
    say(format!(
        "\nWhich ε? A sample says {eps} gives about {NEIGHBORS} neighbours ({:.0} ms).\n",
        start.elapsed().as_secs_f64() * 1e3
    ))?;

    let plan = EpsJoin::new(eps).plan_self(&points)?;
    say(format!("The plan:\n{plan}\n"))?;
    let mut sink = CsrSink::new().sorted(true);
    let stats = plan.run(&mut sink)?;
    let csr = sink.into_csr();
    say(format!("{stats}\n"))?;

    let degrees: Vec<u64> = csr.iter().map(|row| row.len() as u64).collect();
    if let Some(histogram) = Histogram::of(&degrees) {
        let bars: Vec<_> =
            histogram.bins.iter().map(|bin| (histogram.label(bin), bin.points)).collect();
        say("Points by their number of neighbours:")?;
        say(plot::bars(&bars, width, ascii))?;
    }

    let mut count = Count::new();
    let wide = EpsJoin::new(20.0 * eps).plan_self(&points)?;
    let stats = wide.run(&mut count)?;
    let how = match &stats.gpu {
        Some(gpu) => format!(" on the {}", gpu.device),
        None => format!(
            ": {} were taken in whole blocks, without a distance",
            number::count(stats.pairs_taken)
        ),
    };
    say(format!(
        "\nAt ε = {} there are {} pairs. Counting them took {:.0} ms{how}.",
        number::figures(20.0 * eps, 3),
        number::count(count.pairs()),
        stats.total().as_secs_f64() * 1e3,
    ))?;

    let checked = check(&points, &csr, eps)?;
    say(format!(
        "\n{checked} rows were found again by brute force: the same, to the last neighbour.\n\n\
         Now with your own points:\n  \
         nearjoin estimate points.csv --plot\n  \
         nearjoin within points.csv --eps 0.5 -o pairs.parquet\n  \
         nearjoin knn points.csv -k 8 -o neighbours.parquet"
    ))
}

/// Compares rows from all over the input with brute force.
fn check(points: &Points<'_, f64>, csr: &Csr<f64>, eps: f64) -> Result<usize> {
    let n = points.len();
    let checked = CHECKED.min(n);
    let rows: Vec<usize> = (0..checked).map(|k| k * n / checked).collect();
    let queries: Vec<f64> = rows.iter().flat_map(|&row| points.row(row)).copied().collect();
    let queries = Points::new(&queries, 2)?;
    let truth = oracle::eps_join(&queries, points, eps, Metric::L2, false)?;
    for (row, expected) in rows.into_iter().zip(truth) {
        let others = expected.iter().map(|(id, _)| *id).filter(|id| *id as usize != row);
        if !others.eq(csr.ids_of(row).iter().copied()) {
            return Err(Failure::failed(format!("row {row} differs from brute force: a defect")));
        }
    }
    Ok(checked)
}
