//! The points: the same for every engine and, by fixed seeds, in every run.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp, Normal};

/// The number of points for which the ε of the scaled cases are written.
const STANDARD: usize = 2_000_000;
const SEED: u64 = 0x6e65_6172_6a6f_696e;

/// How points are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Evenly in [0, 100]^d.
    Uniform,
    /// Each coordinate exponential with λ = 40, so most points crowd in a corner.
    Exponential,
    /// Dense gaussian clusters in [0, 10]² and a thin background.
    Clustered,
}

/// A standard case: a shape, a dimension, a distance.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) dimension: usize,
    points: usize,
    eps: f64,
}

/// The standard cases, in the order of the tables.
pub(crate) const CASES: &[Case] = &[
    Case { name: "uniform2", shape: Shape::Uniform, dimension: 2, points: STANDARD, eps: 0.2 },
    Case { name: "uniform3", shape: Shape::Uniform, dimension: 3, points: STANDARD, eps: 1.0 },
    Case { name: "uniform4", shape: Shape::Uniform, dimension: 4, points: STANDARD, eps: 4.0 },
    Case { name: "uniform6", shape: Shape::Uniform, dimension: 6, points: STANDARD, eps: 8.0 },
    Case {
        name: "exponential2",
        shape: Shape::Exponential,
        dimension: 2,
        points: STANDARD,
        eps: 0.0004,
    },
    Case {
        name: "clustered",
        shape: Shape::Clustered,
        dimension: 2,
        points: STANDARD / 2 * 5,
        eps: 0.02,
    },
];

impl Case {
    /// The case with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Case> {
        CASES.iter().find(|case| case.name == name)
    }

    /// Whether the answer is too large for anything but a count.
    pub(crate) fn count_only(&self) -> bool {
        self.shape == Shape::Clustered
    }

    /// Draws the points. A `points` other than the standard 2·10⁶ scales ε so that the
    /// number of neighbours stays; the clusters grow or shrink in proportion and keep ε,
    /// so there the number of neighbours goes with the number of points.
    pub(crate) fn workload(&'static self, points: Option<usize>) -> Workload {
        let standard = points.unwrap_or(STANDARD);
        let (points, eps) = match self.shape {
            Shape::Clustered => (standard * self.points / STANDARD, self.eps),
            _ => {
                let grown = STANDARD as f64 / standard as f64;
                (standard, self.eps * grown.powf(1.0 / self.dimension as f64))
            }
        };
        let mut random = StdRng::seed_from_u64(SEED + self.dimension as u64);
        let data = match self.shape {
            Shape::Uniform => uniform(points, self.dimension, &mut random),
            Shape::Exponential => exponential(points, self.dimension, &mut random),
            Shape::Clustered => clustered(points, &mut random),
        };
        Workload { case: self, points, eps, data }
    }
}

/// A case with its points.
pub(crate) struct Workload {
    pub(crate) case: &'static Case,
    pub(crate) points: usize,
    pub(crate) eps: f64,
    /// Row-major.
    pub(crate) data: Vec<f64>,
}

impl Workload {
    /// Uniform 2-D points with 25 neighbours each, for the scaling table.
    pub(crate) fn of_25_neighbors(points: usize) -> Workload {
        let eps = (25.0 * 100.0 * 100.0 / (std::f64::consts::PI * points as f64)).sqrt();
        let data = uniform(points, 2, &mut StdRng::seed_from_u64(SEED));
        Workload { case: &CASES[0], points, eps, data }
    }

    /// Coordinates per point.
    pub(crate) fn dimension(&self) -> usize {
        self.case.dimension
    }

    /// The same points, each coordinate rounded.
    pub(crate) fn to_f32(&self) -> Vec<f32> {
        self.data.iter().map(|&x| x as f32).collect()
    }
}

fn uniform(points: usize, dimension: usize, random: &mut StdRng) -> Vec<f64> {
    (0..points * dimension).map(|_| random.random_range(0.0..100.0)).collect()
}

fn exponential(points: usize, dimension: usize, random: &mut StdRng) -> Vec<f64> {
    let law = Exp::new(40.0).expect("λ is positive");
    (0..points * dimension).map(|_| law.sample(random)).collect()
}

/// 20 clusters hold 95 % of the points. A point of a cluster of m finds, on average,
/// m·(1 − exp(−ε² / 4σ²)) neighbours in it: 13,700 at 5·10⁶ points and ε = 0.02, so
/// about 6.5·10¹⁰ ordered pairs in all.
fn clustered(points: usize, random: &mut StdRng) -> Vec<f64> {
    const CLUSTERS: usize = 20;
    const SIDE: f64 = 10.0;
    const SIGMA: f64 = 0.041;
    let centres: Vec<[f64; 2]> = (0..CLUSTERS)
        .map(|_| [random.random_range(0.0..SIDE), random.random_range(0.0..SIDE)])
        .collect();
    let offset = Normal::new(0.0, SIGMA).expect("σ is positive");
    let mut data = Vec::with_capacity(2 * points);
    for _ in 0..points {
        if random.random_bool(0.05) {
            data.extend([random.random_range(0.0..SIDE), random.random_range(0.0..SIDE)]);
        } else {
            let [x, y] = centres[random.random_range(0..CLUSTERS)];
            data.extend([x + offset.sample(random), y + offset.sample(random)]);
        }
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_points_in_every_run() {
        for case in CASES {
            let (once, again) = (case.workload(Some(1000)), case.workload(Some(1000)));
            assert_eq!(once.data, again.data);
            assert_eq!(once.data.len(), once.points * case.dimension);
        }
    }

    #[test]
    fn fewer_points_keep_their_neighbors() {
        let case = Case::named("uniform4").unwrap();
        assert_eq!(case.workload(Some(STANDARD / 16)).eps, 8.0);
        assert_eq!(Case::named("clustered").unwrap().workload(Some(2000)).points, 5000);
    }
}
