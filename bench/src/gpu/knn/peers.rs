//! CuPy's kd-tree, through a script that an interpreter runs.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use nearjoin::Scalar;

use super::cases::Case;
use crate::Result;
use crate::args::Options;
use crate::peers::{Npy, Outcome, outcome};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_that_is_missing_is_named() {
        let line = "--gpu-knn --python /no/such/python".split(' ');
        let cupy = Cupy::find(&crate::args::parse(line.map(String::from)).unwrap());
        assert!(!cupy.is_there());
        assert!(cupy.to_string().contains("/no/such/python"), "{cupy}");
    }
}
