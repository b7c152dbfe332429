//! The directory, tried on a sample: its parts are as many however many points there are, so those
//! of a sample are those of all points, but for what they reach beyond it.

use super::trial::apart;
use crate::metric::Metric;
use crate::summary::Summary;

/// Points of a trial, and in each part at the least.
const POINTS: usize = 8192;
const IN_PART: usize = 8;
/// Blocks of queries that are tried: some lie across the end of a part, and look at much more.
const BLOCKS: usize = 256;
/// Points of a block of queries, and of a box.
const FAN: f64 = 16.0;

/// Least and greatest coordinate, for each dimension.
type Sides = Vec<(f64, f64)>;

/// The parts of all points, by a sample.
struct Parts<'a> {
    dims: &'a [usize],
    fanout: usize,
    /// Of each level, in the dimension of that level.
    levels: Vec<Vec<(f64, f64)>>,
    /// Of the last level, in all dimensions.
    boxes: Vec<Sides>,
    /// Points that a part of the last level has.
    in_part: f64,
    metric: Metric,
    /// ε, in units, and as it accumulates.
    reach: f64,
    bound: f64,
}

/// Points that are tested for each query. None where there is no sample, or too small a one.
pub(super) fn tests(summary: &Summary, dims: &[usize], fanout: usize) -> Option<f64> {
    let near = summary.near.as_ref()?;
    let points = near.thinned(POINTS);
    let len = points.len() / summary.dim;
    let parts = fanout.checked_pow(dims.len() as u32)?;
    if dims.is_empty() || len < IN_PART * parts {
        return None;
    }
    let reach = summary.reach / near.length();
    let mut tried = Parts {
        dims,
        fanout,
        levels: vec![Vec::new(); dims.len()],
        boxes: Vec::with_capacity(parts),
        in_part: summary.right as f64 / parts as f64,
        metric: summary.metric,
        reach,
        bound: summary.metric.widen(0.0, reach),
    };
    let mut rows: Vec<&[f64]> = points.chunks_exact(summary.dim).collect();
    tried.cut(&mut rows, &mut Vec::new());
    let blocks = BLOCKS.min(summary.right / FAN as usize).max(1);
    let starts = (0..blocks).map(|k| (k as f64 + 0.5) / blocks as f64 * (parts as f64));
    let tested = starts.map(|start| tried.tested(&tried.block(start), 0, 0));
    Some(tested.sum::<f64>() / blocks as f64)
}

impl Parts<'_> {
    /// Sorts rows along the dimension of a level, cuts them into parts, and goes on in each. `above`:
    /// the extents of the parts that these rows are of.
    fn cut(&mut self, rows: &mut [&[f64]], above: &mut Vec<(f64, f64)>) {
        let Some(&j) = self.dims.get(above.len()) else {
            let mut sides = sides(rows);
            for (&j, extent) in self.dims.iter().zip(above) {
                sides[j] = *extent;
            }
            self.boxes.push(sides);
            return;
        };
        rows.sort_unstable_by(|a, b| a[j].total_cmp(&b[j]));
        let len = rows.len();
        // A part ends half way to the next at the latest.
        let end = |at: usize, rows: &[&[f64]]| {
            let (before, behind) = (rows[at.max(1) - 1][j], rows[at.min(len - 1)][j]);
            before / 2.0 + behind / 2.0
        };
        for part in 0..self.fanout {
            let (first, last) = (part * len / self.fanout, (part + 1) * len / self.fanout);
            let (lo, hi) = wider(rows[first][j], rows[last - 1][j], last - first);
            let extent = (lo.max(end(first, rows)), hi.min(end(last, rows)));
            self.levels[above.len()].push(extent);
            above.push(extent);
            self.cut(&mut rows[first..last], above);
            above.pop();
        }
    }

    /// The box of a block of queries that starts in this part, and so much of it along: it is as
    /// much of the part as its queries are in the dimension of the last level, and all of it in
    /// the others. Of two parts it takes the end of one and the beginning of the other.
    fn block(&self, start: f64) -> Sides {
        let along = self.dims[self.dims.len() - 1];
        let end = (start + (FAN - 1.0) / self.in_part).min(self.boxes.len() as f64 - 1e-9);
        let mut block = Vec::new();
        for part in start as usize..=end as usize {
            let mut sides = self.boxes[part].clone();
            let (lo, hi) = sides[along];
            let share = |at: f64| lo + (at - part as f64).clamp(0.0, 1.0) * (hi - lo);
            sides[along] = (share(start), share(end));
            block.push(sides);
        }
        let together = |a: Sides, b: Sides| {
            a.iter().zip(b).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))).collect()
        };
        block.into_iter().reduce(together).unwrap_or_default()
    }

    /// Points that are tested for a block, in the parts from `first` on of a level.
    fn tested(&self, block: &Sides, level: usize, first: usize) -> f64 {
        let (lo, hi) = block[self.dims[level]];
        let parts = self.levels[level].iter().enumerate().skip(first).take(self.fanout);
        let near = parts.filter(|(_, part)| part.0 - hi <= self.reach && lo - part.1 <= self.reach);
        near.map(|(at, _)| match level + 1 < self.dims.len() {
            true => self.tested(block, level + 1, at * self.fanout),
            false => self.tested_of(block, &self.boxes[at], self.dims[level]),
        })
        .sum()
    }

    /// Points of a part that are tested for a block. The part is in order along one dimension, and
    /// boxes cut off what is not within reach there, at each end not quite.
    fn tested_of(&self, block: &Sides, part: &Sides, along: usize) -> f64 {
        let (least, most) = apart(block, part, self.metric);
        if least > self.bound || most <= self.bound {
            return 0.0;
        }
        // Sixteen points of a part that has more do not reach from side to side: two parts beside each
        // other are within reach where what is left on both sides is less than that. Both are
        // exponential.
        let left = (1.0 - FAN / self.in_part).max(0.0) / (FAN + 1.0);
        let beside = |&j: &usize| {
            let ((lo, hi), (first, last)) = (block[j], part[j]);
            let gap = (first - hi).max(lo - last);
            let times = (self.reach - gap) / (left * (last - first));
            let is_beside = j != along && gap >= 0.0 && times.is_finite();
            if is_beside { 1.0 - (-times).exp() * (1.0 + times) } else { 1.0 }
        };
        let within: f64 = self.dims.iter().map(beside).product();
        let ((lo, hi), (first, last)) = (block[along], part[along]);
        let (cut_lo, cut_hi) = (lo - self.reach - first, last - hi - self.reach);
        let cuts = f64::from(u8::from(cut_lo > 0.0) + u8::from(cut_hi > 0.0));
        let share =
            1.0 - (cut_lo.max(0.0) + cut_hi.max(0.0)) / (last - first).max(f64::MIN_POSITIVE);
        within * (share.max(0.0) * self.in_part + cuts * FAN / 2.0).min(self.in_part)
    }
}

/// The box around all points of a part, of which these are a sample.
fn sides(rows: &[&[f64]]) -> Sides {
    let side = |j: usize| {
        let xs = || rows.iter().map(|row| row[j]);
        let (lo, hi) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
        wider(lo, hi, rows.len())
    };
    (0..rows[0].len()).map(side).collect()
}

/// How far all points reach, of which so many reach from `lo` to `hi`.
fn wider(lo: f64, hi: f64, points: usize) -> (f64, f64) {
    let beyond = (hi - lo) / (2 * (points - 1)) as f64;
    (lo - beyond, hi + beyond)
}
