//! How much memory a join may use, and whether a phase fits, before it starts.

use crate::error::{Error, Result};
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
    /// `index` is what the index will take at its peak.
    pub(crate) fn new(limit: Option<u64>, index: u64) -> Self {
        let limit = limit.unwrap_or_else(|| (available() as f64 * SHARE) as u64);
        Budget { limit, index }
    }

    /// Whether the index fits at all.
    pub(crate) fn check_index(&self) -> Result<()> {
        self.check("the index", self.index)
    }

    /// Whether a result fits beside the index.
    pub(crate) fn check_result(&self, bytes: u64) -> Result<()> {
        self.check("the index with the result", self.index.saturating_add(bytes))
    }

    fn check(&self, what: &'static str, needed: u64) -> Result<()> {
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

/// Bytes of memory that the system could give out now.
#[cfg(target_os = "linux")]
fn available() -> u64 {
    let Ok(info) = std::fs::read_to_string("/proc/meminfo") else {
        return u64::MAX;
    };
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes =
        line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.map_or(u64::MAX, |kilobytes| kilobytes * 1024)
}

/// Elsewhere nothing is known: only a limit that is set is honoured.
#[cfg(not(target_os = "linux"))]
fn available() -> u64 {
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_does_not_fit_is_refused() {
        let budget = Budget::new(Some(1000), 400);
        assert!(budget.check_index().is_ok());
        assert!(budget.check_result(600).is_ok());
        assert_eq!(
            budget.check_result(601),
            Err(Error::MemoryLimit {
                what: "the index with the result",
                needed: 1001,
                limit: 1000
            })
        );
        assert!(budget.check_result(u64::MAX).is_err());
    }
}
