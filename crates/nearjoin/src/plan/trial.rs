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
const POINTS: usize = 4096;
const COORDINATES: usize = 1 << 17;
/// Points that stand for a box of sixteen, and how much wider it is: as 15/4 is beside 3 where points
/// are in order, as is 15/17 beside 3/5 where they are in a few dimensions in no order, nearly, and as
/// normal numbers reach where there are many.
const FEW: usize = 4;
const FAN: usize = 16;
const WIDER: [(usize, f64); 3] = [(2, 1.25), (8, 1.37), (usize::MAX, 1.8)];
/// Queries and points by which ε is found, and coordinates of such pairs at the most.
const ASKED: usize = 96;
const COMPARED: usize = 512;
const COMPARED_COORDINATES: usize = 1 << 19;
/// Boxes that are compared with all, and coordinates of these at the most.
const BOXES: usize = 64;
const LEAST_BOXES: usize = 16;
const BOX_COORDINATES: usize = 1 << 18;
/// Numbers between two columns: columns of a power of two would share few places of a cache.
const APART: usize = 8;
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
    let share = wanted.max(1.0) / stood_for;
    let eps = near.radius(metric, share).unwrap_or_else(|| radius(&points, dim, metric, share));
    // Fewer than one neighbour are too few to count.
    let eps = eps * wanted.min(1.0).powf(1.0 / rate);
    let extents: Vec<_> = dims.iter().map(|&j| summary.extents[j]).collect();
    let scale = Scale::new(&extents, eps, 64 - order::id_bits(summary.right));
    let boxes = Boxes::new(&points, dim, dims, &scale);
    let asked = (BOX_COORDINATES / (boxes.len * dim)).clamp(LEAST_BOXES, BOXES);
    let bound = metric.widen(0.0, eps);
    let (mut crossed, mut inside, mut queries) = (0, 0, 0);
    let (mut least, mut most) = (vec![0.0; boxes.len], vec![0.0; boxes.len]);
    for query in (0..boxes.len).step_by(boxes.len.div_ceil(asked)) {
        boxes.from(query, metric, &mut least, &mut most);
        let near = least.iter().filter(|least| **least <= bound).count();
        let within = most.iter().filter(|most| **most <= bound).count();
        (crossed, inside, queries) = (crossed + near - within, inside + within, queries + 1);
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

/// The boxes of points in the order of the recursive join, as wide as those of sixteen points: least
/// and greatest coordinates, a column for each dimension.
struct Boxes {
    len: usize,
    /// From one column to the next.
    stride: usize,
    lo: Vec<f64>,
    hi: Vec<f64>,
}

impl Boxes {
    fn new(points: &[f64], dim: usize, dims: &[usize], scale: &Scale) -> Self {
        let key = |point: &[f64]| scale.key(dims.iter().map(|&j| point[j]));
        let mut keyed: Vec<(u64, u32)> = points.chunks_exact(dim).map(key).zip(0..).collect();
        keyed.sort_unstable();
        let wider = WIDER.iter().find(|(most, _)| dim <= *most).map_or(1.0, |wider| wider.1);
        let len = keyed.len().div_ceil(FEW);
        let stride = len + APART;
        let (mut lo, mut hi) = (vec![0.0; stride * dim], vec![0.0; stride * dim]);
        let mut sides = Vec::with_capacity(dim);
        for (at, few) in keyed.chunks(FEW).enumerate() {
            sides.clear();
            sides.resize(dim, (f64::INFINITY, f64::NEG_INFINITY));
            for &(_, point) in few {
                for (side, &x) in sides.iter_mut().zip(&points[point as usize * dim..]) {
                    *side = (side.0.min(x), side.1.max(x));
                }
            }
            for (j, (first, last)) in sides.iter().enumerate() {
                let more = (last - first) * (wider - 1.0) / 2.0;
                (lo[j * stride + at], hi[j * stride + at]) = (first - more, last + more);
            }
        }
        Boxes { len, stride, lo, hi }
    }

    /// The least and the greatest accumulated distance of points of one box and of each.
    fn from(&self, query: usize, metric: Metric, least: &mut [f64], most: &mut [f64]) {
        least.fill(0.0);
        most.fill(0.0);
        let columns = self.lo.chunks_exact(self.stride).zip(self.hi.chunks_exact(self.stride));
        for (lo, hi) in columns {
            match metric {
                Metric::L2 => widen(Metric::L2, query, (lo, hi), least, most),
                Metric::L1 => widen(Metric::L1, query, (lo, hi), least, most),
                Metric::Linf => widen(Metric::Linf, query, (lo, hi), least, most),
            }
        }
    }
}

/// Adds one dimension. The metric is a constant where this is called.
#[inline(always)]
fn widen(
    metric: Metric,
    query: usize,
    (lo, hi): (&[f64], &[f64]),
    least: &mut [f64],
    most: &mut [f64],
) {
    let (first, last) = (lo[query], hi[query]);
    let greater = |a: f64, b: f64| if a > b { a } else { b };
    for ((lo, hi), (least, most)) in lo.iter().zip(hi).zip(least.iter_mut().zip(most)) {
        let gap = greater(greater(lo - last, first - hi), 0.0);
        *least = metric.widen(*least, gap);
        *most = metric.widen(*most, greater(hi - first, last - lo));
    }
}
