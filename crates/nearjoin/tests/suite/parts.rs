//! A join cut into parts, each given to the CPU or to the emulated GPU, in any order: together
//! they are the answer of the whole.

use std::ops::ControlFlow;
use std::sync::Arc;

use nearjoin::gpu::{GpuOptions, Knobs};
use nearjoin::sink::{Block, Callback, Count, CsrSink, Degrees, Pairs};
use nearjoin::{
    Device, EpsJoin, Indexed, KnnJoin, Metric, Neighbors, Plan, Points, Scalar, Strategy, oracle,
};
use nearjoin_simt::Simt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::check::{Case, bits};
use crate::data::Data;

/// A pair with the bits of its distance.
type Pair = (u32, u32, u64);

/// Rows in parts at random, in any order; some parts are empty.
fn cut(rows: usize, chance: &mut StdRng) -> Vec<Vec<u32>> {
    let mut parts = vec![Vec::new(); chance.random_range(1..6)];
    let mut all: Vec<u32> = (0..rows as u32).collect();
    all.shuffle(chance);
    for row in all {
        let part = chance.random_range(0..parts.len());
        parts[part].push(row);
    }
    parts.shuffle(chance);
    parts
}

/// Positions in ranges at random, whose ends are multiples of 16 or the end; in any order.
fn ranges(len: usize, chance: &mut StdRng) -> Vec<std::ops::Range<u32>> {
    let (mut ranges, mut start) = (Vec::new(), 0);
    while start < len as u32 {
        let end = (len as u32).min(start + 16 * chance.random_range(1..4));
        ranges.push(start..end);
        start = end;
    }
    ranges.shuffle(chance);
    ranges
}

/// Plans of one case: on the CPU by every strategy, and on the emulated GPU in several ways.
fn plans<'a, T: Scalar>(case: &Case<'a, T>) -> Vec<Plan<'a, T>> {
    let plan = |join: EpsJoin| {
        let join = join.metric(case.metric).include_self(case.include_self);
        match &case.right {
            Some(right) => join.plan(&case.left, right).unwrap(),
            None => join.plan_self(&case.left).unwrap(),
        }
    };
    let on_cpu = |strategy| EpsJoin::new(case.eps).device(Device::Cpu).strategy(strategy);
    let on_gpu = |change: &dyn Fn(&mut Knobs)| {
        let mut knobs = Knobs { driver: Some(Arc::new(Simt::new().lazy())), ..Knobs::default() };
        change(&mut knobs);
        EpsJoin::new(case.eps).device(Device::Gpu).gpu(GpuOptions::new().knobs(knobs))
    };
    vec![
        plan(on_cpu(Strategy::Brute)),
        plan(on_cpu(Strategy::Directory).directory(2, 4)),
        plan(on_cpu(Strategy::Grid)),
        plan(on_cpu(Strategy::Ego)),
        plan(on_cpu(Strategy::Product)),
        plan(on_gpu(&|knobs| knobs.listed = Some(false))),
        plan(on_gpu(&|knobs| knobs.listed = Some(true)).strategy(Strategy::Brute)),
        plan(on_gpu(&|knobs| knobs.partitions = Some(3))),
    ]
}

/// The pairs of a CSR whose row `i` belongs to `rows[i]`.
fn pairs_of<T: Scalar>(sink: &CsrSink<T>, rows: &[u32], found: &mut Vec<Pair>) {
    let csr = sink.csr();
    assert_eq!(csr.len(), rows.len());
    for (place, &row) in rows.iter().enumerate() {
        let distances = csr.distances_of(place).iter().map(bits);
        assert!(csr.ids_of(place).is_sorted(), "row {row}");
        found.extend(csr.ids_of(place).iter().zip(distances).map(|(&id, d)| (row, id, d)));
    }
}

fn sorted(mut pairs: Vec<Pair>) -> Vec<Pair> {
    pairs.sort_unstable();
    pairs
}

