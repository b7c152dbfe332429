//! Files in memory, made with the formats' own crates.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use bytes::Bytes;
use nearjoin_io::{Error, Loaded, PointSet, ReadOptions, read_bytes};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

pub(crate) fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    RecordBatch::try_from_iter(columns.iter().map(|(name, array)| (*name, array.clone()))).unwrap()
}

pub(crate) fn floats(values: &[f64]) -> ArrayRef {
    Arc::new(arrow_array::Float64Array::from(values.to_vec()))
}

pub(crate) fn parquet(batch: &RecordBatch, properties: WriterProperties) -> Bytes {
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    out.into()
}

pub(crate) fn arrow_file(batches: &[RecordBatch], compression: Option<CompressionType>) -> Bytes {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut out = Vec::new();
    let schema = batches[0].schema();
    let mut writer = FileWriter::try_new_with_options(&mut out, &schema, options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    drop(writer);
    out.into()
}

pub(crate) fn arrow_stream(batches: &[RecordBatch], compression: Option<CompressionType>) -> Bytes {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut out = Vec::new();
    let schema = batches[0].schema();
    let mut writer = StreamWriter::try_new_with_options(&mut out, &schema, options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    drop(writer);
    out.into()
}

/// The same rows in every file that holds columns: Parquet with several kinds of pages, Arrow
/// files and streams with every compression.
pub(crate) fn every_columnar(batch: &RecordBatch) -> Vec<(String, Bytes)> {
    let mut files = Vec::new();
    let third = batch.num_rows() / 3;
    let parts = [
        batch.slice(0, third),
        batch.slice(third, 0),
        batch.slice(third, batch.num_rows() - third),
    ];
    for (name, compression) in [
        ("plain", None),
        ("lz4", Some(CompressionType::LZ4_FRAME)),
        ("zstd", Some(CompressionType::ZSTD)),
    ] {
        files.push((format!("arrow file, {name}"), arrow_file(&parts, compression)));
        files.push((format!("arrow stream, {name}"), arrow_stream(&parts, compression)));
    }
    for (name, compression) in [
        ("plain", Compression::UNCOMPRESSED),
        ("snappy", Compression::SNAPPY),
        ("zstd", Compression::ZSTD(Default::default())),
        ("lz4", Compression::LZ4_RAW),
        ("gzip", Compression::GZIP(Default::default())),
    ] {
        for dictionary in [false, true] {
            for group in [7, 1 << 20] {
                let properties = WriterProperties::builder()
                    .set_compression(compression)
                    .set_dictionary_enabled(dictionary)
                    .set_max_row_group_row_count(Some(group))
                    .build();
                let name = format!("parquet, {name}, dictionary {dictionary}, groups of {group}");
                files.push((name, parquet(batch, properties)));
            }
        }
    }
    files
}

pub(crate) fn npy_header(descr: &str, fortran: bool, shape: &str) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while !(header.len() + 11).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out
}

pub(crate) fn load(bytes: impl Into<Bytes>) -> Loaded {
    read_bytes("f", bytes.into(), &ReadOptions::default()).unwrap()
}

pub(crate) fn load_with(bytes: impl Into<Bytes>, options: &ReadOptions) -> Loaded {
    read_bytes("f", bytes.into(), options).unwrap()
}

pub(crate) fn refuse(bytes: impl Into<Bytes>) -> String {
    refuse_with(bytes, &ReadOptions::default())
}

pub(crate) fn refuse_with(bytes: impl Into<Bytes>, options: &ReadOptions) -> String {
    error_with(bytes, options).to_string()
}

pub(crate) fn error_with(bytes: impl Into<Bytes>, options: &ReadOptions) -> Error {
    read_bytes("f", bytes.into(), options).unwrap_err()
}

pub(crate) fn columns(names: &[&str]) -> ReadOptions {
    let columns = Some(names.iter().map(|name| name.to_string()).collect());
    ReadOptions { columns, ..ReadOptions::default() }
}

pub(crate) fn with_id(id: &str) -> ReadOptions {
    ReadOptions { id: Some(id.to_owned()), ..ReadOptions::default() }
}

/// All coordinates, whatever their type.
pub(crate) fn coordinates(loaded: &Loaded) -> Vec<f64> {
    match &loaded.points {
        PointSet::F32(points) => {
            points.as_points().as_slice().iter().map(|&x| f64::from(x)).collect()
        }
        PointSet::F64(points) => points.as_points().as_slice().to_vec(),
    }
}
