//! Which instruction set to use, and the glue that compiles the kernels for each.

use core::fmt;
use core::str::FromStr;

use super::product::ProductKernels;
use crate::error::{Error, Result};
use crate::plan::Multiplier;

/// An instruction set that the CPU engine can use.
///
/// The best available one is chosen at run time. The environment variable
/// `NEARJOIN_SIMD` (`scalar`, `avx2`, `avx512` or `amx`) overrides the choice, for tests; the
/// answer never depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SimdLevel {
    /// Plain loops, on every processor.
    Scalar,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// The same, and AMX with bf16 for products, where the system lets the process have it.
    #[cfg(target_arch = "x86_64")]
    Amx,
}

impl SimdLevel {
    /// Every level that this build knows, from the plainest on.
    pub const ALL: &'static [SimdLevel] = &[
        SimdLevel::Scalar,
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2,
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512,
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Amx,
    ];

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        match self {
            SimdLevel::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => super::avx2::is_available(),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => super::avx512::is_available(),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Amx => super::amx::is_available(),
        }
    }

    /// The best level of this processor, or what `NEARJOIN_SIMD` says.
    ///
    /// # Errors
    /// If the variable names no level, or one that this processor does not have.
    pub fn detect() -> Result<Self> {
        match std::env::var("NEARJOIN_SIMD") {
            Ok(name) if !name.is_empty() && name != "auto" => {
                let level: SimdLevel = name.parse()?;
                if !level.is_available() {
                    return Err(Error::Device {
                        device: "cpu",
                        reason: format!(
                            "NEARJOIN_SIMD asks for {level}, which this processor does not have"
                        ),
                    });
                }
                Ok(level)
            }
            Err(std::env::VarError::NotUnicode(name)) => {
                name.to_string_lossy().parse::<SimdLevel>()
            }
            _ => Ok(Self::best()),
        }
    }

    /// What multiplies where fewer bits pay.
    pub(crate) fn multiplier(self) -> Multiplier {
        ProductKernels::of_pairs(self).map_or(Multiplier::Numbers, |pairs| pairs.multiplier)
    }

    fn best() -> Self {
        let available = Self::ALL.iter().rev().find(|level| level.is_available());
        *available.unwrap_or(&SimdLevel::Scalar)
    }
}

impl fmt::Display for SimdLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SimdLevel::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Amx => "amx",
        })
    }
}

impl FromStr for SimdLevel {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = Self::ALL.iter().find(|level| level.to_string() == name);
        known.copied().ok_or_else(|| Error::UnknownName {
            what: "SIMD level",
            name: name.into(),
            known: "scalar, avx2, avx512, amx, auto",
        })
    }
}

