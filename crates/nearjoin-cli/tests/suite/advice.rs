//! What is said of the files: which of the two is meant, what they are, and what their columns
//! seem to be.

use crate::program::Folder;

fn error(folder: &Folder, arguments: &str) -> String {
    let ran = folder.run(arguments);
    assert!(matches!(ran.code, Some(1 | 2)), "nearjoin {arguments}: {}", ran.errors);
    ran.errors
}

/// Advice about the right file names the options of the right file.
#[test]
fn advice_is_about_the_file_in_question() {
    let folder = Folder::new();
    folder.write("a.csv", "x,y,name\n0,0,a\n1,1,b\n");
    folder.write("bare.csv", "0.5,0,17\n1,1,18\n");
    folder.write("other.csv", "u,v,key\n0.5,0,c\n");
    folder.write("large.csv", "x,y\n9007199254740993,1\n");
    folder.write("text.csv", "x,y,note\n0,0,n\n");
    folder.nearjoin("gen uniform -n 20 -d 2 -q -o p.npy");
    folder.nearjoin("within a.csv --columns x,y --id name --eps 9 -q -o names.arrow");
    for (arguments, advice) in [
        (
            "a.csv bare.csv --columns x,y",
            "if it has no header, choose by number, from 0, with --right-columns\n",
        ),
        (
            "a.csv bare.csv --columns x,y --id name",
            "if it has no header, choose by number, from 0, with --right-columns and --right-id\n",
        ),
        (
            "bare.csv a.csv --columns x,y --id name",
            "if it has no header, choose by number, from 0, with --columns and --id\n",
        ),
        ("a.csv other.csv --columns x,y", "\"key\": choose among them with --right-columns\n"),
        ("other.csv a.csv --columns x,y", "\"key\": choose among them with --columns\n"),
        (
            "a.csv other.csv --columns x,y --right-columns u,v --id name",
            "there is no column \"name\": the columns are \"u\", \"v\", \"key\": choose among them \
             with --right-id\n",
        ),
        (
            "a.csv other.csv --columns x --right-columns u --id nam",
            "\"name\": choose among them with --id\n",
        ),
        ("a.csv names.arrow --columns 0", "choose among them with --columns\n"),
        ("p.npy names.arrow", "choose columns with --right-columns\n"),
        ("p.npy text.csv", "\"n\" is not a number\n"),
        (
            "a.csv p.npy --columns x,y --right-columns 0,1 --right-id 0",
            "leave --id and --right-id out, or use another format\n",
        ),
        (
            "p.npy large.csv",
            "9007199254740993 has no exact f64: write it with a decimal point if it may be rounded, \
             else subtract an offset from the column or leave it out with --right-columns\n",
        ),
        ("large.csv --dtype f32", "has no exact f32: compute in f64 with --dtype f64\n"),
    ] {
        let said = error(&folder, &format!("within {arguments} --eps 1 --count"));
        assert!(said.ends_with(advice), "{arguments}: {said}");
    }
    // As advised.
    let count = "within a.csv bare.csv --columns x,y --id name --right-columns 0,1 --right-id 2";
    let ran = folder.nearjoin(&format!("{count} --eps 0.6 --sorted -q"));
    assert_eq!(ran.said, "left,right\na,17\nb,18\n");
    folder.write("rounded.csv", "x,y\n9007199254740993.0,1\n");
    folder.nearjoin("within rounded.csv --eps 1 --count");
    folder.nearjoin("within large.csv --columns y --eps 1 --count");
}

/// The column of ids is called what the user called it.
#[test]
fn ids_are_named_as_they_were_asked_for() {
    let folder = Folder::new();
    folder.write("a.csv", "x,name\n0,a\n1,\n");
    folder.write("bare.csv", "0,17\n1,\n");
    folder.write("good.csv", "x,name\n0,a\n1,b\n");
    let said = error(&folder, "within a.csv --id name --eps 1");
    assert!(said.contains("row 1 (line 3), column \"name\": the id is empty"), "{said}");
    let said =
        error(&folder, "within good.csv bare.csv --id name --right-columns 0 --right-id 1 --eps 1");
    assert!(said.contains("bare.csv: row 1 (line 2), column \"1\": the id is empty"), "{said}");
    let said =
        error(&folder, "within good.csv good.csv --columns x --right-id name --eps 1 -o o.npz");
    assert!(said.contains("the column \"name\": leave --right-id out"), "{said}");
}

