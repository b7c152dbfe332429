//! A number that was estimated, and how sure it is.

use crate::number::estimate;

/// Up to this factor on either side an estimate is simply about right.
const NEAR: f64 = 1.5;
/// Ends of a range that are farther apart than this say no more than that it is not larger.
const FAR: f64 = 100.0;

/// A number that was estimated: what is expected, and the range in which it lies with a
/// probability of about 95 %.
///
/// ```
/// use nearjoin::{EpsJoin, Points};
/// let data: Vec<f64> = (0..20_000).map(f64::from).collect();
/// let points = Points::new(&data, 1)?;
/// let expected = EpsJoin::new(100.0).plan_self(&points)?.expected_pairs();
/// assert!(expected.low <= 4e6 && 4e6 <= expected.high);
/// println!("{}", expected.of("pairs"));          // about 3.94 M pairs
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Estimated {
    /// The number that is expected.
    pub about: f64,
    /// The least that it may be.
    pub low: f64,
    /// The most that it may be.
    pub high: f64,
}

impl Estimated {
    /// A number that is known.
    pub(crate) fn exactly(number: f64) -> Self {
        Estimated { about: number, low: number, high: number }
    }

    pub(super) fn between(about: f64, low: f64, high: f64) -> Self {
        Estimated { about, low, high }
    }

    /// The number times a factor: pairs from neighbours, or each pair once.
    pub fn times(self, factor: f64) -> Self {
        let Estimated { about, low, high } = self;
        Estimated { about: about * factor, low: low * factor, high: high * factor }
    }

    /// The number and one that is known.
    pub(crate) fn plus(self, number: f64) -> Self {
        let Estimated { about, low, high } = self;
        Estimated { about: about + number, low: low + number, high: high + number }
    }

    /// Whether no more is known than that the number is not larger than its range.
    pub fn is_bound(&self) -> bool {
        self.about < 1.0 || self.low * FAR < self.high
    }

    /// In words: `about 40 k pairs`, `about 40 k pairs (10 k to 90 k)` where that is less sure,
    /// `fewer than 300 pairs`, `no pairs`.
    pub fn of(&self, what: &str) -> String {
        let Estimated { about, low, high } = *self;
        if high < 1.0 {
            format!("no {what}")
        } else if self.is_bound() {
            format!("fewer than {} {what}", estimate((high + 1.0).ceil()))
        } else if low == high {
            format!("{} {what}", estimate(about))
        } else if high <= NEAR * about && about <= NEAR * low {
            format!("about {} {what}", estimate(about))
        } else {
            format!("about {} {what} ({} to {})", estimate(about), estimate(low), estimate(high))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_words() {
        let say = |about, low, high| Estimated { about, low, high }.of("pairs");
        assert_eq!(say(40_000.0, 30_000.0, 55_000.0), "about 40 k pairs");
        assert_eq!(say(40_000.0, 10_000.0, 90_000.0), "about 40 k pairs (10 k to 90 k)");
        assert_eq!(say(40.0, 0.2, 299.0), "fewer than 300 pairs");
        assert_eq!(say(1.6e-224, 0.0, 250.0), "fewer than 251 pairs");
        assert_eq!(say(0.4, 0.1, 0.9), "no pairs");
        assert_eq!(say(0.0, 0.0, 0.0), "no pairs");
        assert_eq!(say(12.0, 12.0, 12.0), "12 pairs");
    }
}
