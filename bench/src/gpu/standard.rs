//! The table of the standard cases, beside the limits and beside what others took.

use std::fmt;
use std::time::Instant;

use nearjoin::gpu::GpuOptions;
use nearjoin::{Device, EpsJoin, Points, Scalar};

use super::cases::{CASES, Case, F64_BESIDE_F32, STANDARD};
use super::measure::{self, Timed, best};
use super::{Failures, Target, data, first};
use crate::Result;
use crate::args::Options;
use crate::call::agree;
use crate::table::{Table, grouped, milliseconds, times};

/// The section: the cases, and the first call of a fresh process on each.
pub(super) fn run(target: &Target, options: &Options) -> Result<(String, bool)> {
    let mut failures = Failures::default();
    let cases = cases(target, options, &mut failures);
    let first = first::run(options, &mut failures);
    Ok((format!("{cases}\n{first}{}", failures.0), failures.none()))
}

/// What one type took, the best calls.
struct Times {
    /// Checking the coordinates.
    check: f64,
    count: Timed,
    degrees: f64,
    blocks: f64,
    reused: f64,
    fresh: f64,
}

struct Row {
    case: &'static Case,
    points: usize,
    eps: f64,
    f32: Times,
    f64: Times,
}

/// The chosen cases in both types.
pub(super) fn cases(target: &Target, options: &Options, failures: &mut Failures) -> String {
    let mut rows = Vec::new();
    for case in CASES.iter().filter(|case| options.has_case(case.set.name)) {
        let set = case.set.scaled(options.points);
        let times = measure::<f32>(case, target, options)
            .and_then(|f32| Ok((f32, measure::<f64>(case, target, options)?)));
        let Some((f32, f64)) = failures.keep(set.name, times) else { continue };
        rows.push(Row { case, points: set.points, eps: set.eps(), f32, f64 });
    }
    let checked = match options.check {
        true => "The CPU engine counts the same pairs in every case shown, in both types.",
        false => "The counts were not compared with the CPU's.",
    };
    format!(
        "## The ε-join on the GPU\n\n{}\n{}\n{}\n{}\n\
         - Milliseconds, best of {} calls after one that does not count: from checked points in\n  \
         the host's memory to the answer there, planning included. Memory of an answer is given\n  \
         back outside.\n\
         - Pairs are ordered, no point with itself. {checked}\n\
         - Limits are for f32 points on one H200 with 16 host cores; `÷ limit` below 1 is within.\n  \
         Others: the best of the authors' programs (HEGJoin-GPU, HEGJoin, Super-EGO on 16 cores,\n  \
         GPU-SJ without its host index), and cudaKDTree, which leaves its results on the device.\n  \
         They were measured on such a machine earlier, not in this run.\n\
         - f64 may take {F64_BESIDE_F32} × f32 where arithmetic dominates.\n",
        limits_table(&rows),
        others_table(&rows),
        types_table(&rows),
        phases_table(&rows),
        options.reps,
    )
}

/// Every answer of one type; the pairs must be the same in all, and the CPU's.
fn measure<T: Scalar>(case: &Case, target: &Target, options: &Options) -> Result<Times> {
    let set = case.set.scaled(options.points);
    let data: Vec<T> = data::draw(set.law, set.points, set.dimension);
    let start = Instant::now();
    let points = Points::new(&data, set.dimension)?;
    let check = start.elapsed().as_secs_f64() * 1e3;
    let join = target.join(set.eps(), GpuOptions::new());
    let count = best(options.reps, || measure::count(&join, &points))?;
    if options.check {
        let on_cpu = EpsJoin::new(set.eps()).device(Device::Cpu);
        let expected = measure::count(&on_cpu, &points)?.stats.pairs;
        agree(&format!("{}, {}: the GPU", set.name, T::NAME), count.stats.pairs, expected)?;
    }
    let same = |what: &str, timed: Timed| {
        let what = format!("{}, {}: {what}", set.name, T::NAME);
        agree(&what, timed.stats.pairs, count.stats.pairs).map(|()| timed.ms())
    };
    let degrees = best(options.reps, || measure::degrees(&join, &points))?;
    let blocks = best(options.reps, || measure::blocks(&join, &points))?;
    let fresh = best(options.reps, || Ok(measure::fresh(&join, &points)?.0))?;
    let (_, mut arrays) = measure::fresh(&join, &points)?;
    let reused = best(options.reps, || measure::reused(&join, &points, &mut arrays))?;
    let times = Times {
        check,
        degrees: same("degrees", degrees)?,
        blocks: same("blocks", blocks)?,
        reused: same("CSR into reused buffers", reused)?,
        fresh: same("CSR", fresh)?,
        count,
    };
    eprintln!("{}, {}: {times}", set.name, T::NAME);
    Ok(times)
}

