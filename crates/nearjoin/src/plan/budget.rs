//! How much memory a join may use, and whether a phase fits, before it starts.

use super::{Detail, OnCpu, PIECE_PAIRS};
use crate::error::{Error, Needs, Result};
use crate::index::cell_sort::Rows;
use crate::index::layout::moves_records;
use crate::summary::Summary;

/// Of the memory that is free, the share a join uses when no limit is set.
const SHARE: f64 = 0.8;

/// The memory a join may use beside its input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) limit: u64,
    pub(crate) index: u64,
}

impl Budget {
    /// `index` is what the index will take at its peak, of the `available` memory.
    pub(crate) fn new(limit: Option<u64>, available: u64, index: u64) -> Self {
        let limit = limit.unwrap_or((available as f64 * SHARE) as u64);
        Budget { limit, index }
    }

    /// Whether the index fits at all.
    pub(crate) fn check_index(&self) -> Result<()> {
        self.check(Needs::Index, self.index)
    }

    /// Whether a result fits beside the index.
    pub(crate) fn check_result(&self, bytes: u64) -> Result<()> {
        self.check(Needs::Result, self.index.saturating_add(bytes))
    }

    fn check(&self, what: Needs, needed: u64) -> Result<()> {
        if needed > self.limit {
            return Err(Error::MemoryLimit { what, needed, limit: self.limit });
        }
        Ok(())
    }
}

/// Bytes that the index of an ε-join takes while it is built, at the most.
pub(crate) fn index_bytes(summary: &Summary, detail: &Detail, how: &OnCpu, threads: usize) -> u64 {
    let side = |points| Side::new(points, summary, detail, how, threads);
    if let Detail::Product = detail {
        return panels_bytes(summary);
    }
    let right = side(summary.right);
    match summary.is_self {
        true => right.peak,
        // The left points are put in order first.
        false => {
            let left = side(summary.left);
            left.peak.max(left.built + right.peak)
        }
    }
}

/// Bytes of the right points in panels, with two numbers beside each, and of the rows of both sides.
pub(super) fn panels_bytes(summary: &Summary) -> u64 {
    let (right, dim) = (summary.right as u64, summary.dim as u64);
    let left = if summary.is_self { 0 } else { summary.left as u64 };
    let padding = (1 << 12) + 64 * 4 * (dim + 4);
    4 * (right * (dim + 2) + right + left) + padding
}

/// Bytes that an ε-join takes beside its index. By products every thread rounds the queries of a unit, and
/// keeps their rows until all of them are done, in lists that may have twice the room; by other strategies
/// it has a block of 16 at a time.
pub(super) fn search_bytes(
    summary: &Summary,
    detail: &Detail,
    (how, neighbors): (&OnCpu, f64),
    threads: usize,
) -> u64 {
    let Detail::Product = detail else { return 0 };
    let unit = how.unit.min(summary.left) as u64;
    let rows = ((unit as f64 * neighbors) as u64).min(PIECE_PAIRS);
    threads as u64 * 4 * (2 * rows + unit * summary.dim as u64)
}

/// Bytes that one set of points takes in the index: while they are put in order, and after that.
struct Side {
    peak: u64,
    built: u64,
}

