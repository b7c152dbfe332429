//! The arguments as they are written, and nothing else: what they mean is decided in
//! `options.rs`. The help, the man pages and the completions are all made from here.

use std::path::PathBuf;

use clap::{Arg, Args, Parser, Subcommand, ValueEnum, ValueHint};
use nearjoin::{Metric, Strategy};

use crate::options::Number;

mod examples;
mod groups;

use groups::named;
pub(crate) use groups::{
    Destination, Engine, Epsilon, Gpu, GpuThreads, Input, Output, Ranges, Telling,
};

/// Exact joins of points by distance: which pairs lie within ε, which k points are nearest.
#[derive(Debug, Parser)]
#[command(
    name = "nearjoin",
    version,
    max_term_width = 100,
    after_help = "\
Start here:
  nearjoin demo                                  see it at work on points it makes itself
  nearjoin estimate points.csv                   which ε gives how many neighbours
  nearjoin within points.csv --eps 0.5 -o pairs.parquet
  nearjoin knn points.csv -k 8 -o neighbours.parquet
  nearjoin dbscan points.csv --eps 0.5 --min-points 5 -o clusters.parquet

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Find all pairs of points within a distance ε of each other
    ///
    /// Joins a set with itself, or A with B. The answer is exact: a pair at exactly ε is in
    /// it. A point is not its own neighbour, but a duplicate of it is.
    #[command(after_help = examples::WITHIN)]
    Within(Within),
    /// Find the k nearest neighbours of each point
    ///
    /// Joins a set with itself, or A with B: for each point of A its nearest in B. The answer is
    /// exact: neighbours ascend by distance, and those at the same distance by row. A point is
    /// not its own neighbour, but a duplicate of it is.
    #[command(after_help = examples::KNN)]
    Knn(Knn),
    /// Find clusters by DBSCAN: a label for each point
    ///
    /// A point with M points within ε, itself included, is a core. Cores within ε of each other are
    /// in one cluster; another point is in that of the core with the smallest row within ε, or it is
    /// noise. The answer is exact, and the same on every device.
    #[command(after_help = examples::DBSCAN)]
    Dbscan(Dbscan),
    /// Find connected components (friends of friends): a label for each point
    ///
    /// Two points are in one component if there is a way between them in steps of at most ε. Every
    /// point is in one, if only by itself. The answer is exact, and the same on every device.
    #[command(after_help = examples::COMPONENTS)]
    Components(Components),
    /// Tell which ε gives how many neighbours, from a sample
    #[command(after_help = examples::ESTIMATE)]
    Estimate(Estimate),
    /// Make a file of points
    #[command(after_help = examples::GEN)]
    Gen(Gen),
    /// Tell what this machine has: processors, SIMD level, memory, GPU
    #[command(after_help = examples::INFO)]
    Info(Info),
    /// Make points, join them, and show the result
    #[command(after_help = "Example:\n  nearjoin demo")]
    Demo(Demo),
    /// Print a script that completes nearjoin's arguments in a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a folder
    #[command(after_help = "Example:\n  nearjoin man ~/.local/share/man/man1")]
    Man {
        /// The folder; it must exist.
        #[arg(value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}

/// `nearjoin within`
#[derive(Debug, Args)]
pub(crate) struct Within {
    #[command(flatten)]
    pub(crate) input: Input,
    /// The distance ε: pairs at most this far apart are found
    #[arg(long, value_name = "E", allow_negative_numbers = true, help_heading = "Join")]
    pub(crate) eps: f64,
    /// Each pair once, the smaller row on the left; not with B or --include-self
    #[arg(
        long,
        conflicts_with_all = ["right", "include_self", "degrees"],
        help_heading = "Join"
    )]
    pub(crate) half: bool,
    /// Each point is its own neighbour too
    #[arg(long, conflicts_with = "right", help_heading = "Join")]
    pub(crate) include_self: bool,
    /// Pairs in ascending order: by left row, then by right row
    #[arg(long, help_heading = "Join")]
    pub(crate) sorted: bool,
    /// A column with the distance of each pair
    #[arg(long, conflicts_with_all = ["count", "degrees"], help_heading = "Join")]
    pub(crate) distances: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) epsilon: Epsilon,
    #[command(flatten)]
    pub(crate) telling: Telling,
}

