//! What the engine asks of a device.

use nearjoin::gpu::driver::{Args, Driver, HostMemory, Kernel, Properties, Result, Transfer};

use crate::Simt;
use crate::kernel::Launch;
use crate::state::{Home, Work};
use crate::transfer::Copy;

impl Driver for Simt {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_memory(&self) -> Result<u64> {
        let mut state = self.state();
        state.call().map(|()| state.memory.free())
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.state().allocate(bytes)
    }

    unsafe fn release(&self, address: u64, bytes: usize) {
        self.state().release(address, bytes);
    }

    fn pin(&self, bytes: usize) -> Result<Box<dyn HostMemory>> {
        self.state().pin(bytes)
    }

    unsafe fn copy_in(
        &self,
        stream: usize,
        from: Box<dyn HostMemory>,
        to: u64,
        bytes: usize,
    ) -> Result<Box<dyn Transfer>> {
        let home = Home::default();
        let work = Work::CopyIn { from, to, bytes, home: Home::clone(&home) };
        let number = self.state().submit(stream, work)?;
        Ok(Box::new(Copy { simt: self.clone(), stream, number, home }))
    }

    unsafe fn copy_out(
        &self,
        stream: usize,
        from: u64,
        to: Box<dyn HostMemory>,
        bytes: usize,
    ) -> Result<Box<dyn Transfer>> {
        let home = Home::default();
        let work = Work::CopyOut { from, to, bytes, home: Home::clone(&home) };
        let number = self.state().submit(stream, work)?;
        Ok(Box::new(Copy { simt: self.clone(), stream, number, home }))
    }

    unsafe fn fill(&self, stream: usize, address: u64, word: u32, words: usize) -> Result<()> {
        self.state().submit(stream, Work::Fill { address, word, words }).map(drop)
    }

    unsafe fn launch(
        &self,
        stream: usize,
        kernel: Kernel,
        blocks: u32,
        threads: u32,
        args: &Args,
    ) -> Result<()> {
        let launch = Launch::new(kernel, blocks, threads, args);
        self.state().submit(stream, Work::Launch(launch)).map(drop)
    }

    fn order(&self, stream: usize, after: usize) -> Result<()> {
        let mut state = self.state();
        let number = state.submitted(after);
        state.submit(stream, Work::After { stream: after, number }).map(drop)
    }

    fn synchronize(&self, stream: usize) -> Result<()> {
        let mut state = self.state();
        state.call()?;
        let number = state.submitted(stream);
        state.finish(stream, number)
    }
}
