//! Where a join runs: options that make no sense together, and devices that are not there.

use crate::usage::{folder, wrong};

#[test]
fn options_of_the_gpu_that_make_no_sense() {
    let folder = folder();
    let usage = |arguments: &str| wrong(&folder, &format!("within p.csv --eps 1 {arguments}"), 2);
    for option in [
        "--cooperation warp",
        "--threads-per-query 4",
        "--schedule work-queue",
        "--batch-size 1MiB",
        "--gpu-memory 1GiB",
        "--rescue",
    ] {
        let said = usage(&format!("--device cpu {option}"));
        let name = option.split(' ').next().unwrap();
        assert!(said.starts_with(&format!("{name} is for the GPU")), "{said}");
    }
    for device in ["cpu", "gpu"] {
        let said = usage(&format!("--device {device} --partitioning dyn"));
        assert!(said.contains(&format!("--device {device} leaves one of them out")), "{said}");
        assert!(said.contains("or use --device hybrid"), "{said}");
    }
    let said = usage("--partitioning fair");
    assert!(
        said.contains("possible values: auto, dyn, static-queries, static-candidates"),
        "{said}"
    );
    let said = usage("--device cpu --duplicate-removal linear-coord");
    assert!(said.contains("linear-coord is for the GPU"), "{said}");
    let said = usage("--cooperation cell --threads-per-query 4");
    assert!(said.contains("--cooperation thread"), "{said}");
    let said = usage("--cooperation cell --duplicate-removal unicomp");
    assert!(said.contains("--cooperation thread or warp"), "{said}");
    assert!(usage("--threads-per-query 5").contains("possible values: 1, 2, 4, 8, 16, 32"));
    assert!(usage("--batch-size lots").contains("as in 4GiB"));
    assert!(usage("--batch-size 0").contains("at least 1 B"));
    assert!(usage("--gpu-memory 1MiB").contains("at least 128 MiB"));
    assert!(usage("--device gpu --strategy ego").contains("choose one of auto, brute"));
    for option in ["--schedule auto", "--cooperation warp", "--duplicate-removal none"] {
        let said = wrong(&folder, &format!("knn p.csv -k 1 {option}"), 2);
        assert!(said.contains("unexpected argument"), "{said}");
    }
    let nearest = folder.nearjoin("knn p.csv -k 1 -q").said;
    for option in ["--partitioning dyn", "--rescue", "--batch-size 1KiB", "--gpu-memory 1GiB"] {
        assert_eq!(folder.nearjoin(&format!("knn p.csv -k 1 -q {option}")).said, nearest);
    }
    let count = "within p.csv --eps 0.5 --count -q --device auto --cooperation thread";
    assert_eq!(folder.nearjoin(&format!("{count} --duplicate-removal unicomp")).said, "4\n");
    assert_eq!(folder.nearjoin(&format!("{count} --duplicate-removal none")).said, "4\n");
}

/// With a GPU or without one, both together have the same answer.
#[test]
fn both_processors_are_asked() {
    let folder = folder();
    let count = "within p.csv --eps 0.5 --count -q --device";
    for device in ["hybrid", "hybrid --rescue", "auto --rescue", "auto --partitioning dyn"] {
        assert_eq!(folder.nearjoin(&format!("{count} {device}")).said, "4\n", "{device}");
    }
    for partitioning in ["auto", "dyn", "static-queries", "static-candidates"] {
        let ran = folder.nearjoin(&format!("{count} hybrid --partitioning {partitioning}"));
        assert_eq!((ran.said.as_str(), ran.errors.as_str()), ("4\n", ""), "{partitioning}");
    }
}

/// A program that was built without the engine for GPUs says so.
#[test]
#[cfg(not(feature = "cuda"))]
fn there_is_no_gpu_without_the_feature() {
    let folder = folder();
    let error = wrong(&folder, "within p.csv --eps 1 --device gpu", 1);
    assert!(error.contains("the device gpu cannot be used: "), "{error}");
    assert!(error.contains("without the feature `cuda`"), "{error}");
    let ran = folder.nearjoin("within p.csv --eps 0.5 --count --device hybrid");
    assert_eq!(ran.said, "4\n");
    assert!(ran.errors.contains("note: the CPU joins alone: "), "{}", ran.errors);
    let info = folder.nearjoin("info").said;
    assert!(info.contains("none: this nearjoin was built without the feature"), "{info}");
    assert!(info.contains("auto (cpu), cpu"), "{info}");
    let error = wrong(&folder, "info --calibrate", 1);
    assert!(error.contains("nothing to calibrate between without a gpu: this nearjoin"), "{error}");
}

/// The nearest by ranges: options that are for nothing else, and no GPU to find them.
#[test]
fn the_nearest_by_ranges() {
    let folder = folder();
    let usage = |arguments: &str| wrong(&folder, &format!("knn p.csv -k 1 {arguments}"), 2);
    for option in ["--large 0.5", "--small 0.1", "--window 0", "--cpu-batch 0.1", "--eps-factor 2"]
    {
        let name = option.split(' ').next().unwrap();
        for strategy in ["", "--strategy tree"] {
            let said = usage(&format!("{strategy} {option}"));
            assert!(said.starts_with(&format!("{name} is for --strategy ranges")), "{said}");
        }
    }
    let said = usage("--threads-per-query 8");
    assert!(said.starts_with("--threads-per-query is for --strategy ranges"), "{said}");
    let said = usage("--strategy ranges --cpu-batch 2");
    assert!(said.starts_with("--cpu-batch 2: it must be more than 0 and at most 1"), "{said}");
    let said = usage("--strategy ranges --eps-factor -1");
    assert!(said.starts_with("--eps-factor -1: it must be more than 0 and finite"), "{said}");
    let error = wrong(&folder, "knn p.csv -k 1 --strategy ranges --device cpu", 1);
    assert!(error.contains("the strategy ranges needs a GPU"), "{error}");
    let count = "knn p.csv -k 1 --count -q --strategy";
    let ranges = "ranges --large 0.5 --eps-factor 2 --threads-per-query 4";
    let tree = folder.nearjoin(&format!("{count} tree")).said;
    for device in ["auto", "hybrid"] {
        let ran = folder.nearjoin(&format!("{count} {ranges} --device {device}"));
        assert_eq!((ran.said.as_str(), ran.errors.as_str()), (tree.as_str(), ""), "{device}");
    }
}
