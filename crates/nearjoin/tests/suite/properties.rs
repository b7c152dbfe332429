//! Properties of random joins, over coordinates that tie, vanish and overflow.

use nearjoin::sink::{Count, CsrSink, Pairs};
use nearjoin::{Csr, DuplicateRemoval, EpsJoin, Error, Metric, PointsBuf, Scalar, Strategy};
use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, any, prop_oneof, proptest};
use proptest::sample::select;
use proptest::strategy::Strategy as Draw;
use proptest::{prop_assert, prop_assert_eq};

use crate::check::{Answer, Case};

/// Every row is drawn with this many coordinates, of which the first few are used: so
/// rows and dimension shrink independently.
const MOST_DIMENSIONS: usize = 5;
type Row = [f64; MOST_DIMENSIONS];

/// The scales at which a type's arithmetic changes its nature.
struct Extremes {
    /// The smallest number.
    smallest: f64,
    /// The square of this vanishes.
    vanishing: f64,
    /// The square of this overflows.
    overflowing: f64,
    /// The difference of this and its negative overflows.
    largest: f64,
}

fn extremes<T: Scalar>() -> Extremes {
    match T::NAME {
        "f32" => Extremes {
            smallest: T::SMALLEST,
            vanishing: 1e-25,
            overflowing: 1e25,
            largest: f64::from(f32::MAX),
        },
        _ => Extremes {
            smallest: T::SMALLEST,
            vanishing: 1e-170,
            overflowing: 1e170,
            largest: f64::MAX,
        },
    }
}

/// A whole number of `unit`, small enough to tie often.
fn few(unit: f64) -> impl Draw<Value = f64> {
    (-3i32..=3).prop_map(move |k| f64::from(k) * unit)
}

/// Mostly ordinary numbers that tie; some at every extreme.
fn coordinate<T: Scalar>() -> impl Draw<Value = f64> {
    let Extremes { smallest, vanishing, overflowing, largest } = extremes::<T>();
    prop_oneof![
        8 => few(1.0),
        4 => -2.0..2.0,
        2 => few(0.1),
        1 => few(1.0).prop_map(|x| x + 1e9),
        1 => few(smallest),
        1 => few(vanishing),
        1 => few(overflowing),
        1 => select(vec![largest, -largest]),
    ]
}

/// Ordinary numbers only: exact under scaling by a moderate power of two.
fn ordinary() -> impl Draw<Value = f64> {
    prop_oneof![2 => few(1.0), 1 => -2.0..2.0, 1 => few(0.1), 1 => few(1e-3)]
}

fn epsilon<T: Scalar>() -> impl Draw<Value = f64> {
    let Extremes { smallest, vanishing, overflowing, largest } = extremes::<T>();
    prop_oneof![
        1 => Just(0.0),
        6 => (1i32..5).prop_map(f64::from),
        2 => select(vec![2f64.sqrt(), 3f64.sqrt(), 5f64.sqrt(), 0.1, 0.2]),
        4 => 0.0..3.0,
        1 => select(vec![smallest, vanishing, 2.0 * vanishing, overflowing, largest]),
    ]
}

/// How to join: nothing of this may show in the answer.
#[derive(Clone, Copy, Debug)]
struct How {
    strategy: Strategy,
    removal: DuplicateRemoval,
    threads: usize,
}

fn how() -> impl Draw<Value = How> {
    (select(Strategy::EPSILON), select(DuplicateRemoval::ALL), 1usize..4)
        .prop_map(|(strategy, removal, threads)| How { strategy, removal, threads })
}

impl How {
    fn apply(self, join: EpsJoin) -> EpsJoin {
        let join = join.strategy(self.strategy).duplicate_removal(self.removal);
        join.threads(self.threads)
    }
}

fn metric() -> impl Draw<Value = Metric> {
    select(&Metric::ALL[..])
}

/// Up to `most` rows. Long inputs repeat themselves, so that blocks of equal points form.
fn rows(most: usize, coordinate: impl Draw<Value = f64>) -> impl Draw<Value = Vec<Row>> {
    let rows = vec(proptest::array::uniform5(coordinate), 0..most);
    (rows, select(vec![1usize, 1, 1, 4])).prop_map(|(rows, times)| rows.repeat(times))
}

