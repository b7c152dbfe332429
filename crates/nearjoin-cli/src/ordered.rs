//! Rows in the order of the left points: all at once where they fit the memory, else part by
//! part, as many left points at a time as have neighbours that fit. One index serves all parts.

use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use std::time::Instant;

use nearjoin::sink::{CsrSink, Degrees, Neighbors, Sink};
use nearjoin::{Indexed, Plan, Scalar, Stats};
use nearjoin_io::OutputFormat;
use nearjoin_io::write::{NpzCsr, NpzNeighbors, PairColumns, PairWriter, Target, Written};

use crate::failure::{Failure, Result};
use crate::load::Held;
use crate::number;
use crate::output::{Job, Outcome};
use crate::progress::tell_above;
use crate::question::Question;
use crate::rows::Rows;

/// Neighbours within ε of a part of the left points in memory, at the most.
const PART: u64 = 1 << 30;
/// Rows in memory that are worth a part, however little the limit leaves.
const LEAST: u64 = 1 << 20;

impl<T: Held> Job<'_, T> {
    /// Finds rows in order, all at once or part by part, and writes each part. The points are
    /// indexed once.
    pub(crate) fn in_order(
        &self,
        plan: &Plan<'_, T>,
        format: OutputFormat,
        target: Target,
    ) -> Result<Outcome> {
        let mut outcome = Outcome { tally: self.new_tally(), ..Outcome::default() };
        let name = target.name().to_string();
        // What cannot be written is refused now; only a CSR needs to know its size.
        let place = self.place(format, target)?;
        let index = plan.index()?;
        let in_parts = self.in_parts(plan, index.bytes());
        if let Some(in_parts) = in_parts.as_ref().filter(|_| !self.quiet) {
            tell_above(format_args!("note: {in_parts}"));
        }
        if in_parts.is_none()
            && let Some(rows) = self.all_rows(&index, &mut outcome)?
        {
            self.board.writing(&name);
            let mut writer = self.writer(place, self.in_answer(rows.pairs()))?;
            self.write(&mut writer, 0, rows, &mut outcome)?;
            drop(index);
            return self.finish(writer, outcome, 1);
        }

        let (parts, pairs) = self.parts(plan, &index, &mut outcome)?;
        let mut writer = self.writer(place, self.in_answer(pairs))?;
        for (number, part) in parts.iter().enumerate() {
            self.board.joining(1, Some((number + 1, parts.len())));
            let first = part.start as u32;
            let rows = self.rows(&index, Some(part.clone()), &mut outcome)?;
            self.write(&mut writer, first, rows, &mut outcome)?;
        }
        drop(index);
        self.board.writing(&name);
        self.finish(writer, outcome, parts.len())
    }

    /// Whether the rows do not fit the memory at once, beside so many bytes of an index.
    pub(crate) fn in_parts(&self, plan: &Plan<'_, T>, index: u64) -> Option<InParts> {
        let (cost, room, rows) = (self.cost(plan), room(plan, index), self.left.len() as f64);
        let ranked = self.planner.question.ranked();
        // A sample may have missed some.
        let pairs = plan.estimated_pairs() * if ranked { 1.0 } else { 1.25 };
        let needed = pairs * cost.pair + rows * cost.row;
        let too_large = !ranked && pairs * 4.0 > PART as f64;
        if needed <= room as f64 && !too_large {
            return None;
        }
        let of_part = if ranked { room as f64 } else { room_of_part(room, self.left.len()) };
        let parts = ((needed + rows * cost.indexed_row) / of_part).ceil().clamp(2.0, rows.max(2.0));
        let limit = (!too_large).then(|| self.memory.limit_for(index + needed as u64));
        Some(InParts { parts: parts as u64, limit })
    }

    /// What a part takes beside the index.
    fn cost(&self, plan: &Plan<'_, T>) -> Cost {
        let pair = 4 + if self.columns.distances { size_of::<T>() } else { 0 };
        let points = self.left.len() + self.right.map_or(0, |right| right.len());
        Cost {
            row: 8.0,
            indexed_row: plan.index_bytes() as f64 / points.max(1) as f64,
            pair: match self.planner.question {
                // They may stand in memory twice for a while.
                Question::Within { .. } => 2.0 * pair as f64,
                Question::Knn { .. } => pair as f64,
            },
        }
    }

    /// All rows, if they fit.
    fn all_rows(&self, index: &Indexed<'_, T>, outcome: &mut Outcome) -> Result<Option<Rows<T>>> {
        match self.rows(index, None, outcome) {
            Err(Failure::OverLimit(_)) => Ok(None),
            rows => rows.map(Some),
        }
    }

    /// The rows of a part, or of all left points.
    fn rows(
        &self,
        index: &Indexed<'_, T>,
        part: Option<Range<usize>>,
        outcome: &mut Outcome,
    ) -> Result<Rows<T>> {
        fn run<T: Held, S: Sink<T>>(
            index: &Indexed<'_, T>,
            part: Option<Range<usize>>,
            sink: &mut S,
        ) -> nearjoin::Result<Stats> {
            match part {
                Some(part) => index.run_rows(part, sink),
                None => index.run(sink),
            }
        }
        Ok(match self.planner.question {
            Question::Within { .. } => {
                let mut sink = CsrSink::new().sorted(self.sorted).distances(self.columns.distances);
                outcome.add(&run(index, part, &mut sink)?);
                sink.into_csr().into()
            }
            Question::Knn { .. } => {
                let mut sink = Neighbors::new();
                outcome.add(&run(index, part, &mut sink)?);
                sink.into()
            }
        })
    }

    /// Cuts the left points into parts whose rows fit, and tells how many pairs they have; of
    /// the nearest, at the most.
    fn parts(
        &self,
        plan: &Plan<'_, T>,
        index: &Indexed<'_, T>,
        outcome: &mut Outcome,
    ) -> Result<(Vec<Range<usize>>, u64)> {
        let (cost, room) = (self.cost(plan), room(plan, index.bytes()));
        let of_row = |degree: u64| degree as f64 * cost.pair + cost.row + cost.indexed_row;
        Ok(match self.planner.question {
            Question::Within { .. } => {
                let mut degrees = Degrees::new();
                outcome.add(&index.run(&mut degrees)?);
                let degrees = degrees.as_slice();
                let costs = degrees.iter().map(|&degree| of_row(degree));
                (parts(costs, room_of_part(room, degrees.len())), degrees.iter().sum())
            }
            Question::Knn { .. } => {
                let (pairs, rows) = (plan.estimated_pairs(), self.left.len());
                let k = (pairs / rows as f64) as u64;
                (parts(std::iter::repeat_n(of_row(k), rows), room as f64), pairs as u64)
            }
        })
    }

    /// Writes what is in the answer of some rows, the first of which is `first`.
    fn write(
        &self,
        writer: &mut Ordered<T>,
        first: u32,
        mut rows: Rows<T>,
        outcome: &mut Outcome,
    ) -> Result {
        let start = Instant::now();
        if self.columns.half {
            rows.keep_later(first);
        }
        if let Some(tally) = &mut outcome.tally {
            let (ids, distances) = (rows.ids(), rows.distances());
            tally.note(|row| first + row as u32, rows.offsets(), ids, distances);
        }
        writer.rows(first, &rows)?;
        drop(rows);
        outcome.write += start.elapsed().as_secs_f64();
        Ok(())
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

/// Bytes that are left for rows beside an index.
fn room<T: Held>(plan: &Plan<'_, T>, index: u64) -> u64 {
    plan.memory_limit().saturating_sub(index).max(LEAST)
}

/// Bytes for a part within ε, of those left for rows: the degrees of all rows stay in memory.
fn room_of_part(room: u64, rows: usize) -> f64 {
    (room as f64 - 8.0 * rows as f64).min(2.0 * PART as f64).max(LEAST as f64)
}

/// That the rows of an answer in order do not fit the memory at once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InParts {
    /// In how many parts they are found, by estimate.
    parts: u64,
    /// The memory limit that would do without, if one would.
    limit: Option<u64>,
}

