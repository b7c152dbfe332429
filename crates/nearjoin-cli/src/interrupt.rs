//! Ctrl-C: stop within a second and leave nothing behind.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use nearjoin::Monitor;

use crate::failure::{INTERRUPTED, tell};

/// How long the join may take to stop by itself. Where it cannot, while a file is being
/// read or an index built, the program ends without it.
const GRACE: Duration = Duration::from_millis(600);

/// Whether Ctrl-C was pressed.
static PRESSED: AtomicBool = AtomicBool::new(false);

/// Makes Ctrl-C, and the signals that ask a program to end, cancel what the monitor watches
/// and remove every unfinished file.
pub(crate) fn watch(monitor: &Monitor) {
    let monitor = monitor.clone();
    let stop = move || {
        if PRESSED.swap(true, Relaxed) {
            end();
        }
        monitor.cancel();
        std::thread::spawn(|| {
            std::thread::sleep(GRACE);
            end();
        });
    };
    // A second handler in one process, or a system without signals: then Ctrl-C ends the
    // program as it would any other.
    let _ = ctrlc::set_handler(stop);
}

fn end() -> ! {
    nearjoin_io::write::remove_unfinished();
    crate::progress::wipe();
    tell("interrupted: nothing was written");
    std::process::exit(i32::from(INTERRUPTED));
}

/// Whether Ctrl-C was pressed.
pub(crate) fn pressed() -> bool {
    PRESSED.load(Relaxed)
}
