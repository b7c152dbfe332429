//! Writes a small valid file of every kind, and damaged ones, into the seeds of its target, and
//! reads each once.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{FixedSizeListBuilder, Float32Builder};
use arrow_array::{ArrayRef, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use nearjoin_io::Format;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

#[test]
fn write_seeds() {
    let x: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 1.5, -2.0]));
    let y: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 2.0, 3.0]));
    let id: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    let n: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let mut lists = FixedSizeListBuilder::new(Float32Builder::new(), 2);
    for row in 0..3 {
        lists.values().append_slice(&[row as f32, 1.0]);
        lists.append(true);
    }
    let v: ArrayRef = Arc::new(lists.finish());
    let tables = [
        RecordBatch::try_from_iter([("x", x.clone()), ("y", y), ("id", id)]).unwrap(),
        RecordBatch::try_from_iter([("x", x), ("y", n)]).unwrap(),
        RecordBatch::try_from_iter([("v", v)]).unwrap(),
    ];
    for (at, table) in tables.iter().enumerate() {
        for (name, compression) in
            [("plain", Compression::UNCOMPRESSED), ("snappy", Compression::SNAPPY)]
        {
            let mut file = Vec::new();
            let properties = WriterProperties::builder().set_compression(compression).build();
            let mut writer =
                ArrowWriter::try_new(&mut file, table.schema(), Some(properties)).unwrap();
            writer.write(table).unwrap();
            writer.close().unwrap();
            seed(Format::Parquet, "parquet", &format!("{name}-{at}"), &file);
            damaged(Format::Parquet, "parquet", &format!("{name}-{at}"), &file, 8);
        }
        for (name, compression) in [
            ("plain", None),
            ("lz4", Some(CompressionType::LZ4_FRAME)),
            ("zstd", Some(CompressionType::ZSTD)),
        ] {
            let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
            let mut file = Vec::new();
            let mut writer =
                FileWriter::try_new_with_options(&mut file, &table.schema(), options.clone())
                    .unwrap();
            writer.write(table).unwrap();
            writer.finish().unwrap();
            drop(writer);
            seed(Format::Arrow, "arrow", &format!("file-{name}-{at}"), &file);
            damaged(Format::Arrow, "arrow", &format!("file-{name}-{at}"), &file, 10);
            let mut stream = Vec::new();
            let mut writer =
                StreamWriter::try_new_with_options(&mut stream, &table.schema(), options).unwrap();
            writer.write(table).unwrap();
            writer.finish().unwrap();
            drop(writer);
            seed(Format::Arrow, "arrow", &format!("stream-{name}-{at}"), &stream);
        }
    }
    for (at, text) in [
        "x,y\n1,2\n3.5,-4e1\n",
        "id;x;y\r\na;1;2\r\n\"b;\"\"c\";3;4\r\n",
        "1 2\n 3  4 \n",
        "\u{feff}x\ty\n1\tnan\n",
        "id,x,y\n2024-01-02T03:04:05Z,1,2\n12:30:00,3,9007199254740993\n12.50,5,6\n",
        "<!DOCTYPE html><html><body>moved</body></html>\n",
        "<?xml version=\"1.0\"?>\n",
        "[{\"x\": 1, \"y\": 2}]\n",
        "PK\u{3}\u{4}\u{14}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\u{5}\0\0\0x.csv1,2\n",
        "SQLite format 3\0",
        "BZh91AY&SY",
    ]
    .iter()
    .enumerate()
    {
        seed(Format::Csv, "csv", &at.to_string(), text.as_bytes());
    }
    for (descr, order, size) in [("<f8", "False", 8), (">f4", "True", 4), ("<i8", "False", 8)] {
        let mut header =
            format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': (3, 2), }}");
        while (header.len() + 11) % 64 != 0 {
            header.push(' ');
        }
        header.push('\n');
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(vec![0; 6 * size]);
        seed(Format::Npy, "npy", &descr[1..], &file);
        damaged(Format::Npy, "npy", &descr[1..], &file, 8);
        seed(Format::Npy, "npy", &format!("{}-version", &descr[1..]), b"\x93NUMPY\x09\x00");
        seed(Format::Npy, "npy", &format!("{}-open", &descr[1..]), OPEN);
    }
}

/// A header whose brackets nobody closes.
const OPEN: &[u8] = b"\x93NUMPY\x01\x00\x14\x00{{{{{{{{{{{{'descr': ";

/// The file cut short, and with the length of its footer overwritten, which stands `from_end` bytes
/// before its end.
fn damaged(format: Format, target: &str, name: &str, file: &[u8], from_end: usize) {
    let at = file.len() - from_end;
    seed(format, target, &format!("{name}-half"), &file[..file.len() / 2]);
    seed(format, target, &format!("{name}-short"), &file[..file.len() - 1]);
    for (kind, length) in [("long", 0x7FFF_FFFFu32), ("negative", u32::MAX), ("small", 3)] {
        let mut file = file.to_vec();
        file[at..at + 4].copy_from_slice(&length.to_le_bytes());
        seed(format, target, &format!("{name}-{kind}"), &file);
    }
}

/// One seed for each choice of columns.
fn seed(format: Format, target: &str, name: &str, file: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&folder).unwrap();
    for choice in [0xFFu8, 0b1111_0000, 0b1111_1101] {
        let input = [&[choice, 0], file].concat();
        nearjoin_fuzz::read(format, &input);
        fs::write(folder.join(format!("{name}-{choice}")), input).unwrap();
    }
}
