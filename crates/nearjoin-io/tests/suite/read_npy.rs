//! NPY: every type, order and byte order, and what is refused.

use nearjoin_io::{DType, ReadOptions};

use crate::read_make::*;

/// Six numbers, as `(3, 2)` in C order.
fn npy(descr: &str, fortran: bool, bytes: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let mut out = npy_header(descr, fortran, "(3, 2)");
    let order = if fortran { [0, 2, 4, 1, 3, 5] } else { [0, 1, 2, 3, 4, 5] };
    order.into_iter().for_each(|number| out.extend(bytes(number)));
    out
}

#[test]
fn every_type_and_order() {
    let expected = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    for fortran in [false, true] {
        macro_rules! check {
            ($t:ty, $letters:literal, $dtype:expr, $from:expr) => {
                let size = size_of::<$t>();
                let from: fn(usize) -> $t = $from;
                let little = format!("{}{}{size}", if size == 1 { '|' } else { '<' }, $letters);
                let file = npy(&little, fortran, |number| from(number).to_le_bytes().to_vec());
                let loaded = load(file.clone());
                assert_eq!(coordinates(&loaded), expected, "{little}");
                assert_eq!(loaded.points.dtype(), $dtype, "{little}");
                assert_eq!(loaded.columns, ["0", "1"]);
                let chosen = load_with(file.clone(), &columns(&["1"]));
                assert_eq!(coordinates(&chosen), [1.0, 3.0, 5.0]);
                let swapped = load_with(file, &columns(&["1", "0"]));
                assert_eq!(coordinates(&swapped), [1.0, 0.0, 3.0, 2.0, 5.0, 4.0]);
                let big = format!(">{}{size}", $letters);
                let file = npy(&big, fortran, |number| from(number).to_be_bytes().to_vec());
                assert_eq!(coordinates(&load(file)), expected, "{big}");
            };
        }
        check!(f64, "f", DType::F64, |n| n as f64);
        check!(f32, "f", DType::F32, |n| n as f32);
        check!(half::f16, "f", DType::F32, |n| half::f16::from_f64(n as f64));
        check!(i8, "i", DType::F64, |n| n as i8);
        check!(i16, "i", DType::F64, |n| n as i16);
        check!(i32, "i", DType::F64, |n| n as i32);
        check!(i64, "i", DType::F64, |n| n as i64);
        check!(u8, "u", DType::F64, |n| n as u8);
        check!(u16, "u", DType::F64, |n| n as u16);
        check!(u32, "u", DType::F64, |n| n as u32);
        check!(u64, "u", DType::F64, |n| n as u64);
    }
}

#[test]
fn many_rows_in_both_orders() {
    let (rows, width) = (100_003usize, 3);
    let number = |row: usize, column: usize| (row * width + column) as f64 * 0.5;
    let shape = format!("({rows}, {width})");
    let mut c = npy_header("<f8", false, &shape);
    let mut fortran = npy_header("<f8", true, &shape);
    let expected: Vec<f64> = (0..rows * width).map(|at| number(at / width, at % width)).collect();
    c.extend(expected.iter().flat_map(|x| x.to_le_bytes()));
    for column in 0..width {
        fortran.extend((0..rows).flat_map(|row| number(row, column).to_le_bytes()));
    }
    assert_eq!(coordinates(&load(c.clone())), expected);
    assert_eq!(coordinates(&load(fortran.clone())), expected);
    let f32s = ReadOptions { dtype: Some(DType::F32), ..ReadOptions::default() };
    let rounded: Vec<f64> = expected.iter().map(|&x| f64::from(x as f32)).collect();
    assert_eq!(coordinates(&load_with(c, &f32s)), rounded);
    assert_eq!(coordinates(&load_with(fortran, &f32s)), rounded);
}

