//! Large arrays in huge pages, and rows written into them by many threads.
//!
//! Fresh memory in pages of 4 KiB costs more to touch than most joins take. Arrays of
//! a megabyte and more are mapped on their own, aligned to 2 MiB and marked for huge pages. Some of
//! what is given back is kept for the next join.
#![allow(unsafe_code)]

#[cfg(unix)]
mod kept;
#[cfg(unix)]
mod pages;
mod system;

pub use system::SystemMemory;

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64};

use rayon::prelude::*;

use crate::error::{Error, Result};
#[cfg(unix)]
use pages::Ask;

/// A number, or some of them, for which all bits zero is the value 0 and any bits are a value.
/// Sealed: its module is private.
pub trait Zeroable: Copy + Send + Sync + 'static {
    /// Whether there may be bytes between the numbers that are none of theirs.
    const PADDED: bool = true;
}
impl Zeroable for u32 {
    const PADDED: bool = false;
}
impl Zeroable for u64 {
    const PADDED: bool = false;
}
impl Zeroable for f32 {
    const PADDED: bool = false;
}
impl Zeroable for f64 {
    const PADDED: bool = false;
}

/// An array of numbers, in huge pages where it is large.
///
/// It is a slice in all respects but how its memory was obtained.
pub struct Buffer<T> {
    memory: Memory<T>,
}

enum Memory<T> {
    Owned(Vec<T>),
    #[cfg(unix)]
    Mapped(Mapping<T>),
}

#[cfg(unix)]
struct Mapping<T> {
    pages: pages::Pages,
    len: usize,
    numbers: PhantomData<T>,
}

#[cfg(unix)]
impl<T> Mapping<T> {
    fn data(&self) -> *mut T {
        self.pages.data().cast()
    }
}

const HUGE_PAGE: usize = 2 << 20;
const SMALL_PAGE: usize = 4096;
/// A multiple of every size that small pages have anywhere.
#[cfg(unix)]
const ANY_PAGE: usize = 64 << 10;

/// Bytes that one thread clears sooner than the system has handed out fresh ones.
#[cfg(unix)]
const CLEARED_ALONE: usize = 16 << 20;

impl<T: Zeroable> Buffer<T> {
    /// `len` zeros. Pages are not touched yet where the memory is mapped, unless it was kept from
    /// before.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn zeroed(len: usize) -> Result<Self> {
        let bytes = bytes_of::<T>(len)?;
        #[cfg(unix)]
        if bytes >= HUGE_PAGE / 2 {
            let ask = if bytes <= CLEARED_ALONE { Ask::Kept } else { Ask::Fresh };
            let (mut buffer, fresh) = Self::mapped(len, bytes, ask)?;
            if !fresh {
                clear(&mut buffer);
            }
            return Ok(buffer);
        }
        let mut owned = with_capacity(len).map_err(|_| Error::OutOfMemory { bytes })?;
        owned.resize(len, zero());
        Ok(Buffer { memory: Memory::Owned(owned) })
    }

    /// `len` zeros in pages that all threads of the pool have touched, so that later
    /// writes meet no page fault.
    pub(crate) fn faulted_in(len: usize) -> Result<Self> {
        #[cfg(unix)]
        if bytes_of::<T>(len)? >= HUGE_PAGE / 2 {
            let (mut buffer, fresh) = Self::mapped(len, bytes_of::<T>(len)?, Ask::Kept)?;
            match fresh {
                true => touch_all(&mut buffer),
                false => clear_all(&mut buffer),
            }
            return Ok(buffer);
        }
        Self::zeroed(len)
    }

    /// `len` numbers of any value, for whoever writes all of them before anybody reads one; and
    /// whether nobody has touched their pages yet.
    pub(crate) fn to_fill(len: usize) -> Result<(Self, bool)> {
        #[cfg(unix)]
        if bytes_of::<T>(len)? >= HUGE_PAGE / 2 {
            return Self::mapped(len, bytes_of::<T>(len)?, Ask::KeptNumbers);
        }
        Ok((Self::zeroed(len)?, false))
    }

    /// The same in pages that all threads of the pool have touched.
    pub(crate) fn faulted_to_fill(len: usize) -> Result<Self> {
        let (mut buffer, fresh) = Self::to_fill(len)?;
        if fresh {
            touch_all(&mut buffer);
        }
        Ok(buffer)
    }

    /// A mapped array, and whether it is fresh; of one that was kept, what its numbers were.
    #[cfg(unix)]
    fn mapped(len: usize, bytes: usize, ask: Ask) -> Result<(Self, bool)> {
        let (pages, fresh) = pages::Pages::new(bytes, ask, T::PADDED)?;
        let mapping = Mapping { pages, len, numbers: PhantomData };
        Ok((Buffer { memory: Memory::Mapped(mapping) }, fresh))
    }

    /// Gives the memory back to the system, and keeps none of it for others.
    pub(crate) fn discard(self) {
        #[cfg(unix)]
        if let Memory::Mapped(mapping) = self.memory {
            mapping.pages.discard();
        }
    }

    /// Copies into a `Vec`, for callers that need one.
    pub fn to_vec(&self) -> Vec<T> {
        self[..].to_vec()
    }
}

