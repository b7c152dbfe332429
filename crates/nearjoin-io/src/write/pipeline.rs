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

    /// In how many pieces a batch can be encoded at once.
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
    /// Starts `threads` encoders, with at most `limit` batches in flight.
    pub(super) fn start(encoder: E, file: E::File, threads: usize, limit: usize) -> Self {
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
        let encoders = (0..threads.max(1))
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.guard(Shared::encode_pieces).unwrap_or(()))
            })
            .collect();
        let appender = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.guard(|shared| shared.append_batches(file)).flatten())
        };
        Pipeline { shared, encoders, appender: Some(appender) }
    }

    /// Queues a batch; waits while too many are in flight.
    ///
    /// # Errors
    /// With the first failure of a thread. Nothing is written after that.
    pub(super) fn push(&mut self, batch: E::Batch) -> Result<()> {
        let pieces = self.shared.encoder.pieces();
        let mut state = self.shared.lock();
        while state.flight.len() >= state.limit && !state.stop {
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
            // A panic of the work is caught inside the thread.
            let _ = encoder.join();
        }
        self.appender.take().and_then(|appender| appender.join().ok().flatten())
    }
}

impl<E: Encoder> Drop for Pipeline<E> {
    fn drop(&mut self) {
        if self.appender.is_some() {
            self.shared.lock().stop = true;
            self.join();
        }
    }
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
        // What nobody will take any more.
        state.pieces.clear();
        drop(state);
        self.queued.notify_all();
        self.encoded.notify_all();
        self.written.notify_all();
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
                state = wait(&self.encoded, state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    /// Writes the number of every batch and piece; goes wrong where it is told to.
    #[derive(Default)]
    struct Toy {
        panic_at: Option<usize>,
        fail_at: Option<usize>,
        fail_append: Option<usize>,
        slow_append: bool,
        most_alive: AtomicUsize,
        alive: Arc<AtomicUsize>,
    }

    /// A batch that is counted while it is anywhere in the pipeline.
    struct Counted(usize, Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn error(text: &str) -> crate::Error {
        super::super::target::refused("toy", "written", std::io::Error::other(text))
    }

    impl Encoder for Toy {
        type Batch = usize;
        type Part = (Counted, usize);
        type File = Vec<(usize, usize)>;

        fn pieces(&self) -> usize {
            3
        }

        fn encode(&self, batch: &usize, number: usize, piece: usize) -> Result<Self::Part> {
            assert_eq!(*batch, number);
            if self.panic_at == Some(number) {
                panic!("toy {number}");
            }
            if self.fail_at == Some(number) {
                return Err(error("encode"));
            }
            // Pieces overtake each other.
            thread::sleep(Duration::from_micros((number * 7 + piece * 13) as u64 % 40 * 10));
            let alive = self.alive.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_alive.fetch_max(alive, Ordering::SeqCst);
            Ok((Counted(number, Arc::clone(&self.alive)), piece))
        }

        fn append(&self, file: &mut Self::File, parts: Vec<Self::Part>) -> Result<()> {
            if self.slow_append {
                thread::sleep(Duration::from_millis(2));
            }
            if self.fail_append == Some(parts[0].0.0) {
                return Err(error("append"));
            }
            file.extend(parts.iter().map(|(batch, piece)| (batch.0, *piece)));
            Ok(())
        }
    }

    fn run(toy: Toy, batches: usize) -> Result<Vec<(usize, usize)>> {
        let mut pipeline = Pipeline::start(toy, Vec::new(), 4, 5);
        for batch in 0..batches {
            pipeline.push(batch)?;
        }
        pipeline.finish()
    }

    #[test]
    fn parts_are_written_in_order() {
        for batches in [0, 1, 5, 200] {
            let written = run(Toy::default(), batches).unwrap();
            assert!(written.into_iter().eq((0..batches).flat_map(|b| (0..3).map(move |p| (b, p)))));
        }
    }

    #[test]
    fn a_slow_file_holds_the_caller_back() {
        let alive = Arc::new(AtomicUsize::new(0));
        let toy = Toy { slow_append: true, alive: Arc::clone(&alive), ..Toy::default() };
        let mut pipeline = Pipeline::start(toy, Vec::new(), 4, 5);
        for batch in 0..60 {
            pipeline.push(batch).unwrap();
        }
        let shared = Arc::clone(&pipeline.shared);
        assert_eq!(pipeline.finish().unwrap().len(), 180);
        let most = shared.encoder.most_alive.load(Ordering::SeqCst);
        assert!(most <= 5 * 3, "{most} parts at once");
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn the_first_failure_comes_back_wherever_it_happens() {
        for at in [0, 17, 59] {
            let fail_at = Toy { fail_at: Some(at), ..Toy::default() };
            assert!(run(fail_at, 60).unwrap_err().to_string().contains("encode"));
            let fail_append = Toy { fail_append: Some(at), ..Toy::default() };
            assert!(run(fail_append, 60).unwrap_err().to_string().contains("append"));
            let panic_at = Toy { panic_at: Some(at), ..Toy::default() };
            let panic = catch_unwind(AssertUnwindSafe(|| run(panic_at, 60))).unwrap_err();
            assert_eq!(panic.downcast_ref::<String>(), Some(&format!("toy {at}")));
        }
    }

    #[test]
    fn after_a_failure_every_call_fails() {
        let toy = Toy { fail_at: Some(0), ..Toy::default() };
        let mut pipeline = Pipeline::start(toy, Vec::new(), 2, 2);
        let first = (0..9).find_map(|batch| pipeline.push(batch).err());
        assert!(first.unwrap().to_string().contains("encode"));
        assert!(pipeline.push(9).unwrap_err().to_string().contains("failed before"));
        assert!(pipeline.finish().is_err());
    }

    #[test]
    fn dropped_early_it_ends_its_threads() {
        let alive = Arc::new(AtomicUsize::new(0));
        let toy = Toy { slow_append: true, alive: Arc::clone(&alive), ..Toy::default() };
        let mut pipeline = Pipeline::start(toy, Vec::new(), 4, 5);
        for batch in 0..20 {
            pipeline.push(batch).unwrap();
        }
        drop(pipeline);
        assert_eq!((alive.load(Ordering::SeqCst), Arc::strong_count(&alive)), (0, 1));
    }
}
