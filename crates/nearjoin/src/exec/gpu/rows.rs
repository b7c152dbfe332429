//! Rows of the answer on the device.
//!
//! They are made in the order of the input, so that the host has nothing to do but to copy.
//! There are two ways:
//!
//! - *Counted*: every row is counted, the running sums of the counts say where each begins,
//!   and a second pass writes it there. Rows are written in batches of as many as fit a share
//!   of the device's memory: while one batch is on the bus, the next is being made.
//! - *Listed*: one pass appends pairs to a list, each unordered pair once where it can, and the
//!   list is then spread over the rows. The room for the list is estimated from a sample. A
//!   list that does not fit is made again, of half as many rows.
//!
//! Counting pays where finding a pair costs little beside sending it, listing where a pair
//! takes many distance tests. A count that was sampled too low, or memory that is refused,
//! costs another pass: what was found before is thrown away, so nothing is lost or doubled.

use core::ops::{ControlFlow, Range};
use std::collections::VecDeque;

use nearjoin_kernels as kernels;

use super::batches::{self, MARGIN};
use super::device::{Array, Stage};
use super::driver::{Args, Fault};
use super::epsilon::{Counters, GpuJoin, Mode};
use super::job::Pattern;
use super::sort::{running_sums, sort_by_key};
use super::tuning::Gathering;
use crate::error::{Error, Result};
use crate::exec::{Emit, Request, Work};
use crate::monitor::Phase;
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
    pub(super) stage: Stage,
    pub(super) counters: Counters,
    /// On the device.
    pub(super) offsets: Array<u64>,
    /// The pairs, where they were listed.
    list: Option<List<T>>,
    /// The rows that are wanted; the others are empty.
    rows: Range<usize>,
}

/// Pairs on the device.
struct List<T> {
    pairs: Array<[u32; 2]>,
    distances: Option<Array<T>>,
    len: u64,
    /// Whether each stands for both of its directions.
    mirror: bool,
}

/// Gets a batch whose rows are being made in a stream, and submits their copies to it.
pub(super) type Deliver<'a, T> = dyn FnMut(&Batch<T>, usize) -> Result<ControlFlow<()>> + 'a;

/// A part of the rows on the device.
pub(super) struct Batch<T> {
    pub(super) rows: Range<usize>,
    /// Of the first row.
    pub(super) base: u64,
    pub(super) ids: Array<u32>,
    pub(super) distances: Option<Array<T>>,
}

