//! NPZ files, degrees and points.

use std::fs;
use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray};
use nearjoin::{Points, Scalar};
use nearjoin_io::write::{NpzCsr, NpzNeighbors, Target, write_degrees, write_labels, write_points};
use nearjoin_io::{Error, Format, OutputFormat};

use crate::write_check::{Folder, TABLES, read_table};

fn number(bytes: &[u8], at: u64, length: usize) -> u64 {
    let at = at as usize;
    bytes[at..at + length].iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte))
}

/// An entry of a ZIP archive: its name, its data, and whether its sizes are 64-bit fields.
struct Entry<'a> {
    name: String,
    data: &'a [u8],
    large: bool,
}

/// Reads an archive of stored entries from its directory, and checks every field against
/// its twin in the local header.
fn unzip(bytes: &[u8]) -> Vec<Entry<'_>> {
    let end = bytes.len() as u64 - 22;
    assert_eq!(&bytes[end as usize..][..4], b"PK\x05\x06");
    let (mut count, mut length, mut at) =
        (number(bytes, end + 10, 2), number(bytes, end + 12, 4), number(bytes, end + 16, 4));
    let mut directory_end = end;
    if at == u64::from(u32::MAX) {
        let locator = end - 20;
        assert_eq!(&bytes[locator as usize..][..4], b"PK\x06\x07");
        let record = number(bytes, locator + 8, 8);
        assert_eq!(record + 56, locator);
        assert_eq!(&bytes[record as usize..][..4], b"PK\x06\x06");
        assert_eq!(number(bytes, record + 4, 8), 44);
        (count, length, at) = (
            number(bytes, record + 32, 8),
            number(bytes, record + 40, 8),
            number(bytes, record + 48, 8),
        );
        directory_end = record;
    }
    assert_eq!(at + length, directory_end);
    let mut entries = Vec::new();
    for _ in 0..count {
        assert_eq!(&bytes[at as usize..][..4], b"PK\x01\x02");
        assert_eq!(number(bytes, at + 10, 2), 0, "stored");
        let checksum = number(bytes, at + 16, 4);
        let (name_length, extra_length) = (number(bytes, at + 28, 2), number(bytes, at + 30, 2));
        let name = &bytes[at as usize + 46..][..name_length as usize];
        let (mut size, mut header) = (number(bytes, at + 20, 4), number(bytes, at + 42, 4));
        let large = size == u64::from(u32::MAX);
        if large {
            let extra = at + 46 + name_length;
            assert_eq!((number(bytes, extra, 2), extra_length), (1, 28));
            size = number(bytes, extra + 4, 8);
            assert_eq!(number(bytes, extra + 12, 8), size);
            header = number(bytes, extra + 20, 8);
        }
        // Version, flags, method, time, date, checksum, sizes, length of the name.
        let twin = &bytes[header as usize + 4..][..24];
        assert_eq!(twin, &bytes[at as usize + 6..][..24]);
        assert_eq!(&bytes[header as usize + 30..][..name.len()], name);
        let local_extra = number(bytes, header + 28, 2);
        let data = header + 30 + name_length + local_extra;
        assert_eq!(data % 64, 0, "aligned");
        let data = &bytes[data as usize..][..size as usize];
        assert_eq!(u64::from(crc32fast::hash(data)), checksum);
        let name = String::from_utf8(name.to_vec()).unwrap();
        entries.push(Entry { name, data, large });
        at += 46 + name_length + extra_length;
    }
    assert_eq!(at, directory_end);
    entries
}

fn npy<T: npyz::Deserialize>(data: &[u8]) -> (Vec<u64>, Vec<T>) {
    let file = npyz::NpyFile::new(data).unwrap();
    (file.shape().to_vec(), file.into_vec().unwrap())
}

