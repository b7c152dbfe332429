//! The queues of work units.
//!
//! [`Queue`] serves the threads of one processor. It is filled once, before the threads start, and
//! only ever shrinks. A unit is a range of queries in index order; `take` hands out each range
//! exactly once by advancing one atomic counter. Units come in index order, because neighbouring
//! units share candidates in the cache, and are small enough that the last one to finish costs
//! little. The counter needs no ordering: it guards no other memory, and the end of the parallel
//! section publishes what the threads wrote.
//!
//! [`Deque`] serves two processors at once. Its units are ranks: 0 is the unit with most work, the
//! last one that with least. What rank is which queries is known outside, to both.
//!
//! ```text
//!   0 … front        front … back         back … units         returned
//!   heavy, taken     still to be taken    light, taken         heavy, taken, and not done
//! ```
//!
//! Protocol:
//! - Takers of the *heavy* end may fail. What they take is lent: it is `done`, or it comes back when
//!   the loan is dropped, whatever the reason, a panic included. Takers of the *light* end do not
//!   fail: what they take is theirs.
//! - With a *wall*, heavy takers stop there and light ones never pass it: a static partition.
//! - What came back is taken at the light end, behind everything else: whoever failed gets none of
//!   it. `abandon` says that nobody will take from the heavy end any more, and the wall falls.
//! - A light taker that finds nothing waits while something is lent, or waits behind the wall: it
//!   may come back. It ends when nothing is left that could. So every unit is done by somebody
//!   before the last light taker ends, unless the queue is closed.
//! - A heavy taker never waits.
//! - All of it is one mutex: units are hundreds of queries, and takers come by a few thousand times
//!   in a join. Every change that a waiting taker may hope for wakes all of them: something came
//!   back, a loan is over, the heavy end is abandoned, the queue is closed.
//!
//! Why nobody waits for ever: a waiter waits for loans or for units behind the wall. A loan ends
//! with its owner's work, which ends or panics. Units behind the wall are taken by heavy takers
//! until none is left, or abandoned by the last of them that fails.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::sync::{Condvar, Mutex, MutexGuard};

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

/// A double-ended queue of units, by their ranks.
#[derive(Debug)]
pub(crate) struct Deque {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    front: usize,
    back: usize,
    /// Where heavy takers stop, and light ones too.
    wall: Option<usize>,
    /// What came back.
    returned: Vec<Range<usize>>,
    /// Loans that are not over.
    lent: usize,
    /// Whether nobody takes from the heavy end any more.
    abandoned: bool,
    closed: bool,
}

/// Units that somebody took who may fail: they go back unless they are [`done`](Lent::done).
#[derive(Debug)]
pub(crate) struct Lent<'a> {
    deque: &'a Deque,
    units: Range<usize>,
}

impl State {
    /// What heavy takers may still take.
    fn heavy(&self) -> Range<usize> {
        self.front..if self.abandoned { self.front } else { self.wall.unwrap_or(self.back) }
    }

    /// What light takers may still take, beside what came back.
    fn light(&self) -> Range<usize> {
        self.wall.unwrap_or(self.front)..self.back
    }
}

impl Deque {
    /// So many units, all of them for whoever comes first.
    pub(crate) fn new(units: usize) -> Self {
        Self::make(units, None)
    }

    /// So many units, the first `heavy` of which are for heavy takers and the rest for light ones.
    pub(crate) fn walled(units: usize, heavy: usize) -> Self {
        Self::make(units, Some(heavy.min(units)))
    }

