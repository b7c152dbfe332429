//! `nearjoin estimate`: which ε gives how many neighbours, so that nobody guesses ε.

use nearjoin::{Device, EpsJoin, NeighborCurve};
use nearjoin_io::DType;

use crate::args::{self, When};
use crate::failure::{Failure, Result, say, tell};
use crate::interrupt;
use crate::load::{Held, Sides};
use crate::number;
use crate::options;
use crate::plot;
use crate::progress::{Board, Shown};
use crate::system;

pub(crate) fn run(args: &args::Estimate) -> Result {
    let sources = options::sources(&args.input)?;
    if let Some(wrong) = args.neighbors.iter().find(|n| !(n.is_finite() && **n > 0.0)) {
        return Err(Failure::usage(format!(
            "--neighbors {wrong}: it must be a number more than 0"
        )));
    }
    let board = Board::default();
    interrupt::watch(&board.monitor)?;
    options::use_threads(args.threads)?;
    let shown = Shown::new(&board, When::Auto, args.quiet, false);
    let sides = Sides::load(&sources, &board)?;
    if !args.quiet {
        sides.warn_of_angles();
    }
    board.joining(1, None);
    let answer = match sides.dtype() {
        DType::F32 => table::<f32>(args, &sides),
        DType::F64 => table::<f64>(args, &sides),
    }?;
    drop(shown);
    say(answer)
}

fn table<T: Held>(args: &args::Estimate, sides: &Sides) -> Result<String> {
    let (left, right) = sides.points::<T>()?;
    let curve = match &right {
        None => NeighborCurve::of_self(&left, args.metric),
        Some(right) => NeighborCurve::of(&left, right, args.metric),
    }?;
    let mut lines = vec![format!(
        "{:>12} {:>14} {:>12} {:>12} {:>10} {:>10}",
        "neighbours", "ε", "pairs", "as CSR", "to count", "to list"
    )];
    let mut marks = Vec::new();
    let mut devices = Vec::new();
    for &wanted in &args.neighbors {
        let Some(eps) = curve.eps(wanted) else {
            lines.push(format!("{wanted:>12} {:>14}", "more than there are points"));
            continue;
        };
        let mut join = EpsJoin::new(eps).metric(args.metric);
        if let Some(threads) = args.threads {
            join = join.threads(threads.0 as usize);
        }
        let plan = match &right {
            None => join.plan_self(&left),
            Some(right) => join.plan(&left, right),
        }?;
        devices.push(plan.device());
        // Where points tie, ε gives more than was wanted.
        let pairs = curve.neighbors(eps) * left.len() as f64;
        let (count, list) = plan.estimated_seconds();
        lines.push(format!(
            "{wanted:>12} {:>14} {:>12} {:>12} {:>10} {:>10}",
            number::significant(eps),
            number::estimate(pairs),
            number::bytes((pairs * 4.0 + left.len() as f64 * 8.0) as u64),
            number::seconds(count),
            number::seconds(list),
        ));
        marks.push((eps, wanted, wanted.to_string()));
    }
    if args.plot {
        let (width, height) = system::terminal();
        let points = around(&curve.points().collect::<Vec<_>>(), &marks);
        lines.push(String::new());
        lines.push(plot::curve(
            &points,
            &marks,
            width.min(100),
            height.clamp(12, 24),
            !system::speaks_unicode(),
        ));
    }
    if !args.quiet {
        let (points, dim) = (number::count(left.len() as u64), left.dimension());
        let times = match devices.iter().filter(|device| **device != Device::Cpu).count() {
            0 => "",
            all if all == devices.len() => "; times are those with the GPU",
            _ => "; times are those with the GPU where that is faster",
        };
        tell(format!("a sample of {points} points in {dim} dimensions{times}"));
    }
    Ok(lines.join("\n"))
}

/// The part of the curve that is worth looking at: one neighbour to all of them, and what was
/// asked for.
fn around(points: &[(f64, f64)], marks: &[(f64, f64, String)]) -> Vec<(f64, f64)> {
    let least = marks.iter().map(|mark| mark.1 / 4.0).fold(1.0, f64::min);
    let widest = points.last().map_or(0.0, |point| point.0);
    let worth = |point: &(f64, f64)| point.1 >= least && point.0 > 1e-9 * widest;
    points.iter().copied().filter(worth).collect()
}
