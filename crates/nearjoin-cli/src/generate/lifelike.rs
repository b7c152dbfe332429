//! Points like those that people have. The benchmarks draw theirs from this file too, so it knows
//! nothing of the program.

use rand::Rng;
use rand_distr::{Distribution, StandardNormal};

/// A direction on the sky, as a unit vector. A third of the height leaves most of them near a
/// great circle, as the stars are near the Milky Way.
pub(crate) fn sphere(random: &mut impl Rng) -> [f64; 3] {
    let [x, y, z] = normal(random);
    unit([x, y, z / 3.0])
}

/// Places of the world, as unit vectors: towns whose sizes fall with their rank, most of them near
/// other towns, and places anywhere.
pub(crate) struct Places {
    towns: Vec<[f64; 3]>,
}

impl Places {
    const TOWNS: usize = 10_000;
    /// How far a town is from one that was there before, at any scale of these: 2 km to 2000 km.
    const APART: std::ops::Range<f64> = 0.0003..0.3;
    /// The standard deviation of the largest town: about 60 km. The area of a town goes with the
    /// number of its places.
    const LARGEST: f64 = 0.01;

    pub(crate) fn new(random: &mut impl Rng) -> Self {
        let mut towns: Vec<[f64; 3]> = Vec::with_capacity(Self::TOWNS);
        while towns.len() < Self::TOWNS {
            let town = if towns.is_empty() || random.random_ratio(1, 50) {
                unit(normal(random))
            } else {
                let near = towns[random.random_range(0..towns.len())];
                let apart = random.random_range(Self::APART.start.ln()..Self::APART.end.ln());
                around(near, apart.exp(), random)
            };
            towns.push(town);
        }
        Places { towns }
    }

    pub(crate) fn draw(&self, random: &mut impl Rng) -> [f64; 3] {
        if random.random_ratio(1, 7) {
            return unit(normal(random));
        }
        // Zipf's law: a rank is drawn by one over itself.
        let rank = (Self::TOWNS as f64).powf(random.random_range(0.0..1.0));
        let town = self.towns[(rank as usize - 1).min(Self::TOWNS - 1)];
        around(town, Self::LARGEST / rank.sqrt(), random)
    }
}

/// Longitude and latitude of a unit vector, in degrees.
pub(crate) fn degrees([x, y, z]: [f64; 3]) -> [f64; 2] {
    [y.atan2(x).to_degrees(), z.clamp(-1.0, 1.0).asin().to_degrees()]
}

/// Embeddings: unit vectors of many coordinates that vary in a few directions, gathered about some
/// topics.
pub(crate) struct Embeddings {
    dim: usize,
    /// Directions in which they vary, one after the other.
    directions: Vec<f64>,
    topics: Vec<[f64; Embeddings::INTRINSIC]>,
}

impl Embeddings {
    /// As many directions as they vary in.
    pub(crate) const INTRINSIC: usize = 8;
    const TOPICS: usize = 100;
    /// How far the members of a topic are from its middle, beside the distances of the topics.
    const WITHIN: f64 = 0.4;
    /// What each coordinate has of its own, beside what it has of a direction.
    const NOISE: f64 = 0.02;

    pub(crate) fn new(dim: usize, random: &mut impl Rng) -> Self {
        let directions = (0..dim * Self::INTRINSIC).map(|_| StandardNormal.sample(random));
        let directions = directions.collect();
        let topics = (0..Self::TOPICS).map(|_| normal(random)).collect();
        Embeddings { dim, directions, topics }
    }

    pub(crate) fn draw(&self, random: &mut impl Rng) -> Vec<f64> {
        let topic = self.topics[random.random_range(0..Self::TOPICS)];
        let own: [f64; Self::INTRINSIC] = normal(random);
        let mut row: Vec<f64> =
            (0..self.dim).map(|_| Self::NOISE * normal::<1>(random)[0]).collect();
        let parts = topic.iter().zip(own).map(|(topic, own)| topic + Self::WITHIN * own);
        for (direction, part) in self.directions.chunks_exact(self.dim).zip(parts) {
            row.iter_mut().zip(direction).for_each(|(x, along)| *x += part * along);
        }
        scale(&mut row);
        row
    }
}

fn normal<const D: usize>(random: &mut impl Rng) -> [f64; D] {
    std::array::from_fn(|_| StandardNormal.sample(random))
}

/// A place about so far from another.
fn around(place: [f64; 3], apart: f64, random: &mut impl Rng) -> [f64; 3] {
    let offset: [f64; 3] = normal(random);
    unit(std::array::from_fn(|j| place[j] + apart * offset[j]))
}

fn unit(mut vector: [f64; 3]) -> [f64; 3] {
    scale(&mut vector);
    vector
}

/// Gives a vector the length 1.
fn scale(vector: &mut [f64]) {
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    vector.iter_mut().for_each(|x| *x /= length);
}
