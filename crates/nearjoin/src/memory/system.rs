//! How much memory this process may have: what the machine has to give, less what control
//! groups and resource limits forbid.
//!
//! Everything is text of files under `/proc` and of the control groups, so that all of it is
//! tested on such texts.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// Memory that this process may have, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SystemMemory {
    /// What the machine has, or the container or the batch job if they are allowed less.
    pub total: u64,
    /// What this process could still be given now.
    pub available: u64,
    /// What it could still map, where its address space is limited (`ulimit -v`). The stacks of
    /// threads are in it before they are used.
    pub address_space: Option<u64>,
}

impl SystemMemory {
    /// What the system says now; unknown other than on Linux.
    ///
    /// ```
    /// if let Some(memory) = nearjoin::SystemMemory::now() {
    ///     assert!(memory.available <= memory.total);
    /// }
    /// ```
    pub fn now() -> Option<Self> {
        // A join on a GPU takes two milliseconds, and to find the groups would take a tenth of it:
        // a process stays in those that it was started in.
        static GROUPS: OnceLock<HashSet<Group>> = OnceLock::new();
        let read: &Read = &|path| std::fs::read_to_string(path).ok();
        let now = || Self::by(read, GROUPS.get_or_init(|| groups(read)));
        let memory = now()?;
        #[cfg(unix)]
        let memory = match super::kept::kept_bytes() {
            // Arrays of other sizes have no use for what is kept, and a control group refuses nothing:
            // it kills. A join leaves a fifth of what there is.
            kept if kept > memory.available / 4 => {
                super::release_memory();
                now()?
            }
            kept => memory.beside_kept(kept),
        };
        Some(memory)
    }

    /// The same, where so many of the bytes in use are kept and can be had at any time.
    #[cfg(unix)]
    fn beside_kept(self, bytes: u64) -> Self {
        let available = self.available.saturating_add(bytes).min(self.total);
        let address_space = self.address_space.map(|left| left.saturating_add(bytes));
        SystemMemory { available, address_space, ..self }
    }

    /// The same, where `read` has the files.
    fn by(read: &Read, groups: &HashSet<Group>) -> Option<Self> {
        let text = |path: &str| read(Path::new(path)).unwrap_or_default();
        let (info, limits) = (text("/proc/meminfo"), text("/proc/self/limits"));
        let mut total = kilobytes(&info, "MemTotal:")?;
        let mut available = kilobytes(&info, "MemAvailable:").unwrap_or(total);
        for group in groups {
            let Some((limit, left)) = group.memory(read) else { continue };
            total = total.min(limit);
            available = available.min(left);
        }
        let left_of = |limit: &str, used: &str| {
            let limit = resource_limit(&limits, limit)?;
            let used = kilobytes(&text("/proc/self/status"), used)?;
            Some((limit, limit.saturating_sub(used)))
        };
        let address_space = left_of("Max address space", "VmSize:");
        for (limit, left) in
            [address_space, left_of("Max data size", "VmData:")].into_iter().flatten()
        {
            total = total.min(limit);
            available = available.min(left);
        }
        let address_space = address_space.map(|(_, left)| left);
        Some(SystemMemory { total, available: available.min(total), address_space })
    }

    /// What is available to work in, where so many threads are still to be started.
    pub fn beside_threads(&self, threads: usize) -> u64 {
        let left = self.address_space.unwrap_or(u64::MAX);
        self.available.min(left.saturating_sub(threads as u64 * STACK))
    }

    /// How many threads of those that are wanted a process with this memory should have: their
    /// stacks may take a quarter of its address space. There are three for each: one that sorts,
    /// one that joins and one that writes.
    pub(crate) fn threads(&self, wanted: usize) -> usize {
        let room = self.address_space.unwrap_or(u64::MAX) / 4 / (3 * STACK);
        wanted.min(usize::try_from(room).unwrap_or(usize::MAX)).max(1)
    }
}

/// The text of a file, if it is there.
type Read<'a> = dyn Fn(&Path) -> Option<String> + 'a;

