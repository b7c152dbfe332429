//! Points of every kind that a join must cope with. The same arguments give the same
//! points in every run.

use nearjoin::{Metric, Points, PointsBuf, Scalar};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1, StandardNormal};

/// The spacing of [`Data::Lattice`]: a power of two, so that neighbours are exactly that
/// far apart.
pub(crate) const SPACING: f64 = 0.25;
/// The spacing of [`Data::RoughLattice`]: no binary fraction, so that neighbours are a
/// little nearer or farther than that.
pub(crate) const ROUGH_SPACING: f64 = 0.1;

/// The distance of partners in [`Data::NearMiss`].
const NEAR: f64 = 0.01;

/// A distribution of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// Independent coordinates in 0..100.
    Uniform,
    /// Independent exponential coordinates: dense in one corner.
    Exponential,
    /// Five balls of normal points.
    Clustered,
    /// An integer lattice times [`SPACING`]: pairs at exactly ε, and ties.
    Lattice,
    /// An integer lattice times [`ROUGH_SPACING`]: pairs at ε give or take a rounding.
    RoughLattice,
    /// One point, many times.
    Duplicates,
    /// Points on one line through all dimensions.
    Collinear,
    /// A single point.
    OnePoint,
    /// No points.
    Empty,
    /// 1e9 plus a few hundred units in the last place: differences have few bits.
    HugeOffset,
    /// Nearly all points in one small ball; the others far away.
    DenseBall,
    /// Points scattered widely, each with a partner at a distance just below or above
    /// [`NEAR`], by anything between an eighth and a rounding: hard for filters.
    NearMiss,
    /// A point at 0 and many at distance 1 from it, give or take a rounding: only the
    /// arithmetic of the contract tells which of them are within 1.
    Sphere,
    /// A few points as in [`Data::Sphere`], each many times: boxes around equal points
    /// are as far apart as the points, and must not be taken or skipped for rounding.
    Piles,
}

impl Data {
    /// About `n` points; one or none where the distribution says so.
    pub(crate) fn points<T: Scalar>(self, n: usize, dim: usize, seed: u64) -> PointsBuf<T> {
        let mut rng = StdRng::seed_from_u64(seed ^ (dim as u64) << 32);
        let rng = &mut rng;
        let mut rows: Vec<Vec<f64>> = match self {
            Data::Uniform => rows(n, || many(dim, || rng.random_range(0.0..100.0))),
            Data::Exponential => rows(n, || many(dim, || rng.sample::<f64, _>(Exp1) / 40.0)),
            Data::Clustered => clustered(n, dim, rng),
            Data::Lattice => lattice(n, dim, SPACING),
            Data::RoughLattice => lattice(n, dim, ROUGH_SPACING),
            Data::Duplicates => rows(n, || many(dim, || 0.7)),
            Data::Collinear => rows(n, || {
                let along: f64 = rng.random_range(-50.0..50.0);
                (0..dim).map(|j| along * (1.0 + j as f64 / 3.0) + 2.0).collect()
            }),
            Data::OnePoint => vec![many(dim, || 3.25)],
            Data::Empty => Vec::new(),
            Data::HugeOffset => {
                let span = 1e9 * T::UNIT_ROUNDOFF * 512.0;
                rows(n, || many(dim, || 1e9 + rng.random_range(0.0..span)))
            }
            Data::DenseBall => dense_ball(n, dim, rng),
            Data::NearMiss => near_miss(n, dim, rng),
            Data::Sphere => sphere(n, dim, rng),
            Data::Piles => {
                let (places, copies) = (sphere(n.div_ceil(32), dim, rng), 32);
                places.iter().flat_map(|place| vec![place.clone(); copies]).collect()
            }
        };
        // Input order must not help: lattices come in index order otherwise.
        rows.shuffle(rng);
        let flat = rows.into_iter().flatten().map(T::from_f64).collect();
        PointsBuf::from_vec(flat, dim).expect("generated points are valid")
    }

    /// An ε at which some pairs match and some do not, if the distribution has any such.
    pub(crate) fn eps<T: Scalar>(
        self,
        left: &Points<'_, T>,
        right: &Points<'_, T>,
        metric: Metric,
    ) -> f64 {
        match self {
            Data::Lattice => SPACING,
            Data::RoughLattice => ROUGH_SPACING,
            Data::NearMiss => NEAR,
            Data::Duplicates | Data::OnePoint | Data::Empty | Data::Sphere | Data::Piles => 1.0,
            _ => near_quantile(left, right, metric, 0.04),
        }
    }

