//! How a GPU goes about a join, by name.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::driver::Driver;
use crate::error::{Error, Result};
use crate::options::names;
use crate::plan::Calibration;

/// How the threads of a GPU share the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cooperation {
    /// What the plan expects to be fastest. The default.
    #[default]
    Auto,
    /// Each query looks for its own candidates, with one thread or with as many as
    /// [`GpuOptions::threads_per_query`] says.
    Thread,
    /// Each query looks for its own candidates, with the 32 threads of a warp.
    Warp,
    /// A warp takes 32 neighbouring queries, finds candidates for all of them at once, and
    /// tests each candidate against all.
    Cell,
}

/// In which order the units of work of a GPU are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Schedule {
    /// What the plan expects to be fastest. The default.
    #[default]
    Auto,
    /// In the order of the index, as the hardware hands them out.
    IndexOrder,
    /// SORTBYWL: those with most candidates first.
    SortByWorkload,
    /// WORKQUEUE: as `SortByWorkload`, and every warp takes the next from a queue when it is
    /// done with one.
    WorkQueue,
}

/// How a GPU goes about a join. Nothing of it changes the answer.
///
/// ```
/// use nearjoin::gpu::{Cooperation, GpuOptions, Schedule};
/// use nearjoin::{Device, EpsJoin};
/// let options = GpuOptions::new().cooperation(Cooperation::Thread).threads_per_query(8);
/// let join = EpsJoin::new(0.1).device(Device::Auto).gpu(options.schedule(Schedule::WorkQueue));
/// # let _ = join;
/// ```
#[derive(Clone, Debug, Default)]
pub struct GpuOptions {
    pub(crate) cooperation: Cooperation,
    pub(crate) threads_per_query: Option<usize>,
    pub(crate) schedule: Schedule,
    pub(crate) batch_bytes: Option<u64>,
    pub(crate) chunk_bytes: Option<usize>,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) rate_limit: Option<f64>,
    pub(crate) knobs: Knobs,
}

/// For tests: a device other than that of the machine, what is decided, and what is estimated
/// wrongly.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct Knobs {
    /// The device.
    pub driver: Option<Arc<dyn Driver>>,
    /// How fast the machine is: else as it was measured.
    pub calibration: Option<Calibration>,
    /// Whether pairs are listed first: else the plan decides.
    pub listed: Option<bool>,
    /// Whether every 32 points have a box: else the plan decides.
    pub boxes: Option<bool>,
    /// How much larger the box of queries that look together may be than that of one.
    pub loose: Option<f64>,
    /// A factor on sampled sizes.
    pub estimate: Option<f64>,
    /// Whether rows of the nearest are put in order on the device: else the plan decides.
    pub in_order: Option<bool>,
    /// Parts that the points are cut into, as if the device could not hold them.
    pub partitions: Option<usize>,
    /// Bytes of points that are sent at a time while others are multiplied, at the least.
    pub sent_at_once: Option<usize>,
    /// How long after its index the device is said to be lost, when it is next looked at.
    pub lost_after: Option<Duration>,
}

impl GpuOptions {
    /// What the plan expects to be fastest.
    pub fn new() -> Self {
        Self::default()
    }

    /// How threads share the work. Default: [`Cooperation::Auto`].
    pub fn cooperation(mut self, cooperation: Cooperation) -> Self {
        self.cooperation = cooperation;
        self
    }

    /// Threads to a query, for [`Cooperation::Thread`]: 1, 2, 4, 8, 16 or 32. Default: 1.
    pub fn threads_per_query(mut self, threads: usize) -> Self {
        self.threads_per_query = Some(threads);
        self
    }

    /// In which order work is taken. Default: [`Schedule::Auto`].
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Bytes of the result that are made at a time. Default: an eighth of it, or of the nearest a
    /// sixteenth, and no more than the device has room for; short rows of the nearest that are found
    /// quickly are made at once.
    pub fn batch_bytes(mut self, bytes: u64) -> Self {
        self.batch_bytes = Some(bytes);
        self
    }

    /// Bytes that cross the bus at a time. Default: what the model of batches says.
    pub fn chunk_bytes(mut self, bytes: usize) -> Self {
        self.chunk_bytes = Some(bytes);
        self
    }

    /// Bytes of the device's memory that a join may use. Default: nine tenths of what is free.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Distance tests a second that the device does at the most: what it has done is held back
    /// until as much time has passed, and nothing new begins before. For tests: a strong GPU
    /// stands in for one that is as strong as the CPU. Default: as many as it can.
    pub fn rate_limit(mut self, tests_a_second: f64) -> Self {
        self.rate_limit = Some(tests_a_second);
        self
    }

    #[doc(hidden)]
    pub fn knobs(mut self, knobs: Knobs) -> Self {
        self.knobs = knobs;
        self
    }
}

names!(Cooperation, "cooperation", "auto, thread, warp, cell",
    "auto" => Auto, "thread" => Thread, "warp" => Warp, "cell" => Cell);
names!(Schedule, "schedule", "auto, index-order, sort-by-workload, work-queue",
    "auto" => Auto, "index-order" => IndexOrder, "sort-by-workload" => SortByWorkload,
    "work-queue" => WorkQueue);
