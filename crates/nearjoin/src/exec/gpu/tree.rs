//! A tree on the device: points in leaves of 8, and boxes over them.
//!
//! ```text
//! draw a sample, and split it: the widest dimension of each part, in the middle
//! draw a larger one, send it down those splits, and split each part again
//! send all points down: which part of space, or node, each is in; sort them by it
//! split the points of every node down to leaves of 8, and draw boxes around them, around 32 of
//!     those, and so on
//! ```
//!
//! The kernels are in `tree.cu`. One number comes back to the host on the way: how many blocks there
//! are, which says how much memory the leaves take.

use nearjoin_kernels::{Module, Norm, width};

use super::device::{Array, Stage};
use super::driver::{Args, Result};
use super::job::float;
use super::sort::{running_sums, sort_by_key};
use super::upload::{self, Hands};
use crate::points::Points;
use crate::scalar::Scalar;

/// Points of a leaf, and of a block at the most: as `tree.cuh` has them.
const LEAF: usize = 8;
pub(super) const BLOCK: usize = 4096;
/// Children of a box.
const FAN: usize = 32;
/// Levels of boxes that a search knows: `LEVELS` of `nearest.cuh`.
const LEVELS: usize = 8;
/// Words of `levels` and `level` there.
pub(super) const WORDS: usize = 1 + 3 * LEVELS;
/// Points of a node, on average and at the most: a node that turns out to have twice as many still
/// fits a block.
const NODE: usize = BLOCK / 2;
/// Points of the first sample, and of later ones for each part that comes of them.
const SAMPLE: usize = 4096;
const SAMPLE_EACH: usize = 128;
/// Levels that one sample is split, at the most.
const AT_ONCE: u32 = 6;
/// Dimensions that are considered for splits, at the most: the widest. `DIMS` of `tree.cu`.
const SPLIT_DIMS: usize = 16;

/// Points in leaves.
pub(super) struct Tree<T> {
    points: Array<T>,
    /// Rows of the points, or others that they are called by; none of an empty slot.
    ids: Array<u32>,
    /// Their places if they are counted without gaps, of queries.
    places: Option<Array<u32>>,
    /// Where each block begins, in places, and the end.
    blocks: Vec<u32>,
    /// From the leaves up; none of queries.
    levels: Vec<Level<T>>,
}

/// The boxes of a level.
struct Level<T> {
    boxes: Array<T>,
    least: Array<u32>,
    count: usize,
}

/// What a tree is made of.
pub(super) struct Growing<'a, T> {
    pub(super) stage: &'a Stage,
    pub(super) points: Points<'a, T>,
    pub(super) norm: Norm,
    pub(super) extents: &'a [(f64, f64)],
    /// What the rows are called in the answer, where not by their numbers.
    pub(super) names: Option<&'a [u32]>,
    /// Whether it is searched, or has the queries of a search.
    pub(super) role: Role,
    /// Who brings the points to the device.
    pub(super) hands: Hands,
}

/// What the points of a tree are there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// They are searched.
    Candidates,
    /// They ask.
    Queries,
    /// Both.
    Both,
}

impl<T> Tree<T> {
    pub(super) fn points(&self) -> u64 {
        self.points.address()
    }

    pub(super) fn ids(&self) -> u64 {
        self.ids.address()
    }

    pub(super) fn places(&self) -> u64 {
        self.places.as_ref().map_or(0, Array::address)
    }

    /// Where each block begins, in places, and the end.
    pub(super) fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// The ids in the order of the places.
    pub(super) fn ids_in_order(&self, stage: &Stage) -> Result<Vec<u32>> {
        let ids = stage.read(&self.ids, 0..self.ids.len())?;
        let Some(places) = &self.places else { return Ok(Vec::new()) };
        let places = stage.read(places, 0..places.len())?;
        let mut ordered = vec![0; self.blocks.last().map_or(0, |&end| end as usize)];
        for (id, place) in ids.into_iter().zip(places).filter(|(id, _)| *id != u32::MAX) {
            ordered[place as usize] = id;
        }
        Ok(ordered)
    }

    pub(super) fn bytes(&self) -> usize {
        let boxes = |level: &Level<T>| level.boxes.bytes() + level.least.bytes();
        let places = self.places.as_ref().map_or(0, Array::bytes);
        let levels: usize = self.levels.iter().map(boxes).sum();
        self.points.bytes() + self.ids.bytes() + places + levels
    }

    /// `levels` and `level` of `Search`.
    pub(super) fn level_words(&self) -> Vec<u64> {
        let mut words = vec![self.levels.len() as u64];
        for level in &self.levels {
            words.extend([level.boxes.address(), level.least.address(), level.count as u64]);
        }
        words.resize(WORDS, 0);
        words
    }
}

/// Points in the order of the nodes.
struct Ordered<T> {
    points: Array<T>,
    rows: Array<u32>,
    nodes: usize,
    /// Where each node begins, and the end.
    begins: Array<u32>,
}