    /// Whether [`Data::eps`] separates pairs in every metric and dimension: otherwise it
    /// may be that all match, or that there are none.
    pub(crate) fn separates(self) -> bool {
        !matches!(self, Data::Duplicates | Data::OnePoint | Data::Empty | Data::Piles)
    }
}

fn rows(n: usize, row: impl FnMut() -> Vec<f64>) -> Vec<Vec<f64>> {
    std::iter::repeat_with(row).take(n).collect()
}

fn many(dim: usize, coordinate: impl FnMut() -> f64) -> Vec<f64> {
    std::iter::repeat_with(coordinate).take(dim).collect()
}

fn clustered(n: usize, dim: usize, rng: &mut StdRng) -> Vec<Vec<f64>> {
    let centres = rows(5, || many(dim, || rng.random_range(0.0..100.0)));
    let row = |i: usize| {
        let near = |centre: &f64| centre + Distribution::<f64>::sample(&StandardNormal, rng);
        centres[i % centres.len()].iter().map(near).collect()
    };
    (0..n).map(row).collect()
}

/// The first `n` points of a cube of lattice points, the first dimension fastest.
fn lattice(n: usize, dim: usize, spacing: f64) -> Vec<Vec<f64>> {
    let side = (3..).find(|side: &usize| {
        let most = u32::try_from(dim).expect("dimensions are small");
        side.checked_pow(most).is_none_or(|points| points >= n)
    });
    let side = side.expect("some cube is large enough");
    let row = |i: usize| {
        let mut rest = i;
        many(dim, || {
            let digit = rest % side;
            rest /= side;
            (digit as f64 - 3.0) * spacing
        })
    };
    (0..n).map(row).collect()
}

fn dense_ball(n: usize, dim: usize, rng: &mut StdRng) -> Vec<Vec<f64>> {
    let row = |i: usize| {
        if i % 16 == 15 {
            return many(dim, || if rng.random() { 1e6 } else { -1e6 });
        }
        many(dim, || 17.0 + 1e-3 * Distribution::<f64>::sample(&StandardNormal, rng))
    };
    (0..n).map(row).collect()
}

/// A vector of length 1 in one of the metrics, the `i`-th in turn.
fn direction(i: usize, dim: usize, rng: &mut StdRng) -> Vec<f64> {
    let vector = many(dim, || rng.sample(StandardNormal));
    let length = distance(&vector, &vec![0.0; dim], Metric::ALL[i % Metric::ALL.len()]);
    vector.into_iter().map(|x| x / length).collect()
}

fn near_miss(n: usize, dim: usize, rng: &mut StdRng) -> Vec<Vec<f64>> {
    // Both sides of a join have the same points, with partners of their own.
    let mut places = StdRng::seed_from_u64(99);
    let mut rows = Vec::new();
    for i in 0..n.div_ceil(2) {
        let place = many(dim, || places.random_range(0.0..100.0));
        let off = 0.5f64.powi(rng.random_range(3..53)) * if rng.random() { 1.0 } else { -1.0 };
        let towards = direction(i, dim, rng);
        let partner = place.iter().zip(towards).map(|(x, d)| x + d * NEAR * (1.0 + off));
        rows.push(partner.collect());
        rows.push(place);
    }
    rows
}

fn sphere(n: usize, dim: usize, rng: &mut StdRng) -> Vec<Vec<f64>> {
    let mut rows: Vec<Vec<f64>> = (1..n).map(|i| direction(i, dim, rng)).collect();
    rows.push(vec![0.0; dim]);
    rows
}

/// About the distance below which `fraction` of the pairs of different points lie. It
/// is itself the distance of a pair, give or take a rounding: a hard case.
fn near_quantile<T: Scalar>(
    left: &Points<'_, T>,
    right: &Points<'_, T>,
    metric: Metric,
    fraction: f64,
) -> f64 {
    let mut distances = Vec::new();
    for i in 0..left.len().min(64) {
        for j in 0..right.len().min(64) {
            distances.push(distance(left.row(i), right.row(j), metric));
        }
    }
    distances.retain(|&distance| distance > 0.0);
    distances.sort_by(f64::total_cmp);
    let at = (distances.len() as f64 * fraction) as usize;
    distances.get(at).copied().unwrap_or(1.0)
}

/// The distance of two points in `f64`, in the plain way.
pub(crate) fn distance<T: Scalar>(x: &[T], y: &[T], metric: Metric) -> f64 {
    let differences = x.iter().zip(y).map(|(x, y)| (x.to_f64() - y.to_f64()).abs());
    match metric {
        Metric::L2 => differences.map(|d| d * d).sum::<f64>().sqrt(),
        Metric::L1 => differences.sum(),
        Metric::Linf => differences.fold(0.0, f64::max),
        _ => panic!("a metric that this test does not know: {metric}"),
    }
}
