//! Runs nearjoin and its peers on the same points, in one run on one machine, and prints
//! the ratios.
//!
//! ```text
//! cargo run --release -p nearjoin-bench -- --help
//! ```

mod args;
mod call;
mod compare;
mod cores;
mod crossover;
mod epsilon;
mod fresh;
mod gpu;
mod knn;
mod machine;
mod once;
mod peers;
mod product;
mod report;
mod table;
mod workload;

use std::process::ExitCode;

use nearjoin::Device;

use crate::args::{Join, Options, Section};
use crate::gpu::Target;
use crate::machine::Machine;
use crate::once::Once;
use crate::peers::Python;

/// Errors are for reading: this is a program, not a library.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    match args::parse(std::env::args().skip(1)).map_err(Into::into).and_then(run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("nearjoin-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the sections that were asked for. False if a peer disagrees with us, or a GPU with the
/// CPU.
fn run(options: Options) -> Result<bool> {
    if options.help {
        print!("{}", args::HELP);
        return Ok(true);
    }
    if let Some(name) = &options.once {
        let once = match options.join {
            Join::Eps => Once::here::<epsilon::Ours>(name, options.points)?,
            Join::Knn => Once::here::<knn::Ours>(name, options.points)?,
        };
        println!("{once}");
        return Ok(true);
    }
    if let Some(bytes) = options.touch {
        println!("{}", fresh::touch(bytes)?);
        return Ok(true);
    }
    if let Some(child) = &options.child {
        println!("{}", gpu::run_child(child, &options)?);
        return Ok(true);
    }

    let python = Python::find(&options);
    let machine = match options.on_gpu() {
        true => Machine::with_gpu(gpu::describe(&options)?),
        false => Machine::with_peers(&python),
    };
    println!("{machine}");
    let mut agree = true;
    let mut sections = Vec::new();
    for section in &options.sections {
        let (text, right) = match (section, options.join) {
            (Section::Compare, Join::Eps) => compare::run::<epsilon::Ours>(&options, &python)?,
            (Section::Compare, Join::Knn) => compare::run::<knn::Ours>(&options, &python)?,
            (Section::Scaling, _) => (epsilon::scaling::run(&options)?, true),
            (Section::Adversarial, _) => (knn::adversarial::run(&options)?, true),
            (Section::Cores, _) => (cores::run(&options)?, true),
            (Section::Product, _) => product::run(&options, &python)?,
            (Section::Crossover, _) => {
                let target = Target::new(&options)?;
                (crossover::run(&target, Device::Cpu, &options)?, true)
            }
            (Section::Memory, _) => (once::memory(&options)?, true),
            (&section, _) => gpu::run(section, &options)?,
        };
        agree &= right;
        println!("{text}");
        sections.push(text);
    }
    if let Some(path) = &options.record {
        report::record(path, &machine, &options, &sections)?;
        eprintln!("recorded in {}", path.display());
    }
    Ok(agree)
}
