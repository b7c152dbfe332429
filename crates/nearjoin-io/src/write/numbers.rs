//! A number for every point: how many neighbours it has, or which group it belongs to.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray, UInt32Array};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use bytemuck::NoUninit;

use super::Written;
use super::archive::Archive;
use super::ids::plain;
use super::npy::Kind;
use super::parquet::Style;
use super::table::{Rows, Sizes, Table, TableFormat};
use super::target::Target;
use crate::error::{Error, Result};
use crate::format::OutputFormat;

/// Bytes that may be used beside the numbers.
const MEMORY: u64 = 256 << 20;

/// Numbers of an array that are gathered before they are written.
const STEP: usize = 1 << 16;

/// Writes how many neighbours every point has: a table with the columns `id` (the values
/// of `ids`, or row numbers) and `neighbors`, or an NPZ file with the array `degrees`
/// (`int64`).
///
/// # Errors
/// If the file cannot be written or the format cannot hold the ids.
///
/// # Panics
/// If there are not as many ids as degrees.
pub fn write_degrees(
    target: Target,
    format: OutputFormat,
    ids: Option<ArrayRef>,
    degrees: &[u64],
) -> Result<Written> {
    let names = Names { column: "neighbors", array: "degrees" };
    write::<UInt64Type>(target, format, ids, names, degrees.iter().copied())
}

/// Writes which group every point belongs to: a table with the columns `id` (the values of
/// `ids`, or row numbers) and `label` (`int64`), or an NPZ file with the array `labels` (`int64`).
///
/// ```
/// use nearjoin_io::OutputFormat;
/// use nearjoin_io::write::{Target, write_labels};
/// let path = std::env::temp_dir().join("nearjoin-labels.csv");
/// write_labels(Target::create(&path)?, OutputFormat::Csv, None, [0, 0, -1])?;
/// assert_eq!(std::fs::read_to_string(&path)?, "id,label\n0,0\n1,0\n2,-1\n");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the file cannot be written or the format cannot hold the ids.
///
/// # Panics
/// If there are not as many ids as labels.
pub fn write_labels(
    target: Target,
    format: OutputFormat,
    ids: Option<ArrayRef>,
    labels: impl IntoIterator<Item = i64, IntoIter: ExactSizeIterator>,
) -> Result<Written> {
    let names = Names { column: "label", array: "labels" };
    write::<Int64Type>(target, format, ids, names, labels.into_iter())
}

/// What the numbers are called in a table, and in an archive.
#[derive(Clone, Copy)]
struct Names {
    column: &'static str,
    array: &'static str,
}

fn write<N: ArrowPrimitiveType<Native: NoUninit>>(
    target: Target,
    format: OutputFormat,
    ids: Option<ArrayRef>,
    names: Names,
    mut numbers: impl ExactSizeIterator<Item = N::Native>,
) -> Result<Written> {
    let rows = numbers.len();
    if format == OutputFormat::Npz {
        let bytes = write_npz(target, ids.is_some(), names.array, numbers)?;
        return Ok(Written { pairs: rows as u64, bytes });
    }
    let format = TableFormat::of(format, &target)?;
    let ids = ids.map(|ids| plain(ids, "id", format, &target)).transpose()?;
    let (data_type, style, id_bytes) = match &ids {
        None => (DataType::UInt32, Style::RowNumbers, 4),
        Some(ids) => {
            assert_eq!(ids.len(), rows, "as many ids as {}", names.array);
            let bytes = ids.get_buffer_memory_size().div_ceil(ids.len().max(1));
            (ids.data_type().clone(), Style::Values, bytes)
        }
    };
    let nullable = ids.as_ref().is_some_and(|ids| ids.null_count() > 0);
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", data_type, nullable),
        Field::new(names.column, N::DATA_TYPE, false),
    ]));
    let sizes = Sizes::within(format, 2, 48 + 2 * id_bytes, 0, MEMORY);
    let mut table = Table::start(target, format, schema, &[style, Style::RowNumbers], sizes)?;
    for first in (0..rows).step_by(sizes.rows) {
        let numbers: Vec<_> = numbers.by_ref().take(sizes.rows).collect();
        let ids = ids.as_ref().map(|ids| ids.slice(first, numbers.len()));
        table.push(Numbers::<N> { first: first as u32, ids, numbers })?;
    }
    Ok(Written { pairs: rows as u64, bytes: table.finish()? })
}

fn write_npz<T: NoUninit>(
    target: Target,
    ids: bool,
    name: &str,
    mut numbers: impl ExactSizeIterator<Item = T>,
) -> Result<u64> {
    if ids {
        return Err(Error::Format {
            file: target.name().into(),
            problem: format!("an NPZ file of {name} has no ids: choose parquet, arrow or csv"),
        });
    }
    let mut archive = Archive::new(target, false)?;
    let array = archive.array(name, Kind::Int, size_of::<T>(), &[numbers.len() as u64])?;
    let mut some = Vec::with_capacity(STEP.min(numbers.len()));
    while numbers.len() > 0 {
        some.clear();
        some.extend(numbers.by_ref().take(STEP));
        archive.write(array, bytemuck::cast_slice(&some))?;
    }
    archive.finish()
}

/// Some rows of the table.
struct Numbers<N: ArrowPrimitiveType> {
    first: u32,
    ids: Option<ArrayRef>,
    numbers: Vec<N::Native>,
}

impl<N: ArrowPrimitiveType> Rows for Numbers<N> {
    fn column(&self, column: usize) -> Result<ArrayRef, ArrowError> {
        Ok(match (column, &self.ids) {
            (0, Some(ids)) => Arc::clone(ids),
            (0, None) => {
                let rows = (0..self.numbers.len() as u32).map(|row| self.first + row);
                Arc::new(UInt32Array::from_iter_values(rows))
            }
            _ => Arc::new(PrimitiveArray::<N>::from_iter_values(self.numbers.iter().copied())),
        })
    }
}
