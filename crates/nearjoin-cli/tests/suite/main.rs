//! The program as its user meets it, in one binary.

mod browser;
#[cfg(target_os = "linux")]
mod driver;
mod ending;
mod formats;
mod knn;
mod program;
mod usage;
