//! The CPU, the GPU and both, on the cases of the GPU's table.

pub(super) mod papers;

use std::time::{Duration, Instant};

use nearjoin::gpu::{GpuOptions, Knobs};
use nearjoin::sink::CsrSink;
use nearjoin::{Device, EpsJoin, Points, Scalar};

use super::cases::{CASES, Case};
use super::measure::{self, Arrays, Engine, Timed, in_turn};
use super::{Failures, Target, data};
use crate::Result;
use crate::args::Options;
use crate::call::agree;
use crate::fresh::touch;
use crate::table::{Table, grouped, milliseconds, times};

/// How much slower than the better engine both may be, and than touching the memory of an answer.
const WITHIN: f64 = 1.05;
const TOUCHED: f64 = 1.3;

/// The cases in which landing the result is the cost.
const LANDING: [&str; 2] = ["uniform2-dense", "exponential2"];

/// The section: every answer by every engine, fresh memory, and a GPU that is lost.
pub(super) fn run(target: &Target, options: &Options) -> Result<(String, bool)> {
    let mut failures = Failures::default();
    let mut text = String::from("## CPU, GPU and both\n");
    let mut landing = Table::new(&[
        "CSR in fresh memory, ms",
        "bytes",
        "touched only",
        "gpu",
        "hybrid",
        "hybrid ÷ touched",
        "limit",
    ]);
    let mut lost = Table::new(&[
        "lost half way",
        "queries left",
        "join, ms",
        "after the loss",
        "cpu alone, what was left",
        "after ÷ alone",
        "limit",
    ]);
    for dtype in ["f32", "f64"] {
        let mut table = Table::new(&[
            dtype,
            "answer",
            "cpu",
            "gpu",
            "hybrid",
            "auto",
            "hybrid ÷ better",
            "auto ÷ better",
            "limit",
        ]);
        for case in CASES.iter().filter(|case| options.has_case(case.set.name)) {
            let rows = match dtype {
                "f32" => compare::<f32>(case, target, options),
                _ => compare::<f64>(case, target, options),
            };
            for row in failures.keep(case.set.name, rows).unwrap_or_default() {
                table.row(row);
            }
        }
        text += &format!("\n{table}");
    }
    for case in CASES.iter().filter(|case| options.has_case(case.set.name)) {
        if LANDING.contains(&case.set.name) {
            let row = fresh_memory(case, target, options);
            failures.keep(case.set.name, row).into_iter().for_each(|row| landing.row(row));
        }
        let row = half_way(case, target, options);
        failures.keep(case.set.name, row).into_iter().for_each(|row| lost.row(row));
    }
    text += &format!(
        "\n{landing}\n{lost}\n\
         - Milliseconds, best of {} calls of each in turn, after one that does not count: from\n  \
         checked points in the host's memory to the answer there, planning included.\n\
         - Touched only: the same bytes in fresh huge pages, each page written once by all threads.\n\
         - Lost half way: CSR; the device is said to be lost when half of the time is over that it\n  \
         takes to join; after the loss, the CPU plans, indexes and finishes. Alone: the CPU plans,\n  \
         indexes and joins just the rows that were left.\n",
        options.reps
    );
    Ok((text + &failures.0, failures.none()))
}

