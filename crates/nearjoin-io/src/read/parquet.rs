//! Points from Parquet: row groups, and parts of large ones, side by side.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelector,
};
use parquet::basic::Compression;

use crate::error::{Error, Result};
use crate::format::{DType, Format};
use crate::read::columns::Choice;
use crate::read::number::Coordinate;
use crate::read::points::{PointSet, allocate, check_dimension, finish};
use crate::read::source::{Data, Input};
use crate::read::{Loaded, ReadOptions, in_order};

/// Rows that are decoded at a time: what stays in the cache until it is copied.
const BATCH: usize = 1 << 14;

/// Rows that one thread reads at most, where their columns can be entered anywhere.
const RANGE: usize = 1 << 20;

pub(crate) fn read(input: &Input<'_>, options: &ReadOptions) -> Result<Loaded> {
    let file = File::open(input)?;
    let choice = Choice::new(&input.name, file.schema(), options)?;
    file.check_compression(&choice)?;
    let dimension = match choice.dimension() {
        Some(dimension) => dimension,
        None => file.dimension_of_lists(&choice)?,
    };
    check_dimension(&input.name, dimension)?;
    let columns = choice.coordinate_names(dimension);
    let (points, ids) = match choice.dtype {
        DType::F32 => file.load::<f32>(&choice, &columns)?,
        DType::F64 => file.load::<f64>(&choice, &columns)?,
    };
    let ids = choice.join_ids(&input.name, file.schema(), &ids)?;
    Ok(Loaded { points, ids, columns, format: Format::Parquet, bytes: input.data.len() })
}

struct File<'a> {
    input: &'a Input<'a>,
    metadata: ArrowReaderMetadata,
    /// Rows of each row group.
    groups: Vec<usize>,
}

/// Rows of a row group, and the place of their coordinates.
struct Part<'a, T> {
    group: usize,
    /// Rows of the group before these.
    skipped: usize,
    rows: usize,
    /// The number of the first row in the file.
    first_row: u64,
    out: &'a mut [T],
}

impl<'a> File<'a> {
    fn open(input: &'a Input<'a>) -> Result<Self> {
        check_end(input)?;
        let metadata = ArrowReaderMetadata::load(&input.data, ArrowReaderOptions::new())
            .map_err(|error| undecodable(input, "its footer", error))?;
        let groups = metadata.metadata().row_groups().iter();
        let groups = groups
            .map(|group| usize::try_from(group.num_rows()))
            .collect::<core::result::Result<_, _>>()
            .map_err(|_| damaged(input, "a row group has a negative number of rows"))?;
        Ok(File { input, metadata, groups })
    }

    fn schema(&self) -> &Arc<Schema> {
        self.metadata.schema()
    }

    /// Refuses columns whose codec is not built in.
    fn check_compression(&self, choice: &Choice) -> Result<()> {
        let schema = self.metadata.parquet_schema();
        let groups = self.metadata.metadata().row_groups().iter();
        for (leaf, column) in groups.flat_map(|group| group.columns().iter().enumerate()) {
            let codec = match column.compression() {
                Compression::BROTLI(_) => "brotli",
                Compression::LZO => "lzo",
                _ => continue,
            };
            if choice.read.contains(&schema.get_column_root_idx(leaf)) {
                return Err(Error::Format {
                    file: self.input.name.clone(),
                    problem: format!(
                        "it is compressed with {codec}, which is not supported: write it with \
                         zstd, snappy, gzip or lz4"
                    ),
                });
            }
        }
        Ok(())
    }

    fn dimension_of_lists(&self, choice: &Choice) -> Result<usize> {
        let name = &self.input.name;
        let Some(group) = self.groups.iter().position(|&rows| rows > 0) else {
            return Err(choice.no_rows(name));
        };
        let mut readers = self.readers(choice, group, 0, 1, 1)?;
        let arrays = readers.iter_mut().map(|reader| self.next(reader, group));
        choice.dimension_of_first_row(name, &arrays.collect::<Result<Vec<_>>>()?)
    }

    fn load<T: Coordinate>(
        &self,
        choice: &Choice,
        columns: &[String],
    ) -> Result<(PointSet, Vec<ArrayRef>)> {
        let dimension = columns.len();
        let rows = self.groups.iter().try_fold(0u64, |sum, &rows| sum.checked_add(rows as u64));
        let mut coordinates = allocate::<T>(&self.input.name, rows.unwrap_or(u64::MAX), dimension)?;

        // Pages of plain columns are skipped unread. To skip lists they must be decoded.
        let range = if choice.is_flat(self.schema()) { RANGE } else { usize::MAX };
        let mut parts = Vec::new();
        let (mut first_row, mut rest) = (0, &mut coordinates[..]);
        for (group, &group_rows) in self.groups.iter().enumerate() {
            let mut skipped = 0;
            while skipped < group_rows {
                let rows = range.min(group_rows - skipped);
                let out = rest.split_off_mut(..rows * dimension).unwrap_or_default();
                parts.push(Part { group, skipped, rows, first_row, out });
                skipped += rows;
                first_row += rows as u64;
            }
        }
        let ids = in_order(parts, |part| self.load_part(choice, dimension, part))?;
        let points = finish(&self.input.name, coordinates, columns)?;
        Ok((points, ids.into_iter().flatten().collect()))
    }

