//! Two processors on a KNN-join, one of them a sham that is lost at every call in turn: whatever is
//! asked, the answer is that of the oracle, and the loss is told.

mod sham;

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Mutex;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::sham::{Script, Sham};
use super::{Lead, Reserve, Setup, Shared};
use crate::exec::cpu::build_knn::Setup as KnnSetup;
use crate::exec::cpu::kernel::SimdLevel;
use crate::exec::cpu::knn::CpuKnn;
use crate::exec::cpu::units::{Load, OnHost};
use crate::exec::pool::Pool;
use crate::exec::queue::Queue;
use crate::exec::{Emit, Executor, Part, Request, Rows};
use crate::memory::as_atomic;
use crate::metric::{Metric, Threshold};
use crate::options::{Device, Partitioning, Strategy};
use crate::oracle;
use crate::plan::Multiplying;
use crate::plan::hybrid::Batches;
use crate::points::Points;
use crate::scale::Scale;
use crate::summary::extents;

/// Queries: several units of work.
const QUERIES: usize = 150;

/// Queries of a unit of the CPU alone, and tests that it expects.
const UNIT: usize = 32;
const EXPECTED_TESTS: f64 = 1e5;

/// Neighbours with their distances.
type Row = Vec<(u32, f64)>;

/// A join that is asked of two processors.
struct Case {
    name: &'static str,
    left: Vec<f64>,
    right: Option<Vec<f64>>,
    k: usize,
    include_self: bool,
    /// Nothing farther away is a neighbour.
    most: f64,
    strategy: Strategy,
}

/// How both go about it.
#[derive(Clone, Copy, Debug)]
enum Way {
    Led,
    Shared(Partitioning),
    /// The same, where the count is left to the device.
    CountedAlone,
}

const WAYS: [Way; 5] = [
    Way::Led,
    Way::Shared(Partitioning::Dyn),
    Way::Shared(Partitioning::StaticQueries),
    Way::Shared(Partitioning::StaticCandidates),
    Way::CountedAlone,
];

/// Which queries are asked.
#[derive(Clone, Copy, Debug)]
enum Of {
    All,
    SomeRows,
    SomePositions,
}

/// What is asked of them.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Count,
    Degrees,
    Rows,
    SortedRows,
}

/// Points of a lattice, where most distances come often and some points twice.
fn lattice(points: usize, seed: u64) -> Vec<f64> {
    let chance = &mut StdRng::seed_from_u64(seed);
    (0..2 * points).map(|_| f64::from(chance.random_range(0..12))).collect()
}

fn cases() -> Vec<Case> {
    let case = |name, k, strategy| Case {
        name,
        left: lattice(QUERIES, 1),
        right: None,
        k,
        include_self: false,
        most: f64::INFINITY,
        strategy,
    };
    vec![
        case("tree", 5, Strategy::Tree),
        Case { right: Some(lattice(70, 2)), ..case("two sets", 3, Strategy::Grid) },
        Case { include_self: true, ..case("brute", 80, Strategy::Brute) },
        Case { most: 1.0, ..case("within a distance", 9, Strategy::Tree) },
    ]
}

fn points(data: &[f64]) -> Points<'_, f64> {
    Points::new(data, 2).unwrap()
}

impl Case {
    fn truth(&self) -> Vec<Row> {
        let (left, right) = (points(&self.left), self.right.as_deref().map(points));
        let (other, excludes) = (right.unwrap_or(left), right.is_none() && !self.include_self);
        let mut rows = oracle::knn_join(&left, &other, self.k, Metric::L2, excludes).unwrap();
        rows.iter_mut().for_each(|row| row.retain(|pair| pair.1 <= self.most));
        rows
    }

    fn on_cpu<'a>(&'a self, pool: &'a Pool) -> CpuKnn<'a, f64> {
        let left = points(&self.left);
        let arithmetic = match self.most.is_finite() {
            true => Threshold::new(Metric::L2, self.most, Scale::NONE).unwrap(),
            false => Threshold::none(Metric::L2, Scale::NONE),
        };
        let setup = KnnSetup {
            pool,
            simd: SimdLevel::detect().unwrap(),
            arithmetic,
            left,
            right: self.right.as_deref().map(points),
            include_self: self.include_self,
            k: self.k,
            cap: arithmetic.bound,
            strategy: self.strategy,
            extents: &extents(left),
            unit: UNIT,
            multiplying: &Multiplying::PLAIN,
            monitor: None,
            expected_tests: EXPECTED_TESTS,
        };
        CpuKnn::new(setup).unwrap()
    }

