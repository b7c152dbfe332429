//! Points from Arrow IPC, files and streams alike: a list of messages, decoded side by side.
//!
//! A damaged file may claim any size. What a message says about itself is checked against
//! the bytes that are there before memory is taken for it.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_ipc::{
    Block, CompressionType, Message, MessageHeader, MetadataVersion, RecordBatch, root_as_footer,
    root_as_message,
};
use arrow_schema::SchemaRef;

use crate::error::{Error, Result};
use crate::format::{DType, Format};
use crate::read::columns::Choice;
use crate::read::number::Coordinate;
use crate::read::points::{PointSet, allocate, check_dimension, finish};
use crate::read::source::Input;
use crate::read::{Loaded, ReadOptions, in_order};

const MAGIC: &[u8] = b"ARROW1";
const CONTINUATION: [u8; 4] = [0xFF; 4];

pub(crate) fn read(input: &Input<'_>, options: &ReadOptions) -> Result<Loaded> {
    let head = input.read(0, MAGIC.len().min(input.data.len() as usize))?;
    let contents = match head == MAGIC {
        true => Contents::of_file(input)?,
        false => Contents::of_stream(input)?,
    };
    let choice = Choice::new(&input.name, &contents.schema, options)?;
    let dimension = match choice.dimension() {
        Some(dimension) => dimension,
        None => contents.dimension_of_lists(input, &choice)?,
    };
    check_dimension(&input.name, dimension)?;
    let columns = choice.coordinate_names(dimension);
    let (points, ids) = match choice.dtype {
        DType::F32 => contents.load::<f32>(input, &choice, &columns)?,
        DType::F64 => contents.load::<f64>(input, &choice, &columns)?,
    };
    let ids = choice.join_ids(&input.name, &contents.schema, &ids)?;
    Ok(Loaded { points, ids, columns, format: Format::Arrow, bytes: input.data.len() })
}

/// What is in a file or stream: where its batches lie, and how many rows they have.
struct Contents {
    schema: SchemaRef,
    version: MetadataVersion,
    /// Dictionaries hold for the batches that follow them.
    runs: Vec<Run>,
}

#[derive(Default)]
struct Run {
    dictionaries: Vec<Block>,
    batches: Vec<(Block, usize)>,
}

impl Contents {
    fn of_file(input: &Input<'_>) -> Result<Self> {
        let damaged = |reason: String| damaged(input, reason);
        let tail = input.data.len().checked_sub(10).filter(|&at| at >= 8);
        let cut_short = || damaged("it is cut short, or not written to its end".to_owned());
        let tail = tail.ok_or_else(cut_short)?;
        let mut bytes = [0; 10];
        input.read_into(tail, &mut bytes)?;
        if !bytes.ends_with(MAGIC) {
            return Err(cut_short());
        }
        let length = read_footer_length(bytes)
            .map_err(|_| damaged("the length of its footer is negative".to_owned()))?;
        let start = tail.checked_sub(length as u64);
        let start = start
            .ok_or_else(|| damaged("its footer claims to be longer than the file".to_owned()))?;
        let footer = input.read(start, length)?;
        let footer =
            root_as_footer(&footer).map_err(|error| undecodable(input, "its footer", error))?;
        let schema = footer.schema().ok_or_else(|| damaged("it has no schema".to_owned()))?;

        let mut run = Run::default();
        if let Some(dictionaries) = footer.dictionaries() {
            run.dictionaries.extend(dictionaries.iter().copied());
        }
        for block in footer.recordBatches().into_iter().flatten() {
            let metadata = read_metadata(input, block)?;
            let message = parse(input, &metadata)?;
            let rows = rows(input, &message)?;
            run.batches.push((*block, rows));
        }
        Ok(Contents {
            schema: checked_schema(input, schema)?,
            version: footer.version(),
            runs: vec![run],
        })
    }

    fn of_stream(input: &Input<'_>) -> Result<Self> {
        let mut contents: Option<Contents> = None;
        let mut offset = 0;
        while let Some(block) = next_message(input, offset)? {
            let metadata = read_metadata(input, &block)?;
            let message = parse(input, &metadata)?;
            let block = Block::new(offset as i64, block.metaDataLength(), message.bodyLength());
            offset = end_of(input, &block)?;
            match (message.header_type(), &mut contents) {
                (MessageHeader::Schema, None) => {
                    let schema = message.header_as_schema();
                    let schema = schema.ok_or_else(|| damaged(input, "it has no schema"))?;
                    contents = Some(Contents {
                        schema: checked_schema(input, schema)?,
                        version: message.version(),
                        runs: vec![Run::default()],
                    });
                }
                (MessageHeader::DictionaryBatch, Some(contents)) => {
                    if contents.runs.last().is_none_or(|run| !run.batches.is_empty()) {
                        contents.runs.push(Run::default());
                    }
                    contents.runs.last_mut().unwrap().dictionaries.push(block);
                }
                (MessageHeader::RecordBatch, Some(contents)) => {
                    let rows = rows(input, &message)?;
                    contents.runs.last_mut().unwrap().batches.push((block, rows));
                }
                (kind, _) => {
                    let reason = format!("there is a message of kind {kind:?} where none may be");
                    return Err(damaged(input, reason));
                }
            }
        }
        contents.ok_or_else(|| damaged(input, "it has no schema"))
    }

