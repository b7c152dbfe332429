//! Fields of a text: which become coordinates, and what is wrong with one that cannot.

use nearjoin::Scalar;

use crate::error::{Error, Place, Remedy, Result};
use crate::quote::{bare, quoted};
use crate::read::csv::beginning::Beginning;
use crate::read::number::{Coordinate, beyond, inexact};
use crate::read::points::NOT_FINITE;
use crate::read::source::Input;
use crate::read::{ReadOptions, select};

/// What becomes of the fields of every row.
#[derive(Debug)]
pub(super) struct Fields {
    pub(super) file: String,
    names: Vec<String>,
    /// For each field, which coordinate it is.
    pub(super) coordinate: Vec<Option<usize>>,
    /// For each coordinate, which field it is.
    chosen: Vec<usize>,
    /// The field that is the id.
    pub(super) id: Option<usize>,
    /// The line of row 0, where every row is a line.
    pub(super) first_line: u64,
    pub(super) delimiter: u8,
}

impl Fields {
    pub(super) fn new(
        input: &Input<'_>,
        options: &ReadOptions,
        beginning: &Beginning,
    ) -> Result<Self> {
        let (file, names) = (&input.name, &beginning.names);
        let (guess, counted) = match beginning.header {
            _ if options.header.is_some() => ("", false),
            false => (" (no header was found in line 1)", false),
            true if names.iter().any(|name| !is_number(name.as_bytes())) => ("", false),
            true => (" (line 1 is the header, since columns are asked for by name)", true),
        };
        let hint = |error| match error {
            Error::Options { file, place, problem, remedy } => {
                let remedy = if counted { Remedy::CountColumns } else { remedy };
                Error::Options { file, place, problem: problem + guess, remedy }
            }
            error => error,
        };
        let id = options.id.as_ref().map(|id| select::find_id(file, names, id));
        let id = id.transpose().map_err(hint)?;
        let chosen = match &options.columns {
            Some(wanted) => select::find_all(file, names, wanted).map_err(hint)?,
            None => (0..names.len()).filter(|column| Some(*column) != id).collect(),
        };
        if chosen.is_empty() {
            return Err(Error::content(file, "there is no column of coordinates"));
        }
        let mut coordinate = vec![None; names.len()];
        for (at, &column) in chosen.iter().enumerate() {
            coordinate[column] = Some(at);
        }
        Ok(Fields {
            file: file.clone(),
            names: names.clone(),
            coordinate,
            chosen,
            id,
            first_line: beginning.line,
            delimiter: beginning.delimiter,
        })
    }

    pub(super) fn dimension(&self) -> usize {
        self.chosen.len()
    }

    pub(super) fn coordinate_names(&self) -> Vec<String> {
        self.chosen.iter().map(|&column| self.names[column].clone()).collect()
    }

    /// The error for a field that is no coordinate.
    #[cold]
    pub(super) fn refuse(&self, field: usize, text: &[u8], wrong: Wrong, at: Position) -> Error {
        let place = Place::column(&self.names[field]).at(at.row).on_line(at.line);
        let file = self.file.clone();
        let text = String::from_utf8_lossy(text.trim_ascii());
        let (value, (problem, remedy)) = match wrong {
            Wrong::Empty => {
                return Error::Content { file, place, problem: "the field is empty".to_owned() };
            }
            Wrong::NotANumber => (quoted(&text), ("is not a number".to_owned(), None)),
            Wrong::NotFinite => (bare(&text), (NOT_FINITE.to_owned(), None)),
            Wrong::TooLarge(kind) => {
                let wider = (kind == f32::NAME).then_some(Remedy::ReadAsF64);
                (bare(&text), (beyond(kind), wider))
            }
            Wrong::Inexact(kind) => {
                let (problem, remedy) = inexact(kind, Remedy::WritePoint);
                (bare(&text), (problem, Some(remedy)))
            }
        };
        Error::Value { file, place: place.into(), value, problem, remedy }
    }

    #[cold]
    pub(super) fn refuse_id(&self, problem: &str, at: Position) -> Error {
        let id = self.id.map(|id| self.names[id].clone());
        let place = Place { column: id, ..Place::default() }.at(at.row).on_line(at.line);
        Error::Content { file: self.file.clone(), place, problem: problem.to_owned() }
    }

    /// The error for a row with another number of fields.
    #[cold]
    pub(super) fn refuse_row(&self, fields: usize, at: Position) -> Error {
        let expected = self.names.len();
        let s = if fields == 1 { "" } else { "s" };
        self.row_error(at, format!("the row has {fields} field{s}, the first line has {expected}"))
    }

