//! The tables of the paper on HybridKNN-Join: response times, who solves what, failed queries, new
//! indexes, imbalance, and how much its options matter.

pub(crate) mod figures;
mod ranges;
mod sweeps;

use std::time::{Duration, Instant};

use nearjoin::gpu::{GpuOptions, Knobs};
use nearjoin::sink::Neighbors;
use nearjoin::{Device, KnnJoin, Partitioning, RangesOptions};

use self::figures::{IMBALANCE, K, KS, MACHINE, POINTS, SETS, SOLVED, Set};
use self::ranges::Told;
use super::super::measure::{Engine, Timed, in_turn, rate_of_equals};
use super::super::{Failures, Target};
use super::cases::Sides;
use super::measure::{call, ran, same};
use super::{Case, keep};
use crate::Result;
use crate::args::Options;
use crate::table::{Table, grouped, seconds, times};

/// After this time no more options are tried: what is left of the tables stays empty.
const ENOUGH: Duration = Duration::from_secs(290);
/// The best of more calls than this would take too long.
const MOST_REPS: usize = 2;

/// The section.
pub(crate) fn run(target: &Target, options: &Options) -> Result<(String, bool)> {
    let began = Instant::now();
    let mut failures = Failures::default();
    // In proportion they would be many for a first look.
    let points = options.points.map_or(POINTS, |points| 2 * points);
    let setting = Setting { target, options, points, began };
    let mut tables = Tables::new();
    for set in SETS.iter().filter(|set| options.has_case(set.name)) {
        for (at, &k) in KS.iter().enumerate() {
            let name = format!("{}, k {k}", set.name);
            let times = Times::measure(set, k, &setting);
            if let Some(times) = keep(&mut failures, &name, times)? {
                eprintln!("{:.0} s: {name}: {}", began.elapsed().as_secs_f64(), times.line());
                tables.add(set, at, &times, &setting);
            }
        }
    }
    let mut text = tables.text(&setting);
    text += &sweeps::run(&setting, &mut failures)?;
    Ok((text + &failures.0, failures.none()))
}

/// Where and on how many points everything runs.
struct Setting<'a> {
    target: &'a Target,
    options: &'a Options,
    points: usize,
    began: Instant,
}

impl Setting<'_> {
    fn reps(&self) -> usize {
        self.options.reps.min(MOST_REPS)
    }

    /// A time of the paper's, which is for as many points as its sets have.
    fn paper(&self, seconds: Option<f64>) -> Option<f64> {
        seconds.filter(|_| self.points == POINTS)
    }

    fn is_over(&self) -> bool {
        self.began.elapsed() > ENOUGH
    }

    /// One call into arrays that are used again, whose answer must be the expected one.
    fn call(
        &self,
        case: &Case,
        join: &KnnJoin,
        sides: &Sides<'_, f32>,
        (arrays, expected): (&mut Neighbors<f32>, &Neighbors<f32>),
    ) -> Result<Timed> {
        let timed = call(join, sides, arrays)?;
        if self.options.check {
            let (k, who, strategy) = (case.k, ran(&timed.stats), timed.stats.strategy);
            same(&format!("{}, k {k}, {who}, {strategy}", case.name), arrays, expected)?;
        }
        Ok(timed)
    }
}

/// What one set and k took.
struct Times {
    cpu: Timed,
    tree: Timed,
    gpu_ranges: Timed,
    ranges: Timed,
    hybrid: Timed,
    /// With a GPU that is held back until it is as strong as the CPU: by ranges, and our own.
    equal_ranges: Timed,
    equal_hybrid: Timed,
}

