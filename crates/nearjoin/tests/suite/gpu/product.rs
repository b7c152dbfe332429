//! The ε-join by matrix products, whose sums err as much as the filter allows for.

use std::sync::Arc;

use nearjoin::gpu::driver::Driver;
use nearjoin::gpu::{GpuOptions, Knobs};
use nearjoin::sink::{Count, Degrees};
use nearjoin::{PointsBuf, Scalar, Strategy};
use nearjoin_simt::Simt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rayon::prelude::*;

use super::{distributions, gpu, knobs, real};
use crate::check::{self, Case};
use crate::data::Data;

/// Ways to go about a join by products.
fn ways() -> Vec<(&'static str, GpuOptions)> {
    let with = |change: &dyn Fn(&mut Knobs)| {
        let mut knobs = knobs();
        change(&mut knobs);
        GpuOptions::new().knobs(knobs)
    };
    vec![
        ("auto", gpu()),
        ("listed", with(&|knobs| knobs.listed = Some(true))),
        ("small lists", with(&|knobs| (knobs.listed, knobs.estimate) = (Some(true), Some(0.01)))),
        (
            "counted, small batches",
            with(&|knobs| knobs.listed = Some(false)).batch_bytes(600).chunk_bytes(256),
        ),
        ("partitions", with(&|knobs| knobs.partitions = Some(3))),
    ]
}

