//! Every kernel runs, and what it says is right.

use std::sync::Arc;

use nearjoin::gpu::{Cooperation, GpuOptions, Knobs, Schedule};
use nearjoin::{
    Device, DuplicateRemoval, EpsJoin, KnnJoin, Metric, Neighbors, PointsBuf, Scalar, Strategy,
};
use nearjoin_simt::Simt;

use crate::check::{self, Case};
use crate::data::{Data, SPACING};
use crate::knn::{dense, truth};

/// Joins in every dimension and metric, so that together they need every kernel of the type.
fn all<T: Scalar>(simt: &Simt) {
    let on = |listed: bool, boxes: bool| {
        let driver = Some(Arc::new(simt.clone()) as _);
        let (listed, boxes) = (Some(listed), Some(boxes));
        GpuOptions::new().knobs(Knobs { driver, listed, boxes, ..Knobs::default() })
    };
    let way = |listed: bool, cooperation: Cooperation, schedule: Schedule| {
        on(listed, true).cooperation(cooperation).schedule(schedule)
    };
    use Cooperation::{Cell, Thread};
    use Schedule::{IndexOrder, SortByWorkload, WorkQueue};
    let ways = [
        (way(false, Cell, SortByWorkload), Strategy::Brute, DuplicateRemoval::LidUnicomp),
        (way(true, Cell, IndexOrder), Strategy::Grid, DuplicateRemoval::LidUnicomp),
        (
            way(false, Thread, WorkQueue).threads_per_query(2).batch_bytes(999),
            Strategy::Directory,
            DuplicateRemoval::Unicomp,
        ),
        (way(true, Thread, IndexOrder), Strategy::Grid, DuplicateRemoval::LinearCoord),
    ];
    for dim in 1..=9 {
        let points = Data::Uniform.points::<T>(60, dim, 1);
        let points = points.as_points();
        for (number, metric) in Metric::ALL.into_iter().enumerate() {
            let eps = Data::Uniform.eps(&points, &points, metric);
            let case = Case::within(format!("{} {dim}-D", T::NAME), points, eps).metric(metric);
            let case = case.include_self(number == 1);
            let expected = case.oracle();
            for (gpu, strategy, removal) in &ways {
                let case = case.clone().on(gpu);
                let join = |join: EpsJoin| {
                    join.strategy(*strategy).duplicate_removal(*removal).directory(2, 4)
                };
                let context = format!("{case}, {strategy}, {removal}");
                let plan = case.plan(&join).expect(&context);
                check::check_sorted_csr(&plan, &expected, &context);
                check::check_count(&plan, &expected, &context);
                check::check_degrees(&plan, &expected, &context);
            }
        }
    }
    // Products of points that stay in shared memory, and of those that do not.
    for dim in [20, 130] {
        let points = Data::Uniform.points::<T>(60, dim, 1);
        let points = points.as_points();
        let eps = Data::Uniform.eps(&points, &points, Metric::L2);
        let case = Case::within(format!("products {dim}-D"), points, eps).on(&on(true, false));
        let plan = case.plan(&|join| join.strategy(Strategy::Product)).unwrap();
        check::check_sorted_csr(&plan, &case.oracle(), &format!("{case}: {plan}"));
    }
    // Cells so many that only those with points are listed, by numbers of 32 and 64 bits: a
    // lattice, of which every axis is needed to tell points apart, twice.
    for (dim, n, eps) in [(3, 1331, SPACING / 1e3), (6, 300, SPACING / 2e6)] {
        let points = Data::Lattice.points::<T>(n, dim, 1);
        let twice = points.as_points().as_slice().repeat(2);
        let twice = PointsBuf::from_vec(twice, dim).unwrap();
        let case = Case::within("many cells", twice.as_points(), eps).on(&on(true, dim == 6));
        let plan = case.plan(&|join| join.strategy(Strategy::Grid)).unwrap();
        check::check_plain_csr(&plan, &case.oracle(), &format!("{case}: {plan}"));
    }
}

/// The nearest of points in every dimension and metric, few and many of them, down a tree and among
/// all; and of points enough for a sample.
fn nearest<T: Scalar>(simt: &Simt) {
    let driver = Some(Arc::new(simt.clone()) as _);
    let gpu = GpuOptions::new().knobs(Knobs { driver, ..Knobs::default() });
    let on_gpu = |k: usize| KnnJoin::new(k).device(Device::Gpu).gpu(gpu.clone());
    for dim in 1..=9 {
        let points = Data::Uniform.points::<T>(50, dim, 1);
        let points = points.as_points();
        for metric in Metric::ALL {
            for (k, strategy) in [
                (3, Strategy::Tree),
                (12, Strategy::Tree),
                (30, Strategy::Tree),
                (40, Strategy::Tree),
                (5, Strategy::Brute),
            ] {
                let mut found = Neighbors::new();
                let join = on_gpu(k).metric(metric).strategy(strategy);
                join.plan_self(&points).unwrap().run(&mut found).unwrap();
                let expected = truth(&points, None, k, metric, false);
                let context = format!("{} {dim}-D {metric} k={k} {strategy}", T::NAME);
                assert_eq!(dense(&found), expected, "{context}");
            }
        }
    }
    // By products, in tiles of both kinds, with lists that are too short.
    for dim in [20, 200] {
        let points = Data::Uniform.points::<T>(150, dim, 1);
        let points = points.as_points();
        let driver = Some(Arc::new(simt.clone()) as _);
        let knobs = Knobs { driver, estimate: Some(0.0), ..Knobs::default() };
        let join = on_gpu(4).strategy(Strategy::Product).gpu(GpuOptions::new().knobs(knobs));
        let mut found = Neighbors::new();
        join.plan_self(&points).unwrap().run(&mut found).unwrap();
        let expected = truth(&points, None, 4, Metric::L2, false);
        assert_eq!(dense(&found), expected, "{} {dim}-D by products", T::NAME);
    }
    let points = Data::Uniform.points::<T>(4200, 2, 1);
    let points = points.as_points();
    let (mut found, mut expected) = (Neighbors::new(), Neighbors::new());
    on_gpu(2).strategy(Strategy::Tree).plan_self(&points).unwrap().run(&mut found).unwrap();
    KnnJoin::new(2).device(Device::Cpu).plan_self(&points).unwrap().run(&mut expected).unwrap();
    assert!(found == expected);
}

#[test]
fn every_kernel_runs() {
    let (single, double) = (Simt::new().lazy(), Simt::new().lazy());
    std::thread::scope(|scope| {
        scope.spawn(|| (all::<f32>(&single), nearest::<f32>(&single)));
        scope.spawn(|| (all::<f64>(&double), nearest::<f64>(&double)));
    });
    let mut missed = single.kernels_not_run();
    let missed_too = double.kernels_not_run();
    missed.retain(|kernel| kernel.0 != "test" && missed_too.contains(kernel));
    // Points of single precision are never made narrower, and a table of so many cells that
    // they need 64 bits needs more points than are joined here.
    let expected = [
        ("index_f32", "gather_narrow"),
        ("index_f32", "narrow_boxes"),
        ("index_f32", "cell_counts_u64"),
        ("index_f64", "cell_counts_u64"),
    ];
    missed.retain(|(module, name)| !expected.contains(&(&**module, &**name)));
    assert!(missed.is_empty(), "kernels that no join has needed: {missed:?}");
}
