//! The device that is none, with kernels of its own.

mod driver;
mod help;
mod kernels;
mod sort;
