//! One meaning of "within", over the whole range of numbers: what is reported as a distance is
//! found within it, and points times a power of two have the same neighbours.

use nearjoin::sink::{Count, CsrSink};
use nearjoin::{EpsJoin, Error, KnnJoin, Metric, Neighbors, Points, Scalar, Strategy, oracle};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::check::{Answer, Case, bits, check_count, check_half_blocks, check_sorted_csr};
use crate::gpu;

/// Random points of few digits, so that they are exact at every scale, with duplicates.
fn few_digits<T: Scalar>(n: usize, dim: usize) -> Vec<T> {
    let mut random = StdRng::seed_from_u64(dim as u64);
    let mut data: Vec<T> = (0..n * dim)
        .map(|_| T::from_f64(f64::from(random.random_range(-128..128)) / 128.0))
        .collect();
    data.copy_within(0..dim, dim);
    data
}

/// `x`·2ᵉ, rounded once.
fn times<T: Scalar>(x: T, exponent: i32) -> T {
    // Half of it first: 2ᵉ itself may be out of range.
    let half = x.to_f64() * 2f64.powi(exponent / 2);
    T::from_f64(half * 2f64.powi(exponent - exponent / 2))
}

fn scaled<T: Scalar>(data: &[T], exponent: i32) -> Vec<T> {
    let scaled: Vec<T> = data.iter().map(|x| times(*x, exponent)).collect();
    assert!(scaled.iter().zip(data).all(|(y, x)| times(*y, -exponent) == *x), "2^{exponent}");
    scaled
}

/// The exponents at which coordinates up to 1 keep eight digits and are finite.
fn exponents<T: Scalar>() -> impl Iterator<Item = i32> {
    match T::NAME {
        "f32" => (-142..=126).step_by(4),
        _ => (-1067..=1022).step_by(29),
    }
}

fn epsilon_joins<T: Scalar>() {
    for (dim, eps) in [(1, 0.03125), (3, 0.4375), (9, 1.3125)] {
        let data = few_digits::<T>(60, dim);
        for metric in Metric::ALL {
            let points = Points::new(&data, dim).unwrap();
            let wider = oracle::eps_join(&points, &points, 1.5 * eps, metric, true).unwrap();
            for (step, exponent) in exponents::<T>().enumerate() {
                let data = scaled(&data, exponent);
                let points = Points::new(&data, dim).unwrap();
                let name = format!("{} {dim}-D times 2^{exponent}", T::NAME);
                let eps = times(T::from_f64(eps), exponent);
                // The smallest numbers have few digits, and distances are rounded to them.
                let row = |row: &Vec<(u32, T)>| -> Vec<(u32, T)> {
                    let row = row.iter().map(|(j, d)| (*j, times(*d, exponent)));
                    row.filter(|(_, d)| *d <= eps).collect()
                };
                let expected = Answer::from_rows(&wider.iter().map(row).collect::<Vec<_>>());
                let pairs = expected.pairs();
                assert!((2..3000).contains(&pairs), "{name} {metric}: {pairs} pairs");
                let case = Case::within(&name, points, eps.to_f64()).metric(metric);
                for &strategy in Strategy::EPSILON {
                    let plan = case.plan(&|join| join.strategy(strategy)).expect(&name);
                    let context = format!("{case}, {strategy}");
                    check_sorted_csr(&plan, &expected, &context);
                    check_count(&plan, &expected, &context);
                }
                if step % 4 == dim % 4 {
                    let context = format!("{case}, on a GPU");
                    let plan = case.clone().on(&gpu::gpu()).plan(&|join| join).expect(&context);
                    check_sorted_csr(&plan, &expected, &context);
                    check_half_blocks(&plan, true, &case.half(&expected), &context);
                }
            }
        }
    }
}

#[test]
fn epsilon_joins_at_every_scale_f32() {
    epsilon_joins::<f32>();
}

#[test]
fn epsilon_joins_at_every_scale_f64() {
    epsilon_joins::<f64>();
}

