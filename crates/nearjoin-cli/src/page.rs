//! The page of `--report`: what is known of a run, as a report wants it.

use nearjoin::gpu::{Cooperation, GpuStats};
use nearjoin::{Device, Metric, Plan, Points, Strategy};
use nearjoin_io::Loaded;

use crate::grouping::Grouped;
use crate::join::Run;
use crate::load::Held;
use crate::number;
use crate::options::Output;
use crate::output::{Job, Outcome};
use crate::question::{Answer, Asked, Question};
use crate::report::{self, Density, Extent, Histogram};
use crate::sharing;
use crate::system;
use crate::tally::Tally;
use crate::telling::{Timeline, described, found, name, points};

/// The page of `--report`.
pub(crate) fn page<T: Held>(
    run: &Run<'_>,
    job: &Job<'_, T>,
    plan: &Plan<'_, T>,
    timeline: &Timeline,
    outcome: &Outcome,
) -> String {
    let Asked { question, engine, strategy, answer, .. } = run.asked;
    let pairs = number::count(outcome.pairs);
    let how = match (question, answer) {
        (_, Answer::Groups(_)) => format!("joined: {}", found(&run.asked, outcome)),
        (Question::Within { eps, .. }, _) => format!("joined within {eps:?}: {pairs} pairs"),
        (Question::Knn { k, .. }, _) => {
            format!("joined with their nearest (k = {k}): {pairs} pairs")
        }
    };
    let title = format!("{} {how} in {:.2} s", points(run), timeline.total());
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
    let shared = outcome.hybrid.as_ref();
    let workers = shared.map(|shared| sharing::workers(shared, timeline.began("join")));
    let workers = workers.unwrap_or_default();
    let densities = pictures(job);
    let axes = |side: &Loaded| [0, 1].map(|j| side.columns.get(j).cloned().unwrap_or_default());
    let names: Vec<_> =
        [Some(&run.sides.left), run.sides.right.as_ref()].into_iter().flatten().map(axes).collect();
    let shape = match engine.metric {
        Metric::L1 => report::Ball::Diamond,
        Metric::Linf => report::Ball::Square,
        _ => report::Ball::Circle,
    };
    // Every point has the same neighbourhood only where ε is given.
    let (ball, expected_pairs) = match question {
        Question::Within { eps, half, .. } => {
            let directions = if half { 2.0 } else { 1.0 };
            (Some((eps, shape)), Some(plan.estimated_pairs() / directions))
        }
        Question::Knn { .. } => (None, None),
    };
    let titles = if densities.len() > 1 { ["Left points", "Right points"] } else { ["Points"; 2] };
    let pictures: Vec<_> = densities
        .iter()
        .zip(&names)
        .zip(titles)
        .map(|((density, [x, y]), title)| report::Picture { title, axes: [x, y], density, ball })
        .collect();
    let histogram = match &outcome.tally {
        Some(Tally::Degrees { degrees, .. }) => Histogram::of(degrees),
        Some(Tally::Reach { k, distances }) => Histogram::of_reach(*k, distances),
        None => None,
    };
    let chosen = plan.strategy().to_string();
    report::render(&report::Report {
        title: &title,
        program: concat!("nearjoin ", env!("CARGO_PKG_VERSION")),
        date: &system::today(),
        command: &system::command_line(),
        asked: &asked(run, plan),
        plan: report::Plan {
            strategy: &chosen,
            reason: match (strategy, question) {
                (Strategy::Auto, Question::Within { .. }) => {
                    "the cheapest by an estimate from a sample"
                }
                (Strategy::Auto, Question::Knn { .. }) => "the cheapest by estimate",
                _ => "as asked",
            },
            alternatives: &alternatives,
            index: &plan.index_shape(),
            expected_pairs,
            pairs: outcome.pairs,
            memory: report::Memory {
                // That of a GPU is not in this memory.
                index: if sharing::index_is_on_gpu(outcome) { 0 } else { outcome.index_bytes },
                result: outcome.written.map_or(0, |written| written.bytes),
                peak: system::peak_memory(),
                limit: Some(plan.memory_limit()).filter(|limit| *limit < u64::MAX / 2),
            },
        },
        phases: &phases,
        workers: &workers,
        neighbours: histogram.as_ref(),
        pictures: &pictures,
        numbers: &numbers(run, plan, timeline, outcome),
    })
}

