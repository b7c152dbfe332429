//! The answer into the shape and the place that was asked for.
//!
//! Pairs in any order stream into their table while they are found. Rows in order (`--sorted`,
//! and the arrays of an npz) are found part by part: as many left points at a time as have
//! neighbours that fit the memory, joined with all right points. So neither needs memory that
//! grows with the answer.

use std::ops::{ControlFlow, Range};
use std::time::Instant;

use nearjoin::sink::{Block, Callback, Count, Csr, CsrSink, Degrees};
use nearjoin::{Buffer, EpsJoin, Plan, Points, Scalar, Stats};
use nearjoin_io::OutputFormat;
use nearjoin_io::write::{self, NpzCsr, PairColumns, PairWriter, Target, write_degrees};

use crate::failure::{Failure, Result, say};
use crate::interrupt::{self, Written};
use crate::load::Held;
use crate::options::{Output, Place};
use crate::progress::Board;

/// Neighbours of a part of the left points in memory, at the most.
const PART: u64 = 1 << 30;

/// The two sides, how they are joined, and what is asked of the answer.
pub(crate) struct Job<'a, T> {
    pub(crate) join: EpsJoin,
    pub(crate) left: Points<'a, T>,
    pub(crate) right: Option<Points<'a, T>>,
    pub(crate) columns: PairColumns,
    pub(crate) include_self: bool,
    pub(crate) sorted: bool,
    /// Whether the number of neighbours of each point is needed beside the answer.
    pub(crate) tally: bool,
    pub(crate) board: &'a Board,
}

/// Where the answer goes, opened.
#[derive(Debug)]
pub(crate) enum Opened {
    Count,
    Degrees { target: Target, format: OutputFormat },
    Pairs { target: Target, format: OutputFormat, to_stdout: bool },
}

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) pairs: u64,
    pub(crate) distance_tests: u64,
    pub(crate) pairs_taken: u64,
    pub(crate) index_bytes: u64,
    /// Seconds to build indexes, and to join.
    pub(crate) index: f64,
    pub(crate) join: f64,
    /// Seconds from the last pair found to the file complete.
    pub(crate) write: f64,
    /// Parts that the left points were joined in.
    pub(crate) parts: usize,
    pub(crate) written: Option<write::Written>,
    /// The number of neighbours of each left point, where it is known.
    pub(crate) degrees: Option<Vec<u64>>,
}

impl Outcome {
    fn add(&mut self, stats: &Stats) {
        self.distance_tests += stats.distance_tests;
        self.pairs_taken += stats.pairs_taken;
        self.index_bytes = self.index_bytes.max(stats.index_bytes);
        self.index += stats.index.as_secs_f64();
        self.join += stats.execute.as_secs_f64();
    }
}

