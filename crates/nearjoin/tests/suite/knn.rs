//! The KNN-join: every strategy × type × metric × k against brute force, on every
//! distribution, into every sink.

use std::ops::ControlFlow;

use nearjoin::sink::{Block, Callback, CsrSink};
use nearjoin::{
    Error, KnnJoin, Metric, Monitor, Neighbors, Points, Scalar, Strategy, knn_join, oracle,
};

use crate::check::{bits, on_one_thread};
use crate::data::Data;

pub(crate) const DISTRIBUTIONS: [Data; 13] = [
    Data::Uniform,
    Data::Exponential,
    Data::Clustered,
    Data::Lattice,
    Data::RoughLattice,
    Data::Duplicates,
    Data::Collinear,
    Data::OnePoint,
    Data::Empty,
    Data::HugeOffset,
    Data::DenseBall,
    Data::Sphere,
    Data::Piles,
];

/// Every strategy that can be named but `auto`, which is one of them.
const NAMED: [Strategy; 4] = [Strategy::Brute, Strategy::Grid, Strategy::Tree, Strategy::Product];

/// Rows of ids with the bits of their distances.
pub(crate) type Rows = Vec<Vec<(u32, u64)>>;

pub(crate) fn truth<T: Scalar>(
    left: &Points<'_, T>,
    right: Option<&Points<'_, T>>,
    k: usize,
    metric: Metric,
    include_self: bool,
) -> Rows {
    let exclude = right.is_none() && !include_self;
    let rows = oracle::knn_join(left, right.unwrap_or(left), k, metric, exclude).unwrap();
    rows.into_iter().map(|row| row.iter().map(|(id, d)| (*id, bits(d))).collect()).collect()
}

/// Dense arrays as rows, without the padding, which must be as documented.
pub(crate) fn dense<T: Scalar>(neighbors: &Neighbors<T>) -> Rows {
    let k = neighbors.k();
    let rows = neighbors.ids().chunks(k).zip(neighbors.distances().chunks(k));
    rows.map(|(ids, distances)| {
        let found = ids.iter().position(|&id| id == u32::MAX).unwrap_or(k);
        assert!(ids[found..].iter().all(|&id| id == u32::MAX));
        assert!(distances[found..].iter().all(|d| *d == T::INFINITY));
        ids[..found].iter().zip(distances).map(|(id, d)| (*id, bits(d))).collect()
    })
    .collect()
}

pub(crate) fn check<T: Scalar>(
    join: &KnnJoin,
    left: &Points<'_, T>,
    right: Option<&Points<'_, T>>,
    expected: &Rows,
    context: &str,
) {
    let plan = match right {
        Some(right) => join.plan(left, right),
        None => join.plan_self(left),
    };
    let plan = plan.expect(context);
    let mut neighbors = Neighbors::new();
    let stats = plan.run(&mut neighbors).expect(context);
    assert_eq!(&dense(&neighbors), expected, "{context}: dense");
    let pairs: usize = expected.iter().map(Vec::len).sum();
    assert_eq!(stats.pairs, pairs as u64, "{context}: pairs in the stats");

    let mut sink = CsrSink::new().distances(true);
    plan.run(&mut sink).expect(context);
    let csr = sink.into_csr();
    let rows: Rows = (0..csr.len())
        .map(|row| {
            let distances = csr.distances_of(row);
            csr.ids_of(row).iter().zip(distances).map(|(id, d)| (*id, bits(d))).collect()
        })
        .collect();
    assert_eq!(&rows, expected, "{context}: CSR");

    let mut sink = CsrSink::new().sorted(true).distances(true);
    plan.run(&mut sink).expect(context);
    for (row, expected) in expected.iter().enumerate() {
        let mut expected = expected.clone();
        expected.sort_unstable();
        let ids: Vec<u32> = expected.iter().map(|(id, _)| *id).collect();
        let distances: Vec<u64> = expected.iter().map(|(_, d)| *d).collect();
        assert_eq!(sink.csr().ids_of(row), ids, "{context}: CSR by id");
        let found: Vec<u64> = sink.csr().distances_of(row).iter().map(bits).collect();
        assert_eq!(found, distances, "{context}: CSR by id");
    }

    let mut rows: Vec<Option<Vec<u32>>> = vec![None; expected.len()];
    let mut sink = Callback::new(|block: &Block<T>| {
        for (query, row) in block.iter() {
            assert!(rows[query as usize].replace(row.to_vec()).is_none(), "{context}: twice");
        }
        ControlFlow::Continue(())
    })
    .block_pairs(100);
    plan.run(&mut sink).expect(context);
    for (row, expected) in rows.into_iter().zip(expected) {
        let ids: Vec<u32> = expected.iter().map(|(id, _)| *id).collect();
        assert_eq!(row.as_deref(), Some(&ids[..]), "{context}: blocks");
    }
}

