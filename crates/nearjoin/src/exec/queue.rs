//! The queue of work units that threads take from.
//!
//! Protocol: the queue is filled once, before the threads start, and only ever shrinks.
//! A unit is a range of queries in index order; `take` hands out each range exactly once
//! by advancing one atomic counter. Units come in index order, because neighbouring
//! units share candidates in the cache, and are small enough that the last one to finish
//! costs little. The counter needs no ordering: it guards no other memory, and the end of
//! the parallel section publishes what the threads wrote.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Units of `unit` queries each, out of a range.
#[derive(Debug)]
pub(crate) struct Queue {
    next: AtomicUsize,
    end: usize,
    unit: usize,
}

impl Queue {
    pub(crate) fn new(queries: &Range<u32>, unit: usize) -> Self {
        let Range { start, end } = *queries;
        Queue { next: AtomicUsize::new(start as usize), end: end as usize, unit: unit.max(1) }
    }

    /// The next unit, if there is one and nobody has closed the queue.
    pub(crate) fn take(&self) -> Option<Range<u32>> {
        // A closed queue stays closed: the counter is half of its range away from
        // wrapping, and each thread adds to it only once more.
        let start = self.next.fetch_add(self.unit, Relaxed);
        let end = self.end.min(start.saturating_add(self.unit));
        (start < self.end).then_some(start as u32..end as u32)
    }

    /// Hands out nothing more.
    pub(crate) fn close(&self) {
        self.next.store(usize::MAX / 2, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_is_handed_out_once() {
        let queue = Queue::new(&(32..10_007), 64);
        let mut units: Vec<Range<u32>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| core::iter::from_fn(|| queue.take()).collect::<Vec<_>>()))
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        units.sort_by_key(|unit| unit.start);
        assert_eq!(units.first().unwrap().start, 32);
        assert_eq!(units.last().unwrap().end, 10_007);
        assert!(units.windows(2).all(|w| w[0].end == w[1].start));
    }

    #[test]
    fn a_closed_queue_is_empty() {
        let queue = Queue::new(&(0..100), 10);
        assert!(queue.take().is_some());
        queue.close();
        assert!(queue.take().is_none());
    }
}