    /// The join, whose device is a sham.
    fn on_both<'a>(
        &'a self,
        way: Way,
        pool: &'a Pool,
        other: &'a CpuKnn<'a, f64>,
        script: &'a Script,
    ) -> Box<dyn Executor<f64> + 'a> {
        let left = points(&self.left);
        let (partitioning, counts_alone) = match way {
            Way::Led => {
                let reserve = Reserve::new(move || Ok(Box::new(self.on_cpu(pool))));
                let sham = Sham::index(other, left, script);
                return Box::new(Lead::new(sham, reserve, left, pool).unwrap());
            }
            Way::Shared(partitioning) => (partitioning, None),
            Way::CountedAlone => (Partitioning::Dyn, Some(Device::Gpu)),
        };
        let batches = Batches { of_rest: 2.0, least: 1.0 / 64.0 };
        let setup = Setup { partitioning, batches, gpu_share: 0.6, counts_alone, monitor: None };
        let on_cpu = || Ok(Box::new(self.on_cpu(pool)) as _);
        Box::new(Shared::new(setup, on_cpu, || Sham::index(other, left, script)).unwrap())
    }
}

impl Of {
    /// Asks some queries, or all, and compares with their rows of the truth.
    fn check(self, join: &dyn Executor<f64>, left: Points<'_, f64>, asked: Asked, truth: &[Row]) {
        match self {
            Of::All => asked.check(join, truth),
            Of::SomeRows => {
                let rows: Vec<u32> = (0..left.len() as u32).rev().step_by(2).collect();
                let points = left.gather(&rows).unwrap();
                let part = join.part(Part::Rows { rows: &rows, points: points.as_points() });
                asked.check(&*part.unwrap(), &of_rows(truth, &rows));
            }
            Of::SomePositions => {
                let rows = join.rows_at(32..96).unwrap();
                let part = join.part(Part::Positions { start: 32, end: 96 });
                asked.check(&*part.unwrap(), &of_rows(truth, &rows));
            }
        }
    }
}

fn of_rows(truth: &[Row], rows: &[u32]) -> Vec<Row> {
    rows.iter().map(|&row| truth[row as usize].clone()).collect()
}

/// The rows of all queries of a join, each of which comes once; and what was done.
fn collected<R>(
    join: &dyn Executor<f64>,
    rows: impl FnOnce(&Emit<'_, f64>) -> R,
) -> (Vec<Option<Row>>, R) {
    let found = Mutex::new(vec![None; join.len()]);
    let work = rows(&|rows: &Rows<'_, f64>| {
        assert!(rows.worker < join.workers());
        let mut found = found.lock().unwrap();
        for (at, &query) in rows.queries.iter().enumerate() {
            let ids = rows.neighbors.row(at).iter().copied();
            let row = ids.zip(rows.distances(at).unwrap().iter().copied()).collect();
            assert!(found[query as usize].replace(row).is_none(), "{query} again");
        }
        ControlFlow::Continue(())
    });
    (found.into_inner().unwrap(), work)
}

impl Asked {
    fn check(self, join: &dyn Executor<f64>, truth: &[Row]) {
        assert_eq!(join.len(), truth.len());
        let work = match self {
            Asked::Count => join.count(),
            Asked::Degrees => {
                let mut degrees = vec![u64::MAX; truth.len()];
                let work = join.degrees(as_atomic(&mut degrees));
                assert!(degrees.iter().zip(truth).all(|(&found, row)| found == row.len() as u64));
                work
            }
            Asked::Rows | Asked::SortedRows => {
                let sorted = matches!(self, Asked::SortedRows);
                let request = Request { sorted, distances: true, ..Request::default() };
                let (found, work) = collected(join, |emit| join.rows(request, emit));
                for (found, row) in found.into_iter().zip(truth) {
                    let mut row = row.clone();
                    if sorted {
                        row.sort_by_key(|pair| pair.0);
                    }
                    assert_eq!(found, Some(row));
                }
                work
            }
        };
        let all: usize = truth.iter().map(Vec::len).sum();
        assert_eq!(work.unwrap().pairs, all as u64);
    }
}

