//! The CUDA driver as a [`Driver`].
//!
//! One GPU is opened once for the whole process, and nothing of it is ever closed: the end of
//! the process does that, in an order that a library cannot arrange. So handles never dangle,
//! and what belongs to the device can refer to it for ever.
//!
//! `probe` finds driver and GPU and `verdict` judges them; `api` is the driver's functions;
//! `memory` (with `cache`), `transfer` and `kernel` do what is asked.

#![allow(unsafe_code)]

use core::ffi::c_int;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::null_mut;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::sys::{CUctx_st, CUevent_st, CUstream_flags, CUstream_st};

use self::api::{Api, Refusal, call};
use self::cache::Cache;
use self::kernel::Kernels;
use super::driver::{
    Args, Driver, HostMemory, Kernel, Properties, Result, STREAMS, Transfer, URGENT,
};

mod api;
mod cache;
mod kernel;
mod memory;
mod probe;
#[cfg(test)]
mod tests;
mod transfer;
mod verdict;

/// The device of this process; or why there is none, which is found out once.
pub(super) fn open() -> core::result::Result<Arc<Cuda>, String> {
    static DEVICE: OnceLock<core::result::Result<Device, String>> = OnceLock::new();
    static SHARED: OnceLock<Arc<Cuda>> = OnceLock::new();
    match DEVICE.get_or_init(Device::open) {
        // The same for all: what is known of a driver is known of it by its place.
        Ok(device) => Ok(SHARED.get_or_init(|| Arc::new(Cuda(device))).clone()),
        Err(reason) => Err(reason.clone()),
    }
}

/// The device of this process as others see it.
pub(super) struct Cuda(&'static Device);

/// A GPU, its context, and all that was ever made there.
struct Device {
    api: Api,
    context: Handle<CUctx_st>,
    properties: Properties,
    streams: [Stream; STREAMS],
    /// Events that nobody uses.
    events: Mutex<Vec<Handle<CUevent_st>>>,
    /// Device memory that nobody uses.
    kept: Mutex<Cache>,
    /// Pinned memory that nobody uses.
    kept_pinned: Mutex<Cache>,
    /// The blocks of device memory in use: bytes by address.
    used: Mutex<HashMap<u64, usize>>,
    kernels: Kernels,
}

type Stream = Handle<CUstream_st>;

/// What the driver calls something by: an address that only the driver looks at.
struct Handle<T>(*mut T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

// SAFETY: a handle is never dereferenced here, and the driver takes it from any thread.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above; and calls with the same handle from several threads are the driver's to
// put in order, as its manual says.
unsafe impl<T> Sync for Handle<T> {}

impl Device {
    fn open() -> core::result::Result<Self, String> {
        let probe::Gpu { api, context, properties } = probe::probe()?;
        let kept = memory::kept(properties.memory);
        let mut device = Device {
            api,
            context: Handle(context),
            properties,
            streams: [Handle(null_mut()); STREAMS],
            events: Mutex::default(),
            kept: Mutex::new(Cache::new(kept)),
            kept_pinned: Mutex::new(Cache::new(memory::KEPT_PINNED)),
            used: Mutex::default(),
            kernels: Kernels::default(),
        };
        match device.new_streams() {
            Ok(streams) => device.streams = streams,
            Err(refusal) => {
                let name = &device.properties.name;
                return Err(verdict::not_opened(name, refusal.code, &refusal.to_string()));
            }
        }
        Ok(device)
    }

    fn new_streams(&self) -> core::result::Result<[Stream; STREAMS], Refusal> {
        let _current = self.enter()?;
        let mut streams = [Handle(null_mut()); STREAMS];
        for (number, stream) in streams.iter_mut().enumerate() {
            // Work of other users of the context, on its default stream, is not waited for.
            let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            // The lower, the sooner; the driver takes the nearest that it has.
            let rank = if number == URGENT { c_int::MIN } else { 0 };
            // SAFETY: the address is that of a handle to be written.
            unsafe { call!(self.api, cuStreamCreateWithPriority(&mut stream.0, flags, rank)) }?;
        }
        Ok(streams)
    }

    /// Makes the context current in this thread. Where there is none it stays so, as a thread
    /// calls again and again. Where another one is current, somebody else uses CUDA in this
    /// thread and counts on it, so it is current again when the guard is dropped. That is asked
    /// for each time rather than remembered, for it may change between two calls; to ask costs
    /// a hundredth of what any other call does.
    fn enter(&self) -> core::result::Result<Current<'_>, Refusal> {
        let context = self.context.0;
        let mut current = null_mut();
        // SAFETY: the address is that of a handle to be written.
        unsafe { call!(self.api, cuCtxGetCurrent(&mut current)) }?;
        // SAFETY: the context is retained until the process ends.
        unsafe {
            if current.is_null() {
                call!(self.api, cuCtxSetCurrent(context))?;
            } else if current != context {
                call!(self.api, cuCtxPushCurrent_v2(context))?;
                return Ok(Current { pushed: Some(&self.api), thread: PhantomData });
            }
        }
        Ok(Current { pushed: None, thread: PhantomData })
    }
}

/// While it is there, the context is current in this thread, from which it cannot go.
struct Current<'a> {
    pushed: Option<&'a Api>,
    thread: PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if let Some(api) = self.pushed {
            let mut context = null_mut();
            // SAFETY: the address is that of a handle to be written; what is popped is what
            // this guard's maker pushed, since guards of a thread go in the order of their scopes.
            let _ = unsafe { call!(api, cuCtxPopCurrent_v2(&mut context)) };
        }
    }
}