fn every_distribution<T: Scalar>(n: usize, dims: &[usize], ks: &[usize]) {
    for data in DISTRIBUTIONS {
        for &dim in dims {
            let points = data.points::<T>(n, dim, 11);
            let points = points.as_points();
            for metric in Metric::ALL {
                for &k in ks {
                    let expected = truth(&points, None, k, metric, false);
                    for &strategy in Strategy::KNN {
                        let join = KnnJoin::new(k).metric(metric).strategy(strategy).pad(true);
                        let context = format!("{data:?} {dim}-D {metric} k={k} {strategy}");
                        check(&join, &points, None, &expected, &context);
                    }
                }
            }
        }
    }
}

#[test]
fn every_distribution_in_f64() {
    on_one_thread(|| every_distribution::<f64>(300, &[1, 2, 3, 6], &[1, 8, 70]));
}

#[test]
fn every_distribution_in_f32() {
    on_one_thread(|| every_distribution::<f32>(300, &[1, 2, 4, 9], &[1, 8, 70]));
}

#[test]
fn odd_sizes_and_many_dimensions() {
    for n in [1, 2, 15, 16, 17, 31, 33, 255, 257, 300] {
        for dim in [1, 2, 5, 8, 17, 100] {
            let points = Data::Clustered.points::<f64>(n, dim, 5);
            let points = points.as_points();
            for k in [1, 3, 64, 65] {
                let expected = truth(&points, None, k, Metric::L2, false);
                for strategy in NAMED {
                    let join = KnnJoin::new(k).strategy(strategy).pad(true).threads(1);
                    check(
                        &join,
                        &points,
                        None,
                        &expected,
                        &format!("{n} {dim}-D k={k} {strategy}"),
                    );
                }
            }
        }
    }
}

#[test]
fn two_sets_with_and_without_a_cap() {
    for (data, cap) in [(Data::Uniform, 7.0), (Data::Lattice, 0.5), (Data::Clustered, 0.3)] {
        let (left, right) = (data.points::<f64>(400, 2, 1), data.points::<f64>(700, 2, 2));
        let (left, right) = (left.as_points(), right.as_points());
        for k in [1, 5, 70] {
            let all = truth(&left, Some(&right), k, Metric::L2, false);
            let within: Rows = all
                .iter()
                .map(|row| row.iter().copied().filter(|(_, d)| f64::from_bits(*d) <= cap).collect())
                .collect();
            for &strategy in Strategy::KNN {
                let join = KnnJoin::new(k).strategy(strategy);
                let context = format!("{data:?} k={k} {strategy}");
                check(&join, &left, Some(&right), &all, &context);
                check(&join.max_distance(cap), &left, Some(&right), &within, &context);
            }
        }
    }
}

#[test]
fn a_point_is_its_own_neighbour_only_if_asked() {
    for data in [Data::Uniform, Data::Duplicates, Data::Lattice] {
        let points = data.points::<f32>(200, 2, 3);
        let points = points.as_points();
        for k in [1, 4, 70] {
            let expected = truth(&points, None, k, Metric::L2, true);
            for strategy in NAMED {
                let join = KnnJoin::new(k).include_self(true).strategy(strategy);
                check(&join, &points, None, &expected, &format!("{data:?} k={k} {strategy}"));
            }
        }
    }
}

#[test]
fn equal_points_give_the_smallest_other_rows() {
    let points = Data::Duplicates.points::<f64>(1000, 3, 1);
    let neighbors = knn_join(&points.as_points(), 3).unwrap();
    assert_eq!(neighbors.ids_of(0), [1, 2, 3]);
    assert_eq!(neighbors.ids_of(2), [0, 1, 3]);
    assert_eq!(neighbors.ids_of(999), [0, 1, 2]);
    assert!(neighbors.distances().iter().all(|d| *d == 0.0));
}

