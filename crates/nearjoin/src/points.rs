//! Points at the door: borrowed, row-major, validated once.

use core::ops::Range;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::scalar::Scalar;

/// The largest dimension a point may have.
pub const MAX_DIMENSION: usize = 4096;
/// The largest number of points in one set: ids are `u32`, and one value is kept to
/// mean "none".
pub const MAX_POINTS: usize = u32::MAX as usize - 1;

/// A validated view of points that the caller keeps.
///
/// The points stand one after the other, `dimension` coordinates each (row-major, as
/// a C-ordered numpy array). Every coordinate is known to be finite.
///
/// ```
/// use nearjoin::Points;
/// let corners = [0.0, 0.0, 0.0, 1.0, 1.0, 0.0];
/// let points = Points::new(&corners, 2)?;
/// assert_eq!((points.len(), points.dimension()), (3, 2));
/// assert_eq!(points.row(1), [0.0, 1.0]);
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Points<'a, T> {
    data: &'a [T],
    dimension: usize,
    magnitudes: Magnitudes<T>,
}

impl<'a, T: Scalar> Points<'a, T> {
    /// Borrows `data` as rows of `dimension` coordinates.
    ///
    /// # Errors
    /// If the dimension is 0 or over [`MAX_DIMENSION`], the values do not divide into
    /// rows, there are more than [`MAX_POINTS`], or a coordinate is NaN or infinite.
    pub fn new(data: &'a [T], dimension: usize) -> Result<Self> {
        if dimension == 0 || dimension > MAX_DIMENSION {
            return Err(Error::Dimension { dimension });
        }
        if !data.len().is_multiple_of(dimension) {
            return Err(Error::Length { length: data.len(), dimension });
        }
        let points = data.len() / dimension;
        if points > MAX_POINTS {
            return Err(Error::TooManyPoints { points });
        }
        let magnitudes = magnitudes(data, dimension)?;
        Ok(Points { data, dimension, magnitudes })
    }

    /// Borrows an array of fixed-size rows.
    ///
    /// ```
    /// # use nearjoin::Points;
    /// let points = Points::from_rows(&[[0.0f32, 1.0, 2.0], [3.0, 4.0, 5.0]])?;
    /// assert_eq!(points.dimension(), 3);
    /// # Ok::<(), nearjoin::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Points::new`].
    pub fn from_rows<const D: usize>(rows: &'a [[T; D]]) -> Result<Self> {
        Self::new(rows.as_flattened(), D)
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.data.len() / self.dimension
    }

    /// Whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Coordinates per point.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// All coordinates, row after row.
    pub fn as_slice(&self) -> &'a [T] {
        self.data
    }

    /// One point.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> &'a [T] {
        &self.data[row * self.dimension..][..self.dimension]
    }

    /// An error unless the points on the right have as many coordinates.
    pub(crate) fn check_dimension(&self, right: &Points<'_, T>) -> Result<()> {
        if self.dimension != right.dimension {
            let (left, right) = (self.dimension, right.dimension);
            return Err(Error::DimensionMismatch { left, right });
        }
        Ok(())
    }

    /// A copy of the points of some rows, in their order.
    pub(crate) fn gather(&self, rows: &[u32]) -> Result<PointsBuf<T>> {
        let mut data = Buffer::zeroed(rows.len() * self.dimension)?;
        let points = data.par_chunks_exact_mut(self.dimension).zip(rows).with_min_len(1024);
        points.for_each(|(point, &row)| point.copy_from_slice(self.row(row as usize)));
        Ok(PointsBuf { data, dimension: self.dimension, magnitudes: self.magnitudes })
    }

    /// Points of which all coordinates are of these: they are not checked again.
    pub(crate) fn of_these<'b>(&self, data: &'b [T]) -> Points<'b, T> {
        Points { data, dimension: self.dimension, magnitudes: self.magnitudes }
    }

    /// Some of the points, one after the other. They are not checked again.
    ///
    /// ```
    /// # use nearjoin::Points;
    /// let points = Points::new(&[0.0, 1.0, 2.0, 3.0], 1)?;
    /// assert_eq!(points.rows(1..3).as_slice(), [1.0, 2.0]);
    /// # Ok::<(), nearjoin::Error>(())
    /// ```
    ///
    /// # Panics
    /// If there are no such rows.
    pub fn rows(&self, rows: Range<usize>) -> Points<'a, T> {
        let data = &self.data[rows.start * self.dimension..rows.end * self.dimension];
        Points { data, ..*self }
    }

    /// The least and the greatest absolute value, or bounds of them.
    pub(crate) fn magnitudes(&self) -> Magnitudes<T> {
        self.magnitudes
    }
}

/// Points that own their memory, for rows that come one by one.
///
/// ```
/// use nearjoin::{Error, PointsBuf};
/// let owned = PointsBuf::from_rows([vec![0.0, 1.0], vec![2.0, 3.0]])?;
/// assert_eq!(owned.as_points().len(), 2);
///
/// let ragged = PointsBuf::from_rows([vec![0.0, 1.0], vec![2.0]]).unwrap_err();
/// assert_eq!(ragged, Error::Ragged { row: 1, columns: 1, expected: 2 });
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PointsBuf<T> {
    data: Buffer<T>,
    dimension: usize,
    magnitudes: Magnitudes<T>,
}

impl<T: Scalar> PointsBuf<T> {
    /// Copies rows of equal length.
    ///
    /// No rows at all make no points of dimension 1.
    ///
    /// # Errors
    /// If a row has another length than the first, or as for [`Points::new`].
    pub fn from_rows<R: AsRef<[T]>>(rows: impl IntoIterator<Item = R>) -> Result<Self> {
        let mut data = Vec::new();
        let mut dimension = None;
        for (row, coordinates) in rows.into_iter().enumerate() {
            let coordinates = coordinates.as_ref();
            let expected = *dimension.get_or_insert(coordinates.len());
            if coordinates.len() != expected {
                return Err(Error::Ragged { row, columns: coordinates.len(), expected });
            }
            data.extend_from_slice(coordinates);
        }
        Self::from_vec(data, dimension.unwrap_or(1))
    }