fn nearest<T: Scalar>() {
    for dim in [1, 3, 9] {
        let data = few_digits::<T>(60, dim);
        let points = Points::new(&data, dim).unwrap();
        for metric in Metric::ALL {
            let truth = oracle::knn_join(&points, &points, 7, metric, true).unwrap();
            for exponent in exponents::<T>() {
                let data = scaled(&data, exponent);
                let points = Points::new(&data, dim).unwrap();
                let expected = truth.iter().flatten();
                let expected: Vec<(u32, u64)> =
                    expected.map(|(j, d)| (*j, bits(&times(*d, exponent)))).collect();
                for strategy in Strategy::KNN {
                    let context = format!("{} {dim}-D {metric} 2^{exponent} {strategy}", T::NAME);
                    let join = KnnJoin::new(7).metric(metric).strategy(*strategy);
                    let plan = match join.plan_self(&points) {
                        // Within a factor of 2·dim of the largest number.
                        Err(Error::TooFar { .. })
                            if T::from_f64(2f64.powi(exponent + 6)) > T::MAX =>
                        {
                            continue;
                        }
                        plan => plan.expect(&context),
                    };
                    let mut found = Neighbors::new();
                    plan.run(&mut found).expect(&context);
                    let found = found.ids().iter().copied().zip(found.distances().iter().map(bits));
                    assert_eq!(found.collect::<Vec<_>>(), expected, "{context}");
                }
            }
        }
    }
}

#[test]
fn nearest_at_every_scale_f32() {
    nearest::<f32>();
}

#[test]
fn nearest_at_every_scale_f64() {
    nearest::<f64>();
}

