//! The same question has the same answer, whoever works on it.

use nearjoin::sink::{Callback, Count, CsrSink, Pairs};
use nearjoin::{Csr, EpsJoin, Metric, Points, Scalar, Strategy};

use crate::check::bits;
use crate::data::Data;

const THREADS: [usize; 4] = [1, 2, 3, 7];

/// The points of these tests: enough for many units of work.
fn points<T: Scalar>(dim: usize) -> nearjoin::PointsBuf<T> {
    Data::Clustered.points(20_000, dim, 21)
}

fn csr<T: Scalar>(join: &EpsJoin, points: &Points<'_, T>, sorted: bool) -> Csr<T> {
    let mut sink = CsrSink::new().sorted(sorted).distances(true);
    join.plan_self(points).unwrap().run(&mut sink).unwrap();
    sink.into_csr()
}

/// Whether two results are the same, element by element and bit by bit. (`assert_eq`
/// would print millions of numbers.)
fn assert_same<T: Scalar>(a: &Csr<T>, b: &Csr<T>, context: &str) {
    assert!(a.offsets() == b.offsets(), "{context}: offsets differ");
    let row = (0..a.len()).find(|&row| a.ids_of(row) != b.ids_of(row));
    if let Some(row) = row {
        panic!("{context}: row {row} is {:?} or {:?}", a.ids_of(row), b.ids_of(row));
    }
    let bits = |csr: &Csr<T>| csr.distances().iter().map(bits).collect::<Vec<_>>();
    assert!(bits(a) == bits(b), "{context}: distances differ");
}

fn nothing_but_the_question_matters<T: Scalar>(dim: usize, eps: f64) {
    let points = points::<T>(dim);
    let points = points.as_points();
    let first = csr(&EpsJoin::new(eps).threads(1), &points, true);
    assert!(first.pairs() > 100_000, "only {} pairs", first.pairs());
    for &strategy in Strategy::EPSILON {
        for threads in THREADS {
            let context = format!("{strategy} {} {dim}-D on {threads} threads", T::NAME);
            let join = EpsJoin::new(eps).strategy(strategy).threads(threads);
            assert_same(&csr(&join, &points, true), &first, &context);
        }
    }
}

/// The order within a row is not promised, but it hangs on nothing that changes from run to
/// run or from machine to machine.
#[test]
fn threads_do_not_change_the_order_within_a_row() {
    let points = points::<f64>(2);
    let points = points.as_points();
    for &strategy in Strategy::EPSILON {
        let join = |threads: usize| EpsJoin::new(0.1).strategy(strategy).threads(threads);
        let first = csr(&join(1), &points, false);
        for threads in THREADS {
            let context = format!("{strategy} unsorted on {threads} threads");
            assert_same(&csr(&join(threads), &points, false), &first, &context);
        }
    }
}

#[test]
fn threads_and_strategies_do_not_matter_f32() {
    nothing_but_the_question_matters::<f32>(2, 0.1);
}

#[test]
fn threads_and_strategies_do_not_matter_f64() {
    nothing_but_the_question_matters::<f64>(3, 0.25);
}

/// So dense that whole blocks are taken without a test.
#[test]
fn threads_and_strategies_do_not_matter_where_it_is_dense() {
    nothing_but_the_question_matters::<f64>(2, 0.35);
}

/// The order within a row is not specified, but it hangs on the points and the options
/// alone, never on which thread was faster.
#[test]
fn runs_repeat_themselves() {
    let points = points::<f64>(2);
    let points = points.as_points();
    for &strategy in Strategy::EPSILON {
        for threads in THREADS {
            let join = EpsJoin::new(0.3).metric(Metric::L1).strategy(strategy).threads(threads);
            let first = csr(&join, &points, false);
            let context = format!("{strategy} on {threads} threads, twice");
            assert_same(&csr(&join, &points, false), &first, &context);
        }
    }
}

/// Counts, sorted pairs and blocks of few rows, over all numbers of threads.
#[test]
fn every_sink_is_independent_of_threads() {
    let points = points::<f32>(3);
    let points = points.as_points();
    let expected = csr(&EpsJoin::new(0.2).threads(1), &points, true);
    for &strategy in Strategy::EPSILON {
        for threads in THREADS {
            let join = EpsJoin::new(0.2).strategy(strategy).threads(threads);
            let plan = join.plan_self(&points).unwrap();
            let context = format!("{strategy} on {threads} threads");
            let mut count = Count::new();
            let stats = plan.run(&mut count).unwrap();
            assert_eq!(stats.threads, threads);
            assert_eq!(count.pairs(), expected.pairs(), "{context}");

            let mut pairs = Pairs::new().sorted(true);
            plan.run(&mut pairs).unwrap();
            assert!(pairs.right() == expected.ids(), "{context}: pairs");

            let mut came = vec![0u64; points.len()];
            let mut sink = Callback::new(|block: &nearjoin::sink::Block<f32>| {
                for (query, neighbors) in block.iter() {
                    came[query as usize] += 1 + neighbors.len() as u64;
                }
                std::ops::ControlFlow::Continue(())
            });
            sink = sink.block_pairs(500);
            plan.run(&mut sink).unwrap();
            let rows = expected.offsets().windows(2);
            let right = rows.map(|row| 1 + row[1] - row[0]).eq(came);
            assert!(right, "{context}: blocks");
        }
    }
}