#[test]
fn the_same_on_any_number_of_threads() {
    let points = Data::Exponential.points::<f64>(20_000, 3, 9);
    let points = points.as_points();
    for k in [7, 100] {
        let run = |strategy, threads| {
            let mut neighbors = Neighbors::new();
            let join = KnnJoin::new(k).strategy(strategy).threads(threads);
            join.plan_self(&points).unwrap().run(&mut neighbors).unwrap();
            neighbors
        };
        let one = run(Strategy::Tree, 1);
        for (strategy, threads) in [(Strategy::Tree, 3), (Strategy::Grid, 1), (Strategy::Grid, 3)] {
            assert!(one == run(strategy, threads), "k={k} {strategy} {threads}");
        }
    }
}

#[test]
fn a_k_of_thousands() {
    let points = Data::Uniform.points::<f64>(3000, 2, 4);
    let points = points.as_points();
    let few = points.rows(0..40);
    let expected = truth(&few, Some(&points), 2500, Metric::L2, false);
    for strategy in NAMED {
        let join = KnnJoin::new(2500).strategy(strategy);
        check(&join, &few, Some(&points), &expected, &format!("k=2500 {strategy}"));
    }
}

#[test]
fn coordinates_whose_squares_overflow() {
    let data = [-1e200, 1e200, 0.0, 5.0, -1e300, 1e300];
    let points = Points::new(&data, 1).unwrap();
    for k in [2, 5] {
        let expected = truth(&points, None, k, Metric::L2, false);
        for strategy in NAMED {
            let join = KnnJoin::new(k).strategy(strategy);
            check(&join, &points, None, &expected, &format!("k={k} {strategy}"));
        }
    }
    // Enough of them for a grid.
    let number = |i: u32| f64::from(i * 7919 % 1009) / 504.5 - 1.0;
    let numbers = |most: f64| (0..600).map(|i| number(i) * most).collect::<Vec<_>>();
    let (data, beyond) = (numbers(4e307), numbers(1.7e308));
    let points = Points::new(&data, 2).unwrap();
    for metric in Metric::ALL {
        // Differences overflow too.
        let beyond = KnnJoin::new(5).metric(metric).plan_self(&Points::new(&beyond, 2).unwrap());
        assert!(matches!(beyond, Err(Error::TooFar { .. })), "{metric}");
        let expected = truth(&points, None, 5, metric, false);
        for strategy in NAMED {
            let join = KnnJoin::new(5).metric(metric).strategy(strategy);
            check(&join, &points, None, &expected, &format!("{metric} {strategy}"));
        }
    }
}

/// Points enough for many cells on every axis: rings that end in all directions.
fn grids_of_many_cells<T: Scalar>(dims: &[usize]) {
    for data in [
        Data::Uniform,
        Data::Exponential,
        Data::Clustered,
        Data::Lattice,
        Data::HugeOffset,
        Data::DenseBall,
        Data::Collinear,
    ] {
        for &dim in dims {
            let many = data.points::<T>(2000, dim, 21);
            let (many, few) = (many.as_points(), many.as_points().rows(0..700));
            for (metric, k) in [(Metric::L2, 8), (Metric::L1, 1), (Metric::Linf, 33)] {
                let join = KnnJoin::new(k).metric(metric).strategy(Strategy::Grid);
                let context = format!("{data:?} {dim}-D {metric} k={k}");
                let expected = truth(&few, None, k, metric, false);
                check(&join, &few, None, &expected, &context);
                let queries = few.rows(0..150);
                let expected = truth(&queries, Some(&many), k, metric, false);
                check(&join, &queries, Some(&many), &expected, &context);
            }
        }
    }
}

#[test]
fn grids_of_many_cells_in_f64() {
    on_one_thread(|| grids_of_many_cells::<f64>(&[1, 2, 3, 5, 8]));
}

#[test]
fn grids_of_many_cells_in_f32() {
    on_one_thread(|| grids_of_many_cells::<f32>(&[2, 3, 4, 6, 7]));
}

