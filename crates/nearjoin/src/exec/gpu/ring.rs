//! Results on their way to the host, through a small ring of pinned buffers.

use std::collections::VecDeque;

use rayon::prelude::*;

use super::device::{Stage, values};
use super::driver::{Driver, HostMemory, Result, Transfer};
use crate::exec::cpu::pool::Pool;

/// Copies that wait for the bus at the most. One lands, one is on the bus, and two make sure
/// that there is always a next one.
pub(super) const DEPTH: usize = 4;

/// Bytes of the smallest buffer.
const LEAST: usize = 1 << 16;

/// Copies under way, each with what it is.
pub(super) struct Ring<'a, Tag> {
    driver: &'a dyn Driver,
    flying: VecDeque<(Vec<Box<dyn Transfer>>, Tag)>,
    pub(super) bytes: u64,
}

/// What has landed: one piece of host memory for each array, with its bytes.
pub(super) type Landed = Vec<Box<dyn HostMemory>>;

impl<'a, Tag> Ring<'a, Tag> {
    pub(super) fn new(driver: &'a dyn Driver) -> Self {
        Ring { driver, flying: VecDeque::new(), bytes: 0 }
    }

    /// Sends pieces of arrays, (address, bytes) each, off together. What this makes too many is
    /// landed first, the oldest.
    pub(super) fn send<E: From<super::driver::Fault>>(
        &mut self,
        stream: usize,
        pieces: &[(u64, usize)],
        tag: Tag,
        land: &mut impl FnMut(Tag, Landed) -> core::result::Result<(), E>,
    ) -> core::result::Result<(), E> {
        while self.flying.len() >= DEPTH {
            self.land_one(land)?;
        }
        let mut transfers = Vec::with_capacity(pieces.len());
        for &(address, bytes) in pieces {
            // Few different sizes, so that buffers are used again.
            let host = self.driver.pin(bytes.next_power_of_two().max(LEAST))?;
            transfers.push(self.driver.copy_out(stream, address, host, bytes)?);
            self.bytes += bytes as u64;
        }
        self.flying.push_back((transfers, tag));
        Ok(())
    }

    /// Lands all that is under way.
    pub(super) fn drain<E: From<super::driver::Fault>>(
        &mut self,
        land: &mut impl FnMut(Tag, Landed) -> core::result::Result<(), E>,
    ) -> core::result::Result<(), E> {
        while !self.flying.is_empty() {
            self.land_one(land)?;
        }
        Ok(())
    }

    fn land_one<E: From<super::driver::Fault>>(
        &mut self,
        land: &mut impl FnMut(Tag, Landed) -> core::result::Result<(), E>,
    ) -> core::result::Result<(), E> {
        let Some((transfers, tag)) = self.flying.pop_front() else { return Ok(()) };
        let landed: Result<Landed> =
            transfers.into_iter().map(|transfer| transfer.wait()).collect();
        land(tag, landed?)
    }
}

/// Copies numbers of the device into memory of the host, `chunk` bytes at a time. Gives the
/// bytes that were moved.
pub(super) fn land<V: bytemuck::Pod + Send + Sync>(
    stage: &Stage,
    pool: &Pool,
    chunk: usize,
    address: u64,
    out: &mut [V],
) -> crate::error::Result<u64> {
    let (len, size) = (out.len(), size_of::<V>());
    let chunk = (chunk / size).max(1);
    let mut ring = Ring::new(&*stage.driver);
    let mut place = |start: usize, landed: Landed| -> crate::error::Result<()> {
        let to = &mut out[start..len.min(start + chunk)];
        let from = values::<V>(&*landed[0], 0, size_of_val(to));
        pool.install(|| copy(to, from));
        Ok(())
    };
    for start in (0..len).step_by(chunk) {
        let bytes = chunk.min(len - start) * size;
        let piece = (address + (start * size) as u64, bytes);
        ring.send(stage.stream, &[piece], start, &mut place)?;
    }
    ring.drain(&mut place)?;
    Ok(ring.bytes)
}

/// Copies with all threads of the pool.
pub(super) fn copy<V: Copy + Send + Sync>(to: &mut [V], from: &[V]) {
    // Two megabytes: huge pages of fresh memory are each met by one thread.
    let piece = (2 << 20) / size_of::<V>();
    let copy = |(to, from): (&mut [V], &[V])| to.copy_from_slice(from);
    to.par_chunks_mut(piece).zip(from.par_chunks(piece)).for_each(copy);
}
