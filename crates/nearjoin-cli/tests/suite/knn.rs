//! The nearest neighbours in every format, against brute force.

use nearjoin::{Metric, Points, Scalar, oracle};

use crate::program::{Folder, arrays, rows};

/// What is asked, beside the two sides.
#[derive(Clone, Copy)]
struct Ask {
    k: usize,
    metric: Metric,
    include_self: bool,
    max_distance: f64,
}

const ASK: Ask = Ask { k: 5, metric: Metric::L2, include_self: false, max_distance: f64::INFINITY };

/// The neighbours of each left point with their distances, nearest first.
fn truth<T: Scalar>(
    left: &[Vec<f64>],
    right: Option<&[Vec<f64>]>,
    ask: Ask,
) -> Vec<Vec<(u32, f64)>> {
    let dim = left[0].len();
    let flat =
        |rows: &[Vec<f64>]| -> Vec<T> { rows.iter().flatten().map(|&x| T::from_f64(x)).collect() };
    let (a, b) = (flat(left), flat(right.unwrap_or(left)));
    let (a, b) = (Points::new(&a, dim).unwrap(), Points::new(&b, dim).unwrap());
    let exclude = right.is_none() && !ask.include_self;
    let found = oracle::knn_join(&a, &b, ask.k, ask.metric, exclude).unwrap();
    let near = |row: Vec<(u32, T)>| {
        let all = row.into_iter().map(|(id, distance)| (id, distance.to_f64()));
        all.filter(|(_, distance)| *distance <= ask.max_distance).collect()
    };
    found.into_iter().map(near).collect()
}

/// The rows of the table: left, right, rank, distance.
fn table(truth: &[Vec<(u32, f64)>]) -> Vec<Vec<f64>> {
    let row = |(left, row): (usize, &Vec<(u32, f64)>)| {
        let ranked = row.iter().enumerate();
        ranked
            .map(|(at, &(right, distance))| {
                vec![left as f64, f64::from(right), at as f64 + 1.0, distance]
            })
            .collect::<Vec<_>>()
    };
    truth.iter().enumerate().flat_map(row).collect()
}

/// Checks that the neighbours of each point stand together, nearest first, and puts the
/// points in order.
fn in_order(rows: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let mut points: Vec<&[Vec<f64>]> = rows.chunk_by(|a, b| a[0] == b[0]).collect();
    for point in &points {
        assert!(point.iter().enumerate().all(|(at, row)| row[2] == at as f64 + 1.0), "{point:?}");
    }
    points.sort_by(|a, b| a[0][0].total_cmp(&b[0][0]));
    points.concat()
}

/// Checks the arrays of an npz: their names, types, shape and values.
fn check_npz(folder: &Folder, name: &str, real: &str, k: usize, truth: &[Vec<(u32, f64)>]) {
    let arrays = arrays(&folder.path(name));
    let kinds: Vec<_> = arrays.iter().map(|a| (a.name.as_str(), a.descr.as_str())).collect();
    assert_eq!(kinds, [("indices", "<u4"), ("distances", real)], "{name}");
    assert!(arrays.iter().all(|array| array.shape == [truth.len(), k]), "{name}");
    let padded = |fill: f64, value: fn(&(u32, f64)) -> f64| -> Vec<f64> {
        let row = |row: &Vec<(u32, f64)>| {
            let known = row.iter().map(value).chain(std::iter::repeat(fill));
            known.take(k).collect::<Vec<_>>()
        };
        truth.iter().flat_map(row).collect()
    };
    assert_eq!(arrays[0].values, padded(f64::from(u32::MAX), |found| f64::from(found.0)), "{name}");
    assert_eq!(arrays[1].values, padded(f64::INFINITY, |found| found.1), "{name}");
}

