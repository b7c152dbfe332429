//! Boxes of 32 candidates: skipped, taken and opened.

use nearjoin::gpu::{GpuOptions, Knobs};
use nearjoin::{Metric, PointsBuf, Scalar, Strategy};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::knobs;
use crate::check::{self, Case};

fn boxed(listed: bool) -> GpuOptions {
    let knobs = Knobs { boxes: Some(true), listed: Some(listed), ..knobs() };
    GpuOptions::new().knobs(knobs)
}

/// A few piles of points, each much smaller than ε, beside evenly spread ones: of the boxes of
/// the piles some lie wholly within ε of a warp's queries, and some wholly beyond.
fn piles<T: Scalar>(n: usize, dim: usize, seed: u64) -> PointsBuf<T> {
    let chance = &mut StdRng::seed_from_u64(seed);
    let data = (0..n).flat_map(|row| {
        let pile = row * 7 % 3 * 2;
        let spread = if row % 4 == 0 { 6.0 } else { 0.05 };
        let at = |chance: &mut StdRng| pile as f64 + spread * chance.random::<f64>();
        (0..dim).map(|_| T::from_f64(at(chance))).collect::<Vec<_>>()
    });
    PointsBuf::from_vec(data.collect(), dim).unwrap()
}

fn check_all<T: Scalar>() {
    let mut taken = 0;
    for (dim, metric) in [1, 2, 3, 4, 5, 6, 7, 8].into_iter().zip(Metric::ALL.into_iter().cycle()) {
        let (left, right) = (piles::<T>(300, dim, 1), piles::<T>(400, dim, 2));
        let (left, right) = (left.as_points(), right.as_points());
        let cases = [
            Case::within("piles", right, 0.9),
            Case::within("piles", right, 0.9).include_self(true),
            Case::between("piles", left, right, 0.9),
        ];
        for (number, case) in cases.into_iter().enumerate() {
            let case = case.metric(metric).on(&boxed((number + dim) % 2 == 0));
            let expected = case.oracle();
            for strategy in [Strategy::Grid, Strategy::Brute] {
                let context = format!("{case}, {strategy}, {dim}-D");
                let plan = case.plan(&|join| join.strategy(strategy)).expect(&context);
                check::check_count(&plan, &expected, &context);
                check::check_degrees(&plan, &expected, &context);
                check::check_plain_csr(&plan, &expected, &context);
                check::check_sorted_csr(&plan, &expected, &context);
                check::check_callback(&plan, &expected, &context);
                let stats = plan.run(&mut nearjoin::sink::Degrees::new()).unwrap();
                taken += stats.pairs_taken;
            }
        }
    }
    assert!(taken > 0, "no box was taken whole");
}

#[test]
fn f32() {
    check_all::<f32>();
}

#[test]
fn f64() {
    check_all::<f64>();
}
