//! Devices that do not do what they are asked: the answer is right or there is none, and
//! nothing is lost on the way.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use nearjoin::gpu::{Cooperation, GpuOptions, Knobs};
use nearjoin::sink::{Block, Callback, Count, CsrSink, Degrees, Pairs};
use nearjoin::{Device, EpsJoin, Error, Points, PointsBuf, Result, Stats, Strategy};
use nearjoin_simt::Simt;

use crate::check::bits;
use crate::data::Data;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Csr,
    Callback,
    Count,
    Degrees,
    Pairs,
}

pub(crate) const ALL: [Asked; 5] =
    [Asked::Csr, Asked::Callback, Asked::Count, Asked::Degrees, Asked::Pairs];

/// What came, in an order of its own.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Pairs(Vec<(u32, u32, u64)>),
    Degrees(Vec<u64>),
    Count(u64),
}

/// Short: of thousands of pairs, nobody reads any.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Pairs(pairs) => write!(f, "{} pairs", pairs.len()),
            Answer::Degrees(degrees) => write!(f, "degrees {:?}", degrees.iter().sum::<u64>()),
            Answer::Count(count) => write!(f, "a count of {count}"),
        }
    }
}

impl Asked {
    /// Joins points with themselves.
    pub(crate) fn join(self, join: &EpsJoin, points: &Points<'_, f32>) -> Result<(Answer, Stats)> {
        let plan = join.plan_self(points)?;
        match self {
            Asked::Csr => {
                let mut sink = CsrSink::new().distances(true);
                let stats = plan.run(&mut sink)?;
                let csr = sink.into_csr();
                let pairs = (0..csr.len()).flat_map(|row| {
                    let distances = csr.distances_of(row).iter().map(bits);
                    let ids = csr.ids_of(row).iter().zip(distances);
                    ids.map(move |(id, distance)| (row as u32, *id, distance))
                });
                Ok((Answer::pairs(pairs.collect()), stats))
            }
            Asked::Callback => {
                let mut pairs = Vec::new();
                let sink = Callback::new(|block: &Block<f32>| {
                    let mut distances = block.distances.iter().map(bits);
                    for (query, ids) in block.iter() {
                        pairs.extend(ids.iter().map(|&id| (query, id, distances.next().unwrap())));
                    }
                    ControlFlow::Continue(())
                });
                let stats = plan.run(&mut sink.distances(true))?;
                Ok((Answer::pairs(pairs), stats))
            }
            Asked::Count => {
                let mut sink = Count::new();
                let stats = plan.run(&mut sink)?;
                Ok((Answer::Count(sink.pairs()), stats))
            }
            Asked::Degrees => {
                let mut sink = Degrees::new();
                let stats = plan.run(&mut sink)?;
                Ok((Answer::Degrees(sink.into_vec()), stats))
            }
            Asked::Pairs => {
                let mut sink = Pairs::new().distances(true).half(true);
                let stats = plan.run(&mut sink)?;
                let (left, right, distances) = sink.into_columns();
                let ids = left.into_iter().zip(right).zip(&distances);
                let pairs = ids.map(|((left, right), distance)| (left, right, bits(distance)));
                Ok((Answer::pairs(pairs.collect()), stats))
            }
        }
    }
}

impl Answer {
    fn pairs(mut pairs: Vec<(u32, u32, u64)>) -> Self {
        pairs.sort_unstable();
        Answer::Pairs(pairs)
    }
}

/// Points, ε, and a way to join them on a device.
struct Trial {
    points: PointsBuf<f32>,
    eps: f64,
    strategy: Strategy,
    gpu: GpuOptions,
    knobs: Knobs,
}

impl Trial {
    fn new(points: PointsBuf<f32>, eps: f64) -> Self {
        let (gpu, knobs) = (GpuOptions::new(), Knobs::default());
        Trial { points, eps, strategy: Strategy::Grid, gpu, knobs }
    }

    /// A few points, of which each has some neighbours.
    fn small(listed: bool, partitions: Option<usize>) -> Self {
        let mut trial = Trial::new(Data::Uniform.points(90, 2, 5), 12.0);
        trial.knobs.listed = Some(listed);
        trial.knobs.partitions = partitions;
        trial
    }

    fn options(&self) -> EpsJoin {
        EpsJoin::new(self.eps).strategy(self.strategy)
    }

    /// What the CPU says.
    fn right(&self, asked: Asked) -> Answer {
        let join = self.options().device(Device::Cpu);
        asked.join(&join, &self.points.as_points()).unwrap().0
    }

