//! Every error that a caller can provoke: its variant, and that its message names the
//! values and says what to do.
//!
//! Left out, because a test cannot provoke them without exhausting the machine:
//! `OutOfMemory` and `Threads`.

use std::ops::ControlFlow;

use nearjoin::sink::{Callback, CsrInto, CsrSink, Degrees, Pairs};
use nearjoin::{
    Device, DuplicateRemoval, EpsJoin, Error, MAX_DIMENSION, MAX_POINTS, Metric, Points, PointsBuf,
    Scalar, Strategy, eps_join, eps_join_between, oracle,
};

use crate::child::{Child, said, say};
use crate::data::Data;

/// Whether the message contains every one of `parts`.
fn assert_says(error: &Error, parts: &[&str]) {
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

/// The error of planning a join of two points with these options.
fn refused(join: EpsJoin) -> Error {
    refused_for::<f64>(join)
}

fn refused_for<T: Scalar>(join: EpsJoin) -> Error {
    let data = [T::ZERO, T::from_f64(1.0)];
    let points = Points::new(&data, 1).unwrap();
    let error = join.plan_self(&points).unwrap_err();
    let again = join.plan(&points, &points).unwrap_err();
    // As text: a NaN does not equal itself.
    assert_eq!(again.to_string(), error.to_string(), "two sets are told the same");
    error
}

#[test]
fn not_finite_names_row_column_and_value() {
    for (bad, name) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (-f64::INFINITY, "-inf")] {
        for at in [0, 5, 23, 299] {
            let mut data = vec![1.0; 300];
            data[at] = bad;
            let error = Points::new(&data, 3).unwrap_err();
            let Error::NotFinite { row, column, value } = error else { panic!("{error:?}") };
            assert_eq!((row, column), (at / 3, at % 3));
            assert_eq!(value.to_bits(), bad.to_bits());
            let (row, column) = (format!("row {row}"), format!("column {column}"));
            assert_says(&error, &[&row, &column, &format!("is {name}"), "finite"]);
        }
    }
    let error = Points::new(&[0.0f32, f32::NEG_INFINITY], 2).unwrap_err();
    let value = f64::NEG_INFINITY;
    assert_eq!(error, Error::NotFinite { row: 0, column: 1, value });
    let error = PointsBuf::from_rows([[0.0, 1.0], [f64::INFINITY, 1.0]]).unwrap_err();
    assert_eq!(error, Error::NotFinite { row: 1, column: 0, value: f64::INFINITY });
    let error = Points::from_rows(&[[f32::INFINITY]]).unwrap_err();
    assert_eq!(error, Error::NotFinite { row: 0, column: 0, value: f64::INFINITY });
}

#[test]
fn the_first_of_several_bad_values_is_named() {
    let mut data = vec![0.0f32; 400_000];
    for at in [399_999, 200_001, 70_000] {
        data[at] = f32::INFINITY;
        let error = Points::new(&data, 1).unwrap_err();
        assert_eq!(error, Error::NotFinite { row: at, column: 0, value: f64::INFINITY });
    }
}

#[test]
fn dimension_out_of_range() {
    for dimension in [0, MAX_DIMENSION + 1, usize::MAX] {
        let error = Points::<f64>::new(&[], dimension).unwrap_err();
        assert_eq!(error, Error::Dimension { dimension });
        let given = format!("dimension {dimension}");
        assert_says(&error, &[&given, "between 1 and 4096"]);
    }
    assert_eq!(
        Points::new(&[1.0f32; 4097], 4097).unwrap_err(),
        Error::Dimension { dimension: 4097 }
    );
    assert!(Points::new(&[1.0f32; 4096], 4096).is_ok());
    let empty_rows = PointsBuf::<f64>::from_rows([[0.0; 0]; 3]).unwrap_err();
    assert_eq!(empty_rows, Error::Dimension { dimension: 0 });
    assert_eq!(Points::<f64>::from_rows::<0>(&[]).unwrap_err(), Error::Dimension { dimension: 0 });
}

#[test]
fn length_that_does_not_divide() {
    let error = Points::new(&[1.0; 17], 5).unwrap_err();
    assert_eq!(error, Error::Length { length: 17, dimension: 5 });
    assert_says(&error, &["17 values", "rows of 5", "2 are left over"]);
    assert_eq!(PointsBuf::from_vec(vec![1.0; 17], 5).unwrap_err(), error);
}

#[test]
fn ragged_rows() {
    let rows = [vec![0.0, 1.0], vec![2.0, 3.0], vec![4.0, 5.0, 6.0], vec![7.0]];
    let error = PointsBuf::from_rows(&rows).unwrap_err();
    assert_eq!(error, Error::Ragged { row: 2, columns: 3, expected: 2 });
    assert_says(&error, &["row 2", "3 columns", "first row has 2"]);
}

