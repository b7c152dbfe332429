//! How many neighbours the points have, or how far away they are.

use crate::number::{count, figures, significant};

/// Up to this many different values, each has a bin of its own.
const EXACT: u64 = 64;

/// About how many bins share the range when values are binned.
const BINS: u64 = 40;

/// How the widths of bins go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// A bin for each value.
    Exact,
    /// Bins of the same width.
    Even,
    /// Bins whose width is a fixed part of their value; zero has its own.
    Widening,
}

/// What the points are told apart by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Measure {
    /// Their number of neighbours.
    Neighbours,
    /// The distance to their k-th neighbour, in steps of `step`; `fewer` points have none.
    Reach { k: usize, step: f64, fewer: u64 },
}

/// The distribution of a whole number over the points.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Histogram {
    pub(crate) measure: Measure,
    pub(crate) points: u64,
    /// Points that have 0.
    pub(crate) none: u64,
    pub(crate) min: u64,
    pub(crate) median: u64,
    pub(crate) mean: f64,
    /// 90 % of the points have at most this.
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
    /// Ascending and without gaps.
    pub(crate) bins: Vec<Bin>,
    pub(crate) spacing: Spacing,
}

/// Points that have `low..=high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bin {
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) points: u64,
}

/// Steps that the largest distance has, at the least. Each is a power of ten, so that bins
/// begin at round distances.
const STEPS: i32 = 9;

impl Histogram {
    /// The distribution of the distances to the k-th neighbour, one for each point and infinite
    /// where there is none; `None` if there is none anywhere.
    pub(crate) fn of_reach(k: usize, distances: &[f64]) -> Option<Self> {
        let known = || distances.iter().copied().filter(|distance| distance.is_finite());
        let largest = known().fold(0.0, f64::max);
        let power = if largest > 0.0 { largest.log10().floor() as i32 } else { 0 };
        let step = 10f64.powi(power - STEPS).max(f64::MIN_POSITIVE);
        // Only a duplicate is at 0.
        let steps = |distance: f64| match distance > 0.0 {
            true => ((distance / step).round() as u64).max(1),
            false => 0,
        };
        let histogram = Self::of(&known().map(steps).collect::<Vec<_>>())?;
        let fewer = distances.len() as u64 - histogram.points;
        Some(Histogram { measure: Measure::Reach { k, step, fewer }, ..histogram })
    }

    /// What one of the whole numbers stands for.
    pub(crate) fn step(&self) -> f64 {
        match self.measure {
            Measure::Neighbours => 1.0,
            Measure::Reach { step, .. } => step,
        }
    }

    /// A value in words: `1,200`, or `0.1128`.
    pub(crate) fn value(&self, value: u64) -> String {
        match self.measure {
            Measure::Neighbours => count(value),
            Measure::Reach { step, .. } => significant(value as f64 * step),
        }
    }

    /// The mean in words.
    pub(crate) fn mean(&self) -> String {
        match self.measure {
            Measure::Neighbours => figures(self.mean, 4),
            Measure::Reach { step, .. } => significant(self.mean * step),
        }
    }

    /// What a bin holds: `7`, or `12–15`.
    pub(crate) fn label(&self, bin: &Bin) -> String {
        if bin.low == bin.high {
            return self.value(bin.low);
        }
        // Between whole numbers there is nothing, between distances there is.
        let high = match self.measure {
            Measure::Neighbours => bin.high,
            Measure::Reach { .. } => bin.high.saturating_add(1),
        };
        format!("{}–{}", self.value(bin.low), self.value(high))
    }

    /// The distribution of `degrees`, one for each point; `None` without points.
    pub(crate) fn of(degrees: &[u64]) -> Option<Self> {
        let (min, max) = (*degrees.iter().min()?, *degrees.iter().max()?);
        let points = degrees.len();
        let sum: u128 = degrees.iter().map(|&degree| u128::from(degree)).sum();

        let mut ranked = degrees.to_vec();
        // The smallest value that so many hundredths of the points do not exceed.
        let mut quantile = |hundredths: usize| {
            let rank = (points as u128 * hundredths as u128).div_ceil(100).max(1) as usize;
            *ranked.select_nth_unstable(rank - 1).1
        };
        let (median, p90, p99) = (quantile(50), quantile(90), quantile(99));

        let spacing = if max - min <= EXACT {
            Spacing::Exact
        } else if max / 4 <= median {
            Spacing::Even
        } else {
            Spacing::Widening
        };
        let mut bins = match spacing {
            Spacing::Exact => even_bins(min, max, 1),
            Spacing::Even => even_bins(min, max, round_up((max - min) / BINS + 1)),
            Spacing::Widening => widening_bins(min, max),
        };
        for &degree in degrees {
            let bin = bins.partition_point(|bin| bin.high < degree);
            bins[bin].points += 1;
        }
        Some(Histogram {
            measure: Measure::Neighbours,
            points: points as u64,
            none: degrees.iter().filter(|&&degree| degree == 0).count() as u64,
            min,
            median,
            mean: sum as f64 / points as f64,
            p90,
            p99,
            max,
            bins,
            spacing,
        })
    }