/// Runs the join into every format, in order and as found, and compares.
fn check(folder: &Folder, sides: &str, options: &str, k: usize, truth: &[Vec<(u32, f64)>]) {
    let expected = table(truth);
    for format in ["parquet", "arrow", "csv"] {
        let run = |more: &str| {
            folder.nearjoin(&format!("knn {sides} -k {k} {options} {more} -q -o o.{format}"));
            rows(&folder.path(&format!("o.{format}")))
        };
        assert!(in_order(run("")) == expected, "{sides} {options} → {format}");
        assert!(run("--sorted") == expected, "{sides} {options} → {format}, sorted");
    }
    folder.nearjoin(&format!("knn {sides} -k {k} {options} -q -o o.npz"));
    check_npz(folder, "o.npz", "<f8", k, truth);
    let pairs = folder.nearjoin(&format!("knn {sides} -k {k} {options} --count -q")).said;
    assert_eq!(pairs, format!("{}\n", expected.len()));
}

#[test]
fn every_format_holds_the_nearest() {
    let folder = Folder::new();
    folder.nearjoin("gen clustered -n 2500 -d 2 --seed 5 -q -o p.npy");
    let points = rows(&folder.path("p.npy"));
    check(&folder, "p.npy", "", 5, &truth::<f64>(&points, None, ASK));
    let with_self = Ask { include_self: true, ..ASK };
    check(&folder, "p.npy", "--include-self", 5, &truth::<f64>(&points, None, with_self));
    let near = Ask { max_distance: 0.02, ..ASK };
    let expected = truth::<f64>(&points, None, near);
    assert!(expected.iter().any(Vec::is_empty) && expected.iter().any(|row| row.len() == 5));
    check(&folder, "p.npy", "--max-distance 0.02", 5, &expected);
    let said = folder.nearjoin("knn p.npy -k 5 --max-distance 0.02 --degrees -q").said;
    let degrees: Vec<_> =
        said.lines().skip(1).map(|line| line.split_once(',').unwrap().1).collect();
    assert!(degrees.iter().copied().eq(expected.iter().map(|row| row.len().to_string())));
    for metric in [Metric::L1, Metric::Linf] {
        let expected = truth::<f64>(&points, None, Ask { metric, ..ASK });
        check(&folder, "p.npy", &format!("--metric {metric} --strategy tree"), 5, &expected);
        check(&folder, "p.npy", &format!("--metric {metric} --strategy brute"), 5, &expected);
    }
}

#[test]
fn two_files_and_padding() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 900 -d 3 --seed 1 -q --dtype f32 -o a.parquet");
    folder.nearjoin("gen uniform -n 7 -d 3 --seed 2 -q -o b.csv");
    let (a, b) = (rows(&folder.path("a.parquet")), rows(&folder.path("b.csv")));
    check(&folder, "a.parquet b.csv", "", 5, &truth::<f64>(&a, Some(&b), ASK));
    let more = Ask { k: 12, ..ASK };
    check(&folder, "a.parquet b.csv", "--pad", 12, &truth::<f64>(&a, Some(&b), more));
    check(&folder, "b.csv", "--pad", 12, &truth::<f64>(&b, None, more));
    let near = Ask { max_distance: 30.0, ..more };
    let expected = truth::<f64>(&b, Some(&a), near);
    check(&folder, "b.csv a.parquet", "--max-distance 30", 12, &expected);
    // Points of one type keep it.
    folder.nearjoin("knn a.parquet -k 3 -q -o f32.npz");
    check_npz(&folder, "f32.npz", "<f4", 3, &truth::<f32>(&a, None, Ask { k: 3, ..ASK }));
}

#[test]
fn ids_stand_for_points() {
    let folder = Folder::new();
    folder.write("a.csv", "name,x\nanna,1\nbo,2\n");
    folder.write("b.csv", "key,at\n7,2.5\n8,1\n");
    let said = folder
        .nearjoin(
            "knn a.csv b.csv -k 2 --id name --right-id key --columns x --right-columns at --sorted",
        )
        .said;
    assert_eq!(
        said,
        "left,right,rank,distance\nanna,8,1,0.0\nanna,7,2,1.5\nbo,7,1,0.5\nbo,8,2,1.0\n"
    );
}

