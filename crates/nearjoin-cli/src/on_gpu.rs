//! Every shape of output from a GPU, compared with the CPU's: the kernels run on the CPU.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use clap::Parser;
use nearjoin::{Device, Monitor, Partitioning, PointsBuf};
use nearjoin_simt::Simt;

use super::*;
use crate::args::{Cli, Command, Shape};
use crate::generate;
use crate::question::{Answer, Asked};

/// Rows as a file has them, in order, and what happened.
fn joined(arguments: &str, points: &PointsBuf<f64>, tally: bool) -> (Vec<String>, Outcome) {
    joined_on(Simt::new(), arguments, points, tally).unwrap()
}

/// The same on a device of its own, which may fail.
fn joined_on(
    simt: Simt,
    arguments: &str,
    points: &PointsBuf<f64>,
    tally: bool,
) -> Result<(Vec<String>, Outcome)> {
    let line = format!("nearjoin {arguments} p.npy --eps 0.5");
    let command = Cli::parse_from(line.split_whitespace()).command;
    let asked = match &command {
        Command::Within(args) => Asked::from(args),
        Command::Dbscan(args) => Asked::from(args),
        Command::Components(args) => Asked::from(args),
        _ => panic!("{line}"),
    };
    asked.check_device().unwrap();
    let board = Board::default();
    let planner = Planner::new(&asked, &Monitor::new(), 2).on(Arc::new(simt));
    planner.check().unwrap();
    let job = Job {
        planner: &planner,
        left: points.as_points(),
        right: None,
        columns: PairColumns {
            left: None,
            right: None,
            rank: false,
            distances: asked.question.distances(),
            half: asked.question.half(),
            memory: 1 << 20,
            threads: 1,
        },
        sorted: asked.sorted,
        tally,
        memory: Memory::new(None, &Output::Count, 1),
        quiet: true,
        board: &board,
    };
    let plan = job.plan().unwrap();
    if asked.engine.device != Device::Hybrid {
        assert_eq!(plan.device(), asked.engine.device, "{line}");
    }
    plan.check_memory().unwrap();
    let path = place();
    let place = Place::File(path.clone(), OutputFormat::Csv);
    let output = match asked.answer {
        Answer::Count => Output::Count,
        Answer::Degrees => Output::Degrees(place),
        Answer::Pairs => Output::Pairs(place),
        Answer::Groups(grouping) => Output::Groups(grouping, place),
    };
    let outcome = job.deliver(&plan, open(&output)?)?;
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    if !asked.sorted {
        lines.sort_unstable();
    }
    Ok((lines, outcome))
}

fn place() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("nearjoin-gpu-{}-{}.csv", std::process::id(), NUMBER.fetch_add(1, Relaxed));
    std::env::temp_dir().join(name)
}

#[test]
fn files_are_the_same_from_either_device() {
    let points = generate::points::<f64>(Shape::Clustered, 800, 2, 3).unwrap();
    // What both devices are asked, and what only the GPU is.
    for (asked, how) in [
        ("within", ""),
        ("within --half", ""),
        ("within --distances --half", ""),
        ("within --sorted --distances", ""),
        ("within --degrees", ""),
        ("components", ""),
        ("dbscan --min-points 4", ""),
        ("dbscan --min-points 400", ""),
        ("dbscan --min-points 4", "--cooperation warp --batch-size 20KB"),
        ("within --degrees --include-self", ""),
        (
            "within",
            "--cooperation thread --threads-per-query 4 --schedule work-queue --batch-size 20KB",
        ),
        ("within --half", "--cooperation thread --duplicate-removal linear-coord"),
        ("within --sorted --strategy directory", "--cooperation warp"),
    ] {
        let arguments = format!("{asked} {how}");
        let (expected, cpu) = joined(&format!("{asked} --device cpu"), &points, true);
        let (found, gpu) = joined(&format!("{arguments} --device gpu"), &points, true);
        assert!(expected.len() > 100, "{arguments}");
        assert_eq!(found, expected, "{arguments}");
        assert_eq!((gpu.pairs, gpu.groups, cpu.gpu), (cpu.pairs, cpu.groups, None), "{arguments}");
        let told = gpu.gpu.unwrap();
        assert_eq!((told.device.as_str(), told.partitions), ("simt", 1), "{arguments}");
        assert!(told.bytes_in >= 800 * 16 && told.bytes_out > 0, "{arguments}: {told:?}");
        for named in Partitioning::ALL.iter().filter(|name| **name != Partitioning::Auto) {
            let arguments = format!("{arguments} --device hybrid --partitioning {named}");
            let (found, both) = joined(&arguments, &points, true);
            assert_eq!(found, expected, "{arguments}");
            assert_eq!(both.pairs, cpu.pairs, "{arguments}");
            let told = both.hybrid.unwrap();
            assert_eq!((told.partitioning, told.lost), (Some(*named), None), "{arguments}");
        }
        let (found, both) = joined(&format!("{arguments} --device hybrid"), &points, true);
        assert_eq!((found, both.pairs), (expected, cpu.pairs), "{arguments}");
    }
}

