//! What is said to a user: help, errors and exit codes, explanations and statistics.

use std::process::Stdio;

use serde_json::Value;

use crate::program::{Folder, Ran};

const CSV: &str = "x,y\n0,0\n0.3,0.4\n5,5\n5,5\n";

pub(crate) fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("p.csv", CSV);
    folder
}

/// Runs arguments that cannot work, and returns the one error.
pub(crate) fn wrong(folder: &Folder, arguments: &str, code: i32) -> String {
    let before = folder.names();
    let ran = folder.run(arguments);
    assert_eq!(ran.code, Some(code), "nearjoin {arguments}: {}{}", ran.said, ran.errors);
    assert_eq!(ran.said, "", "nearjoin {arguments}");
    assert_eq!(folder.names(), before, "nearjoin {arguments} leaves nothing behind");
    assert!(ran.errors.starts_with("error: "), "nearjoin {arguments}: {}", ran.errors);
    ran.errors.trim_start_matches("error: ").trim_end().to_string()
}

#[test]
fn every_command_explains_itself() {
    let folder = Folder::new();
    let joins = ["within", "knn", "dbscan", "components"];
    let others = ["estimate", "gen", "info", "demo", "completions", "man"];
    for command in joins.into_iter().chain(others) {
        let help = folder.nearjoin(&format!("{command} --help")).said;
        assert!(help.contains("Example"), "{command}: {help}");
    }
    let help = folder.nearjoin("--help").said;
    assert!(help.contains("Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted."));
    assert!(folder.nearjoin("--version").said.starts_with("nearjoin "));
    assert_eq!(folder.run("").code, Some(2));
}

#[test]
fn documents_are_made_from_the_arguments() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = folder.nearjoin(&format!("completions {shell}")).said;
        for word in ["within", "memory-limit", "threads-per-query", "completions"] {
            assert!(script.contains(word), "{shell} completes {word}");
        }
    }
    folder.nearjoin("man .");
    assert!(folder.names().contains(&"nearjoin-within.1".to_string()));
    let page = std::fs::read_to_string(folder.path("nearjoin-within.1")).unwrap();
    assert!(page.contains("eps") && page.contains("memory"), "{page}");
    assert!(page.contains("cooperation") && page.contains("batch\\-size"), "{page}");
    for section in ["NAME", "SYNOPSIS", "OPTIONS", "EXAMPLES", "EXIT STATUS", "ENVIRONMENT"] {
        assert!(
            page.contains(&format!(".SH \"{section}\""))
                || page.contains(&format!(".SH {section}\n")),
            "{section}: {page}"
        );
    }
    assert!(page.contains("nearjoin within points.npy"), "{page}");
    assert!(folder.names().contains(&"nearjoin.1".to_string()), "{:?}", folder.names());
}

#[test]
fn counts_pairs_and_degrees_on_standard_output() {
    let folder = folder();
    assert_eq!(folder.nearjoin("within p.csv --eps 0.5 --count").said, "4\n");
    assert_eq!(folder.nearjoin("within p.csv --eps 0.5 --count --half").said, "2\n");
    assert_eq!(folder.nearjoin("within p.csv --eps 0.5 --count --include-self").said, "8\n");
    let pairs = folder.nearjoin("within p.csv --eps 0.5 --sorted --distances").said;
    assert_eq!(pairs, "left,right,distance\n0,1,0.5\n1,0,0.5\n2,3,0.0\n3,2,0.0\n");
    let half = folder.nearjoin("within p.csv --eps 0.5 --half -o -").said;
    let mut lines: Vec<_> = half.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0,1", "2,3", "left,right"]);
    let degrees = folder.nearjoin("within p.csv --eps 0 --degrees").said;
    assert_eq!(degrees, "id,neighbors\n0,0\n1,0\n2,1\n3,1\n");
}

#[test]
fn standard_input_is_a_file_like_any_other() {
    let folder = folder();
    let mut child = folder.command("within - p.csv --eps 0.5 --count -q");
    let mut child =
        child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    use std::io::Write;
    child.stdin.take().unwrap().write_all(CSV.as_bytes()).unwrap();
    let ran = Ran::new(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.said.as_str(), ran.errors.as_str()), (Some(0), "8\n", ""));
}

