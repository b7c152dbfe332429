//! The device: its memory, the work of its streams, and what is to go wrong.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use nearjoin::gpu::driver::{Fault, HostMemory, Result, STREAMS};

use crate::kernel::Launch;
use crate::memory::Memory;

/// What a device has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Requests for device memory, with those that failed.
    pub allocations: u64,
    /// Requests for host memory, with those that failed.
    pub pins: u64,
    /// Kernels run, with the one that lost the device.
    pub launches: u64,
    /// Kernels submitted, with those that were refused.
    pub submitted: u64,
    /// Copies done, in both directions.
    pub copies: u64,
    /// Everything that was asked, with what failed; giving memory back is not asked for.
    pub calls: u64,
    /// The most bytes of device memory that were allocated at once.
    pub peak: u64,
}

/// What is to go wrong. Numbers count from 1.
pub(crate) struct Faults {
    pub(crate) allocation: Option<u64>,
    pub(crate) largest: usize,
    pub(crate) pin: Option<u64>,
    pub(crate) launch: Option<u64>,
    pub(crate) refused_launch: Option<u64>,
    pub(crate) call: Option<u64>,
}

/// Where a copy leaves the host memory that it was given.
pub(crate) type Home = Arc<Mutex<Option<Box<dyn HostMemory>>>>;

/// Something that a stream has to do.
pub(crate) enum Work {
    CopyIn {
        from: Box<dyn HostMemory>,
        to: u64,
        bytes: usize,
        home: Home,
    },
    CopyOut {
        from: u64,
        to: Box<dyn HostMemory>,
        bytes: usize,
        home: Home,
    },
    Fill {
        address: u64,
        word: u32,
        words: usize,
    },
    Launch(Launch),
    /// The work of another stream, so much of it as had been submitted.
    After {
        stream: usize,
        number: u64,
    },
}

impl Work {
    /// Whether it names memory in a range of addresses.
    fn names(&self, range: &std::ops::Range<u64>) -> bool {
        match self {
            Work::CopyIn { to: address, .. }
            | Work::CopyOut { from: address, .. }
            | Work::Fill { address, .. } => range.contains(address),
            Work::Launch(launch) => launch.names(range),
            Work::After { .. } => false,
        }
    }
}

/// Work in order of submission. Its numbers count from 1.
#[derive(Default)]
struct Stream {
    queue: VecDeque<Work>,
    submitted: u64,
    done: u64,
}

pub(crate) struct State {
    pub(crate) memory: Memory,
    pub(crate) lazy: bool,
    pub(crate) backwards: bool,
    pub(crate) unit_error: f64,
    pub(crate) faults: Faults,
    pub(crate) counts: Counts,
    /// The kernels that have run, as module and name.
    pub(crate) launched: BTreeSet<(String, &'static str)>,
    streams: [Stream; STREAMS],
    lost: Option<String>,
}

impl State {
    pub(crate) fn new(memory: u64) -> Self {
        State {
            memory: Memory::new(memory),
            lazy: false,
            backwards: false,
            unit_error: 1.0,
            faults: Faults {
                allocation: None,
                largest: usize::MAX,
                pin: None,
                launch: None,
                refused_launch: None,
                call: None,
            },

            counts: Counts::default(),
            launched: BTreeSet::new(),
            streams: Default::default(),
            lost: None,
        }
    }

    /// Something is asked: it may be the last thing.
    pub(crate) fn call(&mut self) -> Result<()> {
        self.counts.calls += 1;
        if self.faults.call == Some(self.counts.calls) {
            self.lose(format!("the device was lost at call {}", self.counts.calls));
        }
        self.alive()
    }

    /// Whether the device is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Whether anything can still be asked.
    pub(crate) fn alive(&self) -> Result<()> {
        self.lost.clone().map_or(Ok(()), |reason| Err(Fault::Failed { reason }))
    }

