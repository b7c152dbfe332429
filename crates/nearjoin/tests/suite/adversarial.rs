//! Larger inputs with a structure on which an index could degenerate, panic or lose a
//! pair. What is right is known by a formula, or by a count of another kind.

use nearjoin::sink::{Count, CsrSink, Degrees};
use nearjoin::{DuplicateRemoval, EpsJoin, Error, Metric, Points, Scalar, SimdLevel, Strategy};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The strategies that do not look at all pairs.
const INDEXED: [Strategy; 4] = [Strategy::Directory, Strategy::Grid, Strategy::Ego, Strategy::Auto];

fn count<T: Scalar>(join: &EpsJoin, points: &Points<'_, T>) -> u64 {
    let mut count = Count::new();
    join.plan_self(points).unwrap().run(&mut count).unwrap();
    count.pairs()
}

/// Checks the count of each of `strategies`, for the grid with UNICOMP too.
fn assert_count<T: Scalar>(
    strategies: &[Strategy],
    points: &Points<'_, T>,
    eps: f64,
    metric: Metric,
    expected: u64,
) {
    for &strategy in strategies {
        let removals: &[DuplicateRemoval] = match strategy {
            Strategy::Grid => &[DuplicateRemoval::LidUnicomp, DuplicateRemoval::Unicomp],
            _ => &[DuplicateRemoval::LidUnicomp],
        };
        for &removal in removals {
            let join = EpsJoin::new(eps).metric(metric).strategy(strategy);
            let found = count(&join.duplicate_removal(removal), points);
            let what = format!("{strategy} {metric} {} {removal}, ε = {eps:e}", T::NAME);
            assert_eq!(found, expected, "{what}");
        }
    }
}

/// Checks the degrees of every indexed strategy against a formula.
fn assert_degrees<T: Scalar>(
    points: &Points<'_, T>,
    eps: f64,
    metric: Metric,
    degree: impl Fn(usize) -> u64,
) {
    for strategy in INDEXED {
        let join = EpsJoin::new(eps).metric(metric).strategy(strategy);
        let mut degrees = Degrees::new();
        join.plan_self(points).unwrap().run(&mut degrees).unwrap();
        let wrong = (0..points.len()).find(|&row| degrees.as_slice()[row] != degree(row));
        if let Some(row) = wrong {
            let (found, right) = (degrees.as_slice()[row], degree(row));
            panic!("{strategy} {metric} {}: row {row} has {found}, not {right}", T::NAME);
        }
    }
}

fn equal_points<T: Scalar>(n: u64, strategies: &[Strategy], eps: f64) {
    let data = vec![T::from_f64(0.3); n as usize * 2];
    let points = Points::new(&data, 2).unwrap();
    for metric in [Metric::L2, Metric::L1] {
        assert_count(strategies, &points, eps, metric, n * (n - 1));
    }
}

#[test]
fn equal_points_zero_epsilon() {
    // At ε = 0 no block is taken whole, and plain loops decide pair by pair.
    let plain = SimdLevel::detect() == Ok(SimdLevel::Scalar);
    let (some, many) = if plain { (3000, 10_000) } else { (30_000, 200_000) };
    equal_points::<f32>(some, &INDEXED, 0.0);
    equal_points::<f64>(some, &INDEXED, 0.0);
    equal_points::<f32>(many, &[Strategy::Auto], 0.0);
}

#[test]
fn equal_points_wide_epsilon() {
    equal_points::<f32>(200_000, &INDEXED, 1.0);
    equal_points::<f64>(200_000, &INDEXED, 1.0);
}

/// Steps of (1, 2, 2), of length 3: all exact, and all on one diagonal.
fn line<T: Scalar>() {
    const N: u64 = 100_000;
    let steps = [1.0, 2.0, 2.0];
    // 7919 has no factor in common with N: every step comes once, in no order.
    let along = (0..N).map(|i| (i * 7919 % N) as f64);
    let data: Vec<T> = along.flat_map(|i| steps.map(|step| T::from_f64(i * step))).collect();
    let points = Points::new(&data, 3).unwrap();
    let both_ways = |k: u64| 2 * (k * N - k * (k + 1) / 2);
    for k in [1, 10, 300] {
        assert_count(&INDEXED, &points, 3.0 * k as f64, Metric::L2, both_ways(k));
        assert_count(&INDEXED, &points, 5.0 * k as f64, Metric::L1, both_ways(k));
        assert_count(&INDEXED, &points, 2.0 * k as f64, Metric::Linf, both_ways(k));
    }
    // Just below one step nothing matches.
    assert_count(&INDEXED, &points, 2.999, Metric::L2, 0);
}

