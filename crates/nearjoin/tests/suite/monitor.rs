//! Joins that are watched, and stopped, from another thread.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use nearjoin::sink::{Block, Callback, Count, CsrSink, Degrees, Pairs};
use nearjoin::{Device, DuplicateRemoval, EpsJoin, Error, Monitor, Phase, Plan, Points, Strategy};

use crate::data::Data;

const STRATEGIES: [Strategy; 5] =
    [Strategy::Brute, Strategy::Directory, Strategy::Grid, Strategy::Ego, Strategy::Product];

#[test]
fn the_expected_work_is_near_the_work_done() {
    for (data, eps) in [(Data::Uniform, 3.0), (Data::Exponential, 0.3), (Data::Clustered, 0.5)] {
        let points = data.points::<f64>(30_000, 2, 7);
        for strategy in STRATEGIES {
            let monitor = Monitor::new();
            let join = EpsJoin::new(eps).strategy(strategy).monitor(&monitor);
            let stats =
                join.plan_self(&points.as_points()).unwrap().run(&mut Count::new()).unwrap();
            let progress = monitor.progress();
            let context = format!("{data:?} {strategy}: {progress:?} {stats:?}");
            assert_eq!(progress.phase, Phase::Counting, "{context}");
            assert_eq!(progress.tests, stats.distance_tests, "{context}");
            let ratio = progress.expected_tests as f64 / stats.distance_tests as f64;
            assert!((0.8..1.25).contains(&ratio), "{ratio} {context}");

            let mut pairs = 0;
            let mut sink = Callback::new(|block: &Block<f64>| {
                pairs += block.pairs() as u64;
                ControlFlow::Continue(())
            });
            join.plan_self(&points.as_points()).unwrap().run(&mut sink).unwrap();
            assert_eq!(monitor.progress().phase, Phase::Joining);
            assert_eq!(monitor.progress().pairs, pairs, "{context}");
        }
    }
}

#[test]
fn nothing_is_asked_of_a_monitor_that_nobody_reads() {
    let points = Data::Uniform.points::<f32>(1000, 3, 1);
    let monitor = Monitor::new();
    let join = EpsJoin::new(1.0).monitor(&monitor);
    join.plan_self(&points.as_points()).unwrap();
    assert_eq!(monitor.progress().phase, Phase::Planning);
    assert_eq!(monitor.progress().fraction(), None);
}

/// A join of a second or more, asked to stop after a moment.
fn cancelled(run: impl FnOnce(&Points<'_, f64>, &EpsJoin) -> Option<Error> + Send) {
    let points = Data::Uniform.points::<f64>(400_000, 3, 3);
    let points = points.as_points();
    let monitor = Monitor::new();
    let join = EpsJoin::new(1.5).strategy(Strategy::Brute).monitor(&monitor);
    std::thread::scope(|scope| {
        let joining = scope.spawn(|| run(&points, &join));
        while monitor.progress().phase != Phase::Counting
            && monitor.progress().phase != Phase::Joining
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        let start = Instant::now();
        monitor.cancel();
        assert_eq!(joining.join().unwrap(), Some(Error::Cancelled));
        // Not a measurement: a join that went on to its end would take far longer.
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    });
}

#[test]
fn every_sink_can_be_stopped() {
    cancelled(|points, join| join.plan_self(points).unwrap().run(&mut Count::new()).err());
    cancelled(|points, join| join.plan_self(points).unwrap().run(&mut Degrees::new()).err());
    cancelled(|points, join| {
        join.plan_self(points).unwrap().run(&mut CsrSink::new().distances(true)).err()
    });
    cancelled(|points, join| join.plan_self(points).unwrap().run(&mut Pairs::new()).err());
    cancelled(|points, join| {
        let mut sink = Callback::new(|_: &Block<f64>| ControlFlow::Continue(()));
        join.plan_self(points).unwrap().run(&mut sink).err()
    });
}

/// By products a thread makes many rows before it hands out the first of them: it is stopped in the
/// middle of that, when no row has met itself yet.
#[test]
fn joins_by_products_can_be_stopped() {
    let points = Data::Uniform.points::<f32>(60_000, 64, 3);
    let points = points.as_points();
    let stopped = |run: &(dyn Fn(&Plan<'_, f32>) -> Option<Error> + Sync)| {
        let monitor = Monitor::new();
        let join = EpsJoin::new(1.0).strategy(Strategy::Product).device(Device::Cpu).threads(2);
        let join = join.duplicate_removal(DuplicateRemoval::None).monitor(&monitor);
        let plan = join.plan_self(&points).unwrap();
        std::thread::scope(|scope| {
            let joining = scope.spawn(|| run(&plan));
            while monitor.progress().tests == 0 && !joining.is_finished() {
                std::thread::yield_now();
            }
            monitor.cancel();
            assert_eq!(joining.join().unwrap(), Some(Error::Cancelled));
        });
    };
    stopped(&|plan| plan.run(&mut Count::new()).err());
    stopped(&|plan| plan.run(&mut Degrees::new()).err());
    stopped(&|plan| plan.run(&mut CsrSink::new()).err());
    stopped(&|plan| plan.index().unwrap().run_rows(30_000..60_000, &mut Count::new()).err());
}

#[test]
fn a_csr_that_is_counted_first_can_be_stopped() {
    let points = Data::Uniform.points::<f64>(300_000, 2, 3);
    let points = points.as_points();
    // Leaves arrays behind for the next join, with numbers in them.
    nearjoin::eps_join(&points, 0.1).unwrap();
    let monitor = Monitor::new();
    let join = EpsJoin::new(2.0).strategy(Strategy::Grid).threads(1).monitor(&monitor);
    std::thread::scope(|scope| {
        let joining =
            scope.spawn(|| join.plan_self(&points).unwrap().run(&mut CsrSink::new()).err());
        while monitor.progress().phase != Phase::Counting && !joining.is_finished() {
            std::thread::yield_now();
        }
        monitor.cancel();
        // A join that was faster has its rows.
        let ended = joining.join().unwrap();
        assert!(matches!(ended, None | Some(Error::Cancelled)), "{ended:?}");
    });
}

#[test]
fn a_cancelled_monitor_starts_nothing() {
    let points = Data::Uniform.points::<f64>(1000, 2, 1);
    let monitor = Monitor::new();
    monitor.cancel();
    let plan = EpsJoin::new(1.0).monitor(&monitor).plan_self(&points.as_points()).unwrap();
    assert_eq!(plan.run(&mut Count::new()).unwrap_err(), Error::Cancelled);
}
