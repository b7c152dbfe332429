//! The bound against inputs that press on it, and against sums that are rounded as badly as can be.

use super::*;
use crate::metric::{Metric, Threshold};
use crate::scale::Scale;

/// Numbers from 0 to 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn signed(&mut self) -> f64 {
        2.0 * self.next() - 1.0
    }
}

/// A point in the frame, rounded, and what is known of it.
fn round<T: Scalar>(frame: &Frame, digits: Digits, point: &[T]) -> (Vec<f32>, Rounded) {
    let places: Vec<f64> = point.iter().enumerate().map(|(j, &x)| frame.place(j, x)).collect();
    let h: Vec<f32> = places.iter().map(|&z| digits.round(z)).collect();
    let norm = h.iter().map(|&h| f64::from(h) * f64::from(h)).sum();
    let lost = places.iter().zip(&h).map(|(z, &h)| (z - f64::from(h)).powi(2)).sum();
    (h, Rounded::new(norm, lost))
}

/// Ways to add up products.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// One after the other, each fused.
    Fused,
    /// In sixteen lanes that are added up in the end, products rounded on their own.
    Lanes,
    /// As far up, or down, as steps that err by so much can carry the sum, and lose as much.
    Up(f64, f64),
    Down(f64, f64),
}

/// Every way, with the worst that numbers of these digits allow.
fn orders(digits: Digits) -> [Order; 4] {
    let (unit, lost) = match digits {
        Digits::F32 => (f32::UNIT_ROUNDOFF, f32::SMALLEST / 2.0),
        Digits::Bf16 => (2.0 * f32::UNIT_ROUNDOFF, f64::from(f32::MIN_POSITIVE)),
    };
    [Order::Fused, Order::Lanes, Order::Up(unit, lost), Order::Down(unit, lost)]
}

/// `h·h'`, less what it is compared with.
fn product(order: Order, a: &[f32], b: &[f32], beside: (f32, f32)) -> f32 {
    let terms = a.iter().zip(b);
    match order {
        Order::Fused => terms.fold(0f32, |sum, (a, b)| a.mul_add(*b, sum)) - (beside.0 + beside.1),
        Order::Lanes => {
            let mut lanes = [0f32; 16];
            terms.enumerate().for_each(|(at, (a, b))| lanes[at % 16] += a * b);
            lanes.iter().sum::<f32>() - (beside.0 + beside.1)
        }
        // The sum begins with what it is compared with, as it may.
        Order::Up(unit, lost) | Order::Down(unit, lost) => {
            let start = -(f64::from(beside.0) + f64::from(beside.1));
            let sign = if matches!(order, Order::Up(..)) { 1.0 } else { -1.0 };
            let push = |x: f64| x + sign * (x.abs() * unit + lost);
            let sum =
                terms.fold(push(start), |sum, (a, b)| push(sum + f64::from(*a) * f64::from(*b)));
            // Its sign is all that counts.
            sum.clamp(-1e30, 1e30) as f32
        }
    }
}

/// What happened to the pairs of some points.
#[derive(Default)]
struct Tally {
    matches: u64,
    sure: u64,
    open: u64,
    all: u64,
}

