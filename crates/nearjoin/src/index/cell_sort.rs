//! Rows sorted by cell: a counting sort, in two levels where there are many rows.
//!
//! ```text
//! rows, in parts       records, bucket by bucket           columns and ids
//! ┌────┐   cells,      ┌────────┬────────┬─────┐  each     ┌────────────────┐
//! │ p₀ │   counted,    │ p₀ p₁… │ p₀ p₁… │  …  │  by       │ cell by cell,  │
//! │ p₁ │ ────────────▶ │ of the │ of the │     │ ────────▶ │ and within one │
//! │ …  │   in whole    │ first  │ next   │     │  itself   │ by row         │
//! └────┘   lines       │ cells  │ cells  │     │           └────────────────┘
//!                      └────────┴────────┴─────┘
//! ```
//! There may be tens of millions of cells: counts and places all over them would miss the cache for
//! every row, and each thread would need counts of its own. So rows go to buckets of consecutive
//! cells first. Buckets are few enough that a thread keeps a line for each in its cache, and writes
//! it when it is full. They are small enough that the records of one, and the counts of its cells,
//! stay in the cache while they are sorted.
//!
//! Rows of one cell keep their input order, whatever the number of threads: within a bucket the
//! parts follow each other, and within a part its rows.

use core::sync::atomic::Ordering::Relaxed;

use rayon::prelude::*;

use super::boxes::FAN;
use super::layout::SLACK;
use crate::error::Result;
use crate::memory::{Buffer, RowWriter, as_atomic_u32, reserve, with_capacity};
use crate::scalar::Scalar;

/// Bytes of the records of a bucket. With their columns and the counts of their cells they take
/// twice as much, which the second level of cache holds. Half and twice the size are as fast.
const BUCKET: usize = 256 << 10;
/// Bytes of the lines that a thread fills, at the most: they stay in that cache too.
const BINS: usize = 512 << 10;
/// Rows of a bucket and of a part, at the least.
const LEAST_ROWS: usize = 1024;
/// Buckets and parts for each thread, at the least: some are done earlier than others.
const SHARES: usize = 4;
/// Rows whose cells are found at a time.
const STRETCH: usize = 1024;
/// Cells whose places are found at a time.
const CELLS: usize = 1 << 13;
/// A bucket of more rows is shared by threads.
const CROWDED: usize = 1 << 15;
/// Bytes of records up to which there are no buckets, ...
const SMALL: usize = 4 << 20;
/// ... and where all threads can do without: for each of them, and at least and at most in all. It is
/// about what their own caches hold together, beyond which rows that are looked up in the input are
/// seldom in one. Two threads of a Zen 4 take twice as long to look up 32 MiB as to move records; 16 of a
/// Sapphire Rapids take less.
const SMALL_FOR_EACH: usize = 2 << 20;
const SMALL_FOR_ALL: core::ops::RangeInclusive<usize> = 8 << 20..=32 << 20;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes of a row number and a cell.
const TAIL: usize = 8;

/// Rows in the order of their cells.
pub(crate) struct Sorted<L> {
    /// Their coordinates, a column per dimension.
    pub(crate) coords: Buffer<L>,
    /// The row at each position, with [`SLACK`] elements more than there are rows.
    pub(crate) ids: Buffer<u32>,
    /// Where each cell begins, and the end.
    pub(crate) starts: Buffer<u32>,
}

/// How the coordinates of sorted rows are laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// A column per dimension; so many elements from one to the next.
    Columns { stride: usize },
    /// Leaf after leaf, in each a column of 16 per dimension.
    Leaves,
}

impl Form {
    /// Elements of so many rows.
    fn elements(self, len: usize, dim: usize) -> usize {
        match self {
            Form::Columns { stride } => stride * dim,
            Form::Leaves => len.next_multiple_of(FAN) * dim,
        }
    }
}

/// What is sorted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) len: usize,
    /// All cells, empty or not.
    pub(crate) cells: usize,
    /// Coordinates that go with a row, and the bytes of each.
    pub(crate) dim: usize,
    pub(crate) width: usize,
}

