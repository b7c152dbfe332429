//! What modules are made of: for whoever compiles them.
//!
//! That is `cargo xtask kernels`, which makes the images that are committed, and nearjoin-simt,
//! which runs the same sources on a CPU.

use std::path::Path;
use std::{fs, io};

use crate::{Family, Float, Join, Module, Norm, Tile};

/// The compiler: a package of PyPI. An early version of CUDA 12, because the version of the PTX
/// sets the oldest driver that loads it.
pub const COMPILER: &str = "nvidia-cuda-nvrtc-cu12==12.0.140";

/// Its options. A multiplication and an addition are fused only where a kernel says `fma`.
pub const OPTIONS: [&str; 3] = ["--std=c++17", "--fmad=false", "-default-device"];

/// The assembler, which makes code for one architecture of PTX: a package of PyPI. The last
/// version of CUDA 12: it knows the latest GPUs, and every driver for CUDA 12 that knows a GPU
/// loads its code.
pub const ASSEMBLER: &str = "nvidia-cuda-nvcc-cu12==12.9.86";

/// The architectures that there is ready-made code for, by compute capability. It runs on later
/// ones of the same major version too: 8.0 is for 8.6 and 8.9 as well.
pub const ARCHITECTURES: [(u32, u32); 5] = [(7, 5), (8, 0), (9, 0), (10, 0), (12, 0)];

/// The folder of the sources, `cu/`, where this crate was built.
pub fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/cu"))
}

impl Module {
    /// The file in `cu/`. Empty of a module that is not of this crate.
    pub fn file(self) -> &'static str {
        match self {
            Module::Sort => "sort.cu",
            Module::Index(_) => "index.cu",
            Module::Rows(_) => "rows.cu",
            Module::Tree(_) => "tree.cu",
            Module::Halves(_) => "halves.cu",
            Module::Product(_) => "product.cu",
            Module::Decide(_) => "decide.cu",
            Module::Scores(_) => "scores.cu",
            Module::Shortlist(_) => "shortlist.cu",
            Module::Join(join) => match join.family {
                Family::Count => "count.cu",
                Family::Degrees => "degrees.cu",
                Family::Fill => "fill.cu",
                Family::List => "list.cu",
                Family::Query => "query.cu",
                Family::Nearest => "nearest.cu",
            },
            Module::Other(_) => "",
        }
    }

    /// The compute capability that its PTX is for: devices of that and of later ones have it.
    pub fn least_capability(self) -> (u32, u32) {
        match self {
            Module::Product(_) | Module::Scores(_) => (8, 0),
            _ => (7, 5),
        }
    }

    /// What is defined when it is compiled: `NAME` or `NAME=value`.
    pub fn defines(self) -> Vec<String> {
        let scalar = |float| match float {
            Float::F32 => "SCALAR_F32".to_owned(),
            Float::F64 => "SCALAR_F64".to_owned(),
        };
        match self {
            Module::Sort | Module::Other(_) => vec![],
            Module::Index(float)
            | Module::Rows(float)
            | Module::Tree(float)
            | Module::Halves(float) => vec![scalar(float)],
            Module::Decide(float) | Module::Shortlist(float) => {
                vec![scalar(float), "NORM_SQUARES".into(), "WIDTH=0".into()]
            }
            Module::Product(tile) | Module::Scores(tile) => vec![
                format!("STAGES={}u", tile.stages()),
                format!("RESIDENT={}", u32::from(tile == Tile::Narrow)),
                format!("BYTES={}u", self.shared_bytes()),
            ],
            Module::Join(Join { float, norm, width, .. }) => {
                let norm = match norm {
                    Norm::Squares => "NORM_SQUARES",
                    Norm::Magnitudes => "NORM_MAGNITUDES",
                };
                vec![scalar(float), norm.into(), format!("WIDTH={width}")]
            }
        }
    }

    /// Whether there is ready-made code of it: of what every join needs, and of most people's
    /// joins, L2 in up to four dimensions, where pairs are seldom listed, and of the nearest those in
    /// single precision. A driver takes a fifth of a second to compile one of the others when it is
    /// first used, and a join needs one or two of them; all of them ready-made would be some megabytes
    /// more.
    pub fn is_ready_made(self) -> bool {
        match self {
            Module::Join(Join { family, float, norm, width }) => {
                let often = match family {
                    Family::Count | Family::Degrees | Family::Fill => true,
                    Family::Nearest => float == Float::F32,
                    Family::List | Family::Query => false,
                };
                often && norm == Norm::Squares && matches!(width, 2 | 4)
            }
            // What is compared by them takes longer than the driver's compiler.
            Module::Halves(_)
            | Module::Product(_)
            | Module::Decide(_)
            | Module::Scores(_)
            | Module::Shortlist(_)
            | Module::Other(_) => false,
            _ => true,
        }
    }

    /// The pack that it is in: modules that differ little are packed together, which makes them
    /// a third as large again.
    pub fn pack(self) -> String {
        match self {
            Module::Join(Join { family, float, .. }) => {
                format!("{}_{}", family.name(), float.name())
            }
            Module::Product(_) => "product".into(),
            Module::Scores(_) => "scores".into(),
            _ => self.to_string(),
        }
    }
}

