//! What is said of the CPU and a GPU that worked together.

use nearjoin::{Device, HybridStats, Lost, Plan, RangesStats, WorkerStats};

use crate::load::Held;
use crate::number;
use crate::output::Outcome;
use crate::question::Asked;
use crate::report;

/// Why the CPU joins alone where a GPU was asked for, and may be done without.
pub(crate) fn alone<T: Held>(asked: &Asked<'_>, plan: &Plan<'_, T>) -> Option<String> {
    let wanted = matches!(asked.engine.device, Device::Gpu | Device::Hybrid);
    let alone = wanted && plan.device() == Device::Cpu;
    let why = plan.why_no_gpu().map_or(String::new(), |why| format!(": {why}"));
    alone.then(|| format!("the CPU joins alone{why}"))
}

/// Whether the only index was that of a GPU.
pub(crate) fn index_is_on_gpu(outcome: &Outcome) -> bool {
    let shared = outcome.hybrid.as_ref().is_some_and(|shared| shared.partitioning.is_some());
    outcome.gpu.is_some() && !shared
}

/// How the work was shared, in a line; none where one of them did it.
pub(crate) fn line(shared: &HybridStats) -> Option<String> {
    let times = |device, who: &str| {
        let WorkerStats { busy, idle, .. } = shared.of(device);
        let number = shared.workers.iter().filter(|worker| worker.device == device).count();
        let s = if number == 1 { "" } else { "s" };
        format!("{number} {who}{s} busy {}, idle {}", number::seconds(busy), number::seconds(idle))
    };
    Some(format!(
        "shared by {}: {} of the tests on the GPU, imbalance {:.2}; {}; {}",
        shared.partitioning?,
        gpu_share(shared),
        shared.imbalance(),
        times(Device::Gpu, "GPU stream"),
        times(Device::Cpu, "CPU thread"),
    ))
}

/// `73 % (70 % expected)`: expected of the candidates, which are what is tested.
fn gpu_share(shared: &HybridStats) -> String {
    let tests = |device| shared.of(device).distance_tests as f64;
    let (gpu, cpu) = (tests(Device::Gpu), tests(Device::Cpu));
    let found = 100.0 * gpu / (gpu + cpu).max(1.0);
    format!("{found:.0} % ({:.0} % expected)", 100.0 * shared.expected_gpu_share)
}

/// How a join by ranges went, in a line.
pub(crate) fn ranges(ranges: &RangesStats) -> String {
    format!(
        "ranges: {} queries solved on the GPU in {} rounds, {} on the CPU; ε indexed anew {} times; \
         {} of {} tries failed, {} queries given away",
        number::count(ranges.solved_by_gpu),
        number::count(ranges.rounds),
        number::count(ranges.solved_by_cpu),
        ranges.reindexed,
        number::count(ranges.failed),
        number::count(ranges.attempted),
        number::count(ranges.tail),
    )
}

/// How a GPU was lost, and that nothing is missing for it.
pub(crate) fn lost(lost: &Lost) -> String {
    format!(
        "the GPU was lost ({}): the CPU answered {} queries in its place, and the answer is \
         complete",
        lost.reason,
        number::count(lost.queries)
    )
}

/// The same for a table of numbers.
pub(crate) fn numbers(shared: &HybridStats) -> Vec<(&'static str, String)> {
    let mut numbers = Vec::new();
    if let Some(partitioning) = shared.partitioning {
        numbers.push(("CPU and GPU shared by", partitioning.to_string()));
        numbers.push(("Distance tests on the GPU", gpu_share(shared)));
        numbers.push(("Imbalance of CPU and GPU", format!("{:.2}", shared.imbalance())));
    }
    if let Some(lost) = &shared.lost {
        numbers.push(("GPU lost", lost.reason.clone()));
        numbers.push(("Queries answered in its place", number::count(lost.queries)));
    }
    numbers
}

/// Everybody who worked, in a join that began so many seconds after the start.
pub(crate) fn workers(shared: &HybridStats, join: f64) -> Vec<report::Worker> {
    let worker = |worker: &WorkerStats| report::Worker {
        on_gpu: worker.device == Device::Gpu,
        number: worker.number,
        spans: worker.spans.iter().map(|&(from, to)| (join + from, join + to)).collect(),
        busy: worker.busy,
        idle: worker.idle,
    };
    shared.workers.iter().map(worker).collect()
}

#[cfg(test)]
mod tests {
    use nearjoin::Partitioning;

    use super::*;

    fn shared() -> HybridStats {
        let mut shared = HybridStats::default();
        shared.partitioning = Some(Partitioning::StaticQueries);
        shared.expected_gpu_share = 0.7;
        (shared.seconds, shared.apart) = (2.0, 0.5);
        for (device, number, tests) in
            [(Device::Gpu, 0, 300), (Device::Cpu, 0, 60), (Device::Cpu, 1, 40)]
        {
            let mut worker = WorkerStats::default();
            (worker.device, worker.number, worker.distance_tests) = (device, number, tests);
            (worker.busy, worker.idle) = (1.5, 0.25);
            worker.spans = vec![(0.0, 1.0), (1.5, 2.0)];
            shared.workers.push(worker);
        }
        shared
    }

    #[test]
    fn who_did_how_much() {
        assert_eq!(
            line(&shared()).unwrap(),
            "shared by static-queries: 75 % (70 % expected) of the tests on the GPU, imbalance \
             0.25; 1 GPU stream busy 1.5 s, idle 0.25 s; 2 CPU threads busy 3 s, idle 0.5 s"
        );
        let numbers = numbers(&shared());
        assert_eq!(numbers[1], ("Distance tests on the GPU", "75 % (70 % expected)".to_string()));
        assert_eq!(numbers.len(), 3);
        let workers = workers(&shared(), 10.0);
        assert_eq!(workers[0].spans, [(10.0, 11.0), (11.5, 12.0)]);
        assert!(workers[0].on_gpu && !workers[2].on_gpu && workers[2].number == 1);
    }

    #[test]
    fn a_gpu_that_was_lost_is_told() {
        let mut shared = HybridStats::default();
        assert_eq!((line(&shared), numbers(&shared).len()), (None, 0));
        let mut gone = Lost::default();
        (gone.reason, gone.queries) = ("it fell off the bus".into(), 1234);
        assert_eq!(
            lost(&gone),
            "the GPU was lost (it fell off the bus): the CPU answered 1,234 queries in its place, \
             and the answer is complete"
        );
        shared.lost = Some(gone);
        assert_eq!(numbers(&shared).len(), 2);
    }
}
