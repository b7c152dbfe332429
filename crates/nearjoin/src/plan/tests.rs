//! Decisions without points, threads or a device.

use super::*;
use crate::gpu::{Cooperation, GpuOptions, Schedule};
use crate::options::Partitioning;
use crate::question::Nearest;
use crate::summary::Pairs;
use crate::summary::tests::summary;

/// So many points in the unit square, of which a share of the sampled pairs lies within ε.
fn points(points: usize, eps: f64, within: f64) -> Summary {
    neighbors(summary(points, 2, eps), within * points as f64)
}

/// Each left point has so many neighbours.
fn neighbors(summary: Summary, neighbors: f64) -> Summary {
    let pairs = Pairs { neighbors: Estimated::exactly(neighbors), ..summary.pairs };
    Summary { pairs, ..summary }
}

fn host() -> Host {
    Host {
        threads: 4,
        memory: 16 << 30,
        gpu_is_open: false,
        multiplier: Multiplier::Numbers,
        calibration: Calibration::default(),
    }
}

fn gpu(free: u64) -> GpuFacts {
    GpuFacts {
        name: "gpu".into(),
        memory: 2 * free,
        free,
        multiprocessors: 132,
        matrix_units: true,
    }
}

/// What is asked within ε, with the options changed.
fn within(eps: f64, change: impl FnOnce(&mut Options, &mut Within)) -> (Question, Options) {
    let (mut options, mut within) = (Options::default(), Within::new(eps));
    change(&mut options, &mut within);
    (within.into(), options)
}

fn on_gpu_of(free: u64, summary: &Summary, (question, options): &(Question, Options)) -> OnGpu {
    let asked = Asked { question, options };
    match on_gpu(&asked, summary, &host(), &gpu(free)).how {
        How::Gpu(how) => how,
        how => panic!("{how:?}"),
    }
}

#[test]
fn a_gpu_is_looked_for_where_the_cpu_takes_long() {
    let (question, options) = within(0.01, |_, _| {});
    let asked = Asked { question: &question, options: &options };
    let small = on_cpu(&asked, &points(10_000, 0.01, 1e-3), &host());
    let reason = worth_a_gpu(&asked, &small, &host()).unwrap_err().unwrap();
    assert!(reason.contains("too little"), "{reason}");
    let large = on_cpu(&asked, &points(50_000_000, 0.01, 1e-6), &host());
    assert!(worth_a_gpu(&asked, &large, &host()).is_ok());
    assert!(worth_a_gpu(&asked, &small, &Host { gpu_is_open: true, ..host() }).is_ok());
    // A machine where a GPU is opened at once.
    let calibration = Calibration { worth_a_gpu: 0.0, ..Calibration::default() };
    assert!(worth_a_gpu(&asked, &small, &Host { calibration, ..host() }).is_ok());
}

#[test]
fn no_gpu_is_looked_for_where_a_device_was_named_or_none_can_do_it() {
    let large = points(50_000_000, 0.01, 1e-6);
    for (named, reason) in [(Device::Cpu, None), (Device::Gpu, None)] {
        let (question, options) = within(0.01, |options, _| options.device = named);
        let asked = Asked { question: &question, options: &options };
        let decision = on_cpu(&asked, &large, &host());
        assert_eq!(worth_a_gpu(&asked, &decision, &host()).unwrap_err(), reason);
    }
    let (question, options) = within(0.01, |options, _| options.strategy = Strategy::Ego);
    let asked = Asked { question: &question, options: &options };
    let decision = on_cpu(&asked, &large, &host());
    let reason = worth_a_gpu(&asked, &decision, &host()).unwrap_err().unwrap();
    assert!(reason.contains("ego"), "{reason}");
    let question = Nearest::new(8).into();
    let asked = Asked { question: &question, options: &Options::default() };
    let decision = on_cpu(&asked, &large, &host());
    assert_eq!(worth_a_gpu(&asked, &decision, &host()), Ok(()));
    let options = Options { strategy: Strategy::Grid, ..Options::default() };
    let asked = Asked { question: &question, options: &options };
    let reason = worth_a_gpu(&asked, &decision, &host()).unwrap_err().unwrap();
    assert!(reason.contains("grid"), "{reason}");
}

/// Who does a join of points within ε, on a machine with a GPU of so much free memory.
fn weighed(
    (question, options): &(Question, Options),
    points: &Summary,
    host: &Host,
    free: u64,
) -> (Weighed, Decision) {
    let asked = Asked { question, options };
    let (here, there) = (on_cpu(&asked, points, host), on_gpu(&asked, points, host, &gpu(free)));
    let weighed = hybrid::weigh(options, &here, &there, "as tested".into());
    let decision = hybrid::settle(&asked, here, there, weighed.clone());
    (weighed, decision)
}

