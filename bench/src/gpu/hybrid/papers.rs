//! HEGJoin's tables: response time, throughput of candidates, imbalance, transfers.
//!
//! A GPU of today is many times as strong as a CPU; on the paper's machines both were of a strength.
//! So the GPU is held back ([`GpuOptions::rate_limit`]) until it takes as long as the CPU does.

use nearjoin::gpu::{Calibration, GpuOptions, Knobs, calibrate_with};
use nearjoin::{Device, DuplicateRemoval, EpsJoin, Partitioning, Points};

use super::super::cases::{HEGJOIN, Heg, IMBALANCE};
use super::super::measure::{self, Timed, best, rate_of_equals};
use super::super::{Failures, Target, data};
use crate::Result;
use crate::args::Options;
use crate::call::agree;
use crate::table::{Table, grouped, milliseconds, times};

/// Answers with more pairs are only counted: handing them out would be all that is measured.
const MOST_PAIRS: u64 = 400_000_000;
/// The partitionings, in the order of the paper's figures.
const WAYS: [Partitioning; 3] =
    [Partitioning::Dyn, Partitioning::StaticQueries, Partitioning::StaticCandidates];
/// Points of the reference measurement.
const REFERENCE: usize = 1_000_000;

/// What one set took, every way.
struct Times {
    answer: &'static str,
    pairs: u64,
    cpu: Timed,
    gpu: Timed,
    ways: Vec<Timed>,
}

pub(crate) fn run(target: &Target, options: &Options) -> Result<(String, bool)> {
    let mut failures = Failures::default();
    let reference = options.points.map_or(REFERENCE, |points| points.min(REFERENCE));
    let calibrated = calibrate_with(reference, &target.knobs(Knobs::default()))?;
    let mut tables = Tables::new();
    for heg in HEGJOIN.iter().filter(|heg| options.has_case(heg.set.name)) {
        for rows in [false, true] {
            let times = measure(heg, target, calibrated.calibration, rows, options);
            match failures.keep(heg.set.name, times) {
                Some(Some(times)) => tables.add(heg, options, &times),
                _ => break,
            }
        }
    }
    Ok((tables.text(options.reps) + &failures.0, failures.none()))
}

/// Every way on one set; none if it has too many pairs to be handed out.
fn measure(
    heg: &Heg,
    target: &Target,
    calibration: Calibration,
    rows: bool,
    options: &Options,
) -> Result<Option<Times>> {
    let set = heg.set.scaled(options.points);
    let data: Vec<f32> = data::draw(set.law, set.points, set.dimension);
    let points = Points::new(&data, set.dimension)?;
    let call = |join: &EpsJoin| match rows {
        true => measure::blocks(join, &points),
        false => measure::count(join, &points),
    };
    // As in the paper, every query is compared with all its candidates.
    let join = |device, gpu: GpuOptions, calibration: Option<Calibration>| {
        let knobs = Knobs { calibration, listed: Some(false), ..Knobs::default() };
        let join = target.on_with(device, &EpsJoin::new(set.eps()), gpu, knobs);
        join.duplicate_removal(DuplicateRemoval::None)
    };
    let free = call(&join(Device::Gpu, GpuOptions::new(), None))?.stats;
    if rows && free.pairs > MOST_PAIRS {
        return Ok(None);
    }
    let cpu = best(options.reps, || call(&join(Device::Cpu, GpuOptions::new(), None)))?;
    let rate = rate_of_equals(&free, &cpu);
    let limited = || GpuOptions::new().rate_limit(rate);
    let gpu = best(1, || call(&join(Device::Gpu, limited(), None)))?;
    let mut ways = Vec::new();
    for way in WAYS {
        let join = join(Device::Hybrid, limited(), Some(calibration)).partitioning(way);
        let timed = best(options.reps, || call(&join))?;
        agree(&format!("{}, {way}", set.name), timed.stats.pairs, free.pairs)?;
        ways.push(timed);
    }
    agree(&format!("{}, CPU", set.name), cpu.stats.pairs, free.pairs)?;
    let answer = if rows { "rows" } else { "count" };
    eprintln!(
        "{} {answer}: cpu {:.1} ms, gpu {:.1}, {}",
        set.name,
        cpu.ms(),
        gpu.ms(),
        ways.iter()
            .map(|way| format!("{:.1} ({:.2})", way.ms(), imbalance(way)))
            .collect::<Vec<_>>()
            .join(", ")
    );
    Ok(Some(Times { answer, pairs: free.pairs, cpu, gpu, ways }))
}

fn imbalance(timed: &Timed) -> f64 {
    timed.stats.hybrid.as_ref().map_or(0.0, |hybrid| hybrid.imbalance())
}

/// The tables of the paper.
struct Tables {
    response: Table,
    throughput: Table,
    imbalance: Table,
    transfers: Table,
    /// Imbalances of each way.
    means: [Vec<f64>; 3],
    ratios: Vec<f64>,
}

