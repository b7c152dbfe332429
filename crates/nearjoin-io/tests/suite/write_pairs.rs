//! Tables of pairs: what is handed in is what other programs read.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, DictionaryArray, Int64Array, ListArray, StringArray,
    StringViewArray,
};
use arrow_schema::DataType;
use nearjoin::sink::{Block, Callback};
use nearjoin::{Device, EpsJoin, Points, Scalar};
use nearjoin_io::OutputFormat;
use nearjoin_io::write::{PairColumns, PairWriter, Target, Written, write_degrees};
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::write_check::{Folder, TABLES, read_batches, read_table};

const POINTS: u32 = 5000;

/// Rows of any length, in CSR form: `rows` of them, `pairs` in all.
fn matrix(rows: u32, pairs: u64) -> (Vec<u64>, Vec<u32>) {
    let mut offsets = vec![0];
    let mut left = pairs;
    for row in 0..rows {
        let length = match row + 1 == rows {
            true => left,
            false => (u64::from(row * row) * 37 % 91).min(left),
        };
        left -= length;
        offsets.push(offsets[row as usize] + length);
    }
    let ids = (0..pairs).map(|at| (at * 2_654_435_761 % u64::from(POINTS)) as u32).collect();
    (offsets, ids)
}

fn distance<T: Scalar>(at: usize) -> T {
    T::from_f64((at as f64 + 0.1).sqrt() / 1e4)
}

/// How the rows are handed in.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Blocks,
    Rows,
}

fn write<T: Scalar>(
    target: Target,
    format: OutputFormat,
    columns: PairColumns,
    by: By,
    matrix: &(Vec<u64>, Vec<u32>),
) -> nearjoin_io::Result<Written> {
    if by == By::Rows {
        return hand_in::<T>(target, format, columns, None, matrix);
    }
    // Only a join makes blocks: one of its blocks is filled with rows of ours.
    let mut call = Some((target, columns));
    let mut written = None;
    let mut sink = Callback::new(|block: &Block<T>| {
        let (target, columns) = call.take().expect("two points make one block");
        written = Some(hand_in(target, format, columns, Some(*block), matrix));
        ControlFlow::Continue(())
    });
    let two = [distance::<T>(0); 2];
    let points = Points::new(&two, 1).expect("numbers");
    let join = EpsJoin::new(1.0).device(Device::Cpu).plan_self(&points).expect("a plan");
    join.run(&mut sink).expect("two points are joined");
    written.expect("two points make one block")
}

/// Writes row after row, or block after block.
fn hand_in<T: Scalar>(
    target: Target,
    format: OutputFormat,
    columns: PairColumns,
    block: Option<Block<'_, T>>,
    (offsets, ids): &(Vec<u64>, Vec<u32>),
) -> nearjoin_io::Result<Written> {
    let with_distances = columns.distances;
    let mut writer = PairWriter::<T>::new(target, format, columns)?;
    let distances: Vec<T> = (0..ids.len()).map(distance).collect();
    let rows = offsets.len() - 1;
    let mut first = 0;
    let mut step = 1;
    while first < rows {
        let last = (first + step).min(rows);
        let range = offsets[first] as usize..offsets[last] as usize;
        let distances = with_distances.then_some(&distances[range.clone()]);
        match block {
            None => writer.rows(first as u32, &offsets[first..=last], &ids[range], distances)?,
            Some(mut block) => {
                let queries: Vec<u32> = (first as u32..last as u32).collect();
                let start = offsets[first];
                let ends: Vec<u64> = offsets[first..=last].iter().map(|o| o - start).collect();
                (block.queries, block.offsets) = (&queries, &ends);
                block.neighbors = &ids[range];
                block.distances = distances.unwrap_or_default();
                writer.block(&block)?;
            }
        }
        first = last;
        step = step * 2 % 61;
    }
    writer.finish()
}