    fn dimension_of_lists(&self, input: &Input<'_>, choice: &Choice) -> Result<usize> {
        let mut decoder = self.decoder(choice);
        for run in &self.runs {
            read_dictionaries(input, &mut decoder, run)?;
            if let Some((block, _)) = run.batches.iter().find(|(_, rows)| *rows > 0) {
                let arrays = decode(input, &decoder, block)?;
                let first: Vec<_> = arrays.iter().map(|array| array.slice(0, 1)).collect();
                return choice.dimension_of_first_row(&input.name, &first);
            }
        }
        Err(choice.no_rows(&input.name))
    }

    fn load<T: Coordinate>(
        &self,
        input: &Input<'_>,
        choice: &Choice,
        columns: &[String],
    ) -> Result<(PointSet, Vec<ArrayRef>)> {
        let dimension = columns.len();
        let batches = self.runs.iter().flat_map(|run| &run.batches);
        let rows = batches.fold(0u64, |sum, (_, rows)| sum.saturating_add(*rows as u64));
        let mut coordinates = allocate::<T>(&input.name, rows, dimension)?;

        let mut decoder = self.decoder(choice);
        let mut ids = Vec::new();
        let (mut first_row, mut rest) = (0, &mut coordinates[..]);
        for run in &self.runs {
            read_dictionaries(input, &mut decoder, run)?;
            let mut tasks = Vec::with_capacity(run.batches.len());
            for &(block, rows) in &run.batches {
                let out = rest.split_off_mut(..rows * dimension).unwrap_or_default();
                tasks.push((block, first_row, rows, out));
                first_row += rows as u64;
            }
            let parts = in_order(tasks, |(block, first_row, rows, out)| {
                let arrays = decode(input, &decoder, &block)?;
                if arrays.iter().any(|array| array.len() != rows) {
                    return Err(damaged(input, "a batch has fewer rows than it says"));
                }
                input.progress.advance(block.bodyLength() as u64);
                if rows == 0 {
                    return Ok(None);
                }
                choice.fill(&input.name, &arrays, first_row, dimension, out)?;
                choice.own_ids(&input.name, &arrays, first_row)
            })?;
            ids.extend(parts.into_iter().flatten());
        }
        Ok((finish(&input.name, coordinates, columns)?, ids))
    }

    fn decoder(&self, choice: &Choice) -> FileDecoder {
        FileDecoder::new(self.schema.clone(), self.version).with_projection(choice.read.clone())
    }
}

fn read_dictionaries(input: &Input<'_>, decoder: &mut FileDecoder, run: &Run) -> Result<()> {
    for block in &run.dictionaries {
        let buffer = read_block(input, block)?;
        decoder
            .read_dictionary(block, &buffer)
            .map_err(|error| undecodable(input, "a dictionary", error))?;
    }
    Ok(())
}

fn decode(input: &Input<'_>, decoder: &FileDecoder, block: &Block) -> Result<Vec<ArrayRef>> {
    let buffer = read_block(input, block)?;
    let batch = decoder
        .read_record_batch(block, &buffer)
        .map_err(|error| undecodable(input, "a batch", error))?;
    let batch = batch.ok_or_else(|| damaged(input, "a batch is empty"))?;
    Ok(batch.columns().to_vec())
}

/// The message at this offset of a stream, its body not known yet; `None` at the end.
fn next_message(input: &Input<'_>, offset: u64) -> Result<Option<Block>> {
    let left = input.data.len() - offset;
    if left == 0 {
        return Ok(None);
    }
    if left < 4 {
        return Err(damaged(input, "it ends within a message"));
    }
    let mut prefix = [0; 8];
    let prefix_length = left.min(8) as usize;
    input.read_into(offset, &mut prefix[..prefix_length])?;
    let [first, second] = [0, 4].map(|at| <[u8; 4]>::try_from(&prefix[at..at + 4]).unwrap());
    // Streams from before 2019 have the length alone.
    let (prefix, length) = match first == CONTINUATION {
        true => (8, i32::from_le_bytes(second)),
        false => (4, i32::from_le_bytes(first)),
    };
    match length.checked_add(prefix) {
        Some(total) if total == prefix && left >= prefix as u64 => Ok(None),
        Some(total) if total > prefix && total as u64 <= left => {
            Ok(Some(Block::new(offset as i64, total, 0)))
        }
        _ => Err(damaged(input, "it ends within a message")),
    }
}

