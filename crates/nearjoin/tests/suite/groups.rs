//! Components and DBSCAN against their definitions, worked through one point after the other.

use nearjoin::sink::Groups;
use nearjoin::{
    Device, EpsJoin, Error, KnnJoin, Metric, Partitioning, Points, Scalar, Strategy, oracle,
};

use crate::data::Data;
use crate::gpu::gpu;

/// Labels and cores, by the definition: groups grow from their first cores over cores within ε, and
/// every other point takes the group of the first core within ε.
fn expected<T: Scalar>(
    points: &Points<'_, T>,
    eps: f64,
    metric: Metric,
    min_points: usize,
) -> (Vec<u32>, Vec<bool>) {
    let rows = oracle::eps_join(points, points, eps, metric, true).unwrap();
    let cores: Vec<bool> = rows.iter().map(|row| row.len() + 1 >= min_points).collect();
    let mut labels = vec![Groups::NOISE; rows.len()];
    let mut groups = 0;
    for first in 0..rows.len() {
        if !cores[first] || labels[first] != Groups::NOISE {
            continue;
        }
        labels[first] = groups;
        let mut open = vec![first];
        while let Some(core) = open.pop() {
            for &(next, _) in &rows[core] {
                let next = next as usize;
                if cores[next] && labels[next] == Groups::NOISE {
                    labels[next] = groups;
                    open.push(next);
                }
            }
        }
        groups += 1;
    }
    for point in (0..rows.len()).filter(|&point| !cores[point]) {
        let near = rows[point].iter().map(|&(near, _)| near as usize);
        if let Some(core) = near.filter(|&near| cores[near]).min() {
            labels[point] = labels[core];
        }
    }
    (labels, cores)
}

/// Labels and cores of a join.
fn check<T: Scalar>(
    points: &Points<'_, T>,
    join: &EpsJoin,
    min_points: usize,
    (labels, cores): &(Vec<u32>, Vec<bool>),
    context: &str,
) {
    let mut groups = Groups::dbscan(min_points);
    join.plan_self(points).unwrap().run(&mut groups).unwrap();
    assert_eq!(groups.cores(), cores, "{context}, {min_points}");
    assert_eq!(groups.labels(), labels, "{context}, {min_points}");
    let noise = labels.iter().filter(|&&label| label == Groups::NOISE).count();
    let most = labels.iter().filter(|&&label| label != Groups::NOISE).max();
    assert_eq!(groups.noise(), noise, "{context}");
    assert_eq!(groups.len(), most.map_or(0, |&most| most as usize + 1), "{context}");
    assert_eq!(groups.is_empty(), most.is_none(), "{context}");
}

fn every_kind<T: Scalar>() {
    for data in [
        Data::Uniform,
        Data::Exponential,
        Data::Clustered,
        Data::Lattice,
        Data::Duplicates,
        Data::DenseBall,
        Data::OnePoint,
        Data::Empty,
    ] {
        for (dim, metric) in [(1, Metric::L2), (2, Metric::L2), (3, Metric::L1)] {
            let points = data.points::<T>(400, dim, 11);
            let points = points.as_points();
            // With few neighbours, and with more.
            for factor in [0.2, 1.0] {
                let eps = factor * data.eps(&points, &points, metric);
                let join = EpsJoin::new(eps).metric(metric);
                for min_points in [1, 2, 3, 5, 9, 1000] {
                    let context = format!("{data:?} {dim}-D {metric} ε {eps}");
                    let expected = expected(&points, eps, metric, min_points);
                    let with_self = join.clone().include_self(true).threads(3);
                    check(&points, &join, min_points, &expected, &context);
                    check(&points, &with_self, min_points, &expected, &context);
                }
            }
        }
    }
}

#[test]
fn labels_are_those_of_the_definition_f64() {
    every_kind::<f64>();
}

#[test]
fn labels_are_those_of_the_definition_f32() {
    every_kind::<f32>();
}

#[test]
fn every_strategy_and_device_gives_the_same() {
    for data in [Data::Clustered, Data::Lattice, Data::Exponential] {
        let points = data.points::<f32>(600, 2, 5);
        let points = points.as_points();
        let factor = if data == Data::Lattice { 1.0 } else { 0.4 };
        let eps = factor * data.eps(&points, &points, Metric::L2);
        let join = EpsJoin::new(eps);
        for min_points in [1, 4, 6] {
            let expected = expected(&points, eps, Metric::L2, min_points);
            let mut joins = Vec::new();
            for &strategy in Strategy::EPSILON {
                joins.push((format!("{strategy}"), join.clone().strategy(strategy)));
            }
            for device in [Device::Gpu, Device::Hybrid] {
                joins.push((format!("{device}"), join.clone().device(device).gpu(gpu())));
            }
            for shared in [Partitioning::Dyn, Partitioning::StaticQueries] {
                let both = join.clone().device(Device::Hybrid).partitioning(shared).gpu(gpu());
                joins.push((format!("{shared}"), both));
            }
            for (name, join) in joins {
                check(&points, &join, min_points, &expected, &format!("{data:?} {name}"));
            }
        }
    }
}