impl<T: Scalar> Growing<'_, T> {
    /// Copies the points to the device, and makes a tree of them.
    pub(super) fn grow(self) -> Result<Tree<T>> {
        let raw = upload::points(self.stage, self.points, self.hands)?;
        let dims = self.stage.copy_of(&self.split_dims())?;
        let levels = levels_for(self.points.len());
        let ordered = match levels {
            0 => self.as_given(raw)?,
            _ => self.order(raw, &dims, levels)?,
        };
        let blocks = self.blocks(&ordered)?;
        self.leaves(&ordered, blocks, &dims)
    }

    fn len(&self) -> usize {
        self.points.len()
    }

    fn dim(&self) -> usize {
        self.points.dimension()
    }

    fn launch(&self, name: &'static str, threads: usize, args: Args) -> Result<()> {
        self.stage.launch(Module::Tree(float::<T>()), name, threads as u64, args)
    }

    /// A block of so many points has a thread for each leaf.
    fn launch_blocks(
        &self,
        name: &'static str,
        blocks: usize,
        each: usize,
        args: Args,
    ) -> Result<()> {
        let threads = (each / LEAF).next_power_of_two().clamp(64, 512) as u32;
        let module = Module::Tree(float::<T>());
        self.stage.launch_blocks(module, name, blocks as u64, threads, args)
    }

    /// The widest dimensions.
    fn split_dims(&self) -> Vec<u32> {
        let extent = |dim: &u32| self.extents[*dim as usize].1 - self.extents[*dim as usize].0;
        let mut dims: Vec<u32> = (0..self.dim() as u32).collect();
        if dims.len() > SPLIT_DIMS {
            dims.sort_by(|a, b| extent(b).total_cmp(&extent(a)));
            dims.truncate(SPLIT_DIMS);
        }
        dims
    }

    /// All points as one node.
    fn as_given(&self, points: Array<T>) -> Result<Ordered<T>> {
        let rows = self.stage.array::<u32>(self.len())?;
        let args = Args::new().u64(self.len() as u64).u64(rows.address());
        let module = Module::Index(float::<T>());
        self.stage.launch(module, "identity", self.len() as u64, args)?;
        let begins = self.stage.copy_of(&[0, self.len() as u32])?;
        Ok(Ordered { points, rows, nodes: 1, begins })
    }

    /// The points in the order of 2^levels nodes.
    fn order(&self, raw: Array<T>, dims: &Array<u32>, levels: u32) -> Result<Ordered<T>> {
        let splits =
            Splits { dims: self.stage.array(1 << levels)?, values: self.stage.array(1 << levels)? };
        let mut above = 0;
        for more in rounds(levels) {
            let count = if above == 0 { SAMPLE } else { SAMPLE_EACH << (above + more) };
            let count = count.min(self.len());
            let sample = self.stage.array::<T>(count * self.dim())?;
            let args = Args::new().u64(raw.address()).u64(self.len() as u64).u32(self.dim() as u32);
            let args = args.u64(count as u64).u64(sample.address());
            self.launch("tree_draw", count, args)?;
            let parts = match above {
                0 => None,
                _ => Some(self.down(sample.address(), count, &splits, above)?),
            };
            let (points, begins) = match &parts {
                None => (&sample, 0),
                Some(parts) => (&parts.points, parts.begins.address()),
            };
            let dim_count = dims.len() as u32;
            let args = Args::new().u64(points.address()).u32(self.dim() as u32);
            let args = args.u64(dims.address()).u32(dim_count).u64(begins).u64(count as u64);
            let args = args.u32(above).u32(more);
            let args = args.u64(splits.dims.address()).u64(splits.values.address());
            self.launch_blocks("tree_split", 1 << above, count >> above, args)?;
            above += more;
        }
        self.down(raw.address(), self.len(), &splits, levels)
    }

    /// Sends points down the splits, and puts them in that order.
    fn down(&self, points: u64, len: usize, splits: &Splits<T>, levels: u32) -> Result<Ordered<T>> {
        let (stage, dim, nodes) = (self.stage, self.dim(), 1 << levels);
        let keys = stage.array::<u32>(len)?;
        let args = Args::new().u64(points).u64(len as u64).u32(dim as u32).u32(levels);
        let args = args.u64(splits.dims.address()).u64(splits.values.address());
        self.launch("tree_assign", len, args.u64(keys.address()))?;
        let sorted = sort_by_key(stage, keys, None, levels)?;
        let begins = stage.zeroed::<u32>(nodes + 1)?;
        let args = Args::new().u64(sorted.keys.address()).u64(len as u64).u32(0);
        let module = Module::Index(float::<T>());
        stage.launch(module, "cell_counts_u32", len as u64, args.u64(begins.address()))?;
        running_sums::<u32>(stage, begins.address(), nodes, begins.address())?;
        let ordered = stage.array::<T>(len * dim)?;
        let args = Args::new().u64(points).u64(len as u64).u32(dim as u32);
        let args = args.u64(sorted.values.address()).u64(ordered.address());
        self.launch("tree_gather", len * dim, args)?;
        Ok(Ordered { points: ordered, rows: sorted.values, nodes, begins })
    }

    /// Where each block begins. A block is a node, or some of one that is too large: of points that
    /// cannot be told apart.
    fn blocks(&self, ordered: &Ordered<T>) -> Result<Array<u32>> {
        let (stage, nodes) = (self.stage, ordered.nodes);
        let cuts = stage.array::<u32>(nodes + 1)?;
        let args = || Args::new().u64(ordered.begins.address()).u64(nodes as u64);
        self.launch("tree_cuts", nodes, args().u64(cuts.address()))?;
        running_sums::<u32>(stage, cuts.address(), nodes, cuts.address())?;
        let count = stage.read(&cuts, nodes..nodes + 1)?[0] as usize;
        let blocks = stage.array::<u32>(count + 1)?;
        let args = args().u64(cuts.address()).u64(blocks.address());
        self.launch("tree_blocks", nodes, args)?;
        Ok(blocks)
    }

    /// Splits every block down to leaves, and draws boxes.
    fn leaves(
        &self,
        ordered: &Ordered<T>,
        blocks: Array<u32>,
        dims: &Array<u32>,
    ) -> Result<Tree<T>> {
        let (stage, dim, count) = (self.stage, self.dim(), blocks.len() - 1);
        let width = width(self.norm, dim);
        let numbers = if width > 0 { width } else { dim };
        let slots = count * BLOCK;
        let points = stage.array::<T>(slots * numbers)?;
        let ids = stage.array::<u32>(slots)?;
        stage.fill(ids.piece(0..slots), u32::MAX)?;
        let places = stage.array_if::<u32>(self.role != Role::Candidates, slots)?;
        let mut levels = Vec::new();
        if self.role != Role::Queries {
            levels.push(self.level(slots / LEAF, numbers)?);
            levels.push(self.level(slots / LEAF / FAN, numbers)?);
        }
        let names = match self.names {
            Some(names) => Some(upload::words(stage, names, self.hands)?),
            None => None,
        };
        let address = |array: &Option<Array<u32>>| array.as_ref().map_or(0, Array::address);
        let mut words = vec![width as u64, points.address(), ids.address()];
        words.push(address(&places));
        for level in 0..2 {
            words.extend(levels.get(level).map_or([0; 3], |level: &Level<T>| {
                [level.boxes.address(), level.least.address(), level.count as u64]
            }));
        }
        let args = Args::new().u64(ordered.points.address()).u64(blocks.address());
        let args = args.u32(dim as u32).u64(dims.address()).u32(dims.len() as u32);
        let args = args.u64(ordered.rows.address()).u64(address(&names)).structure(&words);
        self.launch_blocks("tree_leaves", count, self.len() / count.max(1), args)?;
        while levels.last().is_some_and(|level| level.count > FAN) {
            levels.push(self.boxes_above(&levels[levels.len() - 1], width, numbers)?);
        }
        let blocks = stage.read(&blocks, 0..count + 1)?;
        Ok(Tree { points, ids, places, blocks, levels })
    }

    fn level(&self, count: usize, numbers: usize) -> Result<Level<T>> {
        let boxes = self.stage.array::<T>(count * 2 * numbers)?;
        Ok(Level { boxes, least: self.stage.array(count)?, count })
    }

    fn boxes_above(&self, below: &Level<T>, width: usize, numbers: usize) -> Result<Level<T>> {
        let level = self.level(below.count.div_ceil(FAN), numbers)?;
        let args = Args::new().u64(below.boxes.address()).u64(below.least.address());
        let args = args.u64(below.count as u64).u32(width as u32).u32(self.dim() as u32);
        let args = args.u64(level.boxes.address()).u64(level.least.address());
        self.launch("tree_boxes", level.count * FAN, args.u64(level.count as u64))?;
        Ok(level)
    }
}