/// Instantiates every kernel for one instruction set: `#[target_feature]`, then the
/// vector types of `f32` and `f64`, the vectors and queries of a tile of products, and the
/// dimensions that have kernels of their own.
macro_rules! level {
    (
        $(#[$features:meta])? $f32:ty, $f64:ty; $exact_f32:ty, $exact_f64:ty;
        tile $vectors:literal x $queries:literal;
        $($own:literal)*
    ) => {
        mod instances {
            use super::*;
            use crate::exec::cpu::kernel::{generic, lockstep, nearest, product, ranks, sort};
            use crate::exec::cpu::kernel::vector::{L1, L2, Linf, Norm};
            use crate::exec::cpu::kernel::{
                BoxJob, Found, GatherJob, Hits, Job, Kernels, Lanes, Kept, LeafJob, Lockstep,
                NearestKernels, NodeJob, Open, PAD, Piece, ProductJob, ProductKernels, Ranks,
                SiftJob, Sifted, Standing,
            };
            use crate::filter::product::Digits;
            use crate::plan::Multiplier;
            use crate::metric::Metric;

            // SAFETY of every function here: the caller must have made sure that the
            // processor has the features of the attribute, and pass checked jobs.

            $(#[$features])?
            unsafe fn count_f32<N: Norm, const D: usize, const EXACT: bool>(
                job: &Job<'_, f32>, counts: &mut [u64], open: &mut Vec<Open>,
            ) {
                // SAFETY: as above.
                unsafe { generic::count::<$f32, N, D, EXACT>(job, counts, open) }
            }
            $(#[$features])?
            unsafe fn count_f64<N: Norm, const D: usize, const EXACT: bool>(
                job: &Job<'_, f64>, counts: &mut [u64], open: &mut Vec<Open>,
            ) {
                // SAFETY: as above.
                unsafe { generic::count::<$f64, N, D, EXACT>(job, counts, open) }
            }
            $(#[$features])?
            unsafe fn rows_f32<N: Norm, const D: usize, const EXACT: bool>(
                job: &Job<'_, f32>, own: &[u32], rows: &mut [Vec<u32>], open: &mut Vec<Open>,
            ) {
                // SAFETY: as above.
                unsafe { generic::rows::<$f32, N, D, EXACT>(job, own, rows, open) }
            }
            $(#[$features])?
            unsafe fn rows_f64<N: Norm, const D: usize, const EXACT: bool>(
                job: &Job<'_, f64>, own: &[u32], rows: &mut [Vec<u32>], open: &mut Vec<Open>,
            ) {
                // SAFETY: as above.
                unsafe { generic::rows::<$f64, N, D, EXACT>(job, own, rows, open) }
            }
            $(#[$features])?
            unsafe fn sift_f32(job: &SiftJob<'_, f32>, to: &mut Sifted<'_, f32>) -> usize {
                // SAFETY: as above.
                unsafe { generic::sift::<$f32>(job, to) }
            }
            $(#[$features])?
            unsafe fn sift_f64(job: &SiftJob<'_, f64>, to: &mut Sifted<'_, f64>) -> usize {
                // SAFETY: as above.
                unsafe { generic::sift::<$f64>(job, to) }
            }
            $(#[$features])?
            unsafe fn boxes_f32<N: Norm>(
                job: &BoxJob<'_, f32>, skip_above: f32, take_below: f32,
            ) -> (u32, u32) {
                // SAFETY: as above.
                unsafe { generic::boxes::<$f32, N>(job, skip_above, take_below) }
            }
            $(#[$features])?
            unsafe fn boxes_f64<N: Norm>(
                job: &BoxJob<'_, f64>, skip_above: f64, take_below: f64,
            ) -> (u32, u32) {
                // SAFETY: as above.
                unsafe { generic::boxes::<$f64, N>(job, skip_above, take_below) }
            }
            $(#[$features])?
            unsafe fn gaps_f32<N: Norm>(
                job: &BoxJob<'_, f32>, limit: f32, gaps: &mut [f32; PAD],
            ) -> u32 {
                // SAFETY: as above.
                unsafe { nearest::gaps::<$exact_f32, N>(job, limit, gaps) }
            }
            $(#[$features])?
            unsafe fn gaps_f64<N: Norm>(
                job: &BoxJob<'_, f64>, limit: f64, gaps: &mut [f64; PAD],
            ) -> u32 {
                // SAFETY: as above.
                unsafe { nearest::gaps::<$exact_f64, N>(job, limit, gaps) }
            }
            $(#[$features])?
            unsafe fn leaf_f32<N: Norm, const D: usize>(
                job: &LeafJob<'_, f32>, bounds: &[f32; PAD], hits: &mut Hits<f32>,
            ) {
                // SAFETY: as above.
                unsafe { nearest::leaf::<$exact_f32, N, D>(job, bounds, hits) }
            }
            $(#[$features])?
            unsafe fn active_f32<N: Norm>(job: &LeafJob<'_, f32>, bounds: &[f32; PAD]) -> u32 {
                // SAFETY: as above.
                unsafe { nearest::active::<$exact_f32, N>(job, bounds) }
            }
            $(#[$features])?
            unsafe fn near_f32<N: Norm, const D: usize>(
                job: &NodeJob<'_, f32>, queries: u32, bounds: &[f32; PAD], leaves: &mut [u32; PAD],
            ) {
                // SAFETY: as above.
                unsafe { ranks::near::<$exact_f32, N, D>(job, queries, bounds, leaves) }
            }
            $(#[$features])?
            unsafe fn near_f64<N: Norm, const D: usize>(
                job: &NodeJob<'_, f64>, queries: u32, bounds: &[f64; PAD], leaves: &mut [u32; PAD],
            ) {
                // SAFETY: as above.
                unsafe { ranks::near::<$exact_f64, N, D>(job, queries, bounds, leaves) }
            }
            $(#[$features])?
            unsafe fn rank_f32<N: Norm, const D: usize>(
                job: &NodeJob<'_, f32>, query: usize, leaves: u32, ranks: &mut Ranks<f32>,
            ) -> u32 {
                // SAFETY: as above.
                unsafe { ranks::rank::<$exact_f32, N, D>(job, query, leaves, ranks) }
            }
            $(#[$features])?
            unsafe fn merge_f32<const ROOM: usize>(ranks: &mut Ranks<f32>, lane: usize) {
                // SAFETY: as above.
                unsafe { ranks::merge::<$exact_f32, ROOM>(ranks, lane) }
            }
            $(#[$features])?
            unsafe fn leaf_f64<N: Norm, const D: usize>(
                job: &LeafJob<'_, f64>, bounds: &[f64; PAD], hits: &mut Hits<f64>,
            ) {
                // SAFETY: as above.
                unsafe { nearest::leaf::<$exact_f64, N, D>(job, bounds, hits) }
            }
            $(#[$features])?
            unsafe fn active_f64<N: Norm>(job: &LeafJob<'_, f64>, bounds: &[f64; PAD]) -> u32 {
                // SAFETY: as above.
                unsafe { nearest::active::<$exact_f64, N>(job, bounds) }
            }
            $(#[$features])?
            unsafe fn rank_f64<N: Norm, const D: usize>(
                job: &NodeJob<'_, f64>, query: usize, leaves: u32, ranks: &mut Ranks<f64>,
            ) -> u32 {
                // SAFETY: as above.
                unsafe { ranks::rank::<$exact_f64, N, D>(job, query, leaves, ranks) }
            }
            $(#[$features])?
            unsafe fn merge_f64<const ROOM: usize>(ranks: &mut Ranks<f64>, lane: usize) {
                // SAFETY: as above.
                unsafe { ranks::merge::<$exact_f64, ROOM>(ranks, lane) }
            }
            $(#[$features])?
            unsafe fn keep_f32<N: Norm, const D: usize>(
                job: &LeafJob<'_, f32>, ids: &[u32], own: &[u32; PAD], kept: &mut Kept<'_, f32>,
            ) {
                // SAFETY: as above.
                unsafe { nearest::keep::<$exact_f32, N, D>(job, ids, own, kept) }
            }
            $(#[$features])?
            unsafe fn keep_f64<N: Norm, const D: usize>(
                job: &LeafJob<'_, f64>, ids: &[u32], own: &[u32; PAD], kept: &mut Kept<'_, f64>,
            ) {
                // SAFETY: as above.
                unsafe { nearest::keep::<$exact_f64, N, D>(job, ids, own, kept) }
            }
            $(#[$features])?
            unsafe fn sieve<N: Norm>(
                candidates: &[f32], queries: &[f32], limits: &[f32; PAD], hits: &mut [u32; PAD],
            ) -> bool {
                // SAFETY: as above.
                unsafe { nearest::sieve::<$exact_f32, N>(candidates, queries, limits, hits) }
            }
            $(#[$features])?
            unsafe fn relate<T: crate::scalar::Scalar>(
                from: &[T], middle: &[f64], scale: f64, to: &mut [f32],
            ) {
                lockstep::relate(from, middle, scale, to)
            }
            $(#[$features])?
            unsafe fn measure<N: Norm, const D: usize>(
                steps: &mut Lockstep, len: usize, tag: u32, own: bool,
            ) {
                // SAFETY: as above.
                unsafe { lockstep::measure::<$f32, N, D>(steps, len, tag, own) }
            }
            $(#[$features])?
            unsafe fn absorb<const ROOM: usize>(steps: &mut Lockstep) {
                // SAFETY: as above.
                unsafe { lockstep::absorb::<$f32, ROOM>(steps) }
            }
            $(#[$features])?
            unsafe fn decide<T: crate::scalar::Scalar>(
                metric: Metric, coords: &[T], queries: &[T], q: usize, positions: &[u32],
                out: &mut [T],
            ) {
                lockstep::decide(metric, coords, queries, q, positions, out)
            }
            $(#[$features])?
            unsafe fn localize(job: &mut GatherJob<'_, f64, f32>) -> f32 {
                // SAFETY: as above.
                unsafe { generic::gather::<_, _, true>(job, |x, origin| (x - origin) as f32) }
            }
            $(#[$features])?
            unsafe fn gather<T: crate::scalar::Scalar>(job: &mut GatherJob<'_, T, T>) {
                // SAFETY: as above.
                unsafe { generic::gather::<_, _, false>(job, |x, _| x) };
            }
            $(#[$features])?
            unsafe fn labels(from: &[u32], pieces: &[Piece], to: &mut [u32]) {
                // SAFETY: as above.
                unsafe { generic::gather_labels(from, pieces, to) }
            }
            $(#[$features])?
            unsafe fn sort_rows(rows: &mut [Vec<u32>], columns: &mut Vec<[u32; sort::LANES]>) {
                // SAFETY: as above.
                unsafe { sort::sort_rows::<$f32>(rows, columns) }
            }
            $(#[$features])?
            unsafe fn sort_u64(columns: &mut [[u64; sort::LANES]]) {
                sort::sort_lanes(columns);
            }
            $(#[$features])?
            unsafe fn multiply<const PRODUCTS: bool>(job: &ProductJob<'_>, found: &mut Found) {
                // SAFETY: as above.
                unsafe {
                    product::product::<$f32, product::Single, $vectors, $queries, PRODUCTS>(job, found)
                }
            }
            $(#[$features])?
            unsafe fn distances<T: crate::scalar::Scalar>(
                metric: Metric, data: &[T], query: &[T], ids: &[u32], out: &mut Vec<T>,
            ) {
                generic::distances(metric, data, query, ids, out)
            }

            macro_rules! by_dimension {
                ($dim:expr, $count:ident, $rows:ident, $sift:ident, $norm:ty, $exact:expr) => {
                    match $dim {
                        $($own => by_dimension!(@ $count, $rows, $sift, $norm, $own, $exact),)*
                        _ => by_dimension!(@ $count, $rows, $sift, $norm, 0, $exact),
                    }
                };
                (@ $count:ident, $rows:ident, $sift:ident, $norm:ty, $d:literal, $exact:expr) => {
                    Lanes {
                        count: $count::<$norm, $d, { $exact }>,
                        rows: $rows::<$norm, $d, { $exact }>,
                        sift: $sift,
                    }
                };
            }

            macro_rules! nearest_by_dimension {
                (
                    @@ $metric:expr, $norm:ty, $d:literal,
                    (
                        $gaps:ident, $leaf:ident, $keep:ident, $active:ident, $near:ident, $rank:ident,
                        $merge:ident, $lanes:expr
                    )
                ) => {
                    NearestKernels {
                        gaps: $gaps::<$norm>,
                        leaf: $leaf::<$norm, $d>,
                        keep: $keep::<$norm, $d>,
                        sieve: sieve::<$norm>,
                        active: $active::<$norm>,
                        near: $near::<$norm, $d>,
                        rank: $rank::<$norm, $d>,
                        merge: [$merge::<8>, $merge::<16>, $merge::<32>, $merge::<64>],
                        relate,
                        // Only those of few dimensions are called.
                        measure: measure::<$norm, { if $d > 3 { 0 } else { $d } }>,
                        absorb: [absorb::<8>, absorb::<16>, absorb::<32>, absorb::<64>],
                        decide,
                        distances,
                        metric: $metric,
                        lanes: $lanes,
                    }
                };
                (@ $metric:expr, $dim:expr, $norm:ty, $kernels:tt) => {
                    match $dim {
                        $($own => nearest_by_dimension!(@@ $metric, $norm, $own, $kernels),)*
                        _ => nearest_by_dimension!(@@ $metric, $norm, 0, $kernels),
                    }
                };
                ($metric:expr, $dim:expr, $kernels:tt) => {
                    match $metric {
                        Metric::L2 => nearest_by_dimension!(@ $metric, $dim, L2, $kernels),
                        Metric::L1 => nearest_by_dimension!(@ $metric, $dim, L1, $kernels),
                        Metric::Linf => nearest_by_dimension!(@ $metric, $dim, Linf, $kernels),
                    }
                };
            }

            pub(in crate::exec::cpu::kernel) fn products() -> ProductKernels {
                let (near, scored) = (multiply::<false> as _, multiply::<true> as _);
                let (digits, multiplier) = (Digits::F32, Multiplier::Numbers);
                ProductKernels { digits, multiplier, groups: Standing::GROUP, near, scored }
            }

            pub(in crate::exec::cpu::kernel) fn nearest_f32(
                metric: Metric, dim: usize,
            ) -> NearestKernels<f32> {
                nearest_by_dimension!(
                    metric, dim,
                    (
                        gaps_f32, leaf_f32, keep_f32, active_f32, near_f32, rank_f32, merge_f32,
                        <$exact_f32 as Vector>::LANES
                    )
                )
            }

            pub(in crate::exec::cpu::kernel) fn nearest_f64(
                metric: Metric, dim: usize,
            ) -> NearestKernels<f64> {
                nearest_by_dimension!(
                    metric, dim,
                    (
                        gaps_f64, leaf_f64, keep_f64, active_f64, near_f64, rank_f64, merge_f64,
                        <$exact_f64 as Vector>::LANES
                    )
                )
            }

            pub(in crate::exec::cpu::kernel) fn kernels_f32(
                metric: Metric, dim: usize,
            ) -> Kernels<f32> {
                const FUSED: bool = <$f32 as Vector>::FUSED;
                let (exact, boxes) = match metric {
                    Metric::L2 => (by_dimension!(dim, count_f32, rows_f32, sift_f32, L2, FUSED), boxes_f32::<L2> as _),
                    Metric::L1 => (by_dimension!(dim, count_f32, rows_f32, sift_f32, L1, FUSED), boxes_f32::<L1> as _),
                    Metric::Linf => (by_dimension!(dim, count_f32, rows_f32, sift_f32, Linf, FUSED), boxes_f32::<Linf> as _),
                };
                let (gather, gather_f32, distances) = (gather::<f32>, gather::<f32>, distances::<f32>);
                Kernels { fused: FUSED, exact, filter: None, metric, boxes, localize, gather, gather_f32, labels, sort_rows, sort_u64, distances }
            }

            pub(in crate::exec::cpu::kernel) fn kernels_f64(
                metric: Metric, dim: usize,
            ) -> Kernels<f64> {
                const FUSED: bool = <$f64 as Vector>::FUSED;
                let (exact, filter, boxes) = match metric {
                    Metric::L2 => (
                        by_dimension!(dim, count_f64, rows_f64, sift_f64, L2, FUSED),
                        by_dimension!(dim, count_f32, rows_f32, sift_f32, L2, false),
                        boxes_f64::<L2> as _,
                    ),
                    Metric::L1 => (
                        by_dimension!(dim, count_f64, rows_f64, sift_f64, L1, FUSED),
                        by_dimension!(dim, count_f32, rows_f32, sift_f32, L1, false),
                        boxes_f64::<L1> as _,
                    ),
                    Metric::Linf => (
                        by_dimension!(dim, count_f64, rows_f64, sift_f64, Linf, FUSED),
                        by_dimension!(dim, count_f32, rows_f32, sift_f32, Linf, false),
                        boxes_f64::<Linf> as _,
                    ),
                };
                let (filter, gather_f32) = (Some(filter), gather::<f32>);
                let (gather, distances) = (gather::<f64>, distances::<f64>);
                Kernels { fused: FUSED, exact, filter, metric, boxes, localize, gather, gather_f32, labels, sort_rows, sort_u64, distances }
            }
        }
        pub(super) use instances::{kernels_f32, kernels_f64, nearest_f32, nearest_f64, products};
    };
}
pub(crate) use level;
