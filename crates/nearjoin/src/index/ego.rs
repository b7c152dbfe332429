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
use super::order::{Keyed, Sorted, id_bits, interleave, sort_keyed};
use super::{Candidates, Run, push_run};
use crate::error::Result;
use crate::memory::{Buffer, with_capacity};
use crate::points::Points;
use crate::scalar::Scalar;

/// Equal keys in a longer run than this are told apart by a finer grid.
const COARSE_RUN: usize = 256;
/// Of the bits of a key, the share that numbers cells; the rest places a point within
/// its cell.
const CELL_SHARE: f64 = 0.7;
/// Dimensions of the Z-curve within a cell.
const CURVE_DIMS: usize = 3;
/// Grids within grids, at the most. Each tells apart what differs by more than about
/// 2⁻¹⁴ of its extent, so this many are enough for all but contrived input.
const DEPTH: u32 = 8;

/// Sorts points by ε-cell in the dimensions `dims`, most selective first.
///
/// Where the domain has more cells than a key has room for, or a cell is crowded beyond
/// the curve's resolution, points of equal key are sorted again with a grid over their own
/// extent; points that differ nowhere stay in input order.
pub(crate) fn sort<T: Scalar>(
    points: Points<'_, T>,
    eps: f64,
    dims: &[usize],
) -> Result<Buffer<u32>> {
    let rows = |id: u32| dims.iter().map(move |&j| points.row(id as usize)[j].to_f64());
    let all = (0..points.len() as u32).into_par_iter();
    let scale = Scale::new(&extents(all, dims.len(), rows), eps, 64 - id_bits(points.len()));
    let sorted = Sorted::by_key(points.len(), |row| scale.key(rows(row as u32)))?;
    let mut ids = sorted.ids()?;
    if scale.is_point() {
        return Ok(ids);
    }
    let mut crowded = Vec::new();
    let mut rest = &mut ids[..points.len()];
    let mut start = 0;
    for end in sorted.ends() {
        let (run, tail) = rest.split_at_mut(end - start);
        if run.len() > COARSE_RUN {
            crowded.push(run);
        }
        (rest, start) = (tail, end);
    }
    crowded.into_par_iter().try_for_each(|run| -> Result<()> {
        let mut keyed: Vec<Keyed> = with_capacity(run.len())?;
        keyed.extend(run.iter().map(|&id| Keyed { key: 0, id }));
        refine(points, eps, dims, &mut keyed, 1)?;
        run.iter_mut().zip(&keyed).for_each(|(id, keyed)| *id = keyed.id);
        Ok(())
    })?;
    Ok(ids)
}

/// Sorts points of equal key by a grid over their own extent.
fn refine<T: Scalar>(
    points: Points<'_, T>,
    eps: f64,
    dims: &[usize],
    keyed: &mut [Keyed],
    depth: u32,
) -> Result<()> {
    let rows = |id: u32| dims.iter().map(move |&j| points.row(id as usize)[j].to_f64());
    let scale = Scale::new(&extents(keyed.par_iter().map(|k| k.id), dims.len(), rows), eps, 64);
    keyed.par_iter_mut().with_min_len(4096).for_each(|k| k.key = scale.key(rows(k.id)));
    sort_keyed(keyed)?;
    if scale.is_point() || depth >= DEPTH {
        return Ok(());
    }
    let runs = keyed.chunk_by_mut(|a, b| a.key == b.key);
    let crowded: Vec<&mut [Keyed]> = runs.filter(|run| run.len() > COARSE_RUN).collect();
    crowded.into_par_iter().try_for_each(|run| refine(points, eps, dims, run, depth + 1))
}

/// Least and greatest coordinate of some points, per dimension.
fn extents<R: Iterator<Item = f64>>(
    ids: impl IndexedParallelIterator<Item = u32>,
    dims: usize,
    rows: impl Fn(u32) -> R + Sync,
) -> Vec<(f64, f64)> {
    let none = || vec![(f64::INFINITY, f64::NEG_INFINITY); dims];
    ids.with_min_len(4096)
        .fold(none, |mut extents, id| {
            for (extent, x) in extents.iter_mut().zip(rows(id)) {
                *extent = (extent.0.min(x), extent.1.max(x));
            }
            extents
        })
        .reduce(none, |mut a, b| {
            for (a, b) in a.iter_mut().zip(b) {
                *a = (a.0.min(b.0), a.1.max(b.1));
            }
            a
        })
}