    fn load_part<T: Coordinate>(
        &self,
        choice: &Choice,
        dimension: usize,
        part: Part<'_, T>,
    ) -> Result<Vec<ArrayRef>> {
        let name = &self.input.name;
        let group_rows = self.groups[part.group] as u64;
        let bytes = self.metadata.metadata().row_group(part.group).compressed_size();
        let bytes = u64::try_from(bytes).unwrap_or(0);
        let mut readers = self.readers(choice, part.group, part.skipped, part.rows, BATCH)?;
        let mut ids = Vec::new();
        let mut row = part.first_row;
        for out in part.out.chunks_mut(BATCH * dimension) {
            let arrays = readers.iter_mut().map(|reader| self.next(reader, part.group));
            let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
            let rows = out.len() / dimension;
            if arrays.iter().any(|array| array.len() != rows) {
                return Err(self.short(part.group));
            }
            choice.fill(name, &arrays, row, dimension, out)?;
            ids.extend(choice.ids(name, &arrays, row)?);
            row += rows as u64;
        }
        let share = u128::from(bytes) * part.rows as u128 / u128::from(group_rows);
        self.input.progress.advance(share as u64);
        Ok(ids)
    }

    /// One reader for each column.
    fn readers(
        &self,
        choice: &Choice,
        group: usize,
        skipped: usize,
        rows: usize,
        batch: usize,
    ) -> Result<Vec<ParquetRecordBatchReader>> {
        let schema = self.metadata.parquet_schema();
        let reader = |&column: &usize| {
            let mut builder = ParquetRecordBatchReaderBuilder::<Data>::new_with_metadata(
                self.input.data.clone(),
                self.metadata.clone(),
            )
            .with_projection(ProjectionMask::roots(schema, [column]))
            .with_row_groups(vec![group])
            .with_batch_size(batch);
            if rows < self.groups[group] {
                let selected = [RowSelector::skip(skipped), RowSelector::select(rows)];
                builder = builder.with_row_selection(selected.to_vec().into());
            }
            builder.build().map_err(|error| self.undecodable(group, error))
        };
        choice.read.iter().map(reader).collect()
    }

    fn next(&self, reader: &mut ParquetRecordBatchReader, group: usize) -> Result<ArrayRef> {
        match reader.next() {
            Some(Ok(batch)) => batch.columns().first().cloned().ok_or_else(|| self.short(group)),
            Some(Err(ArrowError::ParquetError(error))) => Err(self.undecodable(group, error)),
            Some(Err(error)) => Err(self.undecodable(group, error)),
            None => Err(self.short(group)),
        }
    }

    fn undecodable(&self, group: usize, said: impl ToString) -> Error {
        undecodable(self.input, &format!("row group {group}"), said)
    }

    fn short(&self, group: usize) -> Error {
        damaged(self.input, format!("row group {group} has fewer rows than it says"))
    }
}

/// A file that was not written or copied to its end has no footer.
fn check_end(input: &Input<'_>) -> Result<()> {
    const MAGIC: &[u8; 4] = b"PAR1";
    // The mark at the beginning, the footer's length and the mark at the end.
    let tail = input.data.len().checked_sub(8).filter(|&at| at >= 4);
    let tail = tail.map(|at| input.read(at, 8)).transpose()?;
    match tail.as_deref().and_then(|tail| tail.split_first_chunk::<4>()) {
        Some((length, end)) if end == MAGIC => {
            let footer = u64::from(u32::from_le_bytes(*length));
            match footer + 12 <= input.data.len() {
                true => Ok(()),
                false => Err(damaged(input, "its footer claims to be longer than the file")),
            }
        }
        Some((_, b"PARE")) => Err(Error::Format {
            file: input.name.clone(),
            problem: "its footer is encrypted: decrypt it first".to_owned(),
        }),
        _ => Err(damaged(input, "it is cut short, or not written to its end")),
    }
}

fn undecodable(input: &Input<'_>, part: &str, said: impl ToString) -> Error {
    Error::undecodable(&input.name, Format::Parquet, part, said)
}

fn damaged(input: &Input<'_>, reason: impl ToString) -> Error {
    Error::damaged(&input.name, Format::Parquet, reason)
}