#[test]
fn one_far_outlier_and_flat_sheets() {
    for dim in [1, 2, 3, 4] {
        let mut rows: Vec<f64> = Data::Uniform.points(1000, dim, 8).as_points().as_slice().into();
        rows[5 * dim..6 * dim].fill(-1e12);
        let flat = |(at, x): (usize, &f64)| if at % dim == 1 { 3.0 } else { *x };
        let sheet: Vec<f64> = rows.iter().enumerate().skip(6 * dim).map(flat).collect();
        for data in [rows, sheet] {
            let points = Points::new(&data, dim).unwrap();
            for k in [1, 8, 70] {
                let expected = truth(&points, None, k, Metric::L2, false);
                for strategy in NAMED {
                    let join = KnnJoin::new(k).strategy(strategy);
                    check(&join, &points, None, &expected, &format!("{dim}-D k={k} {strategy}"));
                }
            }
        }
    }
}

#[test]
fn queries_far_outside() {
    for dim in [1, 2, 3, 5] {
        let right = Data::Uniform.points::<f64>(2000, dim, 5);
        let right = right.as_points();
        let inside = Data::Uniform.points::<f64>(150, dim, 6);
        // Around the points, in corners and beyond all sides, near and far.
        let shift = |(at, x): (usize, &f64)| {
            let (row, j) = (at / dim, at % dim);
            x + [0.0, 60.0, -130.0, 1e6, -1e9][(row * 7 + j * (row % 3)) % 5]
        };
        let left: Vec<f64> = inside.as_points().as_slice().iter().enumerate().map(shift).collect();
        let left = Points::new(&left, dim).unwrap();
        for metric in Metric::ALL {
            for k in [1, 8, 70] {
                let all = truth(&left, Some(&right), k, metric, false);
                let within: Rows = all
                    .iter()
                    .map(|row| {
                        row.iter().copied().filter(|(_, d)| f64::from_bits(*d) <= 50.0).collect()
                    })
                    .collect();
                for strategy in NAMED {
                    let join = KnnJoin::new(k).metric(metric).strategy(strategy);
                    let context = format!("{dim}-D {metric} k={k} {strategy}");
                    check(&join, &left, Some(&right), &all, &context);
                    check(&join.max_distance(50.0), &left, Some(&right), &within, &context);
                }
            }
        }
    }
}

#[test]
fn a_grid_stays_within_the_memory_it_asks_for() {
    for (n, dim) in [(20, 2), (50_000, 1), (50_000, 3)] {
        let points = Data::Uniform.points::<f32>(n, dim, 2);
        let points = points.as_points();
        let plan = KnnJoin::new(3).strategy(Strategy::Grid).plan_self(&points).unwrap();
        assert_eq!(plan.strategy(), Strategy::Grid);
        assert!(plan.to_string().contains("cells of 16 points"), "{plan}");
        let stats = plan.run(&mut Neighbors::new()).unwrap();
        assert!(n < 1000 || stats.index_bytes <= plan.index_bytes(), "{n} {dim}");
    }
}

/// Trees of four levels, and lists of every length that is kept in another way.
fn deep_trees<T: Scalar>() {
    for (data, dim) in
        [(Data::Uniform, 2), (Data::Exponential, 4), (Data::Clustered, 3), (Data::Lattice, 3)]
    {
        let points = data.points::<T>(4500, dim, 21);
        let points = points.as_points();
        for k in [8, 33, 65] {
            let expected = truth(&points, None, k, Metric::L2, false);
            for strategy in Strategy::KNN {
                let join = KnnJoin::new(k).strategy(*strategy);
                let context = format!("{data:?} {} k={k} {strategy}", T::NAME);
                check(&join, &points, None, &expected, &context);
            }
        }
    }
}

#[test]
fn deep_trees_in_f64() {
    deep_trees::<f64>();
}

#[test]
fn deep_trees_in_f32() {
    deep_trees::<f32>();
}

#[test]
fn a_set_and_its_copy_are_two_sets() {
    for data in [Data::Uniform, Data::Lattice] {
        let points = data.points::<f64>(500, 2, 6);
        let points = points.as_points();
        for k in [1, 3, 66] {
            let expected = truth(&points, Some(&points), k, Metric::L2, false);
            for strategy in Strategy::KNN {
                let join = KnnJoin::new(k).strategy(*strategy);
                let context = format!("{data:?} k={k} {strategy}");
                check(&join, &points, Some(&points), &expected, &context);
            }
        }
    }
}