impl<T: Held> Job<'_, T> {
    pub(crate) fn plan(&self) -> Result<Plan<'_, T>> {
        self.board.joining(1, None);
        Ok(match &self.right {
            Some(right) => self.join.plan(&self.left, right)?,
            None => self.join.plan_self(&self.left)?,
        })
    }

    /// Runs the plan and delivers the answer.
    pub(crate) fn deliver(&self, plan: &Plan<'_, T>, opened: Opened) -> Result<Outcome> {
        if let Opened::Pairs { to_stdout: true, .. } = opened {
            interrupt::leaves(Written::Part);
        }
        match opened {
            Opened::Count => self.count(plan),
            Opened::Degrees { target, format } => self.degrees(plan, format, target),
            Opened::Pairs { target, format, .. } if self.sorted || format == OutputFormat::Npz => {
                self.in_order(plan, format, target)
            }
            Opened::Pairs { target, format, .. } => self.as_found(plan, format, target),
        }
    }

    fn count(&self, plan: &Plan<'_, T>) -> Result<Outcome> {
        let mut outcome = Outcome { parts: 1, ..Outcome::default() };
        if self.tally {
            let mut degrees = Degrees::new();
            outcome.add(&plan.run(&mut degrees)?);
            outcome.pairs = degrees.as_slice().iter().sum();
            outcome.degrees = Some(degrees.as_slice().to_vec());
        } else {
            let mut count = Count::new();
            self.board.joining(if self.right.is_none() { 2 } else { 1 }, None);
            outcome.add(&plan.run(&mut count)?);
            outcome.pairs = count.pairs();
        }
        if self.columns.half {
            outcome.pairs /= 2;
        }
        say(outcome.pairs)?;
        Ok(outcome)
    }

    fn degrees(&self, plan: &Plan<'_, T>, format: OutputFormat, target: Target) -> Result<Outcome> {
        let mut outcome = Outcome { parts: 1, ..Outcome::default() };
        let mut degrees = Degrees::new();
        outcome.add(&plan.run(&mut degrees)?);
        let degrees = degrees.as_slice();
        outcome.pairs = degrees.iter().sum();
        let start = Instant::now();
        self.board.writing(target.name());
        let ids = self.columns.left.clone();
        outcome.written = Some(write_degrees(target, format, ids, degrees)?);
        outcome.write = start.elapsed().as_secs_f64();
        outcome.degrees = self.tally.then(|| degrees.to_vec());
        Ok(outcome)
    }

    /// Streams pairs into a table as they are found.
    fn as_found(
        &self,
        plan: &Plan<'_, T>,
        format: OutputFormat,
        target: Target,
    ) -> Result<Outcome> {
        let mut outcome = Outcome { parts: 1, ..Outcome::default() };
        let name = target.name().to_string();
        let mut writer = PairWriter::<T>::new(target, format, self.columns.clone())?;
        let mut tally = self.tally.then(|| vec![0u64; self.left.len()]);
        let mut failure = None;
        let half = self.columns.half;
        let mut sink = Callback::new(|block: &Block<T>| {
            if let Some(tally) = &mut tally {
                for (query, neighbors) in block.iter() {
                    tally[query as usize] += neighbors.len() as u64;
                    if half {
                        neighbors.iter().for_each(|&neighbor| tally[neighbor as usize] += 1);
                    }
                }
            }
            match writer.block(block) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        })
        .half(half)
        .distances(self.columns.distances);
        let stats = plan.run(&mut sink);
        if let Some(error) = failure {
            return Err(error.into());
        }
        outcome.add(&stats?);
        let start = Instant::now();
        self.board.writing(&name);
        let written = writer.finish()?;
        outcome.write = start.elapsed().as_secs_f64();
        outcome.pairs = written.pairs;
        outcome.written = Some(written);
        outcome.degrees = tally;
        Ok(outcome)
    }

    /// Finds rows in order, all at once or part by part, and writes each part.
    fn in_order(
        &self,
        plan: &Plan<'_, T>,
        format: OutputFormat,
        target: Target,
    ) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let name = target.name().to_string();
        // A table that cannot be written is refused now; an npz needs to know its size.
        let place = self.place(format, target)?;
        let sink = || CsrSink::new().sorted(self.sorted).distances(self.columns.distances);
        let pair = 4 + if self.columns.distances { size_of::<T>() as u64 } else { 0 };
        // Beside the index of all right points, and of the left ones of a part, its rows may
        // stand in memory twice for a while.
        let room = plan.memory_limit().saturating_sub(2 * plan.index_bytes()) / 3;
        let room = room.clamp(1 << 20, PART);

        if plan.estimated_pairs() * 1.25 * pair as f64 <= room as f64 {
            let mut sink = sink();
            match plan.run(&mut sink) {
                Ok(stats) => {
                    outcome.add(&stats);
                    let csr = sink.into_csr();
                    outcome.degrees =
                        self.tally.then(|| csr.iter().map(|row| row.len() as u64).collect());
                    let pairs = self.in_answer(csr.pairs());
                    let mut writer = self.writer(place, pairs)?;
                    let keep = if self.columns.half { Keep::Later } else { Keep::All };
                    writer.part(0, csr, keep)?;
                    self.board.writing(&name);
                    return self.finish(writer, outcome, 1);
                }
                // More pairs than the sample made believe.
                Err(nearjoin::Error::MemoryLimit { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }

        let mut degrees = Degrees::new();
        outcome.add(&plan.run(&mut degrees)?);
        let degrees = degrees.as_slice();
        let parts = parts(degrees, room / pair);
        let pairs = self.in_answer(degrees.iter().sum());
        let mut writer = self.writer(place, pairs)?;
        let right = self.right.unwrap_or(self.left);
        let keep = match (&self.right, self.columns.half) {
            (Some(_), _) => Keep::All,
            (None, true) => Keep::Later,
            (None, false) if self.include_self => Keep::All,
            (None, false) => Keep::Others,
        };
        for (number, rows) in parts.iter().enumerate() {
            self.board.joining(1, Some((number + 1, parts.len())));
            let left = self.left.rows(rows.clone());
            let mut sink = sink();
            outcome.add(&self.join.plan(&left, &right)?.run(&mut sink)?);
            writer.part(rows.start as u32, sink.into_csr(), keep)?;
        }
        outcome.degrees = self.tally.then(|| degrees.to_vec());
        self.board.writing(&name);
        self.finish(writer, outcome, parts.len())
    }

    /// Pairs in the answer, of those that all rows have.
    fn in_answer(&self, pairs: u64) -> u64 {
        if self.columns.half { pairs / 2 } else { pairs }
    }

    fn place(&self, format: OutputFormat, target: Target) -> Result<Ordering<T>> {
        if format == OutputFormat::Npz {
            return Ok(Ordering::Npz(target));
        }
        let columns = PairColumns { half: false, ..self.columns.clone() };
        Ok(Ordering::Table(PairWriter::new(target, format, columns)?))
    }

    fn writer(&self, place: Ordering<T>, pairs: u64) -> Result<Ordered<T>> {
        let target = match place {
            Ordering::Table(writer) => return Ok(Ordered::Table(writer)),
            Ordering::Npz(target) => target,
        };
        let left = self.left.len() as u64;
        let right = self.right.map_or(left, |right| right.len() as u64);
        Ok(Ordered::Npz(NpzCsr::new(target, left, right, pairs, self.columns.distances)?))
    }

    fn finish(&self, writer: Ordered<T>, mut outcome: Outcome, parts: usize) -> Result<Outcome> {
        let start = Instant::now();
        let written = match writer {
            Ordered::Table(writer) => writer.finish()?,
            Ordered::Npz(writer) => writer.finish()?,
        };
        outcome.write = start.elapsed().as_secs_f64();
        outcome.parts = parts;
        outcome.pairs = written.pairs;
        outcome.written = Some(written);
        Ok(outcome)
    }
}

/// Which neighbours of a point are in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    All,
    /// All but the point itself.
    Others,
    /// Those that come after the point.
    Later,
}

