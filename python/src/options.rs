//! The options that all joins have, as the package hands them over.

use std::time::{Duration, Instant};

use nearjoin::{Device, Join, Metric, Monitor, Plan, Question, Scalar, Strategy};
use numpy::Element;
use pyo3::prelude::*;

use crate::error::Failure;
use crate::points::Sides;
use crate::run;

/// A dictionary with these keys.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    metric: String,
    device: String,
    strategy: String,
    include_self: bool,
    memory_limit: Option<u64>,
    threads: Option<usize>,
    /// Called with a phase, a share of it that is done, and pairs found.
    pub(crate) progress: Option<Py<PyAny>>,
}

/// The same, understood, and without anything of Python.
#[derive(Clone)]
pub(crate) struct Understood {
    metric: Metric,
    device: Device,
    strategy: Strategy,
    include_self: bool,
    memory_limit: Option<u64>,
    threads: Option<usize>,
}

impl Options {
    pub(crate) fn understand(&self) -> Result<Understood, Failure> {
        let device = match (self.device.parse()?, run::is_forked()) {
            (Device::Gpu, true) => return Err(Failure::Forked),
            (_, true) => Device::Cpu,
            (device, false) => device,
        };
        Ok(Understood {
            metric: self.metric.parse()?,
            device,
            strategy: self.strategy.parse()?,
            include_self: self.include_self,
            memory_limit: self.memory_limit,
            threads: self.threads,
        })
    }
}

impl Understood {
    pub(crate) fn metric(&self) -> Metric {
        self.metric
    }

    /// Plans a join of these points, and says how long it took to look for coordinates that are no
    /// numbers.
    pub(crate) fn plan<'a, T: Scalar + Element, Q: Copy + Into<Question>>(
        &self,
        join: Join<Q>,
        sides: &'a Sides<T>,
        monitor: &Monitor,
    ) -> Result<(Plan<'a, T>, Duration), Failure> {
        let mut join = join
            .metric(self.metric)
            .device(self.device)
            .strategy(self.strategy)
            .include_self(self.include_self)
            .monitor(monitor);
        if let Some(bytes) = self.memory_limit {
            join = join.memory_limit(bytes);
        }
        if let Some(threads) = self.threads {
            join = join.threads(threads);
        }
        let start = Instant::now();
        let (left, right) = sides.points()?;
        let check = start.elapsed();
        let plan = match right {
            Some(right) => join.plan(&left, &right)?,
            None => join.plan_self(&left)?,
        };
        Ok((plan, check))
    }
}
