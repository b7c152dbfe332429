//! A device as the engine uses it: arrays that are given back, launches by name, copies of arrays.
//!
//! This is the one place that calls what a [`Driver`] takes addresses for. Why that is sound:
//!
//! - addresses are those of [`Array`]s, and a piece of one is checked to lie within it;
//! - memory outlives the work on it: a [`Stage`] holds on to what it allocates, fills and copies
//!   until it has waited for its stream, and waits before it goes. What a kernel is told of beside
//!   that belongs to a join or to rows that are found, which outlive the stages of their batches;
//! - what a kernel is told is put together in this folder, from arrays as long as the kernel's
//!   source asks for; tests run the same sources with every access checked.

#![allow(unsafe_code)]

use core::cell::RefCell;
use core::marker::PhantomData;
use core::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use nearjoin_kernels::{Module, Tile};

use super::driver::{Args, Driver, HostMemory, Kernel, Result, Transfer};
use crate::plan::GpuFacts;

/// Threads of a block, of every kernel but those that say otherwise.
pub(super) const THREADS: u32 = 256;
/// Bytes of the smallest piece of host memory.
const LEAST: usize = 1 << 16;

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
        // SAFETY: nobody else gives it back; the stages that have given work on it hold on to it
        // until that is done, and nobody can give more.
        unsafe { self.driver.release(self.address, self.bytes) };
    }
}

/// A part of an array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    memory: &'a Arc<Memory>,
    start: usize,
    bytes: usize,
}

impl Piece<'_> {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn address(&self) -> u64 {
        self.memory.address + self.start as u64
    }
}

impl<T> Array<T> {
    /// Where it lies, for the arguments of kernels.
    pub(super) fn address(&self) -> u64 {
        self.memory.address
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.memory.bytes
    }

    /// Some of its elements.
    pub(super) fn piece(&self, elements: Range<usize>) -> Piece<'_> {
        assert!(elements.start <= elements.end && elements.end <= self.len, "{elements:?}");
        let size = size_of::<T>();
        let (start, bytes) = (elements.start * size, elements.len() * size);
        Piece { memory: &self.memory, start, bytes }
    }
}

/// A stream, and the memory that its work may still use.
///
/// Arrays may be dropped while work on them is under way: the stage holds on to their memory
/// until [`Stage::finish`] has waited for the stream.
pub(super) struct Stage {
    driver: Arc<dyn Driver>,
    stream: usize,
    held: RefCell<Vec<Arc<Memory>>>,
    /// Copies to the device that nobody waits for before that.
    sent: RefCell<Vec<Box<dyn Transfer>>>,
}

impl Device {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Self {
        Device { driver }
    }

    /// What a plan asks of it.
    pub(crate) fn facts(&self) -> crate::error::Result<GpuFacts> {
        let properties = self.driver.properties();
        Ok(GpuFacts {
            name: properties.name.clone(),
            memory: properties.memory,
            free: self.driver.free_memory()?,
            multiprocessors: properties.multiprocessors,
            matrix_units: self.has_matrix_units(),
        })
    }

    /// Whether it has the matrix units that products need.
    pub(super) fn has_matrix_units(&self) -> bool {
        let least = Module::Product(Tile::Narrow).least_capability();
        self.driver.properties().capability >= least
    }

    /// Host memory for so many bytes.
    pub(super) fn pin(&self, bytes: usize) -> Result<Box<dyn HostMemory>> {
        self.driver.pin(bytes)
    }

    /// Bytes of host memory that are pinned already.
    pub(super) fn kept_host_memory(&self) -> u64 {
        self.driver.kept_host_memory()
    }

    pub(super) fn stage(&self, stream: usize) -> Stage {
        let (held, sent) = (RefCell::default(), RefCell::default());
        Stage { driver: self.driver.clone(), stream, held, sent }
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
        self.wait()?;
        self.sent.borrow_mut().clear();
        self.held.borrow_mut().clear();
        Ok(())
    }

    /// How much it holds: what [`Stage::finish_since`] leaves.
    pub(super) fn mark(&self) -> usize {
        self.held.borrow().len()
    }

    /// Waits for all work, and lets go of what it has come to hold since then.
    pub(super) fn finish_since(&self, mark: usize) -> Result<()> {
        self.wait()?;
        self.held.borrow_mut().truncate(mark);
        Ok(())
    }

    /// Has what this stage is given from now on wait for what another one was given so far.
    pub(super) fn wait_for(&self, other: &Stage) -> Result<()> {
        self.driver.order(self.stream, other.stream)
    }

    /// Waits for all work. It ends: a device does what it was given or says that it is lost.
    pub(super) fn wait(&self) -> Result<()> {
        self.driver.synchronize(self.stream)
    }

    /// Holds on to memory that work is given.
    fn hold(&self, memory: &Arc<Memory>) {
        let mut held = self.held.borrow_mut();
        if held.last().is_none_or(|last| !Arc::ptr_eq(last, memory)) {
            held.push(memory.clone());
        }
    }

    /// The same, of an array that another stage made.
    pub(super) fn hold_on<T>(&self, array: &Array<T>) {
        self.hold(&array.memory);
    }

    /// An array with anything in it.
    pub(super) fn array<T>(&self, len: usize) -> Result<Array<T>> {
        let bytes = len * size_of::<T>();
        let address = self.driver.allocate(bytes)?;
        let memory = Arc::new(Memory { driver: self.driver.clone(), address, bytes });
        self.hold(&memory);
        Ok(Array { memory, len, elements: PhantomData })
    }

