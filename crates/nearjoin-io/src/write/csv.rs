//! Tables as text: commas, a header, the shortest digits that read back as the same number.

use core::marker::PhantomData;
use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BooleanArray, LargeStringArray, StringArray, StringViewArray};
use arrow_schema::{DataType, SchemaRef};

use super::pipeline::Encoder;
use super::table::Rows;
use super::target::{Target, refused};
use crate::error::{Error, Place, Result};
use crate::quote::bare;

/// Turns a batch into lines.
pub(super) struct CsvEncoder<R> {
    name: String,
    columns: usize,
    rows: PhantomData<fn(R)>,
}

impl<R: Rows> CsvEncoder<R> {
    /// Writes the header. Refuses columns that have no text.
    pub(super) fn new(mut target: Target, schema: SchemaRef) -> Result<(Self, Target)> {
        let name = target.name().to_owned();
        let mut header = Vec::new();
        for (at, field) in schema.fields().iter().enumerate() {
            if !has_text(field.data_type()) {
                return Err(Error::Content {
                    file: name,
                    place: Place::column(field.name()),
                    problem: format!(
                        "values of type {} cannot be text",
                        bare(&field.data_type().to_string())
                    ),
                });
            }
            if at > 0 {
                header.push(b',');
            }
            quote(&mut header, field.name());
        }
        header.push(b'\n');
        target.write_all(&header).map_err(|e| refused(&name, "written", e))?;
        Ok((CsvEncoder { name, columns: schema.fields().len(), rows: PhantomData }, target))
    }
}

impl<R: Rows> Encoder for CsvEncoder<R> {
    type Batch = R;
    type Part = Vec<u8>;
    type File = Target;

    fn pieces(&self) -> usize {
        1
    }

    fn encode(&self, batch: &R, _number: usize, _piece: usize) -> Result<Vec<u8>> {
        let arrays: Vec<ArrayRef> = (0..self.columns)
            .map(|column| batch.column(column))
            .collect::<Result<_, _>>()
            .map_err(|e| super::arrow::error(&self.name, e))?;
        let columns: Vec<Column<'_>> = arrays.iter().map(Column::of).collect();
        let rows = arrays.first().map_or(0, |array| array.len());
        let mut lines = Vec::with_capacity(rows * self.columns * 12);
        for row in 0..rows {
            for (at, column) in columns.iter().enumerate() {
                if at > 0 {
                    lines.push(b',');
                }
                column.write(row, &mut lines);
            }
            lines.push(b'\n');
        }
        Ok(lines)
    }

    fn append(&self, file: &mut Target, parts: Vec<Vec<u8>>) -> Result<()> {
        for lines in parts {
            file.write_all(&lines).map_err(|e| refused(&self.name, "written", e))?;
        }
        // What comes out of a pipe early is of use early.
        file.flush().map_err(|e| refused(&self.name, "written", e))
    }
}

/// A column in its own type, found once per batch and not once per value.
enum Column<'a> {
    Int8(&'a [i8]),
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    UInt8(&'a [u8]),
    UInt16(&'a [u16]),
    UInt32(&'a [u32]),
    UInt64(&'a [u64]),
    Float32(&'a [f32]),
    Float64(&'a [f64]),
    Boolean(&'a BooleanArray),
    Text(&'a StringArray),
    LargeText(&'a LargeStringArray),
    TextView(&'a StringViewArray),
    /// A column with missing values, which are empty fields.
    Nullable(&'a dyn Array, Box<Column<'a>>),
}

/// Whether values of this type are written as they are.
pub(super) fn has_text(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(data_type, Boolean | Float32 | Float64 | Utf8 | LargeUtf8 | Utf8View)
        || data_type.is_integer()
}

impl<'a> Column<'a> {
    fn of(array: &'a ArrayRef) -> Self {
        let column = match array.data_type() {
            DataType::Int8 => Column::Int8(array.as_primitive::<Int8Type>().values()),
            DataType::Int16 => Column::Int16(array.as_primitive::<Int16Type>().values()),
            DataType::Int32 => Column::Int32(array.as_primitive::<Int32Type>().values()),
            DataType::Int64 => Column::Int64(array.as_primitive::<Int64Type>().values()),
            DataType::UInt8 => Column::UInt8(array.as_primitive::<UInt8Type>().values()),
            DataType::UInt16 => Column::UInt16(array.as_primitive::<UInt16Type>().values()),
            DataType::UInt32 => Column::UInt32(array.as_primitive::<UInt32Type>().values()),
            DataType::UInt64 => Column::UInt64(array.as_primitive::<UInt64Type>().values()),
            DataType::Float32 => Column::Float32(array.as_primitive::<Float32Type>().values()),
            DataType::Float64 => Column::Float64(array.as_primitive::<Float64Type>().values()),
            DataType::Boolean => Column::Boolean(array.as_boolean()),
            DataType::Utf8 => Column::Text(array.as_string()),
            DataType::LargeUtf8 => Column::LargeText(array.as_string()),
            DataType::Utf8View => Column::TextView(array.as_string_view()),
            other => unreachable!("a column of type {other} was let in"),
        };
        match array.null_count() {
            0 => column,
            _ => Column::Nullable(array, Box::new(column)),
        }
    }

    fn write(&self, row: usize, line: &mut Vec<u8>) {
        fn integer(line: &mut Vec<u8>, value: impl itoa::Integer) {
            line.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        }
        fn real(line: &mut Vec<u8>, value: impl ryu::Float) {
            line.extend_from_slice(ryu::Buffer::new().format(value).as_bytes());
        }
        match self {
            Column::Int8(values) => integer(line, values[row]),
            Column::Int16(values) => integer(line, values[row]),
            Column::Int32(values) => integer(line, values[row]),
            Column::Int64(values) => integer(line, values[row]),
            Column::UInt8(values) => integer(line, values[row]),
            Column::UInt16(values) => integer(line, values[row]),
            Column::UInt32(values) => integer(line, values[row]),
            Column::UInt64(values) => integer(line, values[row]),
            Column::Float32(values) => real(line, values[row]),
            Column::Float64(values) => real(line, values[row]),
            Column::Boolean(values) => {
                line.extend_from_slice(if values.value(row) { b"true" } else { b"false" });
            }
            Column::Text(values) => quote(line, values.value(row)),
            Column::LargeText(values) => quote(line, values.value(row)),
            Column::TextView(values) => quote(line, values.value(row)),
            Column::Nullable(array, column) => {
                if array.is_valid(row) {
                    column.write(row, line);
                }
            }
        }
    }
}

/// Text as a field: in quotes where it would otherwise read as something else. The empty
/// text has quotes, since an empty field is a missing value.
fn quote(line: &mut Vec<u8>, text: &str) {
    let special = |byte: u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
    if !text.is_empty() && !text.bytes().any(special) {
        line.extend_from_slice(text.as_bytes());
        return;
    }
    line.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' {
            line.push(b'"');
        }
        line.push(byte);
    }
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_needs_quotes_has_them() {
        let quoted = |text| {
            let mut line = Vec::new();
            quote(&mut line, text);
            String::from_utf8(line).unwrap()
        };
        assert_eq!(quoted("NGC 224"), "NGC 224");
        assert_eq!(quoted(""), r#""""#);
        assert_eq!(quoted("a,b"), r#""a,b""#);
        assert_eq!(quoted("the \"Owl\""), r#""the ""Owl""""#);
        assert_eq!(quoted("two\nlines"), "\"two\nlines\"");
        assert_eq!(quoted("Łódź"), "Łódź");
    }
}
