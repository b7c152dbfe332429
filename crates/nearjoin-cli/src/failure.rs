//! How a run can end other than well, and the exit code that says so.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use nearjoin::Needs;
use nearjoin_io::{Remedy, quote};

use crate::{interrupt, number};

/// Why a run did not end well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments do not go together: exit code 2.
    Usage(String),
    /// Something went wrong: exit code 1.
    Failed(String),
    /// The memory limit is too low: exit code 1.
    OverLimit(String),
    /// Ctrl-C, or another signal: exit code 130, 143 or 129.
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

    /// A file of points that cannot be read, with what to do in the words of this program.
    pub(crate) fn reading(error: nearjoin_io::Error, side: Side, has_id: bool) -> Self {
        match error.remedy().and_then(|remedy| by_flag(remedy, side, has_id)) {
            Some(remedy) => Failure::Failed(format!("{}: {remedy}", error.complaint())),
            None => error.into(),
        }
    }

    /// What the engine refused, of an answer that does not stream: a number for each point.
    pub(crate) fn in_memory(error: nearjoin::Error) -> Self {
        match error {
            nearjoin::Error::MemoryLimit { what: what @ Needs::Result, needed, limit } => {
                Failure::OverLimit(format!(
                    "{what} needs {} and the memory limit is {}: raise the limit",
                    number::bytes(needed),
                    number::bytes(limit)
                ))
            }
            error => error.into(),
        }
    }

    /// The system refused a thread without which nothing goes.
    pub(crate) fn no_thread(error: io::Error) -> Self {
        Failure::failed(format!(
            "the system refused a thread: {error}: raise the limit on processes and threads of the \
             shell (ulimit -u), the container or the batch queue, or that on memory"
        ))
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
                let (code, message) = interrupt::ending();
                let _ = writeln!(stderr, "{message}");
                ExitCode::from(code)
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
            nearjoin::Error::Magnitudes { .. }
            | nearjoin::Error::TooNear { .. }
            | nearjoin::Error::TooFar { .. } => {
                Failure::Failed(error.to_string().replace("use f64", "use --dtype f64"))
            }
            _ => Failure::Failed(error.to_string()),
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
            // Its files were taken away because a signal came.
            nearjoin_io::Error::Io { source, .. }
                if source.kind() == io::ErrorKind::Interrupted && interrupt::pressed() =>
            {
                Failure::Interrupted
            }
            _ => Failure::Failed(error.to_string()),
        }
    }
}

/// An error in the arguments, which shows no more of them than other messages do.
pub(crate) fn in_arguments(mut error: clap::Error) -> clap::Error {
    for kind in [ContextKind::InvalidValue, ContextKind::InvalidArg, ContextKind::InvalidSubcommand]
    {
        let Some(ContextValue::String(text)) = error.get(kind) else { continue };
        let shown = quote::bare(text);
        if shown != *text {
            // It would show the whole of it.
            error.remove(ContextKind::Suggested);
        }
        error.insert(kind, ContextValue::String(shown));
    }
    error
}

/// Which of the two files something is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

impl Side {
    /// The option for its columns.
    fn columns(self) -> &'static str {
        match self {
            Side::Left => "--columns",
            Side::Right => "--right-columns",
        }
    }

    /// The option for its ids.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Side::Left => "--id",
            Side::Right => "--right-id",
        }
    }
}

/// A remedy as the user of this program can apply it to this file.
fn by_flag(remedy: Remedy, side: Side, has_id: bool) -> Option<String> {
    let (columns, id) = (side.columns(), side.id());
    let offset = format!("else subtract an offset from the column or leave it out with {columns}");
    Some(match remedy {
        Remedy::GiveFormat => "give the format with --format".to_owned(),
        Remedy::LeaveFormatOut => "leave --format out".to_owned(),
        Remedy::ChooseColumns => format!("choose columns with {columns}"),
        Remedy::ChooseListOrColumns => format!("choose it, or columns of numbers, with {columns}"),
        Remedy::SayHeader => {
            "say whether the first line is a header with --header yes or no".to_owned()
        }
        Remedy::LeaveIdOut if side == Side::Left => {
            "leave --id out, or use another format".to_owned()
        }
        Remedy::LeaveIdOut => "leave --id and --right-id out, or use another format".to_owned(),
        Remedy::NameColumns => format!("choose among them with {columns}"),
        Remedy::NameId => format!("choose among them with {id}"),
        Remedy::CountColumns => {
            let id = if has_id { format!(" and {id}") } else { String::new() };
            format!("if it has no header, choose by number, from 0, with {columns}{id}")
        }
        Remedy::ReadAsF64 => "compute in f64 with --dtype f64".to_owned(),
        Remedy::StoreAsF64 => format!("store the column as f64 if it may be rounded, {offset}"),
        Remedy::WritePoint => {
            format!("write it with a decimal point if it may be rounded, {offset}")
        }
        _ => return None,
    })
}

/// Writes to standard output. A closed pipe ends the run without a word.
pub(crate) fn say(text: impl Display) -> Result {
    check_stdout()?;
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
        _ => Failure::failed(format!("standard output could not be written: {error}")),
    })
}

/// Refuses a standard output that was closed before the program began: what is written there
/// would be lost without an error.
pub(crate) fn check_stdout() -> Result {
    #[cfg(unix)]
    if crate::bare::stdout_was_closed() {
        return Err(Failure::failed(
            "standard output is closed: open it, or give a join a file with --output",
        ));
    }
    Ok(())
}

/// Writes to standard error, where failing to say something is no failure.
pub(crate) fn tell(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
