//! Every format in and out, against brute force.

use nearjoin::{Metric, Points, oracle};

use crate::program::{Folder, rows};

/// Ordered pairs with their distances, ascending.
fn truth(left: &[Vec<f64>], right: Option<&[Vec<f64>]>, eps: f64) -> Vec<Vec<f64>> {
    let dim = left[0].len();
    let flat = |rows: &[Vec<f64>]| rows.concat();
    let (a, b) = (flat(left), flat(right.unwrap_or(left)));
    let (a, b) = (Points::new(&a, dim).unwrap(), Points::new(&b, dim).unwrap());
    let found = oracle::eps_join(&a, &b, eps, Metric::L2, right.is_none()).unwrap();
    let pairs = found.into_iter().enumerate().flat_map(|(left, row)| {
        row.into_iter().map(move |(right, distance)| vec![left as f64, f64::from(right), distance])
    });
    pairs.collect()
}

fn sorted(mut rows: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    rows.sort_by(|a, b| a.partial_cmp(b).unwrap());
    rows
}

#[test]
fn every_format_in_gives_the_same_points() {
    let folder = Folder::new();
    for format in ["parquet", "arrow", "csv", "npy"] {
        folder.nearjoin(&format!("gen clustered -n 3000 -d 3 --seed 5 -q -o p.{format}"));
    }
    let points = rows(&folder.path("p.npy"));
    for format in ["parquet", "arrow", "csv"] {
        assert_eq!(rows(&folder.path(&format!("p.{format}"))), points, "{format}");
    }
}

#[test]
fn every_format_out_holds_the_answer() {
    let folder = Folder::new();
    folder.nearjoin("gen clustered -n 3000 -d 2 --seed 5 -q -o p.npy");
    let truth = truth(&rows(&folder.path("p.npy")), None, 0.03);
    assert!(truth.len() > 3000, "{}", truth.len());
    for format in ["parquet", "arrow", "csv"] {
        let out = format!("o.{format}");
        let run = |options: &str| {
            folder.nearjoin(&format!("within p.npy --eps 0.03 -q -o {out} {options}"));
            rows(&folder.path(&out))
        };
        assert_eq!(sorted(run("--distances")), truth, "{format}");
        assert_eq!(run("--distances --sorted"), truth, "{format} sorted");
        let half: Vec<_> = truth.iter().filter(|pair| pair[0] < pair[1]).cloned().collect();
        assert_eq!(sorted(run("--distances --half")), half, "{format} half");
        assert_eq!(run("--distances --half --sorted"), half, "{format} half, sorted");
        let bare: Vec<_> = truth.iter().map(|pair| pair[..2].to_vec()).collect();
        assert_eq!(sorted(run("")), bare, "{format} without distances");
        let with_self = sorted(run("--include-self"));
        assert_eq!(with_self.len(), bare.len() + 3000);
        assert_eq!(run("--include-self --sorted"), with_self, "{format} with self");
    }
    assert_eq!(folder.names(), ["o.arrow", "o.csv", "o.parquet", "p.npy"]);
}

#[test]
fn two_files_of_different_types_are_joined() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 4000 -d 2 --seed 1 -q --dtype f32 -o a.parquet");
    folder.nearjoin("gen uniform -n 3000 -d 2 --seed 2 -q -o b.csv");
    let (a, b) = (rows(&folder.path("a.parquet")), rows(&folder.path("b.csv")));
    folder.nearjoin("within a.parquet b.csv --eps 1.5 -q --sorted --distances -o o.arrow");
    assert_eq!(rows(&folder.path("o.arrow")), truth(&a, Some(&b), 1.5));
}

#[test]
fn rows_in_order_come_in_parts_where_memory_is_short() {
    let folder = Folder::new();
    folder.nearjoin("gen uniform -n 20000 -d 2 --seed 1 -q -o p.npy");
    let expected = |options: &str| {
        folder.nearjoin(&format!("within p.npy --eps 3 -q --sorted -o all.parquet {options}"));
        rows(&folder.path("all.parquet"))
    };
    for options in ["--distances", "--half", "--include-self"] {
        let ran = folder.nearjoin(&format!(
            "within p.npy --eps 3 --sorted -o parts.parquet --memory-limit 4MiB --stats - {options}"
        ));
        let stats: serde_json::Value = serde_json::from_str(&ran.said).unwrap();
        assert!(stats["parts"].as_u64().unwrap() > 1, "{stats}");
        let parts = rows(&folder.path("parts.parquet"));
        assert!(parts.len() > 400_000, "{}", parts.len());
        assert!(parts == expected(options), "{options}: parts differ from the whole");
    }
    // The same two sets, in parts and as a whole.
    folder.nearjoin("gen uniform -n 15000 -d 2 --seed 9 -q -o q.npy");
    folder.nearjoin("within p.npy q.npy --eps 3 -q --sorted -o all.arrow");
    folder.nearjoin("within p.npy q.npy --eps 3 -q --sorted -o parts.arrow --memory-limit 5MiB");
    assert!(rows(&folder.path("all.arrow")) == rows(&folder.path("parts.arrow")));
}

#[test]
fn no_points_make_no_pairs() {
    let folder = Folder::new();
    folder.write("none.csv", "x,y\n");
    assert_eq!(folder.nearjoin("within none.csv --eps 1 --count").said, "0\n");
    assert_eq!(folder.nearjoin("within none.csv --eps 1").said, "left,right\n");
    for format in ["parquet", "arrow", "npz"] {
        folder.nearjoin(&format!("within none.csv --eps 1 -o o.{format} --report r.html"));
        folder.nearjoin(&format!("within none.csv --eps 1 --degrees -o d.{format}"));
    }
    folder.nearjoin("estimate none.csv --plot");
    assert_eq!(rows(&folder.path("o.parquet")), Vec::<Vec<f64>>::new());
}
