//! Matches as bits: one kernel finds them, others make rows of them.
//!
//! A kernel that appends names of matches while it computes distances does both badly: a match in a
//! few registers costs as much as one in each. So the distances leave a bit for each candidate, as
//! quickly as they would be counted, and who is marked is read from whole words afterwards.

use super::generic::{Group, decide, in_groups};
use super::vector::{Norm, Vector};
use super::{Job, Open, PAD};

/// Candidates to a word.
const BITS: usize = u64::BITS as usize;

/// More marks than these in a word, on average, and a row is packed register by register.
const DENSE: usize = 3;

/// Which candidates of a tile match which queries of a block.
#[derive(Debug)]
pub(crate) struct Marks {
    /// A row of words for each query, a bit for each candidate from the lowest on.
    words: Vec<u64>,
    /// Words of a row.
    stride: usize,
}

impl Marks {
    /// Room for a block of queries and a tile of candidates.
    pub(crate) fn new(queries: usize, candidates: usize) -> Self {
        let stride = candidates.div_ceil(BITS);
        Marks { words: vec![0; queries * stride], stride }
    }

    /// The marks of a query among the first candidates.
    pub(crate) fn of(&self, query: usize, candidates: usize) -> &[u64] {
        &self.words[query * self.stride..][..candidates.div_ceil(BITS)]
    }

    pub(crate) fn set(&mut self, query: usize, candidate: usize) {
        self.words[query * self.stride + candidate / BITS] |= (1u64 << (candidate % BITS)).to_le();
    }

    pub(super) fn has_room_for(&self, queries: usize, candidates: usize) -> bool {
        candidates.div_ceil(BITS) <= self.stride && queries * self.stride <= self.words.len()
    }
}

/// Marks the candidates that surely match each query, and no others.
///
/// ```text
/// for each query:  for each candidate:  marks[query][candidate] = (distance ≤ ε)
/// ```
#[inline(always)]
pub(super) unsafe fn mark<V: Vector, N: Norm, const D: usize, const EXACT: bool>(
    job: &Job<'_, V::Lane>,
    marks: &mut Marks,
    open: &mut Vec<Open>,
) {
    // SAFETY: the caller promises the instruction set, a checked job, and room for its marks.
    unsafe {
        // In pieces of 16 bits, of which the first is the lowest of a word.
        let to = (marks.words.as_mut_ptr().cast::<u16>(), marks.stride * (BITS / PAD));
        in_groups(
            job,
            V::LANES,
            open,
            |query, open| mark_some::<V, N, D, EXACT, 4>(job, query, to, open),
            |query, open| mark_some::<V, N, D, EXACT, 1>(job, query, to, open),
        );
    }
}

#[inline(always)]
unsafe fn mark_some<V: Vector, N: Norm, const D: usize, const EXACT: bool, const Q: usize>(
    job: &Job<'_, V::Lane>,
    query: usize,
    (marks, stride): (*mut u16, usize),
    open: &mut *mut Open,
) {
    // SAFETY: the caller promises the instruction set, a checked job, whose columns have whole
    // multiples of `PAD` candidates, and marks with a row of words for each query.
    unsafe {
        let (sure, maybe, len) = (V::splat(job.sure), V::splat(job.maybe), job.len);
        let group = Group::<V, Q>::new::<D>(job, query);
        let marks = marks.add(query * stride);
        let mut base = 0;
        while base < len {
            let mut found = [0u32; Q];
            let mut part = 0;
            while part < PAD {
                let at = base + part;
                let acc = group.accumulate::<N, D>(at);
                if let Some(masks) = decide::<V, D, EXACT, Q>(acc, sure, maybe, query, at, open) {
                    for b in 0..Q {
                        found[b] |= masks[b] << part;
                    }
                }
                part += V::LANES;
            }
            for (b, found) in found.into_iter().enumerate() {
                marks.add(b * stride + base / PAD).write((found as u16).to_le());
            }
            base += PAD;
        }
        // The rest of the last word.
        for piece in base / PAD..len.next_multiple_of(BITS) / PAD {
            for b in 0..Q {
                marks.add(b * stride + piece).write(0);
            }
        }
    }
}

