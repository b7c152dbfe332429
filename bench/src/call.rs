//! nearjoin itself, timed from borrowed coordinates to the answer.
//!
//! Every time includes checking the points, planning, indexing and joining. Giving the
//! memory of a result back is outside.

use std::time::Instant;

use nearjoin::{Points, Scalar, Stats};

use crate::Result;

/// One call: its seconds, and what the engine says of it.
pub(crate) fn timed<T: Scalar>(
    data: &[T],
    dimension: usize,
    join: impl FnOnce(&Points<'_, T>) -> nearjoin::Result<Stats>,
) -> Result<(f64, Stats)> {
    let start = Instant::now();
    let points = Points::new(data, dimension)?;
    let stats = join(&points)?;
    Ok((start.elapsed().as_secs_f64(), stats))
}

/// The best time of `reps` calls, and the last answer. Each answer is given back before the
/// next call.
pub(crate) fn best<A>(reps: usize, mut call: impl FnMut() -> Result<(f64, A)>) -> Result<(f64, A)> {
    let (mut best, mut last) = call()?;
    for _ in 1..reps {
        drop(last);
        let (seconds, answer) = call()?;
        best = best.min(seconds);
        last = answer;
    }
    Ok((best, last))
}

/// Two calls must have found as many pairs.
pub(crate) fn agree(what: &str, found: u64, expected: u64) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("WRONG: {what} found {found} pairs, not {expected}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_time_and_the_last_answer() {
        let mut calls = [(5.0, 'a'), (4.0, 'b'), (6.0, 'c'), (1.0, 'd')].into_iter();
        let best = best(3, || calls.next().ok_or("too many calls".into())).unwrap();
        assert_eq!(best, (4.0, 'c'));
        assert!(agree("it", 1, 1).is_ok() && agree("it", 1, 2).is_err());
    }
}