    /// Nothing that was submitted will be done.
    pub(crate) fn lose(&mut self, reason: String) {
        self.lost.get_or_insert(reason);
        for stream in &mut self.streams {
            stream.queue.clear();
            stream.done = stream.submitted;
        }
    }

    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<u64> {
        self.call()?;
        self.counts.allocations += 1;
        if self.faults.allocation == Some(self.counts.allocations) || bytes > self.faults.largest {
            return Err(Fault::Memory { bytes });
        }
        let address = self.memory.allocate(bytes)?;
        self.counts.peak = self.counts.peak.max(self.memory.used());
        Ok(address)
    }

    pub(crate) fn release(&mut self, address: u64, bytes: usize) {
        let range = address..address + bytes as u64;
        for (number, stream) in self.streams.iter().enumerate() {
            assert!(
                !stream.queue.iter().any(|work| work.names(&range)),
                "memory was released on which stream {number} has still to work"
            );
        }
        self.memory.release(address, bytes);
    }

    pub(crate) fn pin(&mut self, bytes: usize) -> Result<Box<dyn HostMemory>> {
        self.call()?;
        self.counts.pins += 1;
        if self.faults.pin == Some(self.counts.pins) {
            return Err(Fault::Memory { bytes });
        }
        self.memory.pin(bytes)
    }

    /// Takes work for a stream, and gives its number there.
    pub(crate) fn submit(&mut self, stream: usize, work: Work) -> Result<u64> {
        self.call()?;
        if let Work::Launch(_) = work {
            self.counts.submitted += 1;
            if self.faults.refused_launch == Some(self.counts.submitted) {
                let reason = format!("launch {} was refused", self.counts.submitted);
                return Err(Fault::Failed { reason });
            }
        }
        self.streams[stream].queue.push_back(work);
        self.streams[stream].submitted += 1;
        let number = self.streams[stream].submitted;
        if !self.lazy {
            self.finish(stream, number)?;
        }
        Ok(number)
    }

    pub(crate) fn submitted(&self, stream: usize) -> u64 {
        self.streams[stream].submitted
    }

    /// Does the work of a stream up to a number, and what that has to come after.
    pub(crate) fn finish(&mut self, stream: usize, number: u64) -> Result<()> {
        while self.streams[stream].done < number
            && let Some(work) = self.streams[stream].queue.pop_front()
        {
            self.perform(work)?;
            self.streams[stream].done += 1;
        }
        self.alive()
    }

    fn perform(&mut self, work: Work) -> Result<()> {
        match work {
            Work::CopyIn { from, to, bytes, home } => {
                self.memory.write(to, &from.bytes()[..bytes]);
                self.counts.copies += 1;
                bring(&home, from);
            }
            Work::CopyOut { from, mut to, bytes, home } => {
                self.memory.read(from, &mut to.bytes_mut()[..bytes]);
                self.counts.copies += 1;
                bring(&home, to);
            }
            Work::Fill { address, word, words } => {
                self.memory.write(address, &word.to_ne_bytes().repeat(words));
            }
            Work::Launch(launch) => {
                self.counts.launches += 1;
                if self.faults.launch == Some(self.counts.launches) {
                    let reason = format!("the device was lost at launch {}", self.counts.launches);
                    self.lose(reason);
                    return self.alive();
                }
                self.launched.insert((launch.module.clone(), launch.name));
                if let Err(reason) = launch.run(self.backwards, self.unit_error) {
                    self.lose(reason.clone());
                    panic!("{reason}");
                }
            }
            Work::After { stream, number } => self.finish(stream, number)?,
        }
        Ok(())
    }

    pub(crate) fn leaks(&self) -> Vec<String> {
        self.memory.live()
    }
}

fn bring(home: &Home, memory: Box<dyn HostMemory>) {
    *home.lock().unwrap_or_else(PoisonError::into_inner) = Some(memory);
}

impl Drop for State {
    fn drop(&mut self) {
        for stream in &mut self.streams {
            stream.queue.clear();
        }
        let leaks = self.leaks();
        // A second panic would hide the first.
        if !leaks.is_empty() && !std::thread::panicking() {
            panic!("memory of the device was never given back: {}", leaks.join(", "));
        }
    }
}