fn names(kind: usize) -> Option<ArrayRef> {
    let points = 0..i64::from(POINTS);
    match kind {
        0 => None,
        1 => Some(Arc::new(Int64Array::from_iter_values(points.map(|i| i * 1_000_003 - 7)))),
        2 => {
            let names = points.map(|i| format!("M {i}, \"{}\"", i % 10));
            Some(Arc::new(StringArray::from_iter_values(names)))
        }
        _ => {
            let nulls = points.map(|i| (i % 3 > 0).then(|| format!("name {i}")));
            Some(Arc::new(nulls.collect::<StringArray>()))
        }
    }
}

fn name(names: &Option<ArrayRef>, row: u32) -> String {
    let Some(names) = names else { return row.to_string() };
    let row = row as usize;
    match names.data_type() {
        _ if names.is_null(row) => String::new(),
        DataType::Int64 => {
            names.as_primitive::<arrow_array::types::Int64Type>().value(row).to_string()
        }
        _ => names.as_string::<i32>().value(row).to_string(),
    }
}

fn every_way<T: Scalar + std::str::FromStr>(format: OutputFormat)
where
    T::Err: std::fmt::Debug,
{
    let folder = Folder::new();
    let pairs = 4321;
    let matrix = matrix(POINTS, pairs);
    for ((left, right), distances, half, by) in (0..4)
        .flat_map(|left| [(left, left), (left, (left + 1) % 4)])
        .flat_map(|ids| [(ids, false), (ids, true)])
        .flat_map(|(ids, d)| [(ids, d, false), (ids, d, true)])
        .flat_map(|(ids, d, half)| [(ids, d, half, By::Blocks), (ids, d, half, By::Rows)])
    {
        let path = folder.file("pairs");
        let (left, right) = (names(left), names(right));
        // No memory: batches of 1024 pairs.
        let columns = PairColumns {
            left: left.clone(),
            right: right.clone(),
            // With and without, in half of the ways each.
            rank: by == By::Rows,
            distances,
            half,
            memory: 0,
            threads: 2,
        };
        let rank = columns.rank;
        let target = Target::create(&path).unwrap();
        let written = write::<T>(target, format, columns, by, &matrix).unwrap();
        assert_eq!(written.pairs, pairs);
        assert_eq!(written.bytes, std::fs::metadata(&path).unwrap().len());
        assert_eq!(folder.files(), ["pairs"]);

        let (header, columns) = read_table(&path, format);
        let mut all = vec!["left", "right"];
        all.extend(rank.then_some("rank"));
        all.extend(distances.then_some("distance"));
        assert_eq!(header, all);
        let mut at = 0;
        for row in 0..POINTS {
            for nth in 1..=matrix.0[row as usize + 1] - matrix.0[row as usize] {
                let id = matrix.1[at];
                let (a, b) = if half { (row.min(id), row.max(id)) } else { (row, id) };
                assert_eq!(columns[0][at], name(&left, a), "{format:?} {by:?} pair {at}");
                assert_eq!(columns[1][at], name(&right, b), "{format:?} {by:?} pair {at}");
                if rank {
                    assert_eq!(columns[2][at], nth.to_string(), "{format:?} {by:?} pair {at}");
                }
                if distances {
                    let distances = &columns[2 + usize::from(rank)];
                    assert!(distances[at].parse::<T>().unwrap() == distance::<T>(at));
                }
                at += 1;
            }
        }
        assert_eq!(columns[0].len(), at);
    }
}

#[test]
fn every_way_parquet() {
    every_way::<f64>(OutputFormat::Parquet);
    every_way::<f32>(OutputFormat::Parquet);
}

#[test]
fn every_way_arrow() {
    every_way::<f64>(OutputFormat::Arrow);
    every_way::<f32>(OutputFormat::Arrow);
}

#[test]
fn every_way_csv() {
    every_way::<f64>(OutputFormat::Csv);
    every_way::<f32>(OutputFormat::Csv);
}

