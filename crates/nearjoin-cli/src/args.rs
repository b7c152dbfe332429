//! The arguments as they are written, and nothing else: what they mean is decided in
//! `options.rs`. The help, the man pages and the completions are all made from here.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use nearjoin::gpu::{Cooperation, Schedule};
use nearjoin::{Device, DuplicateRemoval, Metric, Strategy};

use crate::options::{Bytes, Number};

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
    #[command(after_help = WITHIN_HELP)]
    Within(Within),
    /// Find the k nearest neighbours of each point
    ///
    /// Joins a set with itself, or A with B: for each point of A its nearest in B. The answer is
    /// exact: neighbours ascend by distance, and those at the same distance by row. A point is
    /// not its own neighbour, but a duplicate of it is.
    #[command(after_help = KNN_HELP)]
    Knn(Knn),
    /// Tell which ε gives how many neighbours, from a sample
    #[command(after_help = ESTIMATE_HELP)]
    Estimate(Estimate),
    /// Make a file of points
    #[command(after_help = GEN_HELP)]
    Gen(Gen),
    /// Tell what this machine has: processors, SIMD level, memory, GPU
    #[command(after_help = "Example:\n  nearjoin info")]
    Info,
    /// Make points, join them, and show the result
    #[command(after_help = "Example:\n  nearjoin demo")]
    Demo(Demo),
    /// Print a script that completes nearjoin's arguments in a shell
    #[command(after_help = COMPLETIONS_HELP)]
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

const WITHIN_HELP: &str = "\
Examples:
  nearjoin within stars.parquet --eps 0.01 -o pairs.parquet
  nearjoin within stars.csv catalogue.csv --columns ra,dec --id name --eps 0.001 -o match.csv
  nearjoin within points.npy --eps 0.5 -o graph.npz        # CSR arrays for scipy
  nearjoin within points.npy --eps 0.5 --count
  nearjoin within points.npy --eps 0.5 --explain           # the plan, without running it
  nearjoin within points.npy --eps 0.5 --device gpu -o pairs.parquet
  cat points.csv | nearjoin within - --eps 0.5 --half --sorted

Without -o the pairs go to standard output as CSV. A file appears under its name only when it
is complete.";

const KNN_HELP: &str = "\
Examples:
  nearjoin knn points.parquet -k 8 -o neighbours.parquet
  nearjoin knn stars.csv catalogue.csv --columns ra,dec --id name -k 1 -o match.csv
  nearjoin knn points.npy -k 8 -o neighbours.npz           # indices and distances, n × k
  nearjoin knn points.npy -k 8 --max-distance 0.5 --sorted -o neighbours.arrow
  nearjoin knn points.npy -k 8 --explain                   # the plan, without running it

A table has the columns left, right, rank (1 is the nearest) and distance. Without -o it goes to
standard output as CSV. A file appears under its name only when it is complete.";

const ESTIMATE_HELP: &str = "\
Examples:
  nearjoin estimate points.parquet
  nearjoin estimate stars.csv catalogue.csv --columns ra,dec --neighbors 1,4,16 --plot";

const GEN_HELP: &str = "\
Examples:
  nearjoin gen uniform -n 2e6 -d 2 --seed 1 -o points.npy
  nearjoin gen clustered -n 1e5 -d 3 -o points.parquet";

const COMPLETIONS_HELP: &str = "\
Examples:
  nearjoin completions bash > ~/.local/share/bash-completion/completions/nearjoin
  nearjoin completions zsh > ~/.zfunc/_nearjoin
  nearjoin completions fish > ~/.config/fish/completions/nearjoin.fish";

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
    pub(crate) engine: Engine,
    /// How to find candidates
    #[arg(
        long,
        default_value = "auto",
        value_name = "NAME",
        value_parser = named(Strategy::EPSILON),
        help_heading = "Engine"
    )]
    pub(crate) strategy: Strategy,
    /// How counts, and pairs that are listed once, of one set avoid testing a pair twice;
    /// linear-coord is for the GPU
    #[arg(
        long,
        default_value = "lid-unicomp",
        value_name = "NAME",
        value_parser = named(DuplicateRemoval::ALL),
        help_heading = "Engine"
    )]
    pub(crate) duplicate_removal: DuplicateRemoval,
    #[command(flatten)]
    pub(crate) gpu: Gpu,
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
    /// How to find candidates
    #[arg(
        long,
        default_value = "auto",
        value_name = "NAME",
        value_parser = named(Strategy::KNN),
        help_heading = "Engine"
    )]
    pub(crate) strategy: Strategy,
    #[command(flatten)]
    pub(crate) telling: Telling,
}

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
    /// Coordinates of each point
    #[arg(short, value_name = "D", default_value = "2")]
    pub(crate) d: Number,
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

#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
pub(crate) struct Input {
    /// The points, or the left ones of a join of two sets; - is standard input
    #[arg(value_name = "A", help_heading = None, value_hint = ValueHint::FilePath)]
    pub(crate) left: PathBuf,
    /// The right points; without them A is joined with itself
    #[arg(value_name = "B", help_heading = None, value_hint = ValueHint::FilePath)]
    pub(crate) right: Option<PathBuf>,
    /// The columns that hold the coordinates, by name, or by number from 0 where there are no
    /// names [default: all but the ids]
    #[arg(long, value_name = "x,y,z", value_delimiter = ',')]
    pub(crate) columns: Option<Vec<String>>,
    /// The same for B, where its names differ
    #[arg(long, value_name = "x,y,z", value_delimiter = ',', requires = "right")]
    pub(crate) right_columns: Option<Vec<String>>,
    /// The column whose values stand for the points in the output, in A and in B [default: row
    /// numbers from 0]
    #[arg(long, value_name = "COLUMN", value_hint = ValueHint::Other)]
    pub(crate) id: Option<String>,
    /// The same for B, where its name differs
    #[arg(long, value_name = "COLUMN", requires = "right", value_hint = ValueHint::Other)]
    pub(crate) right_id: Option<String>,
    /// The type to compute in [default: f32 if all columns are, else f64]
    #[arg(long, value_enum)]
    pub(crate) dtype: Option<Type>,
    /// The format of the files [default: by name, or as they begin]
    #[arg(long, value_enum)]
    pub(crate) format: Option<InputFormat>,
    /// What separates the fields of a CSV file: one character, tab or space [default: as
    /// found]
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    pub(crate) delimiter: Option<u8>,
    /// Whether CSV files have a header
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) header: Header,
}

