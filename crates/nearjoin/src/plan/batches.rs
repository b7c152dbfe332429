//! How an answer is cut into batches: pure arithmetic.
//!
//! Sizes of rows are known, or inferred from a sample. GPU-SJ (§4.1) samples a hundredth of
//! the queries, takes their sum a hundredfold, and adds five per cent. HEGJoin (§4.3) sorts
//! queries by workload, so that equal numbers of queries would make batches of very unequal
//! size: every query is taken to have as many neighbours as the larger of the two sampled
//! ones around it, and batches are cut to equal size. The second serves any order, and is
//! what is used here; the first is its total.

use core::ops::Range;

use super::Calibration;

/// The share of queries that is sampled: one in so many.
pub(crate) const SAMPLED: usize = 100;
/// An estimate is taken to be this much too small.
pub(crate) const MARGIN: f64 = 1.05;

/// Cuts rows into batches of at most `most` elements, and at least one row.
///
/// `offsets` say where the elements of each row begin, and the end.
pub(crate) fn by_offsets(offsets: &[u64], most: u64) -> Vec<Range<usize>> {
    let rows = offsets.len().saturating_sub(1);
    let mut batches = Vec::new();
    let mut start = 0;
    while start < rows {
        let full = offsets[start + 1..].partition_point(|&end| end - offsets[start] <= most);
        let end = start + full.max(1);
        batches.push(start..end);
        start = end;
    }
    batches
}

/// The sizes that rows are taken to have, from those of some of them: of rows between two sampled
/// ones, the larger of both. Rows before the first and behind the last are as those.
///
/// `sampled` ascends by row.
pub(crate) fn inferred(sampled: &[(usize, u64)], rows: usize) -> impl Iterator<Item = u64> {
    let mut next = 0;
    (0..rows).map(move |row| {
        while next < sampled.len() && sampled[next].0 < row {
            next += 1;
        }
        let behind = sampled.get(next).map_or(0, |sample| sample.1);
        let before = next.checked_sub(1).map_or(behind, |at| sampled[at].1);
        match sampled.get(next) {
            Some(&(at, size)) if at == row => size,
            Some(_) => before.max(behind),
            None => before,
        }
    })
}

/// Cuts rows into batches that are expected to have at most `most` elements, from the sizes
/// of some of them: see [`inferred`].
pub(crate) fn by_sample(sampled: &[(usize, u64)], rows: usize, most: u64) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let (mut start, mut size) = (0, 0.0);
    for (row, expected) in inferred(sampled, rows).enumerate() {
        let expected = expected as f64 * MARGIN;
        if size + expected > most as f64 && row > start {
            batches.push(start..row);
            (start, size) = (row, 0.0);
        }
        size += expected;
    }
    if start < rows {
        batches.push(start..rows);
    }
    batches
}

/// What batches cost: the performance model of GPU-SJ (§5.4).
///
/// `R = T₁ + T₂(b) + θ · n(b)`: the work itself, the time to pin buffers for batches of `b`
/// bytes, and what each of the `n` batches costs beyond its work.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchModel {
    /// Seconds of a join that is not cut.
    pub work: f64,
    /// Seconds to pin a byte.
    pub pinning: f64,
    /// Buffers that are pinned.
    pub buffers: f64,
    /// θ: seconds a batch.
    pub batch: f64,
}

/// Copies that wait for the bus at the most. One lands, one is on the bus, and two make sure
/// that there is always a next one.
pub(crate) const DEPTH: usize = 4;

impl BatchModel {
    /// The way of a result of `total` bytes to the host, in pieces.
    pub(crate) fn of_the_bus(machine: &Calibration, total: u64) -> Self {
        BatchModel {
            work: total as f64 / machine.bus,
            pinning: 1.0 / machine.pinning,
            buffers: DEPTH as f64,
            batch: machine.piece,
        }
    }

    /// From two runs that differ in the size of their batches: (bytes of a batch, batches,
    /// seconds). None if they have equally many.
    pub fn fit(pinning: f64, buffers: f64, [a, b]: [(u64, usize, f64); 2]) -> Option<BatchModel> {
        let pure =
            |(bytes, _, seconds): (u64, usize, f64)| seconds - buffers * pinning * bytes as f64;
        let batches = a.1.abs_diff(b.1);
        if batches == 0 {
            return None;
        }
        let batch = (pure(a) - pure(b)).abs() / batches as f64;
        let work = (pure(a) - batch * a.1 as f64).max(0.0);
        Some(BatchModel { work, pinning, buffers, batch })
    }

    /// Seconds with batches of `bytes`, for a result of `total` bytes; `pinned` of the buffers'
    /// bytes are pinned already.
    pub fn seconds(&self, total: u64, bytes: u64, pinned: u64) -> f64 {
        let fresh = (self.buffers * bytes as f64 - pinned as f64).max(0.0);
        let batches = total.div_ceil(bytes.max(1)) as f64;
        self.work + self.pinning * fresh + self.batch * batches
    }

    /// The size of batches that costs least, of those given.
    pub fn best(&self, total: u64, pinned: u64, sizes: &[u64]) -> Option<u64> {
        let cost = |bytes: u64| self.seconds(total, bytes, pinned);
        sizes.iter().copied().min_by(|&a, &b| cost(a).total_cmp(&cost(b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_all_rows_once() {
        let offsets = [0, 3, 3, 10, 11, 12, 40, 41];
        let batches = by_offsets(&offsets, 10);
        assert_eq!(batches, [0..3, 3..5, 5..6, 6..7]);
        assert!(by_offsets(&[0], 10).is_empty());
        assert_eq!(by_offsets(&[0, 0, 0], 0), core::slice::from_ref(&(0..2)));
    }

    #[test]
    fn rows_between_samples_are_as_the_larger_of_them() {
        // Sampled rows 1 and 4 have 10 and 2: rows 0 to 3 count 10, rows 4 and 5 count 2.
        let batches = by_sample(&[(1, 10), (4, 2)], 6, 21);
        assert_eq!(batches, [0..2, 2..4, 4..6]);
        assert_eq!(by_sample(&[], 3, 1), core::slice::from_ref(&(0..3)));
        // A row larger than a batch is a batch.
        assert_eq!(by_sample(&[(0, 100)], 2, 10), [0..1, 1..2]);
    }

    #[test]
    fn the_model_is_that_of_two_runs() {
        let made = BatchModel { work: 0.5, pinning: 1e-9, buffers: 3.0, batch: 0.002 };
        let total = 1_000_000_000u64;
        let run =
            |bytes: u64| (bytes, total.div_ceil(bytes) as usize, made.seconds(total, bytes, 0));
        let model = BatchModel::fit(1e-9, 3.0, [run(100_000_000), run(10_000_000)]).unwrap();
        assert!((model.work - 0.5).abs() < 1e-9 && (model.batch - 0.002).abs() < 1e-9);
        // Small batches cost θ, large ones pinning: the best lies between.
        let sizes: Vec<u64> = (0..12).map(|k| 1_000_000 << k).collect();
        let best = model.best(total, 0, &sizes).unwrap();
        assert!((16_000_000..64_000_000).contains(&best), "{best}");
        // What is pinned already costs nothing more.
        assert!(model.best(total, u64::MAX, &sizes).unwrap() > total);
        assert!(BatchModel::fit(0.0, 3.0, [(1, 5, 1.0), (2, 5, 1.0)]).is_none());
    }
}
