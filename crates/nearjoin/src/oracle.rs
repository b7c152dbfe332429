//! The truth that every test compares with: two loops, and the arithmetic of the contract.
//!
//! It is public so that anyone can check an answer; it takes time quadratic in the
//! number of points.

use crate::error::Result;
use crate::metric::{Metric, Threshold};
use crate::points::Points;
use crate::scalar::Scalar;
use crate::sides::Sides;

/// The `k` nearest neighbours of each left point, ascending by distance and then by id, with
/// their distances; fewer where there are not as many.
///
/// ```
/// use nearjoin::{Metric, Points, oracle};
/// let points = Points::new(&[0.0, 1.0, 3.0], 1)?;
/// let rows = oracle::knn_join(&points, &points, 1, Metric::L2, true)?;
/// assert_eq!(rows, [vec![(1, 1.0)], vec![(0, 1.0)], vec![(1, 2.0)]]);
/// # Ok::<(), nearjoin::Error>(())
/// ```
///
/// # Errors
/// If the dimensions differ.
pub fn knn_join<T: Scalar>(
    left: &Points<'_, T>,
    right: &Points<'_, T>,
    k: usize,
    metric: Metric,
    exclude_self: bool,
) -> Result<Vec<Vec<(u32, T)>>> {
    left.check_dimension(right)?;
    let sides = Sides::new(*left, Some(*right), metric, None)?;
    let (left, right) = (&sides.left(), &sides.right().unwrap_or(*right));
    let arithmetic = Threshold::none(metric, sides.scale);
    let row = |i: usize| {
        let mut all: Vec<(u32, T)> = measured(&arithmetic, left, right, i, exclude_self).collect();
        all.sort_by(|a, b| {
            a.1.partial_cmp(&b.1).unwrap_or(core::cmp::Ordering::Equal).then(a.0.cmp(&b.0))
        });
        all.truncate(k);
        all.into_iter().map(|(j, acc)| (j, arithmetic.distance(acc))).collect()
    };
    Ok((0..left.len()).map(row).collect())
}

/// The neighbours of each left point, ascending by id, with their distances.
///
/// For a self-join pass the same points twice and `exclude_self`.
///
/// ```
/// use nearjoin::{Metric, Points, oracle};
/// let points = Points::new(&[0.0, 1.0, 3.0], 1)?;
/// let rows = oracle::eps_join(&points, &points, 1.0, Metric::L2, true)?;
/// assert_eq!(rows, [vec![(1, 1.0)], vec![(0, 1.0)], vec![]]);
/// # Ok::<(), nearjoin::Error>(())
/// ```
///
/// # Errors
/// If the dimensions differ or ε is not a distance.
pub fn eps_join<T: Scalar>(
    left: &Points<'_, T>,
    right: &Points<'_, T>,
    eps: f64,
    metric: Metric,
    exclude_self: bool,
) -> Result<Vec<Vec<(u32, T)>>> {
    left.check_dimension(right)?;
    let sides = Sides::new(*left, Some(*right), metric, Some(Threshold::check(eps)?))?;
    let (left, right) = (&sides.left(), &sides.right().unwrap_or(*right));
    let threshold = Threshold::new(metric, eps, sides.scale)?;
    let row = |i: usize| {
        measured(&threshold, left, right, i, exclude_self)
            .filter(|&(_, acc)| acc <= threshold.bound)
            .map(|(j, acc)| (j, threshold.distance(acc)))
            .collect()
    };
    Ok((0..left.len()).map(row).collect())
}

/// Every right point with its accumulated distance from left point `i`.
fn measured<'a, T: Scalar>(
    arithmetic: &'a Threshold<T>,
    left: &Points<'a, T>,
    right: &Points<'a, T>,
    i: usize,
    exclude_self: bool,
) -> impl Iterator<Item = (u32, T)> + 'a {
    let (left, right) = (*left, *right);
    (0..right.len()).filter(move |&j| !(exclude_self && i == j)).map(move |j| {
        let (x, y) = (left.row(i).iter().copied(), right.row(j).iter().copied());
        (j as u32, arithmetic.accumulate(x, y))
    })
}