#[test]
fn ids_stand_for_points() {
    let folder = Folder::new();
    folder.write("a.csv", "name,x\nanna,1\nbo,2\n");
    folder.write("b.csv", "key,at\n7,2.5\n8,1\n");
    let said = folder
        .nearjoin("within a.csv b.csv --eps 0.5 --id name --right-id key --columns x --right-columns at --sorted")
        .said;
    assert_eq!(said, "left,right\nanna,8\nbo,7\n");
}

#[test]
fn wrong_usage_is_said_before_any_work() {
    let folder = folder();
    let usage = |arguments: &str| wrong(&folder, arguments, 2);
    assert!(
        usage("within p.csv --eps 1 -o p.foo")
            .starts_with("p.foo: the name of the output must end in")
    );
    assert!(usage("within p.csv --eps 1 -o p.csv").contains("both an input and an output"));
    let taken = "within p.csv --eps 1 --count --stats ./p.csv";
    assert!(usage(taken).contains("both an input and an output"));
    assert!(usage("within p.csv --eps 1 -o o.csv --stats o.csv").contains("written twice"));
    assert!(usage("within p.csv --eps 1 --count --report -").contains("must end in .html"));
    assert!(usage("within p.csv --eps 1 --count --stats -").contains("standard output"));
    assert!(usage("within p.csv --eps 1 --threads 5000").contains("1 to 1024"));
    assert!(usage("demo -n 10").contains("100 to"));
    assert!(usage("gen uniform -n 10 -o x.tsv").contains(".parquet, .arrow, .csv or .npy"));
    assert!(usage("within p.csv --eps -1").starts_with("ε = -1.0 is not a distance"));
    assert!(usage("within p.csv --eps nan").starts_with("ε = NaN is not a distance"));
    assert!(usage("within p.csv --eps 1 --threads 0").starts_with("threads = 0 is out of range"));
    assert!(usage("within - - --eps 1").starts_with("standard input can be read only once"));
    assert!(usage("within p.csv --eps 1 --id x -o o.npz").contains("npz holds row numbers"));
    assert!(usage("within p.csv --eps 1 --stats -").contains("would both go to standard output"));
    assert!(usage("within p.csv p.csv --eps 1 --half").contains("cannot be used with"));
    assert!(usage("within p.csv --eps 1 --count --degrees").contains("cannot be used with"));
    assert!(usage("within p.csv --eps 1 --metric l3").contains("possible values: l2, l1, linf"));
    assert!(usage("within p.csv --eps 1 --memory-limit lots").contains("as in 4GiB"));
    assert!(usage("knn p.csv").contains("-k <K>"));
    assert!(usage("knn p.csv -k 0").contains("k = 0 is out of range"));
    assert!(usage("knn p.csv -k 2 --max-distance -1").contains("--max-distance -1.0 is not"));
    assert!(usage("knn p.csv -k 2 --degrees").contains("leave --degrees out"));
    assert!(usage("knn p.csv -k 2 --strategy ego").contains("possible values: auto, "));
    let refused = usage("knn p.csv -k 2 --strategy grid --device gpu");
    assert!(refused.contains("the strategy grid is not for this join: choose one of"), "{refused}");
    assert!(usage("knn p.csv -k 2 --device cpu --rescue").contains("--rescue is for the GPU"));
    let refused = usage("knn p.csv -k 2 --device hybrid --strategy ranges --partitioning dyn");
    assert!(refused.contains("--partitioning is for other strategies"), "{refused}");
    assert!(usage("knn p.csv p.csv -k 2 --include-self").contains("cannot be used with"));
    assert!(usage("knn p.csv -k 2 --id x -o o.npz").contains("npz holds row numbers"));
    assert!(usage("knn p.csv -k 2 --eps 1").contains("unexpected argument"));
    assert!(usage("estimate p.csv --neighbors 0").contains("more than 0"));
    assert!(usage("gen uniform -n many -o x.npy").contains("a whole number, as in 2000000 or 2e6"));
    assert!(usage("gen uniform -n 10 -d 0 -o x.npy").contains("1 to 4096"));
    assert!(usage("gen sphere -n 10 -d 2 -o x.npy").starts_with("-d 2: a sphere has 3"));
    assert!(usage("gen places -n 10 -d 4 -o x.npy").contains("longitude and latitude, or 3"));
    assert!(usage("gen embedding -n 10 -d 1 -o x.npy").contains("an embedding has 2 to 4096"));
    assert!(usage("gen uniform -n 10 -o x.npz").contains(".parquet, .arrow, .csv or .npy"));
}

