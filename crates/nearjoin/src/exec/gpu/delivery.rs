//! Rows of the answer on their way to the host: into a CSR, or to a callback.

use core::cell::Cell;
use core::ops::{ControlFlow, Range};
use core::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use rayon::prelude::*;

use super::device::values;
use super::launch::{Counters, GpuJoin};
use super::ring::{Destination, Landed, Landing, Ring};
use super::rows::{Found, SORTED, total};
use super::session::{Result, Stop};
use crate::exec::{Emit, LaidOut, Lists, Request, Rows, Unfinished, Work, sort_by_id};
use crate::memory::{Buffer, as_atomic};
use crate::monitor::Phase;
use crate::plan::Gathering;
use crate::plan::batches;
use crate::scalar::Scalar;
use crate::scale::Scale;

/// Threads that copy what has landed to where it belongs: more do not make the memory faster. Memory
/// that nobody has touched takes all threads: the system has to clear it.
const LANDING: usize = 8;
/// Bytes of offsets up to which they stay in pinned memory.
const PINNED_OFFSETS: usize = 64 << 20;

impl<T: Scalar> GpuJoin<'_, T> {
    /// Hands out all rows, some at a time, on this thread.
    pub(super) fn hand_out(&self, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        self.session.enter(Phase::Counting);
        self.session.check_cancelled()?;
        if self.session.how.gathering == Gathering::Counted {
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
        let most = (self.session.how.list_bytes / self.list_bytes(request)).max(1);
        let estimate = self.session.how.estimate;
        let expected = |(row, size): (usize, u64)| (row, (size as f64 * estimate) as u64);
        let sampled: Vec<_> = self.sample_rows()?.into_iter().map(expected).collect();
        let mut waiting = batches::by_sample(&sampled, self.query_count(), most);
        waiting.reverse();
        let mut total = Work::default();
        while let Some(rows) = waiting.pop() {
            self.session.check_cancelled()?;
            let stage = self.session.stage(0);
            let counters = Counters::new(&stage)?;
            let queries = self.queries_of(&stage, core::slice::from_ref(&rows))?;
            let queries =
                queries.as_ref().map(|all| (all.address() + 4 * rows.start as u64, rows.len()));
            // One row must fit, if it can be had at all.
            let room = if rows.len() == 1 { self.right.len() as u64 } else { most };
            let list = match self.list(&stage, &counters, request, request.once, room, queries) {
                Err(stop) if stop.is_memory() && rows.len() > 1 => None,
                list => Some(list?).filter(|list| list.len <= room),
            };
            let Some(list) = list else {
                let middle = rows.start + rows.len() / 2;
                waiting.extend([middle..rows.end, rows.start..middle]);
                self.session.record(|stats| stats.splits += 1);
                continue;
            };
            let mut found = self.found_list(request, stage, counters, list)?;
            found.rows = rows;
            let (work, flow) = found.hand_out(emit)?;
            total += work;
            if flow.is_break() {
                break;
            }
        }
        Ok(total)
    }
}

