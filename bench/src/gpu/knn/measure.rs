//! One KNN-join, timed, and its answer compared.
//!
//! Every time is that of planning and running: from points in the host's memory, whose coordinates
//! have been checked, to ids and distances in arrays there. Giving arrays back is outside.

use std::fmt;
use std::time::Instant;

use nearjoin::sink::Neighbors;
use nearjoin::{KnnJoin, Scalar, Stats};
use rayon::prelude::*;

use super::super::measure::Timed;
use super::cases::Sides;
use crate::Result;

/// One call. Arrays that are as long as the answer are written again.
pub(crate) fn call<T: Scalar>(
    join: &KnnJoin,
    sides: &Sides<'_, T>,
    arrays: &mut Neighbors<T>,
) -> Result<Timed> {
    let start = Instant::now();
    let plan = match &sides.asking {
        Some(asking) => join.plan(asking, &sides.points)?,
        None => join.plan_self(&sides.points)?,
    };
    let stats = plan.run(arrays)?;
    Ok(Timed { time: start.elapsed(), stats })
}

/// An answer that is not the CPU's.
#[derive(Debug)]
pub(crate) struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WRONG: {}", self.0)
    }
}

impl std::error::Error for Wrong {}

/// Two answers must be the same in every bit.
pub(crate) fn same<T: Scalar>(
    what: &str,
    found: &Neighbors<T>,
    expected: &Neighbors<T>,
) -> Result<()> {
    let k = expected.k();
    if (found.k(), found.len()) != (k, expected.len()) {
        let (rows, of) = (found.len(), found.k());
        let text = format!("{what} has {rows} rows of {of}, not {} of {k}", expected.len());
        return Err(Wrong(text).into());
    }
    let differs = |row: &usize| {
        found.ids_of(*row) != expected.ids_of(*row)
            || T::as_bytes(found.distances_of(*row)) != T::as_bytes(expected.distances_of(*row))
    };
    match (0..expected.len()).into_par_iter().with_min_len(1024).find_first(differs) {
        None => Ok(()),
        Some(row) => {
            let at = (0..k)
                .find(|&at| {
                    found.ids_of(row)[at] != expected.ids_of(row)[at]
                        || found.distances_of(row)[at] != expected.distances_of(row)[at]
                })
                .unwrap_or(0);
            let told = |of: &Neighbors<T>| {
                format!("{} at {}", of.ids_of(row)[at], of.distances_of(row)[at])
            };
            let (found, expected) = (told(found), told(expected));
            let text = format!("{what}: neighbour {at} of {row} is {found}, not {expected}");
            Err(Wrong(text).into())
        }
    }
}

/// Who worked.
pub(crate) fn ran(stats: &Stats) -> &'static str {
    let shared = |hybrid: &nearjoin::HybridStats| hybrid.partitioning.is_some();
    match (stats.hybrid.as_ref().is_some_and(shared), &stats.gpu) {
        (true, _) => "both",
        (false, Some(_)) => "gpu",
        (false, None) => "cpu",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearjoin::{Device, Points};

    fn answer(data: &[f32]) -> Neighbors<f32> {
        let sides = Sides { points: Points::new(data, 1).unwrap(), asking: None };
        let mut arrays = Neighbors::new();
        let timed = call(&KnnJoin::new(2).device(Device::Cpu), &sides, &mut arrays).unwrap();
        assert_eq!((timed.stats.pairs, ran(&timed.stats)), (data.len() as u64 * 2, "cpu"));
        arrays
    }

    #[test]
    fn the_first_difference_is_named() {
        let expected = answer(&[0.0, 1.0, 3.0, 9.0]);
        assert!(same("it", &answer(&[0.0, 1.0, 3.0, 9.0]), &expected).is_ok());
        let error = same("a case", &answer(&[0.0, 1.0, 3.0, 9.5]), &expected).unwrap_err();
        assert!(error.is::<Wrong>());
        assert_eq!(error.to_string(), "WRONG: a case: neighbour 0 of 3 is 2 at 6.5, not 2 at 6");
        let error = same("a case", &answer(&[0.0, 1.0, 3.0]), &expected).unwrap_err();
        assert_eq!(error.to_string(), "WRONG: a case has 3 rows of 2, not 4 of 2");
    }
}
