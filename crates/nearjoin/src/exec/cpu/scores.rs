//! The nearest by products: many queries against panels of all candidates.
//!
//! ```text
//! for each unit of queries:
//!     for each run of panels, few at first:
//!         products of all queries and all candidates; scores of those that may be near
//!         what the k-th best score leaves possible stays on the shortlist of its query
//!     each shortlist is measured, and the k best of it are the answer
//! ```
//!
//! Why no neighbour is missed: the k-th neighbour is no farther away than the k-th best score, with its error,
//! says, and whoever is as near as that has a score above the limit ([`Scored`]). Where scores
//! cannot tell many candidates apart, the shortlist is measured before it grows, and the k-th best of
//! those sets the limit.

use core::ops::ControlFlow;

use super::kernel::{Found, NearestKernels, PANEL, ProductKernels, SimdLevel};
use super::product::{Grouped, kernels_for};
use super::select::Best;
use crate::error::Result;
use crate::exec::Work;
use crate::filter::product::Scored;
use crate::index::{Panels, Run, panels};
use crate::plan::{CANDIDATE_BYTES, Multiplying, most_measured};
use crate::points::Points;
use crate::scalar::Scalar;

/// What a limit loses to `λ` is about `2λ` and five times `(ρ/τ)²/λ` of itself: the least at so many times `ρ/τ`.
const MIX: f64 = 1.6;
/// Panels between two looks at what was found, at the most.
const PANELS: usize = 16;

/// The right points, and how their products are read.
pub(crate) struct Scores {
    panels: Panels,
    scored: Scored,
}

impl Scores {
    /// `extents` are those of all points of both sides.
    pub(crate) fn new<T: Scalar>(
        right: Points<'_, T>,
        extents: &[(f64, f64)],
        simd: SimdLevel,
        multiplying: &Multiplying,
    ) -> Result<Self> {
        Scores::by(right, extents, kernels_for(simd, multiplying), multiplying.reach)
    }

    /// By these products, for neighbours that are about so far, or as far as points are from the centre.
    fn by<T: Scalar>(
        right: Points<'_, T>,
        extents: &[(f64, f64)],
        kernels: ProductKernels,
        reach: Option<f64>,
    ) -> Result<Self> {
        let (dim, frame) = (right.dimension(), panels::frame(right, extents));
        let scored = Scored::new::<T>(dim, &frame, kernels.summing(dim));
        let usual = panels::usual(right, &frame, kernels.digits);
        let reach = reach.map_or(usual.norm.sqrt(), |reach| reach * frame.scale);
        let scored = scored.for_typical(MIX * usual.error, reach);
        let panels = Panels::new(right, frame, kernels, |point| scored.less(point))?;
        Ok(Scores { panels, scored })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.panels.bytes()
    }
}

/// Scores that a shortlist may have beyond what it had when its limit was set.
fn waiting(k: usize) -> usize {
    (k / 2).max(16)
}

/// Scores that it may have when its limit is set. Where more are left, they are measured.
fn most(k: usize) -> usize {
    k.saturating_mul(4).saturating_add(128)
}

/// The two sides, and what is asked.
pub(crate) struct Search<'a, T> {
    pub(crate) scores: &'a Scores,
    pub(crate) kernels: &'a NearestKernels<T>,
    pub(crate) left: Points<'a, T>,
    pub(crate) right: Points<'a, T>,
    pub(crate) cap: T,
    /// Whether no point is its own neighbour.
    pub(crate) excluded: bool,
}

/// A candidate and its scores: the one by which it is not missed, and the one that says how near it is.
#[derive(Clone, Copy)]
struct Candidate {
    most: f32,
    least: f32,
    id: u32,
}

const _: () = assert!(size_of::<Candidate>() as u64 == CANDIDATE_BYTES);

/// The candidates of a query that may be among its nearest.
struct Shortlist<T: Scalar> {
    candidates: Vec<Candidate>,
    /// So many scores are looked through.
    full: usize,
    /// Those that were measured, where there were too many: the k best.
    measured: Vec<T::Near>,
}

/// What a thread keeps from unit to unit.
pub(crate) struct Scorer<T: Scalar> {
    k: usize,
    queries: Grouped,
    shortlists: Vec<Shortlist<T>>,
    found: Found,
    ids: Vec<u32>,
    sums: Vec<T>,
}

