//! Numbers as people write them, and the options that the arguments stand for.

use core::str::FromStr;
use std::path::{Path, PathBuf};

use nearjoin_io::quote::{self, quoted};
use nearjoin_io::{DType, Format, OutputFormat, ReadOptions, Source};

use crate::args;
use crate::failure::{Failure, Result, Side};
use crate::grouping::Grouping;
use crate::question::{Answer, Asked};

/// A count: `2000000`, `2_000_000` or `2e6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) u64);

impl FromStr for Number {
    type Err = String;

    fn from_str(text: &str) -> core::result::Result<Self, String> {
        let plain = text.replace('_', "");
        if let Ok(number) = plain.parse() {
            return Ok(Number(number));
        }
        match plain.parse::<f64>() {
            Ok(x) if x >= 0.0 && x.fract() == 0.0 && x < 9e15 => Ok(Number(x as u64)),
            _ => Err("it must be a whole number, as in 2000000 or 2e6".into()),
        }
    }
}

/// Bytes: `4GiB`, `500MB`, `1.5G` or `4294967296`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> core::result::Result<Self, String> {
        let wrong = || "it must be a number of bytes, as in 4GiB, 500MB or 1000000".to_string();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "" | "b" => 1u64,
            "kb" => 1000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            _ => return Err(wrong()),
        };
        let value: f64 = digits.trim().parse().map_err(|_| wrong())?;
        let bytes = value * unit as f64;
        if !(bytes >= 0.0 && bytes < u64::MAX as f64) {
            return Err(wrong());
        }
        Ok(Bytes(bytes as u64))
    }
}

/// Where the answer goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// A number on standard output.
    Count,
    /// The number of neighbours of each point.
    Degrees(Place),
    /// All pairs.
    Pairs(Place),
    /// The group of each point.
    Groups(Grouping, Place),
}

/// A file, or CSV on standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Stdout,
    File(PathBuf, OutputFormat),
}

impl Place {
    /// The format that is written there.
    pub(crate) fn format(&self) -> OutputFormat {
        match self {
            Place::Stdout => OutputFormat::Csv,
            Place::File(_, format) => *format,
        }
    }
}

impl Output {
    pub(crate) fn new(asked: &Asked<'_>) -> Result<Self> {
        let input = asked.input;
        let place = match asked.output {
            None => Place::Stdout,
            Some(path) if path == Path::new("-") => Place::Stdout,
            Some(path) => Place::File(path.to_path_buf(), output_format(path)?),
        };
        let ids = [(&input.id, Side::Left), (&input.right_id, Side::Right)];
        let id = ids.iter().find_map(|(id, side)| id.as_ref().zip(Some(side.id())));
        if let (Place::File(path, OutputFormat::Npz), Some((id, flag))) = (&place, id) {
            return Err(Failure::usage(format!(
                "{}: npz holds row numbers, not the values of the column {}: leave {flag} out, or \
                 write .parquet, .arrow or .csv",
                quote::path(path),
                quoted(id)
            )));
        }
        Ok(match asked.answer {
            Answer::Count => Output::Count,
            Answer::Degrees => Output::Degrees(place),
            Answer::Pairs => Output::Pairs(place),
            Answer::Groups(grouping) => Output::Groups(grouping, place),
        })
    }

    /// Where it goes, if it is more than a number.
    pub(crate) fn place(&self) -> Option<&Place> {
        match self {
            Output::Count => None,
            Output::Degrees(place) | Output::Pairs(place) | Output::Groups(_, place) => Some(place),
        }
    }

    /// Whether the answer takes standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        self.place().is_none_or(|place| *place == Place::Stdout)
    }
}

fn output_format(path: &Path) -> Result<OutputFormat> {
    match OutputFormat::of(path) {
        Some(format) => Ok(format),
        None => Err(Failure::usage(format!(
            "{}: the name of the output must end in .parquet, .arrow, .csv or .npz",
            quote::path(path)
        ))),
    }
}

