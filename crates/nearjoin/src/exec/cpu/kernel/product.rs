//! Products of queries and candidates, and which of them say that a pair is near.
//!
//! ```text
//! for each panel of 48 candidates, which stays in the cache:
//!     for each group of queries:
//!         products of all of both, in registers; word after word:
//!             a row of candidates × each query
//!         where one is no less than what is compared with it: note it
//! ```

// Indexed loops over tiles are unrolled into registers.
#![allow(clippy::needless_range_loop)]

use super::SimdLevel;
use super::vector::Vector;
use crate::filter::product::{Digits, Summing};
use crate::plan::Multiplier;

/// Candidates that stand side by side, a row of so many for each word; and queries that do.
pub(crate) const PANEL: usize = 48;
const GROUP: usize = 8;

/// How the words of some points stand: as many of each as are in a run, and then the next run.
///
/// ```text
/// runs of 1: x₀ x₁ x₂ y₀ y₁ y₂ z₀ z₁ z₂ w₀ w₁ w₂   runs of 2: x₀ y₀ x₁ y₁ x₂ y₂ z₀ w₀ z₁ w₁ z₂ w₂
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Points that stand together.
    pub(crate) points: usize,
    /// Words in a run: 2 to this power.
    pub(super) run: u32,
}

impl Standing {
    /// Those of candidates.
    pub(crate) const PANEL: Self = Standing { points: PANEL, run: 0 };
    /// Those of queries, unless kernels want others.
    pub(super) const GROUP: Self = Standing { points: GROUP, run: 0 };

    /// Where a word of a point is.
    #[inline(always)]
    pub(crate) fn place(self, point: usize, word: usize) -> usize {
        let (run, in_run) = (word >> self.run, word & ((1 << self.run) - 1));
        (((run * self.points) + point) << self.run) + in_run
    }
}

/// Queries against candidates, both in whole groups.
pub(crate) struct ProductJob<'a> {
    /// Panels of candidates, in words; and for each candidate what its products are compared with.
    pub(crate) panels: &'a [u32],
    pub(crate) open: &'a [f32],
    pub(crate) sure: &'a [f32],
    /// Groups of queries, and the same for each query. A pair is near where the product is not less
    /// than what both have, and sure where that holds for the second numbers too.
    pub(crate) queries: &'a [u32],
    pub(crate) query_open: &'a [f32],
    pub(crate) query_sure: &'a [f32],
    /// Words of a point, in whole runs.
    pub(crate) words: usize,
}

impl ProductJob<'_> {
    fn check(&self, groups: Standing) {
        let (candidates, queries) = (self.open.len(), self.query_open.len());
        assert!(candidates.is_multiple_of(PANEL) && queries.is_multiple_of(groups.points));
        assert!(self.words.is_multiple_of(1 << groups.run));
        assert!(candidates * self.words <= self.panels.len() && candidates <= self.sure.len());
        assert!(queries * self.words <= self.queries.len() && queries <= self.query_sure.len());
    }
}

/// Candidates that a query is near to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Near {
    pub(crate) query: u32,
    /// The first candidate of the vector.
    pub(crate) base: u32,
    /// The candidates in question, as bits from `base` on; and those of them that are sure.
    pub(crate) open: u32,
    pub(crate) sure: u32,
}

impl Near {
    /// Those of some candidates, given as bits.
    pub(crate) fn candidates(self, mut lanes: u32) -> impl Iterator<Item = (u32, usize)> {
        core::iter::from_fn(move || {
            let lane = lanes.trailing_zeros();
            (lanes != 0).then(|| {
                lanes &= lanes - 1;
                (self.base + lane, lane as usize)
            })
        })
    }
}

/// What is done with a word of a candidate and one of a query.
///
/// # Safety
/// As for [`Vector`].
#[allow(clippy::missing_safety_doc)]
pub(super) trait Multiply<V> {
    /// The product, or that of both numbers in the words, and a sum.
    unsafe fn add(a: V, b: V, sum: V) -> V;
}

