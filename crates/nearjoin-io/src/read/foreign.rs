//! Files that hold no table, known by how they begin. Some of them are text, and would be read
//! as a header without rows.

/// What a file is, and what to do about it; `None` where it may be a table.
pub(super) fn name(beginning: &[u8]) -> Option<&'static str> {
    let binary = MAGIC.iter().find(|(magic, _)| beginning.starts_with(magic));
    match binary {
        Some((b"PK\x03\x04", _)) => Some(archive(beginning)),
        Some((_, what)) => Some(what),
        None => text(beginning),
    }
}

/// Formats that begin with bytes of their own.
const MAGIC: &[(&[u8], &str)] = &[
    (b"PK\x03\x04", ""),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x1F\x8B\x08", "compressed with gzip: unpack it first"),
    (b"\x28\xB5\x2F\xFD", "compressed with zstd: unpack it first"),
    (b"\xFD7zXZ\0", "compressed with xz: unpack it first"),
    (b"SQLite format 3\0", "an SQLite database: export its table as CSV"),
    (b"\x89HDF\r\n\x1A\n", "an HDF5 file: save its points as NPY or Parquet"),
    (b"SIMPLE  =", "a FITS file: save its table as CSV or Parquet"),
    (b"%PDF-", "a PDF document, not a table"),
    (b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", "an Excel workbook: save its sheet as CSV"),
    (b"\xFF\xFE", "text in UTF-16: save it as UTF-8"),
    (b"\xFE\xFF", "text in UTF-16: save it as UTF-8"),
    (b"PARE", "an encrypted Parquet file: decrypt it first"),
];

/// A ZIP archive, by the name of its first member.
fn archive(beginning: &[u8]) -> &'static str {
    let length = beginning.get(26).map_or(0, |&length| usize::from(length));
    let name = beginning.get(30..).unwrap_or_default();
    let name = &name[..length.min(name.len())];
    let workbook = [&b"[Content_Types].xml"[..], b"_rels/", b"docProps/", b"xl/"];
    if workbook.iter().any(|member| name.starts_with(member)) {
        "an Excel workbook: save its sheet as CSV"
    } else if name.ends_with(b".npy") {
        "an NPZ archive: save the one array of points as NPY"
    } else {
        "a ZIP archive: unpack it first"
    }
}

fn text(beginning: &[u8]) -> Option<&'static str> {
    // `BZh`, a digit and six digits of π.
    if beginning.starts_with(b"BZh") && beginning.get(4..10) == Some(b"1AY&SY") {
        return Some("compressed with bzip2: unpack it first");
    }
    let text = beginning.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(beginning).trim_ascii_start();
    // Headers such as `<DATE>,<OPEN>` and `[x],[y]` are in use: only what no header has is told.
    let begins = |tag: &&[u8]| {
        let there = text.get(..tag.len()).is_some_and(|there| there.eq_ignore_ascii_case(tag));
        there && !text.get(tag.len()).is_some_and(u8::is_ascii_alphanumeric)
    };
    let html: [&[u8]; 4] = [b"<!doctype", b"<html", b"<head", b"<body"];
    if html.iter().any(begins) {
        return Some("an HTML page, not a table: download the file itself");
    }
    if begins(&&b"<?xml"[..]) {
        return Some("XML, not a table: save it as CSV or Parquet");
    }
    let (bracket, inside) = text.split_first()?;
    let json = matches!(
        (bracket, inside.trim_ascii_start().first()),
        (b'{', Some(b'"' | b'}')) | (b'[', Some(b'{' | b'[' | b']' | b'"' | b'-' | b'0'..=b'9'))
    );
    json.then_some("JSON, not a table: save it as CSV or Parquet")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_not_taken_for_others() {
        for text in [
            "x,y\n1,2\n",
            "<DATE>,<OPEN>\n1,2\n",
            "<header>,y\n1,2\n",
            "[x],[y]\n1,2\n",
            "{x},{y}\n1,2\n",
            "[\n",
            "{",
            "PK,SK\n1,2\n",
            "BZh9,x\n1,2\n",
            "%PDF,x\n1,2\n",
            "SIMPLE,x\n1,2\n",
            "",
        ] {
            assert_eq!(name(text.as_bytes()), None, "{text:?}");
        }
    }
}