/// What will take rows in order, before their number is known.
enum Ordering<T: Scalar> {
    Table(PairWriter<T>),
    Npz(Target),
}

/// What takes rows in order.
enum Ordered<T: Scalar> {
    Table(PairWriter<T>),
    Npz(NpzCsr<T>),
}

impl<T: Scalar> Ordered<T> {
    /// Writes the rows of a part whose first row is `first`.
    fn part(&mut self, first: u32, csr: Csr<T>, keep: Keep) -> Result {
        let (mut offsets, mut ids, mut distances) = csr.into_parts();
        if keep != Keep::All {
            sift(first, keep, &mut offsets, &mut ids, distances.as_mut());
        }
        let pairs = offsets.last().map_or(0, |&end| end as usize);
        let distances = distances.as_ref().map(|distances| &distances[..pairs]);
        match self {
            Ordered::Table(writer) => writer.rows(first, &offsets, &ids[..pairs], distances)?,
            Ordered::Npz(writer) => writer.rows(&offsets, &ids[..pairs], distances)?,
        }
        Ok(())
    }
}

/// Moves what is kept of each row forward, and the offsets with it.
fn sift<T: Scalar>(
    first: u32,
    keep: Keep,
    offsets: &mut [u64],
    ids: &mut [u32],
    mut distances: Option<&mut Buffer<T>>,
) {
    let mut kept = 0;
    let mut start = 0;
    for row in 0..offsets.len() - 1 {
        let own = first + row as u32;
        let end = offsets[row + 1] as usize;
        for at in start..end {
            let id = ids[at];
            let wanted = match keep {
                Keep::All => true,
                Keep::Others => id != own,
                Keep::Later => id > own,
            };
            if wanted {
                ids[kept] = id;
                if let Some(distances) = &mut distances {
                    distances[kept] = distances[at];
                }
                kept += 1;
            }
        }
        start = end;
        offsets[row + 1] = kept as u64;
    }
}