/// Words are numbers.
pub(super) struct Single;

impl<V: Vector> Multiply<V> for Single {
    #[inline(always)]
    unsafe fn add(a: V, b: V, sum: V) -> V {
        // SAFETY: the caller promises the instruction set.
        unsafe { a.mul_add(b, sum) }
    }
}

type ProductFn = unsafe fn(&ProductJob<'_>, &mut Found);

/// The loops over products of numbers of one kind.
#[derive(Clone, Copy)]
pub(crate) struct ProductKernels {
    pub(crate) digits: Digits,
    pub(crate) multiplier: Multiplier,
    /// How queries stand.
    pub(crate) groups: Standing,
    pub(super) near: ProductFn,
    pub(super) scored: ProductFn,
}

impl ProductKernels {
    /// Those for `f32`, of a level that [`SimdLevel::is_available`].
    pub(crate) fn new(level: SimdLevel) -> Self {
        assert!(level.is_available());
        match level {
            SimdLevel::Scalar => super::scalar::products(),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => super::avx2::products(),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 | SimdLevel::Amx => super::avx512::products(),
        }
    }

    /// Those for pairs of fewer bits, of a level that is available, where it has them.
    pub(crate) fn of_pairs(level: SimdLevel) -> Option<Self> {
        assert!(level.is_available());
        match level {
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => super::avx512::pairs(),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Amx => Some(super::amx::products()),
            _ => None,
        }
    }

    /// Words of a point, with those that are 0 at the end of its last run.
    pub(crate) fn words(&self, dim: usize) -> usize {
        self.digits.words(dim).next_multiple_of(1 << self.groups.run)
    }

    /// How sums of products err.
    pub(crate) fn summing(&self, dim: usize) -> Summing {
        // What is 0 is added up as well.
        self.digits.summing(self.words(dim) * self.digits.in_word())
    }

    /// Notes which pairs are near by their products, and which of them surely.
    pub(crate) fn near(&self, job: &ProductJob<'_>, found: &mut Found) {
        job.check(self.groups);
        // SAFETY: the job is checked; the level is available.
        unsafe { (self.near)(job, found) }
    }

    /// Notes which pairs are near by their products, and the products.
    pub(crate) fn scored(&self, job: &ProductJob<'_>, found: &mut Found) {
        job.check(self.groups);
        // SAFETY: the job is checked; the level is available.
        unsafe { (self.scored)(job, found) }
    }
}

/// What a job found: for each query in ascending order of the candidates.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) near: Vec<Near>,
    /// Where they are asked for, the products of all candidates of each vector.
    pub(crate) products: Vec<[f32; super::PAD]>,
}

impl Found {
    pub(crate) fn clear(&mut self) {
        self.near.clear();
        self.products.clear();
    }
}

/// Notes what is near: with its products or, where they are not wanted, with what is sure.
///
/// # Safety
/// As for [`Vector`], and the job must be checked.
#[inline(always)]
pub(super) unsafe fn product<
    V: Vector<Lane = f32>,
    M: Multiply<V>,
    const VECTORS: usize,
    const QUERIES: usize,
    const PRODUCTS: bool,
>(
    job: &ProductJob<'_>,
    found: &mut Found,
) {
    const { assert!(PANEL.is_multiple_of(VECTORS * V::LANES) && GROUP.is_multiple_of(QUERIES)) };
    let words = job.words;
    let mut panel = 0;
    while panel < job.open.len() {
        let mut first = 0;
        while first < job.query_open.len() {
            let mut lane = 0;
            while lane < PANEL {
                // SAFETY: the panel and the group are whole, as the job was checked; a tile has
                // vectors within the panel, and queries within the group.
                unsafe {
                    let group = first - first % GROUP;
                    let candidates = job.panels.as_ptr().add(panel * words + lane);
                    let queries = job.queries.as_ptr().add(group * words + first % GROUP);
                    let (candidates, queries) = (candidates.cast(), queries.cast());
                    let sums = tile::<V, M, VECTORS, QUERIES>(candidates, queries, words);
                    let base = panel + lane;
                    if any_near(job, &sums, first, base) {
                        note::<V, VECTORS, QUERIES, PRODUCTS>(job, &sums, first, base, found);
                    }
                }
                lane += VECTORS * V::LANES;
            }
            first += QUERIES;
        }
        panel += PANEL;
    }
}

