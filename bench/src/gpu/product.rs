//! Many dimensions on a GPU: matrix products beside brute force, and beside PyTorch.

pub(crate) mod nearest;

use std::process::Command;

use nearjoin::gpu::GpuOptions;
use nearjoin::{EpsJoin, Points, Strategy};

use super::data::{Law, draw};
use super::knn::peers::versions_of;
use super::measure::{Timed, best, count, degrees, fresh, reused};
use super::{Failures, Target};
use crate::Result;
use crate::args::Options;
use crate::peers::{Npy, Outcome, outcome};
use crate::table::{Table, grouped, milliseconds, times};

const SCRIPT: &str = include_str!("../../gpu_product_peers.py");

/// Points of a normal law, and the milliseconds that a count and a CSR may take from the host's memory
/// to the host's on an H200.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    points: usize,
    dimension: usize,
    limits: [Option<f64>; 2],
}

pub(crate) const CASES: [Case; 4] = [
    Case { name: "normal64", points: 100_000, dimension: 64, limits: [Some(4.0), None] },
    Case { name: "normal128", points: 100_000, dimension: 128, limits: [Some(6.0), Some(10.0)] },
    Case { name: "normal768", points: 100_000, dimension: 768, limits: [Some(30.0), None] },
    Case { name: "normal128-1M", points: 1_000_000, dimension: 128, limits: [None, None] },
];

/// Points up to which counts are compared with brute force.
const LARGEST_CHECKED: usize = 200_000;
/// Rows whose distances from all points say which ε has how many neighbours.
const SAMPLE: usize = 64;
/// Neighbours of a point: of a count, and of rows.
const NEIGHBORS: [f64; 2] = [1.0, 10.0];

/// The section.
pub(super) fn run(target: &Target, options: &Options) -> Result<(String, bool)> {
    let python = &options.python;
    let torch = match options.peers.torch {
        true => versions_of(python, SCRIPT),
        false => Err("not asked for".into()),
    };
    let mut failures = Failures::default();
    let mut table = Table::new(&[
        "f32, ms",
        "points",
        "count",
        "plan",
        "index",
        "limit",
        "brute force",
        "brute ÷ count",
        "auto",
        "auto chose",
        "PyTorch",
        "PyTorch ÷ count",
        "degrees",
        "pairs",
        "CSR",
        "limit",
        "CSR, fresh",
        "neighbours",
    ]);
    for case in CASES.iter().filter(|case| options.has_case(case.name)) {
        let row = measure(case, target, options, torch.is_ok());
        if let Some(row) = failures.keep(case.name, row) {
            eprintln!("{}", row.join(" | "));
            table.row(row);
        }
    }
    let nearest = nearest::run(target, options, torch.is_ok(), &mut failures);
    let torch = torch.unwrap_or_else(|reason| format!("no PyTorch ({reason})"));
    let text = format!(
        "## Many dimensions on the GPU\n\n{table}\n\
         - Milliseconds, best of {} calls after one that does not count, from checked points in the host's\n  \
         memory to the answer there, planning included. Counts at about {} neighbour, rows at about {}.\n\
         - Counts by products are those of brute force, where that was run.\n\
         - {torch}: norms and a product in single precision, compared in blocks of 8192 rows; its counts\n  \
         are not exact.\n{nearest}",
        options.reps, NEIGHBORS[0], NEIGHBORS[1],
    );
    Ok((text + &failures.0, failures.none()))
}

fn measure(case: &Case, target: &Target, options: &Options, torch: bool) -> Result<Vec<String>> {
    let n = options.points.map_or(case.points, |all| all * case.points / 2_000_000);
    let data = draw::<f32>(Law::Normal, n, case.dimension);
    let points = Points::new(&data, case.dimension)?;
    let [one, ten] = epsilons(&points);
    let by = |strategy, eps| -> EpsJoin { target.join(eps, GpuOptions::new()).strategy(strategy) };
    let product = by(Strategy::Product, one);
    let counted = best(options.reps, || count(&product, &points))?;
    let auto = best(options.reps, || count(&by(Strategy::Auto, one), &points))?;
    // A minute for a million points: the others are enough.
    let brute = match options.check && n <= LARGEST_CHECKED {
        true => Some(best(1, || count(&by(Strategy::Brute, one), &points))?),
        false => None,
    };
    if let Some(brute) = brute.as_ref().filter(|brute| brute.stats.pairs != counted.stats.pairs) {
        return Err(format!("{} pairs, not {}", counted.stats.pairs, brute.stats.pairs).into());
    }
    let degrees = best(options.reps, || degrees(&product, &points))?;
    let rows = by(Strategy::Product, ten);
    let (first, mut arrays) = fresh(&rows, &points)?;
    let csr = best(options.reps, || reused(&rows, &points, &mut arrays))?;
    let peer_ms = match torch && case.points < 1_000_000 {
        true => match in_pytorch(case, &data, one, options)? {
            Outcome::Ran(timed) => Some(timed.seconds * 1e3),
            Outcome::Skipped(_) => None,
        },
        false => None,
    };
    let ms = Some(counted.ms());
    let brute_ms = brute.as_ref().map(Timed::ms);
    Ok(vec![
        case.name.into(),
        grouped(n as u64),
        milliseconds(ms),
        milliseconds(Some(counted.stats.plan.as_secs_f64() * 1e3)),
        milliseconds(Some(counted.stats.index.as_secs_f64() * 1e3)),
        milliseconds(case.limits[0]),
        milliseconds(brute_ms),
        times(brute_ms, ms),
        milliseconds(Some(auto.ms())),
        auto.stats.strategy.to_string(),
        milliseconds(peer_ms),
        times(peer_ms, ms),
        milliseconds(Some(degrees.ms())),
        grouped(counted.stats.pairs),
        milliseconds(Some(csr.ms())),
        milliseconds(case.limits[1]),
        milliseconds(Some(first.ms())),
        format!("{:.1}", csr.stats.pairs as f64 / n as f64),
    ])
}

/// The ε at which points have so many neighbours, by some of them.
pub(crate) fn epsilons(points: &Points<'_, f32>) -> [f64; 2] {
    let step = points.len().div_ceil(SAMPLE).max(1);
    let mut squares: Vec<f32> = (0..points.len())
        .step_by(step)
        .flat_map(|row| {
            let (x, others) = (points.row(row), (0..points.len()).filter(move |&at| at != row));
            let square = move |at: usize| -> f32 {
                x.iter().zip(points.row(at)).map(|(x, y)| (x - y) * (x - y)).sum()
            };
            others.map(square)
        })
        .collect();
    let rows = points.len().div_ceil(step) as f64;
    NEIGHBORS.map(|neighbors| {
        let rank = ((rows * neighbors) as usize).min(squares.len() - 1);
        f64::from(squares.select_nth_unstable_by(rank, f32::total_cmp).1.sqrt())
    })
}

fn in_pytorch(case: &Case, data: &[f32], eps: f64, options: &Options) -> Result<Outcome<f64>> {
    let points = Npy::write(case.name, data, case.dimension)?;
    eprintln!("{}: PyTorch", case.name);
    let mut command = Command::new(&options.python);
    command.args(["-c", SCRIPT]).arg(&points.path);
    outcome(command.args([format!("--eps={eps}"), format!("--reps={}", options.reps)]))
}
