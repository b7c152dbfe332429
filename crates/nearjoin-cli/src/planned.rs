//! Either join behind one door: how it is planned, and what its plan says.

use core::fmt;

use nearjoin::sink::{KnnSink, Sink};
use nearjoin::{
    Device, DuplicateRemoval, EpsJoin, Estimate, GpuOptions, KnnJoin, KnnPlan, Metric, Monitor,
    Plan, Points, SimdLevel, Stats, Strategy,
};

use crate::failure::Result;
use crate::load::Held;
use crate::options::Bytes;
use crate::question::{Asked, Question};

/// What both joins are made from.
#[derive(Clone, Debug)]
pub(crate) struct Planner {
    pub(crate) question: Question,
    pub(crate) include_self: bool,
    metric: Metric,
    device: Device,
    strategy: Strategy,
    removal: DuplicateRemoval,
    gpu: GpuOptions,
    threads: Option<usize>,
    memory_limit: Option<u64>,
    monitor: Monitor,
}

/// A join with the options of a planner. The two kinds have the same, and no trait.
macro_rules! configured {
    ($join:expr, $planner:expr) => {{
        let planner: &Planner = $planner;
        let mut join = $join
            .metric(planner.metric)
            .device(planner.device)
            .strategy(planner.strategy)
            .include_self(planner.include_self)
            .monitor(&planner.monitor);
        if let Some(threads) = planner.threads {
            join = join.threads(threads);
        }
        if let Some(limit) = planner.memory_limit {
            join = join.memory_limit(limit);
        }
        join
    }};
}

impl Planner {
    /// `kept`: bytes of the memory limit that are not for the join.
    pub(crate) fn new(asked: &Asked<'_>, monitor: &Monitor, kept: u64) -> Self {
        let engine = asked.engine;
        Planner {
            question: asked.question,
            include_self: asked.include_self,
            metric: engine.metric,
            device: engine.device,
            strategy: asked.strategy,
            removal: asked.removal,
            gpu: asked.gpu_options(),
            threads: engine.threads.map(|threads| threads.0 as usize),
            memory_limit: engine.memory_limit.map(|Bytes(limit)| limit - kept),
            monitor: monitor.clone(),
        }
    }

    fn within(&self, eps: f64) -> EpsJoin {
        configured!(EpsJoin::new(eps), self).duplicate_removal(self.removal).gpu(self.gpu.clone())
    }

    /// Whether counting one set meets each of its pairs once.
    pub(crate) fn counts_once(&self) -> bool {
        self.removal != DuplicateRemoval::None
    }

    fn nearest(&self, k: usize, max_distance: Option<f64>, pad: bool) -> KnnJoin {
        let join = configured!(KnnJoin::new(k), self).pad(pad);
        match max_distance {
            Some(distance) => join.max_distance(distance),
            None => join,
        }
    }

    /// For tests: a device other than that of the machine.
    #[cfg(test)]
    pub(crate) fn on(mut self, driver: std::sync::Arc<dyn nearjoin::driver::Driver>) -> Self {
        let knobs = nearjoin::Knobs { driver: Some(driver), ..nearjoin::Knobs::default() };
        self.gpu = self.gpu.knobs(knobs);
        self
    }

    /// Refuses what can be refused before there are points.
    pub(crate) fn check(&self) -> Result {
        let checked = match self.question {
            Question::Within { eps, .. } => self.within(eps).check::<f64>(),
            Question::Knn { k, max_distance, pad } => {
                self.nearest(k, max_distance, pad).check::<f64>()
            }
        };
        checked.map_err(|error| self.question.refused(error))
    }