#[test]
fn no_pairs_one_batch_and_what_lies_between() {
    let folder = Folder::new();
    for format in TABLES {
        for pairs in [0, 1, 1023, 1024, 1025, 2048, 5000] {
            for rows in [1, 77] {
                let path = folder.file("pairs");
                let columns = PairColumns { memory: 0, distances: true, ..PairColumns::default() };
                let target = Target::create(&path).unwrap();
                let matrix = matrix(rows, pairs);
                let written = write::<f32>(target, format, columns, By::Rows, &matrix).unwrap();
                assert_eq!(written.pairs, pairs);
                let (header, columns) = read_table(&path, format);
                assert_eq!(header, ["left", "right", "distance"]);
                let ids: Vec<String> = matrix.1.iter().map(u32::to_string).collect();
                assert_eq!(columns[1], ids);
                if format == OutputFormat::Parquet {
                    let file = std::fs::File::open(&path).unwrap();
                    let reader = SerializedFileReader::new(file).unwrap();
                    assert_eq!(reader.num_row_groups() as u64, pairs.div_ceil(1024));
                }
            }
        }
    }
}

#[test]
fn three_million_pairs() {
    let folder = Folder::new();
    let pairs = 3_000_000;
    let matrix = matrix(POINTS, pairs);
    for format in TABLES {
        let path = folder.file("pairs");
        let target = Target::create(&path).unwrap();
        write::<f64>(target, format, PairColumns::default(), By::Blocks, &matrix).unwrap();
        if format == OutputFormat::Csv {
            let (_, columns) = read_table(&path, format);
            assert!(columns[1].iter().map(|id| id.parse::<u32>().unwrap()).eq(matrix.1.clone()));
            continue;
        }
        let (schema, batches) = read_batches(&path, format);
        assert_eq!(schema.field(0).data_type(), &DataType::UInt32);
        let ids = |column: usize| {
            let batches = batches.iter();
            batches
                .flat_map(move |batch| batch.column(column).as_primitive::<UInt32Type>().values())
        };
        assert!(ids(1).eq(&matrix.1));
        let left = (0..POINTS).flat_map(|row| {
            let count = matrix.0[row as usize + 1] - matrix.0[row as usize];
            std::iter::repeat_n(row, count as usize)
        });
        assert!(ids(0).copied().eq(left));
        let sizes = match format {
            OutputFormat::Arrow => batches.iter().map(|batch| batch.num_rows() as i64).collect(),
            _ => row_groups(&path),
        };
        assert_eq!(sizes, [1 << 20, 1 << 20, 3_000_000 - (2 << 20)]);
    }
}

fn row_groups(path: &std::path::Path) -> Vec<i64> {
    let reader = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let groups = reader.metadata().row_groups();
    for group in groups {
        let statistics = group.column(0).statistics().expect("every column has statistics");
        assert!(statistics.min_bytes_opt() <= statistics.max_bytes_opt());
    }
    groups.iter().map(|group| group.num_rows()).collect()
}

#[test]
fn a_dictionary_of_names_is_written_as_names() {
    let folder = Folder::new();
    let names: DictionaryArray<arrow_array::types::Int32Type> =
        ["a", "b", "a", "c"].into_iter().collect();
    let names: ArrayRef = Arc::new(names);
    for format in TABLES {
        let path = folder.file("pairs");
        let columns = PairColumns {
            left: Some(names.clone()),
            right: Some(names.clone()),
            ..PairColumns::default()
        };
        let target = Target::create(&path).unwrap();
        let mut writer = PairWriter::<f32>::new(target, format, columns).unwrap();
        writer.rows(1, &[10, 12, 13], &[0, 3, 2], None).unwrap();
        writer.finish().unwrap();
        let (_, columns) = read_table(&path, format);
        assert_eq!(columns, [["b", "b", "a"], ["a", "c", "a"]]);
    }
}

