//! Tells the program which compiler made it, for its records.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("-V").output().ok();
    let version = version.and_then(|output| String::from_utf8(output.stdout).ok());
    let version = version.as_deref().map_or("unknown", str::trim);
    println!("cargo::rustc-env=BENCH_RUSTC={version}");
}