/// Bytes of an array, if there can be so many.
fn bytes_of<T>(len: usize) -> Result<usize> {
    len.checked_mul(size_of::<T>())
        .filter(|&bytes| bytes < isize::MAX as usize / 2)
        .ok_or(Error::OutOfMemory { bytes: usize::MAX })
}

/// Gives memory that was kept for later joins back to the system, and tells how many bytes that
/// were.
///
/// What joins no longer use is kept within the process, at most 1 GiB and a sixteenth of what the
/// process may have, so that the next join need not ask for fresh pages, which take longer to touch
/// than a small join. It is given back by itself where the system refuses memory, and where it is more
/// than a quarter of what else is available.
///
/// ```
/// let data: Vec<f64> = (0..400_000).map(|i| f64::from(i * 7 % 1000)).collect();
/// nearjoin::count_pairs(&nearjoin::Points::new(&data, 2)?, 0.5)?;
/// nearjoin::release_memory();
/// assert_eq!(nearjoin::release_memory(), 0);
/// # Ok::<(), nearjoin::Error>(())
/// ```
pub fn release_memory() -> u64 {
    #[cfg(unix)]
    return pages::release();
    #[cfg(not(unix))]
    0
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.memory {
            Memory::Owned(owned) => owned,
            // SAFETY: the pages hold `len` elements, which are zeros, numbers of earlier arrays
            // (`Ask`), or written since.
            #[cfg(unix)]
            Memory::Mapped(map) => unsafe { core::slice::from_raw_parts(map.data(), map.len) },
        }
    }
}

impl<T> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.memory {
            Memory::Owned(owned) => owned,
            // SAFETY: as for `deref`, and the borrow is unique.
            #[cfg(unix)]
            Memory::Mapped(map) => unsafe { core::slice::from_raw_parts_mut(map.data(), map.len) },
        }
    }
}

impl<T> Default for Buffer<T> {
    fn default() -> Self {
        Buffer { memory: Memory::Owned(Vec::new()) }
    }
}

impl<T> From<Vec<T>> for Buffer<T> {
    fn from(owned: Vec<T>) -> Self {
        Buffer { memory: Memory::Owned(owned) }
    }
}

impl<T: Clone> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        self[..].to_vec().into()
    }
}

impl<T: fmt::Debug> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self[..], f)
    }
}

