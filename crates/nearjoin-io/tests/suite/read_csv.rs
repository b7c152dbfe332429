//! CSV: headers, delimiters, quotes, ids, line ends, and what is refused.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use nearjoin_io::{DType, ReadOptions};

use crate::read_make::*;

/// The same text with a quoted field in its first row goes the other way through the reader.
fn both_ways(text: &str) -> [String; 2] {
    let quoted = text.replacen("1.5", "\"1.5\"", 1);
    assert_ne!(text, quoted);
    [text.to_owned(), quoted]
}

#[test]
fn text_in_many_dresses() {
    for text in [
        "x,y\n1.5,2\n-3e2,.5\n",
        "x,y\r\n1.5,2\r\n-3e2,.5\r\n",
        "x,y\n1.5,2\n-3e2,.5",
        "x,y\n1.5,2\n-3e2,.5\n\n\r\n\n",
        "\u{feff}x,y\n1.5,2\n-3e2,.5\n",
        "x;y\n1.5;2\n-3e2;.5\n",
        "x\ty\n1.5\t2\n-3e2\t.5\n",
        "x|y\n1.5|2\n-3e2|.5\n",
        "x y\n1.5 2\n-3e2 .5\n",
        "  x   y  \n1.5   2  \r\n  -3e2  .5",
        " x , y \n1.5 ,\t2\n -3e2,+.5 \n",
        "\nx,y\n1.5,2\n-3e2,.5\n",
    ] {
        for text in both_ways(text) {
            let loaded = load(text.clone());
            assert_eq!(coordinates(&loaded), [1.5, 2.0, -300.0, 0.5], "{text:?}");
            assert_eq!(loaded.columns, ["x", "y"], "{text:?}");
            assert_eq!(loaded.points.dtype(), DType::F64);
        }
    }
    let caret = ReadOptions { delimiter: Some(b'^'), ..ReadOptions::default() };
    assert_eq!(coordinates(&load_with("1^2\n3^4", &caret)), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn with_and_without_a_header() {
    let header = |header| ReadOptions { header: Some(header), ..ReadOptions::default() };
    for text in both_ways("1.5,2\n3,4\n") {
        let loaded = load(text.clone());
        assert_eq!(loaded.columns, ["0", "1"]);
        assert_eq!(coordinates(&loaded), [1.5, 2.0, 3.0, 4.0]);
        let loaded = load_with(text.clone(), &columns(&["1"]));
        assert_eq!(coordinates(&loaded), [2.0, 4.0]);
        let loaded = load_with(text, &header(true));
        assert_eq!(loaded.columns, ["1.5", "2"]);
        assert_eq!(coordinates(&loaded), [3.0, 4.0]);
    }
    assert_eq!(
        refuse_with("x,y\n1,2\n", &header(false)),
        "f: row 0 (line 1), column \"0\": \"x\" is not a number"
    );
    let empty = load("x,y,z\n");
    assert_eq!((empty.points.len(), empty.points.dimension()), (0, 3));
    let empty = load("x,y,z");
    assert_eq!((empty.points.len(), empty.points.dimension()), (0, 3));
    assert_eq!(coordinates(&load("7")), [7.0]);
}

#[test]
fn chosen_columns_and_ids() {
    let text = "name,x,note,y,n\nalpha,1.5,hello,2,7\nbeta,3,,4,-8\n";
    for text in both_ways(text) {
        let options = ReadOptions { id: Some("name".into()), ..columns(&["y", "x"]) };
        let loaded = load_with(text.clone(), &options);
        assert_eq!(coordinates(&loaded), [2.0, 1.5, 4.0, 3.0]);
        let ids = loaded.ids.unwrap();
        assert_eq!(ids.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["alpha", "beta"]);
        let options = ReadOptions { id: Some("n".into()), ..columns(&["n", "x"]) };
        let loaded = load_with(text, &options);
        assert_eq!(coordinates(&loaded), [7.0, 1.5, -8.0, 3.0]);
        assert_eq!(loaded.ids.unwrap().as_primitive::<Int64Type>().values(), &[7, -8]);
    }
    let zeros = load_with("id,x\n1,1\n007,2\n", &with_id("id"));
    assert_eq!(zeros.ids.unwrap().as_string::<i32>().value(1), "007");
    let by_number = load_with("a,1,2\nb,3,4\n", &with_id("0"));
    assert_eq!(by_number.columns, ["1", "2"]);
    assert_eq!(by_number.ids.unwrap().as_string::<i32>().value(1), "b");
    let none = load_with("id,x\n", &with_id("id"));
    assert_eq!(none.ids.unwrap().len(), 0);
}

#[test]
fn quotes() {
    let text = "name,x\n\"Smith, \"\"J\"\"\",1\n\"two\nlines\",2\n\"\"\"\",\" 3 \"\n";
    let loaded = load_with(text, &with_id("name"));
    assert_eq!(coordinates(&loaded), [1.0, 2.0, 3.0]);
    let ids = loaded.ids.unwrap();
    let ids: Vec<_> = ids.as_string::<i32>().iter().flatten().collect();
    assert_eq!(ids, ["Smith, \"J\"", "two\nlines", "\""]);
    let text = "name,x\n\"two\nlines\",2\nb,?\n";
    assert_eq!(
        refuse_with(text, &with_id("name")),
        "f: row 1 (line 4), column \"x\": \"?\" is not a number"
    );
    assert_eq!(
        refuse("x,y\n1,2\n3,\"4\n5,6\n"),
        "f: row 1 (line 3): a quote is opened and never closed"
    );
}

#[test]
fn what_is_refused() {
    for (text, message) in [
        ("x,y\n1.5,2\n3,abc\n", "f: row 1 (line 3), column \"y\": \"abc\" is not a number"),
        ("x,y\r\n1.5,2\r\n3,abc\r\n", "f: row 1 (line 3), column \"y\": \"abc\" is not a number"),
        ("x,y\n1.5,2\n3,\n", "f: row 1 (line 3), column \"y\": the field is empty"),
        ("x,y\n1.5,2\n,3\n", "f: row 1 (line 3), column \"x\": the field is empty"),
        ("x,y\n1.5,2\n3, nan\n", "f: row 1 (line 3), column \"y\": nan is not a finite number"),
        ("x,y\n1.5,2\n-inf,1\n", "f: row 1 (line 3), column \"x\": -inf is not a finite number"),
        (
            "x,y\n1.5,2\n-1e999,1\n",
            "f: row 1 (line 3), column \"x\": -1e999 is beyond the range of f64",
        ),
        (
            "x,y\n1.5,2\n3,9007199254740993\n",
            "f: row 1 (line 3), column \"y\": 9007199254740993 has no exact f64: write it with a \
             decimal point if it may be rounded, else subtract an offset from the column or choose \
             columns without it",
        ),
        ("x,y\n1.5,2\n3\n", "f: row 1 (line 3): the row has 1 field, the first line has 2"),
        ("x,y\n1.5,2\n3,4,5\n1,1", "f: row 1 (line 3): the row has 3 fields, the first line has 2"),
        ("x,y\n1.5,2\n3,4,\n", "f: row 1 (line 3): the row has 3 fields, the first line has 2"),
        ("x y\n1.5 2\n 3 4 5 \n", "f: row 1 (line 3): the row has 3 fields, the first line has 2"),
        ("x y\n1.5 2\n 3 \n4 4", "f: row 1 (line 3): the row has 1 field, the first line has 2"),
        ("x,y\n1.5,2\n\n3,4\n", "f: row 1 (line 3): the line is blank"),
        ("x,y\n1.5,2\r\n\r\n3,4\n", "f: row 1 (line 3): the line is blank"),
        ("x\n1.5\n\n3\n", "f: row 1 (line 3): the line is blank"),
    ] {
        for text in both_ways(text) {
            assert_eq!(refuse(text.clone()), message, "{text:?}");
        }
    }
    for (text, message) in [
        ("id,x\n1,1.5\n,2\n", "f: row 1 (line 3), column \"id\": the id is empty"),
        ("id,x\n1,1.5\n\n2,2\n", "f: row 1 (line 3): the line is blank"),
    ] {
        for text in both_ways(text) {
            assert_eq!(refuse_with(text, &with_id("id")), message);
        }
    }
    assert_eq!(
        refuse_with("lat,lon\n1,2\n", &columns(&["Lat", "lon"])),
        "f: there is no column \"Lat\": did you mean \"lat\"? the columns are \"lat\", \"lon\": \
         choose among them"
    );
    assert_eq!(
        refuse_with("1,2\n", &columns(&["x"])),
        "f: there is no column \"x\": the columns are \"1\", \"2\" (line 1 is the header, since \
         columns are asked for by name): if it has no header, choose columns and ids by number, from \
         0"
    );
    assert_eq!(
        refuse_with("1,2\n", &columns(&["2"])),
        "f: there is no column \"2\": the columns are \"0\", \"1\" (no header was found in line 1): \
         choose among them"
    );
    assert_eq!(
        refuse("1.0,NA\n1,2\n"),
        "f: line 1, column \"1\": \"NA\" is text beside numbers: say whether the first line is a \
         header"
    );
    assert_eq!(refuse("1,\n1,2\n"), "f: row 0 (line 1), column \"1\": the field is empty");
    assert_eq!(
        refuse_with("name,1,2\n", &with_id("nmae")),
        "f: there is no column \"nmae\": the columns are \"name\", \"1\", \"2\": choose \
         among them"
    );
    assert_eq!(refuse_with("x\n1\n", &with_id("x")), "f: there is no column of coordinates");
    assert_eq!(refuse("\n\r\n"), "f: the file has no lines");
    assert_eq!(refuse("1,2\0\n"), "f: this is neither text nor Parquet, Arrow or NPY");
    assert_eq!(
        refuse("x,y\r1,2\r3,4\r"),
        "f: its lines end in a carriage return alone: save it with line feeds"
    );
    for delimiter in [b'.', b'e', b'-', b'\n', b'"', 0xFF] {
        let options = ReadOptions { delimiter: Some(delimiter), ..ReadOptions::default() };
        let message = format!(
            "f: {:?} cannot separate fields: choose a sign that is in no number",
            char::from(delimiter)
        );
        assert_eq!(refuse_with("1,2\n", &options), message);
    }
    let f32s = ReadOptions { dtype: Some(DType::F32), ..ReadOptions::default() };
    assert_eq!(
        refuse_with("1e38\n1e39\n", &f32s),
        "f: row 1 (line 2), column \"0\": 1e39 is beyond the range of f32: read the points as f64"
    );
    assert_eq!(
        refuse_with("16777216\n16777217\n", &f32s),
        "f: row 1 (line 2), column \"0\": 16777217 has no exact f32: read the points as f64"
    );
}

/// Values and names are cut at 40 characters, and nothing in them breaks the line.
#[test]
fn what_is_quoted_is_cut() {
    let (long, cut) = ("ü".repeat(60), "ü".repeat(40));
    for (text, message) in [
        (format!("x\n{long}\n"), format!("column \"x\": \"{cut}\"… is not a number")),
        (format!("{long}\nq\n"), format!("column \"{cut}\"…: \"q\" is not a number")),
        (format!("x\n1e{}\n", "9".repeat(60)), format!("1e{}… is beyond", "9".repeat(38))),
        (format!("x\n1{}\n", "3".repeat(60)), format!("1{}… has no exact f64", "3".repeat(39))),
        ("x\n\u{1b}[31mred\n".to_owned(), "\"\\u{1b}[31mred\" is not a number".to_owned()),
        ("\"x\ny\"\nq\n".to_owned(), "column \"x\\ny\": \"q\" is not".to_owned()),
        (format!("1,{long}\n1,2\n"), format!("\"{cut}\"… is text beside numbers")),
    ] {
        let error = refuse(text);
        assert!(error.contains(&message) && error.lines().count() == 1, "{error}");
    }
    let error = refuse_with(format!("{long},y\n1,2\n"), &columns(&[&(long.clone() + "?")]));
    assert!(
        error.starts_with(&format!(
            "f: there is no column \"{cut}\"…: did you mean \"{cut}\"…? the columns are \"{cut}\"…, \
             \"y\""
        )),
        "{error}"
    );
}

/// Dates, times and decimals are ids as they stand.
#[test]
fn ids_that_look_like_dates() {
    let ids = ["2024-01-02", "12:30:00", "2024-01-02T03:04:05Z", "2024-01-02 03:04:05", "12.50"];
    for quote in ["", "\""] {
        let rows = ids.iter().map(|id| format!("{quote}{id}{quote},1.5\n"));
        let text = format!("id,x\n{}", rows.collect::<String>());
        let loaded = load_with(text, &with_id("id")).ids.unwrap();
        assert_eq!(loaded.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ids);
    }
}

/// Large enough for many pieces, so that rows on their borders are seen too.
#[test]
fn many_lines() {
    let rows = 200_000;
    let number = |row: usize| (row as f64 * 0.7).sin();
    let mut text = String::from("id,x,y\n");
    for row in 0..rows {
        text += &format!("{row},{},{}\n", number(row), row * 3);
    }
    let expected: Vec<f64> = (0..rows).flat_map(|row| [number(row), (row * 3) as f64]).collect();
    let loaded = load_with(text.clone(), &with_id("id"));
    assert_eq!(coordinates(&loaded), expected);
    let ids = loaded.ids.unwrap();
    let ids = ids.as_primitive::<Int64Type>();
    assert!((0..rows).all(|row| ids.value(row) == row as i64) && ids.len() == rows);

    let bad = text.replace("\n150000,", "\n150000,x");
    let bad = bad.replace("\n190000,", "\n190000,y");
    let error = refuse_with(bad, &with_id("id"));
    assert!(error.starts_with("f: row 150000 (line 150002), column \"x\": \"x"), "{error}");

    let quoted = text.replace("\n77,", "\n\"77\",");
    let loaded = load_with(quoted, &with_id("id"));
    assert_eq!(coordinates(&loaded), expected);
    assert_eq!(loaded.ids.unwrap().as_primitive::<Int64Type>().value(77), 77);
}

/// Every number comes back bit for bit, in both types.
#[test]
fn numbers_print_and_parse() {
    let mut state = 7u64;
    let mut numbers = Vec::new();
    for _ in 0..100_000 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let number = f64::from_bits(state ^ (state >> 29));
        if number.is_finite() {
            numbers.push(number);
        }
    }
    let plain: String = numbers.iter().map(|number| format!("{number:e}\n")).collect();
    assert_eq!(coordinates(&load(plain)), numbers);
    let f32s = ReadOptions { dtype: Some(DType::F32), ..ReadOptions::default() };
    let small: Vec<f32> = numbers.iter().map(|&n| n as f32).filter(|n| n.is_finite()).collect();
    let text: String = small.iter().map(|number| format!("{number:?}\n")).collect();
    let expected: Vec<f64> = small.iter().map(|&n| f64::from(n)).collect();
    assert_eq!(coordinates(&load_with(text, &f32s)), expected);
}
