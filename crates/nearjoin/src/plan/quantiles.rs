//! The directory, tried on a sample: its parts are as many however many points there are, so those
//! of a sample are those of all points, but for what they reach beyond it.
//!
//! Points of a part are in order along the dimension of the last level, and boxes cut them there.
//! So the last level makes no difference to what is tested, and a part is here one of the level before.

use crate::metric::Metric;
use crate::summary::Summary;

/// Points of a trial, and in each part at the least.
const POINTS: usize = 4096;
const IN_PART: usize = 8;
/// Blocks of queries that are tried: some lie across the end of a part, and look at much more.
/// Fewer where that many coordinates of parts would be compared.
const BLOCKS: usize = 256;
const LEAST_BLOCKS: usize = 16;
const COORDINATES: usize = 1 << 18;
/// Places of a part at which boxes are looked at.
const SLICES: usize = 4;
/// Points of a block of queries, and of a box.
const FAN: f64 = 16.0;

/// Least and greatest coordinate, for each dimension.
type Sides = Vec<(f64, f64)>;

/// A part of all points, by a sample.
struct Part<'a> {
    sides: Sides,
    /// Points, in order along a dimension.
    rows: Vec<&'a [f64]>,
    along: usize,
    /// How little the order along that dimension tells of each other: 0 on a line, 1 in a cube.
    loose: Vec<f64>,
}

/// A place between two points of a part.
#[derive(Clone, Copy)]
struct Place {
    below: usize,
    above: usize,
    between: f64,
}

/// All parts.
struct Parts<'a> {
    /// The dimensions of the levels: points are in order along the last.
    dims: &'a [usize],
    /// The dimensions in which boxes are compared, the most selective first, but for that one.
    others: Vec<usize>,
    fanout: usize,
    parts: Vec<Part<'a>>,
    /// Points of a part.
    in_part: f64,
    metric: Metric,
    reach: f64,
    /// ε as it accumulates.
    bound: f64,
}

/// Points that are tested for each query. None where there is no sample, or too small a one.
/// `dims`: all dimensions, the most selective first, of which the first are those of the `levels`.
pub(super) fn tests(
    summary: &Summary,
    dims: &[usize],
    levels: usize,
    fanout: usize,
) -> Option<f64> {
    let near = summary.near.as_ref()?;
    let points = near.thinned(POINTS);
    let len = points.len() / summary.dim;
    let (levels, along) = (&dims[..levels], *dims[..levels].last()?);
    let parts = fanout.checked_pow(levels.len() as u32 - 1)?;
    if len < IN_PART * parts {
        return None;
    }
    let mut tried = Parts {
        dims: levels,
        others: dims.iter().copied().filter(|j| *j != along).collect(),
        fanout,
        parts: Vec::with_capacity(parts),
        in_part: summary.right as f64 / parts as f64,
        metric: summary.metric,
        reach: summary.reach,
        bound: summary.metric.widen(0.0, summary.reach),
    };
    let mut rows: Vec<&[f64]> = points.chunks_exact(summary.dim).collect();
    tried.cut(&mut rows, &mut Vec::new());
    let blocks = (COORDINATES / (parts * summary.dim)).clamp(LEAST_BLOCKS, BLOCKS);
    let blocks = blocks.min(summary.right / FAN as usize).max(1);
    let starts = (0..blocks).map(|k| (k as f64 + 0.5) / blocks as f64 * parts as f64);
    let tested = starts.map(|start| {
        let block = tried.block(start);
        tried.parts.iter().map(|part| tried.tested(&block, part)).sum::<f64>()
    });
    Some(tested.sum::<f64>() / blocks as f64)
}