#[test]
fn the_faster_processor_does_it_and_both_where_they_are_of_a_strength() {
    // All pairs are candidates, and few of them match.
    let asked = within(10.0, |options, _| options.strategy = Strategy::Brute);
    let points = neighbors(summary(1_000_000, 2, 10.0), 2.0);
    let role = |calibration: Calibration, free: u64| {
        let host = Host { calibration, ..host() };
        weighed(&asked, &points, &host, free)
    };
    let fast = role(Calibration::default(), 64 << 30);
    assert_eq!(fast.0.role, Role::Gpu, "{:?}", fast.0);
    assert!(fast.1.on_cpu().is_none() && fast.0.gpu_share > 0.8, "{:?}", fast.0);
    let (small, decision) = role(Calibration::default(), 1 << 26);
    assert_eq!(small.role, Role::Cpu);
    assert!(decision.why_no_gpu.unwrap().contains("do not hold the points"));
    // A GPU that is as slow as the CPU is, and one that is far slower.
    let [cpu, gpu, _] = fast.0.seconds;
    let slowed = |times: f64| Calibration { gpu: times * cpu / gpu, ..Calibration::default() };
    let (equal, decision) = role(slowed(1.0), 64 << 30);
    assert_eq!(equal.role, Role::Both, "{equal:?}");
    assert!((0.4..0.6).contains(&equal.gpu_share) && equal.seconds[2] < cpu, "{equal:?}");
    let How::Both(both) = &decision.how else { panic!("{decision:?}") };
    assert_eq!(both.partitioning, Partitioning::Dyn);
    // One of them counts, and tests each pair once.
    assert!(both.counts_alone.is_some());
    let (slow, _) = role(slowed(100.0), 64 << 30);
    assert_eq!(slow.role, Role::Cpu, "{slow:?}");
    // Where the answer itself is the cost, two processors fill one memory no faster than one.
    let (dense, _) = weighed(
        &asked,
        &neighbors(points.clone(), 2e5),
        &Host { calibration: slowed(1.0), ..host() },
        64 << 30,
    );
    assert_ne!(dense.role, Role::Both, "{dense:?}");
    // A machine on which the CPU is slower than plans expect.
    let slow_cpu = Calibration { cpu: 1000.0, ..slowed(100.0) };
    assert_eq!(role(slow_cpu, 64 << 30).0.role, Role::Gpu);
}

#[test]
fn a_named_partitioning_is_taken_and_counts_are_shared_too() {
    let points = points(100_000, 0.01, 1e-4);
    for partitioning in [Partitioning::Dyn, Partitioning::StaticQueries] {
        let asked = within(0.01, |options, _| options.partitioning = partitioning);
        let (_, decision) = weighed(&asked, &points, &host(), 64 << 30);
        let How::Both(both) = &decision.how else { panic!("{decision:?}") };
        assert_eq!((both.partitioning, both.counts_alone), (partitioning, None));
        let mut text = String::new();
        core::fmt::Write::write_fmt(&mut text, format_args!("{}", Shown(&decision))).unwrap();
        assert!(text.contains(&format!("shared by {partitioning}")), "{text}");
    }
    // Super-EGO on the CPU and a grid on the GPU, as in HEGJoin.
    let asked = within(0.01, |options, _| options.strategy = Strategy::Ego);
    let (_, decision) = weighed(&asked, &points, &host(), 64 << 30);
    let How::Both(both) = &decision.how else { panic!("{decision:?}") };
    assert_eq!(decision.chosen.strategy, Strategy::Ego);
    assert_ne!(both.gpu.chosen.strategy, Strategy::Ego);
}

/// A decision in words.
struct Shown<'a>(&'a Decision);

impl core::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.explain(f)
    }
}

#[test]
fn units_are_whole_blocks() {
    assert_eq!([0, 90, 100_000, 2_000_000, 10_000_000].map(hybrid::unit), [16, 16, 48, 768, 4096]);
}

#[test]
fn points_beyond_the_memory_of_a_gpu_are_cut_into_slabs() {
    let points = points(50_000_000, 0.001, 1e-6);
    let asked = within(0.001, |_, _| {});
    assert_eq!(on_gpu_of(64 << 30, &points, &asked).slabs, 1);
    let slabs = on_gpu_of(1 << 30, &points, &asked).slabs;
    assert!((2..100).contains(&slabs), "{slabs}");
    let limited = within(0.001, |options, _| {
        options.gpu = GpuOptions::new().memory_limit(1 << 30);
    });
    let how = on_gpu_of(64 << 30, &points, &limited);
    assert!(how.slabs > 1 && how.limit == 1 << 30, "{how:?}");
}

