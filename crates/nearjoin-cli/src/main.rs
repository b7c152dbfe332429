//! The command-line program: arguments → options → run → report.

#[cfg(unix)]
mod allocator;
mod args;
#[cfg(unix)]
mod bare;
mod calibrate;
mod demo;
mod documents;
mod estimate;
mod failure;
mod generate;
mod grouping;
mod info;
mod interrupt;
mod join;
mod load;
mod memory;
mod number;
mod options;
mod ordered;
mod output;
mod page;
mod planner;
mod plot;
mod progress;
mod question;
mod report;
mod rows;
mod sharing;
mod sphere;
mod stats;
mod system;
mod tally;
mod telling;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::question::Asked;

fn main() -> ExitCode {
    memory::limit_arenas();
    interrupt::outlive_large_files();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run() -> failure::Result {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help, or what is wrong with the arguments.
        Err(said) if said.use_stderr() => failure::in_arguments(said).exit(),
        Err(said) => {
            failure::check_stdout()?;
            said.exit()
        }
    };
    match cli.command {
        Command::Within(args) => join::run(Asked::from(&args)),
        Command::Knn(args) => join::run(Asked::from(&args)),
        Command::Dbscan(args) => join::run(Asked::from(&args)),
        Command::Components(args) => join::run(Asked::from(&args)),
        Command::Estimate(args) => estimate::run(&args),
        Command::Gen(args) => generate::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Completions { shell } => documents::completions(shell),
        Command::Man { folder } => documents::man(&folder),
    }
}