impl<'a> Parts<'a> {
    /// Sorts rows along the dimension of a level, cuts them into parts, and goes on in each. `above`:
    /// the extents of the parts that these rows are of.
    fn cut(&mut self, rows: &mut [&'a [f64]], above: &mut Vec<(f64, f64)>) {
        let j = self.dims[above.len()];
        rows.sort_unstable_by(|a, b| a[j].total_cmp(&b[j]));
        if above.len() + 1 == self.dims.len() {
            let mut sides = sides(rows);
            for (&j, extent) in self.dims.iter().zip(above) {
                sides[j] = *extent;
            }
            let loose = loose(rows);
            self.parts.push(Part { sides, rows: rows.to_vec(), along: j, loose });
            return;
        }
        let len = rows.len();
        // A part ends half way to the next at the latest.
        let end = |at: usize, rows: &[&[f64]]| {
            let (before, behind) = (rows[at.max(1) - 1][j], rows[at.min(len - 1)][j]);
            before / 2.0 + behind / 2.0
        };
        for part in 0..self.fanout {
            let (first, last) = (part * len / self.fanout, (part + 1) * len / self.fanout);
            let (lo, hi) = wider(rows[first][j], rows[last - 1][j], last - first);
            above.push((lo.max(end(first, rows)), hi.min(end(last, rows))));
            self.cut(&mut rows[first..last], above);
            above.pop();
        }
    }

    /// The box of a block of queries that starts in this part, and so much of it along. Of two
    /// parts it takes the end of one and the beginning of the other.
    fn block(&self, start: f64) -> Sides {
        let end = (start + (FAN - 1.0) / self.in_part).min(self.parts.len() as f64 - 1e-9);
        let slice = |at: usize| self.parts[at].slice(start - at as f64, end - at as f64);
        let together = |a: Sides, b: Sides| {
            a.iter().zip(b).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))).collect()
        };
        (start as usize..=end as usize).map(slice).reduce(together).unwrap_or_default()
    }

    /// Points of a part that are tested for a block.
    fn tested(&self, block: &Sides, part: &Part<'_>) -> f64 {
        let (mut least, mut most, mut within) = (0.0, 0.0, 1.0);
        // Sixteen points of a part that has more do not reach from side to side: two parts beside each
        // other are within reach where what is left on both sides is less than that. Both are
        // exponential.
        let left = (1.0 - FAN / self.in_part).max(0.0) / (FAN + 1.0);
        for &j in &self.others {
            let ((lo, hi), (first, last)) = (block[j], part.sides[j]);
            let gap = (first - hi).max(lo - last);
            least = self.metric.widen(least, gap.max(0.0));
            if least > self.bound {
                return 0.0;
            }
            most = self.metric.widen(most, (last - lo).max(hi - first));
            let times = (self.reach - gap) / (left * (last - first));
            if gap >= 0.0 && times.is_finite() {
                within *= (1.0 - (-times).exp() * (1.0 + times)).powf(part.loose[j]);
            }
        }
        let (lo, hi) = block[part.along];
        let reach = self.rest(least);
        let (from, to) = (part.rank(lo - reach), part.rank(hi + reach));
        if to <= 0.0 || from >= 1.0 {
            return 0.0;
        }
        // Of the boxes that are near along the order, some are not in the other dimensions.
        let place = |k: usize| from + (to - from) * (k as f64 + 0.5) / SLICES as f64;
        let near = (0..SLICES).filter(|k| self.is_near(block, part, place(*k))).count();
        let within = within * near as f64 / SLICES as f64;
        let cuts = f64::from(u8::from(from > 0.0) + u8::from(to < 1.0));
        let near = ((to - from) * self.in_part + cuts * FAN / 2.0).min(self.in_part);
        let mut taken = 0.0;
        if most <= self.bound {
            let reach = self.rest(most);
            let (from, to) = (part.rank(hi - reach), part.rank(lo + reach));
            taken = ((to - from) * self.in_part - FAN).max(0.0);
        }
        within * (near - taken).max(0.0)
    }

    /// Whether points of a block and of the box at a place of a part may be within ε.
    fn is_near(&self, block: &Sides, part: &Part<'_>, place: f64) -> bool {
        let half = FAN / 2.0 / self.in_part;
        let ends = (part.place(place - half), part.place(place + half));
        let mut acc = 0.0;
        for &j in self.others.iter().chain([&part.along]) {
            let ((lo, hi), (first, last)) = (block[j], part.side(j, ends));
            acc = self.metric.widen(acc, (first - hi).max(lo - last).max(0.0));
            if acc > self.bound {
                return false;
            }
        }
        true
    }

    /// How far apart points may be along the last dimension that are so far apart in the others.
    fn rest(&self, acc: f64) -> f64 {
        match self.metric {
            Metric::L2 => (self.bound - acc).max(0.0).sqrt(),
            Metric::L1 => (self.bound - acc).max(0.0),
            Metric::Linf => self.bound,
        }
    }
}

