//! The KNN-join on a GPU, against the oracle or the CPU.

use std::sync::Arc;

use nearjoin::gpu::{GpuOptions, Knobs};
use nearjoin::{Device, KnnJoin, Metric, Neighbors, Points, PointsBuf, Scalar, Strategy};
use nearjoin_simt::Simt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{gpu, knobs, real};
use crate::data::Data;
use crate::knn::{DISTRIBUTIONS, Rows, check, truth};

/// Strategies that can be named on a GPU.
const NAMED: [Strategy; 2] = [Strategy::Tree, Strategy::Brute];

fn on_gpu(k: usize) -> KnnJoin {
    KnnJoin::new(k).device(Device::Gpu).gpu(gpu())
}

/// Options for the device that is tested, with some of them changed.
fn with(change: impl FnOnce(&mut Knobs)) -> GpuOptions {
    let mut knobs = knobs();
    change(&mut knobs);
    GpuOptions::new().knobs(knobs)
}

/// Ways to go about it that have little in common.
fn ways() -> Vec<(&'static str, GpuOptions)> {
    vec![
        ("auto", gpu()),
        ("small batches", gpu().batch_bytes(600).chunk_bytes(256)),
        ("in order", with(|knobs| knobs.in_order = Some(true))),
        ("as found", with(|knobs| knobs.in_order = Some(false))),
        ("partitions", with(|knobs| knobs.partitions = Some(3))),
    ]
}

/// Checks one distribution in dimensions that have kernels of their own, and beyond. Which metric,
/// k, strategy, way and sets go together, chance says.
fn distribution<T: Scalar>(data: Data) {
    let (ways, chance) = (ways(), &mut StdRng::seed_from_u64(data as u64));
    for dim in [1, 2, 3, 4, 6, 7, 9] {
        let left = data.points::<T>(130, dim, 1);
        let right = data.points::<T>(300, dim, 2);
        let (left, right) = (left.as_points(), right.as_points());
        let strategy = NAMED[chance.random_range(0..2)];
        let metric = Metric::ALL[chance.random_range(0..3)];
        let k = [1, 5, 8, 13, 16, 27, 32, 40, 70][chance.random_range(0..9)];
        let (way, gpu) = &ways[chance.random_range(0..ways.len())];
        let join = on_gpu(k).gpu(gpu.clone()).metric(metric).strategy(strategy).pad(true);
        let context = format!("{data:?} {} {dim}-D {metric} k={k} {strategy}, {way}", T::NAME);
        match chance.random_range(0..3) {
            2 => {
                let expected = truth(&left, Some(&right), k, metric, false);
                check(&join, &left, Some(&right), &expected, &context);
            }
            of => {
                let expected = truth(&left, None, k, metric, of == 1);
                check(&join.include_self(of == 1), &left, None, &expected, &context);
            }
        }
    }
}

#[test]
fn every_distribution_in_f32() {
    DISTRIBUTIONS.into_iter().for_each(distribution::<f32>);
}

#[test]
fn every_distribution_in_f64() {
    DISTRIBUTIONS.into_iter().for_each(distribution::<f64>);
}

/// The answer of the CPU: the oracle would take too long.
fn on_cpu<T: Scalar>(join: &KnnJoin, points: &Points<'_, T>) -> Neighbors<T> {
    let mut neighbors = Neighbors::new();
    let join = join.clone().device(Device::Cpu).gpu(GpuOptions::new());
    join.plan_self(points).unwrap().run(&mut neighbors).unwrap();
    neighbors
}

fn check_large<T: Scalar>(join: &KnnJoin, points: &PointsBuf<T>, context: &str) {
    let points = points.as_points();
    let expected = on_cpu(join, &points);
    let mut found = Neighbors::new();
    let plan = join.plan_self(&points).expect(context);
    plan.run(&mut found).expect(context);
    assert!(found == expected, "{context}");
}

/// Points of many nodes, which space is split for.
#[test]
fn many_nodes() {
    for (data, dim, k) in [
        (Data::Uniform, 2, 8),
        (Data::Exponential, 3, 20),
        (Data::Clustered, 2, 5),
        (Data::Lattice, 2, 8),
        (Data::Duplicates, 2, 3),
        (Data::Piles, 3, 10),
        (Data::Collinear, 6, 8),
        (Data::HugeOffset, 2, 4),
        (Data::Uniform, 9, 4),
    ] {
        let n = if real() { 300_000 } else { 6000 };
        let context = format!("{data:?} {dim}-D k={k}");
        let join = on_gpu(k).strategy(Strategy::Tree);
        check_large(&join, &data.points::<f32>(n, dim, 3), &context);
    }
    let points = Data::Sphere.points::<f64>(6000, 3, 5);
    check_large(&on_gpu(9).strategy(Strategy::Tree), &points, "sphere");
}

