//! A [`Driver`] without a device: the kernels' own sources, compiled for the CPU.
//!
//! For tests only. It runs the real kernels and the whole GPU engine on small data where
//! there is no GPU, and does what a GPU does not do when asked: it runs out of memory, it is
//! lost, it puts work off as long as it may, it looks at memory that nobody has written.
//!
//! - The threads of a block are fibers of one thread of the system; blocks run one after the
//!   other. A block that is stuck (a barrier that not all threads reach, a vote of lanes that
//!   are gone) is a panic that names the kernel, the block and the thread, and so is whatever
//!   a driver must not be asked: a copy beyond an allocation, arguments that are not the
//!   kernel's. They are errors of the engine's, which it must not be able to recover from.
//! - Device memory is the system's, so that AddressSanitizer sees every access, and begins
//!   as `0xA5` in every byte.
//! - With [`Simt::lazy`] work waits until somebody waits for it. Without, it is done when it
//!   is submitted.
//!
//! Nothing here depends on time or chance.
//!
//! With `NEARJOIN_SIMT_SANITIZE=address,undefined` in the environment the kernels are built
//! with these sanitizers of GCC, and every test that links this crate checks them. No other
//! flag is needed, and no nightly compiler:
//!
//! ```text
//! NEARJOIN_SIMT_SANITIZE=address,undefined cargo test -p nearjoin-simt
//! ```

#![allow(unsafe_code)]

mod driver;
mod kernel;
mod memory;
mod state;
mod transfer;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nearjoin::gpu::driver::{Driver, Properties};

pub use state::Counts;
use state::State;

/// A device on the CPU. Clones are the same device.
#[derive(Clone)]
pub struct Simt {
    properties: Properties,
    shared: Arc<Mutex<State>>,
}

impl Default for Simt {
    fn default() -> Self {
        Self::new()
    }
}

impl Simt {
    /// A device with 1 GiB of memory that works as submitted and never fails.
    pub fn new() -> Self {
        let memory = 1 << 30;
        let mut properties = Properties::new("simt", memory, 4);
        properties.capability = (8, 0);
        Simt { properties, shared: Arc::new(Mutex::new(State::new(memory))) }
    }

    /// Sets the bytes of device memory.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.properties.memory = bytes;
        self.state().memory.limit = bytes;
        self
    }

    /// Sets the compute capability, which is 8.0 else.
    pub fn capability(mut self, capability: (u32, u32)) -> Self {
        self.properties.capability = capability;
        self
    }

    /// Puts work off until somebody waits for it: order between streams that nobody asked
    /// for shows as a wrong answer.
    pub fn lazy(self) -> Self {
        self.state().lazy = true;
        self
    }

    /// Runs the blocks of a grid and the threads of a block from the last to the first: a
    /// barrier that is missing shows as an answer that differs.
    pub fn backwards(self) -> Self {
        self.state().backwards = true;
        self
    }

    /// Makes matrix units err so many times as much as they may at the most, which they do else.
    pub fn unit_error(self, times: f64) -> Self {
        self.state().unit_error = times;
        self
    }

    /// Makes the `n`-th allocation of device memory fail, counted from 1.
    pub fn fail_allocation(self, n: u64) -> Self {
        self.state().faults.allocation = Some(n);
        self
    }

    /// Makes every allocation of device memory fail that is larger.
    pub fn largest_allocation(self, bytes: usize) -> Self {
        self.state().faults.largest = bytes;
        self
    }

    /// Makes the `n`-th request for host memory fail, counted from 1.
    pub fn fail_pin(self, n: u64) -> Self {
        self.state().faults.pin = Some(n);
        self
    }

    /// Loses the device when the `n`-th kernel is to run, counted from 1: that and everything
    /// after fails.
    pub fn lose_at_launch(self, n: u64) -> Self {
        self.state().faults.launch = Some(n);
        self
    }

    /// Refuses the `n`-th launch, counted from 1, and nothing else.
    pub fn refuse_launch(self, n: u64) -> Self {
        self.state().faults.refused_launch = Some(n);
        self
    }

    /// Loses the device at the `n`-th call of any kind, counted from 1: that and everything after
    /// fails.
    pub fn lose_at_call(self, n: u64) -> Self {
        self.state().faults.call = Some(n);
        self
    }

    /// Whether the device is lost.
    pub fn is_lost(&self) -> bool {
        self.state().is_lost()
    }

    /// Loses the device now.
    pub fn lose(&self) {
        self.state().lose("the device was lost".into());
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Kernels that this device has not run, of all that there are, as module and name.
    pub fn kernels_not_run(&self) -> Vec<(String, String)> {
        let state = self.state();
        let run = |(module, name): &(String, String)| {
            state.launched.iter().any(|(of, kernel)| of == module && kernel == name)
        };
        kernel::all().into_iter().filter(|kernel| !run(kernel)).collect()
    }

    /// What was allocated, of device and of host memory, and not given back, in words. What
    /// is left when the last clone is dropped is a panic.
    pub fn leaks(&self) -> Vec<String> {
        self.state().leaks()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of one test's thread says nothing about the state: it is kept whole.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Simt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simt").field("properties", self.properties()).finish_non_exhaustive()
    }
}
