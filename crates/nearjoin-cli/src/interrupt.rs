//! Ctrl-C: stop within a second and leave nothing behind.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use nearjoin::Monitor;

use crate::failure::{INTERRUPTED, tell};

/// How long the join may take to stop by itself. Where it cannot, while a file is being
/// read or an index built, the program ends without it.
const GRACE: Duration = Duration::from_millis(600);

/// Whether Ctrl-C was pressed.
static PRESSED: AtomicBool = AtomicBool::new(false);
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

/// What is said of an interrupted run.
pub(crate) fn message() -> &'static str {
    match WRITTEN.load(Relaxed) {
        part if part == Written::Part as u8 => {
            "interrupted: what went to standard output is incomplete"
        }
        answer if answer == Written::Answer as u8 => {
            "interrupted: the answer is complete, what should tell of it is not"
        }
        _ => "interrupted: nothing was written",
    }
}

/// Makes Ctrl-C, and the signals that ask a program to end, cancel what the monitor watches
/// and remove every unfinished file. Signals that whoever started the program has told it to
/// ignore, as `nohup` does, stay ignored.
#[cfg(unix)]
pub(crate) fn watch(monitor: &Monitor) {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let ignored = crate::system::ignored_signals();
    let heeded = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !ignored.contains(signal));
    // Where the system refuses, a signal ends the program as it would any other.
    let Ok(mut signals) = signal_hook::iterator::Signals::new(heeded) else { return };
    let monitor = monitor.clone();
    let wait = move || {
        for _ in signals.forever() {
            if PRESSED.swap(true, Relaxed) {
                end();
            }
            monitor.cancel();
            let patience = || {
                std::thread::sleep(GRACE);
                end();
            };
            // Where the system refuses the thread, the next Ctrl-C ends the program.
            let _ = std::thread::Builder::new().spawn(patience);
        }
    };
    let _ = std::thread::Builder::new().name("signals".into()).spawn(wait);
}

/// Elsewhere Ctrl-C ends the program as it would any other.
#[cfg(not(unix))]
pub(crate) fn watch(_monitor: &Monitor) {}

#[cfg(unix)]
fn end() -> ! {
    nearjoin_io::write::remove_unfinished();
    let (done, told) = std::sync::mpsc::channel();
    let last_words = move || {
        crate::progress::wipe();
        tell(message());
        let _ = done.send(());
    };
    // Where standard error is a full pipe that nobody reads, these words would wait for ever, and
    // so does whoever holds its lock.
    if std::thread::Builder::new().name("last words".into()).spawn(last_words).is_ok() {
        let _ = told.recv_timeout(GRACE);
    }
    std::process::exit(i32::from(INTERRUPTED));
}

/// Whether Ctrl-C was pressed.
pub(crate) fn pressed() -> bool {
    PRESSED.load(Relaxed)
}
