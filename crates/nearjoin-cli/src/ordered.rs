//! Rows in the order of the left points: all at once where they fit the memory, else part by
//! part, as many left points at a time as have neighbours that fit, joined with all right points.

use std::ops::Range;

use nearjoin::Scalar;
use nearjoin::sink::{CsrSink, Degrees, Neighbors};
use nearjoin_io::OutputFormat;
use nearjoin_io::write::{NpzCsr, NpzNeighbors, PairColumns, PairWriter, Target, Written};

use crate::failure::{Failure, Result};
use crate::load::Held;
use crate::output::{Job, Outcome};
use crate::planned::Planned;
use crate::question::Question;
use crate::rows::{Keep, Rows};

/// Neighbours within ε of a part of the left points in memory, at the most.
const PART: u64 = 1 << 30;
/// Rows in memory that are worth a part, however little the limit leaves.
const LEAST: u64 = 1 << 20;

impl<T: Held> Job<'_, T> {
    /// Finds rows in order, all at once or part by part, and writes each part.
    pub(crate) fn in_order(
        &self,
        plan: &Planned<'_, T>,
        format: OutputFormat,
        target: Target,
    ) -> Result<Outcome> {
        let mut outcome = Outcome { tally: self.new_tally(), ..Outcome::default() };
        let name = target.name().to_string();
        // What cannot be written is refused now; only a CSR needs to know its size.
        let place = self.place(format, target)?;
        let room = self.room(plan);
        if let Some(rows) = self.all_rows(plan, room, &mut outcome)? {
            let mut writer = self.writer(place, self.in_answer(rows.pairs()))?;
            let keep = if self.columns.half { Keep::Later } else { Keep::All };
            self.write(&mut writer, 0, rows, keep, &mut outcome)?;
            self.board.writing(&name);
            return self.finish(writer, outcome, 1);
        }

        let (parts, pairs) = self.parts(plan, room, &mut outcome)?;
        let mut writer = self.writer(place, self.in_answer(pairs))?;
        let right = self.right.unwrap_or(self.left);
        let is_self = self.right.is_none();
        let keep = match is_self {
            true if self.columns.half => Keep::Later,
            true if !self.planner.include_self => Keep::Others,
            _ => Keep::All,
        };
        for (number, part) in parts.iter().enumerate() {
            self.board.joining(1, Some((number + 1, parts.len())));
            let left = self.left.rows(part.clone());
            let plan = self.planner.plan_part(&left, &right, is_self, plan.device())?;
            let rows = self.rows(&plan, &mut outcome)?;
            self.write(&mut writer, part.start as u32, rows, keep, &mut outcome)?;
        }
        self.board.writing(&name);
        self.finish(writer, outcome, parts.len())
    }

    /// Bytes that rows in memory may take, beside the index of all right points and of the left
    /// ones of a part.
    fn room(&self, plan: &Planned<'_, T>) -> u64 {
        let free = plan.memory_limit().saturating_sub(2 * plan.index_bytes());
        match plan {
            // They may stand in memory twice for a while.
            Planned::Within(_) => (free / 3).clamp(LEAST, PART),
            Planned::Knn(_) => free.max(LEAST),
        }
    }

    /// Bytes of a pair in memory.
    fn pair_bytes(&self) -> f64 {
        (4 + if self.columns.distances { size_of::<T>() } else { 0 }) as f64
    }

    /// All rows, if they are expected to fit and do.
    fn all_rows(
        &self,
        plan: &Planned<'_, T>,
        room: u64,
        outcome: &mut Outcome,
    ) -> Result<Option<Rows<T>>> {
        // A sample may have missed some.
        let margin = if let Planned::Within(_) = plan { 1.25 } else { 1.0 };
        let offsets = 8.0 * self.left.len() as f64;
        let bytes = plan.estimated_pairs() * margin * self.pair_bytes() + offsets;
        if bytes > room as f64 {
            return Ok(None);
        }
        match self.rows(plan, outcome) {
            Err(Failure::OverLimit(_)) => Ok(None),
            rows => rows.map(Some),
        }
    }

    fn rows(&self, plan: &Planned<'_, T>, outcome: &mut Outcome) -> Result<Rows<T>> {
        Ok(match plan {
            Planned::Within(plan) => {
                let mut sink = CsrSink::new().sorted(self.sorted).distances(self.columns.distances);
                outcome.add(&plan.run(&mut sink)?);
                sink.into_csr().into()
            }
            Planned::Knn(plan) => {
                let mut sink = Neighbors::new();
                outcome.add(&plan.run(&mut sink)?);
                sink.into()
            }
        })
    }

    /// Cuts the left points into parts whose rows fit, and tells how many pairs they have; of
    /// the nearest, at the most.
    fn parts(
        &self,
        plan: &Planned<'_, T>,
        room: u64,
        outcome: &mut Outcome,
    ) -> Result<(Vec<Range<usize>>, u64)> {
        let most = room as f64 / self.pair_bytes();
        Ok(match plan {
            Planned::Within(plan) => {
                let mut degrees = Degrees::new();
                outcome.add(&plan.run(&mut degrees)?);
                let degrees = degrees.as_slice();
                (parts(degrees.iter().copied(), most as u64), degrees.iter().sum())
            }
            Planned::Knn(plan) => {
                let (pairs, rows) = (plan.estimated_pairs(), self.left.len());
                let k = (pairs / rows as f64) as u64;
                (parts(std::iter::repeat_n(k, rows), most as u64), pairs as u64)
            }
        })
    }

    /// Writes what is in the answer of some rows, the first of which is `first`.
    fn write(
        &self,
        writer: &mut Ordered<T>,
        first: u32,
        mut rows: Rows<T>,
        keep: Keep,
        outcome: &mut Outcome,
    ) -> Result {
        let most = match self.planner.question {
            Question::Within { .. } => usize::MAX,
            Question::Knn { k, .. } => k,
        };
        rows.keep(first, keep, most);
        if let Some(tally) = &mut outcome.tally {
            let (ids, distances) = (rows.ids(), rows.distances());
            tally.note(|row| first + row as u32, rows.offsets(), ids, distances);
        }
        writer.rows(first, &rows)
    }

    fn place(&self, format: OutputFormat, target: Target) -> Result<Ordering<T>> {
        Ok(match (format, self.planner.question) {
            (OutputFormat::Npz, Question::Within { .. }) => Ordering::Csr(target),
            (OutputFormat::Npz, Question::Knn { k, .. }) => {
                let rows = self.left.len() as u64;
                Ordering::Ready(Ordered::Dense(NpzNeighbors::new(target, rows, k as u64)?))
            }
            (table, _) => {
                let columns = PairColumns { half: false, ..self.columns.clone() };
                Ordering::Ready(Ordered::Table(PairWriter::new(target, table, columns)?))
            }
        })
    }

    fn writer(&self, place: Ordering<T>, pairs: u64) -> Result<Ordered<T>> {
        let target = match place {
            Ordering::Ready(writer) => return Ok(writer),
            Ordering::Csr(target) => target,
        };
        let left = self.left.len() as u64;
        let right = self.right.map_or(left, |right| right.len() as u64);
        Ok(Ordered::Csr(NpzCsr::new(target, left, right, pairs, self.columns.distances)?))
    }
}

