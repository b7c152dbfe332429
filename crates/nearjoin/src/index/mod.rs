//! What is built on the host before a join: points in an order that keeps neighbours
//! together, boxes around blocks of them, and a way to find the candidates of a block.

pub(crate) mod boxes;
pub(crate) mod cell_sort;
mod cells;
pub(crate) mod directory;
pub(crate) mod ego;
pub(crate) mod grid;
pub(crate) mod layout;
pub(crate) mod leaves;
pub(crate) mod order;
pub(crate) mod panels;
pub(crate) mod rings;
pub(crate) mod tree;

pub(crate) use boxes::{BoxOf, Boxes, Prune};
pub(crate) use layout::Layout;
pub(crate) use leaves::Leaves;
pub(crate) use panels::Panels;
pub(crate) use rings::Rings;

use core::ops::Range;

use crate::filter::product::Within;

/// Positions in the order of a [`Layout`].
pub(crate) type Run = Range<u32>;

/// The candidates of a block of queries.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// Runs of points that all match every query of the block.
    pub(crate) take: Vec<Run>,
    /// Number of points that match every query and are not listed.
    pub(crate) taken: u64,
    /// Runs of points whose distance must be tested.
    pub(crate) test: Vec<Run>,
}

impl Candidates {
    pub(crate) fn clear(&mut self) {
        self.take.clear();
        self.taken = 0;
        self.test.clear();
    }
}

/// Appends a run, joined to the last one where they touch.
pub(crate) fn push_run(runs: &mut Vec<Run>, run: Run) {
    if run.is_empty() {
        return;
    }
    match runs.last_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => runs.push(run),
    }
}

/// How the candidates of a block of queries are found.
pub(crate) enum Index<T> {
    /// Every point is a candidate.
    Brute,
    Directory(directory::Directory<T>),
    Grid(grid::Grid),
    Ego,
    /// Every point is a candidate, and most are told by a product.
    Product(Panels, Within),
}

impl<T: crate::scalar::Scalar> Index<T> {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Index::Brute | Index::Ego => 0,
            Index::Directory(directory) => directory.bytes(),
            Index::Grid(grid) => grid.bytes(),
            Index::Product(panels, _) => panels.bytes(),
        }
    }
}
