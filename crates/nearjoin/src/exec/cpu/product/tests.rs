//! Whole joins by products of every kind, whatever the plan would take: also those that this processor
//! does not have, in arrays.

use std::sync::{Mutex, PoisonError};

use super::*;
use crate::exec::cpu::kernel::all_kernels;
use crate::sink::{Count, CsrSink, Degrees};
use crate::{Device, EpsJoin, KnnJoin, Metric, NeighborCurve, Neighbors, PointsBuf, Strategy};

/// What multiplies in all joins of this process, whose answers are the same whatever it is.
static FORCED: Mutex<Option<ProductKernels>> = Mutex::new(None);

pub(super) fn forced() -> Option<ProductKernels> {
    *FORCED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers from -1 to 1.
fn random(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    }
}

/// Points that products of few bits tell apart, and such that press on what they can tell.
const KINDS: [&str; 8] =
    ["spread", "equal", "tight", "far away", "one coordinate", "of two sizes", "tiny", "huge"];

fn points<T: Scalar>(kind: &str, n: usize, dim: usize) -> PointsBuf<T> {
    let mut next = random((n + dim) as u64);
    let spread: Vec<f64> = (0..n * dim).map(|_| next()).collect();
    let x = |at: usize| match (kind, at / dim) {
        ("equal", row) => spread[row % 5 * dim + at % dim],
        ("tight", row) => (row % 3) as f64 * 10.0 + 1e-5 * spread[at],
        ("far away", _) => 1e6 + spread[at],
        ("one coordinate", row) if at.is_multiple_of(dim) => 1e5 * (row % 2) as f64 + spread[at],
        ("of two sizes", row) => spread[at] * if row % 2 == 0 { 1e-8 } else { 1.0 },
        ("tiny", _) => 1e-35 * spread[at],
        ("huge", _) => 1e17 * spread[at],
        _ => spread[at],
    };
    PointsBuf::from_vec((0..n * dim).map(|at| T::from_f64(x(at))).collect(), dim).unwrap()
}

fn check<T: Scalar>(kind: &str, dim: usize) {
    // More than a piece of queries, and than the panels between two looks.
    let (left, right) = (points::<T>(kind, 700, dim), points::<T>(kind, 300, dim));
    let (left, right) = (left.as_points(), right.as_points());
    let curve = NeighborCurve::of_self(&left, Metric::L2).unwrap();
    let [one, many] = [1.0, 30.0].map(|neighbors| curve.eps(neighbors).unwrap_or(1e-6).max(1e-36));
    let within = |eps: f64, strategy, two: bool| {
        let join = EpsJoin::new(eps).strategy(strategy).device(Device::Cpu).threads(2);
        let plan = match two {
            true => join.plan(&left, &right).unwrap(),
            false => join.plan_self(&left).unwrap(),
        };
        let (mut csr, mut count) = (CsrSink::new().sorted(true).distances(true), Count::new());
        let mut degrees = Degrees::new();
        plan.run(&mut csr).unwrap();
        plan.run(&mut count).unwrap();
        plan.run(&mut degrees).unwrap();
        let csr = csr.into_csr();
        let distances: Vec<u64> = csr.distances().iter().map(|d| d.to_f64().to_bits()).collect();
        let rows = (csr.offsets().to_vec(), csr.ids().to_vec(), distances);
        (rows, count.pairs(), degrees.as_slice().to_vec())
    };
    let nearest = |k: usize, two: bool, strategy| {
        let join = KnnJoin::new(k).strategy(strategy).device(Device::Cpu).threads(2);
        let plan = match two {
            true => join.plan(&left, &right).unwrap(),
            false => join.plan_self(&left).unwrap(),
        };
        let mut found = Neighbors::new();
        plan.run(&mut found).unwrap();
        let distances: Vec<u64> = found.distances().iter().map(|d| d.to_f64().to_bits()).collect();
        (found.ids().to_vec(), distances)
    };
    let all_within = [(one, false), (many, false), (many, true)];
    let all_nearest = [(1, false), (10, false), (10, true), (100, false)];
    let expected_within = all_within.map(|(eps, two)| within(eps, Strategy::Brute, two));
    let expected_nearest = all_nearest.map(|(k, two)| nearest(k, two, Strategy::Brute));
    for kernels in all_kernels() {
        *FORCED.lock().unwrap() = Some(kernels);
        let context = format!("{kind} {} {dim}-D, {:?}", T::NAME, kernels.multiplier);
        for ((eps, two), expected) in all_within.into_iter().zip(&expected_within) {
            let found = within(eps, Strategy::Product, two);
            assert!(found == *expected, "{context}: ε {eps}, two sets {two}");
        }
        for ((k, two), expected) in all_nearest.into_iter().zip(&expected_nearest) {
            let found = nearest(k, two, Strategy::Product);
            assert!(found == *expected, "{context}: k {k}, two sets {two}");
        }
        *FORCED.lock().unwrap() = None;
    }
}

#[test]
fn joins_by_products_of_every_kind() {
    for kind in KINDS {
        check::<f32>(kind, 20);
        check::<f64>(kind, 33);
    }
}

/// Rows that are so long that queries are taken block by block.
#[test]
fn rows_without_end() {
    let n = 21_000;
    let points = PointsBuf::from_vec(vec![0.5f32; n * 2], 2).unwrap();
    let points = points.as_points();
    let join = EpsJoin::new(0.1).strategy(Strategy::Product).device(Device::Cpu).threads(2);
    let plan = join.plan_self(&points).unwrap();
    // As many as the piece of the first queries has.
    let index = plan.index().unwrap();
    let mut csr = CsrSink::new().sorted(true);
    index.run_rows(0..300, &mut csr).unwrap();
    let csr = csr.into_csr();
    for row in 0..300 {
        let others = (0..n as u32).filter(|id| *id != row as u32);
        assert!(csr.ids_of(row).iter().copied().eq(others), "{row}");
    }
    assert!(256 * n > MOST_IN_ROWS);
}
