//! Points from files: one door for every format.

use core::sync::atomic::AtomicU64;
use std::path::PathBuf;

use arrow_array::ArrayRef;
use nearjoin::PointsBuf;

use crate::error::Result;
use crate::format::{DType, Format};

/// Where points come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Stdin,
}

/// What to read, and how. The default takes every column but the ids.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The format. Default: by the file's name, else by its first bytes.
    pub format: Option<Format>,
    /// The columns that hold coordinates, in this order: names, or numbers from 0 in a
    /// CSV file without a header. Default: all but the ids, and all must be numbers.
    pub columns: Option<Vec<String>>,
    /// The column whose values name the points. Default: none, points are row numbers.
    pub id: Option<String>,
    /// The type of the coordinates. Default: `f32` where every column is, else `f64`.
    pub dtype: Option<DType>,
    /// What separates the fields of a CSV file. Default: the one that the first line shows.
    pub delimiter: Option<u8>,
    /// Whether a CSV file has a header. Default: if a field of the first line that is
    /// asked for is no number.
    pub header: Option<bool>,
}

/// Points in the type that was found or asked for.
#[derive(Debug)]
pub enum PointSet {
    /// Four bytes a coordinate.
    F32(PointsBuf<f32>),
    /// Eight bytes a coordinate.
    F64(PointsBuf<f64>),
}

/// What a file held.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The points.
    pub points: PointSet,
    /// The values of the id column, one for each point, where it was asked for.
    pub ids: Option<ArrayRef>,
    /// The names of the columns that became coordinates.
    pub columns: Vec<String>,
    /// The format that the file was read as.
    pub format: Format,
    /// Bytes of the file.
    pub bytes: u64,
}

/// How far a load has come, for a thread that shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of the file that were read.
    pub done: AtomicU64,
    /// Bytes in all; 0 while unknown.
    pub total: AtomicU64,
}

/// Reads points.
///
/// # Errors
/// If the file cannot be read or is damaged, a column is missing or not numeric, or a value
/// is missing, not finite or does not fit the type exactly.
pub fn read(_source: &Source, _options: &ReadOptions, _progress: &Progress) -> Result<Loaded> {
    unreachable!()
}
