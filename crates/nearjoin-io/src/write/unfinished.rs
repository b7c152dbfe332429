//! Temporary files: their names, who owns them, and how they go.
//!
//! A run that is killed leaves its file behind, and the next run that writes the same name
//! removes it. Whether the maker of a file is alive is told by a lock that the system holds for
//! it and gives up when it ends, however it ends. The number of a process would not tell: it is
//! used again, and means nothing in another container or on another machine of a shared folder.
//! Where the file system has no locks, nobody gets one and such files stay.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Numbers beyond its own under which a run looks for abandoned files: of runs at the same time,
/// as many may have been killed.
const TOGETHER: u64 = 8;

/// A temporary file, removed when it is dropped.
pub(super) struct Unfinished {
    pub(super) file: File,
    path: PathBuf,
    partial: PathBuf,
}

impl Unfinished {
    /// With the permissions of the file that it will replace.
    pub(super) fn create(path: PathBuf, permissions: Option<Permissions>) -> io::Result<Self> {
        let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no name of a file"));
        };
        let numbered = |number| path.with_file_name(partial_name(&name, number));
        let mut number = 0;
        let unfinished = loop {
            let partial = numbered(number);
            match create_listed(&partial) {
                Ok(file) => break Unfinished { file, path: path.clone(), partial },
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    if !lock::remove_abandoned(&partial) {
                        number += 1;
                    }
                }
                Err(e) => return Err(no_folder(&path).unwrap_or(e)),
            }
        };
        for further in number + 1..=number + TOGETHER {
            lock::remove_abandoned(&numbered(further));
        }
        if let Some(permissions) = permissions {
            unfinished.set_permissions(permissions)?;
        }
        Ok(unfinished)
    }

    fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        // Some file systems have one mode for all files, and refuse to set even that.
        match self.file.metadata()?.permissions() == permissions {
            true => Ok(()),
            false => self.file.set_permissions(permissions),
        }
    }

    pub(super) fn commit(self) -> io::Result<()> {
        // Before the new name: else a crash may leave the name with half a file.
        self.file.sync_all()?;
        let mut registry = registry();
        registry.refuse_if_removed()?;
        fs::rename(&self.partial, &self.path)?;
        registry.strike(&self.partial);
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut registry = registry();
        // Once it is removed, the name may be that of another process.
        if !registry.removed && registry.strike(&self.partial) {
            // Nobody could do anything about a failure.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

impl fmt::Debug for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unfinished").field(&self.path).finish()
    }
}

/// Makes a new file that is locked and will be removed.
fn create_listed(partial: &Path) -> io::Result<File> {
    let mut listed = Box::new(Listed { path: partial.to_path_buf(), next: None });
    // The lock is held until the file is listed: a removal comes before or after.
    let mut registry = registry();
    registry.refuse_if_removed()?;
    let file = OpenOptions::new().write(true).create_new(true).open(partial)?;
    if !lock::claim(&file, partial) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    listed.next = registry.files.take();
    registry.files = Some(listed);
    Ok(file)
}

/// A name beside `name`, of a length that file systems take.
fn partial_name(name: &str, number: u64) -> String {
    const LONGEST: usize = 255;
    let end = format!(".{number}.partial");
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
            let problem = format!("there is no folder {}", crate::quote::path(folder));
            Some(io::Error::new(io::ErrorKind::NotFound, problem))
        }
        _ => None,
    }
}

/// Whose a temporary file is. Whoever holds the lock of a file may remove it, and nobody else
/// does.
#[cfg(unix)]
mod lock {
    use std::fs::{self, File, TryLockError};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    /// Takes the lock of a new file. False if another process took the file for an abandoned
    /// one before it was locked, and removes it.
    pub(super) fn claim(file: &File, path: &Path) -> bool {
        match file.try_lock() {
            Ok(()) => is_at(file, path),
            Err(TryLockError::WouldBlock) => false,
            // Without locks nobody removes it.
            Err(TryLockError::Error(_)) => true,
        }
    }

    /// Removes a file whose maker is gone. False if there is none, or it is in use.
    pub(super) fn remove_abandoned(path: &Path) -> bool {
        // To open a pipe would wait for its other side.
        if !fs::symlink_metadata(path).is_ok_and(|there| there.is_file()) {
            return false;
        }
        // What the path leads to may have changed before the lock was there. While it is held,
        // nobody else removes or renames the file.
        let Ok(file) = File::open(path) else { return false };
        file.try_lock().is_ok() && is_at(&file, path) && fs::remove_file(path).is_ok()
    }

    fn is_at(file: &File, path: &Path) -> bool {
        let (Ok(file), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else {
            return false;
        };
        (file.dev(), file.ino()) == (there.dev(), there.ino())
    }
}

/// Elsewhere abandoned files stay.
#[cfg(not(unix))]
mod lock {
    use std::{fs::File, path::Path};

    pub(super) fn claim(_file: &File, _path: &Path) -> bool {
        true
    }

    pub(super) fn remove_abandoned(_path: &Path) -> bool {
        false
    }
}

/// The temporary files of this process. Whoever holds it allocates nothing, unless the system
/// needs a copy of a very long path: a program that is refused memory waits for it.
struct Registry {
    files: Option<Box<Listed>>,
    removed: bool,
}

struct Listed {
    path: PathBuf,
    next: Option<Box<Listed>>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { files: None, removed: false });

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

    /// Takes a file from the list; false if it is not there.
    fn strike(&mut self, path: &Path) -> bool {
        let mut link = &mut self.files;
        while link.as_ref().is_some_and(|file| file.path != path) {
            link = &mut link.as_mut().expect("it was looked at").next;
        }
        match link.take() {
            Some(file) => {
                *link = file.next;
                true
            }
            None => false,
        }
    }

    fn remove_all(&mut self, mut remove: impl FnMut(&Path)) {
        self.removed = true;
        let mut next = &self.files;
        while let Some(file) = next {
            remove(&file.path);
            next = &file.next;
        }
    }
}

/// Removes the temporary files of all targets of this process, and lets no target be made
/// or committed afterwards: for a program that is about to end on a signal.
///
/// A file whose commit is under way is either complete under its name or gone.
pub fn remove_unfinished() {
    // Nobody could do anything about a failure.
    registry().remove_all(|path| drop(fs::remove_file(path)));
}

/// As [`remove_unfinished`], for a program that has no memory left and is about to end: `remove`
/// is called with every temporary file, nothing is allocated, and nothing is waited for longer
/// than a moment.
pub fn remove_unfinished_by(remove: impl FnMut(&Path)) {
    const MOMENT: Duration = Duration::from_millis(200);
    let start = Instant::now();
    loop {
        let mut registry = match REGISTRY.try_lock() {
            Ok(registry) => registry,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread makes or renames a file; or it has been refused memory as well, and
            // will not go on.
            Err(TryLockError::WouldBlock) if start.elapsed() < MOMENT => {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            Err(TryLockError::WouldBlock) => return,
        };
        return registry.remove_all(remove);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_names_are_never_too_long() {
        assert_eq!(partial_name("a.csv", 7), ".a.csv.7.partial");
        for name in ["a".repeat(255), "ü".repeat(127), format!("a{}", "ü".repeat(127))] {
            let partial = partial_name(&name, u64::MAX);
            assert!(partial.len() <= 255 && partial.len() >= 253, "{partial}");
        }
    }
}
