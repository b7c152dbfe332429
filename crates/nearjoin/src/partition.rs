//! Space cut into boxes of about equal work: who does which part of a join.
//!
//! ```text
//! ┌─────┬────────┐   A left point goes to the part that it lies in, its home, and a right one to every part
//! │  0  │        │   that ε around it touches. Each pair is then found once, in the home of its left point,
//! ├─────┤   2    │   and nobody has to remember or remove anything.
//! │  1  │        │
//! └─────┴────────┘
//! ```
//!
//! Nothing here moves points or talks to anybody: a program that shares a join among processes samples its
//! points, makes a partition by [`EpsJoin::partition`](crate::EpsJoin::partition) or
//! [`KnnJoin::partition`](crate::KnnJoin::partition), sends it to all as [bytes](Partition::to_bytes), and lets
//! every row find its parts.
//!
//! - **Within ε**: left points go [home](Partition::home), right points to all parts that they
//!   [reach](Partition::reached).
//! - **The k nearest** take two rounds. In the first, both sides go home, and the k-th neighbour of a left point there
//!   says how far its neighbours may be. In the second, right points stay, and left points go to all parts
//!   within that distance; of all that is found for a point, the k best by distance and row are the answer.
//!
//! Why no pair is missed: no pair within ε by the arithmetic of the points differs by more than a *reach* in any
//! coordinate. A part is a box: a product of intervals, one side of every cut above it. Where a cut is
//! at `c`, the left point `y` of a pair is below it only if `x − reach ≤ y < c`, and not below it only if `c ≤ y ≤ x + reach`;
//! rounding is monotone, so `x − reach`, rounded, is no more than `c` in the first case, and `x + reach` no less in
//! the second. Those sides of it are looked into.
//!
//! # Bytes
//!
//! All numbers are little-endian. Another version has another number, and is refused.
//!
//! | bytes | |
//! | --- | --- |
//! | 4 | `NJPT` |
//! | 2 | version: 1 |
//! | 2 | dimension |
//! | 4 | parts, `p` |
//! | 14 for each of `p − 1` cuts | dimension (2 bytes), parts below it (4), where it is (8, an `f64`) |
//!
//! Cuts are in the order of a walk from the first: those below a cut come before those above it. A point is below a
//! cut where its coordinate is less than it, and parts are numbered from below.

use crate::error::{Error, Result};
use crate::points::Points;
use crate::scalar::Scalar;

const MAGIC: [u8; 4] = *b"NJPT";
const VERSION: u16 = 1;
const HEADER: usize = 12;
const CUT: usize = 14;
/// Parts of a partition, at the most.
pub const MAX_PARTS: usize = 1 << 20;
/// A cut that has no more or less than this of what it should have below it is good enough.
const FAIR: f64 = 0.2;

/// What rounding, underflow and units add to a distance is less than this of it: see [`reach`].
const SLACK: f64 = 1e-3;

/// Points that stand for more of their kind.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a, T> {
    /// Some of the points, taken evenly.
    pub points: Points<'a, T>,
    /// How many there are.
    pub of: u64,
}

/// Space in boxes, numbered from 0: see the [module](self).
///
/// ```
/// use nearjoin::partition::{Partition, Sample};
/// use nearjoin::{EpsJoin, Points};
///
/// let data: Vec<f64> = (0..2000).map(|i| f64::from(i * 37 % 1999)).collect();
/// let sample = Sample { points: Points::new(&data, 2)?, of: 1_000_000 };
/// let partition = EpsJoin::new(0.5).partition(&sample, None, 4)?;
/// assert_eq!(partition.parts(), 4);
///
/// let point = [12.0, 700.0];
/// let home = partition.home(&point);
/// assert!(partition.reached(&point, 0.5).any(|part| part == home));
/// assert_eq!(partition.reached(&point, 1e9).collect::<Vec<_>>(), [0, 1, 2, 3]);
///
/// let sent = partition.to_bytes();
/// assert_eq!(Partition::from_bytes(&sent)?, partition);
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    dimension: usize,
    parts: usize,
    /// Those below a cut come right after it, as many as there are parts less one; then those above it.
    cuts: Vec<Cut>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cut {
    dim: usize,
    /// Parts below it.
    below: usize,
    at: f64,
}

/// A box: its first cut, its first part, and how many parts it has.
#[derive(Clone, Copy, Debug)]
struct Node {
    cut: usize,
    first: usize,
    parts: usize,
}

