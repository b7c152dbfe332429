//! The CUDA kernels of nearjoin: their sources, and the code that a driver loads.
//!
//! A *module* is one source file of `cu/` compiled for one type, width and norm. `cargo xtask
//! kernels` compiles all of them and packs what comes out into `packs/`, which is committed: a
//! build needs no CUDA compiler, and a join nothing but the driver. There is PTX of every module,
//! which a driver compiles for any GPU of compute capability 7.5 and later, and ready-made code
//! of those that most joins need, which it only has to load.
//!
//! Without the feature `images` the crate is the table of modules alone, and carries no code.

#[cfg(feature = "images")]
pub mod image;
pub mod source;

use core::fmt;

/// A module: kernels that are compiled and loaded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Module {
    /// Running sums, and the sort of keys with values.
    Sort,
    /// The index.
    Index(Float),
    /// Pairs into rows, and rows into order.
    Rows(Float),
    /// The order of a tree, and its boxes.
    Tree(Float),
    /// Points as numbers of 16 bits.
    Halves(Float),
    /// Products of those on matrix units.
    Product(Tile),
    /// Pairs that a product leaves open.
    Decide(Float),
    /// Products as scores of candidates for the nearest.
    Scores(Tile),
    /// What scores are compared with, and the nearest of those that are good enough.
    Shortlist(Float),
    /// The ε-join, and the KNN-join.
    Join(Join),
    /// One that this crate has not: for tests of drivers.
    Other(&'static Other),
}

/// A module of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Join {
    /// What becomes of matches.
    pub family: Family,
    /// The points' type.
    pub float: Float,
    /// How differences are added up.
    pub norm: Norm,
    /// Numbers that are compared of each point: see [`width`].
    pub width: usize,
}

/// What becomes of matches. A driver compiles a module when it is first used, all of it: one that
/// did everything would take it seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// They are counted.
    Count,
    /// They are counted for both points of a pair that is found once.
    Degrees,
    /// They are written to their places in rows.
    Fill,
    /// They are appended to a list.
    List,
    /// Any of these, each query by threads of its own, as in the papers.
    Query,
    /// The nearest are kept.
    Nearest,
}

/// What a block computes of a product: 128 × 128 of its elements, some steps of 64 dimensions at a time.
/// (Twice as wide, with the shared memory that takes, was no faster.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tile {
    /// Of points of 128 dimensions at the most: those of the rows stay where they are.
    Narrow,
    /// Of any points.
    Wide,
}

/// The type of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Float {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

/// How differences are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Norm {
    /// Their squares: L2.
    Squares,
    /// Themselves, by their magnitudes: L1 and L∞, which differ in a number that the kernels
    /// are told.
    Magnitudes,
}

/// The name and the PTX of a module that is not of this crate.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Other {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub ptx: &'static str,
}

impl Family {
    const ALL: [Family; 6] = [
        Family::Count,
        Family::Degrees,
        Family::Fill,
        Family::List,
        Family::Query,
        Family::Nearest,
    ];

    fn name(self) -> &'static str {
        match self {
            Family::Count => "count",
            Family::Degrees => "degrees",
            Family::Fill => "fill",
            Family::List => "list",
            Family::Query => "query",
            Family::Nearest => "nearest",
        }
    }
}

impl Tile {
    const ALL: [Tile; 2] = [Tile::Narrow, Tile::Wide];

    /// Rows of a tile, and its columns.
    pub const SIDE: usize = 128;
    /// Threads of a block.
    pub const THREADS: u32 = 128;

    fn name(self) -> &'static str {
        match self {
            Tile::Narrow => "narrow",
            Tile::Wide => "wide",
        }
    }

    /// Steps that are in shared memory at a time.
    const fn stages(self) -> usize {
        match self {
            Tile::Narrow => 3,
            Tile::Wide => 2,
        }
    }
}

impl Float {
    const ALL: [Float; 2] = [Float::F32, Float::F64];

    fn name(self) -> &'static str {
        match self {
            Float::F32 => "f32",
            Float::F64 => "f64",
        }
    }
}

impl Norm {
    const ALL: [Norm; 2] = [Norm::Squares, Norm::Magnitudes];

    fn name(self) -> &'static str {
        match self {
            Norm::Squares => "squares",
            Norm::Magnitudes => "magnitudes",
        }
    }

    /// Widths that have modules of their own, ascending.
    const fn widths(self) -> &'static [usize] {
        match self {
            Norm::Squares => &[2, 4, 6, 8],
            Norm::Magnitudes => &[2, 4, 8],
        }
    }
}

