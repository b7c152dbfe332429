//! The two questions that can be asked of points.

use crate::error::{Error, Result};
use crate::metric::{Metric, Threshold};
use crate::options::{DuplicateRemoval, RangesOptions, Strategy};
use crate::points::MAX_POINTS;
use crate::scalar::Scalar;
use crate::scale::Scale;

/// What is asked of the points.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Question {
    /// Which points lie within ε of each: an [`EpsJoin`](crate::EpsJoin).
    Within(Within),
    /// Which points are nearest to each: a [`KnnJoin`](crate::KnnJoin).
    Nearest(Nearest),
}

/// All neighbours within ε, and what only this question has options for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Within {
    pub(crate) eps: f64,
    pub(crate) removal: DuplicateRemoval,
    pub(crate) levels: usize,
    pub(crate) fanout: usize,
}

/// The k nearest neighbours, and what only this question has options for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nearest {
    pub(crate) k: usize,
    pub(crate) max_distance: Option<f64>,
    pub(crate) pad: bool,
    pub(crate) ranges: RangesOptions,
}

impl From<Within> for Question {
    fn from(within: Within) -> Self {
        Question::Within(within)
    }
}

impl From<Nearest> for Question {
    fn from(nearest: Nearest) -> Self {
        Question::Nearest(nearest)
    }
}

impl Within {
    pub(crate) fn new(eps: f64) -> Self {
        Within { eps, removal: DuplicateRemoval::default(), levels: 3, fanout: 16 }
    }

    /// The distance.
    pub fn eps(&self) -> f64 {
        self.eps
    }

    fn check(&self) -> Result<()> {
        if !(1..=8).contains(&self.levels) {
            let value = self.levels;
            return Err(Error::Option { name: "directory levels", value, allowed: "1 to 8" });
        }
        let parts = self.fanout.checked_pow(self.levels as u32);
        if self.fanout < 2 || parts.is_none_or(|parts| parts > 1 << 24) {
            let allowed = "2 or more, with at most 2^24 parts over all levels";
            let value = self.fanout;
            return Err(Error::Option { name: "directory fan-out", value, allowed });
        }
        Ok(())
    }
}

impl Nearest {
    pub(crate) fn new(k: usize) -> Self {
        Nearest { k, max_distance: None, pad: false, ranges: RangesOptions::new() }
    }

    /// Neighbours of each point.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The distance beyond which nothing is a neighbour.
    pub fn max_distance(&self) -> Option<f64> {
        self.max_distance
    }

    fn check(&self) -> Result<()> {
        match self.k {
            0 => Err(Error::Option { name: "k", value: 0, allowed: "1 or more" }),
            value if value > MAX_POINTS => {
                Err(Error::Option { name: "k", value, allowed: "at most 4294967294" })
            }
            _ => self.ranges.check(),
        }
    }
}

impl Question {
    /// The strategies that can be named for it.
    pub fn strategies(&self) -> &'static [Strategy] {
        match self {
            Question::Within(_) => Strategy::EPSILON,
            Question::Nearest(_) => Strategy::KNN,
        }
    }

    /// Those of them that a GPU has.
    pub(crate) fn gpu_strategies(&self) -> &'static [Strategy] {
        match self {
            Question::Within(_) => Strategy::EPSILON_GPU,
            Question::Nearest(_) => Strategy::KNN_GPU,
        }
    }

    /// Whether its own options are in range.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Question::Within(within) => within.check(),
            Question::Nearest(nearest) => nearest.check(),
        }
    }

    /// ε, or the distance beyond which nothing is a neighbour.
    fn distance(&self) -> Option<f64> {
        match self {
            Question::Within(within) => Some(within.eps),
            Question::Nearest(nearest) => nearest.max_distance,
        }
    }

    /// Whether the distance, if there is one, is one in the points' type.
    pub(crate) fn check_distance<T: Scalar>(&self) -> Result<()> {
        self.distance().map_or(Ok(()), |distance| Threshold::<T>::check(distance).map(drop))
    }

    /// ε in the points' type; none for the nearest.
    pub(crate) fn eps<T: Scalar>(&self) -> Result<Option<T>> {
        match self {
            Question::Within(within) => Threshold::check(within.eps).map(Some),
            Question::Nearest(_) => Ok(None),
        }
    }

    /// What decides, for points of this scale.
    pub(crate) fn threshold<T: Scalar>(
        &self,
        metric: Metric,
        scale: Scale<T>,
    ) -> Result<Threshold<T>> {
        match self.distance() {
            Some(distance) => Threshold::new(metric, distance, scale),
            None => Ok(Threshold::none(metric, scale)),
        }
    }

    /// Whether there are as many points as neighbours were asked for: `candidates` on the right,
    /// for each of `queries` on the left.
    pub(crate) fn check_points(&self, queries: usize, candidates: usize) -> Result<()> {
        match *self {
            // Nobody asks for neighbours of no points.
            Question::Nearest(Nearest { k, pad: false, .. }) if k > candidates && queries > 0 => {
                Err(Error::TooFewPoints { k, points: candidates })
            }
            _ => Ok(()),
        }
    }

    /// Whether `b` is a neighbour of `a` whenever `a` is one of `b`, where both are of one set.
    pub(crate) fn is_symmetric(&self) -> bool {
        matches!(self, Question::Within(_))
    }
}
