//! Clusters and components in every format, against their definitions.

use nearjoin::{Metric, Points, oracle};
use serde_json::Value;

use crate::program::{Folder, arrays, rows};
use crate::usage::{check_documented, folder, wrong};

/// The label of each point: clusters are numbered by their first cores, other points have that of
/// their first core, and noise has -1.
fn truth(points: &[Vec<f64>], eps: f64, min_points: usize, metric: Metric) -> Vec<i64> {
    let flat = points.concat();
    let all = Points::new(&flat, points[0].len()).unwrap();
    let found = oracle::eps_join(&all, &all, eps, metric, false).unwrap();
    let near: Vec<Vec<usize>> =
        found.into_iter().map(|row| row.iter().map(|pair| pair.0 as usize).collect()).collect();
    let is_core = |row: usize| near[row].len() >= min_points;
    let mut labels = vec![-1; near.len()];
    let mut clusters = 0;
    for first in (0..near.len()).filter(|&row| is_core(row)) {
        if labels[first] >= 0 {
            continue;
        }
        labels[first] = clusters;
        let mut ahead = vec![first];
        while let Some(row) = ahead.pop() {
            for &next in near[row].iter().filter(|&&next| is_core(next)) {
                if labels[next] < 0 {
                    labels[next] = clusters;
                    ahead.push(next);
                }
            }
        }
        clusters += 1;
    }
    let core_of = |row: usize| near[row].iter().copied().filter(|&core| is_core(core)).min();
    let label = |row: usize| core_of(row).map_or(-1, |core| labels[core]);
    (0..near.len()).map(|row| if is_core(row) { labels[row] } else { label(row) }).collect()
}

/// Runs a command into every format, and compares.
fn check(folder: &Folder, command: &str, truth: &[i64]) {
    let table: Vec<Vec<f64>> =
        truth.iter().enumerate().map(|(row, &label)| vec![row as f64, label as f64]).collect();
    for format in ["parquet", "arrow", "csv"] {
        folder.nearjoin(&format!("{command} -q -o o.{format}"));
        assert!(rows(&folder.path(&format!("o.{format}"))) == table, "{command} to {format}");
    }
    let said = folder.nearjoin(&format!("{command} -q")).said;
    assert_eq!(said, std::fs::read_to_string(folder.path("o.csv")).unwrap(), "{command}");
    assert!(said.starts_with("id,label\n"), "{said}");
    folder.nearjoin(&format!("{command} -q -o o.npz"));
    let arrays = arrays(&folder.path("o.npz"));
    assert_eq!((arrays.len(), arrays[0].name.as_str()), (1, "labels"), "{command}");
    assert_eq!((arrays[0].descr.as_str(), &arrays[0].shape[..]), ("<i8", &[truth.len()][..]));
    let same = arrays[0].values.iter().zip(&table).all(|(value, row)| *value == row[1]);
    assert!(same, "{command} to npz");
}

#[test]
fn every_format_holds_the_labels() {
    let folder = Folder::new();
    folder.nearjoin("gen clustered -n 3000 -d 2 --seed 5 -q -o p.npy");
    let points = rows(&folder.path("p.npy"));
    let mut labels = Vec::new();
    for min_points in [1, 4, 20, 3000] {
        let truth = truth(&points, 0.03, min_points, Metric::L2);
        let command = format!("dbscan p.npy --eps 0.03 --min-points {min_points}");
        check(&folder, &command, &truth);
        labels.push(truth);
    }
    assert!(labels[1].contains(&-1) && labels[1].contains(&3));
    assert!(!labels[0].contains(&-1) && labels[3].iter().all(|&label| label == -1));
    check(&folder, "components p.npy --eps 0.03", &labels[0]);
    let boxes = truth(&points, 0.03, 4, Metric::Linf);
    check(&folder, "dbscan p.npy --eps 0.03 --min-points 4 --metric linf", &boxes);
}

