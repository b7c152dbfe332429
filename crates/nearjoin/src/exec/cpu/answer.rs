//! What becomes of the best of a block of queries in a KNN-join: they are counted, or handed out as
//! rows.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::knn::{BlockAction, CpuKnn, Way, Worker};
use crate::exec::{Emit, Lists, Request, Rows, sort_by_id};
use crate::index::Run;
use crate::scalar::Scalar;

/// What passes do with every block.
impl<T: Scalar> CpuKnn<'_, T> {
    /// Counts neighbours.
    pub(super) fn counting(&self) -> impl BlockAction<T> {
        |worker: &mut Worker<'_, T>, block: &Run| {
            worker.fill(self, block, Request::default());
            ControlFlow::Continue(())
        }
    }

    /// Counts the neighbours of each query.
    pub(super) fn counting_each(&self, degrees: &[AtomicU64]) -> impl BlockAction<T> {
        |worker: &mut Worker<'_, T>, block: &Run| {
            worker.fill(self, block, Request::default());
            let (numbers, _) = self.numbers.of(self.queries().ids(), block, &mut worker.numbers);
            for (number, row) in numbers.iter().zip(&worker.rows) {
                degrees[*number as usize].store(row.len() as u64, Relaxed);
            }
            ControlFlow::Continue(())
        }
    }

    /// Hands out rows.
    pub(super) fn filling(&self, request: Request, emit: &Emit<'_, T>) -> impl BlockAction<T> {
        move |worker: &mut Worker<'_, T>, block: &Run| {
            worker.fill(self, block, request);
            let (queries, ahead) =
                self.numbers.of(self.queries().ids(), block, &mut worker.numbers);
            let neighbors = Lists::Each(&worker.rows[..queries.len()]);
            let distances = request.distances.then_some(Lists::Each(&worker.distances[..]));
            let (worker, consecutive) = (worker.number, false);
            emit(&Rows { worker, queries, neighbors, distances, ahead, consecutive })
        }
    }
}

impl<T: Scalar> Worker<'_, T> {
    /// Makes rows of the best of each query of a block.
    fn fill(&mut self, join: &CpuKnn<'_, T>, block: &Run, request: Request) {
        let ids = &join.queries().ids()[block.start as usize..block.end as usize];
        let drops_itself = join.excludes_self() && !join.passes_itself();
        for (query, &id) in ids.iter().enumerate() {
            let (row, distances) = (&mut self.rows[query], &mut self.distances[query]);
            match (self.way, &self.ranks) {
                // The rows are made already.
                (Way::Lockstep, _) => {}
                (Way::Ranks, Some(ranks)) => ranks.finish(query, row, distances),
                _ => self.best.finish(query, row, distances),
            }
            if drops_itself {
                drop_itself(join.numbers.row(id), join.wanted, row, distances);
            }
            self.work.pairs += row.len() as u64;
            if request.sorted {
                sort_by_id(row, distances, &mut self.pairs);
            }
            if request.distances {
                distances.iter_mut().for_each(|acc| *acc = join.arithmetic.distance(*acc));
            }
        }
    }
}

/// Removes a query from its own row, which holds one more than wanted: or the last, if it is not
/// there, because as many duplicates of it have smaller rows. What remains are the nearest others
/// either way, since a row ascends by distance and row, whoever else is in it.
fn drop_itself<T>(own: u32, wanted: usize, row: &mut Vec<u32>, distances: &mut Vec<T>) {
    if let Some(at) = row.iter().position(|&id| id == own) {
        row.remove(at);
        distances.remove(at);
    }
    row.truncate(wanted);
    distances.truncate(wanted);
}
