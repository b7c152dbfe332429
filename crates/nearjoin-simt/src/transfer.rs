//! Copies that somebody can wait for.

use std::sync::PoisonError;

use nearjoin::gpu::driver::{HostMemory, Result, Transfer};

use crate::Simt;
use crate::state::Home;

pub(crate) struct Copy {
    pub(crate) simt: Simt,
    pub(crate) stream: usize,
    pub(crate) number: u64,
    pub(crate) home: Home,
}

impl Transfer for Copy {
    fn wait(self: Box<Self>) -> Result<Box<dyn HostMemory>> {
        let mut state = self.simt.state();
        state.call()?;
        state.finish(self.stream, self.number)?;
        drop(state);
        let memory = self.home.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(memory.expect("a copy that is done leaves its memory, and is waited for once"))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // The work may panic, and a panic while there is one ends the program with no test
        // named. A fault is told to whoever asks next.
        if !std::thread::panicking() {
            let _ = self.simt.state().finish(self.stream, self.number);
        }
    }
}
