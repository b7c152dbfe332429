//! Every module, by name. Written by `cargo xtask kernels`.

use crate::Module;

#[rustfmt::skip]
pub(crate) static MODULES: &[Module] = &[
];
