//! The recursive join, tried on a sample.
//!
//! What it leaves to be tested hangs on how boxes of sixteen points lie beside the neighbourhoods:
//! on a surface, along a line and in clusters as well as in a cube. So a sample is put in order as all
//! points would be. Few points in a row stand for sixteen, their box is made as wide as that of
//! sixteen would be, and ε is such that each point has as many neighbours among those that are stood
//! for: then boxes and neighbourhoods lie as they do among all points.

use crate::index::ego::Scale;
use crate::index::order;
use crate::metric::Metric;
use crate::summary::Summary;

/// Points of a trial, and coordinates at the most.
const POINTS: usize = 8192;
const COORDINATES: usize = 1 << 18;
/// Points that stand for a box of sixteen, and how much wider it is: as 15/4 is beside 3 where
/// points are in order, and as normal numbers reach where there are too many dimensions for that.
const FEW: usize = 4;
const FAN: usize = 16;
const WIDER: f64 = 1.25;
const WIDER_IN_MANY: f64 = 1.7;
const MANY_DIMENSIONS: usize = 8;
/// Queries and points by which ε is found, and coordinates of such pairs at the most.
const ASKED: usize = 128;
const COMPARED: usize = 1024;
const COMPARED_COORDINATES: usize = 1 << 20;
/// Boxes that are compared with all.
const BOXES: usize = 64;
/// Neighbours from which on only the surface of a neighbourhood grows, and the share of all points
/// that they may be at the most.
const MANY: f64 = 128.0;
const CROWD: f64 = 1.0 / 8.0;

/// What the recursive join does for each query.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tried {
    /// Points that are tested.
    pub(super) tests: f64,
    /// Neighbours that are taken without a test.
    pub(super) taken: f64,
}

/// Tries it on a sample. None where there is no sample.
pub(super) fn ego(summary: &Summary, dims: &[usize], neighbors: f64) -> Option<Tried> {
    let near = summary.near.as_ref()?;
    let (dim, metric, rate) = (summary.dim, summary.metric, summary.pairs.rate.max(1.0));
    let points = near.thinned((COORDINATES / dim).min(POINTS));
    let all = summary.right as f64;
    let stood_for = ((points.len() / dim * FAN / FEW) as f64).min(all);
    let wanted = neighbors.min(MANY.max(neighbors * stood_for / all)).min(CROWD * stood_for);
    let eps = radius(&points, dim, metric, wanted.max(1.0) / stood_for);
    // Fewer than one neighbour are too few to count.
    let eps = eps * wanted.min(1.0).powf(1.0 / rate);
    let length = near.length();
    let extents: Vec<_> = dims
        .iter()
        .map(|&j| (summary.extents[j].0 / length, summary.extents[j].1 / length))
        .collect();
    let scale = Scale::new(&extents, eps, 64 - order::id_bits(summary.right));
    let boxes = boxes(&points, dim, dims, &scale);
    let bound = metric.widen(0.0, eps);
    let asked = boxes.iter().step_by(boxes.len().div_ceil(BOXES));
    let (mut crossed, mut inside, queries) = (0, 0, asked.len());
    for query in asked {
        for other in &boxes {
            let (least, most) = apart(query, other, metric);
            crossed += usize::from(least <= bound && most > bound);
            inside += usize::from(most <= bound);
        }
    }
    let points_of = |boxes: usize| (FAN * boxes) as f64 / queries as f64;
    let tests = points_of(crossed).min(stood_for);
    // Where there are more points, neighbourhoods do not reach from one end to the other.
    let tests = 1.0 / (1.0 / tests.max(1.0) - 1.0 / stood_for + 1.0 / all);
    // The surface of a neighbourhood grows less than what is in it.
    let more = (neighbors / wanted).max(1.0);
    let taken = points_of(inside).min(wanted) * more;
    Some(Tried { tests: tests * more.powf(1.0 - 1.0 / rate), taken })
}

/// The distance within which a share of all pairs lies.
fn radius(points: &[f64], dim: usize, metric: Metric, share: f64) -> f64 {
    let len = points.len() / dim;
    let compared = COMPARED.min(len);
    let asked = ASKED.min(COMPARED_COORDINATES / dim / compared).clamp(1, len);
    let mut all = Vec::with_capacity(asked * compared);
    // Between two that are compared, so that none is compared with itself.
    let row =
        |k: usize, of: usize, offset: usize| &points[(k * len / of + offset) % len * dim..][..dim];
    for query in (0..asked).map(|k| row(k, asked, 1)) {
        let apart = |k: usize| {
            let gaps = row(k, compared, 0).iter().zip(query).map(|(x, y)| (x - y).abs());
            gaps.fold(0.0, |acc, gap| metric.widen(acc, gap))
        };
        all.extend((0..compared).map(apart));
    }
    let nth = ((share * all.len() as f64) as usize).min(all.len() - 1);
    let acc = *all.select_nth_unstable_by(nth, f64::total_cmp).1;
    if metric == Metric::L2 { acc.sqrt() } else { acc }
}

/// The boxes of points in the order of the recursive join, as wide as those of sixteen points.
fn boxes(points: &[f64], dim: usize, dims: &[usize], scale: &Scale) -> Vec<Vec<(f64, f64)>> {
    let key = |point: &[f64]| scale.key(dims.iter().map(|&j| point[j]));
    let mut keyed: Vec<(u64, u32)> = points.chunks_exact(dim).map(key).zip(0..).collect();
    keyed.sort_unstable();
    let bound = |of: &[(u64, u32)]| {
        let mut sides = vec![(f64::INFINITY, f64::NEG_INFINITY); dim];
        for &(_, at) in of {
            let point = &points[at as usize * dim..][..dim];
            for (side, &x) in sides.iter_mut().zip(point) {
                *side = (side.0.min(x), side.1.max(x));
            }
        }
        let wider = if dim > MANY_DIMENSIONS { WIDER_IN_MANY } else { WIDER };
        let widen = |(lo, hi): (f64, f64)| {
            let more = (hi - lo) * (wider - 1.0) / 2.0;
            (lo - more, hi + more)
        };
        sides.into_iter().map(widen).collect()
    };
    keyed.chunks(FEW).map(bound).collect()
}

/// The least and the greatest accumulated distance of points of two boxes.
pub(super) fn apart(a: &[(f64, f64)], b: &[(f64, f64)], metric: Metric) -> (f64, f64) {
    let (mut least, mut most) = (0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        least = metric.widen(least, (b.0 - a.1).max(a.0 - b.1).max(0.0));
        most = metric.widen(most, (b.1 - a.0).max(a.1 - b.0));
    }
    (least, most)
}
