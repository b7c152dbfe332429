//! Batches through encoder threads into one file, in order.
//!
//! The protocol, over one lock:
//! - [`Pipeline::push`] numbers a batch, cuts it into pieces and queues them. It waits while
//!   as many batches as allowed are *in flight*: queued, being encoded, or encoded and not
//!   yet written. So memory is bounded whichever side is slow.
//! - An encoder thread takes the oldest piece and stores what it made of it.
//! - The appender thread waits for all pieces of the next batch in order, and writes them.
//! - The first failure of any thread, or the end of the pipeline itself, sets `stop`: every
//!   thread then leaves at its next look at the lock. The failure is handed to the caller
//!   once, by `push` or [`Pipeline::finish`]; a panic goes on there.
//!
//! So nobody waits for ever: each wait below looks at `stop`, and whoever sets it wakes all.
//! What takes its time is the encoder, which only computes, and the file, which may be a pipe
//! that is read slowly.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use crate::error::Result;

/// How batches become parts, and parts a file.
pub(super) trait Encoder: Send + Sync + 'static {
    /// Some rows.
    type Batch: Send + Sync + 'static;
    /// A piece of a batch, ready to be written.
    type Part: Send + 'static;
    /// The file.
    type File: Send + 'static;

    /// In how many pieces a batch can be encoded at once: one or more.
    fn pieces(&self) -> usize;

    /// Encodes piece `piece` of batch number `number`.
    fn encode(&self, batch: &Self::Batch, number: usize, piece: usize) -> Result<Self::Part>;

    /// Writes the next batch.
    fn append(&self, file: &mut Self::File, parts: Vec<Self::Part>) -> Result<()>;
}

/// The running threads. Dropped before [`finish`](Pipeline::finish), it ends them and drops
/// the file.
pub(super) struct Pipeline<E: Encoder> {
    shared: Arc<Shared<E>>,
    encoders: Vec<JoinHandle<()>>,
    appender: Option<JoinHandle<Option<E::File>>>,
}

struct Shared<E: Encoder> {
    encoder: E,
    state: Mutex<State<E>>,
    /// A piece was queued.
    queued: Condvar,
    /// All pieces of a batch are encoded.
    encoded: Condvar,
    /// A batch was written.
    written: Condvar,
}

struct State<E: Encoder> {
    pieces: VecDeque<Piece<E>>,
    /// What is in flight, oldest first.
    flight: VecDeque<Slot<E>>,
    /// The number of the oldest batch in flight.
    oldest: usize,
    /// Most batches in flight.
    limit: usize,
    /// Batches whose memory can be used again.
    spare: Vec<E::Batch>,
    closed: bool,
    stop: bool,
    failure: Option<Failure>,
}

struct Piece<E: Encoder> {
    batch: Arc<E::Batch>,
    number: usize,
    piece: usize,
}

struct Slot<E: Encoder> {
    parts: Vec<Option<E::Part>>,
    missing: usize,
}

enum Failure {
    Error(crate::Error),
    Panic(Box<dyn Any + Send>),
}

impl<E: Encoder> Pipeline<E> {
    /// Starts `threads` encoders, or as many of them as the system grants, with at most `limit`
    /// batches in flight.
    ///
    /// # Errors
    /// If the system refuses the first encoder or the appender. What was started is ended.
    pub(super) fn start(encoder: E, file: E::File, threads: usize, limit: usize) -> Result<Self> {
        let shared = Arc::new(Shared {
            encoder,
            state: Mutex::new(State {
                pieces: VecDeque::new(),
                flight: VecDeque::new(),
                oldest: 0,
                limit: limit.max(1),
                spare: Vec::new(),
                closed: false,
                stop: false,
                failure: None,
            }),
            queued: Condvar::new(),
            encoded: Condvar::new(),
            written: Condvar::new(),
        });
        // Dropped by an error below, it ends the threads that it has.
        let mut pipeline = Pipeline { shared, encoders: Vec::new(), appender: None };
        let shared = Arc::clone(&pipeline.shared);
        let append = move || shared.guard(|shared| shared.append_batches(file)).flatten();
        pipeline.appender = Some(spawn("appender", append)?);
        for _ in 0..threads.max(1) {
            let shared = Arc::clone(&pipeline.shared);
            let encode = move || shared.guard(Shared::encode_pieces).unwrap_or(());
            match spawn("encoder", encode) {
                Ok(encoder) => pipeline.encoders.push(encoder),
                Err(refused) if pipeline.encoders.is_empty() => return Err(refused),
                Err(_) => break,
            }
        }
        Ok(pipeline)
    }

    /// Queues a batch; waits while too many are in flight.
    ///
    /// # Errors
    /// With the first failure of a thread. Nothing is written after that.
    pub(super) fn push(&mut self, batch: E::Batch) -> Result<()> {
        // A batch without pieces would wake nobody.
        let pieces = self.shared.encoder.pieces().max(1);
        let mut state = self.shared.lock();
        while state.flight.len() >= state.limit && !state.stop {
            // The appender writes the batches in flight and wakes this each time; if it or an
            // encoder fails instead, that sets `stop` and wakes this too.
            state = wait(&self.shared.written, state);
        }
        if state.stop {
            return Err(failed(state));
        }
        let number = state.oldest + state.flight.len();
        state
            .flight
            .push_back(Slot { parts: (0..pieces).map(|_| None).collect(), missing: pieces });
        let batch = Arc::new(batch);
        for piece in 0..pieces {
            state.pieces.push_back(Piece { batch: Arc::clone(&batch), number, piece });
        }
        drop(state);
        self.shared.queued.notify_all();
        Ok(())
    }

