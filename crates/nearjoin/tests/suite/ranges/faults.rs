//! A GPU that is lost in the middle of a join by ranges, at every call in turn: the CPU finishes, or
//! it is an error; nothing comes twice.

use std::sync::Arc;

use nearjoin::gpu::{GpuOptions, Knobs};
use nearjoin::{
    Device, Error, KnnJoin, Metric, Neighbors, PointsBuf, RangesOptions, RangesStats, Result, Stats,
};
use nearjoin_simt::Simt;

use super::ranges;
use crate::check::on_one_thread;
use crate::data::Data;
use crate::knn::{Rows, dense, truth};

const K: usize = 4;

fn points() -> PointsBuf<f32> {
    Data::Exponential.points(220, 2, 5)
}

fn join(simt: &Simt, device: Device) -> KnnJoin {
    let knobs = Knobs { driver: Some(Arc::new(simt.clone())), ..Knobs::default() };
    // Half of the queries to the GPU at once, and several rounds.
    let options = RangesOptions::new().large(0.5).window(0.0).tail(0.1).eps_factor(0.7);
    ranges(K, device).ranges(options).gpu(GpuOptions::new().batch_bytes(400).knobs(knobs))
}

fn run(join: &KnnJoin, points: &PointsBuf<f32>) -> Result<(Rows, Stats)> {
    let mut neighbors = Neighbors::new();
    let stats = join.plan_self(&points.as_points())?.run(&mut neighbors)?;
    Ok((dense(&neighbors), stats))
}

/// Faults at every `step`-th place of a kind: how many were told as a loss.
fn faults(
    device: Device,
    number: impl Fn(&Simt) -> u64,
    inject: impl Fn(u64) -> Simt,
    step: usize,
) -> usize {
    let points = points();
    let expected = truth(&points.as_points(), None, K, Metric::L2, false);
    let clean = Simt::new().lazy();
    let (rows, stats) = run(&join(&clean, device), &points).unwrap();
    assert_eq!(rows, expected);
    // Beside the CPU, that may be faster than a second round.
    let again = |told: RangesStats| told.rounds > 1 && told.reindexed > 0;
    assert!(device == Device::Hybrid || stats.ranges.is_some_and(again));
    let mut lost = 0;
    for n in (1..=number(&clean)).step_by(step) {
        let simt = inject(n);
        let (rows, stats) = run(&join(&simt, device).rescue(true), &points)
            .unwrap_or_else(|error| panic!("{device}, {n}: {error}"));
        assert_eq!(rows, expected, "{device}, {n}");
        assert_eq!(simt.leaks(), [""; 0], "{device}, {n}: not given back");
        let told = stats.hybrid.as_ref().and_then(|hybrid| hybrid.lost.as_ref());
        lost += usize::from(told.is_some());
        if let Some(told) = told {
            assert!(!told.reason.is_empty() && told.queries <= 220, "{device}, {n}: {told}");
        }
    }
    lost
}

#[test]
fn a_device_lost_at_any_call() {
    on_one_thread(|| {
        for device in super::DEVICES {
            let lose = |n| Simt::new().lazy().lose_at_call(n);
            let lost = faults(device, |simt| simt.counts().calls, lose, 5);
            assert!(lost > 15, "{device}: {lost}");
        }
    });
}

#[test]
fn memory_or_a_launch_that_is_refused() {
    on_one_thread(|| {
        for device in super::DEVICES {
            let refuse = |n| Simt::new().lazy().fail_allocation(n);
            let lost = faults(device, |simt| simt.counts().allocations, refuse, 5);
            assert!(lost > 1, "{device}: {lost}");
            let refuse = |n| Simt::new().lazy().refuse_launch(n);
            let lost = faults(device, |simt| simt.counts().submitted, refuse, 5);
            assert!(lost > 1, "{device}: {lost}");
        }
    });
}

/// A GPU that was named, and nobody is to stand in for.
#[test]
fn without_rescue_a_loss_is_an_error() {
    let points = points();
    let expected = truth(&points.as_points(), None, K, Metric::L2, false);
    on_one_thread(|| {
        let clean = Simt::new().lazy();
        run(&join(&clean, Device::Gpu), &points).unwrap();
        let (mut lost, calls) = (0, clean.counts().calls);
        for n in (1..=calls).step_by(11) {
            let simt = Simt::new().lazy().lose_at_call(n);
            match run(&join(&simt, Device::Gpu), &points) {
                Err(Error::Device { .. }) => lost += 1,
                // When it gave back what it had, nothing more was asked of it.
                joined => assert_eq!(joined.map(|(rows, _)| rows), Ok(expected.clone()), "{n}"),
            }
        }
        assert!(lost > calls / 11 / 2, "{lost} of {calls}");
    });
}
