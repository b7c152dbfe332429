//! Parquet and Arrow: columns of every type, lists, ids, and what is refused.

use std::sync::Arc;

use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, Float64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::*;
use half::f16;
use nearjoin_io::{DType, ReadOptions};
use parquet::file::properties::WriterProperties;

use crate::read_make::*;

const ROWS: usize = 50_000;

fn wave(row: usize) -> f64 {
    (row as f64 * 0.37).sin() * 1e3
}

#[test]
fn floats_in_every_file() {
    let x: Vec<f64> = (0..ROWS).map(wave).collect();
    let y: Vec<f64> = (0..ROWS).map(|row| (row % 17) as f64).collect();
    let small = batch(&[("x", floats(&x[..100])), ("y", floats(&y[..100]))]);
    for (name, bytes) in every_columnar(&small) {
        let loaded = load(bytes);
        assert_eq!((loaded.points.len(), loaded.points.dimension()), (100, 2), "{name}");
        assert_eq!(loaded.points.dtype(), DType::F64);
        assert_eq!(loaded.columns, ["x", "y"]);
        let expected: Vec<f64> = (0..100).flat_map(|row| [x[row], y[row]]).collect();
        assert_eq!(coordinates(&loaded), expected, "{name}");
    }
    let large = batch(&[("x", floats(&x)), ("y", floats(&y))]);
    let swapped: Vec<f64> = (0..ROWS).flat_map(|row| [y[row], x[row]]).collect();
    for bytes in [
        parquet(&large, WriterProperties::default()),
        parquet(
            &large,
            WriterProperties::builder().set_max_row_group_row_count(Some(20_000)).build(),
        ),
        arrow_file(std::slice::from_ref(&large), None),
    ] {
        let loaded = load_with(bytes, &columns(&["y", "x"]));
        assert_eq!(coordinates(&loaded), swapped);
        assert_eq!(loaded.columns, ["y", "x"]);
    }
}

#[test]
fn numbers_of_every_type() {
    let types: Vec<(&str, ArrayRef, DType)> = vec![
        ("i8", Arc::new(Int8Array::from(vec![-128, 0, 127])), DType::F64),
        ("i16", Arc::new(Int16Array::from(vec![-32768, 0, 32767])), DType::F64),
        ("i32", Arc::new(Int32Array::from(vec![i32::MIN, 0, i32::MAX])), DType::F64),
        ("i64", Arc::new(Int64Array::from(vec![-(1 << 53), 0, 1 << 53])), DType::F64),
        ("u8", Arc::new(UInt8Array::from(vec![0, 1, 255])), DType::F64),
        ("u16", Arc::new(UInt16Array::from(vec![0, 1, 65535])), DType::F64),
        ("u32", Arc::new(UInt32Array::from(vec![0, 1, u32::MAX])), DType::F64),
        ("u64", Arc::new(UInt64Array::from(vec![0, 1, 1 << 63])), DType::F64),
        ("f32", Arc::new(Float32Array::from(vec![0.1, -1e-45, f32::MAX])), DType::F32),
        ("f64", Arc::new(Float64Array::from(vec![0.1, -5e-324, f64::MAX])), DType::F64),
        ("f16", Arc::new(Float16Array::from(vec![0.5, -2.0, 65504.0].map_f16())), DType::F32),
    ];
    for (name, array, dtype) in types {
        let expected: Vec<f64> = match name {
            "i8" => vec![-128.0, 0.0, 127.0],
            "i16" => vec![-32768.0, 0.0, 32767.0],
            "i32" => vec![-2147483648.0, 0.0, 2147483647.0],
            "i64" => vec![-9007199254740992.0, 0.0, 9007199254740992.0],
            "u8" => vec![0.0, 1.0, 255.0],
            "u16" => vec![0.0, 1.0, 65535.0],
            "u32" => vec![0.0, 1.0, 4294967295.0],
            "u64" => vec![0.0, 1.0, 9223372036854775808.0],
            "f32" => vec![0.1f32 as f64, -1e-45f32 as f64, f32::MAX as f64],
            "f64" => vec![0.1, -5e-324, f64::MAX],
            _ => vec![0.5, -2.0, 65504.0],
        };
        for (file, bytes) in every_columnar(&batch(&[("v", array)])) {
            let loaded = load(bytes);
            assert_eq!(loaded.points.dtype(), dtype, "{name} in {file}");
            assert_eq!(coordinates(&loaded), expected, "{name} in {file}");
        }
    }
}

trait MapF16 {
    fn map_f16(self) -> Vec<f16>;
}

