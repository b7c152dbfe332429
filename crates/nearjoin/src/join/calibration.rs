//! How fast this machine is, by its calibration file: that is read here, once in a process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::calibration::{self, Filed, NoPlace};
use crate::plan::Calibration;

/// More bytes are no calibration.
const MOST: u64 = 64 << 10;

/// How fast this machine is, and how that is known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    pub(crate) calibration: Calibration,
    /// A clause for the plan.
    pub(crate) told: String,
}

/// What is known of a machine with this GPU. A file that is of no use is no error: plans go by the
/// default then.
pub(crate) fn for_machine(gpu_name: &str) -> Known {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| Found::at(file())).known(gpu_name, threads())
}

/// The path of the calibration file, there or not.
pub(crate) fn file() -> Result<PathBuf, NoPlace> {
    calibration::place(cfg!(windows), |name| std::env::var_os(name))
}

/// Threads that the machine runs at once. The system takes a while to say, and a process does not move.
pub(super) fn threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// What was found of a calibration file.
#[derive(Debug)]
enum Found {
    /// There cannot be one.
    Nowhere(NoPlace),
    /// There is none.
    Nothing,
    /// It is of no use.
    Useless {
        reason: String,
    },
    Filed {
        path: String,
        filed: Filed,
    },
}

impl Found {
    fn at(place: Result<PathBuf, NoPlace>) -> Self {
        let path = match place {
            Ok(path) => path,
            Err(no_place) => return Found::Nowhere(no_place),
        };
        let shown = shown(&path);
        match read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Nothing,
            Err(error) => Found::Useless { reason: format!("{shown}: {error}") },
            Ok(text) => match Filed::parse(&text) {
                Ok(filed) => Found::Filed { path: shown, filed },
                Err(damage) => Found::Useless { reason: format!("{shown}: {damage}") },
            },
        }
    }

    fn known(&self, gpu_name: &str, threads: usize) -> Known {
        let default = |told: String| Known { calibration: Calibration::default(), told };
        match self {
            Found::Nowhere(no_place) => default(format!("not calibrated: {no_place}")),
            Found::Nothing => {
                default("not calibrated: nearjoin info --calibrate measures this machine".into())
            }
            Found::Useless { reason } => default(format!("calibration not used: {reason}")),
            Found::Filed { path, filed } if filed.is_of(gpu_name, threads) => {
                Known { calibration: filed.calibration, told: format!("calibrated by {path}") }
            }
            Found::Filed { filed, .. } => default(format!(
                "calibration of another machine ({}, {} threads): not used",
                filed.device, filed.threads
            )),
        }
    }
}

/// The text of a file. Nothing else is waited for: a pipe might never end.
fn read(path: &Path) -> io::Result<String> {
    let there = fs::metadata(path)?;
    match there.is_file() && there.len() <= MOST {
        true => fs::read_to_string(path),
        false => Err(io::Error::other("it is no calibration file")),
    }
}

/// A path as plans show it: on one line, and without the name of its user.
fn shown(path: &Path) -> String {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let below = home.and_then(|home| path.strip_prefix(home).ok());
    let path = below.map_or(path.to_path_buf(), |below| Path::new("~").join(below));
    path.display().to_string().replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "version = 1\ndevice = NVIDIA A100\nthreads = 8\ncpu = 2\n";

    /// What is found of a file with these bytes, or of none.
    fn found(name: &str, bytes: Option<&[u8]>) -> Found {
        let path = std::env::temp_dir().join(format!("nearjoin-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        if let Some(bytes) = bytes {
            fs::write(&path, bytes).unwrap();
        }
        let found = Found::at(Ok(path.clone()));
        let _ = fs::remove_file(&path);
        found
    }

    #[test]
    fn a_file_is_for_its_machine() {
        let found = found("good", Some(TEXT.as_bytes()));
        let known = found.known("NVIDIA A100", 8);
        assert_eq!(known.calibration, Calibration { cpu: 2.0, ..Calibration::default() });
        assert!(known.told.starts_with("calibrated by ") && known.told.ends_with("-good"));
        for (name, threads) in [("NVIDIA A100", 16), ("NVIDIA H200", 8)] {
            let known = found.known(name, threads);
            assert_eq!(known.calibration, Calibration::default());
            let told = "calibration of another machine (NVIDIA A100, 8 threads): not used";
            assert_eq!(known.told, told);
        }
    }

    #[test]
    fn a_file_that_is_of_no_use_is_told() {
        let told = |found: Found| {
            let known = found.known("NVIDIA A100", 8);
            assert_eq!(known.calibration, Calibration::default());
            known.told
        };
        let nothing = "not calibrated: nearjoin info --calibrate measures this machine";
        assert_eq!(told(found("none", None)), nothing);
        let damaged = TEXT.replace("cpu = 2", "cpu = much");
        let said = told(found("damaged", Some(damaged.as_bytes())));
        assert!(said.starts_with("calibration not used: "), "{said}");
        let end = "-damaged: line 4: cpu = \"much\" must be a positive number";
        assert!(said.ends_with(end), "{said}");
        let said = told(found("bytes", Some(&[0xff, 0xfe])));
        assert!(said.contains("-bytes: ") && said.contains("UTF-8"), "{said}");
        let said = told(found("long", Some(&vec![b'#'; MOST as usize + 1])));
        assert!(said.ends_with("-long: it is no calibration file"), "{said}");
        let said = told(Found::at(Ok(std::env::temp_dir())));
        assert!(said.ends_with(": it is no calibration file"), "{said}");
        let said = told(Found::at(Err(NoPlace::Unwanted)));
        assert_eq!(said, "not calibrated: NEARJOIN_CALIBRATION is empty");
    }
}