/// The number of marks.
#[inline(always)]
pub(super) unsafe fn count<V: Vector>(words: &[u64]) -> u32 {
    let mut marked = 0;
    for &word in words {
        let word = u64::from_le(word);
        // SAFETY: the caller promises the instruction set.
        marked =
            unsafe { V::add_popcount(V::add_popcount(marked, word as u32), (word >> 32) as u32) };
    }
    marked
}

/// Appends to `row` the labels of the candidates that are marked, except `own`.
#[inline(always)]
pub(super) unsafe fn append<V: Vector>(
    words: &[u64],
    labels: &[u32],
    own: u32,
    row: &mut Vec<u32>,
) {
    // SAFETY: the caller promises the instruction set, and labels for all bits of the words. As many
    // are written as are marked, and a register more; all that the length covers is written.
    unsafe {
        let marked = count::<V>(words) as usize;
        row.reserve(marked + V::LANES);
        let start = row.as_mut_ptr();
        let to = start.add(row.len());
        let end = match marked > DENSE * words.len() {
            true => append_dense::<V>(words, labels.as_ptr(), own, to),
            false => append_sparse::<V>(words, labels.as_ptr(), own, to),
        };
        row.set_len(end.offset_from(start) as usize);
    }
}

/// Register by register, whether it has a mark or not.
#[inline(always)]
unsafe fn append_dense<V: Vector>(
    words: &[u64],
    labels: *const u32,
    own: u32,
    mut to: *mut u32,
) -> *mut u32 {
    // SAFETY: as for `append`.
    unsafe {
        let own = V::splat_label(own);
        let lanes = (1u64 << V::LANES) - 1;
        for (at, &word) in words.iter().enumerate() {
            let word = u64::from_le(word);
            let mut part = 0;
            while part < BITS {
                let these = V::load_labels(labels.add(at * BITS + part));
                let mask = (word >> part & lanes) as u32 & V::labels_ne(these, own);
                V::compress(these, mask, to);
                to = to.add(V::add_popcount(0, mask) as usize);
                part += V::LANES;
            }
        }
        to
    }
}

/// Mark by mark. Four at a time, whether a word has as many or not: a branch for each would be
/// mispredicted.
#[inline(always)]
unsafe fn append_sparse<V: Vector>(
    words: &[u64],
    labels: *const u32,
    own: u32,
    mut to: *mut u32,
) -> *mut u32 {
    // SAFETY: as for `append`; a word without marks left yields its first label, which is written and
    // not kept.
    unsafe {
        for (at, &word) in words.iter().enumerate() {
            let (mut rest, labels) = (u64::from_le(word), labels.add(at * BITS));
            while rest != 0 {
                for _ in 0..4 {
                    let label = *labels.add(rest.trailing_zeros() as usize % BITS);
                    to.write(label);
                    to = to.add(usize::from((label != own) & (rest != 0)));
                    rest &= rest.wrapping_sub(1);
                }
            }
        }
        to
    }
}

/// Appends the numbers of the candidates that are marked.
#[inline(always)]
pub(super) unsafe fn list<V: Vector>(words: &[u64], numbers: &mut Vec<u16>) {
    // SAFETY: the caller promises the instruction set. As many are written as are marked, and one
    // more; all that the length covers is written.
    unsafe {
        numbers.reserve(count::<V>(words) as usize + 1);
        let start = numbers.as_mut_ptr();
        let mut to = start.add(numbers.len());
        for (at, &word) in words.iter().enumerate() {
            let (mut rest, first) = (u64::from_le(word), at * BITS);
            while rest != 0 {
                for _ in 0..4 {
                    to.write((first + rest.trailing_zeros() as usize % BITS) as u16);
                    to = to.add(usize::from(rest != 0));
                    rest &= rest.wrapping_sub(1);
                }
            }
        }
        numbers.set_len(to.offset_from(start) as usize);
    }
}

/// Appends to `row` the labels with these numbers, except `own`.
#[inline(always)]
pub(super) unsafe fn look_up(numbers: &[u16], labels: &[u32], own: u32, row: &mut Vec<u32>) {
    row.reserve(numbers.len() + 1);
    // SAFETY: the caller promises a label for each number. There is room for all of them, and all that
    // the length covers is written.
    unsafe {
        let start = row.as_mut_ptr();
        let mut to = start.add(row.len());
        for &number in numbers {
            let label = *labels.get_unchecked(number as usize);
            to.write(label);
            to = to.add(usize::from(label != own));
        }
        row.set_len(to.offset_from(start) as usize);
    }
}
