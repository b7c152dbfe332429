//! A plan: what will be done, and why.

use core::fmt;
use std::time::Duration;

use super::Indexed;
use crate::error::Result;
use crate::exec::cpu::kernel::SimdLevel;
use crate::exec::gpu::device::Device as Opened;
use crate::exec::pool::Pool;
use crate::metric::Threshold;
use crate::options::{Device, Options, Strategy};
use crate::plan::{Decision, Host, How};
use crate::question::Question;
use crate::scalar::Scalar;
use crate::sides::Sides;
use crate::sink::Sink;
use crate::stats::{Stats, bytes};
use crate::summary::Estimated;

/// A join that is decided but not run. It borrows the points.
///
/// `Display` explains the choice: the strategy with the estimated cost of each
/// alternative, the shape of the index, the expected result and the memory.
pub struct Plan<'a, T> {
    pub(super) question: Question,
    pub(super) options: Options,
    pub(super) sides: Sides<'a, T>,
    pub(super) threshold: Threshold<T>,
    pub(super) simd: SimdLevel,
    pub(super) pool: Pool,
    pub(super) decision: Decision,
    /// The device, where it is a GPU.
    pub(super) device: Option<Opened>,
    /// What was known of the machine.
    pub(super) host: Host,
    pub(super) planning: Duration,
}

impl<T: Scalar> Plan<'_, T> {
    /// What is asked.
    pub fn question(&self) -> Question {
        self.question
    }

    /// The strategy that will run: never [`Strategy::Auto`].
    pub fn strategy(&self) -> Strategy {
        self.decision.chosen.strategy
    }

    /// Where the join will run: never [`Device::Auto`]. It is [`Device::Hybrid`] where both
    /// processors work, or where that was asked and the GPU leads.
    pub fn device(&self) -> Device {
        match (&self.decision.how, self.options.device) {
            (How::Cpu(_), _) => Device::Cpu,
            (How::Gpu(_), Device::Hybrid) | (How::Both(_), _) => Device::Hybrid,
            (How::Ranges(by), _) if by.cpu.is_some() => Device::Hybrid,
            (How::Gpu(_) | How::Ranges(_), _) => Device::Gpu,
        }
    }

    /// Why a GPU that could have been used will not be, in a sentence: there is none, or the
    /// join is too small to be worth it. None where the CPU was named, or a GPU that has to be there.
    pub fn why_no_gpu(&self) -> Option<&str> {
        self.decision.why_no_gpu.as_deref()
    }

    /// The instruction set that will be used.
    pub fn simd(&self) -> SimdLevel {
        self.simd
    }

    /// The estimated number of ordered pairs; of the nearest, if each point has its k.
    pub fn estimated_pairs(&self) -> f64 {
        self.decision.pairs()
    }

    /// The same with the range in which the number lies: what a sample can tell.
    pub fn expected_pairs(&self) -> Estimated {
        self.decision.expected_pairs()
    }

    /// What each strategy would cost, the cheapest first: of these the plan has chosen.
    pub fn estimates(&self) -> Vec<Estimate> {
        let estimate =
            |(strategy, seconds, distance_tests)| Estimate { strategy, seconds, distance_tests };
        self.decision.costs().map(estimate).collect()
    }

    /// Seconds that indexing and counting will take, and indexing and listing all neighbours
    /// as CSR: right to a factor of about two.
    pub fn estimated_seconds(&self) -> (f64, f64) {
        self.decision.seconds()
    }

    /// The shape of the index, line by line.
    pub fn index_shape(&self) -> Vec<String> {
        self.decision.chosen.detail.lines()
    }

    /// Threads that will work.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Bytes of this machine's memory that the index will take at the most while it is built: none
    /// where it is on a GPU.
    pub fn index_bytes(&self) -> u64 {
        self.decision.budget.index
    }

    /// Bytes that the join may use beside its input.
    pub fn memory_limit(&self) -> u64 {
        self.decision.budget.limit
    }

    /// Whether the index fits the memory limit: what [`Plan::run`] would say first.
    ///
    /// # Errors
    /// If it does not.
    pub fn check_memory(&self) -> Result<()> {
        self.decision.budget.check_index()
    }

    /// Builds the index, joins, and fills the sink. A plan can be run again; where it will be,
    /// [`Plan::index`] builds the index once.
    ///
    /// # Errors
    /// If the index or the result does not fit the memory limit, the system refuses memory, the
    /// device fails, the sink stops the join or is not for this question, or a monitor cancels it.
    pub fn run<S: Sink<T>>(&self, sink: &mut S) -> Result<Stats> {
        self.index()?.run(sink)
    }

    /// Builds the index, to be asked as often as wanted, for all left points or for some.
    ///
    /// ```
    /// use nearjoin::{EpsJoin, Points, sink::CsrSink};
    /// let points = Points::new(&[0.0, 1.0, 1.5, 9.0], 1)?;
    /// let plan = EpsJoin::new(1.0).plan_self(&points)?;
    /// let index = plan.index()?;
    /// let mut sink = CsrSink::new().sorted(true);
    /// index.run_rows(1..3, &mut sink)?;
    /// assert_eq!(sink.csr().offsets(), [0, 2, 3]);
    /// assert_eq!(sink.csr().ids(), [0, 2, 1]);
    /// # Ok::<(), nearjoin::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the index does not fit the memory limit, the system refuses memory, or the device fails.
    pub fn index(&self) -> Result<Indexed<'_, T>> {
        Indexed::new(self)
    }
}

impl<T: Scalar> fmt::Display for Plan<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.question {
            Question::Within(within) => write!(f, "ε = {}", T::from_f64(within.eps))?,
            Question::Nearest(nearest) => write!(f, "k = {}", nearest.k)?,
        }
        write!(f, " ({}, {}) on the ", self.options.metric, T::NAME)?;
        if self.decision.on_cpu().is_some() {
            write!(f, "cpu: {} threads, {} kernels", self.pool.threads(), self.simd)?;
        }
        if self.decision.on_cpu().is_some() && self.decision.on_gpu().is_some() {
            write!(f, "; and the ")?;
        }
        if let Some(how) = self.decision.on_gpu() {
            write!(f, "gpu: {}, {} of memory", how.device.name, bytes(how.device.memory))?;
        }
        writeln!(f)?;
        if let Some(weighed) = &self.decision.weighed {
            weighed.explain(f)?;
        }
        if let Some(why) = &self.decision.why_no_gpu {
            writeln!(f, "no gpu: {why}")?;
        }
        if !self.sides.scale.is_none() {
            let exponent = self.sides.scale.exponent();
            writeln!(
                f,
                "scale: coordinates times 2^{exponent}, so that {} can square them",
                T::NAME
            )?;
        }
        self.decision.explain(f)
    }
}

impl<T: Scalar> fmt::Debug for Plan<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("question", &self.question)
            .field("options", &self.options)
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}

/// What a strategy is expected to cost: right to a factor of about two, which is enough to
/// choose by.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// The strategy.
    pub strategy: Strategy,
    /// Seconds to index the points and to count their neighbours, or to find the nearest.
    pub seconds: f64,
    /// Distances that would be computed.
    pub distance_tests: f64,
}
