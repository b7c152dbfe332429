//! `--stats`: what happened, as JSON of a documented shape (`docs/stats.md`).

use nearjoin::gpu::GpuStats;
use nearjoin::{HybridStats, RangesStats, WorkerStats};
use serde_json::{Value, json};

use crate::grouping::Grouped;
use crate::output::Outcome;
use crate::question::{Answer, Asked, Question};

/// The version of the shape: it changes when a field changes its meaning or goes.
pub(crate) const SCHEMA: &str = "nearjoin-stats-1";

/// What is known beside the outcome.
pub(crate) struct Run<'a> {
    pub(crate) points: (usize, usize),
    pub(crate) is_self: bool,
    pub(crate) dimension: usize,
    pub(crate) dtype: String,
    pub(crate) asked: Asked<'a>,
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
        let (eps, k, max_distance) = match self.asked.question {
            Question::Within { eps, .. } => (Some(eps), None, None),
            Question::Knn { k, max_distance, .. } => (None, Some(k), max_distance),
        };
        let min_points = match self.asked.answer {
            Answer::Groups(grouping) => grouping.min_points(),
            _ => None,
        };
        json!({
            "schema": SCHEMA,
            "version": env!("CARGO_PKG_VERSION"),
            "command": self.asked.command(),
            "pairs": outcome.pairs,
            "points": { "left": left, "right": right },
            "self_join": self.is_self,
            "dimension": self.dimension,
            "dtype": self.dtype,
            "eps": eps,
            "k": k,
            "max_distance": max_distance,
            "min_points": min_points,
            "metric": self.asked.engine.metric.to_string(),
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
            "groups": outcome.groups.map(groups),
            "gpu": outcome.gpu.as_ref().map(gpu),
            "hybrid": outcome.hybrid.as_ref().map(hybrid),
            "ranges": outcome.ranges.as_ref().map(ranges),
        })
    }
}

fn groups(found: Grouped) -> Value {
    json!({ "count": found.count, "noise": found.noise })
}

fn ranges(stats: &RangesStats) -> Value {
    json!({
        "eps_min": stats.eps_min,
        "eps": stats.eps,
        "rounds": stats.rounds,
        "reindexed": stats.reindexed,
        "reindex_seconds": stats.reindex_seconds,
        "attempted": stats.attempted,
        "failed": stats.failed,
        "solved_by_gpu": stats.solved_by_gpu,
        "solved_by_cpu": stats.solved_by_cpu,
        "tail": stats.tail,
    })
}

fn gpu(stats: &GpuStats) -> Value {
    json!({
        "device": stats.device,
        "cooperation": stats.cooperation.to_string(),
        "threads_per_query": stats.threads_per_query,
        "schedule": stats.schedule.to_string(),
        "partitions": stats.partitions,
        "brute_force": stats.brute_force,
        "batches": stats.batches,
        "splits": stats.splits,
        "chunk_bytes": stats.chunk_bytes,
        "bytes_in": stats.bytes_in,
        "bytes_out": stats.bytes_out,
        "predicted_seconds": stats.predicted_seconds,
        "delivery_seconds": stats.delivery_seconds,
    })
}

fn hybrid(stats: &HybridStats) -> Value {
    let lost = |lost: &nearjoin::Lost| json!({ "reason": lost.reason, "queries": lost.queries });
    json!({
        "partitioning": stats.partitioning.map(|name| name.to_string()),
        "expected_gpu_share": stats.expected_gpu_share,
        "seconds": stats.seconds,
        "imbalance": stats.imbalance(),
        "lost": stats.lost.as_ref().map(lost),
        "workers": stats.workers.iter().map(worker).collect::<Vec<_>>(),
    })
}

fn worker(stats: &WorkerStats) -> Value {
    json!({
        "device": stats.device.to_string(),
        "number": stats.number,
        "units": stats.units,
        "queries": stats.queries,
        "distance_tests": stats.distance_tests,
        "pairs": stats.pairs,
        "busy_seconds": stats.busy,
        "idle_seconds": stats.idle,
    })
}

#[cfg(test)]
mod tests {
    use nearjoin::gpu::{Cooperation, Schedule};
    use nearjoin::sink::Count;
    use nearjoin::{Device, EpsJoin, Lost, Partitioning, Points};

    use super::*;

