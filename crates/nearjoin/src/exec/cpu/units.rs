//! Units of queries that the threads of the CPU take from somewhere, and a join on the CPU that is
//! shared with another device by such units.

mod epsilon;
mod knn;

use core::sync::atomic::AtomicU64;

use super::numbers::Numbers;
use crate::error::Result;
use crate::exec::queue::Queue;
use crate::exec::{Emit, Executor, Part, Request, Work};
use crate::index::Run;
use crate::memory::{reserve, with_capacity};

/// Where the threads of a pass get their queries from.
pub(crate) trait Units: Sync {
    /// The next unit for a thread, which is done with the one before.
    fn take(&self, thread: usize) -> Option<Run>;
    /// Hands out nothing more.
    fn close(&self);
    /// How many of so many threads should come for units.
    fn threads(&self, all: usize) -> usize {
        all
    }
}

impl Units for Queue {
    fn take(&self, _thread: usize) -> Option<Run> {
        Queue::take(self)
    }

    fn close(&self) {
        Queue::close(self);
    }
}

/// A range in pieces of some length; the last one may be shorter.
pub(super) fn pieces(range: &Run, length: usize) -> impl Iterator<Item = Run> {
    let end = range.end;
    range
        .clone()
        .step_by(length)
        .map(move |start| start..end.min(start.saturating_add(length as u32)))
}

/// All queries of a part for the thread that asks, which has no help.
pub(crate) struct Alone(Queue);

impl Alone {
    /// So many queries.
    pub(crate) fn new(queries: usize) -> Self {
        Alone(Queue::new(&(0..queries as u32), queries))
    }
}

impl Units for Alone {
    fn take(&self, _thread: usize) -> Option<Run> {
        self.0.take()
    }

    fn close(&self) {
        self.0.close();
    }

    fn threads(&self, _all: usize) -> usize {
        1
    }
}

/// A join on the CPU, some queries of which another device may answer. A unit is a range of
/// positions in the order of its index.
pub(crate) trait OnHost<T>: Executor<T> {
    /// The positions of all queries.
    fn positions(&self) -> Run;
    /// What every `unit` queries are expected to cost; and the neighbours that they have, at least
    /// of one unit in `step`.
    fn loads(&self, unit: u32, step: usize) -> Vec<Load>;
    /// Appends the queries at some positions to a list that another device understands.
    fn name_queries(&self, at: Run, named: &mut Named<T>) -> Result<()>;
    /// Counts the pairs of some units: what each thread did.
    fn count_units(&self, units: &dyn Units) -> Vec<Work>;
    /// Counts the neighbours of the queries of some units.
    fn degrees_of_units(&self, degrees: &[AtomicU64], units: &dyn Units) -> Vec<Work>;
    /// Hands out the rows of some units. Pairs that are wanted once are those with larger rows.
    fn rows_of_units(&self, request: Request, emit: &Emit<'_, T>, units: &dyn Units) -> Vec<Work>;
    /// Counts the pairs of all queries where nobody else counts any: each pair may be met once.
    fn count_alone(&self) -> Result<Work>;
    /// The same join for some of the queries, as [`Executor::part`].
    fn for_part<'b>(&'b self, part: Part<'b, T>) -> Result<Box<dyn OnHost<T> + 'b>>;
}

/// What a unit is expected to cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    /// Distance tests, and something for each pair that needs none.
    pub(crate) work: f64,
    /// Neighbours of all its queries, where they are known.
    pub(crate) pairs: Option<f64>,
}

/// Queries by names that every device understands.
pub(crate) struct Named<T> {
    /// Their rows of the whole input.
    pub(crate) rows: Vec<u32>,
    /// Their numbers in the join.
    pub(crate) numbers: Vec<u32>,
    pub(crate) coordinates: Vec<T>,
}

impl<T> Named<T> {
    /// Room for so many.
    pub(crate) fn new(queries: usize) -> Result<Self> {
        let (rows, numbers) = (with_capacity(queries)?, with_capacity(queries)?);
        Ok(Named { rows, numbers, coordinates: Vec::new() })
    }

    /// Appends the names of the queries at some positions, which have these ids. Their coordinates,
    /// so many of each, are still to come, and there is room for them.
    fn name(&mut self, numbers: &Numbers<'_>, ids: &[u32], at: &Run, dim: usize) -> Result<()> {
        self.rows.extend(ids.iter().map(|&id| numbers.row(id)));
        match *numbers {
            Numbers::Places { first } => self.numbers.extend(at.clone().map(|p| p - first)),
            _ => self.numbers.extend_from_slice(ids),
        }
        reserve(&mut self.coordinates, ids.len() * dim)
    }
}