impl Side {
    fn new(points: usize, summary: &Summary, detail: &Detail, how: &OnCpu, threads: usize) -> Self {
        let (n, dim, width) = (points as u64, summary.dim as u64, summary.width as u64);
        let column_width = if how.narrow.is_some() { size_of::<f32>() as u64 } else { width };
        let columns = dim * column_width;
        let id = size_of::<u32>() as u64;
        // Every 16 points have two corners, and so have every 16 boxes.
        let boxes = if how.boxes { (2 * dim * width).div_ceil(15) } else { 0 };
        // What takes most is to find the order, or to fill the columns beside what that has left.
        // `table` finds cells. What a sort works in is as long as what it sorts, and an allocator
        // may hold on to it until the index is built.
        let (ordering, left_over, table) = match detail {
            Detail::Grid(shape) if shape.is_dense(points) => {
                let cells = shape.cells() as u64;
                let (dim, width) = (summary.dim, column_width as usize);
                let rows = Rows { len: points, cells: cells as usize, dim, width };
                match moves_records(&rows, threads) {
                    // Records are gone before there are boxes.
                    true => {
                        let records = rows.sort_bytes(threads) as u64;
                        (0, records.saturating_sub(n * boxes), cells * id)
                    }
                    false => (n * id + rows.order_bytes(threads) as u64, 0, cells * id),
                }
            }
            Detail::Grid(shape) => {
                // A cell has its key, its start and perhaps a row of its own.
                let table = n.min(u64::try_from(shape.cells()).unwrap_or(u64::MAX)) * (8 + 2 * id);
                (n * (2 * 8 + 2 * id), n * 8, table)
            }
            // Keys of 16 bytes.
            Detail::Directory(_) => (n * (2 * 16 + id), n * 16, 0),
            // Codes of 8 bytes. Points of crowded cells, which are few, have such keys too.
            Detail::Ego(_) => (n * (2 * 8 + id), 0, 0),
            _ => (n * id, 0, 0),
        };
        let built = table + n * (columns + id + boxes);
        let peak = (table + ordering).max(built + left_over);
        // Columns and levels of boxes are somewhat longer than they need be.
        let padding = dim * (128 * column_width + 8 * 2 * 32 * width) + (1 << 12);
        Side { peak: peak + padding, built: built + padding }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{directory, grid};
    use crate::plan::Multiplying;
    use crate::summary::tests::summary;

    const HOW: OnCpu = OnCpu {
        narrow: None,
        boxes: true,
        listed: false,
        keeps: true,
        unit: 4096,
        multiplying: Multiplying::PLAIN,
    };

    #[test]
    fn a_result_that_does_not_fit_is_refused() {
        let budget = Budget::new(Some(1000), 0, 400);
        assert!(budget.check_index().is_ok());
        assert!(budget.check_result(600).is_ok());
        assert_eq!(
            budget.check_result(601),
            Err(Error::MemoryLimit { what: Needs::Result, needed: 1001, limit: 1000 })
        );
        assert_eq!(Budget::new(None, 1000, 0).limit, 800);
        assert!(budget.check_result(u64::MAX).is_err());
    }

    /// Bytes for each of a million points.
    #[test]
    fn an_index_takes_what_its_largest_phase_does() {
        let bytes = |dim: usize, detail: Detail, boxes: bool| {
            let how = OnCpu { boxes, ..HOW };
            index_bytes(&summary(1_000_000, dim, 1.0), &detail, &how, 2) / 1_000_000
        };
        let directory = directory::Shape { dims: vec![0, 1], fanout: 16 };
        assert_eq!(bytes(2, Detail::Directory(directory.clone()), true), 39);
        assert_eq!(bytes(6, Detail::Directory(directory), true), 75);
        assert_eq!(bytes(1, Detail::Ego(vec![0]), true), 20);
        assert_eq!(bytes(6, Detail::Ego(vec![0]), true), 59);
        assert_eq!(bytes(6, Detail::Brute, false), 52);
    }

    /// Bytes for each point of a grid with as many cells as points.
    #[test]
    fn a_grid_takes_records_or_cells_beside_its_columns() {
        let bytes = |points: usize, dim: usize| {
            let along = points as u64 / 10;
            let axes = [along, 10].map(|cells| grid::Axis::new(0, 0.0, 1.0, cells)).to_vec();
            let detail = Detail::Grid(grid::Shape { axes });
            index_bytes(&summary(points, dim, 1.0), &detail, &HOW, 2) / points as u64
        };
        // Where cells begin, columns and ids; records of all points.
        assert_eq!(bytes(10_000_000, 2), 4 + 20 + 24);
        // No records of many coordinates, but boxes.
        assert_eq!(bytes(10_000_000, 16), 4 + 132 + 18);
        // Few points: their cells, and counts of two parts.
        assert_eq!(bytes(100_000, 1), 4 + 4 + 4 + 8);
    }
}
