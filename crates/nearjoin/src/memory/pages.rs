//! Pages that are mapped on their own: fresh ones of the system, or ones kept from before.

use super::kept::{Piece, Shelf, kept, most_kept};
use super::{ANY_PAGE, HUGE_PAGE};
use crate::error::{Error, Result};

/// Some bytes in pages of their own, aligned to huge pages where the system grants that.
///
/// All of them are initialised: the system hands out zeros, and what is written over them are
/// numbers. Where numbers had padding between them, the piece says so for ever.
pub(super) struct Pages {
    piece: Piece,
}

/// What is asked of the bytes of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    /// Pages that nobody has used.
    Fresh,
    /// Of those that are kept, any.
    Kept,
    /// Of those that are kept, any that can be read as numbers.
    KeptNumbers,
}

impl Pages {
    /// So many bytes, and whether they are fresh: zeros that nobody has touched. They are kept from
    /// before only where that is asked for.
    ///
    /// # Errors
    /// If the system refuses the memory, with nothing kept.
    pub(super) fn new(bytes: usize, ask: Ask, padded: bool) -> Result<(Self, bool)> {
        let bytes = bytes.next_multiple_of(ANY_PAGE);
        let numbers = ask == Ask::KeptNumbers;
        let found = match ask {
            Ask::Fresh => None,
            Ask::Kept | Ask::KeptNumbers => kept(|shelf| shelf.take(bytes, numbers)).flatten(),
        };
        if let Some(mut piece) = found {
            piece.padded |= padded;
            return Ok((Pages { piece }, false));
        }
        let address = aligned(bytes).or_else(|| match release() {
            0 => None,
            _ => aligned(bytes),
        });
        let address = address.ok_or(Error::OutOfMemory { bytes })?;
        Ok((Pages { piece: Piece { address, bytes, padded } }, true))
    }

    /// The first byte, valid for as many as were asked for and as long as this lives.
    pub(super) fn data(&self) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.piece.address)
    }

    /// Gives them back to the system, and keeps nothing.
    pub(super) fn discard(self) {
        unmap(core::mem::ManuallyDrop::new(self).piece);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let most = most_kept();
        let put = |shelf: &mut Shelf| shelf.put(self.piece, most);
        // Whoever finds the shelf taken keeps nothing.
        while let Some(gone) = kept(put).unwrap_or(Some(self.piece)) {
            unmap(gone);
            if gone == self.piece {
                break;
            }
        }
    }
}

/// Gives all kept pieces back to the system, and tells how many bytes they were.
pub(super) fn release() -> u64 {
    let mut bytes = 0;
    while let Some(piece) = kept(Shelf::pop).flatten() {
        bytes += piece.bytes as u64;
        unmap(piece);
    }
    bytes
}

/// Gives back a piece that nobody uses.
fn unmap(piece: Piece) {
    // SAFETY: pieces are what `aligned` has mapped. A piece has one owner, the pages that it is in or
    // the shelf, and comes here from that owner.
    unsafe { libc::munmap(core::ptr::with_exposed_provenance_mut(piece.address), piece.bytes) };
}

/// The address of fresh pages, marked for huge ones, unless the system refuses them.
fn aligned(bytes: usize) -> Option<usize> {
    let data = match map(bytes + HUGE_PAGE) {
        Some(base) => {
            let before = base.align_offset(HUGE_PAGE);
            // SAFETY: `before` is below `HUGE_PAGE`, which the mapping has to spare, and a
            // multiple of the page size. What lies before and behind the bytes is given back,
            // since it would count against a limit of the address space.
            unsafe {
                let data = base.byte_add(before);
                if before > 0 {
                    libc::munmap(base, before);
                }
                libc::munmap(data.byte_add(bytes), HUGE_PAGE - before);
                data
            }
        }
        // Where that is too much to ask for, huge pages are too.
        None => map(bytes)?,
    };
    #[cfg(target_os = "linux")]
    // SAFETY: the range lies in the mapping. The advice may be refused: then the
    // pages are small and everything else is the same.
    unsafe {
        libc::madvise(data, bytes, libc::MADV_HUGEPAGE)
    };
    Some(data.expose_provenance())
}

/// Fresh pages, unless the system refuses them.
fn map(bytes: usize) -> Option<*mut libc::c_void> {
    // SAFETY: an anonymous private mapping at an address of the system's choice.
    let base = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    (base != libc::MAP_FAILED).then_some(base)
}
