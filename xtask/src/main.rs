//! What is done for the project and not by a build: every test, the kernels, the Python package, a
//! bundle for machines with a GPU.

mod bundle;
mod environment;
mod kernels;
mod python;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask test                run every test, of Rust and of Python
cargo xtask python              build the wheel of the Python package, and test it
cargo xtask wheel               build the source distribution, and the wheel from it, into
                                target/xtask/wheels
cargo xtask kernels             compile the CUDA kernels, and pack them
cargo xtask kernels --check     say whether the committed packs hold what they compile to
cargo xtask kernels --install   make sure that the compilers are there
cargo xtask gpu-bundle [folder] put all that tests and measures a GPU into one folder
                                (default: gpu-bundle)";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => python::test_everything(),
        ["python"] => python::test(),
        ["wheel"] => python::wheel().map(drop),
        ["kernels"] => kernels::generate(),
        ["kernels", "--check"] => kernels::check(),
        ["kernels", "--install"] => kernels::install(),
        ["gpu-bundle"] => bundle::make(Path::new("gpu-bundle")),
        ["gpu-bundle", folder] => bundle::make(Path::new(folder)),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
