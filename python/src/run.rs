//! A join that runs while Python goes on: other threads of it work, Ctrl-C stops the join, and
//! progress is told.
//!
//! ```text
//! start the join on a thread of its own
//! until it is done: let go of Python, wait a moment, take it back,
//!     and look after signals and whoever wants to know of progress
//! ```
//!
//! A join has a thread of its own since signals are Python's affair on its main thread, and the engine
//! works on the thread that calls it.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use core::time::Duration;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use nearjoin::{Error, Monitor, Phase};
use pyo3::prelude::*;

use crate::error::Failure;

/// How long a signal, or news of progress, may wait.
pub(crate) const MOMENT: Duration = Duration::from_millis(50);
/// How long an exception waits for the work that it has stopped.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// Does some work with points, on another thread, which never attaches to the interpreter; `progress`
/// is called now and then. An exception of Python, as after Ctrl-C, cancels the monitor, and is raised when the
/// work has ended, or soon: where a join does not look at the monitor, as while it sorts many millions
/// of points, its thread ends by itself when it has done that, and lets go of its points.
pub(crate) fn run<P: Send + Sync + 'static, R: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    points: P,
    work: impl FnOnce(&P, &Monitor) -> Result<R, Failure> + Send + 'static,
) -> PyResult<R> {
    let monitor = Monitor::new();
    let (send, mut receive) = mpsc::sync_channel(1);
    let watched = monitor.clone();
    // Let go of where Python is held, unless the thread lives longer than this call.
    let points = Arc::new(points);
    let theirs = Arc::clone(&points);
    let work = move || {
        let result = in_pool(|| work(&theirs, &watched));
        drop(theirs);
        // Nobody is there to receive only after an exception.
        let _ = send.send(result);
    };
    let thread = thread::Builder::new().spawn(work).map_err(Failure::Thread)?;
    let told = loop {
        let receive = &mut receive;
        match py.detach(move || receive.recv_timeout(MOMENT)) {
            Ok(result) => return Ok(result?),
            // It has panicked: Python gets that as an exception.
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => unreachable!("a thread that sends nothing has panicked"),
            },
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(error) = py.check_signals().and_then(|()| tell(py, progress, &monitor)) {
            break error;
        }
    };
    monitor.cancel();
    let receive = &mut receive;
    let _ = py.detach(move || receive.recv_timeout(PATIENCE));
    Err(told)
}

/// Calls `progress` with what is being done, the share of it that is done where that is known, and the
/// pairs found.
fn tell(py: Python<'_>, progress: Option<&Py<PyAny>>, monitor: &Monitor) -> PyResult<()> {
    let Some(progress) = progress else { return Ok(()) };
    let now = monitor.progress();
    progress.call1(py, (name(now.phase), now.fraction(), now.pairs)).map(|_| ())
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Waiting => "waiting",
        Phase::Planning => "planning",
        Phase::Indexing => "indexing",
        Phase::Counting => "counting",
        _ => "joining",
    }
}

/// Whether this process was forked from one that had used the engine: the threads of the engine's pool
/// have stayed behind there, and a GPU that was opened cannot be used here.
pub(crate) fn is_forked() -> bool {
    static OWNER: AtomicU32 = AtomicU32::new(0);
    let me = std::process::id();
    OWNER.compare_exchange(0, me, Relaxed, Relaxed).is_err_and(|owner| owner != me)
}

/// Does some work where there is a pool of threads: the engine's, or in a forked process one for this
/// call.
pub(crate) fn in_pool<R: Send>(
    work: impl FnOnce() -> Result<R, Failure> + Send,
) -> Result<R, Failure> {
    if !is_forked() {
        // Rayon itself would panic where the system refuses a thread.
        nearjoin::start_threads(None)?;
        return work();
    }
    let pool = rayon::ThreadPoolBuilder::new().build();
    let refused = |error: rayon::ThreadPoolBuildError| Error::Threads { reason: error.to_string() };
    pool.map_err(refused)?.install(work)
}