impl MapF16 for Vec<f64> {
    fn map_f16(self) -> Vec<f16> {
        self.into_iter().map(f16::from_f64).collect()
    }
}

impl MapF16 for [f64; 3] {
    fn map_f16(self) -> Vec<f16> {
        self.to_vec().map_f16()
    }
}

#[test]
fn the_type_that_is_asked_for() {
    let narrow: ArrayRef = Arc::new(Float32Array::from(vec![0.1, 2.0]));
    let wide = floats(&[0.1, 2.0]);
    let both = batch(&[("a", narrow), ("b", wide)]);
    for (_, bytes) in every_columnar(&both) {
        assert_eq!(load(bytes.clone()).points.dtype(), DType::F64);
        assert_eq!(load_with(bytes.clone(), &columns(&["a"])).points.dtype(), DType::F32);
        let f32s = ReadOptions { dtype: Some(DType::F32), ..ReadOptions::default() };
        let loaded = load_with(bytes.clone(), &f32s);
        assert_eq!(coordinates(&loaded), [0.1f32 as f64, 0.1f32 as f64, 2.0, 2.0]);
        let f64s = ReadOptions { dtype: Some(DType::F64), ..columns(&["a"]) };
        assert_eq!(coordinates(&load_with(bytes.clone(), &f64s)), [0.1f32 as f64, 2.0]);
        let widened = load_with(bytes, &columns(&["a"])).points.into_f64().unwrap();
        assert_eq!((widened.dtype(), widened.bytes()), (DType::F64, 16));
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let integers: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 2, (1 << 53) + 1, 4]));
    let x = floats(&[0.0, 1.0, 2.0, 3.0, 1e39]);
    let both = batch(&[("n", integers), ("x", x)]);
    let f32s = |names| ReadOptions { dtype: Some(DType::F32), ..columns(names) };
    for (_, bytes) in every_columnar(&both) {
        assert_eq!(
            refuse(bytes.clone()),
            "f: row 3, column \"n\": 9007199254740993 has no exact f64: store the column as f64 \
             if it may be rounded, else subtract an offset from it or choose columns without it"
        );
        assert_eq!(
            refuse_with(bytes.clone(), &f32s(&["n"])),
            "f: row 3, column \"n\": 9007199254740993 has no exact f32: read the points as f64"
        );
        assert_eq!(
            refuse_with(bytes, &f32s(&["x"])),
            "f: row 4, column \"x\": 1e39 is beyond the range of f32: read the points as f64"
        );
    }
}

#[test]
fn what_is_no_coordinate_is_named() {
    let x: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None, Some(f64::NAN)]));
    let y = floats(&[1.0, 2.0, f64::NEG_INFINITY]);
    let name: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    let flag: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true]));
    let money: ArrayRef = Arc::new(Decimal128Array::from(vec![1, 2, 3]));
    let all = batch(&[("x", x), ("y", y), ("name", name), ("flag", flag), ("money", money)]);
    for (_, bytes) in every_columnar(&all) {
        let refuse_with = |names: &[&str]| refuse_with(bytes.clone(), &columns(names));
        assert_eq!(refuse_with(&["x"]), "f: row 1, column \"x\": the value is missing");
        assert_eq!(refuse_with(&["y"]), "f: row 2, column \"y\": -inf is not a finite number");
        assert_eq!(
            refuse_with(&["name"]),
            "f: column \"name\": the column holds text, not numbers"
        );
        assert_eq!(
            refuse_with(&["flag"]),
            "f: column \"flag\": the column holds booleans, not numbers"
        );
        assert_eq!(
            refuse_with(&["money"]),
            "f: column \"money\": the column holds decimals, which are not read as coordinates: \
             store them as f64"
        );
        assert_eq!(
            refuse(bytes.clone()),
            "f: column \"name\": the column holds text, not numbers: choose columns"
        );
        assert_eq!(
            refuse_with(&["X"]),
            "f: there is no column \"X\": did you mean \"x\"? the columns are \"x\", \"y\", \"name\", \"flag\", \
             \"money\": choose among them"
        );
        assert_eq!(refuse_with(&["x", "y", "x"]), "f: column \"x\": the column is asked for twice");
        assert_eq!(
            super::read_make::refuse_with(bytes.clone(), &with_id("nam")),
            "f: there is no column \"nam\": did you mean \"name\"? the columns are \"x\", \"y\", \
             \"name\", \"flag\", \"money\": choose among them"
        );
    }
}

