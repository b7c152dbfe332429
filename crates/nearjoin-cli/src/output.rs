//! The answer into the shape and the place that was asked for.
//!
//! Pairs in any order stream into their table while they are found. Rows in order (`--sorted`,
//! and the arrays of an npz) are found part by part, in `ordered.rs`. So neither needs memory
//! that grows with the answer.

use std::ops::ControlFlow;
use std::time::Instant;

use nearjoin::gpu::GpuStats;
use nearjoin::sink::{Block, Callback, Count, Degrees};
use nearjoin::{HybridStats, Plan, Points, RangesStats, Stats};
use nearjoin_io::OutputFormat;
use nearjoin_io::write::{self, PairColumns, PairWriter, Target, write_degrees, write_labels};

use crate::failure::{Failure, Result, check_stdout, say};
use crate::grouping::{Grouped, Grouping};
use crate::interrupt::{self, Written};
use crate::load::Held;
use crate::memory::Memory;
use crate::options::{Output, Place};
use crate::ordered::Ordered;
use crate::planner::Planner;
use crate::progress::Board;
use crate::tally::Tally;

/// The two sides, how they are joined, and what is asked of the answer.
pub(crate) struct Job<'a, T> {
    pub(crate) planner: &'a Planner,
    pub(crate) left: Points<'a, T>,
    pub(crate) right: Option<Points<'a, T>>,
    pub(crate) columns: PairColumns,
    pub(crate) sorted: bool,
    /// Whether something is to be noted of each point beside the answer.
    pub(crate) tally: bool,
    pub(crate) memory: Memory,
    /// Whether nothing is said on the way.
    pub(crate) quiet: bool,
    pub(crate) board: &'a Board,
}

/// Where the answer goes, opened.
#[derive(Debug)]
pub(crate) enum Opened {
    Count,
    Degrees { target: Target, format: OutputFormat },
    Pairs { target: Target, format: OutputFormat, to_stdout: bool },
    Groups { grouping: Grouping, target: Target, format: OutputFormat },
}

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) pairs: u64,
    pub(crate) groups: Option<Grouped>,
    pub(crate) distance_tests: u64,
    pub(crate) pairs_taken: u64,
    pub(crate) index_bytes: u64,
    /// Seconds to build indexes, and to join.
    pub(crate) index: f64,
    pub(crate) join: f64,
    /// Seconds from the last pair found to the file complete; and of rows in order, those that
    /// the join waited for them to be written.
    pub(crate) write: f64,
    /// Parts that the left points were joined in.
    pub(crate) parts: usize,
    pub(crate) written: Option<write::Written>,
    /// What was noted of each left point.
    pub(crate) tally: Option<Tally>,
    /// What a GPU did, over all passes and parts.
    pub(crate) gpu: Option<GpuStats>,
    /// What the CPU and a GPU did together, over all passes and parts.
    pub(crate) hybrid: Option<HybridStats>,
    /// What was done by ranges, over all passes and parts.
    pub(crate) ranges: Option<RangesStats>,
}

impl Outcome {
    pub(crate) fn add(&mut self, stats: &Stats) {
        self.distance_tests += stats.distance_tests;
        self.pairs_taken += stats.pairs_taken;
        self.index_bytes = self.index_bytes.max(stats.index_bytes);
        self.index += stats.index.as_secs_f64();
        self.join += stats.execute.as_secs_f64();
        match (&mut self.gpu, &stats.gpu) {
            (_, None) => {}
            (none @ None, gpu) => none.clone_from(gpu),
            // How it worked is the same in every pass; what it did adds up.
            (Some(all), Some(gpu)) => {
                all.partitions = all.partitions.max(gpu.partitions);
                all.add(gpu);
            }
        }
        match (&mut self.hybrid, &stats.hybrid) {
            (_, None) => {}
            (none @ None, hybrid) => none.clone_from(hybrid),
            (Some(all), Some(hybrid)) => all.add(hybrid),
        }
        if let Some(ranges) = &stats.ranges {
            self.ranges.get_or_insert_default().add(ranges);
        }
    }
}

