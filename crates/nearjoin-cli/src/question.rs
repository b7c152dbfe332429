//! What is asked of the points, whichever join answers it.

use std::path::Path;

use nearjoin::gpu::{Cooperation, GpuOptions};
use nearjoin::{Device, DuplicateRemoval, RangesOptions, Strategy};

use crate::args;
use crate::failure::{Failure, Result};
use crate::grouping::Grouping;
use crate::number;
use crate::options::Bytes;

/// The least memory of a GPU that is worth trying with.
const LEAST: u64 = 128 << 20;

/// A join as it was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) question: Question,
    pub(crate) answer: Answer,
    /// Where the answer goes.
    pub(crate) output: Option<&'a Path>,
    pub(crate) include_self: bool,
    pub(crate) sorted: bool,
    pub(crate) strategy: Strategy,
    pub(crate) removal: DuplicateRemoval,
    /// Whether the CPU finishes what a GPU leaves.
    pub(crate) rescue: bool,
    pub(crate) gpu: args::Gpu,
    pub(crate) gpu_threads: args::GpuThreads,
    pub(crate) ranges: args::Ranges,
    pub(crate) input: &'a args::Input,
    pub(crate) engine: &'a args::Engine,
    pub(crate) telling: &'a args::Telling,
}

/// Which neighbours of each point are the answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Question {
    /// All within ε.
    Within { eps: f64, half: bool, distances: bool },
    /// The k nearest, with their distances.
    Knn { k: usize, max_distance: Option<f64>, pad: bool },
}

/// What is made of the neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// How many pairs there are.
    Count,
    /// How many neighbours each point has.
    Degrees,
    /// All pairs.
    Pairs,
    /// Which group each point belongs to.
    Groups(Grouping),
}

impl Answer {
    fn new(output: &args::Output) -> Self {
        match output {
            args::Output { count: true, .. } => Answer::Count,
            args::Output { degrees: true, .. } => Answer::Degrees,
            _ => Answer::Pairs,
        }
    }
}

impl<'a> From<&'a args::Within> for Asked<'a> {
    fn from(args: &'a args::Within) -> Self {
        let &args::Within { eps, half, distances, include_self, sorted, .. } = args;
        let question = Question::Within { eps, half, distances };
        Asked {
            answer: Answer::new(&args.output),
            output: args.output.place.output.as_deref(),
            include_self,
            sorted,
            ..Asked::within(question, &args.input, &args.epsilon, &args.telling)
        }
    }
}

impl<'a> From<&'a args::Components> for Asked<'a> {
    fn from(args: &'a args::Components) -> Self {
        // Both points of a pair are in one group: each pair is found once.
        let question = Question::Within { eps: args.eps, half: true, distances: false };
        Asked {
            answer: Answer::Groups(Grouping::Components),
            output: args.place.output.as_deref(),
            ..Asked::within(question, &args.input, &args.epsilon, &args.telling)
        }
    }
}

impl<'a> From<&'a args::Dbscan> for Asked<'a> {
    fn from(args: &'a args::Dbscan) -> Self {
        let min_points = args.min_points.0 as usize;
        let answer = Answer::Groups(Grouping::Dbscan { min_points });
        Asked { answer, ..Asked::from(&args.grouping) }
    }
}

impl<'a> From<&'a args::Knn> for Asked<'a> {
    fn from(args: &'a args::Knn) -> Self {
        let &args::Knn { k, max_distance, pad, include_self, sorted, strategy, .. } = args;
        Asked {
            question: Question::Knn { k: k.0 as usize, max_distance, pad },
            answer: Answer::new(&args.output),
            output: args.output.place.output.as_deref(),
            include_self,
            sorted,
            strategy,
            removal: DuplicateRemoval::default(),
            rescue: args.rescue,
            gpu: args.gpu,
            gpu_threads: args::GpuThreads::default(),
            ranges: args.ranges,
            input: &args.input,
            engine: &args.engine,
            telling: &args.telling,
        }
    }
}

