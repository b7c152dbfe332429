//! The door: files by name and by content, progress, and what cannot be opened.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use nearjoin_io::{Error, Format, Progress, ReadOptions, Remedy, Source, read};
use parquet::file::properties::WriterProperties;

use crate::read_make::*;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nearjoin-io-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> Source {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        Source::from(path.as_path())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn formats_by_name_and_by_content() {
    let folder = Folder::new("formats");
    let table = batch(&[("x", floats(&[1.0, 2.0])), ("y", floats(&[3.0, 4.0]))]);
    let mut npy = npy_header("<f8", false, "(2, 2)");
    npy.extend([1.0f64, 3.0, 2.0, 4.0].iter().flat_map(|x| x.to_le_bytes()));
    let files = [
        (Format::Parquet, "a.parquet", parquet(&table, WriterProperties::default()).to_vec()),
        (Format::Arrow, "a.arrow", arrow_file(std::slice::from_ref(&table), None).to_vec()),
        (Format::Arrow, "a.arrows", arrow_stream(&[table], None).to_vec()),
        (Format::Csv, "a.csv", b"x,y\n1,3\n2,4\n".to_vec()),
        (Format::Csv, "b.CSV", b"x,y\n\"1\",3\n2,4\n".to_vec()),
        (Format::Npy, "a.npy", npy),
    ];
    for (format, name, bytes) in files {
        for name in [name, "unnamed"] {
            let source = folder.file(name, &bytes);
            let progress = Progress::default();
            let loaded = read(&source, &ReadOptions::default(), &progress).unwrap();
            assert_eq!(coordinates(&loaded), [1.0, 3.0, 2.0, 4.0], "{name}");
            assert_eq!((loaded.format, loaded.bytes), (format, bytes.len() as u64));
            assert_eq!(progress.total.load(Ordering::Relaxed), bytes.len() as u64);
            assert_eq!(progress.done.load(Ordering::Relaxed), bytes.len() as u64);
        }
        if format != Format::Csv {
            let source = folder.file("wrong.csv", &bytes);
            let error = read(&source, &ReadOptions::default(), &Progress::default()).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{source}: this is not CSV but looks like {format}: give its format")
            );
            assert_eq!(error.remedy(), Some(Remedy::GiveFormat));
            let csv = ReadOptions { format: Some(Format::Csv), ..ReadOptions::default() };
            let source_of_that_name = folder.file(name, &bytes);
            let error = read(&source_of_that_name, &csv, &Progress::default()).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "{source_of_that_name}: this is not CSV but looks like {format}: leave its \
                     format out"
                )
            );
            assert_eq!(error.remedy(), Some(Remedy::LeaveFormatOut));
            let right = ReadOptions { format: Some(format), ..ReadOptions::default() };
            assert!(read(&source, &right, &Progress::default()).is_ok());
        }
    }
}

/// A file is read in parts where memory is read at once: both give the same.
#[test]
fn large_files() {
    let folder = Folder::new("large");
    let rows = 600_000;
    let x: Vec<f64> = (0..rows).map(|row| (row as f64 * 0.1).cos()).collect();
    let y: Vec<f64> = (0..rows).map(|row| (row % 100) as f64).collect();
    let expected: Vec<f64> = (0..rows).flat_map(|row| [x[row], y[row]]).collect();
    let table = batch(&[("x", floats(&x)), ("y", floats(&y))]);
    let text: String = (0..rows).map(|row| format!("{},{}\n", x[row], y[row])).collect();
    let mut npy = npy_header("<f8", false, &format!("({rows}, 2)"));
    npy.extend(expected.iter().flat_map(|x| x.to_le_bytes()));
    for (name, bytes) in [
        ("a.parquet", parquet(&table, WriterProperties::default()).to_vec()),
        ("a.arrow", arrow_file(std::slice::from_ref(&table), None).to_vec()),
        ("a.csv", text.clone().into_bytes()),
        ("quoted.csv", text.replacen("1,0", "\"1\",0", 1).into_bytes()),
        ("a.npy", npy),
    ] {
        let source = folder.file(name, &bytes);
        let loaded = read(&source, &ReadOptions::default(), &Progress::default()).unwrap();
        assert!(coordinates(&loaded) == expected, "{name}");
    }
}