impl Rows {
    /// Rows without coordinates.
    pub(crate) fn bare(len: usize, cells: usize) -> Self {
        Rows { len, cells, dim: 0, width: size_of::<f32>() }
    }

    /// Bytes of a row's record: the coordinates, then the row number and the cell.
    fn record(&self) -> usize {
        self.dim * self.width + TAIL
    }

    /// Whether they are few enough to be sorted without buckets. Then each thread counts all
    /// cells, so that no more of them share the work than there are rows to make that worth it.
    pub(crate) fn are_few(&self, threads: usize) -> bool {
        let for_all = threads <= 2 * self.len / self.cells.max(1);
        let (least, most) = (*SMALL_FOR_ALL.start(), *SMALL_FOR_ALL.end());
        let all = (threads * SMALL_FOR_EACH).clamp(least, most);
        self.len * self.record() <= if for_all { all } else { SMALL }
    }

    /// Bytes that [`order`] takes beside its result.
    pub(crate) fn order_bytes(&self, threads: usize) -> usize {
        let bare = Rows::bare(self.len, self.cells);
        if !bare.are_few(threads) {
            return bare.sort_bytes(threads);
        }
        size_of::<u32>() * (self.len + counts(self.len, self.cells, threads))
    }

    /// Bytes that [`sort`] takes beside its result.
    pub(crate) fn sort_bytes(&self, threads: usize) -> usize {
        let cut = Cut::new(self, threads);
        let parts = self.len.div_ceil(cut.part);
        // Those of the parts, one copy for each thread, and the ends.
        let places = (parts + threads + 1) * cut.buckets;
        let in_bucket = (threads << cut.shift).min(2 * self.len + (threads << 12));
        let lines = threads * cut.buckets * cut.gathered * self.record();
        self.len * self.record() + size_of::<u32>() * (places + in_bucket) + lines
    }
}

/// Rows of a part that counts all of `cells`. It has at least half as many rows as there are cells,
/// so that the counts of all parts take no more than twice the room of the rows' cells.
fn part_of(len: usize, cells: usize, threads: usize) -> usize {
    len.div_ceil(threads).max(cells / 2).max(CROWDED)
}

/// Counts of all parts.
fn counts(len: usize, cells: usize, threads: usize) -> usize {
    len.div_ceil(part_of(len, cells, threads)) * cells
}

/// How rows are cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// The bucket of a cell is its number without so many bits.
    shift: u32,
    buckets: usize,
    /// Rows of a part.
    part: usize,
    /// Elements of a record.
    width: usize,
    /// Records of the lines of a bucket: a power of two.
    gathered: usize,
}

impl Cut {
    fn new(rows: &Rows, threads: usize) -> Self {
        let record = rows.record();
        let gathered = LINE >> record.trailing_zeros().min(LINE.ilog2());
        let fitting = (BUCKET / record).min(rows.len / (SHARES * threads)).max(LEAST_ROWS);
        let most = (BINS / (gathered * record)).min(rows.len / fitting + 1);
        let shift = rows.cells.div_ceil(most).max(1).next_power_of_two().ilog2();
        let shift = shift.min(u32::BITS - 1);
        Cut {
            shift,
            buckets: rows.cells.div_ceil(1 << shift),
            part: rows.len.div_ceil(SHARES * threads).max(LEAST_ROWS),
            width: record / rows.width,
            gathered,
        }
    }

    #[inline(always)]
    fn bucket(&self, cell: u32) -> usize {
        (cell >> self.shift) as usize
    }
}

