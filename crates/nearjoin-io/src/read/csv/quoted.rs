//! Text with quotes, record by record.

use nearjoin::{Buffer, MAX_POINTS};

use crate::error::{Error, Result};
use crate::read::csv::beginning::Beginning;
use crate::read::csv::field::{Fields, Position, parse};
use crate::read::csv::ids::Ids;
use crate::read::csv::record::{Record, Scan, blank_line};
use crate::read::number::Coordinate;
use crate::read::points::no_memory;
use crate::read::source::Input;

/// Text in memory at a time, and more while a record needs it.
const SEGMENT: u64 = 8 << 20;

pub(super) fn read<T: Coordinate>(
    input: &Input<'_>,
    beginning: &Beginning,
    fields: &Fields,
) -> Result<(Buffer<T>, Ids)> {
    let mut rows = Rows { fields, coordinates: Vec::new(), ids: Ids::default() };
    let mut record = Record::default();
    let mut at = Position { row: 0, line: beginning.line };
    let mut blank = None;
    let mut offset = beginning.start;
    let mut length = SEGMENT;
    while offset < input.data.len() {
        let end = input.data.len().min(offset.saturating_add(length));
        let text = input.read(offset, (end - offset) as usize)?;
        let complete = end == input.data.len();
        let mut text = &text[..];
        loop {
            if text.is_empty() {
                break;
            }
            if let Some(length) = blank_line(text, complete) {
                blank.get_or_insert(at);
                at.line += 1;
                text = &text[length..];
                continue;
            }
            match record.scan(text, fields.delimiter, complete) {
                Scan::Complete { length, line_ends } => {
                    // Blank lines at the end are nothing; before a row they are a mistake.
                    if let Some(blank) = blank {
                        return Err(fields.blank(blank));
                    }
                    rows.push(&record, at)?;
                    at = Position { row: at.row + 1, line: at.line + line_ends };
                    text = &text[length..];
                }
                Scan::Incomplete => break,
                Scan::Unclosed => {
                    let problem = "a quote is opened and never closed".to_owned();
                    return Err(fields.row_error(at, problem));
                }
            }
        }
        let read = (end - offset) - text.len() as u64;
        length = if read == 0 { length * 2 } else { SEGMENT };
        offset += read;
        input.progress.advance(read);
    }
    Ok((rows.coordinates.into(), rows.ids))
}

struct Rows<'a, T> {
    fields: &'a Fields,
    coordinates: Vec<T>,
    ids: Ids,
}

impl<T: Coordinate> Rows<'_, T> {
    fn push(&mut self, record: &Record, at: Position) -> Result<()> {
        let fields = self.fields;
        if record.len() != fields.coordinate.len() {
            return Err(fields.refuse_row(record.len(), at));
        }
        if at.row >= MAX_POINTS as u64 {
            return Err(Error::content(
                &fields.file,
                format!("there are more rows than the {MAX_POINTS} that can be numbered"),
            ));
        }
        let start = self.coordinates.len();
        if self.coordinates.try_reserve(fields.dimension()).is_err() {
            let bytes = size_of_val(&self.coordinates[..]);
            return Err(no_memory(&fields.file, bytes));
        }
        self.coordinates.resize(start + fields.dimension(), T::ZERO);
        for (field, coordinate) in fields.coordinate.iter().enumerate() {
            if let Some(coordinate) = coordinate {
                let text = record.get(field);
                let number = parse(text).map_err(|wrong| fields.refuse(field, text, wrong, at))?;
                self.coordinates[start + coordinate] = number;
            }
        }
        if let Some(id) = fields.id {
            let pushed = self.ids.push(record.get(id));
            pushed.map_err(|problem| fields.refuse_id(problem, at))?;
        }
        Ok(())
    }
}
