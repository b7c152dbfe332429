//! The GPU engine against the oracle: on the kernels' own sources run by the CPU, or on the GPU
//! of this machine where `NEARJOIN_TEST_GPU` is set.

mod boxes;
mod calibration;
mod cases;
pub(crate) mod faults;
mod kernels;
mod nearest;
mod product;
mod scores;

use std::sync::Arc;

use nearjoin::gpu::{Cooperation, GpuOptions, Knobs, Schedule};
use nearjoin::{Metric, Scalar, Strategy};
use nearjoin_simt::Simt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::check::Case;
use crate::data::Data;

/// Whether the tests run on a real GPU.
pub(crate) fn real() -> bool {
    std::env::var_os("NEARJOIN_TEST_GPU").is_some()
}

/// Knobs with the device that is tested.
pub(crate) fn knobs() -> Knobs {
    let mut knobs = Knobs::default();
    if !real() {
        knobs.driver = Some(Arc::new(Simt::new().lazy()));
    }
    knobs
}

/// Options for the device that is tested.
pub(crate) fn gpu() -> GpuOptions {
    GpuOptions::new().knobs(knobs())
}

/// Ways to go about a join that have little in common.
fn ways() -> Vec<(&'static str, GpuOptions)> {
    let with = |change: &dyn Fn(&mut Knobs)| {
        let mut knobs = knobs();
        change(&mut knobs);
        GpuOptions::new().knobs(knobs)
    };
    vec![
        ("auto", gpu()),
        ("listed", with(&|knobs| knobs.listed = Some(true))),
        (
            "counted, small batches",
            with(&|knobs| knobs.listed = Some(false)).batch_bytes(600).chunk_bytes(256),
        ),
        ("thread", gpu().cooperation(Cooperation::Thread)),
        ("4 threads, queue", gpu().threads_per_query(4).schedule(Schedule::WorkQueue)),
        ("warp, sorted", gpu().cooperation(Cooperation::Warp).schedule(Schedule::SortByWorkload)),
        ("cell, queue", gpu().cooperation(Cooperation::Cell).schedule(Schedule::WorkQueue)),
        ("partitions", with(&|knobs| knobs.partitions = Some(3))),
        ("boxes, loose", with(&|knobs| (knobs.boxes, knobs.loose) = (Some(true), Some(1e9)))),
        ("tight", with(&|knobs| knobs.loose = Some(0.0))),
    ]
}

/// Checks one distribution in every dimension that has kernels of its own, and beyond: every
/// metric, one set, with and without itself, and two. Which way, strategy and sinks go with
/// which, chance says: the product of all would take hours.
fn distribution<T: Scalar>(data: Data) {
    let ways = ways();
    let strategies = [Strategy::Grid, Strategy::Brute, Strategy::Grid, Strategy::Directory];
    let chance = &mut StdRng::seed_from_u64(data as u64 * 16 + size_of::<T>() as u64);
    for dim in [1, 2, 3, 4, 5, 6, 7, 8, 9] {
        let left = data.points::<T>(70, dim, 1);
        let right = data.points::<T>(45, dim, 2);
        let (left, right) = (left.as_points(), right.as_points());
        for metric in Metric::ALL {
            let (way, gpu) = &ways[chance.random_range(0..ways.len())];
            let name = format!("{data:?} {} {dim}-D, {way}", T::NAME);
            let case = match chance.random_range(0..3) {
                2 => Case::between(&name, left, right, data.eps(&left, &right, metric)),
                of => {
                    Case::within(&name, left, data.eps(&left, &left, metric)).include_self(of == 1)
                }
            };
            let case = case.metric(metric).on(gpu);
            let strategy = strategies[chance.random_range(0..strategies.len())];
            case.check_some(strategy, &case.oracle(), chance);
        }
    }
}

/// Tests of each distribution in both types, by the function `distribution` of a module.
macro_rules! distributions {
    ($($name:ident: $data:ident),+ $(,)?) => { $(
        mod $name {
            #[test]
            fn f32() {
                super::distribution::<f32>(crate::data::Data::$data);
            }
            #[test]
            fn f64() {
                super::distribution::<f64>(crate::data::Data::$data);
            }
        }
    )+ };
}

pub(crate) use distributions;

distributions! {
    uniform: Uniform,
    exponential: Exponential,
    clustered: Clustered,
    lattice: Lattice,
    rough_lattice: RoughLattice,
    duplicates: Duplicates,
    collinear: Collinear,
    one_point: OnePoint,
    empty: Empty,
    huge_offset: HugeOffset,
    dense_ball: DenseBall,
    near_miss: NearMiss,
    sphere: Sphere,
    piles: Piles,
}