/// The address space of a thread: its stack, as the standard library sets it, with its guard.
const STACK: u64 = (2 << 20) + (16 << 10);

/// The number of a line that begins with `key` and ends in `kB`, in bytes.
fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The soft limit of a resource in `/proc/self/limits`, if it has one.
fn resource_limit(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A control group that this process is in: its own, or one around it.
#[derive(Debug, PartialEq, Eq, Hash, Clone)]
struct Group {
    folder: PathBuf,
    version: Version,
}

#[derive(Debug, PartialEq, Eq, Hash, Clone, Copy)]
enum Version {
    One,
    Two,
}

impl Group {
    /// Its limit, and what of it is left. Pages of files that are not in use are given back before
    /// memory is refused, so they are not counted as used.
    fn memory(&self, read: &Read) -> Option<(u64, u64)> {
        // Version 1 has a large number where there is no limit.
        const NONE: u64 = 1 << 60;
        let text = |name: &str| read(&self.folder.join(name));
        let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
        let (limit, used, idle) = match self.version {
            // A group may be slowed down above `high`, which for a join is as bad as a refusal.
            Version::Two => {
                let limits = [number("memory.max"), number("memory.high")];
                let limit = limits.into_iter().flatten().min()?;
                (limit, number("memory.current")?, "inactive_file ")
            }
            Version::One => (
                number("memory.limit_in_bytes").filter(|limit| *limit < NONE)?,
                number("memory.usage_in_bytes")?,
                "total_inactive_file ",
            ),
        };
        let stat = text("memory.stat").unwrap_or_default();
        let idle = stat.lines().find_map(|line| line.strip_prefix(idle)?.trim().parse().ok());
        let used = used.saturating_sub(idle.unwrap_or(0));
        Some((limit, limit.saturating_sub(used)))
    }
}

/// The control groups that bound the memory of this process, from `/proc/self/cgroup` and
/// `/proc/self/mountinfo`: of each hierarchy its own group and all above it that can be seen.
fn groups(read: &Read) -> HashSet<Group> {
    let text = |path: &str| read(Path::new(path)).unwrap_or_default();
    let (memberships, mounts) = (text("/proc/self/cgroup"), text("/proc/self/mountinfo"));
    let mut groups = HashSet::new();
    for membership in memberships.lines() {
        // `4:memory:/path`, or `0::/path` of version 2.
        let mut fields = membership.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let version = match controllers {
            "" if number == "0" => Version::Two,
            _ if controllers.split(',').any(|name| name == "memory") => Version::One,
            _ => continue,
        };
        for (root, mount) in mounts.lines().filter_map(|line| mounted(line, version)) {
            // In a container the mount may show only a part of the hierarchy, and the path may be
            // one that it does not show: then the top of what it shows is the container's group.
            let below = Path::new(path).strip_prefix(&root).unwrap_or(Path::new(""));
            let is_plain = below.components().all(|part| matches!(part, Component::Normal(_)));
            let own = if is_plain { mount.join(below) } else { mount.clone() };
            let around = own.ancestors().take_while(|folder| folder.starts_with(&mount));
            groups.extend(around.map(|folder| Group { folder: folder.into(), version }));
        }
    }
    groups
}

/// Which part of a hierarchy a line of `/proc/self/mountinfo` shows, and where, if it is one that
/// bounds memory.
fn mounted(line: &str, version: Version) -> Option<(PathBuf, PathBuf)> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let is_one = match version {
        Version::Two => kind.next()? == "cgroup2",
        Version::One => kind.next()? == "cgroup" && kind.nth(1)?.split(',').any(|o| o == "memory"),
    };
    let mut mount = mount.split(' ').skip(3);
    let (root, folder) = (mount.next()?, mount.next()?);
    is_one.then(|| (unescaped(root), unescaped(folder)))
}

/// A path in which a space stands as `\040`.
fn unescaped(path: &str) -> PathBuf {
    path.replace("\\040", " ").into()
}

#[cfg(test)]
mod tests;
