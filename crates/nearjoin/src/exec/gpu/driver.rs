//! What the GPU engine asks of a device: memory, streams, copies, launches.
//!
//! The trait is small so that it can be implemented twice: by the CUDA driver, and by
//! `nearjoin-simt`, which runs the kernels' own sources on the CPU for tests.
//!
//! Protocol: work is submitted to numbered *streams*. Work of one stream runs in the order
//! of submission; work of different streams in any order, unless [`Driver::order`] says
//! otherwise. Every method but those that say so returns at once, before the work is done.
//! Device memory is named by its address and never seen by the host; what crosses over goes
//! through *host memory* of the driver's own, which a copy takes by value and gives back
//! when it is complete. So nobody can look at memory that the device may still write.
//!
//! An address is trusted: a device writes wherever it is told. So what takes one is `unsafe`, and
//! `Stage` of `device.rs` alone calls it, with addresses of its own arrays.

// What takes an address is declared unsafe here; nothing unsafe is done.
#![allow(unsafe_code)]

use core::fmt;

use nearjoin_kernels::Module;

/// The result of a request to a device.
pub type Result<T> = core::result::Result<T, Fault>;

/// Why a device did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// There is not enough memory, of the device or that it can copy from.
    Memory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// A call failed, or the device is gone. Nothing more can be expected of it.
    Failed {
        /// What the driver said, as a clause that follows a colon.
        reason: String,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Memory { bytes } => {
                write!(f, "it has no {} of memory to spare", crate::stats::bytes(*bytes as u64))
            }
            Fault::Failed { reason } => write!(f, "{reason}"),
        }
    }
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Properties {
    /// The name its maker gave it.
    pub name: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Compute capability.
    pub capability: (u32, u32),
    /// The CUDA version that the driver supports.
    pub driver: (u32, u32),
}

impl Properties {
    /// A device without a driver of its own: for implementations of [`Driver`].
    pub fn new(name: impl Into<String>, memory: u64, multiprocessors: u32) -> Self {
        let name = name.into();
        Properties { name, memory, multiprocessors, capability: (7, 5), driver: (12, 0) }
    }
}

/// Streams that every driver has, numbered from 0.
pub const STREAMS: usize = 4;
/// One of them, whose kernels are begun before those that wait in others, where the driver can do that.
pub const URGENT: usize = STREAMS - 1;

/// A device and its driver.
pub trait Driver: fmt::Debug + Send + Sync {
    /// What the device is.
    fn properties(&self) -> &Properties;

    /// Bytes of device memory that are free now.
    fn free_memory(&self) -> Result<u64>;

    /// Device memory, aligned to 256 bytes, with anything in it. Waits for no stream.
    fn allocate(&self, bytes: usize) -> Result<u64>;

    /// Gives device memory back. The driver may keep it for the next request.
    ///
    /// # Safety
    /// The memory is what [`allocate`](Driver::allocate) gave out for as many bytes, and no work on
    /// it is under way or will be submitted.
    unsafe fn release(&self, address: u64, bytes: usize);

    /// Host memory that the device can copy from and to. It goes back to the driver, which
    /// may keep it for the next request, when it is dropped.
    fn pin(&self, bytes: usize) -> Result<Box<dyn HostMemory>>;

    /// Bytes of host memory that are kept for the next request.
    fn kept_host_memory(&self) -> u64 {
        0
    }

    /// Copies the first `bytes` of host memory to the device.
    ///
    /// # Safety
    /// So many bytes from the address on are allocated, until the work is done.
    unsafe fn copy_in(
        &self,
        stream: usize,
        from: Box<dyn HostMemory>,
        to: u64,
        bytes: usize,
    ) -> Result<Box<dyn Transfer>>;

    /// Copies `bytes` of the device to the beginning of host memory.
    ///
    /// # Safety
    /// As for [`copy_in`](Driver::copy_in).
    unsafe fn copy_out(
        &self,
        stream: usize,
        from: u64,
        to: Box<dyn HostMemory>,
        bytes: usize,
    ) -> Result<Box<dyn Transfer>>;

    /// Sets words of device memory.
    ///
    /// # Safety
    /// As for [`copy_in`](Driver::copy_in).
    unsafe fn fill(&self, stream: usize, address: u64, word: u32, words: usize) -> Result<()>;

    /// Runs a kernel of a module over `blocks` blocks of `threads` threads. A module is
    /// loaded when it is first asked for, which may take a while.
    ///
    /// # Safety
    /// The arguments are those of the kernel, and the memory that it reads and writes by them is
    /// allocated until the work is done.
    unsafe fn launch(
        &self,
        stream: usize,
        kernel: Kernel,
        blocks: u32,
        threads: u32,
        args: &Args,
    ) -> Result<()>;

    /// Makes later work of `stream` wait for what `after` has been given so far.
    fn order(&self, stream: usize, after: usize) -> Result<()>;

    /// Waits until a stream has done all its work, and reports what went wrong there.
    fn synchronize(&self, stream: usize) -> Result<()>;
}

/// Host memory that a device can copy from and to, aligned to at least 64 bytes.
pub trait HostMemory: Send {
    /// What it holds.
    fn bytes(&self) -> &[u8];
    /// What it holds, to be written.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// A copy under way. Dropping it waits for its end.
pub trait Transfer: Send {
    /// Waits, and gives the host memory back.
    fn wait(self: Box<Self>) -> Result<Box<dyn HostMemory>>;
}

/// A kernel by its name in a module.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The module.
    pub module: Module,
    /// The name of the kernel there.
    pub name: &'static str,
}

/// The arguments of a kernel: values one after the other, each aligned to its size.
#[derive(Clone, Debug, Default)]
pub struct Args {
    bytes: Vec<u8>,
    offsets: Vec<usize>,
}

impl Args {
    /// No arguments yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn push(mut self, align: usize, value: &[u8]) -> Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(align), 0);
        self.offsets.push(self.bytes.len());
        self.bytes.extend_from_slice(value);
        self
    }

    /// A 32-bit number.
    pub fn u32(self, value: u32) -> Self {
        self.push(4, &value.to_ne_bytes())
    }

    /// A 64-bit number, or an address.
    pub fn u64(self, value: u64) -> Self {
        self.push(8, &value.to_ne_bytes())
    }

    /// A number of single precision.
    pub fn f32(self, value: f32) -> Self {
        self.push(4, &value.to_ne_bytes())
    }

    /// A number of double precision.
    pub fn f64(self, value: f64) -> Self {
        self.push(8, &value.to_ne_bytes())
    }

    /// A structure of 64-bit members.
    pub fn structure(self, words: &[u64]) -> Self {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.push(8, &bytes)
    }

    /// The values as they lie in memory. The first byte must be aligned to 8 where they are
    /// used.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where each value begins.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }
}
