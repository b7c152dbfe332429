//! Data and options that the engine has to take care of, beyond what every join must get right.

use std::ops::ControlFlow;
use std::sync::Arc;

use nearjoin::gpu::driver::Driver;
use nearjoin::gpu::{Calibration, Cooperation, GpuOptions, Knobs, Schedule};
use nearjoin::sink::{Block, Callback, Count, CsrSink, Degrees};
use nearjoin::{
    Device, DuplicateRemoval, EpsJoin, Error, Monitor, Phase, PointsBuf, Scalar, Strategy,
};
use nearjoin_simt::Simt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::Exp1;

use super::{gpu, knobs, real};
use crate::check::{self, Answer, Case};
use crate::child::Child;
use crate::data::Data;

/// What the CPU says: the oracle would take too long.
fn on_cpu<T: Scalar>(case: &Case<'_, T>) -> Answer {
    let case = Case { gpu: None, shared: None, ..case.clone() };
    let mut sink = CsrSink::new().distances(true);
    case.plan(&|join| join).unwrap().run(&mut sink).unwrap();
    Answer::from_csr(sink.csr())
}

/// Checks the rows and the count of a case, with every strategy named, against the CPU.
fn check_large<T: Scalar>(case: &Case<'_, T>, strategies: &[Strategy]) {
    let expected = on_cpu(case);
    for &strategy in strategies {
        let context = format!("{case}, {strategy}");
        let plan = case.plan(&|join| join.strategy(strategy)).expect(&context);
        check::check_count(&plan, &expected, &context);
        check::check_plain_csr(&plan, &expected, &context);
    }
}

/// Points of an exponential tail, with some pairs far beyond it, each farther than the one
/// before: the extents of a sample miss the last of them.
fn with_outliers(n: usize, dim: usize) -> Vec<Vec<f32>> {
    let rng = &mut StdRng::seed_from_u64(dim as u64);
    let mut rows = Vec::new();
    for i in 0..n {
        let mut row: Vec<f32> = (0..dim).map(|_| rng.sample::<f32, _>(Exp1) / 10.0).collect();
        if i % 300 == 113 {
            let far = 3.0 + i as f32 / 500.0;
            row[i / 300 % dim] = if rng.random() { far } else { -far };
            rows.push(row.iter().map(|x| x + 0.01).collect());
        }
        rows.push(row);
    }
    rows
}

#[test]
fn points_beyond_the_sample() {
    for (dim, eps) in [(2, 0.02), (6, 0.1)] {
        let mut rows = with_outliers(9000, dim);
        for order in ["any order", "ascending", "descending"] {
            let mut cooperation = Cooperation::Cell;
            if order != "any order" {
                rows.sort_by(|a, b| a[0].total_cmp(&b[0]));
            }
            if order == "descending" {
                rows.reverse();
                cooperation = Cooperation::Thread;
            }
            let points = PointsBuf::from_vec(rows.concat(), dim).unwrap();
            let case = Case::within(format!("{dim}-D {order}"), points.as_points(), eps);
            check_large(&case.on(&gpu().cooperation(cooperation)), &[Strategy::Grid]);
        }
    }
}

#[test]
fn one_cell_with_all_points() {
    let points = PointsBuf::from_vec(vec![0.25f32; 2 * 5000], 2).unwrap();
    for (include_self, expected) in [(false, 5000 * 4999), (true, 5000 * 5000)] {
        let case = Case::within("equal", points.as_points(), 0.5).include_self(include_self);
        for strategy in [Strategy::Auto, Strategy::Grid] {
            let plan = case.clone().on(&gpu()).plan(&|join| join.strategy(strategy)).unwrap();
            let mut count = Count::new();
            plan.run(&mut count).unwrap();
            assert_eq!(count.pairs(), expected, "{plan}");
        }
    }
    let mut degrees = Degrees::new();
    let case = Case::within("equal", points.as_points(), 0.0).on(&gpu());
    case.plan(&|join| join).unwrap().run(&mut degrees).unwrap();
    assert_eq!(degrees.as_slice(), [4999; 5000]);
}