/// With a GPU or without one, with any strategy and number of threads.
#[test]
fn labels_are_the_same_however_they_are_found() {
    let folder = Folder::new();
    folder.nearjoin("gen clustered -n 3000 -d 2 --seed 5 -q -o p.npy");
    let command = "dbscan p.npy --eps 0.03 --min-points 4";
    let expected = folder.nearjoin(&format!("{command} -q --device cpu --threads 1")).said;
    for how in [
        "--device hybrid",
        "--device auto --rescue",
        "--device hybrid --partitioning dyn",
        "--strategy brute --threads 2",
        "--strategy ego",
        "--duplicate-removal none",
        "--report r.html",
        "--dtype f64 --memory-limit 64MiB",
    ] {
        assert!(folder.nearjoin(&format!("{command} -q {how}")).said == expected, "{how}");
    }
    let said = wrong(&folder, &format!("{command} --device cpu --schedule work-queue"), 2);
    assert!(said.starts_with("--schedule is for the GPU"), "{said}");
}

#[test]
fn ids_come_from_a_column() {
    let folder = Folder::new();
    folder.write("p.csv", "name,x\nanna,1\nbo,9\nche,1.5\ndora,2\n\"e, f\",2\n");
    let said = folder.nearjoin("dbscan p.csv --id name --eps 0.5 --min-points 4 -q").said;
    // Only Che has four; Anna is within reach of him.
    assert_eq!(said, "id,label\nanna,0\nbo,-1\nche,0\ndora,0\n\"e, f\",0\n");
    let said = folder.nearjoin("components p.csv --id name --eps 0.5 -q -o -").said;
    assert_eq!(said, "id,label\nanna,0\nbo,1\nche,0\ndora,0\n\"e, f\",0\n");
    let said = wrong(&folder, "components p.csv --id name --eps 0.5 -o o.npz", 2);
    assert!(said.contains("npz holds row numbers"), "{said}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = folder();
    folder.write("q.csv", "x,y\n1,2\n");
    let usage = |arguments: &str| wrong(&folder, arguments, 2);
    for (command, more) in [("dbscan", "--min-points 2"), ("components", "")] {
        for (two, named) in [
            ("p.csv q.csv", "B"),
            ("- -", "B"),
            ("p.csv --right-id x", "--right-id"),
            ("p.csv --right-columns x,y", "--right-columns"),
        ] {
            let said = usage(&format!("{command} {two} --eps 1 {more}"));
            let refused = format!("{command} groups the points of one set: leave {named} out");
            assert!(said.starts_with(&refused), "{said}");
        }
        let said = usage(&format!("{command} p.csv --eps -1 {more}"));
        assert!(said.starts_with("ε = -1.0 is not a distance"), "{said}");
        let said = usage(&format!("{command} p.csv --eps 1 {more} -o p.csv"));
        assert!(said.contains("both an input and an output"), "{said}");
        for option in ["--half", "--include-self", "--count", "--degrees", "--sorted"] {
            let said = usage(&format!("{command} p.csv --eps 1 {more} {option}"));
            assert!(said.contains("unexpected argument"), "{said}");
        }
        let help = folder.nearjoin(&format!("{command} --help")).said;
        assert!(!help.contains("[B]") && !help.contains("--right"), "{help}");
        assert!(!help.contains("two sets") && !help.contains("in B"), "{help}");
    }
    let said = usage("dbscan p.csv --eps 1 --min-points 0");
    assert!(said.starts_with("--min-points 0: it must be 1 or more"), "{said}");
    assert!(usage("dbscan p.csv --eps 1").contains("--min-points <M>"));
    assert!(usage("components p.csv --eps 1 --min-points 2").contains("unexpected argument"));
}

/// Labels do not stream, so there is nothing to advise but more memory.
#[test]
fn labels_that_do_not_fit_are_refused() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 2e5 -d 2 -q -o p.npy");
    let dbscan = "dbscan p.npy --eps 0.5 --min-points 4 --device cpu -o o.npz --memory-limit";
    let said = wrong(&folder, &format!("{dbscan} 5MB"), 1);
    assert!(said.starts_with("the index with the result needs"), "{said}");
    assert!(said.contains(": raise the limit (of --memory-limit 4.77 MiB, "), "{said}");
    folder.nearjoin(&format!("{dbscan} 20MB"));
}