#[test]
fn points_on_a_line_f32() {
    line::<f32>();
}

#[test]
fn points_on_a_line_f64() {
    line::<f64>();
}

/// A cube of `side`^`D` points spaced by exactly ε, shifted so that cells and points do
/// not line up at 0.
fn lattice<T: Scalar, const D: usize>(side: usize) {
    const EPS: f64 = 0.375;
    let n = side.pow(D as u32);
    let digits = |row: usize| -> [usize; D] {
        // Neighbouring rows are not neighbours in space.
        let mut rest = row * 7919 % n;
        std::array::from_fn(|_| {
            let digit = rest % side;
            rest /= side;
            digit
        })
    };
    let place = |digit: usize| T::from_f64((digit as f64 - 17.0) * EPS);
    let data: Vec<T> = (0..n).flat_map(|row| digits(row).map(place)).collect();
    let points = Points::new(&data, D).unwrap();
    // How many of the digits below, at and above a digit are within the cube.
    let near = |digit: usize| 1 + u64::from(digit > 0) + u64::from(digit + 1 < side);
    let cross = |row: usize| digits(row).iter().map(|&digit| near(digit) - 1).sum::<u64>();
    let cube = |row: usize| digits(row).iter().map(|&digit| near(digit)).product::<u64>() - 1;
    assert_degrees(&points, EPS, Metric::L2, cross);
    assert_degrees(&points, EPS, Metric::L1, cross);
    assert_degrees(&points, EPS, Metric::Linf, cube);

    let (side, n) = (side as u64, n as u64);
    let crosses = 2 * D as u64 * (side - 1) * n / side;
    let cubes = (3 * side - 2).pow(D as u32) - n;
    assert_count(&INDEXED, &points, EPS, Metric::L2, crosses);
    assert_count(&INDEXED, &points, EPS, Metric::L1, crosses);
    assert_count(&INDEXED, &points, EPS, Metric::Linf, cubes);
    // Less than one spacing, by the least that there is.
    let below = T::from_f64(EPS).to_f64() * (1.0 - 4.0 * T::UNIT_ROUNDOFF);
    assert_count(&INDEXED, &points, below, Metric::L2, 0);
}

#[test]
fn lattice_in_the_plane_f32() {
    lattice::<f32, 2>(300);
}

#[test]
fn lattice_in_the_plane_f64() {
    lattice::<f64, 2>(300);
}

#[test]
fn lattice_in_space_f32() {
    lattice::<f32, 3>(37);
}

#[test]
fn lattice_in_space_f64() {
    lattice::<f64, 3>(37);
}

/// All lattice points of a disc, tiny, in a space whose corners are 1e12 away.
fn dense_ball<T: Scalar>() {
    const RADIUS: i64 = 126;
    const UNIT: f64 = 1.0 / 1024.0;
    let inside = |x: i64, y: i64| x * x + y * y <= RADIUS * RADIUS;
    let square = (-RADIUS..=RADIUS).flat_map(|x| (-RADIUS..=RADIUS).map(move |y| (x, y)));
    let disc: Vec<(i64, i64)> = square.filter(|&(x, y)| inside(x, y)).collect();
    let mut data: Vec<T> = Vec::new();
    for (at, &(x, y)) in disc.iter().enumerate() {
        data.extend([x as f64 * UNIT, y as f64 * UNIT].map(T::from_f64));
        if at % 10_000 == 5000 {
            let corner = [1e12, -1e12].map(T::from_f64);
            data.extend([corner[at / 10_000 % 2], corner[at / 20_000 % 2]]);
        }
    }
    let points = Points::new(&data, 2).unwrap();
    let n = disc.len() as u64;
    assert!(n > 49_000 && points.len() as u64 == n + 5);
    // Four corners and one of them twice: equal points match at any ε.
    let outliers = 2;

    // For each offset within ε, the points that have a partner there.
    let partners = |radius: i64, near: &dyn Fn(i64, i64) -> bool| -> u64 {
        let offsets = (-radius..=radius).flat_map(|x| (-radius..=radius).map(move |y| (x, y)));
        let offsets = offsets.filter(|&(x, y)| (x, y) != (0, 0) && near(x, y));
        offsets
            .map(|(dx, dy)| disc.iter().filter(|(x, y)| inside(x + dx, y + dy)).count() as u64)
            .sum()
    };
    for radius in [1, 5, 13] {
        let eps = radius as f64 * UNIT;
        let l2 = partners(radius, &|x, y| x * x + y * y <= radius * radius);
        assert_count(&INDEXED, &points, eps, Metric::L2, l2 + outliers);
        let l1 = partners(radius, &|x, y| x.abs() + y.abs() <= radius);
        assert_count(&INDEXED, &points, eps, Metric::L1, l1 + outliers);
        let linf = partners(radius, &|_, _| true);
        assert_count(&INDEXED, &points, eps, Metric::Linf, linf + outliers);
    }
    // The whole disc is within ε; the corners are not, and then they are as well.
    assert_count(&INDEXED, &points, 1.0, Metric::L2, n * (n - 1) + outliers);
    assert_count(&INDEXED, &points, 1e13, Metric::L2, (n + 5) * (n + 4));
}

