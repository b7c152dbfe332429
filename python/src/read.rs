//! Points from files.

use std::path::PathBuf;

use nearjoin::PointsBuf;
use nearjoin_io::{DType, Format, PointSet, Progress, ReadOptions, Source};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::of_buffer;
use crate::error::Failure;
use crate::run::run;

/// The points of a file, and the names of their coordinates.
#[pyfunction]
pub(crate) fn read<'py>(
    py: Python<'py>,
    path: PathBuf,
    columns: Option<Vec<String>>,
    dtype: Option<&str>,
    format: Option<&str>,
    delimiter: Option<char>,
    header: Option<bool>,
) -> PyResult<(Bound<'py, PyAny>, Vec<String>)> {
    let dtype = match dtype {
        Some("float32") => Some(DType::F32),
        Some("float64") => Some(DType::F64),
        _ => None,
    };
    let delimiter = delimiter
        .map(|mark| {
            let wrong = || PyValueError::new_err(format!("the delimiter {mark:?} is not one byte"));
            u8::try_from(mark).map_err(|_| wrong())
        })
        .transpose()?;
    let format: Option<Format> =
        format.map(|name| name.parse().map_err(PyValueError::new_err::<String>)).transpose()?;
    let options = ReadOptions { format, columns, dtype, delimiter, header, id: None };
    let loaded = run(py, None, (), move |(), _| {
        nearjoin_io::read(&Source::File(path), &options, &Progress::default())
            .map_err(Failure::File)
    })?;
    let points = match loaded.points {
        PointSet::F32(points) => array(py, points)?,
        PointSet::F64(points) => array(py, points)?,
    };
    Ok((points, loaded.columns))
}

fn array<'py, T>(py: Python<'py>, points: PointsBuf<T>) -> PyResult<Bound<'py, PyAny>>
where
    T: nearjoin::Scalar + numpy::Element,
{
    let shape = (points.as_points().len(), points.as_points().dimension());
    Ok(of_buffer(py, points.into_buffer(), shape)?.into_any())
}