    /// The same, if it is wanted.
    pub(super) fn array_if<T>(&self, wanted: bool, len: usize) -> Result<Option<Array<T>>> {
        if wanted { self.array(len).map(Some) } else { Ok(None) }
    }

    /// An array of which all bits are zero.
    pub(super) fn zeroed<T>(&self, len: usize) -> Result<Array<T>> {
        const { assert!(size_of::<T>().is_multiple_of(4)) };
        let array = self.array(len)?;
        self.fill(array.piece(0..len), 0)?;
        Ok(array)
    }

    /// Sets every word of a piece.
    pub(super) fn fill(&self, piece: Piece<'_>, word: u32) -> Result<()> {
        self.hold(piece.memory);
        // SAFETY: the piece lies within memory that the stage holds.
        unsafe { self.driver.fill(self.stream, piece.address(), word, piece.bytes / 4) }
    }

    /// A copy of a few values.
    pub(super) fn copy_of<T: Pod>(&self, values: &[T]) -> Result<Array<T>> {
        let array = self.array(values.len())?;
        if values.is_empty() {
            return Ok(array);
        }
        let mut host = self.driver.pin(array.bytes())?;
        host.bytes_mut()[..array.bytes()].copy_from_slice(bytemuck::cast_slice(values));
        let copy = self.copy_in(host, array.piece(0..values.len()))?;
        self.keep([copy]);
        Ok(array)
    }

    /// Holds on to copies to the device until [`Stage::finish`]: what the stream is given later finds
    /// them complete, and the host can go on.
    pub(super) fn keep(&self, copies: impl IntoIterator<Item = Box<dyn Transfer>>) {
        self.sent.borrow_mut().extend(copies);
    }

    /// Waits for these copies.
    pub(super) fn recycle(&self) -> Result<()> {
        for copy in self.sent.take() {
            copy.wait()?;
        }
        Ok(())
    }

    /// Sends the beginning of host memory to a piece of the device's.
    pub(super) fn copy_in(
        &self,
        from: Box<dyn HostMemory>,
        to: Piece<'_>,
    ) -> Result<Box<dyn Transfer>> {
        self.hold(to.memory);
        self.copier().copy_in(from, to)
    }

    /// What sends pieces to the device from many threads at once. The stage that it comes from
    /// holds their arrays.
    pub(super) fn copier(&self) -> Copier<'_> {
        Copier { driver: &*self.driver, stream: self.stream }
    }

    /// Sends a piece of the device's memory to the beginning of host memory, which is as large or
    /// larger.
    pub(super) fn copy_out(&self, from: Piece<'_>) -> Result<Box<dyn Transfer>> {
        // Few different sizes, so that they are used again.
        let host = self.driver.pin(from.bytes.next_power_of_two().max(LEAST))?;
        self.copy_out_to(from, host)
    }

    /// The same, to this memory.
    pub(super) fn copy_out_to(
        &self,
        from: Piece<'_>,
        to: Box<dyn HostMemory>,
    ) -> Result<Box<dyn Transfer>> {
        self.hold(from.memory);
        // SAFETY: the piece lies within memory that the stage holds.
        unsafe { self.driver.copy_out(self.stream, from.address(), to, from.bytes) }
    }

    /// Waits for the stream, and reads a piece of an array.
    pub(super) fn read<T: Pod>(&self, array: &Array<T>, of: Range<usize>) -> Result<Vec<T>> {
        let piece = array.piece(of);
        if piece.bytes == 0 {
            return Ok(Vec::new());
        }
        let host = self.copy_out_to(piece, self.driver.pin(piece.bytes)?)?.wait()?;
        Ok(values(&*host, 0, piece.bytes).to_vec())
    }

    /// Runs a kernel with at least `threads` threads.
    pub(super) fn launch(
        &self,
        module: Module,
        name: &'static str,
        threads: u64,
        args: Args,
    ) -> Result<()> {
        self.launch_blocks(module, name, threads.div_ceil(u64::from(THREADS)), THREADS, args)
    }

    /// Threads that the device runs at once.
    pub(super) fn resident_threads(&self) -> u64 {
        u64::from(self.driver.properties().multiprocessors) * 2048
    }

    /// Runs a kernel over blocks.
    pub(super) fn launch_blocks(
        &self,
        module: Module,
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
        let kernel = Kernel { module, name };
        // SAFETY: see the top of this file.
        unsafe { self.driver.launch(self.stream, kernel, blocks, threads, &args) }
    }
}

/// Sends host memory to a device, from any thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copier<'a> {
    driver: &'a dyn Driver,
    stream: usize,
}

impl Copier<'_> {
    pub(super) fn pin(&self, bytes: usize) -> Result<Box<dyn HostMemory>> {
        self.driver.pin(bytes)
    }

    /// Sends the beginning of host memory to a piece of an array of the stage.
    pub(super) fn copy_in(
        &self,
        from: Box<dyn HostMemory>,
        to: Piece<'_>,
    ) -> Result<Box<dyn Transfer>> {
        // SAFETY: the piece lies within an array of the stage, which holds it until it has waited
        // for the stream.
        unsafe { self.driver.copy_in(self.stream, from, to.address(), to.bytes) }
    }
}

/// Part of host memory as values.
pub(super) fn values<T: Pod>(host: &dyn HostMemory, start: usize, bytes: usize) -> &[T] {
    bytemuck::cast_slice(&host.bytes()[start..start + bytes])
}
