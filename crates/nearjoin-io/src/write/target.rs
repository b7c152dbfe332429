//! A file in the making.
//!
//! What is written goes to a temporary file beside the final one, which takes its place
//! only when it is complete: an error, a panic or a signal leaves the old file, or none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::unfinished::Unfinished;
use crate::error::{Error, Result};
use crate::quote;

/// Where a result goes: a file that appears under its name when it is complete, or
/// standard output.
///
/// A target that is dropped before [`commit`](Target::commit) leaves nothing behind.
///
/// ```
/// use std::io::Write;
/// use nearjoin_io::write::Target;
/// let path = std::env::temp_dir().join("nearjoin-target.txt");
/// let mut target = Target::create(&path)?;
/// target.write_all(b"complete")?;
/// assert!(!path.exists());
/// assert_eq!(target.commit()?, 8);
/// assert_eq!(std::fs::read(&path)?, b"complete");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Target {
    name: String,
    place: Place,
    /// Where the next [`Write::write`] goes.
    position: u64,
    /// Bytes of the file so far.
    length: u64,
    /// Bytes that may still be written; a test sets it to meet a full disk.
    room: u64,
}

#[derive(Debug)]
enum Place {
    /// A temporary file beside the final one.
    Beside(Unfinished),
    /// What is there and is no ordinary file: a device, a pipe.
    Direct(File),
    Stdout(io::Stdout),
}

impl Target {
    /// A file that will be called `path`. Its folder must be there and writable; a file of
    /// that name stays as it is until [`commit`](Target::commit).
    ///
    /// # Errors
    /// If a file cannot be made there, or `path` is a folder or a write-protected file.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = quote::path(path);
        let place = Place::open(path).map_err(|e| refused(&name, "written", e))?;
        Ok(Target { name, place, position: 0, length: 0, room: u64::MAX })
    }

    /// Standard output. What was written there stays, complete or not.
    pub fn stdout() -> Self {
        let place = Place::Stdout(io::stdout());
        Target { name: "standard output".into(), place, position: 0, length: 0, room: u64::MAX }
    }

    /// The final name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the file its name, and returns its bytes. It is on the disk by then: a crash
    /// leaves all of it or nothing.
    ///
    /// # Errors
    /// If the system refuses, or after [`remove_unfinished`](super::remove_unfinished).
    pub fn commit(self) -> Result<u64> {
        let Target { name, place, length, .. } = self;
        let committed = match place {
            Place::Beside(unfinished) => unfinished.commit(),
            Place::Direct(mut file) => file.flush(),
            Place::Stdout(mut stdout) => stdout.flush(),
        };
        committed.map_err(|e| refused(&name, "written", e))?;
        Ok(length)
    }

    /// Fails as a full disk does once `bytes` are written: for tests.
    #[doc(hidden)]
    pub fn with_room(mut self, bytes: u64) -> Self {
        self.room = bytes;
        self
    }

    /// Whether any part of the file can be written at any time.
    pub(super) fn is_seekable(&self) -> bool {
        matches!(self.place, Place::Beside(_))
    }

    /// Makes the file `length` bytes long. What is not written reads as zeros.
    pub(super) fn set_len(&mut self, length: u64) -> Result<()> {
        if let Place::Beside(unfinished) = &self.place {
            let set = unfinished.file.set_len(length);
            set.map_err(|e| refused(&self.name, "written", e))?;
            self.length = length;
        }
        Ok(())
    }

    /// Writes at `offset`, and goes on from there.
    pub(super) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let result = (|| {
            if self.position != offset {
                match &mut self.place {
                    Place::Beside(unfinished) => unfinished.file.seek(SeekFrom::Start(offset))?,
                    _ => return Err(io::ErrorKind::NotSeekable.into()),
                };
                self.position = offset;
            }
            self.write_all(bytes)
        })();
        result.map_err(|e| refused(&self.name, "written", e))
    }
}

/// The error of a target that could not be written.
pub(super) fn refused(name: &str, doing: &'static str, source: io::Error) -> Error {
    Error::Io { file: name.into(), doing, source }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let some = &bytes[..bytes.len().min(usize::try_from(self.room).unwrap_or(usize::MAX))];
        let written = match &mut self.place {
            Place::Beside(unfinished) => unfinished.file.write(some)?,
            Place::Direct(file) => file.write(some)?,
            Place::Stdout(stdout) => stdout.lock().write(some)?,
        };
        self.position += written as u64;
        self.length = self.length.max(self.position);
        if self.room != u64::MAX {
            self.room -= written as u64;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.place {
            Place::Beside(_) | Place::Direct(_) => Ok(()),
            Place::Stdout(stdout) => stdout.flush(),
        }
    }
}

impl Place {
    fn open(path: &Path) -> io::Result<Self> {
        // A link stays a link: what it points to is replaced, or made.
        let path = behind_links(path)?;
        let there = fs::metadata(&path);
        match there {
            Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Ok(there) if there.permissions().readonly() => {
                Err(io::ErrorKind::PermissionDenied.into())
            }
            // A device or a pipe must not be replaced by a file.
            Ok(there) if !there.is_file() => {
                OpenOptions::new().write(true).open(&path).map(Place::Direct)
            }
            there => {
                let unfinished = Unfinished::create(path, there.ok().map(|it| it.permissions()))?;
                Ok(Place::Beside(unfinished))
            }
        }
    }
}

/// The file that a path names, there or not.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    // As many as systems follow.
    const MOST_LINKS: usize = 40;
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        if let Ok(path) = fs::canonicalize(&path) {
            return Ok(path);
        }
        match fs::read_link(&path) {
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(path),
        }
    }
    // A link that leads back to itself; the system says so.
    fs::canonicalize(path)
}
