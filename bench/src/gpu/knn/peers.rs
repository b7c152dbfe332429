//! CuPy's kd-tree, through a script that an interpreter runs.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::Command;

use nearjoin::Scalar;

use super::cases::Case;
use crate::Result;
use crate::args::Options;
use crate::peers::{Outcome, outcome};

const SCRIPT: &str = include_str!("../../../gpu_knn_peers.py");

/// The share by which a distance in `f32` may differ: others add up in another order.
pub(super) const ROUNDING: f64 = 1e-5;

/// The interpreter with CuPy, or why there is none.
pub(in crate::gpu) struct Cupy {
    interpreter: PathBuf,
    found: std::result::Result<String, String>,
}

impl Cupy {
    /// Tries the imports, and that there is a device.
    pub(in crate::gpu) fn find(options: &Options) -> Self {
        let interpreter = options.python.clone();
        let found = match options.peers.cupy {
            false => Err("not asked for".into()),
            true => versions_of(&interpreter, SCRIPT),
        };
        Cupy { interpreter, found }
    }

    /// Whether it can be asked.
    pub(in crate::gpu) fn is_there(&self) -> bool {
        self.found.is_ok()
    }

    /// Runs it on the points of a case, whose distances by our answer are these. What it found is
    /// the largest share by which one of its own differs.
    pub(in crate::gpu) fn nearest<T: Scalar>(
        &self,
        case: &Case,
        data: &[T],
        distances: &[T],
        options: &Options,
    ) -> Result<Outcome<f64>> {
        let points = Npy::write(case.name, data, case.dimension)?;
        let distances = Npy::write(&format!("{}-distances", case.name), distances, case.k)?;
        eprintln!("{}: CuPy", case.name);
        let mut command = Command::new(&self.interpreter);
        command
            .args(["-c", SCRIPT])
            .args([&points.path, &distances.path])
            .arg(format!("--reps={}", options.reps));
        outcome(&mut command)
    }
}

impl fmt::Display for Cupy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Ok(versions) => f.write_str(versions),
            Err(reason) => write!(f, "no CuPy ({reason})"),
        }
    }
}

/// What a script says of itself, or the last line of its complaint.
pub(in crate::gpu) fn versions_of(
    interpreter: &PathBuf,
    script: &str,
) -> std::result::Result<String, String> {
    let output = Command::new(interpreter).args(["-c", script, "--versions"]).output();
    let output = output.map_err(|error| format!("{}: {error}", interpreter.display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr).lines().last().unwrap_or("no output").to_owned()),
    }
}

/// A matrix in a file of NumPy's format, for as long as this value lives.
pub(in crate::gpu) struct Npy {
    pub(in crate::gpu) path: PathBuf,
}

impl Npy {
    pub(in crate::gpu) fn write<T: Scalar>(
        name: &str,
        numbers: &[T],
        columns: usize,
    ) -> Result<Self> {
        let name = format!("nearjoin-bench-{name}-{}.npy", std::process::id());
        let file = Npy { path: std::env::temp_dir().join(name) };
        let mut out = BufWriter::new(File::create(&file.path)?);
        out.write_all(&header::<T>(numbers.len() / columns, columns))?;
        out.write_all(T::as_bytes(numbers))?;
        out.flush()?;
        Ok(file)
    }
}

impl Drop for Npy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Version 1.0: a dictionary as text, padded with spaces until the data begins at a multiple of 64.
fn header<T: Scalar>(rows: usize, columns: usize) -> Vec<u8> {
    const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
    let order = if cfg!(target_endian = "big") { '>' } else { '<' };
    let text = format!(
        "{{'descr': '{order}f{}', 'fortran_order': False, 'shape': ({rows}, {columns}), }}",
        size_of::<T>()
    );
    let before = MAGIC.len() + 2;
    // A line feed ends it.
    let length = (before + text.len() + 1).next_multiple_of(64) - before;
    let mut header = MAGIC.to_vec();
    header.extend((length as u16).to_le_bytes());
    header.extend(format!("{text:<width$}\n", width = length - 1).bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_in_numpys_format() {
        let file = Npy::write("test", &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], 2).unwrap();
        let path = file.path.clone();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 128 + 24);
        assert_eq!(&bytes[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(bytes[127], b'\n');
        let text = String::from_utf8_lossy(&bytes[10..128]);
        assert!(text.contains("'<f4'") && text.contains("(3, 2)"), "{text}");
        assert_eq!(&bytes[128..132], &1.0f32.to_le_bytes());
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn an_interpreter_that_is_missing_is_named() {
        let line = "--gpu-knn --python /no/such/python".split(' ');
        let cupy = Cupy::find(&crate::args::parse(line.map(String::from)).unwrap());
        assert!(!cupy.is_there());
        assert!(cupy.to_string().contains("/no/such/python"), "{cupy}");
    }
}