#[test]
fn failures_name_the_file_the_place_and_the_value() {
    let folder = folder();
    folder.write("bad.csv", "x,y\n1,2\n3,abc\n");
    folder.write("nan.csv", "x,y\n1,2\n3,nan\n");
    folder.write("ragged.csv", "x,y\n1,2\n3\n");
    folder.write("empty.csv", "");
    folder.write("cut.parquet", "PAR1 and nothing else");
    folder.write("line.csv", "x\n1\n");
    folder.write("far.csv", "x\n1.7e308\n-1.7e308\n");
    folder.write("near.csv", "x,y\n1,0\n1,1e-45\n0,0\n");
    let failed = |arguments: &str| wrong(&folder, arguments, 1);
    let named = |arguments: &str, words: &[&str]| {
        let error = failed(arguments);
        for word in words {
            assert!(error.contains(word), "{arguments}: {error} lacks {word}");
        }
    };
    named("within none.csv --eps 1 --count", &["none.csv could not be opened"]);
    named("within bad.csv --eps 1 --count", &["bad.csv", "row 1", "line 3", "\"y\"", "abc"]);
    named("within nan.csv --eps 1 --count", &["nan.csv", "row 1", "\"y\"", "nan"]);
    named("within ragged.csv --eps 1 --count", &["ragged.csv", "row 1"]);
    named("within empty.csv --eps 1 --count", &["empty.csv", "empty"]);
    named(
        "within cut.parquet --eps 1 --count",
        &["cut.parquet is a damaged Parquet file: it is cut"],
    );
    named("within p.csv --eps 1 --columns x,q", &["p.csv", "\"q\"", "\"x\", \"y\""]);
    named("within p.csv line.csv --eps 1", &["2 coordinates (\"x\", \"y\")", "1 (\"x\")"]);
    named("within p.csv --eps 1 -o missing/p.parquet", &["missing/p.parquet could not be written"]);
    named("within p.csv --eps 1 -o p.csv/o.csv", &["p.csv/o.csv could not be written"]);
    named("within p.csv --eps 1 --count --report missing/r.html", &["missing/r.html"]);
    named("knn far.csv -k 1", &["1.7e308", "farther apart than f64", "other units"]);
    named("knn near.csv -k 1 --dtype f32", &["rows 0 and 1", "f32", "use --dtype f64"]);
    named("within p.csv --eps 1 --memory-limit 100", &["kept for writing"]);
    named("within p.csv --eps 1 --columns X,Y", &["did you mean \"x\"", "\"x\", \"y\""]);
    named("within p.csv --eps 1 --memory-limit 100", &["the index needs", "raise the limit"]);
    named("knn p.csv -k 4 -o n.npz", &["-k 4", "only 3 points", "--pad"]);
    named("knn p.csv -k 2 --memory-limit 100", &["the index needs", "kept for writing"]);
    let refused = wrong(&folder, "knn p.csv -k 1e15 --pad -o n.npz", 2);
    assert!(refused.contains("k = 1000000000000000") && refused.contains("at most 4294967294"));
}

