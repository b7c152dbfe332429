//! Rows of the answer on the device.
//!
//! They are made in the order of the input, so that the host has nothing to do but to copy.
//! There are two ways:
//!
//! - *Counted*: every row is counted, the running sums of the counts say where each begins,
//!   and a second pass writes it there. Rows are written in batches of as many as fit a share
//!   of the device's memory: while one batch is on the bus, the next is being made.
//! - *Listed*: one pass appends pairs to a list, each unordered pair once where it can, and counts
//!   the rows; the list is then spread over them, batch by batch too: each batch reads all of the
//!   list and takes what is in its rows. The room for the list is what the plan expects, or a sample
//!   where the plan is not sure. A list that does not fit is made again, of half as many rows.
//!
//! Counting pays where finding a pair costs little beside sending it, listing where a pair
//! takes many distance tests. A count that was sampled too low, or memory that is refused,
//! costs another pass: what was found before is thrown away, so nothing is lost or doubled.

use core::ops::{ControlFlow, Range};
use std::collections::VecDeque;

use nearjoin_kernels::Module;

use super::device::{Array, Stage};
use super::driver::Args;
use super::job::{Pattern, float};
use super::launch::{Counters, GpuJoin, Mode};
use super::session::Result;
use super::sort::{running_sums, sort_by_key};
use crate::exec::Request;
use crate::monitor::Phase;
use crate::plan::Gathering;
use crate::plan::batches::{self, MARGIN};
use crate::scalar::Scalar;

/// Streams that batches go through in turn, each with memory of its own.
const STREAMS: usize = 3;
/// Rows up to this length are sorted on the device: `SORTED` of `rows.cu`.
pub(super) const SORTED: u64 = 512;
const SORT_THREADS: u32 = 128;
/// Bytes of the smallest batch that is tried before memory is said to be short.
const LEAST: u64 = 1 << 20;

/// Rows whose offsets are known.
pub(super) struct Found<'a, T> {
    pub(super) join: &'a GpuJoin<'a, T>,
    pub(super) request: Request,
    /// Before what its work is told of: it waits when it is dropped, and fields go in order.
    pub(super) stage: Stage,
    pub(super) counters: Counters,
    /// On the device.
    pub(super) offsets: Array<u64>,
    /// The pairs, where they were listed.
    list: Option<List<T>>,
    /// The rows that are wanted; the others are empty.
    pub(super) rows: Range<usize>,
}

/// Pairs on the device.
pub(super) struct List<T> {
    pairs: Array<[u32; 2]>,
    distances: Option<Array<T>>,
    pub(super) len: u64,
    /// The sizes of the rows that it makes.
    degrees: Array<u32>,
    /// Whether each stands for both of its directions.
    mirror: bool,
}

/// What the rows of batches are made of.
enum Source<'a, T> {
    /// Queries in the order of the batches, none where there is only one batch: they look again.
    Queries(Option<Array<u32>>),
    /// Pairs, and where the next neighbour of each row goes.
    List { list: &'a List<T>, cursors: Array<u64> },
}

/// Gets a batch whose rows are being made in a stage, and submits their copies to it.
pub(super) type Deliver<'a, T> = dyn FnMut(&Batch<T>, &Stage) -> Result<ControlFlow<()>> + 'a;

/// A part of the rows on the device.
pub(super) struct Batch<T> {
    pub(super) rows: Range<usize>,
    /// Of the first row.
    pub(super) base: u64,
    pub(super) ids: Array<u32>,
    pub(super) distances: Option<Array<T>>,
    /// How many neighbours each row has so far, where several threads write to it.
    cursors: Option<Array<u32>>,
}