/// Joins in parts and as a whole, and compares the files byte by byte.
fn parts(folder: &Folder, join: &str, limit: &str) {
    for output in ["--sorted -o o.csv", "-o o.npz"] {
        let run = |options: &str| {
            let line = format!("knn {join} {output} {options} --stats s.json -q");
            folder.nearjoin(&line);
            let stats = std::fs::read_to_string(folder.path("s.json")).unwrap();
            let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
            let file = output.rsplit(' ').next().unwrap();
            (stats["parts"].as_u64().unwrap(), std::fs::read(folder.path(file)).unwrap())
        };
        let whole = run("");
        let parted = run(&format!("--memory-limit {limit}"));
        assert_eq!(whole.0, 1, "{join}");
        assert!(parted.0 > 1, "{join}: {}", parted.0);
        assert!(whole.1 == parted.1, "{join} {output}: parts differ from the whole");
    }
}

#[test]
fn rows_in_order_come_in_parts_where_memory_is_short() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 20000 -d 2 --seed 1 -q -o p.npy");
    parts(&folder, "p.npy -k 20", "4MiB");
    parts(&folder, "p.npy -k 20 --include-self", "4MiB");
    parts(&folder, "p.npy -k 20 --max-distance 1.2", "4MiB");
    folder.nearjoin("gen uniform -n 15000 -d 2 --seed 9 -q -o q.npy");
    parts(&folder, "p.npy q.npy -k 20", "5MiB");
    let ran = folder.run("knn p.npy -k 19000 -o o.npz --memory-limit 2MiB");
    assert_eq!(ran.code, Some(1), "{}", ran.errors);
    assert!(ran.errors.contains("the memory limit is 1.50 MiB: raise the limit"), "{}", ran.errors);
    folder.nearjoin("gen uniform -n 30 -d 2 --seed 3 -q -o few.npy");
    parts(&folder, "p.npy few.npy -k 40 --pad", "3MiB");
}

#[test]
fn parts_of_duplicates_leave_out_the_point_itself_or_the_last() {
    let folder = Folder::new();
    // A hundred copies of each point, far apart in the file: most points are not among the
    // first of their own copies.
    let line = |i: u32| format!("{},{}\n", i * 7919 % 400 % 20, i * 7919 % 400 / 20);
    let lines: String = (0..40_000).map(line).collect();
    folder.write("copies.csv", &format!("x,y\n{lines}"));
    parts(&folder, "copies.csv -k 5", "4MiB");
    parts(&folder, "copies.csv -k 5 --max-distance 0", "4MiB");
    let few: String = (0..1200).map(line).collect();
    folder.write("few.csv", &format!("x,y\n{few}"));
    let points = rows(&folder.path("few.csv"));
    check(&folder, "few.csv", "", 5, &truth::<f64>(&points, None, ASK));
}

#[test]
fn no_points_have_no_neighbours() {
    let folder = Folder::new();
    folder.write("none.csv", "x,y\n");
    folder.write("one.csv", "x,y\n1,2\n");
    assert_eq!(folder.nearjoin("knn none.csv -k 3 --count").said, "0\n");
    assert_eq!(folder.nearjoin("knn none.csv one.csv -k 3").said, "left,right,rank,distance\n");
    assert_eq!(folder.nearjoin("knn one.csv none.csv -k 3 --pad --count").said, "0\n");
    for (sides, rows) in [("none.csv", 0), ("one.csv", 1), ("one.csv none.csv", 1)] {
        folder.nearjoin(&format!("knn {sides} -k 3 --pad -o o.npz --report r.html"));
        check_npz(&folder, "o.npz", "<f8", 3, &vec![Vec::new(); rows]);
    }
}

#[test]
fn a_report_shows_how_far_away_the_neighbours_are() {
    let folder = Folder::new();
    folder.nearjoin("gen clustered -n 3000 -d 2 --seed 5 -q -o p.npy");
    for output in ["--count", "-o o.csv", "--sorted -o o.parquet", "-o o.npz"] {
        folder.nearjoin(&format!("knn p.npy -k 8 --max-distance 0.5 {output} --report r.html -q"));
        let page = std::fs::read_to_string(folder.path("r.html")).unwrap();
        assert!(page.contains("Distance to the k-th neighbour, k = 8"), "{output}");
        assert!(page.contains("with fewer than k") && page.contains("leaves of 16 points"));
        assert!(!page.contains("NaN") && !page.contains("ε ="));
    }
}
