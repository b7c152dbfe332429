//! Copies between host and device, and the events that tell when they are complete.

use core::ptr::null_mut;

use cudarc::driver::sys::{CUevent_flags, CUevent_st};

use super::api::call;
use super::{Device, Handle, lock};
use crate::exec::gpu::driver::{Fault, HostMemory, Result, Transfer};

type Event = Handle<CUevent_st>;

impl Device {
    pub(super) fn copy_in(
        &'static self,
        stream: usize,
        from: Box<dyn HostMemory>,
        to: u64,
        bytes: usize,
    ) -> Result<Box<dyn Transfer>> {
        let stream = self.streams[stream];
        let submit = |memory: &mut [u8]| {
            // SAFETY: `submit` is given memory of `bytes` bytes, which stays until the copy is
            // complete. What lies at `to` is the device's: it looks after itself.
            unsafe {
                let from = memory.as_ptr().cast();
                call!(self.api, cuMemcpyHtoDAsync_v2(to, from, bytes, stream.0))?;
            }
            Ok(())
        };
        self.copy(stream, from, bytes, submit)
    }

    pub(super) fn copy_out(
        &'static self,
        stream: usize,
        from: u64,
        to: Box<dyn HostMemory>,
        bytes: usize,
    ) -> Result<Box<dyn Transfer>> {
        let stream = self.streams[stream];
        let submit = |memory: &mut [u8]| {
            // SAFETY: `submit` is given memory of `bytes` bytes, which stays, and which nobody
            // looks at, until the copy is complete.
            unsafe {
                let to = memory.as_mut_ptr().cast();
                call!(self.api, cuMemcpyDtoHAsync_v2(to, from, bytes, stream.0))?;
            }
            Ok(())
        };
        self.copy(stream, to, bytes, submit)
    }

    /// Submits a copy of the first bytes of some memory, and an event after it.
    fn copy(
        &'static self,
        stream: super::Stream,
        mut memory: Box<dyn HostMemory>,
        bytes: usize,
        submit: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Box<dyn Transfer>> {
        if bytes == 0 {
            return Ok(Box::new(Copying { device: self, event: None, memory: Some(memory) }));
        }
        let length = memory.bytes().len();
        let Some(part) = memory.bytes_mut().get_mut(..bytes) else {
            let reason = format!("a copy of {bytes} bytes from or to {length} bytes was asked for");
            return Err(Fault::Failed { reason });
        };
        let _current = self.enter()?;
        let event = self.event()?;
        match submit(part).and_then(|()| self.record(event, stream)) {
            Ok(()) => {
                Ok(Box::new(Copying { device: self, event: Some(event), memory: Some(memory) }))
            }
            Err(fault) => {
                // The copy may be under way with no event to tell its end: memory that the
                // device may write belongs to nobody any more.
                core::mem::forget(memory);
                Err(fault)
            }
        }
    }

    /// Makes later work of one stream wait for what another has been given.
    pub(super) fn order(&self, stream: usize, after: usize) -> Result<()> {
        let _current = self.enter()?;
        let event = self.event()?;
        self.record(event, self.streams[after])?;
        // SAFETY: both handles are of this context and are never destroyed.
        unsafe { call!(self.api, cuStreamWaitEvent(self.streams[stream].0, event.0, 0)) }?;
        // The wait is for what was recorded when it was submitted, whatever is recorded later.
        lock(&self.events).push(event);
        Ok(())
    }

    /// An event that nobody uses.
    fn event(&self) -> Result<Event> {
        if let Some(event) = lock(&self.events).pop() {
            return Ok(event);
        }
        let mut event = null_mut();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the address is that of a handle to be written.
        unsafe { call!(self.api, cuEventCreate(&mut event, flags)) }?;
        Ok(Handle(event))
    }

    fn record(&self, event: Event, stream: super::Stream) -> Result<()> {
        // SAFETY: both handles are of this context and are never destroyed.
        Ok(unsafe { call!(self.api, cuEventRecord(event.0, stream.0)) }?)
    }

    /// Waits for what an event was recorded after; it can then be used again.
    fn wait(&self, event: Event) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the handle is of this context and is never destroyed.
        unsafe { call!(self.api, cuEventSynchronize(event.0)) }?;
        lock(&self.events).push(event);
        Ok(())
    }
}

/// A copy under way: until its event has come, the memory is the device's.
struct Copying {
    device: &'static Device,
    event: Option<Event>,
    memory: Option<Box<dyn HostMemory>>,
}

impl Copying {
    /// Waits. When that fails, nobody knows whether the device still writes, so the memory is
    /// given up rather than given back.
    fn finish(&mut self) -> Result<()> {
        let Some(event) = self.event.take() else { return Ok(()) };
        self.device.wait(event).inspect_err(|_| core::mem::forget(self.memory.take()))
    }
}

impl Transfer for Copying {
    fn wait(mut self: Box<Self>) -> Result<Box<dyn HostMemory>> {
        self.finish()?;
        Ok(self.memory.take().expect("only a wait that fails, or this one, takes it"))
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        // Whoever drops it does not want to know; the next call to the device tells.
        let _ = self.finish();
    }
}
