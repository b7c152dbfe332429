//! CSR matrices as numpy's `.npz`: a ZIP archive of arrays, stored and not compressed.
//!
//! The number of rows and pairs is known beforehand, so every array has its place in the
//! file from the start and is written at its own pace. Checksums are filled in at the end.

use core::marker::PhantomData;

use crc32fast::Hasher;
use nearjoin::Scalar;

use super::Written;
use super::columns;
use super::npy::{self, Kind};
use super::target::Target;
use crate::error::{Error, Result};

/// Bytes of an array that are gathered before they are written.
const BUFFER: usize = 1 << 20;

/// Writes a CSR matrix row by row, as an `.npz` file with the arrays `indptr` (`int64`),
/// `indices` (`int32`, or `uint32` where there are more right points than that has numbers),
/// `distances` if asked for, and `shape` (`int64`: left and right points).
///
/// ```
/// use nearjoin::{Points, eps_join};
/// use nearjoin_io::write::{NpzCsr, Target};
/// let path = std::env::temp_dir().join("nearjoin-csr.npz");
/// let csr = eps_join(&Points::new(&[0.0, 0.5, 9.0], 1)?, 1.0)?;
/// let mut writer = NpzCsr::<f64>::new(Target::create(&path)?, 3, 3, 2, false)?;
/// writer.rows(csr.offsets(), csr.ids(), None)?;
/// assert_eq!(writer.finish()?.pairs, 2);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```python
/// z = numpy.load("out.npz")
/// m = scipy.sparse.csr_array((z["distances"], z["indices"], z["indptr"]), shape=z["shape"])
/// ```
#[derive(Debug)]
pub struct NpzCsr<T: Scalar> {
    archive: Archive,
    indptr: Array,
    indices: Array,
    distances: Option<Array>,
    shape: [u64; 2],
    pairs: u64,
    rows_done: u64,
    pairs_done: u64,
    scalar: PhantomData<T>,
}

impl<T: Scalar> NpzCsr<T> {
    /// A matrix of `left` rows over `right` columns with exactly `pairs` entries.
    ///
    /// # Errors
    /// If the file cannot be written, or only from its beginning to its end as a pipe.
    pub fn new(target: Target, left: u64, right: u64, pairs: u64, distances: bool) -> Result<Self> {
        Self::with_zip64(target, left, right, pairs, distances, false)
    }

    /// With the fields for large files although they are not needed: for tests.
    #[doc(hidden)]
    pub fn with_zip64(
        target: Target,
        left: u64,
        right: u64,
        pairs: u64,
        distances: bool,
        zip64: bool,
    ) -> Result<Self> {
        let mut archive = Archive::new(target, zip64)?;
        let indptr = archive.array("indptr", Kind::Int, 8, left + 1)?;
        let kind = if right <= i32::MAX as u64 { Kind::Int } else { Kind::Unsigned };
        let indices = archive.array("indices", kind, 4, pairs)?;
        let distances = match distances {
            true => Some(archive.array("distances", Kind::Float, size_of::<T>(), pairs)?),
            false => None,
        };
        let shape = archive.array("shape", Kind::Int, 8, 2)?;
        archive.write(shape, bytemuck::cast_slice(&[left, right]))?;
        archive.write(indptr, &0u64.to_ne_bytes())?;
        archive.reserve()?;
        Ok(NpzCsr {
            archive,
            indptr,
            indices,
            distances,
            shape: [left, right],
            pairs,
            rows_done: 0,
            pairs_done: 0,
            scalar: PhantomData,
        })
    }