impl Display for InParts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let parts = number::count(self.parts);
        write!(f, "rows in order are found in about {parts} parts, ")?;
        match self.limit {
            Some(limit) => write!(
                f,
                "since they do not fit the memory at once: --memory-limit {}MiB would do without",
                limit.div_ceil(1 << 20)
            ),
            None => write!(f, "each of {} at the most", number::bytes(2 * PART)),
        }
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

/// Bytes of memory beside the index of all points: for a row and for a pair of it, and for a row
/// that is in a part and is indexed again.
#[derive(Clone, Copy, Debug)]
struct Cost {
    row: f64,
    indexed_row: f64,
    pair: f64,
}

/// Cuts the left points into parts whose costs are at most `most`, if no single point has more.
fn parts(costs: impl ExactSizeIterator<Item = f64>, most: f64) -> Vec<Range<usize>> {
    let rows = costs.len();
    let mut parts = Vec::new();
    let (mut start, mut sum) = (0, 0.0);
    for (row, cost) in costs.enumerate() {
        if row > start && sum + cost > most {
            parts.push(start..row);
            (start, sum) = (row, 0.0);
        }
        sum += cost;
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
        let costs = [3.0, 0.0, 5.0, 100.0, 1.0, 1.0, 1.0, 1.0];
        let parts = parts(costs.into_iter(), 10.0);
        assert_eq!(parts, [0..3, 3..4, 4..8]);
        assert!(super::parts(std::iter::empty(), 10.0).is_empty());
    }
}