fn csr<T: Scalar + npyz::Deserialize>(rows: u32, distances: bool, zip64: bool) {
    let folder = Folder::new();
    let path = folder.file("out.npz");
    let offsets: Vec<u64> = (0..=u64::from(rows)).map(|row| row * (row + 1) / 2).collect();
    let pairs = offsets[rows as usize];
    let ids: Vec<u32> = (0..pairs).map(|at| (at * 31 % 997) as u32).collect();
    let values: Vec<T> = (0..pairs).map(|at| T::from_f64(at as f64 / 7.0)).collect();
    let target = Target::create(&path).unwrap();
    let mut writer =
        NpzCsr::<T>::with_zip64(target, rows.into(), 997, pairs, distances, zip64).unwrap();
    let mut first = 0;
    let mut step = 1;
    while first < rows as usize {
        let last = (first + step).min(rows as usize);
        let range = offsets[first] as usize..offsets[last] as usize;
        let values = distances.then_some(&values[range.clone()]);
        writer.rows(&offsets[first..=last], &ids[range], values).unwrap();
        first = last;
        step *= 3;
    }
    let written = writer.finish().unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!((written.pairs, written.bytes), (pairs, bytes.len() as u64));
    let entries = unzip(&bytes);
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    let all = ["indptr.npy", "indices.npy", "distances.npy", "shape.npy"];
    assert!(names.iter().eq(all.iter().filter(|name| distances || **name != "distances.npy")));
    assert!(entries.iter().all(|entry| entry.large == zip64));
    let indptr: Vec<i64> = offsets.iter().map(|&offset| offset as i64).collect();
    assert_eq!(npy::<i64>(entries[0].data), (vec![u64::from(rows) + 1], indptr));
    let indices = ids.iter().map(|&id| id as i32).collect();
    assert_eq!(npy::<i32>(entries[1].data), (vec![pairs], indices));
    if distances {
        assert!(npy::<T>(entries[2].data).1 == values);
    }
    let shape = entries.last().unwrap();
    assert_eq!(npy::<i64>(shape.data), (vec![2], vec![i64::from(rows), 997]));
}

#[test]
fn csr_arrays() {
    for zip64 in [false, true] {
        for distances in [false, true] {
            // The last has arrays of several buffers.
            for rows in [0, 1, 40, 1500] {
                csr::<f32>(rows, distances, zip64);
                csr::<f64>(rows, distances, zip64);
            }
        }
    }
}

/// Rows of any length up to k, in parts of any size.
fn neighbors<T: Scalar + npyz::Deserialize>(rows: u64, k: u64, short: bool) {
    let folder = Folder::new();
    let path = folder.file("out.npz");
    let (mut offsets, mut ids, mut reals) = (vec![0u64], Vec::new(), Vec::<T>::new());
    let (mut all_ids, mut all_reals) = (Vec::new(), Vec::new());
    for row in 0..rows {
        let length = if short { row * 7 % (k + 1) } else { k };
        let first = ids.len();
        ids.extend((0..length).map(|at| (row * 31 + at) as u32));
        reals.extend((0..length).map(|at| T::from_f64((row + at) as f64 / 7.0)));
        offsets.push(ids.len() as u64);
        all_ids.extend_from_slice(&ids[first..]);
        all_ids.resize(((row + 1) * k) as usize, u32::MAX);
        all_reals.extend_from_slice(&reals[first..]);
        all_reals.resize(((row + 1) * k) as usize, T::INFINITY);
    }
    let mut writer = NpzNeighbors::<T>::new(Target::create(&path).unwrap(), rows, k).unwrap();
    let (mut first, mut step) = (0, 1);
    while first < rows as usize {
        let last = (first + step).min(rows as usize);
        let range = offsets[first] as usize..offsets[last] as usize;
        writer.rows(&offsets[first..=last], &ids[range.clone()], &reals[range]).unwrap();
        (first, step) = (last, step * 3);
    }
    let written = writer.finish().unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!((written.pairs, written.bytes), (ids.len() as u64, bytes.len() as u64));
    let entries = unzip(&bytes);
    assert_eq!(
        entries.iter().map(|e| &e.name[..]).collect::<Vec<_>>(),
        ["indices.npy", "distances.npy"]
    );
    assert!(String::from_utf8_lossy(&entries[0].data[..64]).contains("'<u4'"));
    assert_eq!(npy::<u32>(entries[0].data), (vec![rows, k], all_ids));
    assert!(npy::<T>(entries[1].data) == (vec![rows, k], all_reals));
}

#[test]
fn dense_rows_of_neighbors() {
    for short in [false, true] {
        // The last has rows that are longer than what is gathered at a time.
        for (rows, k) in [(0, 3), (1, 1), (40, 7), (50_000, 8), (3, 300_000)] {
            neighbors::<f32>(rows, k, short);
            neighbors::<f64>(rows, k, short);
        }
    }
}