#[test]
fn lists_of_one_length() {
    let mut fixed = FixedSizeListBuilder::new(Float32Builder::new(), 3);
    let mut listed = ListBuilder::new(Float64Builder::new());
    for row in 0..40 {
        for at in 0..3 {
            fixed.values().append_value((row * 3 + at) as f32);
            listed.values().append_value((row * 3 + at) as f64);
        }
        fixed.append(true);
        listed.append(true);
    }
    let label: ArrayRef = Arc::new(StringArray::from_iter_values((0..40).map(|i| i.to_string())));
    let fixed: ArrayRef = Arc::new(fixed.finish());
    let listed: ArrayRef = Arc::new(listed.finish());
    let expected: Vec<f64> = (0..120).map(f64::from).collect();
    for (lists, dtype) in [(fixed, DType::F32), (listed, DType::F64)] {
        let rows = batch(&[("label", label.clone()), ("v", lists)]);
        for (file, bytes) in every_columnar(&rows) {
            for options in [with_id("label"), columns(&["v"])] {
                let loaded = load_with(bytes.clone(), &options);
                assert_eq!(coordinates(&loaded), expected, "{file}");
                assert_eq!(loaded.points.dtype(), dtype);
                assert_eq!(loaded.columns, ["v[0]", "v[1]", "v[2]"]);
            }
            assert_eq!(
                refuse(bytes.clone()),
                "f: column \"v\": the column holds lists, and there is the column \"label\" beside \
                 it: choose it, or columns of numbers"
            );
            assert_eq!(
                refuse_with(bytes, &columns(&["v", "label"])),
                "f: column \"v\": a column of lists must be the only one: choose it, or columns \
                 of numbers"
            );
        }
    }
}

#[test]
fn lists_beside_other_columns_are_not_chosen_silently() {
    let list = || -> ArrayRef {
        let mut lists = ListBuilder::new(Float64Builder::new());
        lists.append_value([Some(1.0), Some(2.0)]);
        Arc::new(lists.finish())
    };
    let alone = batch(&[("v", list())]);
    let table = batch(&[("x", floats(&[3.0])), ("v", list()), ("w", list())]);
    for (file, bytes) in every_columnar(&alone) {
        assert_eq!(coordinates(&load(bytes)), [1.0, 2.0], "{file}");
    }
    for (file, bytes) in every_columnar(&table) {
        assert_eq!(
            refuse(bytes.clone()),
            "f: column \"v\": the column holds lists, and there are the columns \"x\", \"w\" beside \
             it: choose it, or columns of numbers",
            "{file}"
        );
        assert_eq!(coordinates(&load_with(bytes.clone(), &columns(&["x"]))), [3.0]);
        assert_eq!(coordinates(&load_with(bytes, &columns(&["w"]))), [1.0, 2.0]);
    }
}

/// One batch of several blocks, each of them wrong: the first is told, however threads run.
#[test]
fn the_first_of_several_misfits_is_named() {
    let mut numbers: Vec<i64> = (0..200_000).collect();
    for row in (20_000..200_000).step_by(7_000) {
        numbers[row] = (1 << 53) + 1;
    }
    let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
    let bytes = arrow_file(&[batch(&[("n", numbers)])], None);
    for _ in 0..20 {
        let error = refuse(bytes.clone());
        assert!(error.starts_with("f: row 20000, column \"n\": "), "{error}");
    }
}

/// The columns of a batch lie in one piece of memory, which the ids must not keep.
#[test]
fn ids_do_not_keep_the_other_columns() {
    let rows = 10_000;
    let x = floats(&vec![1.0; rows]);
    let text = |row: usize| format!("a name that does not fit a view, {row}");
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(text)));
    let views: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..rows).map(text)));
    let coordinates: Vec<String> = (0..30).map(|at| format!("x{at}")).collect();
    let coordinates: Vec<&str> = coordinates.iter().map(|name| &name[..]).collect();
    for (ids, most) in [(numbers, 16), (names, 100), (views, 130)] {
        let mut table = vec![("id", ids.clone())];
        table.extend(coordinates.iter().map(|name| (*name, x.clone())));
        let bytes = arrow_file(&[batch(&table)], None);
        let options = ReadOptions { id: Some("id".into()), ..columns(&coordinates) };
        let loaded = load_with(bytes, &options).ids.unwrap();
        assert_eq!(&loaded, &ids);
        let kept = loaded.get_buffer_memory_size();
        assert!(kept <= rows * most, "{kept} bytes for {}", ids.data_type());
    }
}

