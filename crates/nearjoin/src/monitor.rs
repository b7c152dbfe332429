//! A join watched, and stopped, from another thread.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use crate::error::{Error, Result};

/// Watches a join from another thread, and stops it.
///
/// Clones watch the same join. Work is counted in distance tests, which is what a join
/// spends its time on: rows of the input differ by orders of magnitude in what they cost.
///
/// ```
/// use nearjoin::{EpsJoin, Error, Monitor, Points, sink::Count};
///
/// let data: Vec<f64> = (0..10_000).map(|i| f64::from(i % 97)).collect();
/// let points = Points::new(&data, 1)?;
/// let monitor = Monitor::new();
/// let join = EpsJoin::new(1.0).monitor(&monitor);
/// join.plan_self(&points)?.run(&mut Count::new())?;
/// assert!(monitor.progress().tests > 0);
///
/// monitor.cancel(); // as another thread would while the join runs
/// let stopped = join.plan_self(&points)?.run(&mut Count::new());
/// assert_eq!(stopped.unwrap_err(), Error::Cancelled);
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Monitor {
    state: Arc<State>,
}

/// Plain counters that guard no other memory, so that no ordering is needed.
#[derive(Debug, Default)]
struct State {
    cancelled: AtomicBool,
    phase: AtomicU8,
    tests: AtomicU64,
    expected: AtomicU64,
    pairs: AtomicU64,
}

/// What a join is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// It has not begun.
    Waiting,
    /// Looking at the points, and deciding.
    Planning,
    /// Sorting the points and building the index.
    Indexing,
    /// Counting neighbours: all that is asked for, or the first of two passes.
    Counting,
    /// Finding neighbours and handing them to the sink.
    Joining,
}

const PHASES: [Phase; 5] =
    [Phase::Waiting, Phase::Planning, Phase::Indexing, Phase::Counting, Phase::Joining];

/// How far a join has come.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// Distances computed in this phase.
    pub tests: u64,
    /// Distances that this phase will compute, as a sample of the index says: right to a
    /// few per cent. 0 before the join proper.
    pub expected_tests: u64,
    /// Pairs found in this phase. A pass that meets each pair once counts it once.
    pub pairs: u64,
}

impl Progress {
    /// The share of this phase that is done, from 0 to 1; none before the join proper.
    pub fn fraction(&self) -> Option<f64> {
        (self.expected_tests > 0)
            .then(|| (self.tests as f64 / self.expected_tests as f64).clamp(0.0, 1.0))
    }
}

impl Monitor {
    /// A monitor that watches nothing yet: see [`EpsJoin::monitor`](crate::EpsJoin::monitor).
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the join to stop. It does so within milliseconds once it is indexed, and
    /// returns [`Error::Cancelled`]. A monitor stays cancelled.
    pub fn cancel(&self) {
        self.state.cancelled.store(true, Relaxed);
    }

    /// Whether the join was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.state.cancelled.load(Relaxed)
    }

    /// How far the join has come.
    pub fn progress(&self) -> Progress {
        let state = &*self.state;
        Progress {
            phase: PHASES[usize::from(state.phase.load(Relaxed))],
            tests: state.tests.load(Relaxed),
            expected_tests: state.expected.load(Relaxed),
            pairs: state.pairs.load(Relaxed),
        }
    }

    /// Enters a phase.
    pub(crate) fn enter(&self, phase: Phase, expected_tests: u64) {
        let state = &*self.state;
        let number = PHASES.iter().position(|known| *known == phase);
        state.tests.store(0, Relaxed);
        state.pairs.store(0, Relaxed);
        state.expected.store(expected_tests, Relaxed);
        state.phase.store(number.unwrap_or(0) as u8, Relaxed);
    }

    /// Adds what one thread has done since it last said so.
    pub(crate) fn add(&self, tests: u64, pairs: u64) {
        self.state.tests.fetch_add(tests, Relaxed);
        self.state.pairs.fetch_add(pairs, Relaxed);
    }
}

/// An error if somebody watches and has asked to stop.
pub(crate) fn check(monitor: &Option<Monitor>) -> Result<()> {
    match monitor {
        Some(monitor) if monitor.is_cancelled() => Err(Error::Cancelled),
        _ => Ok(()),
    }
}

/// Tells whoever watches of a phase without distance tests.
pub(crate) fn enter(monitor: &Option<Monitor>, phase: Phase) {
    if let Some(monitor) = monitor {
        monitor.enter(phase, 0);
    }
}