/// What the library advises is told by the flag that does it.
#[test]
fn advice_names_the_flag() {
    let folder = folder();
    folder.nearjoin("gen uniform -n 20 -d 2 -q -o p.npy");
    folder.nearjoin("gen uniform -n 20 -d 2 -q -o p.parquet");
    std::fs::copy(folder.path("p.parquet"), folder.path("p.txt")).unwrap();
    folder.write("text.csv", "1,NA\n1,2\n");
    folder.write("names.csv", "x,y,name\n1,2,a\n1,2,b\n");
    folder.nearjoin("within names.csv --id name --eps 1 -q -o pairs.arrow");
    for (arguments, advice) in [
        ("p.txt", "not CSV but looks like Parquet: give the format with --format"),
        ("p.npy --format csv", "not CSV but looks like NPY: leave --format out"),
        ("pairs.arrow", "the column holds text, not numbers: choose columns with --columns"),
        ("p.npy --id 0", "there is no column \"0\": leave --id out, or use another format"),
        (
            "text.csv",
            "\"NA\" is text beside numbers: say whether the first line is a header with --header \
             yes or no",
        ),
    ] {
        let error = wrong(&folder, &format!("within {arguments} --eps 1 --count"), 1);
        assert!(error.ends_with(advice), "{arguments}: {error}");
    }
}

#[test]
fn a_plan_is_explained_and_not_run() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 2e4 -d 3 -o p.parquet");
    let said = folder.nearjoin("within p.parquet --eps 2 -o pairs.parquet --explain").said;
    for word in ["strategy", "brute", "directory", "grid", "ego", "cpu", "memory", "cells", "pairs"]
    {
        assert!(said.contains(word), "{said} lacks {word}");
    }
    assert!(said.contains("no gpu: "), "why the GPU is not used: {said}");
    let named = folder.nearjoin("within p.parquet --eps 2 --count --device cpu --explain").said;
    assert!(!named.contains("no gpu"), "{named}");
    assert_eq!(folder.names(), ["p.parquet"]);
}

#[test]
fn a_plan_of_the_nearest_is_explained_too() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 2e4 -d 3 -o p.parquet");
    let said = folder.nearjoin("knn p.parquet -k 8 -o n.npz --explain").said;
    for word in ["k = 8", "tree", "brute", "cells", "memory", "up to 160 k pairs to n.npz"] {
        assert!(said.contains(word), "{said} lacks {word}");
    }
    assert_eq!(folder.names(), ["p.parquet"]);
}

/// What the documentation lists is what is there, and nothing else. Of a GPU, and of both
/// processors, only where one was used.
pub(crate) fn check_documented(stats: &Value) {
    let documented = include_str!("../../../../docs/stats.md");
    let mut listed: Vec<&str> =
        documented.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    for object in ["groups", "gpu", "hybrid", "ranges"] {
        assert!(listed.contains(&object), "{listed:?}");
        let below = format!("{object}.");
        match stats[object].is_null() {
            true => listed.retain(|name| !name.starts_with(&below)),
            false => listed.retain(|name| *name != object),
        }
    }
    // What is in those below is compared where they are made.
    listed.retain(|name| name.matches('.').count() < 2);
    let mut found = Vec::new();
    for (name, value) in stats.as_object().unwrap() {
        match value.as_object() {
            Some(inner) => found.extend(inner.keys().map(|key| format!("{name}.{key}"))),
            None => found.push(name.clone()),
        }
    }
    listed.sort_unstable();
    found.sort_unstable();
    assert_eq!(listed, found);
}

#[test]
fn statistics_of_the_nearest_have_their_documented_shape() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 3e4 -d 2 -o p.npy");
    let ran = folder.nearjoin("knn p.npy -k 8 --stats s.json -o n.parquet");
    let summary = "240,000 nearest neighbours (k = 8) among 30,000 points → n.parquet";
    assert!(ran.errors.contains(summary), "{}", ran.errors);
    let stats = std::fs::read_to_string(folder.path("s.json")).unwrap();
    let stats: Value = serde_json::from_str(&stats).unwrap();
    check_documented(&stats);
    assert_eq!((&stats["command"], &stats["k"]), (&"knn".into(), &8.into()));
    assert!(stats["eps"].is_null() && stats["max_distance"].is_null());
    assert_eq!(stats["pairs"], 240_000);
    let shown = folder.nearjoin("knn p.npy -k 8 --max-distance 0.5 -q --stats - -o n.npz").said;
    let stats: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(stats["max_distance"], 0.5);
    assert_eq!(stats["bytes"]["result"], std::fs::metadata(folder.path("n.npz")).unwrap().len());
}

