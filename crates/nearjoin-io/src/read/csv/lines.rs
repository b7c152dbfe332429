//! Text without quotes: every line is a row, and pieces of it are parsed side by side.
//!
//! A first pass counts the lines of each piece, so that the second writes every row where it
//! belongs and knows its number. The text is never in memory as a whole.

use core::cell::RefCell;

use nearjoin::Buffer;
use rayon::prelude::*;

use crate::error::Result;
use crate::read::csv::beginning::Beginning;
use crate::read::csv::field::{Fields, Position, is_rounded, parse};
use crate::read::csv::ids::Ids;
use crate::read::in_order;
use crate::read::number::Coordinate;
use crate::read::points::allocate;
use crate::read::source::{Data, Input, lengthen};

/// Bytes that a thread counts or parses at a time.
const PIECE: u64 = 1 << 20;

/// The lines of a text, in pieces.
pub(super) struct Lines<'a> {
    input: &'a Input<'a>,
    pieces: Vec<Piece>,
    rows: u64,
}

/// Whole lines.
#[derive(Clone, Copy)]
struct Piece {
    start: u64,
    end: u64,
    first_row: u64,
    rows: u64,
}

/// What the first pass finds in a piece.
struct Count {
    line_ends: u64,
    /// Where the line after the last line end begins.
    after_last: Option<u64>,
}

impl<'a> Lines<'a> {
    /// `None` if there is a quote.
    pub(super) fn find(input: &'a Input<'a>, beginning: &Beginning) -> Result<Option<Self>> {
        let start = beginning.start;
        let end = end_of_rows(input, start)?;
        let steps: Vec<u64> = (start..end).step_by(PIECE as usize).collect();
        let counts: Result<Vec<Option<Count>>> = steps
            .par_iter()
            .map(|&from| {
                let to = end.min(from + PIECE);
                with_text(input, from, to, |text| {
                    let quote = memchr::memchr(b'"', text).is_some();
                    Ok((!quote).then(|| Count {
                        line_ends: memchr::memchr_iter(b'\n', text).count() as u64,
                        after_last: memchr::memrchr(b'\n', text).map(|at| from + at as u64 + 1),
                    }))
                })
            })
            .collect();
        let Some(counts) = counts?.into_iter().collect::<Option<Vec<Count>>>() else {
            return Ok(None);
        };

        let mut pieces = Vec::with_capacity(counts.len());
        let (mut from, mut first_row) = (start, 0);
        for Count { line_ends, after_last } in counts {
            let Some(to) = after_last else { continue };
            pieces.push(Piece { start: from, end: to, first_row, rows: line_ends });
            (from, first_row) = (to, first_row + line_ends);
        }
        if from < end {
            // The last line, whose end is not counted among the rows' ends.
            pieces.push(Piece { start: from, end, first_row, rows: 1 });
            first_row += 1;
        }
        Ok(Some(Lines { input, pieces, rows: first_row }))
    }

    pub(super) fn parse<T: Coordinate>(self, fields: &Fields) -> Result<(Buffer<T>, Ids)> {
        let dimension = fields.dimension();
        let mut coordinates = allocate::<T>(&self.input.name, self.rows, dimension)?;
        let mut tasks = Vec::with_capacity(self.pieces.len());
        let mut rest = &mut coordinates[..];
        for piece in self.pieces {
            let length = piece.rows as usize * dimension;
            tasks.push((piece, rest.split_off_mut(..length).unwrap_or_default()));
        }
        let ids = in_order(tasks, |(piece, out)| {
            let ids = with_text(self.input, piece.start, piece.end, |text| {
                parse_lines(text, fields, piece.first_row, out)
            });
            self.input.progress.advance(piece.end - piece.start);
            ids
        })?;
        Ok((coordinates, Ids::join(ids)))
    }
}

/// Where the last row ends: line ends after it are left out.
fn end_of_rows(input: &Input<'_>, start: u64) -> Result<u64> {
    let mut end = input.data.len();
    while end > start {
        let from = start.max(end.saturating_sub(4096));
        let text = input.read(from, (end - from) as usize)?;
        let kept = text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
        match kept {
            Some(last) => return Ok(from + last as u64 + 1),
            None => end = from,
        }
    }
    Ok(start)
}

