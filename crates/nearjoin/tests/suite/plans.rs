//! What a plan expects of every strategy, beside what it then does.

use nearjoin::sink::{Count, Degrees};
use nearjoin::{
    Device, DuplicateRemoval, EpsJoin, Estimate, Metric, NeighborCurve, Plan, Points, Strategy,
};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1, StandardNormal};

// As `nearjoin gen` makes them.
#[allow(dead_code)]
#[path = "../../../nearjoin-cli/src/generate/lifelike.rs"]
mod lifelike;

use lifelike::{Embeddings, Places};

/// Points, and fewer in many dimensions and where all are compared with all.
const POINTS: usize = 1 << 17;
const FEW: usize = 1 << 13;
/// Neighbours that ε is chosen for, and where cells of ε are nearly empty.
const NEIGHBORS: f64 = 30.0;
const FEW_NEIGHBORS: f64 = 6.0;
/// What is expected is right to this factor.
const RIGHT: f64 = 1.5;

const SETS: [(&str, usize); 17] = [
    ("uniform", 2),
    ("uniform", 3),
    ("uniform", 4),
    ("uniform", 6),
    ("exponential", 2),
    ("exponential", 4),
    ("clustered", 2),
    ("clustered", 4),
    ("surface", 3),
    ("sphere", 3),
    ("places", 2),
    ("places", 3),
    ("embedding", 64),
    ("lattice", 3),
    ("duplicates", 2),
    ("line", 6),
    ("outlier", 2),
];

/// Sets that are tried with few neighbours too.
const SPARSE: [(&str, usize); 3] = [("uniform", 3), ("uniform", 4), ("sphere", 3)];

/// Where it is right to another factor only: a set, what of it, and that factor.
const LESS_RIGHT: [(&str, usize, &str, f64); 2] = [
    // The trial has an eighth of the points and a larger ε, which is nearly as large as a cluster.
    ("clustered", 4, "ego", 1.8),
    // A part is told from 16 points, and boxes on a line are much smaller than what is between two.
    ("line", 6, "directory", 2.1),
];

/// Points of some kind, row after row.
fn points(name: &str, dim: usize) -> Vec<f64> {
    let random = &mut StdRng::seed_from_u64(dim as u64);
    let normal = |random: &mut StdRng| -> f64 { StandardNormal.sample(random) };
    let even = |random: &mut StdRng| random.random_range(0.0..100.0);
    let mut rows = |n: usize, row: &mut dyn FnMut(&mut StdRng) -> Vec<f64>| -> Vec<f64> {
        (0..n).flat_map(|_| row(random)).collect()
    };
    match name {
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
        "surface" => rows(POINTS, &mut surface),
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

/// A point of a surface that goes up and down.
fn surface(random: &mut StdRng) -> Vec<f64> {
    let [x, y]: [f64; 2] = [0, 1].map(|_| random.random_range(0.0..100.0));
    vec![x, y, 20.0 * (x / 20.0).sin() * (y / 20.0).cos()]
}

/// A join that looks at every pair from both sides, as estimates have it.
fn plan<'a>(points: &Points<'a, f64>, eps: f64, strategy: Strategy) -> Plan<'a, f64> {
    let join = EpsJoin::new(eps).duplicate_removal(DuplicateRemoval::None);
    join.device(Device::Cpu).strategy(strategy).plan_self(points).unwrap()
}

fn estimate(plan: &Plan<'_, f64>, strategy: Strategy) -> Estimate {
    let estimates = plan.estimates();
    *estimates.iter().find(|estimate| estimate.strategy == strategy).unwrap()
}

/// One row of the table, and what of it is not right.
struct Row {
    set: (&'static str, usize),
    line: String,
    wrong: Vec<String>,
}

impl Row {
    /// Numbers in millions. Those that are too large may be wrong too.
    fn tell(&mut self, what: &str, expected: f64, counted: f64) {
        let ratio = expected / counted;
        let (expected, counted) = (expected / 1e6, counted / 1e6);
        self.line += &format!(" | {what} {expected:.1} {counted:.1} {ratio:.2}");
        let right = self.allowed(what);
        if !(1.0 / right..=right).contains(&ratio) {
            let (name, dim) = self.set;
            self.wrong.push(format!("{name} {dim}-D, {what}: {expected:.2} M, not {counted:.2} M"));
        }
    }