impl<T: Scalar> GpuJoin<'_, T> {
    /// Counts all rows, or lists all pairs, and knows where each row begins.
    pub(super) fn find_rows(&self, request: Request) -> Result<Found<'_, T>> {
        self.enter(Phase::Counting);
        self.check_cancelled()?;
        if self.setup.tuning.gathering == Gathering::Listed
            && let Some(found) = self.list_rows(request)?
        {
            return Ok(found);
        }
        self.count_all_rows(request)
    }

    fn count_all_rows(&self, request: Request) -> Result<Found<'_, T>> {
        let stage = self.setup.device.stage(0);
        let counters = Counters::new(&stage)?;
        let degrees = self.count_rows(&stage, &counters, request.once)?;
        self.found(request, stage, counters, &degrees, None)
    }

    /// Lists all pairs at once; none if they do not fit the memory.
    fn list_rows(&self, request: Request) -> Result<Option<Found<'_, T>>> {
        let expected = self.estimate_pairs()?;
        let once = self.is_self() && (request.once || self.once() != Pattern::Each);
        let halved = if once { 0.5 } else { 1.0 };
        // A small sample may miss most of the pairs.
        let mut capacity = (expected * halved * MARGIN) as u64 + 1024 + self.len() as u64 / 16;
        capacity = (capacity as f64 * self.setup.tuning.estimate) as u64 + 1;
        let stage = self.setup.device.stage(0);
        for _ in 0..2 {
            if capacity.saturating_mul(self.list_bytes(request)) > self.setup.tuning.list_bytes {
                return Ok(None);
            }
            let counters = Counters::new(&stage)?;
            let list = match self.list(&stage, &counters, request, once, capacity, None) {
                Err(Error::Device { .. }) if self.setup.tuning.list_bytes > LEAST => {
                    return Ok(None);
                }
                list => list?,
            };
            if list.len > capacity {
                // Now the length is known.
                capacity = list.len;
                self.record(|stats| stats.splits += 1);
                continue;
            }
            let degrees = self.degrees_of(&stage, &list, once && !request.once)?;
            return self.found(request, stage, counters, &degrees, Some(list)).map(Some);
        }
        Ok(None)
    }

    fn list_bytes(&self, request: Request) -> u64 {
        // The list, and the rows that it becomes.
        let value = if request.distances { size_of::<T>() as u64 } else { 0 };
        8 + value + 2 * (4 + value)
    }

    /// Appends the pairs of all rows, or of some queries, to a list that has room for
    /// `capacity`; its length says how many there are, in any case.
    fn list(
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
        let mut job = self.job();
        counters.describe(&mut job);
        if once {
            job.pattern = self.strictly_once();
        }
        if let Some((address, len)) = queries {
            (job.queries, job.query_count) = (address, len as u64);
        }
        job.list = pairs.address();
        job.list_distances = distances.as_ref().map_or(0, Array::address);
        job.capacity = capacity;
        self.run(stage, Mode::List, &job)?;
        let [_, _, len, _] = counters.read(stage)?;
        self.record(|stats| stats.batches += 1);
        Ok(List { pairs, distances, len, mirror: once && !request.once })
    }

    /// The sizes of the rows of a list.
    fn degrees_of(&self, stage: &Stage, list: &List<T>, with_self: bool) -> Result<Array<u32>> {
        let degrees = stage.zeroed::<u32>(self.len() + 1)?;
        if with_self && self.setup.include_self {
            stage.driver.fill(stage.stream, degrees.address(), 1, self.len())?;
        }
        let args = Args::new().u64(list.pairs.address()).u64(list.len);
        let args = args.u32(u32::from(list.mirror)).u64(degrees.address());
        stage.launch(kernels::rows(T::NAME), "pair_degrees", list.len, args)?;
        Ok(degrees)
    }

    /// Turns sizes of rows into offsets.
    fn found(
        &self,
        request: Request,
        stage: Stage,
        counters: Counters,
        degrees: &Array<u32>,
        list: Option<List<T>>,
    ) -> Result<Found<'_, T>> {
        let offsets = stage.array::<u64>(self.len() + 1)?;
        running_sums::<u64>(&stage, degrees.address(), self.len(), offsets.address())?;
        let rows = 0..self.len();
        Ok(Found { join: self, request, stage, counters, offsets, list, rows })
    }

    /// Hands out all rows, some at a time, on this thread.
    pub(super) fn hand_out(&self, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        self.enter(Phase::Counting);
        self.check_cancelled()?;
        if self.setup.tuning.gathering == Gathering::Counted {
            return Ok(self.count_all_rows(request)?.hand_out(emit)?.0);
        }
        match self.list_rows(request)? {
            Some(found) => Ok(found.hand_out(emit)?.0),
            None => self.hand_out_lists(request, emit),
        }
    }

    /// Lists the pairs of some rows after the other: of as many as are expected to have pairs
    /// that fit. Where they do not, half as many rows are tried.
    fn hand_out_lists(&self, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        let most = (self.setup.tuning.list_bytes / self.list_bytes(request)).max(1);
        let estimate = self.setup.tuning.estimate;
        let expected = |(row, size): (usize, u64)| (row, (size as f64 * estimate) as u64);
        let sampled: Vec<_> = self.sample_rows()?.into_iter().map(expected).collect();
        let mut waiting = batches::by_sample(&sampled, self.len(), most);
        waiting.reverse();
        let mut total = Work::default();
        while let Some(rows) = waiting.pop() {
            self.check_cancelled()?;
            let stage = self.setup.device.stage(0);
            let counters = Counters::new(&stage)?;
            let queries = self.queries_of(&stage, core::slice::from_ref(&rows))?;
            let queries =
                queries.as_ref().map(|all| (all.address() + 4 * rows.start as u64, rows.len()));
            // One row must fit, if it can be had at all.
            let room = if rows.len() == 1 { self.right_len() as u64 } else { most };
            let list = match self.list(&stage, &counters, request, request.once, room, queries) {
                Err(Error::Device { .. }) if rows.len() > 1 => None,
                list => Some(list?).filter(|list| list.len <= room),
            };
            let Some(list) = list else {
                let middle = rows.start + rows.len() / 2;
                waiting.extend([middle..rows.end, rows.start..middle]);
                self.record(|stats| stats.splits += 1);
                continue;
            };
            let degrees = self.degrees_of(&stage, &list, false)?;
            let mut found = self.found(request, stage, counters, &degrees, Some(list))?;
            found.rows = rows;
            let (work, flow) = found.hand_out(emit)?;
            total += work;
            if flow.is_break() {
                break;
            }
        }
        Ok(total)
    }

    /// The queries in the order of batches, and of the index within each; none where there is
    /// only one batch. Batches are ranges of rows and every row is a query, so those of rows
    /// a..b stand at a..b.
    fn queries_of(&self, stage: &Stage, cuts: &[Range<usize>]) -> Result<Option<Array<u32>>> {
        if cuts.len() == 1 && cuts[0].len() == self.len() {
            return Ok(None);
        }
        // Rows before the first batch, and behind the last, stand there too.
        let mut ends: Vec<u32> = cuts.iter().map(|rows| rows.end as u32).collect();
        ends.extend(cuts.first().map(|first| first.start as u32).filter(|&start| start > 0));
        ends.sort_unstable();
        let on_device = stage.copy_of(&ends)?;
        let keys = stage.array::<u32>(self.len())?;
        let args = Args::new().u64(self.job().left_rows).u64(self.len() as u64);
        let args = args.u64(on_device.address()).u32(ends.len() as u32).u64(keys.address());
        stage.launch(kernels::rows(T::NAME), "query_batches", self.len() as u64, args)?;
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
        let join = self.join;
        if self.list.is_some() {
            let batch = self.spread_list(total(ends) as usize)?;
            return deliver(&batch, self.stage.stream).map(|_| ());
        }
        let mut bytes =
            join.setup.tuning.batch_bytes(total(ends) * self.pair_bytes(), join.is_easy());
        // What has been delivered stays so: batches of another size begin behind it.
        let mut done = 0;
        while done < join.len() {
            match self.counted_batches(ends, bytes, &mut done, deliver) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(Broken::Memory(_)) if bytes > LEAST => {
                    bytes = (bytes / 2).max(LEAST);
                    join.record(|stats| stats.splits += 1);
                }
                Err(Broken::Memory(fault)) => return Err(fault.into()),
                Err(Broken::Other(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Rows from `done` on, in batches of about `bytes`.
    fn counted_batches(
        &self,
        ends: &[u64],
        bytes: u64,
        done: &mut usize,
        deliver: &mut Deliver<'_, T>,
    ) -> core::result::Result<ControlFlow<()>, Broken> {
        let join = self.join;
        let first = *done;
        let mut cuts = batches::by_offsets(&ends[first..], bytes / self.pair_bytes());
        cuts.iter_mut().for_each(|rows| *rows = rows.start + first..rows.end + first);
        let largest = cuts.iter().map(|rows| ends[rows.end] - ends[rows.start]).max();
        let largest = largest.unwrap_or(0) as usize;
        // The memory of a batch is used again by the third after it, in the same stream.
        let streams = STREAMS.min(cuts.len());
        let stages: Vec<Stage> = (0..streams).map(|s| join.setup.device.stage(s)).collect();
        let mut memory = Vec::new();
        for stage in &stages {
            memory.push((stage.array(largest)?, stage.array_if(self.request.distances, largest)?));
        }
        let queries = join.queries_of(&self.stage, &cuts)?;
        self.stage.driver.synchronize(self.stage.stream)?;
        let fill = |number: usize, memory: (Array<u32>, Option<Array<T>>)| {
            let rows = cuts[number].clone();
            let base = ends[rows.start];
            let batch = Batch { rows, base, ids: memory.0, distances: memory.1 };
            self.fill(&stages[number % streams], &batch, queries.as_ref().map(Array::address))?;
            Ok::<_, Error>(batch)
        };
        let mut ahead = VecDeque::new();
        for (number, memory) in memory.into_iter().enumerate() {
            ahead.push_back(fill(number, memory)?);
        }
        for number in 0..cuts.len() {
            let Some(batch) = ahead.pop_front() else { break };
            let flow = deliver(&batch, number % streams)?;
            *done = batch.rows.end;
            join.record(|stats| stats.batches += 1);
            join.check_cancelled()?;
            if flow.is_break() {
                return Ok(flow);
            }
            if number + streams < cuts.len() {
                ahead.push_back(fill(number + streams, (batch.ids, batch.distances))?);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn fill(&self, stage: &Stage, batch: &Batch<T>, queries: Option<u64>) -> Result<()> {
        let join = self.join;
        let mut job = join.job();
        self.counters.describe(&mut job);
        if self.request.once {
            job.pattern = join.strictly_once();
        }
        if let Some(address) = queries {
            job.queries = address + 4 * batch.rows.start as u64;
            job.query_count = batch.rows.len() as u64;
        }
        job.offsets = self.offsets.address();
        job.base = batch.base;
        job.ids = batch.ids.address();
        job.distances = batch.distances.as_ref().map_or(0, Array::address);
        let cursors = match join.setup.tuning.shares_rows() {
            true => Some(stage.zeroed::<u32>(join.len())?),
            false => None,
        };
        job.cursors = cursors.as_ref().map_or(0, Array::address);
        join.run(stage, Mode::Fill, &job)?;
        self.sort(stage, batch)
    }

    /// Spreads the list over the rows.
    fn spread_list(&self, total: usize) -> Result<Batch<T>> {
        let (join, stage) = (self.join, &self.stage);
        let ids = stage.array::<u32>(total)?;
        let distances = stage.array_if(self.request.distances, total)?;
        let batch = Batch { rows: self.rows.clone(), base: 0, ids, distances };
        let Some(list) = &self.list else { return Ok(batch) };
        let cursors = stage.array::<u64>(join.len() + 1)?;
        let to = |args: Args| {
            let distances = batch.distances.as_ref().map_or(0, Array::address);
            args.u64(cursors.address()).u64(batch.ids.address()).u64(distances)
        };
        let module = kernels::rows(T::NAME);
        let args = Args::new().u64(self.offsets.address()).u64(join.len() as u64);
        stage.launch(module, "copy_u64", join.len() as u64, args.u64(cursors.address()))?;
        if list.mirror && join.setup.include_self {
            let args = to(Args::new().u64(join.len() as u64));
            stage.launch(module, "self_rows", join.len() as u64, args)?;
        }
        let values = list.distances.as_ref().map_or(0, Array::address);
        let args = Args::new().u64(list.pairs.address()).u64(values).u64(list.len);
        stage.launch(module, "pair_rows", list.len, to(args.u32(u32::from(list.mirror))))?;
        self.sort(stage, &batch)?;
        Ok(batch)
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
        stage.launch_blocks(kernels::rows(T::NAME), "sort_rows", blocks, SORT_THREADS, args)?;
        Ok(())
    }
}

/// Elements of all rows.
pub(super) fn total(ends: &[u64]) -> u64 {
    ends[ends.len() - 1]
}

/// Why batches came to an end.
enum Broken {
    Memory(Fault),
    Other(Error),
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Memory { .. } => Broken::Memory(fault),
            fault => Broken::Other(fault.into()),
        }
    }
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Broken::Other(error)
    }
}
