//! Points from text.
//!
//! The first lines say what separates the fields and whether there is a header. Text without
//! quotes is cut at its line ends and parsed side by side; with a quote anywhere a line end
//! may belong to a field, and the text is read record by record.

mod beginning;
mod field;
mod ids;
mod lines;
mod quoted;
mod record;

use crate::error::{Error, Result};
use crate::format::{DType, Format};
use crate::read::number::Coordinate;
use crate::read::points::{PointSet, check_dimension, finish};
use crate::read::source::Input;
use crate::read::{Loaded, ReadOptions};
use beginning::Beginning;
use field::Fields;
use ids::Ids;

pub(crate) fn read(input: &Input<'_>, options: &ReadOptions) -> Result<Loaded> {
    let beginning = Beginning::read(input, options)?;
    let fields = Fields::new(input, options, &beginning)?;
    let columns = fields.coordinate_names();
    check_dimension(&input.name, columns.len())?;
    let (points, ids) = match options.dtype.unwrap_or(DType::F64) {
        DType::F32 => load::<f32>(input, &beginning, &fields, &columns)?,
        DType::F64 => load::<f64>(input, &beginning, &fields, &columns)?,
    };
    let ids = ids.map(Ids::into_array);
    Ok(Loaded { points, ids, columns, format: Format::Csv, bytes: input.data.len() })
}

fn load<T: Coordinate>(
    input: &Input<'_>,
    beginning: &Beginning,
    fields: &Fields,
    columns: &[String],
) -> Result<(PointSet, Option<Ids>)> {
    let (coordinates, ids) = match lines::Lines::find(input, beginning)? {
        Some(lines) => lines.parse::<T>(fields)?,
        None => quoted::read::<T>(input, beginning, fields)?,
    };
    let points = finish(&input.name, coordinates, columns)?;
    Ok((points, fields.id.map(|_| ids)))
}

fn not_text(input: &Input<'_>) -> Error {
    Error::Format {
        file: input.name.clone(),
        problem: "this is neither text nor Parquet, Arrow or NPY".to_owned(),
    }
}
