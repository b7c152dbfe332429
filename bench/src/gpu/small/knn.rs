//! The nearest: every kernel of a tree, of brute force and of products.

use nearjoin::gpu::{GpuOptions, Knobs};
use nearjoin::sink::Neighbors;
use nearjoin::{Device, KnnJoin, Metric, Points, Scalar, Strategy};

use super::super::Target;
use super::super::data::{self, Law};
use super::super::knn::cases::Sides;
use super::super::knn::measure::{call, same};
use super::{PRODUCTS, SPACES};
use crate::Result;

/// Points for each of those of other trials, and for the first of each type: its tree is to have
/// several nodes.
const MANY: usize = 8;
const SEVERAL_NODES: usize = 48;
const TWICE: usize = 2;
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
    /// How much room lists have, of what they should.
    estimate: Option<f64>,
    /// Points for each of those of other trials.
    times: usize,
}

/// Every k in a tree and some by brute force, in both types and spaces; and by products, with room on their
/// lists and without.
pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for wide in [false, true] {
        for (dimension, metric) in SPACES {
            for (at, k) in KS.into_iter().enumerate() {
                let two_sets = at % 2 == 1;
                let is_first = at == 0 && dimension == SPACES[0].0;
                let times = if is_first { SEVERAL_NODES } else { MANY };
                let (strategy, estimate) = (Strategy::Tree, None);
                let tree =
                    Trial { wide, strategy, k, dimension, metric, two_sets, estimate, times };
                trials.push(tree);
                if at % 3 == 0 {
                    trials.push(Trial { strategy: Strategy::Brute, times: MANY, ..tree });
                }
            }
        }
        for (at, dimension) in PRODUCTS.into_iter().enumerate() {
            let (strategy, metric, k, times) = (Strategy::Product, Metric::L2, KS[at], TWICE);
            let (two_sets, estimate) = (at == 1, None);
            let roomy = Trial { wide, strategy, k, dimension, metric, two_sets, estimate, times };
            trials.extend([roomy, Trial { estimate: Some(0.0), ..roomy }]);
        }
    }
    trials
}

/// Compares an answer with the CPU's, in every bit.
pub(super) fn compare<T: Scalar>(trial: &Trial, target: &Target, points: usize) -> Result<()> {
    let Trial { dimension, strategy, k, estimate, .. } = *trial;
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
    let knobs = Knobs { estimate, ..Knobs::default() };
    let on_gpu = target.on_with(Device::Gpu, &join.clone().strategy(strategy), gpu, knobs);
    let (mut found, mut expected) = (Neighbors::new(), Neighbors::new());
    call(&on_gpu, &sides, &mut found)?;
    call(&join.device(Device::Cpu), &sides, &mut expected)?;
    same("the GPU", &found, &expected)
}
