//! Coordinates in the type that was found or asked for.

use nearjoin::{Buffer, MAX_DIMENSION, MAX_POINTS, PointsBuf};
use rayon::prelude::*;

use crate::error::{Error, Place, Result};
use crate::format::DType;
use crate::read::number::Coordinate;

/// Points in the type that was found or asked for.
#[derive(Debug)]
pub enum PointSet {
    /// Four bytes a coordinate.
    F32(PointsBuf<f32>),
    /// Eight bytes a coordinate.
    F64(PointsBuf<f64>),
}

impl PointSet {
    /// Number of points.
    pub fn len(&self) -> usize {
        match self {
            PointSet::F32(points) => points.as_points().len(),
            PointSet::F64(points) => points.as_points().len(),
        }
    }

    /// Whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Coordinates per point.
    pub fn dimension(&self) -> usize {
        match self {
            PointSet::F32(points) => points.as_points().dimension(),
            PointSet::F64(points) => points.as_points().dimension(),
        }
    }

    /// The type of the coordinates.
    pub fn dtype(&self) -> DType {
        match self {
            PointSet::F32(_) => DType::F32,
            PointSet::F64(_) => DType::F64,
        }
    }

    /// Bytes that the coordinates take.
    pub fn bytes(&self) -> u64 {
        let size = match self {
            PointSet::F32(_) => size_of::<f32>(),
            PointSet::F64(_) => size_of::<f64>(),
        };
        (self.len() * self.dimension() * size) as u64
    }

    /// The same points in `f64`, which is exact: for a join with points in `f64`.
    ///
    /// ```
    /// use nearjoin::PointsBuf;
    /// use nearjoin_io::{DType, PointSet};
    /// let points = PointSet::F32(PointsBuf::from_rows([[0.5f32, 1.0]])?);
    /// assert_eq!(points.into_f64()?.dtype(), DType::F64);
    /// # Ok::<(), nearjoin::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn into_f64(self) -> nearjoin::Result<PointSet> {
        const CHUNK: usize = 1 << 16;
        let PointSet::F32(narrow) = self else { return Ok(self) };
        let narrow = narrow.as_points();
        let mut wide = Buffer::<f64>::zeroed(narrow.as_slice().len())?;
        wide.par_chunks_mut(CHUNK).zip(narrow.as_slice().par_chunks(CHUNK)).for_each(
            |(wide, narrow)| {
                for (wide, narrow) in wide.iter_mut().zip(narrow) {
                    *wide = f64::from(*narrow);
                }
            },
        );
        Ok(PointSet::F64(PointsBuf::from_buffer(wide, narrow.dimension())?))
    }
}

/// Room for the coordinates, after a look at the limits.
pub(crate) fn allocate<T: Coordinate>(
    file: &str,
    rows: u64,
    dimension: usize,
) -> Result<Buffer<T>> {
    check_dimension(file, dimension)?;
    let points = usize::try_from(rows).unwrap_or(usize::MAX);
    let refused = |source| Error::Points { file: file.to_owned(), source };
    if points > MAX_POINTS {
        return Err(refused(nearjoin::Error::TooManyPoints { points }));
    }
    let len = points.checked_mul(dimension).ok_or_else(|| no_memory(file, usize::MAX))?;
    Buffer::zeroed(len).map_err(refused)
}

/// The system refused memory for the points of a file.
pub(crate) fn no_memory(file: &str, bytes: usize) -> Error {
    Error::Points { file: file.to_owned(), source: nearjoin::Error::OutOfMemory { bytes } }
}

pub(crate) fn check_dimension(file: &str, dimension: usize) -> Result<()> {
    match dimension {
        1..=MAX_DIMENSION => Ok(()),
        _ => Err(Error::Points {
            file: file.to_owned(),
            source: nearjoin::Error::Dimension { dimension },
        }),
    }
}

/// Hands the coordinates to the engine, whose check of every value names the column here.
pub(crate) fn finish<T: Coordinate>(
    file: &str,
    coordinates: Buffer<T>,
    columns: &[String],
) -> Result<PointSet> {
    match PointsBuf::from_buffer(coordinates, columns.len()) {
        Ok(points) => Ok(T::wrap(points)),
        Err(nearjoin::Error::NotFinite { row, column, value }) => Err(Error::Value {
            file: file.to_owned(),
            place: Place::column(&columns[column]).at(row as u64).into(),
            value: value.to_string(),
            problem: NOT_FINITE.to_owned(),
            remedy: None,
        }),
        Err(source) => Err(Error::Points { file: file.to_owned(), source }),
    }
}

/// What is wrong with NaN and infinity.
pub(crate) const NOT_FINITE: &str = "is not a finite number";
