//! Joins by products, on more points than a piece of queries and a run of panels hold: against brute
//! force, where products can tell hardly anything too.

use nearjoin::sink::{Count, CsrSink, Degrees};
use nearjoin::{
    Csr, Device, EpsJoin, KnnJoin, Metric, NeighborCurve, Neighbors, Points, Scalar, Strategy,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::check::bits;

/// Points of some kind, with a spread of about 1.
fn points<T: Scalar>(kind: &str, n: usize, dim: usize) -> Vec<T> {
    let mut random = StdRng::seed_from_u64(n as u64 + dim as u64);
    let mut number = move |lo: f64, hi: f64| random.random_range(lo..hi);
    let spread: Vec<f64> = (0..n * dim).map(|_| number(-1.0, 1.0)).collect();
    let x = |at: usize| match (kind, at / dim) {
        // A few places, each of many equal points.
        ("equal", row) => spread[row % 5 * dim + at % dim],
        // Clusters as far from each other as a million times their size.
        ("tight", row) => (row % 3) as f64 * 10.0 + 1e-5 * spread[at],
        ("far away", _) => 1e6 + spread[at],
        ("one coordinate", row) if at.is_multiple_of(dim) => 1e5 * (row % 2) as f64 + spread[at],
        _ => spread[at],
    };
    (0..n * dim).map(|at| T::from_f64(x(at))).collect()
}

const KINDS: [&str; 5] = ["spread", "equal", "tight", "far away", "one coordinate"];

fn rows<T: Scalar>(csr: &Csr<T>) -> Vec<Vec<(u32, u64)>> {
    let row = |row| {
        let distances = csr.distances_of(row).iter().map(bits);
        csr.ids_of(row).iter().copied().zip(distances).collect()
    };
    (0..csr.len()).map(row).collect()
}

/// Both joins within ε, of one set and of two.
fn check_within<T: Scalar>(kind: &str, n: usize, dim: usize) {
    let (data, others) = (points::<T>(kind, n, dim), points::<T>(kind, n / 3, dim));
    let left = Points::new(&data, dim).unwrap();
    let right = Points::new(&others, dim).unwrap();
    for eps in [1e-5, 0.3, 1.5, 3.0] {
        for two in [false, true] {
            let join =
                |strategy| EpsJoin::new(eps).strategy(strategy).device(Device::Cpu).threads(2);
            let plan = |strategy| match two {
                true => join(strategy).plan(&left, &right).unwrap(),
                false => join(strategy).plan_self(&left).unwrap(),
            };
            let context = format!("{kind} {} {n} × {dim}, ε = {eps}, two sets {two}", T::NAME);
            let (brute, product) = (plan(Strategy::Brute), plan(Strategy::Product));
            assert_eq!(product.strategy(), Strategy::Product, "{context}");
            let csr = |plan: &nearjoin::Plan<'_, T>| {
                let mut sink = CsrSink::new().sorted(true).distances(true);
                plan.run(&mut sink).unwrap();
                rows(sink.csr())
            };
            let expected = csr(&brute);
            assert!(csr(&product) == expected, "{context}: rows");
            let pairs: usize = expected.iter().map(Vec::len).sum();
            let mut count = Count::new();
            product.run(&mut count).unwrap();
            assert_eq!(count.pairs(), pairs as u64, "{context}: count");
            let mut degrees = Degrees::new();
            product.run(&mut degrees).unwrap();
            let lens = expected.iter().map(|row| row.len() as u64);
            assert!(degrees.as_slice().iter().copied().eq(lens), "{context}: degrees");
        }
    }
}

/// The nearest, few and many, with a largest distance and without.
fn check_nearest<T: Scalar>(kind: &str, n: usize, dim: usize) {
    let (data, others) = (points::<T>(kind, n, dim), points::<T>(kind, n / 3, dim));
    let left = Points::new(&data, dim).unwrap();
    let right = Points::new(&others, dim).unwrap();
    let some =
        NeighborCurve::of_self(&left, Metric::L2).unwrap().eps(20.0).unwrap_or(1.0).max(1e-3);
    for (k, most) in [(1, None), (10, None), (10, Some(some)), (300, None)] {
        for two in [false, true] {
            let context = format!("{kind} {} {n} × {dim}, k = {k}, two sets {two}", T::NAME);
            let found = |strategy| {
                let join =
                    KnnJoin::new(k).strategy(strategy).device(Device::Cpu).threads(2).pad(true);
                let join = most.iter().fold(join, |join, &most| join.max_distance(most));
                let plan = match two {
                    true => join.plan(&left, &right).unwrap(),
                    false => join.plan_self(&left).unwrap(),
                };
                assert_eq!(plan.strategy(), strategy, "{context}");
                let mut neighbors = Neighbors::new();
                plan.run(&mut neighbors).unwrap();
                let distances: Vec<u64> = neighbors.distances().iter().map(bits).collect();
                (neighbors.ids().to_vec(), distances)
            };
            assert!(found(Strategy::Product) == found(Strategy::Brute), "{context}");
        }
    }
}

