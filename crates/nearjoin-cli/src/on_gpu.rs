//! Every shape of output from a GPU, compared with the CPU's: the kernels run on the CPU.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use clap::Parser;
use nearjoin::{Monitor, PointsBuf};
use nearjoin_simt::Simt;

use super::*;
use crate::args::{Cli, Command, Shape};
use crate::generate;
use crate::question::Asked;

/// Pairs as a file has them, in order, and what happened.
fn joined(arguments: &str, points: &PointsBuf<f64>, tally: bool) -> (Vec<String>, Outcome) {
    let line = format!("nearjoin within p.npy --eps 0.5 {arguments}");
    let Command::Within(args) = Cli::parse_from(line.split_whitespace()).command else {
        panic!("{line}")
    };
    let asked = Asked::from(&args);
    asked.check_device().unwrap();
    let board = Board::default();
    let planner = Planner::new(&asked, &Monitor::new(), 2).on(Arc::new(Simt::new()));
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
    assert_eq!(plan.device(), asked.engine.device, "{line}");
    plan.check_memory().unwrap();
    let path = place();
    let place = Place::File(path.clone(), OutputFormat::Csv);
    let output = match args.output.degrees {
        true => Output::Degrees(place),
        false => Output::Pairs(place),
    };
    let outcome = job.deliver(&plan, open(&output).unwrap()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    if !asked.sorted {
        lines.sort_unstable();
    }
    (lines, outcome)
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
        ("", ""),
        ("--half", ""),
        ("--distances --half", ""),
        ("--sorted --distances", ""),
        ("--degrees", ""),
        ("--degrees --include-self", ""),
        ("", "--cooperation thread --threads-per-query 4 --schedule work-queue --batch-size 20KB"),
        ("--half", "--cooperation thread --duplicate-removal linear-coord"),
        ("--sorted --strategy directory", "--cooperation warp"),
    ] {
        let arguments = format!("{asked} {how}");
        let (expected, cpu) = joined(&format!("--device cpu {asked}"), &points, true);
        let (found, gpu) = joined(&format!("--device gpu {arguments}"), &points, true);
        assert!(expected.len() > 100, "{arguments}");
        assert_eq!(found, expected, "{arguments}");
        assert_eq!((gpu.pairs, cpu.gpu), (cpu.pairs, None), "{arguments}");
        let told = gpu.gpu.unwrap();
        assert_eq!((told.device.as_str(), told.partitions), ("simt", 1), "{arguments}");
        assert!(told.bytes_in >= 800 * 16 && told.bytes_out > 0, "{arguments}: {told:?}");
    }
}

/// Where rows in order do not fit the memory, every part is joined on the device of the whole.
#[test]
fn parts_stay_on_the_device() {
    let points = generate::points::<f64>(Shape::Exponential, 700, 1, 3).unwrap();
    let (expected, _) = joined("--device cpu --sorted", &points, false);
    let (found, outcome) = joined("--device gpu --sorted --memory-limit 3500KB", &points, false);
    assert!(outcome.parts > 1);
    assert!(found == expected);
    let told = outcome.gpu.unwrap();
    assert_eq!(told.device, "simt");
    // All points once for the index, and once more each in its part.
    assert_eq!(told.bytes_in, 2 * 700 * 8, "{told:?}");
}