impl<T: Scalar> Scorer<T> {
    pub(crate) fn new(k: usize) -> Self {
        Scorer {
            k,
            queries: Grouped::default(),
            shortlists: Vec::new(),
            found: Found::default(),
            ids: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// Makes the shortlists of all queries of a unit. `report` hears of the work after every run of
    /// panels, and may break it off: nothing is complete then.
    pub(crate) fn unit(
        &mut self,
        search: &Search<'_, T>,
        unit: &Run,
        mut report: impl FnMut(Work) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Scores { panels, scored } = search.scores;
        let cap = scored.reach(search.cap);
        self.queries.pack(panels, search.left, unit, |query| [scored.limit(query, cap); 2]);
        let full = self.k + waiting(self.k);
        self.shortlists.iter_mut().for_each(|list| list.clear(full));
        let lists = unit.len().max(self.shortlists.len());
        self.shortlists.resize_with(lists, || Shortlist::new(full));
        let all = search.right.len().div_ceil(PANEL);
        let (mut start, mut step) = (0, 1);
        while start < all {
            let some = start..all.min(start + step);
            let candidates = search.right.len().min(some.end * PANEL) - some.start * PANEL;
            let job = self.queries.job(panels, some.clone());
            self.found.clear();
            panels.kernels().scored(&job, &mut self.found);
            self.sort_out(search, unit, &some);
            (start, step) = (some.end, PANELS.min(2 * step));
            report(Work { tests: (candidates * unit.len()) as u64, ..Work::default() })?;
        }
        ControlFlow::Continue(())
    }

    /// Puts what some panels had on the shortlists, and sets their limits.
    fn sort_out(&mut self, search: &Search<'_, T>, unit: &Run, some: &core::ops::Range<usize>) {
        let (_, less) = search.scores.panels.some(some.clone());
        let first = (some.start * PANEL) as u32;
        for (near, products) in self.found.near.iter().zip(&self.found.products) {
            let list = &mut self.shortlists[near.query as usize].candidates;
            let own = if search.excluded { unit.start + near.query } else { u32::MAX };
            for (at, lane) in near.candidates(near.open) {
                let (id, product) = (first + at, products[lane]);
                if id != own {
                    let [most, least] = less.map(|less| product - less[at as usize]);
                    list.push(Candidate { most, least, id });
                }
            }
        }
        for query in 0..unit.len() {
            if self.shortlists[query].candidates.len() >= self.shortlists[query].full {
                self.limit(search, unit, query);
            }
        }
    }

    /// Drops what is not among the k nearest of a query, and sets the limit of what may be.
    fn limit(&mut self, search: &Search<'_, T>, unit: &Run, query: usize) {
        let scored = &search.scores.scored;
        let (k, rounded) = (self.k, self.queries.rounded[query]);
        let limits = &mut self.queries.beside[0];
        let Shortlist { candidates, full, measured } = &mut self.shortlists[query];
        if measured.is_empty() && candidates.len() >= k {
            let nearer = |a: &Candidate, b: &Candidate| b.least.total_cmp(&a.least);
            let kth = candidates.select_nth_unstable_by(k - 1, nearer).1.least;
            let limit = scored.limit(rounded, scored.reach_of(rounded, kth));
            candidates.retain(|candidate| candidate.most >= limit);
            limits[query] = limits[query].max(limit);
            *full = candidates.len() + waiting(k);
        }
        if !measured.is_empty() || candidates.len() > most(k) {
            self.measure(search, unit, query);
            let measured = &self.shortlists[query].measured;
            if let Some(&last) = measured.iter().max().filter(|_| measured.len() == k) {
                let (kth, _) = T::from_near(last);
                let limit = match kth == T::ZERO {
                    // Candidates come in the order of their rows: of equal points no later one is nearer.
                    true => f32::INFINITY,
                    false => scored.limit(rounded, scored.reach(kth)),
                };
                let limits = &mut self.queries.beside[0];
                limits[query] = limits[query].max(limit);
            }
            self.shortlists[query].full = waiting(k);
        }
    }

    /// Measures the shortlist of a query, some at a time, and keeps the k best.
    fn measure(&mut self, search: &Search<'_, T>, unit: &Run, query: usize) {
        let Shortlist { candidates, measured, .. } = &mut self.shortlists[query];
        let point = search.left.row(unit.start as usize + query);
        for some in candidates.chunks(most_measured(self.k)) {
            self.ids.clear();
            self.ids.extend(some.iter().map(|candidate| candidate.id));
            search.kernels.distances(search.right, point, &self.ids, &mut self.sums);
            let within = self.sums.iter().zip(&self.ids).filter(|(sum, _)| **sum <= search.cap);
            measured.extend(within.map(|(sum, &id)| sum.near(id)));
            if measured.len() > self.k {
                measured.select_nth_unstable(self.k - 1);
                measured.truncate(self.k);
            }
        }
        candidates.clear();
    }

    /// The best of a block of the unit, of so many queries from `first` on.
    pub(crate) fn finish(
        &mut self,
        search: &Search<'_, T>,
        unit: &Run,
        block: &Run,
        best: &mut Best<T>,
    ) {
        best.clear(block.len(), search.cap);
        for place in 0..block.len() {
            let query = (block.start - unit.start) as usize + place;
            self.limit(search, unit, query);
            self.measure(search, unit, query);
            for &near in &self.shortlists[query].measured {
                best.offer(place, near);
            }
        }
    }
}

impl<T: Scalar> Shortlist<T> {
    fn new(full: usize) -> Self {
        Shortlist { candidates: Vec::new(), full, measured: Vec::new() }
    }

    fn clear(&mut self, full: usize) {
        self.candidates.clear();
        self.measured.clear();
        self.full = full;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::cpu::kernel::all_kernels;
    use crate::{Metric, PointsBuf};

    /// Candidates on the shortlists of some queries when they are measured, on average.
    fn listed(data: &[f32], dim: usize, kernels: ProductKernels, reach: Option<f64>) -> usize {
        let k = 10;
        let points = PointsBuf::from_vec(data.to_vec(), dim).unwrap();
        let points = points.as_points();
        let extents = crate::summary::extents(points);
        let scores = Scores::by(points, &extents, kernels, reach).unwrap();
        let kernels = NearestKernels::new(SimdLevel::Scalar, Metric::L2, dim);
        let (left, right, cap) = (points, points, f32::INFINITY);
        let search =
            Search { scores: &scores, kernels: &kernels, left, right, cap, excluded: true };
        let (mut scorer, unit) = (Scorer::new(k), 0..64);
        assert!(scorer.unit(&search, &unit, |_| ControlFlow::Continue(())).is_continue());
        for query in 0..unit.len() {
            let asked = points.row(query);
            let sum = |row: usize| -> f32 {
                points.row(row).iter().zip(asked).map(|(x, y)| (x - y) * (x - y)).sum()
            };
            let mut all: Vec<usize> = (0..points.len()).filter(|row| *row != query).collect();
            all.sort_by(|a, b| sum(*a).total_cmp(&sum(*b)));
            scorer.limit(&search, &unit, query);
            let Shortlist { candidates, measured, .. } = &scorer.shortlists[query];
            assert!(measured.is_empty(), "scores tell candidates apart");
            for nearest in &all[..k - 1] {
                assert!(candidates.iter().any(|candidate| candidate.id as usize == *nearest));
            }
        }
        let all: usize =
            scorer.shortlists[..unit.len()].iter().map(|list| list.candidates.len()).sum();
        all / unit.len()
    }

    /// Answers are right whatever scores say; but then every candidate is measured.
    #[test]
    fn scores_leave_few_to_be_measured() {
        let (n, dim) = (2000, 40);
        let mut state = 7u64;
        let mut random = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        let spread: Vec<f32> = (0..n * dim).map(|_| random()).collect();
        let mut outlier = spread.clone();
        outlier[70 * dim..][..dim].fill(1e6);
        let copies: Vec<f32> =
            (0..n * dim).map(|at| spread[at / dim / 5 * dim + at % dim]).collect();
        for (kind, data) in [("spread", &spread), ("outlier", &outlier), ("copies", &copies)] {
            for kernels in all_kernels() {
                let listed = listed(data, dim, kernels, Some(3.0));
                assert!((10..20).contains(&listed), "{kind}, {:?}: {listed}", kernels.multiplier);
            }
        }
    }
}