#[test]
fn dimensions_that_differ() {
    let (flat, deep) = (Points::new(&[0.0; 6], 2).unwrap(), Points::new(&[0.0; 6], 3).unwrap());
    let expected = Error::DimensionMismatch { left: 2, right: 3 };
    let error = EpsJoin::new(1.0).plan(&flat, &deep).unwrap_err();
    assert_eq!(error, expected);
    assert_says(&error, &["left points have dimension 2", "right points 3"]);
    assert_eq!(eps_join_between(&flat, &deep, 1.0).unwrap_err(), expected);
    assert_eq!(oracle::eps_join(&flat, &deep, 1.0, Metric::L2, false).unwrap_err(), expected);
    let error = EpsJoin::new(1.0).plan(&deep, &flat).unwrap_err();
    assert_eq!(error, Error::DimensionMismatch { left: 3, right: 2 });
}

#[test]
fn epsilon_that_is_no_distance() {
    for (eps, name) in [(-0.5, "-0.5"), (f64::INFINITY, "inf"), (f64::NEG_INFINITY, "-inf")] {
        for metric in Metric::ALL {
            let error = refused(EpsJoin::new(eps).metric(metric));
            assert_eq!(error, Error::Epsilon { value: eps, kind: "f64" });
            assert_says(&error, &[&format!("ε = {name}"), "0 or more", "finite in f64"]);
        }
    }
    let error = refused(EpsJoin::new(f64::NAN));
    assert!(matches!(error, Error::Epsilon { value, kind: "f64" } if value.is_nan()), "{error:?}");
    assert_says(&error, &["ε = NaN"]);
    let points = Points::new(&[0.0], 1).unwrap();
    let expected = Error::Epsilon { value: -1.0, kind: "f64" };
    assert_eq!(eps_join(&points, -1.0).unwrap_err(), expected);
    assert_eq!(nearjoin::count_pairs(&points, -1.0).unwrap_err(), expected);
    assert_eq!(eps_join_between(&points, &points, -1.0).unwrap_err(), expected);
}

/// 1e39 is a number in `f64` and infinite in `f32`; −0 is 0.
#[test]
fn epsilon_that_only_f64_can_hold() {
    for metric in Metric::ALL {
        let error = refused_for::<f32>(EpsJoin::new(1e39).metric(metric));
        assert_eq!(error, Error::Epsilon { value: 1e39, kind: "f32" });
        assert_says(&error, &["finite in f32"]);
        let points = Points::new(&[0.0f64], 1).unwrap();
        assert!(EpsJoin::new(1e39).metric(metric).plan_self(&points).is_ok());
        assert!(EpsJoin::new(-0.0).metric(metric).plan_self(&points).is_ok());
    }
}

#[test]
fn no_threads() {
    let error = refused(EpsJoin::new(1.0).threads(0));
    assert_eq!(error, Error::Option { name: "threads", value: 0, allowed: "1 to 1024" });
    assert_says(&error, &["threads = 0", "1 to 1024"]);
}

