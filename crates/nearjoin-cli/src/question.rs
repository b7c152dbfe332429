//! What is asked of the points, whichever join answers it.

use nearjoin::{Metric, Strategy};
use nearjoin_io::DType;

use crate::args;
use crate::failure::{Failure, Result};

/// A join as it was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) question: Question,
    pub(crate) include_self: bool,
    pub(crate) sorted: bool,
    pub(crate) strategy: Strategy,
    pub(crate) input: &'a args::Input,
    pub(crate) output: &'a args::Output,
    pub(crate) engine: &'a args::Engine,
    pub(crate) telling: &'a args::Telling,
}

/// Which neighbours of each point are the answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Question {
    /// All within ε.
    Within { eps: f64, half: bool, distances: bool },
    /// The k nearest, with their distances.
    Knn { k: usize, max_distance: Option<f64>, pad: bool },
}

impl<'a> From<&'a args::Within> for Asked<'a> {
    fn from(args: &'a args::Within) -> Self {
        let &args::Within { eps, half, distances, include_self, sorted, strategy, .. } = args;
        Asked {
            question: Question::Within { eps, half, distances },
            include_self,
            sorted,
            strategy,
            input: &args.input,
            output: &args.output,
            engine: &args.engine,
            telling: &args.telling,
        }
    }
}

impl<'a> From<&'a args::Knn> for Asked<'a> {
    fn from(args: &'a args::Knn) -> Self {
        let &args::Knn { k, max_distance, pad, include_self, sorted, strategy, .. } = args;
        Asked {
            question: Question::Knn { k: k.0 as usize, max_distance, pad },
            include_self,
            sorted,
            strategy,
            input: &args.input,
            output: &args.output,
            engine: &args.engine,
            telling: &args.telling,
        }
    }
}

impl Question {
    /// The command that asks it.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Question::Within { .. } => "within",
            Question::Knn { .. } => "knn",
        }
    }

    /// Whether each pair of a self-join is in the answer once.
    pub(crate) fn half(self) -> bool {
        matches!(self, Question::Within { half: true, .. })
    }

    /// Whether the answer has distances.
    pub(crate) fn distances(self) -> bool {
        matches!(self, Question::Within { distances: true, .. } | Question::Knn { .. })
    }

    /// Whether the neighbours of each point are numbered: 1 is the nearest.
    pub(crate) fn ranked(self) -> bool {
        matches!(self, Question::Knn { .. })
    }

    /// Refuses what the definitions of the arguments cannot.
    pub(crate) fn check_output(self, output: &args::Output) -> Result {
        match self {
            Question::Knn { max_distance: None, .. } if output.degrees => Err(Failure::usage(
                "without --max-distance every point has the same number of neighbours: give one, \
                 or leave --degrees out",
            )),
            _ => Ok(()),
        }
    }

    /// Refuses a distance whose square the points' type cannot hold: every pair would match, or
    /// points would that are not within it.
    pub(crate) fn check_square(self, metric: Metric, dtype: DType) -> Result {
        let (distance, name) = match self {
            Question::Within { eps, .. } => (eps, "ε ="),
            Question::Knn { max_distance: Some(distance), .. } => (distance, "--max-distance"),
            Question::Knn { max_distance: None, .. } => return Ok(()),
        };
        let (least, most) = match dtype {
            DType::F32 => (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)),
            DType::F64 => (f64::MIN_POSITIVE, f64::MAX),
        };
        let square = distance * distance;
        if metric != Metric::L2 || distance == 0.0 || (least..=most).contains(&square) {
            return Ok(());
        }
        let advice = match dtype {
            DType::F32 => "use --dtype f64, or give the points in other units",
            DType::F64 => "give the points in other units",
        };
        Err(Failure::failed(format!(
            "the square of {name} {distance:?}, which decides L2, is beyond the range of {dtype}: \
             {advice}"
        )))
    }

    /// What the engine refused, in the words of the command line.
    pub(crate) fn refused(self, error: nearjoin::Error) -> Failure {
        match (self, error) {
            (Question::Knn { .. }, nearjoin::Error::Epsilon { value, kind }) => {
                Failure::usage(format!(
                    "--max-distance {value:?} is not a distance: it must be 0 or more and finite \
                     in {kind}"
                ))
            }
            (_, nearjoin::Error::TooFewPoints { k, points }) => Failure::failed(format!(
                "-k {k}: there are only {points} points to choose from: lower it, or give --pad to \
                 have as many as there are"
            )),
            (_, error) => error.into(),
        }
    }
}