#[test]
fn rows_are_listed_where_a_pair_takes_many_tests() {
    // A neighbour or two, and all others are candidates.
    let sparse = neighbors(summary(100_000, 2, 10.0), 2.0);
    let asked = within(10.0, |options, _| options.strategy = Strategy::Brute);
    let how = on_gpu_of(64 << 30, &sparse, &asked);
    assert_eq!(how.gathering, Gathering::Listed);
    assert!(how.mirrors());
    // Most candidates match.
    let dense = neighbors(sparse, 90_000.0);
    let how = on_gpu_of(64 << 30, &dense, &asked);
    assert_eq!(how.gathering, Gathering::Counted);
    assert!(!how.mirrors() && how.boxes);
}

#[test]
fn kernels_by_query_where_a_pattern_needs_them() {
    let summary = points(100_000, 0.01, 1e-4);
    let how = |change: &dyn Fn(&mut Options, &mut Within)| {
        on_gpu_of(64 << 30, &summary, &within(0.01, change))
    };
    let auto = how(&|_, _| {});
    assert_eq!((auto.cooperation, auto.threads_per_query), (Cooperation::Cell, 1));
    assert_eq!(auto.schedule, Schedule::IndexOrder);
    let unicomp = how(&|_, within| within.removal = DuplicateRemoval::Unicomp);
    assert_eq!(unicomp.cooperation, Cooperation::Thread);
    let eight = how(&|options, _| options.gpu = GpuOptions::new().threads_per_query(8));
    assert_eq!((eight.cooperation, eight.threads_per_query), (Cooperation::Thread, 8));
    assert!(eight.shares_rows() && !auto.shares_rows());
    let warp = how(&|options, _| {
        options.gpu =
            GpuOptions::new().cooperation(Cooperation::Warp).schedule(Schedule::WorkQueue);
    });
    assert_eq!((warp.threads_per_query, warp.schedule), (32, Schedule::WorkQueue));
}

#[test]
fn batches_leave_room_and_launches_can_be_watched() {
    let summary = points(1_000_000, 0.01, 1e-4);
    let how = on_gpu_of(1 << 30, &summary, &within(0.01, |_, _| {}));
    let gigabyte = 1u64 << 30;
    assert!(how.batch_bytes(8 * gigabyte, false) < gigabyte / 4);
    assert_eq!(how.launches(1.0), 1);
    let mut long = how.clone();
    long.expected_tests = 4e12;
    assert_eq!(long.launches(1.0), 10);
    assert_eq!(long.for_share(0.5).launches(1.0), 5);
    let (chunk, seconds) = how.chunk(gigabyte, 0);
    assert!((1 << 20..=4 << 20).contains(&chunk) && seconds > 0.01, "{chunk} {seconds}");
}

#[test]
fn narrow_columns_where_the_domain_is_small_beside_epsilon() {
    let how = |eps: f64, removal: DuplicateRemoval, width: usize| {
        let (question, options) = within(eps, |_, within| within.removal = removal);
        let asked = Asked { question: &question, options: &options };
        let summary = Summary { width, ..points(100_000, eps, 1e-5) };
        match on_cpu(&asked, &summary, &host()).how {
            How::Cpu(how) => how.narrow.is_some(),
            how => panic!("{how:?}"),
        }
    };
    assert!(how(0.01, DuplicateRemoval::LidUnicomp, 8));
    assert!(!how(1e-6, DuplicateRemoval::LidUnicomp, 8), "too large a domain");
    assert!(!how(0.01, DuplicateRemoval::Unicomp, 8), "cells must be exact");
    assert!(!how(0.01, DuplicateRemoval::LidUnicomp, 4), "narrow already");
}

#[test]
fn rows_are_kept_where_there_is_room_for_them_twice() {
    let (question, options) = within(0.01, |options, _| options.memory_limit = Some(1 << 30));
    let asked = Asked { question: &question, options: &options };
    let decision = on_cpu(&asked, &points(1_000_000, 0.01, 1e-5), &host());
    let input = 1_000_000 * 2 * 8;
    assert_eq!(decision.spare(0), 3 * input);
    assert_eq!(decision.spare(input), 2 * input);
    assert_eq!(decision.spare(u64::MAX), 0);
    let (question, options) = within(0.01, |options, _| options.memory_limit = Some(0));
    let asked = Asked { question: &question, options: &options };
    let none = on_cpu(&asked, &points(1_000_000, 0.01, 1e-5), &host());
    assert_eq!(none.spare(0), 0);
    assert!(none.budget.check_index().is_err());
}

