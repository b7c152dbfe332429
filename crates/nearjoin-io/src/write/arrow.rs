//! Tables as Arrow IPC files: one record batch per batch, not compressed.

use core::marker::PhantomData;
use std::io;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, SchemaRef};

use super::pipeline::Encoder;
use super::table::Rows;
use super::target::{Target, refused};
use crate::error::{Error, Result};

/// Columns are encoded when they are made: the file holds them as they lie in memory.
pub(super) struct ArrowEncoder<R> {
    name: String,
    schema: SchemaRef,
    rows: PhantomData<fn(R)>,
}

impl<R: Rows> ArrowEncoder<R> {
    pub(super) fn new(target: Target, schema: SchemaRef) -> Result<(Self, FileWriter<Target>)> {
        let name = target.name().to_owned();
        let file = FileWriter::try_new(target, &schema).map_err(|e| error(&name, e))?;
        Ok((ArrowEncoder { name, schema, rows: PhantomData }, file))
    }
}

impl<R: Rows> Encoder for ArrowEncoder<R> {
    type Batch = R;
    type Part = ArrayRef;
    type File = FileWriter<Target>;

    fn pieces(&self) -> usize {
        self.schema.fields().len()
    }

    fn encode(&self, batch: &R, _number: usize, piece: usize) -> Result<ArrayRef> {
        batch.column(piece).map_err(|e| error(&self.name, e))
    }

    fn append(&self, file: &mut FileWriter<Target>, parts: Vec<ArrayRef>) -> Result<()> {
        RecordBatch::try_new(self.schema.clone(), parts)
            .and_then(|batch| file.write(&batch))
            .map_err(|e| error(&self.name, e))
    }
}

/// Writes the footer, and gives the file its name.
pub(super) fn complete(mut file: FileWriter<Target>) -> Result<u64> {
    let finished = file.finish();
    finished.map_err(|e| error(file.get_ref().name(), e))?;
    let name = file.get_ref().name().to_owned();
    file.into_inner().map_err(|e| error(&name, e))?.commit()
}

/// What the system said, where it was the system.
pub(super) fn error(name: &str, error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, source) => refused(name, "written", source),
        other => refused(name, "written", io::Error::other(other)),
    }
}