/// The rows in the order of their cells, padded by [`SLACK`], and where each cell begins.
/// `fill_cells` tells the cells of some rows from a given one on.
pub(crate) fn order(
    len: usize,
    cells: usize,
    fill_cells: impl Fn(usize, &mut [u32]) + Sync,
) -> Result<(Buffer<u32>, Buffer<u32>)> {
    let rows = Rows::bare(len, cells);
    if !rows.are_few(rayon::current_num_threads()) {
        let form = Form::Columns { stride: 0 };
        let sorted = sort::<f32>(&rows, form, fill_cells, |_, _, _| ())?;
        return Ok((sorted.ids, sorted.starts));
    }
    let mut cell_of = Buffer::<u32>::faulted_in(len)?;
    let stretches = cell_of.par_chunks_mut(STRETCH).enumerate();
    stretches.for_each(|(at, cells)| fill_cells(at * STRETCH, cells));
    let mut ids = Buffer::<u32>::faulted_in(len + SLACK)?;
    let mut starts = Buffer::<u32>::faulted_in(cells + 1)?;
    starts[cells] = len as u32;
    let (starts_of, ids_of) = (&mut starts[..cells], &mut ids[..len]);
    // The number of a record is its row here.
    Bucket { first_cell: 0, first: 0, starts: starts_of, ids: ids_of }.order(
        &cell_of,
        1,
        &mut Vec::new(),
    )?;
    Ok((ids, starts))
}

/// Sorts rows by their cells, with their coordinates, which are laid out in a form. `fill_cells`
/// tells the cells of some rows from a given one on. `fill_records` writes the coordinates of such
/// rows to the front of their records, which have the given width.
pub(crate) fn sort<L: Scalar>(
    rows: &Rows,
    form: Form,
    fill_cells: impl Fn(usize, &mut [u32]) + Sync,
    fill_records: impl Fn(usize, &mut [L], usize) + Sync,
) -> Result<Sorted<L>> {
    let cut = Cut::new(rows, rayon::current_num_threads());
    let mut counts = count(rows.len, &cut, &fill_cells)?;
    let ends = running_sums(&mut counts, &cut)?;
    // All threads write all over it: they would wait for each other's page faults.
    let mut records = Buffer::<L>::faulted_in(rows.len * cut.width)?;
    let to = RowWriter::new(&mut records);
    let move_part = |(part, next)| -> Result<()> {
        let mut bins = Bins::new(cut, next, &to)?;
        let mut records = vec![L::ZERO; STRETCH * cut.width];
        for_stretches(rows.len, &cut, part, &fill_cells, |first, cells| {
            let records = &mut records[..cells.len() * cut.width];
            fill_records(first, records, cut.width);
            fill_tails(first, cells, records, cut.width);
            bins.add(records, cells);
        });
        bins.write_rest();
        Ok(())
    };
    counts.into_par_iter().enumerate().try_for_each(move_part)?;
    sort_buckets(rows, &cut, form, &ends, &records)
}

/// Finds the cells of the rows of a part, some at a time.
fn for_stretches(
    len: usize,
    cut: &Cut,
    part: usize,
    fill_cells: impl Fn(usize, &mut [u32]),
    mut visit: impl FnMut(usize, &[u32]),
) {
    let mut cells = [0; STRETCH];
    let end = len.min((part + 1) * cut.part);
    for first in (part * cut.part..end).step_by(STRETCH) {
        let cells = &mut cells[..STRETCH.min(end - first)];
        fill_cells(first, cells);
        visit(first, cells);
    }
}

/// How many rows of each part are in each bucket.
fn count(
    len: usize,
    cut: &Cut,
    fill_cells: impl Fn(usize, &mut [u32]) + Sync,
) -> Result<Vec<Buffer<u32>>> {
    let count = |part| {
        let mut counts = Buffer::<u32>::zeroed(cut.buckets)?;
        for_stretches(len, cut, part, &fill_cells, |_, cells| {
            cells.iter().for_each(|&cell| counts[cut.bucket(cell)] += 1);
        });
        Ok(counts)
    };
    (0..len.div_ceil(cut.part)).into_par_iter().map(count).collect()
}

/// Turns the counts of every part into the place of its first record in each bucket: bucket by
/// bucket, and within a bucket part by part. Returns where each bucket ends.
fn running_sums(counts: &mut [Buffer<u32>], cut: &Cut) -> Result<Vec<u32>> {
    let mut ends = with_capacity(cut.buckets)?;
    let mut end = 0;
    for bucket in 0..cut.buckets {
        for part in counts.iter_mut() {
            end += core::mem::replace(&mut part[bucket], end);
        }
        ends.push(end);
    }
    Ok(ends)
}

