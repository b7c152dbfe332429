//! The stamp of the PTX: what it was made from, in a number.
//!
//! `cargo xtask kernels` writes it beside the PTX and a test compares it with the sources, so
//! that PTX that is out of date is found without the compiler that makes it.

use std::{fs, io, path::Path};

use crate::modules::{COMPILER, OPTIONS, sources};

/// The stamp of the sources in `cu`, of the table of modules and of the compiler.
pub(crate) fn stamp(cu: &Path) -> io::Result<String> {
    let mut hash = Fnv::default();
    hash.add(COMPILER.as_bytes());
    for option in OPTIONS {
        hash.add(option.as_bytes());
    }
    for source in sources() {
        hash.add(format!("{source:?}").as_bytes());
    }
    let mut files: Vec<_> = fs::read_dir(cu)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|end| end == "cu" || end == "cuh"));
    files.sort();
    for file in files {
        hash.add(file.file_name().unwrap_or_default().as_encoded_bytes());
        // Some checkouts have other ends of lines.
        hash.add(fs::read_to_string(&file)?.replace('\r', "").as_bytes());
    }
    Ok(format!("{COMPILER} {:016x}\n", hash.0))
}

/// FNV-1a: enough to notice a change that nobody meant to hide.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds bytes, and their number, so that they cannot run into the next ones.
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().copied().chain((bytes.len() as u64).to_le_bytes()) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