    /// A batch that was pushed and is done with, for its memory.
    pub(super) fn spare(&mut self) -> Option<E::Batch> {
        self.shared.lock().spare.pop()
    }

    /// Waits until all is written, and gives the file back.
    ///
    /// # Errors
    /// With the first failure of a thread.
    pub(super) fn finish(mut self) -> Result<E::File> {
        self.shared.lock().closed = true;
        let file = self.join();
        match file {
            Some(file) => Ok(file),
            None => Err(failed(self.shared.lock())),
        }
    }

    fn join(&mut self) -> Option<E::File> {
        self.shared.queued.notify_all();
        self.shared.encoded.notify_all();
        for encoder in self.encoders.drain(..) {
            // `closed` or `stop` is set and it was woken, so it ends after the pieces that are
            // queued, or at once. A panic of the work is caught inside the thread.
            let _ = encoder.join();
        }
        // All pieces are encoded by now, or `stop` is set: it writes them and ends, or ends.
        self.appender.take().and_then(|appender| appender.join().ok().flatten())
    }
}

impl<E: Encoder> Drop for Pipeline<E> {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.join();
    }
}

fn spawn<R: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<JoinHandle<R>> {
    let thread = thread::Builder::new().name(name.into()).spawn(work);
    thread.map_err(|error| {
        let problem = format!(
            "the system refused a thread: {error}: raise the limit on processes and threads, or \
             that on memory"
        );
        let refusal = std::io::Error::new(error.kind(), problem);
        super::target::refused("the result", "written", refusal)
    })
}

/// The failure that stopped the pipeline, once.
fn failed<E: Encoder>(mut state: MutexGuard<'_, State<E>>) -> crate::Error {
    let failure = state.failure.take();
    drop(state);
    match failure {
        Some(Failure::Error(error)) => error,
        Some(Failure::Panic(panic)) => resume_unwind(panic),
        None => super::target::refused(
            "the result",
            "written",
            std::io::Error::other("writing has failed before"),
        ),
    }
}

fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl<E: Encoder> Shared<E> {
    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs the work of a thread; what goes wrong there stops the pipeline.
    fn guard<R>(&self, work: impl FnOnce(&Self) -> Result<R>) -> Option<R> {
        let failure = match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(Ok(result)) => return Some(result),
            Ok(Err(error)) => Failure::Error(error),
            Err(panic) => Failure::Panic(panic),
        };
        let mut state = self.lock();
        state.stop = true;
        state.failure.get_or_insert(failure);
        // Nobody will take these. They are dropped last, so that nothing comes between `stop`
        // and the wake-up.
        let pieces = core::mem::take(&mut state.pieces);
        drop(state);
        self.queued.notify_all();
        self.encoded.notify_all();
        self.written.notify_all();
        drop(pieces);
        None
    }

    fn encode_pieces(&self) -> Result<()> {
        let mut state = self.lock();
        loop {
            if state.stop {
                return Ok(());
            }
            let Some(Piece { batch, number, piece }) = state.pieces.pop_front() else {
                if state.closed {
                    return Ok(());
                }
                // The caller pushes, finishes or drops the pipeline, and wakes this in each
                // case; so does a failure elsewhere.
                state = wait(&self.queued, state);
                continue;
            };
            drop(state);
            let part = self.encoder.encode(&batch, number, piece)?;
            let batch = Arc::into_inner(batch);
            state = self.lock();
            if state.spare.len() < state.limit {
                state.spare.extend(batch);
            }
            // A batch stays in flight until its last piece is written.
            let at = number - state.oldest;
            let slot = &mut state.flight[at];
            slot.parts[piece] = Some(part);
            slot.missing -= 1;
            if slot.missing == 0 && at == 0 {
                self.encoded.notify_one();
            }
        }
    }

    fn append_batches(&self, mut file: E::File) -> Result<Option<E::File>> {
        let mut state = self.lock();
        loop {
            if state.stop {
                return Ok(None);
            }
            if state.flight.front().is_some_and(|slot| slot.missing == 0) {
                // The slot keeps its place: the batch is in flight until it is written.
                let parts = core::mem::take(&mut state.flight[0].parts);
                drop(state);
                self.encoder.append(&mut file, parts.into_iter().flatten().collect())?;
                state = self.lock();
                state.flight.pop_front();
                state.oldest += 1;
                self.written.notify_one();
            } else if state.flight.is_empty() && state.closed {
                return Ok(Some(file));
            } else {
                // The encoder of the last piece of the oldest batch wakes this, or its failure
                // does. Where no batch is in flight, the caller does when it ends.
                state = wait(&self.encoded, state);
            }
        }
    }
}

#[cfg(test)]
mod tests;
