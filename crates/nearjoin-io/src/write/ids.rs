//! Ids as each format can hold them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, ArrowTemporalType, Date32Type, Date64Type, Decimal32Type, Decimal64Type,
    Decimal128Type, Decimal256Type, DecimalType, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, LargeBinaryArray, LargeStringArray, PrimitiveArray, StringArray,
};
use arrow_schema::{DataType, TimeUnit};
use arrow_select::take::take;

use super::csv::has_text;
use super::table::TableFormat;
use super::target::Target;
use crate::error::{Error, Place, Result};
use crate::format::OutputFormat;
use crate::quote::{bare, one_line};

/// Whether a table of this format can hold ids of this type. The error says why not, as in
/// `"values of type Binary cannot be text"`.
///
/// # Errors
/// If it cannot.
pub fn check_ids(format: OutputFormat, kind: &DataType) -> Result<(), String> {
    let kind = match kind {
        DataType::Dictionary(_, values) => values,
        kind => kind,
    };
    let name = || bare(&kind.to_string());
    match format {
        _ if kind.is_nested() => Err(format!("values of type {} cannot be ids", name())),
        OutputFormat::Csv if !(has_text(kind) || has_iso_form(kind)) => {
            Err(format!("values of type {} cannot be text", name()))
        }
        _ => Ok(()),
    }
}

/// Ids as the format can hold them, one value a row: those of dictionaries as plain values, and
/// in text dates, times and decimals in ISO form.
pub(super) fn plain(
    ids: ArrayRef,
    column: &str,
    format: TableFormat,
    target: &Target,
) -> Result<ArrayRef> {
    let refused = |problem| Error::Content {
        file: target.name().into(),
        place: Place::column(column),
        problem,
    };
    check_ids(format.into(), ids.data_type()).map_err(refused)?;
    let ids = match ids.as_any_dictionary_opt() {
        Some(dictionary) => take(dictionary.values(), dictionary.keys(), None)
            .map_err(|e| refused(format!("its dictionary cannot be read: {}", one_line(e))))?,
        None => ids,
    };
    match format {
        TableFormat::Csv if has_iso_form(ids.data_type()) => iso(&ids).map_err(refused),
        _ => Ok(without_views(ids)),
    }
}

fn has_iso_form(kind: &DataType) -> bool {
    use DataType::*;
    matches!(kind, Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..)) || kind.is_decimal()
}

/// Dates as `2024-01-31`, times as `12:30:00`, timestamps as `2024-01-31T12:30:00`, with a `Z` where
/// they have a zone (what is stored is UTC), and decimals with all their digits.
fn iso(ids: &ArrayRef) -> Result<ArrayRef, String> {
    use DataType::*;
    match ids.data_type() {
        Date32 => texts::<Date32Type>(ids, date),
        Date64 => texts::<Date64Type>(ids, date),
        Time32(TimeUnit::Second) => texts::<Time32SecondType>(ids, time),
        Time32(_) => texts::<Time32MillisecondType>(ids, time),
        Time64(TimeUnit::Microsecond) => texts::<Time64MicrosecondType>(ids, time),
        Time64(_) => texts::<Time64NanosecondType>(ids, time),
        Timestamp(TimeUnit::Second, _) => texts::<TimestampSecondType>(ids, timestamp),
        Timestamp(TimeUnit::Millisecond, _) => texts::<TimestampMillisecondType>(ids, timestamp),
        Timestamp(TimeUnit::Microsecond, _) => texts::<TimestampMicrosecondType>(ids, timestamp),
        Timestamp(TimeUnit::Nanosecond, _) => texts::<TimestampNanosecondType>(ids, timestamp),
        Decimal32(..) => texts::<Decimal32Type>(ids, decimal),
        Decimal64(..) => texts::<Decimal64Type>(ids, decimal),
        Decimal128(..) => texts::<Decimal128Type>(ids, decimal),
        Decimal256(..) => texts::<Decimal256Type>(ids, decimal),
        other => unreachable!("{other} has no ISO form"),
    }
}

fn texts<T: ArrowPrimitiveType>(
    ids: &ArrayRef,
    show: impl Fn(&PrimitiveArray<T>, usize) -> Option<String>,
) -> Result<ArrayRef, String> {
    let ids = ids.as_primitive::<T>();
    let text = |row| match ids.is_null(row) {
        true => Ok(None),
        false => show(ids, row).map(Some).ok_or_else(|| {
            format!("the value {:?} of type {} is no date", ids.value(row), ids.data_type())
        }),
    };
    let texts: LargeStringArray = (0..ids.len()).map(text).collect::<Result<_, String>>()?;
    Ok(Arc::new(texts))
}

fn date<T: ArrowTemporalType>(ids: &PrimitiveArray<T>, row: usize) -> Option<String>
where
    i64: From<T::Native>,
{
    ids.value_as_date(row).map(|date| format!("{date:?}"))
}

fn time<T: ArrowTemporalType>(ids: &PrimitiveArray<T>, row: usize) -> Option<String>
where
    i64: From<T::Native>,
{
    ids.value_as_time(row).map(|time| format!("{time:?}"))
}

fn timestamp<T: ArrowTemporalType>(ids: &PrimitiveArray<T>, row: usize) -> Option<String>
where
    i64: From<T::Native>,
{
    let zone = if matches!(ids.data_type(), DataType::Timestamp(_, Some(_))) { "Z" } else { "" };
    ids.value_as_datetime(row).map(|at| format!("{at:?}{zone}"))
}

fn decimal<T: DecimalType>(ids: &PrimitiveArray<T>, row: usize) -> Option<String> {
    Some(ids.value_as_string(row))
}

/// Texts that lie one after the other: rows taken from views would bring the texts of all
/// rows along.
fn without_views(ids: ArrayRef) -> ArrayRef {
    /// Whether these texts, and any batch taken from them, have 32-bit offsets.
    fn small(lengths: impl Iterator<Item = u32>) -> bool {
        const LONGEST: u32 = i32::MAX as u32 >> 20;
        let (mut sum, mut longest) = (0u64, 0);
        for length in lengths {
            sum += u64::from(length);
            longest = longest.max(length);
        }
        sum <= i32::MAX as u64 && longest <= LONGEST
    }
    match ids.data_type() {
        DataType::Utf8View => {
            let ids = ids.as_string_view();
            match small(ids.lengths()) {
                true => Arc::new(ids.iter().collect::<StringArray>()),
                false => Arc::new(ids.iter().collect::<LargeStringArray>()),
            }
        }
        DataType::BinaryView => {
            let ids = ids.as_binary_view();
            match small(ids.lengths()) {
                true => Arc::new(ids.iter().collect::<BinaryArray>()),
                false => Arc::new(ids.iter().collect::<LargeBinaryArray>()),
            }
        }
        _ => ids,
    }
}
