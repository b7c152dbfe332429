//! What can go wrong, with the values that were wrong.

use core::fmt;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why a join was refused or had to stop.
///
/// Every variant carries the offending values; `Display` says what is wrong, where,
/// and what to do about it.
///
/// ```
/// let error = nearjoin::Points::new(&[0.0, 1.0, f64::NAN, 3.0], 2).unwrap_err();
/// assert_eq!(error.to_string(), "row 1, column 0 is NaN: every coordinate must be a finite number");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// A coordinate is NaN or infinite.
    NotFinite {
        /// Row of the coordinate, from 0.
        row: usize,
        /// Column of the coordinate, from 0.
        column: usize,
        /// The value found there.
        value: f64,
    },
    /// The dimension is 0 or larger than [`MAX_DIMENSION`](crate::MAX_DIMENSION).
    Dimension {
        /// The dimension that was given.
        dimension: usize,
    },
    /// A flat slice does not divide into rows.
    Length {
        /// Number of values in the slice.
        length: usize,
        /// Dimension of the points.
        dimension: usize,
    },
    /// A row has another number of columns than the first.
    Ragged {
        /// The row that differs, from 0.
        row: usize,
        /// Its number of columns.
        columns: usize,
        /// The first row's number of columns.
        expected: usize,
    },
    /// There are more rows than a `u32` can number.
    TooManyPoints {
        /// How many there are.
        points: usize,
    },
    /// The two sides of a join have different dimensions.
    DimensionMismatch {
        /// Dimension of the left points.
        left: usize,
        /// Dimension of the right points.
        right: usize,
    },
    /// ε is negative, NaN, or infinite in the points' type.
    Epsilon {
        /// The ε that was given.
        value: f64,
        /// The points' type, `"f32"` or `"f64"`.
        kind: &'static str,
    },
    /// A coordinate is so small beside the greatest that no power of two brings both into the
    /// range of the points' type.
    Magnitudes {
        /// Whose: of the `"left"` or the `"right"` points, of none but the points otherwise.
        side: Option<&'static str>,
        /// Row of the coordinate, from 0.
        row: usize,
        /// Column of the coordinate, from 0.
        column: usize,
        /// The value found there.
        value: f64,
        /// The greatest absolute value of any coordinate.
        greatest: f64,
        /// The points' type, `"f32"` or `"f64"`.
        kind: &'static str,
    },
    /// Two different points are so near to each other, beside the greatest coordinate, that the
    /// squares of their differences vanish: they cannot be told from equal points.
    TooNear {
        /// Row of one of them: of the left points, from 0.
        left: usize,
        /// Row of the other: of the right points, from 0.
        right: usize,
        /// The greatest absolute value of any coordinate.
        greatest: f64,
        /// The points' type, `"f32"` or `"f64"`.
        kind: &'static str,
    },
    /// Points may be so far apart that the points' type has no number for their distance.
    TooFar {
        /// The greatest absolute value of any coordinate.
        greatest: f64,
        /// The points' type, `"f32"` or `"f64"`.
        kind: &'static str,
    },
    /// An option has a value that it cannot take.
    Option {
        /// The option.
        name: &'static str,
        /// The value that was given.
        value: usize,
        /// What it may be.
        allowed: &'static str,
    },
    /// An option has a number that it cannot take.
    Number {
        /// The option.
        name: &'static str,
        /// The number that was given.
        value: f64,
        /// What it may be.
        allowed: &'static str,
    },
    /// A strategy is of no use to this kind of join.
    Strategy {
        /// The strategy that was named.
        strategy: crate::Strategy,
        /// The strategies that can be named.
        known: &'static [crate::Strategy],
    },
    /// There are fewer points than neighbours asked for.
    TooFewPoints {
        /// Neighbours that were asked for.
        k: usize,
        /// Points that could be neighbours.
        points: usize,
    },
    /// A name that stands for nothing here.
    UnknownName {
        /// What the name should have named.
        what: &'static str,
        /// The name that was given.
        name: String,
        /// The names that are known.
        known: &'static str,
    },
    /// The device is not available.
    Device {
        /// The device that was asked for.
        device: &'static str,
        /// Why it cannot be used.
        reason: String,
    },
    /// The result or the index does not fit the memory limit.
    MemoryLimit {
        /// What needs the memory.
        what: Needs,
        /// Bytes needed, besides the input.
        needed: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// Bytes that should be a [`Partition`](crate::partition::Partition) are not.
    Partition {
        /// What is wrong with them.
        reason: String,
    },
    /// The system refused memory.
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// A buffer that the caller handed in has the wrong size.
    Buffer {
        /// Which buffer.
        name: &'static str,
        /// Elements it has room for.
        length: usize,
        /// Elements it must have room for.
        needed: u64,
    },
    /// A sink has no place for the answer of this join.
    Sink {
        /// The sink.
        sink: &'static str,
        /// The joins that it is for.
        only_for: &'static str,
    },
    /// The threads could not be started.
    Threads {
        /// What the system said.
        reason: String,
    },
    /// A callback asked to stop.
    Stopped,
    /// [`Monitor::cancel`](crate::Monitor::cancel) asked to stop.
    Cancelled,
}

