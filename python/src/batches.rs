//! Answers in parts, as Python asks for them.
//!
//! A join runs on a thread of its own and puts blocks into a channel with little room; it waits when
//! that is full. The iterator takes them out. When it is closed or dropped it cancels the join, and
//! waits for its thread, but not for long: the thread has a share in the arrays that it reads.

use core::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use nearjoin::sink::{Block, Callback};
use nearjoin::{EpsJoin, Join, Monitor, Question, Scalar};
use numpy::{Element, PyArray1};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::error::Failure;
use crate::join::knn_join;
use crate::options::{Options, Understood};
use crate::points::{Arrays, Sides, with};
use crate::run::{MOMENT, PATIENCE, in_pool};

/// Blocks that wait for Python, beside those that the engine holds.
const WAITING: usize = 2;

/// Some rows of an answer.
struct Part {
    queries: Vec<u32>,
    offsets: Vec<u64>,
    ids: Vec<u32>,
    distances: Option<Distances>,
}

enum Distances {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// The types that distances come in.
trait Distance: Scalar + Element {
    fn wrap(distances: Vec<Self>) -> Distances;
}

impl Distance for f32 {
    fn wrap(distances: Vec<Self>) -> Distances {
        Distances::F32(distances)
    }
}

impl Distance for f64 {
    fn wrap(distances: Vec<Self>) -> Distances {
        Distances::F64(distances)
    }
}

/// How parts are to be cut, and what is to be in them.
#[derive(Clone, Copy)]
struct Wanted {
    pairs: usize,
    sorted: bool,
    distances: bool,
    half: bool,
}

/// The points that a join has read, of whatever type: to be dropped where the interpreter is held.
type Points = Box<dyn Send>;

/// A join under way.
struct Running {
    receive: Receiver<Result<Part, Failure>>,
    thread: JoinHandle<Points>,
}

impl Running {
    fn start<T: Distance, Q>(
        join: Join<Q>,
        sides: Sides<T>,
        options: Understood,
        wanted: Wanted,
        monitor: Monitor,
    ) -> Result<Self, Failure>
    where
        Q: Copy + Into<Question> + Send + Sync + 'static,
    {
        let (send, receive) = mpsc::sync_channel(WAITING);
        let work = move || {
            let result = in_pool(|| deliver(join, &sides, &options, wanted, &monitor, &send));
            if let Err(failure) = result {
                // Nobody is there to receive only if the iterator was closed.
                let _ = send.send(Err(failure));
            }
            drop(send);
            Box::new(sides) as Points
        };
        let thread = thread::Builder::new().spawn(work).map_err(Failure::Thread)?;
        Ok(Running { receive, thread })
    }
}

/// Runs the join, and sends its blocks.
fn deliver<T: Distance, Q: Copy + Into<Question>>(
    join: Join<Q>,
    sides: &Sides<T>,
    options: &Understood,
    wanted: Wanted,
    monitor: &Monitor,
    send: &SyncSender<Result<Part, Failure>>,
) -> Result<(), Failure> {
    let (plan, _) = options.plan(join, sides, monitor)?;
    let hand_over = |block: &Block<'_, T>| {
        let distances = wanted.distances.then(|| T::wrap(block.distances.to_vec()));
        let (queries, offsets) = (block.queries.to_vec(), block.offsets.to_vec());
        let part = Part { queries, offsets, ids: block.neighbors.to_vec(), distances };
        match send.send(Ok(part)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    let sink = Callback::new(hand_over).block_pairs(wanted.pairs);
    let mut sink = sink.sorted(wanted.sorted).distances(wanted.distances).half(wanted.half);
    plan.run(&mut sink)?;
    Ok(())
}

/// An iterator over parts of an answer: rows of the left points, offsets, ids, and distances if asked
/// for. Several threads may ask it, and close it.
#[pyclass(frozen, module = "nearjoin._nearjoin")]
pub(crate) struct Batches {
    monitor: Monitor,
    /// None at the end. Locked only without the interpreter, so that nobody who holds that waits here.
    running: Mutex<Option<Running>>,
    /// The process that has the thread.
    process: u32,
}

/// What came within a moment.
enum Received {
    Part(Part),
    Failed(Failure),
    Nothing,
    /// With the points of the join, if this is the first to hear of it.
    End(Option<Points>),
}

type Arrayed<'py> = (
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u32>>,
    Option<Bound<'py, PyAny>>,
);

#[pymethods]
impl Batches {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Arrayed<'py>>> {
        if self.is_forked() {
            let message = "an iterator cannot go on in a forked process: start a new one there";
            return Err(PyRuntimeError::new_err(message));
        }
        loop {
            match py.detach(|| self.receive()) {
                Received::Part(part) => return Ok(Some(arrays(py, part))),
                Received::Failed(failure) => {
                    let cancelled = self.monitor.is_cancelled();
                    self.close(py);
                    // Whoever closed it meant to.
                    return if cancelled { Ok(None) } else { Err(failure.into()) };
                }
                Received::End(points) => {
                    drop(points);
                    return Ok(None);
                }
                Received::Nothing => py.check_signals().inspect_err(|_| self.close(py))?,
            }
        }
    }