/// Splits of splits: more points than one sample is split for.
#[test]
fn a_tree_of_two_samples() {
    let n = if real() { 3_000_000 } else { 140_000 };
    let points = Data::Exponential.points::<f32>(n, 2, 8);
    let points = points.as_points();
    let some: Vec<u32> = (0..400).map(|i| i * (n as u32 / 400)).collect();
    let run = |join: KnnJoin| {
        let mut neighbors = Neighbors::new();
        let plan = join.strategy(Strategy::Tree).plan_self(&points).unwrap();
        plan.index().unwrap().run_some(&some, &mut neighbors).unwrap();
        neighbors
    };
    assert!(run(on_gpu(8)) == run(KnnJoin::new(8).device(Device::Cpu)));
}

#[test]
fn a_largest_distance_and_too_few_points() {
    let points = Data::Uniform.points::<f32>(400, 2, 6);
    let points = points.as_points();
    for strategy in NAMED {
        for k in [3, 40] {
            let cap = 4.0;
            let all = truth(&points, None, k, Metric::L2, false);
            let near = |row: &Vec<(u32, u64)>| {
                row.iter().copied().filter(|(_, d)| f64::from_bits(*d) <= cap).collect()
            };
            let within: Rows = all.iter().map(near).collect();
            let join = on_gpu(k).strategy(strategy).max_distance(cap);
            check(&join, &points, None, &within, &format!("cap, k={k} {strategy}"));
            let few = points.rows(0..7);
            let expected = truth(&few, None, k, Metric::L2, false);
            let join = on_gpu(k).strategy(strategy).pad(true);
            check(&join, &few, None, &expected, &format!("7 points, k={k} {strategy}"));
        }
    }
}

#[test]
fn a_k_of_thousands() {
    let points = Data::Uniform.points::<f32>(6000, 2, 4);
    let points = points.as_points();
    let few = points.rows(0..12);
    let k = 5000;
    let expected = truth(&few, Some(&points), k, Metric::L2, false);
    for strategy in NAMED {
        let join = on_gpu(k).strategy(strategy);
        check(&join, &few, Some(&points), &expected, &format!("k={k} {strategy}"));
    }
    let points = Data::Lattice.points::<f64>(3000, 2, 4);
    let points = points.as_points();
    let few = points.rows(0..8);
    let expected = truth(&few, Some(&points), 2500, Metric::L2, false);
    check(&on_gpu(2500), &few, Some(&points), &expected, "k=2500 of a lattice");
}

/// Memory that the device has not: batches are made smaller, and candidates searched in parts.
#[test]
fn little_memory() {
    let points = Data::Uniform.points::<f32>(2000, 2, 6);
    for (memory, parts) in [(64 << 20, false), (10 << 20, true)] {
        let simt = Simt::new().lazy().memory(memory);
        let knobs = Knobs { driver: Some(Arc::new(simt.clone())), ..Knobs::default() };
        let join = on_gpu(60).strategy(Strategy::Tree).gpu(GpuOptions::new().knobs(knobs));
        let expected = on_cpu(&join, &points.as_points());
        let mut found = Neighbors::new();
        let plan = join.plan_self(&points.as_points()).unwrap();
        let gpu = plan.run(&mut found).unwrap().gpu.unwrap();
        assert!(found == expected, "{memory} bytes");
        assert_eq!(gpu.partitions > 1, parts, "{gpu:?}");
        assert!(simt.counts().peak <= memory, "{:?}", simt.counts());
    }
}

/// A receiver that is run again uses its arrays again, whatever was in them.
#[test]
fn arrays_are_used_again() {
    let (one, other) = (Data::Uniform.points::<f32>(300, 2, 1), Data::Piles.points(300, 2, 2));
    let mut found = Neighbors::new();
    for points in [&one, &other] {
        let plan = on_gpu(4).plan_self(&points.as_points());
        plan.unwrap().run(&mut found).unwrap();
        assert!(found == on_cpu(&KnnJoin::new(4), &points.as_points()));
    }
}
