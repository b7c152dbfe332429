//! Modules as a driver loads them, out of their packs.
//!
//! A pack is several images, compressed together: see [`packed`](crate::source::packed).

use std::io::Read;

use ruzstd::decoding::StreamingDecoder;

use crate::Module;
use crate::source::{ARCHITECTURES, signatures};

/// What a driver loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// PTX, which is text without a NUL at its end; or ready-made code.
    pub code: Vec<u8>,
    kernels: Vec<(String, Vec<usize>)>,
}

/// A pack: the PTX of its modules, and ready-made code for each of [`ARCHITECTURES`] or none.
struct Pack {
    name: &'static str,
    ptx: &'static [u8],
    ready_made: [&'static [u8]; ARCHITECTURES.len()],
}

macro_rules! pack {
    ($name:literal, no ready-made code) => {
        Pack {
            name: $name,
            ptx: include_bytes!(concat!("../packs/", $name, ".ptx.zst")),
            ready_made: [&[]; ARCHITECTURES.len()],
        }
    };
    ($name:literal) => {
        Pack {
            name: $name,
            ptx: include_bytes!(concat!("../packs/", $name, ".ptx.zst")),
            ready_made: [
                include_bytes!(concat!("../packs/", $name, ".sm_75.zst")),
                include_bytes!(concat!("../packs/", $name, ".sm_80.zst")),
                include_bytes!(concat!("../packs/", $name, ".sm_90.zst")),
                include_bytes!(concat!("../packs/", $name, ".sm_100.zst")),
                include_bytes!(concat!("../packs/", $name, ".sm_120.zst")),
            ],
        }
    };
}

static PACKS: [Pack; 27] = [
    pack!("count_f32"),
    pack!("count_f64"),
    pack!("decide_f32", no ready-made code),
    pack!("decide_f64", no ready-made code),
    pack!("degrees_f32"),
    pack!("degrees_f64"),
    pack!("fill_f32"),
    pack!("fill_f64"),
    pack!("halves_f32", no ready-made code),
    pack!("halves_f64", no ready-made code),
    pack!("index_f32"),
    pack!("index_f64"),
    pack!("list_f32", no ready-made code),
    pack!("list_f64", no ready-made code),
    pack!("nearest_f32"),
    pack!("nearest_f64", no ready-made code),
    pack!("product", no ready-made code),
    pack!("query_f32", no ready-made code),
    pack!("query_f64", no ready-made code),
    pack!("rows_f32"),
    pack!("rows_f64"),
    pack!("scores", no ready-made code),
    pack!("shortlist_f32", no ready-made code),
    pack!("shortlist_f64", no ready-made code),
    pack!("sort"),
    pack!("tree_f32"),
    pack!("tree_f64"),
];

impl Image {
    /// The PTX of a module, which every driver compiles for GPUs that can have it.
    ///
    /// # Panics
    /// If the packs of this crate are damaged.
    pub fn ptx(module: Module) -> Image {
        if let Module::Other(other) = module {
            let kernels = signatures(other.ptx);
            return Image { code: other.ptx.into(), kernels };
        }
        find(pack(module).ptx, module).unwrap_or_else(|| panic!("there is no PTX of {module}"))
    }

    /// Ready-made code of a module that runs on a GPU of a compute capability, if there is any:
    /// that of its major version, for as late a minor version as it has.
    pub fn ready_made(module: Module, capability: (u32, u32)) -> Option<Image> {
        if !module.is_ready_made() {
            return None;
        }
        let runs = |of: &(u32, u32)| of.0 == capability.0 && of.1 <= capability.1;
        let architecture = ARCHITECTURES.iter().rposition(runs)?;
        find(pack(module).ready_made[architecture], module)
    }

    /// The sizes in bytes of the parameters of a kernel, or `None` if there is no such kernel.
    pub fn parameters(&self, kernel: &str) -> Option<&[usize]> {
        self.kernels.iter().find(|(name, _)| name == kernel).map(|(_, sizes)| &sizes[..])
    }
}

fn pack(module: Module) -> &'static Pack {
    let name = module.pack();
    let pack = PACKS.iter().find(|pack| pack.name == name);
    pack.unwrap_or_else(|| panic!("there is no pack {name}"))
}

/// The image of a module in a pack.
fn find(pack: &[u8], module: Module) -> Option<Image> {
    let mut bytes = Vec::new();
    StreamingDecoder::new(pack).ok()?.read_to_end(&mut bytes).ok()?;
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let end = rest.iter().position(|&byte| byte == b'\n')?;
        let line = core::str::from_utf8(&rest[..end]).ok()?;
        let mut words = line.split(' ');
        let length: usize = words.next()?.parse().ok()?;
        let name = words.next()?;
        let code = rest.get(end + 1..)?.get(..length)?;
        if name == module.to_string() {
            return Some(Image {
                code: code.into(),
                kernels: words.map(kernel).collect::<Option<_>>()?,
            });
        }
        rest = &rest[end + 1 + length..];
    }
    None
}

/// A kernel out of the line of an image: `name:8,8,4`.
fn kernel(word: &str) -> Option<(String, Vec<usize>)> {
    let (name, sizes) = word.split_once(':')?;
    let sizes = sizes.split(',').filter(|size| !size.is_empty()).map(str::parse);
    Some((name.into(), sizes.collect::<Result<_, _>>().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_is_in_its_pack() {
        for module in Module::all() {
            let ptx = Image::ptx(module);
            assert!(ptx.code.starts_with(b".version") && !ptx.kernels.is_empty(), "{module}");
            for architecture in ARCHITECTURES {
                let ready = Image::ready_made(module, architecture);
                assert_eq!(ready.is_some(), module.is_ready_made(), "{module} {architecture:?}");
                if let Some(ready) = ready {
                    assert!(ready.code.starts_with(b"\x7fELF"), "{module} {architecture:?}");
                    assert_eq!(ready.kernels, ptx.kernels);
                }
            }
        }
    }

    #[test]
    fn code_for_a_gpu_is_that_of_its_major_version() {
        let sort = |capability| Image::ready_made(Module::Sort, capability);
        assert_eq!(sort((8, 9)), sort((8, 0)));
        assert_ne!(sort((9, 0)), sort((8, 0)));
        for none in [(7, 0), (11, 0), (13, 0)] {
            assert_eq!(sort(none), None);
        }
    }

    #[test]
    fn a_pack_that_is_damaged_has_nothing() {
        for damaged in [&b""[..], b"none", &PACKS[0].ptx[..100]] {
            assert_eq!(find(damaged, Module::Sort), None);
        }
    }
}
