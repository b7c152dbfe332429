use core::ops::ControlFlow;
use std::sync::Mutex;

use super::{Execution, Receive, Refusal, setters};
use crate::error::Result;
use crate::exec::{Request, Rows};
use crate::memory::{reserve, with_capacity};
use crate::scalar::Scalar;

/// All pairs, as two columns of row numbers and, where asked for, one of distances.
///
/// By default a self-join delivers both directions of each pair; with [`half`](Pairs::half) the
/// smaller row is on the left. The order of the pairs is not specified, unless
/// [`sorted`](Pairs::sorted) is asked for.
///
/// ```
/// use nearjoin::{EpsJoin, Points, sink::Pairs};
/// let points = Points::new(&[0.0, 1.0, 1.5], 1)?;
/// let mut pairs = Pairs::new().half(true).sorted(true).distances(true);
/// EpsJoin::new(1.0).plan_self(&points)?.run(&mut pairs)?;
/// assert_eq!(pairs.left(), [0, 1]);
/// assert_eq!(pairs.right(), [1, 2]);
/// assert_eq!(pairs.all_distances(), [1.0, 0.5]);
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pairs<T> {
    request: Request,
    columns: Columns<T>,
}

#[derive(Clone, Debug, Default)]
struct Columns<T> {
    left: Vec<u32>,
    right: Vec<u32>,
    distances: Vec<T>,
}

impl<T: Scalar> Pairs<T> {
    /// Both directions, ids only.
    pub fn new() -> Self {
        Pairs { request: Request::default(), columns: Columns::default() }
    }

    setters!(half sorted distances);

    /// The left row of each pair.
    pub fn left(&self) -> &[u32] {
        &self.columns.left
    }

    /// The right row of each pair.
    pub fn right(&self) -> &[u32] {
        &self.columns.right
    }

    /// The distance of each pair; empty unless asked for.
    pub fn all_distances(&self) -> &[T] {
        &self.columns.distances
    }

    /// The columns: left, right, and distances, which are empty unless asked for.
    pub fn into_columns(self) -> (Vec<u32>, Vec<u32>, Vec<T>) {
        (self.columns.left, self.columns.right, self.columns.distances)
    }
}

impl<T: Scalar> Default for Pairs<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Columns<T> {
    fn len(&self) -> usize {
        self.left.len()
    }

    fn reserve(&mut self, more: usize, distances: bool) -> Result<()> {
        reserve(&mut self.left, more)?;
        reserve(&mut self.right, more)?;
        reserve(&mut self.distances, if distances { more } else { 0 })
    }

    fn push(&mut self, left: u32, right: u32, distance: Option<T>) {
        self.left.push(left);
        self.right.push(right);
        self.distances.extend(distance);
    }
}

impl<T: Scalar> Receive<T> for Pairs<T> {
    #[allow(private_interfaces)]
    fn receive(&mut self, execution: &mut Execution<'_, T>) -> Result<()> {
        let Request { once: half, sorted, distances, .. } = self.request;
        let half = half && execution.is_symmetric;
        // Found once and written twice, where all points ask.
        let mirrors = execution.is_symmetric && execution.is_whole && !half;
        let once = half || mirrors;
        // Vectors grow by doubling: for a while an old one and a new one are there.
        let pair = 8 + if distances { size_of::<T>() } else { 0 };
        let room = execution.budget.limit.saturating_sub(execution.budget.index);
        let most = room / pair as u64 / 3;
        let columns = Mutex::new(Columns::default());
        let with_self = mirrors && execution.include_self;
        if with_self {
            let mut columns = columns.lock().unwrap_or_else(|e| e.into_inner());
            columns.reserve(execution.executor.len(), distances)?;
            for row in 0..execution.executor.len() as u32 {
                columns.push(row, row, distances.then_some(T::ZERO));
            }
        }
        let request = Request { once, distances, ..Request::default() };
        let refusal = Refusal::default();
        let work = execution.executor.rows(request, &|rows: &Rows<'_, T>| {
            let mut columns = columns.lock().unwrap_or_else(|e| e.into_inner());
            let found = rows.neighbors.total() as usize * if mirrors { 2 } else { 1 };
            if let Err(error) = columns.reserve(found, distances) {
                return refusal.stop(error);
            }
            for (at, &query) in rows.queries.iter().enumerate() {
                let distances_of = rows.distances(at);
                for (k, &neighbor) in rows.neighbors.row(at).iter().enumerate() {
                    let distance = distances_of.map(|distances| distances[k]);
                    // A part keeps a pair under its smaller row, and has numbers of its own.
                    match half && execution.is_whole && neighbor < query {
                        true => columns.push(neighbor, query, distance),
                        false => columns.push(query, neighbor, distance),
                    }
                    if mirrors {
                        columns.push(neighbor, query, distance);
                    }
                }
            }
            match columns.len() as u64 > most {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        refusal.check()?;
        let mut columns = columns.into_inner().unwrap_or_else(|e| e.into_inner());
        if columns.len() as u64 > most {
            // How many there would have been is not known: say what the estimate says.
            let expected = execution.expected_pairs.max(columns.len() as f64);
            let expected = expected / if half { 2.0 } else { 1.0 };
            let at_least = room + 1;
            let needed = ((expected * pair as f64 * 3.0) as u64).max(at_least);
            execution.budget.check_result(needed)?;
        }
        if sorted {
            columns.sort()?;
        }
        execution.stats.record(work);
        execution.stats.pairs = columns.len() as u64;
        execution.stats.result_bytes = (columns.len() * pair) as u64;
        self.columns = columns;
        Ok(())
    }
}

impl<T: Scalar> Columns<T> {
    /// Sorts by left, then right.
    fn sort(&mut self) -> Result<()> {
        use rayon::prelude::*;
        let mut order: Vec<(u64, usize)> = with_capacity(self.len())?;
        (0..self.len())
            .into_par_iter()
            .map(|at| (u64::from(self.left[at]) << 32 | u64::from(self.right[at]), at))
            .collect_into_vec(&mut order);
        // Pairs are distinct, so the index never decides.
        if self.distances.is_empty() {
            order.par_sort_unstable_by_key(|entry| entry.0);
        } else {
            order.par_sort_unstable();
            let mut distances = with_capacity(order.len())?;
            distances.extend(order.iter().map(|entry| self.distances[entry.1]));
            self.distances = distances;
        }
        for (at, (pair, _)) in order.into_iter().enumerate() {
            self.left[at] = (pair >> 32) as u32;
            self.right[at] = pair as u32;
        }
        Ok(())
    }
}