/// Writes row numbers and cells behind the coordinates of records.
fn fill_tails<L: Scalar>(first: usize, cells: &[u32], records: &mut [L], width: usize) {
    let dim = width - TAIL / size_of::<L>();
    for ((record, &cell), row) in records.chunks_exact_mut(width).zip(cells).zip(first..) {
        let tail: u64 = bytemuck::cast([row as u32, cell]);
        record[dim..].copy_from_slice(L::from_bytes(bytemuck::bytes_of(&tail)));
    }
}

/// The lines that a thread fills, some for each bucket.
struct Bins<'a, L> {
    cut: Cut,
    lines: Buffer<L>,
    /// The place of the next record of each bucket.
    next: Buffer<u32>,
    /// The place of its first record that is not written yet.
    kept: Buffer<u32>,
    to: &'a RowWriter<'a, L>,
}

impl<'a, L: Scalar> Bins<'a, L> {
    fn new(cut: Cut, next: Buffer<u32>, to: &'a RowWriter<'a, L>) -> Result<Self> {
        let lines = Buffer::zeroed(cut.buckets * cut.gathered * cut.width)?;
        let mut kept = Buffer::<u32>::zeroed(cut.buckets)?;
        kept.copy_from_slice(&next);
        Ok(Bins { cut, lines, next, kept, to })
    }

    /// Adds records to the lines of their buckets, and writes those that are full.
    fn add(&mut self, records: &[L], cells: &[u32]) {
        match self.cut.width {
            2 => self.add_of::<2>(records, cells),
            3 => self.add_of::<3>(records, cells),
            4 => self.add_of::<4>(records, cells),
            5 => self.add_of::<5>(records, cells),
            6 => self.add_of::<6>(records, cells),
            _ => self.add_of::<0>(records, cells),
        }
    }

    /// The same for records of `W` elements; 0 is any number.
    fn add_of<const W: usize>(&mut self, records: &[L], cells: &[u32]) {
        let width = if W == 0 { self.cut.width } else { W };
        let gathered = self.cut.gathered;
        for (record, &cell) in records.chunks_exact(width).zip(cells) {
            let bucket = self.cut.bucket(cell);
            let place = self.next[bucket] as usize;
            let slot = bucket * gathered + (place & (gathered - 1));
            let to = &mut self.lines[slot * width..][..width];
            to.iter_mut().zip(record).for_each(|(to, &x)| *to = x);
            self.next[bucket] += 1;
            if (place + 1) & (gathered - 1) == 0 {
                self.write(bucket);
            }
        }
    }

    /// Writes what is left in all lines.
    fn write_rest(&mut self) {
        (0..self.cut.buckets).for_each(|bucket| self.write(bucket));
        self.to.finish();
    }

    /// Writes the records of a bucket that are not written yet.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn write(&mut self, bucket: usize) {
        let Cut { width, gathered, .. } = self.cut;
        let (first, end) = (self.kept[bucket] as usize, self.next[bucket] as usize);
        let slot = bucket * gathered + (first & (gathered - 1));
        let records = &self.lines[slot * width..(slot + end - first) * width];
        // SAFETY: by running sums, every part has places of its own in every bucket. It passes
        // each once.
        unsafe { self.to.write_lines(first * width, records) };
        self.kept[bucket] = end as u32;
    }
}

