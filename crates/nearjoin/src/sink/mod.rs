//! Where an answer goes, in the shape that is wanted.
//!
//! | sink | product | memory for the result |
//! | --- | --- | --- |
//! | [`Count`] | the number of pairs | none |
//! | [`Degrees`] | the number of neighbours of each point | 8 bytes a point |
//! | [`CsrSink`], [`CsrInto`] | all neighbours, row by row | 8 bytes a point, 4 a pair |
//! | [`Pairs`] | all pairs as two columns | 8 bytes a pair |
//! | [`Neighbors`] | the k nearest of each point, of KNN-joins only | 8 or 12 bytes a neighbour |
//! | [`Groups`] | connected components, or clusters by DBSCAN | 9 bytes a point |
//! | [`Callback`] | blocks of rows, as they are found | a few blocks, or a list of the pairs where that is short |
//!
//! Rows of a KNN-join ascend by distance, and then by id, unless `sorted` asks for ids alone; all
//! but [`Neighbors`] hold only the neighbours that there are.

mod callback;
mod count;
mod csr;
mod degrees;
mod fill;
mod groups;
mod neighbors;
mod pairs;

pub use callback::{Block, Callback};
pub use count::Count;
pub use csr::{Csr, CsrInto, CsrSink};
pub use degrees::Degrees;
pub use groups::Groups;
pub use neighbors::Neighbors;
pub use pairs::Pairs;

use core::ops::ControlFlow;
use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::exec::Executor;
use crate::exec::bins;
use crate::exec::pool::Pool;
use crate::monitor::Monitor;
use crate::plan::Budget;
use crate::scalar::Scalar;
use crate::stats::Stats;

/// A receiver of an answer. The sinks of this module are the only ones; for anything
/// else there is [`Callback`].
pub trait Sink<T: Scalar>: sealed::Sealed<T> {}
impl<T: Scalar, S: sealed::Sealed<T>> Sink<T> for S {}

pub(crate) use sealed::Sealed as Receive;

mod sealed {
    pub trait Sealed<T> {
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn receive(&mut self, execution: &mut super::Execution<'_, T>) -> super::Result<()>;
    }
}

/// What several sinks let their callers ask for, in their field `request`.
macro_rules! setters {
    ($($name:ident)+) => { $(setters!(@ $name);)+ };
    (@ sorted) => {
        /// Whether the answer ascends: ids within each row, or pairs by left and then right row.
        /// Default: no.
        pub fn sorted(mut self, sorted: bool) -> Self {
            self.request.sorted = sorted;
            self
        }
    };
    (@ distances) => {
        /// Whether distances come with the neighbours. Default: no.
        pub fn distances(mut self, distances: bool) -> Self {
            self.request.distances = distances;
            self
        }
    };
    (@ half) => {
        /// Whether an ε-join of one set with itself delivers each pair once, and no point with
        /// itself; in rows, under either of its points, and rows are then not complete. It has no
        /// effect on other joins. Default: no.
        pub fn half(mut self, half: bool) -> Self {
            self.request.once = half;
            self
        }
    };
}
use setters;

/// Why a thread stopped that hands out rows, and can say no more to the executor than that.
#[derive(Default)]
struct Refusal(Mutex<Option<Error>>);

impl Refusal {
    /// Notes the error, and stops.
    fn stop(&self, error: Error) -> ControlFlow<()> {
        *self.0.lock().unwrap_or_else(|e| e.into_inner()) = Some(error);
        ControlFlow::Break(())
    }

    /// The error, if there was one.
    fn check(self) -> Result<()> {
        self.0.into_inner().unwrap_or_else(|e| e.into_inner()).map_or(Ok(()), Err)
    }
}

/// A join that is indexed and waits to be asked for its answer.
pub(crate) struct Execution<'a, T> {
    pub(crate) executor: &'a dyn Executor<T>,
    pub(crate) pool: &'a Pool,
    /// Whether all left points ask: their numbers are then their rows.
    pub(crate) is_whole: bool,
    /// Whether both points of a pair have it in their rows: within ε, of one set.
    pub(crate) is_symmetric: bool,
    pub(crate) include_self: bool,
    /// Neighbours of each point, where the nearest are asked for.
    pub(crate) k: Option<usize>,
    pub(crate) expected_pairs: f64,
    /// Bytes that may be used for a while beside index and result.
    pub(crate) spare: u64,
    /// Whether rows had better be kept than counted and found again.
    pub(crate) keeps: bool,
    pub(crate) budget: Budget,
    pub(crate) monitor: &'a Option<Monitor>,
    pub(crate) stats: &'a mut Stats,
}

impl<T: Scalar> Execution<'_, T> {
    /// The most bytes of rows that may be kept until it is known where they belong, if those that are
    /// expected had better be, and may: whatever the rows, they stand twice within the limit. Where the
    /// arrays of the result are `fresh`, rows on shelves take the memory of a shelf more, or about that.
    fn most_kept(&self, expected: &bins::Expected, fresh: bool) -> Option<u64> {
        let left = self.budget.limit.saturating_sub(self.budget.index) / 2;
        let shelves = if fresh { expected.shelves::<T>() as u64 } else { 1 };
        let most = left.min(self.spare.saturating_mul(shelves));
        (self.keeps && expected.bytes::<T>() <= most as f64).then_some(most)
    }
}
