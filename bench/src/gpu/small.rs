//! Every kernel on a few points, each answer compared with the CPU's: what a sanitizer watches.

mod knn;

use std::fmt::Debug;
use std::time::Instant;

use nearjoin::gpu::{Cooperation, GpuOptions, Knobs, Schedule};
use nearjoin::sink::{Count, CsrSink, Degrees, Pairs};
use nearjoin::{
    Csr, Device, DuplicateRemoval, EpsJoin, Indexed, Metric, Plan, Points, Scalar, Strategy,
};

use super::Target;
use super::data::{self, Law};
use crate::Result;
use crate::args::Options;
use crate::workload::{self, Shape};

const POINTS: usize = 200;
const STRATEGIES: [Strategy; 3] = [Strategy::Grid, Strategy::Brute, Strategy::Directory];
/// How threads share the work, and how many have a query.
const THREADS: [(Cooperation, usize); 3] =
    [(Cooperation::Cell, 1), (Cooperation::Thread, 1), (Cooperation::Thread, 4)];
const SCHEDULES: [Schedule; 3] =
    [Schedule::IndexOrder, Schedule::SortByWorkload, Schedule::WorkQueue];
const REMOVALS: [DuplicateRemoval; 4] = [
    DuplicateRemoval::None,
    DuplicateRemoval::LinearCoord,
    DuplicateRemoval::Unicomp,
    DuplicateRemoval::LidUnicomp,
];
/// Few, as a driver compiles modules for each, and a sanitizer makes that slow. The second
/// dimension has no modules of its own.
const SPACES: [(usize, Metric); 2] = [(3, Metric::L2), (9, Metric::L1)];
/// Dimensions for products: a tile stays where it is, or comes in steps.
const PRODUCTS: [usize; 2] = [20, 150];

/// A way to go about a join, and what is joined.
#[derive(Clone, Copy, Debug)]
struct Trial {
    wide: bool,
    strategy: Strategy,
    threads: (Cooperation, usize),
    schedule: Schedule,
    removal: DuplicateRemoval,
    dimension: usize,
    metric: Metric,
    law: Law,
    two_sets: bool,
    listed: bool,
    boxes: bool,
    batch_bytes: Option<u64>,
    partitions: Option<usize>,
    /// ε for a lattice, with so many cells that only those with points are kept.
    sparse: Option<f64>,
}

/// Every strategy with every cooperation, in both types, and sparse grids. The rest changes from
/// one to the next.
fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for wide in [false, true] {
        for (row, strategy) in STRATEGIES.into_iter().enumerate() {
            for (column, threads) in THREADS.into_iter().enumerate() {
                let turn = row + column;
                let (dimension, metric) = SPACES[(turn / 2 + usize::from(wide)) % 2];
                trials.push(Trial {
                    wide,
                    strategy,
                    threads,
                    schedule: SCHEDULES[turn % 3],
                    removal: REMOVALS[turn % 4],
                    dimension,
                    metric,
                    law: if row == 1 { Law::Exponential } else { Law::Uniform },
                    two_sets: column == (row + 2) % 3,
                    listed: (turn + usize::from(wide)) % 2 == 1,
                    boxes: turn % 2 == 0,
                    batch_bytes: (column == 2).then_some(20_000),
                    partitions: (row == 0 && column == 2).then_some(2),
                    sparse: None,
                });
            }
        }
        // Cells numbered by 32 and by 64 bits.
        let first = trials[trials.len() - STRATEGIES.len() * THREADS.len()];
        for ((dimension, metric), eps) in SPACES.into_iter().zip([1e-5, 1e-9]) {
            trials.push(Trial { dimension, metric, sparse: Some(eps), ..first });
        }
        // Many tests for a pair, which is then found once.
        let (strategy, removal) = (Strategy::Brute, DuplicateRemoval::LidUnicomp);
        let ((dimension, metric), sparse) = (SPACES[0], Some(1e-5));
        trials.push(Trial { dimension, metric, strategy, removal, sparse, listed: false, ..first });
        // Products of one set and of two, in batches and in parts.
        let (strategy, metric) = (Strategy::Product, Metric::L2);
        for (dimension, two_sets) in
            PRODUCTS.into_iter().flat_map(|dim| [(dim, false), (dim, true)])
        {
            let batch_bytes = two_sets.then_some(20_000);
            let partitions = (dimension == PRODUCTS[1]).then_some(2);
            let law = Law::Uniform;
            let product = Trial { dimension, two_sets, batch_bytes, partitions, law, ..first };
            trials.push(Trial { strategy, metric, ..product });
        }
    }
    trials
}