impl<T: Scalar> Found<'_, T> {
    /// Brings the offsets of all rows to the host.
    pub(super) fn land_offsets(&self, offsets: &mut [u64]) -> Result<()> {
        let to = as_atomic(offsets);
        self.join.session.land(&self.stage, &self.offsets, to.len(), |start, from: &[u64]| {
            let to = &to[start..start + from.len()];
            to.iter().zip(from).for_each(|(to, &offset)| to.store(offset, Relaxed));
        })?;
        self.join.session.check_cancelled()
    }

    /// Hands out all rows, and says whether there should be more.
    pub(super) fn hand_out(&self, emit: &Emit<'_, T>) -> Result<(Work, ControlFlow<()>)> {
        let (join, stage) = (self.join, &self.stage);
        let ends = join.query_count() + 1;
        let bytes = 8 * ends;
        if bytes > PINNED_OFFSETS {
            let mut offsets = Buffer::zeroed(ends)?;
            self.land_offsets(&mut offsets)?;
            return self.emit(&offsets, emit);
        }
        // Straight into memory that is kept from join to join: fresh memory would take longer
        // to get than the join.
        let host = join.session.device.pin(bytes)?;
        let host = stage.copy_out_to(self.offsets.piece(0..ends), host)?.wait()?;
        join.session.record(|stats| stats.bytes_out += bytes as u64);
        self.emit(values(&*host, 0, bytes), emit)
    }

    /// Hands out rows as they land, in blocks of whole rows.
    fn emit(&self, ends: &[u64], emit: &Emit<'_, T>) -> Result<(Work, ControlFlow<()>)> {
        let join = self.join;
        join.session.enter(Phase::Joining);
        let chunk = join.session.chunk(total(ends) * self.pair_bytes()) as u64 / self.pair_bytes();
        let mut ring = Ring::new();
        let mut queries: Vec<u32> = Vec::new();
        let began = Instant::now();
        let stopped = Cell::new(false);
        let mut land = |rows: Range<usize>, mut landed: Landed| -> Result<()> {
            if stopped.get() {
                return Ok(());
            }
            let offsets = &ends[rows.start..=rows.end];
            let pairs = (offsets[rows.len()] - offsets[0]) as usize;
            let finish = self.finish();
            if finish.is_needed() {
                let (ids, distances) = landed.split_at_mut(1);
                let ids = &mut ids[0].bytes_mut()[..4 * pairs];
                let distances = distances
                    .first_mut()
                    .map(|host| T::from_bytes_mut(&mut host.bytes_mut()[..pairs * size_of::<T>()]));
                finish.rows(offsets, bytemuck::cast_slice_mut(ids), distances);
            }
            let ids = values::<u32>(&*landed[0], 0, 4 * pairs);
            let distances =
                landed.get(1).map(|host| T::from_bytes(&host.bytes()[..pairs * size_of::<T>()]));
            queries.clear();
            queries.extend(rows.start as u32..rows.end as u32);
            let flow = emit(&Rows {
                worker: 0,
                queries: &queries,
                neighbors: Lists::Flat { offsets, values: ids },
                distances: distances.map(|values| Lists::Flat { offsets, values }),
                ahead: &[],
                consecutive: true,
            });
            stopped.set(flow.is_break());
            Ok(())
        };
        self.batches(ends, &mut |batch, stage| {
            for rows in batches::by_offsets(&ends[batch.rows.start..=batch.rows.end], chunk) {
                let rows = rows.start + batch.rows.start..rows.end + batch.rows.start;
                let place = |row: usize| (ends[row] - batch.base) as usize;
                let elements = place(rows.start)..place(rows.end);
                let mut pieces = vec![batch.ids.piece(elements.clone())];
                if let Some(distances) = &batch.distances {
                    pieces.push(distances.piece(elements));
                }
                ring.send(stage, &pieces, rows, &mut land)?;
                join.session.check_cancelled()?;
                if stopped.get() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        ring.drain(&mut land)?;
        let bytes = ring.bytes;
        join.session.record(|stats| {
            stats.bytes_out += bytes;
            stats.delivery_seconds += began.elapsed().as_secs_f64();
        });
        let flow = if stopped.get() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let work = self.counters.work(&self.stage, Some(total(ends)))?;
        Ok((join.session.told(work), flow))
    }
}

impl<T: Scalar> Found<'_, T> {
    /// What is left to do here.
    fn finish(&self) -> Finish<T> {
        let alone = self.join.session.is_lane();
        Finish { scale: self.join.threshold.scale, sorted: self.request.sorted, alone }
    }

    /// Writes all rows to arrays of the caller's.
    fn write_all(
        &self,
        ends: &[u64],
        ids: &mut [u32],
        mut distances: Option<&mut [T]>,
        fresh: bool,
    ) -> core::result::Result<Work, Unfinished> {
        let session = &self.join.session;
        session.enter(Phase::Joining);
        let began = Instant::now();
        let chunk = session.chunk(total(ends) * self.pair_bytes());
        let threads = session.pool.threads();
        let landers = if fresh { threads } else { threads.min(LANDING) };
        let (landed, arrived) = {
            // Batches come in the order of the rows: what is left of both arrays.
            let mut ids_left = &mut ids[..];
            let mut distances_left = distances.as_deref_mut().unwrap_or_default();
            Landing::run(landers, fresh, |landing| {
                self.batches(ends, &mut |batch, stage| {
                    let len = (ends[batch.rows.end] - batch.base) as usize;
                    let check = || session.check_cancelled();
                    let to = take(&mut ids_left, len);
                    landing.send(stage, &batch.ids, to, chunk, Destination::Ids, check)?;
                    if let Some(from) = &batch.distances {
                        let to = take(&mut distances_left, len);
                        landing.send(stage, from, to, chunk, Destination::Distances, check)?;
                    }
                    Ok(ControlFlow::Continue(()))
                })
            })
        };
        let finish = |rows: usize, ids: &mut [u32], distances: Option<&mut [T]>| {
            let (finish, pairs) = (self.finish(), ends[rows] as usize);
            if finish.is_needed() {
                let (ids, distances) = (&mut ids[..pairs], distances.map(|all| &mut all[..pairs]));
                session.pool.install(|| finish.rows(&ends[..=rows], ids, distances));
            }
        };
        let work = match landed {
            Ok(bytes) => {
                session.record(|stats| stats.bytes_out += bytes);
                self.counters.work(&self.stage, Some(total(ends))).map_err(Stop::from)
            }
            Err(stop) => Err(stop),
        };
        session.record(|stats| stats.delivery_seconds += began.elapsed().as_secs_f64());
        match work {
            Ok(work) => {
                finish(ends.len() - 1, ids, distances);
                Ok(session.told(work))
            }
            Err(stop) => {
                let here = match &distances {
                    Some(_) => arrived.ids.min(arrived.distances),
                    None => arrived.ids,
                };
                let from = ends[1..].partition_point(|&end| end <= here as u64);
                finish(from, ids, distances);
                let work = Work { pairs: ends[from], ..Work::default() };
                Err(Unfinished { error: stop.into(), from, work: session.told(work) })
            }
        }
    }
}

impl<T: Scalar> LaidOut<T> for Found<'_, T> {
    fn write(
        self: Box<Self>,
        ends: &[u64],
        ids: &mut [u32],
        distances: Option<&mut [T]>,
        fresh: bool,
    ) -> core::result::Result<Work, Unfinished> {
        let began = Instant::now();
        let work = self.write_all(ends, ids, distances, fresh)?;
        let all = ends.len() - 1;
        self.join.session.hold(began, work).map_err(|stop| Unfinished {
            error: stop.into(),
            from: all,
            work,
        })?;
        Ok(work)
    }
}