/// `nearjoin knn`
#[derive(Debug, Args)]
pub(crate) struct Knn {
    #[command(flatten)]
    pub(crate) input: Input,
    /// How many neighbours of each point
    #[arg(short, value_name = "K", help_heading = "Join")]
    pub(crate) k: Number,
    /// Each point is its own neighbour too
    #[arg(long, conflicts_with = "right", help_heading = "Join")]
    pub(crate) include_self: bool,
    /// No neighbours farther away than this; points may then have fewer than K
    #[arg(long, value_name = "R", allow_negative_numbers = true, help_heading = "Join")]
    pub(crate) max_distance: Option<f64>,
    /// K may be more than there are points to choose from: tables then have fewer rows, and the
    /// rows of an npz are filled up with 4294967295 and inf
    #[arg(long, help_heading = "Join")]
    pub(crate) pad: bool,
    /// Left points in ascending order of their rows; those of an npz always are
    #[arg(long, help_heading = "Join")]
    pub(crate) sorted: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) engine: Engine,
    /// How to find candidates; product is for L2 in many dimensions
    #[arg(
        long,
        default_value = "auto",
        value_name = "NAME",
        value_parser = named(Strategy::KNN),
        help_heading = "Engine"
    )]
    pub(crate) strategy: Strategy,
    /// The CPU finishes what a GPU that fails leaves; auto and hybrid always do
    #[arg(long, help_heading = "Engine")]
    pub(crate) rescue: bool,
    #[command(flatten)]
    pub(crate) gpu: Gpu,
    #[command(flatten)]
    pub(crate) ranges: Ranges,
    #[command(flatten)]
    pub(crate) telling: Telling,
}

/// `nearjoin dbscan`
#[derive(Debug, Args)]
pub(crate) struct Dbscan {
    #[command(flatten)]
    pub(crate) grouping: Components,
    /// How many points within ε make a point a core, itself included
    #[arg(long, value_name = "M", help_heading = "Join")]
    pub(crate) min_points: Number,
}

/// `nearjoin components`, and what `nearjoin dbscan` shares with it
#[derive(Debug, Args)]
#[command(
    mut_arg("left", |arg| arg.help("The points; - is standard input")),
    mut_arg("id", |arg| arg.help(ONE_SETS_ID)),
    mut_arg("right", |arg| arg.hide(true)),
    mut_arg("right_columns", |_| Arg::new("right_columns").long("right-columns").hide(true)),
    mut_arg("right_id", |_| Arg::new("right_id").long("right-id").hide(true))
)]
pub(crate) struct Components {
    /// What is about B is hidden, needs no B, and is refused with a sentence of its own.
    #[command(flatten)]
    pub(crate) input: Input,
    /// The distance ε: points at most this far apart are neighbours
    #[arg(long, value_name = "E", allow_negative_numbers = true, help_heading = "Join")]
    pub(crate) eps: f64,
    #[command(flatten)]
    pub(crate) place: Destination,
    #[command(flatten)]
    pub(crate) epsilon: Epsilon,
    #[command(flatten)]
    pub(crate) telling: Telling,
}

const ONE_SETS_ID: &str =
    "The column whose values stand for the points in the output [default: row numbers from 0]";

/// `nearjoin estimate`
#[derive(Debug, Args)]
pub(crate) struct Estimate {
    #[command(flatten)]
    pub(crate) input: Input,
    /// The wanted average numbers of neighbours
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_values_t = [8.0, 32.0, 128.0])]
    pub(crate) neighbors: Vec<f64>,
    /// Draw the curve
    #[arg(long)]
    pub(crate) plot: bool,
    /// How distances are measured
    #[arg(long, default_value = "l2", value_name = "NAME", ignore_case = true, value_parser = named(&Metric::ALL))]
    pub(crate) metric: Metric,
    /// Threads to use [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<Number>,
    /// Write nothing but the table
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// `nearjoin gen`
#[derive(Debug, Args)]
pub(crate) struct Gen {
    /// How the points are spread
    pub(crate) shape: Shape,
    /// How many: 2000000 or 2e6
    #[arg(short, value_name = "N")]
    pub(crate) n: Number,
    /// Coordinates of each point [default: 2; of a sphere 3, of an embedding 128]
    #[arg(short, value_name = "D")]
    pub(crate) d: Option<Number>,
    /// The same seed gives the same points
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The type of the coordinates
    #[arg(long, value_enum, default_value = "f64")]
    pub(crate) dtype: Type,
    /// The file to write: its name ends in .parquet, .arrow, .csv or .npy
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Say nothing
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// `nearjoin info`
#[derive(Debug, Args)]
pub(crate) struct Info {
    /// Measure how fast the CPU and the GPU are, which takes a few seconds, and keep it in a file
    /// that plans go by
    #[arg(long)]
    pub(crate) calibrate: bool,
}

/// `nearjoin demo`
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// How many points
    #[arg(short, value_name = "N", default_value = "200000")]
    pub(crate) n: Number,
}