    /// Plans the join of one set with itself, or of two.
    pub(crate) fn plan<'a, T: Held>(
        &self,
        left: &Points<'a, T>,
        right: Option<&Points<'a, T>>,
    ) -> Result<Planned<'a, T>> {
        let planned = match self.question {
            Question::Within { eps, .. } => {
                let join = self.within(eps);
                right
                    .map_or_else(|| join.plan_self(left), |right| join.plan(left, right))
                    .map(|plan| Planned::Within(Box::new(plan)))
            }
            Question::Knn { k, max_distance, pad } => {
                // What the engine keeps for each point grows with k, whatever can be found.
                let points = right.unwrap_or(left).len();
                let k = if pad { k.min(points.max(1)) } else { k };
                let join = self.nearest(k, max_distance, pad);
                right
                    .map_or_else(|| join.plan_self(left), |right| join.plan(left, right))
                    .map(|plan| Planned::Knn(Box::new(plan)))
            }
        };
        planned.map_err(|error| self.question.refused(error))
    }

    /// Plans a part of the left points with all right ones, on the device that the whole was
    /// planned for. Where that is a part of a self-join, each point is found as its own
    /// neighbour, and one more than asked for.
    pub(crate) fn plan_part<'a, T: Held>(
        &self,
        part: &Points<'a, T>,
        right: &Points<'a, T>,
        is_self: bool,
        device: Device,
    ) -> Result<Planned<'a, T>> {
        let question = match self.question {
            Question::Knn { k, max_distance, .. } => {
                let own = usize::from(is_self && !self.include_self);
                Question::Knn { k: k.saturating_add(own), max_distance, pad: true }
            }
            within => within,
        };
        Planner { question, device, ..self.clone() }.plan(part, Some(right))
    }
}

/// A plan of either join.
pub(crate) enum Planned<'a, T> {
    Within(Box<Plan<'a, T>>),
    Knn(Box<KnnPlan<'a, T>>),
}

/// The same of either plan.
macro_rules! either {
    ($planned:expr, $plan:ident => $result:expr) => {
        match $planned {
            Planned::Within($plan) => $result,
            Planned::Knn($plan) => $result,
        }
    };
}

impl<T: Held> Planned<'_, T> {
    pub(crate) fn strategy(&self) -> Strategy {
        either!(self, plan => plan.strategy())
    }

    /// Where it will run.
    pub(crate) fn device(&self) -> Device {
        match self {
            Planned::Within(plan) => plan.device(),
            Planned::Knn(_) => Device::Cpu,
        }
    }

    /// Why a GPU that could have been used will not be.
    pub(crate) fn why_no_gpu(&self) -> Option<&str> {
        match self {
            Planned::Within(plan) => plan.why_no_gpu(),
            Planned::Knn(_) => None,
        }
    }

    pub(crate) fn simd(&self) -> SimdLevel {
        either!(self, plan => plan.simd())
    }

    pub(crate) fn threads(&self) -> usize {
        either!(self, plan => plan.threads())
    }

    /// Ordered pairs that there may be.
    pub(crate) fn estimated_pairs(&self) -> f64 {
        either!(self, plan => plan.estimated_pairs())
    }

    pub(crate) fn estimates(&self) -> Vec<Estimate> {
        either!(self, plan => plan.estimates())
    }

    pub(crate) fn index_shape(&self) -> Vec<String> {
        either!(self, plan => plan.index_shape())
    }

    /// Bytes of this machine's memory that the index will take: none where it is on a GPU.
    pub(crate) fn index_bytes(&self) -> u64 {
        match self.device() {
            Device::Gpu => 0,
            _ => either!(self, plan => plan.index_bytes()),
        }
    }

    pub(crate) fn memory_limit(&self) -> u64 {
        either!(self, plan => plan.memory_limit())
    }

    pub(crate) fn check_memory(&self) -> nearjoin::Result<()> {
        either!(self, plan => plan.check_memory())
    }

    /// Joins into a sink that both joins have.
    pub(crate) fn run<S: Sink<T> + KnnSink<T>>(&self, sink: &mut S) -> nearjoin::Result<Stats> {
        either!(self, plan => plan.run(sink))
    }
}

impl<T: Held> fmt::Display for Planned<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        either!(self, plan => plan.fmt(f))
    }
}
