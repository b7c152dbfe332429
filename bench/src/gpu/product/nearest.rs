//! The nearest in many dimensions: matrix products beside brute force, PyTorch and CuPy.

use std::process::Command;

use nearjoin::sink::Neighbors;
use nearjoin::{Device, KnnJoin, Strategy};

use super::super::data::Law;
use super::super::knn::cases::{Case, law, shape};
use super::super::knn::measure::{call, same};
use super::super::knn::peers::Cupy;
use super::super::measure::{Timed, best};
use super::super::{Failures, Target};
use super::SCRIPT;
use crate::Result;
use crate::args::Options;
use crate::peers::{Npy, Outcome, outcome};
use crate::table::{Table, grouped, milliseconds, times};
use crate::workload::Shape;

/// The cases, and the milliseconds that each may take on an H200.
pub(crate) const CASES: [(Case, Option<f64>); 7] = [
    (law("normal128-k10", Law::Normal, 128, 10).points(100_000).with_peers(), Some(14.0)),
    (law("normal128-k100", Law::Normal, 128, 100).points(100_000), None),
    (law("normal128-k1000", Law::Normal, 128, 1000).points(100_000), None),
    (law("normal768-k10", Law::Normal, 768, 10).points(100_000), Some(42.0)),
    (shape("embedding100-k10", Shape::Embedding, 100, 10).points(341_000), Some(120.0)),
    (shape("embedding768-k10", Shape::Embedding, 768, 10).points(100_000), None),
    (law("normal128-1M-k10", Law::Normal, 128, 10).points(1_000_000), Some(640.0)),
];
/// Points up to which PyTorch runs: beyond, it takes tens of seconds.
const LARGEST_FOR_PEERS: usize = 400_000;

/// The section's second table.
pub(super) fn run(
    target: &Target,
    options: &Options,
    torch: bool,
    failures: &mut Failures,
) -> String {
    let cupy = Cupy::find(options);
    let mut table = Table::new(&[
        "f32, ms",
        "points",
        "k",
        "nearest",
        "plan",
        "index",
        "limit",
        "fresh arrays",
        "asked again",
        "auto",
        "auto chose",
        "brute force",
        "brute ÷ nearest",
        "PyTorch",
        "PyTorch ÷ nearest",
        "PyTorch is off by",
        "CuPy",
    ]);
    for (case, limit) in CASES.iter().filter(|(case, _)| options.has_case(case.name)) {
        let row = measure(&case.scaled(options.points), *limit, target, options, torch, &cupy);
        if let Some(row) = failures.keep(case.name, row) {
            eprintln!("{}", row.join(" | "));
            table.row(row);
        }
    }
    format!(
        "\n### The nearest\n\n{table}\n\
         - From checked points in the host's memory to ids and distances in arrays there that are used again,\n  \
         planning included; fresh arrays: the call obtains them.\n\
         - Where brute force or `auto` ran, ids and distances are the same in every bit.\n\
         - Asked again: how often some queries had no room for their candidates.\n\
         - PyTorch: norms and a product in single precision, and top-k of k + 1, in blocks of 8192 rows. Off by: the\n  \
         largest share by which one of its distances differs.\n\
         - CuPy: {cupy}, its kd-tree.\n",
    )
}

fn measure(
    case: &Case,
    limit: Option<f64>,
    target: &Target,
    options: &Options,
    torch: bool,
    cupy: &Cupy,
) -> Result<Vec<String>> {
    let drawn = case.draw::<f32>();
    let sides = drawn.sides()?;
    let by = |strategy| target.on(Device::Gpu, &KnnJoin::new(case.k).strategy(strategy));
    let product = by(Strategy::Product);
    let fresh = best(2, || call(&product, &sides, &mut Neighbors::new()))?;
    let mut found = Neighbors::new();
    let nearest = best(options.reps, || call(&product, &sides, &mut found))?;
    let mut other = Neighbors::new();
    let auto = best(options.reps, || call(&by(Strategy::Auto), &sides, &mut other))?;
    same(&format!("{}, auto", case.name), &other, &found)?;
    let brute = match options.check && case.points <= LARGEST_FOR_PEERS && case.k < 1000 {
        true => Some(call(&by(Strategy::Brute), &sides, &mut other)?),
        false => None,
    };
    if brute.is_some() {
        same(&format!("{}, by products", case.name), &found, &other)?;
    }
    let has_peer = case.points <= LARGEST_FOR_PEERS;
    let in_pytorch = match torch && has_peer {
        true => ran(in_pytorch(case, &drawn.data, found.distances(), options)?),
        false => None,
    };
    let in_cupy = match cupy.is_there() && case.has_peers {
        true => {
            let options = Options { reps: 1, ..options.clone() };
            ran(cupy.nearest(case, &drawn.data, found.distances(), &options)?)
        }
        false => None,
    };
    let ms = Some(nearest.ms());
    let brute_ms = brute.as_ref().map(Timed::ms);
    let torch_ms = in_pytorch.map(|(ms, _)| ms);
    let stats = &nearest.stats;
    let gpu = stats.gpu.clone().unwrap_or_default();
    Ok(vec![
        case.name.into(),
        case.size(),
        grouped(case.k as u64),
        milliseconds(ms),
        milliseconds(Some(stats.plan.as_secs_f64() * 1e3)),
        milliseconds(Some(stats.index.as_secs_f64() * 1e3)),
        milliseconds(limit),
        milliseconds(Some(fresh.ms())),
        gpu.splits.to_string(),
        milliseconds(Some(auto.ms())),
        auto.stats.strategy.to_string(),
        milliseconds(brute_ms),
        times(brute_ms, ms),
        milliseconds(torch_ms),
        times(torch_ms, ms),
        in_pytorch.map_or("–".into(), |(_, share)| format!("{share:.1e}")),
        milliseconds(in_cupy.map(|(ms, _)| ms)),
    ])
}

/// The milliseconds, and what was found.
fn ran(outcome: Outcome<f64>) -> Option<(f64, f64)> {
    match outcome {
        Outcome::Ran(timed) => Some((timed.seconds * 1e3, timed.found)),
        Outcome::Skipped(_) => None,
    }
}

fn in_pytorch(
    case: &Case,
    data: &[f32],
    distances: &[f32],
    options: &Options,
) -> Result<Outcome<f64>> {
    let points = Npy::write(case.name, data, case.dimension)?;
    let distances = Npy::write(&format!("{}-distances", case.name), distances, case.k)?;
    eprintln!("{}: PyTorch", case.name);
    let mut command = Command::new(&options.python);
    command.args(["-c", SCRIPT]).args([&points.path, &distances.path]);
    outcome(command.arg(format!("--reps={}", options.reps.min(3))))
}
