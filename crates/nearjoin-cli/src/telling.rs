//! What is told of a run: the explanation, the summary, `--stats` and `--report`.

use std::time::Instant;

use nearjoin::{Metric, Plan, Points};
use nearjoin_io::Loaded;
use nearjoin_io::write::Target;

use crate::args;
use crate::failure::Result;
use crate::load::Held;
use crate::number;
use crate::options::{Output, Place};
use crate::output::{Job, Outcome, write_text};
use crate::report::{self, Density, Extent, Histogram};
use crate::stats;
use crate::system;
use crate::within::Run;

/// When each phase began and ended, in seconds since the start.
#[derive(Debug)]
pub(crate) struct Timeline {
    start: Instant,
    /// When the answer was complete.
    end: f64,
    pub(crate) phases: Vec<(&'static str, f64, f64)>,
}

impl Timeline {
    pub(crate) fn start() -> Self {
        Timeline { start: Instant::now(), end: 0.0, phases: Vec::new() }
    }

    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Seconds until the answer was complete. What is told of it comes after.
    pub(crate) fn total(&self) -> f64 {
        self.end
    }

    /// What came since the last phase was this one.
    pub(crate) fn mark(&mut self, name: &'static str) {
        let start = self.phases.last().map_or(0.0, |(_, _, end)| *end);
        self.phases.push((name, start, self.now()));
    }

    /// The phases of the join itself, from what they took. Where it was run in parts, the
    /// times of all parts are put together.
    pub(crate) fn joined(&mut self, outcome: &Outcome) {
        let end = self.now();
        self.end = end;
        let written = end - outcome.write;
        let indexed = (written - outcome.join).max(0.0);
        self.phases.push(("index", indexed - outcome.index, indexed));
        self.phases.push(("join", indexed, written));
        if outcome.written.is_some() {
            self.phases.push(("finish the file", written, end));
        }
    }

    /// How long a phase took.
    pub(crate) fn took(&self, name: &str) -> f64 {
        let phase = self.phases.iter().find(|phase| phase.0 == name);
        phase.map_or(0.0, |(_, start, end)| end - start)
    }
}

/// The plan in words, with what the program adds to the engine's.
pub(crate) fn explanation<T: Held>(run: &Run<'_>, plan: &Plan<'_, T>) -> String {
    let pairs = plan.estimated_pairs();
    let answer = match &run.output {
        Output::Count => "a count".to_string(),
        Output::Degrees(place) => format!("neighbours per point to {}", name(place)),
        Output::Pairs(place) => {
            let rows = if run.args.half { pairs / 2.0 } else { pairs };
            let distance = if run.args.distances { size_of::<T>() as f64 } else { 0.0 };
            format!(
                "about {} pairs to {}, {} as plain numbers",
                number::estimate(rows),
                name(place),
                number::bytes((rows * (8.0 + distance)) as u64)
            )
        }
    };
    let sides = [Some(&run.sides.left), run.sides.right.as_ref()].into_iter().flatten();
    let read: Vec<_> = sides.map(|side| format!("read {}\n", described(side))).collect();
    let fits = match plan.check_memory() {
        Ok(()) => String::new(),
        Err(error) => format!("\nthis will fail: {error}"),
    };
    format!("{}{plan}\noutput: {answer}{fits}", read.concat())
}

/// `2,000,000 points`, or `5,000 × 8,000 points`.
fn points(run: &Run<'_>) -> String {
    let left = number::count(run.sides.left.points.len() as u64);
    match &run.sides.right {
        None => format!("{left} points"),
        Some(right) => format!("{left} × {} points", number::count(right.points.len() as u64)),
    }
}

fn name(place: &Place) -> String {
    match place {
        Place::Stdout => "standard output".into(),
        Place::File(path, _) => path.display().to_string(),
    }
}

/// `2,000,000 points of x, y (f64) from Parquet, 30.52 MiB`.
fn described(side: &Loaded) -> String {
    let mut columns: Vec<&str> = side.columns.iter().map(String::as_str).collect();
    if columns.len() > 8 {
        columns.truncate(7);
        columns.push("…");
    }
    format!(
        "{} points of {} ({}) from {}, {}",
        number::count(side.points.len() as u64),
        columns.join(", "),
        side.points.dtype(),
        side.format,
        number::bytes(side.bytes)
    )
}

/// What is said when all went well.
pub(crate) fn summary<T: Held>(
    run: &Run<'_>,
    plan: &Plan<'_, T>,
    timeline: &Timeline,
    outcome: &Outcome,
) -> String {
    let into = match (&run.output, outcome.written) {
        (
            Output::Pairs(Place::File(path, _)) | Output::Degrees(Place::File(path, _)),
            Some(file),
        ) => {
            format!(" → {} ({})", path.display(), number::bytes(file.bytes))
        }
        _ => String::new(),
    };
    let mut text = format!(
        "{} pairs within {:?} among {}{into} in {:.2} s",
        number::count(outcome.pairs),
        run.args.eps,
        points(run),
        timeline.total(),
    );
    if run.args.telling.verbose {
        let phases =
            timeline.phases.iter().map(|(name, start, end)| format!("{name} {:.3} s", end - start));
        text = format!(
            "{plan}\n\n{text}\n  {}\n  {} distance tests, {} pairs taken whole; index {}, peak {}",
            phases.collect::<Vec<_>>().join(", "),
            number::count(outcome.distance_tests),
            number::count(outcome.pairs_taken),
            number::bytes(outcome.index_bytes),
            system::peak_memory().map_or("unknown".into(), number::bytes),
        );
    }
    text
}

/// The files that tell of a run.
#[derive(Default)]
pub(crate) struct About {
    pub(crate) stats: Option<Target>,
    pub(crate) report: Option<Target>,
}

impl About {
    pub(crate) fn open(telling: &args::Telling) -> Result<Self> {
        let stats = telling.stats.as_ref().map(|path| match path.as_os_str() == "-" {
            true => Ok(Target::stdout()),
            false => Target::create(path),
        });
        let report = telling.report.as_ref().map(Target::create);
        Ok(About { stats: stats.transpose()?, report: report.transpose()? })
    }