/// Every quoted argument and value is cut, and an error stays on its line.
#[test]
fn what_is_quoted_is_cut() {
    let folder = Folder::new();
    folder.write("p.csv", "x,y\n0,0\n");
    let (long, cut) = ("q".repeat(60), "q".repeat(40));
    for (arguments, said) in [
        (format!("within p.csv --eps 1 --columns {long}"), format!("no column \"{cut}\"…")),
        (format!("within p.csv --eps 1 --id {long}"), format!("no column \"{cut}\"…")),
        (format!("within p.csv --eps 1 --id {long} -o o.npz"), format!("the column \"{cut}\"…")),
        (format!("within p.csv --eps {long}"), format!("'{cut}…'")),
        (format!("within p.csv --eps 1 --metric {long}"), format!("'{cut}…'")),
        (format!("within p.csv --eps 1 --threads {long}"), format!("'{cut}…'")),
        (format!("within p.csv --eps 1 --{long}"), format!("'--{}…'", &cut[2..])),
        (long.clone(), format!("'{cut}…'")),
    ] {
        let error = error(&folder, &arguments);
        assert!(error.contains(&said) && !error.contains(&long), "{arguments}: {error}");
    }
}

/// Files that are no tables are called what they are.
#[test]
fn a_page_is_not_an_empty_table() {
    let folder = Folder::new();
    folder.write("page.csv", "<!DOCTYPE html><html>moved</html>");
    folder.write("answer", "{\"error\": \"moved\"}");
    let said = error(&folder, "within page.csv --eps 1 --count");
    assert_eq!(
        said,
        "error: page.csv: this is an HTML page, not a table: download the file itself\n"
    );
    let said = error(&folder, "within answer --eps 1 --count");
    assert!(said.contains("answer: this is JSON, not a table"), "{said}");
}

/// Angles on a sphere are warned of, once, and joined all the same.
#[test]
fn angles_are_warned_of() {
    let folder = Folder::new();
    folder.write("sky.csv", "name,ra,dec\na,10,20\nb,10.5,20\n");
    folder.write("map.csv", "Lat,Lng\n10,20\n10.5,20\n");
    folder.write("plane.csv", "name,x,y\na,10,20\nb,10.5,20\n");
    let warned = |arguments: &str| {
        let ran = folder.nearjoin(arguments);
        ran.errors.matches("warning: the columns ").count()
    };
    for arguments in [
        "within sky.csv --columns ra,dec --eps 1 --count",
        "within sky.csv --id name --eps 1",
        "within sky.csv map.csv --columns ra,dec --right-columns Lat,Lng --eps 1 --count",
        "within plane.csv map.csv --columns x,y --right-columns Lat,Lng --eps 1 --count",
        "within map.csv --eps 1 --explain",
        "knn map.csv -k 1",
        "estimate map.csv --neighbors 1",
    ] {
        assert_eq!(warned(arguments), 1, "{arguments}");
        assert_eq!(folder.nearjoin(&format!("{arguments} -q")).errors, "", "{arguments} -q");
    }
    for arguments in [
        "within sky.csv --columns ra --eps 1 --count",
        "within plane.csv --columns x,y --eps 1 --count",
        "gen uniform -n 10 -d 2 -o p.csv",
        "within p.csv --eps 1 --count",
        "demo -n 2000",
    ] {
        assert_eq!(warned(arguments), 0, "{arguments}");
    }
    let said = folder.nearjoin("within map.csv --eps 1 --count").errors;
    for words in ["\"Lng\" and \"Lat\"", "cos(lat) cos(lon)", "2 sin(θ/2)", "Points on a sphere"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// The README's example for the sky, as it stands there: angles across 0° and at a pole.
#[test]
#[cfg(unix)]
fn the_readme_joins_the_sky() {
    let readme = include_str!("../../../../README.md");
    let block = readme.split("```").find(|block| block.contains("stars-xyz.csv"));
    let script = block.expect("an example").strip_prefix("sh\n").expect("a script");
    let folder = Folder::new();
    folder.write("stars.csv", "name,ra,dec\nzero,0.0001,-30\npole,10,89.9999\nfar,10,0\n");
    folder.write("catalogue.csv", "source,RA,DE\n1,359.9999,-30\n2,190,89.99999\n3,10,0.001\n");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_nearjoin"));
    let path = std::env::var("PATH").expect("a path");
    let path = format!("{}:{path}", program.parent().expect("a folder").display());
    let mut shell = std::process::Command::new("sh");
    shell.args(["-e", "-c", script]).current_dir(&folder.0).env("PATH", path);
    let ran = crate::program::Ran::new(shell.output().expect("a shell"));
    assert_eq!(ran.code, Some(0), "{}", ran.errors);
    assert!(!ran.errors.contains("warning"), "{}", ran.errors);
    let found = std::fs::read_to_string(folder.path("match.csv")).expect("the answer");
    let mut found: Vec<_> = found.lines().collect();
    found.sort_unstable();
    assert_eq!(found, ["left,right", "pole,2", "zero,1"]);
}
