//! Models of the queue that the CPU and a GPU share: `exec/queue.rs` of nearjoin, compiled with the
//! locks of loom, which tries every order in which threads may meet.
//!
//! A model is a few units and a few takers. Loom says so if any order of events ends in a panic, or
//! if threads wait for each other for ever.

mod exec;

use exec::queue::Deque;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;

/// How often each unit was done.
type Done = Arc<Vec<AtomicUsize>>;

fn done(units: usize) -> Done {
    Arc::new((0..units).map(|_| AtomicUsize::new(0)).collect())
}

/// Tries every order of events in which no more than three times a thread is interrupted that could
/// go on: more find nothing new in so few lines, and take minutes.
fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(run);
}

fn note(done: &Done, units: std::ops::Range<usize>) {
    for unit in units {
        done[unit].fetch_add(1, Relaxed);
    }
}

/// A light taker that does all it can get.
fn light(deque: &Arc<Deque>, done: &Done) -> thread::JoinHandle<()> {
    let (deque, done) = (deque.clone(), done.clone());
    thread::spawn(move || {
        while let Some(unit) = deque.take_light() {
            note(&done, unit..unit + 1);
        }
    })
}

/// Every unit was done once.
fn check(done: &Done) {
    for (unit, times) in done.iter().enumerate() {
        assert_eq!(times.load(Relaxed), 1, "unit {unit}");
    }
}

/// A heavy and a light taker meet in the middle, and every unit is done once.
pub fn both_ends_meet() {
    model(|| {
        let (deque, done) = (Arc::new(Deque::new(3)), done(3));
        let other = light(&deque, &done);
        while let Some(lent) = deque.take_heavy(|_| 1) {
            note(&done, lent.units());
            lent.done();
        }
        other.join().unwrap();
        check(&done);
    });
}

/// A heavy taker fails at its first batch, whatever is left then: light ones do all of it, and end.
pub fn what_fails_is_done_by_others() {
    model(|| {
        let (deque, done) = (Arc::new(Deque::new(2)), done(2));
        let others = [light(&deque, &done), light(&deque, &done)];
        drop(deque.take_heavy(|left| left.len()));
        deque.abandon();
        others.into_iter().for_each(|other| other.join().unwrap());
        check(&done);
    });
}

/// Behind a wall a heavy taker does one unit and fails at the next.
pub fn a_wall_falls_when_its_owner_fails() {
    model(|| {
        let (deque, done) = (Arc::new(Deque::walled(4, 3)), done(4));
        let other = light(&deque, &done);
        if let Some(lent) = deque.take_heavy(|_| 1) {
            note(&done, lent.units());
            lent.done();
        }
        drop(deque.take_heavy(|_| 1));
        deque.abandon();
        other.join().unwrap();
        check(&done);
    });
}

/// Two heavy takers, one of which fails while the other goes on.
pub fn one_of_two_streams_fails() {
    model(|| {
        let (deque, done) = (Arc::new(Deque::new(3)), done(3));
        let failing = {
            let deque = deque.clone();
            thread::spawn(move || {
                drop(deque.take_heavy(|_| 1));
                deque.abandon();
            })
        };
        let other = light(&deque, &done);
        if let Some(lent) = deque.take_heavy(|_| 1) {
            note(&done, lent.units());
            lent.done();
        }
        failing.join().unwrap();
        other.join().unwrap();
        check(&done);
    });
}

/// A queue that is closed lets nobody wait, and nothing is done twice.
pub fn a_closed_queue_ends() {
    model(|| {
        let (deque, done) = (Arc::new(Deque::new(3)), done(3));
        let others = [light(&deque, &done), light(&deque, &done)];
        let lent = deque.take_heavy(|_| 2);
        deque.close();
        drop(lent);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(done.iter().all(|times| times.load(Relaxed) <= 1));
    });
}