/// Sorts the records of every bucket by cell.
fn sort_buckets<L: Scalar>(
    rows: &Rows,
    cut: &Cut,
    form: Form,
    ends: &[u32],
    records: &[L],
) -> Result<Sorted<L>> {
    // Buckets share pages, and threads would clear the same one.
    let mut coords = Buffer::faulted_in(form.elements(rows.len, rows.dim))?;
    let mut ids = Buffer::<u32>::faulted_in(rows.len + SLACK)?;
    let mut starts = Buffer::<u32>::faulted_in(rows.cells + 1)?;
    starts[rows.cells] = rows.len as u32;
    let to = Target { coords: RowWriter::new(&mut coords), form };
    let buckets = buckets(cut, ends, &mut starts[..rows.cells], &mut ids)?;
    buckets.into_par_iter().try_for_each_init(Vec::new, |next, mut bucket| -> Result<()> {
        let first = bucket.first as usize * cut.width;
        let records = &records[first..first + bucket.ids.len() * cut.width];
        bucket.order(words(records), cut.width * size_of::<L>() / size_of::<u32>(), next)?;
        bucket.write(records, cut.width, &to);
        Ok(())
    })?;
    Ok(Sorted { coords, ids, starts })
}

/// Where coordinates go.
struct Target<'a, L> {
    coords: RowWriter<'a, L>,
    form: Form,
}

/// Some consecutive cells, and what will be known of their rows.
struct Bucket<'a> {
    first_cell: u32,
    /// The position of the first row.
    first: u32,
    /// Where each cell begins.
    starts: &'a mut [u32],
    /// The row at each position.
    ids: &'a mut [u32],
}

/// The buckets, which end at these positions.
fn buckets<'a>(
    cut: &Cut,
    ends: &[u32],
    starts: &'a mut [u32],
    mut ids: &'a mut [u32],
) -> Result<Vec<Bucket<'a>>> {
    let mut buckets = with_capacity(cut.buckets)?;
    let mut first = 0;
    for (at, (starts, &end)) in starts.chunks_mut(1 << cut.shift).zip(ends).enumerate() {
        let (own, rest) = ids.split_at_mut((end - first) as usize);
        buckets.push(Bucket { first_cell: (at << cut.shift) as u32, first, starts, ids: own });
        (first, ids) = (end, rest);
    }
    Ok(buckets)
}

impl Bucket<'_> {
    /// Finds where cells begin, and the record of each position: its number stands where its row
    /// will be. Records have `width` words, the last of which is the cell. `next` is room for
    /// counts.
    fn order(&mut self, records: &[u32], width: usize, next: &mut Vec<u32>) -> Result<()> {
        let (len, cells, first_cell) = (self.ids.len(), self.starts.len(), self.first_cell);
        let threads = rayon::current_num_threads();
        let part = part_of(len, cells, threads);
        next.clear();
        reserve(next, counts(len, cells, threads))?;
        next.resize(counts(len, cells, threads), 0);
        let parts = records.par_chunks(part * width).zip(next.par_chunks_mut(cells.max(1)));
        parts.for_each(|(records, counts)| {
            for cell in cells_of(records, width) {
                counts[(cell - first_cell) as usize] += 1;
            }
        });
        places_of_cells(self.first, self.starts, next);
        let to = as_atomic_u32(self.ids);
        let parts = records.par_chunks(part * width).zip(next.par_chunks_mut(cells.max(1)));
        parts.enumerate().for_each(|(at, (records, next))| {
            for (cell, record) in cells_of(records, width).zip(at * part..) {
                let next = &mut next[(cell - first_cell) as usize];
                to[*next as usize].store(record as u32, Relaxed);
                *next += 1;
            }
        });
        Ok(())
    }

    /// Writes the coordinates and rows of the records that [`Bucket::order`] has found.
    fn write<L: Scalar>(&mut self, records: &[L], width: usize, to: &Target<'_, L>) {
        let write = match width {
            2 => write_records::<L, 2>,
            3 => write_records::<L, 3>,
            4 => write_records::<L, 4>,
            5 => write_records::<L, 5>,
            6 => write_records::<L, 6>,
            _ => write_records::<L, 0>,
        };
        let first = self.first as usize;
        let pieces = self.ids.par_chunks_mut(CROWDED).enumerate();
        pieces.for_each(|(piece, ids)| write(records, width, ids, first + piece * CROWDED, to));
    }
}