#[test]
fn dense_rows_that_were_not_announced_are_an_error() {
    let folder = Folder::new();
    let new = |left, k| {
        NpzNeighbors::<f32>::new(Target::create(folder.file("out.npz")).unwrap(), left, k)
    };
    assert!(new(1, 2).unwrap().rows(&[0, 1, 1], &[5], &[0.5]).is_err());
    let message = new(2, 2).unwrap().finish().unwrap_err().to_string();
    assert!(message.ends_with("2 rows were announced, not 0"), "{message}");
    let message = new(1 << 31, 1 << 60).unwrap_err().to_string();
    assert!(message.contains("larger than any file"), "{message}");
    assert!(folder.files().is_empty());
}

#[test]
fn many_right_points_need_unsigned_indices() {
    let folder = Folder::new();
    for (right, descr) in [(i32::MAX as u64, "<i4"), (i32::MAX as u64 + 1, "<u4")] {
        let path = folder.file("out.npz");
        let target = Target::create(&path).unwrap();
        let mut writer = NpzCsr::<f32>::new(target, 1, right, 1, false).unwrap();
        writer.rows(&[0, 1], &[right as u32 - 1], None).unwrap();
        writer.finish().unwrap();
        let bytes = fs::read(&path).unwrap();
        let indices = String::from_utf8_lossy(unzip(&bytes)[1].data).into_owned();
        assert!(indices.contains(descr), "{indices}");
    }
}

#[test]
fn what_was_not_announced_is_an_error() {
    let folder = Folder::new();
    let new = |left, pairs| {
        let target = Target::create(folder.file("out.npz")).unwrap();
        NpzCsr::<f32>::new(target, left, 5, pairs, false).unwrap()
    };
    let mut more_pairs = new(1, 1);
    assert!(matches!(more_pairs.rows(&[0, 2], &[1, 2], None), Err(Error::Format { .. })));
    let mut more_rows = new(1, 2);
    assert!(more_rows.rows(&[0, 1, 2], &[1, 2], None).is_err());
    let mut fewer = new(2, 2);
    fewer.rows(&[0, 1], &[1], None).unwrap();
    let message = fewer.finish().unwrap_err().to_string();
    assert!(message.ends_with("2 rows and 2 pairs were announced, not 1 and 1"), "{message}");
    drop((more_pairs, more_rows));
    assert!(folder.files().is_empty());
}

#[test]
fn degrees() {
    let folder = Folder::new();
    let path = folder.file("out");
    for count in [0u64, 5, 200_000] {
        let degrees: Vec<u64> = (0..count).map(|row| row * row % 1009 + (row << 33)).collect();
        let text: Vec<String> = degrees.iter().map(u64::to_string).collect();
        let rows: Vec<String> = (0..count).map(|row| row.to_string()).collect();
        let names: Vec<String> = (0..count).map(|row| format!("p{row}")).collect();
        let ids: ArrayRef = Arc::new(StringArray::from(names.clone()));
        for format in TABLES {
            for (ids, expected) in [(None, &rows), (Some(ids.clone()), &names)] {
                let target = Target::create(&path).unwrap();
                let written = write_degrees(target, format, ids, &degrees).unwrap();
                assert_eq!(written.pairs, count);
                let (header, columns) = read_table(&path, format);
                assert_eq!(header, ["id", "neighbors"]);
                assert!(columns[0] == *expected && columns[1] == text);
            }
        }
        let target = Target::create(&path).unwrap();
        write_degrees(target, OutputFormat::Npz, None, &degrees).unwrap();
        let bytes = fs::read(&path).unwrap();
        let entries = unzip(&bytes);
        assert_eq!(entries[0].name, "degrees.npy");
        assert!(npy::<i64>(entries[0].data).1.iter().map(|&d| d as u64).eq(degrees));
    }
    let ids: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let target = Target::create(&path).unwrap();
    let error = write_degrees(target, OutputFormat::Npz, Some(ids), &[1]).unwrap_err();
    assert!(error.to_string().contains("has no ids"), "{error}");
}