fn asked<T: Held>(run: &Run<'_>, plan: &Plan<'_, T>) -> Vec<(&'static str, String)> {
    let Asked { question, include_self, sorted, strategy, engine, .. } = run.asked;
    let mut asked = vec![];
    match &run.sides.right {
        None => asked.push(("Points", described(&run.sides.left))),
        Some(right) => {
            asked.push(("Left points", described(&run.sides.left)));
            asked.push(("Right points", described(right)));
        }
    }
    let mut pairs = Vec::new();
    pairs.extend(include_self.then_some("each point with itself too"));
    pairs.extend(sorted.then_some("in ascending order"));
    match question {
        Question::Within { eps, half, distances } => {
            pairs.extend(half.then_some("each once"));
            pairs.extend(distances.then_some("with distances"));
            asked.push(("Within", format!("{eps:?} ({})", engine.metric)));
        }
        Question::Knn { k, max_distance, pad } => {
            pairs.extend(pad.then_some("as many as there are"));
            asked.push(("Nearest", format!("k = {k} ({})", engine.metric)));
            asked.extend(max_distance.map(|most| ("At most", format!("{most:?} away"))));
        }
    }
    if let Answer::Groups(grouping) = run.asked.answer {
        asked.push(("Groups", grouping.described()));
    }
    if !pairs.is_empty() {
        asked.push(("Pairs", pairs.join(", ")));
    }
    let device = match (engine.device, plan.device()) {
        (Device::Auto, Device::Hybrid) => "auto, which took both".to_string(),
        (asked, taken) if asked != taken => {
            let why = plan.why_no_gpu().map(|why| format!(": {why}"));
            format!("{asked}, which took the {taken}{}", why.unwrap_or_default())
        }
        (asked, _) => asked.to_string(),
    };
    asked.push(("Device", device));
    asked.extend(run.asked.gpu_arguments());
    asked.push(("Strategy", strategy.to_string()));
    if let Some(limit) = engine.memory_limit {
        asked.push(("Memory limit", number::bytes(limit.0)));
    }
    asked.push((
        "Output",
        match &run.output {
            Output::Count => "the number of pairs".into(),
            Output::Degrees(place) => format!("neighbours per point to {}", name(place)),
            Output::Groups(_, place) => format!("a label for each point to {}", name(place)),
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
    let index = if sharing::index_is_on_gpu(outcome) { "Index, on the GPU" } else { "Index" };
    let mut numbers = vec![
        ("Pairs", number::count(outcome.pairs)),
        ("Pairs a second, while joining", per_second(outcome.pairs)),
        ("Distance tests", number::count(outcome.distance_tests)),
        ("Distance tests a second", per_second(outcome.distance_tests)),
        ("Threads", plan.threads().to_string()),
        ("Instruction set", plan.simd().to_string()),
        ("Points in memory", number::bytes(run.sides.bytes())),
        (index, number::bytes(outcome.index_bytes)),
    ];
    if let Some(Grouped { count, noise }) = outcome.groups {
        numbers.push(("Groups", number::count(count)));
        numbers.push(("Points in no group", number::count(noise)));
    }
    if let Some(gpu) = &outcome.gpu {
        numbers.extend(on_gpu(gpu));
    }
    if let Some(shared) = &outcome.hybrid {
        numbers.extend(sharing::numbers(shared));
    }
    if let Question::Within { .. } = run.asked.question {
        numbers.push(("Pairs taken without a test", number::count(outcome.pairs_taken)));
    }
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

/// What a GPU did.
fn on_gpu(gpu: &GpuStats) -> Vec<(&'static str, String)> {
    let mut numbers = vec![
        ("GPU", gpu.device.clone()),
        ("Threads of the GPU cooperate by", gpu.cooperation.to_string()),
    ];
    if gpu.cooperation != Cooperation::Cell {
        numbers.push(("Threads of the GPU to a query", gpu.threads_per_query.to_string()));
    }
    numbers.push(("Schedule of the GPU", gpu.schedule.to_string()));
    if gpu.partitions > 1 {
        numbers.push(("Parts that the points were cut into for it", gpu.partitions.to_string()));
    }
    if gpu.brute_force {
        let why = "its matrix units round otherwise than products may";
        numbers.push(("Brute force on the GPU", why.to_string()));
    }
    numbers.push(("Batches of the GPU", format!("{}, {} made again", gpu.batches, gpu.splits)));
    numbers.push(("To the GPU", number::bytes(gpu.bytes_in)));
    numbers.push(("From the GPU", number::bytes(gpu.bytes_out)));
    if gpu.delivery_seconds > 0.0 {
        numbers.push((
            "Rows on their way from the GPU",
            format!("{:.3} s, {:.3} s predicted", gpu.delivery_seconds, gpu.predicted_seconds),
        ));
    }
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
