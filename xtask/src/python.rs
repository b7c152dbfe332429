//! The Python package: its wheel, and its tests in an environment that has nothing but the wheel and
//! what the tests need.

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::environment::{self, run, target};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What builds the wheel. Zig's C compiler and linker know old versions of glibc.
const BUILDERS: [&str; 2] = ["maturin==1.16.0", "ziglang==0.17.0"];
/// The oldest glibc that the wheel runs on is 2.17: that of Rust's standard library.
const COMPATIBILITY: &str = "manylinux2014";
/// A wheel is downloaded often.
const MOST_BYTES: u64 = 8_500_000;

/// Every test, of Rust and of Python.
pub(crate) fn test_everything() -> Result<()> {
    run(Command::new("cargo").args(["test", "--workspace"]).current_dir(root()))?;
    test()
}

/// Builds the wheel and runs the package's tests, its examples and its type checks, with the wheel
/// installed in a fresh environment.
pub(crate) fn test() -> Result<()> {
    let mut package = wheel()?.into_os_string();
    package.push("[test]");
    let folder = target().join("python-tests");
    let python = environment::fresh(&folder, &[package])?;
    let sources = root().join("python");
    let settings = sources.join("pyproject.toml");
    // Where the sources of the package cannot be taken for the package: they lack the extension.
    let elsewhere = folder.join("lib");
    run(Command::new(&python)
        .args(["-m", "pytest", "-q", "--durations=5", "-p", "no:cacheprovider"])
        .args(["--import-mode=importlib", "--doctest-modules", "--pyargs", "nearjoin"])
        .arg(sources.join("tests"))
        .arg("-c")
        .arg(&settings)
        .current_dir(&elsewhere))?;
    run(Command::new(&python)
        .args(["-m", "mypy", "--cache-dir"])
        .arg(folder.join("mypy"))
        .arg("--config-file")
        .arg(&settings)
        .current_dir(&elsewhere))
}

/// Builds the source distribution, and the wheel from that; says where the wheel is.
pub(crate) fn wheel() -> Result<PathBuf> {
    let python = environment::with(&BUILDERS)?;
    let (folder, built) = (target().join("wheels"), target().join("wheel"));
    // Files of a source distribution have no times by which cargo could tell what has changed since
    // it built them last: so nothing is kept.
    for old in [&folder, &built].into_iter().filter(|folder| folder.exists()) {
        fs::remove_dir_all(old)?;
    }
    // maturin looks for Zig beside the interpreter.
    run(Command::new(&python)
        .args(["-m", "maturin", "build", "--release", "--zig", "--sdist"])
        .args(["--compatibility", COMPATIBILITY, "--out"])
        .arg(&folder)
        .arg("--manifest-path")
        .arg(root().join("python/Cargo.toml"))
        .env("CARGO_TARGET_DIR", &built)
        .env("PATH", path_beginning_with(python.parent().unwrap_or(Path::new("")))?))?;
    let wheel = fs::read_dir(&folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or("maturin has built no wheel")?;
    let bytes = fs::metadata(&wheel)?.len();
    eprintln!("{} has {:.2} MB", wheel.display(), bytes as f64 / 1e6);
    match bytes <= MOST_BYTES {
        true => Ok(wheel),
        false => Err(format!("the wheel has {bytes} bytes, more than {MOST_BYTES}").into()),
    }
}

fn path_beginning_with(first: &Path) -> Result<OsString> {
    let others = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(first.to_owned()).chain(std::env::split_paths(&others));
    Ok(std::env::join_paths(folders)?)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
