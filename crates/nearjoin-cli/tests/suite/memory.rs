//! The program with less memory than it would like: it finds the answer or says why not.
#![cfg(target_os = "linux")]

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::program::{Folder, Ran, rows};

/// The program with so many MiB of address space, as `ulimit -v` or a batch queue sets them.
#[allow(unsafe_code)]
fn limited(mut command: Command, mebibytes: u64) -> Ran {
    let most = mebibytes << 20;
    let limit = move || {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: it reads one struct, which is there.
        match unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec, `limit` allocates nothing and takes no lock.
    unsafe { command.pre_exec(limit) };
    // Where the tests show backtraces, what is one line has many.
    Ran::new(command.env_remove("RUST_BACKTRACE").output().expect("the program starts"))
}

/// The MiB that the program needs to start at all, which its build decides.
fn least(folder: &Folder) -> u64 {
    let starts = |mebibytes: &u64| limited(folder.command("--version"), *mebibytes).code == Some(0);
    (16..1024).step_by(8).find(starts).expect("it starts with 1 GiB")
}

/// Runs a join with ever more memory: each run ends well or with one sentence, and with plenty it
/// ends well.
fn sweep(folder: &Folder, join: &str, check: impl Fn(&Ran)) {
    let (before, least) = (folder.names(), least(folder));
    for more in [2, 8, 16, 24, 36, 60, 120, PLENTY] {
        let mebibytes = least + more;
        let ran = limited(folder.command(join), mebibytes);
        match ran.code {
            Some(0) => check(&ran),
            code => {
                let said = format!("{join}, {mebibytes} MiB: {code:?} {}", ran.errors);
                assert_eq!(code, Some(1), "{said}");
                let lines: Vec<&str> =
                    ran.errors.lines().filter(|line| !line.starts_with("note: ")).collect();
                assert!(lines.len() == 1 && lines[0].starts_with("error: "), "{said}");
                assert_eq!(folder.names(), before, "{said}");
                assert!(more < PLENTY, "{said}");
            }
        }
        for name in folder.names().iter().filter(|name| !before.contains(name)) {
            assert!(!name.contains("partial"), "{join}, {mebibytes} MiB: {name}");
            std::fs::remove_file(folder.path(name)).unwrap();
        }
    }
}

const PLENTY: u64 = 1000;

#[test]
fn little_memory_is_an_answer_or_a_sentence() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 6e4 -d 2 --seed 1 -q -o p.csv");
    for (join, output) in [
        ("within p.csv --eps 0.3 -q", "o.csv"),
        ("within p.csv --eps 0.3 -q --sorted", "o.parquet"),
        ("knn p.csv -k 4 -q", "o.parquet"),
    ] {
        let pairs = || {
            let mut pairs = rows(&folder.path(output));
            pairs.sort_by(|a, b| a.partial_cmp(b).unwrap());
            pairs
        };
        let join = format!("{join} -o {output}");
        folder.nearjoin(&join);
        let right = pairs();
        std::fs::remove_file(folder.path(output)).unwrap();
        sweep(&folder, &join, |_| assert!(pairs() == right, "{join}"));
    }
    for join in ["within p.csv --eps 0.3 -q --sorted", "knn p.csv -k 4 -q"] {
        let join = format!("{join} -o o.npz");
        folder.nearjoin(&join);
        let right = std::fs::read(folder.path("o.npz")).unwrap();
        std::fs::remove_file(folder.path("o.npz")).unwrap();
        sweep(&folder, &join, |_| {
            assert!(std::fs::read(folder.path("o.npz")).unwrap() == right, "{join}");
        });
    }
    let count = folder.nearjoin("within p.csv --eps 0.3 --count -q").said;
    sweep(&folder, "within p.csv --eps 0.3 --count -q", |ran| assert_eq!(ran.said, count));
}

#[test]
fn parts_are_announced_with_the_limit_that_needs_none() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 6e4 -d 2 --seed 1 -q -o p.npy");
    for join in ["within p.npy --eps 1.5 --sorted", "knn p.npy -k 40 --sorted"] {
        let ran = folder.nearjoin(&format!("{join} -o o.csv --memory-limit 12MiB"));
        let note = ran.errors.lines().next().unwrap();
        assert!(note.starts_with("note: rows in order are found in about "), "{note}");
        let limit = note.split("--memory-limit ").nth(1).unwrap().split(' ').next().unwrap();
        let explained = folder.nearjoin(&format!("{join} -o o.csv --memory-limit 12MiB --explain"));
        assert!(explained.said.contains("rows in order are found in about "), "{}", explained.said);
        let stats = format!("{join} -o all.csv --memory-limit {limit} --stats -");
        let whole = folder.nearjoin(&stats);
        assert!(!whole.errors.contains("note:"), "{limit}: {}", whole.errors);
        let quiet = folder.nearjoin(&format!("{join} -o q.csv --memory-limit 12MiB -q"));
        assert_eq!(quiet.errors, "");
        let read = |name| std::fs::read(folder.path(name)).unwrap();
        assert!(read("o.csv") == read("all.csv"), "{join}");
    }
}
