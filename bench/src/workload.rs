//! The points: the same for every engine and, by fixed seeds, in every run.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp, Normal};

// As `nearjoin gen` makes them, which also makes them in degrees.
#[allow(dead_code)]
#[path = "../../crates/nearjoin-cli/src/generate/lifelike.rs"]
mod lifelike;

use lifelike::{Embeddings, Places};

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
    /// All in one place.
    Equal,
    /// Uniform, 100 in each place.
    Duplicates,
    /// Uniform, and one point at 10¹² in every dimension.
    Outlier,
    /// Evenly on the diagonal of [0, 100]^d.
    Line,
    /// Whole coordinates, each place of a cube once.
    Lattice,
    /// On the unit sphere in 3-D, more of them the nearer to its equator.
    Sphere,
    /// As places of the world are on the unit sphere in 3-D: towns of all sizes, and some alone.
    Places,
    /// Unit vectors that vary in a few directions.
    Embedding,
}

impl Shape {
    /// In how many dimensions points are spread: the number within a distance goes with it to
    /// this power.
    fn intrinsic(self, dimension: usize) -> usize {
        match self {
            Shape::Line => 1,
            Shape::Sphere | Shape::Places => 2,
            Shape::Embedding => Embeddings::INTRINSIC,
            _ => dimension,
        }
    }
}

/// What a join is asked for.
pub(crate) trait Ask: Copy + 'static {
    /// The standard cases, in the order of the tables.
    const CASES: &'static [Case<Self>];
    /// Cases on which an index could degenerate: not so many points, as one that does takes
    /// a time that goes with their square.
    const ADVERSARIAL: &'static [Case<Self>] = &[];

    /// What is asked of points that each stand for `thinning` of the standard number.
    fn scaled(self, shape: Shape, dimension: usize, thinning: f64) -> Self;
}

/// Of an ε-join: the neighbours within this distance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within(pub(crate) f64);

/// Of a KNN-join: so many nearest neighbours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nearest(pub(crate) usize);

/// A standard case: a shape, a dimension, and what is asked.
#[derive(Debug)]
pub(crate) struct Case<A> {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) dimension: usize,
    /// Beside the standard number: this many for each 20.
    per_20: usize,
    ask: A,
}

impl<A: Ask> Case<A> {
    const fn new(name: &'static str, shape: Shape, dimension: usize, ask: A) -> Self {
        Case { name, shape, dimension, per_20: 20, ask }
    }

    const fn per_20(self, per_20: usize) -> Self {
        Case { per_20, ..self }
    }

    /// All cases of a join.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        A::CASES.iter().chain(A::ADVERSARIAL)
    }

    /// Draws the points: `points` of them beside the standard 2·10⁶.
    pub(crate) fn workload(&'static self, points: Option<usize>) -> Workload<A> {
        let standard = points.unwrap_or(STANDARD);
        let thinning = STANDARD as f64 / standard as f64;
        let ask = self.ask.scaled(self.shape, self.dimension, thinning);
        let points = (standard * self.per_20).div_ceil(20);
        let data = draw(self.shape, points, self.dimension);
        Workload { case: self, points, ask, data }
    }
}

impl Ask for Within {
    const CASES: &'static [Case<Within>] = &[
        Case::new("uniform2", Shape::Uniform, 2, Within(0.2)),
        Case::new("uniform3", Shape::Uniform, 3, Within(1.0)),
        Case::new("uniform4", Shape::Uniform, 4, Within(4.0)),
        Case::new("uniform6", Shape::Uniform, 6, Within(8.0)),
        Case::new("exponential2", Shape::Exponential, 2, Within(0.0004)),
        Case::new("clustered", Shape::Clustered, 2, Within(0.02)).per_20(50),
        Case::new("sphere3", Shape::Sphere, 3, Within(0.006)),
        Case::new("places3", Shape::Places, 3, Within(0.0002)),
        Case::new("embedding64", Shape::Embedding, 64, Within(0.2)).per_20(1),
    ];

    /// ε, so that the number of neighbours stays. The clusters grow or shrink in proportion
    /// and keep ε, so there the number of neighbours goes with the number of points.
    fn scaled(self, shape: Shape, dimension: usize, thinning: f64) -> Self {
        let Within(eps) = self;
        match shape {
            Shape::Clustered => self,
            _ => Within(eps * thinning.powf(1.0 / shape.intrinsic(dimension) as f64)),
        }
    }
}

impl Ask for Nearest {
    const CASES: &'static [Case<Nearest>] = &[
        Case::new("uniform2-k8", Shape::Uniform, 2, Nearest(8)),
        Case::new("uniform2-k32", Shape::Uniform, 2, Nearest(32)),
        Case::new("uniform3-k8", Shape::Uniform, 3, Nearest(8)),
        Case::new("uniform4-k8", Shape::Uniform, 4, Nearest(8)),
        Case::new("exponential4-k8", Shape::Exponential, 4, Nearest(8)),
        Case::new("uniform6-k8", Shape::Uniform, 6, Nearest(8)),
        Case::new("clustered-k8", Shape::Clustered, 2, Nearest(8)).per_20(50),
        Case::new("uniform64-k10", Shape::Uniform, 64, Nearest(10)).per_20(1),
        Case::new("sphere3-k8", Shape::Sphere, 3, Nearest(8)),
        Case::new("places3-k8", Shape::Places, 3, Nearest(8)),
        Case::new("embedding64-k10", Shape::Embedding, 64, Nearest(10)).per_20(1),
    ];

    const ADVERSARIAL: &'static [Case<Nearest>] = &[
        Case::new("equal2-k8", Shape::Equal, 2, Nearest(8)).per_20(5),
        Case::new("duplicates2-k8", Shape::Duplicates, 2, Nearest(8)).per_20(5),
        Case::new("outlier2-k8", Shape::Outlier, 2, Nearest(8)).per_20(5),
        Case::new("line6-k8", Shape::Line, 6, Nearest(8)).per_20(5),
        Case::new("lattice3-k8", Shape::Lattice, 3, Nearest(8)).per_20(5),
        Case::new("lattice6-k8", Shape::Lattice, 6, Nearest(8)).per_20(5),
    ];

    fn scaled(self, _: Shape, _: usize, _: f64) -> Self {
        self
    }
}

