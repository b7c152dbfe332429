//! Matches that a first pass notes for a second one: in a quarter to a half of the bytes that their
//! rows will have.
//!
//! Notes are a sequence of 16-bit numbers. Of each tile, the lanes that tested it; then of each query
//! its matches, as the shorter of two:
//!
//! ```text
//! how many, and the number of each in its tile          less than one in 16 candidates matches
//! BITS, and a bit for each candidate of the tile        elsewhere
//! ```

use super::kernel::{MarkKernels, PAD};

/// Stands before bits. Larger than any number of candidates of a tile.
const BITS: u16 = u16::MAX;

/// Pieces of 16 bits to a word of marks.
const TO_A_WORD: usize = 4;

/// The notes of a unit, written from its first block to its last and read in the same order.
#[derive(Debug, Default)]
pub(super) struct Notes {
    noted: Vec<u16>,
    read: usize,
    words: Vec<u64>,
}

impl Notes {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.noted.clear();
        self.read = 0;
    }

    pub(super) fn as_slice(&self) -> &[u16] {
        &self.noted
    }

    /// Takes these notes as its own, to be read from the beginning.
    pub(super) fn copy_from(&mut self, notes: &[u16]) {
        self.clear();
        self.noted.extend_from_slice(notes);
    }

    pub(super) fn put_lanes(&mut self, lanes: u16) {
        self.noted.push(lanes);
    }

    pub(super) fn take_lanes(&mut self) -> u16 {
        self.next()
    }

    /// Notes the candidates of a tile that are marked, and returns how many there are.
    pub(super) fn put(&mut self, kernels: &MarkKernels, words: &[u64], candidates: usize) -> usize {
        let marked = kernels.count(words);
        let pieces = candidates.div_ceil(PAD);
        if marked < pieces {
            self.noted.push(marked as u16);
            kernels.list(words, &mut self.noted);
        } else {
            self.noted.push(BITS);
            for (word, at) in words.iter().zip((0..pieces).step_by(TO_A_WORD)) {
                let word = u64::from_le(*word);
                let all = [word, word >> 16, word >> 32, word >> 48].map(|piece| piece as u16);
                self.noted.extend_from_slice(&all[..TO_A_WORD.min(pieces - at)]);
            }
        }
        marked
    }

    /// Appends to `row` the labels of the candidates of a tile that were noted next, except `own`.
    pub(super) fn take(
        &mut self,
        kernels: &MarkKernels,
        candidates: usize,
        labels: &[u32],
        own: u32,
        row: &mut Vec<u32>,
    ) {
        match self.next() {
            BITS => {
                let pieces = &self.noted[self.read..][..candidates.div_ceil(PAD)];
                self.words.clear();
                self.words.extend(pieces.chunks(TO_A_WORD).map(|pieces| {
                    let last_first = pieces.iter().rev();
                    last_first.fold(0, |word, &piece| word << 16 | u64::from(piece)).to_le()
                }));
                kernels.append(&self.words, labels, own, row);
                self.read += pieces.len();
            }
            marked => {
                let numbers = &self.noted[self.read..][..marked as usize];
                kernels.look_up(numbers, labels, own, row);
                self.read += numbers.len();
            }
        }
    }

    fn next(&mut self) -> u16 {
        self.read += 1;
        self.noted[self.read - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::cpu::kernel::{Kernels, SimdLevel};
    use crate::metric::Metric;

    /// Few and many marks, on every instruction set, come back in order and without the query.
    #[test]
    fn what_is_noted_is_recalled() {
        for level in SimdLevel::ALL.iter().filter(|level| level.is_available()) {
            let kernels = Kernels::<f32>::new(*level, Metric::L2, 2).marks;
            let mut notes = Notes::default();
            let tiles = [(1usize, 1), (16, 1), (100, 40), (64, 1), (1000, 3), (130, 2), (2048, 7)];
            let labels: Vec<u32> = (0..2048).map(|candidate| 3 * candidate + 1).collect();
            let marked = |(candidates, step): (usize, usize)| (0..candidates).step_by(step);
            for tile in tiles {
                let mut words = vec![0u64; tile.0.div_ceil(64)];
                marked(tile).for_each(|at| words[at / 64] |= (1u64 << (at % 64)).to_le());
                notes.put_lanes(1);
                assert_eq!(notes.put(&kernels, &words, tile.0), marked(tile).count());
            }
            let noted = notes.as_slice().to_vec();
            notes.copy_from(&noted);
            for tile in tiles {
                assert_eq!(notes.take_lanes(), 1);
                let mut row = vec![7];
                notes.take(&kernels, tile.0, &labels, labels[0], &mut row);
                let expected = marked(tile).map(|at| labels[at]).skip(1);
                assert!(row.into_iter().eq([7].into_iter().chain(expected)), "{level} {tile:?}");
            }
            assert_eq!(notes.read, notes.noted.len());
        }
    }
}
