//! Every kernel on a few points, each answer compared with the CPU's: what a sanitizer watches.

use nearjoin::sink::{Count, CsrSink, Degrees, Pairs};
use nearjoin::{
    Cooperation, Csr, Device, DuplicateRemoval, EpsJoin, GpuOptions, Knobs, Metric, Plan, Points,
    Scalar, Schedule, Strategy,
};

use super::Target;
use super::data::{self, Law};
use crate::Result;
use crate::args::Options;

const POINTS: usize = 2000;
const STRATEGIES: [Strategy; 3] = [Strategy::Grid, Strategy::Brute, Strategy::Directory];
/// How threads share the work, and how many have a query.
const THREADS: [(Cooperation, usize); 5] = [
    (Cooperation::Cell, 1),
    (Cooperation::Thread, 1),
    (Cooperation::Thread, 4),
    (Cooperation::Thread, 8),
    (Cooperation::Warp, 32),
];
const SCHEDULES: [Schedule; 3] =
    [Schedule::IndexOrder, Schedule::SortByWorkload, Schedule::WorkQueue];
const REMOVALS: [DuplicateRemoval; 4] = [
    DuplicateRemoval::None,
    DuplicateRemoval::LinearCoord,
    DuplicateRemoval::Unicomp,
    DuplicateRemoval::LidUnicomp,
];
/// The last has no kernels of its own.
const DIMENSIONS: [usize; 7] = [2, 6, 3, 9, 4, 1, 8];

/// A way to go about a join, and what is joined.
#[derive(Clone, Copy, Debug)]
struct Trial {
    strategy: Strategy,
    threads: (Cooperation, usize),
    schedule: Schedule,
    removal: DuplicateRemoval,
    dimension: usize,
    metric: Metric,
    law: Law,
    two_sets: bool,
    wide: bool,
    listed: Option<bool>,
    partitions: Option<usize>,
}

/// Every combination of strategy, cooperation, schedule and removal. What is joined changes
/// from one to the next, in periods that share no factor.
fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for strategy in STRATEGIES {
        for threads in THREADS {
            for schedule in SCHEDULES {
                for removal in REMOVALS {
                    let turn = trials.len();
                    trials.push(Trial {
                        strategy,
                        threads,
                        schedule,
                        removal,
                        dimension: DIMENSIONS[turn % 7],
                        metric: Metric::ALL[turn % 11 % Metric::ALL.len()],
                        law: if turn % 13 < 7 { Law::Uniform } else { Law::Exponential },
                        // A removal is for one set.
                        two_sets: turn % 17 < 3,
                        wide: turn % 5 < 2,
                        listed: [Some(false), Some(true), None][turn % 19 % 3],
                        partitions: (turn % 23 == 0).then_some(3),
                    });
                }
            }
        }
    }
    trials
}

/// The section. The second is false if an answer is wrong.
pub(super) fn run(target: &Target, options: &Options) -> Result<(String, bool)> {
    run_every(target, options.points.unwrap_or(POINTS), 1)
}

/// Every `step`-th trial.
pub(super) fn run_every(target: &Target, points: usize, step: usize) -> Result<(String, bool)> {
    let mut wrong = String::new();
    let mut tried = 0;
    for trial in trials().iter().step_by(step) {
        tried += 1;
        let found = match trial.wide {
            false => compare::<f32>(trial, target, points),
            true => compare::<f64>(trial, target, points),
        };
        if let Err(reason) = found {
            wrong += &format!("- {trial:?}: **{reason}**\n");
        }
    }
    let right = wrong.is_empty();
    if right {
        wrong = "All of them are right.\n".into();
    }
    let text = format!(
        "## Every kernel on {points} points\n\n\
         {tried} ways to join, each for CSR (sorted, with distances, and not), degrees, a count,\n\
         and pairs once, beside the CPU.\n\n{wrong}"
    );
    Ok((text, right))
}

fn compare<T: Scalar>(trial: &Trial, target: &Target, points: usize) -> Result<()> {
    let dimension = trial.dimension;
    let data: Vec<T> = data::draw(trial.law, points, dimension);
    let (left, right) = match trial.two_sets {
        true => data.split_at(points / 3 * dimension),
        false => (&data[..], &data[..0]),
    };
    let (left, right) = (Points::new(left, dimension)?, Points::new(right, dimension)?);
    let plan = |join: EpsJoin| {
        let join = join.metric(trial.metric);
        match trial.two_sets {
            true => join.plan(&left, &right),
            false => join.plan_self(&left),
        }
    };
    let eps = distance(trial, points);
    let expected = plan(EpsJoin::new(eps).device(Device::Cpu))?;

    let (cooperation, threads) = trial.threads;
    let gpu = GpuOptions::new().cooperation(cooperation).schedule(trial.schedule);
    let gpu = match cooperation {
        Cooperation::Thread => gpu.threads_per_query(threads),
        _ => gpu,
    };
    let knobs = Knobs { listed: trial.listed, partitions: trial.partitions, ..Knobs::default() };
    let join = target.join_with(eps, gpu, knobs);
    let found = plan(join.strategy(trial.strategy).duplicate_removal(trial.removal))?;
    same(&found, &expected)
}

/// A distance within which a point has some tens of neighbours.
fn distance(trial: &Trial, points: usize) -> f64 {
    let share = (30.0 / points as f64).min(1.0).powf(1.0 / trial.dimension as f64);
    let side = match trial.law {
        Law::Uniform => 100.0,
        Law::Exponential => 1.0 / 20.0,
    };
    let corners = match trial.metric {
        Metric::L1 => trial.dimension as f64 / 2.0,
        _ => 0.75,
    };
    side * share * corners.max(0.5)
}

/// Compares every answer of two plans, in every bit.
fn same<T: Scalar>(found: &Plan<'_, T>, expected: &Plan<'_, T>) -> Result<()> {
    let sorted = || CsrSink::new().sorted(true).distances(true);
    let right = csr(expected, sorted())?;
    let ours = csr(found, sorted())?;
    check("offsets", ours.offsets() == right.offsets())?;
    check("ids", ours.ids() == right.ids())?;
    check("distances", ours.all_distances() == right.all_distances())?;

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

    let columns = |plan: &Plan<'_, T>| -> Result<_> {
        let mut pairs = Pairs::new().half(true).sorted(true).distances(true);
        plan.run(&mut pairs)?;
        Ok(pairs.into_columns())
    };
    check("pairs", columns(found)? == columns(expected)?)
}

fn csr<T: Scalar>(plan: &Plan<'_, T>, mut sink: CsrSink<T>) -> Result<Csr<T>> {
    plan.run(&mut sink)?;
    Ok(sink.into_csr())
}

fn check(what: &str, same: bool) -> Result<()> {
    if same { Ok(()) } else { Err(format!("{what} are not the CPU's").into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_meets_everything_that_is_joined() {
        let trials = trials();
        assert_eq!(trials.len(), 180);
        for strategy in STRATEGIES {
            let some = |property: &dyn Fn(&Trial) -> bool| {
                trials.iter().any(|trial| trial.strategy == strategy && property(trial))
            };
            assert!(some(&|trial| trial.two_sets) && some(&|trial| !trial.two_sets));
            assert!(some(&|trial| trial.wide) && some(&|trial| trial.partitions.is_some()));
            for dimension in DIMENSIONS {
                assert!(some(&|trial| trial.dimension == dimension && trial.wide));
                assert!(some(&|trial| trial.dimension == dimension && !trial.wide));
            }
            for metric in Metric::ALL {
                assert!(some(&|trial| trial.metric == metric));
            }
        }
    }
}
