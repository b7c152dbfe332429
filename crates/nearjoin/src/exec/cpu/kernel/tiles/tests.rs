//! Products of every kind against sums of squares, and tiles that are plain arrays in place of a processor's.

use super::super::scalar::Array;
use super::super::{ProductKernels, SimdLevel};
use super::*;
use crate::exec::cpu::product::{Grouped, beside};
use crate::filter::product::{Digits, Within};
use crate::index::panels::{Panels, frame};
use crate::plan::Multiplier;
use crate::points::Points;

/// Eight tiles, which add up as AMX does: even and odd numbers of a row apart, and then both, and what was
/// there.
struct Arrays([[[u32; LINE]; TILE]; 8]);

/// The two numbers of a word.
fn numbers(word: u32) -> [f32; 2] {
    [word << 16, word & 0xffff_0000].map(f32::from_bits)
}

impl Tiles for Arrays {
    unsafe fn new() -> Self {
        // Whatever was there.
        Arrays([[[0x4242_4242; LINE]; TILE]; 8])
    }

    unsafe fn zero<const AT: usize>(&mut self) {
        self.0[AT] = [[0; LINE]; TILE];
    }

    unsafe fn load<const AT: usize>(&mut self, from: *const u32, stride: usize) {
        for (row, to) in self.0[AT].iter_mut().enumerate() {
            // SAFETY: the caller promises a whole tile.
            *to = unsafe { from.add(row * stride).cast::<[u32; LINE]>().read() };
        }
    }

    unsafe fn multiply<const SUMS: usize, const A: usize, const B: usize>(&mut self) {
        for m in 0..TILE {
            for n in 0..LINE {
                let mut both = [0f32; 2];
                for word in 0..LINE {
                    let (a, b) = (numbers(self.0[A][m][word]), numbers(self.0[B][word][n]));
                    both = [0, 1].map(|half| a[half].mul_add(b[half], both[half]));
                }
                let sum = &mut self.0[SUMS][m][n];
                *sum = (f32::from_bits(*sum) + (both[0] + both[1])).to_bits();
            }
        }
    }

    unsafe fn store<const AT: usize>(&mut self, to: *mut f32, stride: usize) {
        for (row, from) in self.0[AT].iter().enumerate() {
            // SAFETY: the caller promises a whole tile.
            unsafe { to.add(row * stride).cast::<[u32; LINE]>().write(*from) };
        }
    }
}

unsafe fn in_arrays<const PRODUCTS: bool>(job: &ProductJob<'_>, found: &mut Found) {
    // SAFETY: the caller has checked the job, and every processor has arrays.
    unsafe { product::<Array<f32, false>, Arrays, 6, PRODUCTS>(job, found) }
}

/// Every kind that is there, and tiles in arrays.
pub(crate) fn all_kernels() -> Vec<ProductKernels> {
    let (near, scored) = (in_arrays::<false> as _, in_arrays::<true> as _);
    let (digits, multiplier) = (Digits::Bf16, Multiplier::Tiles);
    let mut all = vec![ProductKernels { digits, multiplier, groups: GROUPS, near, scored }];
    for &level in SimdLevel::ALL.iter().filter(|level| level.is_available()) {
        all.push(ProductKernels::new(level));
        all.extend(ProductKernels::of_pairs(level));
    }
    all
}

/// Numbers from -1 to 1.
fn random(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// Points of so many dimensions, each of some near to one before it.
fn points(len: usize, dim: usize) -> Vec<f32> {
    let mut data = random(len * dim, (len * dim) as u64);
    for row in (1..len).filter(|row| row % 3 == 0) {
        for j in 0..dim {
            data[row * dim + j] = data[row / 2 * dim + j] + 0.05 * data[row * dim + j];
        }
    }
    data
}

fn squared(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).fold(0f32, |sum, (a, b)| (a - b).mul_add(a - b, sum))
}