    /// Two passes of a GPU, as a join in parts makes them; the second loses it.
    fn outcome() -> Outcome {
        let points = Points::new(&[0.0, 1.0], 1).unwrap();
        let join = EpsJoin::new(1.0).device(Device::Cpu);
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
        pass.hybrid = Some(shared());
        let mut outcome = Outcome::default();
        outcome.add(&pass);
        if let Some(hybrid) = &mut pass.hybrid {
            let mut lost = Lost::default();
            (lost.reason, lost.queries) = ("it fell off the bus".into(), 7);
            hybrid.lost = Some(lost);
        }
        outcome.add(&pass);
        outcome
    }

    /// What a stream and a thread did in one pass.
    fn shared() -> HybridStats {
        let mut shared = HybridStats::default();
        shared.partitioning = Some(Partitioning::Dyn);
        shared.expected_gpu_share = 0.75;
        (shared.seconds, shared.apart) = (2.0, 0.5);
        for (device, queries) in [(Device::Gpu, 30), (Device::Cpu, 10)] {
            let mut worker = WorkerStats::default();
            (worker.device, worker.units, worker.queries) = (device, 1, queries);
            (worker.distance_tests, worker.pairs) = (100 * queries, 10 * queries);
            (worker.busy, worker.idle) = (1.5, 0.5);
            shared.workers.push(worker);
        }
        shared
    }

    /// The fields that are documented below another.
    fn listed(below: &str) -> Vec<&'static str> {
        let documented = include_str!("../../../docs/stats.md");
        let fields = documented.lines().filter_map(|line| line.strip_prefix("| `"));
        let fields = fields.filter_map(|line| line.split('`').next()?.strip_prefix(below));
        fields.filter(|field| !field.contains('.')).collect()
    }

    fn keys(value: &Value) -> Vec<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
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
                "brute_force": false,
                "batches": 6,
                "splits": 2,
                "chunk_bytes": 1 << 20,
                "bytes_in": 200,
                "bytes_out": 2000,
                "predicted_seconds": 0.5,
                "delivery_seconds": 1.0,
            })
        );
        assert_eq!(listed("gpu."), keys(&told));
    }

    #[test]
    fn what_both_did_adds_up_and_has_its_documented_shape() {
        let outcome = outcome();
        let told = hybrid(outcome.hybrid.as_ref().unwrap());
        let worker = |device: &str, queries: u64| {
            json!({
                "device": device,
                "number": 0,
                "units": 2,
                "queries": queries,
                "distance_tests": 100 * queries,
                "pairs": 10 * queries,
                "busy_seconds": 3.0,
                "idle_seconds": 1.0,
            })
        };
        assert_eq!(
            told,
            json!({
                "partitioning": "dyn",
                "expected_gpu_share": 0.75,
                "seconds": 4.0,
                "imbalance": 0.25,
                "lost": { "reason": "it fell off the bus", "queries": 7 },
                "workers": [worker("gpu", 60), worker("cpu", 20)],
            })
        );
        assert_eq!(listed("hybrid."), keys(&told));
        assert_eq!(listed("hybrid.lost."), keys(&told["lost"]));
        assert_eq!(listed("hybrid.workers[]."), keys(&told["workers"][0]));
        let alone = hybrid(&HybridStats::default());
        assert!(alone["partitioning"].is_null() && alone["lost"].is_null(), "{alone}");
    }

    #[test]
    fn what_ranges_did_adds_up_and_has_its_documented_shape() {
        let points = Points::new(&[0.0, 1.0], 1).unwrap();
        let join = EpsJoin::new(1.0).device(Device::Cpu);
        let mut pass = join.plan_self(&points).unwrap().run(&mut Count::new()).unwrap();
        let mut done = RangesStats::default();
        (done.eps_min, done.eps, done.rounds, done.reindexed) = (0.5, 1.5, 3, 2);
        (done.reindex_seconds, done.attempted, done.failed) = (0.25, 12, 4);
        (done.solved_by_gpu, done.solved_by_cpu, done.tail) = (8, 2, 1);
        pass.ranges = Some(done);
        let mut outcome = Outcome::default();
        outcome.add(&pass);
        outcome.add(&pass);
        let told = ranges(outcome.ranges.as_ref().unwrap());
        assert_eq!(
            told,
            json!({
                "eps_min": 0.5,
                "eps": 1.5,
                "rounds": 6,
                "reindexed": 4,
                "reindex_seconds": 0.5,
                "attempted": 24,
                "failed": 8,
                "solved_by_gpu": 16,
                "solved_by_cpu": 4,
                "tail": 2,
            })
        );
        assert_eq!(listed("ranges."), keys(&told));
    }
}