    #[cold]
    pub(super) fn blank(&self, at: Position) -> Error {
        self.row_error(at, "the line is blank".to_owned())
    }

    pub(super) fn row_error(&self, at: Position, problem: String) -> Error {
        let place = Place::row(at.row).on_line(at.line);
        Error::Content { file: self.file.clone(), place, problem }
    }
}

/// A row and its line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub(super) row: u64,
    pub(super) line: u64,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    Empty,
    NotANumber,
    NotFinite,
    TooLarge(&'static str),
    Inexact(&'static str),
}

/// A coordinate, with blanks around it.
pub(super) fn parse<T: Coordinate>(field: &[u8]) -> core::result::Result<T, Wrong> {
    let field = field.trim_ascii();
    if field.is_empty() {
        return Err(Wrong::Empty);
    }
    match fast_float2::parse::<T, _>(field) {
        Ok(number) if number.is_finite() => match is_rounded(field, number) {
            true => Err(Wrong::Inexact(T::NAME)),
            false => Ok(number),
        },
        Ok(_) if field.iter().any(u8::is_ascii_digit) => Err(Wrong::TooLarge(T::NAME)),
        Ok(_) => Err(Wrong::NotFinite),
        Err(_) => Err(Wrong::NotANumber),
    }
}

/// Whether the text is a whole number without point or exponent, and `number` another one.
/// What has a point is a measurement, and may be rounded.
#[inline]
pub(super) fn is_rounded<T: Coordinate>(text: &[u8], number: T) -> bool {
    text.len() > T::EXACT_DIGITS && is_other_integer(text, number.to_f64().abs())
}

fn is_other_integer(text: &[u8], magnitude: f64) -> bool {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    if !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    let digits = core::str::from_utf8(&digits[zeros..]).unwrap_or_default();
    match digits.len() {
        0 => false,
        // Fewer digits than the largest u128 has.
        1..=38 => digits.parse() != Ok(magnitude as u128),
        _ => digits != format!("{magnitude:.0}"),
    }
}

pub(super) fn is_number(field: &[u8]) -> bool {
    fast_float2::parse::<f64, _>(field.trim_ascii()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_every_spelling() {
        for (text, number) in [
            ("1", 1.0),
            (" +1.5\t", 1.5),
            ("-.5", -0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("1E-3", 0.001),
            ("-0", -0.0),
            ("4.9e-324", 5e-324),
            ("1.7976931348623157e308", f64::MAX),
            ("9007199254740992", 9007199254740992.0),
            ("-9007199254740994", -9007199254740994.0),
            ("00000000000000000000000000000000000000000000000000001", 1.0),
            ("0000000000000000000000", 0.0),
            ("9007199254740993.0", 9007199254740992.0),
            ("9007199254740993e0", 9007199254740992.0),
            ("340282366920938463463374607431768211456", 340282366920938463463374607431768211456.0),
        ] {
            assert_eq!(parse::<f64>(text.as_bytes()).map(f64::to_bits), Ok(f64::to_bits(number)));
        }
        assert_eq!(parse::<f32>(b"0.1"), Ok(0.1));
        for (text, wrong) in [
            ("", Wrong::Empty),
            ("  ", Wrong::Empty),
            ("x", Wrong::NotANumber),
            ("1x", Wrong::NotANumber),
            ("1,5", Wrong::NotANumber),
            ("0x10", Wrong::NotANumber),
            ("1_000", Wrong::NotANumber),
            ("NaN", Wrong::NotFinite),
            ("-inf", Wrong::NotFinite),
            ("Infinity", Wrong::NotFinite),
            ("1e999", Wrong::TooLarge("f64")),
            ("9007199254740993", Wrong::Inexact("f64")),
            (" +9007199254740993 ", Wrong::Inexact("f64")),
            ("-9223372036854775807", Wrong::Inexact("f64")),
            ("340282366920938463463374607431768211455", Wrong::Inexact("f64")),
            ("1000000000000000000000000000000000000000000", Wrong::Inexact("f64")),
        ] {
            assert_eq!(parse::<f64>(text.as_bytes()), Err(wrong), "{text:?}");
        }
        assert_eq!(parse::<f32>(b"1e39"), Err(Wrong::TooLarge("f32")));
        assert_eq!(parse::<f32>(b"16777216"), Ok(16777216.0));
        assert_eq!(parse::<f32>(b"16777217"), Err(Wrong::Inexact("f32")));
        assert_eq!(parse::<f32>(b"-16777218"), Ok(-16777218.0));
    }
}