#[test]
fn the_nearest_are_shared_as_it_is_told() {
    let points = generate::points::<f64>(Shape::Clustered, 800, 2, 3).unwrap();
    let run = |arguments: &str| {
        let line = format!("nearjoin knn p.npy -k 4 {arguments}");
        let Command::Knn(args) = Cli::parse_from(line.split_whitespace()).command else {
            panic!("{line}")
        };
        let asked = Asked::from(&args);
        asked.check_device().unwrap();
        let planner = Planner::new(&asked, &Monitor::new(), 2).on(Arc::new(Simt::new()));
        let mut found = nearjoin::Neighbors::new();
        let stats = planner.plan(&points.as_points(), None).unwrap().run(&mut found).unwrap();
        (found, stats)
    };
    let (expected, _) = run("--device cpu");
    for named in [Partitioning::Dyn, Partitioning::StaticQueries] {
        let (found, stats) = run(&format!("--device hybrid --partitioning {named}"));
        assert!(found == expected, "{named}");
        assert_eq!(stats.hybrid.unwrap().partitioning, Some(named));
    }
    let (found, stats) = run("--device gpu --rescue --batch-size 4KB --gpu-memory 200MB");
    assert!(found == expected && stats.gpu.is_some());
}

/// A file has every pair once, however late the GPU is lost; unless it was named, and the CPU is
/// not to step in.
#[test]
fn a_lost_gpu_leaves_no_gap_in_a_file() {
    let points = generate::points::<f64>(Shape::Clustered, 800, 2, 3).unwrap();
    for asked in
        ["within", "within --sorted --distances", "within --degrees", "dbscan --min-points 4"]
    {
        let (expected, cpu) = joined(&format!("{asked} --device cpu"), &points, false);
        // Each has a share of its own, so that every run launches the same kernels.
        for how in ["gpu --rescue", "hybrid --partitioning static-candidates"] {
            let arguments = format!("{asked} --device {how} --batch-size 20KB");
            let simt = Simt::new();
            joined_on(simt.clone(), &arguments, &points, false).unwrap();
            let lost = Simt::new().lose_at_launch(simt.counts().launches * 3 / 4);
            let (found, outcome) = joined_on(lost, &arguments, &points, false).unwrap();
            assert_eq!((found, outcome.pairs), (expected.clone(), cpu.pairs), "{arguments}");
            let told = outcome.hybrid.unwrap().lost.unwrap();
            assert!(told.reason.contains("lost") && told.queries > 0, "{arguments}: {told:?}");
        }
        let lost = Simt::new().lose_at_launch(3);
        let failed = joined_on(lost, &format!("{asked} --device gpu"), &points, false);
        assert!(matches!(failed, Err(Failure::Failed(_))), "{asked}");
    }
}

/// Where rows in order do not fit the memory, every part is joined on the device of the whole.
#[test]
fn parts_stay_on_the_device() {
    let points = generate::points::<f64>(Shape::Exponential, 700, 1, 3).unwrap();
    let (expected, _) = joined("within --device cpu --sorted", &points, false);
    let (found, outcome) =
        joined("within --device gpu --sorted --memory-limit 3500KB", &points, false);
    assert!(outcome.parts > 1);
    assert!(found == expected);
    let told = outcome.gpu.unwrap();
    assert_eq!(told.device, "simt");
    // All points once for the index, and once more each in its part.
    assert_eq!(told.bytes_in, 2 * 700 * 8, "{told:?}");
}