fn check<T: Scalar>(case: &Case<'_, T>, chance: &mut StdRng) {
    let expected = case.oracle();
    let all = expected.triples();
    let half = case.half(&expected);
    let plans = plans(case);
    let indexes: Vec<Indexed<'_, T>> = plans.iter().map(|plan| plan.index().unwrap()).collect();
    let len = case.left.len();

    // Every part to some device, into every sink.
    let (mut found, mut once, mut halves) = (Vec::new(), Vec::new(), Vec::new());
    let (mut count, mut degrees) = (0, vec![0; len]);
    for rows in cut(len, chance) {
        let mut any = || &indexes[chance.random_range(0..indexes.len())];
        let mut csr = CsrSink::new().sorted(true).distances(true);
        let stats = any().run_some(&rows, &mut csr).unwrap();
        assert_eq!(stats.points.0, rows.len());
        pairs_of(&csr, &rows, &mut found);
        let mut pairs = Pairs::new().half(true).distances(true);
        any().run_some(&rows, &mut pairs).unwrap();
        let columns = pairs.left().iter().zip(pairs.right()).zip(pairs.all_distances());
        once.extend(columns.map(|((&l, &r), d)| (rows[l as usize], r, bits(d))));
        let mut blocks = Callback::new(|block: &Block<T>| {
            let mut distances = block.distances.iter().map(bits);
            for (place, ids) in block.iter() {
                let row = rows[place as usize];
                halves.extend(ids.iter().map(|&id| (row, id, distances.next().unwrap())));
            }
            ControlFlow::Continue(())
        });
        blocks = blocks.half(true).distances(true);
        any().run_some(&rows, &mut blocks).unwrap();
        let mut counted = Count::new();
        any().run_some(&rows, &mut counted).unwrap();
        count += counted.pairs();
        let mut of_each = Degrees::new();
        any().run_some(&rows, &mut of_each).unwrap();
        for (&row, degree) in rows.iter().zip(of_each.into_vec()) {
            degrees[row as usize] = degree;
        }
    }
    assert_eq!(sorted(found), all, "{case}: rows");
    assert_eq!(sorted(once), half, "{case}: pairs once");
    assert_eq!(sorted(halves), half, "{case}: halved rows");
    assert_eq!(count, all.len() as u64, "{case}: count");
    let expected_degrees: Vec<u64> =
        expected.offsets.windows(2).map(|ends| ends[1] - ends[0]).collect();
    assert_eq!(degrees, expected_degrees, "{case}: degrees");

    // Each device by itself: ranges of its own order, and all pairs of rows that follow each other.
    for (plan, index) in plans.iter().zip(&indexes) {
        let context = format!("{case}, {} on {}", plan.strategy(), plan.device());
        let mut found = Vec::new();
        for positions in ranges(len, chance) {
            let mut csr = CsrSink::new().sorted(true).distances(true);
            let rows = index.run_positions(positions, &mut csr).unwrap();
            pairs_of(&csr, &rows, &mut found);
        }
        assert_eq!(sorted(found), all, "{context}: positions");
        let middle = chance.random_range(0..=len);
        let mut found = Vec::new();
        for rows in [middle..len, 0..middle] {
            let mut pairs = Pairs::new().distances(true);
            let first = rows.start as u32;
            index.run_rows(rows, &mut pairs).unwrap();
            let columns = pairs.left().iter().zip(pairs.right()).zip(pairs.all_distances());
            found.extend(columns.map(|((&l, &r), d)| (first + l, r, bits(d))));
        }
        assert_eq!(sorted(found), all, "{context}: ranges of rows");
        // Parts take nothing from the whole.
        let mut whole = CsrSink::new().sorted(true).distances(true);
        index.run(&mut whole).unwrap();
        let (mut found, rows) = (Vec::new(), (0..len as u32).collect::<Vec<_>>());
        pairs_of(&whole, &rows, &mut found);
        assert_eq!(found, all, "{context}: the whole");
    }
}

fn distributions<T: Scalar>() {
    let chance = &mut StdRng::seed_from_u64(11 + size_of::<T>() as u64);
    for data in [
        Data::Uniform,
        Data::Clustered,
        Data::Lattice,
        Data::Duplicates,
        Data::DenseBall,
        Data::OnePoint,
        Data::Empty,
    ] {
        for dim in [1, 2, 3, 6, 9] {
            let left = data.points::<T>(90, dim, 1);
            let right = data.points::<T>(70, dim, 2);
            let (left, right) = (left.as_points(), right.as_points());
            let metric = Metric::ALL[chance.random_range(0..3)];
            let name = format!("{data:?} {} {dim}-D", T::NAME);
            let case = match chance.random_range(0..3) {
                2 => Case::between(&name, left, right, data.eps(&left, &right, metric)),
                of => {
                    Case::within(&name, left, data.eps(&left, &left, metric)).include_self(of == 1)
                }
            };
            check(&case.metric(metric), chance);
        }
    }
}

#[test]
fn f32_within() {
    distributions::<f32>();
}

#[test]
fn f64_within() {
    distributions::<f64>();
}

/// The rows of dense arrays, without padding.
fn nearest_of<T: Scalar>(neighbors: &Neighbors<T>, place: usize) -> Vec<(u32, u64)> {
    let ids = neighbors.ids_of(place).iter().take_while(|id| **id != u32::MAX);
    ids.zip(neighbors.distances_of(place)).map(|(&id, d)| (id, bits(d))).collect()
}

