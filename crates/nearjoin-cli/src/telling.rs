//! What is told of a run: the explanation, the summary, `--stats` and `--report`.

use std::time::Instant;

use nearjoin::Plan;
use nearjoin::gpu::GpuStats;
use nearjoin_io::write::Target;
use nearjoin_io::{Loaded, quote};

use crate::args;
use crate::failure::{Result, check_stdout};
use crate::join::Run;
use crate::load::Held;
use crate::number;
use crate::options::{Output, Place};
use crate::output::{Job, Outcome, write_text};
use crate::page::page;
use crate::question::{Answer, Asked, Question};
use crate::sharing;
use crate::stats;
use crate::system;

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
            self.phases.push(("write", written, end));
        }
    }

    /// When a phase began.
    pub(crate) fn began(&self, name: &str) -> f64 {
        let phase = self.phases.iter().find(|phase| phase.0 == name);
        phase.map_or(0.0, |(_, start, _)| *start)
    }

    /// How long a phase took.
    pub(crate) fn took(&self, name: &str) -> f64 {
        let phase = self.phases.iter().find(|phase| phase.0 == name);
        phase.map_or(0.0, |(_, start, end)| end - start)
    }
}

/// The plan in words, with what the program adds to the engine's.
pub(crate) fn explanation<T: Held>(run: &Run<'_>, job: &Job<'_, T>, plan: &Plan<'_, T>) -> String {
    let question = run.asked.question;
    let answer = match &run.output {
        Output::Count => "a count".to_string(),
        Output::Degrees(place) => format!("neighbours per point to {}", name(place)),
        Output::Groups(_, place) => format!("a label for each point to {}", name(place)),
        Output::Pairs(place) => {
            let once = if question.half() { 0.5 } else { 1.0 };
            let rows = plan.expected_pairs().times(once);
            let rank = if question.ranked() { 4.0 } else { 0.0 };
            let distance = if question.distances() { size_of::<T>() as f64 } else { 0.0 };
            let pairs = match question {
                Question::Within { .. } => rows.of("pairs"),
                Question::Knn { .. } => format!("up to {}", rows.of("pairs")),
            };
            format!(
                "{pairs} to {}, {} as plain numbers",
                name(place),
                number::bytes((rows.about * (8.0 + rank + distance)) as u64)
            )
        }
    };
    let sides = [Some(&run.sides.left), run.sides.right.as_ref()].into_iter().flatten();
    let read: Vec<_> = sides.map(|side| format!("read {}\n", described(side))).collect();
    let fits = match plan.check_memory() {
        Ok(()) => String::new(),
        Err(error) => format!("\nthis will fail: {error}"),
    };
    let in_order = matches!(&run.output, Output::Pairs(place) if job.is_in_order(place.format()));
    let in_parts = job.in_parts(plan, plan.index_bytes()).filter(|_| in_order);
    let in_parts = in_parts.map_or(String::new(), |in_parts| format!("\n{in_parts}"));
    format!("{}{plan}\noutput: {answer}{in_parts}{fits}", read.concat())
}

/// `2,000,000 points`, or `5,000 × 8,000 points`.
pub(crate) fn points(run: &Run<'_>) -> String {
    let left = number::count(run.sides.left.points.len() as u64);
    match &run.sides.right {
        None => format!("{left} points"),
        Some(right) => format!("{left} × {} points", number::count(right.points.len() as u64)),
    }
}

pub(crate) fn name(place: &Place) -> String {
    match place {
        Place::Stdout => "standard output".into(),
        Place::File(path, _) => quote::path(path),
    }
}

/// `2,000,000 points of x, y (f64) from Parquet, 30.52 MiB`.
pub(crate) fn described(side: &Loaded) -> String {
    let mut columns: Vec<String> = side.columns.iter().map(|name| quote::bare(name)).collect();
    if columns.len() > 8 {
        columns.truncate(7);
        columns.push("…".to_owned());
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

/// `4,000 pairs within 0.5`: what the answer has.
pub(crate) fn found(asked: &Asked<'_>, outcome: &Outcome) -> String {
    let pairs = number::count(outcome.pairs);
    match (asked.question, asked.answer, outcome.groups) {
        (Question::Within { eps, .. }, Answer::Groups(grouping), Some(groups)) => {
            grouping.told(eps, groups)
        }
        (Question::Within { eps, .. }, ..) => format!("{pairs} pairs within {eps:?}"),
        (Question::Knn { k, max_distance: None, .. }, ..) => {
            format!("{pairs} nearest neighbours (k = {k})")
        }
        (Question::Knn { k, max_distance: Some(most), .. }, ..) => {
            format!("{pairs} nearest neighbours (k = {k}, at most {most:?} away)")
        }
    }
}

/// What is said when all went well.
pub(crate) fn summary<T: Held>(
    run: &Run<'_>,
    plan: &Plan<'_, T>,
    timeline: &Timeline,
    outcome: &Outcome,
) -> String {
    let into = match (run.output.place(), outcome.written) {
        (Some(Place::File(path, _)), Some(file)) => {
            format!(" → {} ({})", quote::path(path), number::bytes(file.bytes))
        }
        _ => String::new(),
    };
    let mut text = format!(
        "{} among {}{into} in {:.2} s",
        found(&run.asked, outcome),
        points(run),
        timeline.total(),
    );
    if run.asked.telling.verbose {
        let phases =
            timeline.phases.iter().map(|(name, start, end)| format!("{name} {:.3} s", end - start));
        let taken = match run.asked.question {
            Question::Within { .. } => {
                format!(", {} pairs taken whole", number::count(outcome.pairs_taken))
            }
            Question::Knn { .. } => String::new(),
        };
        text = format!(
            "{plan}\n\n{text}\n  {}\n  {} distance tests{taken}; index {}, peak {}",
            phases.collect::<Vec<_>>().join(", "),
            number::count(outcome.distance_tests),
            number::bytes(outcome.index_bytes),
            system::peak_memory().map_or("unknown".into(), number::bytes),
        );
        text.extend(outcome.gpu.as_ref().map(|gpu| format!("\n  {}", on_gpu(gpu))));
        let shared = outcome.hybrid.as_ref().and_then(sharing::line);
        text.extend(shared.map(|shared| format!("\n  {shared}")));
        let ranges = outcome.ranges.as_ref().map(sharing::ranges);
        text.extend(ranges.map(|ranges| format!("\n  {ranges}")));
    }
    let lost = outcome.hybrid.as_ref().and_then(|shared| shared.lost.as_ref());
    text.extend(lost.map(|lost| format!("\nwarning: {}", sharing::lost(lost))));
    text
}

/// What a GPU did, in a line.
fn on_gpu(gpu: &GpuStats) -> String {
    let parts = match gpu.partitions {
        0 | 1 => String::new(),
        parts => format!("points in {parts} parts, "),
    };
    let how = match gpu.brute_force {
        true => "by brute force, its matrix units round otherwise than products may; ",
        false => "",
    };
    format!(
        "{}: {how}{parts}{} batches, {} of them made again; {} to it, {} from it",
        gpu.device,
        gpu.batches,
        gpu.splits,
        number::bytes(gpu.bytes_in),
        number::bytes(gpu.bytes_out)
    )
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
            true => check_stdout().map(|()| Target::stdout()),
            false => Ok(Target::create(path)?),
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
            asked: run.asked,
            strategy: plan.strategy().to_string(),
            device: plan.device().to_string(),
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