/// How a key is made of coordinates. Keys only order the points: the join relies on
/// boxes, so no rounding here can lose a pair.
pub(crate) struct Scale {
    cells: Vec<Cells>,
    curve_bits: u32,
}

/// The cells of one dimension.
struct Cells {
    origin: f64,
    per_unit: f64,
    bits: u32,
    last: u64,
}

impl Scale {
    /// Keys of at most `bits` bits.
    pub(crate) fn new(extents: &[(f64, f64)], eps: f64, bits: u32) -> Self {
        let mut left = (f64::from(bits) * CELL_SHARE) as u32;
        let share = left / extents.len().clamp(1, CURVE_DIMS) as u32;
        let mut cells = Vec::new();
        for &(lo, hi) in extents {
            if left == 0 {
                break;
            }
            let extent = hi - lo;
            let wanted = if extent > 0.0 && eps > 0.0 { extent / eps } else { 1.0 };
            // A dimension takes at most its share of the bits, with wider cells: one that
            // reaches far must not leave the others without any.
            let bits = wanted.log2().clamp(0.0, f64::from(left.min(share) - 1)) as u32 + 1;
            let per_unit = if extent > 0.0 && extent.is_finite() {
                (1.0 / eps).min(((1u64 << bits) - 1) as f64 / extent)
            } else {
                0.0
            };
            left -= bits;
            let last = ((extent * per_unit) as u64).min((1 << bits) - 1);
            cells.push(Cells { origin: lo, per_unit, bits, last });
        }
        let dims = cells.len().clamp(1, CURVE_DIMS) as u32;
        let used: u32 = cells.iter().map(|c| c.bits).sum();
        Scale { cells, curve_bits: ((bits - used) / dims).min(16) }
    }

    /// Whether all points are the same to these keys.
    fn is_point(&self) -> bool {
        self.cells.iter().all(|cells| cells.per_unit == 0.0)
    }

    /// Cells in the order of an ox that ploughs: every other row backwards, so that points
    /// at the end of one row and the start of the next are neighbours in space too.
    pub(crate) fn key(&self, coordinates: impl Iterator<Item = f64>) -> u64 {
        let mut key = 0u64;
        let mut within = [0u32; CURVE_DIMS];
        let mut backwards = false;
        let steps = f64::from(1u32 << self.curve_bits);
        for (at, (cells, x)) in self.cells.iter().zip(coordinates).enumerate() {
            let place = (x - cells.origin) * cells.per_unit;
            let cell = (place as u64).min(cells.last);
            if let Some(within) = within.get_mut(at) {
                *within = (((place - cell as f64) * steps) as u32).min((1 << self.curve_bits) - 1);
            }
            key = key << cells.bits | if backwards { cells.last - cell } else { cell };
            backwards ^= cell % 2 == 1;
        }
        let dims = self.cells.len().min(CURVE_DIMS);
        let curve = dims as u32 * self.curve_bits;
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

/// The candidates of a query block, as far as its parents have settled them.
#[derive(Debug, Default)]
struct List {
    open: Vec<Node>,
    take: Vec<Run>,
    taken: u64,
}

/// The recursive join of one range of query blocks against all candidates.
pub(crate) struct Join<'a, T> {
    /// The boxes of the queries and of the candidates.
    pub(crate) queries: &'a Boxes<T>,
    pub(crate) right: &'a Boxes<T>,
    pub(crate) prune: &'a Prune<T>,
    /// Of each block only the candidates behind it are wanted; both sides are one.
    pub(crate) behind: bool,
    /// Points that match whole blocks are only counted.
    pub(crate) counting: bool,
    /// The level of the blocks that are visited: 0 for 16 queries at a time, 1 for 256.
    pub(crate) lowest: usize,
}

/// Receives a block of queries with its box and candidates.
pub(crate) type Visit<'a, T> = dyn FnMut(Run, &BoxOf<T>, &mut Candidates) -> ControlFlow<()> + 'a;

/// A query block on its level.
struct Block<'a, T> {
    level: usize,
    run: Run,
    bound: &'a BoxOf<T>,
}

