//! The command-line program: arguments → options → run → report.

mod args;
mod demo;
mod documents;
mod estimate;
mod failure;
mod generate;
mod info;
mod interrupt;
mod load;
mod number;
mod options;
mod output;
mod plot;
mod progress;
mod report;
mod stats;
mod system;
mod telling;
mod within;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Within(args) => within::run(&args),
        Command::Knn(_) => Err(Failure::failed(
            "knn is not available in the program yet: the library has the KNN engine (KnnJoin). \
             nearjoin within finds all neighbours within a distance, and nearjoin estimate tells \
             which distance gives how many",
        )),
        Command::Estimate(args) => estimate::run(&args),
        Command::Gen(args) => generate::run(&args),
        Command::Info => info::run(),
        Command::Demo(args) => demo::run(&args),
        Command::Completions { shell } => documents::completions(shell),
        Command::Man { folder } => documents::man(&folder),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