fn read_metadata(input: &Input<'_>, block: &Block) -> Result<bytes::Bytes> {
    end_of(input, block)?;
    input.read(block.offset() as u64, block.metaDataLength() as usize)
}

fn read_block(input: &Input<'_>, block: &Block) -> Result<Buffer> {
    let end = end_of(input, block)?;
    let start = block.offset() as u64;
    let bytes = input.read(start, (end - start) as usize)?;
    let (metadata, body) = bytes.split_at(block.metaDataLength() as usize);
    check_sizes(input, &parse(input, metadata)?, body)?;
    Ok(Buffer::from(bytes))
}

/// The end of a block that lies in the file.
fn end_of(input: &Input<'_>, block: &Block) -> Result<u64> {
    let outside = || damaged(input, "a message reaches beyond its end");
    let part = |value: i64| u64::try_from(value).map_err(|_| outside());
    let (offset, metadata) = (part(block.offset())?, part(block.metaDataLength().into())?);
    let end = offset
        .checked_add(metadata)
        .and_then(|end| end.checked_add(part(block.bodyLength()).ok()?))
        .filter(|&end| end <= input.data.len())
        .ok_or_else(outside)?;
    Ok(end)
}

fn parse<'a>(input: &Input<'_>, metadata: &'a [u8]) -> Result<Message<'a>> {
    let prefix = if metadata.starts_with(&CONTINUATION) { 8 } else { 4 };
    let message = metadata.get(prefix..).unwrap_or_default();
    root_as_message(message).map_err(|error| undecodable(input, "a message", error))
}

fn rows(input: &Input<'_>, message: &Message<'_>) -> Result<usize> {
    message
        .header_as_record_batch()
        .and_then(|batch| usize::try_from(batch.length()).ok())
        .ok_or_else(|| damaged(input, "a batch does not say how many rows it has"))
}

/// Refuses compressed buffers that claim to hold more than their codec can make of them:
/// the decoder takes the memory that they ask for.
fn check_sizes(input: &Input<'_>, message: &Message<'_>, body: &[u8]) -> Result<()> {
    let batch: Option<RecordBatch<'_>> = match message.header_type() {
        MessageHeader::DictionaryBatch => {
            message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data())
        }
        _ => message.header_as_record_batch(),
    };
    let Some(batch) = batch else { return Ok(()) };
    let compression = batch.compression().map(|compression| compression.codec());
    for buffer in batch.buffers().into_iter().flatten() {
        let bytes =
            usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
        let bytes =
            bytes.and_then(|(offset, length)| body.get(offset..offset.checked_add(length)?));
        let bytes = bytes.ok_or_else(|| damaged(input, "a buffer lies outside its batch"))?;
        let Some(codec) = compression else { continue };
        let Some((length, packed)) = bytes.split_first_chunk::<8>() else { continue };
        // The most that one byte can stand for: in LZ4 a length byte counts 255, in
        // Zstandard a block of four bytes repeats one byte 128 KiB times.
        let expansion = if codec == CompressionType::LZ4_FRAME { 255 } else { 1 << 15 };
        let most = (packed.len() as i64 + 64).saturating_mul(expansion);
        if i64::from_le_bytes(*length) > most {
            return Err(damaged(input, "a compressed buffer claims an impossible size"));
        }
    }
    Ok(())
}

fn checked_schema(input: &Input<'_>, schema: arrow_ipc::Schema<'_>) -> Result<SchemaRef> {
    if !schema.endianness().equals_to_target_endianness() {
        return Err(Error::Format {
            file: input.name.clone(),
            problem: "its byte order is not this machine's".to_owned(),
        });
    }
    let schema =
        try_fb_to_schema(schema).map_err(|error| undecodable(input, "its schema", error))?;
    Ok(Arc::new(schema))
}

fn undecodable(input: &Input<'_>, part: &str, said: impl ToString) -> Error {
    Error::undecodable(&input.name, Format::Arrow, part, said)
}

fn damaged(input: &Input<'_>, reason: impl ToString) -> Error {
    Error::damaged(&input.name, Format::Arrow, reason)
}
