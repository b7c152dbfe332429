//! Points into files.

use std::io::Write;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, Field, Schema};
use nearjoin::{Points, Scalar};

use super::Written;
use super::columns;
use super::npy::{self, Kind};
use super::parquet::Style;
use super::table::{Rows, Sizes, Table, TableFormat};
use super::target::{Target, refused};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::quote::quoted;

/// Bytes that may be used beside the points.
const MEMORY: u64 = 256 << 20;

/// Writes points, one column for each coordinate, or one two-dimensional array as NPY.
/// NPY has no names.
///
/// ```
/// use nearjoin::Points;
/// use nearjoin_io::Format;
/// use nearjoin_io::write::{Target, write_points};
/// let path = std::env::temp_dir().join("nearjoin-points.csv");
/// let points = Points::new(&[0.0, 1.0, 2.5, 3.0], 2)?;
/// let names = ["x".to_string(), "y".to_string()];
/// write_points(Target::create(&path)?, Format::Csv, &names, &points)?;
/// assert_eq!(std::fs::read_to_string(&path)?, "x,y\n0.0,1.0\n2.5,3.0\n");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the file cannot be written.
///
/// # Panics
/// If there are not as many names as coordinates.
pub fn write_points<T: Scalar>(
    target: Target,
    format: Format,
    names: &[String],
    points: &Points<'_, T>,
) -> Result<Written> {
    assert_eq!(names.len(), points.dimension(), "a name for each coordinate");
    let format = match format {
        Format::Parquet => TableFormat::Parquet,
        Format::Arrow => TableFormat::Arrow,
        Format::Csv => TableFormat::Csv,
        Format::Npy => return write_npy(target, points),
    };
    if let Some(name) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        return Err(Error::Format {
            file: target.name().into(),
            problem: format!("two columns cannot both be called {}", quoted(name.1)),
        });
    }
    let dimension = points.dimension();
    let fields: Vec<Field> =
        names.iter().map(|name| Field::new(name, columns::data_type::<T>(), false)).collect();
    let text = if format == TableFormat::Csv { 24 } else { 0 };
    let row_bytes = dimension * (3 * size_of::<T>() + text);
    let sizes = Sizes::within(format, dimension, row_bytes, 0, MEMORY);
    let styles = vec![Style::Reals; dimension];
    let schema = Arc::new(Schema::new(fields));
    let mut table = Table::start(target, format, schema, &styles, sizes)?;
    for rows in points.as_slice().chunks(sizes.rows * dimension) {
        let mut batch: Coordinates<T> =
            table.spare().unwrap_or(Coordinates { dimension, data: Vec::new() });
        batch.data.clear();
        batch.data.extend_from_slice(rows);
        table.push(batch)?;
    }
    Ok(Written { pairs: points.len() as u64, bytes: table.finish()? })
}

fn write_npy<T: Scalar>(mut target: Target, points: &Points<'_, T>) -> Result<Written> {
    let shape = [points.len() as u64, points.dimension() as u64];
    let write = |target: &mut Target, bytes: &[u8]| {
        let written = target.write_all(bytes);
        written.map_err(|e| refused(target.name(), "written", e))
    };
    write(&mut target, &npy::header(Kind::Float, size_of::<T>(), &shape))?;
    let mut copy = Vec::new();
    for some in points.as_slice().chunks(1 << 17) {
        copy.clear();
        copy.extend_from_slice(some);
        write(&mut target, columns::bytes(&copy))?;
    }
    Ok(Written { pairs: points.len() as u64, bytes: target.commit()? })
}

/// Some rows, coordinates side by side.
struct Coordinates<T> {
    dimension: usize,
    data: Vec<T>,
}

impl<T: Scalar> Rows for Coordinates<T> {
    fn column(&self, column: usize) -> Result<ArrayRef, ArrowError> {
        let values = self.data.iter().skip(column).step_by(self.dimension);
        Ok(columns::array(values.copied().collect()))
    }
}