impl<T: PartialEq> PartialEq for Buffer<T> {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

fn zero<T: Zeroable>() -> T {
    // SAFETY: for every `Zeroable` all bits zero is the value 0.
    unsafe { core::mem::zeroed() }
}

/// Writes zeros to a place in every page of an array that nobody has written to, so that later
/// writes meet no page fault.
pub(crate) fn touch<T: Zeroable>(fresh: &mut [T]) {
    for at in (0..fresh.len()).step_by(SMALL_PAGE / size_of::<T>()) {
        // SAFETY: a valid element. The write is volatile so that it is made although it changes
        // nothing.
        unsafe { core::ptr::write_volatile(&mut fresh[at], zero()) };
    }
}

/// The same by all threads of the pool, a huge page each.
pub(crate) fn touch_all<T: Zeroable>(fresh: &mut [T]) {
    fresh.par_chunks_mut(HUGE_PAGE / size_of::<T>()).for_each(touch);
}

/// Writes zeros.
#[cfg(unix)]
fn clear<T: Zeroable>(numbers: &mut [T]) {
    // SAFETY: a slice may be written, and all bits zero is a value of each element.
    unsafe { core::ptr::write_bytes(numbers.as_mut_ptr(), 0, numbers.len()) };
}

/// The same by all threads of the pool.
#[cfg(unix)]
fn clear_all<T: Zeroable>(numbers: &mut [T]) {
    numbers.par_chunks_mut(HUGE_PAGE / size_of::<T>()).for_each(clear);
}

/// A slice into which threads write rows that do not overlap.
pub(crate) struct RowWriter<'a, T> {
    data: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: writing from many threads is what `write` is for; it asks its caller for
// ranges that do not overlap.
unsafe impl<T: Send> Sync for RowWriter<'_, T> {}

impl<'a, T: Copy> RowWriter<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        RowWriter { data: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// Asks for the cache line of an element that will soon be written.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize) {
        prefetch(self.data.wrapping_add(at));
    }

    /// Copies `row` to the elements from `at` on.
    ///
    /// # Safety
    /// No two calls on one writer may cover the same element.
    ///
    /// # Panics
    /// If the row does not fit the slice.
    #[inline]
    pub(crate) unsafe fn write(&self, at: usize, row: &[T]) {
        assert!(at <= self.len && row.len() <= self.len - at);
        // SAFETY: in bounds by the assertion; the caller promises that nobody else
        // writes these elements, and the unique borrow that nobody reads them.
        unsafe {
            let to = self.data.add(at);
            #[cfg(target_arch = "x86_64")]
            if size_of_val(row) >= STREAM {
                return stream(row.as_ptr().cast(), to.cast(), size_of_val(row));
            }
            core::ptr::copy_nonoverlapping(row.as_ptr(), to, row.len());
        }
    }

    /// The same for a handful of elements, without the care for long rows.
    ///
    /// # Safety
    /// As for [`RowWriter::write`].
    #[inline(always)]
    pub(crate) unsafe fn write_short(&self, at: usize, row: &[T]) {
        assert!(at <= self.len && row.len() <= self.len - at);
        for (k, &x) in row.iter().enumerate() {
            // SAFETY: as for `write`.
            unsafe { self.data.add(at + k).write(x) };
        }
    }

    /// The same for a few cache lines, which bypass the cache where they are whole. Whoever
    /// reads them must wait for [`RowWriter::finish`].
    ///
    /// # Safety
    /// As for [`RowWriter::write`].
    #[inline(always)]
    pub(crate) unsafe fn write_lines(&self, at: usize, row: &[T]) {
        assert!(at <= self.len && row.len() <= self.len - at);
        // SAFETY: as for `write`.
        unsafe {
            let to = self.data.add(at);
            #[cfg(target_arch = "x86_64")]
            if size_of_val(row).is_multiple_of(LINE) && to.addr().is_multiple_of(LINE) {
                return stream_lines(row.as_ptr().cast(), to.cast(), size_of_val(row));
            }
            core::ptr::copy_nonoverlapping(row.as_ptr(), to, row.len());
        }
    }

    /// Makes all that this thread has written visible before what it does next.
    #[inline]
    pub(crate) fn finish(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a fence has no precondition.
        unsafe {
            core::arch::x86_64::_mm_sfence()
        };
    }
}

/// Copies a row of a few dozen numbers: in steps of eight, the last of which may overlap the one before.
/// To call the system's copy takes as long as that.
#[inline(always)]
pub(crate) fn copy_row<T: Copy>(to: &mut [T], from: &[T]) {
    /// Copies `N` numbers from a place on.
    #[inline(always)]
    fn step<T: Copy, const N: usize>(to: &mut [T], from: &[T], at: usize) {
        to[at..][..N].copy_from_slice(&from[at..][..N]);
    }
    let len = from.len();
    assert_eq!(to.len(), len);
    match len {
        8.. => {
            let mut at = 0;
            while at + 8 < len {
                step::<T, 8>(to, from, at);
                at += 8;
            }
            step::<T, 8>(to, from, len - 8);
        }
        4.. => {
            step::<T, 4>(to, from, 0);
            step::<T, 4>(to, from, len - 4);
        }
        2.. => {
            step::<T, 2>(to, from, 0);
            step::<T, 2>(to, from, len - 2);
        }
        1 => to[0] = from[0],
        0 => {}
    }
}

/// Asks for the cache line of an address, which need not be valid.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch touches nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Rows of so many bytes bypass the cache: nobody reads them soon, and a line that is
/// wholly written need not be read first. For short rows the partial lines at both ends
/// cost more than that saves.
#[cfg(target_arch = "x86_64")]
const STREAM: usize = 1024;

/// Copies bytes around the cache; [`RowWriter::finish`] must follow.
///
/// # Safety
/// `from` must be readable and `to` writable for `bytes`, and they must not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn stream(mut from: *const u8, mut to: *mut u8, mut bytes: usize) {
    // SAFETY: the head reaches the next line of `to`, then come whole lines while they fit, the
    // rest is what is left: all within `bytes`.
    unsafe {
        let head = to.align_offset(LINE).min(bytes);
        core::ptr::copy_nonoverlapping(from, to, head);
        (from, to, bytes) = (from.add(head), to.add(head), bytes - head);
        let lines = bytes - bytes % LINE;
        stream_lines(from, to, lines);
        core::ptr::copy_nonoverlapping(from.add(lines), to.add(lines), bytes - lines);
    }
}

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// The same for whole lines.
///
/// # Safety
/// As for [`stream`], and `to` and `bytes` must be multiples of [`LINE`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn stream_lines(from: *const u8, to: *mut u8, bytes: usize) {
    use core::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
    for line in (0..bytes).step_by(LINE) {
        for at in (line..line + LINE).step_by(16) {
            // SAFETY: within `bytes`, and `to` is aligned.
            unsafe {
                let value = _mm_loadu_si128(from.add(at).cast());
                _mm_stream_si128(to.add(at).cast(), value);
            }
        }
    }
}