/// Checks every pair of some points at some distances, and every order of sums.
fn press<T: Scalar>(points: &[Vec<T>], epsilons: &[f64], digits: Digits) -> Tally {
    let dim = points[0].len();
    let extent = |j: usize| {
        let column = points.iter().map(|point| point[j].to_f64());
        column.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), x| (lo.min(x), hi.max(x)))
    };
    let extents: Vec<_> = (0..dim).map(extent).collect();
    let centre: Vec<_> = extents.iter().map(|(lo, hi)| lo / 2.0 + hi / 2.0).collect();
    let frame = Frame::new(&extents, &centre, 0);
    let rounded: Vec<_> = points.iter().map(|point| round(&frame, digits, point)).collect();
    let summing = digits.summing(dim);
    let scored = Scored::new::<T>(dim, &frame, summing);
    let scored = [0.0, 1e-3, 1.0].map(|mix| scored.for_typical(mix, 1.0));
    let mut tally = Tally::default();
    for &eps in epsilons {
        let threshold = Threshold::<T>::new(Metric::L2, eps, Scale::NONE).unwrap();
        let within = Within::new(threshold.bound, dim, &frame, summing);
        for (i, (a, of_a)) in rounded.iter().enumerate() {
            for (j, (b, of_b)) in rounded.iter().enumerate() {
                let sum = threshold.accumulate(points[i].clone(), points[j].clone());
                let matches = sum <= threshold.bound;
                let open = (within.open(*of_a), within.open(*of_b));
                let sure = (within.sure(*of_a), within.sure(*of_b));
                for order in orders(digits) {
                    let may = product(order, a, b, open) >= 0.0;
                    let must = sure.0.is_finite() && product(order, a, b, sure) >= 0.0;
                    let context = format!("{order:?} {i} {j} ε {eps:e}, {sum:?}");
                    assert!(!matches || may, "missed: {context}");
                    assert!(!must || matches, "not a match: {context}");
                    if matches!(order, Order::Fused) {
                        tally.all += 1;
                        tally.matches += u64::from(matches);
                        tally.sure += u64::from(must);
                        tally.open += u64::from(may && !must);
                    }
                }
                for scored in &scored {
                    press_nearest(scored, (a, *of_a), (b, *of_b), sum, digits);
                }
            }
        }
    }
    tally
}

/// A candidate has a score that does not rule out its own distance, and the distance that its score
/// stands for is not less than its own.
fn press_nearest<T: Scalar>(
    scored: &Scored,
    (a, of_a): (&[f32], Rounded),
    (b, of_b): (&[f32], Rounded),
    sum: T,
    digits: Digits,
) {
    let [few, much] = scored.less(of_b);
    let limit = scored.limit(of_a, scored.reach(sum));
    for order in orders(digits) {
        let context = format!("{order:?} {sum:?} {scored:?}");
        assert!(product(order, a, b, (limit, few)) >= 0.0, "{context}");
        // Of those that begin with what they are compared with, no more than the sign is known.
        if matches!(order, Order::Fused | Order::Lanes) {
            assert!(product(order, a, b, (0.0, few)) >= limit, "{context}");
        }
        let score = product(order, a, b, (0.0, much));
        assert!(scored.reach_of(of_a, score) >= scored.reach(sum), "{context}");
    }
}

/// Distances of some of the points' pairs, and a little less and more.
fn distances<T: Scalar>(points: &[Vec<T>]) -> Vec<f64> {
    let arithmetic = Threshold::<T>::none(Metric::L2, Scale::NONE);
    let pairs = [(0, 1), (0, points.len() - 1), (1, 2), (points.len() / 2, 3)];
    let mut all = Vec::new();
    for (i, j) in pairs {
        let sum = arithmetic.accumulate(points[i].clone(), points[j].clone());
        let distance = arithmetic.distance(sum).to_f64();
        all.extend([1.0 - 1e-6, 1.0, 1.0 + 1e-6, 0.1, 3.0].map(|factor| distance * factor));
    }
    all.retain(|eps| *eps > 0.0 && eps.is_finite() && T::from_f64(*eps).is_finite());
    all
}

fn points<T: Scalar>(
    count: usize,
    dim: usize,
    mut x: impl FnMut(usize, usize) -> f64,
) -> Vec<Vec<T>> {
    (0..count).map(|i| (0..dim).map(|j| T::from_f64(x(i, j))).collect()).collect()
}