#[test]
fn what_cannot_be_opened() {
    let folder = Folder::new("absent");
    let absent = Source::from(folder.0.join("absent.csv").as_path());
    let error = read(&absent, &ReadOptions::default(), &Progress::default()).unwrap_err();
    assert!(matches!(error, Error::Io { doing: "opened", .. }));
    let message = error.to_string();
    assert!(message.starts_with(&format!("{absent} could not be opened: ")), "{message}");
    let directory = Source::from(folder.0.as_path());
    let error = read(&directory, &ReadOptions::default(), &Progress::default()).unwrap_err();
    assert!(matches!(error, Error::Io { doing: "read", .. }));
    for name in ["a.csv", "a.parquet", "a.arrow", "a.npy", "a"] {
        let source = folder.file(name, b"");
        let error = read(&source, &ReadOptions::default(), &Progress::default()).unwrap_err();
        assert_eq!(error.to_string(), format!("{source}: the file is empty"));
    }
    let strange = folder.file("two\nlines.csv", b"");
    let error = read(&strange, &ReadOptions::default(), &Progress::default()).unwrap_err();
    assert!(error.to_string().ends_with("two\\nlines.csv: the file is empty"), "{error}");
}

/// Text under the name of another format, and bytes that are of none.
#[test]
fn names_that_promise_another_format() {
    let folder = Folder::new("promise");
    for (name, format) in [("a.parquet", "Parquet"), ("a.arrow", "Arrow"), ("a.npy", "NPY")] {
        let source = folder.file(name, b"x,y\n1,2\n");
        let error = read(&source, &ReadOptions::default(), &Progress::default()).unwrap_err();
        let message =
            format!("{source}: this is not {format} but looks like text: give its format");
        assert_eq!(error.to_string(), message);
        let csv = ReadOptions { format: Some(Format::Csv), ..ReadOptions::default() };
        assert_eq!(read(&source, &csv, &Progress::default()).unwrap().points.len(), 1);
        if format != "Arrow" {
            let source = folder.file(name, b"\x01\x02\x03\x04");
            let error = read(&source, &ReadOptions::default(), &Progress::default()).unwrap_err();
            let message = format!("{source}: this is not {format}: it does not begin like one");
            assert_eq!(error.to_string(), message);
        }
    }
}

/// What is no table is called what it is, under any name, and is never a header without rows.
#[test]
fn files_that_are_no_tables() {
    let folder = Folder::new("foreign");
    let zip = |name: &str| {
        let mut file = b"PK\x03\x04".to_vec();
        file.resize(26, 0);
        file.extend([name.len() as u8, 0, 0, 0]);
        file.extend(name.as_bytes());
        file
    };
    let (html, json) = ("an HTML page, not a table", "JSON, not a table");
    for (bytes, what) in [
        (b"<!DOCTYPE html><html><body>Not found</body></html>".to_vec(), html),
        (b"\n  <HTML lang=en>".to_vec(), html),
        (b"\xEF\xBB\xBF<html>\n<p>1,2\n".to_vec(), html),
        (b"<?xml version=\"1.0\"?>".to_vec(), "XML, not a table"),
        (b"{\"error\": \"not found\"}".to_vec(), json),
        (b"{ }".to_vec(), json),
        (b"[{\"x\": 1}, {\"x\": 2}]\n".to_vec(), json),
        (b"[[1, 2], [3, 4]]".to_vec(), json),
        (b"[1, 2]".to_vec(), json),
        (zip("a/points.csv"), "a ZIP archive: unpack it first"),
        (zip("[Content_Types].xml"), "an Excel workbook: save its sheet as CSV"),
        (zip("arr_0.npy"), "an NPZ archive: save the one array"),
        (b"\x1F\x8B\x08\0\0\0\0\0".to_vec(), "compressed with gzip: unpack it first"),
        (b"BZh91AY&SY\x01\x02".to_vec(), "compressed with bzip2: unpack it first"),
        (b"\x28\xB5\x2F\xFD\x24".to_vec(), "compressed with zstd: unpack it first"),
        (b"\xFD7zXZ\0\0".to_vec(), "compressed with xz: unpack it first"),
        (b"SQLite format 3\0".to_vec(), "an SQLite database"),
        (b"%PDF-1.7\n".to_vec(), "a PDF document"),
        (b"SIMPLE  =                    T".to_vec(), "a FITS file"),
        (b"\xFF\xFEx\0,\0y\0\n\0".to_vec(), "text in UTF-16: save it as UTF-8"),
    ] {
        for name in ["a.csv", "a.parquet", "a.npy", "a"] {
            let source = folder.file(name, &bytes);
            let error = read(&source, &ReadOptions::default(), &Progress::default()).unwrap_err();
            assert!(matches!(error, Error::Format { .. }), "{error}");
            let message = format!("{source}: this is {what}");
            assert!(error.to_string().starts_with(&message), "{error}, not {message}");
        }
    }
}
