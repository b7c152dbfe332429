//! How a run may end early, and what it leaves behind: nothing.
#![cfg(unix)]

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{Folder, Ran};

/// Long enough for a busy machine; no run needs it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Joins into a file that take many seconds: on a GPU they might not.
const WITHIN: &str = "within p.npy --eps 10 --device cpu -o";
const KNN: &str = "knn p.npy -k 3000 -o";

/// Such a join, some of whose seconds have passed: its file has begun to grow.
fn long_join(folder: &Folder, join: &str, output: &str) -> Child {
    long_join_telling(folder, &format!("{join} {output}"), Stdio::piped())
}

fn long_join_telling(folder: &Folder, join: &str, errors: Stdio) -> Child {
    folder.nearjoin("gen uniform -n 3e5 -d 2 --seed 1 -q -o p.npy");
    let mut command = folder.command(join);
    heed_signals(&mut command);
    let child = command.stdout(Stdio::null()).stderr(errors).spawn().unwrap();
    let start = Instant::now();
    let grown = || {
        let names = folder.names();
        let file = names.iter().find(|name| name.contains("partial"));
        file.is_some_and(|name| folder.path(name).metadata().is_ok_and(|file| file.len() > 1 << 16))
    };
    while !grown() {
        assert!(start.elapsed() < PATIENCE, "no file has begun: {:?}", folder.names());
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

/// Starts the program as a terminal would. Where the tests run in the background, they ignore
/// Ctrl-C, and the program would inherit that.
#[allow(unsafe_code)]
fn heed_signals(command: &mut Command) {
    let reset = || {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: `signal` may be called between fork and exec, and the default action
            // refers to no memory.
            if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec, `reset` allocates nothing and takes no lock.
    unsafe { command.pre_exec(reset) };
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn ctrl_c_stops_and_cleans_up() {
    let joins = [(WITHIN, "o.parquet"), (WITHIN, "o.csv"), (WITHIN, "o.arrow"), (KNN, "o.csv")];
    for (join, output) in joins {
        let folder = Folder::new();
        let child = long_join(&folder, join, output);
        let start = Instant::now();
        signal(&child, "-INT");
        let ran = Ran::new(child.wait_with_output().unwrap());
        assert!(start.elapsed() < PATIENCE);
        assert_eq!(ran.code, Some(130), "{output}: {}", ran.errors);
        assert!(ran.errors.contains("interrupted: nothing was written"), "{}", ran.errors);
        assert_eq!(folder.names(), ["p.npy"], "{output}");
    }
}

#[test]
fn other_signals_stop_it_too_and_are_named() {
    for (name, code, said) in [("-TERM", 143, "terminated"), ("-HUP", 129, "hung up")] {
        let folder = Folder::new();
        let child = long_join(&folder, WITHIN, "o.csv");
        signal(&child, name);
        let ran = Ran::new(child.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(code), "{}", ran.errors);
        assert_eq!(ran.errors, format!("{said}: nothing was written\n"));
        assert_eq!(folder.names(), ["p.npy"]);
    }
}

#[test]
fn ctrl_c_stops_even_if_nobody_reads_what_is_said() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let errors = writer.try_clone().unwrap();
    // Fills the pipe, until the reader is dropped.
    let filler = std::thread::spawn(move || while writer.write_all(&[b'.'; 4096]).is_ok() {});
    std::thread::sleep(Duration::from_millis(200));
    let folder = Folder::new();
    let join = format!("{WITHIN} o.csv --progress always");
    let mut child = long_join_telling(&folder, &join, errors.into());
    let start = Instant::now();
    signal(&child, "-INT");
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    drop(reader);
    filler.join().unwrap();
    assert_eq!(code, Some(130));
    assert_eq!(folder.names(), ["p.npy"]);
}

#[test]
fn a_run_under_nohup_goes_on() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 3e5 -d 2 --seed 1 -q -o p.npy");
    let program = env!("CARGO_BIN_EXE_nearjoin");
    let script = format!(
        "trap '' HUP; '{program}' within p.npy --eps 3 -q -o o.parquet & \
         sleep 0.3; kill -HUP $!; wait $!; echo $?"
    );
    let mut bash = Command::new("bash");
    let ran = Ran::new(bash.args(["-c", &script]).current_dir(&folder.0).output().unwrap());
    assert_eq!(ran.said, "0\n", "{}", ran.errors);
    assert_eq!(folder.names(), ["o.parquet", "p.npy"]);
}

#[test]
fn an_interrupted_stream_says_that_it_is_incomplete() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 3e5 -d 2 --seed 1 -q -o p.npy");
    let out = std::fs::File::create(folder.path("stream")).unwrap();
    let mut command = folder.command("within p.npy --eps 10 --device cpu");
    heed_signals(&mut command);
    let child = command.stdout(out).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while folder.path("stream").metadata().unwrap().len() < 1 << 16 {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(&child, "-TERM");
    let ran = Ran::new(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(143), "{}", ran.errors);
    assert!(ran.errors.contains("standard output is incomplete"), "{}", ran.errors);
}

#[test]
fn a_kill_leaves_nothing_under_the_final_name() {
    let folder = Folder::new();
    let mut child = long_join(&folder, WITHIN, "o.parquet");
    signal(&child, "-KILL");
    child.wait().unwrap();
    let left = folder.names();
    assert_eq!(left, [".o.parquet.0.partial", "p.npy"]);
    // The next run that writes this name removes what was left, and keeps what is in use. Its
    // file can be told from the one before.
    folder.write(".o.parquet.0.partial", "");
    let mut running = long_join(&folder, WITHIN, "o.parquet");
    assert_eq!(folder.names(), left);
    folder.nearjoin("within p.npy --eps 0.01 -q -o o.parquet");
    assert_eq!(folder.names(), [".o.parquet.0.partial", "o.parquet", "p.npy"]);
    signal(&running, "-KILL");
    running.wait().unwrap();
    folder.nearjoin("within p.npy --eps 0.01 -q -o o.parquet");
    assert_eq!(folder.names(), ["o.parquet", "p.npy"]);
    // A name that was there keeps what it held.
    folder.write("o.parquet", "as it was");
    let mut child = long_join(&folder, WITHIN, "o.parquet");
    signal(&child, "-KILL");
    child.wait().unwrap();
    assert_eq!(std::fs::read_to_string(folder.path("o.parquet")).unwrap(), "as it was");
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 1e5 -d 2 --seed 1 -q -o p.npy");
    for arguments in
        ["within p.npy --eps 2", "within p.npy --eps 2 --degrees", "knn p.npy -k 9", "demo -n 1000"]
    {
        let program = env!("CARGO_BIN_EXE_nearjoin");
        let script = format!("'{program}' {arguments} | head -c 10 >head; echo ${{PIPESTATUS[0]}}");
        let mut bash = Command::new("bash");
        let ran = Ran::new(bash.args(["-c", &script]).current_dir(&folder.0).output().unwrap());
        assert_eq!(ran.said, "0\n", "{arguments}: {}", ran.errors);
        assert_eq!(ran.errors, "", "{arguments}");
    }
}

#[test]
fn a_disk_that_is_full_is_one_error() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 1e5 -d 2 --seed 1 -q -o p.npy");
    let program = env!("CARGO_BIN_EXE_nearjoin");
    for output in ["o.parquet", "o.csv", "o.arrow", "o.npz"] {
        // A limit on the size of files stands in for the end of the disk.
        let limited = format!("ulimit -f 64; exec '{program}'");
        let script = format!("{limited} within p.npy --eps 2 -o {output}");
        let mut bash = Command::new("bash");
        let ran = Ran::new(bash.args(["-c", &script]).current_dir(&folder.0).output().unwrap());
        assert_eq!(ran.code, Some(1), "{output}: {}", ran.errors);
        let expected = format!("error: {output} could not be written: File too large");
        assert!(ran.errors.starts_with(&expected), "{output}: {}", ran.errors);
        assert_eq!(ran.errors.lines().count(), 1, "{}", ran.errors);
        assert_eq!(folder.names(), ["p.npy"], "{output}");
    }
}

/// Wherever the memory ends, the run ends with a sentence or with its answer.
#[test]
fn refused_memory_is_one_error() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 2e5 -d 2 --seed 1 -q -o p.npy");
    let program = env!("CARGO_BIN_EXE_nearjoin");
    let join = format!("'{program}' within p.npy --eps 0.3 --device cpu --threads 2 -q -o o.csv");
    let mut refused = 0;
    for megabytes in [32, 34, 36, 40, 45, 50, 60, 70, 80, 110, 140, 170, 200, 250, 300, 400] {
        let script = format!("ulimit -v {}; exec {join}", megabytes * 1000);
        let mut bash = Command::new("bash");
        let ran = Ran::new(bash.args(["-c", &script]).current_dir(&folder.0).output().unwrap());
        match ran.code {
            Some(0) => std::fs::remove_file(folder.path("o.csv")).unwrap(),
            // The program has not begun.
            Some(127) if ran.errors.contains("error while loading shared libraries") => {}
            code => {
                assert_eq!(code, Some(1), "{megabytes}: {}", ran.errors);
                assert!(ran.errors.starts_with("error: "), "{megabytes}: {}", ran.errors);
                assert_eq!(ran.errors.lines().count(), 1, "{megabytes}: {}", ran.errors);
                refused += u32::from(ran.errors.contains("the system refused"));
            }
        }
        assert_eq!(folder.names(), ["p.npy"], "{megabytes}");
    }
    assert!(refused > 0);
}