/// A pair is found within the distance that is reported for it, and not within the next smaller
/// number: by every strategy, on the CPU and on a GPU, and as a largest distance.
fn reported<T: Scalar>() {
    let mut random = StdRng::seed_from_u64(12);
    for dim in [1, 2, 3, 5, 17] {
        let data: Vec<T> =
            (0..40 * dim).map(|_| T::from_f64(random.random_range(-3.0..3.0))).collect();
        let points = Points::new(&data, dim).unwrap();
        let (left, right) = (points.rows(0..20), points.rows(20..40));
        for metric in Metric::ALL {
            let mut nearest = Neighbors::new();
            KnnJoin::new(1).metric(metric).plan(&left, &right).unwrap().run(&mut nearest).unwrap();
            for (i, distance) in nearest.distances().iter().enumerate() {
                let query = left.rows(i..i + 1);
                let below = T::largest(|d| d < *distance);
                for (eps, pairs) in [(*distance, 1), (below, 0)] {
                    let context = format!("{} {dim}-D {metric} {eps:?}", T::NAME);
                    let eps = eps.to_f64();
                    let case = Case::between(&context, query, right, eps).metric(metric);
                    for &strategy in Strategy::EPSILON {
                        let mut sink = CsrSink::new().distances(true);
                        let plan = case.plan(&|join| join.strategy(strategy)).unwrap();
                        plan.run(&mut sink).unwrap();
                        assert_eq!(sink.csr().ids().len(), pairs, "{context} {strategy}");
                        let found = sink.csr().distances().iter().all(|d| d == distance);
                        assert!(found, "{context} {strategy}");
                    }
                    if i % 5 == 0 {
                        let mut count = Count::new();
                        case.on(&gpu::gpu()).plan(&|join| join).unwrap().run(&mut count).unwrap();
                        assert_eq!(count.pairs(), pairs as u64, "{context} on a GPU");
                    }
                    for strategy in Strategy::KNN {
                        let join = KnnJoin::new(1).metric(metric).max_distance(eps).pad(true);
                        let plan = join.strategy(*strategy).plan(&query, &right).unwrap();
                        let stats = plan.run(&mut Neighbors::new()).unwrap();
                        assert_eq!(stats.pairs, pairs as u64, "{context} {strategy}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_reported_distance_finds_its_pair_f32() {
    reported::<f32>();
}

#[test]
fn a_reported_distance_finds_its_pair_f64() {
    reported::<f64>();
}

#[test]
fn the_diagonal_of_a_cube_is_within_its_length() {
    let points = Points::from_rows(&[[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]).unwrap();
    assert_eq!(nearjoin::count_pairs(&points, 1.7320508075688772), Ok(2));
    assert_eq!(nearjoin::count_pairs(&points, 1.732050807568877), Ok(0));
}

/// At ε = 0 points match that are equal in every coordinate, however near others are.
fn zero<T: Scalar>(differences: &[f64]) {
    for &difference in differences {
        let number = |k: usize| T::from_f64(k as f64 * difference);
        let data: Vec<T> = (0..40).flat_map(|i| [number(i % 20), number(i % 4)]).collect();
        let points = Points::new(&data, 2).unwrap();
        for metric in Metric::ALL {
            let name = format!("{difference:e} apart");
            let case = Case::within(&name, points, 0.0).metric(metric);
            assert_eq!(case.check().pairs(), 40, "{case}");
            assert_eq!(case.on(&gpu::gpu()).check().pairs(), 40);
        }
    }
}

#[test]
fn zero_means_equal() {
    zero::<f32>(&[1.4e-45, 1e-38, 1e-23, 1e-10, 1.0, 1e30]);
    zero::<f64>(&[5e-324, 1e-308, 1e-200, 1e-163, 1.0, 1e200]);
}

/// Probabilities as a network gives them: down to the smallest numbers, beside others of about 1.
/// No power of two brings all squares into range, and nothing is lost by it.
#[test]
fn coordinates_of_every_magnitude() {
    let mut random = StdRng::seed_from_u64(5);
    let mut probability = || 10f64.powf(-random.random_range(0.0..45.0)) as f32;
    let data: Vec<f32> = (0..200 * 8).map(|_| probability()).collect();
    let wide: Vec<f64> = data.iter().map(|x| f64::from(*x)).collect();
    let (points, wide) = (Points::new(&data, 8).unwrap(), Points::new(&wide, 8).unwrap());
    let mut found = Neighbors::new();
    KnnJoin::new(3).plan_self(&points).unwrap().run(&mut found).unwrap();
    let truth = oracle::knn_join(&wide, &wide, 3, Metric::L2, true).unwrap();
    for (row, truth) in truth.iter().enumerate() {
        for ((id, distance), (other, right)) in
            found.ids_of(row).iter().zip(found.distances_of(row)).zip(truth)
        {
            let off = (f64::from(*distance) / right - 1.0).abs();
            assert!(off < 1e-6, "row {row}: {id} at {distance:e}, {other} at {right:e}");
        }
    }
    let case = Case::within("probabilities", points, 0.01);
    assert!(case.check().pairs() > 10);
    case.on(&gpu::gpu()).check();
}

#[test]
fn what_cannot_be_told_apart_is_refused() {
    let refused =
        |points: &Points<'_, f32>| KnnJoin::new(1).plan_self(points).map(drop).unwrap_err();
    let near = [1.0f32, 0.0, 0.0, 0.0, 1.0, 1e-45];
    let near = Points::new(&near, 2).unwrap();
    let error = refused(&near);
    assert!(matches!(error, Error::TooNear { left: 0 | 2, right: 0 | 2, .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "rows 0 and 2 differ by so little beside the greatest coordinate, 1e0, that f32 cannot \
         tell how far they are apart: use f64, or give the points in other units"
    );
    // Within a larger ε they match, and L1 and L∞ tell them apart.
    assert_eq!(nearjoin::count_pairs(&near, 1e-9), Ok(2));
    assert_eq!(nearjoin::count_pairs(&near, 1e-44), Ok(2));
    let nearer = [1e30f32, 0.0, 0.0, 0.0, 1e30, 1e-45];
    let nearer = Points::new(&nearer, 2).unwrap();
    let error = EpsJoin::new(1e-44).plan_self(&nearer).map(drop).unwrap_err();
    assert!(matches!(error, Error::TooNear { .. }), "{error}");
    assert!(KnnJoin::new(1).metric(Metric::L1).plan_self(&near).is_ok());

    let far = [-3e38f32, 3e38, 0.0];
    let far = Points::new(&far, 1).unwrap();
    assert!(matches!(refused(&far), Error::TooFar { .. }));
    assert_eq!(nearjoin::count_pairs(&far, 3e38), Ok(4));
    let join = KnnJoin::new(1).max_distance(3.1e38);
    let mut found = Neighbors::new();
    join.plan_self(&far).unwrap().run(&mut found).unwrap();
    assert_eq!((found.ids(), found.distances()), (&[2, 2, 0][..], &[3e38f32; 3][..]));

    let lost = [3e38f32, 0.0, 1.5, 1e-45];
    let lost = Points::new(&lost, 2).unwrap();
    assert!(matches!(refused(&lost), Error::Magnitudes { side: None, row: 1, column: 1, .. }));
    assert_eq!(nearjoin::count_pairs(&lost, 1.0), Ok(0));
}
