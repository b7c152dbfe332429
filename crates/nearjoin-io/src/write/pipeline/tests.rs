//! Batches that arrive in order, and threads that fail.

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
