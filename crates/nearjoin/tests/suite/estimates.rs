//! What a sample says of a result, beside the result.

use nearjoin::{EpsJoin, Metric, NeighborCurve, Points, count_pairs};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, StandardNormal};

const KINDS: [&str; 4] = ["uniform", "normal", "clustered", "surface"];

fn normal(random: &mut StdRng) -> f64 {
    StandardNormal.sample(random)
}

fn points(kind: &str, n: usize, dim: usize) -> Vec<f32> {
    let random = &mut StdRng::seed_from_u64(dim as u64);
    let vector = |random: &mut StdRng| (0..dim).map(|_| normal(random)).collect::<Vec<f64>>();
    let centres: Vec<_> = (0..8).map(|_| vector(random)).collect();
    // Two directions, and how far along them a point lies.
    let (u, v) = (vector(random), vector(random));
    let mut data = Vec::with_capacity(n * dim);
    for _ in 0..n {
        let centre = &centres[random.random_range(0..centres.len())];
        let (s, t): (f64, f64) = (random.random(), random.random());
        data.extend((0..dim).map(|j| match kind {
            "uniform" => random.random(),
            "normal" => normal(random) as f32,
            "clustered" => (5.0 * centre[j] + 0.3 * normal(random)) as f32,
            _ => (s * u[j] + t * v[j]) as f32,
        }));
    }
    data
}

#[test]
fn expected_pairs_are_right_or_say_how_unsure_they_are() {
    let mut wrong = Vec::new();
    let mut cases = 0;
    for dim in [1, 2, 3, 8, 32, 128, 1024] {
        let n = match dim {
            1..=8 => 6000,
            9..=64 => 2000,
            _ => 1200,
        };
        for kind in KINDS {
            let data = points(kind, n, dim);
            let points = Points::new(&data, dim).unwrap();
            let curve = NeighborCurve::of_self(&points, Metric::L2).unwrap();
            for wanted in [0.3, 3.0, 30.0, 300.0] {
                let eps = curve.eps(wanted).unwrap();
                let exact = count_pairs(&points, eps).unwrap() as f64;
                let context = format!("{kind} {dim}-D, {wanted} neighbours: {exact}");
                let curved = curve.neighbors(eps) * n as f64;
                let expected = EpsJoin::new(eps).plan_self(&points).unwrap().expected_pairs();
                cases += 1;
                if !(exact <= 1.5 * expected.about && expected.about <= 1.5 * exact
                    || (expected.low..=expected.high).contains(&exact))
                {
                    wrong.push(format!("{context}, plan {expected:?}"));
                }
                // A quarter of the points were asked, of all others: there must be enough pairs.
                let noise = 1.5 + 4.0 / exact.sqrt();
                if exact > noise * curved || curved > noise * exact {
                    wrong.push(format!("{context}, curve {curved}"));
                }
                let back = curved / n as f64 / wanted;
                if !(0.9..1.2).contains(&back) && wanted >= 3.0 {
                    wrong.push(format!("{context}: {curved} by the curve that gave ε"));
                }
            }
        }
    }
    // A range holds with a probability of 95 %.
    assert!(20 * wrong.len() <= cases, "{} of {cases}:\n{}", wrong.len(), wrong.join("\n"));
    println!("{}", wrong.join("\n"));
}
