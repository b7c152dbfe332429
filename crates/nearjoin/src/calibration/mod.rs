//! The calibration file: where it is, and what is in it. Nothing here reads it or writes it.

mod place;
mod text;

pub(crate) use place::{NoPlace, place};
pub(crate) use text::Filed;
