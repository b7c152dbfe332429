//! Rows of the answer on their way to the host: into a CSR, or to a callback.

use core::cell::Cell;
use core::ops::{ControlFlow, Range};
use core::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use rayon::prelude::*;

use super::batches;
use super::device::values;
use super::ring::{Landed, Landing, Piece, Ring};
use super::rows::{Found, SORTED, total};
use crate::error::Result;
use crate::exec::{Emit, LaidOut, Lists, Rows, Work, sort_by_id};
use crate::memory::{Buffer, as_atomic};
use crate::monitor::Phase;
use crate::scalar::Scalar;

/// Bytes of offsets up to which they stay in pinned memory.
const PINNED_OFFSETS: usize = 64 << 20;

impl<T: Scalar> Found<'_, T> {
    /// Brings the offsets of all rows to the host.
    pub(super) fn land_offsets(&self, offsets: &mut [u64]) -> Result<()> {
        let to = as_atomic(offsets);
        self.join.land(&self.stage, self.offsets.address(), to.len(), |start, from: &[u64]| {
            let to = &to[start..start + from.len()];
            to.iter().zip(from).for_each(|(to, &offset)| to.store(offset, Relaxed));
        })?;
        self.join.check_cancelled()
    }

    /// Hands out all rows, and says whether there should be more.
    pub(super) fn hand_out(&self, emit: &Emit<'_, T>) -> Result<(Work, ControlFlow<()>)> {
        let (join, stage) = (self.join, &self.stage);
        let bytes = 8 * (join.len() + 1);
        if bytes > PINNED_OFFSETS {
            let mut offsets = Buffer::zeroed(join.len() + 1)?;
            self.land_offsets(&mut offsets)?;
            return self.emit(&offsets, emit);
        }
        // Straight into memory that is kept from join to join: fresh memory would take longer
        // to get than the join.
        let host = stage.driver.pin(bytes)?;
        let host = stage.driver.copy_out(stage.stream, self.offsets.address(), host, bytes)?;
        let host = host.wait()?;
        join.record(|stats| stats.bytes_out += bytes as u64);
        self.emit(values(&*host, 0, bytes), emit)
    }

    /// Hands out rows as they land, in blocks of whole rows.
    fn emit(&self, ends: &[u64], emit: &Emit<'_, T>) -> Result<(Work, ControlFlow<()>)> {
        let (join, request) = (self.join, self.request);
        join.enter(Phase::Joining);
        let chunk = join.chunk(total(ends) * self.pair_bytes()) as u64 / self.pair_bytes();
        let mut ring = Ring::new(&*join.setup.device.driver);
        let mut queries: Vec<u32> = Vec::new();
        let began = Instant::now();
        let stopped = Cell::new(false);
        let mut land = |rows: Range<usize>, mut landed: Landed| -> Result<()> {
            if stopped.get() {
                return Ok(());
            }
            let offsets = &ends[rows.start..=rows.end];
            let pairs = (offsets[rows.len()] - offsets[0]) as usize;
            if request.sorted {
                let (ids, distances) = landed.split_at_mut(1);
                let ids = &mut ids[0].bytes_mut()[..4 * pairs];
                let distances = distances
                    .first_mut()
                    .map(|host| T::from_bytes_mut(&mut host.bytes_mut()[..pairs * size_of::<T>()]));
                sort_long_rows(offsets, bytemuck::cast_slice_mut(ids), distances);
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
            });
            stopped.set(flow.is_break());
            Ok(())
        };
        self.batches(ends, &mut |batch, stream| {
            for rows in batches::by_offsets(&ends[batch.rows.start..=batch.rows.end], chunk) {
                let rows = rows.start + batch.rows.start..rows.end + batch.rows.start;
                let (start, end) = (ends[rows.start], ends[rows.end]);
                let piece = |address: u64, size: usize| {
                    let size = size as u64;
                    (address + (start - batch.base) * size, ((end - start) * size) as usize)
                };
                let mut pieces = vec![piece(batch.ids.address(), 4)];
                if let Some(distances) = &batch.distances {
                    pieces.push(piece(distances.address(), size_of::<T>()));
                }
                ring.send(stream, &pieces, rows, &mut land)?;
                join.check_cancelled()?;
                if stopped.get() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        ring.drain(&mut land)?;
        let bytes = ring.bytes;
        join.record(|stats| {
            stats.bytes_out += bytes;
            stats.delivery_seconds += began.elapsed().as_secs_f64();
        });
        let flow = if stopped.get() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        Ok((join.work(&self.stage, &self.counters, Some(total(ends)))?, flow))
    }
}

impl<T: Scalar> LaidOut<T> for Found<'_, T> {
    fn write(
        self: Box<Self>,
        ends: &[u64],
        ids: &mut [u32],
        mut distances: Option<&mut [T]>,
    ) -> Result<Work> {
        let join = self.join;
        join.enter(Phase::Joining);
        let began = Instant::now();
        let chunk = join.chunk(total(ends) * self.pair_bytes());
        let driver = &*join.setup.device.driver;
        let pool = join.setup.pool;
        let bytes = {
            // Batches come in the order of the rows: what is left of both arrays.
            let mut ids_left = &mut ids[..];
            let mut distances_left = distances.as_deref_mut().unwrap_or_default();
            Landing::run(driver, pool.threads(), |landing| {
                self.batches(ends, &mut |batch, stream| {
                    let len = (ends[batch.rows.end] - batch.base) as usize;
                    let check = || join.check_cancelled();
                    let (at, to) = (batch.ids.address(), take(&mut ids_left, len));
                    landing.send(stream, at, to, chunk, Piece::Ids, check)?;
                    if let Some(distances) = &batch.distances {
                        let (at, to) = (distances.address(), take(&mut distances_left, len));
                        landing.send(stream, at, to, chunk, Piece::Distances, check)?;
                    }
                    Ok(ControlFlow::Continue(()))
                })
            })?
        };
        if self.request.sorted {
            pool.install(|| sort_long_rows(ends, ids, distances));
        }
        join.record(|stats| {
            stats.bytes_out += bytes;
            stats.delivery_seconds += began.elapsed().as_secs_f64();
        });
        join.work(&self.stage, &self.counters, Some(total(ends)))
    }
}

/// The first `len` of what is left.
fn take<'a, V>(left: &mut &'a mut [V], len: usize) -> &'a mut [V] {
    let (first, rest) = core::mem::take(left).split_at_mut(len);
    *left = rest;
    first
}

/// Sorts the rows that the device has left.
fn sort_long_rows<T: Scalar>(offsets: &[u64], ids: &mut [u32], distances: Option<&mut [T]>) {
    let base = offsets[0];
    let long: Vec<Range<usize>> = offsets
        .windows(2)
        .filter(|row| row[1] - row[0] > SORTED)
        .map(|row| (row[0] - base) as usize..(row[1] - base) as usize)
        .collect();
    let ids = pick(ids, &long).into_par_iter();
    match distances {
        None => ids.for_each(|row| row.sort_unstable()),
        Some(distances) => ids
            .zip(pick(distances, &long))
            .for_each(|(ids, distances)| sort_by_id(ids, distances, &mut Vec::new())),
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