#[test]
fn directory_out_of_range() {
    for levels in [0, 9, usize::MAX] {
        let error = refused(EpsJoin::new(1.0).directory(levels, 2));
        let Error::Option { name: "directory levels", value, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!(value, levels);
        assert_says(&error, &[&format!("directory levels = {levels}"), "1 to 8"]);
    }
    // Too few parts to cut into, or too many over all levels; 2^24 are allowed.
    for (levels, fanout) in [(1, 0), (1, 1), (8, 9), (3, 257), (1, (1 << 24) + 1), (2, usize::MAX)]
    {
        let error = refused(EpsJoin::new(1.0).directory(levels, fanout));
        let Error::Option { name: "directory fan-out", value, .. } = error else {
            panic!("{levels} levels of {fanout}: {error:?}")
        };
        assert_eq!(value, fanout);
        assert_says(&error, &[&format!("directory fan-out = {fanout}"), "2 or more", "2^24"]);
    }
    let points = Points::new(&[0.0], 1).unwrap();
    for (levels, fanout) in [(1, 2), (8, 8), (3, 256)] {
        assert!(EpsJoin::new(1.0).directory(levels, fanout).plan_self(&points).is_ok());
    }
}

/// Checks the error of parsing a name, and that every known name round-trips.
macro_rules! names {
    ($($test:ident: $type:ident, $what:literal);+ $(;)?) => { $(
        #[test]
        fn $test() {
            for name in ["", "nonsense", "gr id"] {
                let error = name.parse::<$type>().unwrap_err();
                let Error::UnknownName { what, name: given, known } = &error else {
                    panic!("{error:?}")
                };
                assert_eq!((*what, given.as_str()), ($what, name));
                assert_says(&error, &[$what, &format!("{name:?}"), known]);
                for value in $type::ALL.iter() {
                    let shown = value.to_string();
                    assert!(known.split(", ").any(|name| name == shown), "{known}: {shown}");
                }
            }
            for value in $type::ALL.iter() {
                assert_eq!(value.to_string().parse(), Ok(*value));
            }
        }
    )+ };
}

names! {
    unknown_strategy: Strategy, "strategy";
    unknown_metric: Metric, "metric";
    unknown_device: Device, "device";
    unknown_duplicate_removal: DuplicateRemoval, "duplicate removal";
}

#[test]
fn devices_that_are_not_there() {
    Child::new("errors::refuse_devices").without_gpu().lines();
}

#[test]
#[ignore = "a part of devices_that_are_not_there"]
fn refuse_devices() {
    let none = Points::<f64>::new(&[], 3).unwrap();
    let join = EpsJoin::new(1.0).device(Device::Gpu);
    assert!(join.plan_self(&none).is_err(), "even without points");
    let error = refused(join);
    let Error::Device { device: "gpu", reason } = &error else { panic!("{error:?}") };
    assert_says(&error, &["device gpu", reason, "cpu"]);
    let points = Points::new(&[0.0], 1).unwrap();
    for device in [Device::Auto, Device::Cpu, Device::Hybrid] {
        assert!(EpsJoin::new(1.0).device(device).plan_self(&points).is_ok());
    }
}

/// 2000 equal points, whose index needs far less than the pairs.
fn equal_points() -> PointsBuf<f64> {
    Data::Duplicates.points(2000, 2, 1)
}

const MEBIBYTE: u64 = 1 << 20;

fn assert_memory_limit(error: &Error, limit: u64, least: u64, what: &str) {
    let Error::MemoryLimit { what: said, needed, limit: stated } = error else {
        panic!("{error:?}")
    };
    assert_eq!(*stated, limit);
    assert!(*needed > limit && *needed >= least, "{needed} bytes for {what}");
    let said = said.to_string();
    assert!(said.contains(what), "{said}");
    let shown = match limit {
        1000 => "1000 B",
        MEBIBYTE => "1.00 MiB",
        _ => panic!("this test does not know how {limit} bytes are shown"),
    };
    // A callback helps a large result, and not an index that does not fit.
    let advice: &[&str] =
        if what == "index" { &["fewer points"] } else { &["lower ε", "callback"] };
    assert_says(error, &[&[&said[..], shown, "raise the limit"], advice].concat());
}

#[test]
fn an_index_beyond_the_limit() {
    let points = equal_points();
    for &strategy in Strategy::EPSILON {
        let join = EpsJoin::new(1.0).strategy(strategy).memory_limit(1000);
        let plan = join.plan_self(&points.as_points()).unwrap();
        let error = plan.run(&mut nearjoin::sink::Count::new()).unwrap_err();
        assert_memory_limit(&error, 1000, 2000 * 16, "index");
    }
}

#[test]
fn an_index_stays_within_what_it_asks_for() {
    for (data, dim, eps) in
        [(Data::Uniform, 2, 1.0), (Data::Uniform, 6, 20.0), (Data::Clustered, 3, 0.1)]
    {
        let points = data.points::<f64>(20_000, dim, 1);
        let points = points.as_points();
        for &strategy in Strategy::EPSILON {
            let join = EpsJoin::new(eps).strategy(strategy).device(Device::Cpu);
            for plan in [join.plan_self(&points).unwrap(), join.plan(&points, &points).unwrap()] {
                let built = plan.run(&mut Degrees::new()).unwrap().index_bytes;
                let asked = plan.index_bytes();
                assert!(
                    (built..6 * built).contains(&asked),
                    "{strategy} {dim}: {built} of {asked}"
                );
            }
        }
    }
}

#[test]
fn a_result_beyond_the_limit() {
    let points = equal_points();
    let points = points.as_points();
    // Room for the index, the offsets and the degrees, and not for 4 million pairs.
    let limit = MEBIBYTE;
    let pairs = 2000 * 1999;
    for &strategy in Strategy::EPSILON {
        let join = EpsJoin::new(1.0).strategy(strategy).memory_limit(limit);
        let plan = join.plan_self(&points).unwrap();
        let csr = plan.run(&mut CsrSink::new()).unwrap_err();
        assert_memory_limit(&csr, limit, pairs * 4, "result");
        let csr = plan.run(&mut CsrSink::new().distances(true)).unwrap_err();
        assert_memory_limit(&csr, limit, pairs * 12, "result");
        let half = plan.run(&mut Pairs::new().half(true)).unwrap_err();
        assert_memory_limit(&half, limit, limit, "result");
        let both = plan.run(&mut Pairs::new().distances(true)).unwrap_err();
        assert_memory_limit(&both, limit, limit, "result");
        plan.run(&mut Degrees::new()).expect("degrees fit");
    }
    // The same result fits where there is room for it.
    let join = EpsJoin::new(1.0).memory_limit(1 << 28);
    let plan = join.plan_self(&points).unwrap();
    assert_eq!(plan.run(&mut CsrSink::new()).unwrap().pairs, pairs);
    assert_eq!(plan.run(&mut Pairs::new()).unwrap().pairs, pairs);
}

/// A failed run leaves no half of a result behind.
#[test]
fn a_refused_result_is_empty() {
    let points = equal_points();
    let plan = EpsJoin::new(1.0).memory_limit(MEBIBYTE).plan_self(&points.as_points()).unwrap();
    let mut csr = CsrSink::new();
    plan.run(&mut csr).unwrap_err();
    assert_eq!(csr.csr().pairs(), 0);
    let mut pairs = Pairs::new();
    plan.run(&mut pairs).unwrap_err();
    assert!(pairs.left().is_empty() && pairs.right().is_empty());
}

#[test]
fn buffers_that_are_too_small() {
    let points = Points::new(&[0.0, 1.0, 1.5], 1).unwrap();
    let plan = EpsJoin::new(1.0).plan_self(&points).unwrap();
    for length in [0, 3, 5] {
        let (mut offsets, mut ids) = (vec![0; length], [0; 10]);
        let error = plan.run(&mut CsrInto::new(&mut offsets, &mut ids)).unwrap_err();
        assert_eq!(error, Error::Buffer { name: "offsets", length, needed: 4 });
        assert_says(&error, &["offsets", &format!("room for {length}"), "4 are needed"]);
    }

    let (mut offsets, mut ids) = ([9; 4], [7; 3]);
    let error = plan.run(&mut CsrInto::new(&mut offsets, &mut ids)).unwrap_err();
    assert_eq!(error, Error::Buffer { name: "ids", length: 3, needed: 4 });
    assert_says(&error, &["ids", "room for 3", "4 are needed"]);
    assert_eq!(offsets, [0, 1, 3, 4], "offsets are complete by then");
    assert_eq!(ids, [7; 3], "and nothing else is written");

    let (mut offsets, mut ids, mut distances) = ([9; 4], [7; 4], [0.5; 2]);
    let mut into = CsrInto::new(&mut offsets, &mut ids).distances(&mut distances);
    let error = plan.run(&mut into).unwrap_err();
    assert_eq!(error, Error::Buffer { name: "distances", length: 2, needed: 4 });
    assert_says(&error, &["distances", "room for 2", "4 are needed"]);
    assert_eq!((offsets, distances), ([0, 1, 3, 4], [0.5; 2]));
}

#[test]
fn a_callback_that_stops() {
    let points = Points::new(&[0.0, 1.0, 1.5], 1).unwrap();
    let plan = EpsJoin::new(1.0).plan_self(&points).unwrap();
    let mut sink = Callback::new(|_: &nearjoin::sink::Block<f64>| ControlFlow::Break(()));
    let error = plan.run(&mut sink).unwrap_err();
    assert_eq!(error, Error::Stopped);
    assert_says(&error, &["callback", "stop"]);
}

/// Errors come at the door: whatever is wrong with the options, planning says so.
#[test]
fn options_are_checked_even_if_unused_or_without_points() {
    let none = Points::<f64>::new(&[], 3).unwrap();
    let joins = [
        EpsJoin::new(-1.0),
        EpsJoin::new(1.0).threads(0),
        EpsJoin::new(1.0).strategy(Strategy::Grid).directory(0, 0),
    ];
    for join in joins {
        assert!(join.plan_self(&none).is_err(), "{join:?}");
    }
}

#[test]
#[ignore = "a part of too_many_points"]
fn print_too_many_points() {
    // Zeros that nobody touches cost no memory, only addresses.
    let data = vec![0.0f32; MAX_POINTS + 1];
    let error = Points::new(&data, 1).unwrap_err();
    assert_eq!(error, Error::TooManyPoints { points: MAX_POINTS + 1 });
    say(&error.to_string());
}

/// Runs apart, because a system that refuses the 16 GiB ends the process.
#[test]
fn too_many_points() {
    let output = Child::new("errors::print_too_many_points").output();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("memory allocation of") {
        println!("skipped: {errors}");
        return;
    }
    let message = said(&output).concat();
    assert!(output.status.success(), "{errors}");
    assert!(message.contains("4294967295 points"), "{message}");
    assert!(message.contains("4294967294") && message.contains("split"), "{message}");
}
