use super::*;
use crate::sink::CsrSink;
use crate::{Device, EpsJoin, KnnJoin, Metric, PointsBuf, knn_join_between, oracle};

/// Numbers from 0 to 1.
fn random(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    }
}

/// Points in heaps of different size and density, some everywhere, and some copies.
fn clustered<T: Scalar>(n: usize, dim: usize, seed: u64) -> PointsBuf<T> {
    let mut next = random(11);
    let centres: Vec<f64> = (0..7 * dim).map(|_| 100.0 * next()).collect();
    let mut next = random(seed);
    let mut data: Vec<T> = Vec::new();
    for row in 0..n {
        let heap = (7.0 * next() * next()) as usize;
        for j in 0..dim {
            let near = (next() + next() + next() - 1.5) * 0.3 * (1 + 3 * heap) as f64;
            let x = if row % 10 == 0 { 100.0 * next() } else { centres[heap * dim + j] + near };
            data.push(if row % 50 == 49 { data[data.len() - dim] } else { T::from_f64(x) });
        }
    }
    PointsBuf::from_vec(data, dim).unwrap()
}

fn sample<'a, T: Scalar>(points: &'a PointsBuf<T>) -> Sample<'a, T> {
    Sample { points: points.as_points(), of: points.as_points().len() as u64 }
}

/// The rows whose home is a part, in ascending order, for each part.
fn homes<T: Scalar>(partition: &Partition, points: Points<'_, T>) -> Vec<Vec<u32>> {
    let mut homes = vec![Vec::new(); partition.parts()];
    for row in 0..points.len() {
        homes[partition.home(points.row(row))].push(row as u32);
    }
    homes
}

/// The rows that reach each part.
fn reached<T: Scalar>(partition: &Partition, points: Points<'_, T>, eps: f64) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new(); partition.parts()];
    for row in 0..points.len() {
        for part in partition.reached(points.row(row), eps) {
            all[part].push(row as u32);
        }
    }
    all
}

fn some<T: Scalar>(points: Points<'_, T>, rows: &[u32]) -> PointsBuf<T> {
    let data = rows.iter().flat_map(|row| points.row(*row as usize)).copied().collect();
    PointsBuf::from_vec(data, points.dimension()).unwrap()
}

/// All pairs part by part, with the bits of their distances.
fn by_parts<T: Scalar>(
    partition: &Partition,
    (left, right): (Points<'_, T>, Points<'_, T>),
    eps: f64,
    metric: Metric,
) -> Vec<(u32, u32, u64)> {
    let mut pairs = Vec::new();
    let parts = homes(partition, left).into_iter().zip(reached(partition, right, eps));
    for (asking, asked) in parts {
        let (a, b) = (some(left, &asking), some(right, &asked));
        let mut csr = CsrSink::new().distances(true);
        let join = EpsJoin::new(eps).metric(metric).device(Device::Cpu).threads(1);
        join.plan(&a.as_points(), &b.as_points()).unwrap().run(&mut csr).unwrap();
        let csr = csr.into_csr();
        for (row, asking) in asking.iter().enumerate() {
            let found = csr.ids_of(row).iter().zip(csr.distances_of(row));
            pairs.extend(found.map(|(id, d)| (*asking, asked[*id as usize], d.to_f64().to_bits())));
        }
    }
    pairs.sort_unstable();
    pairs
}

fn all_pairs<T: Scalar>(
    left: Points<'_, T>,
    right: Points<'_, T>,
    eps: f64,
    metric: Metric,
) -> Vec<(u32, u32, u64)> {
    let mut csr = CsrSink::new().distances(true);
    let join = EpsJoin::new(eps).metric(metric).device(Device::Cpu).threads(1);
    join.plan(&left, &right).unwrap().run(&mut csr).unwrap();
    let csr = csr.into_csr();
    let row = |row: usize| {
        let found = csr.ids_of(row).iter().zip(csr.distances_of(row));
        found.map(move |(id, d)| (row as u32, *id, d.to_f64().to_bits()))
    };
    let mut pairs: Vec<_> = (0..left.len()).flat_map(row).collect();
    pairs.sort_unstable();
    pairs
}

