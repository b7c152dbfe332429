//! Files appear complete or not at all.

use std::error::Error as _;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use nearjoin_io::write::{
    NpzCsr, NpzNeighbors, PairColumns, PairWriter, Target, remove_unfinished, write_degrees,
};
use nearjoin_io::{Error, OutputFormat};

use crate::write_check::{Folder, TABLES, in_time};

/// Hands in `pairs` pairs, many rows at a time.
fn write(target: Target, format: OutputFormat, pairs: u64) -> nearjoin_io::Result<()> {
    let columns = PairColumns { memory: 1 << 20, threads: 2, ..PairColumns::default() };
    let mut writer = PairWriter::<f64>::new(target, format, columns)?;
    let ids: Vec<u32> = (0..10_000u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    for row in 0..pairs / 10_000 {
        writer.rows(row as u32, &[0, 10_000], &ids, None)?;
    }
    writer.finish().map(|_| ())
}

fn kind(error: &Error) -> Option<io::ErrorKind> {
    error.source()?.downcast_ref::<io::Error>().map(io::Error::kind)
}

#[test]
fn the_old_file_stays_until_the_new_one_is_complete() {
    let folder = Folder::new();
    let path = folder.file("out.csv");
    fs::write(&path, "old").unwrap();
    let mut target = Target::create(&path).unwrap();
    target.write_all(b"new").unwrap();
    let files = folder.files();
    assert!(files[0].starts_with(".out.csv.") && files[0].ends_with(".partial"), "{files:?}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(target.commit().unwrap(), 3);
    assert_eq!(fs::read(&path).unwrap(), b"new");

    let mut dropped = Target::create(&path).unwrap();
    dropped.write_all(b"newer").unwrap();
    drop(dropped);
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(folder.files(), ["out.csv"]);
}

#[test]
fn two_targets_of_one_name_do_not_meet() {
    let folder = Folder::new();
    let mut one = Target::create(folder.file("out")).unwrap();
    let mut two = Target::create(folder.file("out")).unwrap();
    one.write_all(b"one").unwrap();
    two.write_all(b"two").unwrap();
    one.commit().unwrap();
    two.commit().unwrap();
    assert_eq!(fs::read(folder.file("out")).unwrap(), b"two");
    assert_eq!(folder.files(), ["out"]);
}

#[test]
fn places_where_no_file_can_be_are_refused_at_once() {
    let folder = Folder::new();
    let missing = folder.file("no/such/folder/out.csv");
    let error = Target::create(&missing).unwrap_err();
    assert_eq!(kind(&error), Some(io::ErrorKind::NotFound));
    assert_eq!(
        error.to_string(),
        format!(
            "{} could not be written: there is no folder {}",
            missing.display(),
            missing.parent().unwrap().display()
        )
    );
    let error = Target::create("no-such-folder/out.csv").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no-such-folder/out.csv could not be written: there is no folder no-such-folder"
    );

    let error = Target::create(folder.path()).unwrap_err();
    assert_eq!(kind(&error), Some(io::ErrorKind::IsADirectory));

    let guarded = folder.file("guarded");
    fs::write(&guarded, "mine").unwrap();
    let mut permissions = fs::metadata(&guarded).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&guarded, permissions).unwrap();
    let error = Target::create(&guarded).unwrap_err();
    assert_eq!(kind(&error), Some(io::ErrorKind::PermissionDenied));
    assert_eq!(folder.files(), ["guarded"]);
}

#[cfg(unix)]
#[test]
fn links_and_permissions_are_as_for_any_new_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    fs::write(folder.file("real"), "old").unwrap();
    std::os::unix::fs::symlink("real", folder.file("link")).unwrap();
    let mut target = Target::create(folder.file("link")).unwrap();
    target.write_all(b"new").unwrap();
    target.commit().unwrap();
    assert!(fs::symlink_metadata(folder.file("link")).unwrap().is_symlink());
    assert_eq!(fs::read(folder.file("real")).unwrap(), b"new");
    fs::write(folder.file("other"), "").unwrap();
    let mode = |name| fs::metadata(folder.file(name)).unwrap().permissions().mode();
    assert_eq!(mode("real"), mode("other"));
}