#[test]
fn statistics_have_their_documented_shape() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 3e4 -d 2 -o p.npy");
    let ran = folder.nearjoin("within p.npy --eps 1 --stats s.json -o pairs.parquet");
    assert!(
        ran.errors.contains("pairs within 1.0 among 30,000 points → pairs.parquet"),
        "{}",
        ran.errors
    );
    let stats = std::fs::read_to_string(folder.path("s.json")).unwrap();
    let stats: Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(stats["schema"], "nearjoin-stats-1");
    assert_eq!(stats["points"]["left"], 30_000);
    assert_eq!(stats["dimension"], 2);
    assert_eq!(stats["device"], "cpu");
    assert!(stats["gpu"].is_null(), "{}", stats["gpu"]);
    assert!(stats["strategy"].is_string());
    assert!(stats["pairs"].as_u64().unwrap() > 100_000);
    assert!(stats["distance_tests"].as_u64() >= stats["pairs"].as_u64());
    check_seconds(&stats);
    let file = std::fs::metadata(folder.path("pairs.parquet")).unwrap().len();
    assert_eq!(stats["bytes"]["result"], file);
    assert_eq!(stats["bytes"]["input"], 30_000 * 16);
    check_documented(&stats);
    assert_eq!((&stats["command"], &stats["eps"]), (&"within".into(), &1.0.into()));
}

/// Phases are parts of the whole; returns how much of it they are together.
fn check_seconds(stats: &Value) -> f64 {
    let took = |phase: &str| stats["seconds"][phase].as_f64().expect("seconds");
    let phases = ["load", "plan", "index", "execute", "write"].map(took);
    assert!(phases.iter().all(|seconds| *seconds >= 0.0), "{}", stats["seconds"]);
    let share = phases.iter().sum::<f64>() / took("total");
    assert!(share <= 1.001, "{}", stats["seconds"]);
    share
}

/// Where rows are written part by part, that is most of the time.
#[test]
fn the_time_of_ordered_rows_adds_up() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 5e4 -d 2 --seed 1 -q -o p.npy");
    for join in [
        "within p.npy --eps 2 --sorted -o o.csv",
        "within p.npy --eps 2 --sorted -o o.csv --memory-limit 20MiB",
        "within p.npy --eps 2 --distances -o o.npz --half",
        "knn p.npy -k 50 -o o.npz",
    ] {
        let ran = folder.nearjoin(&format!("{join} --device cpu -q --stats -"));
        let stats: Value = serde_json::from_str(&ran.said).unwrap();
        let share = check_seconds(&stats);
        // It is more than 0.97; without the time of writing it would be a third.
        assert!(share > 0.7, "{join}: {}", stats["seconds"]);
    }
}

#[test]
fn quiet_is_quiet() {
    let folder = folder();
    let ran = folder.nearjoin("within p.csv --eps 0.5 --count -q");
    assert_eq!((ran.said.as_str(), ran.errors.as_str()), ("4\n", ""));
}

#[test]
fn estimates_are_near_the_truth() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 5e4 -d 2 -o p.npy -q");
    let table = folder.nearjoin("estimate p.npy --neighbors 10,100,1e6 -q --plot").said;
    for wanted in [10.0, 100.0] {
        let line = table.lines().find(|line| line.trim_start().starts_with(&format!("{wanted} ")));
        let eps = line.unwrap().split_whitespace().nth(1).unwrap().to_string();
        let pairs = folder.nearjoin(&format!("within p.npy --count --eps {eps} -q")).said;
        let neighbors = pairs.trim().parse::<f64>().unwrap() / 5e4;
        assert!((0.85..1.15).contains(&(neighbors / wanted)), "{wanted}: {neighbors} at {eps}");
    }
    assert!(table.contains("more than there are points"), "{table}");
    assert!(table.contains('┤'), "{table}");
}

#[test]
fn the_demo_checks_itself() {
    let folder = Folder::new();
    let said = folder.nearjoin("demo -n 20000").said;
    assert!(said.contains("the same, to the last neighbour"), "{said}");
    let info = folder.nearjoin("info").said;
    for word in ["threads", "SIMD", "memory", "GPU"] {
        assert!(info.contains(word), "{info}");
    }
}