impl<T: Scalar> Join<'_, T> {
    /// Visits every block of queries in `unit`, whose ends are multiples of 16 or the end of the
    /// queries, with its box and candidates. A unit that has less than one is visited whole.
    ///
    /// Why no pair is missed: a candidate block leaves the list only when its box is
    /// farther than ε from the box around all queries that the list is for, when it is
    /// wholly within ε and is taken, or when none of it is wanted.
    pub(crate) fn run(
        &self,
        unit: Run,
        recursion: &mut Recursion,
        visit: &mut Visit<'_, T>,
    ) -> ControlFlow<()> {
        let boxes = self.queries;
        let mut level = 0;
        while level < boxes.top() && FAN.pow(level as u32 + 2) <= unit.len().max(FAN) {
            level += 1;
        }
        recursion.lists.resize_with(boxes.top() + 2, List::default);
        let root = &mut recursion.lists[level + 1];
        *root = List::default();
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
        visit: &mut Visit<'_, T>,
    ) -> ControlFlow<()> {
        let run = self.queries.run(level, node);
        let run = run.start.max(unit.start)..run.end.min(unit.end);
        if run.start >= run.end {
            return ControlFlow::Continue(());
        }
        let mut bound = BoxOf::new();
        self.queries.bound(level, node, &mut bound);
        let block = Block { level, run, bound: &bound };

        let (below, above) = recursion.lists.split_at_mut(level + 1);
        let (parent, list) = (&above[0], &mut below[level]);
        list.open.clear();
        list.take.clone_from(&parent.take);
        list.taken = parent.taken;
        candidates.test.clear();
        for &open in &parent.open {
            self.sieve(&block, open, list, &mut candidates.test);
        }
        if level > self.lowest {
            for child in node * FAN..((node + 1) * FAN).min(self.queries.count(level - 1)) {
                self.block(level - 1, child, unit, recursion, candidates, visit)?;
            }
            return ControlFlow::Continue(());
        }
        for open in &list.open {
            push_run(&mut candidates.test, self.right.run(open.level as usize, open.node as usize));
        }
        candidates.take.clone_from(&list.take);
        candidates.taken = list.taken;
        visit(block.run, &bound, candidates)
    }

    /// Sorts one candidate block, or the sixteen it consists of, into the list of a query
    /// block: kept open, taken, dropped or, while larger than the query block, split.
    fn sieve(&self, block: &Block<'_, T>, open: Node, list: &mut List, test: &mut Vec<Run>) {
        let (at, first, count) = match open.level as usize {
            0 => (0, open.node as usize, 1),
            level => {
                let first = open.node as usize * FAN;
                (level - 1, first, FAN.min(self.right.count(level - 1) - first))
            }
        };
        let (near, inside) = self.prune.classify(self.right, at, first, count, block.bound);
        let mut left = near;
        while left != 0 {
            let bit = left.trailing_zeros();
            left &= left - 1;
            let node = first + bit as usize;
            let run = self.right.run(at, node);
            // What lies before the block is not wanted, and what overlaps it may lie
            // before some of its queries.
            if self.behind && run.end <= block.run.start {
                continue;
            }
            let overlaps = self.behind && run.start < block.run.end;
            let keep = Node { level: at as u32, node: node as u32 };
            if inside >> bit & 1 == 1 && !overlaps {
                match self.counting {
                    true => list.taken += u64::from(run.end - run.start),
                    false => push_run(&mut list.take, run),
                }
            } else if block.level == 0 && at == 0 {
                // The only leaf that overlaps is the block itself.
                if !overlaps {
                    push_run(test, run);
                }
            } else if at > block.level {
                self.sieve(block, keep, list, test);
            } else {
                list.open.push(keep);
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
        // Sixteen in a row are close together, although the outlier is far: without a finer
        // grid they would span the whole square, 0.06 by 0.066.
        for x in [|row: &[f64; 2]| row[0], |row: &[f64; 2]| row[1]] {
            let extents = ids[..4000].chunks(16).map(|sixteen| {
                let x = sixteen.iter().map(|&id| x(&rows[id as usize]));
                x.clone().fold(f64::NEG_INFINITY, f64::max) - x.fold(f64::INFINITY, f64::min)
            });
            let mean = extents.sum::<f64>() / 250.0;
            assert!(mean < 0.03, "{mean}");
        }
    }
}