/// All pairs of some points with the first of them.
fn check(kernels: ProductKernels, queries: usize, candidates: usize, dim: usize) {
    let context = format!("{:?} {queries} and {candidates} × {dim}", kernels.digits);
    let data = points(candidates.max(queries), dim);
    let left = Points::new(&data[..queries * dim], dim).unwrap();
    let right = Points::new(&data[..candidates * dim], dim).unwrap();
    let frame = frame(right, &vec![(-1.1, 1.1); dim]);
    let bound = 0.1 * dim as f32;
    let within = Within::new(bound, dim, &frame, kernels.summing(dim));
    let panels =
        Panels::new(right, frame.clone(), kernels, |point| beside(&within, point)).unwrap();
    let mut grouped = Grouped::default();
    grouped.pack(&panels, left, &(0..queries as u32), |point| beside(&within, point));
    let job = grouped.job(&panels, 0..candidates.div_ceil(PANEL));

    let mut found = Found::default();
    kernels.near(&job, &mut found);
    let (mut open, mut sure) = (vec![false; queries * candidates], 0);
    let mut last = vec![None; queries];
    for near in &found.near {
        let query = near.query as usize;
        for (candidate, lane) in near.candidates(near.open) {
            assert!(last[query] < Some(candidate), "{context}: in ascending order");
            last[query] = Some(candidate);
            let (at, a, b) = (candidate as usize, left.row(query), right.row(candidate as usize));
            open[query * candidates + at] = true;
            if near.sure >> lane & 1 == 1 {
                assert!(squared(a, b) <= bound, "{context}: {query} and {at} are not near");
                sure += 1;
            }
        }
    }
    let (mut near, mut wrong) = (0, 0);
    for query in 0..queries {
        for at in 0..candidates {
            let is_near = squared(left.row(query), right.row(at)) <= bound;
            let is_open = open[query * candidates + at];
            assert!(is_open || !is_near, "{context}: {query} and {at} are near");
            near += usize::from(is_near);
            wrong += usize::from(is_open && !is_near);
        }
    }
    assert!(near >= candidates.min(queries), "{context}: every point is near to itself");
    assert!(2 * sure >= near && 2 * wrong <= near + 10, "{context}: {sure} {near} {wrong}");

    // Products that are asked for are those of the rounded points, and the same ones are found.
    let noted: Vec<_> = found.near.iter().map(|near| (near.query, near.base, near.open)).collect();
    found.clear();
    kernels.scored(&job, &mut found);
    let scored = found.near.iter().map(|near| (near.query, near.base, near.open));
    assert!(scored.eq(noted), "{context}");
    let place = |point: &[f32], j: usize| f64::from(kernels.digits.round(frame.place(j, point[j])));
    for (near, products) in found.near.iter().zip(&found.products) {
        for (at, lane) in near.candidates(near.open) {
            let (a, b) = (left.row(near.query as usize), right.row(at as usize));
            let exact: f64 = (0..dim).map(|j| place(a, j) * place(b, j)).sum();
            assert!((exact - f64::from(products[lane])).abs() < 1e-4, "{context}: {exact}");
        }
    }
}

#[test]
fn products_of_every_kind_find_what_is_near() {
    for kernels in all_kernels() {
        for dim in [1, 2, 15, 16, 31, 32, 33, 64, 100] {
            for (queries, candidates) in [(1, 1), (16, 48), (17, 49), (37, 150), (100, 47)] {
                check(kernels, queries, candidates, dim);
            }
        }
    }
}

#[test]
fn words_of_a_tile_stand_in_runs() {
    let at = |point, word| GROUPS.place(point, word);
    assert_eq!([at(0, 0), at(0, 15), at(1, 0), at(15, 15)], [0, 15, 16, 255]);
    assert_eq!([at(0, 16), at(3, 17), at(15, 31)], [256, 256 + 49, 511]);
    let at = |point, word| Standing::PANEL.place(point, word);
    assert_eq!([at(0, 0), at(47, 0), at(0, 1), at(5, 2)], [0, 47, 48, 101]);
}
