//! The choices of a join by name: strategy, duplicate removal, device.

use core::fmt;
use core::str::FromStr;

use crate::error::{Error, Result};

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
}

impl Strategy {
    /// The strategies of ε-joins.
    pub const EPSILON: &'static [Strategy] =
        &[Strategy::Auto, Strategy::Brute, Strategy::Directory, Strategy::Grid, Strategy::Ego];
    /// The strategies of KNN-joins.
    pub const KNN: &'static [Strategy] =
        &[Strategy::Auto, Strategy::Brute, Strategy::Grid, Strategy::Tree];
}

/// Whether each pair of a self-join is tested once or from both sides, for sinks that
/// can profit: counts and pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DuplicateRemoval {
    /// Each query looks at all its candidates.
    None,
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
    /// Whatever is there. The default; today that is the CPU.
    #[default]
    Auto,
    /// All cores, with the best vector instructions they have.
    Cpu,
    /// An NVIDIA GPU. Not available in this version.
    Gpu,
    /// CPU and GPU at once. Not available in this version.
    Hybrid,
}

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

names!(Strategy, "strategy", "auto, brute, directory, grid, ego, tree",
    "auto" => Auto, "brute" => Brute, "directory" => Directory, "grid" => Grid, "ego" => Ego,
    "tree" => Tree);
names!(DuplicateRemoval, "duplicate removal", "none, unicomp, lid-unicomp",
    "none" => None, "unicomp" => Unicomp, "lid-unicomp" => LidUnicomp);
names!(Device, "device", "auto, cpu, gpu, hybrid",
    "auto" => Auto, "cpu" => Cpu, "gpu" => Gpu, "hybrid" => Hybrid);
