//! Lists of numbers that grow side by side in a few large arrays.

use crate::error::{Error, Result};
use crate::memory::{Buffer, Zeroable, copy_row, reserve};

/// Lists, each a chain of pieces of the arrays.
#[derive(Debug)]
pub(super) struct Lists<V> {
    lists: Vec<List>,
    arrays: Vec<Buffer<V>>,
    /// Elements of a piece, and pieces of an array.
    piece: usize,
    per_array: usize,
    /// Pieces that are in use, of all arrays.
    used: usize,
}

#[derive(Clone, Debug, Default)]
struct List {
    pieces: Vec<u32>,
    /// Where the next element goes: an array, a place there, and the end of the piece.
    array: usize,
    at: usize,
    end: usize,
}

/// How large pieces and arrays are, in elements, of so many elements in all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grain {
    piece: usize,
    per_array: usize,
    elements: f64,
    width: usize,
}

impl Grain {
    /// For so many lists of so many elements in all, of `width` bytes: pieces that waste little of
    /// what the lists hold, in arrays of a huge page or as little as that.
    pub(super) fn new(lists: usize, elements: f64, width: usize) -> Self {
        const LEAST_PIECE: usize = 16;
        const MOST_PIECE: usize = 4096;
        const LEAST_ARRAY: usize = 4 << 10;
        const MOST_ARRAY: usize = 2 << 20;
        let each = (elements / lists.max(1) as f64) as usize;
        let piece = (each / 8).next_power_of_two().clamp(LEAST_PIECE, MOST_PIECE);
        let bytes = (elements as usize).saturating_mul(width) / 4;
        let array = bytes.checked_next_power_of_two().unwrap_or(MOST_ARRAY);
        let array = array.clamp(LEAST_ARRAY, MOST_ARRAY) / width;
        Grain { piece, per_array: (array / piece).max(1), elements, width }
    }

    /// Bytes of so many lists: of the last piece of each, and of the last array, half is used.
    pub(super) fn bytes(&self, lists: usize) -> f64 {
        let waste = (lists * self.piece + self.per_array * self.piece) as f64 / 2.0;
        (self.elements + waste) * self.width as f64
    }
}

impl<V: Zeroable> Lists<V> {
    /// So many empty lists.
    pub(super) fn new(lists: usize, Grain { piece, per_array, .. }: Grain) -> Self {
        let lists = vec![List::default(); lists];
        Lists { lists, arrays: Vec::new(), piece, per_array, used: 0 }
    }

    /// No lists.
    pub(super) fn none() -> Self {
        Lists { lists: Vec::new(), arrays: Vec::new(), piece: 1, per_array: 1, used: 0 }
    }

    /// Elements of a list, none where there are no lists.
    pub(super) fn len(&self, list: usize) -> usize {
        let list = self.lists.get(list);
        list.map_or(0, |list| list.pieces.len() * self.piece - (list.end - list.at))
    }

    /// Bytes of all arrays.
    pub(super) fn bytes(&self) -> u64 {
        self.arrays.iter().map(|array| size_of_val(&array[..]) as u64).sum()
    }

    /// Appends to a list.
    #[inline]
    pub(super) fn append(&mut self, list: usize, mut values: &[V]) -> Result<()> {
        loop {
            let to = &mut self.lists[list];
            let (these, rest) = values.split_at(values.len().min(to.end - to.at));
            if !these.is_empty() {
                copy_row(&mut self.arrays[to.array][to.at..][..these.len()], these);
                to.at += these.len();
            }
            if rest.is_empty() {
                return Ok(());
            }
            values = rest;
            self.lengthen(list)?;
        }
    }

    /// Appends two elements to a list that is never appended an odd number of them.
    #[inline]
    pub(super) fn append_two(&mut self, list: usize, values: [V; 2]) -> Result<()> {
        if self.lists[list].at == self.lists[list].end {
            self.lengthen(list)?;
        }
        let to = &mut self.lists[list];
        self.arrays[to.array][to.at..][..2].copy_from_slice(&values);
        to.at += 2;
        Ok(())
    }