/// What will take rows in order, before their number is known.
enum Ordering<T: Scalar> {
    Ready(Ordered<T>),
    Csr(Target),
}

/// What takes rows in order.
pub(crate) enum Ordered<T: Scalar> {
    Table(PairWriter<T>),
    Csr(NpzCsr<T>),
    Dense(NpzNeighbors<T>),
}

impl<T: Scalar> Ordered<T> {
    /// Writes rows, the first of which is `first`.
    fn rows(&mut self, first: u32, rows: &Rows<T>) -> Result {
        let (offsets, ids, distances) = (rows.offsets(), rows.ids(), rows.distances());
        match self {
            Ordered::Table(writer) => writer.rows(first, offsets, ids, distances)?,
            Ordered::Csr(writer) => writer.rows(offsets, ids, distances)?,
            Ordered::Dense(writer) => writer.rows(offsets, ids, distances.unwrap_or_default())?,
        }
        Ok(())
    }

    /// Completes the file.
    pub(crate) fn finish(self) -> Result<Written> {
        Ok(match self {
            Ordered::Table(writer) => writer.finish()?,
            Ordered::Csr(writer) => writer.finish()?,
            Ordered::Dense(writer) => writer.finish()?,
        })
    }
}

/// Cuts the left points into parts with at most `most` neighbours, if no single point has
/// more.
fn parts(degrees: impl ExactSizeIterator<Item = u64>, most: u64) -> Vec<Range<usize>> {
    let rows = degrees.len();
    let mut parts = Vec::new();
    let (mut start, mut sum) = (0, 0u64);
    for (row, degree) in degrees.enumerate() {
        // One more: the point itself is found in a part of a self-join.
        if row > start && sum + degree + 1 > most {
            parts.push(start..row);
            (start, sum) = (row, 0);
        }
        sum += degree + 1;
    }
    if start < rows {
        parts.push(start..rows);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_every_row_once() {
        let degrees = [3, 0, 5, 100, 1, 1, 1, 1];
        let parts = parts(degrees.into_iter(), 10);
        assert_eq!(parts, [0..2, 2..3, 3..4, 4..8]);
        assert!(super::parts(std::iter::empty(), 10).is_empty());
    }
}
