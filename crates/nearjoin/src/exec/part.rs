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

use crate::index::Run;
use crate::points::Points;

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