    /// Gives a list another piece.
    #[cold]
    fn lengthen(&mut self, list: usize) -> Result<()> {
        let number =
            u32::try_from(self.used).map_err(|_| Error::OutOfMemory { bytes: usize::MAX })?;
        let (array, first) = (self.used / self.per_array, self.used % self.per_array * self.piece);
        if array == self.arrays.len() {
            reserve(&mut self.arrays, 1)?;
            self.arrays.push(Buffer::to_fill(self.piece * self.per_array)?.0);
        }
        let list = &mut self.lists[list];
        reserve(&mut list.pieces, 1)?;
        list.pieces.push(number);
        self.used += 1;
        (list.array, list.at, list.end) = (array, first, first + self.piece);
        Ok(())
    }

    /// The elements of a list two by two: it has to have been appended to so.
    pub(super) fn chunks(&self, list: usize) -> impl Iterator<Item = &[V; 2]> {
        self.pieces(list).flat_map(|piece| piece.as_chunks().0)
    }

    /// The elements of a list, piece by piece.
    pub(super) fn pieces(&self, list: usize) -> impl Iterator<Item = &[V]> {
        let mut left = self.len(list);
        let pieces = self.lists.get(list).map_or(&[][..], |list| &list.pieces);
        pieces.iter().map(move |&piece| {
            let (array, at) = (piece as usize / self.per_array, piece as usize % self.per_array);
            let these = left.min(self.piece);
            left -= these;
            &self.arrays[array][at * self.piece..][..these]
        })
    }

    /// The arrays, which hold what nobody needs any more.
    pub(super) fn into_arrays(self) -> Vec<Buffer<V>> {
        self.arrays
    }
}

/// Reads a list from its beginning.
pub(super) struct Reader<'a, V, P> {
    pieces: P,
    rest: &'a [V],
}

impl<'a, V: Copy, P: Iterator<Item = &'a [V]>> Reader<'a, V, P> {
    pub(super) fn new(pieces: P) -> Self {
        Reader { pieces, rest: &[] }
    }

    /// Copies the next elements, as many as there is room for. The list has them.
    #[inline]
    pub(super) fn copy_to(&mut self, mut to: &mut [V]) {
        while to.len() > self.rest.len() {
            let (these, more) = to.split_at_mut(self.rest.len());
            these.copy_from_slice(self.rest);
            self.rest = self.pieces.next().expect("a list is as long as its heads say");
            to = more;
        }
        let (these, rest) = self.rest.split_at(to.len());
        copy_row(to, these);
        self.rest = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_hold_what_was_appended() {
        let grain = Grain { piece: 4, per_array: 3, elements: 0.0, width: 4 };
        let mut lists = Lists::<u32>::new(3, grain);
        let mut expected = vec![Vec::new(); 3];
        for step in 0..50u32 {
            let (list, values) = (step as usize * 7 % 3, (0..step % 11).map(|i| step * 100 + i));
            let values: Vec<u32> = values.collect();
            lists.append(list, &values).unwrap();
            expected[list].extend(values);
        }
        for (list, expected) in expected.iter().enumerate() {
            assert_eq!(lists.len(list), expected.len());
            let all: Vec<u32> = lists.pieces(list).flatten().copied().collect();
            assert_eq!(all, *expected);
            let mut reader = Reader::new(lists.pieces(list));
            let (mut copy, mut at) = (vec![0; expected.len()], 0);
            for size in (0..).take_while(|size| size * (size + 1) / 2 + size < expected.len()) {
                reader.copy_to(&mut copy[at..at + size]);
                at += size;
            }
            reader.copy_to(&mut copy[at..]);
            assert_eq!(copy, *expected);
        }
    }

    #[test]
    fn pieces_are_small_beside_what_lists_hold() {
        for (lists, elements) in [(1, 0.0), (1, 10.0), (400, 1e5), (400, 1e8), (2000, 1e12)] {
            let grain = Grain::new(lists, elements, 4);
            let array = grain.piece * grain.per_array * 4;
            assert!((4 << 10..=2 << 20).contains(&array), "{grain:?}");
            assert!(grain.bytes(lists) <= 6.0 * elements + 6000.0, "{grain:?}");
        }
    }
}
