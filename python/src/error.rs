//! What went wrong, as Python's own kinds of exceptions.

use std::io;

use nearjoin::{Error, Needs};
use nearjoin_io::Remedy;
use pyo3::PyErr;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyValueError};

/// Which of two arrays.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    X,
    Y,
}

/// Why a call failed: noted while the interpreter is detached.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The engine refused.
    Engine(Error),
    /// The engine refused an answer that can be had in parts.
    WouldFitInParts(Error),
    /// The engine refused one of two arrays.
    In(Side, Error),
    /// A file could not be read.
    File(nearjoin_io::Error),
    /// The system refused a thread.
    Thread(io::Error),
    /// A GPU was named in a process that cannot use it. `"hybrid"` means the CPU there, as it does
    /// wherever there is no GPU.
    Forked,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Engine(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::WouldFitInParts(Error::MemoryLimit { what: Needs::Result, needed, limit }) => {
                let refused = Error::MemoryLimit { what: Needs::Result, needed, limit };
                PyMemoryError::new_err(format!(
                    "{}, lower eps or k, ask for eps_count or eps_degrees, or receive the answer in \
                     parts by eps_batches or knn_batches",
                    in_python(&refused)
                ))
            }
            Failure::Engine(error) | Failure::WouldFitInParts(error) => of_engine(&error, ""),
            Failure::In(Side::X, error) => of_engine(&error, "x: "),
            Failure::In(Side::Y, error) => of_engine(&error, "y: "),
            Failure::File(error) => of_file(error),
            Failure::Thread(error) => {
                PyRuntimeError::new_err(format!("the system refused a thread: {error}"))
            }
            Failure::Forked => PyRuntimeError::new_err(
                "a GPU cannot be used in a process that was forked after nearjoin was used: start \
                 processes by multiprocessing's \"spawn\" or \"forkserver\", or use device=\"cpu\"",
            ),
        }
    }
}

fn of_engine(error: &Error, prefix: &str) -> PyErr {
    let message = format!("{prefix}{}", in_python(error));
    match error {
        Error::MemoryLimit { .. } | Error::OutOfMemory { .. } => PyMemoryError::new_err(message),
        Error::Device { .. } | Error::Threads { .. } | Error::Stopped | Error::Cancelled => {
            PyRuntimeError::new_err(message)
        }
        _ => PyValueError::new_err(message),
    }
}

/// The engine's words, with the names that things have in Python.
fn in_python(error: &Error) -> String {
    let said = error.to_string();
    match error {
        Error::DimensionMismatch { left, right } => format!(
            "the points of x have dimension {left} and those of y dimension {right}: they must agree"
        ),
        Error::Epsilon { value, kind } => format!(
            "eps = {value:?} is not a distance: it must be 0 or more and finite in {}",
            dtype(kind)
        ),
        Error::TooFewPoints { .. } => said.replace("or ask for padding", "or pass pad=True"),
        Error::MemoryLimit { what: Needs::Result, .. } => {
            let (problem, _) = said.split_once(": ").unwrap_or((&said, ""));
            format!("{problem}: raise memory_limit")
        }
        Error::MemoryLimit { .. } => said.replace("raise the limit", "raise memory_limit"),
        Error::Magnitudes { .. } | Error::TooNear { .. } | Error::TooFar { .. } => {
            in_words_of_python(&said)
        }
        _ => said,
    }
}

/// The same with the names that numpy has for types, and without a command of the program.
pub(crate) fn in_words_of_python(text: &str) -> String {
    let text = text.replace(": nearjoin info --calibrate measures this machine", "");
    text.replace(" f32", " float32").replace(" f64", " float64")
}

/// The name that numpy has for a type.
fn dtype(kind: &str) -> &'static str {
    if kind == "f32" { "float32" } else { "float64" }
}

fn of_file(error: nearjoin_io::Error) -> PyErr {
    let message = match error.remedy().and_then(by_argument) {
        Some(remedy) => format!("{}: {remedy}", error.complaint()),
        None => error.to_string(),
    };
    match error {
        // With a number, Python makes a FileNotFoundError or the like of it.
        nearjoin_io::Error::Io { file, source, .. } => match source.raw_os_error() {
            Some(number) => {
                let said = source.to_string();
                let said = said.split(" (os error").next().unwrap_or_default().to_owned();
                PyOSError::new_err((number, said, file))
            }
            None => PyOSError::new_err(message),
        },
        nearjoin_io::Error::Points { source: source @ Error::OutOfMemory { .. }, .. } => {
            of_engine(&source, "")
        }
        _ => PyValueError::new_err(in_words_of_python(&message)),
    }
}

/// A remedy as an argument of `nearjoin.read`.
fn by_argument(remedy: Remedy) -> Option<&'static str> {
    Some(match remedy {
        Remedy::GiveFormat => "give the format, as in format=\"csv\"",
        Remedy::LeaveFormatOut => "leave the argument format out",
        Remedy::ChooseColumns => "choose columns, as in columns=[\"x\", \"y\"]",
        Remedy::SayHeader => "say whether the first line is a header, by header=True or False",
        Remedy::ReadAsF64 => "read the points by dtype=\"float64\"",
        _ => return None,
    })
}
