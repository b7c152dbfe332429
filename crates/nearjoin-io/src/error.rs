//! What can be wrong with a file, and where in it.

use core::fmt;
use std::io;

use crate::format::Format;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Where in a file something is wrong. What is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The column, by name.
    pub column: Option<String>,
    /// The row of points, from 0: a header is not counted.
    pub row: Option<u64>,
    /// The line of a text file, from 1.
    pub line: Option<u64>,
}

impl Place {
    /// A whole column.
    pub fn column(name: impl Into<String>) -> Self {
        Place { column: Some(name.into()), ..Place::default() }
    }

    /// A whole row.
    pub fn row(row: u64) -> Self {
        Place { row: Some(row), ..Place::default() }
    }

    /// The same place, in this row.
    pub fn at(mut self, row: u64) -> Self {
        self.row = Some(row);
        self
    }

    /// The same place, on this line of a text file.
    pub fn on_line(mut self, line: u64) -> Self {
        self.line = Some(line);
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        if let Some(row) = self.row {
            write!(f, "row {row}")?;
            comma = ", ";
        }
        if let Some(line) = self.line {
            match self.row {
                Some(_) => write!(f, " (line {line})")?,
                None => write!(f, "line {line}")?,
            }
            comma = ", ";
        }
        if let Some(column) = &self.column {
            write!(f, "{comma}column {column:?}")?;
        }
        Ok(())
    }
}

/// Why a file could not be read or written. `Display` is one sentence for its user: the
/// file, the place, the value, and what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The system refused: no such file, no permission, a full disk.
    Io {
        /// The file.
        file: String,
        /// What was being done: `"opened"`, `"read"`, `"written"`.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A value cannot be a coordinate.
    Value {
        /// The file.
        file: String,
        /// Where in it.
        place: Box<Place>,
        /// The value as it stands there.
        value: String,
        /// What is wrong with it, as in `"is not a number"`.
        problem: String,
    },
    /// The file as a whole, a column or a row is not what it must be.
    Content {
        /// The file.
        file: String,
        /// Where in it.
        place: Place,
        /// What is wrong, as a sentence without its full stop.
        problem: String,
    },
    /// The file is not of its format, or is damaged or cut short.
    Damaged {
        /// The file.
        file: String,
        /// Its format.
        format: &'static str,
        /// What the decoder said.
        reason: String,
    },
    /// The format of a file cannot be told, or cannot hold what is asked for.
    Format {
        /// The file.
        file: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The engine refused the points.
    Points {
        /// The file.
        file: String,
        /// What it said.
        source: nearjoin::Error,
    },
}

impl Error {
    pub(crate) fn damaged(file: &str, format: Format, reason: impl ToString) -> Self {
        Error::Damaged { file: file.to_owned(), format: format.name(), reason: one_line(reason) }
    }

    /// Something wrong with the file as a whole.
    pub(crate) fn content(file: &str, problem: impl Into<String>) -> Self {
        let (file, place) = (file.to_owned(), Place::default());
        Error::Content { file, place, problem: problem.into() }
    }
}

/// What a decoder said, which may be a list or a table, on one line.
pub(crate) fn one_line(said: impl ToString) -> String {
    said.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { file, doing, source } => write!(f, "{file} could not be {doing}: {source}"),
            Error::Value { file, place, value, problem } => {
                write!(f, "{file}: {place}: {value} {problem}")
            }
            Error::Content { file, place, problem } if *place == Place::default() => {
                write!(f, "{file}: {problem}")
            }
            Error::Content { file, place, problem } => write!(f, "{file}: {place}: {problem}"),
            Error::Damaged { file, format, reason } => {
                write!(f, "{file} is not a complete {format} file: {reason}")
            }
            Error::Format { file, problem } => write!(f, "{file}: {problem}"),
            Error::Points { file, source } => write!(f, "{file}: {source}"),
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::Points { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_decoder_says_is_one_line() {
        let error =
            Error::damaged("f", Format::Arrow, "bad table:\n\twhile verifying\r\n  field\n");
        assert_eq!(
            error.to_string(),
            "f is not a complete Arrow file: bad table: while verifying field"
        );
    }
}
