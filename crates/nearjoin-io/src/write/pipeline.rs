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
    /// Starts `threads` encoders, with at most `limit` batches in flight.
    ///
    /// # Errors
    /// If the system refuses a thread. Those that were started are ended.
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
        for _ in 0..threads.max(1) {
            let shared = Arc::clone(&pipeline.shared);
            let encode = move || shared.guard(Shared::encode_pieces).unwrap_or(());
            pipeline.encoders.push(spawn("encoder", encode)?);
        }
        let shared = Arc::clone(&pipeline.shared);
        let append = move || shared.guard(|shared| shared.append_batches(file)).flatten();
        pipeline.appender = Some(spawn("appender", append)?);
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
    thread.map_err(|error| super::target::refused("the result", "written", error))
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
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Writes the number of every batch and piece; goes wrong where it is told to.
    #[derive(Default)]
    struct Toy {
        panic_at: Option<usize>,
        fail_at: Option<usize>,
        fail_append: Option<usize>,
        panic_append: Option<usize>,
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
            if self.panic_append == Some(parts[0].0.0) {
                panic!("toy file {}", parts[0].0.0);
            }
            file.extend(parts.iter().map(|(batch, piece)| (batch.0, *piece)));
            Ok(())
        }
    }

    fn start(toy: Toy, threads: usize, limit: usize) -> Pipeline<Toy> {
        Pipeline::start(toy, Vec::new(), threads, limit).unwrap()
    }

    fn run(toy: Toy, batches: usize) -> Result<Vec<(usize, usize)>> {
        let mut pipeline = start(toy, 4, 5);
        for batch in 0..batches {
            pipeline.push(batch)?;
        }
        pipeline.finish()
    }

    /// What some work returns, or its panic; the test fails if the work waits for ever.
    fn in_time<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> thread::Result<R> {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(catch_unwind(AssertUnwindSafe(work))));
        receiver.recv_timeout(Duration::from_secs(60)).expect("it waits for ever")
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
        let mut pipeline = start(toy, 4, 5);
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
            let panic = in_time(move || run(panic_at, 60)).unwrap_err();
            assert_eq!(panic.downcast_ref::<String>(), Some(&format!("toy {at}")));
            let panic_append = Toy { panic_append: Some(at), ..Toy::default() };
            let panic = in_time(move || run(panic_append, 60)).unwrap_err();
            assert_eq!(panic.downcast_ref::<String>(), Some(&format!("toy file {at}")));
        }
    }

    /// Toys that go wrong at a batch, each in its own way.
    fn broken(at: usize, slow_append: bool) -> [Toy; 4] {
        let at = Some(at);
        [
            Toy { fail_at: at, slow_append, ..Toy::default() },
            Toy { panic_at: at, slow_append, ..Toy::default() },
            Toy { fail_append: at, slow_append, ..Toy::default() },
            Toy { panic_append: at, slow_append, ..Toy::default() },
        ]
    }

    /// One batch in flight: the caller waits in every `push`, also when the failure comes.
    #[test]
    fn a_failure_wakes_a_caller_that_waits() {
        for threads in [1, 3] {
            for toy in broken(7, true) {
                let ended = in_time(move || {
                    let mut pipeline = start(toy, threads, 1);
                    (0..60).try_for_each(|batch| pipeline.push(batch))
                });
                assert!(!matches!(ended, Ok(Ok(()))), "{threads} threads");
            }
        }
    }

    /// The failure may come before, while or after the pipeline is dropped or finished.
    #[test]
    fn a_broken_pipeline_can_be_ended_at_any_time() {
        for pushed in 0..12 {
            for finish in [false, true] {
                for toy in broken(3, pushed % 2 == 0) {
                    let ended = in_time(move || {
                        let mut pipeline = start(toy, 2, 4);
                        (0..pushed).try_for_each(|batch| pipeline.push(batch))?;
                        if finish { pipeline.finish().map(drop) } else { Ok(()) }
                    });
                    if finish {
                        assert_eq!(matches!(ended, Ok(Ok(()))), pushed <= 3, "{pushed} pushed");
                    }
                }
            }
        }
    }

    #[test]
    fn a_caller_that_panics_ends_the_threads() {
        let alive = Arc::new(AtomicUsize::new(0));
        let toy = Toy { slow_append: true, alive: Arc::clone(&alive), ..Toy::default() };
        let panic = in_time(move || {
            let mut pipeline = start(toy, 4, 5);
            (0..20).try_for_each(|batch| pipeline.push(batch)).unwrap();
            panic!("the caller");
        });
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"the caller"));
        assert_eq!((alive.load(Ordering::SeqCst), Arc::strong_count(&alive)), (0, 1));
    }

    #[test]
    fn after_a_failure_every_call_fails() {
        let toy = Toy { fail_at: Some(0), ..Toy::default() };
        let mut pipeline = start(toy, 2, 2);
        let first = (0..9).find_map(|batch| pipeline.push(batch).err());
        assert!(first.unwrap().to_string().contains("encode"));
        assert!(pipeline.push(9).unwrap_err().to_string().contains("failed before"));
        assert!(pipeline.finish().is_err());
    }

    #[test]
    fn dropped_early_it_ends_its_threads() {
        let alive = Arc::new(AtomicUsize::new(0));
        let toy = Toy { slow_append: true, alive: Arc::clone(&alive), ..Toy::default() };
        let mut pipeline = start(toy, 4, 5);
        for batch in 0..20 {
            pipeline.push(batch).unwrap();
        }
        drop(pipeline);
        assert_eq!((alive.load(Ordering::SeqCst), Arc::strong_count(&alive)), (0, 1));
    }
}
