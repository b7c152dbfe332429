//! What the first lines of a text say about the rest.

use crate::error::{Error, Place, Remedy, Result};
use crate::quote::quoted;
use crate::read::ReadOptions;
use crate::read::csv::field::is_number;
use crate::read::csv::not_text;
use crate::read::csv::record::{Record, Scan, blank_line};
use crate::read::source::Input;

/// How the text is to be read.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) delimiter: u8,
    /// The columns' names: the header, or `"0"`, `"1"`, …
    pub(super) names: Vec<String>,
    /// Whether the names stand in the file.
    pub(super) header: bool,
    /// Where the first row begins.
    pub(super) start: u64,
    /// The line of the first row, from 1.
    pub(super) line: u64,
}

impl Beginning {
    pub(super) fn read(input: &Input<'_>, options: &ReadOptions) -> Result<Self> {
        if let Some(delimiter) = options.delimiter.filter(|&byte| !can_separate(byte)) {
            return Err(Error::Format {
                file: input.name.clone(),
                problem: format!(
                    "{:?} cannot separate fields: choose a sign that is in no number",
                    char::from(delimiter)
                ),
            });
        }
        const FIRST: u64 = 64 << 10;
        const MOST: u64 = 64 << 20;
        let mut length = FIRST;
        loop {
            let there = length.min(input.data.len());
            let text = input.read(0, there as usize)?;
            let complete = there == input.data.len();
            if let Some(beginning) = Beginning::of(input, &text, complete, options)? {
                return Ok(beginning);
            }
            if length >= MOST {
                return Err(Error::Content {
                    file: input.name.clone(),
                    place: Place::default().on_line(1),
                    problem: "the line is too long: is this a text file?".to_owned(),
                });
            }
            length *= 8;
        }
    }

    /// `None` if more text is needed.
    fn of(
        input: &Input<'_>,
        text: &[u8],
        complete: bool,
        options: &ReadOptions,
    ) -> Result<Option<Self>> {
        if memchr::memchr(0, text).is_some() {
            return Err(not_text(input));
        }
        let mut at = if text.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
        let mut line = 1;
        while let Some(length) = blank_line(&text[at..], complete) {
            at += length;
            line += 1;
        }
        if at == text.len() && complete {
            return Err(Error::content(&input.name, "the file has no lines"));
        }
        let text = &text[at..];
        let delimiter = options.delimiter.unwrap_or_else(|| sniff_delimiter(text));
        let mut record = Record::default();
        let (length, ends) = match record.scan(text, delimiter, complete) {
            Scan::Complete { length, line_ends } => (length, line_ends),
            Scan::Incomplete => return Ok(None),
            Scan::Unclosed => {
                return Err(Error::Content {
                    file: input.name.clone(),
                    place: Place::default().on_line(line),
                    problem: "a quote is opened and never closed".to_owned(),
                });
            }
        };
        if record.iter().any(|field| memchr::memchr(b'\r', field).is_some()) {
            return Err(Error::content(
                &input.name,
                "its lines end in a carriage return alone: save it with line feeds",
            ));
        }
        let header = match options.header {
            Some(header) => header,
            None => looks_like_header(&record, options).map_err(|field| {
                let place = Place::column(field.to_string()).on_line(line);
                let value = quoted(&String::from_utf8_lossy(record.get(field).trim_ascii()));
                let problem = format!("{value} is text beside numbers");
                Error::options(&input.name, place, problem, Remedy::SayHeader)
            })?,
        };
        let names = match header {
            true => record
                .iter()
                .map(|name| String::from_utf8_lossy(name.trim_ascii()).into_owned())
                .collect(),
            false => (0..record.len()).map(|column| column.to_string()).collect(),
        };
        let (start, line) = match header {
            true => (at + length, line + ends),
            false => (at, line),
        };
        Ok(Some(Beginning { delimiter, names, header, start: start as u64, line }))
    }
}

fn can_separate(byte: u8) -> bool {
    byte.is_ascii()
        && !byte.is_ascii_alphanumeric()
        && !matches!(byte, b'.' | b'+' | b'-' | b'"' | b'\n' | b'\r' | 0)
}

/// The delimiter that divides the first two lines into equally many fields; of several, the
/// one that makes most.
fn sniff_delimiter(text: &[u8]) -> u8 {
    const CANDIDATES: [u8; 5] = [b',', b'\t', b';', b'|', b' '];
    let mut lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.next().unwrap_or_default();
    let second = lines.next().filter(|line| !line.is_empty());
    let mut best = (false, 0, b',');
    for delimiter in CANDIDATES {
        let count = count_delimiters(first, delimiter);
        if count == 0 || (delimiter == b' ' && best.1 > 0) {
            continue;
        }
        let agrees = second.is_none_or(|second| count_delimiters(second, delimiter) == count);
        if (agrees, count) > (best.0, best.1) {
            best = (agrees, count, delimiter);
        }
    }
    best.2
}

/// Outside quotes; neighbouring spaces are one.
fn count_delimiters(line: &[u8], delimiter: u8) -> usize {
    let mut quoted = false;
    let mut previous = 0;
    let mut count = 0;
    for &byte in line {
        quoted ^= byte == b'"';
        let again = delimiter == b' ' && previous == b' ';
        count += usize::from(byte == delimiter && !quoted && !again);
        previous = byte;
    }
    count
}

