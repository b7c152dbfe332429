//! Tables as Parquet files: one row group per batch, its columns encoded side by side.

use core::marker::PhantomData;
use core::ops::Range;
use std::io::{self, Write};

use arrow_schema::SchemaRef;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriter,
    ArrowWriterOptions, compute_leaves,
};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use super::pipeline::Encoder;
use super::table::Rows;
use super::target::{Target, refused};
use crate::error::{Error, Result};

/// What is known about the values of a column beforehand; it decides how they are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Row numbers, each many times over.
    RowNumbers,
    /// Numbers of which hardly two are equal.
    Reals,
    /// Whatever an id column held.
    Values,
}

/// Encodes the columns of a batch side by side.
pub(super) struct ParquetEncoder<R> {
    name: String,
    schema: SchemaRef,
    factory: ArrowRowGroupWriterFactory,
    rows: PhantomData<fn(R)>,
}

impl<R: Rows> ParquetEncoder<R> {
    pub(super) fn new(
        target: Target,
        schema: SchemaRef,
        styles: &[Style],
    ) -> Result<(Self, SerializedFileWriter<Inside>)> {
        let name = target.name().to_owned();
        let options = ArrowWriterOptions::new().with_properties(properties(&schema, styles));
        let (file, factory) =
            ArrowWriter::try_new_with_options(Inside(Some(target)), schema.clone(), options)
                .and_then(ArrowWriter::into_serialized_writer)
                .map_err(|e| error(&name, e))?;
        Ok((ParquetEncoder { name, schema, factory, rows: PhantomData }, file))
    }

    fn encode_columns(
        &self,
        batch: &R,
        number: usize,
        columns: Range<usize>,
    ) -> Result<Vec<ArrowColumnChunk>, ParquetError> {
        // No column is nested, so each has one leaf and one writer.
        let mut writers = self.factory.create_column_writers(number)?;
        let writers = writers.drain(columns.clone());
        let encode = |(mut writer, column): (ArrowColumnWriter, usize)| {
            let array = batch.column(column)?;
            for leaf in &compute_leaves(self.schema.field(column), &array)? {
                writer.write(leaf)?;
            }
            writer.close()
        };
        writers.zip(columns).map(encode).collect()
    }
}

/// In how many pieces a batch of so many columns is encoded.
///
/// The writers of all columns are made for each piece. A piece for every column of a wide
/// table would take longer to begin than to encode, so few writers are made in all.
pub(super) fn pieces(columns: usize) -> usize {
    const WRITERS: usize = 1 << 10;
    let columns = columns.max(1);
    (WRITERS / columns).clamp(1, columns)
}

/// Rows in a page. Small enough to skip by, large enough for the compressor.
const PAGE_ROWS: usize = 1 << 16;

/// Neighbouring points have nearly the same neighbours, and a join gives them one after the
/// other: rows of ids repeat each other at a distance that a compressor finds and a
/// dictionary does not. So ids are stored plainly and compressed, which is smaller than a
/// dictionary and takes no longer. Distances hold little to compress, and most of that in
/// their leading bytes.
fn properties(schema: &SchemaRef, styles: &[Style]) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("nearjoin ", env!("CARGO_PKG_VERSION")).into())
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS / 8)
        .set_max_row_group_row_count(None);
    for (field, style) in schema.fields().iter().zip(styles) {
        let column = ColumnPath::from(vec![field.name().clone()]);
        let (dictionary, encoding) = match style {
            Style::RowNumbers => (false, Encoding::PLAIN),
            Style::Reals => (false, Encoding::BYTE_STREAM_SPLIT),
            // Names are long enough for a dictionary to pay; numbers are as row numbers.
            Style::Values => (!field.data_type().is_primitive(), Encoding::PLAIN),
        };
        properties = properties
            .set_column_dictionary_enabled(column.clone(), dictionary)
            .set_column_encoding(column, encoding);
    }
    properties.build()
}

impl<R: Rows> Encoder for ParquetEncoder<R> {
    type Batch = R;
    type Part = Vec<ArrowColumnChunk>;
    type File = SerializedFileWriter<Inside>;

    fn pieces(&self) -> usize {
        pieces(self.schema.fields().len())
    }

    fn encode(&self, batch: &R, number: usize, piece: usize) -> Result<Vec<ArrowColumnChunk>> {
        let (columns, pieces) = (self.schema.fields().len(), self.pieces());
        let columns = piece * columns / pieces..(piece + 1) * columns / pieces;
        self.encode_columns(batch, number, columns).map_err(|e| error(&self.name, e))
    }

    fn append(&self, file: &mut Self::File, parts: Vec<Vec<ArrowColumnChunk>>) -> Result<()> {
        let append = |file: &mut Self::File| {
            let mut group = file.next_row_group()?;
            for chunk in parts.into_iter().flatten() {
                chunk.append_to_row_group(&mut group)?;
            }
            group.close()
        };
        append(file).map_err(|e| error(&self.name, e))?;
        Ok(())
    }
}

/// Writes the footer, and gives the file its name.
pub(super) fn complete(mut file: SerializedFileWriter<Inside>) -> Result<u64> {
    let finished = file.finish();
    match file.inner_mut().0.take() {
        Some(target) => {
            finished.map_err(|e| error(target.name(), e))?;
            target.commit()
        }
        None => unreachable!("the target is taken once"),
    }
}

/// A target that can be taken out again without losing what the system said.
pub(super) struct Inside(Option<Target>);

impl Write for Inside {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Some(target) => target.write(bytes),
            None => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), Target::flush)
    }
}

/// What the system said, where it was the system.
fn error(name: &str, error: ParquetError) -> Error {
    let source = match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(source) => *source,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    };
    refused(name, "written", source)
}
