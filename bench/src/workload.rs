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

/// What an ε-join is asked for: the neighbours within this distance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within(pub(crate) f64);

/// What a KNN-join is asked for: so many nearest neighbours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nearest(pub(crate) usize);

/// A standard case: a shape, a dimension, and what is asked.
#[derive(Debug)]
pub(crate) struct Case<Ask> {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) dimension: usize,
    /// Beside the standard number: this many for each 20.
    per_20: usize,
    ask: Ask,
}

impl<Ask> Case<Ask> {
    const fn new(name: &'static str, shape: Shape, dimension: usize, ask: Ask) -> Self {
        Case { name, shape, dimension, per_20: 20, ask }
    }

    const fn per_20(self, per_20: usize) -> Self
    where
        Ask: Copy,
    {
        Case { per_20, ..self }
    }

    /// Draws the points and asks about them.
    fn draw(&'static self, points: Option<usize>, ask: Ask) -> Workload<Ask> {
        let points = (points.unwrap_or(STANDARD) * self.per_20).div_ceil(20);
        let data = draw(self.shape, points, self.dimension);
        Workload { case: self, points, ask, data }
    }
}

/// The standard cases of the ε-join, in the order of the tables.
pub(crate) const EPS_CASES: &[Case<Within>] = &[
    Case::new("uniform2", Shape::Uniform, 2, Within(0.2)),
    Case::new("uniform3", Shape::Uniform, 3, Within(1.0)),
    Case::new("uniform4", Shape::Uniform, 4, Within(4.0)),
    Case::new("uniform6", Shape::Uniform, 6, Within(8.0)),
    Case::new("exponential2", Shape::Exponential, 2, Within(0.0004)),
    Case::new("clustered", Shape::Clustered, 2, Within(0.02)).per_20(50),
];

/// The standard cases of the KNN-join.
pub(crate) const KNN_CASES: &[Case<Nearest>] = &[
    Case::new("uniform2-k8", Shape::Uniform, 2, Nearest(8)),
    Case::new("uniform2-k32", Shape::Uniform, 2, Nearest(32)),
    Case::new("uniform4-k8", Shape::Uniform, 4, Nearest(8)),
    Case::new("exponential4-k8", Shape::Exponential, 4, Nearest(8)),
    Case::new("uniform6-k8", Shape::Uniform, 6, Nearest(8)),
    Case::new("clustered-k8", Shape::Clustered, 2, Nearest(8)).per_20(50),
    Case::new("uniform64-k10", Shape::Uniform, 64, Nearest(10)).per_20(1),
];

impl Case<Within> {
    /// Whether the answer is too large for anything but a count.
    pub(crate) fn count_only(&self) -> bool {
        self.shape == Shape::Clustered
    }

    /// Draws the points. A `points` other than the standard 2·10⁶ scales ε so that the
    /// number of neighbours stays; the clusters grow or shrink in proportion and keep ε,
    /// so there the number of neighbours goes with the number of points.
    pub(crate) fn workload(&'static self, points: Option<usize>) -> Workload<Within> {
        let Within(eps) = self.ask;
        let grown = match self.shape {
            Shape::Clustered => 1.0,
            _ => STANDARD as f64 / points.unwrap_or(STANDARD) as f64,
        };
        self.draw(points, Within(eps * grown.powf(1.0 / self.dimension as f64)))
    }
}

impl Case<Nearest> {
    /// Draws the points: `points` of them beside the standard 2·10⁶.
    pub(crate) fn workload(&'static self, points: Option<usize>) -> Workload<Nearest> {
        self.draw(points, self.ask)
    }
}

/// A case with its points.
pub(crate) struct Workload<Ask: 'static> {
    pub(crate) case: &'static Case<Ask>,
    pub(crate) points: usize,
    pub(crate) ask: Ask,
    /// Row-major.
    pub(crate) data: Vec<f64>,
}

impl<Ask> Workload<Ask> {
    /// Coordinates per point.
    pub(crate) fn dimension(&self) -> usize {
        self.case.dimension
    }

    /// The points as rows of `D` coordinates, which must be as many as they have.
    pub(crate) fn rows<const D: usize>(&self) -> &[[f64; D]] {
        let (rows, rest) = self.data.as_chunks::<D>();
        assert!(D == self.dimension() && rest.is_empty(), "rows of {D}");
        rows
    }

    /// The same points, each coordinate rounded.
    pub(crate) fn to_f32(&self) -> Vec<f32> {
        self.data.iter().map(|&x| x as f32).collect()
    }
}

impl Workload<Within> {
    /// Uniform 2-D points with 25 neighbours each, for the scaling table.
    pub(crate) fn of_25_neighbors(points: usize) -> Self {
        let eps = (25.0 * 100.0 * 100.0 / (std::f64::consts::PI * points as f64)).sqrt();
        let data = uniform(points, 2, &mut StdRng::seed_from_u64(SEED));
        Workload { case: &EPS_CASES[0], points, ask: Within(eps), data }
    }

    /// The distance within which neighbours are asked for.
    pub(crate) fn eps(&self) -> f64 {
        self.ask.0
    }
}

impl Workload<Nearest> {
    /// The number of neighbours that are asked for.
    pub(crate) fn k(&self) -> usize {
        self.ask.0
    }
}

/// Points of a shape, row-major: the same ones for the same three arguments.
fn draw(shape: Shape, points: usize, dimension: usize) -> Vec<f64> {
    let mut random = StdRng::seed_from_u64(SEED + dimension as u64);
    match shape {
        Shape::Uniform => uniform(points, dimension, &mut random),
        Shape::Exponential => exponential(points, dimension, &mut random),
        Shape::Clustered => clustered(points, &mut random),
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
        for case in EPS_CASES {
            let (once, again) = (case.workload(Some(1000)), case.workload(Some(1000)));
            assert_eq!(once.data, again.data);
            assert_eq!(once.data.len(), once.points * case.dimension);
        }
        for case in KNN_CASES {
            let (once, again) = (case.workload(Some(1010)), case.workload(Some(1010)));
            assert_eq!(once.data, again.data);
            assert_eq!(once.data.len(), once.points * case.dimension);
        }
    }

    #[test]
    fn fewer_points_keep_their_neighbors() {
        assert_eq!(EPS_CASES[2].name, "uniform4");
        assert_eq!(EPS_CASES[2].workload(Some(STANDARD / 16)).eps(), 8.0);
        assert_eq!(EPS_CASES[5].name, "clustered");
        assert_eq!(EPS_CASES[5].workload(Some(2000)).points, 5000);
        assert_eq!(EPS_CASES[5].workload(None).eps(), 0.02);
    }
}
