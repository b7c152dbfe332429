//! `--stats`: what happened, as JSON of a documented shape (`docs/stats.md`).

use nearjoin::gpu::GpuStats;
use serde_json::{Value, json};

use crate::output::Outcome;
use crate::question::Question;

/// The version of the shape: it changes when a field changes its meaning or goes.
pub(crate) const SCHEMA: &str = "nearjoin-stats-1";

/// What is known beside the outcome.
pub(crate) struct Run<'a> {
    pub(crate) points: (usize, usize),
    pub(crate) is_self: bool,
    pub(crate) dimension: usize,
    pub(crate) dtype: String,
    pub(crate) question: Question,
    pub(crate) metric: String,
    pub(crate) strategy: String,
    pub(crate) device: String,
    pub(crate) simd: String,
    pub(crate) threads: usize,
    /// Seconds.
    pub(crate) load: f64,
    pub(crate) plan: f64,
    pub(crate) total: f64,
    pub(crate) input_bytes: u64,
    pub(crate) peak_bytes: Option<u64>,
    pub(crate) outcome: &'a Outcome,
}

impl Run<'_> {
    pub(crate) fn json(&self) -> Value {
        let outcome = self.outcome;
        let (left, right) = self.points;
        let (eps, k, max_distance) = match self.question {
            Question::Within { eps, .. } => (Some(eps), None, None),
            Question::Knn { k, max_distance, .. } => (None, Some(k), max_distance),
        };
        json!({
            "schema": SCHEMA,
            "version": env!("CARGO_PKG_VERSION"),
            "command": self.question.command(),
            "pairs": outcome.pairs,
            "points": { "left": left, "right": right },
            "self_join": self.is_self,
            "dimension": self.dimension,
            "dtype": self.dtype,
            "eps": eps,
            "k": k,
            "max_distance": max_distance,
            "metric": self.metric,
            "strategy": self.strategy,
            "device": self.device,
            "simd": self.simd,
            "threads": self.threads,
            "distance_tests": outcome.distance_tests,
            "pairs_taken": outcome.pairs_taken,
            "parts": outcome.parts,
            "seconds": {
                "load": self.load,
                "plan": self.plan,
                "index": outcome.index,
                "execute": outcome.join,
                "write": outcome.write,
                "total": self.total,
            },
            "bytes": {
                "input": self.input_bytes,
                "index": outcome.index_bytes,
                "result": outcome.written.map_or(0, |written| written.bytes),
                "peak": self.peak_bytes,
            },
            "gpu": outcome.gpu.as_ref().map(gpu),
        })
    }
}

fn gpu(stats: &GpuStats) -> Value {
    json!({
        "device": stats.device,
        "cooperation": stats.cooperation.to_string(),
        "threads_per_query": stats.threads_per_query,
        "schedule": stats.schedule.to_string(),
        "partitions": stats.partitions,
        "batches": stats.batches,
        "splits": stats.splits,
        "chunk_bytes": stats.chunk_bytes,
        "bytes_in": stats.bytes_in,
        "bytes_out": stats.bytes_out,
        "predicted_seconds": stats.predicted_seconds,
        "delivery_seconds": stats.delivery_seconds,
    })
}

#[cfg(test)]
mod tests {
    use nearjoin::gpu::{Cooperation, Schedule};
    use nearjoin::sink::Count;
    use nearjoin::{EpsJoin, Points};

    use super::*;

    /// Two passes of a GPU, as a join in parts makes them.
    fn outcome() -> Outcome {
        let points = Points::new(&[0.0, 1.0], 1).unwrap();
        let join = EpsJoin::new(1.0).device(nearjoin::Device::Cpu);
        let mut pass = join.plan_self(&points).unwrap().run(&mut Count::new()).unwrap();
        let mut gpu = GpuStats::default();
        gpu.device = "Sham".into();
        gpu.cooperation = Cooperation::Cell;
        gpu.threads_per_query = 1;
        gpu.partitions = 1;
        gpu.schedule = Schedule::WorkQueue;
        (gpu.batches, gpu.splits, gpu.chunk_bytes) = (3, 1, 1 << 20);
        (gpu.bytes_in, gpu.bytes_out) = (100, 1000);
        (gpu.predicted_seconds, gpu.delivery_seconds) = (0.25, 0.5);
        pass.gpu = Some(gpu);
        let mut outcome = Outcome::default();
        outcome.add(&pass);
        outcome.add(&pass);
        outcome
    }

    #[test]
    fn what_a_gpu_did_adds_up_and_has_its_documented_shape() {
        let outcome = outcome();
        let told = gpu(outcome.gpu.as_ref().unwrap());
        assert_eq!(
            told,
            json!({
                "device": "Sham",
                "cooperation": "cell",
                "threads_per_query": 1,
                "schedule": "work-queue",
                "partitions": 1,
                "batches": 6,
                "splits": 2,
                "chunk_bytes": 1 << 20,
                "bytes_in": 200,
                "bytes_out": 2000,
                "predicted_seconds": 0.5,
                "delivery_seconds": 1.0,
            })
        );
        let documented = include_str!("../../../docs/stats.md");
        let listed = documented.lines().filter_map(|line| line.strip_prefix("| `gpu."));
        let listed: Vec<_> = listed.filter_map(|line| line.split('`').next()).collect();
        assert_eq!(listed, told.as_object().unwrap().keys().collect::<Vec<_>>());
    }
}
