//! Formats of files, by name, by ending and by their first bytes.

use core::fmt;
use core::str::FromStr;
use std::path::Path;

use crate::quote::quoted;

/// The type of coordinates and distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DType {
    /// Four bytes.
    F32,
    /// Eight bytes.
    F64,
}

/// A format that points come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Parquet: numeric columns, or one column of fixed-size lists.
    Parquet,
    /// Arrow IPC, as a file (Feather 2) or a stream.
    Arrow,
    /// Text with a delimiter, with or without a header.
    Csv,
    /// One two-dimensional numpy array.
    Npy,
}

/// A format that results are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputFormat {
    /// Parquet.
    Parquet,
    /// Arrow IPC as a file (Feather 2).
    Arrow,
    /// Text with commas and a header.
    Csv,
    /// Named numpy arrays: pairs within ε as CSR, nearest neighbours as dense rows.
    Npz,
}

impl Format {
    /// The format that a file's name ends in.
    pub fn of(path: &Path) -> Option<Self> {
        match ending(path)?.as_str() {
            "parquet" | "pq" => Some(Format::Parquet),
            "arrow" | "arrows" | "feather" | "ipc" => Some(Format::Arrow),
            "csv" | "tsv" | "txt" => Some(Format::Csv),
            "npy" => Some(Format::Npy),
            _ => None,
        }
    }

    /// The format that a file begins like. What is none of the others is text.
    pub fn sniff(beginning: &[u8]) -> Self {
        match beginning {
            [b'P', b'A', b'R', b'1', ..] => Format::Parquet,
            [b'A', b'R', b'R', b'O', b'W', b'1', ..] | [0xFF, 0xFF, 0xFF, 0xFF, ..] => {
                Format::Arrow
            }
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Format::Npy,
            _ => Format::Csv,
        }
    }

    /// The name as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Parquet => "Parquet",
            Format::Arrow => "Arrow",
            Format::Csv => "CSV",
            Format::Npy => "NPY",
        }
    }
}

impl OutputFormat {
    /// The format that a file's name ends in.
    pub fn of(path: &Path) -> Option<Self> {
        match ending(path)?.as_str() {
            "parquet" | "pq" => Some(OutputFormat::Parquet),
            "arrow" | "feather" | "ipc" => Some(OutputFormat::Arrow),
            "csv" => Some(OutputFormat::Csv),
            "npz" => Some(OutputFormat::Npz),
            _ => None,
        }
    }
}

fn ending(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "parquet" => Ok(Format::Parquet),
            "arrow" => Ok(Format::Arrow),
            "csv" => Ok(Format::Csv),
            "npy" => Ok(Format::Npy),
            _ => Err(format!(
                "there is no format called {}: parquet, arrow, csv or npy",
                quoted(name)
            )),
        }
    }
}
