//! Damaged files are refused or read, and nothing else happens.

use std::sync::Arc;

use arrow_array::{ArrayRef, DictionaryArray, StringArray, types::Int32Type};
use arrow_ipc::CompressionType;
use nearjoin_io::{Format, ReadOptions, read_bytes};
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::read_make::*;

fn files() -> Vec<(Format, Vec<u8>)> {
    let rows = 300;
    let x: Vec<f64> = (0..rows).map(|row| f64::from(row) * 0.25).collect();
    let names: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(|i| i.to_string())));
    let kinds = (0..rows).map(|row| ["a", "b", "c"][row as usize % 3]);
    let kinds: ArrayRef = Arc::new(kinds.collect::<DictionaryArray<Int32Type>>());
    let table = batch(&[("x", floats(&x)), ("y", floats(&x)), ("id", names), ("kind", kinds)]);
    let properties = |compression| {
        WriterProperties::builder()
            .set_compression(compression)
            .set_max_row_group_row_count(Some(128))
            .build()
    };
    let batches = [table.slice(0, 100), table.slice(100, 200)];
    let mut npy = npy_header("<f8", false, "(150, 2)");
    npy.extend(x.iter().flat_map(|x| x.to_le_bytes()));
    let text: String = x.iter().map(|x| format!("{x},{x},\"n{x}\"\n")).collect();
    vec![
        (Format::Parquet, parquet(&table, properties(Compression::SNAPPY)).to_vec()),
        (Format::Parquet, parquet(&table, properties(Compression::UNCOMPRESSED)).to_vec()),
        (Format::Arrow, arrow_file(&batches, None).to_vec()),
        (Format::Arrow, arrow_stream(&batches[..1], None).to_vec()),
        (Format::Arrow, arrow_file(&batches, Some(CompressionType::LZ4_FRAME)).to_vec()),
        (Format::Arrow, arrow_file(&batches, Some(CompressionType::ZSTD)).to_vec()),
        (Format::Npy, npy),
        (Format::Csv, format!("x,y,id\n{text}").into_bytes()),
        (Format::Csv, format!("x,y,id\n{}", text.replace('"', "")).into_bytes()),
    ]
}

fn options(format: Format) -> Vec<ReadOptions> {
    let format = Some(format);
    let some = columns(&["x", "y"]);
    vec![
        ReadOptions { format, ..ReadOptions::default() },
        ReadOptions { format, id: Some("id".into()), ..some.clone() },
        ReadOptions { format, id: Some("kind".into()), ..some },
    ]
}

/// Decoders of other crates panic on some damage; that is caught, and need not be printed.
fn quietly(work: impl FnOnce()) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    std::panic::set_hook(hook);
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn cut_short_anywhere() {
    quietly(|| {
        for (format, bytes) in files() {
            let step = (bytes.len() / 400).max(1);
            for length in (0..bytes.len()).step_by(step).chain(bytes.len() - 20..bytes.len()) {
                for options in options(format) {
                    let part = bytes[..length].to_vec();
                    let result = read_bytes("f", part.into(), &options);
                    // Text and streams may end anywhere between lines and messages.
                    let binary = matches!(format, Format::Parquet | Format::Npy);
                    assert!(!(binary && result.is_ok()), "{format} of {length} bytes");
                }
            }
        }
    });
}

#[test]
fn bytes_changed_anywhere() {
    let mut random = StdRng::seed_from_u64(20_240_607);
    quietly(|| {
        for (format, bytes) in files() {
            for round in 0..1500 {
                let mut changed = bytes.clone();
                for _ in 0..1 + round % 4 {
                    let at = random.random_range(0..changed.len());
                    changed[at] = match round % 3 {
                        0 => random.random(),
                        1 => changed[at] ^ (1 << random.random_range(0..8)),
                        _ => [0, 0xFF, 0x7F, 0x80][random.random_range(0..4)],
                    };
                }
                let changed = bytes::Bytes::from(changed);
                for options in options(format) {
                    if let Err(error) = read_bytes("f", changed.clone(), &options) {
                        let error = error.to_string();
                        assert!(!error.contains('\n'), "{error}");
                    }
                }
            }
        }
    });
}

