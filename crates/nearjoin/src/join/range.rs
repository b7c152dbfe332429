//! Whether the distances of a join are in the range of the points' type.

use core::ops::ControlFlow;

use super::{EpsJoin, Join, Plan};
use crate::error::{Error, Result};
use crate::metric::{Metric, Threshold};
use crate::options::{Device, Options, Strategy};
use crate::question::Within;
use crate::scalar::Scalar;
use crate::scale::Scale;
use crate::sides::Sides;
use crate::sink::{Block, Callback, Count};
use crate::summary::extents;

/// Refuses different points that the join could take for equal ones.
///
/// Where squares of differences may vanish although the points are scaled, sums of them are right
/// but for points that differ by at most [`Scale::vanishing`] in every coordinate. Their L∞
/// distance cannot vanish, so a join finds them. Within an ε that is larger they match, as they
/// should, whatever the sum is.
pub(super) fn check_near<T: Scalar>(
    options: &Options,
    sides: &Sides<'_, T>,
    threshold: &Threshold<T>,
    eps: Option<T>,
) -> Result<()> {
    let vanishing = Scale::<T>::vanishing();
    let match_anyway = eps.is_some() && threshold.eps > vanishing;
    if !sides.may_vanish || match_anyway {
        return Ok(());
    }
    let join = |eps: f64| -> EpsJoin {
        let options = Options {
            metric: Metric::Linf,
            strategy: Strategy::Auto,
            device: Device::Cpu,
            monitor: None,
            ..options.clone()
        };
        Join { question: Within::new(eps), options }
    };
    let (near, equal) = (join(vanishing.to_f64()), join(0.0));
    let count = |join: &EpsJoin| -> Result<u64> {
        let mut count = Count::new();
        plan(join, sides)?.run(&mut count)?;
        Ok(count.pairs())
    };
    // Equal points may be very many, so they are counted: blocks of them are counted whole.
    if count(&near)? == count(&equal)? {
        return Ok(());
    }
    let (left, right) = (sides.left(), sides.right().unwrap_or(sides.left()));
    let mut found = (0, 0);
    let mut sink = Callback::new(|block: &Block<'_, T>| {
        for (i, row) in block.iter() {
            let differs = |j: &&u32| left.row(i as usize) != right.row(**j as usize);
            if let Some(&j) = row.iter().find(differs) {
                found = (i as usize, j as usize);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    });
    match plan(&near, sides)?.run(&mut sink) {
        Ok(_) | Err(Error::Stopped) => {}
        Err(error) => return Err(error),
    }
    let (left, right) = found;
    Err(Error::TooNear { left, right, greatest: sides.greatest.to_f64(), kind: T::NAME })
}

/// The plan of a join of points that are scaled.
fn plan<'a, T: Scalar>(join: &EpsJoin, sides: &'a Sides<'_, T>) -> Result<Plan<'a, T>> {
    join.plan_sides(sides.left(), sides.right())
}

/// Refuses the nearest of points whose distance may be beyond all numbers: infinite distances have
/// no order, and tell nobody anything. No ε, and no largest distance, is as large.
pub(super) fn check_far<T: Scalar>(sides: &Sides<'_, T>, threshold: &Threshold<T>) -> Result<()> {
    if threshold.bound.is_finite() {
        return Ok(());
    }
    // As the points of the join are scaled.
    let greatest = threshold.scale.apply(sides.greatest).to_f64();
    let dim = sides.left().dimension();
    let is_finite = |widths: &[f64]| {
        let most = widths.iter().fold(0.0, |acc, &width| threshold.metric.widen(acc, width));
        // Of steps that are each rounded up.
        let most = most * (1.0 + 2.0 * dim as f64 * T::UNIT_ROUNDOFF);
        threshold.distance(T::from_f64(most)).is_finite()
    };
    // The magnitudes are known; the extents, of all points, are asked for only where they matter.
    if is_finite(&vec![2.0 * greatest; dim]) {
        return Ok(());
    }
    let (left, right) = (sides.left(), sides.right().unwrap_or(sides.left()));
    let both = extents(left).into_iter().zip(extents(right));
    let widths = both.map(|(a, b)| (a.1.max(b.1) - a.0.min(b.0)).max(0.0));
    if is_finite(&widths.collect::<Vec<_>>()) {
        return Ok(());
    }
    Err(Error::TooFar { greatest: sides.greatest.to_f64(), kind: T::NAME })
}