    /// Stops the join. Asked for more, the iterator is at its end.
    fn close(&self, py: Python<'_>) {
        if self.is_forked() {
            return;
        }
        self.monitor.cancel();
        drop(py.detach(|| self.end()));
    }
}

impl Batches {
    fn start<T: Distance, Q>(
        join: Join<Q>,
        sides: Sides<T>,
        options: Understood,
        wanted: Wanted,
    ) -> PyResult<Self>
    where
        Q: Copy + Into<Question> + Send + Sync + 'static,
    {
        let monitor = Monitor::new();
        let running = Running::start(join, sides, options, wanted, monitor.clone())?;
        let running = Mutex::new(Some(running));
        Ok(Batches { monitor, running, process: std::process::id() })
    }

    /// Whether this is a child of the process that has the thread.
    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Waits a moment for the next part.
    fn receive(&self) -> Received {
        let mut guard = self.running();
        let Some(running) = &*guard else { return Received::End(None) };
        match running.receive.recv_timeout(MOMENT) {
            Ok(Ok(part)) => Received::Part(part),
            Ok(Err(failure)) => Received::Failed(failure),
            Err(RecvTimeoutError::Timeout) => Received::Nothing,
            Err(RecvTimeoutError::Disconnected) => {
                let ended = guard.take().map(|running| running.thread.join());
                drop(guard);
                match ended.transpose() {
                    Ok(points) => Received::End(points),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        }
    }

    /// Waits for the end of a join that was cancelled, and returns its points. A thread that does not
    /// look at the monitor for a while ends by itself.
    fn end(&self) -> Option<Points> {
        let Running { receive, thread } = self.running().take()?;
        let until = Instant::now() + PATIENCE;
        loop {
            match receive.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => return thread.join().ok(),
            }
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        if self.is_forked() {
            // There is no such thread here, and the channel may be as it was in the middle of a call.
            let running = self.running.get_mut().unwrap_or_else(|e| e.into_inner());
            core::mem::forget(running.take());
            return;
        }
        // When Python itself ends, its process does, and with it the thread.
        Python::try_attach(|py| self.close(py));
    }
}

fn arrays(py: Python<'_>, part: Part) -> Arrayed<'_> {
    let distances = part.distances.map(|distances| match distances {
        Distances::F32(distances) => PyArray1::from_vec(py, distances).into_any(),
        Distances::F64(distances) => PyArray1::from_vec(py, distances).into_any(),
    });
    (
        PyArray1::from_vec(py, part.queries),
        PyArray1::from_vec(py, part.offsets),
        PyArray1::from_vec(py, part.ids),
        distances,
    )
}

/// The neighbours within ε, in parts of about so many pairs.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the border")]
pub(crate) fn eps_batches(
    x: &Bound<'_, PyAny>,
    y: Option<&Bound<'_, PyAny>>,
    eps: f64,
    pairs: usize,
    sorted: bool,
    distances: bool,
    half: bool,
    options: Options,
) -> PyResult<Batches> {
    let wanted = Wanted { pairs, sorted, distances, half };
    let options = options.understand()?;
    with!(Arrays::new(x, y)?, sides => {
        Batches::start(EpsJoin::new(eps), sides, options, wanted)
    })
}

/// The k nearest, in parts of about so many pairs; rows are as long as there are neighbours.
#[pyfunction]
pub(crate) fn knn_batches(
    x: &Bound<'_, PyAny>,
    y: Option<&Bound<'_, PyAny>>,
    k: usize,
    max_distance: Option<f64>,
    pad: bool,
    pairs: usize,
    options: Options,
) -> PyResult<Batches> {
    let wanted = Wanted { pairs, sorted: false, distances: true, half: false };
    let options = options.understand()?;
    with!(Arrays::new(x, y)?, sides => {
        Batches::start(knn_join(k, max_distance, pad), sides, options, wanted)
    })
}