fn check_within<T: Scalar>(dim: usize, metric: Metric) {
    let (left, right) = (clustered::<T>(900, dim, 1), clustered::<T>(700, dim, 2));
    for (eps, parts) in [(0.0, 5), (0.4, 7), (3.0, 16), (30.0, 3), (1e4, 4)] {
        let join = EpsJoin::new(eps).metric(metric);
        for (left, right) in [(&left, &right), (&left, &left)] {
            let other = (!std::ptr::eq(left, right)).then(|| sample(right));
            let partition = join.partition(&sample(left), other.as_ref(), parts).unwrap();
            assert!(partition.parts() > 1 && partition.parts() <= parts);
            let (left, right) = (left.as_points(), right.as_points());
            let expected = all_pairs(left, right, eps, metric);
            let found = by_parts(&partition, (left, right), eps, metric);
            assert!(found == expected, "{dim}-D, {metric}, ε {eps}, {parts} parts");
            assert!(eps < 3.0 || !expected.is_empty());
        }
    }
}

#[test]
fn every_pair_is_found_once() {
    for metric in Metric::ALL {
        check_within::<f64>(2, metric);
        check_within::<f32>(3, metric);
    }
    check_within::<f32>(1, Metric::L2);
    check_within::<f64>(12, Metric::L2);
}

/// Points on a lattice, ε its spacing, and cuts through its points: every neighbour is exactly ε away.
#[test]
fn pairs_at_exactly_epsilon_are_found() {
    for (step, eps) in [(1.0, 1.0), (0.1, 0.1), (1e-30, 1e-30), (1e30, 1e30)] {
        let data: Vec<f32> =
            (0..400).flat_map(|at| [at % 20, at / 20].map(|x| (x as f64 * step) as f32)).collect();
        let points = PointsBuf::from_vec(data, 2).unwrap();
        let partition = EpsJoin::new(eps).partition(&sample(&points), None, 9).unwrap();
        assert_eq!(partition.parts(), 9);
        let points = points.as_points();
        let found = by_parts(&partition, (points, points), eps, Metric::L2);
        let expected = all_pairs(points, points, eps, Metric::L2);
        assert!(expected.len() > 400 && found == expected, "{step:e}");
    }
}

/// In two rounds: what is found at home tells how far to look.
#[test]
fn the_nearest_are_found_in_two_rounds() {
    let (left, right) = (clustered::<f32>(500, 2, 3), clustered::<f32>(800, 2, 4));
    let k = 5;
    let join = KnnJoin::new(k).pad(true);
    let partition = join.partition(&sample(&left), Some(&sample(&right)), 6).unwrap();
    let (left, right) = (left.as_points(), right.as_points());
    let expected = oracle::knn_join(&left, &right, k, Metric::L2, false).unwrap();
    let there = homes(&partition, right);
    let nearest = |row: usize, part: usize| -> Vec<(u32, u32)> {
        let (asking, asked) = (some(left, &[row as u32]), some(right, &there[part]));
        if there[part].is_empty() {
            return Vec::new();
        }
        let k = k.min(there[part].len());
        let found = knn_join_between(&asking.as_points(), &asked.as_points(), k).unwrap();
        let found = found.distances_of(0).iter().zip(found.ids_of(0));
        found.map(|(d, id)| (d.to_bits(), there[part][*id as usize])).collect()
    };
    let mut farther = 0;
    for (row, expected) in expected.iter().enumerate() {
        let home = partition.home(left.row(row));
        let mut found = nearest(row, home);
        let kth =
            found.get(k - 1).map_or(f64::INFINITY, |found| f64::from(f32::from_bits(found.0)));
        for part in partition.reached(left.row(row), kth).filter(|part| *part != home) {
            found.extend(nearest(row, part));
            farther += 1;
        }
        found.sort_unstable();
        found.truncate(k);
        let of_all = expected.iter().map(|(id, distance)| (distance.to_bits(), *id));
        assert_eq!(found, of_all.collect::<Vec<_>>(), "row {row}");
    }
    assert!((1..2 * left.len()).contains(&farther), "{farther}");
}