/// Cuts the left points into parts with at most `most` neighbours, if no single point has
/// more.
fn parts(degrees: &[u64], most: u64) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut start, mut sum) = (0, 0u64);
    for (row, &degree) in degrees.iter().enumerate() {
        // One more: the point itself is found in a part of a self-join.
        if row > start && sum + degree + 1 > most {
            parts.push(start..row);
            (start, sum) = (row, 0);
        }
        sum += degree + 1;
    }
    if start < degrees.len() {
        parts.push(start..degrees.len());
    }
    parts
}

/// Opens the place of the answer before any work is done, so that a folder that cannot be
/// written is known at once.
pub(crate) fn open(output: &Output) -> Result<Opened> {
    let target = |place: &Place| match place {
        Place::Stdout => Ok(Target::stdout()),
        Place::File(path, _) => Target::create(path),
    };
    Ok(match output {
        Output::Count => Opened::Count,
        Output::Degrees(place) => {
            Opened::Degrees { target: target(place)?, format: place.format() }
        }
        Output::Pairs(place) => Opened::Pairs {
            target: target(place)?,
            format: place.format(),
            to_stdout: *place == Place::Stdout,
        },
    })
}

/// Writes a text as a file that appears when it is complete.
pub(crate) fn write_text(mut target: Target, text: &str) -> Result {
    use std::io::Write;
    let name = target.name().to_string();
    target
        .write_all(text.as_bytes())
        .map_err(|error| Failure::failed(format!("{name} could not be written: {error}")))?;
    target.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_every_row_once() {
        let degrees = [3, 0, 5, 100, 1, 1, 1, 1];
        let parts = parts(&degrees, 10);
        assert_eq!(parts, [0..2, 2..3, 3..4, 4..8]);
        assert!(super::parts(&[], 10).is_empty());
    }

    #[test]
    fn sifted_rows() {
        let rows = || (vec![0u64, 3, 3, 5], vec![5u32, 6, 7, 5, 9]);
        let (mut offsets, mut ids) = rows();
        sift::<f32>(5, Keep::Others, &mut offsets, &mut ids, None);
        assert_eq!((offsets, &ids[..4]), (vec![0, 2, 2, 4], &[6, 7, 5, 9][..]));
        let (mut offsets, mut ids) = rows();
        let mut distances: Buffer<f64> = vec![0.5, 0.6, 0.7, 0.8, 0.9].into();
        sift(5, Keep::Later, &mut offsets, &mut ids, Some(&mut distances));
        assert_eq!((offsets, &ids[..3]), (vec![0, 2, 2, 3], &[6, 7, 9][..]));
        assert_eq!(distances[..3], [0.6, 0.7, 0.9]);
    }
}
