//! HybridKNN-Join against the oracle: every kind of points, on the GPU alone and beside the CPU; and
//! that its rounds are those of the paper. The GPU is emulated, or that of this machine where
//! `NEARJOIN_TEST_GPU` is set.

mod faults;

use std::ops::ControlFlow;
use std::sync::Arc;

use nearjoin::gpu::{GpuOptions, Knobs};
use nearjoin::sink::{Block, Callback, Count, CsrSink, Degrees};
use nearjoin::{
    Device, Error, KnnJoin, Metric, Monitor, Neighbors, Points, RangesOptions, RangesStats, Scalar,
    Stats, Strategy,
};
use nearjoin_simt::Simt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::check::{bits, on_one_thread};
use crate::data::Data;
use crate::gpu::gpu;
use crate::knn::{Rows, check, dense, truth};

const DEVICES: [Device; 2] = [Device::Gpu, Device::Hybrid];

/// A join by ranges on the device that is tested.
fn ranges(k: usize, device: Device) -> KnnJoin {
    KnnJoin::new(k).strategy(Strategy::Ranges).device(device).gpu(gpu())
}

fn run<T: Scalar>(join: &KnnJoin, points: &Points<'_, T>) -> (Rows, Stats) {
    let mut neighbors = Neighbors::new();
    let stats = join.plan_self(points).unwrap().run(&mut neighbors).unwrap();
    (dense(&neighbors), stats)
}

fn told(stats: &Stats) -> &RangesStats {
    let told = stats.ranges.as_ref().unwrap();
    assert_eq!(told.solved_by_gpu + told.solved_by_cpu, stats.points.0 as u64, "{told:?}");
    assert_eq!(told.attempted - told.failed, told.solved_by_gpu, "{told:?}");
    told
}

/// One set, with and without itself, and two, with and without a largest distance: chance says which
/// goes with which dimension and metric.
fn distribution<T: Scalar>(data: Data) {
    let chance = &mut StdRng::seed_from_u64(data as u64 * 16 + size_of::<T>() as u64);
    for dim in [1, 2, 3, 6, 9] {
        let left = data.points::<T>(150, dim, 1);
        let right = data.points::<T>(90, dim, 2);
        let (left, right) = (left.as_points(), right.as_points());
        for metric in Metric::ALL {
            let (device, k) = (DEVICES[chance.random_range(0..2)], [1, 4, 20, 100]);
            let k = k[chance.random_range(0..4)];
            let (of, factor) = (chance.random_range(0..4), [0.5, 1.0, 2.0]);
            let options = RangesOptions::new().eps_factor(factor[chance.random_range(0..3)]);
            let join = ranges(k, device).metric(metric).pad(true).ranges(options);
            let context = format!("{data:?} {} {dim}-D {metric} k={k} {device} {of}", T::NAME);
            let two = (of > 1).then_some(&right);
            let mut expected = truth(&left, two, k, metric, of == 1);
            let mut join = join.include_self(of == 1);
            if of == 3 {
                let most = data.eps(&left, &right, metric);
                let near = |d: &u64| f64::from_bits(*d) <= T::from_f64(most).to_f64();
                expected.iter_mut().for_each(|row| row.retain(|(_, distance)| near(distance)));
                join = join.max_distance(most);
            }
            check(&join, &left, two, &expected, &context);
        }
    }
}

crate::gpu::distributions! {
    uniform: Uniform,
    exponential: Exponential,
    clustered: Clustered,
    lattice: Lattice,
    duplicates: Duplicates,
    collinear: Collinear,
    one_point: OnePoint,
    empty: Empty,
    huge_offset: HugeOffset,
    dense_ball: DenseBall,
    sphere: Sphere,
    piles: Piles,
}

/// On the GPU alone every round takes all that is left, at a larger ε, until few are.
#[test]
fn a_gpu_alone_takes_what_failed_again() {
    let points = Data::Exponential.points::<f32>(2000, 2, 4);
    let points = points.as_points();
    let (rows, stats) = run(&ranges(8, Device::Gpu), &points);
    assert_eq!(rows, truth(&points, None, 8, Metric::L2, false));
    let told = told(&stats);
    assert!(told.reindexed >= 2 && told.rounds == told.reindexed + 1, "{told:?}");
    let steps = (told.eps - told.eps_min) / (told.eps_min / 2.0);
    assert!((steps - told.reindexed as f64).abs() < 1e-6, "{told:?}");
    // Those that failed were tried again, and at most a twentieth went to the CPU.
    assert!(told.failed > 0 && told.attempted > 2000, "{told:?}");
    assert!(told.tail > 0 && told.tail <= 100 && told.tail == told.solved_by_cpu, "{told:?}");
    let shown = stats.to_string();
    assert!(shown.contains(&format!("indexed anew {} times", told.reindexed)), "{shown}");
    assert!(stats.gpu.is_some_and(|gpu| gpu.threads_per_query == 8 && gpu.bytes_in > 0));
    assert_eq!(stats.strategy, Strategy::Ranges);
}