/// An image as it stands in a pack. It begins with a line: its length in bytes, its name and, for
/// every kernel in it, the kernel's name and the sizes of its parameters, as in
/// `2048 rows_f32 invert:8,8 copy_u64:8,8,8`. A driver reads as many bytes of the arguments as a
/// kernel has parameters for, so they are compared before it does.
pub fn packed(module: Module, code: &[u8], ptx: &str) -> Vec<u8> {
    let mut line = format!("{} {module}", code.len());
    for (name, sizes) in signatures(ptx) {
        let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
        line += &format!(" {name}:{}", sizes.join(","));
    }
    [line.as_bytes(), b"\n", code].concat()
}

/// The kernels of some PTX with the sizes of their parameters, which are declared as in
/// `.entry name(.param .u64 a, .param .align 8 .b8 b[48])`.
pub(crate) fn signatures(ptx: &str) -> Vec<(String, Vec<usize>)> {
    let entries = ptx.split(".entry").skip(1);
    let kernel = |entry: &str| {
        let (name, rest) = entry.split_once('(')?;
        let (list, _) = rest.split_once(')')?;
        let parameters = list.split(',').filter(|parameter| !parameter.trim().is_empty());
        Some((name.trim().into(), parameters.map(size).collect::<Option<_>>()?))
    };
    entries.filter_map(kernel).collect()
}

fn size(parameter: &str) -> Option<usize> {
    let bits = |word: &str| match word.strip_prefix('.')?.split_at_checked(1)? {
        ("b" | "u" | "s" | "f", bits) => bits.parse::<usize>().ok(),
        _ => None,
    };
    let element = parameter.split_whitespace().find_map(bits)? / 8;
    let elements = match parameter.split_once('[') {
        Some((_, length)) => length.split_once(']')?.0.trim().parse().ok()?,
        None => 1,
    };
    Some(element * elements)
}

/// The stamp of what the packs are made of, in a number: the sources, the table of modules and the
/// compilers. So packs that are out of date are found without the compilers that make them.
pub fn stamp() -> io::Result<String> {
    let mut hash = Fnv::default();
    for word in [COMPILER, ASSEMBLER].iter().chain(&OPTIONS) {
        hash.add(word.as_bytes());
    }
    hash.add(format!("{ARCHITECTURES:?}").as_bytes());
    for module in Module::all() {
        let (file, defines, ready) = (module.file(), module.defines(), module.is_ready_made());
        let least = module.least_capability();
        hash.add(format!("{module} {file} {defines:?} {ready} {least:?}").as_bytes());
    }
    let mut files: Vec<_> = fs::read_dir(folder())?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|end| end == "cu" || end == "cuh"));
    files.sort();
    for file in files {
        hash.add(file.file_name().unwrap_or_default().as_encoded_bytes());
        // Some checkouts have other ends of lines.
        hash.add(fs::read_to_string(&file)?.replace('\r', "").as_bytes());
    }
    Ok(format!("{COMPILER} {ASSEMBLER} {:016x}\n", hash.0))
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

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "
        .version 7.0
        .target sm_75
        .visible .entry empty()
        { ret; }
        .visible .entry several(
            .param .u64 several_param_0,
            .param .u64 .ptr .align 4 several_param_1,
            .param .align 8 .b8 several_param_2[48],
            .param .f32 several_param_3
        )
        { ret; }";

    #[test]
    fn parameters_are_found() {
        let expected = [("empty".into(), vec![]), ("several".into(), vec![8, 8, 48, 4])];
        assert_eq!(signatures(PTX), expected);
        assert_eq!(signatures(""), []);
        assert_eq!(packed(Module::Sort, b"code", PTX), b"4 sort empty: several:8,8,48,4\ncode");
    }

    #[test]
    fn the_packs_were_made_from_these_sources() {
        let found = fs::read_to_string(folder().join("../packs/STAMP")).unwrap();
        assert!(found == stamp().unwrap(), "the packs are out of date: run `cargo xtask kernels`");
    }
}