#[cfg(unix)]
#[test]
fn a_link_to_what_is_not_there_yet_is_kept() {
    let folder = Folder::new();
    let link = |to: &str, name| std::os::unix::fs::symlink(to, folder.file(name)).unwrap();
    fs::create_dir(folder.file("inner")).unwrap();
    link("inner/second", "first");
    link("../real", "inner/second");
    let mut target = Target::create(folder.file("first")).unwrap();
    target.write_all(b"new").unwrap();
    target.commit().unwrap();
    assert_eq!(folder.files(), ["first", "inner", "real"]);
    assert!(fs::symlink_metadata(folder.file("first")).unwrap().is_symlink());
    assert!(fs::symlink_metadata(folder.file("inner/second")).unwrap().is_symlink());
    assert_eq!(fs::read(folder.file("first")).unwrap(), b"new");

    link("absent/real", "astray");
    let error = Target::create(folder.file("astray")).unwrap_err().to_string();
    assert!(error.contains("there is no folder ") && error.ends_with("/absent"), "{error}");
    link("circle", "circle");
    assert!(Target::create(folder.file("circle")).is_err());
}

#[cfg(unix)]
#[test]
fn a_file_that_is_replaced_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    for mode in [0o600, 0o664, 0o755] {
        let path = folder.file("out");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let mut target = Target::create(&path).unwrap();
        let partial = folder.file(&folder.files()[0]);
        assert_eq!(fs::metadata(partial).unwrap().permissions().mode() & 0o777, mode);
        target.write_all(b"new").unwrap();
        target.commit().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}

#[test]
fn a_name_may_be_as_long_as_names_can_be() {
    let folder = Folder::new();
    let name = "n".repeat(251) + ".csv";
    let mut target = Target::create(folder.file(&name)).unwrap();
    target.write_all(b"new").unwrap();
    target.commit().unwrap();
    assert_eq!(folder.files(), [name]);
}

#[test]
fn a_dropped_writer_leaves_nothing() {
    for format in TABLES {
        let folder = Folder::new();
        let target = Target::create(folder.file("out")).unwrap();
        let columns = PairColumns { memory: 0, threads: 3, ..PairColumns::default() };
        let mut writer = PairWriter::<f32>::new(target, format, columns).unwrap();
        writer.rows(0, &[0, 100_000], &vec![7; 100_000], None).unwrap();
        in_time(move || drop(writer));
        assert!(folder.files().is_empty(), "{format:?}");
    }
}

#[test]
fn a_full_disk_is_one_error_and_leaves_nothing() {
    for format in TABLES {
        for room in [0, 3, 100, 10_000, 1_000_000] {
            let folder = Folder::new();
            let target = Target::create(folder.file("out")).unwrap().with_room(room);
            let error = in_time(move || write(target, format, 2_000_000)).unwrap_err();
            assert_eq!(kind(&error), Some(io::ErrorKind::StorageFull), "{format:?} {room}");
            let name = folder.file("out").display().to_string();
            assert!(error.to_string().starts_with(&name), "{error}");
            assert!(folder.files().is_empty());
        }
    }
}

#[test]
fn every_byte_that_is_missing_is_noticed() {
    let folder = Folder::new();
    for format in TABLES {
        let path = folder.file("whole");
        write(Target::create(&path).unwrap(), format, 20_000).unwrap();
        let bytes = fs::metadata(&path).unwrap().len();
        fs::remove_file(&path).unwrap();
        for missing in [1, 4, 12, 300] {
            let target = Target::create(&path).unwrap().with_room(bytes - missing);
            let error = write(target, format, 20_000).unwrap_err();
            assert_eq!(kind(&error), Some(io::ErrorKind::StorageFull), "{format:?} {missing}");
        }
        write(Target::create(&path).unwrap().with_room(bytes), format, 20_000).unwrap();
        fs::remove_file(&path).unwrap();
    }
    assert!(folder.files().is_empty());
}

