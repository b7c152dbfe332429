//! What a plan expects of every strategy, beside what it then does.

use nearjoin::sink::Degrees;
use nearjoin::{Device, DuplicateRemoval, EpsJoin, Metric, NeighborCurve, Points, Strategy};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1, StandardNormal};

// As `nearjoin gen` makes them.
#[allow(dead_code)]
#[path = "../../../nearjoin-cli/src/generate/lifelike.rs"]
mod lifelike;

use lifelike::{Embeddings, Places};

/// Points, and in many dimensions fewer.
const POINTS: usize = 1 << 17;
const FEW: usize = 1 << 13;
/// Neighbours that ε is chosen for.
const NEIGHBORS: f64 = 30.0;
/// What is expected of a grid, and of the number of pairs, is right to this factor.
const RIGHT: f64 = 1.5;
/// Of the recursive join, whose boxes are told from a few points each, it is right to this one, and of
/// the directory, whose dimensions are taken to be independent where it has many parts, to this.
const LESS_RIGHT: [(&str, f64); 2] = [("ego", 1.75), ("directory", 3.0)];

/// Points of some kind, row after row: its name ends in its dimension.
fn points(name: &str, dim: usize) -> Vec<f64> {
    let random = &mut StdRng::seed_from_u64(dim as u64);
    let normal = |random: &mut StdRng| -> f64 { StandardNormal.sample(random) };
    let even = |random: &mut StdRng| random.random_range(0.0..100.0);
    let mut rows = |n: usize, row: &mut dyn FnMut(&mut StdRng) -> Vec<f64>| -> Vec<f64> {
        (0..n).flat_map(|_| row(random)).collect()
    };
    match name.trim_end_matches(|digit: char| digit.is_ascii_digit()) {
        "uniform" => rows(POINTS, &mut |random| (0..dim).map(|_| even(random)).collect()),
        "exponential" => {
            rows(POINTS, &mut |random| (0..dim).map(|_| random.sample(Exp1)).collect())
        }
        "clustered" => {
            let centres = rows(20, &mut |random| (0..dim).map(|_| even(random)).collect());
            rows(POINTS, &mut |random| match random.random_ratio(1, 20) {
                true => (0..dim).map(|_| even(random)).collect(),
                false => {
                    let centre = &centres[random.random_range(0..20) * dim..][..dim];
                    centre.iter().map(|x| x + 0.5 * normal(random)).collect()
                }
            })
        }
        "sphere" => rows(POINTS, &mut |random| lifelike::sphere(random).to_vec()),
        "places" => {
            let places = Places::new(&mut StdRng::seed_from_u64(1));
            rows(POINTS, &mut |random| match dim {
                2 => lifelike::degrees(places.draw(random)).to_vec(),
                _ => places.draw(random).to_vec(),
            })
        }
        "embedding" => {
            let embeddings = Embeddings::new(dim, &mut StdRng::seed_from_u64(1));
            rows(FEW, &mut |random| embeddings.draw(random))
        }
        "line" => rows(POINTS, &mut |random| vec![even(random); dim]),
        "lattice" => {
            let side = (POINTS as f64).powf(1.0 / dim as f64).ceil() as usize;
            let mut order: Vec<usize> = (0..POINTS).collect();
            order.shuffle(random);
            let digit = |at: usize, j: usize| (at / side.pow(j as u32) % side) as f64;
            order.into_iter().flat_map(|at| (0..dim).map(move |j| digit(at, j))).collect()
        }
        "outlier" => {
            let mut data = rows(POINTS, &mut |random| (0..dim).map(|_| even(random)).collect());
            data[..dim].fill(1e6);
            data
        }
        "duplicates" => {
            let piles = rows(POINTS / 100, &mut |random| (0..dim).map(|_| even(random)).collect());
            rows(POINTS, &mut |random| {
                piles[random.random_range(0..POINTS / 100) * dim..][..dim].to_vec()
            })
        }
        other => panic!("{other}"),
    }
}

const SETS: [(&str, usize); 15] = [
    ("uniform2", 2),
    ("uniform3", 3),
    ("uniform4", 4),
    ("uniform6", 6),
    ("exponential2", 2),
    ("exponential4", 4),
    ("clustered2", 2),
    ("sphere3", 3),
    ("places2", 2),
    ("places3", 3),
    ("embedding64", 64),
    ("line6", 6),
    ("lattice3", 3),
    ("outlier2", 2),
    ("duplicates2", 2),
];

#[test]
fn expected_tests_and_pairs_are_right() {
    let mut wrong = Vec::new();
    for (name, dim) in SETS {
        let data = points(name, dim);
        let points = Points::new(&data, dim).unwrap();
        let curve = NeighborCurve::of_self(&points, Metric::L2).unwrap();
        let eps = curve.eps(NEIGHBORS).unwrap();
        let mut line = format!("{name:12}");
        for strategy in [Strategy::Grid, Strategy::Ego, Strategy::Directory] {
            // Every pair is looked at from both sides, as estimates have it.
            let join = EpsJoin::new(eps).device(Device::Cpu).strategy(strategy);
            let join = join.duplicate_removal(DuplicateRemoval::None);
            let plan = join.plan_self(&points).unwrap();
            let estimates = plan.estimates();
            let estimate = estimates.iter().find(|estimate| estimate.strategy == strategy).unwrap();
            let (tests, pairs) = (estimate.distance_tests, plan.expected_pairs().about);
            let stats = plan.run(&mut Degrees::new()).unwrap();
            let tests = (tests / 1e6, stats.distance_tests as f64 / 1e6);
            let pairs = (pairs / 1e6, stats.pairs as f64 / 1e6);
            let mut tell = |what: &str, (expected, counted): (f64, f64)| {
                let ratio = expected / counted;
                line += &format!(" | {what} {expected:6.1} {counted:6.1} M {ratio:.2}");
                let known = LESS_RIGHT.iter().find(|less| less.0 == what);
                let right = known.map_or(RIGHT, |less| less.1);
                if !(1.0 / right..=right).contains(&ratio) {
                    wrong.push(format!("{name}, {what}: {expected:.1} M, not {counted:.1} M"));
                }
            };
            tell(&strategy.to_string(), tests);
            if strategy == Strategy::Grid {
                tell("pairs", pairs);
            }
        }
        println!("{line}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn brute_force_tests_every_pair() {
    let data = &points("uniform3", 3)[..3 * FEW];
    let points = Points::new(data, 3).unwrap();
    let join = EpsJoin::new(1.0).device(Device::Cpu).strategy(Strategy::Brute);
    let join = join.duplicate_removal(DuplicateRemoval::None);
    let plan = join.plan_self(&points).unwrap();
    assert_eq!(
        plan.estimates()
            .iter()
            .find(|estimate| estimate.strategy == Strategy::Brute)
            .map(|estimate| estimate.distance_tests),
        Some((FEW * FEW) as f64)
    );
    assert_eq!(plan.run(&mut Degrees::new()).unwrap().distance_tests, (FEW * FEW) as u64);
}