/// Without a tail, and with nothing but one.
#[test]
fn the_tail_is_what_is_asked_for() {
    let points = Data::Exponential.points::<f32>(600, 2, 4);
    let points = points.as_points();
    let expected = truth(&points, None, 5, Metric::L2, false);
    let with = |tail: f64| {
        let join = ranges(5, Device::Gpu).ranges(RangesOptions::new().tail(tail));
        let (rows, stats) = run(&join, &points);
        assert_eq!(rows, expected, "{tail}");
        told(&stats).clone()
    };
    let (none, some, all) = (with(0.0), with(0.05), with(1.0));
    assert!(none.rounds > some.rounds && none.tail < some.tail, "{none:?} {some:?}");
    assert_eq!((all.rounds, all.reindexed), (1, 0), "{all:?}");
    assert_eq!(all.tail, all.failed);
}

/// Steps that get nowhere are not taken for ever: points far away from all others go to the CPU.
#[test]
fn a_gpu_that_finds_nothing_gives_up() {
    let mut data: Vec<f32> = (0..200).map(|i| (i % 14) as f32 * 1e-3).collect();
    data.extend((0..200).map(|i| 1e4 * (1.0 + i as f32 * i as f32)));
    let points = Points::new(&data, 1).unwrap();
    let (rows, stats) =
        run(&ranges(3, Device::Gpu).ranges(RangesOptions::new().tail(0.0)), &points);
    assert_eq!(rows, truth(&points, None, 3, Metric::L2, false));
    let told = told(&stats);
    assert!(told.rounds <= 4 && told.tail >= 150, "{told:?}");
}

/// Many equal points are the CPU's from the start: a GPU would send every pair of them.
#[test]
fn crowds_are_not_for_the_gpu() {
    let mut data: Vec<f64> = Data::Uniform.points(400, 2, 3).as_points().as_slice().into();
    data.extend([50.0; 1200]);
    let points = Points::new(&data, 2).unwrap();
    for device in DEVICES {
        let options = RangesOptions::new().eps_factor(1e6);
        let join = ranges(1, device).max_distance(4.0).ranges(options);
        let (rows, stats) = run(&join, &points);
        let mut expected = truth(&points, None, 1, Metric::L2, false);
        expected.iter_mut().for_each(|row| row.retain(|(_, d)| f64::from_bits(*d) <= 4.0));
        assert_eq!(rows, expected, "{device}");
        assert!(told(&stats).tail >= 600, "{device}: {:?}", stats.ranges);
    }
}

/// Beside the CPU, both take their ends of the queue, and tell.
#[test]
fn both_share_the_queue() {
    let points = Data::Exponential.points::<f32>(3000, 2, 4);
    let points = points.as_points();
    let monitor = Monitor::new();
    let join = ranges(6, Device::Hybrid).threads(2).monitor(&monitor);
    let plan = join.plan_self(&points).unwrap();
    assert_eq!((plan.device(), plan.strategy()), (Device::Hybrid, Strategy::Ranges));
    let text = plan.to_string();
    assert!(
        text.contains("strategy ranges (as asked)") && text.contains("; and the gpu"),
        "{text}"
    );
    assert!(text.contains("ranges of ε = ") && text.contains("8 to a query"), "{text}");
    assert!(text.contains("shared with the cpu: strategy tree"), "{text}");
    let mut neighbors = Neighbors::new();
    let stats = plan.run(&mut neighbors).unwrap();
    assert_eq!(dense(&neighbors), truth(&points, None, 6, Metric::L2, false));
    let told = told(&stats);
    let hybrid = stats.hybrid.as_ref().unwrap();
    let (cpu, gpu) = (hybrid.of(Device::Cpu), hybrid.of(Device::Gpu));
    assert_eq!((cpu.queries, gpu.queries), (told.solved_by_cpu, told.solved_by_gpu), "{told:?}");
    assert_eq!(cpu.distance_tests + gpu.distance_tests, stats.distance_tests);
    assert_eq!(gpu.units, told.rounds);
    // The first batch is 0.4 of all, whoever is faster.
    assert!(told.attempted >= 1200, "{told:?}");
    assert!((0.0..=1.0).contains(&hybrid.imbalance()));
    assert!(monitor.progress().tests > 0);
}