/// Threads are refused from the first, from a later one, or not at all. Root has no such limit, so
/// the test becomes a user that has no processes.
#[allow(unsafe_code)]
#[test]
fn refused_threads_are_one_error_or_none() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 2e4 -d 2 --seed 1 -q -o p.npy");
    // SAFETY: it has no preconditions.
    if unsafe { libc::getuid() } != 0 {
        return;
    }
    std::fs::copy(env!("CARGO_BIN_EXE_nearjoin"), folder.path("program")).unwrap();
    std::os::unix::fs::chown(&folder.0, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut went_well = 0;
    for most in 1..12 {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        let mut command = Command::new(folder.path("program"));
        let join = "within p.npy --eps 1 --device cpu --threads 4 --sorted -q -o o.csv";
        command.args(join.split_whitespace()).current_dir(&folder.0).uid(NOBODY).gid(NOBODY);
        let limit = move || {
            // SAFETY: the limit is a valid structure.
            match unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &limit) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: between fork and exec, `limit` allocates nothing and takes no lock.
        unsafe { command.pre_exec(limit) };
        // Where tests run in a container, that user may be refused altogether.
        let Ok(output) = command.output() else { return };
        let ran = Ran::new(output);
        match ran.code {
            Some(0) => {
                went_well += 1;
                std::fs::remove_file(folder.path("o.csv")).unwrap();
            }
            code => {
                assert_eq!(code, Some(1), "{most}: {}", ran.errors);
                assert_eq!(ran.errors.lines().count(), 1, "{most}: {}", ran.errors);
                assert!(ran.errors.contains("thread"), "{most}: {}", ran.errors);
            }
        }
        assert_eq!(folder.names(), ["p.npy", "program"], "{most}");
    }
    assert!(went_well > 0, "with few threads it goes on");
}

