//! The KNN-join on both processors: led by a GPU, or shared with it; and a GPU that is lost at every
//! call in turn.

use std::sync::Arc;

use nearjoin::gpu::{GpuOptions, Knobs};
use nearjoin::sink::{Count, Degrees};
use nearjoin::{Device, KnnJoin, Metric, Neighbors, Partitioning, PointsBuf, Scalar, Strategy};
use nearjoin_simt::Simt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::faults::{KINDS, Kind};
use super::{options, slowed};
use crate::data::Data;
use crate::knn::{DISTRIBUTIONS, check, truth};

/// Chance says which way to share, how fast the GPU is taken to be, and the rest.
fn distribution<T: Scalar>(data: Data) {
    let chance = &mut StdRng::seed_from_u64(data as u64 * 16 + size_of::<T>() as u64);
    for dim in [1, 2, 3, 6, 9] {
        let (left, right) = (data.points::<T>(200, dim, 1), data.points::<T>(150, dim, 2));
        let (left, right) = (left.as_points(), right.as_points());
        let metric = Metric::ALL[chance.random_range(0..3)];
        let k = [1, 8, 20, 40][chance.random_range(0..4)];
        let partitioning = Partitioning::ALL[chance.random_range(0..4)];
        let times = [1e-3, 1.0, 1e3][chance.random_range(0..3)];
        let strategies =
            [Strategy::Auto, Strategy::Tree, Strategy::Brute, Strategy::Grid, Strategy::Product];
        let strategy = strategies[chance.random_range(0..5)];
        let join = KnnJoin::new(k)
            .metric(metric)
            .strategy(strategy)
            .pad(true)
            .device(Device::Hybrid)
            .partitioning(partitioning)
            .gpu(options(times, |_| {}));
        let context = format!("{data:?} {dim}-D {metric} k={k} {strategy} {partitioning} {times}");
        if chance.random() {
            let expected = truth(&left, Some(&right), k, metric, false);
            check(&join, &left, Some(&right), &expected, &context);
        } else {
            check(&join, &left, None, &truth(&left, None, k, metric, false), &context);
        }
    }
}

#[test]
fn every_distribution() {
    for (number, data) in DISTRIBUTIONS.into_iter().enumerate() {
        if number % 2 == 0 { distribution::<f32>(data) } else { distribution::<f64>(data) }
    }
}

/// A join in which a GPU has a part.
struct Trial {
    name: &'static str,
    points: PointsBuf<f32>,
    k: usize,
    strategy: Strategy,
    partitioning: Partitioning,
    gpu: GpuOptions,
    parts: Option<usize>,
}

/// What is asked of it.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Dense,
    Count,
    Degrees,
}

impl Trial {
    fn join(&self, simt: &Simt) -> KnnJoin {
        let knobs = Knobs {
            driver: Some(Arc::new(simt.clone())),
            // The GPU does most of it, or leads.
            calibration: Some(slowed(1e-4)),
            partitions: self.parts,
            ..Knobs::default()
        };
        KnnJoin::new(self.k)
            .strategy(self.strategy)
            .device(Device::Hybrid)
            .partitioning(self.partitioning)
            .threads(2)
            .gpu(self.gpu.clone().knobs(knobs))
    }

    /// Joins on a device with a fault: the answer is that of the CPU, and everything is given back.
    fn check(&self, simt: &Simt, asked: Asked, context: &str) {
        let points = self.points.as_points();
        let plan = self.join(simt).plan_self(&points);
        let plan = plan.unwrap_or_else(|error| panic!("{context}: {error}"));
        let done = match asked {
            Asked::Dense => {
                let mut expected = Neighbors::new();
                let cpu = KnnJoin::new(self.k).device(Device::Cpu).threads(1);
                cpu.plan_self(&points).unwrap().run(&mut expected).unwrap();
                let mut found = Neighbors::new();
                let done = plan.run(&mut found);
                assert!(done.is_err() || found == expected, "{context}");
                done
            }
            Asked::Count => {
                let mut count = Count::new();
                let done = plan.run(&mut count);
                assert!(
                    done.is_err() || count.pairs() as usize == points.len() * self.k,
                    "{context}"
                );
                done
            }
            Asked::Degrees => {
                let mut degrees = Degrees::new();
                let done = plan.run(&mut degrees);
                let expected = vec![self.k as u64; points.len()];
                assert!(done.is_err() || degrees.as_slice() == expected, "{context}");
                done
            }
        };
        done.unwrap_or_else(|error| panic!("{context}: {error}"));
        drop(plan);
        assert_eq!(simt.leaks(), [""; 0], "{context}: not given back");
    }
}

/// Leading or sharing, down a tree or among all, in batches or at once, in parts.
fn trials() -> Vec<Trial> {
    let points = || Data::Uniform.points::<f32>(120, 2, 5);
    let small = GpuOptions::new().batch_bytes(2000).chunk_bytes(900);
    let trial = |name, strategy, partitioning| Trial {
        name,
        points: points(),
        k: 5,
        strategy,
        partitioning,
        gpu: GpuOptions::new(),
        parts: None,
    };
    let lead = |name| trial(name, Strategy::Tree, Partitioning::Auto);
    vec![
        lead("leads"),
        Trial { k: 16, gpu: small.clone(), ..lead("leads in batches") },
        Trial { k: 40, gpu: small.clone(), ..lead("leads, many neighbours") },
        Trial { parts: Some(2), ..lead("leads in parts") },
        trial("leads, all with all", Strategy::Brute, Partitioning::Auto),
        Trial { gpu: small, ..trial("shares", Strategy::Tree, Partitioning::Dyn) },
        trial("shares by queries", Strategy::Tree, Partitioning::StaticQueries),
    ]
}

#[test]
fn a_gpu_that_is_lost_at_any_call() {
    let mut faults = 0;
    for trial in trials() {
        for (kind, asked) in KINDS.into_iter().zip([Asked::Dense; 4]) {
            let clean = Simt::new().lazy();
            trial.check(&clean, asked, trial.name);
            for n in 1..=kind.number(&clean) {
                let simt = kind.inject(n);
                trial.check(&simt, asked, &format!("{}: {kind:?} {n}", trial.name));
                faults += u32::from(kind.happened(&simt, n));
            }
        }
    }
    assert!(faults > 500, "{faults} faults");
}

#[test]
fn counts_and_degrees_after_a_loss() {
    let trial = &trials()[0];
    for asked in [Asked::Count, Asked::Degrees] {
        let clean = Simt::new().lazy();
        trial.check(&clean, asked, "clean");
        for n in (1..=Kind::Lost.number(&clean)).step_by(5) {
            trial.check(&Kind::Lost.inject(n), asked, &format!("{asked:?}: lost at {n}"));
        }
    }
}

/// What both did is told, and adds up.
#[test]
fn both_tell_what_they_did() {
    let points = Data::Exponential.points::<f32>(3000, 2, 4);
    let join = KnnJoin::new(4)
        .device(Device::Hybrid)
        .partitioning(Partitioning::Dyn)
        .threads(2)
        .gpu(options(30.0, |_| {}));
    let plan = join.plan_self(&points.as_points()).unwrap();
    assert_eq!(plan.device(), Device::Hybrid);
    let stats = plan.run(&mut Neighbors::new()).unwrap();
    let hybrid = stats.hybrid.unwrap();
    let queries: u64 = hybrid.workers.iter().map(|worker| worker.queries).sum();
    assert_eq!(queries, 3000, "{hybrid}");
    assert!(hybrid.lost.is_none(), "{hybrid}");
}
