//! CPU and GPU at once against the oracle: every distribution, type, metric and sink, and every way
//! to share. The GPU is emulated, or that of this machine where `NEARJOIN_TEST_GPU` is set.

mod faults;
mod nearest;

use std::ops::ControlFlow;
use std::sync::Arc;

use nearjoin::gpu::{Calibration, GpuOptions, Knobs};
use nearjoin::sink::{Block, Callback, Count, CsrSink, Degrees};
use nearjoin::{
    Device, DuplicateRemoval, EpsJoin, Error, Metric, Monitor, Partitioning, Phase, Scalar,
    Strategy,
};
use nearjoin_simt::Simt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::check::{Case, bits};
use crate::data::Data;
use crate::gpu::{knobs, real};

/// A machine whose GPU takes so many times what plans expect of it.
fn slowed(times: f64) -> Calibration {
    let mut calibration = Calibration::default();
    (calibration.worth_a_gpu, calibration.gpu_start) = (0.0, 0.0);
    calibration.gpu = times;
    calibration.landing /= times;
    calibration
}

/// Options for the device that is tested, which is as fast as said.
fn options(times: f64, change: impl FnOnce(&mut Knobs)) -> GpuOptions {
    let mut knobs = knobs();
    knobs.calibration = Some(slowed(times));
    change(&mut knobs);
    GpuOptions::new().knobs(knobs)
}

/// As for the GPU alone: chance says which way to share, which strategy and which sinks go with
/// which dimension and metric.
fn distribution<T: Scalar>(data: Data) {
    let strategies =
        [Strategy::Grid, Strategy::Brute, Strategy::Ego, Strategy::Directory, Strategy::Product];
    let chance = &mut StdRng::seed_from_u64(data as u64 * 16 + size_of::<T>() as u64 + 7);
    for dim in [1, 2, 3, 4, 5, 6, 8, 9] {
        let left = data.points::<T>(110, dim, 1);
        let right = data.points::<T>(45, dim, 2);
        let (left, right) = (left.as_points(), right.as_points());
        for metric in Metric::ALL {
            let partitioning = Partitioning::ALL[chance.random_range(0..4)];
            let (times, listed) = ([1e-3, 1.0, 1e3][chance.random_range(0..3)], chance.random());
            let gpu = options(times, |knobs| knobs.listed = Some(listed));
            let name = format!("{data:?} {} {dim}-D, {partitioning}, {times} ×", T::NAME);
            let case = match chance.random_range(0..3) {
                2 => Case::between(&name, left, right, data.eps(&left, &right, metric)),
                of => {
                    Case::within(&name, left, data.eps(&left, &left, metric)).include_self(of == 1)
                }
            };
            let case = case.metric(metric).on_both(&gpu, partitioning);
            let strategy = strategies[chance.random_range(0..strategies.len())];
            case.check_some(strategy, &case.oracle(), chance);
        }
    }
}