/// A parser of names that the engine knows, which help and completions can list.
fn named<T>(values: &'static [T]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = nearjoin::Error> + ToString + Clone + Send + Sync + 'static,
{
    let names = values.iter().map(ToString::to_string);
    PossibleValuesParser::new(names).try_map(|name| name.to_ascii_lowercase().parse())
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | b'"') => Ok(*byte),
        b"tab" | b"\\t" => Ok(b'\t'),
        b"space" => Ok(b' '),
        _ => Err("it must be one character, tab or space".into()),
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    /// The file to write: its name ends in .parquet, .arrow, .csv or .npz; - is CSV to
    /// standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Only print how many pairs there are
    #[arg(long, conflicts_with_all = ["output", "degrees"])]
    pub(crate) count: bool,
    /// Only the number of neighbours of each point (columns id and neighbors), into the file or
    /// to standard output; with knn, only where --max-distance makes them differ
    #[arg(long)]
    pub(crate) degrees: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct Engine {
    /// Where to run: auto takes the GPU for large joins within ε where there is one; knn runs on
    /// the CPU
    #[arg(long, default_value = "auto", value_name = "NAME", value_parser = named(Device::ALL))]
    pub(crate) device: Device,
    /// How distances are measured
    #[arg(long, default_value = "l2", value_name = "NAME", ignore_case = true, value_parser = named(&Metric::ALL))]
    pub(crate) metric: Metric,
    /// Threads to use [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<Number>,
    /// Memory to use beside the points, as in 4GiB or 500MB; a part of it is kept for writing
    /// [default: four fifths of what is free]
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory_limit: Option<Bytes>,
}

/// How a GPU goes about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "GPU (speed only: the answer never depends on these)")]
pub(crate) struct Gpu {
    /// How threads share the work [default: auto]
    #[arg(long, value_name = "NAME", value_parser = named(Cooperation::ALL))]
    pub(crate) cooperation: Option<Cooperation>,
    /// Threads to a query, with --cooperation thread [default: 1]
    #[arg(long, value_name = "N", value_parser = powers_of_two())]
    pub(crate) threads_per_query: Option<usize>,
    /// In which order work is taken [default: auto]
    #[arg(long, value_name = "NAME", value_parser = named(Schedule::ALL))]
    pub(crate) schedule: Option<Schedule>,
    /// Bytes of the result that are made at a time, as in 64MiB [default: an eighth of it, as far
    /// as there is room]
    #[arg(long, value_name = "BYTES")]
    pub(crate) batch_size: Option<Bytes>,
    /// Memory of the GPU to use, as in 8GiB; points that do not fit are joined in parts
    /// [default: nine tenths of what is free]
    #[arg(long, value_name = "BYTES")]
    pub(crate) gpu_memory: Option<Bytes>,
}

/// As many threads as divide a warp.
fn powers_of_two() -> impl TypedValueParser<Value = usize> {
    PossibleValuesParser::new(["1", "2", "4", "8", "16", "32"]).try_map(|text| text.parse())
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Reporting")]
pub(crate) struct Telling {
    /// Print the plan, with the cost of each alternative, and do not run it
    #[arg(long)]
    pub(crate) explain: bool,
    /// Write what happened as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Write a page about the join: plan, phases, neighbours, density
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// When to show progress
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) progress: When,
    /// Say nothing but errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say more: the plan and all figures
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let all = "nearjoin within a.npy --eps 1 --device gpu --cooperation thread \
                   --threads-per-query 8 --schedule work-queue --batch-size 64MiB --gpu-memory 8GB";
        let all = all.split_whitespace().collect::<Vec<_>>().join(" ");
        let Ok(Command::Within(args)) = parse(&all) else { panic!("{all}") };
        let gpu = Gpu {
            cooperation: Some(Cooperation::Thread),
            threads_per_query: Some(8),
            schedule: Some(Schedule::WorkQueue),
            batch_size: Some(Bytes(64 << 20)),
            gpu_memory: Some(Bytes(8_000_000_000)),
        };
        assert_eq!((args.engine.device, args.gpu), (Device::Gpu, gpu));
        let Ok(Command::Within(args)) = parse("nearjoin within a.npy --eps 1") else { panic!() };
        assert_eq!((args.engine.device, args.gpu), (Device::Auto, Gpu::default()));
        assert!(parse("nearjoin within a.npy --eps 1 --threads-per-query 3").is_err());
        assert!(parse("nearjoin within a.npy --eps 1 --schedule fifo").is_err());
        assert!(parse("nearjoin within a.npy --eps 1 --duplicate-removal linear-coord").is_ok());
        assert!(parse("nearjoin knn a.npy -k 1 --device gpu").is_ok());
        assert!(parse("nearjoin knn a.npy -k 1 --schedule work-queue").is_err());
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
