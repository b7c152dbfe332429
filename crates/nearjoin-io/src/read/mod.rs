//! Points from files: one door for every format.

mod arrow;
mod columns;
mod csv;
mod foreign;
mod npy;
mod number;
mod parquet;
mod points;
mod select;
mod source;

use core::any::Any;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ::arrow_array::ArrayRef;
use bytes::Bytes;
use rayon::prelude::*;

use crate::error::{Error, Place, Remedy, Result};
use crate::format::{DType, Format};
use source::{Data, Input};

pub use points::PointSet;
pub use source::{Progress, Source};

/// What to read, and how. The default takes every column but the ids.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The format. Default: by the file's name, else by its first bytes.
    pub format: Option<Format>,
    /// The columns that hold coordinates, in this order: names, or numbers from 0 in a
    /// CSV file without a header and in an NPY file. Default: all but the ids, and all must
    /// be numbers; or a column of lists, if it is the only one.
    pub columns: Option<Vec<String>>,
    /// The column whose values name the points. Default: none, points are row numbers.
    pub id: Option<String>,
    /// The type of the coordinates. Default: `f32` where every column is, else `f64`.
    pub dtype: Option<DType>,
    /// What separates the fields of a CSV file. Default: the one that the first lines show.
    pub delimiter: Option<u8>,
    /// Whether a CSV file has a header. Default: if columns are asked for by name, or if no
    /// field of the first line that is asked for is a number; some of each are refused.
    pub header: Option<bool>,
}

/// What a file held.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The points.
    pub points: PointSet,
    /// The values of the id column, one for each point, where it was asked for.
    pub ids: Option<ArrayRef>,
    /// A name for each coordinate: its column, or `v[0]`, `v[1]`, … for a column `v` of lists.
    pub columns: Vec<String>,
    /// The format that the file was read as.
    pub format: Format,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Reads points.
///
/// ```no_run
/// use nearjoin_io::{PointSet, Progress, ReadOptions, Source, read};
///
/// let options = ReadOptions {
///     columns: Some(vec!["x".into(), "y".into()]),
///     id: Some("name".into()),
///     ..ReadOptions::default()
/// };
/// let loaded = read(&Source::from("stars.parquet"), &options, &Progress::default())?;
/// println!("{} points of dimension {}", loaded.points.len(), loaded.points.dimension());
/// # Ok::<(), nearjoin_io::Error>(())
/// ```
///
/// Numbers are converted exactly or refused; only `f64` rounds to `f32`, where
/// [`dtype`](ReadOptions::dtype) asks for it, and text with a decimal point or an exponent
/// rounds to the nearest number.
///
/// # Errors
/// If the file cannot be read or is damaged, a column is missing or not numeric, or a value
/// is missing, not finite or does not fit the type exactly.
pub fn read(source: &Source, options: &ReadOptions, progress: &Progress) -> Result<Loaded> {
    let input = Input::open(source, progress)?;
    let by_name = match source {
        Source::File(path) => Format::of(path),
        Source::Stdin => None,
    };
    let loaded = read_input(&input, options, by_name)?;
    progress.done.store(input.data.len(), Ordering::Relaxed);
    Ok(loaded)
}

/// Reads points from bytes in memory; `name` is what errors call them.
///
/// ```
/// use nearjoin_io::{ReadOptions, read_bytes};
/// let text = "x,y\n0,1.5\n2,3\n";
/// let loaded = read_bytes("text", text.into(), &ReadOptions::default())?;
/// assert_eq!((loaded.points.len(), loaded.points.dimension()), (2, 2));
/// assert_eq!(loaded.columns, ["x", "y"]);
///
/// let error = read_bytes("text", "x,y\n0,1.5\n2,?\n".into(), &ReadOptions::default());
/// assert_eq!(
///     error.unwrap_err().to_string(),
///     "text: row 1 (line 3), column \"y\": \"?\" is not a number",
/// );
/// # Ok::<(), nearjoin_io::Error>(())
/// ```
///
/// # Errors
/// As for [`read`].
pub fn read_bytes(name: &str, bytes: Bytes, options: &ReadOptions) -> Result<Loaded> {
    let progress = Progress::default();
    let input = Input { name: name.to_owned(), data: Data::Bytes(bytes), progress: &progress };
    read_input(&input, options, None)
}

fn read_input(input: &Input<'_>, options: &ReadOptions, by_name: Option<Format>) -> Result<Loaded> {
    nearjoin::start_threads(None)
        .map_err(|source| Error::Points { file: input.name.clone(), source })?;
    if input.data.len() == 0 {
        return Err(Error::content(&input.name, "the file is empty"));
    }
    let beginning = input.read(0, input.data.len().min(64) as usize)?;
    if let Some(what) = foreign::name(&beginning) {
        let problem = format!("this is {what}");
        return Err(Error::Format { file: input.name.clone(), problem });
    }
    let looks = Format::sniff(&beginning);
    let format = options.format.or(by_name).unwrap_or(looks);
    check_format(&input.name, &beginning, looks, format, options, by_name)?;
    let read = match format {
        Format::Parquet => parquet::read,
        Format::Arrow => arrow::read,
        Format::Csv => csv::read,
        Format::Npy => npy::read,
    };
    // Decoders of other crates may panic on damaged files. Nothing outlives the panic.
    catch_unwind(AssertUnwindSafe(|| read(input, options))).unwrap_or_else(|panic| {
        Err(Error::undecodable(&input.name, format, "a part of it", message(&*panic)))
    })
}

/// Refuses a file that begins like one of another format.
fn check_format(
    file: &str,
    beginning: &[u8],
    looks: Format,
    format: Format,
    options: &ReadOptions,
    by_name: Option<Format>,
) -> Result<()> {
    // Text has no mark to begin with, nor has an Arrow stream from before 2019.
    let looks = match (looks, format) {
        (looks, format) if looks == format => return Ok(()),
        (Format::Csv, Format::Arrow) if !is_text(beginning) => return Ok(()),
        (Format::Csv, _) if !is_text(beginning) => {
            let problem = format!("this is not {format}: it does not begin like one");
            return Err(Error::Format { file: file.to_owned(), problem });
        }
        (Format::Csv, _) => "text",
        (looks, _) => looks.name(),
    };
    let remedy = match options.format {
        Some(_) if by_name.is_none_or(|by_name| by_name.name() == looks) => Remedy::LeaveFormatOut,
        _ => Remedy::GiveFormat,
    };
    let problem = format!("this is not {format} but looks like {looks}");
    Err(Error::options(file, Place::default(), problem, remedy))
}

fn is_text(beginning: &[u8]) -> bool {
    let white = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r');
    beginning.iter().all(|byte| !byte.is_ascii_control() || white(byte))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "the decoder gave up".to_owned())
}

/// Does tasks side by side. Of several that fail, the first one's error is returned, so
/// that the error does not depend on the threads.
fn in_order<Task: Send, Product: Send>(
    tasks: Vec<Task>,
    work: impl Fn(Task) -> Result<Product> + Sync,
) -> Result<Vec<Product>> {
    let failed = AtomicUsize::new(usize::MAX);
    let products: Vec<Option<Result<Product>>> = tasks
        .into_par_iter()
        .with_max_len(1)
        .enumerate()
        .map(|(index, task)| {
            if failed.load(Ordering::Relaxed) < index {
                return None;
            }
            let product = work(task);
            if product.is_err() {
                failed.fetch_min(index, Ordering::Relaxed);
            }
            Some(product)
        })
        .collect();
    products.into_iter().flatten().collect()
}