/// Makes reading and sorting use as many threads as the join will, and tells how many: those that
/// are wanted, or fewer where the system grants no more. Wrong numbers are for the join to refuse.
pub(crate) fn use_threads(threads: Option<Number>) -> Result<usize> {
    let wanted = threads.map(|Number(threads)| threads as usize);
    let started = nearjoin::start_threads(wanted.filter(|threads| (1..=1024).contains(threads)))?;
    Ok(match wanted {
        Some(wrong @ (0 | 1025..)) => wrong,
        _ => started,
    })
}

/// Refuses to write one file twice, or over an input.
pub(crate) fn check_paths(inputs: &[&Path], outputs: &[&Path]) -> Result {
    let dash = Path::new("-");
    for (at, output) in outputs.iter().enumerate().filter(|(_, path)| **path != dash) {
        if inputs.iter().any(|input| is_same_file(output, input)) {
            return Err(Failure::usage(format!(
                "{} is both an input and an output: write to another file",
                quote::path(output)
            )));
        }
        if outputs[..at].iter().any(|other| is_same_file(output, other)) {
            return Err(Failure::usage(format!(
                "{} is to be written twice: give each output a file of its own",
                quote::path(output)
            )));
        }
    }
    Ok(())
}

/// Whether two paths lead to one file, which need not be there yet.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| {
        path.canonicalize().ok().or_else(|| {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
            Some(folder.join(path.file_name()?))
        })
    };
    real(a).zip(real(b)).is_some_and(|(a, b)| a == b)
}

/// What to read: the left points, and the right ones where there are two sets.
pub(crate) fn sources(input: &args::Input) -> Result<Vec<(Source, ReadOptions)>> {
    if input.left == Path::new("-") && input.right.as_deref() == Some(Path::new("-")) {
        let message = "standard input can be read only once: give one of the two sets as a file";
        return Err(Failure::usage(message));
    }
    let left = ReadOptions {
        format: input.format.map(Format::from),
        columns: input.columns.as_deref().map(trimmed),
        id: input.id.clone(),
        dtype: input.dtype.map(DType::from),
        delimiter: input.delimiter,
        header: match input.header {
            args::Header::Auto => None,
            args::Header::Yes => Some(true),
            args::Header::No => Some(false),
        },
    };
    let right = ReadOptions {
        columns: input.right_columns.as_deref().map(trimmed).or_else(|| left.columns.clone()),
        id: input.right_id.clone().or_else(|| left.id.clone()),
        ..left.clone()
    };
    let mut sources = vec![(source(&input.left), left)];
    sources.extend(input.right.as_ref().map(|path| (source(path), right)));
    Ok(sources)
}

/// Names without the spaces that a comma invites.
fn trimmed(names: &[String]) -> Vec<String> {
    names.iter().map(|name| name.trim().to_string()).collect()
}

fn source(path: &Path) -> Source {
    if path == Path::new("-") { Source::Stdin } else { Source::File(path.to_path_buf()) }
}

impl From<args::Type> for DType {
    fn from(dtype: args::Type) -> Self {
        match dtype {
            args::Type::F32 => DType::F32,
            args::Type::F64 => DType::F64,
        }
    }
}

impl From<args::InputFormat> for Format {
    fn from(format: args::InputFormat) -> Self {
        match format {
            args::InputFormat::Parquet => Format::Parquet,
            args::InputFormat::Arrow => Format::Arrow,
            args::InputFormat::Csv => Format::Csv,
            args::InputFormat::Npy => Format::Npy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_as_people_write_them() {
        assert_eq!("2e6".parse(), Ok(Number(2_000_000)));
        assert_eq!("2_000".parse(), Ok(Number(2000)));
        assert_eq!("18446744073709551615".parse(), Ok(Number(u64::MAX)));
        for wrong in ["", "-1", "1.5", "many", "1e30", "nan"] {
            assert!(wrong.parse::<Number>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_as_people_write_them() {
        assert_eq!("4GiB".parse(), Ok(Bytes(4 << 30)));
        assert_eq!("1.5g".parse(), Ok(Bytes(3 << 29)));
        assert_eq!("500 MB".parse(), Ok(Bytes(500_000_000)));
        assert_eq!("123".parse(), Ok(Bytes(123)));
        for wrong in ["", "GiB", "-1", "4 bananas", "nan", "1e40"] {
            assert!(wrong.parse::<Bytes>().is_err(), "{wrong}");
        }
    }
}
