//! The integration tests of nearjoin, in one binary: the public API against the oracle,
//! against formulas, and against itself.

mod adversarial;
mod back_pressure;
mod check;
mod child;
mod conformance;
mod data;
mod determinism;
mod errors;
mod estimates;
mod gpu;
mod groups;
mod hybrid;
mod knn;
#[cfg(target_os = "linux")]
mod memory;
mod monitor;
mod parts;
mod plans;
mod product;
mod properties;
mod range;
mod ranges;
mod simd;
