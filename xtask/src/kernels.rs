//! CUDA sources to PTX, with NVRTC, and PTX to ready-made code, with ptxas: a compiler as a library
//! and an assembler, which need no GPU and no toolkit and come as packages of PyPI.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nearjoin_kernels::Module;
use nearjoin_kernels::source::{self, ARCHITECTURES, ASSEMBLER, COMPILER, OPTIONS, packed, stamp};

use crate::environment::{self, target};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What is generated: the names of the files in `packs/`, and what they hold, unpacked.
type Packs = BTreeMap<String, Vec<u8>>;

const STAMP: &str = "STAMP";
/// The most that zstd can do. It takes a second, once for every change of a kernel.
const LEVEL: i32 = 22;
/// How often a pack that differs from the committed one is compiled, before it counts as another.
const TRIES: usize = 8;

/// Where the compiler has its memory. What it makes of a large module hangs on that, now and then: an
/// order of instructions, never what they do.
#[derive(Clone, Copy)]
enum Addresses {
    /// The same in every run, as far as Linux can promise it.
    Fixed,
    Random,
}

/// Writes the packs and their stamp, and removes packs of no module.
pub(crate) fn generate() -> Result<()> {
    let packs = compile(|_| true, Addresses::Fixed)?;
    let folder = folder_of_packs();
    fs::create_dir_all(&folder)?;
    for stale in committed(&folder)?.keys().filter(|name| !packs.contains_key(*name)) {
        fs::remove_file(folder.join(stale))?;
    }
    let (mut ptx, mut ready_made) = (0, 0);
    for (name, bytes) in &packs {
        let bytes = match is_packed(name) {
            true => &zstd::bulk::compress(bytes, LEVEL)?,
            false => bytes,
        };
        *if name.contains(".ptx") { &mut ptx } else { &mut ready_made } += bytes.len();
        fs::write(folder.join(name), bytes)?;
    }
    let modules = Module::all().count();
    eprintln!("{modules} modules, {} KB of PTX, {} KB ready-made", ptx / 1000, ready_made / 1000);
    Ok(())
}

/// Compares what [`generate`] would write with what is there, unpacked: another version of zstd
/// may pack the same otherwise. What differs is compiled again, elsewhere in memory.
pub(crate) fn check() -> Result<()> {
    let there = committed(&folder_of_packs())?;
    let packs = compile(|_| true, Addresses::Fixed)?;
    let mut names: Vec<String> = packs.keys().chain(there.keys()).cloned().collect();
    names.sort();
    names.dedup();
    names.retain(|name| packs.get(name) != there.get(name));
    for _ in 1..TRIES {
        let differs = |module: Module| names.iter().any(|name| module.pack() == stem(name));
        if !Module::all().any(differs) {
            break;
        }
        let packs = compile(differs, Addresses::Random)?;
        names.retain(|name| packs.get(name).is_none_or(|pack| there.get(name) != Some(pack)));
    }
    if names.is_empty() {
        return Ok(());
    }
    let mut reason = String::from("out of date, run `cargo xtask kernels`:");
    for name in names {
        reason += &format!("\n    crates/nearjoin-kernels/packs/{name}");
    }
    Err(reason.into())
}

/// Installs the compilers, where that has not been done.
pub(crate) fn install() -> Result<()> {
    python().map(drop)
}

fn folder_of_packs() -> PathBuf {
    source::folder().join("../packs")
}

fn is_packed(name: &str) -> bool {
    name.ends_with(".zst")
}

/// The pack that a file belongs to: `count_f32` of `count_f32.sm_90.zst`.
fn stem(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// What the files hold that are there now.
fn committed(folder: &Path) -> Result<Packs> {
    let mut packs = Packs::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::read(&path)?;
        let bytes = if is_packed(&name) { zstd::decode_all(&bytes[..])? } else { bytes };
        packs.insert(name, bytes);
    }
    Ok(packs)
}

/// Compiles the modules that are wanted.
fn compile(wanted: impl Fn(Module) -> bool, addresses: Addresses) -> Result<Packs> {
    let modules: Vec<Module> = Module::all().filter(|&module| wanted(module)).collect();
    let folder = target().join("kernels");
    fs::remove_dir_all(&folder).or_else(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    fs::create_dir_all(&folder)?;
    run_compiler(&modules, addresses, &folder)?;

    let mut packs = Packs::new();
    for module in modules {
        let ptx = fs::read_to_string(folder.join(format!("{module}.ptx")))?;
        let mut add = |end: &str, code: &[u8]| {
            let pack = packs.entry(format!("{}.{end}.zst", module.pack())).or_default();
            pack.extend(packed(module, code, &ptx));
        };
        add("ptx", ptx.as_bytes());
        for architecture in ARCHITECTURES.map(name_of).iter().filter(|_| module.is_ready_made()) {
            add(architecture, &fs::read(folder.join(format!("{module}.{architecture}")))?);
        }
    }
    packs.insert(STAMP.into(), stamp()?.into());
    Ok(packs)
}

/// An architecture as the assembler calls it: `sm_90`.
fn name_of((major, minor): (u32, u32)) -> String {
    format!("sm_{major}{minor}")
}

/// Hands the modules to `compile.py`, one to a line: name, file, what the PTX is for, the architectures
/// that there is to be ready-made code for, definitions.
fn run_compiler(modules: &[Module], addresses: Addresses, folder: &Path) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/compile.py");
    let mut child = Command::new(python()?)
        .arg(script)
        .arg(match addresses {
            Addresses::Fixed => "fixed",
            Addresses::Random => "random",
        })
        .args([source::folder(), folder])
        .args(OPTIONS)
        .stdin(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().ok_or("no way to tell Python the modules")?;
    for module in modules {
        let architectures = match module.is_ready_made() {
            true => ARCHITECTURES.map(name_of).join(","),
            false => "-".into(),
        };
        let defines = module.defines().join(" ");
        let (major, minor) = module.least_capability();
        let virtual_one = format!("compute_{major}{minor}");
        writeln!(input, "{module} {} {virtual_one} {architectures} {defines}", module.file())?;
    }
    drop(input);
    if child.wait()?.success() { Ok(()) } else { Err("the kernels do not compile".into()) }
}

/// A Python that has the packages of the compilers, in a virtual environment of its own.
fn python() -> Result<PathBuf> {
    // Of what they depend on, nothing is used.
    environment::with(&["--no-deps", COMPILER, ASSEMBLER])
}
