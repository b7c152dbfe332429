//! Parts of a join: some of its queries against all of its candidates.
//!
//! A part is an executor like the whole: its queries are numbered from 0, and it shares the index
//! of the right points with the whole and with every other part. Parts of one join may be given to
//! different devices, in any order. Their answers together are the answer of the whole, because
//! every query is in exactly one part and meets all its neighbours there.
//!
//! The whole of a self-join may meet each pair once, by an order of its own: behind the block, in
//! a later cell. Such an order is one device's, so parts do not use it. They look at all
//! candidates of their queries, and where a pair is wanted once they keep it under the query whose
//! row is smaller: its other point, wherever it is a query, drops it.

use core::ops::ControlFlow;

use super::{Emit, Lists, Rows};
use crate::index::Run;
use crate::points::Points;
use crate::scalar::Scalar;

/// Positions of a part begin, and end, at multiples of this, or at the end of all.
pub(crate) const STEP: u32 = 16;

/// Which queries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part<'a, T> {
    /// Those at some positions in the order of the index: multiples of [`STEP`], or the end.
    Positions { start: u32, end: u32 },
    /// Those of some rows of the left points, and their coordinates, one after the other.
    Rows { rows: &'a [u32], points: Points<'a, T> },
}

/// Checks that positions are what an executor of `len` queries can cut at.
pub(crate) fn check_positions(start: u32, end: u32, len: usize) -> Run {
    let ends = |at: u32| at.is_multiple_of(STEP) || at as usize == len;
    assert!(start <= end && end as usize <= len && ends(start) && ends(end), "{start}..{end}");
    start..end
}

/// Some rows of which only the neighbours in larger rows than the query's are kept.
pub(crate) struct Halved<'a, T> {
    rows: Rows<'a, T>,
    offsets: Vec<u64>,
    neighbors: Vec<u32>,
    distances: Option<Vec<T>>,
}

impl<'a, T: Scalar> Halved<'a, T> {
    /// `row_of` tells the row of the whole input that a query is.
    pub(crate) fn new(rows: &Rows<'a, T>, row_of: impl Fn(u32) -> u32) -> Self {
        let mut halved = Halved {
            rows: Rows { ahead: &[], ..*rows },
            offsets: vec![0],
            neighbors: Vec::new(),
            distances: rows.distances.as_ref().map(|_| Vec::new()),
        };
        for (at, &query) in rows.queries.iter().enumerate() {
            let row = row_of(query);
            let distances = rows.distances(at).unwrap_or_default();
            for (k, &neighbor) in rows.neighbors.row(at).iter().enumerate() {
                if neighbor <= row {
                    continue;
                }
                halved.neighbors.push(neighbor);
                if let Some(to) = &mut halved.distances {
                    to.push(distances[k]);
                }
            }
            halved.offsets.push(halved.neighbors.len() as u64);
        }
        halved
    }

    /// Pairs that are kept.
    pub(crate) fn pairs(&self) -> u64 {
        self.neighbors.len() as u64
    }

    pub(crate) fn emit(&self, emit: &Emit<'_, T>) -> ControlFlow<()> {
        let offsets = &self.offsets;
        let distances = self.distances.as_ref();
        emit(&Rows {
            neighbors: Lists::Flat { offsets, values: &self.neighbors },
            distances: distances.map(|values| Lists::Flat { offsets, values }),
            ..self.rows
        })
    }
}
