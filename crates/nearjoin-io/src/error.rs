//! What can be wrong with a file, and where in it.

use core::fmt;
use std::io;

use crate::format::Format;
use crate::quote::{one_line, quoted};

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
            write!(f, "{comma}column {}", quoted(column))?;
        }
        Ok(())
    }
}

/// Which option to change, so that a file can be read. `Display` says it in the words of
/// [`ReadOptions`](crate::ReadOptions); a program whose users know the option by another name
/// says it in theirs, after [`Error::complaint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// Give the [`format`](crate::ReadOptions::format).
    GiveFormat,
    /// Leave the [`format`](crate::ReadOptions::format) to the file.
    LeaveFormatOut,
    /// Choose [`columns`](crate::ReadOptions::columns) that hold numbers.
    ChooseColumns,
    /// Choose the one column of lists, or [`columns`](crate::ReadOptions::columns) of numbers.
    ChooseListOrColumns,
    /// Say whether there is a [`header`](crate::ReadOptions::header).
    SayHeader,
    /// Ask for no [`id`](crate::ReadOptions::id), or use a format that can hold one.
    LeaveIdOut,
    /// Ask for other [`columns`](crate::ReadOptions::columns): one of them is not there.
    NameColumns,
    /// Ask for another [`id`](crate::ReadOptions::id): it is not there.
    NameId,
    /// Ask for [`columns`](crate::ReadOptions::columns) and [`id`](crate::ReadOptions::id) by
    /// number: the file seems to have no header.
    CountColumns,
    /// Read the points as `f64`, with [`dtype`](crate::ReadOptions::dtype).
    ReadAsF64,
    /// Store the column as `f64`, or choose [`columns`](crate::ReadOptions::columns) without it.
    StoreAsF64,
    /// Write whole numbers with a decimal point, or choose
    /// [`columns`](crate::ReadOptions::columns) without them.
    WritePoint,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Remedy::GiveFormat => "give its format",
            Remedy::LeaveFormatOut => "leave its format out",
            Remedy::ChooseColumns => "choose columns",
            Remedy::ChooseListOrColumns => "choose it, or columns of numbers",
            Remedy::SayHeader => "say whether the first line is a header",
            Remedy::LeaveIdOut => "leave the ids out, or use another format",
            Remedy::NameColumns | Remedy::NameId => "choose among them",
            Remedy::CountColumns => "if it has no header, choose columns and ids by number, from 0",
            Remedy::ReadAsF64 => "read the points as f64",
            Remedy::StoreAsF64 => {
                "store the column as f64 if it may be rounded, else subtract an offset from it or \
                 choose columns without it"
            }
            Remedy::WritePoint => {
                "write it with a decimal point if it may be rounded, else subtract an offset from \
                 the column or choose columns without it"
            }
        })
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
        /// What to do, where an option or another type would help.
        remedy: Option<Remedy>,
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
    /// The file begins as one of its format, but is damaged or cut short.
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
    /// The options do not suit the file. Others do.
    Options {
        /// The file.
        file: String,
        /// Where in it.
        place: Box<Place>,
        /// What is wrong, as a sentence without its full stop.
        problem: String,
        /// What to do.
        remedy: Remedy,
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

    /// A part of the file that a decoder does not make sense of.
    pub(crate) fn undecodable(file: &str, format: Format, part: &str, said: impl ToString) -> Self {
        Error::damaged(file, format, format!("{part} cannot be decoded ({})", one_line(said)))
    }

    /// Something wrong with the file as a whole.
    pub(crate) fn content(file: &str, problem: impl Into<String>) -> Self {
        let (file, place) = (file.to_owned(), Place::default());
        Error::Content { file, place, problem: problem.into() }
    }

    /// Options that do not suit the file.
    pub(crate) fn options(file: &str, place: Place, problem: String, remedy: Remedy) -> Self {
        Error::Options { file: file.to_owned(), place: place.into(), problem, remedy }
    }

    /// What to change about the options, where that helps.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Error::Options { remedy, .. } => Some(*remedy),
            Error::Value { remedy, .. } => *remedy,
            _ => None,
        }
    }

    /// What `Display` says, less the [`remedy`](Error::remedy) at its end.
    ///
    /// ```
    /// use nearjoin_io::{ReadOptions, Remedy, read_bytes};
    ///
    /// let error = read_bytes("text", "1,NA\n1,2\n".into(), &ReadOptions::default()).unwrap_err();
    /// assert_eq!(error.remedy(), Some(Remedy::SayHeader));
    /// let complaint = "text: line 1, column \"1\": \"NA\" is text beside numbers";
    /// assert_eq!(error.complaint().to_string(), complaint);
    /// let remedy = "say whether the first line is a header";
    /// assert_eq!(error.to_string(), format!("{complaint}: {remedy}"));
    /// ```
    pub fn complaint(&self) -> impl fmt::Display + '_ {
        Complaint(self)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.remedy() {
            Some(remedy) => write!(f, "{}: {remedy}", Complaint(self)),
            None => Complaint(self).fmt(f),
        }
    }
}

/// An error without its remedy.
struct Complaint<'a>(&'a Error);

impl fmt::Display for Complaint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Error::Io { file, doing, source } => write!(f, "{file} could not be {doing}: {source}"),
            Error::Value { file, place, value, problem, .. } => {
                write!(f, "{file}: {place}: {value} {problem}")
            }
            Error::Content { file, place, problem } => content(f, file, place, problem),
            Error::Options { file, place, problem, .. } => content(f, file, place, problem),
            Error::Damaged { file, format, reason } => {
                write!(f, "{file} is a damaged {format} file: {reason}")
            }
            Error::Format { file, problem } => write!(f, "{file}: {problem}"),
            Error::Points { file, source } => write!(f, "{file}: {source}"),
        }
    }
}

fn content(f: &mut fmt::Formatter<'_>, file: &str, place: &Place, problem: &str) -> fmt::Result {
    match *place == Place::default() {
        true => write!(f, "{file}: {problem}"),
        false => write!(f, "{file}: {place}: {problem}"),
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
            "f is a damaged Arrow file: bad table: while verifying field"
        );
    }
}
