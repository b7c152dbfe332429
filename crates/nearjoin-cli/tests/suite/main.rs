//! The program as its user meets it, in one binary.

mod advice;
mod browser;
mod devices;
#[cfg(all(target_os = "linux", feature = "cuda"))]
mod driver;
mod ending;
mod formats;
mod groups;
mod knn;
mod memory;
mod program;
mod progress;
mod usage;
