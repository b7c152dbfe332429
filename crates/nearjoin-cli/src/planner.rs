//! How either join is planned: from what was asked to the engine's options.

use nearjoin::gpu::GpuOptions;
use nearjoin::{
    Device, DuplicateRemoval, EpsJoin, Join, KnnJoin, Metric, Monitor, Partitioning, Plan, Points,
    RangesOptions, Strategy,
};

use crate::failure::Result;
use crate::load::Held;
use crate::options::Bytes;
use crate::question::{Asked, Question};

/// What both joins are made from.
#[derive(Clone, Debug)]
pub(crate) struct Planner {
    pub(crate) question: Question,
    include_self: bool,
    metric: Metric,
    device: Device,
    strategy: Strategy,
    removal: DuplicateRemoval,
    partitioning: Partitioning,
    rescue: bool,
    gpu: GpuOptions,
    ranges: RangesOptions,
    threads: usize,
    memory_limit: Option<u64>,
    monitor: Monitor,
}

impl Planner {
    /// With so many threads.
    pub(crate) fn new(asked: &Asked<'_>, monitor: &Monitor, threads: usize) -> Self {
        let engine = asked.engine;
        Planner {
            question: asked.question,
            include_self: asked.include_self,
            metric: engine.metric,
            device: engine.device,
            strategy: asked.strategy,
            removal: asked.removal,
            partitioning: asked.gpu.partitioning.unwrap_or_default(),
            rescue: asked.rescue,
            gpu: asked.gpu_options(),
            ranges: asked.ranges_options(),
            threads,
            memory_limit: engine.memory_limit.map(|Bytes(limit)| limit),
            monitor: monitor.clone(),
        }
    }

    /// A join with the options that both have.
    fn configured<Q: Copy + Into<nearjoin::Question>>(&self, join: Join<Q>) -> Join<Q> {
        let join = join
            .metric(self.metric)
            .device(self.device)
            .strategy(self.strategy)
            .include_self(self.include_self)
            .partitioning(self.partitioning)
            .rescue(self.rescue)
            .gpu(self.gpu.clone())
            .threads(self.threads)
            .monitor(&self.monitor);
        match self.memory_limit {
            Some(limit) => join.memory_limit(limit),
            None => join,
        }
    }

    /// The same within so much memory beside the points.
    pub(crate) fn within_memory(self, limit: Option<u64>) -> Self {
        Planner { memory_limit: limit, ..self }
    }

    fn within(&self, eps: f64) -> EpsJoin {
        self.configured(EpsJoin::new(eps)).duplicate_removal(self.removal)
    }

    fn nearest(&self, k: usize, max_distance: Option<f64>, pad: bool) -> KnnJoin {
        let join = self.configured(KnnJoin::new(k)).pad(pad).ranges(self.ranges);
        match max_distance {
            Some(distance) => join.max_distance(distance),
            None => join,
        }
    }

    /// Whether counting one set meets each of its pairs once.
    pub(crate) fn counts_once(&self) -> bool {
        matches!(self.question, Question::Within { .. }) && self.removal != DuplicateRemoval::None
    }

    /// For tests: a device other than that of the machine.
    #[cfg(test)]
    pub(crate) fn on(mut self, driver: std::sync::Arc<dyn nearjoin::gpu::driver::Driver>) -> Self {
        let knobs = nearjoin::gpu::Knobs { driver: Some(driver), ..Default::default() };
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
    ) -> Result<Plan<'a, T>> {
        let plan = match self.question {
            Question::Within { eps, .. } => planned(&self.within(eps), left, right),
            Question::Knn { k, max_distance, pad } => {
                // What the engine keeps for each point grows with k, whatever can be found.
                let points = right.unwrap_or(left).len();
                let k = if pad { k.min(points.max(1)) } else { k };
                planned(&self.nearest(k, max_distance, pad), left, right)
            }
        };
        plan.map_err(|error| self.question.refused(error))
    }
}

fn planned<'a, T: Held, Q: Copy + Into<nearjoin::Question>>(
    join: &Join<Q>,
    left: &Points<'a, T>,
    right: Option<&Points<'a, T>>,
) -> nearjoin::Result<Plan<'a, T>> {
    match right {
        Some(right) => join.plan(left, right),
        None => join.plan_self(left),
    }
}
