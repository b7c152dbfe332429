//! The program as its user meets it, in one binary.

mod browser;
mod ending;
mod formats;
mod knn;
mod program;
mod usage;