/// How the points of `gen` are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// Evenly in [0, 100]^d
    Uniform,
    /// Each coordinate exponential with λ = 40: dense in one corner
    Exponential,
    /// Normal clusters in [0, 10]^d with a thin background
    Clustered,
    /// The points of a grid with spacing 1: ties and duplicates of every distance
    Lattice,
    /// Directions on the sky, unit vectors in 3-D, most of them near a great circle
    Sphere,
    /// As the places of the world: towns of all sizes near each other. Longitude and latitude in
    /// degrees (-d 2), or the same places on the unit sphere (-d 3)
    Places,
    /// Unit vectors of many coordinates that vary in a few directions, about topics
    Embedding,
}

impl Shape {
    /// How many coordinates its points have if nobody says.
    pub(crate) fn usual_dimension(self) -> usize {
        match self {
            Shape::Sphere => 3,
            Shape::Embedding => 128,
            _ => 2,
        }
    }
}

/// The type of coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Type {
    /// Four bytes, about 7 digits
    F32,
    /// Eight bytes, about 16 digits
    F64,
}

/// A format of input files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum InputFormat {
    /// Apache Parquet
    Parquet,
    /// Arrow IPC file (Feather 2) or stream
    Arrow,
    /// Text with a delimiter
    Csv,
    /// A numpy array
    Npy,
}

/// Whether a CSV file has a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Header {
    /// If the first line is text; a mixture of text and numbers is refused
    Auto,
    /// The first line holds names
    Yes,
    /// The first line is a point; columns are 0, 1, …
    No,
}

/// When to show progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal
    Auto,
    /// Even into a file
    Always,
    /// Not at all
    Never,
}

#[cfg(test)]
mod tests {
    use nearjoin::gpu::{Cooperation, Schedule};
    use nearjoin::{Device, Partitioning};

    use super::groups::delimiter;
    use super::*;
    use crate::options::Bytes;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("nearjoin "), "{}", command.get_name());
        }
    }

    #[test]
    fn each_join_has_its_own_strategies() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).is_ok();
        assert!(parse("nearjoin within a.npy --eps 1 --strategy ego"));
        assert!(!parse("nearjoin within a.npy --eps 1 --strategy tree"));
        assert!(parse("nearjoin knn a.npy -k 1 --strategy tree"));
        assert!(!parse("nearjoin knn a.npy -k 1 --strategy ego"));
    }

    #[test]
    fn options_of_the_gpu_are_for_joins_that_it_has() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(|cli| cli.command);
        let all = "nearjoin within a.npy --eps 1 --device gpu --rescue --partitioning dyn \
                   --cooperation thread --threads-per-query 8 --schedule work-queue \
                   --batch-size 64MiB --gpu-memory 8GB";
        let all = all.split_whitespace().collect::<Vec<_>>().join(" ");
        let Ok(Command::Within(Within { epsilon: args, .. })) = parse(&all) else {
            panic!("{all}")
        };
        let gpu = Gpu {
            partitioning: Some(Partitioning::Dyn),
            batch_size: Some(Bytes(64 << 20)),
            gpu_memory: Some(Bytes(8_000_000_000)),
        };
        let threads = GpuThreads {
            cooperation: Some(Cooperation::Thread),
            threads_per_query: Some(8),
            schedule: Some(Schedule::WorkQueue),
        };
        assert_eq!((args.engine.device, args.rescue, args.gpu), (Device::Gpu, true, gpu));
        assert_eq!(args.gpu_threads, threads);
        let plain = parse("nearjoin within a.npy --eps 1");
        let Ok(Command::Within(Within { epsilon: args, .. })) = plain else { panic!() };
        let none = Gpu::default();
        assert_eq!((args.engine.device, args.rescue, args.gpu), (Device::Auto, false, none));
        assert!(parse("nearjoin within a.npy --eps 1 --threads-per-query 3").is_err());
        assert!(parse("nearjoin within a.npy --eps 1 --schedule fifo").is_err());
        assert!(parse("nearjoin within a.npy --eps 1 --duplicate-removal linear-coord").is_ok());
        let all = "nearjoin knn a.npy -k 1 --device hybrid --rescue --partitioning dyn --batch-size \
                   64MiB --gpu-memory 8GB";
        let all = all.split_whitespace().collect::<Vec<_>>().join(" ");
        let Ok(Command::Knn(args)) = parse(&all) else { panic!("{all}") };
        assert_eq!((args.engine.device, args.rescue, args.gpu), (Device::Hybrid, true, gpu));
        assert!(parse("nearjoin knn a.npy -k 1 --schedule work-queue").is_err());
        assert!(parse("nearjoin knn a.npy -k 1 --cooperation warp").is_err());
    }

    #[test]
    fn delimiters() {
        assert_eq!(delimiter(";"), Ok(b';'));
        assert_eq!(delimiter("tab"), Ok(b'\t'));
        assert!(delimiter("ab").is_err());
        assert!(delimiter("\"").is_err());
        assert!(delimiter("é").is_err());
    }
}