/// Turns how many rows of each cell every part has, part after part, into the place of the first of
/// them: cell by cell, and within a cell part by part. `starts` gets those of the cells, behind
/// `first`.
fn places_of_cells(first: u32, starts: &mut [u32], counts: &mut [u32]) {
    let cells = starts.len();
    // Stretches of cells have counts all over the array, and each its own.
    let counts = as_atomic_u32(counts);
    let stretch = |at: usize| at * CELLS..cells.min((at + 1) * CELLS);
    let rows = |at: usize| -> u32 {
        let parts = counts.chunks_exact(cells.max(1));
        parts.flat_map(|part| &part[stretch(at)]).map(|count| count.load(Relaxed)).sum()
    };
    let stretches = cells.div_ceil(CELLS);
    let mut ends: Vec<u32> = match stretches {
        0 | 1 => vec![0; stretches],
        _ => (0..stretches).into_par_iter().map(rows).collect(),
    };
    ends.iter_mut().fold(0, |end, rows| end + core::mem::replace(rows, end));
    let stretches = starts.par_chunks_mut(CELLS).zip(ends).enumerate();
    stretches.for_each(|(at, (starts, mut end))| {
        for (cell, start) in stretch(at).zip(starts) {
            *start = first + end;
            for count in counts.iter().skip(cell).step_by(cells) {
                let rows = count.load(Relaxed);
                count.store(end, Relaxed);
                end += rows;
            }
        }
    });
}

/// The words of records.
#[inline(always)]
fn words<L: Scalar>(records: &[L]) -> &[u32] {
    bytemuck::cast_slice(L::as_bytes(records))
}

/// The cells of records of so many words.
#[inline(always)]
fn cells_of(records: &[u32], width: usize) -> impl Iterator<Item = u32> {
    records.chunks_exact(width).map(move |record| record[width - 1])
}