#[test]
fn labels() {
    let folder = Folder::new();
    let path = folder.file("out");
    for count in [0u64, 5, 200_000] {
        let labels: Vec<i64> = (0..count as i64).map(|row| row * row % 1009 - 1).collect();
        let text: Vec<String> = labels.iter().map(i64::to_string).collect();
        let ids: Vec<String> = (0..count).map(|row| format!("p{row}")).collect();
        for format in TABLES {
            let target = Target::create(&path).unwrap();
            let names: ArrayRef = Arc::new(StringArray::from(ids.clone()));
            let written = write_labels(target, format, Some(names), labels.iter().copied());
            assert_eq!(written.unwrap().pairs, count);
            let (header, columns) = read_table(&path, format);
            assert_eq!(header, ["id", "label"]);
            assert!(columns[0] == ids && columns[1] == text);
        }
        let target = Target::create(&path).unwrap();
        write_labels(target, OutputFormat::Npz, None, labels.iter().copied()).unwrap();
        let bytes = fs::read(&path).unwrap();
        let entries = unzip(&bytes);
        assert_eq!(entries[0].name, "labels.npy");
        assert!(npy::<i64>(entries[0].data).1 == labels);
    }
}

fn points<T: Scalar + npyz::Deserialize + std::str::FromStr>()
where
    T::Err: std::fmt::Debug,
{
    let folder = Folder::new();
    let path = folder.file("out");
    for (count, dimension) in [(0, 2), (1, 1), (5, 3), (70_000, 4), (1_100_000, 1)] {
        let data: Vec<T> =
            (0..count * dimension).map(|i| T::from_f64((i as f64 * 0.37).sin() * 1e3)).collect();
        let set = Points::new(&data, dimension).unwrap();
        let names: Vec<String> = (0..dimension).map(|axis| format!("x{axis}")).collect();
        for format in [Format::Parquet, Format::Arrow, Format::Csv] {
            let target = Target::create(&path).unwrap();
            let written = write_points(target, format, &names, &set).unwrap();
            assert_eq!(written.pairs, count as u64);
            assert_eq!(written.bytes, fs::metadata(&path).unwrap().len());
            let format = match format {
                Format::Parquet => OutputFormat::Parquet,
                Format::Arrow => OutputFormat::Arrow,
                _ => OutputFormat::Csv,
            };
            let (header, columns) = read_table(&path, format);
            assert_eq!(header, names);
            for (axis, column) in columns.iter().enumerate() {
                assert_eq!(column.len(), count);
                let values = column.iter().map(|text| text.parse::<T>().unwrap());
                assert!(values.eq(data.iter().skip(axis).step_by(dimension).copied()));
            }
        }
        let target = Target::create(&path).unwrap();
        write_points(target, Format::Npy, &names, &set).unwrap();
        let (shape, values) = npy::<T>(&fs::read(&path).unwrap());
        assert_eq!(shape, [count as u64, dimension as u64]);
        assert!(values == data);
    }
}

#[test]
fn points_of_both_types() {
    points::<f32>();
    points::<f64>();
}

#[test]
fn two_columns_of_one_name_are_refused() {
    let folder = Folder::new();
    let points = Points::new(&[1.0, 2.0], 2).unwrap();
    let names = ["x".to_string(), "x".to_string()];
    let target = Target::create(folder.file("out")).unwrap();
    let error = write_points(target, Format::Csv, &names, &points).unwrap_err();
    assert!(error.to_string().contains("both be called \"x\""), "{error}");
    assert!(folder.files().is_empty());
}

/// More columns than are encoded side by side, and a number that pieces do not divide.
#[test]
fn a_thousand_columns() {
    let folder = Folder::new();
    for (rows, dimension) in [(100, 1000), (100, 300), (3000, 33)] {
        let data: Vec<f64> = (0..rows * dimension).map(|at| at as f64 * 0.5).collect();
        let points = Points::new(&data, dimension).unwrap();
        let names: Vec<String> = (0..dimension).map(|at| format!("c{at}")).collect();
        let path = folder.file("points.parquet");
        let target = Target::create(&path).unwrap();
        write_points(target, Format::Parquet, &names, &points).unwrap();
        let source = nearjoin_io::Source::from(path.as_path());
        let loaded = nearjoin_io::read(&source, &Default::default(), &Default::default()).unwrap();
        assert_eq!(loaded.columns, names);
        assert_eq!(crate::read_make::coordinates(&loaded), data);
    }
}
