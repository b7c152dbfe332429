//! The record: the sections in a file.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::args::Options;
use crate::machine::Machine;

/// Writes the sections with the machine above them.
pub(crate) fn record(
    path: &Path,
    machine: &Machine,
    options: &Options,
    sections: &[String],
) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let name = path.file_stem().map_or("benchmark".into(), |name| name.to_string_lossy());
    let command = format!("nearjoin-bench {}", options.command);
    let body = sections.join("\n");
    fs::write(path, format!("# {name}\n\n`{}`\n\n{machine}\n{body}", command.trim()))?;
    Ok(())
}
