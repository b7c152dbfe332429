//! The GPU engine.

pub mod driver;