/// Rows that are taken from views share the texts of all rows; the file must not.
#[test]
fn views_are_written_as_texts() {
    let folder = Folder::new();
    let text = |row: u32| format!("a name that is too long for a view alone, number {row}");
    let views = StringViewArray::from_iter_values((0..POINTS).map(text));
    let bytes = BinaryViewArray::from_iter_values((0..POINTS).map(text));
    let few: Vec<u32> = (0..20 * 1024).map(|at| at % 3).collect();
    for (ids, data_type) in [
        (Arc::new(views) as ArrayRef, DataType::Utf8),
        (Arc::new(bytes) as ArrayRef, DataType::Binary),
    ] {
        for format in [OutputFormat::Parquet, OutputFormat::Arrow] {
            let path = folder.file("pairs");
            let (left, right) = (Some(ids.clone()), Some(ids.clone()));
            let columns = PairColumns { left, right, memory: 0, ..PairColumns::default() };
            let target = Target::create(&path).unwrap();
            let mut writer = PairWriter::<f32>::new(target, format, columns).unwrap();
            writer.rows(1, &[0, few.len() as u64], &few, None).unwrap();
            let written = writer.finish().unwrap();
            let values = 2 * few.len() as u64 * 60;
            assert!(written.bytes < values, "{} bytes in {format:?}", written.bytes);
            let (schema, batches) = read_batches(&path, format);
            assert_eq!(schema.field(1).data_type(), &data_type);
            assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), few.len());
            if data_type == DataType::Utf8 {
                assert_eq!(batches[0].column(1).as_string::<i32>().value(4), text(1));
                let degrees = Target::create(folder.file("degrees")).unwrap();
                let degrees = write_degrees(degrees, format, Some(ids.clone()), &[7; 5000]);
                assert!(degrees.unwrap().bytes < 5000 * 80);
            }
        }
    }
    let views: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), None, Some("c")]));
    for format in TABLES {
        let path = folder.file("pairs");
        let columns = PairColumns { left: Some(views.clone()), ..PairColumns::default() };
        let target = Target::create(&path).unwrap();
        let mut writer = PairWriter::<f32>::new(target, format, columns).unwrap();
        writer.rows(1, &[0, 1, 2], &[0, 0], None).unwrap();
        writer.finish().unwrap();
        assert_eq!(read_table(&path, format).1[0], ["", "c"]);
    }
    let long: ArrayRef = Arc::new(StringViewArray::from(vec!["x".repeat(5000)]));
    let path = folder.file("pairs");
    let columns = PairColumns { left: Some(long), ..PairColumns::default() };
    let target = Target::create(&path).unwrap();
    let mut writer = PairWriter::<f32>::new(target, OutputFormat::Arrow, columns).unwrap();
    writer.rows(0, &[0, 1], &[0], None).unwrap();
    writer.finish().unwrap();
    let (schema, _) = read_batches(&path, OutputFormat::Arrow);
    assert_eq!(schema.field(0).data_type(), &DataType::LargeUtf8);
}

#[test]
fn what_a_format_cannot_hold_is_refused_before_any_work() {
    let folder = Folder::new();
    let new = |format, ids: ArrayRef| {
        let target = Target::create(folder.file("pairs")).unwrap();
        let columns = PairColumns { left: Some(ids), ..PairColumns::default() };
        match PairWriter::<f32>::new(target, format, columns) {
            Ok(_) => panic!("it was taken"),
            Err(error) => error.to_string(),
        }
    };
    let lists = ListArray::from_iter_primitive::<UInt32Type, _, _>([Some([Some(1)])]);
    let lists: ArrayRef = Arc::new(lists);
    for format in TABLES {
        let message = new(format, lists.clone());
        assert!(message.contains("column \"left\"") && message.contains("List"), "{message}");
    }
    let binary: ArrayRef = Arc::new(arrow_array::BinaryArray::from_vec(vec![b"x"]));
    let message = new(OutputFormat::Csv, binary);
    assert!(message.contains("Binary"), "{message}");
    let message = new(OutputFormat::Npz, names(1).unwrap());
    assert!(message.contains("NPZ holds arrays"), "{message}");
    assert!(folder.files().is_empty());
}