/// A user that runs nothing else.
const NOBODY: u32 = 64_231;

#[test]
fn a_closed_standard_output_is_an_error() {
    let folder = Folder::new();
    folder.write("p.csv", "x,y\n0,0\n0.3,0.4\n");
    let program = env!("CARGO_BIN_EXE_nearjoin");
    let run = |arguments: &str| {
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("exec '{program}' {arguments}")]).current_dir(&folder.0);
        Ran::new(bash.output().unwrap())
    };
    let join = "within p.csv --eps 1 -q";
    for command in [
        join,
        &format!("{join} --count"),
        &format!("{join} -o o.csv --stats -"),
        &format!("{join} --explain"),
        "estimate p.csv -q",
        "info",
        "--help",
    ] {
        let ran = run(&format!("{command} >&-"));
        assert_eq!(ran.code, Some(1), "{command}: {}", ran.errors);
        assert!(ran.errors.starts_with("error: standard output is closed"), "{}", ran.errors);
        assert_eq!(folder.names(), ["p.csv"], "{command}");
        // Nobody reads these, and that is known.
        for null in [">/dev/null", "1<>/dev/null"] {
            let ran = run(&format!("{command} {null}"));
            assert_eq!(ran.code, Some(0), "{command} {null}: {}", ran.errors);
        }
        let _ = std::fs::remove_file(folder.path("o.csv"));
    }
    let ran = run(&format!("{join} -o o.csv >&-"));
    assert_eq!((ran.code, ran.errors.as_str()), (Some(0), ""));
}