impl Case<Within> {
    /// Whether the answer is too large for anything but a count.
    pub(crate) fn count_only(&self) -> bool {
        self.shape == Shape::Clustered
    }
}

/// A case with its points.
pub(crate) struct Workload<A: 'static> {
    pub(crate) case: &'static Case<A>,
    pub(crate) points: usize,
    pub(crate) ask: A,
    /// Row-major.
    pub(crate) data: Vec<f64>,
}

impl<A> Workload<A> {
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
        Workload { case: &Within::CASES[0], points, ask: Within(eps), data }
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
pub(crate) fn draw(shape: Shape, points: usize, dimension: usize) -> Vec<f64> {
    let mut random = StdRng::seed_from_u64(SEED + dimension as u64);
    match shape {
        Shape::Uniform => uniform(points, dimension, &mut random),
        Shape::Exponential => exponential(points, dimension, &mut random),
        Shape::Clustered => clustered(points, &mut random),
        Shape::Equal => vec![0.3; points * dimension],
        Shape::Duplicates => duplicates(points, dimension, &mut random),
        Shape::Outlier => {
            let mut data = uniform(points.saturating_sub(1), dimension, &mut random);
            data.resize(points * dimension, 1e12);
            data
        }
        Shape::Line => {
            let along = (0..points).map(|_| random.random_range(0.0..100.0));
            along.flat_map(|x| std::iter::repeat_n(x, dimension)).collect()
        }
        Shape::Lattice => lattice(points, dimension, &mut random),
        Shape::Sphere => (0..points).flat_map(|_| lifelike::sphere(&mut random)).collect(),
        Shape::Places => {
            let places = Places::new(&mut random);
            (0..points).flat_map(|_| places.draw(&mut random)).collect()
        }
        Shape::Embedding => {
            let embeddings = Embeddings::new(dimension, &mut random);
            (0..points).flat_map(|_| embeddings.draw(&mut random)).collect()
        }
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

/// A hundredth of the places, each 100 times, in no order.
fn duplicates(points: usize, dimension: usize, random: &mut StdRng) -> Vec<f64> {
    let places = uniform(points.div_ceil(100), dimension, random);
    let place = |at: usize| &places[at / 100 * dimension..][..dimension];
    shuffled(points, random).flat_map(|at| place(at).to_vec()).collect()
}

/// The first points of the smallest cube that has so many, in no order.
fn lattice(points: usize, dimension: usize, random: &mut StdRng) -> Vec<f64> {
    let enough = |side: &usize| {
        (0..dimension).try_fold(1, |n: usize, _| n.checked_mul(*side)).is_none_or(|n| n >= points)
    };
    let side = (1..).find(enough).expect("some cube is large enough");
    let digits = |mut rest: usize| {
        (0..dimension).map(move |_| {
            let digit = rest % side;
            rest /= side;
            digit as f64
        })
    };
    shuffled(points, random).flat_map(digits).collect()
}

fn shuffled(points: usize, random: &mut StdRng) -> impl Iterator<Item = usize> + use<> {
    let mut order: Vec<usize> = (0..points).collect();
    order.shuffle(random);
    order.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw_twice<A: Ask>() {
        for case in Case::<A>::all() {
            let (once, again) = (case.workload(Some(1010)), case.workload(Some(1010)));
            assert_eq!(once.data, again.data);
            assert_eq!(once.data.len(), once.points * case.dimension);
        }
    }

    #[test]
    fn the_same_points_in_every_run() {
        draw_twice::<Within>();
        draw_twice::<Nearest>();
    }

    #[test]
    fn fewer_points_keep_their_neighbors() {
        assert_eq!(Within::CASES[2].name, "uniform4");
        assert_eq!(Within::CASES[2].workload(Some(STANDARD / 16)).eps(), 8.0);
        assert_eq!(Within::CASES[5].name, "clustered");
        assert_eq!(Within::CASES[5].workload(Some(2000)).points, 5000);
        assert_eq!(Within::CASES[5].workload(None).eps(), 0.02);
        assert_eq!(Within::CASES[6].name, "sphere3");
        assert_eq!(Within::CASES[6].workload(Some(STANDARD / 4)).eps(), 0.012);
    }

    /// How many different places points have.
    fn places(shape: Shape, points: usize) -> usize {
        let data = draw(shape, points, 3);
        let mut rows: Vec<[u64; 3]> =
            data.chunks(3).map(|row| [0, 1, 2].map(|at| row[at].to_bits())).collect();
        rows.sort_unstable();
        rows.dedup();
        rows.len()
    }

    #[test]
    fn places_are_shared_as_they_should_be() {
        assert_eq!(places(Shape::Equal, 1000), 1);
        assert_eq!(places(Shape::Duplicates, 1000), 10);
        assert_eq!(places(Shape::Lattice, 1000), 1000);
        assert_eq!(places(Shape::Line, 1000), 1000);
        assert_eq!(places(Shape::Outlier, 1000), 1000);
    }
}
