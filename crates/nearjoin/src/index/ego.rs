//! The ε-grid order of Super-EGO, and its recursive join.
//!
//! Points are sorted by their ε-cells, compared dimension by dimension with the most
//! selective one first; within a cell they follow a Z-curve, so that blocks of points
//! stay compact however many a cell holds. The recursion goes down both sides at once:
//! a block of queries hands each of its sub-blocks the candidate blocks that are neither
//! wholly outside ε nor wholly inside.

use core::ops::ControlFlow;

use rayon::prelude::*;

use super::boxes::{BoxOf, Boxes, FAN, Prune};
use super::layout::SLACK;
use super::order::{Keyed, interleave, sort_keyed};
use super::{Candidates, Run, push_run};
use crate::error::Result;
use crate::memory::Buffer;
use crate::points::Points;
use crate::scalar::Scalar;

/// Equal keys in a longer run than this are told apart by a finer grid.
const COARSE_RUN: usize = 256;
/// Bits of a key that number cells; the rest places a point within its cell.
const CELL_BITS: u32 = 44;
/// Dimensions of the Z-curve within a cell.
const CURVE_DIMS: usize = 3;

/// Sorts points by ε-cell in the dimensions `dims`, most selective first.
pub(crate) fn sort<T: Scalar>(
    points: Points<'_, T>,
    eps: f64,
    dims: &[usize],
) -> Result<Buffer<u32>> {
    let mut keyed: Vec<Keyed> =
        (0..points.len()).into_par_iter().map(|id| Keyed { key: 0, id: id as u32 }).collect();
    refine(points, eps, dims, &mut keyed, 0);
    let mut ids = Buffer::<u32>::zeroed(keyed.len() + SLACK)?;
    ids.par_iter_mut().zip(&keyed).with_min_len(4096).for_each(|(id, k)| *id = k.id);
    Ok(ids)
}

/// Sorts `keyed`, all of one key so far, by a grid over their own extent.
///
/// A key has 64 bits. Where the domain has more cells than that, or a cell is crowded
/// beyond the curve's resolution, points of equal key are sorted again with a grid of
/// their own; points that differ nowhere stay in input order.
fn refine<T: Scalar>(
    points: Points<'_, T>,
    eps: f64,
    dims: &[usize],
    keyed: &mut [Keyed],
    depth: u32,
) {
    let extents: Vec<(f64, f64)> = dims.iter().map(|&j| extent(points, keyed, j)).collect();
    let scale = Scale::new(&extents, eps);
    let key = |id: u32| scale.key(dims.iter().map(|&j| points.row(id as usize)[j].to_f64()));
    keyed.par_iter_mut().with_min_len(4096).for_each(|k| k.key = key(k.id));
    sort_keyed(keyed);
    if extents.iter().all(|(lo, hi)| lo == hi) || depth > 8 {
        return;
    }
    let runs: Vec<&mut [Keyed]> =
        keyed.chunk_by_mut(|a, b| a.key == b.key).filter(|run| run.len() > COARSE_RUN).collect();
    runs.into_par_iter().for_each(|run| refine(points, eps, dims, run, depth + 1));
}