/// Rows that the device leaves to the host to sort, among those that it sorts.
#[test]
fn long_rows_are_sorted_too() {
    let points = Data::Clustered.points::<f64>(1400, 2, 3);
    let eps = [5.0, 60.0];
    for (listed, eps) in [false, true].into_iter().zip(eps) {
        let mut knobs = knobs();
        knobs.listed = Some(listed);
        let gpu = GpuOptions::new().knobs(knobs).chunk_bytes(5000);
        let case = Case::within("long rows", points.as_points(), eps).on(&gpu);
        let expected = case.oracle();
        let longest = expected.offsets.windows(2).map(|row| row[1] - row[0]).max();
        assert!(eps < 50.0 || longest > Some(512), "{longest:?}");
        let plan = case.plan(&|join| join).unwrap();
        let context = case.to_string();
        check::check_sorted_csr(&plan, &expected, &context);
        check::check_csr_into(&plan, &expected, &context);
        check::check_callback(&plan, &expected, &context);
        let mut plain = CsrSink::<f64>::new().sorted(true);
        plan.run(&mut plain).unwrap();
        assert_eq!(plain.csr().ids(), expected.ids);
    }
}

#[test]
fn sets_of_very_different_size() {
    let many = Data::Uniform.points::<f32>(4200, 3, 1);
    let none = PointsBuf::<f32>::from_vec(Vec::new(), 3).unwrap();
    for few in [1, 3] {
        let few = Data::Uniform.points::<f32>(few, 3, 2);
        let (few, many, none) = (few.as_points(), many.as_points(), none.as_points());
        for (left, right) in [(few, many), (many, few), (few, none), (none, few)] {
            let case = Case::between("few and many", left, right, 12.0).on(&gpu());
            check_large(&case, &[Strategy::Grid, Strategy::Brute]);
        }
        let cells = gpu().cooperation(Cooperation::Cell).schedule(Schedule::WorkQueue);
        let case = Case::between("few and many", few, many, 12.0).on(&cells);
        check_large(&case, &[Strategy::Directory]);
    }
}

/// Half of the pairs, of parts too, with every way to find them.
#[test]
fn half_of_the_pairs() {
    let points = Data::Lattice.points::<f32>(200, 2, 1);
    for partitions in [1, 3] {
        for cooperation in [Cooperation::Cell, Cooperation::Thread] {
            let mut knobs = knobs();
            knobs.partitions = Some(partitions);
            let gpu = GpuOptions::new().knobs(knobs).cooperation(cooperation);
            let case = Case::within("half", points.as_points(), 0.25).on(&gpu);
            for include_self in [false, true] {
                let case = case.clone().include_self(include_self);
                let half = case.half(&case.oracle());
                for &removal in DuplicateRemoval::ALL {
                    let join = |join: EpsJoin| join.duplicate_removal(removal);
                    let plan = case.plan(&join).unwrap();
                    let context = format!("{case}, {removal}, {partitions} parts, {cooperation}");
                    check::check_half_blocks(&plan, true, &half, &context);
                }
            }
        }
    }
}

#[test]
fn a_monitor_sees_how_far_it_is() {
    let points = Data::Uniform.points::<f32>(600, 2, 1);
    let case = Case::within("watched", points.as_points(), 5.0).on(&gpu());
    let monitor = Monitor::new();
    let plan = case.plan(&|join| join.monitor(&monitor)).unwrap();
    assert_eq!(monitor.progress().phase, Phase::Planning);
    let mut count = Count::new();
    plan.run(&mut count).unwrap();
    let progress = monitor.progress();
    assert_eq!(progress.phase, Phase::Counting);
    // Each pair is met once, or from both sides.
    let seen = progress.pairs;
    assert!([seen, 2 * seen].contains(&count.pairs()), "{progress:?}");
    assert!(progress.expected_tests > 0 && progress.fraction().is_some());

    let mut last = Phase::Planning;
    let stats = plan.run(&mut Callback::new(|_: &Block<f32>| {
        last = monitor.progress().phase;
        ControlFlow::Continue(())
    }));
    assert_eq!(last, Phase::Joining);
    assert_eq!(monitor.progress().pairs, stats.unwrap().pairs);
}