/// Writes the coordinates of records to the positions from `first` on, and the row of each to the
/// place of its number. A record has `W` elements; 0 is any number.
#[allow(unsafe_code)]
fn write_records<L: Scalar, const W: usize>(
    records: &[L],
    width: usize,
    ids: &mut [u32],
    first: usize,
    to: &Target<'_, L>,
) {
    let width = if W == 0 { width } else { W };
    let dim = width - TAIL / size_of::<L>();
    let (words, per_record) = (words(records), width * size_of::<L>() / size_of::<u32>());
    for (id, position) in ids.iter_mut().zip(first..) {
        let record = &records[*id as usize * width..][..width];
        let (first, step) = match to.form {
            Form::Columns { stride } => (position, stride),
            Form::Leaves => (position / FAN * FAN * dim + position % FAN, FAN),
        };
        for (j, &x) in record[..dim].iter().enumerate() {
            // SAFETY: the positions of these ids are nobody else's, and each is passed once.
            unsafe { to.coords.write_short(first + j * step, &[x]) };
        }
        *id = words[(*id as usize + 1) * per_record - TAIL / size_of::<u32>()];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows by cell, as a stable sort of the library has them.
    fn expected(cells: &[u32]) -> Vec<u32> {
        let mut rows: Vec<u32> = (0..cells.len() as u32).collect();
        rows.sort_by_key(|&row| cells[row as usize]);
        rows
    }

    fn coordinate(row: usize, j: usize) -> f64 {
        (row * 16 + j) as f64
    }

    /// Sorts with and without buckets, on some threads.
    fn check<L: Scalar>(cell_of: &[u32], cells: usize, dim: usize, threads: usize) {
        let len = cell_of.len();
        let fill_cells = |first: usize, cells: &mut [u32]| {
            cells.copy_from_slice(&cell_of[first..][..cells.len()])
        };
        let fill_records = |first: usize, records: &mut [L], width: usize| {
            for (record, row) in records.chunks_exact_mut(width).zip(first..) {
                (0..dim).for_each(|j| record[j] = L::from_f64(coordinate(row, j)));
            }
        };
        let stride = len + 3;
        let rows = Rows { len, cells, dim, width: size_of::<L>() };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let (sorted, (ids, starts)) = pool.install(|| {
            let form = Form::Columns { stride };
            let sorted = sort(&rows, form, fill_cells, fill_records).unwrap();
            let leaves = sort(&rows, Form::Leaves, fill_cells, fill_records).unwrap();
            for (position, j) in (0..len).flat_map(|at| (0..dim).map(move |j| (at, j))) {
                let in_leaf = leaves.coords[(position / 16 * dim + j) * 16 + position % 16];
                assert_eq!(in_leaf, sorted.coords[j * stride + position]);
            }
            (sorted, order(len, cells, fill_cells).unwrap())
        });
        let what = format!("{len} rows, {cells} cells, {dim} × {}, {threads} threads", L::NAME);
        let expected = expected(cell_of);
        assert_eq!(sorted.ids.len(), len + SLACK, "{what}");
        assert!(sorted.ids == ids && ids[..len] == expected, "{what}");
        assert!(sorted.starts == starts && starts.len() == cells + 1, "{what}");
        for (cell, &start) in starts.iter().enumerate() {
            let before = expected.partition_point(|&row| (cell_of[row as usize] as usize) < cell);
            assert_eq!(start as usize, before, "{what}, cell {cell}");
        }
        for j in 0..dim {
            let column = sorted.coords[j * stride..][..len].iter().map(|x| x.to_f64());
            assert!(column.eq(expected.iter().map(|&row| coordinate(row as usize, j))), "{what}");
        }
    }

    fn scattered(len: usize, cells: u64) -> Vec<u32> {
        let mix = |row: u64| row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24;
        (0..len as u64).map(|row| (mix(row) % cells) as u32).collect()
    }

    #[test]
    fn rows_of_a_cell_keep_their_order_on_any_number_of_threads() {
        for threads in [1, 2, 3, 8] {
            check::<f32>(&scattered(20_000, 5000), 5000, 2, threads);
            check::<f64>(&scattered(20_000, 300), 300, 2, threads);
            check::<f32>(&scattered(200_000, 90_000), 90_000, 1, threads);
        }
    }

    #[test]
    fn odd_numbers_of_rows_and_cells() {
        for len in [0, 1, 2, 3, 1023, 1024, 1025, 4097] {
            for cells in [1, 2, 3, 255, 4096, 10_000] {
                check::<f32>(&scattered(len, cells), cells as usize, 2, 2);
            }
        }
    }

    #[test]
    fn records_of_every_width() {
        for dim in 0..=15 {
            check::<f32>(&scattered(3000, 700), 700, dim, 2);
            check::<f64>(&scattered(3000, 700), 700, dim, 2);
        }
    }

    #[test]
    fn rows_in_few_of_many_cells() {
        for cell in [0, 4999, 2500] {
            check::<f32>(&[cell; 100_000], 5000, 2, 3);
        }
        // Both ends, and nothing between them.
        let ends: Vec<u32> = (0..50_000).map(|row| 19_999 * (row % 2)).collect();
        check::<f32>(&ends, 20_000, 3, 3);
        // Three of four rows in one bucket, which threads share.
        let crowded = scattered(200_000, 60_000).into_iter().enumerate();
        let crowded: Vec<u32> =
            crowded.map(|(row, cell)| if row % 4 > 0 { cell % 100 } else { cell }).collect();
        check::<f32>(&crowded, 60_000, 2, 3);
    }

    #[test]
    fn the_number_of_buckets_is_bounded() {
        for (len, cells) in [(100_000_000, 42_000_000), (4_000_000_000, 8_000_000_000), (0, 1)] {
            for dim in [0, 2, 15] {
                let rows = Rows { len, cells, dim, width: 4 };
                let cut = Cut::new(&rows, 16);
                assert!(cut.buckets * cut.gathered * rows.record() <= BINS, "{rows:?} {cut:?}");
                assert!(cut.buckets << cut.shift >= cells && cut.gathered.is_power_of_two());
                assert!((cut.gathered * rows.record()).is_multiple_of(LINE));
            }
        }
    }
}
