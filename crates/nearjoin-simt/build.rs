//! Compiles the kernels, and what runs them, with the C++ compiler of the host.
//!
//! `NEARJOIN_SIMT_SANITIZE=address,undefined` adds these sanitizers of GCC to the kernels.
//! `NEARJOIN_SIMT_KERNELS=none` leaves them out, for tests of everything else.
//! `NEARJOIN_SIMT_UCONTEXT=1` changes stacks with the C library in place of our assembly.

use std::path::{Path, PathBuf};
use std::{env, fs};

use nearjoin_kernels::{Module, source};

fn main() {
    let cu = source::folder();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for path in [cu, Path::new("cpp")] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rerun-if-changed=tests/suite/kernels.cu");
    println!("cargo::rustc-check-cfg=cfg(sanitize_address)");

    let mut sources: Vec<Source> = match variable("NEARJOIN_SIMT_KERNELS").as_deref() {
        None => Module::all().map(Source::from).collect(),
        Some("none") => vec![],
        Some(other) => panic!("NEARJOIN_SIMT_KERNELS: none, or not set; not {other}"),
    };
    sources.push(Source { name: "test".into(), file: "kernels.cu", defines: vec![] });

    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(1).debug(false).warnings(false);
    build.flag("-ffp-contract=off").flag("-fno-strict-aliasing").flag("-fno-exceptions");
    build.flag("-w").includes([Path::new("cpp"), cu, Path::new("tests/suite")]);
    // Every look at `threadIdx` would be a call otherwise. Tests are programs, not libraries.
    build.flag("-ftls-model=local-exec");
    sanitize(&mut build);
    if variable("NEARJOIN_SIMT_UCONTEXT").is_some() {
        build.define("SIMT_UCONTEXT", None);
    }
    // What changes from thread to thread runs all the time, and is little to compile.
    let mut changes = build.clone();
    if variable("NEARJOIN_SIMT_SANITIZE").is_none() {
        changes.opt_level(2);
    }
    changes.file("cpp/block.cpp").compile("nearjoin_simt_blocks");
    for source in &sources {
        let file = out.join(format!("{}.cpp", source.name));
        write(&file, &module(source));
        build.file(file);
    }
    let file = out.join("modules.cpp");
    write(&file, &table(&sources));
    build.file(file);
    build.compile("nearjoin_simt");
}

/// A module as it is compiled here.
struct Source {
    name: String,
    file: &'static str,
    defines: Vec<String>,
}

impl From<Module> for Source {
    fn from(module: Module) -> Self {
        Source { name: module.to_string(), file: module.file(), defines: module.defines() }
    }
}

/// A module: the kernel's file, whose names are nobody else's. Modules of one file have
/// functions of one name that differ by their definitions, and the linker would take any.
fn module(source: &Source) -> String {
    let defines =
        source.defines.iter().map(|define| format!("#define {}", define.replace('=', " ")));
    let defines: Vec<_> = defines.collect();
    let Source { name, file, .. } = source;
    let shared = if per_thread(source) { "#define SIMT_SHARED_PER_THREAD\n" } else { "" };
    format!(
        "{shared}{}\n#include \"simt.h\"\nnamespace {{\n#include \"{file}\"\n}}\n\
         extern \"C\" const simt::Entry* simt_module_{name}() {{ return simt_kernels; }}\n",
        defines.join("\n")
    )
}

/// Whether each thread of the system has shared memory of its own for a module: those that every
/// join needs, and that have little, so that joins need not wait for each other.
fn per_thread(source: &Source) -> bool {
    ["sort.cu", "index.cu", "rows.cu"].contains(&source.file)
}

/// The function that finds the kernels of a module, the one that says whether it must run alone,
/// and the names of all modules.
fn table(sources: &[Source]) -> String {
    let mut text = String::from("#include \"simt.h\"\n");
    for Source { name, .. } in sources {
        text += &format!("extern \"C\" const simt::Entry* simt_module_{name}();\n");
    }
    text += "extern \"C\" const simt::Entry* simt_kernels_of(const char* name) {\n";
    for Source { name, .. } in sources {
        text +=
            &format!("    if (!__builtin_strcmp(name, \"{name}\")) return simt_module_{name}();\n");
    }
    text += "    return nullptr;\n}\nextern \"C\" bool simt_runs_alone(const char* name) {\n";
    for source in sources.iter().filter(|source| per_thread(source)) {
        let name = &source.name;
        text += &format!("    if (!__builtin_strcmp(name, \"{name}\")) return false;\n");
    }
    text += "    return true;\n}\nextern \"C\" const char* const simt_modules[] = {\n";
    for Source { name, .. } in sources {
        text += &format!("    \"{name}\",\n");
    }
    text + "    nullptr};\n"
}

fn sanitize(build: &mut cc::Build) {
    let Some(names) = variable("NEARJOIN_SIMT_SANITIZE") else { return };
    // Optimised, all the checks take four times as long to compile.
    build.opt_level(0).flag("-g1").flag("-fno-sanitize-recover=all");
    for name in names.split(',') {
        build.flag(format!("-fsanitize={name}"));
        match name {
            "address" => {
                println!("cargo::rustc-link-lib=asan");
                println!("cargo::rustc-cfg=sanitize_address");
            }
            "undefined" => {
                // CUDA has an answer where C++ has none: kernels must not need either.
                build.flag("-fsanitize=float-cast-overflow");
                println!("cargo::rustc-link-lib=ubsan");
            }
            _ => panic!("NEARJOIN_SIMT_SANITIZE: address, undefined, or both; not {name}"),
        }
    }
}

/// An environment variable that is not empty.
fn variable(name: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}