fn check_nearest<T: Scalar>(
    name: &str,
    left: Points<'_, T>,
    right: Option<Points<'_, T>>,
    k: usize,
    include_self: bool,
    chance: &mut StdRng,
) {
    let metric = Metric::ALL[chance.random_range(0..3)];
    let other = right.unwrap_or(left);
    let exclude = right.is_none() && !include_self;
    let truth = oracle::knn_join(&left, &other, k, metric, exclude).unwrap();
    let truth: Vec<Vec<(u32, u64)>> = truth
        .into_iter()
        .map(|row| row.iter().map(|(id, distance)| (*id, bits(distance))).collect())
        .collect();
    for strategy in [Strategy::Tree, Strategy::Grid, Strategy::Brute, Strategy::Product] {
        let context = format!("{name}, k = {k}, {strategy}, {metric}, self {include_self}");
        let join = KnnJoin::new(k).pad(true).metric(metric).strategy(strategy);
        let join = join.include_self(include_self);
        let plan = match &right {
            Some(right) => join.plan(&left, right).unwrap(),
            None => join.plan_self(&left).unwrap(),
        };
        let index = plan.index().unwrap();
        let mut found = vec![Vec::new(); left.len()];
        for rows in cut(left.len(), chance) {
            let mut neighbors = Neighbors::new();
            index.run_some(&rows, &mut neighbors).unwrap();
            assert_eq!(neighbors.len(), rows.len(), "{context}");
            for (place, &row) in rows.iter().enumerate() {
                found[row as usize] = nearest_of(&neighbors, place);
            }
        }
        assert_eq!(found, truth, "{context}: lists of rows");
        let mut found = vec![Vec::new(); left.len()];
        for positions in ranges(left.len(), chance) {
            let mut neighbors = Neighbors::new();
            let rows = index.run_positions(positions, &mut neighbors).unwrap();
            for (place, &row) in rows.iter().enumerate() {
                found[row as usize] = nearest_of(&neighbors, place);
            }
        }
        assert_eq!(found, truth, "{context}: positions");
        // Sinks that hold what there is.
        let (mut count, mut degrees) = (Count::new(), Degrees::new());
        index.run(&mut count).unwrap();
        index.run(&mut degrees).unwrap();
        assert_eq!(count.pairs(), truth.iter().map(|row| row.len() as u64).sum(), "{context}");
        let lengths: Vec<u64> = truth.iter().map(|row| row.len() as u64).collect();
        assert_eq!(degrees.into_vec(), lengths, "{context}");
        let mut pairs = Pairs::new().half(true).sorted(true);
        index.run(&mut pairs).unwrap();
        assert_eq!(pairs.left().len() as u64, count.pairs(), "{context}: half has no effect");
    }
}

#[test]
fn nearest() {
    let chance = &mut StdRng::seed_from_u64(5);
    for data in [Data::Uniform, Data::Lattice, Data::Duplicates, Data::Piles, Data::OnePoint] {
        for (dim, k) in [(1, 3), (2, 8), (3, 1), (4, 70), (12, 5)] {
            let left = data.points::<f64>(150, dim, 1);
            let right = data.points::<f64>(90, dim, 2);
            let (left, right) = (left.as_points(), right.as_points());
            let name = format!("{data:?} {dim}-D");
            check_nearest(&name, left, None, k, false, chance);
            check_nearest(&name, left, None, k, true, chance);
            check_nearest(&name, left, Some(right), k, false, chance);
        }
    }
}

#[test]
fn a_sink_for_the_nearest_is_refused_within_epsilon() {
    let points = Points::new(&[0.0, 1.0], 1).unwrap();
    let plan = EpsJoin::new(1.0).plan_self(&points).unwrap();
    let error = plan.run(&mut Neighbors::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Neighbors is for KNN-joins only: receive this answer with another sink"
    );
}

/// Planning and indexing are told once, by the first run over an index.
#[test]
fn an_index_is_built_once() {
    let points = Data::Uniform.points::<f64>(5000, 2, 1);
    let points = points.as_points();
    let plan = EpsJoin::new(1.0).device(Device::Cpu).plan_self(&points).unwrap();
    let index = plan.index().unwrap();
    let first = index.run(&mut Count::new()).unwrap();
    let again = index.run(&mut Count::new()).unwrap();
    assert!(first.plan > std::time::Duration::ZERO && first.index > std::time::Duration::ZERO);
    assert_eq!((again.plan, again.index), Default::default());
    assert_eq!(first.pairs, again.pairs);
}
