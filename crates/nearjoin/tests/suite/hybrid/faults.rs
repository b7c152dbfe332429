//! A GPU that is lost in the middle of a join, at every call in turn: the CPU finishes, the answer is
//! right, and what happened is told.
//!
//! Faults are of three kinds: memory that is refused, a launch that is refused, and the device that
//! is lost at any call. Together the tests here inject some ten thousand and more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use nearjoin::gpu::{GpuOptions, Knobs};
use nearjoin::{Device, EpsJoin, Partitioning, PointsBuf, Stats, Strategy};
use nearjoin_simt::Simt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::slowed;
use crate::check::on_one_thread;
use crate::data::Data;
use crate::gpu::faults::{ALL, Answer, Asked};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Allocation,
    Pin,
    Launch,
    Lost,
}

pub(super) const KINDS: [Kind; 4] = [Kind::Allocation, Kind::Pin, Kind::Launch, Kind::Lost];

impl Kind {
    /// How many there are to go wrong.
    pub(super) fn number(self, clean: &Simt) -> u64 {
        let counts = clean.counts();
        match self {
            Kind::Allocation => counts.allocations,
            Kind::Pin => counts.pins,
            Kind::Launch => counts.submitted,
            Kind::Lost => counts.calls,
        }
    }

    pub(super) fn inject(self, n: u64) -> Simt {
        let simt = Simt::new().lazy();
        match self {
            Kind::Allocation => simt.fail_allocation(n),
            Kind::Pin => simt.fail_pin(n),
            Kind::Launch => simt.refuse_launch(n),
            Kind::Lost => simt.lose_at_call(n),
        }
    }

    /// Whether it has gone wrong.
    pub(super) fn happened(self, simt: &Simt, n: u64) -> bool {
        self.number(simt) >= n
    }
}

/// A join in which a GPU has a part.
struct Trial {
    name: &'static str,
    points: PointsBuf<f32>,
    eps: f64,
    device: Device,
    partitioning: Partitioning,
    listed: bool,
    gpu: GpuOptions,
}

impl Trial {
    fn new(name: &'static str, device: Device, partitioning: Partitioning, listed: bool) -> Self {
        let (points, gpu) = (Data::Uniform.points(90, 2, 5), GpuOptions::new());
        Trial { name, points, eps: 12.0, device, partitioning, listed, gpu }
    }

    fn join(&self, simt: &Simt) -> EpsJoin {
        let knobs = Knobs {
            driver: Some(Arc::new(simt.clone())),
            listed: Some(self.listed),
            // The GPU does most of it, or leads.
            calibration: Some(slowed(1e-4)),
            ..Knobs::default()
        };
        EpsJoin::new(self.eps)
            .strategy(Strategy::Grid)
            .device(self.device)
            .rescue(true)
            .partitioning(self.partitioning)
            .gpu(self.gpu.clone().knobs(knobs))
    }

    fn right(&self, asked: Asked) -> Answer {
        let join = EpsJoin::new(self.eps).device(Device::Cpu);
        asked.join(&join, &self.points.as_points()).unwrap().0
    }

    /// Joins on a device with a fault: the answer is right, everything is given back, and a loss is
    /// told.
    fn check(&self, simt: &Simt, asked: Asked, expected: &Answer, context: &str) -> Stats {
        let joined = asked.join(&self.join(simt), &self.points.as_points());
        let (answer, stats) = joined.unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(answer, *expected, "{context}");
        assert_eq!(simt.leaks(), [""; 0], "{context}: not given back");
        stats
    }
}

/// Ways to lose a GPU: leading or sharing, in batches or not.
fn trials() -> Vec<Trial> {
    let mut batches = Trial::new("batches", Device::Gpu, Partitioning::Auto, false);
    batches.gpu = GpuOptions::new().batch_bytes(500).chunk_bytes(128);
    vec![
        Trial::new("led, counted", Device::Gpu, Partitioning::Auto, false),
        Trial::new("led, listed", Device::Hybrid, Partitioning::Auto, true),
        batches,
        Trial::new("dyn", Device::Hybrid, Partitioning::Dyn, false),
        Trial::new("queries", Device::Hybrid, Partitioning::StaticQueries, true),
        Trial::new("candidates", Device::Hybrid, Partitioning::StaticCandidates, false),
    ]
}