/// Locks. A panic in another thread leaves nothing half done under any lock here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cuda").field(&self.0.properties).finish()
    }
}

impl Driver for Cuda {
    fn properties(&self) -> &Properties {
        &self.0.properties
    }

    fn free_memory(&self) -> Result<u64> {
        self.0.free_memory()
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.0.allocate(bytes)
    }

    unsafe fn release(&self, address: u64, _: usize) {
        self.0.release(address);
    }

    fn pin(&self, bytes: usize) -> Result<Box<dyn HostMemory>> {
        self.0.pin(bytes)
    }

    unsafe fn copy_in(
        &self,
        stream: usize,
        from: Box<dyn HostMemory>,
        to: u64,
        bytes: usize,
    ) -> Result<Box<dyn Transfer>> {
        self.0.copy_in(stream, from, to, bytes)
    }

    unsafe fn copy_out(
        &self,
        stream: usize,
        from: u64,
        to: Box<dyn HostMemory>,
        bytes: usize,
    ) -> Result<Box<dyn Transfer>> {
        self.0.copy_out(stream, from, to, bytes)
    }

    unsafe fn fill(&self, stream: usize, address: u64, word: u32, words: usize) -> Result<()> {
        if words == 0 {
            return Ok(());
        }
        let _current = self.0.enter()?;
        let stream = self.0.streams[stream].0;
        // SAFETY: the caller says that the words are allocated; the stream is never destroyed.
        Ok(unsafe { call!(self.0.api, cuMemsetD32Async(address, word, words, stream)) }?)
    }

    fn kept_host_memory(&self) -> u64 {
        lock(&self.0.kept_pinned).bytes() as u64
    }

    unsafe fn launch(
        &self,
        stream: usize,
        kernel: Kernel,
        blocks: u32,
        threads: u32,
        args: &Args,
    ) -> Result<()> {
        self.0.launch(stream, kernel, blocks, threads, args)
    }

    fn order(&self, stream: usize, after: usize) -> Result<()> {
        self.0.order(stream, after)
    }

    fn synchronize(&self, stream: usize) -> Result<()> {
        let _current = self.0.enter()?;
        // SAFETY: the stream is never destroyed.
        Ok(unsafe { call!(self.0.api, cuStreamSynchronize(self.0.streams[stream].0)) }?)
    }
}