/// As the work is estimated: points wherever they go, and pairs.
#[test]
fn parts_have_about_equal_work() {
    let points = clustered::<f64>(100_000, 2, 5);
    let points = points.as_points();
    let rows: Vec<u32> = (0..points.len() as u32).step_by(12).collect();
    let some = some(points, &rows);
    let sample = Sample { points: some.as_points(), of: points.len() as u64 };
    for (eps, parts) in [(0.01, 16), (0.1, 16), (0.1, 6), (0.5, 40)] {
        let join = EpsJoin::new(eps).device(Device::Cpu);
        let partition = join.partition(&sample, None, parts).unwrap();
        assert_eq!(partition.parts(), parts);
        let mut degrees = crate::sink::Degrees::new();
        join.plan_self(&points).unwrap().run(&mut degrees).unwrap();
        let (homes, reached) = (homes(&partition, points), reached(&partition, points, eps));
        let work: Vec<f64> = (0..parts)
            .map(|part| {
                let pairs: u64 =
                    homes[part].iter().map(|row| degrees.as_slice()[*row as usize]).sum();
                100.0 * reached[part].len() as f64 + 4.0 * pairs as f64
            })
            .collect();
        let mean = work.iter().sum::<f64>() / parts as f64;
        let most = work.iter().fold(0.0, |a: f64, b| a.max(*b));
        assert!(most < 1.5 * mean, "ε {eps}: {:.2} of {work:.0?}", most / mean);
    }
}

#[test]
fn parts_are_boxes_that_share_out_space() {
    let points = clustered::<f64>(3000, 3, 6);
    let partition = KnnJoin::new(4).partition(&sample(&points), None, 13).unwrap();
    assert_eq!((partition.parts(), partition.dimension()), (13, 3));
    let sides: Vec<_> = (0..13).map(|part| partition.sides(part)).collect();
    let mut next = random(9);
    for _ in 0..2000 {
        let point: Vec<f64> = (0..3).map(|_| 140.0 * next() - 20.0).collect();
        let lies_in = |sides: &Vec<(f64, f64)>| {
            sides.iter().zip(&point).all(|((lo, hi), x)| lo <= x && x < hi)
        };
        let parts: Vec<usize> = (0..13).filter(|part| lies_in(&sides[*part])).collect();
        assert_eq!(parts, [partition.home(&point)]);
        let eps = 30.0 * next();
        let gap = |((lo, hi), x): (&(f64, f64), &f64)| (lo - x).max(x - hi).max(0.0);
        let far = |part: usize| sides[part].iter().zip(&point).map(gap).fold(0.0, f64::max);
        let found: Vec<usize> = partition.reached(&point, eps).collect();
        assert!(found.is_sorted_by(|a, b| a < b));
        for part in 0..13 {
            assert!(found.contains(&part) || far(part) > eps, "{part}");
            assert!(!found.contains(&part) || far(part) < 1.01 * eps + 1e-9, "{part}");
        }
        assert_eq!(partition.reached(&point, f64::NAN).count(), 13);
        assert_eq!(partition.reached(&point, f64::INFINITY).count(), 13);
        assert_eq!(partition.reached(&point, -1.0).collect::<Vec<_>>(), parts);
    }
}