/// In a line, so that a run that is cut short has told something.
impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Times { count, degrees, blocks, reused, fresh, .. } = self;
        let count = count.ms();
        write!(f, "count {count:.3} ms, degrees {degrees:.3}, blocks {blocks:.3}, ")?;
        write!(f, "CSR reused {reused:.3}, fresh {fresh:.3}")
    }
}

impl Row {
    /// What was written for the standard number of points, if there are so many.
    fn standard<V>(&self, value: V) -> Option<V> {
        (self.points == STANDARD).then_some(value)
    }
}

fn limits_table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "f32, ms",
        "points",
        "ε",
        "pairs",
        "count",
        "limit",
        "÷ limit",
        "degrees",
        "blocks",
        "CSR reused",
        "limit",
        "blocks ÷",
        "reused ÷",
        "CSR fresh",
        "limit",
        "÷ limit",
    ]);
    for row in rows {
        let ours = &row.f32;
        let limits = row.standard(row.case.limits);
        let count = ours.count.ms();
        let most = |of: fn(super::cases::Limits) -> f64| limits.map(of);
        table.row(vec![
            row.case.set.name.into(),
            grouped(row.points as u64),
            format!("{:.4}", row.eps),
            grouped(ours.count.stats.pairs),
            milliseconds(Some(count)),
            milliseconds(most(|limits| limits.count)),
            times(Some(count), most(|limits| limits.count)),
            milliseconds(Some(ours.degrees)),
            milliseconds(Some(ours.blocks)),
            milliseconds(Some(ours.reused)),
            milliseconds(most(|limits| limits.reused)),
            times(Some(ours.blocks), most(|limits| limits.reused)),
            times(Some(ours.reused), most(|limits| limits.reused)),
            milliseconds(Some(ours.fresh)),
            milliseconds(most(|limits| limits.fresh)),
            times(Some(ours.fresh), most(|limits| limits.fresh)),
        ]);
    }
    table
}

fn others_table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "others, ms",
        "authors' best",
        "÷ CSR reused",
        "÷ CSR fresh",
        "cudaKDTree count",
        "÷ count",
        "cudaKDTree CSR",
        "÷ CSR reused",
    ]);
    for row in rows {
        let ours = &row.f32;
        let authors = row.standard(row.case.authors);
        let tree = row.standard(row.case.cuda_kd_tree).flatten();
        let (count, csr) = (tree.map(|tree| tree.0), tree.map(|tree| tree.1));
        table.row(vec![
            row.case.set.name.into(),
            milliseconds(authors),
            times(authors, Some(ours.reused)),
            times(authors, Some(ours.fresh)),
            milliseconds(count),
            times(count, Some(ours.count.ms())),
            milliseconds(csr),
            times(csr, Some(ours.reused)),
        ]);
    }
    table
}

fn types_table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "f64, ms",
        "pairs",
        "count",
        "degrees",
        "blocks",
        "CSR reused",
        "CSR fresh",
        "count, f64 ÷ f32",
        "CSR reused, f64 ÷ f32",
    ]);
    for row in rows {
        let (wide, narrow) = (&row.f64, &row.f32);
        table.row(vec![
            row.case.set.name.into(),
            grouped(wide.count.stats.pairs),
            milliseconds(Some(wide.count.ms())),
            milliseconds(Some(wide.degrees)),
            milliseconds(Some(wide.blocks)),
            milliseconds(Some(wide.reused)),
            milliseconds(Some(wide.fresh)),
            times(Some(wide.count.ms()), Some(narrow.count.ms())),
            times(Some(wide.reused), Some(narrow.reused)),
        ]);
    }
    table
}

/// Where the time of the best counts went.
fn phases_table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "count, ms",
        "type",
        "plan",
        "index",
        "execute",
        "before: check",
        "strategy",
        "cooperation",
        "schedule",
        "distance tests",
    ]);
    for row in rows {
        for (name, ours) in [("f32", &row.f32), ("f64", &row.f64)] {
            let stats = &ours.count.stats;
            let phase = |phase: std::time::Duration| milliseconds(Some(phase.as_secs_f64() * 1e3));
            let gpu = stats.gpu.as_ref();
            table.row(vec![
                row.case.set.name.into(),
                name.into(),
                phase(stats.plan),
                phase(stats.index),
                phase(stats.execute),
                milliseconds(Some(ours.check)),
                stats.strategy.to_string(),
                gpu.map_or("–".into(), |gpu| gpu.cooperation.to_string()),
                gpu.map_or("–".into(), |gpu| gpu.schedule.to_string()),
                grouped(stats.distance_tests),
            ]);
        }
    }
    table
}
