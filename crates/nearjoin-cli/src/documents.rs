//! The man pages and the completions, made from the definitions of the arguments.

use std::path::Path;

use clap::CommandFactory;

use crate::args::Cli;
use crate::failure::{Failure, Result, say};

/// Prints the completions for a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "nearjoin", &mut script);
    say(String::from_utf8_lossy(&script).trim_end())
}

/// Writes `nearjoin.1`, `nearjoin-within.1` and so on.
pub(crate) fn man(folder: &Path) -> Result {
    if !folder.is_dir() {
        return Err(Failure::failed(format!("there is no folder {}", folder.display())));
    }
    clap_mangen::generate_to(Cli::command(), folder)
        .map_err(|error| Failure::failed(format!("the man pages could not be written: {error}")))
}