    fn allowed(&self, what: &str) -> f64 {
        let known = LESS_RIGHT.iter().find(|less| (less.0, less.1) == self.set && less.2 == what);
        known.map_or(RIGHT, |less| less.3)
    }
}

#[test]
fn expected_tests_pairs_and_choice_are_right() {
    let mut wrong = Vec::new();
    let crowded = SETS.map(|set| (set, NEIGHBORS));
    let sparse = SPARSE.map(|set| (set, FEW_NEIGHBORS));
    for (set, neighbors) in crowded.into_iter().chain(sparse) {
        let row = row(set, neighbors);
        println!("{:11} {:2}-D, {neighbors}{}", set.0, set.1, row.line);
        wrong.extend(row.wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn row(set: (&'static str, usize), neighbors: f64) -> Row {
    let data = points(set.0, set.1);
    let all = Points::new(&data, set.1).unwrap();
    let eps = NeighborCurve::of_self(&all, Metric::L2).unwrap().eps(neighbors).unwrap();
    let mut row = Row { set, line: String::new(), wrong: Vec::new() };

    // Brute force tests all pairs, however many there are.
    let few = Points::new(&data[..FEW * set.1], set.1).unwrap();
    let brute = plan(&few, eps, Strategy::Brute);
    let tests = brute.run(&mut Degrees::new()).unwrap().distance_tests;
    row.tell("brute", estimate(&brute, Strategy::Brute).distance_tests, tests as f64);

    // What every strategy costs by the tests that it does, the first by those that it says.
    let auto = plan(&all, eps, Strategy::Auto);
    let brute = estimate(&auto, Strategy::Brute);
    let a_test = brute.seconds / brute.distance_tests;
    let mut costs = vec![(Strategy::Brute, brute.seconds)];
    for strategy in [Strategy::Directory, Strategy::Grid, Strategy::Ego] {
        let plan = plan(&all, eps, strategy);
        let expected = estimate(&plan, strategy);
        let stats = plan.run(&mut Degrees::new()).unwrap();
        let tests = stats.distance_tests as f64;
        row.tell(&strategy.to_string(), expected.distance_tests, tests);
        costs.push((strategy, expected.seconds + (tests - expected.distance_tests) * a_test));
        if strategy == Strategy::Grid {
            row.tell("pairs", plan.expected_pairs().about, stats.pairs as f64);
        }
    }
    // Products are of all points with all points: of their tests nothing is estimated.
    let products = auto.estimates().into_iter().find(|e| e.strategy == Strategy::Product);
    costs.extend(products.map(|products| (Strategy::Product, products.seconds)));
    let cost = |wanted: Strategy| costs.iter().find(|cost| cost.0 == wanted).unwrap().1;
    let least = costs.iter().map(|cost| cost.1).fold(f64::INFINITY, f64::min);
    let (chosen, ratio) = (auto.strategy(), cost(auto.strategy()) / least);
    row.line += &format!(" | chosen {chosen} {ratio:.2}");
    if ratio > row.allowed("choice") {
        row.wrong.push(format!("{} {}-D, {chosen} takes {ratio:.2} times as long", set.0, set.1));
    }
    row
}

#[test]
fn expected_pairs_of_many_points_on_a_surface_are_right() {
    let random = &mut StdRng::seed_from_u64(1);
    let data: Vec<f64> = (0..8 * POINTS).flat_map(|_| surface(random)).collect();
    let points = Points::new(&data, 3).unwrap();
    for eps in [0.1, 0.2, 0.5] {
        let plan = plan(&points, eps, Strategy::Auto);
        let (expected, stats) = (plan.expected_pairs(), plan.run(&mut Count::new()).unwrap());
        let ratio = expected.about / stats.pairs as f64;
        println!("ε = {eps}: {expected:?}, {} found, {ratio:.2}", stats.pairs);
        assert!((1.0 / RIGHT..=RIGHT).contains(&ratio), "ε = {eps}: {ratio:.2}");
    }
}
