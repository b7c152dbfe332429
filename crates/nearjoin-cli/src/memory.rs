//! The memory of a run: for the join, and for the writer beside it.

use nearjoin::SystemMemory;

use crate::number;
use crate::options::{Bytes, Output};

/// What a writer of pairs may use, if the rest leaves it as much.
const WRITER: u64 = 256 << 20;
/// Of what a run may have, the share of a writer at the most.
const WRITER_SHARE: u64 = 4;
/// Threads beside those that join and those that encode: one that appends to the file, one between
/// the join and the writer, one that shows progress.
const OTHER_THREADS: usize = 3;

/// How the memory that a run may use beside its points is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Bytes for the join; not known where the system does not tell.
    pub(crate) join: Option<u64>,
    /// Bytes for the writer.
    pub(crate) writer: u64,
    /// What was divided, and whether the user has set it.
    all: Option<u64>,
    asked: bool,
}

impl Memory {
    /// Divides the limit, or else four fifths of what this process may still have. Points are in
    /// memory already; threads will need room.
    pub(crate) fn new(limit: Option<Bytes>, output: &Output, threads: usize) -> Self {
        let all = match limit {
            Some(Bytes(limit)) => Some(limit),
            None => SystemMemory::now()
                .map(|memory| memory.beside_threads(2 * threads + OTHER_THREADS) / 5 * 4),
        };
        Self::divided(all, limit.is_some(), *output != Output::Count)
    }

    fn divided(all: Option<u64>, asked: bool, writes: bool) -> Self {
        let writer = match writes {
            true => all.map_or(WRITER, |all| WRITER.min(all / WRITER_SHARE)),
            false => 0,
        };
        Memory { join: all.map(|all| all - writer), writer, all, asked }
    }

    /// The limit of a run whose join needs so much.
    pub(crate) fn limit_for(&self, join: u64) -> u64 {
        match self.writer {
            0 => join,
            _ => join + WRITER.min(join.div_ceil(WRITER_SHARE - 1)),
        }
    }

    /// What the limit of the join was cut from, behind a sentence that names it.
    pub(crate) fn explained(&self) -> String {
        let kept = match self.writer {
            0 => String::new(),
            writer => format!(", {} are kept for writing", number::bytes(writer)),
        };
        match (self.all, self.asked) {
            (Some(_), true) if kept.is_empty() => String::new(),
            (Some(all), true) => format!(" (of --memory-limit {}{kept})", number::bytes(all)),
            (Some(all), false) => {
                format!(" (of the {} that this process may use{kept})", number::bytes(all))
            }
            (None, _) => String::new(),
        }
    }
}

/// Keeps the allocator from reserving the address space that the join needs, where that is limited:
/// glibc reserves 64 MiB for every thread that allocates.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub(crate) fn limit_arenas() {
    const ARENA: u64 = 64 << 20;
    let Some(left) = SystemMemory::now().and_then(|memory| memory.address_space) else { return };
    let most = (left / 8 / ARENA).clamp(1, 1 << 10) as libc::c_int;
    // SAFETY: it sets a number that the allocator reads when a thread asks for its first arena. A
    // refusal leaves all as it was.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, most) };
}

/// Elsewhere threads share what is reserved.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn limit_arenas() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_has_its_share_and_the_join_the_rest() {
        let small = Memory::divided(Some(400), true, true);
        assert_eq!((small.join, small.writer), (Some(300), 100));
        assert_eq!(small.limit_for(300), 400);
        let large = Memory::divided(Some(4 << 30), true, true);
        assert_eq!((large.join, large.writer), (Some((4 << 30) - WRITER), WRITER));
        assert_eq!(large.limit_for((4 << 30) - WRITER), 4 << 30);
        let count = Memory::divided(Some(400), false, false);
        assert_eq!((count.join, count.writer, count.limit_for(400)), (Some(400), 0, 400));
        let unknown = Memory::divided(None, false, true);
        assert_eq!((unknown.join, unknown.writer), (None, WRITER));
        assert_eq!(unknown.explained(), "");
    }
}
