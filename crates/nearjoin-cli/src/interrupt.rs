//! Ctrl-C and other signals that end a program: stop within a second and leave nothing behind.

use std::sync::atomic::{AtomicI32, AtomicU8, Ordering::Relaxed};
#[cfg(unix)]
use std::time::{Duration, Instant};

use nearjoin::Monitor;

use crate::failure::Result;

/// How long the join may take to stop by itself. Where it cannot, while a file is being
/// read or an index built, the program ends without it.
#[cfg(unix)]
const GRACE: Duration = Duration::from_millis(600);

/// The signal that came, or 0.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// What there is of the answer, as a [`Written`].
static WRITTEN: AtomicU8 = AtomicU8::new(Written::Nothing as u8);

/// What an interrupted run leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// No file, and nothing on standard output.
    Nothing,
    /// A part, on standard output.
    Part,
    /// The whole answer; what tells of it may be missing.
    Answer,
}

/// Notes what an interruption from now on would leave.
pub(crate) fn leaves(written: Written) {
    WRITTEN.store(written as u8, Relaxed);
}

/// The exit code of an interrupted run, as shells give it, and what is said of it. Systems agree on
/// the numbers of these signals.
pub(crate) fn ending() -> (u8, String) {
    let (code, cause) = match SIGNAL.load(Relaxed) {
        1 => (129, "hung up"),
        15 => (143, "terminated"),
        _ => (130, "interrupted"),
    };
    let left = match WRITTEN.load(Relaxed) {
        part if part == Written::Part as u8 => "what went to standard output is incomplete",
        answer if answer == Written::Answer as u8 => {
            "the answer is complete, what should tell of it is not"
        }
        _ => "nothing was written",
    };
    (code, format!("{cause}: {left}"))
}

/// Makes Ctrl-C, and the signals that ask a program to end, cancel what the monitor watches
/// and remove every unfinished file. Signals that whoever started the program has told it to
/// ignore, as `nohup` does, stay ignored.
///
/// # Errors
/// If the system refuses a thread.
#[cfg(unix)]
pub(crate) fn watch(monitor: &Monitor) -> Result {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let ignored = crate::system::ignored_signals();
    let heeded = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !ignored.contains(signal));
    // Where the system refuses, a signal ends the program as it would any other.
    let Ok(mut signals) = signal_hook::iterator::Signals::new(heeded) else { return Ok(()) };
    let monitor = monitor.clone();
    let wait = move || {
        let Some(signal) = signals.forever().next() else { return };
        SIGNAL.store(signal, Relaxed);
        monitor.cancel();
        let start = Instant::now();
        // Whoever sends a second one will not wait.
        while start.elapsed() < GRACE && signals.pending().next().is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        end();
    };
    let thread = std::thread::Builder::new().name("signals".into()).spawn(wait);
    thread.map(|_| ()).map_err(crate::failure::Failure::no_thread)
}

/// Elsewhere Ctrl-C ends the program as it would any other.
#[cfg(not(unix))]
pub(crate) fn watch(_monitor: &Monitor) -> Result {
    Ok(())
}

/// Makes writing beyond the largest file that is allowed (`ulimit -f`) an error like a full disk.
/// By itself the signal would end the program and leave what it has written.
pub(crate) fn outlive_large_files() {
    #[cfg(unix)]
    {
        let nobody_asks = std::sync::Arc::default();
        // Where the system refuses, the signal ends the program.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, nobody_asks);
    }
}

#[cfg(unix)]
fn end() -> ! {
    nearjoin_io::write::remove_unfinished();
    let (code, message) = ending();
    // Standard error may be a full pipe that nobody reads.
    crate::bare::say(format!("{}{message}\n", crate::progress::leave()).as_bytes());
    std::process::exit(i32::from(code));
}

/// Whether Ctrl-C was pressed, or another signal came.
pub(crate) fn pressed() -> bool {
    SIGNAL.load(Relaxed) != 0
}
