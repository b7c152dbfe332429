//! How far points are from each other beside how far they are from their middle: what tells how many pairs
//! products leave open.

use super::pruning::median;
use crate::scalar::Scalar;

/// Ranks of neighbours whose distances are known: in equal steps of their logarithms, from the nearest on.
const RANKS: usize = 6;
/// Points of a sample, at the least: their ranks are all different.
pub(super) const LEAST: usize = 64;
/// Groups of points whose means tell where their middle is.
const GROUPS: usize = 31;
/// Points of a sample that tell where their middle is, and how far all are from there.
const SIZES: usize = 128;

/// How far the points of a sample are, by L2, from a query that is like most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spacing {
    /// How far points are from the middle of the right ones: the root of the mean square of both sides.
    pub(crate) size: f64,
    /// Points of the sample.
    pub(crate) of: usize,
    /// How far its neighbours of some ranks are.
    pub(crate) ranks: [f64; RANKS],
}

impl Spacing {
    /// Of queries and sampled points, and the squared distances of some ranks of each query.
    pub(super) fn new(
        (queries, points): (&[f64], &[f64]),
        dim: usize,
        squared: &[[f64; RANKS]],
    ) -> Self {
        let of = points.len() / dim;
        let some: Vec<&[f64]> = points.chunks_exact(dim).step_by(of.div_ceil(SIZES)).collect();
        let middle = middle(&some, dim);
        let far = |point: &[f64]| -> f64 {
            point.iter().zip(&middle).map(|(x, c)| (x - c) * (x - c)).sum()
        };
        let asking = median(&mut queries.chunks_exact(dim).map(far).collect::<Vec<_>>());
        let asked = median(&mut some.into_iter().map(far).collect::<Vec<_>>());
        let usual = |at: usize| median(&mut squared.iter().map(|of| of[at]).collect::<Vec<_>>());
        let ranks = core::array::from_fn(|at| usual(at).sqrt());
        Spacing { size: (asking / 2.0 + asked / 2.0).sqrt(), of, ranks }
    }

    /// Which part of all points is this near.
    pub(crate) fn within(&self, distance: f64) -> f64 {
        let of = self.of as f64;
        let rank = match self.ranks.iter().position(|far| *far > distance) {
            Some(0) => (distance / self.ranks[0]).powf(self.power()),
            Some(at) => {
                let (near, far) = (self.ranks[at - 1], self.ranks[at]);
                let part =
                    if near > 0.0 { (distance / near).ln() / (far / near).ln() } else { 0.0 };
                let (less, more) = (rank(at - 1, self.of), rank(at, self.of));
                less * (more / less).powf(part)
            }
            None => of,
        };
        rank / of
    }

    /// How far the neighbours are that make up this part of all points.
    pub(crate) fn reach(&self, part: f64) -> f64 {
        let wanted = part * self.of as f64;
        match (0..RANKS).position(|at| rank(at, self.of) > wanted) {
            Some(0) => self.ranks[0] * wanted.powf(1.0 / self.power()),
            Some(at) => {
                let (less, more) = (rank(at - 1, self.of), rank(at, self.of));
                let (near, far) = (self.ranks[at - 1], self.ranks[at]);
                let part = (wanted / less).ln() / (more / less).ln();
                match near > 0.0 {
                    true => near * (far / near).powf(part),
                    false if wanted > less => far,
                    false => near,
                }
            }
            None => self.ranks[RANKS - 1],
        }
    }

    /// By which power of the distance the points near a query grow in number.
    fn power(&self) -> f64 {
        (rank(2, self.of) / rank(0, self.of)).ln() / (self.ranks[2] / self.ranks[0]).ln()
    }
}

/// The rank at some place of those that are known.
fn rank(at: usize, of: usize) -> f64 {
    (of as f64).powf(at as f64 / RANKS as f64).round()
}

/// What is at these ranks among some numbers.
pub(super) fn ranks(numbers: &mut [f64]) -> [f64; RANKS] {
    let (mut ranks, of) = ([0.0; RANKS], numbers.len());
    let mut least = numbers;
    for at in (0..RANKS).rev() {
        let (less, number, _) =
            least.select_nth_unstable_by(rank(at, of) as usize - 1, f64::total_cmp);
        (ranks[at], least) = (*number, less);
    }
    ranks
}