/// A first ε that is too small, or too large, costs rounds and tests, and nothing else.
#[test]
fn the_first_distance_may_be_wrong() {
    let points = Data::Uniform.points::<f64>(800, 2, 7);
    let points = points.as_points();
    let expected = truth(&points, None, 4, Metric::L2, false);
    let with = |factor: f64| {
        let options = RangesOptions::new().eps_factor(factor);
        let (rows, stats) = run(&ranges(4, Device::Gpu).ranges(options), &points);
        assert_eq!(rows, expected, "{factor}");
        told(&stats).clone()
    };
    let (small, one, large) = (with(0.5), with(1.0), with(4.0));
    assert!((small.eps_min / one.eps_min - 0.5).abs() < 1e-6, "{small:?} {one:?}");
    assert!(small.rounds > one.rounds && one.rounds > large.rounds, "{small:?} {one:?}");
    assert_eq!((large.failed, large.rounds), (0, 1), "{large:?}");
    // Within the largest distance a row is complete, however short.
    let join = ranges(4, Device::Gpu).max_distance(one.eps_min / 2.0);
    let (_, stats) = run(&join, &points);
    let capped = told(&stats);
    assert_eq!((capped.failed, capped.rounds, capped.solved_by_cpu), (0, 1, 0), "{capped:?}");
}

#[test]
fn counts_degrees_and_parts() {
    let points = Data::Clustered.points::<f32>(700, 3, 4);
    let points = points.as_points();
    for device in DEVICES {
        let join = ranges(7, device).max_distance(0.5);
        let mut expected = truth(&points, None, 7, Metric::L2, false);
        expected.iter_mut().for_each(|row| row.retain(|(_, d)| f64::from_bits(*d) <= 0.5));
        let plan = join.plan_self(&points).unwrap();
        let mut count = Count::new();
        plan.run(&mut count).unwrap();
        let lengths: Vec<u64> = expected.iter().map(|row| row.len() as u64).collect();
        assert_eq!(count.pairs(), lengths.iter().sum::<u64>(), "{device}");
        let mut degrees = Degrees::new();
        let stats = plan.run(&mut degrees).unwrap();
        assert_eq!((degrees.as_slice(), stats.pairs), (&lengths[..], count.pairs()), "{device}");

        let index = plan.index().unwrap();
        for rows in [300..700, 0..300] {
            let mut neighbors = Neighbors::new();
            let stats = index.run_rows(rows.clone(), &mut neighbors).unwrap();
            assert_eq!(dense(&neighbors), expected[rows.clone()], "{device} {rows:?}");
            assert!(told(&stats).rounds > 0);
        }
        let some = [699, 0, 17, 350];
        let mut sink = CsrSink::new();
        index.run_some(&some, &mut sink).unwrap();
        for (at, &row) in some.iter().enumerate() {
            let ids: Vec<u32> = expected[row as usize].iter().map(|(id, _)| *id).collect();
            assert_eq!(sink.csr().ids_of(at), ids, "{device} {row}");
        }
        let mut neighbors = Neighbors::new();
        let rows = index.run_positions(16..48, &mut neighbors).unwrap();
        let some: Rows = rows.iter().map(|&row| expected[row as usize].clone()).collect();
        assert_eq!(dense(&neighbors), some, "{device}");
    }
}