impl Times {
    fn measure(set: &Set, k: usize, setting: &Setting<'_>) -> Result<Self> {
        let case = set.case(setting.points, k);
        let drawn = case.draw::<f32>();
        let sides = drawn.sides()?;
        let (nearest, by_ranges) = (KnnJoin::new(k), ranges::join(k, RangesOptions::new()));
        let on = |device, join: &KnnJoin| Engine::new(setting.target.on(device, join));
        let [cpu, tree] = [Device::Cpu, Device::Gpu].map(|device| on(device, &nearest));
        // The GPU is the quickest to touch all memory, so that nobody pays for it.
        let (mut expected, mut arrays) = (Neighbors::new(), Neighbors::new());
        call(&tree.join, &sides, &mut expected)?;
        call(&tree.join, &sides, &mut arrays)?;
        let mut first = [cpu];
        in_turn(setting.reps(), &mut first, |join| call(join, &sides, &mut expected))?;
        let [gpu_ranges, ranges] = ranges::DEVICES.map(|device| on(device, &by_ranges));
        let mut others = [tree, gpu_ranges, ranges, on(Device::Hybrid, &nearest)];
        let mut checked =
            |join: &KnnJoin| setting.call(&case, join, &sides, (&mut arrays, &expected));
        in_turn(setting.reps(), &mut others, &mut checked)?;
        let best = |engine: Engine<KnnJoin>| engine.best.ok_or("no repetitions");
        let ([cpu], [tree, gpu_ranges, ranges, hybrid]) = (first.map(best), others.map(best));
        let (cpu, tree, gpu_ranges) = (cpu?, tree?, gpu_ranges?);
        // As long calls as the CPU's, nearly: one of each.
        let mut equal = |free: &Timed, join: KnnJoin| {
            let gpu = GpuOptions::new().rate_limit(rate_of_equals(&free.stats, &cpu));
            checked(&setting.target.on_with(Device::Hybrid, &join, gpu, Knobs::default()))
        };
        let equal_ranges = equal(&gpu_ranges, by_ranges)?;
        let equal_hybrid = equal(&tree, nearest.partitioning(Partitioning::Dyn))?;
        let (ranges, hybrid) = (ranges?, hybrid?);
        Ok(Times { cpu, tree, gpu_ranges, ranges, hybrid, equal_ranges, equal_hybrid })
    }

    /// In a line, so that a run that is cut short has told something.
    fn line(&self) -> String {
        let ms = |timed: &Timed| format!("{:.0}", timed.ms());
        format!(
            "cpu {} ms, gpu {}, gpu ranges {}, hybrid ranges {}, hybrid {}; of a strength: ranges {}, \
             hybrid {}",
            ms(&self.cpu),
            ms(&self.tree),
            ms(&self.gpu_ranges),
            ms(&self.ranges),
            ms(&self.hybrid),
            ms(&self.equal_ranges),
            ms(&self.equal_hybrid)
        )
    }
}

fn imbalance(timed: &Timed) -> f64 {
    timed.stats.hybrid.as_ref().map_or(0.0, |hybrid| hybrid.imbalance())
}

fn took(timed: &Timed) -> Option<f64> {
    Some(timed.time.as_secs_f64())
}

/// The tables of the paper that have a row for each set.
struct Tables {
    response: Table,
    queries: Table,
    overheads: Table,
    imbalance: Table,
}

impl Tables {
    fn new() -> Self {
        Tables {
            response: Table::new(&[
                "seconds",
                "k",
                "cpu",
                "gpu",
                "gpu, ranges",
                "hybrid, ranges",
                "hybrid",
                "hybrid ran",
                "cpu ÷ hybrid, ranges",
                "hybrid, ranges ÷ hybrid",
                "hybrid, ranges, without first indexes",
                "paper",
                "paper ÷ it",
            ]),
            queries: Table::new(&[
                "queries of hybrid, ranges",
                "k",
                "solved by the GPU",
                "paper",
                "failed",
                "paper",
                "indexed anew",
                "paper",
                "gpu, ranges: batches",
                "paper",
                "given away",
            ]),
            overheads: Table::new(&[
                "overheads of hybrid, ranges",
                "k",
                "plan, with finding ε",
                "paper: finding ε",
                "paper: ordering the queue",
            ]),
            imbalance: Table::new(&[
                "imbalance",
                "k",
                "hybrid, ranges",
                "hybrid",
                "of a strength: ranges",
                "of a strength: hybrid, dyn",
                "paper",
                "cpu, s",
                "of a strength: ranges, s",
                "of a strength: hybrid, s",
                "cpu ÷ it",
            ]),
        }
    }