/// A place amid points: by each dimension, the median of the means of some groups of them. A few points that are
/// as far away as they like do not move it.
pub(crate) fn middle<T: Scalar>(rows: &[&[T]], dim: usize) -> Vec<f64> {
    let groups = GROUPS.min(rows.len());
    let mut means = vec![0.0; groups * dim];
    for (at, row) in rows.iter().enumerate() {
        let group = at % groups;
        // Divided first: sums may be beyond the largest number.
        let share = 1.0 / rows.len().saturating_sub(group).div_ceil(groups) as f64;
        let mean = means[group * dim..][..dim].iter_mut();
        mean.zip(*row).for_each(|(mean, x)| *mean += x.to_f64() * share);
    }
    let of_groups = |j: usize| means.iter().skip(j).step_by(dim).copied().collect::<Vec<_>>();
    (0..dim).map(|j| if groups == 0 { 0.0 } else { median(&mut of_groups(j)) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a query amid points whose number grows with a power of the distance.
    fn growing(power: f64, of: usize) -> Spacing {
        let ranks = core::array::from_fn(|at| (rank(at, of) / of as f64).powf(1.0 / power));
        Spacing { size: 1.0, of, ranks }
    }

    #[test]
    fn numbers_of_neighbours_are_told_by_their_distance() {
        for (power, of) in [(2.0, 64), (20.0, 2048), (1000.0, 500)] {
            let spacing = growing(power, of);
            for part in [1e-6, 1.0 / of as f64, 0.01, 0.2] {
                let distance = part.powf(1.0 / power);
                let [near, within] =
                    [spacing.reach(part) / distance, spacing.within(distance) / part];
                assert!((near - 1.0).abs() < 1e-9, "{power} {of} {part}: {near}");
                assert!((within - 1.0).abs() < 1e-9, "{power} {of} {part}: {within}");
            }
            assert_eq!((spacing.within(0.0), spacing.within(1.0)), (0.0, 1.0));
        }
    }

    #[test]
    fn copies_and_points_without_a_distance_are_told() {
        let ranks = [0.0, 0.0, 1.0, 2.0, 3.0, 4.0];
        let copies = Spacing { ranks, ..growing(2.0, 64) };
        assert_eq!([1e-3, 2.0 / 64.0, 2.1 / 64.0].map(|part| copies.reach(part)), [0.0, 0.0, 1.0]);
        assert_eq!(copies.within(0.0), 2.0 / 64.0);
        assert_eq!(copies.within(0.5), 2.0 / 64.0);
        let equal = Spacing { ranks: [0.0; RANKS], ..copies };
        assert_eq!((equal.within(0.0), equal.reach(0.5)), (1.0, 0.0));
        let far = Spacing { ranks: [f64::INFINITY; RANKS], ..copies };
        assert_eq!(far.within(f64::INFINITY), 1.0);
    }

    #[test]
    fn ranks_are_those_of_sorted_numbers() {
        for of in [LEAST, 100, 2048] {
            let mut numbers: Vec<f64> = (1..=of).map(|at| (at * 37 % of) as f64).collect();
            let expected = core::array::from_fn(|at| rank(at, of) - 1.0);
            assert_eq!(ranks(&mut numbers), expected, "{of}");
            assert!(expected.is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn outliers_do_not_move_the_middle() {
        let mut data: Vec<f64> = (0..2000).map(|at| (at % 7) as f64).collect();
        let at = |data: &[f64]| middle(&data.chunks_exact(2).collect::<Vec<_>>(), 2);
        let before = at(&data);
        assert!(before.iter().all(|x| (2.8..3.2).contains(x)), "{before:?}");
        data[400..410].fill(1e300);
        let after = at(&data);
        assert!(after.iter().all(|x| (2.5..3.5).contains(x)), "{after:?}");
        assert_eq!(middle::<f64>(&[], 2), [0.0; 2]);
        assert_eq!(middle(&[&[f64::MAX][..], &[f64::MAX]], 1), [f64::MAX]);
    }
}
