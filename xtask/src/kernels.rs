//! CUDA sources to PTX, with NVRTC: the compiler as a library, which needs no GPU and no
//! toolkit and comes as a package of PyPI.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::modules::{COMPILER, OPTIONS, Source, sources};
use crate::stamp::stamp;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What is generated: the files' paths within the crate of the kernels, and their texts.
type Files = BTreeMap<String, String>;

/// Writes the PTX, its stamp and the table of modules, and removes PTX of no module.
pub(crate) fn generate() -> Result<()> {
    let files = compile()?;
    let root = kernels();
    fs::create_dir_all(root.join("ptx"))?;
    for stale in committed(&root)?.keys().filter(|path| !files.contains_key(*path)) {
        fs::remove_file(root.join(stale))?;
    }
    for (path, text) in &files {
        fs::write(root.join(path), text)?;
    }
    let bytes: usize = files.values().map(String::len).sum();
    eprintln!("{} modules, {} KB", files.len() - 2, bytes / 1000);
    Ok(())
}

/// Compares what [`generate`] would write with what is there.
pub(crate) fn check() -> Result<()> {
    let files = compile()?;
    let there = committed(&kernels())?;
    let mut paths: Vec<_> = files.keys().chain(there.keys()).collect();
    paths.sort();
    paths.dedup();
    paths.retain(|path| files.get(*path) != there.get(*path));
    if paths.is_empty() {
        return Ok(());
    }
    let mut reason = String::from("out of date, run `cargo xtask kernels`:");
    for path in paths {
        reason += &format!("\n    crates/nearjoin-kernels/{path}");
    }
    Err(reason.into())
}

/// Installs the compiler, where that has not been done.
pub(crate) fn install() -> Result<()> {
    python().map(drop)
}

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/nearjoin-kernels")
}

/// The generated files as they are in the crate now.
fn committed(root: &Path) -> Result<Files> {
    let mut files = Files::new();
    for entry in fs::read_dir(root.join("ptx"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        files.insert(format!("ptx/{name}"), fs::read_to_string(&path)?);
    }
    files.insert("src/ptx.rs".into(), fs::read_to_string(root.join("src/ptx.rs"))?);
    Ok(files)
}

/// Compiles every module of the table.
fn compile() -> Result<Files> {
    let cu = kernels().join("cu");
    let sources = sources();
    let folder = target().join("ptx");
    fs::remove_dir_all(&folder).or_else(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    fs::create_dir_all(&folder)?;
    run_compiler(&cu, &folder, &sources)?;

    let mut files = Files::new();
    for Source { name, .. } in &sources {
        let text = fs::read_to_string(folder.join(name))?;
        files.insert(format!("ptx/{name}.ptx"), without_comments(&text));
    }
    files.insert("ptx/STAMP".into(), stamp(&cu)?);
    files.insert("src/ptx.rs".into(), table(&sources));
    Ok(files)
}

/// Hands the modules to `nvrtc.py`, one to a line: name, file, definitions.
fn run_compiler(cu: &Path, folder: &Path, sources: &[Source]) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/nvrtc.py");
    let mut child = Command::new(python()?)
        .arg(script)
        .args([cu, folder])
        .args(OPTIONS)
        .stdin(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().ok_or("no way to tell Python the modules")?;
    for Source { name, file, defines } in sources {
        writeln!(input, "{name} {file} {}", defines.join(" "))?;
    }
    drop(input);
    if child.wait()?.success() { Ok(()) } else { Err("the kernels do not compile".into()) }
}

/// A Python that has the compiler's package, in a virtual environment of its own.
fn python() -> Result<PathBuf> {
    let venv = target().join(COMPILER.replace("==", "-"));
    let python = venv.join("bin/python");
    let complete = venv.join("complete");
    if !complete.exists() {
        let made = succeeds(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))
            && succeeds(Command::new(&python).args(["-m", "pip", "install", "-q", COMPILER]));
        if !made {
            return Err(format!("{COMPILER} could not be installed").into());
        }
        fs::write(complete, "")?;
    }
    Ok(python)
}

fn succeeds(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

/// A folder for what may be lost, beside what cargo builds.
fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target")).join("xtask")
}

/// PTX less its comments, which tell the build of the compiler, and its empty lines.
fn without_comments(ptx: &str) -> String {
    let lines = ptx.trim_end_matches('\0').lines().map(|line| line.split("//").next());
    let lines = lines.flatten().map(str::trim_end).filter(|line| !line.is_empty());
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The table of modules that the crate of the kernels compiles in.
fn table(sources: &[Source]) -> String {
    let mut text = String::from(
        "//! Every module, by name. Written by `cargo xtask kernels`.\n\n\
         use crate::Module;\n\n\
         #[rustfmt::skip]\n\
         pub(crate) static MODULES: &[Module] = &[\n",
    );
    for Source { name, .. } in sources {
        text += &format!(
            "    Module {{ name: \"{name}\", ptx: include_str!(\"../ptx/{name}.ptx\") }},\n"
        );
    }
    text + "];\n"
}