impl<'a, T: Held> Job<'a, T> {
    pub(crate) fn plan(&self) -> Result<Plan<'a, T>> {
        self.board.joining(1, None);
        self.planner.plan(&self.left, self.right.as_ref())
    }

    /// Runs the plan and delivers the answer.
    pub(crate) fn deliver(&self, plan: &Plan<'_, T>, opened: Opened) -> Result<Outcome> {
        if let Opened::Pairs { to_stdout: true, .. } = opened {
            interrupt::leaves(Written::Part);
        }
        match opened {
            Opened::Count => self.count(plan),
            Opened::Degrees { target, format } => self.degrees(plan, format, target),
            Opened::Pairs { target, format, .. } if self.is_in_order(format) => {
                self.in_order(plan, format, target)
            }
            Opened::Pairs { target, format, .. } => self.as_found(plan, format, target),
            Opened::Groups { grouping, target, format } => {
                self.groups(plan, grouping, format, target)
            }
        }
    }

    /// Whether rows come in the order of the left points.
    pub(crate) fn is_in_order(&self, format: OutputFormat) -> bool {
        self.sorted || format == OutputFormat::Npz
    }

    fn count(&self, plan: &Plan<'_, T>) -> Result<Outcome> {
        let mut outcome = Outcome { parts: 1, ..Outcome::default() };
        let pairs = if self.tally {
            self.count_each(plan, &mut outcome)?.iter().sum()
        } else {
            let mut count = Count::new();
            let once = self.right.is_none() && self.planner.counts_once();
            self.board.joining(if once { 2 } else { 1 }, None);
            outcome.add(&plan.run(&mut count)?);
            count.pairs()
        };
        outcome.pairs = self.in_answer(pairs);
        say(outcome.pairs)?;
        Ok(outcome)
    }

    fn degrees(&self, plan: &Plan<'_, T>, format: OutputFormat, target: Target) -> Result<Outcome> {
        let mut outcome = Outcome { parts: 1, ..Outcome::default() };
        let degrees = self.count_each(plan, &mut outcome)?;
        outcome.pairs = degrees.iter().sum();
        let start = Instant::now();
        self.board.writing(target.name());
        let ids = self.columns.left.clone();
        outcome.written = Some(write_degrees(target, format, ids, &degrees)?);
        outcome.write = start.elapsed().as_secs_f64();
        Ok(outcome)
    }

    fn groups(
        &self,
        plan: &Plan<'_, T>,
        grouping: Grouping,
        format: OutputFormat,
        target: Target,
    ) -> Result<Outcome> {
        let mut outcome = Outcome { parts: 1, ..Outcome::default() };
        if self.tally {
            self.count_each(plan, &mut outcome)?;
        }
        let mut sink = grouping.sink();
        let stats = plan.run(&mut sink).map_err(Failure::in_memory)?;
        outcome.add(&stats);
        outcome.pairs = stats.pairs;
        outcome.groups = Some(Grouped::from(&sink));
        let start = Instant::now();
        self.board.writing(target.name());
        let ids = self.columns.left.clone();
        outcome.written = Some(write_labels(target, format, ids, sink.signed_labels())?);
        outcome.write = start.elapsed().as_secs_f64();
        Ok(outcome)
    }

    /// The number of neighbours of each left point.
    fn count_each(&self, plan: &Plan<'_, T>, outcome: &mut Outcome) -> Result<Vec<u64>> {
        // A report on the nearest notes distances.
        if !(self.tally && self.planner.question.ranked()) {
            let mut sink = Degrees::new();
            outcome.add(&plan.run(&mut sink).map_err(Failure::in_memory)?);
            let degrees = sink.into_vec();
            outcome.tally =
                self.tally.then(|| Tally::Degrees { half: false, degrees: degrees.clone() });
            return Ok(degrees);
        }
        let mut degrees = vec![0; self.left.len()];
        self.each_block(plan, self.tally, outcome, |block| {
            for (query, neighbors) in block.iter() {
                degrees[query as usize] = neighbors.len() as u64;
            }
            Ok(())
        })?;
        Ok(degrees)
    }

    /// Streams pairs into a table as they are found.
    fn as_found(
        &self,
        plan: &Plan<'_, T>,
        format: OutputFormat,
        target: Target,
    ) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let name = target.name().to_string();
        let mut writer = PairWriter::<T>::new(target, format, self.columns.clone())?;
        self.each_block(plan, self.columns.distances, &mut outcome, |block| {
            Ok(writer.block(block)?)
        })?;
        self.board.writing(&name);
        self.finish(Ordered::Table(writer), outcome, 1)
    }

    /// Hands every block to `take` as it is found, and notes what is to be noted. What goes
    /// wrong there stops the join.
    fn each_block(
        &self,
        plan: &Plan<'_, T>,
        distances: bool,
        outcome: &mut Outcome,
        mut take: impl FnMut(&Block<T>) -> Result + Send,
    ) -> Result {
        let mut tally = self.new_tally();
        let mut failure = None;
        let mut sink = Callback::new(|block: &Block<T>| {
            if let Some(tally) = &mut tally {
                let distances = distances.then_some(block.distances);
                tally.note(|row| block.queries[row], block.offsets, block.neighbors, distances);
            }
            match take(block) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        })
        .half(self.columns.half)
        .distances(distances);
        let stats = plan.run(&mut sink);
        if let Some(failure) = failure {
            return Err(failure);
        }
        outcome.add(&stats?);
        outcome.tally = tally;
        Ok(())
    }

    pub(crate) fn new_tally(&self) -> Option<Tally> {
        self.tally.then(|| Tally::new(self.planner.question, self.left.len()))
    }

    /// Pairs in the answer, of those that all rows have.
    pub(crate) fn in_answer(&self, pairs: u64) -> u64 {
        if self.columns.half { pairs / 2 } else { pairs }
    }

    pub(crate) fn finish(
        &self,
        writer: Ordered<T>,
        mut outcome: Outcome,
        parts: usize,
    ) -> Result<Outcome> {
        let start = Instant::now();
        let written = writer.finish()?;
        outcome.write += start.elapsed().as_secs_f64();
        outcome.parts = parts;
        outcome.pairs = written.pairs;
        outcome.written = Some(written);
        Ok(outcome)
    }
}

/// Opens the place of the answer before any work is done, so that a folder that cannot be
/// written is known at once.
pub(crate) fn open(output: &Output) -> Result<Opened> {
    if output.is_stdout() {
        check_stdout()?;
    }
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
        Output::Groups(grouping, place) => {
            Opened::Groups { grouping: *grouping, target: target(place)?, format: place.format() }
        }
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
#[path = "on_gpu.rs"]
mod on_gpu;