impl Part<'_> {
    /// The box of the points from one share of them to another.
    fn slice(&self, from: f64, to: f64) -> Sides {
        let ends = (self.place(from), self.place(to));
        (0..self.sides.len()).map(|j| self.side(j, ends)).collect()
    }

    /// The same in one dimension, from one place to another.
    fn side(&self, j: usize, (from, to): (Place, Place)) -> (f64, f64) {
        let (lo, hi) = self.sides[j];
        let (a, b) = (self.at(j, from), self.at(j, to));
        let (first, last) = (a.min(b), a.max(b));
        let loose = self.loose[j];
        (first + (lo - first) * loose, last + (hi - last) * loose)
    }

    /// Where such a share of the points is below.
    fn place(&self, share: f64) -> Place {
        let at = share.clamp(0.0, 1.0) * (self.rows.len() - 1) as f64;
        Place { below: at as usize, above: at.ceil() as usize, between: at.fract() }
    }

    fn at(&self, j: usize, place: Place) -> f64 {
        let (below, above) = (self.rows[place.below][j], self.rows[place.above][j]);
        below + (above - below) * place.between
    }

    /// The share of the points that is below a coordinate along the order.
    fn rank(&self, x: f64) -> f64 {
        let last = self.rows.len() - 1;
        let at = self.rows.partition_point(|row| row[self.along] < x);
        if at == 0 || at > last {
            return if at == 0 { 0.0 } else { 1.0 };
        }
        let (below, above) = (self.rows[at - 1][self.along], self.rows[at][self.along]);
        ((at - 1) as f64 + (x - below) / (above - below)) / last as f64
    }
}

/// How far points in a row are from each other, for each dimension: beside how far they are from one
/// end to the other, a third of that where there is no order, and the least that it can be where there
/// is.
fn loose(rows: &[&[f64]]) -> Vec<f64> {
    let steps = (rows.len() - 1) as f64;
    let (none, full) = (1.0 / 3.0, 1.0 / steps);
    let loose = |j: usize| {
        let lo = rows.iter().map(|row| row[j]).fold(f64::INFINITY, f64::min);
        let hi = rows.iter().map(|row| row[j]).fold(f64::NEG_INFINITY, f64::max);
        let moved: f64 = rows.windows(2).map(|two| (two[0][j] - two[1][j]).abs()).sum();
        let share = moved / steps / (hi - lo);
        // All are the same where nothing moves.
        if hi > lo { ((share - full) / (none - full)).clamp(0.0, 1.0) } else { 0.0 }
    };
    (0..rows[0].len()).map(loose).collect()
}

/// The box around all points of a part, of which these are a sample.
fn sides(rows: &[&[f64]]) -> Sides {
    let mut sides = vec![(f64::INFINITY, f64::NEG_INFINITY); rows[0].len()];
    for row in rows {
        for (side, &x) in sides.iter_mut().zip(*row) {
            *side = (side.0.min(x), side.1.max(x));
        }
    }
    sides.into_iter().map(|(lo, hi)| wider(lo, hi, rows.len())).collect()
}

/// How far all points reach, of which so many reach from `lo` to `hi`.
fn wider(lo: f64, hi: f64, points: usize) -> (f64, f64) {
    let beyond = (hi - lo) / (2 * (points - 1)) as f64;
    (lo - beyond, hi + beyond)
}