    pub(crate) fn write<T: Held>(
        self,
        run: &Run<'_>,
        job: &Job<'_, T>,
        plan: &Plan<'_, T>,
        timeline: &Timeline,
        outcome: &Outcome,
    ) -> Result {
        if let Some(target) = self.report {
            write_text(target, &page(run, job, plan, timeline, outcome))?;
        }
        let Some(target) = self.stats else { return Ok(()) };
        let right = job.right.unwrap_or(job.left);
        let figures = stats::Run {
            points: (job.left.len(), right.len()),
            is_self: job.right.is_none(),
            dimension: job.left.dimension(),
            dtype: run.sides.dtype().to_string(),
            eps: run.args.eps,
            metric: run.args.engine.metric.to_string(),
            strategy: plan.strategy().to_string(),
            simd: plan.simd().to_string(),
            threads: plan.threads(),
            load: timeline.took("load"),
            plan: timeline.took("plan"),
            total: timeline.total(),
            input_bytes: run.sides.bytes(),
            peak_bytes: system::peak_memory(),
            outcome,
        };
        write_text(target, &format!("{:#}\n", figures.json()))
    }
}

/// The page of `--report`.
fn page<T: Held>(
    run: &Run<'_>,
    job: &Job<'_, T>,
    plan: &Plan<'_, T>,
    timeline: &Timeline,
    outcome: &Outcome,
) -> String {
    let args = run.args;
    let title = format!(
        "{} joined within {:?}: {} pairs in {:.2} s",
        points(run),
        args.eps,
        number::count(outcome.pairs),
        timeline.total()
    );
    let estimates = plan.estimates();
    let names: Vec<String> = estimates.iter().map(|e| e.strategy.to_string()).collect();
    let alternatives: Vec<_> = estimates
        .iter()
        .zip(&names)
        .map(|(estimate, name)| report::Alternative {
            name,
            seconds: estimate.seconds,
            tests: estimate.distance_tests,
            chosen: estimate.strategy == plan.strategy(),
        })
        .collect();
    let phases: Vec<_> = timeline
        .phases
        .iter()
        .map(|&(name, start, end)| report::Phase { name, start, end })
        .collect();
    let densities = pictures(job);
    let axes = |side: &Loaded| [0, 1].map(|j| side.columns.get(j).cloned().unwrap_or_default());
    let names: Vec<_> =
        [Some(&run.sides.left), run.sides.right.as_ref()].into_iter().flatten().map(axes).collect();
    let ball = match args.engine.metric {
        Metric::L1 => report::Ball::Diamond,
        Metric::Linf => report::Ball::Square,
        _ => report::Ball::Circle,
    };
    let titles = if densities.len() > 1 { ["Left points", "Right points"] } else { ["Points"; 2] };
    let pictures: Vec<_> = densities
        .iter()
        .zip(&names)
        .zip(titles)
        .map(|((density, [x, y]), title)| report::Picture {
            title,
            axes: [x, y],
            density,
            ball: Some((args.eps, ball)),
        })
        .collect();
    let histogram = outcome.degrees.as_deref().and_then(Histogram::of);
    let chosen = plan.strategy().to_string();
    report::render(&report::Report {
        title: &title,
        program: concat!("nearjoin ", env!("CARGO_PKG_VERSION")),
        date: &system::today(),
        command: &system::command_line(),
        asked: &asked(run),
        plan: report::Plan {
            strategy: &chosen,
            reason: match args.engine.strategy {
                nearjoin::Strategy::Auto => "the cheapest by an estimate from a sample",
                _ => "as asked",
            },
            alternatives: &alternatives,
            index: &plan.index_shape(),
            expected_pairs: Some(plan.estimated_pairs() / if args.half { 2.0 } else { 1.0 }),
            pairs: outcome.pairs,
            memory: report::Memory {
                index: outcome.index_bytes,
                result: outcome.written.map_or(0, |written| written.bytes),
                peak: system::peak_memory(),
                limit: Some(plan.memory_limit()).filter(|limit| *limit < u64::MAX / 2),
            },
        },
        phases: &phases,
        neighbours: histogram.as_ref(),
        pictures: &pictures,
        numbers: &numbers(run, plan, timeline, outcome),
    })
}

fn asked(run: &Run<'_>) -> Vec<(&'static str, String)> {
    let args = run.args;
    let mut asked = vec![];
    match &run.sides.right {
        None => asked.push(("Points", described(&run.sides.left))),
        Some(right) => {
            asked.push(("Left points", described(&run.sides.left)));
            asked.push(("Right points", described(right)));
        }
    }
    let mut pairs = Vec::new();
    pairs.extend(args.half.then_some("each once"));
    pairs.extend(args.include_self.then_some("each point with itself too"));
    pairs.extend(args.sorted.then_some("in ascending order"));
    pairs.extend(args.distances.then_some("with distances"));
    if !pairs.is_empty() {
        asked.push(("Pairs", pairs.join(", ")));
    }
    asked.push(("Within", format!("{:?} ({})", args.eps, args.engine.metric)));
    asked.push(("Device", args.engine.device.to_string()));
    asked.push(("Strategy", args.engine.strategy.to_string()));
    if let Some(limit) = args.engine.memory_limit {
        asked.push(("Memory limit", number::bytes(limit.0)));
    }
    asked.push((
        "Output",
        match &run.output {
            Output::Count => "the number of pairs".into(),
            Output::Degrees(place) => format!("neighbours per point to {}", name(place)),
            Output::Pairs(place) => name(place),
        },
    ));
    asked
}

fn numbers<T: Held>(
    run: &Run<'_>,
    plan: &Plan<'_, T>,
    timeline: &Timeline,
    outcome: &Outcome,
) -> Vec<(&'static str, String)> {
    let per_second = |n: u64| number::estimate(n as f64 / outcome.join.max(1e-9));
    let mut numbers = vec![
        ("Pairs", number::count(outcome.pairs)),
        ("Pairs a second, while joining", per_second(outcome.pairs)),
        ("Distance tests", number::count(outcome.distance_tests)),
        ("Distance tests a second", per_second(outcome.distance_tests)),
        ("Pairs taken without a test", number::count(outcome.pairs_taken)),
        ("Threads", plan.threads().to_string()),
        ("Instruction set", plan.simd().to_string()),
        ("Points in memory", number::bytes(run.sides.bytes())),
        ("Index", number::bytes(outcome.index_bytes)),
    ];
    if outcome.parts > 1 {
        numbers.push(("Parts that the left points were joined in", outcome.parts.to_string()));
    }
    if let Some(written) = outcome.written {
        numbers.push(("Output", number::bytes(written.bytes)));
    }
    if let Some(peak) = system::peak_memory() {
        numbers.push(("Memory at the peak", number::bytes(peak)));
    }
    numbers.push(("Seconds in all", format!("{:.3}", timeline.total())));
    numbers
}

/// The density of each set, in two dimensions.
fn pictures<T: Held>(job: &Job<'_, T>) -> Vec<Density> {
    if job.left.dimension() != 2 {
        return Vec::new();
    }
    fn rows<'a, T: Held>(points: &Points<'a, T>) -> impl Iterator<Item = [f64; 2]> + 'a {
        points.as_slice().chunks_exact(2).map(|row| [row[0].to_f64(), row[1].to_f64()])
    }
    let sides: Vec<_> = [Some(job.left), job.right].into_iter().flatten().collect();
    // Two pictures have one extent, so that they can be compared.
    let Some(extent) = Extent::of(sides.iter().flat_map(rows)) else { return Vec::new() };
    sides.iter().map(|points| Density::of(rows(points), extent)).collect()
}