crate::gpu::distributions! {
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

/// Every strategy and every sink, for every way to share.
#[test]
fn every_sink() {
    let points = Data::Clustered.points::<f32>(300, 3, 4);
    let points = points.as_points();
    for &partitioning in Partitioning::ALL {
        let eps = Data::Clustered.eps(&points, &points, Metric::L2);
        let case = Case::within(format!("{partitioning}"), points, eps);
        case.on_both(&options(1.0, |_| {}), partitioning).check();
    }
}

/// What both did is told, worker by worker, and adds up.
#[test]
fn both_tell_what_they_did() {
    let points = Data::Exponential.points::<f32>(3000, 2, 4);
    let points = points.as_points();
    for partitioning in [Partitioning::Dyn, Partitioning::StaticCandidates] {
        let monitor = Monitor::new();
        let join = EpsJoin::new(0.01)
            .device(Device::Hybrid)
            .partitioning(partitioning)
            .threads(2)
            .monitor(&monitor)
            .gpu(options(if real() { 1.0 } else { 30.0 }, |_| {}));
        let plan = join.plan_self(&points).unwrap();
        assert_eq!(plan.device(), Device::Hybrid);
        assert!(plan.to_string().contains(&format!("shared by {partitioning}")), "{plan}");
        let mut sink = CsrSink::new();
        let stats = plan.run(&mut sink).unwrap();
        let hybrid = stats.hybrid.as_ref().unwrap();
        assert_eq!((hybrid.partitioning, hybrid.lost.as_ref()), (Some(partitioning), None));
        let (cpu, gpu) = (hybrid.of(Device::Cpu), hybrid.of(Device::Gpu));
        assert_eq!(cpu.distance_tests + gpu.distance_tests, stats.distance_tests);
        // On demand, a machine with much else to do may let one of them take all.
        let fixed = partitioning != Partitioning::Dyn;
        assert!(!fixed || gpu.units > 0 && gpu.busy > 0.0 && cpu.units > 0, "{hybrid:?}");
        // Rows were kept in one pass, or counted in another before.
        let passes = (cpu.queries + gpu.queries) / 3000;
        assert_eq!((cpu.queries + gpu.queries, passes.clamp(1, 2)), (3000 * passes, passes));
        assert!((0.0..=1.0).contains(&hybrid.imbalance()), "{}", hybrid.imbalance());
        for worker in &hybrid.workers {
            assert!((worker.busy + worker.idle - hybrid.seconds).abs() < 1e-3, "{worker:?}");
            assert!(worker.spans.windows(2).all(|spans| spans[0].1 <= spans[1].0), "{worker:?}");
        }
        let told = stats.gpu.unwrap();
        assert!(told.bytes_in >= 3000 * 8, "{told:?}");
        assert!(!fixed || told.bytes_out > 0, "{told:?}");
        assert_eq!(monitor.progress().phase, Phase::Joining);
        assert!(monitor.progress().tests >= stats.distance_tests / passes / 2);
    }
}

/// The estimate decides who does it, and the explanation says so.
#[test]
fn the_plan_weighs_both() {
    let points = Data::Uniform.points::<f32>(20_000, 2, 4);
    let points = points.as_points();
    let plan = |device, times: f64| {
        let join = EpsJoin::new(0.5).device(device).threads(2).gpu(options(times, |_| {}));
        let plan = join.plan_self(&points).unwrap();
        let text = plan.to_string();
        assert!(text.contains("devices: cpu ") && text.contains("calibration"), "{text}");
        (plan.device(), text)
    };
    for (device, led) in [(Device::Auto, Device::Gpu), (Device::Hybrid, Device::Hybrid)] {
        let (chosen, text) = plan(device, 1e-4);
        assert_eq!(chosen, led, "{text}");
        assert!(text.contains("the gpu leads and the cpu stands by"), "{text}");
        let (chosen, text) = plan(device, 1e6);
        assert_eq!(chosen, Device::Cpu, "{text}");
        assert!(text.contains("the cpu is faster"), "{text}");
    }
}

/// Where the GPU leads, nothing is shared, and the CPU has no index.
#[test]
fn a_leader_joins_as_if_alone() {
    let points = Data::Uniform.points::<f64>(2000, 2, 4);
    let points = points.as_points();
    let run = |device| {
        let join = EpsJoin::new(2.0).device(device).gpu(options(1e-4, |_| {}));
        let plan = join.plan_self(&points).unwrap();
        let mut sink = CsrSink::new().sorted(true).distances(true);
        let stats = plan.run(&mut sink).unwrap();
        (sink.into_csr(), stats)
    };
    let (alone, on_gpu) = run(Device::Gpu);
    let (led, hybrid) = run(Device::Hybrid);
    assert_eq!(alone, led);
    assert_eq!(on_gpu.distance_tests, hybrid.distance_tests);
    assert!(on_gpu.hybrid.is_none());
    let told = hybrid.hybrid.unwrap();
    assert_eq!((told.partitioning, told.imbalance()), (None, 0.0));
    assert_eq!((told.of(Device::Gpu).queries, told.of(Device::Cpu).queries), (2000, 0));
}

#[test]
fn without_a_gpu_the_cpu_answers_and_says_so() {
    if nearjoin::gpu::find().is_ok() {
        return;
    }
    let points = Data::Uniform.points::<f32>(500, 2, 4);
    let points = points.as_points();
    for join in [
        EpsJoin::new(2.0).device(Device::Hybrid),
        EpsJoin::new(2.0).device(Device::Hybrid).partitioning(Partitioning::StaticQueries),
        EpsJoin::new(2.0).device(Device::Gpu).rescue(true),
    ] {
        let plan = join.plan_self(&points).unwrap();
        assert_eq!(plan.device(), Device::Cpu);
        assert!(plan.why_no_gpu().is_some() && plan.to_string().contains("no gpu: "), "{plan}");
        let mut count = Count::new();
        plan.run(&mut count).unwrap();
        let mut alone = Count::new();
        EpsJoin::new(2.0).device(Device::Cpu).plan_self(&points).unwrap().run(&mut alone).unwrap();
        assert_eq!(count.pairs(), alone.pairs());
    }
    assert!(EpsJoin::new(2.0).device(Device::Gpu).plan_self(&points).is_err());
}

/// A callback that stops, and a monitor that cancels, end both processors.
#[test]
fn both_stop() {
    let points = Data::Uniform.points::<f32>(4000, 2, 4);
    let points = points.as_points();
    let monitor = Monitor::new();
    let join = EpsJoin::new(5.0)
        .device(Device::Hybrid)
        .partitioning(Partitioning::Dyn)
        .monitor(&monitor)
        .gpu(options(1.0, |_| {}));
    let plan = join.plan_self(&points).unwrap();
    let mut blocks = 0;
    let mut sink = Callback::new(|_: &Block<f32>| {
        blocks += 1;
        if blocks < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .block_pairs(100);
    assert_eq!(plan.run(&mut sink).unwrap_err(), Error::Stopped);
    assert_eq!(blocks, 3);
    monitor.cancel();
    for error in
        [plan.run(&mut Count::new()), plan.run(&mut Degrees::new()), plan.run(&mut CsrSink::new())]
    {
        assert_eq!(error.unwrap_err(), Error::Cancelled);
    }
}

/// With one thread, in a pool of one thread, and in the pool that rayon has for all.
#[test]
fn both_with_few_threads() {
    let points = Data::Uniform.points::<f32>(800, 2, 4);
    let points = points.as_points();
    let join = || {
        EpsJoin::new(5.0)
            .device(Device::Hybrid)
            .partitioning(Partitioning::StaticCandidates)
            .gpu(options(1.0, |_| {}))
    };
    let count = |join: EpsJoin| {
        let mut sink = CsrSink::new().sorted(true);
        join.plan_self(&points).unwrap().run(&mut sink).unwrap();
        sink.into_csr()
    };
    let expected = count(EpsJoin::new(5.0).device(Device::Cpu));
    assert_eq!(count(join().threads(1)), expected);
    assert_eq!(count(join().threads(3)), expected);
    crate::check::on_one_thread(|| assert_eq!(count(join()), expected));
    rayon::scope(|scope| {
        for _ in 0..2 * rayon::current_num_threads() {
            scope.spawn(|_| assert_eq!(count(join()), expected));
        }
    });
}

/// Parts of a shared join are shared, or led, as the whole is.
#[test]
fn parts_of_both() {
    let points = Data::Lattice.points::<f64>(400, 2, 4);
    let points = points.as_points();
    let eps = Data::Lattice.eps(&points, &points, Metric::L2);
    let case = Case::within("parts", points, eps);
    let expected = case.oracle();
    for (partitioning, times) in
        [(Partitioning::Dyn, 1.0), (Partitioning::StaticQueries, 1.0), (Partitioning::Auto, 1e-4)]
    {
        let plan = case.clone().on_both(&options(times, |_| {}), partitioning);
        let plan = plan.plan(&|join| join).unwrap();
        let index = plan.index().unwrap();
        let mut found = Vec::new();
        for rows in [200..400, 0..200] {
            let first = rows.start;
            let mut sink = CsrSink::new().sorted(true).distances(true);
            index.run_rows(rows.clone(), &mut sink).unwrap();
            for row in rows {
                let ids = sink.csr().ids_of(row - first).iter();
                let distances = sink.csr().distances_of(row - first).iter().map(bits);
                found.extend(ids.zip(distances).map(|(&id, bits)| (row as u32, id, bits)));
            }
        }
        found.sort_unstable();
        assert_eq!(found, expected.triples(), "{partitioning}");
    }
}

/// Removing duplicates by the cells of a device is an order that nobody else knows.
#[test]
fn a_pair_is_met_once_whatever_the_removal() {
    let points = Data::Clustered.points::<f32>(250, 2, 9);
    let points = points.as_points();
    let eps = Data::Clustered.eps(&points, &points, Metric::L2);
    for removal in [DuplicateRemoval::LinearCoord, DuplicateRemoval::Unicomp] {
        for partitioning in [Partitioning::Auto, Partitioning::Dyn] {
            let case = Case::within(format!("{removal}, {partitioning}"), points, eps);
            let case = case.on_both(&options(1e-4, |_| {}), partitioning);
            let plan = case.plan(&|join| join.duplicate_removal(removal)).unwrap();
            let half = case.half(&case.oracle());
            crate::check::check_half_blocks(&plan, true, &half, &case.to_string());
        }
    }
}

/// A GPU that may do only so many tests a second does no more.
#[test]
fn a_rate_that_is_limited_is_kept() {
    if real() {
        return;
    }
    let points = Data::Uniform.points::<f32>(1000, 2, 4);
    let points = points.as_points();
    let knobs = Knobs { driver: Some(Arc::new(Simt::new())), ..Knobs::default() };
    let join = EpsJoin::new(5.0).device(Device::Gpu);
    let run = |gpu: GpuOptions| {
        let stats = join.clone().gpu(gpu).plan_self(&points).unwrap().run(&mut Count::new());
        stats.unwrap()
    };
    let tests = run(GpuOptions::new().knobs(knobs.clone())).distance_tests as f64;
    let slow = run(GpuOptions::new().knobs(knobs).rate_limit(tests / 0.3));
    assert!(slow.execute.as_secs_f64() >= 0.29, "{:?}", slow.execute);
}