/// The strategy for so many queries against so many points in the unit cube, of which each query
/// has ten within ε.
fn strategy(left: usize, right: usize, dim: usize, question: &Question) -> Strategy {
    let summary = neighbors(summary(right, dim, 0.01), 10.0);
    let summary = Summary { left, is_self: false, ..summary };
    let asked = Asked { question, options: &Options::default() };
    on_cpu(&asked, &summary, &host()).chosen.strategy
}

#[test]
fn few_queries_are_not_worth_an_index() {
    let within = Within::new(0.01).into();
    let nearest = Nearest::new(8).into();
    for (left, right) in [(1, 10_000_000), (10, 5_000_000)] {
        for dim in [2, 3, 6, 32] {
            assert_eq!(strategy(left, right, dim, &within), Strategy::Brute, "{left} in {dim}-D");
            // Products need no order of the points either.
            let plain = if dim < 16 { Strategy::Brute } else { Strategy::Product };
            assert_eq!(strategy(left, right, dim, &nearest), plain, "{left} in {dim}-D");
        }
    }
    assert_eq!(strategy(100_000, 1_000_000, 2, &within), Strategy::Grid);
    assert_eq!(strategy(100_000, 1_000_000, 2, &nearest), Strategy::Tree);
}

#[test]
fn many_dimensions_are_for_products() {
    let within = Within::new(0.01).into();
    let nearest = Nearest::new(10).into();
    for dim in [64, 100, 768, 4096] {
        assert_eq!(strategy(50_000, 50_000, dim, &nearest), Strategy::Product, "{dim}-D");
    }
    let first = |dim: usize, options: &Options| {
        let summary = neighbors(summary(50_000, dim, 1.0), 10.0);
        let asked = Asked { question: &within, options };
        let decision = on_cpu(&asked, &summary, &host());
        (decision.chosen.strategy, decision)
    };
    for dim in [16, 100, 4096] {
        let (_, decision) = first(dim, &Options::default());
        let seconds = |wanted: Strategy| {
            let mut costs = decision.costs().filter(|cost| cost.0 == wanted);
            costs.next().map(|cost| cost.1).unwrap()
        };
        assert!(seconds(Strategy::Product) < seconds(Strategy::Brute), "{dim}-D");
    }
    let few = first(4, &Options::default()).1;
    assert!(few.costs().all(|cost| cost.0 != Strategy::Product), "few dimensions");
    let by_name = Options { strategy: Strategy::Product, ..Options::default() };
    assert_eq!(first(4, &by_name).0, Strategy::Product);
    let (strategy, decision) = first(100, &by_name);
    assert_eq!(strategy, Strategy::Product);
    // The points as `f32` with two numbers beside each, and their rows; and beside that the queries of a
    // unit and their neighbours, for every thread.
    let (index, search) = (decision.budget.index, decision.search_bytes);
    assert_eq!((index - search) / 50_000, 4 * (100 + 2 + 1));
    assert_eq!(search / host().threads as u64, 4 * 256 * (100 + 2 * 10));
    assert!(decision.on_cpu().is_some_and(|how| !how.boxes && how.listed && how.unit == 256));
}

#[test]
fn a_plan_tells_what_multiplies() {
    let data = vec![0.5f32; 20 * 40];
    let points = crate::Points::new(&data, 40).unwrap();
    let join = crate::KnnJoin::new(3).strategy(Strategy::Product).device(Device::Cpu);
    let plan = join.plan_self(&points).unwrap().to_string();
    assert!(plan.contains("\n  multiplied in f32\n"), "of so few points nothing is known: {plan}");
}

#[test]
fn an_index_is_in_the_costs_and_few_queries_are_for_few_threads() {
    let question = Within::new(0.01).into();
    let seconds = |left: usize, right: usize| {
        let summary = Summary { left, is_self: false, ..summary(right, 2, 0.01) };
        let asked = Asked { question: &question, options: &Options::default() };
        on_cpu(&asked, &summary, &host()).seconds().0
    };
    assert!(seconds(1, 10_000_000) > 8.0 * seconds(1, 1_000_000));
    assert!(seconds(10_000_000, 1) > 8.0 * seconds(1_000_000, 1));
    // One unit of queries is for one thread: the second costs nothing.
    let (one, two) = (Sharing::new(16, 16, 4), Sharing::new(32, 16, 4));
    assert_eq!(one.queries(1.0), two.queries(1.0));
}