/// Goes through faults of a kind, of every join and every sink: each of them, or some.
fn faults(kind: Kind, some: Option<u64>) {
    let injected = AtomicUsize::new(0);
    let mut told = 0;
    on_one_thread(|| {
        let chance = &mut StdRng::seed_from_u64(kind as u64);
        for trial in trials() {
            for asked in ALL {
                let expected = trial.right(asked);
                let clean = Simt::new().lazy();
                trial.check(&clean, asked, &expected, trial.name);
                let number = kind.number(&clean);
                assert!(number > 0, "{}, {asked:?}", trial.name);
                let each = 1..=number;
                let drawn = (0..some.unwrap_or(0)).map(|_| chance.random_range(1..=number));
                let which: Vec<u64> = if some.is_some() { drawn.collect() } else { each.collect() };
                for n in which {
                    let context = format!("{}, {asked:?}, {kind:?} {n} of {number}", trial.name);
                    let simt = kind.inject(n);
                    let stats = trial.check(&simt, asked, &expected, &context);
                    if !kind.happened(&simt, n) {
                        // Threads of the CPU were faster this time.
                        continue;
                    }
                    injected.fetch_add(1, Relaxed);
                    let lost = stats.hybrid.as_ref().and_then(|hybrid| hybrid.lost.as_ref());
                    told += usize::from(lost.is_some());
                    if let Some(lost) = lost {
                        assert!(
                            !lost.reason.is_empty() && lost.queries <= 180,
                            "{context}: {lost}"
                        );
                        assert!(stats.to_string().contains("the gpu was lost ("), "{context}");
                    }
                }
            }
        }
    });
    let injected = injected.into_inner();
    println!("{kind:?}: {injected} injected, {told} lost the device");
    // Memory that is refused may be done without; all else ends the work of the device.
    assert!(told > 0 && injected > 100, "{kind:?}: {injected}, {told}");
}

#[test]
fn any_memory_may_be_refused() {
    faults(Kind::Allocation, None);
    faults(Kind::Pin, None);
}

#[test]
fn any_launch_may_be_refused() {
    faults(Kind::Launch, None);
}

#[test]
fn the_device_may_be_lost_at_any_call() {
    faults(Kind::Lost, None);
}

/// The same again, where chance says when: threads meet in another order each time.
#[test]
fn whenever_it_is_lost() {
    for kind in KINDS {
        faults(kind, Some(40));
    }
}

/// A device that is lost before it has an index leaves everything to the CPU.
#[test]
fn a_device_that_is_lost_at_once() {
    for trial in trials() {
        let simt = Simt::new();
        simt.lose();
        let expected = trial.right(Asked::Csr);
        let joined = asked_of(&trial, &simt);
        assert_eq!(joined.0, expected, "{}", trial.name);
    }
}

fn asked_of(trial: &Trial, simt: &Simt) -> (Answer, Stats) {
    Asked::Csr.join(&trial.join(simt), &trial.points.as_points()).unwrap()
}

/// Rows that were delivered before the loss are not delivered again: of larger joins, with rows in
/// order, with distances, and with each pair once.
#[test]
fn the_rest_is_what_was_not_delivered() {
    let points = Data::Clustered.points::<f32>(700, 3, 5);
    for (device, partitioning) in [
        (Device::Gpu, Partitioning::Auto),
        (Device::Hybrid, Partitioning::Dyn),
        (Device::Hybrid, Partitioning::StaticCandidates),
    ] {
        for listed in [false, true] {
            let mut trial = Trial::new("large", device, partitioning, listed);
            (trial.points, trial.eps) = (points.clone(), 3.0);
            trial.gpu = GpuOptions::new().batch_bytes(4000).chunk_bytes(1000);
            for asked in ALL {
                let expected = trial.right(asked);
                let clean = Simt::new().lazy();
                trial.check(&clean, asked, &expected, "clean");
                let calls = clean.counts().calls;
                for part in 1..12 {
                    let n = calls * part / 12;
                    let context = format!("{device} {partitioning} {listed} {asked:?} at {n}");
                    trial.check(
                        &Simt::new().lazy().lose_at_call(n.max(1)),
                        asked,
                        &expected,
                        &context,
                    );
                }
            }
        }
    }
}