#[test]
fn what_is_refused() {
    let six = |from: fn(usize) -> f64| npy("<f8", false, |n| from(n).to_le_bytes().to_vec());
    let mut bad = six(|n| if n == 3 { f64::NAN } else { 0.0 });
    assert_eq!(refuse(bad.clone()), "f: row 1, column \"1\": NaN is not a finite number");
    bad.pop();
    assert_eq!(
        refuse(bad.clone()),
        "f is a damaged NPY file: the data is cut short: 3 × 2 <f8 take 48 bytes and there \
         are 47"
    );
    bad.extend([0, 0]);
    assert_eq!(
        refuse(bad),
        "f is a damaged NPY file: the data is too long: 3 × 2 <f8 take 48 bytes and there \
         are 49"
    );
    let large = npy("<i8", true, |n| (i64::MAX - 6 + n as i64).to_le_bytes().to_vec());
    assert_eq!(
        refuse(large),
        "f: row 0, column \"0\": 9223372036854775801 has no exact f64: store the column as f64 \
         if it may be rounded, else subtract an offset from it or choose columns without it"
    );
    let f32s = ReadOptions { dtype: Some(DType::F32), ..ReadOptions::default() };
    assert_eq!(
        refuse_with(six(|n| if n == 5 { -1e300 } else { 0.0 }), &f32s),
        format!(
            "f: row 2, column \"1\": {:?} is beyond the range of f32: read the points as f64",
            -1e300
        )
    );
    assert_eq!(
        refuse_with(six(|n| n as f64), &with_id("0")),
        "f: an NPY file has no ids, so there is no column \"0\": leave the ids out, or use another \
         format"
    );
    assert_eq!(
        refuse_with(six(|n| n as f64), &columns(&["2"])),
        "f: there is no column \"2\": the columns are \"0\", \"1\": choose among them"
    );
}

#[test]
fn shapes_and_types_that_are_no_points() {
    for (shape, message) in [
        ("(6,)", "f: the array has shape (6,): reshape it to (points, coordinates)"),
        ("()", "f: the array has shape (): reshape it to (points, coordinates)"),
        ("(1, 2, 3)", "f: the array has shape (1, 2, 3): reshape it to (points, coordinates)"),
        (
            "(0, 4097)",
            "f: points of dimension 4097 are not supported: it must be between 1 and 4096",
        ),
        ("(5, 0)", "f: points of dimension 0 are not supported: it must be between 1 and 4096"),
    ] {
        assert_eq!(refuse(npy_header("<f8", false, shape)), message, "{shape}");
    }
    for (descr, message) in [
        ("<c16", "f: the array holds <c16, not numbers that can be read here"),
        ("|b1", "f: the array holds |b1, not numbers that can be read here"),
        ("<U5", "f: the array holds <U5, not numbers that can be read here"),
        ("|O", "f: the array holds |O, not numbers that can be read here"),
    ] {
        assert_eq!(refuse(npy_header(descr, false, "(3, 2)")), message);
    }
    let named = npy_header("@", false, "(3,)");
    let named = String::from_utf8_lossy(&named[10..]).replace("'@'", "[('x', '<f8')]");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((named.len() as u16).to_le_bytes());
    file.extend(named.as_bytes());
    assert_eq!(refuse(file), "f: the array has named fields: save one plain array");
    // A header that claims more than there is takes no memory.
    let huge = npy_header("<f8", false, "(4000000000, 4096)");
    assert!(refuse(huge).contains("the data is cut short"));
    let huge = npy_header("<f8", false, "(18446744073709551615, 4096)");
    assert!(refuse(huge).contains("NPY"));
    let empty = load(npy_header("<f4", false, "(0, 7)"));
    assert_eq!((empty.points.len(), empty.points.dimension()), (0, 7));
}

#[test]
fn versions_of_the_header() {
    let one = npy("<f8", false, |n| (n as f64).to_le_bytes().to_vec());
    for version in [2, 3] {
        let mut file = one[..6].to_vec();
        file.extend([version, 0]);
        let length = u16::from_le_bytes([one[8], one[9]]);
        file.extend(u32::from(length).to_le_bytes());
        file.extend(&one[10..]);
        assert_eq!(coordinates(&load(file)), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    }
    let mut deep = b"\x93NUMPY\x01\x00".to_vec();
    deep.extend(60_000u16.to_le_bytes());
    deep.extend([b'('; 60_000]);
    assert_eq!(refuse(deep), "f is a damaged NPY file: the header is nested too deeply");
    // A dozen would take the parser of headers a minute.
    let mut open = b"\x93NUMPY\x01\x00".to_vec();
    open.extend(30u16.to_le_bytes());
    open.extend(b"{{{{{{{{{{{{{'descr': '<f8', }}");
    assert_eq!(refuse(open), "f is a damaged NPY file: the header is nested too deeply");
    assert_eq!(
        refuse(&b"\x93NUMPY\x02\x00\xFF\xFF\xFF\x7F{"[..]),
        "f is a damaged NPY file: the header is cut short"
    );
}