impl<T: Scalar> GpuJoin<'_, T> {
    /// The neighbours of every row: `degrees` by row, on the device.
    pub(super) fn count_rows(
        &self,
        stage: &Stage,
        counters: &Counters,
        once: bool,
    ) -> Result<Array<u32>> {
        let mut job = self.job();
        counters.describe(&mut job);
        let mut mode = Mode::Count;
        if once {
            job.meet(self.strictly_once());
        } else if self.is_whole_self() && self.once() != Pattern::Each && self.session.how.mirrors()
        {
            job.meet(self.once());
            job.mirror = true;
            mode = Mode::CountBoth;
        }
        let degrees = self.new_degrees(stage, job.mirror)?;
        job.degrees = degrees.address();
        self.run(stage, mode, &job)?;
        Ok(degrees)
    }

    /// The sizes of rows before they are counted. Where each pair counts for both of its points,
    /// none is of a point with itself: if those are wanted, they are there from the beginning.
    fn new_degrees(&self, stage: &Stage, mirror: bool) -> Result<Array<u32>> {
        let len = self.query_count();
        let degrees = stage.zeroed::<u32>(len + 1)?;
        if mirror && self.include_self {
            stage.fill(degrees.piece(0..len), 1)?;
        }
        Ok(degrees)
    }

    /// Counts all rows, or lists all pairs, and knows where each row begins.
    pub(super) fn find_rows(&self, request: Request) -> Result<Found<'_, T>> {
        self.session.enter(Phase::Counting);
        self.session.check_cancelled()?;
        if self.session.how.gathering == Gathering::Listed
            && let Some(found) = self.list_rows(request)?
        {
            return Ok(found);
        }
        self.count_all_rows(request)
    }

    pub(super) fn count_all_rows(&self, request: Request) -> Result<Found<'_, T>> {
        let stage = self.session.stage(0);
        let counters = Counters::new(&stage)?;
        let degrees = self.count_rows(&stage, &counters, request.once)?;
        self.found(request, stage, counters, &degrees)
    }

    /// Lists all pairs at once; none if they do not fit the memory.
    pub(super) fn list_rows(&self, request: Request) -> Result<Option<Found<'_, T>>> {
        let how = &self.session.how;
        // Room that is not needed is left to others.
        let fits =
            |pairs: &f64| pairs * self.list_bytes(request) as f64 <= how.list_bytes as f64 / 4.0;
        let expected = match how.most_pairs.filter(fits) {
            Some(pairs) => pairs,
            None => self.estimate_pairs()? * MARGIN,
        };
        let once = self.is_whole_self() && (request.once || self.once() != Pattern::Each);
        let halved = if once { 0.5 } else { 1.0 };
        // A small sample may miss most of the pairs.
        let mut capacity = (expected * halved) as u64 + 1024 + self.query_count() as u64 / 16;
        capacity = (capacity as f64 * self.session.how.estimate) as u64 + 1;
        let stage = self.session.stage(0);
        for _ in 0..2 {
            if capacity.saturating_mul(self.list_bytes(request)) > self.session.how.list_bytes {
                return Ok(None);
            }
            let counters = Counters::new(&stage)?;
            let list = match self.list(&stage, &counters, request, once, capacity, None) {
                Err(stop) if stop.is_memory() && self.session.how.list_bytes > LEAST => {
                    return Ok(None);
                }
                list => list?,
            };
            if list.len > capacity {
                // Now the length is known.
                capacity = list.len;
                self.session.record(|stats| stats.splits += 1);
                continue;
            }
            return self.found_list(request, stage, counters, list).map(Some);
        }
        Ok(None)
    }

    pub(super) fn list_bytes(&self, request: Request) -> u64 {
        // The list, and the rows that it becomes.
        let value = if request.distances { size_of::<T>() as u64 } else { 0 };
        8 + value + 2 * (4 + value)
    }

    /// Appends the pairs of all rows, or of some queries, to a list that has room for
    /// `capacity`; its length and the sizes of its rows say how many there are, in any case.
    pub(super) fn list(
        &self,
        stage: &Stage,
        counters: &Counters,
        request: Request,
        once: bool,
        capacity: u64,
        queries: Option<(u64, usize)>,
    ) -> Result<List<T>> {
        let pairs = stage.array::<[u32; 2]>(capacity as usize)?;
        let distances = stage.array_if(request.distances, capacity as usize)?;
        let mirror = once && !request.once;
        let degrees = self.new_degrees(stage, mirror)?;
        let mut job = self.job();
        counters.describe(&mut job);
        (job.degrees, job.mirror) = (degrees.address(), mirror);
        if once {
            job.meet(self.strictly_once());
        }
        if let Some((address, len)) = queries {
            (job.queries, job.query_count) = (address, len as u64);
        }
        job.list = pairs.address();
        job.list_distances = distances.as_ref().map_or(0, Array::address);
        job.capacity = capacity;
        self.run(stage, Mode::List, &job)?;
        let [_, _, len, _] = counters.read(stage)?;
        self.session.record(|stats| stats.batches += 1);
        Ok(List { pairs, distances, len, degrees, mirror })
    }

    /// The rows of a list.
    pub(super) fn found_list(
        &self,
        request: Request,
        stage: Stage,
        counters: Counters,
        list: List<T>,
    ) -> Result<Found<'_, T>> {
        let mut found = self.found(request, stage, counters, &list.degrees)?;
        found.list = Some(list);
        Ok(found)
    }

    /// Turns sizes of rows into offsets.
    pub(super) fn found(
        &self,
        request: Request,
        stage: Stage,
        counters: Counters,
        degrees: &Array<u32>,
    ) -> Result<Found<'_, T>> {
        let len = self.query_count();
        let offsets = stage.array::<u64>(len + 1)?;
        running_sums::<u64>(&stage, degrees.address(), len, offsets.address())?;
        let rows = 0..len;
        Ok(Found { join: self, request, stage, counters, offsets, list: None, rows })
    }

    /// The queries in the order of batches, and of the index within each; none where there is
    /// only one batch. Batches are ranges of rows and every row is a query, so those of rows
    /// a..b stand at a..b.
    pub(super) fn queries_of(
        &self,
        stage: &Stage,
        cuts: &[Range<usize>],
    ) -> Result<Option<Array<u32>>> {
        let len = self.query_count();
        if cuts.len() == 1 && cuts[0].len() == len {
            return Ok(None);
        }
        // Rows before the first batch, and behind the last, stand there too.
        let mut ends: Vec<u32> = cuts.iter().map(|rows| rows.end as u32).collect();
        ends.extend(cuts.first().map(|first| first.start as u32).filter(|&start| start > 0));
        ends.sort_unstable();
        let on_device = stage.copy_of(&ends)?;
        let keys = stage.array::<u32>(len)?;
        let args = Args::new().u64(self.job().left_rows).u64(len as u64);
        let args = args.u64(on_device.address()).u32(ends.len() as u32).u64(keys.address());
        stage.launch(Module::Rows(float::<T>()), "query_batches", len as u64, args)?;
        let bits = u32::BITS - (ends.len() as u32).leading_zeros();
        Ok(Some(sort_by_key(stage, keys, None, bits)?.values))
    }
}

