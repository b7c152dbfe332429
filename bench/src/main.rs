//! Runs nearjoin and its peers on the same points, in one run on one machine, and prints
//! the ratios.
//!
//! ```text
//! cargo run --release -p nearjoin-bench -- --help
//! ```

mod args;
mod epsilon;
mod machine;
mod once;
mod peers;
mod report;
mod table;
mod workload;

use std::process::ExitCode;

use crate::args::{Options, Section};
use crate::epsilon::Comparison;
use crate::machine::Machine;
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

/// Runs the sections that were asked for. False if a peer disagrees with us.
fn run(options: Options) -> Result<bool> {
    if options.help {
        print!("{}", args::HELP);
        return Ok(true);
    }
    if let Some(case) = options.once {
        println!("{}", epsilon::once(case, options.points)?);
        return Ok(true);
    }

    let python = Python::find(&options);
    let machine = Machine::describe(&python);
    println!("{machine}");
    let mut agree = true;
    let mut sections = Vec::new();
    for section in &options.sections {
        let text = match section {
            Section::Compare => {
                let comparison = Comparison::run(&options, &python)?;
                agree &= comparison.agree();
                comparison.to_string()
            }
            Section::Scaling => epsilon::scaling::run(&options)?,
            Section::Memory => once::memory(&options)?,
        };
        println!("{text}");
        sections.push(text);
    }
    if let Some(path) = &options.record {
        report::record(path, &machine, &options, &sections)?;
        eprintln!("recorded in {}", path.display());
    }
    Ok(agree)
}