/// Where space is split, level after level.
struct Splits<T> {
    dims: Array<u32>,
    values: Array<T>,
}

/// Levels of splits for so many points: none where they fit one block.
fn levels_for(points: usize) -> u32 {
    match points {
        0..=BLOCK => 0,
        _ => points.div_ceil(NODE).next_power_of_two().ilog2(),
    }
}

/// Levels of splits that are made at a time: about as many each.
fn rounds(levels: u32) -> impl Iterator<Item = u32> {
    let count = levels.div_ceil(AT_ONCE);
    let begin = move |round: u32| levels * round / count;
    (0..count).map(move |round| begin(round + 1) - begin(round))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_not_too_large_and_not_too_many() {
        assert_eq!(levels_for(0), 0);
        assert_eq!(levels_for(BLOCK), 0);
        for points in [4097, 10_000, 2_000_000, 10_000_000, 4_000_000_000] {
            let nodes = 1 << levels_for(points);
            assert!(points <= nodes * NODE && points > nodes * NODE / 2, "{points}");
        }
        let all: Vec<u32> = rounds(levels_for(2_000_000)).collect();
        assert_eq!(all, [5, 5]);
        assert_eq!(rounds(15).collect::<Vec<_>>(), [5, 5, 5]);
        assert_eq!(rounds(0).count(), 0);
    }
}
