//! One record of a text with quotes.

/// The fields of a record, without their quotes.
#[derive(Debug, Default)]
pub(super) struct Record {
    text: Vec<u8>,
    ends: Vec<usize>,
}

/// How far a scan came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// A record of this many bytes, its line end included, on as many lines.
    Complete { length: usize, line_ends: u64 },
    /// The text ends within the record, and there is more.
    Incomplete,
    /// The text ends within a quote.
    Unclosed,
}

impl Record {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, field: usize) -> &[u8] {
        let start = if field == 0 { 0 } else { self.ends[field - 1] };
        &self.text[start..self.ends[field]]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|field| self.get(field))
    }

    /// Reads the record that `text` begins with; the text is `complete` if nothing follows.
    ///
    /// A field that begins with a quote lasts until the next quote that is not doubled, over
    /// delimiters and line ends. Elsewhere a quote is a letter. Neighbouring spaces are one
    /// delimiter.
    pub(super) fn scan(&mut self, text: &[u8], delimiter: u8, complete: bool) -> Scan {
        self.text.clear();
        self.ends.clear();
        let mut at = 0;
        let mut line_ends = 0;
        loop {
            if delimiter == b' ' {
                at += text[at..].iter().take_while(|&&byte| byte == b' ').count();
            }
            if text.get(at) == Some(&b'"') {
                at += 1;
                loop {
                    let Some(length) = memchr::memchr(b'"', &text[at..]) else {
                        return if complete { Scan::Unclosed } else { Scan::Incomplete };
                    };
                    let part = &text[at..at + length];
                    line_ends += memchr::memchr_iter(b'\n', part).count() as u64;
                    self.text.extend_from_slice(part);
                    at += length + 1;
                    match text.get(at) {
                        Some(b'"') => {
                            self.text.push(b'"');
                            at += 1;
                        }
                        None if !complete => return Scan::Incomplete,
                        _ => break,
                    }
                }
            }
            let rest = &text[at..];
            let length = match memchr::memchr2(delimiter, b'\n', rest) {
                Some(length) => length,
                None if complete => rest.len(),
                None => return Scan::Incomplete,
            };
            self.text.extend_from_slice(&rest[..length]);
            at += length;
            let mut last = text.get(at) != Some(&delimiter);
            if delimiter == b' ' && !last {
                at += text[at..].iter().take_while(|&&byte| byte == b' ').count();
                match text.get(at) {
                    None if !complete => return Scan::Incomplete,
                    // Spaces before the line end divide nothing.
                    None | Some(b'\n') => last = true,
                    Some(b'\r') if matches!(text.get(at + 1), None | Some(b'\n')) => {
                        if text.get(at + 1).is_none() && !complete {
                            return Scan::Incomplete;
                        }
                        at += 1;
                        last = true;
                    }
                    Some(_) => at -= 1,
                }
            }
            if last && rest[..length].ends_with(b"\r") {
                self.text.pop();
            }
            self.ends.push(self.text.len());
            if last {
                let length = text.len().min(at + 1);
                return Scan::Complete { length, line_ends: line_ends + 1 };
            }
            at += 1;
        }
    }
}

/// The length of the blank line that `text` begins with, its line end included.
pub(super) fn blank_line(text: &[u8], complete: bool) -> Option<usize> {
    match text {
        [b'\n', ..] => Some(1),
        [b'\r', b'\n', ..] => Some(2),
        [b'\r'] if complete => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &[u8], delimiter: u8) -> Vec<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        let mut record = Record::default();
        let mut at = 0;
        while at < text.len() {
            if let Some(length) = blank_line(&text[at..], true) {
                at += length;
                continue;
            }
            match record.scan(&text[at..], delimiter, true) {
                Scan::Complete { length, .. } => {
                    all.push(record.iter().map(<[u8]>::to_vec).collect());
                    at += length;
                }
                other => panic!("{other:?}"),
            }
        }
        all
    }

    /// The csv crate agrees on random text of the letters that matter.
    #[test]
    fn records_are_those_of_the_csv_crate() {
        let mut state = 1u64;
        let mut random = move |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        for _ in 0..20_000 {
            let mut text: Vec<u8> = Vec::new();
            for _ in 0..random(24) {
                text.extend_from_slice([&b"\""[..], b",", b"\n", b"\r\n", b"a", b"1"][random(6)]);
            }
            let mut record = Record::default();
            // Inside an unclosed quote the crates may differ.
            let mut at = 0;
            let mut closed = true;
            while at < text.len() && closed {
                match record.scan(&text[at..], b',', true) {
                    Scan::Complete { length, .. } => at += length,
                    _ => closed = false,
                }
            }
            if !closed {
                continue;
            }
            let mut reader =
                csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(&text[..]);
            let theirs: Vec<Vec<Vec<u8>>> = reader
                .byte_records()
                .map(|record| record.unwrap().iter().map(<[u8]>::to_vec).collect())
                .collect();
            assert_eq!(records(&text, b','), theirs, "{:?}", String::from_utf8_lossy(&text));
        }
    }

    #[test]
    fn spaces_are_one_delimiter() {
        let text = b"  1   2\r\n3 4  \r\n5 \"a  b\" \n6 7 ";
        let expected: Vec<Vec<Vec<u8>>> = [["1", "2"], ["3", "4"], ["5", "a  b"], ["6", "7"]]
            .iter()
            .map(|record| record.iter().map(|field| field.as_bytes().to_vec()).collect())
            .collect();
        assert_eq!(records(text, b' '), expected);
    }

    #[test]
    fn more_text_is_asked_for() {
        let text = b"\"a\"\"\nb\",c\r\n";
        let mut record = Record::default();
        for length in 0..text.len() {
            assert_eq!(record.scan(&text[..length], b',', false), Scan::Incomplete, "{length}");
        }
        let whole = record.scan(text, b',', false);
        assert_eq!(whole, Scan::Complete { length: text.len(), line_ends: 2 });
        assert_eq!((record.get(0), record.get(1)), (&b"a\"\nb"[..], &b"c"[..]));
        assert_eq!(record.scan(b"\"a", b',', true), Scan::Unclosed);
    }
}
