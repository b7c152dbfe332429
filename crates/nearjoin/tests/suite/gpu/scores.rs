//! The nearest by matrix products, whose sums err as much as the filter allows for.

use std::sync::Arc;

use nearjoin::gpu::{GpuOptions, Knobs};
use nearjoin::{Device, KnnJoin, Metric, Neighbors, PointsBuf, Scalar, Strategy};
use nearjoin_simt::Simt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::product::pressing;
use super::{distributions, gpu, knobs, real};
use crate::data::Data;
use crate::knn::{Rows, check, truth};

fn by_products(k: usize) -> KnnJoin {
    KnnJoin::new(k).device(Device::Gpu).gpu(gpu()).strategy(Strategy::Product)
}

/// The device that is tested, with lists of so much of the room that they should have.
fn with_lists_of(share: f64) -> GpuOptions {
    let mut knobs = knobs();
    knobs.estimate = Some(share);
    GpuOptions::new().knobs(knobs)
}

/// Ways to go about it that have little in common.
fn ways() -> Vec<(&'static str, GpuOptions)> {
    let mut parts = knobs();
    parts.partitions = Some(3);
    vec![
        ("auto", gpu()),
        ("short lists", with_lists_of(0.2)),
        ("lists without room", with_lists_of(0.0)),
        ("small batches", gpu().batch_bytes(600).chunk_bytes(256)),
        ("partitions", GpuOptions::new().knobs(parts)),
    ]
}

/// One distribution in dimensions of one step and of several, whole and not. Which k, way and sets go
/// together, chance says.
fn distribution<T: Scalar>(data: Data) {
    let ways = ways();
    let chance = &mut StdRng::seed_from_u64(data as u64 * 16 + size_of::<T>() as u64);
    for dim in [1, 3, 16, 50, 64, 100, 128, 150] {
        let left = data.points::<T>(140, dim, 1);
        let right = data.points::<T>(300, dim, 2);
        let (left, right) = (left.as_points(), right.as_points());
        let k = [1, 2, 5, 10, 20, 33, 60, 150][chance.random_range(0..8)];
        let (way, gpu) = &ways[chance.random_range(0..ways.len())];
        let join = by_products(k).gpu(gpu.clone()).pad(true);
        let context = format!("{data:?} {} {dim}-D k={k}, {way}", T::NAME);
        match chance.random_range(0..3) {
            2 => {
                let expected = truth(&left, Some(&right), k, Metric::L2, false);
                check(&join, &left, Some(&right), &expected, &context);
            }
            of => {
                let expected = truth(&left, None, k, Metric::L2, of == 1);
                check(&join.include_self(of == 1), &left, None, &expected, &context);
            }
        }
    }
}

distributions! {
    uniform: Uniform,
    exponential: Exponential,
    clustered: Clustered,
    lattice: Lattice,
    rough_lattice: RoughLattice,
    duplicates: Duplicates,
    collinear: Collinear,
    one_point: OnePoint,
    empty: Empty,
    huge_offset: HugeOffset,
    dense_ball: DenseBall,
    sphere: Sphere,
    piles: Piles,
}

fn adversarial<T: Scalar>() {
    for (name, rows) in pressing::<T>() {
        let points = PointsBuf::from_rows(&rows).unwrap();
        let points = points.as_points();
        for k in [1, 3, 9] {
            for (way, gpu) in [("auto", gpu()), ("short lists", with_lists_of(0.0))] {
                let expected = truth(&points, None, k, Metric::L2, false);
                let context = format!("{name} {} k={k}, {way}", T::NAME);
                check(&by_products(k).gpu(gpu), &points, None, &expected, &context);
            }
        }
    }
}

#[test]
fn what_presses_on_the_bound_f32() {
    adversarial::<f32>();
}

#[test]
fn what_presses_on_the_bound_f64() {
    adversarial::<f64>();
}

/// Lists are asked again by what is in them, and what scores cannot tell apart goes to brute force: as
/// few queries, and as all of them.
#[test]
fn lists_that_overflow() {
    let n = 700;
    let spread = Data::Uniform.points::<f32>(n, 20, 5);
    let mut some_equal = spread.as_points().as_slice().to_vec();
    some_equal[..200 * 20].fill(0.25);
    for (name, data, k, share, brute) in [
        ("spread", spread.as_points().as_slice().to_vec(), 5, 0.0, false),
        ("some equal", some_equal, 5, 0.3, true),
        ("equal", vec![0.25; n * 20], 5, 0.3, true),
    ] {
        let points = PointsBuf::from_vec(data, 20).unwrap();
        let points = points.as_points();
        let expected = truth(&points, None, k, Metric::L2, false);
        let simt = Simt::new().lazy();
        let knobs = Knobs { estimate: Some(share), ..knobs_of(&simt) };
        let join = by_products(k).gpu(GpuOptions::new().knobs(knobs));
        check(&join, &points, None, &expected, name);
        let stats = join.plan_self(&points).unwrap().run(&mut Neighbors::<f32>::new()).unwrap();
        assert!(stats.gpu.is_some_and(|gpu| gpu.splits > 0), "{name}");
        let brute_force = ("nearest_f32_0_squares".to_owned(), "nearest_brute".to_owned());
        if !real() {
            assert_eq!(!simt.kernels_not_run().contains(&brute_force), brute, "{name}");
        }
    }
}

fn knobs_of(simt: &Simt) -> Knobs {
    match real() {
        true => knobs(),
        false => Knobs { driver: Some(Arc::new(simt.clone())), ..Knobs::default() },
    }
}

/// A largest distance: rows are shorter, and lists too.
#[test]
fn a_largest_distance() {
    let points = Data::Uniform.points::<f32>(300, 10, 6);
    let points = points.as_points();
    for k in [3, 40] {
        let all = truth(&points, None, k, Metric::L2, false);
        let mut distances: Vec<f64> =
            all.iter().flatten().map(|(_, d)| f64::from_bits(*d)).collect();
        distances.sort_by(f64::total_cmp);
        let cap = distances[distances.len() / 3];
        let near = |row: &Vec<(u32, u64)>| {
            row.iter().copied().filter(|(_, d)| f64::from_bits(*d) <= cap).collect()
        };
        let within: Rows = all.iter().map(near).collect();
        check(&by_products(k).max_distance(cap), &points, None, &within, &format!("cap, k={k}"));
    }
}

/// Devices without matrix units, with units that round otherwise than they should, one that runs
/// backwards, and ones with little memory.
#[test]
fn other_devices() {
    if real() {
        return;
    }
    let points = Data::Clustered.points::<f32>(600, 140, 3);
    let points = points.as_points();
    let expected = truth(&points, None, 7, Metric::L2, false);
    for (simt, scored) in [
        (Simt::new().capability((7, 5)), false),
        (Simt::new().unit_error(4.0), false),
        (Simt::new().backwards(), true),
        (Simt::new().memory(12 << 20), true),
        (Simt::new().memory(4 << 20), true),
    ] {
        let join = by_products(7).gpu(GpuOptions::new().knobs(knobs_of(&simt)));
        let context = format!("{simt:?}");
        let mut found = Neighbors::new();
        join.plan_self(&points).unwrap().run(&mut found).expect(&context);
        assert_eq!(crate::knn::dense(&found), expected, "{context}");
        let measure = ("shortlist_f32".to_owned(), "measure".to_owned());
        assert_eq!(!simt.kernels_not_run().contains(&measure), scored, "{context}");
    }
}
