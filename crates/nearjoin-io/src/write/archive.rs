//! Numpy's `.npz`: a ZIP archive of arrays, stored and not compressed.
//!
//! The shape of every array is known beforehand, so each has its place in the file from the
//! start and is written at its own pace. Checksums are filled in at the end.

use crc32fast::Hasher;
use nearjoin::Scalar;

use super::columns;
use super::npy::{self, Kind};
use super::target::Target;
use crate::error::{Error, Result};

/// Bytes of an array that are gathered before they are written.
pub(super) const BUFFER: usize = 1 << 20;

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

    /// Makes room for an array of values of `bytes` bytes each, in C order.
    pub(super) fn array(
        &mut self,
        name: &str,
        kind: Kind,
        bytes: usize,
        shape: &[u64],
    ) -> Result<Array> {
        let preface = npy::header(kind, bytes, shape);
        let size = shape.iter().try_fold(bytes as u64, |size, &length| size.checked_mul(length));
        // What is beyond any file is refused here, and the rest by the system.
        let Some(size) = size.filter(|size| *size < i64::MAX as u64 / 8) else {
            return Err(Error::Format {
                file: self.target.name().into(),
                problem: format!("an array of shape {shape:?} is larger than any file can be"),
            });
        };
        let mut entry = Entry {
            name: format!("{name}.npy"),
            header: self.end,
            data: 0,
            size: preface.len() as u64 + size,
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

    /// Adds scalars to an array.
    pub(super) fn write_scalars<T: Scalar>(&mut self, array: Array, values: &[T]) -> Result<()> {
        let step = BUFFER / size_of::<T>();
        let mut copy = Vec::with_capacity(step.min(values.len()));
        for some in values.chunks(step) {
            copy.clear();
            copy.extend_from_slice(some);
            self.write(array, columns::bytes(&copy))?;
        }
        Ok(())
    }

    /// The name of the file.
    pub(super) fn name(&self) -> &str {
        self.target.name()
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