    /// Adds what a set took for one of [`KS`].
    fn add(&mut self, set: &Set, at: usize, of: &Times, setting: &Setting<'_>) {
        let k = KS[at];
        let paper = setting.paper(set.seconds(k));
        let named = |cells: Vec<String>| {
            let mut row = vec![set.name.to_string(), k.to_string()];
            row.extend(cells);
            row
        };
        let told = Told::by(&of.ranges);
        let all = [&of.cpu, &of.tree, &of.gpu_ranges, &of.ranges, &of.hybrid];
        let mut cells: Vec<String> = all.map(|timed| seconds(took(timed))).into();
        cells.extend([
            ran(&of.hybrid.stats).into(),
            times(took(&of.cpu), took(&of.ranges)),
            times(took(&of.ranges), took(&of.hybrid)),
            seconds(Some(told.seconds)),
            seconds(paper),
            times(paper, Some(told.seconds)),
        ]);
        self.response.row(named(cells));

        let again = |(share, times): (f64, u64)| format!("{} ({times})", percent(share));
        let alone = Told::by(&of.gpu_ranges);
        self.queries.row(named(vec![
            percent(told.solved()),
            format!("< {:.0} %", 100.0 * SOLVED),
            format!("{:.3}", told.failed()),
            format!("{:.3}", set.failed[at]),
            again(told.reindexing()),
            again(set.reindexing[at]),
            alone.batches().to_string(),
            set.batches_alone.map_or("–".into(), |batches| batches.to_string()),
            percent(alone.given_away()),
        ]));

        if k == K {
            let plan = of.ranges.stats.plan.as_secs_f64() / told.seconds;
            let shares = [plan, set.finding_eps, set.ordering];
            self.overheads.row(named(shares.map(percent).into()));
        }

        let all = [&of.ranges, &of.hybrid, &of.equal_ranges, &of.equal_hybrid];
        let mut cells: Vec<String> = all.map(|timed| format!("{:.2}", imbalance(timed))).into();
        cells.push(format!("< {IMBALANCE:.2}"));
        cells.extend([&of.cpu, &of.equal_ranges, &of.equal_hybrid].map(|of| seconds(took(of))));
        cells.push(times(took(&of.cpu), took(&of.equal_hybrid)));
        self.imbalance.row(named(cells));
    }

    fn text(&self, setting: &Setting<'_>) -> String {
        let checked = match setting.options.check {
            true => "Answers are the CPU's in every bit",
            false => "Answers were not compared",
        };
        format!(
            "## HybridKNN-Join's tables\n\n\
             {} f32 points in each set; best of {} calls after one that does not count, of one where\n\
             a call takes over half a second; into arrays that are used again. `ranges` is the paper's\n\
             scheme with its options (table 4), but for the last few queries; `gpu` and `hybrid` without\n\
             it are what nearjoin does by itself. {checked}. The paper's machine:\n\
             {MACHINE}.\n\n\
             Response time, beside the paper's tables 6 (k = 32) and 7 (k = 8, t = 8); its plots (figure\n\
             16) have no numbers. Its times leave out the first indexes.\n\n{}\n\
             Queries solved by the GPU, beside figure 19(b); failed of attempted queries, beside table 8;\n\
             the share of the time to index anew and how often, beside table 9; batches of a GPU alone,\n\
             beside figure 15, whose k is not given, and what it gave to the CPU in the end.\n\n{}\n\
             Overheads, beside table 6, as shares of the time without first indexes. The order of the\n\
             queue is within our time to join.\n\n{}\n\
             Imbalance, beside figure 12: |T_cpu − T_gpu| ÷ T; it is 0 where one of them stood by. Of a\n\
             strength: the GPU is held back until it alone would take as long as the CPU alone.\n\n{}",
            grouped(setting.points as u64),
            setting.reps(),
            self.response,
            self.queries,
            self.overheads,
            self.imbalance,
        )
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