    /// Whether a few bins would dwarf all others, so that counts want a logarithmic axis.
    pub(crate) fn is_skewed(&self) -> bool {
        let mut counts: Vec<u64> =
            self.bins.iter().map(|bin| bin.points).filter(|&points| points > 0).collect();
        counts.sort_unstable();
        match counts[..] {
            [] => false,
            [.., most] => most > 50 * counts[counts.len() / 2],
        }
    }
}

/// The smallest of 1, 2, 5 · 10ⁿ that is not below `width`.
fn round_up(width: u64) -> u64 {
    let ten = 10u64.pow(width.max(1).ilog10());
    let rounds = [1, 2, 5].map(|factor| ten.saturating_mul(factor));
    rounds.into_iter().find(|&round| round >= width).unwrap_or(ten.saturating_mul(10))
}

fn even_bins(min: u64, max: u64, width: u64) -> Vec<Bin> {
    bins_between(min - min % width, max, |low| low.saturating_add(width))
}

/// Bins between roots of powers of two: as many to the doubling as whole numbers can tell
/// apart without looking uneven.
fn widening_bins(min: u64, max: u64) -> Vec<Bin> {
    let first = min.max(1);
    let parts = (1..=8)
        .rev()
        .find(|&parts| first as f64 * (2f64.powf(1.0 / f64::from(parts)) - 1.0) >= 4.0)
        .unwrap_or(1);
    let edge = |step: i32| 2f64.powf(f64::from(step) / f64::from(parts)).ceil() as u64;
    let mut step = ((first as f64).log2() * f64::from(parts)).floor() as i32;
    let low = if min == 0 { 0 } else { edge(step).min(min) };
    bins_between(low, max, |low| {
        while edge(step) <= low && edge(step) < u64::MAX {
            step += 1;
        }
        edge(step)
    })
}

