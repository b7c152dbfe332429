//! The modules that are made of the sources in `cu/`, and how they are compiled.
//!
//! Plain Rust, so that everything that compiles kernels can include this one table:
//! `cargo xtask kernels`, the build of nearjoin-simt, and the test of the stamp.

/// The compiler: a package of PyPI. An early version of CUDA 12, because the version of the
/// PTX sets the oldest driver that loads it.
#[allow(dead_code)] // not every includer runs it
pub(crate) const COMPILER: &str = "nvidia-cuda-nvrtc-cu12==12.0.140";

/// Its options. A multiplication and an addition are fused only where a kernel says `fma`.
#[allow(dead_code)]
pub(crate) const OPTIONS: [&str; 4] =
    ["--gpu-architecture=compute_75", "--std=c++17", "--fmad=false", "-default-device"];

/// One module: a source file with its definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The name of the module.
    pub(crate) name: String,
    /// The file in `cu/`.
    pub(crate) file: &'static str,
    /// What is defined when it is compiled: `NAME` or `NAME=value`.
    pub(crate) defines: Vec<String>,
}

const SCALARS: [&str; 2] = ["f32", "f64"];
const METRICS: [&str; 3] = ["l2", "l1", "linf"];
/// Dimensions compiled as constants, and 0 for one that is known when the kernel runs.
const DIMENSIONS: [usize; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 0];

/// The ε-join: a module for each thing that becomes of matches. A driver compiles a module when
/// it is first used, all of it, so one that does everything would take it seconds.
const JOINS: [(&str, &str); 4] =
    [("count", "count.cu"), ("fill", "fill.cu"), ("list", "list.cu"), ("query", "query.cu")];

/// Every module, by name.
pub(crate) fn sources() -> Vec<Source> {
    let mut all = vec![Source { name: "sort".into(), file: "sort.cu", defines: vec![] }];
    for scalar in SCALARS {
        let scalar_is = format!("SCALAR_{}", scalar.to_uppercase());
        all.extend([("index", "index.cu"), ("rows", "rows.cu")].map(|(family, file)| Source {
            name: format!("{family}_{scalar}"),
            file,
            defines: vec![scalar_is.clone()],
        }));
        for metric in METRICS {
            let metric_is = format!("METRIC_{}", metric.to_uppercase());
            for dim in DIMENSIONS {
                all.extend(JOINS.map(|(family, file)| Source {
                    name: format!("{family}_{scalar}_{dim}_{metric}"),
                    file,
                    defines: vec![scalar_is.clone(), format!("DIM={dim}"), metric_is.clone()],
                }));
            }
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}