/// A device that can be asked what it has not got back, and what it takes to use it.
fn observed() -> (Simt, Knobs) {
    let simt = Simt::new().lazy();
    let driver = Some(Arc::new(simt.clone()) as _);
    (simt, Knobs { driver, ..Knobs::default() })
}

#[test]
fn a_join_can_be_cancelled_and_stopped() {
    let points = Data::Uniform.points::<f32>(600, 2, 1);
    for partitions in [1, 3] {
        let (simt, knobs) = observed();
        let knobs = Knobs { partitions: Some(partitions), listed: Some(false), ..knobs };
        let gpu = GpuOptions::new().batch_bytes(2000).chunk_bytes(500).knobs(knobs);
        let case = Case::within("cancelled", points.as_points(), 10.0).on(&gpu);
        for cancel in [true, false] {
            let monitor = Monitor::new();
            let plan = case.plan(&|join| join.monitor(&monitor)).unwrap();
            let mut blocks = 0;
            let sink = Callback::new(|_: &Block<f32>| {
                blocks += 1;
                if cancel {
                    monitor.cancel();
                    return ControlFlow::Continue(());
                }
                ControlFlow::Break(())
            });
            let error = plan.run(&mut sink.block_pairs(20)).unwrap_err();
            assert_eq!(error, if cancel { Error::Cancelled } else { Error::Stopped });
            assert!((1..20).contains(&blocks), "{blocks}");
            assert_eq!(simt.leaks(), [""; 0]);
        }
    }
    // A monitor that was cancelled before.
    let (simt, knobs) = observed();
    let monitor = Monitor::new();
    let case = Case::within("cancelled", points.as_points(), 10.0);
    let case = case.on(&GpuOptions::new().knobs(knobs));
    let plan = case.plan(&|join| join.monitor(&monitor)).unwrap();
    monitor.cancel();
    for error in [
        plan.run(&mut Count::new()).unwrap_err(),
        plan.run(&mut CsrSink::new()).unwrap_err(),
        plan.run(&mut Degrees::new()).unwrap_err(),
    ] {
        assert_eq!(error, Error::Cancelled);
    }
    assert_eq!(simt.leaks(), [""; 0]);
}

#[test]
fn auto_says_why_there_is_no_gpu() {
    Child::new("gpu::cases::say_why_there_is_no_gpu").without_gpu().lines();
}

#[test]
#[ignore = "a part of auto_says_why_there_is_no_gpu"]
fn say_why_there_is_no_gpu() {
    // Small: it is not even looked for.
    let points = Data::Uniform.points::<f64>(500, 2, 1);
    let points = points.as_points();
    let plan = EpsJoin::new(1.0).plan_self(&points).unwrap();
    assert_eq!(plan.device(), Device::Cpu);
    let why = plan.why_no_gpu().unwrap();
    assert!(why.contains("too little"), "{why}");
    let stats = plan.run(&mut Count::new()).unwrap();
    assert!(stats.gpu.is_none());

    let points = Data::Uniform.points::<f64>(300_000, 2, 1);
    let points = points.as_points();
    let plan = EpsJoin::new(0.01).strategy(Strategy::Brute).plan_self(&points).unwrap();
    assert_eq!(plan.device(), Device::Cpu);
    // What the device itself says when it is named, less the advice to name another.
    let error = EpsJoin::new(1.0).device(Device::Gpu).plan_self(&points).unwrap_err();
    let Error::Device { device: "gpu", reason } = &error else { panic!("{error:?}") };
    let why = plan.why_no_gpu().unwrap();
    assert!(reason.starts_with(why), "{reason}: {why}");
    assert!(plan.to_string().contains(why), "{plan}");

    let plan = EpsJoin::new(1.0).device(Device::Cpu).plan_self(&points).unwrap();
    assert_eq!(plan.why_no_gpu(), None, "nobody asked for one");
}

