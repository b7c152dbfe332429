//! The callback: who calls it, how far the workers run ahead, and how it ends.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nearjoin::sink::{Block, Callback, Count, CsrSink};
use nearjoin::{EpsJoin, Error, PointsBuf, Strategy};

use crate::child::{Child, say};
use crate::data::Data;

/// Runs `test` on a thread of its own and fails if it hangs.
fn without_hanging<R: Send + 'static>(test: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, wait) = mpsc::channel();
    let thread = thread::spawn(move || {
        let result = test();
        let _ = done.send(());
        result
    });
    match wait.recv_timeout(Duration::from_secs(120)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the join hangs"),
        // Sent, or dropped by a panic that `join` hands on.
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Points with some hundred neighbours each at ε = 0.5.
fn points() -> PointsBuf<f64> {
    Data::Clustered.points(6000, 2, 3)
}

/// The number of pairs of [`points`], counted in another way.
fn pairs() -> u64 {
    nearjoin::count_pairs(&points().as_points(), 0.5).unwrap()
}

#[test]
fn the_function_runs_on_the_calling_thread_and_sees_everything() {
    without_hanging(|| {
        let points = points();
        let plan = EpsJoin::new(0.5).threads(3).plan_self(&points.as_points()).unwrap();
        let caller = thread::current().id();
        let (mut blocks, mut queries, mut seen) = (0, 0, 0);
        let mut sink = Callback::new(|block: &Block<f64>| {
            assert_eq!(thread::current().id(), caller);
            blocks += 1;
            queries += block.queries.len();
            seen += block.pairs() as u64;
            ControlFlow::Continue(())
        });
        sink = sink.block_pairs(1000);
        plan.run(&mut sink).unwrap();
        assert_eq!((queries, seen), (6000, pairs()));
        // A block holds 1000 pairs, and what a few queries more come to.
        assert!(blocks > 100, "{blocks} blocks");
    });
}

/// A block is handed over when it is full, so it exceeds its size by one step at most.
#[test]
fn blocks_are_as_large_as_asked_for() {
    // More queries than a worker hands out at once.
    const STEP: usize = 64;
    for size in [1, 200, 5000] {
        let points = points();
        let plan = EpsJoin::new(0.5).threads(2).plan_self(&points.as_points()).unwrap();
        let mut longest_row = 0;
        let mut largest = 0;
        let mut sink = Callback::new(|block: &Block<f64>| {
            let longest = block.iter().map(|(_, row)| row.len()).max();
            longest_row = longest.unwrap_or(0).max(longest_row);
            largest = block.pairs().max(largest);
            assert!(block.queries.len() < size + STEP, "{} queries", block.queries.len());
            ControlFlow::Continue(())
        });
        sink = sink.block_pairs(size);
        plan.run(&mut sink).unwrap();
        assert!(largest < size + STEP * longest_row, "{largest} pairs in a block of {size}");
        assert!(largest >= size);
    }
}

/// Peak memory of this process so far.
#[cfg(target_os = "linux")]
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

/// 40 000 points at one place have 6.4 GB of pairs. While the function sleeps, workers
/// that were not held back would find all of them.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "a part of a_slow_function_costs_no_memory"]
fn print_memory_of_a_slow_function() {
    let points = Data::Duplicates.points::<f32>(40_000, 2, 1);
    let join = EpsJoin::new(1.0).threads(2).strategy(Strategy::Ego);
    let plan = join.plan_self(&points.as_points()).unwrap();
    let before = peak_bytes();
    let mut calls = 0;
    let mut sink = Callback::new(|block: &Block<f32>| {
        assert!(block.pairs() >= 100_000);
        calls += 1;
        thread::sleep(Duration::from_millis(40));
        if calls == 25 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    sink = sink.block_pairs(100_000);
    assert_eq!(plan.run(&mut sink).unwrap_err(), Error::Stopped);
    assert_eq!(calls, 25);
    say(&format!("{}", peak_bytes() - before));
}

#[cfg(target_os = "linux")]
#[test]
fn a_slow_function_costs_no_memory() {
    let lines = Child::new("back_pressure::print_memory_of_a_slow_function").lines();
    let bytes: u64 = lines[0].parse().unwrap();
    // A block is some rows of 40 000 ids, a few megabytes; a dozen blocks and the index
    // are far below this, and a second's work is far above.
    assert!(bytes < 150 << 20, "{} MiB", bytes >> 20);
}

#[test]
fn stopping_stops_at_once() {
    for threads in [1, 2, 5] {
        for stop_at in [1, 4] {
            let calls = without_hanging(move || {
                let points = points();
                let join = EpsJoin::new(0.5).threads(threads);
                let plan = join.plan_self(&points.as_points()).unwrap();
                let mut calls = 0;
                let mut sink = Callback::new(|_: &Block<f64>| {
                    calls += 1;
                    match calls == stop_at {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                });
                sink = sink.block_pairs(64);
                assert_eq!(plan.run(&mut sink).unwrap_err(), Error::Stopped);
                calls
            });
            assert_eq!(calls, stop_at, "called again after it had stopped");
        }
    }
}

/// Where a pair takes many tests, all pairs are listed once, and blocks come after that.
#[test]
fn rows_of_listed_pairs_are_those_of_a_csr() {
    const STRATEGIES: [Strategy; 4] =
        [Strategy::Brute, Strategy::Directory, Strategy::Grid, Strategy::Ego];
    // About six neighbours each.
    let points = Data::Uniform.points::<f64>(6000, 6, 5);
    let points = points.as_points();
    for (strategy, include_self) in STRATEGIES.map(|strategy| (strategy, strategy == Strategy::Ego))
    {
        let join = EpsJoin::new(26.0).strategy(strategy).include_self(include_self).threads(3);
        let mut csr = CsrSink::new().sorted(true).distances(true);
        join.plan_self(&points).unwrap().run(&mut csr).unwrap();
        let csr = csr.into_csr();
        let count = join.plan_self(&points).unwrap().run(&mut Count::new()).unwrap();
        // With room for the list, and without.
        for limit in [None, Some(720_000), Some(560_000)] {
            let join = limit.iter().fold(join.clone(), |join, &limit| join.memory_limit(limit));
            let mut seen = vec![false; 6000];
            let mut sink = Callback::new(|block: &Block<f64>| {
                for (at, (query, ids)) in block.iter().enumerate() {
                    let row = query as usize;
                    assert!(!core::mem::replace(&mut seen[row], true), "row {row} comes again");
                    assert_eq!(ids, csr.ids_of(row), "row {row}");
                    let range = block.offsets[at] as usize..block.offsets[at + 1] as usize;
                    assert_eq!(&block.distances[range], csr.distances_of(row));
                }
                ControlFlow::Continue(())
            });
            sink = sink.sorted(true).distances(true).block_pairs(500);
            let stats = join.plan_self(&points).unwrap().run(&mut sink).unwrap();
            assert!(seen.iter().all(|&seen| seen));
            let context = format!("{strategy}, {limit:?}: {stats:?}, {count:?}");
            assert_eq!(stats.pairs, csr.pairs(), "{context}");
            // A count meets each pair once.
            let once = stats.distance_tests == count.distance_tests;
            assert_eq!(once, limit.is_none(), "{context}");
        }
    }
}

#[test]
fn stopping_stops_where_pairs_are_listed() {
    let calls = without_hanging(|| {
        let points = Data::Uniform.points::<f64>(6000, 6, 5);
        let join = EpsJoin::new(20.0).strategy(Strategy::Brute).threads(2);
        let plan = join.plan_self(&points.as_points()).unwrap();
        let mut calls = 0;
        let mut sink = Callback::new(|_: &Block<f64>| {
            calls += 1;
            if calls == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        sink = sink.block_pairs(64);
        assert_eq!(plan.run(&mut sink).unwrap_err(), Error::Stopped);
        calls
    });
    assert_eq!(calls, 3);
}

/// The last block of each worker is handed over after the work is done.
#[test]
fn stopping_at_the_last_block_is_stopping() {
    let points = points();
    let plan = EpsJoin::new(0.5).threads(1).plan_self(&points.as_points()).unwrap();
    let mut sink = Callback::new(|block: &Block<f64>| {
        assert_eq!(block.queries.len(), 6000, "all in one block");
        ControlFlow::Break(())
    });
    sink = sink.block_pairs(usize::MAX);
    assert_eq!(plan.run(&mut sink).unwrap_err(), Error::Stopped);
}

/// The same plan works after a join that was stopped.
#[test]
fn a_stopped_plan_runs_again() {
    without_hanging(|| {
        let points = points();
        let plan = EpsJoin::new(0.5).plan_self(&points.as_points()).unwrap();
        for _ in 0..3 {
            let mut stop = Callback::new(|_: &Block<f64>| ControlFlow::Break(()));
            plan.run(&mut stop).unwrap_err();
            let mut seen = 0;
            let mut all = Callback::new(|block: &Block<f64>| {
                seen += block.pairs() as u64;
                ControlFlow::Continue(())
            });
            plan.run(&mut all).unwrap();
            assert_eq!(seen, pairs());
        }
    });
}

/// A join that is called on a thread of a rayon pool must not wait for that thread.
#[test]
fn joins_inside_a_rayon_pool_end() {
    for (pool_threads, join_threads) in [(1, None), (1, Some(2)), (2, None), (2, Some(1))] {
        let seen = without_hanging(move || {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(pool_threads).build().unwrap();
            let one = || {
                let points = points();
                let mut join = EpsJoin::new(0.5);
                if let Some(threads) = join_threads {
                    join = join.threads(threads);
                }
                let plan = join.plan_self(&points.as_points()).unwrap();
                let caller = thread::current().id();
                let mut seen = 0;
                let mut sink = Callback::new(|block: &Block<f64>| {
                    assert_eq!(thread::current().id(), caller);
                    seen += block.pairs() as u64;
                    ControlFlow::Continue(())
                });
                sink = sink.block_pairs(300);
                plan.run(&mut sink).unwrap();
                seen
            };
            pool.install(|| rayon::join(one, one))
        });
        assert_eq!(seen, (pairs(), pairs()));
    }
}

/// The function may itself use rayon, and may itself join.
#[test]
fn a_function_may_join() {
    let total = without_hanging(|| {
        let points = points();
        let plan = EpsJoin::new(0.5).plan_self(&points.as_points()).unwrap();
        let mut total = 0;
        let mut sink = Callback::new(|block: &Block<f64>| {
            let rows: Vec<f64> = block
                .queries
                .iter()
                .flat_map(|&q| points.as_points().row(q as usize))
                .copied()
                .collect();
            let block_points = PointsBuf::from_vec(rows, 2).unwrap();
            total += nearjoin::count_pairs(&block_points.as_points(), 1e9).unwrap();
            assert_eq!(rayon::join(|| 1, || 2), (1, 2));
            ControlFlow::Continue(())
        });
        sink = sink.block_pairs(usize::MAX);
        plan.run(&mut sink).unwrap();
        total
    });
    assert!(total > 0);
}

#[test]
fn a_panic_reaches_the_caller() {
    for threads in [1, 3] {
        for panic_at in [1, 5] {
            without_hanging(move || {
                let points = points();
                let join = EpsJoin::new(0.5).threads(threads);
                let plan = join.plan_self(&points.as_points()).unwrap();
                let mut calls = 0;
                let mut sink = Callback::new(|_: &Block<f64>| {
                    calls += 1;
                    assert!(calls < panic_at, "on purpose");
                    ControlFlow::Continue(())
                });
                sink = sink.block_pairs(64);
                let panic = catch_unwind(AssertUnwindSafe(|| plan.run(&mut sink))).unwrap_err();
                let message = panic.downcast_ref::<&str>().copied().map(String::from);
                let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
                assert!(message.is_some_and(|message| message.contains("on purpose")));
                assert_eq!(calls, panic_at, "called again after its panic");
            });
        }
    }
}
