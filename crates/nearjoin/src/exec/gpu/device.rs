//! A device as the engine uses it: arrays that are given back, launches by name, small reads.

use core::cell::RefCell;
use core::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;
use nearjoin_kernels::Module;

use super::driver::{Args, Driver, HostMemory, Kernel, Properties, Result};

/// Threads of a block, of every kernel but those that say otherwise.
pub(super) const THREADS: u32 = 256;

/// A device that is open.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(super) driver: Arc<dyn Driver>,
}

/// An array in device memory.
#[derive(Debug)]
pub(super) struct Array<T> {
    memory: Arc<Memory>,
    len: usize,
    elements: PhantomData<T>,
}

#[derive(Debug)]
struct Memory {
    driver: Arc<dyn Driver>,
    address: u64,
    bytes: usize,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.driver.release(self.address, self.bytes);
    }
}

impl<T> Array<T> {
    pub(super) fn address(&self) -> u64 {
        self.memory.address
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.memory.bytes
    }
}

/// A stream, and the memory that its work may still use.
///
/// Arrays may be dropped while work on them is under way: the stage that they come from
/// holds on to their memory until [`Stage::finish`] has waited for the stream.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) driver: Arc<dyn Driver>,
    pub(super) stream: usize,
    held: RefCell<Vec<Arc<Memory>>>,
}

impl Device {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Self {
        Device { driver }
    }

    pub(crate) fn properties(&self) -> &Properties {
        self.driver.properties()
    }

    /// Bytes of memory that are free.
    pub(crate) fn free_memory(&self) -> Result<u64> {
        self.driver.free_memory()
    }

    pub(super) fn stage(&self, stream: usize) -> Stage {
        Stage { driver: self.driver.clone(), stream, held: RefCell::default() }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !self.held.borrow().is_empty() {
            // What went wrong there is told by whoever waits for results.
            let _ = self.driver.synchronize(self.stream);
        }
    }
}

impl Stage {
    /// Waits for all work, and lets go of memory that nobody else holds.
    pub(super) fn finish(&self) -> Result<()> {
        self.driver.synchronize(self.stream)?;
        self.held.borrow_mut().clear();
        Ok(())
    }

    /// An array with anything in it.
    pub(super) fn array<T>(&self, len: usize) -> Result<Array<T>> {
        let bytes = len * size_of::<T>();
        let address = self.driver.allocate(bytes)?;
        let memory = Arc::new(Memory { driver: self.driver.clone(), address, bytes });
        self.held.borrow_mut().push(memory.clone());
        Ok(Array { memory, len, elements: PhantomData })
    }

    /// The same, if it is wanted.
    pub(super) fn array_if<T>(&self, wanted: bool, len: usize) -> Result<Option<Array<T>>> {
        if wanted { self.array(len).map(Some) } else { Ok(None) }
    }

    /// An array of which all bits are zero.
    pub(super) fn zeroed<T>(&self, len: usize) -> Result<Array<T>> {
        let array = self.array(len)?;
        self.zero(&array)?;
        Ok(array)
    }

    pub(super) fn zero<T>(&self, array: &Array<T>) -> Result<()> {
        const { assert!(size_of::<T>().is_multiple_of(4)) };
        self.driver.fill(self.stream, array.address(), 0, array.bytes() / 4)
    }

    /// A copy of a few values.
    pub(super) fn copy_of<T: Pod>(&self, values: &[T]) -> Result<Array<T>> {
        let array = self.array(values.len())?;
        if values.is_empty() {
            return Ok(array);
        }
        let mut host = self.driver.pin(array.bytes())?;
        host.bytes_mut()[..array.bytes()].copy_from_slice(bytemuck::cast_slice(values));
        self.driver.copy_in(self.stream, host, array.address(), array.bytes())?.wait()?;
        Ok(array)
    }

    /// Waits for the stream, and reads the first values of an array.
    pub(super) fn read<T: Pod>(&self, array: &Array<T>, len: usize) -> Result<Vec<T>> {
        self.read_at(array.address(), len.min(array.len()))
    }

    /// Waits for the stream, and reads values from an address on.
    pub(super) fn read_at<T: Pod>(&self, address: u64, len: usize) -> Result<Vec<T>> {
        let bytes = len * size_of::<T>();
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let host = self.driver.pin(bytes)?;
        let host = self.driver.copy_out(self.stream, address, host, bytes)?.wait()?;
        Ok(values(&*host, 0, bytes).to_vec())
    }

    /// Runs a kernel with at least `threads` threads.
    pub(super) fn launch(
        &self,
        module: &'static Module,
        name: &'static str,
        threads: u64,
        args: Args,
    ) -> Result<()> {
        self.launch_blocks(module, name, threads.div_ceil(u64::from(THREADS)), THREADS, args)
    }

    /// Runs a kernel over blocks.
    pub(super) fn launch_blocks(
        &self,
        module: &'static Module,
        name: &'static str,
        blocks: u64,
        threads: u32,
        args: Args,
    ) -> Result<()> {
        // The most threads that a kernel of ours asks for are 2³² · 32 or a thread for each
        // number of the input, which fits any device: fewer blocks than 2³¹ either way.
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        if blocks == 0 {
            return Ok(());
        }
        self.driver.launch(self.stream, Kernel { module, name }, blocks, threads, &args)
    }
}

/// Part of host memory as values.
pub(super) fn values<T: Pod>(host: &dyn HostMemory, start: usize, bytes: usize) -> &[T] {
    bytemuck::cast_slice(&host.bytes()[start..start + bytes])
}
