//! How much memory a join may use, and whether a phase fits, before it starts.

use crate::error::{Error, Needs, Result};
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

/// Bytes that the index of a join takes while it is built: the points in index order,
/// ids, boxes, and for each row a sort key with room to sort it.
pub(crate) fn index_bytes(summary: &Summary) -> u64 {
    let sides = if summary.is_self { 1 } else { 2 };
    let points = (summary.right + if sides == 2 { summary.left } else { 0 }) as u64;
    let point = (summary.dim * summary.width) as u64;
    // 1/8 of the points for the boxes of 16, 1/15 of those for the levels above.
    let boxes = point / 7 + 1;
    let sort = 2 * 16;
    points * (point + boxes + 4 + sort + 8)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
