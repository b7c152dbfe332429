//! What the tests of the writers share: a folder, and tables read back.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use nearjoin_io::OutputFormat;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// A folder of its own, removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nearjoin-write-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The names of all files in it, hidden or not.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) const TABLES: [OutputFormat; 3] =
    [OutputFormat::Parquet, OutputFormat::Arrow, OutputFormat::Csv];

/// Column names, and the columns as text; numbers as Rust writes them.
pub(crate) type Text = (Vec<String>, Vec<Vec<String>>);

/// A table read back with another library than wrote it, or with its reader.
pub(crate) fn read_table(path: &Path, format: OutputFormat) -> Text {
    match format {
        OutputFormat::Csv => {
            let mut reader = csv::Reader::from_path(path).unwrap();
            let names: Vec<String> = reader.headers().unwrap().iter().map(String::from).collect();
            let mut columns = vec![Vec::new(); names.len()];
            for record in reader.records() {
                for (column, field) in columns.iter_mut().zip(&record.unwrap()) {
                    column.push(field.to_owned());
                }
            }
            (names, columns)
        }
        _ => {
            let batches = read_batches(path, format);
            let schema = batches.0;
            let names: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
            let mut columns = vec![Vec::new(); names.len()];
            for batch in &batches.1 {
                for (column, array) in columns.iter_mut().zip(batch.columns()) {
                    column.extend(texts(array));
                }
            }
            (names, columns)
        }
    }
}

pub(crate) fn read_batches(
    path: &Path,
    format: OutputFormat,
) -> (arrow_schema::SchemaRef, Vec<RecordBatch>) {
    let file = File::open(path).unwrap();
    match format {
        OutputFormat::Parquet => {
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
            let schema = reader.schema().clone();
            (schema, reader.build().unwrap().map(Result::unwrap).collect())
        }
        OutputFormat::Arrow => {
            let reader = arrow_ipc::reader::FileReader::try_new(file, None).unwrap();
            (reader.schema(), reader.map(Result::unwrap).collect())
        }
        other => panic!("{other:?} has no batches"),
    }
}

fn texts(array: &ArrayRef) -> Vec<String> {
    let text = |row: usize| match array.data_type() {
        _ if array.is_null(row) => String::new(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).to_string(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).to_string(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Float32 => array.as_primitive::<Float32Type>().value(row).to_string(),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).to_string(),
        DataType::Utf8 => array.as_string::<i32>().value(row).to_string(),
        other => panic!("no test writes {other}"),
    };
    (0..array.len()).map(text).collect()
}

/// Fails rather than waits for ever.
pub(crate) fn in_time<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = work();
        let _ = send.send(());
        result
    });
    match receive.recv_timeout(Duration::from_secs(120)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        },
    }
}
