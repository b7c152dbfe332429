//! Where the bytes come from: a file that is read in parts, by many threads, or memory.

use core::cell::RefCell;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::quote;

/// Where points come from.
///
/// ```
/// use nearjoin_io::Source;
/// assert_eq!(Source::from("-"), Source::Stdin);
/// assert_eq!(Source::from("stars.npy").to_string(), "stars.npy");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Stdin,
}

impl From<&str> for Source {
    /// A path, or `-` for standard input.
    fn from(name: &str) -> Self {
        match name {
            "-" => Source::Stdin,
            path => Source::File(path.into()),
        }
    }
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Self {
        Source::File(path.into())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => f.write_str(&quote::path(path)),
            Source::Stdin => f.write_str("standard input"),
        }
    }
}

/// How far a load has come, for a thread that shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of the file that were read.
    pub done: AtomicU64,
    /// Bytes in all; 0 while unknown.
    pub total: AtomicU64,
}

impl Progress {
    pub(crate) fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A named input, with its bytes and the place to report progress.
pub(crate) struct Input<'a> {
    pub(crate) name: String,
    pub(crate) data: Data,
    pub(crate) progress: &'a Progress,
}

impl<'a> Input<'a> {
    pub(crate) fn open(source: &Source, progress: &'a Progress) -> Result<Self> {
        let name = source.to_string();
        let failed = |doing| {
            let file = name.clone();
            move |source| Error::Io { file, doing, source }
        };
        let data = match source {
            Source::Stdin => Data::drain(io::stdin().lock(), progress).map_err(failed("read"))?,
            Source::File(path) => {
                let file = File::open(path).map_err(failed("opened"))?;
                let metadata = file.metadata().map_err(failed("read"))?;
                if metadata.is_dir() {
                    return Err(failed("read")(io::ErrorKind::IsADirectory.into()));
                }
                match metadata.is_file() {
                    true => Data::File(Arc::new(file), metadata.len()),
                    // A pipe or a device: it has no length and no positions.
                    false => Data::drain(file, progress).map_err(failed("read"))?,
                }
            }
        };
        progress.done.store(0, Ordering::Relaxed);
        progress.total.store(data.len(), Ordering::Relaxed);
        Ok(Input { name, data, progress })
    }

    /// The bytes of a part.
    pub(crate) fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.data.read(offset, len).map_err(|source| self.unreadable(source))
    }

    /// The bytes of a part, into memory that is there.
    pub(crate) fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.data.read_into(offset, out).map_err(|source| self.unreadable(source))
    }

    pub(crate) fn unreadable(&self, source: io::Error) -> Error {
        Error::Io { file: self.name.clone(), doing: "read", source }
    }
}

/// Bytes that can be read at any position by any thread.
#[derive(Clone)]
pub(crate) enum Data {
    File(Arc<File>, u64),
    Bytes(Bytes),
}

/// Parts of this size and more are read by all threads.
const LARGE: usize = 8 << 20;
const STEP: usize = 1 << 20;

impl Data {
    fn drain(mut from: impl Read, progress: &Progress) -> io::Result<Self> {
        let mut all = Vec::new();
        while from.by_ref().take(STEP as u64).read_to_end(&mut all)? > 0 {
            progress.done.store(all.len() as u64, Ordering::Relaxed);
        }
        Ok(Data::Bytes(all.into()))
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Data::File(_, len) => *len,
            Data::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// A part that does not lie in the file is refused before memory is taken for it.
    pub(crate) fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match self {
            Data::Bytes(bytes) => Ok(bytes.slice(offset as usize..offset as usize + len)),
            Data::File(..) => {
                let mut part = Reused::new(len)?;
                self.read_into(offset, &mut part.memory[..len])?;
                Ok(Bytes::from_owner(part))
            }
        }
    }

    pub(crate) fn read_into(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self {
            Data::File(file, _) if out.len() < LARGE => read_exact_at(file, offset, out),
            Data::File(file, _) => {
                out.par_chunks_mut(STEP).enumerate().try_for_each(|(step, part)| {
                    read_exact_at(file, offset + (step * STEP) as u64, part)
                })
            }
            Data::Bytes(bytes) => {
                let from = usize::try_from(offset)
                    .ok()
                    .and_then(|start| bytes.get(start..start.checked_add(out.len())?))
                    .ok_or(io::ErrorKind::UnexpectedEof)?;
                out.copy_from_slice(from);
                Ok(())
            }
        }
    }
}

/// Bytes that were read, in memory that its thread keeps for the next ones: pages of a file
/// are read by the thousand, and fresh memory costs more than the reading.
struct Reused {
    memory: Vec<u8>,
    len: usize,
}

/// The memory that a thread keeps: at most so many parts, each of a middling size.
const KEPT: usize = 4;
const KEPT_FROM: usize = 32 << 10;
const KEPT_SIZE: usize = 2 << 20;

thread_local! {
    static KEEP: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

impl Reused {
    fn new(len: usize) -> io::Result<Self> {
        let mut memory = match len {
            KEPT_FROM..=KEPT_SIZE => KEEP.with_borrow_mut(Vec::pop).unwrap_or_default(),
            _ => Vec::new(),
        };
        lengthen(&mut memory, len)?;
        Ok(Reused { memory, len })
    }
}

/// Makes memory at least so long.
pub(crate) fn lengthen(memory: &mut Vec<u8>, len: usize) -> io::Result<()> {
    if memory.len() < len {
        memory.try_reserve_exact(len - memory.len())?;
        memory.resize(len, 0);
    }
    Ok(())
}

impl AsRef<[u8]> for Reused {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl Drop for Reused {
    fn drop(&mut self) {
        let memory = core::mem::take(&mut self.memory);
        // A thread that ends keeps nothing more.
        let _ = KEEP.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if (KEPT_FROM..=KEPT_SIZE).contains(&memory.len()) && kept.len() < KEPT {
                kept.push(memory);
            }
        });
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, out: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut offset: u64, mut out: &mut [u8]) -> io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                out = &mut out[read..];
                offset += read as u64;
            }
        }
    }
    Ok(())
}

impl Length for Data {
    fn len(&self) -> u64 {
        Data::len(self)
    }
}

/// Page headers are a few dozen bytes: one small read sees most of them.
const HEADER: usize = 1024;

/// What claims to be a longer header is none.
const LONGEST_HEADER: u64 = 16 << 20;

impl ChunkReader for Data {
    type T = SmallReads;

    fn get_read(&self, start: u64) -> ParquetResult<SmallReads> {
        let end = self.len().min(start.saturating_add(LONGEST_HEADER));
        Ok(SmallReads { data: self.clone(), offset: start, end, ahead: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        self.read(start, length).map_err(|error| ParquetError::EOF(error.to_string()))
    }
}

/// Reads on from a position, a little ahead.
///
/// The end is an error: the decoder of headers takes an empty read for success, and would
/// step over nothing as often as a damaged header says.
pub(crate) struct SmallReads {
    data: Data,
    offset: u64,
    end: u64,
    ahead: Bytes,
}

impl Read for SmallReads {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.ahead.is_empty() {
            let left = self.end.saturating_sub(self.offset);
            if left == 0 && !out.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let len = HEADER.max(out.len()).min(usize::try_from(left).unwrap_or(usize::MAX));
            self.ahead = self.data.read(self.offset, len)?;
            self.offset += len as u64;
        }
        let len = out.len().min(self.ahead.len());
        self.ahead.copy_to_slice(&mut out[..len]);
        Ok(len)
    }
}
