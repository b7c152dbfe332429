//! Ids of dates, times and decimals: ISO forms in text, their own types elsewhere.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::*;
use arrow_buffer::i256;
use nearjoin_io::OutputFormat;
use nearjoin_io::write::{PairColumns, PairWriter, Target, check_ids, write_degrees};

use crate::read_make::{batch, columns, every_columnar, floats, load_with};
use crate::write_check::{Folder, read_batches, read_table};

/// The moment 2024-01-02T03:04:05, in seconds.
const MOMENT: i64 = 1_704_164_645;

/// Two ids of each type, and how text shows them.
fn kinds() -> Vec<(ArrayRef, [&'static str; 2])> {
    let day = 19_724;
    let (clock, date) = (["12:30:00", "23:59:59"], ["2024-01-02", "1969-12-31"]);
    let moments = ["2024-01-02T03:04:05", "1969-12-31T23:59:59"];
    let zoned = ["2024-01-02T03:04:05Z", "1969-12-31T23:59:59Z"];
    let money = ["12.50", "-7.05"];
    vec![
        (Arc::new(Date32Array::from(vec![day, -1])), date),
        (Arc::new(Date64Array::from(vec![86_400_000 * i64::from(day), -86_400_000])), date),
        (Arc::new(Time32SecondArray::from(vec![45_000, 86_399])), clock),
        (Arc::new(Time32MillisecondArray::from(vec![45_000_000, 86_399_000])), clock),
        (Arc::new(Time64MicrosecondArray::from(vec![45_000_000_000, 86_399_000_000])), clock),
        (
            Arc::new(Time64NanosecondArray::from(vec![45_000_000_000_001, 86_399_000_000_000])),
            ["12:30:00.000000001", "23:59:59"],
        ),
        (Arc::new(TimestampSecondArray::from(vec![MOMENT, -1])), moments),
        (Arc::new(TimestampMillisecondArray::from(vec![MOMENT * 1000, -1000])), moments),
        (
            Arc::new(TimestampMicrosecondArray::from(vec![MOMENT * 1_000_000 + 250_000, -1])),
            ["2024-01-02T03:04:05.250", "1969-12-31T23:59:59.999999"],
        ),
        (
            Arc::new(TimestampNanosecondArray::from(vec![MOMENT * 1_000_000_000, -1])),
            [moments[0], "1969-12-31T23:59:59.999999999"],
        ),
        (Arc::new(TimestampSecondArray::from(vec![MOMENT, -1]).with_timezone("UTC")), zoned),
        (
            Arc::new(TimestampSecondArray::from(vec![MOMENT, -1]).with_timezone("Europe/Berlin")),
            zoned,
        ),
        (
            Arc::new(
                Decimal128Array::from(vec![1250, -705]).with_precision_and_scale(10, 2).unwrap(),
            ),
            money,
        ),
        (
            Arc::new(
                Decimal256Array::from([1250, -705].map(i256::from_i128).to_vec())
                    .with_precision_and_scale(60, 2)
                    .unwrap(),
            ),
            money,
        ),
    ]
}

/// Each id twice, as the left points of two rows.
fn write(folder: &Folder, format: OutputFormat, ids: &ArrayRef) -> std::path::PathBuf {
    let path = folder.file("pairs");
    let columns = PairColumns { left: Some(ids.clone()), ..PairColumns::default() };
    let target = Target::create(&path).unwrap();
    let mut writer = PairWriter::<f64>::new(target, format, columns).unwrap();
    writer.rows(0, &[0, 1, 2], &[1, 0], None).unwrap();
    writer.finish().unwrap();
    path
}

#[test]
fn dates_times_and_decimals_are_written() {
    let folder = Folder::new();
    for (ids, texts) in kinds() {
        let kind = ids.data_type();
        let path = write(&folder, OutputFormat::Csv, &ids);
        assert_eq!(read_table(&path, OutputFormat::Csv).1[0], texts, "{kind}");
        let target = Target::create(&path).unwrap();
        write_degrees(target, OutputFormat::Csv, Some(ids.clone()), &[1, 1]).unwrap();
        assert_eq!(read_table(&path, OutputFormat::Csv).1[0], texts, "{kind}");
        let path = write(&folder, OutputFormat::Arrow, &ids);
        assert_eq!(read_batches(&path, OutputFormat::Arrow).1[0].column(0), &ids);
        let path = write(&folder, OutputFormat::Parquet, &ids);
        assert_eq!(read_batches(&path, OutputFormat::Parquet).1[0].column(0), &ids);
    }
}

#[test]
fn dates_times_and_decimals_are_read() {
    for (ids, _) in kinds() {
        let table = batch(&[("x", floats(&[1.0, 2.0])), ("when", ids.clone())]);
        let options = nearjoin_io::ReadOptions { id: Some("when".into()), ..columns(&["x"]) };
        for (file, bytes) in every_columnar(&table) {
            assert_eq!(&load_with(bytes, &options).ids.unwrap(), &ids, "{file}");
        }
    }
}

#[test]
fn dictionaries_nulls_and_what_is_no_date() {
    let folder = Folder::new();
    let days: ArrayRef = Arc::new(Date32Array::from(vec![0, 1]));
    let keys = PrimitiveArray::<Int32Type>::from(vec![1, 0]);
    let dictionary: ArrayRef = Arc::new(DictionaryArray::new(keys, days));
    let path = write(&folder, OutputFormat::Csv, &dictionary);
    assert_eq!(read_table(&path, OutputFormat::Csv).1[0], ["1970-01-02", "1970-01-01"]);
    let holes: ArrayRef = Arc::new(Date32Array::from(vec![None, Some(1)]));
    let path = write(&folder, OutputFormat::Csv, &holes);
    assert_eq!(read_table(&path, OutputFormat::Csv).1[0], ["", "1970-01-02"]);
    let never: ArrayRef = Arc::new(TimestampSecondArray::from(vec![i64::MAX]));
    let columns = PairColumns { left: Some(never), ..PairColumns::default() };
    let target = Target::create(folder.file("never")).unwrap();
    let error = PairWriter::<f64>::new(target, OutputFormat::Csv, columns).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("9223372036854775807"), "{error}");
    let binary = arrow_schema::DataType::Binary;
    let refused = Err("values of type Binary cannot be text".to_owned());
    assert_eq!(check_ids(OutputFormat::Csv, &binary), refused);
    assert_eq!(check_ids(OutputFormat::Parquet, &binary), Ok(()));
}