/// The section. The second is false if an answer is wrong.
pub(super) fn run(target: &Target, options: &Options) -> Result<(String, bool)> {
    let points = options.points.unwrap_or(POINTS);
    let (within, nearest) = (trials(), knn::trials());
    let (tried, of_nearest) = (within.len(), nearest.len());
    let mut watched = Watched { start: Instant::now(), tried: 0, wrong: String::new() };
    for trial in &within {
        watched.run(trial, || match trial.wide {
            false => compare::<f32>(trial, target, points),
            true => compare::<f64>(trial, target, points),
        });
    }
    for trial in &nearest {
        watched.run(trial, || match trial.wide {
            false => knn::compare::<f32>(trial, target, points),
            true => knn::compare::<f64>(trial, target, points),
        });
    }
    let mut wrong = watched.wrong;
    let right = wrong.is_empty();
    if right {
        wrong = "All of them are right.\n".into();
    }
    let text = format!(
        "## Every kernel on {points} points\n\n\
         {tried} ways to join within ε, each for CSR (sorted, with distances, and not), degrees, a\n\
         count, and pairs once; and {of_nearest} ways to find the nearest; beside the CPU.\n\n{wrong}"
    );
    Ok((text, right))
}

/// Trials, and what is wrong with them.
struct Watched {
    start: Instant,
    tried: usize,
    wrong: String,
}

impl Watched {
    fn run(&mut self, trial: &dyn Debug, compare: impl FnOnce() -> Result<()>) {
        self.tried += 1;
        eprintln!("{:.1} s: {}, {trial:?}", self.start.elapsed().as_secs_f64(), self.tried);
        if let Err(reason) = compare() {
            self.wrong += &format!("- {trial:?}: **{reason}**\n");
        }
    }
}

fn compare<T: Scalar>(trial: &Trial, target: &Target, points: usize) -> Result<()> {
    let dimension = trial.dimension;
    let (data, eps): (Vec<T>, f64) = match trial.sparse {
        Some(eps) => (lattice(points, dimension), eps),
        None => (data::draw(trial.law, points, dimension), distance(trial, points)),
    };
    let (left, right) = match trial.two_sets {
        true => data.split_at(points / 3 * dimension),
        false => (&data[..], &data[..0]),
    };
    let (left, right) = (Points::new(left, dimension)?, Points::new(right, dimension)?);
    let plan = |join: EpsJoin| {
        let join = join.metric(trial.metric).include_self(trial.listed);
        match trial.two_sets {
            true => join.plan(&left, &right),
            false => join.plan_self(&left),
        }
    };
    let expected = plan(EpsJoin::new(eps).device(Device::Cpu))?;

    let (cooperation, threads) = trial.threads;
    let gpu = GpuOptions::new().cooperation(cooperation).schedule(trial.schedule);
    let gpu = match cooperation {
        Cooperation::Thread => gpu.threads_per_query(threads),
        _ => gpu,
    };
    let gpu = match trial.batch_bytes {
        Some(bytes) => gpu.batch_bytes(bytes),
        None => gpu,
    };
    let (listed, boxes) = (Some(trial.listed), Some(trial.boxes));
    let knobs = Knobs { listed, boxes, partitions: trial.partitions, ..Knobs::default() };
    let join = target.join_with(eps, gpu, knobs).strategy(trial.strategy);
    // The parts of the default directory are far more than the points.
    let found = plan(join.duplicate_removal(trial.removal).directory(2, 4))?;
    same(&found, &expected)
}

/// A lattice, each place twice.
fn lattice<T: Scalar>(points: usize, dimension: usize) -> Vec<T> {
    let places = workload::draw(Shape::Lattice, points / 2, dimension);
    places.into_iter().map(T::from_f64).collect::<Vec<_>>().repeat(2)
}