/// A way through all points, which threads unite from everywhere at once.
#[test]
fn a_long_chain_is_one_group_however_many_threads_unite_it() {
    let count = 200_000;
    // Rows in an order that has nothing to do with the way.
    let place = |row: usize| (row * 7919 % count) as f64;
    let data: Vec<f64> = (0..count).map(place).collect();
    let points = Points::new(&data, 1).unwrap();
    for threads in [1, 2, 8] {
        let mut groups = Groups::components();
        EpsJoin::new(1.0).threads(threads).plan_self(&points).unwrap().run(&mut groups).unwrap();
        assert_eq!((groups.len(), groups.noise()), (1, 0), "{threads} threads");
        assert!(groups.labels().iter().all(|&label| label == 0), "{threads} threads");
        // Without a link there are two.
        let mut cut = data.clone();
        cut.iter_mut().filter(|x| **x >= 100_000.0).for_each(|x| *x += 1.0);
        let points = Points::new(&cut, 1).unwrap();
        EpsJoin::new(1.0).threads(threads).plan_self(&points).unwrap().run(&mut groups).unwrap();
        assert_eq!(groups.len(), 2, "{threads} threads");
        let right = |(x, label): (&f64, &u32)| (*x > 100_000.0) == (*label == 1);
        assert!(cut.iter().zip(groups.labels()).all(right), "{threads} threads");
    }
}

/// A border point between two clusters belongs to that of the core with the smaller row.
#[test]
fn a_point_between_two_clusters_takes_the_first_core() {
    // Cores at 0 and 2 (each with its own crowd), and a point at 1 that is none.
    for swapped in [false, true] {
        let sides = if swapped { [2.0, 0.0] } else { [0.0, 2.0] };
        let crowd = |x: f64| if x == 0.0 { [-0.5, -0.5] } else { [2.5, 2.5] };
        let mut data = vec![1.0];
        for x in sides {
            data.push(x);
            data.extend(crowd(x));
        }
        let points = Points::new(&data, 1).unwrap();
        let mut groups = Groups::dbscan(4);
        EpsJoin::new(1.0).plan_self(&points).unwrap().run(&mut groups).unwrap();
        assert_eq!(groups.labels(), [0, 0, 0, 0, 1, 1, 1], "{swapped}");
        let (labels, cores) = groups.into_parts();
        assert_eq!((labels.len(), cores[0], cores[1], cores[4]), (7, false, true, true));
    }
}

#[test]
fn other_joins_have_no_groups() {
    let points = Points::new(&[0.0, 1.0, 2.0], 1).unwrap();
    let refused = |result: Result<nearjoin::Stats, Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Sink { sink: "Groups", .. }), "{error}");
        assert!(error.to_string().contains("of a set with itself"), "{error}");
    };
    let mut groups = Groups::components();
    refused(EpsJoin::new(1.0).plan(&points, &points).unwrap().run(&mut groups));
    refused(KnnJoin::new(1).plan_self(&points).unwrap().run(&mut groups));
    let plan = EpsJoin::new(1.0).plan_self(&points).unwrap();
    refused(plan.index().unwrap().run_rows(0..2, &mut groups));
    let error = plan.run(&mut Groups::dbscan(0)).unwrap_err();
    assert!(matches!(error, Error::Option { name: "min_points", value: 0, .. }), "{error}");
}

#[test]
fn what_does_not_fit_the_memory_is_refused() {
    let data: Vec<f64> = (0..20_000).map(f64::from).collect();
    let points = Points::new(&data, 1).unwrap();
    let join = EpsJoin::new(1.0).strategy(Strategy::Brute);
    let least = join.plan_self(&points).unwrap().index_bytes();
    let tight = join.clone().memory_limit(least + 50_000).plan_self(&points).unwrap();
    let error = tight.run(&mut Groups::components()).unwrap_err();
    assert!(matches!(error, Error::MemoryLimit { .. }), "{error}");
    let enough = join.memory_limit(least + 1_000_000).plan_self(&points).unwrap();
    let mut groups = Groups::components();
    let stats = enough.run(&mut groups).unwrap();
    assert_eq!((groups.len(), stats.result_bytes), (1, 100_000));
}
