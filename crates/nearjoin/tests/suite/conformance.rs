//! Every strategy, type, metric and sink against the oracle, on every kind of data.

use nearjoin::{
    EpsJoin, Metric, Points, PointsBuf, Scalar, Strategy, count_pairs, eps_join, eps_join_between,
};

use crate::check::{Answer, Case, on_one_thread};
use crate::data::Data;

/// Dimensions with a kernel of their own, and the first without.
const DIMENSIONS: [usize; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33];

/// Checks one distribution: all dimensions and metrics, one set and two.
fn distribution<T: Scalar>(data: Data) {
    for dim in DIMENSIONS {
        // More than 256 points have a second level of boxes.
        let dense = matches!(data, Data::Duplicates | Data::Piles | Data::Sphere);
        let points = if dim <= 3 && !dense { 300 } else { 100 };
        match dim <= 3 {
            true => matrix::<T>(data, dim, points),
            false => on_one_thread(|| matrix::<T>(data, dim, points)),
        }
    }
}

/// All metrics of one distribution in one dimension.
fn matrix<T: Scalar>(data: Data, dim: usize, points: usize) {
    let left = data.points::<T>(points, dim, 1);
    let right = data.points::<T>(points * 2 / 3 + 1, dim, 2);
    let (left, right) = (left.as_points(), right.as_points());
    let name = format!("{data:?} {} {dim}-D", T::NAME);
    for metric in Metric::ALL {
        let eps = data.eps(&left, &left, metric);
        let case = Case::within(&name, left, eps).metric(metric);
        let answer = case.check();
        if dim <= 3 || dim == 9 {
            case.include_self(true).check();
        }
        assert_separates(data, &answer, left.len() * left.len().saturating_sub(1), &name);

        let eps = data.eps(&left, &right, metric);
        let answer = Case::between(&name, left, right, eps).metric(metric).check();
        assert_separates(data, &answer, left.len() * right.len(), &name);
    }
}

/// A join that finds nothing, or everything, tests little: where the data allow it, ε
/// must not be such.
fn assert_separates(data: Data, answer: &Answer, all: usize, name: &str) {
    let pairs = answer.pairs();
    let separates = 0 < pairs && pairs < all as u64;
    assert!(separates || !data.separates(), "{name}: {pairs} of {all} pairs");
}

macro_rules! distributions {
    ($($name:ident: $data:ident),+ $(,)?) => { $(
        mod $name {
            #[test]
            fn f32() {
                super::distribution::<f32>(super::Data::$data);
            }
            #[test]
            fn f64() {
                super::distribution::<f64>(super::Data::$data);
            }
        }
    )+ };
}

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