    /// Adds the next rows: row `i` of them has the next `offsets[i + 1] - offsets[i]` ids.
    /// `ids` and `distances` are those of these rows alone, so `offsets` may begin anywhere.
    ///
    /// # Errors
    /// If the file cannot be written, or there are more rows or pairs than announced.
    ///
    /// # Panics
    /// If the slices do not have the lengths that `offsets` say, or distances are to be
    /// written and there are none.
    pub fn rows(&mut self, offsets: &[u64], ids: &[u32], distances: Option<&[T]>) -> Result<()> {
        let (Some(begin), Some(end)) = (offsets.first(), offsets.last()) else { return Ok(()) };
        assert_eq!(end - begin, ids.len() as u64, "as many ids as the offsets say");
        let before = self.pairs_done;
        self.rows_done += offsets.len() as u64 - 1;
        self.pairs_done += ids.len() as u64;
        if self.rows_done > self.shape[0] || self.pairs_done > self.pairs {
            return Err(self.miscounted());
        }
        const STEP: usize = BUFFER / 8;
        let mut ends = Vec::with_capacity(STEP.min(offsets.len()));
        for some in offsets[1..].chunks(STEP) {
            ends.clear();
            ends.extend(some.iter().map(|offset| offset - begin + before));
            self.archive.write(self.indptr, bytemuck::cast_slice(&ends))?;
        }
        self.archive.write(self.indices, bytemuck::cast_slice(ids))?;
        if let Some(array) = self.distances {
            let distances = distances.unwrap_or_default();
            assert_eq!(distances.len(), ids.len(), "as many distances as ids");
            let mut copy = Vec::with_capacity(STEP.min(distances.len()));
            for some in distances.chunks(STEP) {
                copy.clear();
                copy.extend_from_slice(some);
                self.archive.write(array, columns::bytes(&copy))?;
            }
        }
        Ok(())
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If the file cannot be written, or there were fewer rows or pairs than announced.
    pub fn finish(self) -> Result<Written> {
        if self.rows_done != self.shape[0] || self.pairs_done != self.pairs {
            return Err(self.miscounted());
        }
        let bytes = self.archive.finish()?;
        Ok(Written { pairs: self.pairs, bytes })
    }

    fn miscounted(&self) -> Error {
        let (rows, pairs) = (self.shape[0], self.pairs);
        Error::Format {
            file: self.archive.target.name().into(),
            problem: format!(
                "{rows} rows and {pairs} pairs were announced, not {} and {}",
                self.rows_done, self.pairs_done
            ),
        }
    }
}

/// One array of an archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Array(usize);

/// A ZIP archive whose entries are all open at once.
#[derive(Debug)]
pub(super) struct Archive {
    target: Target,
    entries: Vec<Entry>,
    /// Where the next entry begins.
    end: u64,
    /// Use the fields for large files in any case.
    zip64: bool,
}

#[derive(Debug)]
struct Entry {
    name: String,
    /// Where its local header stands.
    header: u64,
    /// Where its data stand.
    data: u64,
    size: u64,
    checksum: Hasher,
    /// Bytes that were given, written or not.
    given: u64,
    buffer: Vec<u8>,
}

impl Archive {
    /// An archive without entries.
    pub(super) fn new(target: Target, zip64: bool) -> Result<Self> {
        if !target.is_seekable() {
            return Err(Error::Format {
                file: target.name().into(),
                problem: "an NPZ file cannot be written to a pipe: give it a file name".into(),
            });
        }
        Ok(Archive { target, entries: Vec::new(), end: 0, zip64 })
    }

    /// Makes room for an array of `length` values of `bytes` bytes each.
    pub(super) fn array(
        &mut self,
        name: &str,
        kind: Kind,
        bytes: usize,
        length: u64,
    ) -> Result<Array> {
        let preface = npy::header(kind, bytes, &[length]);
        let mut entry = Entry {
            name: format!("{name}.npy"),
            header: self.end,
            data: 0,
            size: preface.len() as u64 + length * bytes as u64,
            checksum: Hasher::new(),
            given: 0,
            buffer: Vec::new(),
        };
        // The checksum is not known yet, but the header is as long as it will be.
        entry.data = entry.header + entry.local_header(self.zip64).len() as u64;
        self.end = entry.data + entry.size;
        self.entries.push(entry);
        let array = Array(self.entries.len() - 1);
        self.write(array, &preface)?;
        Ok(array)
    }

    /// Takes the place that all entries will need.
    pub(super) fn reserve(&mut self) -> Result<()> {
        self.target.set_len(self.end)
    }