#[test]
fn points_that_coincide_are_not_cut() {
    let cut = |data: &[f64], parts: usize| {
        let points = Points::new(data, 1).unwrap();
        let partition = Partition::balanced(&points, &vec![1.0; data.len()], parts).unwrap();
        let homes = homes(&partition, points);
        homes.iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(cut(&[], 4), [0]);
    assert_eq!(cut(&[5.0], 4), [1]);
    assert_eq!(cut(&[5.0; 100], 4), [100]);
    assert_eq!(cut(&[0.0, -0.0, 0.0, -0.0], 2), [4]);
    assert_eq!(cut(&[1.0, 2.0, 3.0, 4.0], 4), [1, 1, 1, 1]);
    assert_eq!(cut(&[1.0, 2.0, 3.0, 4.0], 1), [4]);
    // What is together gets as many parts as it has work, and they are not made; the others get theirs.
    let mut heavy = vec![7.0; 90];
    heavy.extend((0..10).map(f64::from));
    assert_eq!(cut(&heavy, 2), [7, 93]);
    assert_eq!(cut(&[-f64::MAX, f64::MAX, 0.0, 1.0], 4), [1, 1, 1, 1]);
    let weightless = Points::new(&[1.0, 2.0, 3.0, 4.0], 1).unwrap();
    assert_eq!(
        Partition::balanced(&weightless, &[0.0; 4], 2).unwrap().sides(1),
        [(3.0, f64::INFINITY)]
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let points = Points::new(&[1.0, 2.0, 3.0], 1).unwrap();
    let balanced =
        |weights: &[f64], parts| Partition::balanced(&points, weights, parts).unwrap_err();
    let parts = "parts = 0 is out of range: it must be 1 to 1048576";
    assert_eq!(balanced(&[1.0; 3], 0).to_string(), parts);
    assert!(balanced(&[1.0; 3], MAX_PARTS + 1).to_string().contains("parts = 1048577"));
    let weights = "the buffer for weights has room for 2 elements and 3 are needed";
    assert_eq!(balanced(&[1.0; 2], 2).to_string(), weights);
    for weight in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(balanced(&[1.0, weight, 1.0], 2).to_string().starts_with("a weight = "));
    }
    let sample = Sample { points, of: 3 };
    assert!(EpsJoin::new(-1.0).partition(&sample, None, 2).is_err());
    assert!(KnnJoin::new(0).partition(&sample, None, 2).is_err());
    let flat = Sample { points: Points::new(&[1.0, 2.0], 2).unwrap(), of: 1 };
    assert!(KnnJoin::new(1).partition(&sample, Some(&flat), 2).is_err());
}

#[test]
fn bytes_are_read_as_they_were_written_or_refused() {
    let points = clustered::<f32>(2000, 4, 7);
    let partition = KnnJoin::new(1).partition(&sample(&points), None, 11).unwrap();
    let bytes = partition.to_bytes();
    assert_eq!(bytes.len(), HEADER + 10 * CUT);
    assert_eq!(Partition::from_bytes(&bytes), Ok(partition.clone()));
    let told = |bytes: &[u8]| Partition::from_bytes(bytes).unwrap_err().to_string();
    let unreadable = "these bytes are no partition that can be read: ";
    for len in 0..bytes.len() {
        assert!(told(&bytes[..len]).starts_with(unreadable), "{len}");
    }
    assert!(told(&[&bytes[..], &[0]].concat()).contains("153 bytes, and 11 parts take 152"));
    let mut other = bytes.clone();
    other[4] = 2;
    assert_eq!(told(&other), format!("{unreadable}they are of version 2, and this is version 1"));
    let mut read = 0;
    for bit in 0..8 * bytes.len() {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        // Cuts may be elsewhere: then these are other boxes, but boxes.
        let Ok(other) = Partition::from_bytes(&flipped) else { continue };
        read += 1;
        for row in 0..50 {
            let point = points.as_points().row(row);
            if other.dimension() == point.len() {
                let home = other.home(point);
                assert!(home < other.parts() && other.reached(point, 0.0).any(|at| at == home));
            }
        }
    }
    assert!(read > 0 && read < 8 * bytes.len());
}
