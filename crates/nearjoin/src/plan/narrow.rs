//! `f64` points in `f32`: whether, and what ε means there.

use crate::filter::{Band, Filter};
use crate::summary::Summary;

/// `f32` columns relative to the middle of the domain.
#[derive(Clone, Debug)]
pub(crate) struct Narrow {
    pub(crate) origin: Vec<f64>,
    /// The largest coordinate relative to it.
    pub(crate) spread: f64,
    /// ε in their terms.
    pub(crate) band: Band<f32>,
}

impl Narrow {
    /// None for `f32` points, and where the domain is so large beside ε that too many pairs would
    /// be open.
    pub(super) fn new(summary: &Summary, neighbors: f64) -> Option<Self> {
        if summary.width == size_of::<f32>() {
            return None;
        }
        let middle = |(lo, hi): &(f64, f64)| lo + (hi - lo) / 2.0;
        let half = |(lo, hi): &(f64, f64)| (hi - lo) / 2.0;
        let spread = summary.extents.iter().map(half).fold(0.0, f64::max);
        let filter = Filter::new(summary.metric, summary.eps, summary.dim)?;
        let band = filter.narrow_band(spread, neighbors)?;
        Some(Narrow { origin: summary.extents.iter().map(middle).collect(), spread, band })
    }
}
