//! Points from Parquet: row groups and columns side by side.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::format::{DType, Format};
use crate::read::columns::Choice;
use crate::read::number::Coordinate;
use crate::read::points::{PointSet, allocate, check_dimension, finish};
use crate::read::source::{Data, Input};
use crate::read::{Loaded, ReadOptions, in_order};

/// Rows that are decoded at a time: what stays in the cache until it is copied.
const BATCH: usize = 1 << 14;

pub(crate) fn read(input: &Input<'_>, options: &ReadOptions) -> Result<Loaded> {
    let file = File::open(input)?;
    let choice = Choice::new(&input.name, file.schema(), options)?;
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

/// A row group, the row that it begins at, and the place of its coordinates.
struct Group<'a, T> {
    index: usize,
    first_row: u64,
    rows: usize,
    out: &'a mut [T],
}

impl<'a> File<'a> {
    fn open(input: &'a Input<'a>) -> Result<Self> {
        let metadata = ArrowReaderMetadata::load(&input.data, ArrowReaderOptions::new())
            .map_err(|error| damaged(input, error))?;
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

    fn dimension_of_lists(&self, choice: &Choice) -> Result<usize> {
        let name = &self.input.name;
        let Some(group) = self.groups.iter().position(|&rows| rows > 0) else {
            return Err(choice.no_rows(name));
        };
        let mut readers = self.readers(choice, group, 1)?;
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
        let mut coordinates =
            allocate::<T>(&self.input.name, rows.unwrap_or(u64::MAX), dimension)?;

        let mut groups = Vec::with_capacity(self.groups.len());
        let (mut first_row, mut rest) = (0, &mut coordinates[..]);
        for (index, &rows) in self.groups.iter().enumerate() {
            let out = rest.split_off_mut(..rows * dimension).unwrap_or_default();
            groups.push(Group { index, first_row, rows, out });
            first_row += rows as u64;
        }
        // With a row group for every thread, columns side by side would only cost.
        let columns_too = groups.len() < 2 * rayon::current_num_threads();
        let ids = in_order(groups, |group| self.load_group(choice, dimension, columns_too, group))?;
        let points = finish(&self.input.name, coordinates, columns)?;
        Ok((points, ids.into_iter().flatten().collect()))
    }

    fn load_group<T: Coordinate>(
        &self,
        choice: &Choice,
        dimension: usize,
        columns_too: bool,
        group: Group<'_, T>,
    ) -> Result<Vec<ArrayRef>> {
        let name = &self.input.name;
        let metadata = self.metadata.metadata().row_group(group.index);
        let bytes = u64::try_from(metadata.compressed_size()).unwrap_or(0);
        let mut readers = self.readers(choice, group.index, BATCH)?;
        let mut ids = Vec::new();
        let mut row = group.first_row;
        for out in group.out.chunks_mut(BATCH * dimension) {
            let next = |reader: &mut _| self.next(reader, group.index);
            let arrays: Vec<ArrayRef> = match columns_too {
                true => readers.par_iter_mut().map(next).collect::<Result<_>>()?,
                false => readers.iter_mut().map(next).collect::<Result<_>>()?,
            };
            let rows = out.len() / dimension;
            if arrays.iter().any(|array| array.len() != rows) {
                return Err(self.short(group.index));
            }
            choice.fill(name, &arrays, row, dimension, out)?;
            ids.extend(choice.ids(name, &arrays, row)?);
            row += rows as u64;
            self.input.progress.advance(bytes * rows as u64 / group.rows as u64);
        }
        Ok(ids)
    }

    /// One reader for each column.
    fn readers(
        &self,
        choice: &Choice,
        group: usize,
        batch: usize,
    ) -> Result<Vec<ParquetRecordBatchReader>> {
        let schema = self.metadata.parquet_schema();
        let reader = |&column: &usize| {
            ParquetRecordBatchReaderBuilder::<Data>::new_with_metadata(
                self.input.data.clone(),
                self.metadata.clone(),
            )
            .with_projection(ProjectionMask::roots(schema, [column]))
            .with_row_groups(vec![group])
            .with_batch_size(batch)
            .build()
            .map_err(|error| damaged(self.input, error))
        };
        choice.read.iter().map(reader).collect()
    }

    fn next(&self, reader: &mut ParquetRecordBatchReader, group: usize) -> Result<ArrayRef> {
        match reader.next() {
            Some(Ok(batch)) => {
                batch.columns().first().cloned().ok_or_else(|| self.short(group))
            }
            Some(Err(ArrowError::ParquetError(error))) => Err(damaged(self.input, error)),
            Some(Err(error)) => Err(damaged(self.input, error)),
            None => Err(self.short(group)),
        }
    }

    fn short(&self, group: usize) -> Error {
        damaged(self.input, format!("row group {group} has fewer rows than it says"))
    }
}

fn damaged(input: &Input<'_>, reason: impl ToString) -> Error {
    Error::damaged(&input.name, Format::Parquet, reason)
}