fn extent<T: Scalar>(points: Points<'_, T>, keyed: &[Keyed], j: usize) -> (f64, f64) {
    let widen = |(lo, hi): (f64, f64), x: f64| (lo.min(x), hi.max(x));
    keyed
        .par_iter()
        .with_min_len(4096)
        .map(|k| points.row(k.id as usize)[j].to_f64())
        .fold(|| (f64::INFINITY, f64::NEG_INFINITY), widen)
        .reduce(|| (f64::INFINITY, f64::NEG_INFINITY), |a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// How a key is made of coordinates. Keys only order the points: the join relies on
/// boxes, so no rounding here can lose a pair.
struct Scale {
    /// Origin, cells per unit and the bits of the cell number, per dimension.
    cells: Vec<(f64, f64, u32)>,
    curve_bits: u32,
}

impl Scale {
    fn new(extents: &[(f64, f64)], eps: f64) -> Self {
        let mut left = CELL_BITS;
        let mut cells = Vec::new();
        for &(lo, hi) in extents {
            if left == 0 {
                break;
            }
            let extent = hi - lo;
            let wanted = if extent > 0.0 && eps > 0.0 { extent / eps } else { 1.0 };
            // A dimension takes at most the bits that are left, with wider cells.
            let bits = (wanted.log2().max(0.0).floor() as u32 + 1).min(left);
            let per_unit = if extent > 0.0 {
                (1.0 / eps).min(((1u64 << bits) - 1) as f64 / extent)
            } else {
                0.0
            };
            left -= bits;
            cells.push((lo, per_unit, bits));
        }
        let dims = cells.len().clamp(1, CURVE_DIMS) as u32;
        let used: u32 = cells.iter().map(|c| c.2).sum();
        Scale { cells, curve_bits: ((64 - used) / dims).min(16) }
    }

    fn key(&self, coordinates: impl Iterator<Item = f64>) -> u64 {
        let mut key = 0u64;
        let mut within = [0u32; CURVE_DIMS];
        for (at, (&(lo, per_unit, bits), x)) in self.cells.iter().zip(coordinates).enumerate() {
            let place = (x - lo) * per_unit;
            let cell = (place as u64).min((1 << bits) - 1);
            key = key << bits | cell;
            if let Some(within) = within.get_mut(at) {
                let steps = f64::from(1u32 << self.curve_bits);
                *within = (((place - cell as f64) * steps) as u32).min((1 << self.curve_bits) - 1);
            }
        }
        let dims = self.cells.len().min(CURVE_DIMS);
        let curve = dims as u32 * self.curve_bits;
        if curve == 0 {
            return key;
        }
        key << curve | interleave(&within[..dims], self.curve_bits)
    }
}

/// A block of candidates: a level of boxes and a number on it.
#[derive(Clone, Copy, Debug)]
struct Node {
    level: u32,
    node: u32,
}

/// Lists that the recursion reuses, one set per level of query blocks.
#[derive(Debug, Default)]
pub(crate) struct Recursion {
    lists: Vec<List>,
}

#[derive(Debug, Default)]
struct List {
    open: Vec<Node>,
    take: Vec<Run>,
}

/// The recursive join of one range of query blocks against all candidates.
pub(crate) struct Join<'a, T> {
    /// The boxes of the queries and of the candidates.
    pub(crate) queries: &'a Boxes<T>,
    pub(crate) right: &'a Boxes<T>,
    pub(crate) prune: &'a Prune<T>,
}

impl<T: Scalar> Join<'_, T> {
    /// Visits every block of 16 queries in `unit`, whose ends are multiples of 16 or the
    /// end of the queries, with its box and candidates.
    ///
    /// Why no pair is missed: a candidate block leaves the list only when its box is
    /// farther than ε from the box around all queries that the list is for, or when it
    /// is wholly within ε and goes to `take`.
    pub(crate) fn run(
        &self,
        unit: Run,
        recursion: &mut Recursion,
        visit: &mut dyn FnMut(Run, &BoxOf<T>, &mut Candidates) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let boxes = self.queries;
        let mut level = 0;
        while level < boxes.top() && FAN.pow(level as u32 + 2) <= unit.len().max(FAN) {
            level += 1;
        }
        recursion.lists.resize_with(boxes.top() + 2, List::default);
        let root = &mut recursion.lists[level + 1];
        root.open.clear();
        root.take.clear();
        let top = self.right.top();
        let count = self.right.count(top) as u32;
        root.open.extend((0..count).map(|node| Node { level: top as u32, node }));
        let points = FAN.pow(level as u32 + 1) as u32;
        let mut candidates = Candidates::default();
        for node in unit.start / points..unit.end.div_ceil(points) {
            self.block(level, node as usize, &unit, recursion, &mut candidates, visit)?;
        }
        ControlFlow::Continue(())
    }

    fn block(
        &self,
        level: usize,
        node: usize,
        unit: &Run,
        recursion: &mut Recursion,
        candidates: &mut Candidates,
        visit: &mut dyn FnMut(Run, &BoxOf<T>, &mut Candidates) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let boxes = self.queries;
        let run = boxes.run(level, node);
        let run = run.start.max(unit.start)..run.end.min(unit.end);
        if run.is_empty() {
            return ControlFlow::Continue(());
        }
        let mut bound = BoxOf::new();
        boxes.bound(level, node, &mut bound);

        let (below, above) = recursion.lists.split_at_mut(level + 1);
        let (parent, list) = (&above[0], &mut below[level]);
        list.open.clear();
        list.take.clone_from(&parent.take);
        candidates.test.clear();
        for &open in &parent.open {
            self.sieve(level, open, &bound, list, &mut candidates.test);
        }
        if level > 0 {
            for child in node * FAN..((node + 1) * FAN).min(boxes.count(level - 1)) {
                self.block(level - 1, child, unit, recursion, candidates, visit)?;
            }
            return ControlFlow::Continue(());
        }
        candidates.take.clone_from(&list.take);
        visit(run, &bound, candidates)
    }

    /// Sorts one candidate block into the list of a query block of `level`: kept open,
    /// taken, dropped or, while it is larger than the query block, split.
    fn sieve(
        &self,
        level: usize,
        open: Node,
        bound: &BoxOf<T>,
        list: &mut List,
        test: &mut Vec<Run>,
    ) {
        let boxes = self.right;
        if open.level == 0 {
            let (near, inside) = self.prune.classify(boxes, 0, open.node as usize, 1, bound);
            return self.place(level, 0, open.node as usize, near, inside, bound, list, test);
        }
        let below = open.level as usize - 1;
        let first = open.node as usize * FAN;
        let count = FAN.min(boxes.count(below) - first);
        let (near, inside) = self.prune.classify(boxes, below, first, count, bound);
        self.place(level, below, first, near, inside, bound, list, test);
    }

    #[allow(clippy::too_many_arguments)]
    fn place(
        &self,
        level: usize,
        at: usize,
        first: usize,
        near: u32,
        inside: u32,
        bound: &BoxOf<T>,
        list: &mut List,
        test: &mut Vec<Run>,
    ) {
        let boxes = self.right;
        let mut left = near;
        while left != 0 {
            let bit = left.trailing_zeros();
            left &= left - 1;
            let node = first + bit as usize;
            if inside >> bit & 1 == 1 {
                push_run(&mut list.take, boxes.run(at, node));
            } else if level == 0 && at == 0 {
                push_run(test, boxes.run(0, node));
            } else if at > level {
                self.sieve(level, Node { level: at as u32, node: node as u32 }, bound, list, test);
            } else {
                list.open.push(Node { level: at as u32, node: node as u32 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowded_cells_are_refined() {
        // A far outlier squeezes everything else into one cell of the first grid.
        let mut rows: Vec<[f64; 2]> =
            (0..4000).map(|i| [f64::from(i % 61) * 1e-3, f64::from(i % 67) * 1e-3]).collect();
        rows.push([1e12, 1e12]);
        let points = Points::from_rows(&rows).unwrap();
        let ids = sort(points, 1e-9, &[0, 1]).unwrap();
        // Sixteen in a row are close together, although the outlier is far.
        for sixteen in ids[..4000].chunks(16) {
            for j in 0..2 {
                let x = |id: &u32| rows[*id as usize][j];
                let lo = sixteen.iter().map(x).fold(f64::INFINITY, f64::min);
                let hi = sixteen.iter().map(x).fold(f64::NEG_INFINITY, f64::max);
                assert!(hi - lo < 0.045, "{lo} to {hi}");
            }
        }
    }
}