fn points<T: Scalar>(rows: &[Row], dim: usize) -> PointsBuf<T> {
    let flat = rows.iter().flat_map(|row| &row[..dim]).map(|x| T::from_f64(*x));
    PointsBuf::from_vec(flat.collect(), dim).unwrap()
}

/// Runs a case and gives its CSR, sorted and with distances.
fn run<T: Scalar>(case: &Case<'_, T>, how: How) -> Csr<T> {
    let plan = case.plan(&|join| how.apply(join)).unwrap();
    let mut sink = CsrSink::new().sorted(true).distances(true);
    plan.run(&mut sink).unwrap();
    sink.into_csr()
}

type Outcome = Result<(), proptest::test_runner::TestCaseError>;

/// Whether ε is so small beside the greatest coordinate that points nearer than it cannot be told
/// from equal ones, and there are some: the join says so.
fn cannot_be_told<T: Scalar>(case: &Case<'_, T>, how: How) -> bool {
    let refused = matches!(case.plan(&|join| how.apply(join)), Err(Error::TooNear { .. }));
    assert!(!refused || case.metric == Metric::L2 && case.eps < 1e-15, "{case}");
    refused
}

/// CSR, count and pairs are the oracle's.
fn is_right<T: Scalar>(case: &Case<'_, T>, how: How) -> Outcome {
    if cannot_be_told(case, how) {
        return Ok(());
    }
    let expected = case.oracle();
    prop_assert_eq!(&Answer::from_csr(&run(case, how)), &expected, "{}", case);
    let plan = case.plan(&|join| how.apply(join)).unwrap();
    let mut count = Count::new();
    plan.run(&mut count).unwrap();
    prop_assert_eq!(count.pairs(), expected.pairs(), "count of {}", case);
    let mut pairs = Pairs::new().sorted(true);
    plan.run(&mut pairs).unwrap();
    prop_assert_eq!(pairs.right(), &expected.ids[..], "pairs of {}", case);
    Ok(())
}

/// j is a neighbour of i if and only if i is one of j, at the same distance.
fn is_symmetric<T: Scalar>(case: &Case<'_, T>, how: How) -> Outcome {
    if cannot_be_told(case, how) {
        return Ok(());
    }
    let csr = run(case, how);
    prop_assert_eq!(transposed(&csr, case.left.len()), entries(&csr), "{}", case);
    Ok(())
}

/// The entries of a matrix: row, column and bits of the distance, ascending.
fn entries<T: Scalar>(csr: &Csr<T>) -> Vec<(u32, u32, u64)> {
    let row = |i: usize| {
        let distances = csr.distances_of(i).iter().map(crate::check::bits);
        csr.ids_of(i).iter().zip(distances).map(move |(j, d)| (i as u32, *j, d))
    };
    (0..csr.len()).flat_map(row).collect()
}

/// The entries of the transposed matrix, which has `rows` rows.
fn transposed<T: Scalar>(csr: &Csr<T>, rows: usize) -> Vec<(u32, u32, u64)> {
    let mut turned: Vec<_> = entries(csr).into_iter().map(|(i, j, d)| (j, i, d)).collect();
    turned.sort_unstable();
    assert!(turned.last().is_none_or(|entry| (entry.0 as usize) < rows));
    turned
}

/// 256 cases a property; `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

