//! The answer does not depend on the instruction set.
//!
//! The level is read from the environment, which belongs to the process: each level runs
//! in a process of its own, which prints a digest of every answer.

use std::hash::{DefaultHasher, Hash, Hasher};

use nearjoin::sink::{Count, CsrSink};
use nearjoin::{EpsJoin, Metric, Points, Scalar, SimdLevel, Strategy};

use crate::check::{Answer, Case, on_one_thread};
use crate::child::{Child, said, say};
use crate::data::Data;

const VARIABLE: &str = "NEARJOIN_SIMD";
const STRATEGIES: [Strategy; 5] =
    [Strategy::Brute, Strategy::Directory, Strategy::Grid, Strategy::Ego, Strategy::Product];

fn digest(answer: &Answer) -> String {
    // Its keys are fixed: the same in every process.
    let mut hasher = DefaultHasher::new();
    (&answer.offsets, &answer.ids, &answer.bits).hash(&mut hasher);
    format!("{:016x} {} pairs", hasher.finish(), answer.pairs())
}

/// Hands over joins that exercise every kernel, near and at ε.
fn for_each_case<T: Scalar>(mut visit: impl FnMut(&Case<'_, T>)) {
    let all = [
        Data::Uniform,
        Data::Lattice,
        Data::RoughLattice,
        Data::HugeOffset,
        Data::NearMiss,
        Data::Sphere,
        Data::Piles,
    ];
    for data in all {
        for dim in [1, 2, 3, 4, 5, 6, 7, 8, 9, 40] {
            let points = if dim <= 3 { 300 } else { 120 };
            let left = data.points::<T>(points, dim, 11);
            let right = data.points::<T>(points * 2 / 3, dim, 12);
            let (left, right) = (left.as_points(), right.as_points());
            let name = format!("{data:?} {} {dim}-D", T::NAME);
            for metric in Metric::ALL {
                let eps = data.eps(&left, &right, metric);
                visit(&Case::within(&name, left, eps).metric(metric));
                visit(&Case::between(&name, left, right, eps).metric(metric));
            }
        }
    }
}

/// What this process finds for a case, one line for each strategy.
fn found<T: Scalar>(case: &Case<'_, T>) {
    for strategy in STRATEGIES {
        let plan = case.plan(&|join| join.strategy(strategy)).unwrap();
        let (mut csr, mut count) = (CsrSink::new().distances(true), Count::new());
        plan.run(&mut csr).unwrap();
        plan.run(&mut count).unwrap();
        let answer = Answer::from_csr(csr.csr());
        say(&format!("{case}, {strategy}: {}, counted {}", digest(&answer), count.pairs()));
    }
}

/// What the oracle finds for a case, in the same lines.
fn expected<T: Scalar>(case: &Case<'_, T>, lines: &mut Vec<String>) {
    let answer = case.oracle();
    for strategy in STRATEGIES {
        let digest = digest(&answer);
        lines.push(format!("{case}, {strategy}: {digest}, counted {}", answer.pairs()));
    }
}

#[test]
#[ignore = "a part of every_level_gives_the_oracles_answer"]
fn print_digests() {
    let points = Points::new(&[0.0f32], 1).unwrap();
    let level = EpsJoin::new(1.0).plan_self(&points).unwrap().simd();
    say(&level.to_string());
    on_one_thread(|| {
        for_each_case::<f32>(found);
        for_each_case::<f64>(found);
    });
}

#[test]
fn every_level_gives_the_oracles_answer() {
    let mut right = Vec::new();
    for_each_case::<f32>(|case| expected(case, &mut right));
    for_each_case::<f64>(|case| expected(case, &mut right));
    for level in SimdLevel::ALL {
        if !level.is_available() {
            println!("skipped {level}: this processor does not have it");
            continue;
        }
        let child = Child::new("simd::print_digests").env(VARIABLE, &level.to_string());
        let lines = child.lines();
        let (used, answers) = lines.split_first().expect("a child that says something");
        assert_eq!(*used, level.to_string(), "the level that {VARIABLE} asked for");
        assert_eq!(answers.len(), right.len(), "{level}");
        for (answer, right) in answers.iter().zip(&right) {
            assert_eq!(answer, right, "{level}");
        }
    }
}

#[test]
#[ignore = "a part of the tests of NEARJOIN_SIMD"]
fn print_error_or_level() {
    let points = Points::new(&[0.0f64, 1.0], 1).unwrap();
    match EpsJoin::new(1.0).plan_self(&points) {
        Ok(plan) => say(&format!("level {}", plan.simd())),
        Err(error) => say(&format!("error {error}")),
    }
}

/// What planning says with the variable set to `value`.
fn plan_with(value: &str) -> String {
    let output = Child::new("simd::print_error_or_level").env(VARIABLE, value).output();
    assert!(output.status.success(), "planning with {VARIABLE}={value:?} must not panic");
    said(&output).concat()
}

#[test]
fn an_unknown_level_is_an_error_that_names_it() {
    for name in ["sse9", "AVX2", " avx2"] {
        let message = plan_with(name);
        assert!(message.starts_with("error "), "{name:?}: {message}");
        assert!(message.contains(&format!("{name:?}")), "{message}");
        for level in SimdLevel::ALL {
            assert!(message.contains(&level.to_string()), "{message} must name {level}");
        }
    }
}

#[test]
fn a_level_that_the_processor_lacks_is_an_error() {
    for level in SimdLevel::ALL {
        let message = plan_with(&level.to_string());
        if level.is_available() {
            assert_eq!(message, format!("level {level}"));
        } else {
            assert!(message.starts_with("error ") && message.contains(&level.to_string()));
        }
    }
}

#[test]
fn no_choice_is_the_best_level() {
    let available = SimdLevel::ALL.iter().filter(|level| level.is_available());
    let best = available.max().expect("plain loops are always there");
    for value in ["", "auto"] {
        assert_eq!(plan_with(value), format!("level {best}"));
    }
}

#[test]
fn names_round_trip() {
    for &level in SimdLevel::ALL {
        assert_eq!(level.to_string().parse(), Ok(level));
    }
    assert!("neon512".parse::<SimdLevel>().is_err());
}
