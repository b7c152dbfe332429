//! What it takes to put points in the order of an index.
//!
//! Nanoseconds of one thread for each point, of both sides; threads share them evenly. They were
//! measured with one query against 10⁵ to 10⁷ points of 2 to 32 dimensions, on a Xeon of the
//! Sapphire Rapids kind: what is left of the time when the query itself takes none.

use crate::options::Strategy;
use crate::summary::Summary;

/// A point and what each dimension adds, where nothing is sorted, ...
const COPY: (f64, f64) = (1.0, 4.2);
/// ... rounded for products, ...
const PANELS: (f64, f64) = (10.0, 5.0);
/// ... sorted into cells, ...
const CELLS: (f64, f64) = (20.0, 6.0);
/// ... sorted by ε-cells, ...
const EGO: (f64, f64) = (70.0, 20.0);
/// ... and sorted again on each level of a directory.
const LEVEL: f64 = 130.0;
/// The same for the leaves of the nearest: as they come, by rings, and halved again and again,
/// which looks at some dimensions only.
const LEAVES: (f64, f64) = (10.0, 8.0);
const RINGS: (f64, f64) = (40.0, 12.0);
const TREE: (f64, f64) = (60.0, 12.0);
const SPLIT: f64 = 50.0;
const SPLIT_DIMS: usize = 8;
/// Halvings of the trees that were measured.
const HALVINGS: f64 = 16.0;

/// The index of an ε-join. `levels`: those of a directory.
pub(super) fn epsilon(summary: &Summary, strategy: Strategy, levels: usize) -> f64 {
    all_points(
        summary,
        match strategy {
            Strategy::Directory => per_point(COPY, summary) + LEVEL * levels as f64,
            Strategy::Grid => per_point(CELLS, summary),
            Strategy::Ego => per_point(EGO, summary),
            Strategy::Product => per_point(PANELS, summary),
            _ => per_point(COPY, summary),
        },
    )
}

/// The index of a KNN-join.
pub(super) fn nearest(summary: &Summary, strategy: Strategy) -> f64 {
    let halvings = (summary.right as f64 / 16.0).max(2.0).log2() / HALVINGS;
    let split = SPLIT * summary.dim.min(SPLIT_DIMS) as f64;
    all_points(
        summary,
        match strategy {
            Strategy::Brute => per_point(LEAVES, summary),
            Strategy::Grid => per_point(RINGS, summary),
            Strategy::Product => per_point(PANELS, summary),
            _ => per_point(TREE, summary) + split * halvings,
        },
    )
}

fn per_point((point, dimension): (f64, f64), summary: &Summary) -> f64 {
    point + dimension * summary.dim as f64
}

fn all_points(summary: &Summary, each: f64) -> f64 {
    each * (summary.right + if summary.is_self { 0 } else { summary.left }) as f64
}