/// A line is a header if columns are asked for by name, or if the fields that would be
/// coordinates are text. An empty field is no name: it may be a missing value.
///
/// The error is a field of text among numbers: a name in a header, or a value such as `NA`.
fn looks_like_header(first: &Record, options: &ReadOptions) -> core::result::Result<bool, usize> {
    let number = |name: &String| name.parse::<usize>().ok();
    if options.columns.iter().flatten().chain(&options.id).any(|name| number(name).is_none()) {
        return Ok(true);
    }
    let id = options.id.as_ref().and_then(number);
    let coordinates: Vec<usize> = match &options.columns {
        Some(columns) => columns.iter().filter_map(number).filter(|&at| at < first.len()).collect(),
        None => (0..first.len()).filter(|&at| Some(at) != id).collect(),
    };
    let is_text = |&at: &usize| !first.get(at).trim_ascii().is_empty() && !is_number(first.get(at));
    match coordinates.iter().copied().find(|at| is_text(at)) {
        None => Ok(false),
        Some(text) if coordinates.iter().any(|&at| is_number(first.get(at))) => Err(text),
        Some(_) => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::source::{Data, Progress};

    fn try_beginning(text: &str, options: &ReadOptions) -> Result<Beginning> {
        let progress = Progress::default();
        let data = Data::Bytes(text.to_owned().into());
        Beginning::read(&Input { name: "t".into(), data, progress: &progress }, options)
    }

    fn beginning(text: &str, options: &ReadOptions) -> Beginning {
        try_beginning(text, options).unwrap()
    }

    #[test]
    fn the_delimiter_is_seen() {
        for (text, delimiter) in [
            ("1,2\n3,4\n", b','),
            ("1;2\n", b';'),
            ("1\t2", b'\t'),
            ("1|2\n3|4", b'|'),
            ("1  2\n3 4", b' '),
            ("x, y\n1, 2", b','),
            ("a name,another name\n1,2\n", b','),
            ("1,5;2,5\n1;2,5\n", b';'),
            ("\"a;b;c\",d\n1,2\n", b','),
            ("7\n8\n", b','),
        ] {
            assert_eq!(beginning(text, &ReadOptions::default()).delimiter, delimiter, "{text:?}");
        }
    }

    fn asked(columns: Option<&[&str]>, id: Option<&str>) -> ReadOptions {
        let columns = columns.map(|names| names.iter().map(|name| name.to_string()).collect());
        ReadOptions { columns, id: id.map(str::to_owned), ..ReadOptions::default() }
    }

    #[test]
    fn the_header_is_seen() {
        let header = |text: &str, columns: Option<&[&str]>, id: Option<&str>| {
            beginning(text, &asked(columns, id)).header
        };
        assert!(header("x,y\n1,2\n", None, None));
        assert!(header("x,,y\n1,2,3\n", None, None));
        assert!(!header("1,2\n1,2\n", None, None));
        assert!(!header("nan,2\n1,2\n", None, None));
        assert!(!header(" 1 ,\n1,2\n", None, None));
        assert!(!header("star,1,2\n", None, Some("0")));
        assert!(header("name,1,2\n", None, Some("name")));
        assert!(header("name,1,2\n", None, Some("nmae")));
        assert!(!header("star,1,2\n", Some(&["1", "2"]), None));
        assert!(!header("star,1,2\n", Some(&["1", "7"]), None));
        assert!(header("star,x,2\n", Some(&["x"]), None));
        assert!(header("1,2\n", Some(&["x"]), None));
    }

    #[test]
    fn text_beside_numbers_is_not_guessed_at() {
        let refused = |text: &str, columns: Option<&[&str]>| {
            try_beginning(text, &asked(columns, None)).unwrap_err().to_string()
        };
        let say = "is text beside numbers: say whether the first line is a header";
        for (text, columns, place) in [
            ("1.0,NA\n1,2\n", None, "line 1, column \"1\": \"NA\""),
            ("\n NULL ,0\n1,2\n", None, "line 2, column \"0\": \"NULL\""),
            ("1,5;0\n2;3\n", None, "line 1, column \"0\": \"1,5\""),
            ("name,1,2\n", None, "line 1, column \"0\": \"name\""),
            ("name,,2\n", None, "line 1, column \"0\": \"name\""),
            ("star,x,2\n", Some(&["1", "2"][..]), "line 1, column \"1\": \"x\""),
        ] {
            assert_eq!(refused(text, columns), format!("t: {place} {say}"), "{text:?}");
            let header = |header| ReadOptions { header: Some(header), ..asked(columns, None) };
            assert!(beginning(text, &header(true)).header);
            assert!(!beginning(text, &header(false)).header);
        }
    }

    #[test]
    fn where_the_rows_begin() {
        let seen = beginning("\u{feff}\r\n\n\"x\ny\" , z\r\n1,2\n", &ReadOptions::default());
        assert_eq!((seen.start, seen.line), (17, 5));
        assert_eq!(seen.names, ["x\ny", "z"]);
        let seen = beginning("\n1,2\n", &ReadOptions::default());
        assert_eq!((seen.start, seen.line), (1, 2));
        assert_eq!(seen.names, ["0", "1"]);
    }
}