#[test]
fn options_out_of_range() {
    let points = Data::Uniform.points::<f32>(50, 2, 1);
    let case = Case::within("options", points.as_points(), 1.0);
    for value in [0, 3, 33, 64] {
        let case = case.clone().on(&gpu().threads_per_query(value));
        let error = case.plan(&|join| join).unwrap_err();
        let allowed = "1, 2, 4, 8, 16 or 32";
        assert_eq!(error, Error::Option { name: "threads per query", value, allowed });
    }
    let case = case.on(&gpu());
    let error = case.plan(&|join| join.strategy(Strategy::Ego)).unwrap_err();
    let Error::Strategy { strategy: Strategy::Ego, known } = &error else { panic!("{error:?}") };
    assert!(known.contains(&Strategy::Grid) && !known.contains(&Strategy::Ego));
}

#[test]
fn a_plan_says_how_the_device_does_it() {
    let points = Data::Uniform.points::<f32>(900, 2, 1);
    let case = Case::within("plan", points.as_points(), 1.0);
    let gpu = gpu().cooperation(Cooperation::Thread).threads_per_query(8);
    let gpu = gpu.schedule(Schedule::WorkQueue);
    let case = case.on(&gpu);
    let plan = case.plan(&|join| join.strategy(Strategy::Directory)).unwrap();
    assert_eq!((plan.device(), plan.strategy()), (Device::Gpu, Strategy::Directory));
    assert_eq!(plan.why_no_gpu(), None);
    let text = plan.to_string();
    for part in [
        "strategy directory (as asked)",
        "threads cooperate by thread, 8 to a query",
        "schedule work-queue",
        "on the gpu",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(real() || text.contains("gpu: simt, 1.00 GiB of memory"), "{text}");

    let mut cut = knobs();
    cut.partitions = Some(7);
    let case = case.on(&GpuOptions::new().knobs(cut).cooperation(Cooperation::Cell));
    let text = case.plan(&|join| join).unwrap().to_string();
    assert!(text.contains("cooperate by cell;") && text.contains("cut into 7 parts"), "{text}");
    let stats = case.plan(&|join| join).unwrap().run(&mut Count::new()).unwrap();
    let told = stats.gpu.unwrap();
    assert_eq!((told.cooperation, told.partitions), (Cooperation::Cell, 7));
    assert!(told.bytes_in >= 900 * 8);
}

/// The choice of a device is pure: on a machine where a GPU is opened at once it is taken, and the
/// answer is the CPU's.
#[test]
fn auto_takes_the_gpu_where_it_pays() {
    let points = Data::Uniform.points::<f64>(400, 2, 5);
    let points = points.as_points();
    let eps = Data::Uniform.eps(&points, &points, nearjoin::Metric::L2);
    let plan = |worth: f64, strategy: Strategy, memory: u64| {
        let mut calibration = Calibration::default();
        (calibration.worth_a_gpu, calibration.gpu_multiprocessors) = (worth, 1.0);
        calibration.gpu_start = 0.0;
        let driver = Some(Arc::new(Simt::new().lazy().memory(memory)) as Arc<dyn Driver>);
        let knobs = Knobs { driver, calibration: Some(calibration), ..Knobs::default() };
        let join = EpsJoin::new(eps).device(Device::Auto).strategy(strategy);
        join.gpu(GpuOptions::new().knobs(knobs)).plan_self(&points).unwrap()
    };
    let on_gpu = plan(0.0, Strategy::Auto, 1 << 30);
    assert_eq!((on_gpu.device(), on_gpu.why_no_gpu()), (Device::Gpu, None));
    let mut found = CsrSink::new().sorted(true);
    let stats = on_gpu.run(&mut found).unwrap();
    assert_eq!(stats.gpu.unwrap().device, "simt");
    let mut expected = CsrSink::new().sorted(true);
    let on_cpu = EpsJoin::new(eps).device(Device::Cpu).plan_self(&points).unwrap();
    on_cpu.run(&mut expected).unwrap();
    assert_eq!(found.csr(), expected.csr());

    for (plan, reason) in [
        (plan(0.5, Strategy::Auto, 1 << 30), "too little"),
        (plan(0.0, Strategy::Ego, 1 << 30), "ego"),
        (plan(0.0, Strategy::Auto, 1 << 20), "do not hold the points"),
    ] {
        assert_eq!(plan.device(), Device::Cpu);
        let why = plan.why_no_gpu().unwrap();
        assert!(why.contains(reason), "{why}");
        assert!(plan.to_string().contains(why), "{plan}");
    }
}
