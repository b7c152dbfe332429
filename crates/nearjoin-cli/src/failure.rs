//! How a run can end other than well, and the exit code that says so.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use nearjoin::Needs;
use nearjoin_io::Remedy;

use crate::number;

/// The exit code of a run that was interrupted.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a run did not end well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments do not go together: exit code 2.
    Usage(String),
    /// Something went wrong: exit code 1.
    Failed(String),
    /// The memory limit is too low: exit code 1.
    OverLimit(String),
    /// Ctrl-C: exit code 130.
    Interrupted,
    /// The reader of standard output has had enough: exit code 0, and not a word.
    ClosedPipe,
}

/// The result of a command.
pub(crate) type Result<T = ()> = core::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure::Usage(message.into())
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Failure::Failed(message.into())
    }

    /// Says what is wrong, and turns it into an exit code.
    pub(crate) fn report(self) -> ExitCode {
        // Where nobody reads standard error either, the exit code has to do.
        let mut stderr = io::stderr().lock();
        match self {
            Failure::Usage(message) => {
                let _ = writeln!(stderr, "error: {message}\n\nFor more information, try '--help'.");
                ExitCode::from(2)
            }
            Failure::Failed(message) | Failure::OverLimit(message) => {
                let _ = writeln!(stderr, "error: {message}");
                ExitCode::from(1)
            }
            Failure::Interrupted => {
                let _ = writeln!(stderr, "{}", crate::interrupt::message());
                ExitCode::from(INTERRUPTED)
            }
            Failure::ClosedPipe => ExitCode::SUCCESS,
        }
    }
}

impl From<nearjoin::Error> for Failure {
    fn from(error: nearjoin::Error) -> Self {
        match error {
            nearjoin::Error::Cancelled => Failure::Interrupted,
            nearjoin::Error::MemoryLimit { what: Needs::Index, .. } => {
                Failure::OverLimit(error.to_string())
            }
            nearjoin::Error::MemoryLimit { what, needed, limit } => Failure::OverLimit(format!(
                "{what} needs {} and the memory limit is {}: raise the limit, or write a table \
                 without --sorted, which streams",
                number::bytes(needed),
                number::bytes(limit)
            )),
            nearjoin::Error::Epsilon { .. }
            | nearjoin::Error::Option { .. }
            | nearjoin::Error::Strategy { .. } => Failure::Usage(error.to_string()),
            // What the library advises, as an argument.
            _ => Failure::Failed(error.to_string().replace("use f64", "use --dtype f64")),
        }
    }
}

impl From<nearjoin_io::Error> for Failure {
    fn from(error: nearjoin_io::Error) -> Self {
        match &error {
            nearjoin_io::Error::Io { file, source, .. }
                if source.kind() == io::ErrorKind::BrokenPipe && file == "standard output" =>
            {
                Failure::ClosedPipe
            }
            _ => Failure::Failed(match error.remedy().and_then(by_flag) {
                Some(remedy) => format!("{}: {remedy}", error.complaint()),
                None => error.to_string(),
            }),
        }
    }
}

/// A remedy as the user of this program can apply it.
fn by_flag(remedy: Remedy) -> Option<&'static str> {
    Some(match remedy {
        Remedy::GiveFormat => "give the format with --format",
        Remedy::LeaveFormatOut => "leave --format out",
        Remedy::ChooseColumns => "choose columns with --columns",
        Remedy::ChooseListOrColumns => "choose it, or columns of numbers, with --columns",
        Remedy::SayHeader => "say whether the first line is a header with --header yes or no",
        Remedy::LeaveIdOut => "leave --id out, or use another format",
        _ => return None,
    })
}

/// Writes to standard output. A closed pipe ends the run without a word.
pub(crate) fn say(text: impl Display) -> Result {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
        _ => Failure::failed(format!("standard output could not be written: {error}")),
    })
}

/// Writes to standard error, where failing to say something is no failure.
pub(crate) fn tell(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