#[test]
fn the_device_may_be_lost_at_any_call() {
    let pool = Pool::new(Some(2)).unwrap();
    let mut lost = 0;
    for case in cases() {
        let (truth, other) = (case.truth(), case.on_cpu(&pool));
        for way in WAYS {
            for of in [Of::All, Of::SomeRows, Of::SomePositions] {
                for asked in [Asked::Count, Asked::Degrees, Asked::Rows, Asked::SortedRows] {
                    let run = |lost_at: usize| {
                        let script = Script::lost_at(lost_at);
                        let join = case.on_both(way, &pool, &other, &script);
                        of.check(&*join, points(&case.left), asked, &truth);
                        let told = join.hybrid_stats().unwrap();
                        let context = format!("{} {way:?} {of:?} {asked:?} {lost_at}", case.name);
                        assert_eq!(told.lost.is_some(), script.is_lost(), "{context}: {told:?}");
                        drop(join);
                        script
                    };
                    // On demand, threads of the CPU may leave nothing to the device.
                    let calls = run(usize::MAX).calls().max(8);
                    lost += (1..=calls).filter(|&call| run(call).is_lost()).count();
                }
            }
        }
    }
    println!("the device was lost {lost} times");
    assert!(lost > 1000, "{lost}");
}

/// Units are what others make them: larger, too, than those that the CPU would make.
#[test]
fn units_of_any_size() {
    let pool = Pool::new(Some(2)).unwrap();
    for case in cases() {
        let (join, truth) = (case.on_cpu(&pool), case.truth());
        for unit in [16, 48, 2 * QUERIES] {
            let queue = Queue::new(&join.positions(), unit);
            let request = Request { distances: true, ..Request::default() };
            let (found, _) = collected(&join, |emit| join.rows_of_units(request, emit, &queue));
            assert!(found.into_iter().eq(truth.iter().cloned().map(Some)), "{} {unit}", case.name);
        }
        let loads = join.loads(64, 1);
        let sum = |of: &dyn Fn(&Load) -> f64| loads.iter().map(of).sum::<f64>();
        assert_eq!(sum(&|load| load.pairs.unwrap()), (QUERIES * case.k) as f64, "{}", case.name);
        assert!((sum(&|load| load.work) / EXPECTED_TESTS - 1.0).abs() < 1e-9, "{}", case.name);
    }
}

/// Who answered how many queries is told, and adds up after a loss too.
#[test]
fn both_tell_what_they_did() {
    let pool = Pool::new(Some(2)).unwrap();
    let case = &cases()[0];
    let (truth, other) = (case.truth(), case.on_cpu(&pool));
    for way in WAYS {
        for lost_at in [1, 4, 6, usize::MAX] {
            let script = Script::lost_at(lost_at);
            let join = case.on_both(way, &pool, &other, &script);
            Asked::Rows.check(&*join, &truth);
            let told = join.hybrid_stats().unwrap();
            let [cpu, gpu] = [Device::Cpu, Device::Gpu].map(|device| told.of(device));
            assert_eq!(cpu.queries + gpu.queries, QUERIES as u64, "{way:?} {lost_at}: {told:?}");
            assert!(lost_at > 1 || gpu.queries == 0, "{way:?}: {told:?}");
        }
    }
}

/// A sink that has had enough ends both, and nothing is amiss.
#[test]
fn both_stop() {
    let pool = Pool::new(Some(2)).unwrap();
    let case = &cases()[0];
    let other = case.on_cpu(&pool);
    for way in WAYS {
        let script = Script::lost_at(usize::MAX);
        let join = case.on_both(way, &pool, &other, &script);
        let delivered = AtomicUsize::new(0);
        let work = join.rows(Request::default(), &|rows: &Rows<'_, f64>| {
            delivered.fetch_add(rows.queries.len(), Relaxed);
            ControlFlow::Break(())
        });
        assert!(work.is_ok() && delivered.into_inner() < QUERIES, "{way:?}: {work:?}");
    }
}
