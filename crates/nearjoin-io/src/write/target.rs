//! A file in the making.
//!
//! What is written goes to a temporary file beside the final one, which takes its place
//! only when it is complete: an error, a panic or a signal leaves the old file, or none.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard};

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
    /// If the system refuses, or after [`remove_unfinished`].
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

/// A temporary file, removed when it is dropped.
struct Unfinished {
    file: File,
    path: PathBuf,
    number: u64,
}

impl Unfinished {
    /// With the permissions of the file that it will replace.
    fn create(path: PathBuf, permissions: Option<Permissions>) -> io::Result<Self> {
        let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no name of a file"));
        };
        // The lock is held until the file is listed: a removal comes before or after.
        let mut registry = registry();
        registry.refuse_if_removed()?;
        loop {
            let number = registry.next;
            registry.next += 1;
            let partial = path.with_file_name(partial_name(&name, number));
            match OpenOptions::new().write(true).create_new(true).open(&partial) {
                Ok(file) => {
                    registry.files.insert(number, partial);
                    drop(registry);
                    let unfinished = Unfinished { file, path, number };
                    if let Some(permissions) = permissions {
                        unfinished.set_permissions(permissions)?;
                    }
                    return Ok(unfinished);
                }
                // Left by a process of the same number that was killed.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(no_folder(&path).unwrap_or(e)),
            }
        }
    }

    fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        // Some file systems have one mode for all files, and refuse to set even that.
        match self.file.metadata()?.permissions() == permissions {
            true => Ok(()),
            false => self.file.set_permissions(permissions),
        }
    }

    fn commit(self) -> io::Result<()> {
        // Before the new name: else a crash may leave the name with half a file.
        self.file.sync_all()?;
        let mut registry = registry();
        registry.refuse_if_removed()?;
        if let Some(partial) = registry.files.get(&self.number) {
            fs::rename(partial, &self.path)?;
            registry.files.remove(&self.number);
        }
        Ok(())
    }
}

/// A name beside `name`, of a length that file systems take.
fn partial_name(name: &str, number: u64) -> String {
    const LONGEST: usize = 255;
    let end = format!(".{}-{number}.partial", process::id());
    let mut length = name.len().min(LONGEST - 1 - end.len());
    while !name.is_char_boundary(length) {
        length -= 1;
    }
    format!(".{}{end}", &name[..length])
}

/// The error for a file whose folder is missing.
fn no_folder(path: &Path) -> Option<io::Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
    match fs::metadata(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let problem = format!("there is no folder {}", quote::path(folder));
            Some(io::Error::new(io::ErrorKind::NotFound, problem))
        }
        _ => None,
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(partial) = registry().files.remove(&self.number) {
            // Nobody could do anything about a failure.
            let _ = fs::remove_file(partial);
        }
    }
}

impl fmt::Debug for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unfinished").field(&self.path).finish()
    }
}

/// The temporary files of this process.
struct Registry {
    files: BTreeMap<u64, PathBuf>,
    next: u64,
    removed: bool,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { files: BTreeMap::new(), next: 0, removed: false });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Registry {
    fn refuse_if_removed(&self) -> io::Result<()> {
        match self.removed {
            true => Err(io::Error::new(io::ErrorKind::Interrupted, "the program was interrupted")),
            false => Ok(()),
        }
    }
}

/// Removes the temporary files of all targets of this process, and lets no target be made
/// or committed afterwards: for a program that is about to end on a signal.
///
/// A file whose commit is under way is either complete under its name or gone.
pub fn remove_unfinished() {
    let mut registry = registry();
    registry.removed = true;
    for partial in core::mem::take(&mut registry.files).into_values() {
        let _ = fs::remove_file(partial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_names_are_never_too_long() {
        assert_eq!(partial_name("a.csv", 7), format!(".a.csv.{}-7.partial", process::id()));
        for name in ["a".repeat(255), "ü".repeat(127), format!("a{}", "ü".repeat(127))] {
            let partial = partial_name(&name, u64::MAX);
            assert!(partial.len() <= 255 && partial.len() >= 253, "{partial}");
        }
    }
}
