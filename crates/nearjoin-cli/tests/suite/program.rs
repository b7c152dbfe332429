//! Running the program in a folder of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use nearjoin_io::{PointSet, Progress, ReadOptions, Source};

/// A new folder that goes when it is dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("nearjoin-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder for the test");
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file for the test");
    }

    /// The names of all files in it, hidden ones too, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder of the test").flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The program, about to run here.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearjoin"));
        command.args(arguments.split_whitespace()).current_dir(&self.0).stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, arguments: &str) -> Ran {
        Ran::new(self.command(arguments).output().expect("the program starts"))
    }

    /// Runs it, and expects it to go well.
    pub(crate) fn nearjoin(&self, arguments: &str) -> Ran {
        let ran = self.run(arguments);
        assert_eq!(ran.code, Some(0), "nearjoin {arguments}: {}", ran.errors);
        ran
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a run said, and how it ended.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) said: String,
    pub(crate) errors: String,
}

impl Ran {
    pub(crate) fn new(output: Output) -> Self {
        Ran {
            code: output.status.code(),
            said: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The columns of a file as points, row after row.
pub(crate) fn rows(path: &Path) -> Vec<Vec<f64>> {
    let source = Source::File(path.to_path_buf());
    let loaded = nearjoin_io::read(&source, &ReadOptions::default(), &Progress::default());
    match loaded.expect("a file of numbers").points.into_f64().expect("memory") {
        PointSet::F64(points) => {
            let points = points.as_points();
            (0..points.len()).map(|row| points.row(row).to_vec()).collect()
        }
        PointSet::F32(_) => unreachable!("they were made f64"),
    }
}

/// An array of an npz: its type as numpy names it, its shape, and its values.
pub(crate) struct Array {
    pub(crate) name: String,
    pub(crate) descr: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f64>,
}

/// The arrays of an npz that is not compressed.
pub(crate) fn arrays(path: &Path) -> Vec<Array> {
    let bytes = fs::read(path).expect("an npz");
    let number = |at: usize, length: usize| {
        bytes[at..at + length].iter().rev().fold(0, |n, &byte| n << 8 | usize::from(byte))
    };
    let mut arrays = Vec::new();
    let mut at = 0;
    while bytes[at..].starts_with(b"PK\x03\x04") {
        let (size, name, extra) = (number(at + 18, 4), number(at + 26, 2), number(at + 28, 2));
        let file = String::from_utf8_lossy(&bytes[at + 30..][..name]).into_owned();
        at += 30 + name + extra;
        let values = at + 10 + number(at + 8, 2);
        let header = String::from_utf8_lossy(&bytes[at + 10..values]).into_owned();
        let between = |from: &str, to: &str| {
            let (_, rest) = header.split_once(from).expect("a field");
            rest.split_once(to).expect("its end").0.to_string()
        };
        assert!(header.contains("'fortran_order': False"), "{header}");
        let descr = between("'descr': '", "'");
        let shape = between("'shape': (", ")");
        let lengths = shape.split(',').filter_map(|length| length.trim().parse().ok());
        let data = &bytes[values..at + size];
        let values = match descr.as_str() {
            "<u4" => data.as_chunks().0.iter().map(|&b| f64::from(u32::from_le_bytes(b))).collect(),
            "<i8" => data.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b) as f64).collect(),
            "<f4" => data.as_chunks().0.iter().map(|&b| f64::from(f32::from_le_bytes(b))).collect(),
            "<f8" => data.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
            other => panic!("no test reads {other}"),
        };
        let name = file.trim_end_matches(".npy").to_string();
        arrays.push(Array { name, descr, shape: lengths.collect(), values });
        at += size;
    }
    arrays
}