macro_rules! properties {
    ($($type:ident),+) => { $( mod $type { use super::*; proptest! {
        #![proptest_config(config())]

        #[test]
        fn self_joins_are_right(
            rows in rows(60, coordinate::<$type>()), dim in 1..=MOST_DIMENSIONS,
            eps in epsilon::<$type>(), metric in metric(), how in how(), with_self in any::<bool>(),
        ) {
            let points = points::<$type>(&rows, dim);
            let case = Case::within("random", points.as_points(), eps).metric(metric);
            is_right(&case.include_self(with_self), how)?;
        }

        #[test]
        fn joins_of_two_sets_are_right(
            left in rows(40, coordinate::<$type>()), right in rows(40, coordinate::<$type>()),
            dim in 1..=MOST_DIMENSIONS, eps in epsilon::<$type>(), metric in metric(), how in how(),
        ) {
            let (left, right) = (points::<$type>(&left, dim), points::<$type>(&right, dim));
            let case = Case::between("random", left.as_points(), right.as_points(), eps);
            is_right(&case.metric(metric), how)?;
        }

        #[test]
        fn self_joins_are_symmetric(
            rows in rows(60, coordinate::<$type>()), dim in 1..=MOST_DIMENSIONS,
            eps in epsilon::<$type>(), metric in metric(), how in how(),
        ) {
            let points = points::<$type>(&rows, dim);
            let case = Case::within("random", points.as_points(), eps).metric(metric);
            is_symmetric(&case, how)?;
        }

        #[test]
        fn swapping_the_sides_transposes(
            left in rows(40, coordinate::<$type>()), right in rows(40, coordinate::<$type>()),
            dim in 1..=MOST_DIMENSIONS, eps in epsilon::<$type>(), metric in metric(),
            there in how(), back in how(),
        ) {
            let (left, right) = (points::<$type>(&left, dim), points::<$type>(&right, dim));
            let (left, right) = (left.as_points(), right.as_points());
            let forward = Case::between("there", left, right, eps).metric(metric);
            let backward = Case::between("back", right, left, eps).metric(metric);
            if cannot_be_told(&forward, there) {
                return Ok(());
            }
            let (forward, backward) = (run(&forward, there), run(&backward, back));
            prop_assert_eq!(transposed(&forward, right.len()), entries(&backward));
        }

        /// Multiplying points and ε by a power of two rounds nothing: the neighbours stay,
        /// and distances scale along.
        #[test]
        fn scaling_by_a_power_of_two_keeps_the_neighbours(
            rows in rows(60, ordinary()), dim in 1..=MOST_DIMENSIONS, power in -20i32..=20,
            eps in 0.0..3.0, metric in metric(), before in how(), after in how(),
        ) {
            let scale = 2f64.powi(power);
            // ε must be a number of the type before it is scaled.
            let eps = f64::from(eps as $type);
            let plain = points::<$type>(&rows, dim);
            let scaled: Vec<$type> =
                plain.as_points().as_slice().iter().map(|x| x * scale as $type).collect();
            let scaled = PointsBuf::from_vec(scaled, dim).unwrap();
            let case = Case::within("plain", plain.as_points(), eps).metric(metric);
            let plain = run(&case, before);
            let case = Case::within("scaled", scaled.as_points(), eps * scale).metric(metric);
            let scaled = run(&case, after);
            prop_assert_eq!(plain.offsets(), scaled.offsets());
            prop_assert_eq!(plain.ids(), scaled.ids());
            let distances = plain.distances().iter().map(|d| d * scale as $type);
            prop_assert!(distances.eq(scaled.distances().iter().copied()));
        }

        /// More ε, more neighbours.
        #[test]
        fn neighbours_grow_with_epsilon(
            rows in rows(60, coordinate::<$type>()), dim in 1..=MOST_DIMENSIONS,
            one in epsilon::<$type>(), other in epsilon::<$type>(), metric in metric(),
            how in how(),
        ) {
            let points = points::<$type>(&rows, dim);
            let smaller = Case::within("smaller", points.as_points(), one.min(other)).metric(metric);
            let larger = Case { eps: one.max(other), ..smaller.clone() };
            if cannot_be_told(&smaller, how) || cannot_be_told(&larger, how) {
                return Ok(());
            }
            let (smaller, larger) = (run(&smaller, how), run(&larger, how));
            for row in 0..smaller.len() {
                let more = larger.ids_of(row);
                let kept = smaller.ids_of(row).iter().all(|id| more.binary_search(id).is_ok());
                prop_assert!(kept, "row {}: {:?} and {:?}", row, smaller.ids_of(row), more);
            }
        }
    } } )+ };
}

properties!(f32, f64);