#[test]
fn dense_ball_in_empty_space_f32() {
    dense_ball::<f32>();
}

#[test]
fn dense_ball_in_empty_space_f64() {
    dense_ball::<f64>();
}

/// Pairs within ε of sorted numbers, by two pointers. `within` must be monotone.
fn pairs_on_a_line(sorted: &[f64], within: impl Fn(f64) -> bool) -> u64 {
    let mut first = 0;
    let mut pairs = 0;
    for (at, x) in sorted.iter().enumerate() {
        while !within(x - sorted[first]) {
            first += 1;
        }
        pairs += at - first;
    }
    2 * pairs as u64
}

/// Around 1e9 numbers are 1.2e-7 apart: ε = 1e-3 is a few thousand of them, and
/// differences are exact.
#[test]
fn coordinates_around_a_billion() {
    const EPS: f64 = 1e-3;
    let mut rng = StdRng::seed_from_u64(5);
    let groups: Vec<Vec<f64>> = (0..4)
        .map(|_| {
            let mut group: Vec<f64> =
                (0..15_000).map(|_| 1e9 + rng.random_range(0.0..2.0)).collect();
            group.sort_by(f64::total_cmp);
            group
        })
        .collect();
    let l2 = |d: f64| d * d <= EPS * EPS;
    let pairs = |within: &dyn Fn(f64) -> bool| -> u64 {
        groups.iter().map(|group| pairs_on_a_line(group, within)).sum()
    };
    let (l2, plain) = (pairs(&l2), pairs(&|d| d <= EPS));
    assert!(l2 > 100_000);

    // The groups lie in parallel lines, farther than ε from each other.
    let row = |group: usize, x: f64| [-1e9 - group as f64 / 64.0, x];
    let rows = groups.iter().enumerate();
    let mut rows: Vec<[f64; 2]> =
        rows.flat_map(|(group, xs)| xs.iter().map(move |&x| row(group, x))).collect();
    rand::seq::SliceRandom::shuffle(&mut rows[..], &mut rng);
    let points = Points::from_rows(&rows).unwrap();
    assert_count(Strategy::EPSILON, &points, EPS, Metric::L2, l2);
    assert_count(Strategy::EPSILON, &points, EPS, Metric::L1, plain);
    assert_count(Strategy::EPSILON, &points, EPS, Metric::Linf, plain);

    let line: Vec<f64> = groups.concat();
    let mut sorted = line.clone();
    sorted.sort_by(f64::total_cmp);
    let expected = pairs_on_a_line(&sorted, |d| d * d <= EPS * EPS);
    assert_count(Strategy::EPSILON, &Points::new(&line, 1).unwrap(), EPS, Metric::L2, expected);
}

/// A lattice whose spacing is the smallest number of the type.
fn denormals<T: Scalar>() {
    const SIDE: u64 = 70;
    let place = |digit: u64| T::from_f64(digit as f64 * T::SMALLEST);
    let n = SIDE * SIDE;
    let data: Vec<T> = (0..n).flat_map(|i| [place(i % SIDE), place(i / SIDE)]).collect();
    let points = Points::new(&data, 2).unwrap();
    // Ordered pairs of digits at most k apart, on one axis.
    let axis = |k: u64| SIDE + 2 * (k * SIDE - k * (k + 1) / 2);
    for k in [0, 1, 3] {
        let eps = k as f64 * T::SMALLEST;
        assert_count(Strategy::EPSILON, &points, eps, Metric::Linf, axis(k).pow(2) - n);
    }
    let crosses = 4 * SIDE * (SIDE - 1);
    assert_count(Strategy::EPSILON, &points, T::SMALLEST, Metric::L1, crosses);
    // √2 of the smallest number is reported as one of it.
    assert_count(Strategy::EPSILON, &points, 0.0, Metric::L2, 0);
    assert_count(Strategy::EPSILON, &points, T::SMALLEST, Metric::L2, axis(1).pow(2) - n);

    let line: Vec<T> = (0..n).map(place).collect();
    let line = Points::new(&line, 1).unwrap();
    for k in [0, 1, 3, 100] {
        let expected = 2 * (k * n - k * (k + 1) / 2);
        let eps = k as f64 * T::SMALLEST;
        assert_count(Strategy::EPSILON, &line, eps, Metric::L1, expected);
    }
}

