//! The CUDA kernels of nearjoin: their sources, and the PTX made from them.
//!
//! `cargo xtask kernels` compiles `cu/` into `ptx/`, for compute capability 7.5 and later.
//! The PTX is committed, so that a build needs no CUDA compiler, and a join nothing but the
//! driver. A *module* is one source file compiled for one type, dimension and metric.

#[cfg(test)]
mod modules;
mod ptx;
#[cfg(test)]
mod stamp;

/// PTX with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module {
    /// The name, that of the file in `ptx/`: `sort`, `index_f32`, `count_f32_2_l2`, …
    pub name: &'static str,
    /// The text that a driver compiles.
    pub ptx: &'static str,
}

/// Dimensions that have modules of their own; all others share one, with a `0` in its name.
pub const DIMENSIONS: core::ops::RangeInclusive<usize> = 1..=8;

/// All modules, by name.
pub fn modules() -> &'static [Module] {
    ptx::MODULES
}

/// The module with a name.
pub fn module(name: &str) -> Option<&'static Module> {
    let at = ptx::MODULES.binary_search_by(|module| module.name.cmp(name)).ok()?;
    Some(&ptx::MODULES[at])
}

/// Running sums, and the sort of keys with values.
pub fn sort() -> &'static Module {
    expected("sort")
}

/// The index, for points of a type: `f32` or `f64`.
pub fn index(scalar: &str) -> &'static Module {
    expected(&format!("index_{scalar}"))
}

/// Pairs into rows and rows into order, for points of a type.
pub fn rows(scalar: &str) -> &'static Module {
    expected(&format!("rows_{scalar}"))
}

/// A module of the ε-join for points of a type and a dimension, and a metric: `l2`, `l1` or
/// `linf`. Its family is `count`, `fill`, `list` or `query`.
pub fn epsilon(family: &str, scalar: &str, dim: usize, metric: &str) -> &'static Module {
    let dim = if DIMENSIONS.contains(&dim) { dim } else { 0 };
    expected(&format!("{family}_{scalar}_{dim}_{metric}"))
}

fn expected(name: &str) -> &'static Module {
    module(name).unwrap_or_else(|| panic!("there is no module {name}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_ptx_was_made_from_these_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let found = std::fs::read_to_string(root.join("ptx/STAMP")).unwrap();
        assert!(
            found == stamp::stamp(&root.join("cu")).unwrap(),
            "the PTX is out of date: run `cargo xtask kernels`"
        );
    }

    #[test]
    fn every_module_of_the_table_is_found_by_its_name() {
        let names: Vec<_> = modules::sources().into_iter().map(|source| source.name).collect();
        assert_eq!(names, modules().iter().map(|module| module.name).collect::<Vec<_>>());
        assert!(names.iter().all(|name| module(name).is_some_and(|found| found.name == name)));
        assert_eq!(module("no such module"), None);
    }
}