#[test]
fn lists_that_are_wrong() {
    let lists = |rows: Vec<Option<Vec<Option<f64>>>>| -> ArrayRef {
        let mut builder = ListBuilder::new(Float64Builder::new());
        for row in rows {
            builder.append_option(row);
        }
        Arc::new(builder.finish())
    };
    let good = || Some(vec![Some(1.0), Some(2.0)]);
    for (rows, message) in [
        (
            vec![good(), good(), Some(vec![Some(1.0)]), good()],
            "f: row 2, column \"v\": the list has 1 items, the first row's has 2",
        ),
        (vec![good(), None, good()], "f: row 1, column \"v\": the value is missing"),
        (
            vec![good(), Some(vec![Some(0.0), None]), good()],
            "f: row 1, column \"v[1]\": the value is missing",
        ),
        (
            vec![good(), good(), Some(vec![Some(f64::NAN), Some(1.0)])],
            "f: row 2, column \"v[0]\": NaN is not a finite number",
        ),
        (
            vec![Some(vec![]), Some(vec![])],
            "f: points of dimension 0 are not supported: it must be between 1 and 4096",
        ),
        (vec![], "f: column \"v\": there are no rows, so the length of the lists is not known"),
    ] {
        for (file, bytes) in every_columnar(&batch(&[("v", lists(rows))])) {
            assert_eq!(refuse(bytes), message, "{file}");
        }
    }
}

#[test]
fn ids_of_every_type() {
    let x = floats(&[1.0, 2.0, 3.0, 4.0]);
    let names: ArrayRef = Arc::new(StringArray::from(vec!["a", "bc", "", "ü"]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![9, 8, 7, i64::MAX]));
    let dictionary: ArrayRef =
        Arc::new(["u", "v", "u", "w"].into_iter().collect::<DictionaryArray<Int32Type>>());
    let holes: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, None, Some("b")]));
    let all = batch(&[
        ("x", x),
        ("name", names),
        ("number", numbers),
        ("kind", dictionary),
        ("hole", holes),
    ]);
    let options = |id| ReadOptions { id: Some(String::from(id)), ..columns(&["x"]) };
    for (file, bytes) in every_columnar(&all) {
        let ids = load_with(bytes.clone(), &options("name")).ids.unwrap();
        let ids: Vec<_> = ids.as_string::<i32>().iter().flatten().collect();
        assert_eq!(ids, ["a", "bc", "", "ü"], "{file}");
        let ids = load_with(bytes.clone(), &options("number")).ids.unwrap();
        assert_eq!(ids.as_primitive::<Int64Type>().values(), &[9, 8, 7, i64::MAX]);
        let ids = load_with(bytes.clone(), &options("kind")).ids.unwrap();
        let ids = ids.as_dictionary::<Int32Type>();
        let kinds = ids.downcast_dict::<StringArray>().unwrap();
        assert_eq!(kinds.into_iter().flatten().collect::<Vec<_>>(), ["u", "v", "u", "w"]);
        assert_eq!(
            refuse_with(bytes.clone(), &options("hole")),
            "f: row 1, column \"hole\": the value is missing"
        );
        // An id may be a coordinate too, where it is listed.
        let both = ReadOptions { id: Some("number".into()), ..columns(&["x", "number"]) };
        let error = refuse_with(bytes, &both);
        assert!(error.contains("row 3, column \"number\": 9223372036854775807 has no exact f64"));
    }
}

#[test]
fn no_rows_are_an_empty_set() {
    let none = batch(&[("x", floats(&[])), ("y", floats(&[]))]);
    for (file, bytes) in every_columnar(&none) {
        let loaded = load_with(bytes, &with_id("y"));
        assert!(loaded.points.is_empty() && loaded.points.dimension() == 1, "{file}");
        assert_eq!(loaded.ids.unwrap().len(), 0);
    }
    let only = batch(&[("id", floats(&[1.0]))]);
    for (_, bytes) in every_columnar(&only) {
        assert_eq!(refuse_with(bytes, &with_id("id")), "f: there is no column of coordinates");
    }
}

#[test]
fn too_many_dimensions_are_refused() {
    let x = floats(&[1.0]);
    let names: Vec<String> = (0..4097).map(|at| format!("c{at}")).collect();
    let wide: Vec<(&str, ArrayRef)> = names.iter().map(|name| (&name[..], x.clone())).collect();
    let message = "f: points of dimension 4097 are not supported: it must be between 1 and 4096";
    let wide = batch(&wide);
    assert_eq!(refuse(parquet(&wide, WriterProperties::default())), message);
    assert_eq!(refuse(arrow_file(&[wide], None)), message);
    let mut fixed = FixedSizeListBuilder::new(Float32Builder::new(), 4097);
    (0..4097).for_each(|_| fixed.values().append_value(0.0));
    fixed.append(true);
    let lists: ArrayRef = Arc::new(fixed.finish());
    assert_eq!(refuse(arrow_file(&[batch(&[("v", lists)])], None)), message);
}