#[test]
fn denormals_f32() {
    denormals::<f32>();
}

#[test]
fn denormals_f64() {
    denormals::<f64>();
}

/// Coordinates whose differences overflow, or whose ratio to ε does.
#[test]
fn the_ends_of_the_number_line() {
    let ends = [f64::MIN, -1e300, -1.0, 0.0, 5e-324, 1.0, 1e300, f64::MAX];
    // Every combination of two, twice.
    let once = ends.iter().flat_map(|x| ends.iter().map(move |y| [*x, *y]));
    let rows: Vec<[f64; 2]> = once.clone().chain(once).collect();
    let points = Points::from_rows(&rows).unwrap();
    // Ordered pairs of points, from those of coordinates on one axis.
    let pairs = |per_axis: u64| per_axis * per_axis * 4 - 128;
    for metric in Metric::ALL {
        assert_count(Strategy::EPSILON, &points, 0.0, metric, pairs(8));
        // No power of two brings the squares of 1e300 and of 1e-200 into range.
        let tiny = EpsJoin::new(1e-200).metric(metric);
        match metric {
            Metric::L2 => assert!(matches!(tiny.plan_self(&points), Err(Error::TooNear { .. }))),
            _ => assert_count(Strategy::EPSILON, &points, 1e-200, metric, pairs(6 + 4)),
        }
        // -1, 0, 5e-324 and 1 are within 2 of each other on one axis, and L∞ wants no more.
        if metric == Metric::Linf {
            assert_count(Strategy::EPSILON, &points, 2.0, metric, pairs(4 + 16));
        }
        let narrow: Vec<f32> = rows.iter().flatten().map(|x| x.clamp(-3e38, 3e38) as f32).collect();
        let narrow = Points::new(&narrow, 2).unwrap();
        // As f32, 0 and 5e-324 are one value, and so are the two ends on each side.
        assert_count(Strategy::EPSILON, &narrow, 0.0, metric, pairs(4 + 1 + 4 + 1 + 4));
    }
}

/// Checks the rows of the recursive join against those of brute force, in order and not.
fn assert_rows<T: Scalar>(points: &Points<'_, T>, eps: f64) {
    let rows = |strategy, sorted| {
        let mut sink = CsrSink::new().sorted(sorted).distances(true);
        EpsJoin::new(eps).strategy(strategy).plan_self(points).unwrap().run(&mut sink).unwrap();
        sink.into_csr()
    };
    let expected = rows(Strategy::Brute, true);
    assert!(rows(Strategy::Ego, true) == expected, "{}, ε = {eps:e}, sorted", T::NAME);
    let found = rows(Strategy::Ego, false);
    assert_eq!(found.offsets(), expected.offsets());
    for row in 0..points.len() {
        let mut ids = found.ids_of(row).to_vec();
        ids.sort_unstable();
        assert_eq!(ids, expected.ids_of(row), "{}, ε = {eps:e}, row {row}", T::NAME);
    }
}

/// Candidates of a block that fill several tiles, and those that are too many to be laid out at once.
fn crowds<T: Scalar>() {
    let random = &mut StdRng::seed_from_u64(5);
    let mut even = |n: usize| -> Vec<T> {
        (0..n).map(|_| T::from_f64(random.random_range(0.0..3.0))).collect()
    };
    let plane = even(2 * 4000);
    assert_rows(&Points::new(&plane, 2).unwrap(), 1.0);
    let wide = even(300 * 1500);
    assert_rows(&Points::new(&wide, 300).unwrap(), 21.0);
    // No lanes of `f32` serve here.
    let equal = vec![T::from_f64(0.3); 2 * 2500];
    assert_rows(&Points::new(&equal, 2).unwrap(), 0.0);
}

#[test]
fn rows_of_crowds_f32() {
    crowds::<f32>();
}

#[test]
fn rows_of_crowds_f64() {
    crowds::<f64>();
}
