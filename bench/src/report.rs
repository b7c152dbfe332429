//! What the reports of both joins share: the peers beside us, and the record.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::args::Options;
use crate::machine::Machine;
use crate::peers::Peer;
use crate::table::{Table, seconds, times};

/// One case: our time for an answer, and the peers that were asked for it.
pub(crate) struct Beside<'a, Found> {
    pub(crate) name: &'static str,
    pub(crate) ours: f64,
    /// The first call of a fresh process, if it gave this answer.
    pub(crate) first: Option<f64>,
    pub(crate) peers: Vec<&'a Peer<Found>>,
}

/// A column for each peer that ran, and the ratio of the fastest; none if none ran.
pub(crate) fn peers_table<Found>(title: &str, rows: &[Beside<'_, Found>]) -> Option<Table> {
    let mut names: Vec<&str> = Vec::new();
    for peer in rows.iter().flat_map(|row| &row.peers) {
        if peer.seconds().is_some() && !names.contains(&peer.name) {
            names.push(peer.name);
        }
    }
    if names.is_empty() {
        return None;
    }
    let mut heads = vec![title, "nearjoin"];
    heads.extend(&names);
    heads.extend(["fastest peer ÷ nearjoin", "÷ first call"]);
    let mut table = Table::new(&heads);
    for row in rows {
        let fastest = row.peers.iter().filter_map(|peer| peer.seconds()).reduce(f64::min);
        let mut cells = vec![row.name.to_owned(), seconds(Some(row.ours))];
        for &name in &names {
            let peer = row.peers.iter().find(|peer| peer.name == name);
            cells.push(seconds(peer.and_then(|peer| peer.seconds())));
        }
        cells.extend([times(fastest, Some(row.ours)), times(fastest, row.first)]);
        table.row(cells);
    }
    Some(table)
}

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
