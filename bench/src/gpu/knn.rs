//! The KNN-join on the CPU, on a GPU and on both.

pub(crate) mod cases;
pub(crate) mod measure;
pub(crate) mod papers;
pub(super) mod peers;

use std::time::Duration;

use nearjoin::sink::Neighbors;
use nearjoin::{Device, KnnJoin, Scalar};

use self::cases::{CASES, Case};
use self::measure::{Wrong, call, ran, same};
use self::peers::{Cupy, ROUNDING};
use super::measure::{Engine, Timed, best, in_turn};
use super::{Failures, Target};
use crate::Result;
use crate::args::Options;
use crate::peers::Outcome;
use crate::table::{Table, grouped, mebibytes, milliseconds, times};

/// How much slower than the better engine both may be.
const WITHIN: f64 = 1.05;
/// Bytes a second of the bus of an H200.
const BUS: f64 = 55e9;

/// The section: every case in `f32`, the first ones in `f64` too.
pub(super) fn run(target: &Target, options: &Options) -> Result<(String, bool)> {
    let cupy = Cupy::find(options);
    let mut failures = Failures::default();
    let mut text = String::from("## KNN-joins on the CPU, the GPU and both\n");
    let mut phases = Table::new(&[
        "gpu, ms",
        "type",
        "strategy",
        "plan",
        "index",
        "search and delivery",
        "tests per query",
        "batches",
        "MiB in",
        "MiB out",
    ]);
    for wide in [false, true] {
        let dtype = if wide { "f64" } else { "f32" };
        let mut table = Table::new(&[
            &format!("{dtype}, ms"),
            "points",
            "k",
            "cpu",
            "gpu",
            "hybrid",
            "auto",
            "hybrid ran",
            "auto ran",
            "hybrid ÷ better",
            "auto ÷ better",
            "limit",
            "bus alone",
            "gpu ÷ bus",
            "gpu, fresh arrays",
            "CuPy",
            "CuPy ÷ gpu",
        ]);
        for case in CASES.iter().filter(|case| options.has_case(case.name) && (case.wide || !wide))
        {
            let case = case.scaled(options.points);
            let times = match wide {
                false => Times::measure::<f32>(&case, target, &cupy, options),
                true => Times::measure::<f64>(&case, target, &cupy, options),
            };
            let Some(times) = keep(&mut failures, case.name, times)? else { continue };
            let row = times.row(&case, &cupy);
            eprintln!("{}", row.join(" | "));
            table.row(row);
            phases.row(times.phases(&case, dtype));
            if let Err(reason) = times.peer_agrees() {
                failures.keep::<()>(case.name, Err(reason));
            }
        }
        text += &format!("\n{table}");
    }
    let checked = match options.check {
        true => "Ids and distances are the CPU's in every bit, in every call.",
        false => "Answers were not compared.",
    };
    text += &format!(
        "\n{phases}\n\
         - Milliseconds, best of {} calls of each in turn after one that does not count (a call of over\n  \
         half a second is not repeated): from checked points in the host's memory to ids and distances\n  \
         in arrays there that are used again, planning included. Fresh arrays: the call obtains them.\n\
         - {checked}\n\
         - Ran: who worked, by the plan's choice, and how. Bus alone: ids and distances at {:.0} GB/s.\n\
         - CuPy: {cupy}. `cupyx.scipy.spatial.KDTree` builds and asks for k + 1, since it cannot leave\n  \
         the point itself out; from and to arrays in the host's memory that are used again, too.\n",
        options.reps,
        BUS / 1e9,
    );
    Ok((text + &failures.0, failures.none()))
}

/// The value of a case, if there is one. A wrong answer ends the program; whatever else goes wrong is
/// kept, and the others are measured.
fn keep<V>(failures: &mut Failures, name: &str, result: Result<V>) -> Result<Option<V>> {
    match result {
        Err(wrong) if wrong.is::<Wrong>() => Err(wrong),
        result => Ok(failures.keep(name, result)),
    }
}

/// The devices, in the order of the columns.
const DEVICES: [Device; 4] = [Device::Cpu, Device::Gpu, Device::Hybrid, Device::Auto];

/// What one case took.
struct Times {
    /// On each of [`DEVICES`].
    on: [Timed; 4],
    /// On the GPU, with arrays that the call obtains.
    fresh: Timed,
    peer: Option<Outcome<f64>>,
}

