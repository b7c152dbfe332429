//! The arguments that several commands have: what is read, where the answer goes, how it is joined,
//! and what is told of it.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use nearjoin::gpu::{Cooperation, Schedule};
use nearjoin::{Device, DuplicateRemoval, Metric, Partitioning, Strategy};

use super::{Header, InputFormat, Type, When};
use crate::options::{Bytes, Number};

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

impl Input {
    /// The first argument that is about the right points.
    pub(crate) fn about_right(&self) -> Option<&'static str> {
        let given = [
            ("B", self.right.is_some()),
            ("--right-columns", self.right_columns.is_some()),
            ("--right-id", self.right_id.is_some()),
        ];
        given.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }
}

/// A parser of names that the engine knows, which help and completions can list.
pub(super) fn named<T>(values: &'static [T]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = nearjoin::Error> + ToString + Clone + Send + Sync + 'static,
{
    let names = values.iter().map(ToString::to_string);
    PossibleValuesParser::new(names).try_map(|name| name.to_ascii_lowercase().parse())
}

pub(super) fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | b'"') => Ok(*byte),
        b"tab" | b"\\t" => Ok(b'\t'),
        b"space" => Ok(b' '),
        _ => Err("it must be one character, tab or space".into()),
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Destination {
    /// The file to write: its name ends in .parquet, .arrow, .csv or .npz; - is CSV to
    /// standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    #[command(flatten)]
    pub(crate) place: Destination,
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
    /// Where to run: auto takes the CPU, the GPU or both, whichever is expected to be fastest;
    /// hybrid is both at once, or the CPU alone where there is no GPU
    #[arg(long, default_value = "auto", value_name = "NAME", value_parser = named(Device::ALL))]
    pub(crate) device: Device,
    /// How distances are measured
    #[arg(long, default_value = "l2", value_name = "NAME", ignore_case = true, value_parser = named(&Metric::ALL))]
    pub(crate) metric: Metric,
    /// Threads to use [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<Number>,
    /// Memory to use beside the points, as in 4GiB or 500MB; a part of it is kept for writing
    /// [default: four fifths of what this process may have]
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory_limit: Option<Bytes>,
}

/// How pairs within ε are found.
#[derive(Debug, Args)]
pub(crate) struct Epsilon {
    #[command(flatten)]
    pub(crate) engine: Engine,
    /// How to find candidates; product is for L2 in many dimensions
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
    /// The CPU finishes what a GPU that fails leaves; auto and hybrid always do
    #[arg(long, help_heading = "Engine")]
    pub(crate) rescue: bool,
    #[command(flatten)]
    pub(crate) gpu: Gpu,
    #[command(flatten)]
    pub(crate) gpu_threads: GpuThreads,
}

/// How a GPU goes about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "GPU (speed only: the answer never depends on these)")]
pub(crate) struct Gpu {
    /// How the CPU and the GPU share the work, where both do it [default: auto]
    #[arg(long, value_name = "NAME", value_parser = named(Partitioning::ALL))]
    pub(crate) partitioning: Option<Partitioning>,
    /// Bytes of the result that are made at a time, as in 64MiB [default: an eighth of it or less, as
    /// far as there is room]
    #[arg(long, value_name = "BYTES")]
    pub(crate) batch_size: Option<Bytes>,
    /// Memory of the GPU to use, as in 8GiB; points that do not fit are joined in parts
    /// [default: nine tenths of what is free]
    #[arg(long, value_name = "BYTES")]
    pub(crate) gpu_memory: Option<Bytes>,
}

/// How the threads of a GPU go about pairs within ε.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "GPU (speed only: the answer never depends on these)")]
pub(crate) struct GpuThreads {
    /// How threads share the work [default: auto]
    #[arg(long, value_name = "NAME", value_parser = named(Cooperation::ALL))]
    pub(crate) cooperation: Option<Cooperation>,
    /// Threads to a query, with --cooperation thread [default: 1]
    #[arg(long, value_name = "N", value_parser = powers_of_two())]
    pub(crate) threads_per_query: Option<usize>,
    /// In which order work is taken [default: auto]
    #[arg(long, value_name = "NAME", value_parser = named(Schedule::ALL))]
    pub(crate) schedule: Option<Schedule>,
}

/// How the nearest are found by ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "With --strategy ranges (speed only; batches as shares of A)")]
pub(crate) struct Ranges {
    /// The first batch of the GPU; those that follow halve [default: 0.4]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub(crate) large: Option<f64>,
    /// Its batches after those [default: 0.005]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub(crate) small: Option<f64>,
    /// What large batches leave to the CPU [default: 0.4]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub(crate) window: Option<f64>,
    /// Batches of a thread of the CPU [default: 0.005]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub(crate) cpu_batch: Option<f64>,
    /// The first ε, as a multiple of that at which a point has K neighbours on average
    /// [default: 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) eps_factor: Option<f64>,
    /// Threads of the GPU to a query [default: 8]
    #[arg(long, value_name = "N", value_parser = powers_of_two())]
    pub(crate) threads_per_query: Option<usize>,
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
