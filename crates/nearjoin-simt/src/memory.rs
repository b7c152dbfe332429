//! Memory: of the device, which is named by its address, and of the host.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nearjoin::gpu::driver::{Fault, HostMemory, Result};

/// What memory holds that nobody has written.
const UNWRITTEN: u8 = 0xa5;

/// Bytes of the system's, aligned to 256.
pub(crate) struct Bytes {
    start: NonNull<u8>,
    layout: Layout,
    len: usize,
}

// SAFETY: it owns its memory, as a `Box<[u8]>` does.
unsafe impl Send for Bytes {}

impl Bytes {
    fn new(len: usize) -> Result<Self> {
        // The system has no allocations of no bytes, and nobody may touch the one there is.
        let fault = Fault::Memory { bytes: len };
        let layout = Layout::from_size_align(len.max(1), 256).map_err(|_| fault.clone())?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc(layout) }).ok_or(fault)?;
        // SAFETY: these bytes were just allocated.
        unsafe { start.write_bytes(UNWRITTEN, layout.size()) };
        Ok(Bytes { start, layout, len })
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and given back once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// The memory of a device.
pub(crate) struct Memory {
    pub(crate) limit: u64,
    used: u64,
    live: BTreeMap<u64, Bytes>,
    /// How many pieces of host memory are out. They may outlive the table.
    pins: Arc<AtomicUsize>,
}

impl Memory {
    pub(crate) fn new(limit: u64) -> Self {
        Memory { limit, used: 0, live: BTreeMap::new(), pins: Arc::default() }
    }

    pub(crate) fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn allocate(&mut self, len: usize) -> Result<u64> {
        if len as u64 > self.free() {
            return Err(Fault::Memory { bytes: len });
        }
        let bytes = Bytes::new(len)?;
        let address = bytes.start.as_ptr().expose_provenance() as u64;
        self.used += len as u64;
        self.live.insert(address, bytes);
        Ok(address)
    }

    pub(crate) fn release(&mut self, address: u64, len: usize) {
        match self.live.remove(&address) {
            Some(bytes) if bytes.len == len => self.used -= len as u64,
            Some(bytes) => panic!("{len} bytes released of an allocation of {}", bytes.len),
            None => panic!("memory at {address:#x} was released that is not allocated"),
        }
    }

    /// The memory from `address` on, which must lie within one allocation.
    fn within(&self, address: u64, len: usize) -> NonNull<u8> {
        let found = self.live.range(..=address).next_back().and_then(|(start, bytes)| {
            let offset = usize::try_from(address - start).ok()?;
            let fits = offset.checked_add(len)? <= bytes.len;
            // SAFETY: the offset lies within the allocation.
            fits.then(|| unsafe { bytes.start.add(offset) })
        });
        found.unwrap_or_else(|| panic!("{len} bytes at {address:#x} are not in one allocation"))
    }

    pub(crate) fn write(&mut self, address: u64, from: &[u8]) {
        let to = self.within(address, from.len());
        // SAFETY: so many bytes of an allocation, which only kernels and this table name, and
        // no kernel runs while the table is borrowed.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(from).cast(), from.len()) }
    }

    pub(crate) fn read(&self, address: u64, to: &mut [u8]) {
        let from = self.within(address, to.len());
        // SAFETY: as for `write`; all bytes of an allocation were written when it was made.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *to).cast(), to.len()) }
    }

    pub(crate) fn pin(&self, len: usize) -> Result<Box<dyn HostMemory>> {
        let bytes = Bytes::new(len)?;
        self.pins.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Pinned { bytes, pins: Arc::clone(&self.pins) }))
    }

    /// What is allocated, each in words.
    pub(crate) fn live(&self) -> Vec<String> {
        let device = self
            .live
            .iter()
            .map(|(address, bytes)| format!("{} bytes of the device at {address:#x}", bytes.len));
        let host = vec!["host memory".into(); self.pins.load(Ordering::Relaxed)];
        device.chain(host).collect()
    }
}

struct Pinned {
    bytes: Bytes,
    pins: Arc<AtomicUsize>,
}

impl HostMemory for Pinned {
    fn bytes(&self) -> &[u8] {
        // SAFETY: all of it is written when it is made, and borrowed as `self` is.
        unsafe { NonNull::slice_from_raw_parts(self.bytes.start, self.bytes.len).as_ref() }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`.
        unsafe { NonNull::slice_from_raw_parts(self.bytes.start, self.bytes.len).as_mut() }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.pins.fetch_sub(1, Ordering::Relaxed);
    }
}