impl<'a> Asked<'a> {
    /// All pairs within ε, to standard output.
    fn within(
        question: Question,
        input: &'a args::Input,
        epsilon: &'a args::Epsilon,
        telling: &'a args::Telling,
    ) -> Self {
        Asked {
            question,
            answer: Answer::Pairs,
            output: None,
            include_self: false,
            sorted: false,
            strategy: epsilon.strategy,
            removal: epsilon.duplicate_removal,
            rescue: epsilon.rescue,
            gpu: epsilon.gpu,
            gpu_threads: epsilon.gpu_threads,
            ranges: args::Ranges::default(),
            input,
            engine: &epsilon.engine,
            telling,
        }
    }

    /// The command that asks it.
    pub(crate) fn command(&self) -> &'static str {
        match (self.answer, self.question) {
            (Answer::Groups(grouping), _) => grouping.command(),
            (_, Question::Within { .. }) => "within",
            (_, Question::Knn { .. }) => "knn",
        }
    }

    /// Refuses answers that the question does not have.
    pub(crate) fn check_answer(&self) -> Result {
        if let (Answer::Groups(grouping), Some(about)) = (self.answer, self.input.about_right()) {
            return Err(Failure::usage(format!(
                "{} groups the points of one set: leave {about} out",
                grouping.command()
            )));
        }
        match (self.answer, self.question) {
            (Answer::Degrees, Question::Knn { max_distance: None, .. }) => Err(Failure::usage(
                "without --max-distance every point has the same number of neighbours: give one, \
                 or leave --degrees out",
            )),
            (Answer::Groups(Grouping::Dbscan { min_points: 0 }), _) => Err(Failure::usage(
                "--min-points 0: it must be 1 or more, since a point is within ε of itself",
            )),
            _ => Ok(()),
        }
    }

    /// What was asked of the GPU, as the arguments are written.
    pub(crate) fn gpu_arguments(&self) -> Vec<(&'static str, String)> {
        let args::Gpu { partitioning, batch_size, gpu_memory } = self.gpu;
        let args::GpuThreads { cooperation, threads_per_query, schedule } = self.gpu_threads;
        let bytes = |size: Option<Bytes>| size.map(|Bytes(size)| number::bytes(size));
        let given = [
            ("--partitioning", partitioning.map(|name| name.to_string())),
            ("--rescue", self.rescue.then(|| "yes".to_string())),
            ("--cooperation", cooperation.map(|name| name.to_string())),
            ("--threads-per-query", threads_per_query.map(|threads| threads.to_string())),
            ("--schedule", schedule.map(|name| name.to_string())),
            ("--batch-size", bytes(batch_size)),
            ("--gpu-memory", bytes(gpu_memory)),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Refuses options of one strategy where another was named.
    fn check_strategy(&self) -> Result {
        if self.strategy == Strategy::Ranges && self.gpu.partitioning.is_some() {
            return Err(Failure::usage(
                "--partitioning is for other strategies: with --strategy ranges, --window and the \
                 batches say how the CPU and the GPU share the work",
            ));
        }
        let args::Ranges { large, small, window, cpu_batch, eps_factor, threads_per_query } =
            self.ranges;
        let given = [
            ("--large", large.is_some()),
            ("--small", small.is_some()),
            ("--window", window.is_some()),
            ("--cpu-batch", cpu_batch.is_some()),
            ("--eps-factor", eps_factor.is_some()),
            ("--threads-per-query", threads_per_query.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) if self.strategy != Strategy::Ranges => Err(Failure::usage(format!(
                "{name} is for --strategy ranges, and the strategy is {}: name that one, or leave \
                 {name} out",
                self.strategy
            ))),
            _ => Ok(()),
        }
    }

    /// The options of joins by ranges in the library's terms.
    pub(crate) fn ranges_options(&self) -> RangesOptions {
        let args::Ranges { large, small, window, cpu_batch, eps_factor, threads_per_query } =
            self.ranges;
        let mut options = RangesOptions::new();
        options = large.map_or(options, |share| options.large(share));
        options = small.map_or(options, |share| options.small(share));
        options = window.map_or(options, |share| options.window(share));
        options = cpu_batch.map_or(options, |share| options.cpu(share));
        options = eps_factor.map_or(options, |factor| options.eps_factor(factor));
        threads_per_query.map_or(options, |threads| options.threads_per_query(threads))
    }

    /// Refuses options of one device where another was named, and options that exclude each
    /// other.
    pub(crate) fn check_device(&self) -> Result {
        self.check_strategy()?;
        let device = self.engine.device;
        let by_query =
            matches!(self.removal, DuplicateRemoval::LinearCoord | DuplicateRemoval::Unicomp);
        if let (Device::Cpu | Device::Gpu, Some(_)) = (device, self.gpu.partitioning) {
            return Err(Failure::usage(format!(
                "--partitioning is for the CPU and the GPU together, and --device {device} leaves \
                 one of them out: drop one of the two options, or use --device hybrid"
            )));
        }
        if let (Device::Cpu, Some((name, _))) = (device, self.gpu_arguments().first()) {
            return Err(Failure::usage(format!(
                "{name} is for the GPU, and --device cpu leaves it out: drop one of them"
            )));
        }
        if device == Device::Cpu && self.removal == DuplicateRemoval::LinearCoord {
            return Err(Failure::usage(
                "--duplicate-removal linear-coord is for the GPU: with --device cpu use none, \
                 unicomp or lid-unicomp",
            ));
        }
        match self.gpu_threads.cooperation {
            Some(shared @ (Cooperation::Cell | Cooperation::Warp))
                if self.gpu_threads.threads_per_query.is_some() =>
            {
                return Err(Failure::usage(format!(
                    "--threads-per-query is for --cooperation thread: with {shared}, queries \
                     share the threads of a warp as they need them"
                )));
            }
            Some(Cooperation::Cell) if by_query => {
                return Err(Failure::usage(format!(
                    "--duplicate-removal {} is for queries that look for themselves: use \
                     --cooperation thread or warp with it",
                    self.removal
                )));
            }
            _ => {}
        }
        for (name, size, least) in
            [("--batch-size", self.gpu.batch_size, 1), ("--gpu-memory", self.gpu.gpu_memory, LEAST)]
        {
            if let Some(Bytes(size)) = size.filter(|size| size.0 < least) {
                return Err(Failure::usage(format!(
                    "{name} {}: it must be at least {}",
                    number::bytes(size),
                    number::bytes(least)
                )));
            }
        }
        Ok(())
    }

    /// The same in the library's terms.
    pub(crate) fn gpu_options(&self) -> GpuOptions {
        let args::Gpu { batch_size, gpu_memory, .. } = self.gpu;
        let args::GpuThreads { cooperation, threads_per_query, schedule } = self.gpu_threads;
        let mut options = GpuOptions::new()
            .cooperation(cooperation.unwrap_or_default())
            .schedule(schedule.unwrap_or_default());
        if let Some(threads) = threads_per_query {
            options = options.threads_per_query(threads);
        }
        if let Some(Bytes(bytes)) = batch_size {
            options = options.batch_bytes(bytes);
        }
        if let Some(Bytes(bytes)) = gpu_memory {
            options = options.memory_limit(bytes);
        }
        options
    }
}

impl Question {
    /// Whether each pair of a self-join is in the answer once.
    pub(crate) fn half(self) -> bool {
        matches!(self, Question::Within { half: true, .. })
    }

    /// Whether the answer has distances.
    pub(crate) fn distances(self) -> bool {
        matches!(self, Question::Within { distances: true, .. } | Question::Knn { .. })
    }

    /// Whether the neighbours of each point are numbered: 1 is the nearest.
    pub(crate) fn ranked(self) -> bool {
        matches!(self, Question::Knn { .. })
    }

    /// What the engine refused, in the words of the command line.
    pub(crate) fn refused(self, error: nearjoin::Error) -> Failure {
        match (self, error) {
            (Question::Knn { .. }, nearjoin::Error::Epsilon { value, kind }) => {
                Failure::usage(format!(
                    "--max-distance {value:?} is not a distance: it must be 0 or more and finite \
                     in {kind}"
                ))
            }
            (_, nearjoin::Error::Number { name, value, allowed }) => Failure::usage(format!(
                "--{} {value}: it must be {allowed}",
                name.replace('ε', "eps").replace(' ', "-")
            )),
            (_, nearjoin::Error::TooFewPoints { k, points }) => Failure::failed(format!(
                "-k {k}: there are only {points} points to choose from: lower it, or give --pad to \
                 have as many as there are"
            )),
            (_, error) => error.into(),
        }
    }
}