    /// What a device says; it has everything back in any case.
    fn on(&self, simt: &Simt, asked: Asked) -> Result<(Answer, Stats)> {
        let mut knobs = self.knobs.clone();
        knobs.driver = Some(Arc::new(simt.clone()));
        let join = self.options().device(Device::Gpu).gpu(self.gpu.clone().knobs(knobs));
        let answer = asked.join(&join, &self.points.as_points());
        assert_eq!(simt.leaks(), [""; 0], "{asked:?}: not given back");
        answer
    }

    /// A right answer, with the stats.
    fn check(&self, simt: &Simt, asked: Asked) -> Stats {
        let (answer, stats) = self.on(simt, asked).unwrap_or_else(|e| panic!("{asked:?}: {e}"));
        assert_eq!(answer, self.right(asked), "{asked:?}");
        stats
    }
}

/// The reason why a device cannot be used.
fn reason(error: &Error, context: &str) -> String {
    let Error::Device { device: "gpu", reason } = error else { panic!("{context}: {error:?}") };
    assert!(error.to_string().contains("the device gpu cannot be used: "), "{context}: {error}");
    reason.clone()
}

/// Ways that ask for memory in different places.
fn ways() -> [(&'static str, Trial); 5] {
    let mut batches = Trial::small(false, None);
    batches.gpu = GpuOptions::new().batch_bytes(500).chunk_bytes(128);
    batches.gpu = batches.gpu.cooperation(Cooperation::Warp);
    batches.strategy = Strategy::Brute;
    let mut parts = Trial::small(true, Some(3));
    parts.strategy = Strategy::Brute;
    let mut products = Trial::new(Data::Uniform.points(90, 20, 5), 150.0);
    products.strategy = Strategy::Product;
    [
        ("products", products),
        ("counted", Trial::small(false, None)),
        ("listed", Trial::small(true, None)),
        ("batches", batches),
        ("parts", parts),
    ]
}

/// Goes through the n-th fault of a kind for every n; gives how many joins came through it.
fn each_fault(
    number: impl Fn(&Simt) -> u64,
    fault: impl Fn(Simt, u64) -> Simt,
    check: impl Fn(&Error, &str),
) -> usize {
    let mut right = 0;
    for (name, trial) in ways() {
        for asked in ALL {
            // Those that want no rows do the same whatever becomes of rows.
            let rows = !matches!(asked, Asked::Count | Asked::Degrees);
            if !rows && ["listed", "batches"].contains(&name) {
                continue;
            }
            let clean = Simt::new().lazy();
            trial.check(&clean, asked);
            let (number, expected) = (number(&clean), trial.right(asked));
            assert!(number > 0);
            for n in 1..=number {
                let context = format!("{name}, {asked:?}, fault {n} of {number}");
                match trial.on(&fault(Simt::new().lazy(), n), asked) {
                    Ok((answer, _)) => {
                        assert_eq!(answer, expected, "{context}");
                        right += 1;
                    }
                    Err(error) => check(&error, &context),
                }
            }
        }
    }
    right
}

#[test]
fn any_allocation_may_fail() {
    let right = each_fault(
        |simt| simt.counts().allocations,
        |simt, n| simt.fail_allocation(n),
        |error, context| {
            let reason = reason(error, context);
            assert!(reason.starts_with("it has no ") && reason.ends_with(" of memory to spare"));
        },
    );
    // Batches are made smaller, parts are cut again, lists are given up for counts.
    assert!(right > 50, "{right}");
}

#[test]
fn any_request_for_host_memory_may_fail() {
    each_fault(
        |simt| simt.counts().pins,
        |simt, n| simt.fail_pin(n),
        |error, context| {
            let reason = reason(error, context);
            assert!(reason.ends_with(" of memory to spare"), "{context}: {reason}");
        },
    );
}

#[test]
fn the_device_may_be_lost_at_any_launch() {
    let right = each_fault(
        |simt| simt.counts().launches,
        |simt, n| simt.lose_at_launch(n),
        |error, context| {
            let reason = reason(error, context);
            assert!(reason.starts_with("the device was lost at launch "), "{context}: {reason}");
        },
    );
    assert_eq!(right, 0, "an answer of a device that is lost");
}

#[test]
fn a_device_that_was_lost_before_is_an_error() {
    let simt = Simt::new();
    simt.lose();
    let trial = Trial::small(false, None);
    let error = trial.on(&simt, Asked::Count).unwrap_err();
    assert_eq!(reason(&error, ""), "the device was lost");
}

#[test]
fn points_that_do_not_fit_are_cut_into_parts() {
    let mut trial = Trial::new(Data::Uniform.points(1500, 2, 5), 2.0);
    for listed in [false, true] {
        trial.knobs.listed = Some(listed);
        let simt = Simt::new().lazy().memory(8 << 20);
        for asked in ALL {
            let stats = trial.check(&simt, asked);
            let gpu = stats.gpu.unwrap();
            assert!(gpu.partitions > 1, "{gpu:?}");
        }
    }
}

#[test]
fn the_limit_is_as_good_as_the_memory() {
    let mut trial = Trial::new(Data::Exponential.points(800, 3, 5), 0.01);
    trial.gpu = GpuOptions::new().memory_limit(20 << 20);
    let simt = Simt::new().lazy();
    let gpu = trial.check(&simt, Asked::Csr).gpu.unwrap();
    assert!(gpu.partitions > 1, "{gpu:?}");
    assert!(simt.counts().peak < 20 << 20, "{:?}", simt.counts());
}

#[test]
fn parts_that_do_not_fit_are_cut_again() {
    let mut trial = Trial::new(Data::Uniform.points(3000, 2, 5), 1.0);
    trial.strategy = Strategy::Brute;
    trial.knobs.partitions = Some(2);
    // Of 8 bytes each, some 1500 points are too many, and some 750 are not.
    let simt = Simt::new().lazy().largest_allocation(8 * 900);
    for asked in ALL {
        let gpu = trial.check(&simt, asked).gpu.unwrap();
        assert!(gpu.splits > 0 && gpu.partitions > 2, "{gpu:?}");
    }
    // Equal points cannot be told apart.
    trial.points = PointsBuf::from_vec(vec![1.0; 6000], 2).unwrap();
    let error = trial.on(&simt, Asked::Count).unwrap_err();
    assert!(reason(&error, "").ends_with("of memory to spare"), "{error}");
}

#[test]
fn estimates_that_are_too_low_cost_another_pass() {
    let mut trial = Trial::new(Data::Uniform.points(600, 2, 5), 8.0);
    trial.knobs.listed = Some(true);
    trial.knobs.estimate = Some(0.01);
    for cooperation in [Cooperation::Cell, Cooperation::Thread] {
        trial.gpu = GpuOptions::new().cooperation(cooperation);
        for asked in [Asked::Csr, Asked::Callback, Asked::Pairs] {
            let gpu = trial.check(&Simt::new().lazy(), asked).gpu.unwrap();
            assert!(gpu.splits > 0, "{asked:?}: {gpu:?}");
        }
    }
}

#[test]
fn batches_may_be_smaller_than_a_row() {
    let mut trial = Trial::small(false, None);
    for bytes in [1, 4, 7, 64, 300] {
        trial.gpu = GpuOptions::new().batch_bytes(bytes).chunk_bytes(bytes as usize);
        for asked in [Asked::Csr, Asked::Callback, Asked::Pairs] {
            let gpu = trial.check(&Simt::new().lazy(), asked).gpu.unwrap();
            assert!(gpu.batches > 3, "{bytes} bytes: {gpu:?}");
        }
    }
}

#[test]
fn answers_larger_than_the_device_go_through_it() {
    let (points, eps) = (Data::Uniform.points::<f32>(1400, 2, 5), 80.0);
    let mut trial = Trial::new(points, eps);
    trial.strategy = Strategy::Brute;
    trial.knobs.partitions = Some(1);
    for listed in [false, true] {
        trial.knobs.listed = Some(listed);
        let memory = 8 << 20;
        let simt = Simt::new().lazy().memory(memory);
        for asked in [Asked::Callback, Asked::Csr] {
            let stats = trial.check(&simt, asked);
            assert!(8 * stats.pairs > memory, "{} pairs would fit", stats.pairs);
            assert!(simt.counts().peak <= memory);
        }
    }
}

#[test]
fn batches_that_are_refused_are_made_smaller() {
    let mut trial = Trial::new(Data::Uniform.points(1100, 2, 5), 100.0);
    trial.strategy = Strategy::Brute;
    trial.knobs.listed = Some(false);
    // Some four megabytes of ids.
    let simt = Simt::new().lazy().largest_allocation(3 << 20);
    for asked in [Asked::Callback, Asked::Csr] {
        let gpu = trial.check(&simt, asked).gpu.unwrap();
        assert!(gpu.splits > 0, "{gpu:?}");
    }
}