#[test]
fn a_few_queries_far_apart_and_far_outside() {
    let right = Data::Clustered.points::<f64>(9000, 3, 2);
    let right = right.as_points();
    let mut few: Vec<f64> = (0..60).map(|row| right.row(row * 150)[row % 3] * 1.01).collect();
    few.extend([1e6, -1e6, 0.0, -3e9, 0.0, 5.0]);
    let left = Points::new(&few, 3).unwrap();
    for k in [1, 20, 100] {
        let expected = truth(&left, Some(&right), k, Metric::L2, false);
        for strategy in Strategy::KNN {
            let context = format!("k={k} {strategy}");
            check(&KnnJoin::new(k).strategy(*strategy), &left, Some(&right), &expected, &context);
        }
    }
}

/// At 1e-165 and less all squares, or the small ones among them, would be 0.
#[test]
fn scales_at_the_ends_of_the_range() {
    let points = Data::Uniform.points::<f64>(700, 3, 8);
    for scale in [1e-320, 1e-200, 1e-165, 1e-30, 1e30, 1e151, 1e153, 1e300] {
        let scaled: Vec<f64> = points.as_points().as_slice().iter().map(|x| x * scale).collect();
        let points = Points::new(&scaled, 3).unwrap();
        for metric in Metric::ALL {
            for k in [4, 70] {
                let expected = truth(&points, None, k, metric, false);
                for strategy in Strategy::KNN {
                    let join = KnnJoin::new(k).metric(metric).strategy(*strategy);
                    let context = format!("{scale:e} {metric} k={k} {strategy}");
                    check(&join, &points, None, &expected, &context);
                }
            }
        }
    }
}

/// Rows that nobody asks for need no padding.
#[test]
fn many_neighbours_of_no_points_take_no_memory() {
    let (none, points) =
        (Points::<f32>::new(&[], 1).unwrap(), Points::new(&[0.0, 1.0], 1).unwrap());
    let join = KnnJoin::new(1 << 31).pad(true).memory_limit(1 << 20);
    for plan in [join.plan_self(&none).unwrap(), join.plan(&none, &points).unwrap()] {
        let mut neighbors = Neighbors::new();
        plan.run(&mut neighbors).unwrap();
        assert_eq!((neighbors.len(), neighbors.k()), (0, 1 << 31));
    }
}

#[test]
fn wrong_questions_are_refused() {
    let points = Points::new(&[0.0, 1.0, 2.0], 1).unwrap();
    let refused = |join: KnnJoin| join.plan_self(&points).map(|_| ()).unwrap_err().to_string();
    assert_eq!(refused(KnnJoin::new(0)), "k = 0 is out of range: it must be 1 or more");
    assert!(refused(KnnJoin::new(usize::MAX).pad(true)).contains("at most 4294967294"));
    assert_eq!(
        refused(KnnJoin::new(3)),
        "k = 3 neighbours were asked for and there are only 2 points to choose from: lower k, or \
         ask for padding"
    );
    assert!(KnnJoin::new(3).include_self(true).plan_self(&points).is_ok());
    assert!(KnnJoin::new(3).plan(&points, &points).is_ok());
    assert!(refused(KnnJoin::new(1).max_distance(-1.0)).contains("is not a distance"));
    assert!(refused(KnnJoin::new(1).strategy(Strategy::Ego)).contains("auto, brute, grid, tree"));
    assert!(refused(KnnJoin::new(1).threads(0)).contains("threads = 0"));
    let flat = Points::new(&[0.0, 1.0], 2).unwrap();
    assert!(KnnJoin::new(1).plan(&points, &flat).is_err());
    let limited = KnnJoin::new(2).memory_limit(10).plan_self(&points).unwrap();
    let error = limited.run(&mut Neighbors::new()).unwrap_err();
    assert!(matches!(error, Error::MemoryLimit { .. }), "{error}");
    let error = nearjoin::EpsJoin::new(1.0).strategy(Strategy::Tree).plan_self(&points);
    assert!(error.is_err());
}

#[test]
fn a_cancelled_join_says_so() {
    let points = Data::Uniform.points::<f64>(1000, 2, 1);
    let monitor = Monitor::new();
    let plan = KnnJoin::new(3).monitor(&monitor).plan_self(&points.as_points()).unwrap();
    plan.run(&mut Neighbors::new()).unwrap();
    assert!(monitor.progress().tests > 0 && monitor.progress().pairs == 3000);
    monitor.cancel();
    assert_eq!(plan.run(&mut Neighbors::new()).unwrap_err(), Error::Cancelled);
}
