//! The man pages and the completions, made from the definitions of the arguments.

use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use nearjoin_io::quote;

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
        return Err(Failure::failed(format!("there is no folder {}", quote::path(folder))));
    }
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let mut pages = vec![program.clone().display_name("nearjoin")];
    pages.extend(program.get_subcommands().cloned());
    for page in pages {
        let name = page.get_display_name().unwrap_or_else(|| page.get_name()).to_string();
        let path = folder.join(format!("{name}.1"));
        let mut text = Vec::new();
        render(page, &mut text).and_then(|()| std::fs::write(&path, text)).map_err(|error| {
            Failure::failed(format!("{} could not be written: {error}", quote::path(&path)))
        })?;
    }
    Ok(())
}

/// A page with the sections that readers of man pages look for.
fn render(command: Command, to: &mut Vec<u8>) -> io::Result<()> {
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_commands = command.has_subcommands();
    let man = Man::new(command);
    man.render_title(to)?;
    man.render_name_section(to)?;
    man.render_synopsis_section(to)?;
    man.render_description_section(to)?;
    man.render_options_section(to)?;
    if has_commands {
        man.render_subcommands_section(to)?;
    }
    // As it stands: a filled example cannot be copied.
    writeln!(to, ".SH EXAMPLES\n.nf")?;
    for line in
        examples.lines().filter(|line| !line.ends_with("xamples:") && !line.ends_with("xample:"))
    {
        writeln!(to, "\\&{}", line.replace('\\', "\\\\").replace('-', "\\-"))?;
    }
    writeln!(to, ".fi\n.SH EXIT STATUS")?;
    for (code, meaning) in [
        ("0", "All went well, or whoever read standard output had enough."),
        ("1", "Failure: the error says what, where, and what to do."),
        ("2", "Wrong usage."),
        ("130", "Interrupted."),
    ] {
        writeln!(to, ".TP\n{code}\n{meaning}")?;
    }
    writeln!(
        to,
        ".SH ENVIRONMENT\n.TP\nNEARJOIN_SIMD\nscalar, avx2, avx512 or amx forces an instruction set, \
         for tests. The answer never depends on it.\n.TP\nNEARJOIN_CALIBRATION\nthe file in which \
         nearjoin info \\-\\-calibrate keeps how fast this machine is, and from which plans know it; \
         set to nothing, there is none. Without it, that is nearjoin/calibration in XDG_CONFIG_HOME \
         or ~/.config. The answer never depends on it."
    )
}