/// An empty `Vec` with room for `len` elements.
pub(crate) fn with_capacity<T>(len: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    reserve(&mut room, len)?;
    Ok(room)
}

/// A copy of some numbers.
pub(crate) fn copied<T: Copy>(numbers: &[T]) -> Result<Vec<T>> {
    let mut copy = with_capacity(numbers.len())?;
    copy.extend_from_slice(numbers);
    Ok(copy)
}

/// Makes room for so many elements more.
pub(crate) fn reserve<T>(vec: &mut Vec<T>, more: usize) -> Result<()> {
    let bytes = more.saturating_mul(size_of::<T>());
    let refused = |_| Error::OutOfMemory { bytes };
    match vec.try_reserve(more) {
        // What is kept may be what is missing.
        Err(_) if release_memory() > 0 => vec.try_reserve(more).map_err(refused),
        reserved => reserved.map_err(refused),
    }
}

/// Whether the system has memory for `len` elements, before something is called that takes as
/// much and aborts where it is refused.
pub(crate) fn check_room<T>(len: usize) -> Result<()> {
    with_capacity::<T>(len).map(drop)
}

/// Zeros in a `Vec`, in pages that are not touched yet where there are many.
pub(crate) fn zeros(len: usize) -> Result<Vec<u64>> {
    // The other way to get zeros that nobody has touched aborts.
    check_room::<u64>(len)?;
    Ok(vec![0; len])
}

/// Copies numbers that nobody reads soon, around the cache.
pub(crate) fn copy_around_cache<T: Zeroable>(to: &mut [T], from: &[T]) {
    assert_eq!(to.len(), from.len());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: both slices have as many elements, and a unique borrow overlaps nothing. The
    // fence follows.
    unsafe {
        stream(from.as_ptr().cast(), to.as_mut_ptr().cast(), size_of_val(from));
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}

/// The same numbers, open to stores from many threads.
pub(crate) fn as_atomic(numbers: &mut [u64]) -> &[AtomicU64] {
    const { assert!(align_of::<u64>() == align_of::<AtomicU64>()) };
    // SAFETY: both types have the same size and bit validity, and here the same
    // alignment; the unique borrow lasts as long as the shared one that it becomes.
    unsafe { &*(numbers as *mut [u64] as *const [AtomicU64]) }
}

/// The same numbers, open to stores from many threads.
pub(crate) fn as_atomic_u32(numbers: &mut [u32]) -> &[AtomicU32] {
    const { assert!(align_of::<u32>() == align_of::<AtomicU32>()) };
    // SAFETY: as for `as_atomic`.
    unsafe { &*(numbers as *mut [u32] as *const [AtomicU32]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_every_size_are_zero_and_writable() {
        for len in [0, 1, 1000, HUGE_PAGE / 4 + 3, 3 * HUGE_PAGE / 4 + 1] {
            let mut buffer = Buffer::<u32>::faulted_in(len).unwrap();
            assert!(buffer.iter().all(|&x| x == 0) && buffer.len() == len);
            if let Some(last) = buffer.last_mut() {
                *last = 7;
                assert_eq!(buffer.to_vec()[len - 1], 7);
            }
        }
    }

    #[test]
    fn memory_from_before_is_cleared_for_those_who_want_zeros() {
        // Tests share the shelf: sizes that no other has, and many arrays at once.
        let len = 5 * HUGE_PAGE / 4 + 321;
        for _ in 0..4 {
            let mut dirty: Vec<_> =
                (0..4).map(|_| Buffer::<u32>::faulted_to_fill(len).unwrap()).collect();
            dirty.iter_mut().for_each(|buffer| buffer.fill(u32::MAX));
            drop(dirty);
            for buffer in [Buffer::<u32>::zeroed(len), Buffer::faulted_in(len)] {
                assert!(buffer.unwrap().iter().all(|&x| x == 0));
            }
        }
    }

    #[test]
    fn rows_of_every_length_are_copied() {
        for len in 0..70 {
            let from: Vec<u32> = (1..=len).collect();
            let mut to = vec![0; len as usize];
            copy_row(&mut to, &from);
            assert_eq!(to, from);
        }
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert!(matches!(Buffer::<u64>::zeroed(usize::MAX / 4), Err(Error::OutOfMemory { .. })));
        assert!(matches!(Buffer::<u64>::zeroed(1 << 58), Err(Error::OutOfMemory { .. })));
    }
}