impl Node {
    fn below(self, cut: &Cut) -> Self {
        Node { cut: self.cut + 1, first: self.first, parts: cut.below }
    }

    fn above(self, cut: &Cut) -> Self {
        let (first, parts) = (self.first + cut.below, self.parts - cut.below);
        Node { cut: self.cut + cut.below, first, parts }
    }
}

impl Partition {
    /// Boxes that have about the same weight of points each, `parts` of them, or fewer where points coincide: what
    /// cannot be told apart by any coordinate is in one box.
    ///
    /// # Errors
    /// If there are no parts or more than [`MAX_PARTS`], not as many weights as points, or a weight is negative or no
    /// number.
    pub fn balanced<T: Scalar>(
        points: &Points<'_, T>,
        weights: &[f64],
        parts: usize,
    ) -> Result<Self> {
        if !(1..=MAX_PARTS).contains(&parts) {
            return Err(Error::Option { name: "parts", value: parts, allowed: "1 to 1048576" });
        }
        if weights.len() != points.len() {
            let (length, needed) = (weights.len(), points.len() as u64);
            return Err(Error::Buffer { name: "weights", length, needed });
        }
        if let Some(&value) = weights.iter().find(|weight| !(0.0..f64::INFINITY).contains(*weight))
        {
            return Err(Error::Number {
                name: "a weight",
                value,
                allowed: "0 or more, and finite",
            });
        }
        let dimension = points.dimension();
        let mut rows: Vec<u32> = (0..points.len() as u32).collect();
        let mut cutting = Cutting { points: *points, weights, cuts: Vec::new(), along: Vec::new() };
        let parts = cutting.cut(&mut rows, parts);
        Ok(Partition { dimension, parts, cuts: cutting.cuts })
    }

    /// How many parts there are: 1 or more.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Dimension of the points.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// The part that a point lies in.
    ///
    /// # Panics
    /// If the point has another dimension.
    pub fn home<T: Scalar>(&self, point: &[T]) -> usize {
        assert_eq!(point.len(), self.dimension, "the dimension of a point");
        let mut node = self.root();
        while let Some(cut) = self.cut(node) {
            let is_below = point[cut.dim].to_f64() < cut.at;
            node = if is_below { node.below(cut) } else { node.above(cut) };
        }
        node.first
    }

    /// The parts in which there may be points no farther from this one than `distance`, by any metric, in ascending
    /// order. One of them is its home. Of a distance that is no number, or negative: its home, at least.
    ///
    /// # Panics
    /// If the point has another dimension.
    pub fn reached<'a, T: Scalar>(&'a self, point: &'a [T], distance: f64) -> Reached<'a, T> {
        assert_eq!(point.len(), self.dimension, "the dimension of a point");
        // Parts are to be looked into rather than not, also where nothing is known.
        let distance = if distance.is_nan() { f64::INFINITY } else { distance.max(0.0) };
        Reached {
            partition: self,
            point,
            reach: reach::<T>(distance),
            next: Some(self.root()),
            waiting: Vec::new(),
        }
    }