/// Runs `work` on a part of the text, read into memory that the thread keeps for it.
fn with_text<R>(
    input: &Input<'_>,
    from: u64,
    to: u64,
    work: impl FnOnce(&[u8]) -> Result<R>,
) -> Result<R> {
    thread_local! {
        static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    let length = (to - from) as usize;
    match &input.data {
        Data::Bytes(bytes) => work(&bytes[from as usize..to as usize]),
        Data::File(..) => {
            let mut text = TEXT.take();
            lengthen(&mut text, length).map_err(|source| input.unreadable(source))?;
            input.read_into(from, &mut text[..length])?;
            let result = work(&text[..length]);
            if text.len() <= 4 * PIECE as usize {
                TEXT.set(text);
            }
            result
        }
    }
}

/// Parses as many lines as `out` has room for.
fn parse_lines<T: Coordinate>(
    text: &[u8],
    fields: &Fields,
    first_row: u64,
    out: &mut [T],
) -> Result<Ids> {
    let mut ids = Ids::default();
    let mut line = Line { text, at: 0, delimiter: fields.delimiter };
    for (row, out) in out.chunks_exact_mut(fields.dimension()).enumerate() {
        let row = first_row + row as u64;
        let position = Position { row, line: fields.first_line + row };
        let start = line.at;
        for (field, coordinate) in fields.coordinate.iter().enumerate() {
            if field > 0 && !line.delimiter() {
                line.at = start;
                return Err(line.refuse(fields, position));
            }
            match *coordinate {
                Some(coordinate) if fields.id != Some(field) => {
                    out[coordinate] = match line.number() {
                        Some(number) => number,
                        None => {
                            let text = line.field();
                            parse(text).map_err(|wrong| match line.is_blank(start) {
                                true => fields.blank(position),
                                false => fields.refuse(field, text, wrong, position),
                            })?
                        }
                    }
                }
                coordinate => {
                    let text = line.field();
                    if fields.id == Some(field) {
                        let pushed = ids.push(text);
                        pushed.map_err(|problem| match line.is_blank(start) {
                            true => fields.blank(position),
                            false => fields.refuse_id(problem, position),
                        })?;
                    }
                    if let Some(coordinate) = coordinate {
                        out[coordinate] = parse(text)
                            .map_err(|wrong| fields.refuse(field, text, wrong, position))?;
                    }
                }
            }
        }
        if !line.end() {
            line.at = start;
            return Err(line.refuse(fields, position));
        }
    }
    Ok(ids)
}

/// A place in lines of text. The text may end without a line end.
struct Line<'a> {
    text: &'a [u8],
    at: usize,
    delimiter: u8,
}

impl<'a> Line<'a> {
    /// The number that stands here, if its field holds nothing else.
    #[inline]
    fn number<T: Coordinate>(&mut self) -> Option<T> {
        self.skip_spaces();
        let (number, length) = fast_float2::parse_partial::<T, _>(&self.text[self.at..]).ok()?;
        let next = self.text.get(self.at + length).copied().unwrap_or(b'\n');
        let ends = next == self.delimiter || next == b'\n' || next == b'\r';
        if !ends || !number.is_finite() {
            return None;
        }
        // A carriage return ends the field only where it ends the line.
        if next == b'\r' && !matches!(self.text.get(self.at + length + 1), None | Some(b'\n')) {
            return None;
        }
        if is_rounded(&self.text[self.at..self.at + length], number) {
            return None;
        }
        self.at += length;
        Some(number)
    }

    /// The text of the field that begins here.
    fn field(&mut self) -> &'a [u8] {
        self.skip_spaces();
        let rest = &self.text[self.at..];
        let length = memchr::memchr2(self.delimiter, b'\n', rest).unwrap_or(rest.len());
        let field = &rest[..length];
        self.at += length;
        match self.text.get(self.at) {
            Some(&byte) if byte == self.delimiter => field,
            _ => field.strip_suffix(b"\r").unwrap_or(field),
        }
    }

    /// Steps over the delimiter that stands here.
    #[inline]
    fn delimiter(&mut self) -> bool {
        if self.text.get(self.at) != Some(&self.delimiter) {
            return false;
        }
        if self.delimiter == b' ' {
            self.skip_spaces();
            return !matches!(self.text.get(self.at), None | Some(b'\n' | b'\r'));
        }
        self.at += 1;
        true
    }

    /// Steps over the line end that stands here.
    #[inline]
    fn end(&mut self) -> bool {
        self.skip_spaces();
        if self.text.get(self.at) == Some(&b'\r') {
            self.at += 1;
        }
        match self.text.get(self.at) {
            Some(b'\n') => self.at += 1,
            Some(_) => return false,
            None => {}
        }
        true
    }

    /// Spaces that are delimiters stand together, and also before and after the fields.
    #[inline]
    fn skip_spaces(&mut self) {
        if self.delimiter == b' ' {
            let spaces = self.text[self.at..].iter().take_while(|&&byte| byte == b' ');
            self.at += spaces.count();
        }
    }

    fn is_blank(&self, start: usize) -> bool {
        matches!(self.text[start..], [] | [b'\n', ..] | [b'\r', b'\n', ..])
    }

    /// The error for the line that begins here, which has another number of fields.
    #[cold]
    fn refuse(&mut self, fields: &Fields, position: Position) -> crate::Error {
        if self.is_blank(self.at) {
            return fields.blank(position);
        }
        let mut count = 1;
        self.field();
        while self.delimiter() {
            self.field();
            count += 1;
        }
        fields.refuse_row(count, position)
    }
}