/// A size that no data backs is refused before memory is taken for it.
#[test]
fn claims_are_not_believed() {
    let x: Vec<f64> = (0..1000).map(f64::from).collect();
    let file = arrow_stream(&[batch(&[("x", floats(&x))])], Some(CompressionType::ZSTD));
    let length = 8000u64.to_le_bytes();
    let at = file.windows(8).position(|window| window == length).unwrap();
    let at = file[at + 8..]
        .windows(8)
        .position(|window| window == length)
        .map_or(at, |next| at + 8 + next);
    let mut claims = file.to_vec();
    claims[at..at + 8].copy_from_slice(&(1u64 << 50).to_le_bytes());
    let error = refuse(claims);
    assert!(error.starts_with("f is a damaged Arrow file: "), "{error}");
}

/// A page header with a list of billions of items that are not there.
#[test]
fn a_header_without_end_is_refused() {
    let file = include_bytes!("../damaged/endless_page_header.parquet");
    let error = refuse_with(&file[..], &columns(&["x", "y"]));
    assert!(error.starts_with("f is a damaged Parquet file: "), "{error}");
}

/// What is cut short or overwritten is called damaged, in words of ours.
#[test]
fn damage_is_called_damage() {
    let table = batch(&[("x", floats(&[1.0, 2.0])), ("y", floats(&[3.0, 4.0]))]);
    let parquet = parquet(&table, WriterProperties::default()).to_vec();
    let arrow = arrow_file(std::slice::from_ref(&table), None).to_vec();
    let cut = |file: &[u8], less: usize| file[..file.len() - less].to_vec();
    let changed = |file: &[u8], from_end: usize, bytes: &[u8]| {
        let mut file = file.to_vec();
        let at = file.len() - from_end;
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let short = "it is cut short, or not written to its end";
    let long = "its footer claims to be longer than the file";
    for (file, format, reason) in [
        (cut(&parquet, 1), "Parquet", short),
        (cut(&parquet, parquet.len() / 2), "Parquet", short),
        (b"PAR1".to_vec(), "Parquet", short),
        (b"PAR1PAR1".to_vec(), "Parquet", short),
        (changed(&parquet, 8, &[0xFF; 4]), "Parquet", long),
        (changed(&parquet, 8, &[3, 0, 0, 0]), "Parquet", ""),
        (cut(&arrow, 1), "Arrow", short),
        (cut(&arrow, arrow.len() / 2), "Arrow", short),
        (b"ARROW1".to_vec(), "Arrow", short),
        (changed(&arrow, 10, &[0xFF, 0xFF, 0xFF, 0x7F]), "Arrow", long),
        (changed(&arrow, 10, &[0xFF; 4]), "Arrow", "the length of its footer is negative"),
        (changed(&arrow, 10, &[8, 0, 0, 0]), "Arrow", ""),
        (b"\x93NUMPY\x09\x00".to_vec(), "NPY", "its header is cut short, or of a version"),
    ] {
        let error = error_with(file, &ReadOptions::default());
        assert!(matches!(error, nearjoin_io::Error::Damaged { .. }), "{error}");
        let expected = format!("f is a damaged {format} file: {reason}");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    let encrypted = changed(&parquet, 4, b"PARE");
    assert_eq!(refuse(encrypted), "f: its footer is encrypted: decrypt it first");
}

/// The codec as a file of another program has it: no crate here can write one.
#[test]
fn a_codec_that_is_not_there_is_named() {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let table = batch(&[("x", floats(&[1.0, 2.0])), ("y", floats(&[3.0, 4.0]))]);
    let mut file = parquet(&table, properties).to_vec();
    // In the footer: a list of one text, the column's path, and then the codec.
    let path_and_codec = [0x19, 0x18, 1, b'x', 0x15, 2];
    let at = file.windows(6).position(|window| window == path_and_codec).unwrap();
    for (codec, name) in [(8, "brotli"), (6, "lzo")] {
        file[at + 5] = codec;
        assert_eq!(
            refuse(file.clone()),
            format!(
                "f: it is compressed with {name}, which is not supported: write it with zstd, \
                 snappy, gzip or lz4"
            )
        );
        assert_eq!(coordinates(&load_with(file.clone(), &columns(&["y"]))), [3.0, 4.0]);
    }
}
