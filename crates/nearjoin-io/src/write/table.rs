//! Tables in any format, batch by batch.

use std::thread;

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, SchemaRef};

use super::arrow::ArrowEncoder;
use super::csv::CsvEncoder;
use super::parquet::{ParquetEncoder, Style};
use super::pipeline::{Encoder, Pipeline};
use super::target::Target;
use crate::error::{Error, Result};
use crate::format::OutputFormat;

/// Some rows of a table, which can be asked for their columns from any thread.
pub(super) trait Rows: Send + Sync + 'static {
    /// One column of them.
    fn column(&self, column: usize) -> Result<ArrayRef, ArrowError>;
}

/// A format that holds tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableFormat {
    Parquet,
    Arrow,
    Csv,
}

impl TableFormat {
    /// The format, if it holds tables.
    pub(super) fn of(format: OutputFormat, target: &Target) -> Result<Self> {
        match format {
            OutputFormat::Parquet => Ok(TableFormat::Parquet),
            OutputFormat::Arrow => Ok(TableFormat::Arrow),
            OutputFormat::Csv => Ok(TableFormat::Csv),
            OutputFormat::Npz => Err(Error::Format {
                file: target.name().into(),
                problem: "NPZ holds arrays, not a table: choose parquet, arrow or csv".into(),
            }),
        }
    }

    /// Rows in a batch where memory allows. A batch is a row group of a Parquet file and a
    /// record batch of an Arrow file; for text it only has to be large enough to make the
    /// locks cheap.
    fn batch_rows(self) -> usize {
        match self {
            TableFormat::Parquet | TableFormat::Arrow => 1 << 20,
            TableFormat::Csv => 1 << 16,
        }
    }

    /// What an encoder takes whatever the size of its batch: for Parquet, pages in the making and
    /// a compressor.
    fn encoder_bytes(self) -> usize {
        match self {
            TableFormat::Parquet => 4 << 20,
            TableFormat::Arrow | TableFormat::Csv => 1 << 16,
        }
    }
}

impl From<TableFormat> for OutputFormat {
    fn from(format: TableFormat) -> Self {
        match format {
            TableFormat::Parquet => OutputFormat::Parquet,
            TableFormat::Arrow => OutputFormat::Arrow,
            TableFormat::Csv => OutputFormat::Csv,
        }
    }
}

/// Batches in flight below which encoders would wait for each other's file or caller.
const FEWEST: usize = 3;

/// How much is encoded at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) threads: usize,
    /// Rows in a batch.
    pub(super) rows: usize,
    /// Batches in flight.
    pub(super) batches: usize,
}

impl Sizes {
    /// What `threads` encoders (0: as many as the machine has cores) can use, within
    /// `memory` bytes, where a row takes `row_bytes` on its whole way.
    pub(super) fn within(
        format: TableFormat,
        columns: usize,
        row_bytes: usize,
        threads: usize,
        memory: u64,
    ) -> Self {
        let threads = match threads {
            0 => thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        };
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        // Encoders may have half of it for themselves.
        let threads = threads.min(memory / 2 / format.encoder_bytes()).max(1);
        let memory = memory.saturating_sub(threads * format.encoder_bytes());
        // One more batch than are in flight is being filled.
        let most = memory / row_bytes.max(1) / (FEWEST + 1);
        let rows = format.batch_rows().min(most).max(1 << 10);
        // Text is encoded a batch at a time, the others by columns.
        let busy = match format {
            TableFormat::Csv => threads,
            TableFormat::Arrow => threads.div_ceil(columns),
            TableFormat::Parquet => threads.div_ceil(super::parquet::pieces(columns)),
        };
        let fit = (memory / row_bytes.max(1) / rows).saturating_sub(1);
        Sizes { threads, rows, batches: fit.clamp(1, busy + FEWEST) }
    }
}

/// A table being written.
pub(super) enum Table<R: Rows> {
    Parquet(Pipeline<ParquetEncoder<R>>),
    Arrow(Pipeline<ArrowEncoder<R>>),
    Csv(Pipeline<CsvEncoder<R>>),
}

impl<R: Rows> Table<R> {
    /// Starts the threads. Each column has a style.
    pub(super) fn start(
        target: Target,
        format: TableFormat,
        schema: SchemaRef,
        styles: &[Style],
        sizes: Sizes,
    ) -> Result<Self> {
        fn run<E: Encoder>((encoder, file): (E, E::File), sizes: Sizes) -> Result<Pipeline<E>> {
            Pipeline::start(encoder, file, sizes.threads, sizes.batches)
        }
        Ok(match format {
            TableFormat::Parquet => {
                Table::Parquet(run(ParquetEncoder::new(target, schema, styles)?, sizes)?)
            }
            TableFormat::Arrow => Table::Arrow(run(ArrowEncoder::new(target, schema)?, sizes)?),
            TableFormat::Csv => Table::Csv(run(CsvEncoder::new(target, schema)?, sizes)?),
        })
    }

    /// Queues rows. See [`Pipeline::push`].
    pub(super) fn push(&mut self, rows: R) -> Result<()> {
        match self {
            Table::Parquet(pipeline) => pipeline.push(rows),
            Table::Arrow(pipeline) => pipeline.push(rows),
            Table::Csv(pipeline) => pipeline.push(rows),
        }
    }

    /// Rows that are done with, for their memory.
    pub(super) fn spare(&mut self) -> Option<R> {
        match self {
            Table::Parquet(pipeline) => pipeline.spare(),
            Table::Arrow(pipeline) => pipeline.spare(),
            Table::Csv(pipeline) => pipeline.spare(),
        }
    }

    /// Completes the file, and returns its bytes.
    pub(super) fn finish(self) -> Result<u64> {
        match self {
            Table::Parquet(pipeline) => super::parquet::complete(pipeline.finish()?),
            Table::Arrow(pipeline) => super::arrow::complete(pipeline.finish()?),
            Table::Csv(pipeline) => pipeline.finish()?.commit(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_shrink_before_memory_grows() {
        let sizes = |memory| Sizes::within(TableFormat::Parquet, 3, 40, 2, memory);
        assert_eq!(sizes(1 << 30), Sizes { threads: 2, rows: 1 << 20, batches: 4 });
        let small = sizes(64 << 20);
        assert!(small.rows < 1 << 20 && small.rows * 40 * (small.batches + 1) <= 64 << 20);
        assert_eq!(sizes(0), Sizes { threads: 1, rows: 1 << 10, batches: 1 });
        let many = Sizes::within(TableFormat::Csv, 3, 100, 64, 1 << 40);
        assert_eq!(many, Sizes { threads: 64, rows: 1 << 16, batches: 67 });
    }
}