    fn make(units: usize, wall: Option<usize>) -> Self {
        let state = State {
            front: 0,
            back: units,
            wall,
            returned: Vec::new(),
            lent: 0,
            abandoned: false,
            closed: false,
        };
        Deque { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked did not do so in here.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Units from the heavy end: as many as `size` says, at least one, of those that are left.
    /// None where there are none.
    pub(crate) fn take_heavy(&self, size: impl FnOnce(Range<usize>) -> usize) -> Option<Lent<'_>> {
        let mut state = self.lock();
        let left = state.heavy();
        if state.closed || left.is_empty() {
            return None;
        }
        let taken = size(left.clone()).clamp(1, left.len());
        state.front += taken;
        state.lent += 1;
        Some(Lent { deque: self, units: left.start..left.start + taken })
    }

    /// One unit from the light end, or one of those that came back. None where nothing is left
    /// that is not done or being done by a light taker.
    pub(crate) fn take_light(&self) -> Option<usize> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if !state.light().is_empty() {
                state.back -= 1;
                return Some(state.back);
            }
            if let Some(units) = state.returned.last_mut() {
                units.end -= 1;
                let (unit, empty) = (units.end, units.end == units.start);
                if empty {
                    state.returned.pop();
                }
                return Some(unit);
            }
            if state.lent == 0 && state.heavy().is_empty() {
                return None;
            }
            // Ends: see the top of this file.
            state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// Nobody takes from the heavy end any more: what is left there is for the light end.
    pub(crate) fn abandon(&self) {
        let mut state = self.lock();
        (state.abandoned, state.wall) = (true, None);
        drop(state);
        self.changed.notify_all();
    }

    /// Hands out nothing more.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

impl Lent<'_> {
    /// Their ranks.
    pub(crate) fn units(&self) -> Range<usize> {
        self.units.clone()
    }

    /// They are done, and do not go back.
    pub(crate) fn done(mut self) {
        self.units = 0..0;
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut state = self.deque.lock();
        state.lent -= 1;
        if !self.units.is_empty() {
            state.returned.push(self.units.clone());
        }
        drop(state);
        self.deque.changed.notify_all();
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

    #[test]
    fn both_ends_meet_and_every_unit_is_taken_once() {
        let deque = Deque::new(10);
        let lent = deque.take_heavy(|left| left.len() / 3).unwrap();
        assert_eq!(lent.units(), 0..3);
        lent.done();
        let light: Vec<usize> = (0..4).map_while(|_| deque.take_light()).collect();
        assert_eq!(light, [9, 8, 7, 6]);
        let rest = deque.take_heavy(|_| 100).unwrap();
        assert_eq!(rest.units(), 3..6);
        assert!(deque.take_heavy(|_| 1).is_none());
        rest.done();
        assert_eq!(deque.take_light(), None);
    }

    #[test]
    fn what_fails_comes_back_to_the_other_end() {
        let deque = Deque::walled(6, 4);
        let lent = deque.take_heavy(|_| 2).unwrap();
        assert_eq!([deque.take_light(), deque.take_light()], [Some(5), Some(4)]);
        drop(lent);
        assert_eq!([deque.take_light(), deque.take_light()], [Some(1), Some(0)]);
        // Behind the wall two are left, until nobody is there to take them.
        deque.abandon();
        assert!(deque.take_heavy(|_| 1).is_none());
        assert_eq!([deque.take_light(), deque.take_light()], [Some(3), Some(2)]);
        assert_eq!(deque.take_light(), None);
    }

    #[test]
    fn a_light_taker_waits_for_what_may_come_back() {
        let deque = Deque::new(3);
        let lent = deque.take_heavy(|left| left.len()).unwrap();
        let taken = std::thread::scope(|scope| {
            let light = scope.spawn(|| core::iter::from_fn(|| deque.take_light()).count());
            std::thread::sleep(core::time::Duration::from_millis(20));
            drop(lent);
            light.join().unwrap()
        });
        assert_eq!(taken, 3);
    }

    #[test]
    fn a_closed_deque_lets_nobody_wait() {
        let deque = Deque::new(2);
        let lent = deque.take_heavy(|_| 2).unwrap();
        deque.close();
        assert_eq!(deque.take_light(), None);
        assert!(deque.take_heavy(|_| 1).is_none());
        drop(lent);
        assert_eq!(deque.take_light(), None);
    }
}