    /// Adds to an array.
    pub(super) fn write(&mut self, array: Array, bytes: &[u8]) -> Result<()> {
        let entry = &mut self.entries[array.0];
        let start = entry.data + entry.given - entry.buffer.len() as u64;
        entry.checksum.update(bytes);
        entry.given += bytes.len() as u64;
        assert!(entry.given <= entry.size, "an array has the length that was announced");
        if entry.buffer.len() + bytes.len() <= BUFFER {
            entry.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        let buffered = entry.buffer.len() as u64;
        self.target.write_at(start, &entry.buffer)?;
        entry.buffer.clear();
        match bytes.len() <= BUFFER / 2 {
            true => entry.buffer.extend_from_slice(bytes),
            false => self.target.write_at(start + buffered, bytes)?,
        }
        Ok(())
    }

    /// Writes headers and directory, and gives the file its name.
    pub(super) fn finish(mut self) -> Result<u64> {
        let mut directory = Vec::new();
        for entry in &mut self.entries {
            assert_eq!(entry.given, entry.size, "an array has the length that was announced");
            let start = entry.data + entry.given - entry.buffer.len() as u64;
            self.target.write_at(start, &entry.buffer)?;
            self.target.write_at(entry.header, &entry.local_header(self.zip64))?;
            directory.extend(entry.directory_header(self.zip64));
        }
        let end = end_of_directory(self.entries.len(), self.end, directory.len(), self.zip64);
        directory.extend(end);
        self.target.write_at(self.end, &directory)?;
        self.target.commit()
    }
}

/// What does not fit into 32 bits, and says that it stands elsewhere.
const ELSEWHERE: u32 = u32::MAX;
/// 1 January 1980: the same result is the same file.
const DATE: u16 = 0x21;
/// The extra field that only pads.
const PADDING: u16 = 0xD935;
/// Where the data of an array begin in the file is a multiple of this, so that they can be
/// mapped.
const ALIGNMENT: u64 = 64;

fn put(bytes: &mut Vec<u8>, fields: &[&[u8]]) {
    for field in fields {
        bytes.extend_from_slice(field);
    }
}

/// The version of the format that a reader must know, and that made the file.
fn version(zip64: bool) -> u16 {
    if zip64 { 45 } else { 20 }
}

impl Entry {
    fn is_large(&self, zip64: bool) -> bool {
        zip64 || self.size >= ELSEWHERE as u64
    }

    /// Fields that the local header and the directory share: version to name length.
    fn common(&self, version: u16, large: bool) -> Vec<u8> {
        let size = if large { ELSEWHERE } else { self.size as u32 };
        let mut fields = Vec::new();
        // Flags, method "stored", time, date.
        put(&mut fields, &[&version.to_le_bytes(), &[0; 6], &DATE.to_le_bytes()]);
        let checksum = self.checksum.clone().finalize();
        put(&mut fields, &[&checksum.to_le_bytes(), &size.to_le_bytes(), &size.to_le_bytes()]);
        put(&mut fields, &[&(self.name.len() as u16).to_le_bytes()]);
        fields
    }

    fn local_header(&self, zip64: bool) -> Vec<u8> {
        let large = self.is_large(zip64);
        let mut extra = Vec::new();
        if large {
            let size = self.size.to_le_bytes();
            put(&mut extra, &[&1u16.to_le_bytes(), &16u16.to_le_bytes(), &size, &size]);
        }
        // The padding has a head of 4 bytes and says the alignment in 2 more.
        let fixed = 30 + self.name.len() + extra.len() + 6;
        let data = (self.header + fixed as u64).next_multiple_of(ALIGNMENT);
        let padding = (data - self.header) as usize - fixed + 2;
        put(&mut extra, &[&PADDING.to_le_bytes(), &(padding as u16).to_le_bytes()]);
        put(&mut extra, &[&(ALIGNMENT as u16).to_le_bytes(), &[0; 64][..padding - 2]]);
        let mut header = b"PK\x03\x04".to_vec();
        let common = self.common(version(large), large);
        put(&mut header, &[&common, &(extra.len() as u16).to_le_bytes()]);
        put(&mut header, &[self.name.as_bytes(), &extra]);
        header
    }