#[test]
fn many_pieces_and_panels_within() {
    for kind in KINDS {
        check_within::<f32>(kind, 1500, 24);
        check_within::<f64>(kind, 1300, 17);
    }
}

#[test]
fn many_pieces_and_panels_nearest() {
    for kind in KINDS {
        check_nearest::<f32>(kind, 1500, 24);
        check_nearest::<f64>(kind, 1300, 17);
    }
}

/// So many points that products of fewer bits pay, where the processor has them.
#[test]
fn products_of_fewer_bits() {
    let data = points::<f32>("spread", 9000, 63);
    let all = Points::new(&data, 63).unwrap();
    let eps = NeighborCurve::of_self(&all, Metric::L2).unwrap().eps(3.0).unwrap();
    let within = |strategy| {
        let join = EpsJoin::new(eps).strategy(strategy).device(Device::Cpu);
        let mut sink = CsrSink::new().sorted(true).distances(true);
        join.plan_self(&all).unwrap().run(&mut sink).unwrap();
        rows(sink.csr())
    };
    assert!(within(Strategy::Product) == within(Strategy::Brute));
    let nearest = |strategy| {
        let mut neighbors = Neighbors::new();
        let join = KnnJoin::new(7).strategy(strategy).device(Device::Cpu);
        join.plan_self(&all).unwrap().run(&mut neighbors).unwrap();
        (neighbors.ids().to_vec(), neighbors.distances().to_vec())
    };
    assert!(nearest(Strategy::Product) == nearest(Strategy::Brute));
}

/// A coordinate that is the same for all points, and so much larger than what tells them apart that no scale
/// suits both.
#[test]
fn a_coordinate_that_dwarfs_the_others() {
    for (large, small) in [(2f64.powi(1000), 2f64.powi(-30)), (1.0, 1e-200), (1e150, 1e-10)] {
        let mut data = points::<f64>("spread", 4200, 3);
        for point in data.chunks_mut(3) {
            point[0] = large;
            point[1..].iter_mut().for_each(|x| *x *= small);
        }
        let points = Points::new(&data, 3).unwrap();
        let pairs = |strategy| {
            let mut count = Count::new();
            let join = EpsJoin::new(0.1 * small).strategy(strategy).device(Device::Cpu);
            join.plan_self(&points).unwrap().run(&mut count).unwrap();
            count.pairs()
        };
        let expected = pairs(Strategy::Brute);
        assert!(expected > 4200, "{large:e} {small:e}: {expected}");
        assert_eq!(pairs(Strategy::Product), expected, "{large:e} {small:e}");
    }
}

/// Metrics other than L2 are left to brute force, and so is ε = 0.
#[test]
fn what_products_cannot_tell_is_left_to_brute_force() {
    let data = points::<f32>("equal", 100, 20);
    let points = Points::new(&data, 20).unwrap();
    for (metric, eps) in [(Metric::L1, 1.0), (Metric::Linf, 1.0), (Metric::L2, 0.0)] {
        let join = EpsJoin::new(eps).metric(metric).strategy(Strategy::Product);
        let plan = join.device(Device::Cpu).plan_self(&points).unwrap();
        assert_eq!(plan.strategy(), Strategy::Brute, "{metric} {eps}");
        let mut count = Count::new();
        plan.run(&mut count).unwrap();
        assert_eq!(count.pairs(), 100 * 19, "{metric} {eps}");
    }
    let join = KnnJoin::new(3).metric(Metric::Linf).strategy(Strategy::Product);
    let plan = join.device(Device::Cpu).plan_self(&points).unwrap();
    assert_eq!(plan.strategy(), Strategy::Brute);
}