impl Tables {
    fn new() -> Self {
        Tables {
            response: Table::new(&[
                "response time, ms",
                "answer",
                "ε",
                "pairs",
                "DYN",
                "SQ",
                "SC",
                "GPU only",
                "CPU only",
                "better alone ÷ DYN",
            ]),
            throughput: Table::new(&[
                "10⁹ candidates/s",
                "answer",
                "GPU only",
                "CPU only",
                "sum",
                "DYN",
                "DYN ÷ sum",
                "at least",
                "paper",
            ]),
            imbalance: Table::new(&["imbalance", "answer", "DYN", "SQ", "SC", "SQ, SC planned"]),
            transfers: Table::new(&[
                "transfers of DYN",
                "answer",
                "to the GPU",
                "from the GPU",
                "of its time",
                "paper",
            ]),
            means: Default::default(),
            ratios: Vec::new(),
        }
    }

    fn add(&mut self, heg: &Heg, options: &Options, times_of: &Times) {
        let set = heg.set.scaled(options.points);
        let Times { answer, pairs, cpu, gpu, ways } = times_of;
        let better = cpu.ms().min(gpu.ms());
        let named = |cells: Vec<String>| {
            let mut row = vec![set.name.to_string(), answer.to_string()];
            row.extend(cells);
            row
        };
        let mut cells = vec![format!("{:.4}", set.eps()), grouped(*pairs)];
        let all = ways.iter().chain([gpu, cpu]);
        cells.extend(all.map(|timed| milliseconds(Some(timed.ms()))));
        cells.push(times(Some(better), Some(ways[0].ms())));
        self.response.row(named(cells));
        // Both look at about as many candidates (table 3 of the paper): what the whole has, over
        // the time that it took.
        let candidates = cpu.stats.distance_tests as f64 + cpu.stats.pairs_taken as f64;
        let rate = |timed: &Timed| candidates / timed.time.as_secs_f64() / 1e9;
        let sum = rate(gpu) + rate(cpu);
        let ratio = rate(&ways[0]) / sum;
        self.ratios.push(ratio);
        let mut cells: Vec<String> =
            [rate(gpu), rate(cpu), sum, rate(&ways[0])].map(|rate| format!("{rate:.2}")).into();
        let paper = heg.ratio.map_or("–".into(), |ratio| format!("{ratio:.2}"));
        cells.extend([format!("{ratio:.2}"), "0.85".into(), paper]);
        self.throughput.row(named(cells));
        let mut cells = Vec::new();
        for (way, of_way) in ways.iter().zip(&mut self.means) {
            of_way.push(imbalance(way));
            cells.push(format!("{:.2}", imbalance(way)));
        }
        let planned = ways[1].stats.hybrid.as_ref().map_or(0.0, |hybrid| hybrid.expected_gpu_share);
        cells.push(format!("{:.0} % to the GPU", 100.0 * planned));
        self.imbalance.row(named(cells));
        let Some(told) = &ways[0].stats.gpu else { return };
        let bus = Calibration::default().bus;
        let took = (told.bytes_in + told.bytes_out) as f64 / bus / ways[0].time.as_secs_f64();
        let paper = heg.transfers.map_or("–".into(), |share| format!("{:.0} %", 100.0 * share));
        let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64);
        self.transfers.row(named(vec![
            mebibytes(told.bytes_in),
            mebibytes(told.bytes_out),
            format!("{:.1} %", 100.0 * took),
            paper,
        ]));
    }

    fn text(&self, reps: usize) -> String {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let means: Vec<String> = self
            .means
            .iter()
            .zip(WAYS)
            .zip(IMBALANCE)
            .map(|((of, way), paper)| {
                let most = of.iter().copied().fold(0.0, f64::max);
                format!("{way} {:.2} (paper {paper:.2}; at most {most:.2})", mean(of))
            })
            .collect();
        let least = self.ratios.iter().copied().fold(f64::INFINITY, f64::min);
        format!(
            "## HEGJoin's tables\n\n{}\n{}\n{}\n{}\n\
             - Mean imbalance: {}. Limits for dyn: 0.10 in the mean, 0.30 in any case.\n\
             - DYN ÷ sum: {:.2} in the mean, {least:.2} at the least.\n\
             - f32; best of {reps} calls after one that does not count. No duplicate removal, as in the\n  \
             paper. Rows are handed to a function that adds up their lengths; answers of over {} pairs\n  \
             are only counted. The GPU is held back until it alone takes as long as the CPU alone.\n\
             - Transfers: bytes over the speed of the bus, as if nothing overlapped.\n",
            self.response,
            self.throughput,
            self.imbalance,
            self.transfers,
            means.join(", "),
            mean(&self.ratios),
            grouped(MOST_PAIRS),
        )
    }
}
