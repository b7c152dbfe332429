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
