//! Memory that was given back, kept for the next request: asking the driver for memory costs
//! from a third of a millisecond on, and pinning it half a second for each gigabyte.

#![forbid(unsafe_code)]

/// Memory as the driver gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) bytes: usize,
}

/// Blocks that nobody uses, the oldest first.
#[derive(Debug)]
pub(super) struct Cache {
    kept: Vec<Block>,
    bytes: usize,
    limit: usize,
}

impl Cache {
    /// Nothing yet, and never more than `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Cache { kept: Vec::new(), bytes: 0, limit }
    }

    /// Bytes that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The smallest block that has room for a request, unless it is more than twice as large:
    /// small requests would hold large blocks, and the next large one would find none.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Block> {
        let fits = |block: &Block| block.bytes >= bytes && block.bytes / 2 <= bytes;
        let candidates = self.kept.iter().enumerate().filter(|(_, block)| fits(block));
        let (at, _) = candidates.min_by_key(|(_, block)| block.bytes)?;
        let block = self.kept.remove(at);
        self.bytes -= block.bytes;
        Some(block)
    }

    /// Keeps a block, and hands out those for which there is no more room: the oldest ones,
    /// which no request has asked for since, or the block itself if it is larger than the
    /// whole.
    #[must_use = "these blocks go back to the driver"]
    pub(super) fn keep(&mut self, block: Block) -> Vec<Block> {
        if block.bytes > self.limit {
            return vec![block];
        }
        self.kept.push(block);
        self.bytes += block.bytes;
        let mut too_many = 0;
        while self.bytes > self.limit {
            self.bytes -= self.kept[too_many].bytes;
            too_many += 1;
        }
        self.kept.drain(..too_many).collect()
    }

    /// Hands out all that is kept.
    #[must_use = "these blocks go back to the driver"]
    pub(super) fn empty(&mut self) -> Vec<Block> {
        self.bytes = 0;
        core::mem::take(&mut self.kept)
    }
}

/// The size of the block that a request is served with. Requests that differ by little, as
/// those of one join after another do, are served with blocks of the same size, which can be
/// kept for one another; and the driver's own pages are of 2 MiB. `None` if no number is large
/// enough.
pub(super) fn rounded(bytes: usize) -> Option<usize> {
    const SMALL: usize = 1 << 20;
    bytes.checked_next_multiple_of(if bytes <= SMALL { 4 << 10 } else { 2 << 20 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(address: u64, bytes: usize) -> Block {
        Block { address, bytes }
    }

    #[test]
    fn the_smallest_that_fits_and_none_that_is_too_large() {
        let mut cache = Cache::new(1000);
        for (address, bytes) in [(1, 100), (2, 60), (3, 80)] {
            assert_eq!(cache.keep(block(address, bytes)), []);
        }
        assert_eq!(cache.bytes(), 240);
        assert_eq!(cache.take(101), None);
        assert_eq!(cache.take(29), None);
        assert_eq!(cache.take(61), Some(block(3, 80)));
        assert_eq!(cache.take(50), Some(block(2, 60)));
        assert_eq!(cache.take(50), Some(block(1, 100)));
        assert_eq!((cache.bytes(), cache.take(50)), (0, None));
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let mut cache = Cache::new(100);
        assert_eq!(cache.keep(block(1, 101)), [block(1, 101)]);
        assert_eq!(cache.keep(block(2, 40)), []);
        assert_eq!(cache.keep(block(3, 40)), []);
        assert_eq!(cache.keep(block(4, 90)), [block(2, 40), block(3, 40)]);
        assert_eq!(cache.bytes(), 90);
        assert_eq!(cache.empty(), [block(4, 90)]);
        assert_eq!((cache.bytes(), cache.empty()), (0, vec![]));
    }

    #[test]
    fn sizes_are_those_of_pages() {
        assert_eq!(rounded(1), Some(4 << 10));
        assert_eq!(rounded(1 << 20), Some(1 << 20));
        assert_eq!(rounded((1 << 20) + 1), Some(2 << 20));
        assert_eq!(rounded((2 << 20) + 1), Some(4 << 20));
        assert_eq!(rounded(usize::MAX), None);
    }
}