/// Every way, with one set, with and without itself, and two, in dimensions of one step and of several,
/// whole and not.
fn distribution<T: Scalar>(data: Data) {
    let ways = ways();
    let chance = &mut StdRng::seed_from_u64(data as u64 * 16 + size_of::<T>() as u64);
    for dim in [1, 3, 16, 50, 64, 100, 128, 150] {
        let left = data.points::<T>(140, dim, 1);
        let right = data.points::<T>(45, dim, 2);
        let (left, right) = (left.as_points(), right.as_points());
        let (way, gpu) = &ways[chance.random_range(0..ways.len())];
        let name = format!("{data:?} {} {dim}-D, {way}", T::NAME);
        let metric = nearjoin::Metric::L2;
        let case = match chance.random_range(0..3) {
            2 => Case::between(&name, left, right, data.eps(&left, &right, metric)),
            of => Case::within(&name, left, data.eps(&left, &left, metric)).include_self(of == 1),
        };
        let case = case.on(gpu);
        case.check_some(Strategy::Product, &case.oracle(), chance);
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
    near_miss: NearMiss,
    sphere: Sphere,
    piles: Piles,
}

/// Checks rows and counts by products against the oracle, for every ε that some pair is at, or just
/// not at.
fn check_at<T: Scalar>(name: &str, rows: &[Vec<T>]) {
    let points = PointsBuf::from_rows(rows).unwrap();
    let points = points.as_points();
    let all = Case::within(name, points, f64::MAX.min(T::MAX.to_f64())).oracle();
    let mut distances: Vec<f64> = all.bits.iter().map(|bits| f64::from_bits(*bits)).collect();
    distances.sort_by(f64::total_cmp);
    distances.dedup();
    let step = distances.len().div_ceil(4).max(1);
    for &eps in distances.iter().step_by(step) {
        for eps in [eps, T::from_f64(eps * (1.0 - 1.5 * T::UNIT_ROUNDOFF)).to_f64()] {
            if eps < 0.0 {
                continue;
            }
            let case = Case::within(format!("{name} {} at {eps:e}", T::NAME), points, eps);
            let case = case.on(&gpu());
            let (expected, context) = (case.oracle(), case.to_string());
            let plan = case.plan(&|join| join.strategy(Strategy::Product)).unwrap();
            check::check_plain_csr(&plan, &expected, &context);
            check::check_count(&plan, &expected, &context);
        }
    }
}

/// Points that press on the bound: what a product cancels, what 16 bits cannot tell apart, and what
/// they cannot hold.
pub(super) fn pressing<T: Scalar>() -> Vec<(&'static str, Vec<Vec<T>>)> {
    let chance = &mut StdRng::seed_from_u64(7);
    let mut random = |size: f64| size * (chance.random::<f64>() - 0.5);
    let mut cloud = |n: usize, dim: usize, at: &dyn Fn(usize) -> f64, size: f64| -> Vec<Vec<T>> {
        let mut row = |_| (0..dim).map(|j| T::from_f64(at(j) + random(size))).collect();
        (0..n).map(&mut row).collect()
    };
    // Two heaps on both sides of the centre: norms are huge beside every distance within one.
    let mut heaps = cloud(20, 33, &|j| if j % 2 == 0 { 1e3 } else { -1e3 }, 1e-2);
    heaps.extend(cloud(20, 33, &|j| if j % 2 == 0 { -1e3 } else { 1e3 }, 1e-2));
    let mut large = cloud(40, 20, &|_| 0.0, 1.0);
    large[3][7] = T::from_f64(3e4);
    let mut mixed = cloud(20, 20, &|_| 0.0, 1e-8);
    mixed.extend(cloud(20, 20, &|_| 0.0, 1e8));
    let lattice = |i: usize| (0..24).map(|j| T::from_f64(((i >> (j % 6)) & 1) as f64)).collect();
    vec![
        ("far away, close together", cloud(40, 40, &|_| 1e6, 1e-1)),
        ("two heaps", heaps),
        ("one large coordinate", large),
        ("tiny", cloud(40, 20, &|_| 0.0, 1e-35)),
        ("huge", cloud(40, 20, &|_| 0.0, 1e17)),
        ("of two sizes", mixed),
        ("corners", (0..64).map(lattice).collect()),
    ]
}

fn adversarial<T: Scalar>() {
    for (name, rows) in pressing::<T>() {
        check_at(name, &rows);
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

/// More pairs than the list of open ones has room for, where all are sure, and where all are open.
#[test]
fn lists_that_overflow() {
    let equal = vec![0.25f32; 20 * 500];
    // Equal to 16 bits beside some points that are far away, and different.
    let mut close: Vec<f32> = (0..20 * 500).map(|i| 1e-7 * (i % 977) as f32).collect();
    close.chunks_mut(20).step_by(12).for_each(|point| point[0] = 1e3);
    for (name, data, eps) in [("equal", equal, 0.1), ("close", close, 2.2e-4)] {
        let mut knobs = knobs();
        knobs.estimate = Some(1e-9);
        let points = PointsBuf::from_vec(data, 20).unwrap();
        let case = Case::within(name, points.as_points(), eps).on(&GpuOptions::new().knobs(knobs));
        let (expected, context) = (case.oracle(), case.to_string());
        assert!(expected.pairs() > 150_000, "{context}");
        let plan = case.plan(&|join| join.strategy(Strategy::Product)).unwrap();
        let mut count = Count::new();
        let stats = plan.run(&mut count).unwrap();
        assert_eq!(count.pairs(), expected.pairs(), "{context}");
        let splits = stats.gpu.map(|gpu| gpu.splits);
        // Sure pairs are counted, and need no list.
        assert_eq!(splits > Some(0), name == "close", "{context}");
        let stats = plan.run(&mut Degrees::new()).unwrap();
        assert!(stats.gpu.is_some_and(|gpu| gpu.splits > 0), "{context}");
        check::check_degrees(&plan, &expected, &context);
        check::check_plain_csr(&plan, &expected, &context);
    }
}

/// Points that are sent piece by piece, while those before them are multiplied; and in one stream, where there is
/// no room for the list of another.
#[test]
fn points_in_pieces() {
    let points = Data::Uniform.points::<f32>(1300, 17, 3);
    let points = points.as_points();
    let eps = Data::Uniform.eps(&points, &points, nearjoin::Metric::L2);
    let knobs = |simt: &Simt| {
        let mut knobs = knobs();
        if !real() {
            knobs.driver = Some(Arc::new(simt.clone()));
        }
        // Short lists: units of few tiles.
        (knobs.sent_at_once, knobs.estimate) = (Some(1), Some(0.0));
        knobs
    };
    let case = Case::within("in pieces", points, eps);
    let expected = case.oracle();
    let joins = |simt: Simt| {
        let case = case.clone().on(&GpuOptions::new().knobs(knobs(&simt)));
        let plan = case.plan(&|join| join.strategy(Strategy::Product)).unwrap();
        check::check_count(&plan, &expected, &format!("{simt:?}"));
        check::check_plain_csr(&plan, &expected, &format!("{simt:?}"));
        simt.counts().launches
    };
    let launches = joins(Simt::new().lazy());
    if real() {
        return;
    }
    let at_once = Simt::new().lazy();
    let whole = Knobs { sent_at_once: None, ..knobs(&at_once) };
    let whole = case.clone().on(&GpuOptions::new().knobs(whole));
    let plan = whole.plan(&|join| join.strategy(Strategy::Product)).unwrap();
    check::check_count(&plan, &expected, "at once");
    check::check_plain_csr(&plan, &expected, "at once");
    assert!(launches > at_once.counts().launches + 5, "{launches} {:?}", at_once.counts());
    let mut right = 0;
    for n in 1..=at_once.counts().allocations {
        let simt = Simt::new().lazy().fail_allocation(n);
        let case = case.clone().on(&GpuOptions::new().knobs(knobs(&simt)));
        let plan = case.plan(&|join| join.strategy(Strategy::Product)).unwrap();
        let mut count = Count::new();
        // Refused where nothing can be done without.
        if plan.run(&mut count).is_ok() {
            assert_eq!(count.pairs(), expected.pairs(), "refused at {n}");
            right += 1;
        }
    }
    // A list, which is made shorter then, and the one of the other stream.
    assert!(right >= 2, "{right}");
}

/// Several joins over one index at once, on threads of one pool: any of them may be the one that sends the
/// points, and threads of that pool may send them.
#[test]
fn joins_at_once() {
    let points = Data::Clustered.points::<f32>(128, 4096, 3);
    let points = points.as_points();
    let eps = Data::Clustered.eps(&points, &points, nearjoin::Metric::L2);
    let case = Case::within("at once", points, eps);
    let expected = case.oracle().pairs();
    let case = case.on(&GpuOptions::new().knobs(Knobs { sent_at_once: Some(1), ..knobs() }));
    let plan = case.plan(&|join| join.strategy(Strategy::Product)).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for _ in 0..2 {
        let index = plan.index().unwrap();
        let count = || {
            let mut count = Count::new();
            index.run(&mut count).unwrap();
            assert_eq!(count.pairs(), expected);
        };
        pool.install(|| (0..6).into_par_iter().with_max_len(1).for_each(|_| count()));
    }
}

/// Devices without matrix units, with units that round otherwise than they should, and one that runs
/// backwards.
#[test]
fn other_devices() {
    if real() {
        return;
    }
    let points = Data::Clustered.points::<f32>(300, 140, 3);
    let points = points.as_points();
    let eps = Data::Clustered.eps(&points, &points, nearjoin::Metric::L2);
    for (simt, by_products) in [
        (Simt::new().capability((7, 5)), false),
        (Simt::new().unit_error(4.0), false),
        (Simt::new().backwards(), true),
    ] {
        let knobs = Knobs { driver: Some(Arc::new(simt.clone())), ..Knobs::default() };
        let case = Case::within("device", points, eps).on(&GpuOptions::new().knobs(knobs));
        let plan = case.plan(&|join| join.strategy(Strategy::Product)).unwrap();
        let context = format!("{simt:?}: {plan}");
        check::check_plain_csr(&plan, &case.oracle(), &context);
        let stats = plan.run(&mut Count::new()).unwrap();
        let rounds_otherwise = simt.properties().capability >= (8, 0) && !by_products;
        let found = stats.gpu.as_ref().map(|gpu| gpu.brute_force);
        assert_eq!(found, Some(rounds_otherwise), "{context}");
        assert_eq!(stats.to_string().contains("by brute force"), rounds_otherwise, "{context}");
        assert_eq!(context.contains("no matrix units"), !by_products && !rounds_otherwise);
        let decide = ("decide_f32".to_owned(), "decide".to_owned());
        assert_eq!(!simt.kernels_not_run().contains(&decide), by_products, "{context}");
    }
}
