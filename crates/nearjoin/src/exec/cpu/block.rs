//! A block of queries against its candidates: matches counted, or appended to rows.

use core::ops::ControlFlow;

use super::epsilon::{Cover, CpuJoin, Worker};
use super::scan::Mode;
use crate::exec::Request;
use crate::index::{BoxOf, Run};
use crate::scalar::Scalar;

impl<T: Scalar> CpuJoin<'_, T> {
    /// Counts the matches of each query of a block. Returns their sum or, where pairs are
    /// covered once, the number of unordered pairs; unless somebody broke it off.
    pub(super) fn count_block(
        &self,
        worker: &mut Worker<'_, T>,
        block: &Run,
        bound: &BoxOf<T>,
        cover: Cover,
    ) -> ControlFlow<(), u64> {
        if self.has_products() {
            return self.count_products(worker, block);
        }
        let Worker { scanner, candidates, work, .. } = worker;
        scanner.begin(self, block, |origin| bound.middle(origin));
        let mut within = 0;
        if cover != Cover::Full {
            // Pairs inside the block, each seen from both sides, and self pairs.
            scanner.scan(self, core::slice::from_ref(block), Mode::Count);
            within = (scanner.matches.counts.iter().sum::<u64>() - block.len() as u64) / 2;
            scanner.matches.counts.fill(0);
        }
        scanner.scan(self, &candidates.test, Mode::Count);
        let listed: u64 = candidates.take.iter().map(|run| run.len() as u64).sum();
        let taken = listed + candidates.taken;
        work.taken += taken * block.len() as u64;
        let counts = &mut scanner.matches.counts;
        counts.iter_mut().for_each(|count| *count += taken);
        ControlFlow::Continue(within + counts.iter().sum::<u64>())
    }

    /// Makes the rows of a block empty, and names its queries where they are to be left out.
    fn begin_rows(&self, worker: &mut Worker<'_, T>, block: &Run, mode: Mode, exclude: bool) {
        let matches = &mut worker.scanner.matches;
        matches.rows.iter_mut().for_each(Vec::clear);
        matches.own.clear();
        matches.own.extend(block.clone().map(|position| match (exclude, mode) {
            (false, _) => u32::MAX,
            (true, Mode::Positions) => position,
            (true, _) => self.row_of(position),
        }));
    }

    /// Appends the candidates of a block that are taken without a test.
    fn take(&self, worker: &mut Worker<'_, T>, block: &Run, mode: Mode, exclude: bool) {
        let Worker { scanner, candidates, .. } = worker;
        let ids = self.right.ids();
        for run in &candidates.take {
            let rows = scanner.matches.rows.iter_mut().zip(block.clone());
            for ((row, query), &own) in rows.zip(&scanner.matches.own) {
                if exclude && self.left.is_some() {
                    // The query has another position among the queries than among these.
                    let these = &ids[run.start as usize..run.end as usize];
                    row.extend(these.iter().filter(|id| **id != own));
                    continue;
                }
                let parts = if exclude && run.contains(&query) {
                    [run.start..query, query + 1..run.end]
                } else {
                    [run.clone(), run.end..run.end]
                };
                for part in parts {
                    match mode {
                        Mode::Positions => row.extend(part),
                        _ => row.extend_from_slice(&ids[part.start as usize..part.end as usize]),
                    }
                }
            }
        }
    }

    /// Adds what else was asked for to rows that are complete.
    fn complete(&self, worker: &mut Worker<'_, T>, block: &Run, request: Request) {
        if request.distances {
            self.measure(worker, block);
        }
        let Worker { scanner, distances, sorter, moved, .. } = worker;
        let rows = &mut scanner.matches.rows[..block.len()];
        if request.sorted && !scanner.matches.ascending {
            match request.distances {
                true => sorter.sort_with(&self.kernels, rows, distances, moved),
                false => sorter.sort(&self.kernels, rows),
            }
        }
    }

    /// Finds the matches of each query of a block, unless somebody breaks it off.
    pub(super) fn fill_block(
        &self,
        worker: &mut Worker<'_, T>,
        block: &Run,
        bound: &BoxOf<T>,
        cover: Cover,
        request: Request,
    ) -> ControlFlow<()> {
        if self.has_products() {
            self.fill_products(worker, block, request)?;
            self.complete(worker, block, request);
            return ControlFlow::Continue(());
        }
        let on_sheet = worker.sheet.is_made();
        worker.scanner.begin(self, block, |origin| match on_sheet {
            true => origin.clone_from(&worker.sheet.origin),
            false => bound.middle(origin),
        });
        // Which pairs come twice hangs on the positions; all else, and that in a part, on the ids.
        let by_position = request.once && self.numbers.is_whole();
        let mode = if by_position { Mode::Positions } else { Mode::Ids };
        let exclude = self.excludes_self() || by_position;
        self.begin_rows(worker, block, mode, exclude);

        let Worker { scanner, candidates, work, sheet, .. } = worker;
        scanner.matches.ascending = on_sheet && request.sorted;
        if on_sheet {
            scanner.scan_sheet(self, sheet);
        }
        if request.once && cover != Cover::Full {
            scanner.scan(self, core::slice::from_ref(block), mode);
            keep_later(&mut scanner.matches.rows, block);
        }
        scanner.scan(self, &candidates.test, mode);
        let taken: u64 = candidates.take.iter().map(|run| run.len() as u64).sum();
        work.taken += taken * block.len() as u64;
        self.take(worker, block, mode, exclude);
        let rows = &mut worker.scanner.matches.rows;
        if by_position {
            if cover == Cover::Full {
                keep_later(rows, block);
            }
            let ids = self.right.ids();
            rows.iter_mut().flatten().for_each(|label| *label = ids[*label as usize]);
        } else if request.once {
            for (row, position) in rows.iter_mut().zip(block.clone()) {
                let own = self.row_of(position);
                row.retain(|&id| id > own);
            }
        }
        self.complete(worker, block, request);
        ControlFlow::Continue(())
    }

    /// Computes the distances of all matches of a block.
    fn measure(&self, worker: &mut Worker<'_, T>, block: &Run) {
        let queries = &self.queries().ids()[block.start as usize..block.end as usize];
        let rows = worker.scanner.matches.rows.iter().zip(&mut worker.distances);
        for (&query, (row, distances)) in queries.iter().zip(rows) {
            let point = self.queries().points().row(query as usize);
            self.kernels.distances(self.right.points(), point, row, distances);
            distances.iter_mut().for_each(|acc| *acc = self.threshold.distance(*acc));
        }
    }
}

/// Keeps of each row the positions behind its query's own.
fn keep_later(rows: &mut [Vec<u32>], block: &Run) {
    for (row, query) in rows.iter_mut().zip(block.clone()) {
        row.retain(|&position| position > query);
    }
}