/// Both types of a check that is generic over them and has small joins only.
macro_rules! both_types {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => { $(
        mod $name {
            $(#[$doc])*
            #[test]
            fn f32() {
                super::on_one_thread(super::types::$name::<f32>);
            }
            $(#[$doc])*
            #[test]
            fn f64() {
                super::on_one_thread(super::types::$name::<f64>);
            }
        }
    )+ };
}

both_types! {
    many_dimensions,
    odd_sizes,
    zero_epsilon,
    everything_matches,
    disjoint_domains,
    one_side_empty,
    uneven_sides,
}

/// Checks that [`both_types`] makes tests of.
mod types {
    use super::*;

    pub(super) fn many_dimensions<T: Scalar>() {
        for data in [Data::Uniform, Data::Lattice, Data::Sphere] {
            matrix::<T>(data, 100, 50);
        }
        for data in [Data::Uniform, Data::Sphere] {
            matrix::<T>(data, nearjoin::MAX_DIMENSION, 20);
        }
    }

    /// Sizes around those of vectors, blocks and pyramids of blocks.
    pub(super) fn odd_sizes<T: Scalar>() {
        for n in [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 47, 48, 49, 256, 257, 273] {
            for dim in [1, 2, 9] {
                let points = Data::Clustered.points::<T>(n, dim, 7);
                let points = points.as_points();
                let case = Case::within(format!("{n} points {dim}-D"), points, 1.0);
                case.check();
                let few = Data::Clustered.points::<T>(n / 2, dim, 8);
                Case::between(&case.name, points, few.as_points(), 1.0).check();
                Case::between(&case.name, few.as_points(), points, 1.0).check();
            }
        }
    }

    /// ε = 0 finds the duplicates and nothing else.
    pub(super) fn zero_epsilon<T: Scalar>() {
        for dim in [1, 2, 3, 6, 9] {
            let once = Data::Uniform.points::<T>(90, dim, 3);
            let twice = [once.as_points().as_slice(), &once.as_points().as_slice()[..40 * dim]];
            let twice = twice.concat();
            let points = Points::new(&twice, dim).unwrap();
            for metric in Metric::ALL {
                let case = Case::within(format!("duplicates {dim}-D"), points, 0.0).metric(metric);
                assert_eq!(case.check().pairs(), 80, "{case}");
                assert_eq!(case.include_self(true).check().pairs(), 80 + 130);
                let case = Case::between("duplicates", points, once.as_points(), 0.0);
                assert_eq!(case.metric(metric).check().pairs(), 130);
            }
            let lattice = Data::Lattice.points::<T>(120, dim, 3);
            let case = Case::within("lattice", lattice.as_points(), 0.0);
            assert_eq!(case.check().pairs(), 0, "{case}");
            let equal = Data::Duplicates.points::<T>(120, dim, 3);
            let case = Case::within("one point", equal.as_points(), 0.0);
            assert_eq!(case.check().pairs(), 120 * 119, "{case}");
        }
    }

    /// ε larger than any distance, up to where its square overflows.
    pub(super) fn everything_matches<T: Scalar>() {
        let overflows = if T::NAME == "f32" { 1e30 } else { 1e200 };
        for eps in [1e8, overflows] {
            for data in [Data::Uniform, Data::HugeOffset, Data::DenseBall] {
                for dim in [1, 3, 9] {
                    let eps = if data == Data::HugeOffset { eps * 100.0 } else { eps };
                    let left = data.points::<T>(70, dim, 1);
                    let right = data.points::<T>(53, dim, 2);
                    let (left, right) = (left.as_points(), right.as_points());
                    for metric in Metric::ALL {
                        let case = Case::within(format!("{data:?} {dim}-D"), left, eps);
                        assert_eq!(case.metric(metric).check().pairs(), 70 * 69);
                        let case = Case::between(format!("{data:?} {dim}-D"), left, right, eps);
                        assert_eq!(case.metric(metric).check().pairs(), 70 * 53);
                    }
                }
            }
        }
    }

    /// The domains touch nowhere: nothing matches, unless ε spans the gap.
    pub(super) fn disjoint_domains<T: Scalar>() {
        for dim in [1, 2, 3, 7] {
            let left = Data::Uniform.points::<T>(150, dim, 1);
            let left = left.as_points();
            let moved = left.as_slice().iter().map(|x| T::from_f64(x.to_f64() + 1000.0));
            let moved: Vec<T> = moved.collect();
            let right = Points::new(&moved, dim).unwrap();
            for metric in Metric::ALL {
                let near = Case::between("far apart", left, right, 5.0).metric(metric);
                assert_eq!(near.check().pairs(), 0, "{near}");
                let far = Case { eps: Data::Uniform.eps(&left, &right, metric), ..near };
                let pairs = far.check().pairs();
                assert!(0 < pairs && pairs < 150 * 150, "{far}: {pairs}");
            }
        }
    }

    pub(super) fn one_side_empty<T: Scalar>() {
        for dim in [1, 2, 5, 9] {
            let some = Data::Uniform.points::<T>(70, dim, 1);
            let none = Data::Empty.points::<T>(0, dim, 1);
            for metric in Metric::ALL {
                let (some, none) = (some.as_points(), none.as_points());
                let answer = Case::between("none right", some, none, 1e9).metric(metric).check();
                assert_eq!(answer.offsets, [0; 71]);
                let answer = Case::between("none left", none, some, 1e9).metric(metric).check();
                assert_eq!(answer.offsets, [0]);
            }
        }
    }

    pub(super) fn uneven_sides<T: Scalar>() {
        for (few, many) in [(1, 600), (3, 500), (17, 5000)] {
            for dim in [1, 3, 8] {
                let few = Data::Clustered.points::<T>(few, dim, 1);
                let many = Data::Clustered.points::<T>(many, dim, 1);
                let (few, many) = (few.as_points(), many.as_points());
                for metric in Metric::ALL {
                    let eps = Data::Clustered.eps(&many, &many, metric);
                    let there = Case::between("few to many", few, many, eps).metric(metric);
                    let pairs = there.check().pairs();
                    let back = Case::between("many to few", many, few, eps).metric(metric);
                    assert_eq!(back.check().pairs(), pairs, "{back}");
                }
            }
        }
    }

    /// Enough points for several tiles of candidates and three levels of boxes.
    pub(super) fn large<T: Scalar>() {
        for (data, dim) in [(Data::Exponential, 1), (Data::Clustered, 2), (Data::Uniform, 3)] {
            let points = data.points::<T>(4500, dim, 5);
            let points = points.as_points();
            for metric in [Metric::L2, Metric::L1] {
                let eps = data.eps(&points, &points, metric) / 4.0;
                let case = Case::within(format!("large {data:?} {dim}-D"), points, eps);
                case.metric(metric).check();
            }
        }
    }
}

#[test]
fn large_f32() {
    types::large::<f32>();
}

#[test]
fn large_f64() {
    types::large::<f64>();
}

/// The square of ε would be 0 in `f64`, and so would the squares of distances up to 1e-162.
#[test]
fn tiny_epsilon() {
    for dim in [1, 2, 4, 9] {
        let points = Data::Uniform.points::<f64>(150, dim, 4);
        let tiny = points.as_points().as_slice().iter().map(|x| x.floor() * 1e-170);
        let tiny: Vec<f64> = tiny.collect();
        let tiny = Points::new(&tiny, dim).unwrap();
        for metric in Metric::ALL {
            let case = Case::within(format!("1e-170 apart, {dim}-D"), tiny, 1e-200).metric(metric);
            let equal = case.check().pairs();
            let near = Case { eps: 3e-170, ..case }.check().pairs();
            assert!(near < 150 * 149 && (equal < near || dim > 2), "{dim}-D: {equal} {near}");
        }
        let ordinary = Case::within(format!("ordinary {dim}-D"), points.as_points(), 1e-200);
        assert_eq!(ordinary.check().pairs(), 0, "{ordinary}");
    }
}

/// Every shape of directory gives the same answer.
#[test]
fn directory_shapes() {
    for dim in [1, 2, 5] {
        let points = Data::Clustered.points::<f64>(400, dim, 9);
        let case = Case::within(format!("{dim}-D"), points.as_points(), 1.5);
        let expected = case.oracle();
        for (levels, fanout) in [(1, 2), (1, 500), (2, 64), (3, 2), (8, 8)] {
            let directory =
                |join: EpsJoin| join.strategy(Strategy::Directory).directory(levels, fanout);
            let mut sink = nearjoin::sink::CsrSink::new().distances(true);
            case.plan(&directory).unwrap().run(&mut sink).unwrap();
            let found = Answer::from_csr(sink.csr());
            assert_eq!(found, expected, "{case}, {levels} levels of {fanout}");
        }
    }
}

/// The functions for the common call agree with the oracle.
#[test]
fn shortcuts() {
    let left = Data::Exponential.points::<f64>(300, 2, 1);
    let right = Data::Exponential.points::<f64>(200, 2, 2);
    let (left, right) = (left.as_points(), right.as_points());
    let rows = |csr: nearjoin::Csr<f64>| {
        let sorted = |row: &[u32]| {
            let mut row = row.to_vec();
            row.sort_unstable();
            row
        };
        csr.iter().flat_map(sorted).collect::<Vec<u32>>()
    };
    let within = Case::within("shortcut", left, 0.01).oracle();
    let csr = eps_join(&left, 0.01).unwrap();
    assert_eq!(csr.offsets(), within.offsets);
    assert_eq!(rows(csr), within.ids);
    assert_eq!(count_pairs(&left, 0.01), Ok(within.pairs()));
    let between = Case::between("shortcut", left, right, 0.01).oracle();
    let csr = eps_join_between(&left, &right, 0.01).unwrap();
    assert_eq!(csr.offsets(), between.offsets);
    assert_eq!(rows(csr), between.ids);
    assert!(within.pairs() > 0 && between.pairs() > 0);
}

/// What a plan holds is not used up by a run, and a sink can be used again.
#[test]
fn plans_and_sinks_can_be_used_again() {
    let many = Data::Clustered.points::<f32>(500, 3, 1);
    let few: PointsBuf<f32> = Data::Clustered.points(20, 3, 1);
    let mut sink = nearjoin::sink::CsrSink::new().distances(true);
    let mut degrees = nearjoin::sink::Degrees::new();
    for points in [many.as_points(), few.as_points(), many.as_points()] {
        let case = Case::within("again", points, 1.0);
        let expected = case.oracle();
        let plan = case.plan(&|join| join).unwrap();
        for _ in 0..2 {
            plan.run(&mut sink).unwrap();
            assert_eq!(Answer::from_csr(sink.csr()), expected);
            plan.run(&mut degrees).unwrap();
            assert_eq!(degrees.as_slice().iter().sum::<u64>(), expected.pairs());
        }
    }
}