/// What does not fit a memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Needs {
    /// The index alone.
    Index,
    /// The result, beside the index.
    Result,
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Needs::Index => "the index",
            Needs::Result => "the index with the result",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotFinite { row, column, value } => write!(
                f,
                "row {row}, column {column} is {value}: every coordinate must be a finite number"
            ),
            Error::Dimension { dimension } => write!(
                f,
                "points of dimension {dimension} are not supported: it must be between 1 and {}",
                crate::MAX_DIMENSION
            ),
            Error::Length { length, dimension } => write!(
                f,
                "{length} values do not divide into rows of {dimension}: {} are left over",
                length % dimension
            ),
            Error::Ragged { row, columns, expected } => {
                write!(f, "row {row} has {columns} columns, the first row has {expected}")
            }
            Error::TooManyPoints { points } => write!(
                f,
                "{points} points are more than the {} that can be numbered: split the input",
                crate::MAX_POINTS
            ),
            Error::DimensionMismatch { left, right } => write!(
                f,
                "the left points have dimension {left} and the right points {right}: they must agree"
            ),
            Error::Epsilon { value, kind } => {
                write!(
                    f,
                    "ε = {value:?} is not a distance: it must be 0 or more and finite in {kind}"
                )
            }
            Error::Magnitudes { side, row, column, value, greatest, kind } => {
                write!(f, "row {row}, column {column}")?;
                side.iter().try_for_each(|side| write!(f, " of the {side} points"))?;
                write!(
                    f,
                    " is {value:e} and the greatest coordinate {greatest:e}: {kind} cannot compute \
                     with both: {}",
                    other_units(kind)
                )
            }
            Error::TooNear { left, right, greatest, kind } => write!(
                f,
                "rows {left} and {right} differ by so little beside the greatest coordinate, \
                 {greatest:e}, that {kind} cannot tell how far they are apart: {}",
                other_units(kind)
            ),
            Error::TooFar { greatest, kind } => write!(
                f,
                "with coordinates up to {greatest:e}, points may be farther apart than {kind} has \
                 numbers for: {}",
                other_units(kind)
            ),
            Error::Option { name, value, allowed } => {
                write!(f, "{name} = {value} is out of range: it must be {allowed}")
            }
            Error::Number { name, value, allowed } => {
                write!(f, "{name} = {value} is out of range: it must be {allowed}")
            }
            Error::Strategy { strategy, known } => {
                let known: Vec<String> = known.iter().map(ToString::to_string).collect();
                let known = known.join(", ");
                write!(f, "the strategy {strategy} is not for this join: choose one of {known}")
            }
            Error::TooFewPoints { k, points } => write!(
                f,
                "k = {k} neighbours were asked for and there are only {points} points to choose \
                 from: lower k, or ask for padding"
            ),
            Error::UnknownName { what, name, known } => {
                write!(f, "there is no {what} called {name:?}: choose one of {known}")
            }
            Error::Device { device, reason } => {
                write!(f, "the device {device} cannot be used: {reason}")
            }
            Error::MemoryLimit { what, needed, limit } => {
                let (needed, limit) = (crate::stats::bytes(*needed), crate::stats::bytes(*limit));
                write!(f, "{what} needs {needed} and the memory limit is {limit}: ")?;
                match what {
                    Needs::Index => write!(f, "raise the limit, or join fewer points at a time"),
                    Needs::Result => write!(
                        f,
                        "raise the limit, lower ε, count or take degrees only, or receive the \
                         pairs in blocks through a callback"
                    ),
                }
            }
            Error::Partition { reason } => {
                write!(f, "these bytes are no partition that can be read: {reason}")
            }
            Error::OutOfMemory { bytes } => {
                write!(f, "the system refused {} of memory", crate::stats::bytes(*bytes as u64))
            }
            Error::Buffer { name, length, needed } => write!(
                f,
                "the buffer for {name} has room for {length} elements and {needed} are needed"
            ),
            Error::Sink { sink, only_for } => {
                write!(f, "{sink} is for {only_for} only: receive this answer with another sink")
            }
            Error::Threads { reason } => write!(f, "the threads could not be started: {reason}"),
            Error::Stopped => write!(f, "the callback asked to stop before the join was complete"),
            Error::Cancelled => write!(f, "the join was cancelled before it was complete"),
        }
    }
}

/// What to do about numbers that are out of the range of a type.
fn other_units(kind: &str) -> &'static str {
    match kind {
        "f32" => "use f64, or give the points in other units",
        _ => "give the points in other units",
    }
}

impl core::error::Error for Error {}
