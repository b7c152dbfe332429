//! Which processor does a join, or whether both do, and how they share it.
//!
//! The model of HEGJoin (§4.2): how long each would take alone gives its throughput, and the sum of
//! both throughputs is the most that both can do together. The paper scales one measured join by
//! the volume of the search; here the plan's own estimates, which know how many candidates there
//! are, are scaled by one measured join of the machine (its calibration).

use super::{Asked, Decision, How, OnCpu};
use crate::options::{Device, DuplicateRemoval, Options, Partitioning, Strategy};
use crate::question::Question;
use crate::stats::bytes;

/// Streams of the GPU that take work, each with a thread.
pub(crate) const LANES: usize = 3;
/// Threads from which on one of the processor is left to those streams: they wait most of the time,
/// but where every core is busy they wait for one of those too, some milliseconds each time.
pub(crate) const MANY_THREADS: usize = 8;
/// Batches that streams take on demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Batches {
    /// One is what is left, divided by so many for each stream, as in HEGJoin (§4.3).
    pub(crate) of_rest: f64,
    /// The share of all work that it has at least: it takes some milliseconds to get one ready.
    pub(crate) least: f64,
}

impl Batches {
    pub(crate) fn of(question: &Question) -> Self {
        match question {
            Question::Within(_) => Batches { of_rest: 2.0, least: 1.0 / 64.0 },
            // Finer ones: each processor has boxes of its own, and what a query costs one of them says
            // less of what it costs the other.
            Question::Nearest(_) => Batches { of_rest: 4.0, least: 1.0 / 128.0 },
        }
    }
}
/// Pairs that a batch of the GPU is expected to have at the most, as in the papers.
pub(crate) const MOST_PAIRS: f64 = 5e7;
/// Units whose pairs are counted to infer those of all: about so many.
pub(crate) const SAMPLED_UNITS: usize = 128;
/// Units that a queue should have, and the queries of one at the most.
const UNITS: usize = 2048;
const LARGEST: usize = 4096;

/// Of the sum of both throughputs, what is expected of both together: the papers have 0.65 to 1.2.
const TOGETHER: f64 = 0.85;
/// Seconds that it takes to share: units are probed, and batches go over the bus.
const SHARING: f64 = 0.005;
/// How much faster both must be than one alone, to be worth it: estimates may be wrong by a factor of
/// two, and one alone never does worse than itself.
const WORTH: f64 = 0.8;

/// Queries of a unit that both processors can take: whole blocks, and boxes of blocks where there
/// are many.
pub(crate) fn unit(queries: usize) -> u32 {
    let unit = (queries / UNITS).clamp(16, LARGEST);
    let step = if unit >= 256 { 256 } else { 16 };
    (unit / step * step) as u32
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The CPU alone.
    Cpu,
    /// The GPU, and the CPU stands by.
    Gpu,
    /// Both, through one queue.
    Both,
}

/// What was weighed, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Weighed {
    pub(crate) role: Role,
    /// Expected seconds to list all neighbours: on the CPU, on the GPU, on both.
    pub(crate) seconds: [f64; 3],
    /// Why, as a clause.
    pub(crate) why: String,
    /// The share of the work that the GPU is expected to do where both work.
    pub(crate) gpu_share: f64,
    /// What the speeds rest on, as a clause.
    pub(crate) calibration: String,
}

/// What the CPU and a GPU do together.
#[derive(Clone, Debug)]
pub(crate) struct Together {
    pub(crate) cpu: OnCpu,
    /// How the GPU does its part.
    pub(crate) gpu: Decision,
    /// Not `Auto`.
    pub(crate) partitioning: Partitioning,
    pub(crate) gpu_share: f64,
    /// Who counts alone, since two would test each pair of one set twice.
    pub(crate) counts_alone: Option<Device>,
}

/// Weighs both processors, alone and together.
pub(crate) fn weigh(
    options: &Options,
    on_cpu: &Decision,
    on_gpu: &Decision,
    calibration: String,
) -> Weighed {
    let (here, there) = (on_cpu.row_seconds(), on_gpu.row_seconds());
    let (cpu, gpu) = (here.total(), there.total());
    // While the CPU sorts its points, the GPU waits for the units that their order makes. Then both
    // search, and the answer goes to one memory, whoever found it.
    let search = here.search * there.search / (here.search + there.search).max(1e-12) / TOGETHER;
    let both = here.index + SHARING + search + here.written.max(there.written);
    let weighed = |role, why: String| Weighed {
        role,
        seconds: [cpu, gpu, both],
        why,
        gpu_share: (cpu / (cpu + gpu).max(1e-12)).clamp(0.0, 1.0),
        calibration: calibration.clone(),
    };
    if let How::Gpu(how) = &on_gpu.how
        && how.slabs > 1
    {
        let free = bytes(how.limit);
        return weighed(
            Role::Cpu,
            format!("the gpu's {free} of free memory do not hold the points"),
        );
    }
    if options.partitioning != Partitioning::Auto {
        return weighed(Role::Both, format!("shared by {}, as asked", options.partitioning));
    }
    if options.strategy != Strategy::Auto && on_gpu.chosen.strategy != options.strategy {
        let named = options.strategy;
        return weighed(
            Role::Both,
            format!("the cpu has the strategy {named}, and the gpu its own"),
        );
    }
    match () {
        () if both < WORTH * cpu.min(gpu) => {
            weighed(Role::Both, "both together are faster than either".into())
        }
        () if gpu < cpu => weighed(
            Role::Gpu,
            "the gpu leads and the cpu stands by: it would be done before the cpu could help"
                .into(),
        ),
        () => weighed(Role::Cpu, "the cpu is faster, and the gpu would not help it".into()),
    }
}

/// Makes one decision of two.
pub(crate) fn settle(
    asked: &Asked<'_>,
    on_cpu: Decision,
    on_gpu: Decision,
    weighed: Weighed,
) -> Decision {
    let How::Cpu(cpu) = &on_cpu.how else { return on_cpu };
    match weighed.role {
        Role::Gpu => Decision { weighed: Some(weighed), ..on_gpu },
        Role::Cpu => {
            let why_no_gpu = Some(weighed.why.clone());
            Decision { weighed: Some(weighed), why_no_gpu, ..on_cpu }
        }
        Role::Both => {
            // Two processors test each pair of one set from both sides, one alone only from one.
            let once = match asked.question {
                Question::Within(within) => {
                    on_cpu.is_self && within.removal != DuplicateRemoval::None
                }
                Question::Nearest(_) => false,
            };
            let options = asked.options;
            let faster = if weighed.gpu_share > 0.5 { Device::Gpu } else { Device::Cpu };
            let named = options.partitioning != Partitioning::Auto;
            let together = Together {
                cpu: cpu.clone(),
                gpu: on_gpu,
                partitioning: if named { options.partitioning } else { Partitioning::Dyn },
                gpu_share: weighed.gpu_share,
                counts_alone: (once && !named).then_some(faster),
            };
            Decision { how: How::Both(Box::new(together)), weighed: Some(weighed), ..on_cpu }
        }
    }
}