impl<T: Scalar> Found<'_, T> {
    pub(super) fn pair_bytes(&self) -> u64 {
        4 + if self.request.distances { size_of::<T>() as u64 } else { 0 }
    }

    /// Makes the rows batch by batch, and calls `deliver` with each while others are being
    /// made.
    pub(super) fn batches(&self, ends: &[u64], deliver: &mut Deliver<'_, T>) -> Result<()> {
        let how = &self.join.session.how;
        let mut bytes = how.batch_bytes(total(ends) * self.pair_bytes(), self.list.is_some());
        // What has been delivered stays so: batches of another size begin behind it.
        let mut left = self.rows.clone();
        while !left.is_empty() {
            match self.make_batches(ends, bytes, &mut left, deliver) {
                // What could not be delivered is lost, and not to be made again.
                Ok(delivered) => {
                    if delivered?.is_break() {
                        return Ok(());
                    }
                }
                Err(stop) if stop.is_memory() && bytes > LEAST => {
                    bytes = (bytes / 2).max(LEAST);
                    self.join.session.record(|stats| stats.splits += 1);
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }

    /// The rows that are left, in batches of about `bytes`. An error tells that they cannot be
    /// made; the answer inside, whether they were delivered.
    fn make_batches(
        &self,
        ends: &[u64],
        bytes: u64,
        left: &mut Range<usize>,
        deliver: &mut Deliver<'_, T>,
    ) -> Result<Result<ControlFlow<()>>> {
        let join = self.join;
        let first = left.start;
        let mut cuts = batches::by_offsets(&ends[first..=left.end], bytes / self.pair_bytes());
        cuts.iter_mut().for_each(|rows| *rows = rows.start + first..rows.end + first);
        let largest = cuts.iter().map(|rows| ends[rows.end] - ends[rows.start]).max();
        let largest = largest.unwrap_or(0) as usize;
        // The memory of a batch is used again by the third after it, in the same stream.
        let streams = STREAMS.min(cuts.len());
        let stages: Vec<Stage> = (0..streams).map(|s| join.session.stage(s)).collect();
        let shared =
            self.list.is_none() && (join.session.how.shares_rows() || join.products.is_some());
        let mut memory = Vec::new();
        for stage in &stages {
            let distances = stage.array_if(self.request.distances, largest)?;
            let cursors = stage.array_if(shared, join.query_count())?;
            memory.push((stage.array(largest)?, distances, cursors));
        }
        let source = match &self.list {
            Some(list) => Source::List { list, cursors: self.cursors()? },
            None => Source::Queries(join.queries_of(&self.stage, &cuts)?),
        };
        self.stage.wait()?;
        type Memory<T> = (Array<u32>, Option<Array<T>>, Option<Array<u32>>);
        let make = |number: usize, (ids, distances, cursors): Memory<T>| {
            let rows = cuts[number].clone();
            let base = ends[rows.start];
            let batch = Batch { rows, base, ids, distances, cursors };
            let stage = &stages[number % streams];
            match &source {
                Source::Queries(queries) => self.fill(stage, &batch, queries.as_ref())?,
                Source::List { list, cursors } => self.spread(stage, &batch, list, cursors)?,
            }
            self.sort(stage, &batch)?;
            Result::Ok(batch)
        };
        let mut ahead = VecDeque::new();
        for (number, memory) in memory.into_iter().enumerate() {
            ahead.push_back(make(number, memory)?);
        }
        for number in 0..cuts.len() {
            let Some(batch) = ahead.pop_front() else { break };
            let delivered = deliver(&batch, &stages[number % streams]);
            if !matches!(delivered, Ok(ControlFlow::Continue(()))) {
                return Ok(delivered);
            }
            left.start = batch.rows.end;
            join.session.record(|stats| stats.batches += 1);
            join.session.check_cancelled()?;
            if number + streams < cuts.len() {
                ahead.push_back(make(
                    number + streams,
                    (batch.ids, batch.distances, batch.cursors),
                )?);
            }
        }
        Ok(Ok(ControlFlow::Continue(())))
    }

    /// Where the next neighbour of each row goes: at first, where the row begins.
    fn cursors(&self) -> Result<Array<u64>> {
        let (stage, len) = (&self.stage, self.join.query_count());
        let cursors = stage.array::<u64>(len)?;
        let args = Args::new().u64(self.offsets.address()).u64(len as u64).u64(cursors.address());
        stage.launch(Module::Rows(float::<T>()), "copy_u64", len as u64, args)?;
        Ok(cursors)
    }

    /// Finds the neighbours of the rows of a batch again.
    fn fill(&self, stage: &Stage, batch: &Batch<T>, queries: Option<&Array<u32>>) -> Result<()> {
        let join = self.join;
        let mut job = join.job();
        self.counters.describe(&mut job);
        if self.request.once {
            job.meet(join.strictly_once());
        }
        if let Some(queries) = queries {
            job.queries = queries.address() + 4 * batch.rows.start as u64;
            job.query_count = batch.rows.len() as u64;
        }
        job.offsets = self.offsets.address();
        job.base = batch.base;
        job.ids = batch.ids.address();
        job.distances = batch.distances.as_ref().map_or(0, Array::address);
        if let Some(cursors) = &batch.cursors {
            stage.fill(cursors.piece(0..join.query_count()), 0)?;
            job.cursors = cursors.address();
        }
        join.run(stage, Mode::Fill, &job)
    }

    /// Takes what belongs to the rows of a batch out of a list.
    fn spread(
        &self,
        stage: &Stage,
        batch: &Batch<T>,
        list: &List<T>,
        cursors: &Array<u64>,
    ) -> Result<()> {
        let module = Module::Rows(float::<T>());
        let Range { start, end } = batch.rows;
        let rows = [
            start as u64,
            end as u64,
            batch.base,
            cursors.address(),
            batch.ids.address(),
            batch.distances.as_ref().map_or(0, Array::address),
        ];
        if list.mirror && self.join.include_self {
            let args = Args::new().structure(&rows);
            stage.launch(module, "self_rows", (end - start) as u64, args)?;
        }
        let values = list.distances.as_ref().map_or(0, Array::address);
        let args = Args::new().u64(list.pairs.address()).u64(values).u64(list.len);
        let args = args.u32(u32::from(list.mirror)).structure(&rows);
        Ok(stage.launch(module, "pair_rows", list.len, args)?)
    }

    /// Puts the ids of each row in ascending order, where that is wanted and the device can.
    fn sort(&self, stage: &Stage, batch: &Batch<T>) -> Result<()> {
        if !self.request.sorted {
            return Ok(());
        }
        let rows = batch.rows.len() as u64;
        let args = Args::new().u64(self.offsets.address()).u64(batch.rows.start as u64).u64(rows);
        let args = args.u64(batch.base).u64(batch.ids.address());
        let args = args.u64(batch.distances.as_ref().map_or(0, Array::address));
        let blocks = (rows * 32).div_ceil(u64::from(SORT_THREADS));
        stage.launch_blocks(Module::Rows(float::<T>()), "sort_rows", blocks, SORT_THREADS, args)?;
        Ok(())
    }
}

/// Elements of all rows.
pub(super) fn total(ends: &[u64]) -> u64 {
    ends[ends.len() - 1]
}