    /// Takes a vector of rows of `dimension` coordinates.
    ///
    /// # Errors
    /// As for [`Points::new`].
    pub fn from_vec(data: Vec<T>, dimension: usize) -> Result<Self> {
        Self::from_buffer(data.into(), dimension)
    }

    /// Takes a buffer of rows of `dimension` coordinates: a large one lies in huge pages.
    ///
    /// ```
    /// use nearjoin::{Buffer, PointsBuf};
    /// let mut data = Buffer::zeroed(6)?;
    /// data.copy_from_slice(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    /// assert_eq!(PointsBuf::from_buffer(data, 2)?.as_points().row(1), [2.0, 3.0]);
    /// # Ok::<(), nearjoin::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Points::new`].
    pub fn from_buffer(data: Buffer<T>, dimension: usize) -> Result<Self> {
        let magnitudes = Points::new(&data, dimension)?.magnitudes;
        Ok(PointsBuf { data, dimension, magnitudes })
    }

    /// The coordinates, row after row.
    pub fn into_buffer(self) -> Buffer<T> {
        self.data
    }

    /// The points, borrowed.
    pub fn as_points(&self) -> Points<'_, T> {
        Points { data: &self.data, dimension: self.dimension, magnitudes: self.magnitudes }
    }
}

/// The least and the greatest absolute value of some numbers; of the least, zeros left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Magnitudes<T> {
    pub(crate) least: T,
    pub(crate) greatest: T,
}

impl<T: Scalar> Magnitudes<T> {
    /// Those of zeros, or of no numbers at all.
    pub(crate) const NONE: Self = Magnitudes { least: T::INFINITY, greatest: T::ZERO };

    /// Those of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Magnitudes {
            least: if other.least < self.least { other.least } else { self.least },
            greatest: if other.greatest > self.greatest { other.greatest } else { self.greatest },
        }
    }
}

/// The magnitudes of all coordinates; an error for the first that is not finite.
fn magnitudes<T: Scalar>(data: &[T], dimension: usize) -> Result<Magnitudes<T>> {
    const CHUNK: usize = 1 << 16;
    let of = |(chunk, values): (usize, &[T])| {
        let first_bad = || chunk * CHUNK + values.iter().take_while(|x| x.is_finite()).count();
        magnitudes_if_finite(values).ok_or_else(first_bad)
    };
    let both = |a, b| match (a, b) {
        (Ok(a), Ok(b)) => Ok(Magnitudes::and(a, b)),
        // The one of the first chunk.
        (Err(at), _) | (_, Err(at)) => Err(at),
    };
    let all = data.par_chunks(CHUNK).enumerate().map(of).reduce(|| Ok(Magnitudes::NONE), both);
    all.map_err(|at| Error::NotFinite {
        row: at / dimension,
        column: at % dimension,
        value: data[at].to_f64(),
    })
}

/// The magnitudes of some values, if all are finite: a loop without branches, which vectorises.
fn magnitudes_if_finite<T: Scalar>(values: &[T]) -> Option<Magnitudes<T>> {
    const LANES: usize = 16;
    let (mut least, mut greatest) = ([T::INFINITY; LANES], [T::ZERO; LANES]);
    let mut bad = [T::ZERO; LANES];
    let mut step = |lane: usize, x: T| {
        // 0 for finite x, NaN otherwise, and NaN it stays.
        bad[lane] = bad[lane].add(x.sub(x));
        let x = x.abs();
        greatest[lane] = if x > greatest[lane] { x } else { greatest[lane] };
        let x = if x == T::ZERO { T::INFINITY } else { x };
        least[lane] = if x < least[lane] { x } else { least[lane] };
    };
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        (0..LANES).for_each(|lane| step(lane, block[lane]));
    }
    rest.iter().enumerate().for_each(|(lane, x)| step(lane, *x));
    let finite = bad.iter().all(|bad| *bad == T::ZERO);
    let all = least.into_iter().zip(greatest);
    let all = all.map(|(least, greatest)| Magnitudes { least, greatest });
    finite.then(|| all.fold(Magnitudes::NONE, Magnitudes::and))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_at_the_door() {
        let none: [f64; 0] = [];
        assert_eq!(Points::new(&none, 0).unwrap_err(), Error::Dimension { dimension: 0 });
        assert_eq!(Points::new(&none, 4097).unwrap_err(), Error::Dimension { dimension: 4097 });
        assert!(Points::new(&none, 4096).unwrap().is_empty());
        assert_eq!(
            Points::new(&[1.0; 5], 2).unwrap_err(),
            Error::Length { length: 5, dimension: 2 }
        );
        assert_eq!(
            Points::new(&[0.0, 1.0, 2.0, f32::INFINITY], 2).unwrap_err(),
            Error::NotFinite { row: 1, column: 1, value: f64::INFINITY }
        );
    }

    #[test]
    fn the_first_bad_value_is_named_wherever_it_stands() {
        for at in [0, 15, 16, 65_535, 65_536, 199_999] {
            let mut data = vec![1.5f64; 200_000];
            data[at] = f64::NEG_INFINITY;
            data[199_999] = f64::NEG_INFINITY;
            let expected =
                Error::NotFinite { row: at / 4, column: at % 4, value: f64::NEG_INFINITY };
            assert_eq!(Points::new(&data, 4).unwrap_err(), expected);
        }
    }
}