#[test]
fn both_stop() {
    let points = Data::Uniform.points::<f32>(2000, 2, 4);
    let points = points.as_points();
    for device in DEVICES {
        let monitor = Monitor::new();
        let plan = ranges(5, device).monitor(&monitor).plan_self(&points).unwrap();
        let mut blocks = 0;
        let mut sink = Callback::new(|_: &Block<f32>| {
            blocks += 1;
            if blocks < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .block_pairs(100);
        assert_eq!(plan.run(&mut sink).unwrap_err(), Error::Stopped, "{device}");
        assert_eq!(blocks, 3);
        monitor.cancel();
        assert_eq!(plan.run(&mut Count::new()).unwrap_err(), Error::Cancelled, "{device}");
    }
}

/// With one thread, in a pool of one thread, and in the pool that rayon has for all: nobody waits for
/// a thread that waits for him.
#[test]
fn both_with_few_threads() {
    let points = Data::Exponential.points::<f32>(5000, 2, 4);
    let points = points.as_points();
    let expected = run(&KnnJoin::new(3).device(Device::Cpu), &points).0;
    let options = RangesOptions::new().cpu(0.6).large(0.2).small(0.05);
    let join = || ranges(3, Device::Hybrid).ranges(options);
    assert_eq!(run(&join().threads(1), &points).0, expected);
    assert_eq!(run(&join().threads(3), &points).0, expected);
    on_one_thread(|| assert_eq!(run(&join(), &points).0, expected));
    rayon::scope(|scope| {
        for _ in 0..2 * rayon::current_num_threads() {
            scope.spawn(|_| assert_eq!(run(&join(), &points).0, expected));
        }
    });
}

#[test]
fn wrong_options_and_devices_are_named() {
    let points = Data::Uniform.points::<f32>(100, 2, 4);
    let points = points.as_points();
    let error = |join: KnnJoin| join.plan_self(&points).unwrap_err().to_string();
    let cpu = error(ranges(3, Device::Cpu));
    assert!(cpu.contains("the strategy ranges needs a GPU"), "{cpu}");
    let large = error(ranges(3, Device::Gpu).ranges(RangesOptions::new().large(1.5)));
    assert_eq!(large, "large = 1.5 is out of range: it must be more than 0 and at most 1");
    let join = nearjoin::EpsJoin::new(1.0).strategy(Strategy::Ranges);
    assert!(matches!(join.plan_self(&points), Err(Error::Strategy { .. })));
    assert_eq!("ranges".parse(), Ok(Strategy::Ranges));
    // It has to be named.
    let auto = KnnJoin::new(3).device(Device::Cpu).plan_self(&points).unwrap();
    assert!(auto.estimates().iter().all(|estimate| estimate.strategy != Strategy::Ranges));
}

#[test]
fn without_a_gpu_the_tree_answers_and_says_so() {
    let points = Data::Uniform.points::<f64>(300, 2, 4);
    let points = points.as_points();
    let expected = truth(&points, None, 3, Metric::L2, false);
    let lost = || {
        let simt = Simt::new().lose_at_call(1);
        let knobs = Knobs { driver: Some(Arc::new(simt)), ..Knobs::default() };
        GpuOptions::new().knobs(knobs)
    };
    for join in [
        ranges(3, Device::Hybrid).gpu(lost()),
        ranges(3, Device::Auto).gpu(lost()),
        ranges(3, Device::Gpu).rescue(true).gpu(lost()),
    ] {
        let plan = join.plan_self(&points).unwrap();
        assert_eq!((plan.device(), plan.strategy()), (Device::Cpu, Strategy::Tree));
        assert!(plan.why_no_gpu().is_some_and(|why| why.contains("tree stands in")), "{plan}");
        assert_eq!(run(&join, &points).0, expected);
    }
    // A device that is too small.
    let small = || gpu().memory_limit(1000);
    let plan = ranges(3, Device::Hybrid).gpu(small()).plan_self(&points).unwrap();
    assert!(plan.why_no_gpu().is_some_and(|why| why.contains("do not hold the points")), "{plan}");
    assert!(ranges(3, Device::Gpu).gpu(small()).plan_self(&points).is_err());
}

/// Two sums may have one root: the order is that of the sums, on every device.
#[test]
fn the_order_is_that_of_the_sums() {
    // 1 + 2⁻²³ has the root 1, and five of the sums are 1.
    let near = (f32::EPSILON).sqrt();
    let aside = |i: u32| if (290..295).contains(&i) { 0.0 } else { near };
    let data: Vec<f32> = (0..300).flat_map(|i| [1.0, aside(i)]).collect();
    let (left, right) = ([0.0f32, 0.0, 0.0, 1.0], data);
    let (left, right) = (Points::new(&left, 2).unwrap(), Points::new(&right, 2).unwrap());
    let expected = truth(&left, Some(&right), 9, Metric::L2, false);
    let tied = |row: &Vec<(u32, u64)>| row.iter().all(|(_, distance)| *distance == bits(&1.0f32));
    assert!(tied(&expected[0]) && !expected[0].is_sorted(), "{expected:?}");
    for device in DEVICES {
        check(&ranges(9, device), &left, Some(&right), &expected, &format!("{device}"));
    }
}
