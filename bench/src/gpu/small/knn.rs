//! The nearest: every kernel of a tree and of brute force.

use nearjoin::gpu::{GpuOptions, Knobs};
use nearjoin::sink::Neighbors;
use nearjoin::{Device, KnnJoin, Metric, Points, Scalar, Strategy};

use super::super::Target;
use super::super::data::{self, Law};
use super::super::knn::cases::Sides;
use super::super::knn::measure::{call, same};
use super::SPACES;
use crate::Result;

/// Points for each of those of other trials, and for the first of each type: its tree is to have
/// several nodes.
const MANY: usize = 8;
const SEVERAL_NODES: usize = 48;
/// Each has a kernel of its own in leaves; the best of the last are not kept in registers.
const KS: [usize; 4] = [3, 12, 30, 70];

/// A way to go about a join, and what is joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub(super) wide: bool,
    strategy: Strategy,
    k: usize,
    dimension: usize,
    metric: Metric,
    two_sets: bool,
    /// Points for each of those of other trials.
    times: usize,
}

/// Every k in a tree and some by brute force, in both types and spaces.
pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for wide in [false, true] {
        for (dimension, metric) in SPACES {
            for (at, k) in KS.into_iter().enumerate() {
                let two_sets = at % 2 == 1;
                let is_first = at == 0 && dimension == SPACES[0].0;
                let times = if is_first { SEVERAL_NODES } else { MANY };
                let strategy = Strategy::Tree;
                trials.push(Trial { wide, strategy, k, dimension, metric, two_sets, times });
                if at % 3 == 0 {
                    let (strategy, times) = (Strategy::Brute, MANY);
                    trials.push(Trial { wide, strategy, k, dimension, metric, two_sets, times });
                }
            }
        }
    }
    trials
}

/// Compares an answer with the CPU's, in every bit.
pub(super) fn compare<T: Scalar>(trial: &Trial, target: &Target, points: usize) -> Result<()> {
    let Trial { dimension, strategy, k, .. } = *trial;
    let data: Vec<T> = data::draw(Law::Exponential, points * trial.times, dimension);
    let (asking, points) = match trial.two_sets {
        true => data.split_at(points * dimension),
        false => (&data[..0], &data[..]),
    };
    let asking = trial.two_sets.then(|| Points::new(asking, dimension)).transpose()?;
    let sides = Sides { points: Points::new(points, dimension)?, asking };
    let join = KnnJoin::new(k).metric(trial.metric).pad(true);
    // Several batches.
    let gpu = GpuOptions::new().batch_bytes(100_000);
    let on_gpu =
        target.on_with(Device::Gpu, &join.clone().strategy(strategy), gpu, Knobs::default());
    let (mut found, mut expected) = (Neighbors::new(), Neighbors::new());
    call(&on_gpu, &sides, &mut found)?;
    call(&join.device(Device::Cpu), &sides, &mut expected)?;
    same("the GPU", &found, &expected)
}
