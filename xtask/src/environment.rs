//! Virtual environments of Python for tools that are packages of PyPI.

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The interpreter of an environment with these packages (arguments of `pip install`), which is made
/// where it is not there.
pub(crate) fn with(packages: &[&str]) -> Result<PathBuf> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let name: String = packages.join("-").trim_start_matches('-').chars().map(plain).collect();
    let folder = target().join(name);
    let complete = folder.join("complete");
    if !complete.exists() {
        fresh(&folder, packages)?;
        fs::write(complete, "")?;
    }
    Ok(interpreter(&folder))
}

/// The interpreter of a new environment with these packages; what was in the folder is removed.
pub(crate) fn fresh(folder: &Path, packages: &[impl AsRef<OsStr>]) -> Result<PathBuf> {
    let python = interpreter(folder);
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder))?;
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(packages))?;
    Ok(python)
}

fn interpreter(folder: &Path) -> PathBuf {
    folder.join("bin/python")
}

/// A folder for what may be lost, beside what cargo builds.
pub(crate) fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"))
        .join("xtask");
    // It is named in commands that run elsewhere.
    std::path::absolute(&target).unwrap_or(target)
}

/// Runs a command, which must succeed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| format!("{name} cannot be run: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?} failed: {status}").into()),
    }
}