/// The products of some queries and some vectors of candidates.
#[inline(always)]
unsafe fn tile<
    V: Vector<Lane = f32>,
    M: Multiply<V>,
    const VECTORS: usize,
    const QUERIES: usize,
>(
    mut candidates: *const f32,
    mut queries: *const f32,
    words: usize,
) -> [[V; VECTORS]; QUERIES] {
    // SAFETY: the caller promises a row of candidates and of queries for each word.
    unsafe {
        let mut sums = [[V::splat(0.0); VECTORS]; QUERIES];
        for _ in 0..words {
            let mut row = [V::splat(0.0); VECTORS];
            for v in 0..VECTORS {
                row[v] = V::load(candidates.add(v * V::LANES));
            }
            for q in 0..QUERIES {
                let x = V::splat(*queries.add(q));
                for v in 0..VECTORS {
                    sums[q][v] = M::add(row[v], x, sums[q][v]);
                }
            }
            candidates = candidates.wrapping_add(PANEL);
            queries = queries.wrapping_add(GROUP);
        }
        sums
    }
}

/// Whether any product of some queries and some vectors of candidates is near. Most have none: the
/// largest difference of all queries tells.
#[inline(always)]
pub(super) unsafe fn any_near<V: Vector<Lane = f32>, const VECTORS: usize, const QUERIES: usize>(
    job: &ProductJob<'_>,
    sums: &[[V; VECTORS]; QUERIES],
    first: usize,
    base: usize,
) -> bool {
    // SAFETY: as for the tile.
    unsafe {
        let open = job.query_open.as_ptr().add(first);
        let mut any = 0;
        for v in 0..VECTORS {
            let mut most = sums[0][v].sub(V::splat(*open));
            for q in 1..QUERIES {
                most = sums[q][v].sub(V::splat(*open.add(q))).max(most);
            }
            any |= V::load(job.open.as_ptr().add(base + v * V::LANES)).le(most);
        }
        any != 0
    }
}

/// Notes those that are.
#[inline(always)]
pub(super) unsafe fn note<
    V: Vector<Lane = f32>,
    const VECTORS: usize,
    const QUERIES: usize,
    const PRODUCTS: bool,
>(
    job: &ProductJob<'_>,
    sums: &[[V; VECTORS]; QUERIES],
    first: usize,
    base: usize,
    found: &mut Found,
) {
    // SAFETY: as for the tile.
    unsafe {
        let open = job.query_open.as_ptr().add(first);
        for q in 0..QUERIES {
            for v in 0..VECTORS {
                let at = base + v * V::LANES;
                let rest = sums[q][v].sub(V::splat(*open.add(q)));
                let near = V::load(job.open.as_ptr().add(at)).le(rest);
                if near == 0 {
                    continue;
                }
                let mut sure = 0;
                if PRODUCTS {
                    let mut products = [0.0; super::PAD];
                    sums[q][v].store(products.as_mut_ptr());
                    found.products.push(products);
                } else {
                    let rest = sums[q][v].sub(V::splat(*job.query_sure.as_ptr().add(first + q)));
                    sure = V::load(job.sure.as_ptr().add(at)).le(rest);
                }
                let (query, base) = ((first + q) as u32, at as u32);
                found.near.push(Near { query, base, open: near, sure });
            }
        }
    }
}