/// Bins from `low` until `max` is inside; `next` gives the start of the bin that follows.
fn bins_between(mut low: u64, max: u64, mut next: impl FnMut(u64) -> u64) -> Vec<Bin> {
    let mut bins = Vec::new();
    loop {
        let after = next(low);
        let last = after > max || after == u64::MAX;
        let high = if after == u64::MAX { after } else { after - 1 };
        bins.push(Bin { low, high, points: 0 });
        if last {
            return bins;
        }
        low = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(degrees: &[u64]) -> Histogram {
        let histogram = Histogram::of(degrees).expect("points");
        let bins = &histogram.bins;
        assert_eq!(bins.iter().map(|bin| bin.points).sum::<u64>(), degrees.len() as u64);
        assert!((bins[0].low..=bins[0].high).contains(&histogram.min));
        let last = bins[bins.len() - 1];
        assert!((last.low..=last.high).contains(&histogram.max));
        assert!(bins.iter().all(|bin| bin.low <= bin.high));
        assert!(bins.windows(2).all(|pair| pair[0].high + 1 == pair[1].low));
        for bin in bins {
            let inside = degrees.iter().filter(|&&d| (bin.low..=bin.high).contains(&d)).count();
            assert_eq!(bin.points, inside as u64);
        }
        assert!(bins.len() <= 100, "{}", bins.len());
        histogram
    }

    #[test]
    fn no_points_have_no_histogram() {
        assert_eq!(Histogram::of(&[]), None);
    }

    #[test]
    fn few_values_have_a_bin_each() {
        let histogram = check(&[0, 3, 3, 1, 0, 64]);
        assert_eq!(histogram.spacing, Spacing::Exact);
        assert_eq!(histogram.bins.len(), 65);
        assert_eq!(histogram.bins[3], Bin { low: 3, high: 3, points: 2 });
        assert_eq!((histogram.none, histogram.median, histogram.max), (2, 1, 64));
        assert_eq!(check(&[1_000_000, 1_000_050]).spacing, Spacing::Exact);
    }

    #[test]
    fn many_values_in_a_narrow_range_share_even_bins() {
        let degrees: Vec<u64> = (100..400).collect();
        let histogram = check(&degrees);
        assert_eq!(histogram.spacing, Spacing::Even);
        assert_eq!(histogram.bins[0], Bin { low: 100, high: 109, points: 10 });
        assert_eq!(histogram.bins.len(), 30);
    }

    #[test]
    fn many_values_in_a_wide_range_share_widening_bins() {
        let degrees: Vec<u64> = (0..20_000).map(|i| i * i * i / 800_000_000).collect();
        let histogram = check(&degrees);
        assert_eq!(histogram.spacing, Spacing::Widening);
        let edges: Vec<u64> = histogram.bins.iter().map(|bin| bin.low).collect();
        assert_eq!(edges[..6], [0, 1, 2, 4, 8, 16]);
        assert_eq!(histogram.bins[0].points, histogram.none);

        // Larger values can be told apart more finely.
        let degrees: Vec<u64> = (0..1000).map(|i| 100 + i * i * i / 200_000).collect();
        assert!(check(&degrees).bins.len() > 40);
    }

    #[test]
    fn extreme_values_have_bins() {
        for (low, high) in [(0, u64::MAX), (u64::MAX, u64::MAX), (0, 65), (1000, 1066)] {
            check(&[low, high]);
            check(&[low, low, high]);
        }
        check(&[u64::MAX - 1000, u64::MAX]);
    }

    #[test]
    fn quantiles_are_values_that_occur() {
        let degrees: Vec<u64> = (1..=100).rev().collect();
        let histogram = check(&degrees);
        assert_eq!((histogram.min, histogram.median, histogram.p90), (1, 50, 90));
        assert_eq!((histogram.p99, histogram.max, histogram.mean), (99, 100, 50.5));
        let one = check(&[7]);
        assert_eq!((one.min, one.median, one.p90, one.p99, one.max), (7, 7, 7, 7, 7));
    }

    #[test]
    fn skew_is_a_matter_of_counts() {
        assert!(!check(&[1, 2, 3]).is_skewed());
        let mut degrees = vec![0; 10_000];
        degrees.extend(1..60);
        assert!(check(&degrees).is_skewed());
    }

    #[test]
    fn bins_say_what_they_hold() {
        let histogram = check(&[1]);
        assert_eq!(histogram.label(&Bin { low: 7, high: 7, points: 0 }), "7");
        assert_eq!(histogram.label(&Bin { low: 1200, high: 1500, points: 0 }), "1,200–1,500");
    }

    #[test]
    fn distances_fall_into_bins_that_begin_at_round_ones() {
        let distances: Vec<f64> = (0..300).map(|at| 0.1 + f64::from(at) / 1000.0).collect();
        let histogram = Histogram::of_reach(8, &distances).unwrap();
        assert_eq!((histogram.points, histogram.none), (300, 0));
        assert_eq!(histogram.bins.len(), 30);
        assert_eq!(histogram.label(&histogram.bins[1]), "0.1100–0.1200");
        assert_eq!(histogram.value(histogram.median), "0.2490");
        assert_eq!(histogram.mean(), "0.2495");
    }

    #[test]
    fn odd_distances_have_bins_too() {
        assert_eq!(Histogram::of_reach(3, &[]), None);
        assert_eq!(Histogram::of_reach(3, &[f64::INFINITY]), None);
        let some = [0.0, 5e-324, f64::INFINITY, 1e-12, 1e308];
        let histogram = Histogram::of_reach(3, &some).unwrap();
        let Measure::Reach { k, fewer, .. } = histogram.measure else { panic!("distances") };
        assert_eq!((k, fewer, histogram.points, histogram.none), (3, 1, 4, 1));
        assert_eq!(histogram.bins.iter().map(|bin| bin.points).sum::<u64>(), 4);
        for one in [0.0, 5e-324, 1.0, f64::MAX] {
            let histogram = Histogram::of_reach(1, &[one; 3]).unwrap();
            assert_eq!((histogram.bins.len(), histogram.bins[0].points), (1, 3), "{one}");
        }
    }
}
