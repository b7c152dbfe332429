//! Calls of the system for a program that is at its end, or not yet at its beginning: they
//! allocate nothing and take no lock.
#![allow(unsafe_code)]

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// How long standard error may take to accept a last line, in milliseconds.
const PATIENCE: libc::c_int = 600;

/// Writes a line to standard error, past its lock, which a thread may hold that waits for a pipe
/// that nobody reads. So would this: it says nothing there.
pub(crate) fn say(line: &[u8]) {
    let mut standard_error = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid structure, and as many valid bytes as are told.
    unsafe {
        if libc::poll(&mut standard_error, 1, PATIENCE) == 1 {
            libc::write(2, line.as_ptr().cast(), line.len());
        }
    }
}

pub(crate) fn unlink(path: &Path) {
    const LONGEST: usize = libc::PATH_MAX as usize;
    let mut text = [0u8; LONGEST + 1];
    let path = path.as_os_str().as_bytes();
    // What is longer cannot have been opened.
    let Some(name) = text[..LONGEST].get_mut(..path.len()) else { return };
    name.copy_from_slice(path);
    // SAFETY: the text ends in a zero at the latest at its last byte, which no path reaches.
    unsafe { libc::unlink(text.as_ptr().cast()) };
}

/// Which thread this is.
pub(crate) fn thread() -> usize {
    // SAFETY: it has no preconditions.
    unsafe { libc::pthread_self() as usize }
}

/// Waits for another thread to end the process.
pub(crate) fn wait_for_the_end() -> ! {
    loop {
        // SAFETY: it only waits.
        unsafe { libc::pause() };
    }
}

/// Ends the process, and runs nothing before that might want memory.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: it has no preconditions.
    unsafe { libc::_exit(code) }
}

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether the program was started without a standard output (`>&-`).
pub(crate) fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Relaxed)
}

extern "C" fn look_at_stdout() {
    // SAFETY: it only asks, and an open descriptor is no precondition.
    if unsafe { libc::fcntl(1, libc::F_GETFD) } == -1 {
        STDOUT_WAS_CLOSED.store(true, Relaxed);
    }
}

/// Before `main`, Rust opens `/dev/null` in place of a standard stream that is closed, and from
/// then on nobody can tell it from one that a parent has opened there. So the look comes before:
/// what this section lists is called when the program is loaded.
// SAFETY: the section holds pointers to functions without a result. This one needs nothing that
// Rust has not set up by then: it makes one call of the system and stores to an atomic.
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
#[used]
static AT_LOAD: extern "C" fn() = look_at_stdout;