/// The numbers that a point has on a device, and that are compared: its dimension, or as many more
/// as make it a width that has modules of its own, the rest being 0, which adds nothing to any
/// distance. Widths are even, so that points are loaded in few pieces. 0 where there is none: then
/// the modules for any dimension do.
///
/// What shares modules has little to gain by some of its own: `docs/benchmarks` has the figures.
pub fn width(norm: Norm, dimension: usize) -> usize {
    norm.widths().iter().copied().find(|&width| width >= dimension).unwrap_or(0)
}

impl Module {
    /// The module of a join for points of a dimension.
    pub fn join(family: Family, float: Float, norm: Norm, dimension: usize) -> Self {
        let width = match family {
            // Whatever the layout of the points.
            Family::Query => 0,
            _ => width(norm, dimension),
        };
        Module::Join(Join { family, float, norm, width })
    }

    /// Bytes of shared memory that a block of its kernels has beyond what they declare.
    pub const fn shared_bytes(self) -> u32 {
        let (Module::Product(tile) | Module::Scores(tile)) = self else { return 0 };
        // The rows of a step have 128 bytes.
        let (kept, lines) = match tile {
            Tile::Narrow => (2 * Tile::SIDE, Tile::SIDE),
            Tile::Wide => (0, 2 * Tile::SIDE),
        };
        (128 * (kept + tile.stages() * lines)) as u32
    }

    /// Every module of this crate.
    pub fn all() -> impl Iterator<Item = Module> {
        let of_type = |float| {
            let low = [Module::Index(float), Module::Rows(float), Module::Tree(float)];
            let high = [Module::Halves(float), Module::Decide(float), Module::Shortlist(float)];
            low.into_iter().chain(high)
        };
        let joins = Family::ALL.into_iter().flat_map(|family| {
            Float::ALL.into_iter().flat_map(move |float| {
                Norm::ALL.into_iter().flat_map(move |norm| {
                    let widths = if family == Family::Query { &[] } else { norm.widths() };
                    widths
                        .iter()
                        .copied()
                        .chain([0])
                        .map(move |width| Module::Join(Join { family, float, norm, width }))
                })
            })
        });
        let products =
            Tile::ALL.into_iter().flat_map(|tile| [Module::Product(tile), Module::Scores(tile)]);
        let others = [Module::Sort].into_iter().chain(products);
        others.chain(Float::ALL.into_iter().flat_map(of_type)).chain(joins)
    }
}

/// The name of the module: `sort`, `index_f32`, `count_f32_2_squares`, …
impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Module::Sort => f.write_str("sort"),
            Module::Index(float) => write!(f, "index_{}", float.name()),
            Module::Rows(float) => write!(f, "rows_{}", float.name()),
            Module::Tree(float) => write!(f, "tree_{}", float.name()),
            Module::Halves(float) => write!(f, "halves_{}", float.name()),
            Module::Product(tile) => write!(f, "product_{}", tile.name()),
            Module::Decide(float) => write!(f, "decide_{}", float.name()),
            Module::Scores(tile) => write!(f, "scores_{}", tile.name()),
            Module::Shortlist(float) => write!(f, "shortlist_{}", float.name()),
            Module::Join(Join { family, float, norm, width }) => {
                write!(f, "{}_{}_{width}_{}", family.name(), float.name(), norm.name())
            }
            Module::Other(other) => f.write_str(other.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_different() {
        let names: BTreeSet<String> = Module::all().map(|module| module.to_string()).collect();
        assert_eq!(names.len(), Module::all().count());
        assert!(names.contains("list_f64_6_squares") && names.contains("query_f32_0_magnitudes"));
    }

    #[test]
    fn every_dimension_has_a_module() {
        let all: BTreeSet<Module> = Module::all().collect();
        for family in Family::ALL {
            for dimension in 1..=4096 {
                for norm in Norm::ALL {
                    let module = Module::join(family, Float::F32, norm, dimension);
                    assert!(all.contains(&module), "{module}");
                    let width = width(norm, dimension);
                    assert!(width == 0 || width >= dimension);
                }
            }
        }
        assert_eq!([1, 2, 3, 5, 9].map(|dim| width(Norm::Squares, dim)), [2, 2, 4, 6, 0]);
        assert_eq!([1, 3, 5, 8, 9].map(|dim| width(Norm::Magnitudes, dim)), [2, 4, 8, 8, 0]);
    }
}