#[test]
fn a_full_disk_under_arrays() {
    let folder = Folder::new();
    for room in [0, 70, 5_000, 700_000, 800_900] {
        let target = Target::create(folder.file("out.npz")).unwrap().with_room(room);
        let write = || {
            let mut writer = NpzCsr::<f32>::new(target, 1, 9, 100_000, true)?;
            writer.rows(&[0, 100_000], &[1; 100_000], Some(&[0.5; 100_000]))?;
            writer.finish()
        };
        assert_eq!(kind(&write().unwrap_err()), Some(io::ErrorKind::StorageFull), "{room}");
        let target = Target::create(folder.file("out.npz")).unwrap().with_room(room);
        let write = || {
            let mut writer = NpzNeighbors::<f32>::new(target, 2, 60_000)?;
            writer.rows(&[0, 60_000, 100_000], &[1; 100_000], &[0.5; 100_000])?;
            writer.finish()
        };
        assert_eq!(kind(&write().unwrap_err()), Some(io::ErrorKind::StorageFull), "{room}");
        let target = Target::create(folder.file("out.npz")).unwrap().with_room(room);
        let degrees = write_degrees(target, OutputFormat::Npz, None, &vec![1; 110_000]);
        assert_eq!(kind(&degrees.unwrap_err()), Some(io::ErrorKind::StorageFull), "{room}");
    }
    assert!(folder.files().is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn a_device_is_written_and_not_replaced() {
    for format in TABLES {
        let target = Target::create("/dev/full").unwrap();
        let error = in_time(move || write(target, format, 1_000_000)).unwrap_err();
        assert_eq!(kind(&error), Some(io::ErrorKind::StorageFull));
        let expected = "/dev/full could not be written: No space left on device";
        assert!(error.to_string().starts_with(expected), "{error}");
        write(Target::create("/dev/null").unwrap(), format, 100_000).unwrap();
    }
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    let error = NpzCsr::<f32>::new(Target::create("/dev/null").unwrap(), 0, 0, 0, false);
    assert!(error.unwrap_err().to_string().contains("cannot be written to a pipe"));
}

/// An ignored test of this binary, as a process of its own: what it does belongs to the
/// whole process.
fn child(name: &str, folder: &Folder) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("NEARJOIN_TEST_FOLDER", folder.path());
    command
}

#[test]
fn after_a_removal_nothing_is_committed() {
    let folder = Folder::new();
    let output = child("write_target::removal", &folder).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert_eq!(folder.files(), ["before"]);
}

#[test]
#[ignore = "run by after_a_removal_nothing_is_committed, in a process of its own"]
fn removal() {
    let folder = std::path::PathBuf::from(std::env::var("NEARJOIN_TEST_FOLDER").unwrap());
    Target::create(folder.join("before")).unwrap().commit().unwrap();
    let target = Target::create(folder.join("plain")).unwrap();
    let pairs = Target::create(folder.join("pairs")).unwrap();
    let columns = PairColumns { memory: 0, ..PairColumns::default() };
    let mut writer = PairWriter::<f32>::new(pairs, OutputFormat::Parquet, columns).unwrap();
    writer.rows(0, &[0, 100_000], &vec![7; 100_000], None).unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
    remove_unfinished();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    let message = target.commit().unwrap_err().to_string();
    assert!(message.contains("interrupted"), "{message}");
    assert!(writer.finish().is_err());
    assert!(Target::create(folder.join("after")).is_err());
}

/// Files of other processes, as this one sees them: some are locked.
#[cfg(unix)]
#[test]
fn abandoned_files_go_and_live_ones_stay() {
    let folder = Folder::new();
    for number in 0..5 {
        fs::write(folder.file(&format!(".out.{number}.partial")), "left").unwrap();
    }
    fs::write(folder.file(".other.0.partial"), "left").unwrap();
    let alive = fs::File::open(folder.file(".out.0.partial")).unwrap();
    alive.lock().unwrap();
    let also_alive = fs::File::open(folder.file(".out.3.partial")).unwrap();
    also_alive.lock().unwrap();
    let first = Target::create(folder.file("out")).unwrap();
    let live = [".other.0.partial", ".out.0.partial", ".out.1.partial", ".out.3.partial"];
    assert_eq!(folder.files(), live);
    // Within a process too.
    let second = Target::create(folder.file("out")).unwrap();
    assert_eq!(folder.files().len(), 5);
    first.commit().unwrap();
    drop(second);
    assert_eq!(folder.files(), [live[0], live[1], live[3], "out"]);
    assert_eq!(fs::read(folder.file(".out.0.partial")).unwrap(), b"left");
    drop((alive, also_alive));
    Target::create(folder.file("out")).unwrap().commit().unwrap();
    assert_eq!(folder.files(), [".other.0.partial", "out"]);
}

#[test]
fn a_closed_pipe_is_told_as_such() {
    let folder = Folder::new();
    let mut child = child("write_target::closed_pipe", &folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    drop(child.stdout.take());
    child.stdin.take().unwrap().write_all(b"go").unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    child.wait().unwrap();
    assert_eq!(rest, "Some(BrokenPipe)\n");
}

#[test]
#[ignore = "run by a_closed_pipe_is_told_as_such, in a process of its own"]
fn closed_pipe() {
    eprintln!("ready");
    io::stdin().read_exact(&mut [0; 2]).unwrap();
    let error = write(Target::stdout(), OutputFormat::Csv, 1_000_000).unwrap_err();
    eprintln!("{:?}", kind(&error));
    // The harness would stumble over the closed pipe.
    std::process::exit(0);
}