    /// The sides of a part in each dimension: no coordinate of its points is less than the first, and all are less than the
    /// second.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn sides(&self, part: usize) -> Vec<(f64, f64)> {
        assert!(part < self.parts, "part {part} of {}", self.parts);
        let mut sides = vec![(f64::NEG_INFINITY, f64::INFINITY); self.dimension];
        let mut node = self.root();
        while let Some(cut) = self.cut(node) {
            let (lo, hi) = &mut sides[cut.dim];
            if part < node.first + cut.below {
                (*hi, node) = (cut.at, node.below(cut));
            } else {
                (*lo, node) = (cut.at, node.above(cut));
            }
        }
        sides
    }

    /// The same partition for others to read: see the [module](self#bytes).
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + CUT * self.cuts.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.dimension as u16).to_le_bytes());
        bytes.extend((self.parts as u32).to_le_bytes());
        for cut in &self.cuts {
            bytes.extend((cut.dim as u16).to_le_bytes());
            bytes.extend((cut.below as u32).to_le_bytes());
            bytes.extend(cut.at.to_le_bytes());
        }
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let refused = |reason: String| Err(Error::Partition { reason });
        let Some((header, rest)) = bytes.split_at_checked(HEADER) else {
            return refused(format!("they are {} bytes, and {HEADER} are the least", bytes.len()));
        };
        let number = |from: &[u8]| from.iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte));
        if header[..4] != MAGIC {
            return refused("they do not begin with NJPT".into());
        }
        let version = number(&header[4..6]);
        if version != usize::from(VERSION) {
            return refused(format!(
                "they are of version {version}, and this is version {VERSION}"
            ));
        }
        let (dimension, parts) = (number(&header[6..8]), number(&header[8..12]));
        if !(1..=crate::MAX_DIMENSION).contains(&dimension) || !(1..=MAX_PARTS).contains(&parts) {
            return refused(format!("they have {parts} parts of dimension {dimension}"));
        }
        if rest.len() != CUT * (parts - 1) {
            let needed = HEADER + CUT * (parts - 1);
            return refused(format!(
                "they are {} bytes, and {parts} parts take {needed}",
                bytes.len()
            ));
        }
        let cuts = rest.chunks_exact(CUT).map(|cut| Cut {
            dim: number(&cut[..2]),
            below: number(&cut[2..6]),
            at: f64::from_bits(number(&cut[6..]) as u64),
        });
        let partition = Partition { dimension, parts, cuts: cuts.collect() };
        match partition.wrong_cut() {
            Some(at) => refused(format!("cut {at} cannot be")),
            None => Ok(partition),
        }
    }

    /// The first cut that is none, if there is one: by a walk over all boxes, each of which must have its cuts.
    fn wrong_cut(&self) -> Option<usize> {
        let mut waiting = vec![self.root()];
        while let Some(node) = waiting.pop() {
            let Some(cut) = self.cut(node) else { continue };
            let is_cut = cut.dim < self.dimension && cut.at.is_finite();
            if !is_cut || !(1..node.parts).contains(&cut.below) {
                return Some(node.cut);
            }
            waiting.extend([node.above(cut), node.below(cut)]);
        }
        None
    }

    fn root(&self) -> Node {
        Node { cut: 0, first: 0, parts: self.parts }
    }

    /// The cut through a box, unless it is a part.
    fn cut(&self, node: Node) -> Option<&Cut> {
        (node.parts > 1).then(|| &self.cuts[node.cut])
    }
}

/// The parts that are within reach of a point: see [`Partition::reached`].
#[derive(Clone, Debug)]
pub struct Reached<'a, T> {
    partition: &'a Partition,
    point: &'a [T],
    reach: f64,
    next: Option<Node>,
    /// Boxes above those that come first.
    waiting: Vec<Node>,
}

impl<T: Scalar> Iterator for Reached<'_, T> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let mut node = self.next.take()?;
        while let Some(cut) = self.partition.cut(node) {
            let x = self.point[cut.dim].to_f64();
            let (is_below, is_above) = (x - self.reach <= cut.at, x + self.reach >= cut.at);
            if is_below && is_above {
                self.waiting.push(node.above(cut));
            }
            node = if is_below { node.below(cut) } else { node.above(cut) };
        }
        self.next = self.waiting.pop();
        Some(node.first)
    }
}

impl<T: Scalar> core::iter::FusedIterator for Reached<'_, T> {}

/// No two points at most this far from each other, by any metric and as the join of some of them says, differ by more in any
/// coordinate.
///
/// Roundings add some units of the last place to it. Squares that vanish add `2√s`, with the smallest number `s`;
/// where points are scaled, ε is above that by many orders, and nothing else vanishes.
fn reach<T: Scalar>(distance: f64) -> f64 {
    T::from_f64(distance).to_f64() * (1.0 + SLACK) + 2.0 * T::SMALLEST.sqrt()
}

/// Weighted points, on their way into boxes.
struct Cutting<'a, T> {
    points: Points<'a, T>,
    weights: &'a [f64],
    cuts: Vec<Cut>,
    /// Coordinates of some rows, for whoever needs them next.
    along: Vec<f64>,
}

/// Where rows may be cut.
struct Place {
    dim: usize,
    at: f64,
    /// Rows below it, and their part of the weight.
    rows: usize,
    share: f64,
}

