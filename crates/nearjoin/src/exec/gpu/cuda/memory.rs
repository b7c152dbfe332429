//! Memory of the device, and memory of the host that it can copy from and to.

use core::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use core::slice;

use super::api::call;
use super::cache::{Block, rounded};
use super::{Device, lock};
use crate::exec::gpu::driver::{Fault, HostMemory, Result};

/// Device memory that is kept, at most, of so much that the device has. It serves the buffers of a
/// stream of joins of some ten million points, or of a million for each gigabyte of the device;
/// other programs might want the rest, and the smallest devices that are served have 4 GiB. To give
/// a gigabyte back and ask for it again takes about a millisecond.
pub(super) fn kept(memory: u64) -> usize {
    usize::try_from(memory / 16).unwrap_or(usize::MAX).max(1 << 30)
}

/// Pinned memory that is kept, at most: what one join has at a time, with points on their way
/// to the device, offsets and a ring of results on theirs to the host, and the pieces that are
/// being copied out of it. Pinning it again would take longer than the join. It cannot be
/// swapped out, so the whole machine is short of it.
pub(super) const KEPT_PINNED: usize = 256 << 20;

/// Where memory lies.
#[derive(Clone, Copy)]
enum Place {
    Device,
    Host,
}

impl Device {
    pub(super) fn free_memory(&self) -> Result<u64> {
        let _current = self.enter()?;
        let (mut free, mut all) = (0, 0);
        // SAFETY: both addresses are of numbers to be written.
        unsafe { call!(self.api, cuMemGetInfo_v2(&mut free, &mut all)) }?;
        Ok((free + lock(&self.kept).bytes()) as u64)
    }

    pub(super) fn allocate(&self, bytes: usize) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let block = self.obtain(Place::Device, bytes)?;
        lock(&self.used).insert(block.address, block.bytes);
        Ok(block.address)
    }

    /// The block at an address may be larger than what was asked for, so its size is looked
    /// up. An address that is not known is that of nothing, or was given back before.
    pub(super) fn release(&self, address: u64) {
        if let Some(bytes) = lock(&self.used).remove(&address) {
            self.give_back(Place::Device, Block { address, bytes });
        }
    }

    pub(super) fn pin(&'static self, bytes: usize) -> Result<Box<dyn HostMemory>> {
        let block = match bytes {
            0 => None,
            _ => Some(self.obtain(Place::Host, bytes)?),
        };
        Ok(Box::new(Pinned { device: self, block, bytes }))
    }

    /// A block that was kept, or else a new one; for which, if it must be, all that is kept is
    /// given up.
    fn obtain(&self, place: Place, bytes: usize) -> Result<Block> {
        let size = rounded(bytes).ok_or(Fault::Memory { bytes })?;
        if let Some(block) = lock(self.cache(place)).take(size) {
            return Ok(block);
        }
        let result = match self.new_block(place, size) {
            Err(Fault::Memory { .. }) => {
                let kept = lock(self.cache(place)).empty();
                kept.into_iter().for_each(|block| self.free(place, block));
                self.new_block(place, size)
            }
            result => result,
        };
        match result {
            Err(Fault::Memory { .. }) => Err(Fault::Memory { bytes }),
            result => result,
        }
    }

    fn give_back(&self, place: Place, block: Block) {
        let too_many = lock(self.cache(place)).keep(block);
        too_many.into_iter().for_each(|block| self.free(place, block));
    }

    fn cache(&self, place: Place) -> &std::sync::Mutex<super::Cache> {
        match place {
            Place::Device => &self.kept,
            Place::Host => &self.kept_pinned,
        }
    }

    fn new_block(&self, place: Place, bytes: usize) -> Result<Block> {
        let _current = self.enter()?;
        let address = match place {
            Place::Device => {
                let mut address = 0;
                // SAFETY: the address is that of a number to be written.
                unsafe { call!(self.api, cuMemAlloc_v2(&mut address, bytes)) }
                    .map_err(|refusal| refusal.of(bytes))?;
                address
            }
            Place::Host => {
                let mut pointer = null_mut();
                // SAFETY: the address is that of a pointer to be written; and what it then
                // points to are as many bytes that nobody else knows of. They are set once, so
                // that whoever is given them, now or later, can have them as a slice.
                unsafe {
                    call!(self.api, cuMemHostAlloc(&mut pointer, bytes, 0))
                        .map_err(|refusal| refusal.of(bytes))?;
                    pointer.cast::<u8>().write_bytes(0, bytes);
                }
                pointer.expose_provenance() as u64
            }
        };
        Ok(Block { address, bytes })
    }

    /// Memory that the driver will not take back is lost; there is nobody to tell.
    fn free(&self, place: Place, block: Block) {
        let Ok(_current) = self.enter() else { return };
        // SAFETY: the block came from `new_block` of the same place, and whoever had it gave
        // it back, so that no work on it is under way: `Driver::release` asks for that, and
        // pinned memory is with its transfer until the copy is complete.
        let _ = unsafe {
            match place {
                Place::Device => call!(self.api, cuMemFree_v2(block.address)),
                Place::Host => {
                    let pointer = with_exposed_provenance_mut(block.address as usize);
                    call!(self.api, cuMemFreeHost(pointer))
                }
            }
        };
    }
}

/// Host memory that the device can copy from and to: the first bytes of a block, whose only
/// owner it is.
struct Pinned {
    device: &'static Device,
    block: Option<Block>,
    bytes: usize,
}

impl HostMemory for Pinned {
    fn bytes(&self) -> &[u8] {
        let Some(block) = self.block else { return &[] };
        let pointer = with_exposed_provenance(block.address as usize);
        // SAFETY: the block has at least so many bytes, which were set when it was new, and is
        // owned by `self`; the device writes it only while a transfer owns `self`.
        unsafe { slice::from_raw_parts(pointer, self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let Some(block) = self.block else { return &mut [] };
        let pointer = with_exposed_provenance_mut(block.address as usize);
        // SAFETY: as in `bytes`; and `self` is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(pointer, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(block) = self.block {
            self.device.give_back(Place::Host, block);
        }
    }
}