#[test]
fn no_points_have_no_labels() {
    let folder = Folder::new();
    folder.write("none.csv", "x,y\n");
    for command in ["dbscan none.csv --eps 1 --min-points 3", "components none.csv --eps 1"] {
        assert_eq!(folder.nearjoin(command).said, "id,label\n");
        for format in ["parquet", "arrow", "npz"] {
            folder.nearjoin(&format!("{command} -o o.{format} --report r.html"));
        }
        assert_eq!(rows(&folder.path("o.parquet")), Vec::<Vec<f64>>::new());
        assert_eq!(arrays(&folder.path("o.npz"))[0].shape, [0]);
    }
}

#[test]
fn a_plan_is_explained_and_not_run() {
    let folder = folder();
    let said = folder.nearjoin("dbscan p.csv --eps 1 --min-points 2 -o c.npz --explain").said;
    assert!(said.contains("strategy") && said.contains("memory"), "{said}");
    assert!(said.contains("output: a label for each point to c.npz"), "{said}");
    let said = folder.nearjoin("components p.csv --eps 1 --explain").said;
    assert!(said.contains("output: a label for each point to standard output"), "{said}");
    assert_eq!(folder.names(), ["p.csv"]);
}

#[test]
fn what_was_found_is_told() {
    let folder = folder();
    let run = |arguments: &str| {
        let ran = folder.nearjoin(&format!("{arguments} --stats s.json --report r.html"));
        let stats = std::fs::read_to_string(folder.path("s.json")).unwrap();
        let stats: Value = serde_json::from_str(&stats).unwrap();
        check_documented(&stats);
        let page = std::fs::read_to_string(folder.path("r.html")).unwrap();
        (ran.errors, stats, page)
    };
    let (said, stats, page) = run("dbscan p.csv --eps 0.1 --min-points 2 -o c.csv");
    let found = "1 cluster within 0.1 (min-points 2) and 2 noise points";
    assert!(said.starts_with(&format!("{found} among 4 points → c.csv")), "{said}");
    assert!(page.contains(found) && page.contains("a label for each point to c.csv"), "{page}");
    assert_eq!((&stats["command"], &stats["min_points"]), (&"dbscan".into(), &2.into()));
    assert_eq!((&stats["pairs"], &stats["self_join"]), (&1.into(), &true.into()));
    assert_eq!((&stats["groups"]["count"], &stats["groups"]["noise"]), (&1.into(), &2.into()));
    // Pairs count once, whether there are cores or not.
    let (said, stats, _) = run("dbscan p.csv --eps 0.5 --min-points 3 -o c.csv");
    assert!(said.starts_with("0 clusters within 0.5 (min-points 3) and 4 noise points"), "{said}");
    assert_eq!(stats["pairs"], 2);
    let (said, stats, page) = run("components p.csv --eps 0.5 -o c.npz");
    assert!(said.starts_with("2 components within 0.5 among 4 points → c.npz"), "{said}");
    assert!(page.contains("2 components within 0.5"), "{page}");
    assert_eq!((&stats["command"], &stats["pairs"]), (&"components".into(), &2.into()));
    assert!(stats["min_points"].is_null() && stats["groups"]["count"] == 2, "{stats}");
    let (_, stats, _) = run("within p.csv --eps 0.5 -o c.npz");
    assert!(stats["groups"].is_null() && stats["min_points"].is_null(), "{stats}");
    let quiet = folder.nearjoin("components p.csv --eps 0.5 -q -o c.npz");
    assert_eq!((quiet.said.as_str(), quiet.errors.as_str()), ("", ""));
}
