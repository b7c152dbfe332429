//! What is told of a run while it goes on.

#[cfg(target_os = "linux")]
use std::process::{Command, Stdio};

use crate::program::Folder;
#[cfg(target_os = "linux")]
use crate::program::Ran;

#[test]
fn progress_can_be_forced() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 3e5 -d 2 -o p.npy -q");
    for join in ["within p.npy --eps 2 --degrees -o d.parquet", "knn p.npy -k 8 -o n.npz"] {
        // Where no line can be drawn over another, each is one of its own.
        let ran = folder.nearjoin(&format!("{join} --progress always"));
        assert!(ran.errors.lines().count() > 1, "{}", ran.errors);
        assert!(!ran.errors.contains(['\r', '\x1b']), "{}", ran.errors);
        let ran = folder.nearjoin(join);
        assert_eq!(ran.errors.lines().count(), 1, "{}", ran.errors);
    }
}

/// `script` makes a terminal.
#[cfg(target_os = "linux")]
#[test]
fn the_line_fits_the_terminal() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 1e5 -d 2 -o points-with-a-name-that-is-rather-long.npy -q");
    let program = env!("CARGO_BIN_EXE_nearjoin");
    let join = "within points-with-a-name-that-is-rather-long.npy --eps 3 --device cpu -q -o o.csv";
    let on = |terminal: &str, columns: usize| {
        let line =
            format!("stty rows 24 cols {columns}; exec '{program}' {join} --progress always");
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(&folder.0).env("TERM", terminal);
        script.stdin(Stdio::null()).output().ok().map(Ran::new)
    };
    for columns in [80, 30] {
        let Some(ran) = on("xterm", columns) else { return };
        assert_eq!(ran.code, Some(0), "{}", ran.said);
        let plain = ran.said.replace("\x1b[2K", "\r");
        let lines: Vec<_> = plain.split(['\r', '\n']).filter(|line| !line.is_empty()).collect();
        assert!(lines.iter().any(|line| line.contains("joining")), "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= columns), "{lines:?}");
    }
    let ran = on("dumb", 80).expect("as before");
    assert!(!ran.said.contains('\x1b'), "{}", ran.said);
}