/// A distance within which a point has some tens of neighbours.
fn distance(trial: &Trial, points: usize) -> f64 {
    if trial.strategy == Strategy::Product {
        // Distances of many dimensions differ little from this, as the last term says.
        return 100.0 * ((trial.dimension as f64 / 6.0).sqrt() - 0.24);
    }
    let share = (30.0 / points as f64).min(1.0).powf(1.0 / trial.dimension as f64);
    let side = match trial.law {
        Law::Uniform => 100.0,
        Law::Exponential => 1.0 / 20.0,
        Law::Normal | Law::Lognormal => 3.0,
    };
    let corners = match trial.metric {
        Metric::L1 => trial.dimension as f64 / 2.0,
        _ => 0.75,
    };
    side * share * corners.max(0.5)
}

/// Compares every answer of two plans, in every bit. Both index their points once: a sanitizer makes
/// that slow.
fn same<T: Scalar>(found: &Plan<'_, T>, expected: &Plan<'_, T>) -> Result<()> {
    let (found, expected) = (&found.index()?, &expected.index()?);
    let sorted = || CsrSink::new().sorted(true).distances(true);
    let right = csr(expected, sorted())?;
    let ours = csr(found, sorted())?;
    check("offsets", ours.offsets() == right.offsets())?;
    check("ids", ours.ids() == right.ids())?;
    check("distances", ours.distances() == right.distances())?;

    let (offsets, mut ids, _) = csr(found, CsrSink::new())?.into_parts();
    check("offsets without distances", offsets[..] == *right.offsets())?;
    for row in offsets.windows(2) {
        ids[row[0] as usize..row[1] as usize].sort_unstable();
    }
    check("ids without distances", ids[..] == *right.ids())?;

    let mut degrees = Degrees::new();
    found.run(&mut degrees)?;
    let lengths = right.offsets().windows(2).map(|row| row[1] - row[0]);
    check("degrees", degrees.as_slice().iter().copied().eq(lengths))?;

    let mut count = Count::new();
    found.run(&mut count)?;
    check("the count", count.pairs() == right.pairs())?;

    let columns = |join: &Indexed<'_, T>| -> Result<_> {
        let mut pairs = Pairs::new().half(true).sorted(true).distances(true);
        join.run(&mut pairs)?;
        Ok(pairs.into_columns())
    };
    check("pairs", columns(found)? == columns(expected)?)
}

fn csr<T: Scalar>(join: &Indexed<'_, T>, mut sink: CsrSink<T>) -> Result<Csr<T>> {
    join.run(&mut sink)?;
    Ok(sink.into_csr())
}

fn check(what: &str, same: bool) -> Result<()> {
    if same { Ok(()) } else { Err(format!("{what} are not the CPU's").into()) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use nearjoin_simt::Simt;

    /// Modules that are the same for all dimensions, or for those of their tile.
    const ONE_FOR_ALL: [&str; 9] =
        ["decide", "halves", "index", "product", "rows", "scores", "shortlist", "sort", "tree"];

    #[test]
    fn every_kernel_runs_in_both_types() {
        let simt = Simt::new();
        let target = Target { driver: Some(Arc::new(simt.clone())) };
        let options = crate::args::parse(["--gpu-small".into()]).unwrap();
        let (text, right) = run(&target, &options).unwrap();
        assert!(right, "{text}");
        // A kernel may run in either space; those by query are the same for all dimensions.
        let other = "_0_magnitudes";
        let not_run = simt.kernels_not_run();
        let missed = not_run.iter().filter(|(module, name)| {
            let one = if module.starts_with("query") { "_0_squares" } else { "_4_squares" };
            match module.strip_suffix(one) {
                Some(family) => not_run.contains(&(format!("{family}{other}"), name.clone())),
                None => ONE_FOR_ALL.iter().any(|name| module.starts_with(name)),
            }
        });
        let missed: Vec<String> = missed.map(|(module, name)| format!("{module} {name}")).collect();
        // f32 has nothing narrower, and dense cells of 64 bits need more points.
        let expected = [
            "index_f32 cell_counts_u64",
            "index_f32 gather_narrow",
            "index_f32 narrow_boxes",
            "index_f64 cell_counts_u64",
        ];
        assert_eq!(missed, expected);
    }
}