    fn directory_header(&self, zip64: bool) -> Vec<u8> {
        let large = self.is_large(zip64);
        let far = zip64 || self.header >= ELSEWHERE as u64;
        let mut extra = Vec::new();
        if large || far {
            let length: u16 = if large { 16 } else { 0 } + if far { 8 } else { 0 };
            put(&mut extra, &[&1u16.to_le_bytes(), &length.to_le_bytes()]);
            if large {
                put(&mut extra, &[&self.size.to_le_bytes(), &self.size.to_le_bytes()]);
            }
            if far {
                put(&mut extra, &[&self.header.to_le_bytes()]);
            }
        }
        let header = if far { ELSEWHERE } else { self.header as u32 };
        let mut fields = b"PK\x01\x02".to_vec();
        let version = version(large || far);
        put(&mut fields, &[&version.to_le_bytes(), &self.common(version, large)]);
        // Comment, disk, attributes: none.
        put(&mut fields, &[&(extra.len() as u16).to_le_bytes(), &[0; 10]]);
        put(&mut fields, &[&header.to_le_bytes(), self.name.as_bytes(), &extra]);
        fields
    }
}

fn end_of_directory(entries: usize, start: u64, length: usize, zip64: bool) -> Vec<u8> {
    let mut end = Vec::new();
    let (entries, length) = (entries as u64, length as u64);
    let far = zip64 || start >= ELSEWHERE as u64;
    if far {
        // The record says its size without the first 12 bytes; one disk, number 0.
        put(&mut end, &[b"PK\x06\x06", &44u64.to_le_bytes(), &45u16.to_le_bytes()]);
        put(&mut end, &[&45u16.to_le_bytes(), &[0; 8], &entries.to_le_bytes()]);
        put(&mut end, &[&entries.to_le_bytes(), &length.to_le_bytes(), &start.to_le_bytes()]);
        let record = start + length;
        put(&mut end, &[b"PK\x06\x07", &[0; 4], &record.to_le_bytes(), &1u32.to_le_bytes()]);
    }
    let start = if far { ELSEWHERE } else { start as u32 };
    let entries = (entries as u16).to_le_bytes();
    put(&mut end, &[b"PK\x05\x06", &[0; 4], &entries, &entries]);
    put(&mut end, &[&(length as u32).to_le_bytes(), &start.to_le_bytes(), &[0; 2]]);
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes and place that a directory header says, each from where it says that it is,
    /// and the length of the header.
    fn said(header: &[u8]) -> (u64, u64, usize) {
        let number = |at: usize, length: usize| {
            header[at..at + length].iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte))
        };
        let (name, extra) = (number(28, 2) as usize, number(30, 2) as usize);
        let mut at = 46 + name;
        let end = at + extra;
        if extra > 0 {
            assert_eq!((number(at, 2), number(at + 2, 2)), (1, extra as u64 - 4));
            at += 4;
        }
        let mut field = |short: u64| match short {
            0xFFFF_FFFF => {
                at += 8;
                number(at - 8, 8)
            }
            short => short,
        };
        let (size, compressed, place) =
            (field(number(24, 4)), field(number(20, 4)), field(number(42, 4)));
        assert_eq!((size, at), (compressed, end), "every large field is there, and no other");
        (size, place, header.len())
    }

    #[test]
    fn large_sizes_and_far_places_stand_elsewhere_each_for_itself() {
        const FOUR_GIB: u64 = 1 << 32;
        let values = [64, FOUR_GIB - 2, FOUR_GIB - 1, FOUR_GIB, 9 * FOUR_GIB + 5];
        for (size, header) in values.into_iter().flat_map(|s| values.map(|h| (s, h))) {
            let checksum = Hasher::new();
            let buffer = Vec::new();
            let name = "indices.npy".to_string();
            let entry = Entry { name, header, data: 0, size, checksum, given: 0, buffer };
            for zip64 in [false, true] {
                let directory = entry.directory_header(zip64);
                let (large, far) = (size >= FOUR_GIB - 1, header >= FOUR_GIB - 1);
                let extra = match (zip64 || large, zip64 || far) {
                    (false, false) => 0,
                    (true, false) => 4 + 16,
                    (false, true) => 4 + 8,
                    (true, true) => 4 + 24,
                };
                assert_eq!(said(&directory), (size, header, 46 + 11 + extra));
                let local = entry.local_header(zip64);
                assert_eq!((header + local.len() as u64) % ALIGNMENT, 0);
            }
        }
    }

    #[test]
    fn a_far_directory_is_found_through_its_own_record() {
        let near = end_of_directory(3, 1000, 200, false);
        assert_eq!(near.len(), 22);
        let far = end_of_directory(3, 1 << 33, 200, false);
        assert_eq!(far.len(), 56 + 20 + 22);
        assert_eq!(far[48..56], (1u64 << 33).to_le_bytes());
        assert_eq!(far[64..72], ((1u64 << 33) + 200).to_le_bytes());
        assert_eq!(far[92..96], [0xFF; 4]);
    }
}
