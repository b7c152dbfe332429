//! Pages that are kept for the next join: to touch fresh ones takes longer than a small join.
//!
//! One shelf in a process. Nobody waits for it: who finds it taken asks the system, as if nothing
//! were kept. So a process that was forked while another thread held it goes on, without a shelf.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, TryLockError};

use super::SystemMemory;

/// The most bytes that are kept.
const MOST: u64 = 1 << 30;
/// Of what the process may have, the share that may be kept.
const SHARE: u64 = 16;
/// Pieces that were taken since, after which one that nobody took makes room for others: several
/// joins.
const OLD: u64 = 128;
/// Bytes that a piece may have more than are asked for, beside an eighth of them.
const WASTE: usize = 1 << 20;

/// Mapped bytes that have one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) address: usize,
    pub(super) bytes: usize,
    /// Whether some bytes may be padding, which must not be read as numbers.
    pub(super) padded: bool,
}

/// Pieces that nobody uses.
#[derive(Default)]
pub(super) struct Shelf {
    /// With the number of pieces that had been taken when they came.
    pieces: Vec<(Piece, u64)>,
    bytes: u64,
    taken: u64,
}

impl Shelf {
    const fn new() -> Self {
        Shelf { pieces: Vec::new(), bytes: 0, taken: 0 }
    }

    /// The smallest piece that has so many bytes and not many more; without padding, if it is to be
    /// read as `numbers`.
    pub(super) fn take(&mut self, bytes: usize, numbers: bool) -> Option<Piece> {
        self.taken += 1;
        let fits = |piece: &Piece| {
            (bytes..=bytes + bytes / 8 + WASTE).contains(&piece.bytes) && !(numbers && piece.padded)
        };
        let fitting = self.pieces.iter().enumerate().filter(|(_, (piece, _))| fits(piece));
        let (at, _) = fitting.min_by_key(|(_, (piece, _))| piece.bytes)?;
        Some(self.remove(at))
    }

    /// Keeps a piece, or tells which one must go: an old one, before this is asked again, or the
    /// piece itself, for which there is no room.
    pub(super) fn put(&mut self, piece: Piece, most: u64) -> Option<Piece> {
        if piece.bytes as u64 > most || self.pieces.try_reserve(1).is_err() {
            return Some(piece);
        }
        if self.bytes + piece.bytes as u64 > most {
            let is_old = |&(_, since): &(Piece, u64)| self.taken - since > OLD;
            let old = self.pieces.iter().position(is_old);
            return Some(old.map_or(piece, |at| self.remove(at)));
        }
        self.bytes += piece.bytes as u64;
        self.pieces.push((piece, self.taken));
        None
    }

    /// Any piece.
    pub(super) fn pop(&mut self) -> Option<Piece> {
        self.pieces.len().checked_sub(1).map(|last| self.remove(last))
    }

    fn remove(&mut self, at: usize) -> Piece {
        let (piece, _) = self.pieces.remove(at);
        self.bytes -= piece.bytes as u64;
        piece
    }
}

static SHELF: Mutex<Shelf> = Mutex::new(Shelf::new());

/// Does something with the shelf, unless somebody else is at it.
pub(super) fn kept<R>(with: impl FnOnce(&mut Shelf) -> R) -> Option<R> {
    match SHELF.try_lock() {
        Ok(mut shelf) => Some(with(&mut shelf)),
        Err(TryLockError::Poisoned(shelf)) => Some(with(&mut shelf.into_inner())),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Bytes that are kept now.
pub(super) fn kept_bytes() -> u64 {
    kept(|shelf| shelf.bytes).unwrap_or(0)
}

/// Bytes that may be kept in this process.
pub(super) fn most_kept() -> u64 {
    /// 0 until it is known.
    static BYTES: AtomicU64 = AtomicU64::new(0);
    if BYTES.load(Relaxed) == 0 {
        let share = SystemMemory::now().map_or(MOST, |memory| memory.total / SHARE);
        BYTES.store(share.clamp(1, MOST), Relaxed);
    }
    BYTES.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(megabytes: usize) -> Piece {
        Piece { address: megabytes, bytes: megabytes << 20, padded: false }
    }

    #[test]
    fn the_smallest_piece_that_fits_is_taken() {
        let mut shelf = Shelf::default();
        for megabytes in [40, 10, 11, 30] {
            assert_eq!(shelf.put(piece(megabytes), MOST), None);
        }
        // At most an eighth and a megabyte more than was asked for.
        assert_eq!(shelf.take(20 << 20, true), None);
        assert_eq!(shelf.take(41 << 20, true), None);
        assert_eq!(shelf.take((10 << 20) - 5, true), Some(piece(10)));
        assert_eq!(shelf.take((10 << 20) - 5, true), Some(piece(11)));
        assert_eq!(shelf.bytes, 70 << 20);
        assert_eq!(
            [shelf.pop(), shelf.pop(), shelf.pop()],
            [Some(piece(30)), Some(piece(40)), None]
        );
        assert_eq!(shelf.bytes, 0);
    }

    #[test]
    fn padding_is_not_read_as_numbers() {
        let mut shelf = Shelf::default();
        let padded = Piece { padded: true, ..piece(8) };
        shelf.put(padded, MOST);
        assert_eq!(shelf.take(8 << 20, true), None);
        assert_eq!(shelf.take(8 << 20, false), Some(padded));
    }

    #[test]
    fn what_nobody_takes_makes_room() {
        let mut shelf = Shelf::default();
        let most = 100 << 20;
        assert_eq!(shelf.put(piece(60), most), None);
        // There is no room, and what is there may be wanted by the next join.
        assert_eq!(shelf.put(piece(50), most), Some(piece(50)));
        for _ in 0..=OLD {
            shelf.take(1 << 20, true);
        }
        assert_eq!(shelf.put(piece(101), most), Some(piece(101)));
        assert_eq!(shelf.put(piece(50), most), Some(piece(60)));
        assert_eq!(shelf.put(piece(50), most), None);
        assert_eq!(shelf.bytes, 50 << 20);
    }
}
