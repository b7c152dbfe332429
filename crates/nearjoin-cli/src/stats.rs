//! `--stats`: what happened, as JSON of a documented shape (`docs/stats.md`).

use nearjoin::GpuStats;
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
