//! The number of neighbours of every point.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, UInt32Array, UInt64Array};
use arrow_schema::{ArrowError, DataType, Field, Schema};

use super::Written;
use super::archive::Archive;
use super::ids::plain;
use super::npy::Kind;
use super::parquet::Style;
use super::table::{Rows, Sizes, Table, TableFormat};
use super::target::Target;
use crate::error::{Error, Result};
use crate::format::OutputFormat;

/// Bytes that may be used beside the degrees.
const MEMORY: u64 = 256 << 20;

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
    let rows = degrees.len() as u64;
    if format == OutputFormat::Npz {
        let bytes = write_npz(target, ids.is_some(), degrees)?;
        return Ok(Written { pairs: rows, bytes });
    }
    let format = TableFormat::of(format, &target)?;
    let ids = ids.map(|ids| plain(ids, "id", format, &target)).transpose()?;
    let (data_type, style, id_bytes) = match &ids {
        None => (DataType::UInt32, Style::RowNumbers, 4),
        Some(ids) => {
            assert_eq!(ids.len(), degrees.len(), "as many ids as degrees");
            let bytes = ids.get_buffer_memory_size().div_ceil(ids.len().max(1));
            (ids.data_type().clone(), Style::Values, bytes)
        }
    };
    let nullable = ids.as_ref().is_some_and(|ids| ids.null_count() > 0);
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", data_type, nullable),
        Field::new("neighbors", DataType::UInt64, false),
    ]));
    let sizes = Sizes::within(format, 2, 48 + 2 * id_bytes, 0, MEMORY);
    let mut table = Table::start(target, format, schema, &[style, Style::RowNumbers], sizes)?;
    for (batch, degrees) in degrees.chunks(sizes.rows).enumerate() {
        let first = batch * sizes.rows;
        let ids = ids.as_ref().map(|ids| ids.slice(first, degrees.len()));
        table.push(Degrees { first: first as u32, ids, degrees: degrees.to_vec() })?;
    }
    Ok(Written { pairs: rows, bytes: table.finish()? })
}

fn write_npz(target: Target, ids: bool, degrees: &[u64]) -> Result<u64> {
    if ids {
        return Err(Error::Format {
            file: target.name().into(),
            problem: "an NPZ file of degrees has no ids: choose parquet, arrow or csv".into(),
        });
    }
    let mut archive = Archive::new(target, false)?;
    let array = archive.array("degrees", Kind::Int, 8, &[degrees.len() as u64])?;
    archive.write(array, bytemuck::cast_slice(degrees))?;
    archive.finish()
}

struct Degrees {
    first: u32,
    ids: Option<ArrayRef>,
    degrees: Vec<u64>,
}

impl Rows for Degrees {
    fn column(&self, column: usize) -> Result<ArrayRef, ArrowError> {
        Ok(match (column, &self.ids) {
            (0, Some(ids)) => Arc::clone(ids),
            (0, None) => {
                let rows = (0..self.degrees.len() as u32).map(|row| self.first + row);
                Arc::new(UInt32Array::from_iter_values(rows))
            }
            _ => Arc::new(UInt64Array::from(self.degrees.clone())),
        })
    }
}