impl<T: Scalar> Cutting<'_, T> {
    /// Cuts a box with these points in it, and says how many parts it has become.
    fn cut(&mut self, rows: &mut [u32], parts: usize) -> usize {
        if parts == 1 {
            return 1;
        }
        let wanted = (parts / 2) as f64 / parts as f64;
        let Some(Place { dim, at, rows: below, share }) = self.place(rows, wanted) else {
            return 1;
        };
        self.sort(rows, dim);
        // As many parts as it has work: no cut may halve it.
        let parts_below = ((share * parts as f64).round() as usize).clamp(1, parts - 1);
        let cut = self.cuts.len();
        self.cuts.push(Cut { dim, below: 0, at });
        let (rows_below, rows_above) = rows.split_at_mut(below);
        let parts_below_made = self.cut(rows_below, parts_below);
        self.cuts[cut].below = parts_below_made;
        parts_below_made + self.cut(rows_above, parts - parts_below)
    }

    /// The first place that is fair along the dimensions in which the rows spread most, or the fairest of all.
    fn place(&mut self, rows: &mut [u32], wanted: f64) -> Option<Place> {
        let spreads: Vec<(f64, f64)> =
            (0..self.points.dimension()).map(|dim| self.spread(rows, dim)).collect();
        let mut dims: Vec<usize> = (0..spreads.len()).filter(|dim| spreads[*dim].1 > 0.0).collect();
        let by = |(most, all): (f64, f64), (other_most, other_all): (f64, f64)| {
            other_most.total_cmp(&most).then(other_all.total_cmp(&all))
        };
        dims.sort_by(|&a, &b| by(spreads[a], spreads[b]));
        let mut fairest: Option<Place> = None;
        for dim in dims {
            self.sort(rows, dim);
            let Some(place) = self.place_along(rows, dim, wanted) else { continue };
            let off = |place: &Place| (place.share - wanted).abs();
            if off(&place) <= FAIR * wanted {
                return Some(place);
            }
            if fairest.as_ref().is_none_or(|fairest| off(&place) < off(fairest)) {
                fairest = Some(place);
            }
        }
        fairest
    }

    /// How far rows spread along a dimension: most of them, and all. Halves, for their difference may be beyond all
    /// numbers.
    fn spread(&mut self, rows: &[u32], dim: usize) -> (f64, f64) {
        self.along.clear();
        self.along
            .extend(rows.iter().map(|row| self.points.row(*row as usize)[dim].to_f64() / 2.0));
        let along = &mut self.along[..];
        if along.is_empty() {
            return (0.0, 0.0);
        }
        let (lo, hi) = (along.len() / 16, along.len() - 1 - along.len() / 16);
        let mut nth = |at: usize| *along.select_nth_unstable_by(at, f64::total_cmp).1;
        let most = nth(hi) - nth(lo);
        let ends = along.iter().fold((f64::MAX, f64::MIN), |(lo, hi), x| (lo.min(*x), hi.max(*x)));
        (most, ends.1 - ends.0)
    }

    /// The place between two different coordinates that is nearest to a part of the weight.
    fn place_along(&self, rows: &[u32], dim: usize, wanted: f64) -> Option<Place> {
        let coordinate = |at: usize| self.points.row(rows[at] as usize)[dim].to_f64();
        let weight = |at: usize| self.weights[rows[at] as usize];
        let all: f64 = (0..rows.len()).map(weight).sum();
        // Weights of nothing: rows are as good.
        let (all, weight): (f64, &dyn Fn(usize) -> f64) =
            if all > 0.0 { (all, &weight) } else { (rows.len() as f64, &|_| 1.0) };
        let (mut below, mut best): (f64, Option<Place>) = (0.0, None);
        for at in 1..rows.len() {
            below += weight(at - 1);
            if coordinate(at - 1) < coordinate(at) {
                let share = below / all;
                if best
                    .as_ref()
                    .is_none_or(|best| (share - wanted).abs() < (best.share - wanted).abs())
                {
                    best = Some(Place { dim, at: coordinate(at), rows: at, share });
                }
            }
        }
        best
    }

    /// By the coordinates of a dimension, and by row where they are equal.
    fn sort(&self, rows: &mut [u32], dim: usize) {
        let coordinate = |row: u32| self.points.row(row as usize)[dim].to_f64();
        // 0 and −0 are one place.
        rows.sort_unstable_by(|&a, &b| {
            let order = coordinate(a).partial_cmp(&coordinate(b));
            order.unwrap_or(core::cmp::Ordering::Equal).then(a.cmp(&b))
        });
    }
}

#[cfg(test)]
mod tests;
