//! The choices of a join: what both joins have in common, and the names of strategies, devices
//! and ways to remove duplicates.

mod ranges;

pub use ranges::RangesOptions;

use core::fmt;
use core::str::FromStr;

use crate::error::{Error, Result};
use crate::gpu::GpuOptions;
use crate::metric::Metric;
use crate::monitor::Monitor;

/// What both joins have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) metric: Metric,
    pub(crate) device: Device,
    pub(crate) strategy: Strategy,
    pub(crate) include_self: bool,
    pub(crate) threads: Option<usize>,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) gpu: GpuOptions,
    pub(crate) partitioning: Partitioning,
    pub(crate) rescue: bool,
    pub(crate) monitor: Option<Monitor>,
}

impl Options {
    /// Whether they are in range.
    pub(crate) fn check(&self) -> Result<()> {
        // Beyond, starting threads takes longer than any join that they could help.
        if let Some(value) = self.threads.filter(|threads| !(1..=1024).contains(threads)) {
            return Err(Error::Option { name: "threads", value, allowed: "1 to 1024" });
        }
        let wrong = |k: &usize| !matches!(k, 1 | 2 | 4 | 8 | 16 | 32);
        if let Some(value) = self.gpu.threads_per_query.filter(wrong) {
            let allowed = "1, 2, 4, 8, 16 or 32";
            return Err(Error::Option { name: "threads per query", value, allowed });
        }
        Ok(())
    }
}

/// How candidates are found. Every strategy gives the same answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// The cheapest by estimate. The default.
    #[default]
    Auto,
    /// Blocked nested loops: for few points or many dimensions.
    Brute,
    /// The quantile directory: levels of equal parts, one dimension each.
    Directory,
    /// Cells of ε, the non-empty ones only; for KNN-joins cells of about sixteen points, ring
    /// after ring around the query.
    Grid,
    /// ε-grid order and a recursive join over boxes (Super-EGO).
    Ego,
    /// A balanced tree of boxes, for KNN-joins.
    Tree,
    /// A matrix product of all points with all points, whose error is bounded, and what it leaves
    /// open decided one by one: for many dimensions. It has L2; for other metrics, and for ε = 0,
    /// it is as `Brute`.
    Product,
    /// HybridKNN-Join, for KNN-joins with a GPU: it looks for all points within an ε at which k
    /// neighbours are expected, and again within a larger one for queries that have fewer; the CPU
    /// has those in sparse places, with its tree. [`RangesOptions`] say how. It is never chosen by
    /// itself.
    Ranges,
}

impl Strategy {
    /// The strategies of ε-joins.
    pub const EPSILON: &'static [Strategy] = &[
        Strategy::Auto,
        Strategy::Brute,
        Strategy::Directory,
        Strategy::Grid,
        Strategy::Ego,
        Strategy::Product,
    ];
    /// The strategies of KNN-joins.
    pub const KNN: &'static [Strategy] = &[
        Strategy::Auto,
        Strategy::Brute,
        Strategy::Grid,
        Strategy::Tree,
        Strategy::Product,
        Strategy::Ranges,
    ];
    /// Of those of ε-joins, the ones that a GPU has.
    pub const EPSILON_GPU: &'static [Strategy] =
        &[Strategy::Auto, Strategy::Brute, Strategy::Directory, Strategy::Grid, Strategy::Product];
    /// Of those of KNN-joins, the ones that a GPU has.
    pub const KNN_GPU: &'static [Strategy] =
        &[Strategy::Auto, Strategy::Brute, Strategy::Tree, Strategy::Product, Strategy::Ranges];
}

/// Whether each pair of a self-join is tested once or from both sides, for sinks that
/// can profit: counts and pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DuplicateRemoval {
    /// Each query looks at all its candidates.
    None,
    /// LINEARCOORD: each query looks, cell by cell, at those with a higher number. Only the
    /// grid on a GPU has it; elsewhere it is as `LidUnicomp`.
    LinearCoord,
    /// UNICOMP: cells with an odd coordinate look at their even neighbours. Only the grid
    /// has it; other strategies do as for `LidUnicomp`.
    Unicomp,
    /// LID-UNICOMP: each cell looks at cells that come later in the order. The default.
    #[default]
    LidUnicomp,
}

/// Where a join runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Device {
    /// The CPU, a GPU or both, whichever is expected to be fastest; a GPU is looked for where the
    /// join is large enough to be worth it. The default.
    #[default]
    Auto,
    /// All cores, with the best vector instructions they have.
    Cpu,
    /// An NVIDIA GPU.
    Gpu,
    /// CPU and GPU at once, through one queue of work. Where one of them would only be in the other's
    /// way, it stands by. Where there is no GPU, the CPU joins alone.
    Hybrid,
}

/// How the CPU and a GPU share a join, where both work on it. The answer never depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Partitioning {
    /// On demand, and only where sharing is expected to be faster than one of them alone. The
    /// default.
    #[default]
    Auto,
    /// DYN: on demand. The GPU takes the units of work with most candidates, in batches that
    /// shrink towards the end, and threads of the CPU those with fewest.
    Dyn,
    /// SQ: each has a fixed share of the queries, by how fast both are expected to be.
    StaticQueries,
    /// SC: each has a fixed share of the candidates, by how fast both are expected to be.
    StaticCandidates,
}

/// Makes an enumeration known by names.
macro_rules! names {
    ($type:ident, $what:literal, $known:literal, $($name:literal => $variant:ident),+) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $($type::$variant => $name),+ })
            }
        }

        impl FromStr for $type {
            type Err = Error;

            fn from_str(name: &str) -> Result<Self> {
                match name {
                    $($name => Ok($type::$variant),)+
                    _ => Err(Error::UnknownName { what: $what, name: name.into(), known: $known }),
                }
            }
        }

        impl $type {
            /// Every value, for tools that try them all.
            pub const ALL: &'static [$type] = &[$($type::$variant),+];
        }
    };
}

pub(crate) use names;

names!(Strategy, "strategy", "auto, brute, directory, grid, ego, tree, product, ranges",
    "auto" => Auto, "brute" => Brute, "directory" => Directory, "grid" => Grid, "ego" => Ego,
    "tree" => Tree, "product" => Product, "ranges" => Ranges);
names!(DuplicateRemoval, "duplicate removal", "none, linear-coord, unicomp, lid-unicomp",
    "none" => None, "linear-coord" => LinearCoord, "unicomp" => Unicomp,
    "lid-unicomp" => LidUnicomp);
names!(Partitioning, "partitioning", "auto, dyn, static-queries, static-candidates",
    "auto" => Auto, "dyn" => Dyn, "static-queries" => StaticQueries,
    "static-candidates" => StaticCandidates);
names!(Device, "device", "auto, cpu, gpu, hybrid",
    "auto" => Auto, "cpu" => Cpu, "gpu" => Gpu, "hybrid" => Hybrid);