fn compare<T: Scalar>(case: &Case, target: &Target, options: &Options) -> Result<Vec<Vec<String>>> {
    let set = case.set.scaled(options.points);
    let data: Vec<T> = data::draw(set.law, set.points, set.dimension);
    let points = Points::new(&data, set.dimension)?;
    let devices = [Device::Cpu, Device::Gpu, Device::Hybrid, Device::Auto];
    let join = EpsJoin::new(set.eps());
    let mut engines = devices.map(|device| Engine::new(target.on(device, &join)));
    let (first, mut arrays) = measure::fresh(&engines[1].join, &points)?;
    let mut rows = Vec::new();
    type Call<'a, T> = &'a dyn Fn(&EpsJoin, &Points<'_, T>, &mut Arrays) -> Result<Timed>;
    let answers: [(&str, Call<'_, T>); 5] = [
        ("count", &|join, points, _| measure::count(join, points)),
        ("degrees", &|join, points, _| measure::degrees(join, points)),
        ("blocks", &|join, points, _| measure::blocks(join, points)),
        ("CSR reused", &|join, points, arrays| measure::reused(join, points, arrays)),
        ("CSR fresh", &|join, points, _| Ok(measure::fresh(join, points)?.0)),
    ];
    for (answer, call) in answers {
        in_turn(options.reps, &mut engines, |join| {
            let timed = call(join, &points, &mut arrays)?;
            let what = format!("{}, {}: {answer}", set.name, T::NAME);
            agree(&what, timed.stats.pairs, first.stats.pairs).map(|()| timed)
        })?;
        let ms: Vec<Option<f64>> = engines.iter().map(Engine::ms).collect();
        let better = ms[0].into_iter().chain(ms[1]).reduce(f64::min);
        let mut row = vec![set.name.into(), answer.into()];
        row.extend(ms.iter().map(|&ms| milliseconds(ms)));
        row.extend([times(ms[2], better), times(ms[3], better), format!("{WITHIN:.2} ×")]);
        eprintln!("{}", row.join(" | "));
        rows.push(row);
    }
    Ok(rows)
}

fn fresh_memory(case: &Case, target: &Target, options: &Options) -> Result<Vec<String>> {
    let set = case.set.scaled(options.points);
    let data: Vec<f32> = data::draw(set.law, set.points, set.dimension);
    let points = Points::new(&data, set.dimension)?;
    let join = EpsJoin::new(set.eps());
    let mut engines =
        [Device::Gpu, Device::Hybrid].map(|device| Engine::new(target.on(device, &join)));
    let (mut touched, mut bytes) = (f64::INFINITY, 0);
    in_turn(options.reps, &mut engines, |join| {
        let timed = measure::fresh(join, &points)?.0;
        bytes = timed.stats.result_bytes as usize;
        touched = touched.min(1e3 * touch(bytes)?);
        Ok(timed)
    })?;
    let [gpu, hybrid] = engines.map(|engine| engine.ms());
    let row = vec![
        set.name.into(),
        grouped(bytes as u64),
        milliseconds(Some(touched)),
        milliseconds(gpu),
        milliseconds(hybrid),
        times(hybrid, Some(touched)),
        format!("{TOUCHED:.2} ×"),
    ];
    eprintln!("{}", row.join(" | "));
    Ok(row)
}

fn half_way(case: &Case, target: &Target, options: &Options) -> Result<Vec<String>> {
    let set = case.set.scaled(options.points);
    let data: Vec<f32> = data::draw(set.law, set.points, set.dimension);
    let points = Points::new(&data, set.dimension)?;
    let join = EpsJoin::new(set.eps());
    let whole = target.on(Device::Gpu, &join);
    let (_, mut arrays) = measure::fresh(&whole, &points)?;
    let clean = measure::reused(&whole, &points, &mut arrays)?.stats;
    let half =
        (clean.index + clean.execute).mul_f64(0.5).max(clean.index + Duration::from_micros(1));
    let knobs = Knobs { lost_after: Some(half), ..Knobs::default() };
    let lost = target.on_with(Device::Gpu, &join, GpuOptions::new(), knobs).rescue(true);
    let timed = measure::best(options.reps, || measure::reused(&lost, &points, &mut arrays))?;
    agree(&format!("{}: a lost GPU", set.name), timed.stats.pairs, clean.pairs)?;
    let told = timed.stats.hybrid.as_ref().and_then(|hybrid| hybrid.lost.as_ref());
    // A small join may be over before anybody looks.
    let queries = told.map_or(0, |told| told.queries as usize);
    let after = (timed.time.saturating_sub(timed.stats.plan + half)).as_secs_f64() * 1e3;
    let mut alone = f64::INFINITY;
    for _ in 0..=options.reps {
        let start = Instant::now();
        let plan = EpsJoin::new(set.eps()).device(Device::Cpu).plan_self(&points)?;
        let mut sink = CsrSink::new();
        plan.index()?.run_rows(set.points - queries..set.points, &mut sink)?;
        alone = alone.min(start.elapsed().as_secs_f64() * 1e3);
    }
    let row = vec![
        set.name.into(),
        grouped(queries as u64),
        milliseconds(Some(timed.ms())),
        milliseconds(Some(after)),
        milliseconds(Some(alone)),
        times(Some(after), Some(alone)),
        "1.10 ×".into(),
    ];
    eprintln!("{}", row.join(" | "));
    Ok(row)
}