/// The first `len` of what is left.
fn take<'a, V>(left: &mut &'a mut [V], len: usize) -> &'a mut [V] {
    let (first, rest) = core::mem::take(left).split_at_mut(len);
    *left = rest;
    first
}

/// What the device leaves to do: distances in the units of the points, long rows in order.
struct Finish<T> {
    scale: Scale<T>,
    sorted: bool,
    /// Whether this thread does it without others.
    alone: bool,
}

impl<T: Scalar> Finish<T> {
    fn is_needed(&self) -> bool {
        self.sorted || !self.scale.is_none()
    }

    fn rows(&self, offsets: &[u64], ids: &mut [u32], mut distances: Option<&mut [T]>) {
        self.scale.undo_all(distances.as_deref_mut().unwrap_or_default());
        if self.sorted {
            sort_long_rows(offsets, ids, distances, self.alone);
        }
    }
}

/// Sorts the rows that the device has left.
fn sort_long_rows<T: Scalar>(
    offsets: &[u64],
    ids: &mut [u32],
    distances: Option<&mut [T]>,
    alone: bool,
) {
    let base = offsets[0];
    let long: Vec<Range<usize>> = offsets
        .windows(2)
        .filter(|row| row[1] - row[0] > SORTED)
        .map(|row| (row[0] - base) as usize..(row[1] - base) as usize)
        .collect();
    let mut distances = distances.map(|distances| pick(distances, &long).into_iter());
    let rows: Vec<_> = pick(ids, &long)
        .into_iter()
        .map(|ids| (ids, distances.as_mut().and_then(Iterator::next)))
        .collect();
    let sort = |(ids, distances): (&mut [u32], Option<&mut [T]>)| match distances {
        None => ids.sort_unstable(),
        Some(distances) => sort_by_id(ids, distances, &mut Vec::new()),
    };
    match alone {
        true => rows.into_iter().for_each(sort),
        false => rows.into_par_iter().for_each(sort),
    }
}

/// Ranges of an array, which ascend.
fn pick<'a, V>(mut values: &'a mut [V], ranges: &[Range<usize>]) -> Vec<&'a mut [V]> {
    let mut start = 0;
    let mut picked = Vec::with_capacity(ranges.len());
    for range in ranges {
        take(&mut values, range.start - start);
        picked.push(take(&mut values, range.len()));
        start = range.end;
    }
    picked
}