impl Times {
    fn measure<T: Scalar>(
        case: &Case,
        target: &Target,
        cupy: &Cupy,
        options: &Options,
    ) -> Result<Self> {
        let drawn = case.draw::<T>();
        let sides = drawn.sides()?;
        let join = KnnJoin::new(case.k);
        let mut engines = DEVICES.map(|device| Engine::new(target.on(device, &join)));
        let mut expected = Neighbors::new();
        call(&engines[0].join, &sides, &mut expected)?;
        let checked = |timed: Timed, arrays: &Neighbors<T>| match options.check {
            true => {
                let what = format!("{}, {}, {}", case.name, T::NAME, ran(&timed.stats));
                same(&what, arrays, &expected).map(|()| timed)
            }
            false => Ok(timed),
        };
        let gpu = engines[1].join.clone();
        let fresh = best(options.reps, || {
            let mut arrays = Neighbors::new();
            let timed = call(&gpu, &sides, &mut arrays)?;
            checked(timed, &arrays)
        })?;
        // Nobody's first call pays for the memory of the arrays.
        let mut arrays = Neighbors::new();
        call(&gpu, &sides, &mut arrays)?;
        in_turn(options.reps, &mut engines, |join| {
            let timed = call(join, &sides, &mut arrays)?;
            checked(timed, &arrays)
        })?;
        let peer = match case.has_peers && cupy.is_there() && T::NAME == "f32" {
            true => Some(cupy.nearest(case, &drawn.data, expected.distances(), options)?),
            false => None,
        };
        let [cpu, gpu, hybrid, auto] = engines.map(|engine| engine.best.ok_or("no repetitions"));
        Ok(Times { on: [cpu?, gpu?, hybrid?, auto?], fresh, peer })
    }

    fn row(&self, case: &Case, cupy: &Cupy) -> Vec<String> {
        let [cpu, gpu, hybrid, auto] = self.on.each_ref().map(|timed| Some(timed.ms()));
        let better = cpu.into_iter().chain(gpu).reduce(f64::min);
        let bus = Some(self.on[1].stats.result_bytes as f64 / BUS * 1e3);
        let how = |timed: &Timed| format!("{}, {}", ran(&timed.stats), timed.stats.strategy);
        let peer = match &self.peer {
            Some(Outcome::Ran(timed)) => Some(timed.seconds * 1e3),
            _ => None,
        };
        let peer_cell = match &self.peer {
            None if case.has_peers && !cupy.is_there() => "no CuPy".into(),
            Some(Outcome::Skipped(_)) => "failed".into(),
            _ => milliseconds(peer),
        };
        vec![
            case.name.into(),
            case.size(),
            case.k.to_string(),
            milliseconds(cpu),
            milliseconds(gpu),
            milliseconds(hybrid),
            milliseconds(auto),
            how(&self.on[2]),
            how(&self.on[3]),
            times(hybrid, better),
            times(auto, better),
            format!("{WITHIN:.2} ×"),
            milliseconds(bus),
            times(gpu, bus),
            milliseconds(Some(self.fresh.ms())),
            peer_cell,
            times(peer, gpu),
        ]
    }

    /// Where the time of the GPU went.
    fn phases(&self, case: &Case, dtype: &str) -> Vec<String> {
        let stats = &self.on[1].stats;
        let phase = |phase: Duration| milliseconds(Some(phase.as_secs_f64() * 1e3));
        let told = stats.gpu.clone().unwrap_or_default();
        vec![
            case.name.into(),
            dtype.into(),
            stats.strategy.to_string(),
            phase(stats.plan),
            phase(stats.index),
            phase(stats.execute),
            format!("{:.1}", stats.distance_tests as f64 / stats.points.0.max(1) as f64),
            grouped(told.batches as u64),
            mebibytes(told.bytes_in),
            mebibytes(told.bytes_out),
        ]
    }

    /// Whether the peer, if it ran, found the same distances but for rounding.
    fn peer_agrees(&self) -> Result<()> {
        match &self.peer {
            Some(Outcome::Ran(timed)) if timed.found.is_nan() || timed.found > ROUNDING => {
                Err(format!("a distance of CuPy's differs by {:.1e} of itself", timed.found).into())
            }
            Some(Outcome::Skipped(reason)) => Err(format!("CuPy {reason}").into()),
            _ => Ok(()),
        }
    }
}