fn adversaries<T: Scalar>() {
    for dim in [1, 3, 40, 300] {
        let mut random = Random(dim as u64);
        let mut check = |x: &mut dyn FnMut(usize, usize, &mut Random) -> f64, extra: &[f64]| {
            let points = points::<T>(12, dim, |i, j| x(i, j, &mut random));
            let mut epsilons = distances(&points);
            epsilons.extend(extra);
            press(&points, &epsilons, Digits::Bf16);
            press(&points, &epsilons, Digits::F32)
        };
        check(&mut |_, _, random| random.signed(), &[]);
        // Norms far beyond the distances: all digits cancel.
        check(&mut |i, _, random| 1e6 * (i % 2) as f64 + 1e-4 * random.signed(), &[1e-30, 1e-12]);
        check(&mut |_, _, random| 1e9 + 1000.0 * random.signed(), &[]);
        // Equal points, and pairs that differ in the last digit.
        check(&mut |i, j, _| (1.0 + (i / 3) as f64) * (j as f64 + 0.1), &[1e-20, 1e-3]);
        check(&mut |_, _, random| 1.0 + (8.0 * random.next()).floor() * T::UNIT_ROUNDOFF, &[1e-7]);
        // One coordinate that dwarfs all others.
        check(&mut |i, j, random| if j == 0 { 1e7 * (i % 3) as f64 } else { random.next() }, &[]);
        // Numbers whose squares vanish, and subnormal ones.
        let small = 4.0 * T::SMALLEST;
        check(
            &mut |i, _, random| if i < 6 { random.next() } else { small * random.next() },
            &[1e-30],
        );
        let less = T::SMALLEST.sqrt() * 1e-3;
        check(&mut |_, _, random| less * random.signed(), &[less, 1e-3 * less]);
        // Numbers whose squares are near the end of the range.
        let most = T::MAX.to_f64().sqrt() / 100.0;
        check(&mut |_, _, random| most * random.signed(), &[most]);
        // A coordinate that is the same for all, and so large that the scale of the others would take it
        // beyond all numbers.
        let large = T::MAX.to_f64() / 4.0;
        let small = 1e-20 * large.sqrt().recip();
        check(
            &mut |_, j, random| if j == 0 { large } else { small * random.signed() },
            &[small, 0.1 * small],
        );
        check(&mut |i, _, random| 10f64.powi(3 * i as i32 - 18) * random.signed(), &[]);
    }
}

#[test]
fn no_pair_is_missed_or_made_up_f32() {
    adversaries::<f32>();
}

#[test]
fn no_pair_is_missed_or_made_up_f64() {
    adversaries::<f64>();
}

/// Ordinary points are told apart by the product: what is open is little beside what is near.
#[test]
fn hardly_any_pair_is_open() {
    let mut random = Random(1);
    let points = points::<f32>(120, 100, |_, _| random.signed() + 0.3);
    let tally = press(&points, &[7.0, 7.5, 8.0, 8.5], Digits::F32);
    assert!(tally.matches > tally.all / 10 && tally.matches < tally.all / 2);
    assert!(tally.sure > tally.matches * 99 / 100, "{} of {}", tally.sure, tally.matches);
    assert!(tally.open < tally.all / 1000, "{} of {}", tally.open, tally.all);
    let tally = press(&points, &[7.0, 7.5, 8.0, 8.5], Digits::Bf16);
    assert!(tally.open < tally.all / 50, "{} of {}", tally.open, tally.all);
}

/// The error of a product beside the bound: far below it for rounding as it happens, and not far below
/// for the worst that may happen.
#[test]
fn the_bound_is_not_far_from_the_worst() {
    let mut random = Random(3);
    for dim in [64, 768, 4096] {
        let summing = Digits::F32.summing(dim);
        let (mut usual, mut worst) = (0f64, 0f64);
        for _ in 0..50 {
            let [a, b]: [Vec<f32>; 2] =
                core::array::from_fn(|_| (0..dim).map(|_| random.next() as f32).collect());
            let exact: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let norm = |h: &[f32]| h.iter().map(|h| f64::from(*h) * f64::from(*h)).sum::<f64>();
            let bound = summing.relative * (norm(&a) + norm(&b)) / 2.0;
            let error = |order| (f64::from(product(order, &a, &b, (0.0, 0.0))) - exact).abs();
            usual = usual.max(error(Order::Fused) / bound);
            worst = worst.max(error(orders(Digits::F32)[2]) / bound);
        }
        println!("{dim} dimensions: {usual:.4} of the bound, {worst:.3} at the worst");
        assert!(usual < 0.2 && worst > 0.2 && worst < 1.0, "{dim}: {usual} {worst}");
    }
}
