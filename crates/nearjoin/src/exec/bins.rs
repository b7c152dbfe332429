//! Rows that are kept until it is known where they belong.
//!
//! Queries are answered in the order of the index, and rows stand in the order of the input: to write a
//! row would be a visit to memory that no cache holds. So rows go into bins as they are found, a bin for
//! as many consecutive queries as have rows that fit a cache, and from there to their places.
//!
//! ```text
//! each thread, for each row:     a head (query, length), the ids, the distances → the bin of the query
//! for each bin:                  the lengths, from where the bin before it ends → offsets
//! for each bin, by one thread:   its rows → their places
//! ```
//!
//! Each thread writes to bins of its own. Bins next to each other share large arrays, a *shelf*; those
//! go back to the system as soon as their bins are written. So rows that are spread evenly stand twice in
//! memory only a shelf at a time.

mod lists;

use core::ops::{ControlFlow, Range};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use rayon::prelude::*;

use super::Rows;
use super::pool::Pool;
use super::queue::Queue;
use crate::error::Result;
use crate::memory::{Buffer, Zeroable, reserve};
use crate::scalar::Scalar;
use lists::{Grain, Lists, Reader};

/// Bytes of the rows of a bin, more or less: with what they are copied from, they stay in a
/// second-level cache.
const BIN_BYTES: f64 = (384 << 10) as f64;
/// The most bins: the ends of all of them should be in that cache too.
const MOST_BINS: usize = 1 << 11;
/// Shelves of all bins, where there is enough for so many.
const SHELVES: usize = 16;
/// Bytes of a shelf, at the least.
const LEAST_SHELF: f64 = (16 << 20) as f64;
/// Pairs after which a thread tells the others how many it has, unless few are allowed.
const TELL: u64 = 1 << 16;
/// Bins that a thread writes in a row, where there are many: they are as large as a huge page,
/// which two threads would both clear if they came to it together.
const TOGETHER: usize = 5;

/// Bytes that a neighbour takes, where pairs are found once: each pair, in the bin of one of its points
/// an id, and in that of the other an id with that point.
pub(crate) const NEIGHBOR_BYTES: u64 = 6;

/// How queries are divided.
#[derive(Clone, Copy, Debug)]
struct Shape {
    queries: usize,
    /// Queries of a bin, as a power of two.
    shift: u32,
    bins: usize,
    per_shelf: usize,
}

impl Shape {
    /// Bins for so many queries, the rows of which take so many bytes in all.
    fn new(queries: usize, bytes: f64) -> Self {
        let fit = BIN_BYTES / (bytes / queries.max(1) as f64).max(1.0);
        let least = queries.div_ceil(MOST_BINS).next_power_of_two();
        let shift = (fit.max(64.0) as usize).next_power_of_two().max(least).ilog2();
        let bins = queries.div_ceil(1 << shift);
        let shelves = ((bytes / LEAST_SHELF) as usize).clamp(1, SHELVES);
        Shape { queries, shift, bins, per_shelf: bins.div_ceil(shelves).max(1) }
    }

    fn shelves(&self) -> usize {
        self.bins.div_ceil(self.per_shelf)
    }

    /// The bin of a query, as a shelf and a place there.
    #[inline(always)]
    fn bin_of(&self, query: u32) -> (usize, usize) {
        self.place_of(query as usize >> self.shift)
    }

    #[inline(always)]
    fn place_of(&self, bin: usize) -> (usize, usize) {
        (bin / self.per_shelf, bin % self.per_shelf)
    }

    /// The queries of a bin.
    fn queries_of(&self, bin: usize) -> Range<usize> {
        bin << self.shift..self.queries.min((bin + 1) << self.shift)
    }
}

/// What one thread has of the bins of one shelf.
#[derive(Debug)]
struct Shelf<T> {
    /// Of each row its query and its length.
    heads: Lists<u32>,
    ids: Lists<u32>,
    distances: Lists<T>,
    /// A query, and another one that is to be in its row too.
    pairs: Lists<u32>,
}

impl<T: Scalar> Shelf<T> {
    /// Neighbours in a bin.
    fn len(&self, bin: usize) -> usize {
        self.ids.len(bin) + self.pairs.len(bin) / 2
    }

    fn bytes(&self) -> u64 {
        let Shelf { heads, ids, distances, pairs } = self;
        heads.bytes() + ids.bytes() + pairs.bytes() + distances.bytes()
    }

    /// Gives the memory back, to the system itself where it is much.
    fn release(self, discard: bool) {
        fn each<V: Zeroable>(lists: Lists<V>, discard: bool) {
            lists.into_arrays().into_iter().filter(|_| discard).for_each(Buffer::discard);
        }
        each(self.heads, discard);
        each(self.ids, discard);
        each(self.distances, discard);
        each(self.pairs, discard);
    }
}

/// What one thread has.
#[derive(Debug)]
struct Worker<T> {
    shelves: Vec<Shelf<T>>,
    /// Pairs that it has not told of.
    untold: u64,
}

/// Rows on their way into bins, of all threads.
pub(crate) struct Bins<T> {
    expected: Expected,
    shape: Shape,
    workers: Vec<Mutex<Worker<T>>>,
    pairs: AtomicU64,
    most: u64,
    refused: AtomicBool,
}

/// How many rows there will be in bins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) queries: usize,
    pub(crate) workers: usize,
    /// Neighbours of all queries.
    pub(crate) pairs: f64,
    /// Whether distances come with them.
    pub(crate) distances: bool,
    /// Whether each pair is found once, and belongs in both rows.
    pub(crate) once: bool,
    /// Whether every query is in its own row, beside what is found.
    pub(crate) own: bool,
}

/// How the lists of a thread on a shelf are laid out.
struct Grains {
    heads: Grain,
    ids: Grain,
    distances: Option<Grain>,
    pairs: Option<Grain>,
}

impl Expected {
    /// Bytes that the bins will take.
    pub(crate) fn bytes<T>(&self) -> f64 {
        let (shape, grains) = self.layout::<T>();
        let Grains { heads, ids, distances, pairs } = grains;
        let shelves = shape.shelves() * self.workers;
        let all = [Some(heads), Some(ids), distances, pairs].into_iter().flatten();
        all.map(|grain| grain.bytes(shape.per_shelf)).sum::<f64>() * shelves as f64
    }

    /// Shelves that they will stand on.
    pub(crate) fn shelves<T>(&self) -> usize {
        self.layout::<T>().0.shelves()
    }

    fn layout<T>(&self) -> (Shape, Grains) {
        let &Expected { queries, workers, pairs, distances, once, .. } = self;
        let neighbor = 4 + if distances { size_of::<T>() } else { 0 };
        let shape = Shape::new(queries, 8.0 * queries as f64 + pairs * neighbor as f64);
        let shelves = (shape.shelves() * workers).max(1) as f64;
        let grain = |elements: f64, width| Grain::new(shape.per_shelf, elements / shelves, width);
        let in_rows = if once { pairs / 2.0 } else { pairs };
        let grains = Grains {
            heads: grain(2.0 * queries as f64, 4),
            ids: grain(in_rows, 4),
            distances: distances.then(|| grain(in_rows, size_of::<T>())),
            pairs: once.then(|| grain(pairs, 4)),
        };
        (shape, grains)
    }
}

impl<T: Scalar> Bins<T> {
    /// Empty bins for at most so many neighbours that are found.
    pub(crate) fn new(expected: Expected, most: u64) -> Self {
        let (shape, grains) = expected.layout::<T>();
        let bins = shape.per_shelf;
        let shelf = || Shelf {
            heads: Lists::new(bins, grains.heads),
            ids: Lists::new(bins, grains.ids),
            distances: grains.distances.map_or_else(Lists::none, |grain| Lists::new(bins, grain)),
            pairs: grains.pairs.map_or_else(Lists::none, |grain| Lists::new(bins, grain)),
        };
        let worker =
            || Worker { shelves: (0..shape.shelves()).map(|_| shelf()).collect(), untold: 0 };
        Bins {
            expected,
            shape,
            workers: (0..expected.workers).map(|_| Mutex::new(worker())).collect(),
            pairs: AtomicU64::new(0),
            most,
            refused: AtomicBool::new(false),
        }
    }

    /// Copies rows of a thread; stops where they are too many, or memory is refused.
    pub(crate) fn keep(&self, rows: &Rows<'_, T>) -> ControlFlow<()> {
        self.within(rows, |worker| {
            for (at, &query) in rows.queries.iter().enumerate() {
                let (shelf, bin) = self.shape.bin_of(query);
                worker.shelves[shelf].keep(
                    bin,
                    query,
                    rows.neighbors.row(at),
                    rows.distances(at),
                )?;
            }
            Ok(())
        })
    }

    /// The same for rows in which each pair is once: it will be in both rows.
    pub(crate) fn keep_both(&self, rows: &Rows<'_, T>) -> ControlFlow<()> {
        self.within(rows, |worker| {
            for (at, &query) in rows.queries.iter().enumerate() {
                let neighbors = rows.neighbors.row(at);
                if neighbors.is_empty() {
                    continue;
                }
                let (shelf, bin) = self.shape.bin_of(query);
                worker.shelves[shelf].keep(bin, query, neighbors, None)?;
                for &neighbor in neighbors {
                    let (shelf, bin) = self.shape.bin_of(neighbor);
                    worker.shelves[shelf].pairs.append_two(bin, [neighbor, query])?;
                }
            }
            Ok(())
        })
    }

    fn within(
        &self,
        rows: &Rows<'_, T>,
        keep: impl FnOnce(&mut Worker<T>) -> Result<()>,
    ) -> ControlFlow<()> {
        // Each thread has a worker to itself.
        let mut worker = self.workers[rows.worker].lock().unwrap_or_else(|e| e.into_inner());
        worker.untold += rows.neighbors.total();
        let mut too_many = false;
        if worker.untold >= TELL.min(self.most / 8) {
            let untold = core::mem::take(&mut worker.untold);
            too_many = self.pairs.fetch_add(untold, Relaxed) + untold > self.most;
        }
        if too_many || keep(&mut worker).is_err() {
            self.refused.store(true, Relaxed);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// What was kept, if that is all.
    pub(crate) fn into_all(self) -> Option<Binned<T>> {
        if self.refused.into_inner() {
            return None;
        }
        let open =
            |worker: Mutex<Worker<T>>| worker.into_inner().unwrap_or_else(|e| e.into_inner());
        let mut shelves: Vec<Vec<Shelf<T>>> = Vec::new();
        shelves.resize_with(self.shape.shelves(), Vec::new);
        for worker in self.workers.into_iter().map(open) {
            shelves.iter_mut().zip(worker.shelves).for_each(|(all, one)| all.push(one));
        }
        let shelves = shelves.into_iter().map(|parts| Arc::new(Parts { parts })).collect();
        let Expected { once, own, .. } = self.expected;
        Some(Binned { shape: self.shape, once, own, shelves })
    }
}

impl<T: Scalar> Shelf<T> {
    #[inline]
    fn keep(&mut self, bin: usize, query: u32, ids: &[u32], distances: Option<&[T]>) -> Result<()> {
        self.heads.append_two(bin, [query, ids.len() as u32])?;
        self.ids.append(bin, ids)?;
        distances.map_or(Ok(()), |distances| self.distances.append(bin, distances))
    }
}

/// All rows, in bins.
pub(crate) struct Binned<T> {
    shape: Shape,
    /// Whether there are single pairs too.
    once: bool,
    /// Whether every query is in its own row, beside what is in the bins.
    own: bool,
    shelves: Vec<Arc<Parts<T>>>,
}

/// What all threads have of the bins of a shelf.
struct Parts<T> {
    parts: Vec<Shelf<T>>,
}

/// The places of the rows of some consecutive queries.
pub(crate) struct Places<'a, T> {
    /// The first of them.
    pub(crate) first: usize,
    /// Where each row begins, and the end.
    pub(crate) offsets: &'a [u64],
    pub(crate) ids: &'a mut [u32],
    pub(crate) distances: Option<&'a mut [T]>,
}

/// Some bins of a shelf.
struct Task<'a, T> {
    bins: Range<usize>,
    shelf: Arc<Parts<T>>,
    /// Where their rows belong.
    places: Places<'a, T>,
}

impl<T: Scalar> Binned<T> {
    /// Bytes that the bins take.
    pub(crate) fn bytes(&self) -> u64 {
        self.shelves.iter().flat_map(|shelf| &shelf.parts).map(Shelf::bytes).sum()
    }

    /// Neighbours of the queries of a bin.
    fn len(&self, bin: usize) -> u64 {
        let own = if self.own { self.shape.queries_of(bin).len() as u64 } else { 0 };
        let (shelf, place) = self.shape.place_of(bin);
        own + self.shelves[shelf].parts.iter().map(|part| part.len(place) as u64).sum::<u64>()
    }

    /// Makes `ends` the ends of all rows.
    pub(crate) fn ends(&self, ends: &mut [u64]) {
        assert_eq!(ends.len(), self.shape.queries);
        let mut end = 0;
        let mut starts = Vec::with_capacity(self.shape.bins);
        for bin in 0..self.shape.bins {
            starts.push(end);
            end += self.len(bin);
        }
        let bins = ends.par_chunks_mut(1 << self.shape.shift).zip(starts).enumerate();
        bins.for_each(|(bin, (ends, start))| self.ends_of(bin, start, ends));
    }

    /// The same for one bin, the rows of which begin at `start`.
    fn ends_of(&self, bin: usize, start: u64, ends: &mut [u64]) {
        ends.fill(u64::from(self.own));
        let first = self.shape.queries_of(bin).start;
        let (shelf, place) = self.shape.place_of(bin);
        for part in &self.shelves[shelf].parts {
            for &[query, len] in part.heads.chunks(place) {
                ends[query as usize - first] += u64::from(len);
            }
            for &[query, _] in part.pairs.chunks(place) {
                ends[query as usize - first] += 1;
            }
        }
        let mut end = start;
        for length in ends {
            end += *length;
            *length = end;
        }
    }

    /// Puts all rows in their places, on all threads. `discard`: memory goes back to the system at
    /// once. `done` gets the rows of some queries when they are in their places.
    pub(crate) fn fill(
        self,
        pool: &Pool,
        places: Places<'_, T>,
        discard: bool,
        done: impl Fn(Places<'_, T>) + Sync,
    ) {
        let Binned { shape, once, own, .. } = self;
        let together = (shape.bins / (8 * pool.threads())).clamp(1, TOGETHER);
        let tasks: Vec<_> =
            self.tasks(places, together).into_iter().map(|task| Mutex::new(Some(task))).collect();
        let queue = Queue::new(&(0..tasks.len() as u32), 1);
        pool.each(|_| {
            let mut ends = Vec::new();
            while let Some(task) = queue.take() {
                let task = &tasks[task.start as usize];
                let task = task.lock().unwrap_or_else(|e| e.into_inner()).take();
                let Some(Task { bins, shelf, mut places }) = task else { continue };
                for place in bins.map(|bin| shape.place_of(bin).1) {
                    match once {
                        true => shelf.fill_both(place, &mut places, &mut ends),
                        false => shelf.fill(place, &mut places),
                    }
                }
                if own {
                    places.add_own(&mut ends);
                }
                ends.clear();
                done(places);
                // The last one has it to itself.
                let parts = Arc::into_inner(shelf).map(|shelf| shelf.parts);
                parts.into_iter().flatten().for_each(|part| part.release(discard));
            }
        });
    }

    /// Up to so many bins of a shelf at a time, with their places.
    fn tasks(self, places: Places<'_, T>, together: usize) -> Vec<Task<'_, T>> {
        let Binned { shape, shelves, .. } = self;
        let Places { offsets, ids: mut rest, distances: mut more, .. } = places;
        let mut tasks = Vec::new();
        for (at, shelf) in shelves.into_iter().enumerate() {
            let end = shape.bins.min((at + 1) * shape.per_shelf);
            for bin in (at * shape.per_shelf..end).step_by(together) {
                let bins = bin..end.min(bin + together);
                let first = shape.queries_of(bin).start;
                let offsets = &offsets[first..=shape.queries_of(bins.end - 1).end];
                let pairs = (offsets[offsets.len() - 1] - offsets[0]) as usize;
                let ids = rest.split_off_mut(..pairs).expect("offsets end where ids do");
                let distances = more.as_mut().map(|distances| {
                    distances.split_off_mut(..pairs).expect("a distance for each id")
                });
                let places = Places { first, offsets, ids, distances };
                tasks.push(Task { bins, shelf: Arc::clone(&shelf), places });
            }
        }
        tasks
    }

    /// Hands out the rows of bin after bin, on all threads, with the number of the thread, until
    /// somebody breaks off.
    pub(crate) fn hand_out(
        &self,
        pool: &Pool,
        emit: impl Fn(usize, Places<'_, T>) -> ControlFlow<()> + Sync,
    ) -> Result<()> {
        let queue = Queue::new(&(0..self.shape.bins as u32), 1);
        let results = pool.each(|worker| {
            let (mut offsets, mut ids, mut ends) = (Vec::new(), Vec::new(), Vec::new());
            while let Some(bin) = queue.take() {
                let bin = bin.start as usize;
                let queries = self.shape.queries_of(bin);
                let room = reserve(&mut offsets, queries.len() + 1)
                    .and_then(|()| reserve(&mut ids, self.len(bin) as usize));
                if let Err(error) = room {
                    queue.close();
                    return Err(error);
                }
                offsets.resize(queries.len() + 1, 0);
                ids.resize(self.len(bin) as usize, 0);
                self.ends_of(bin, 0, &mut offsets[1..]);
                let (first, offsets_of) = (queries.start, &offsets[..]);
                let mut places =
                    Places { first, offsets: offsets_of, ids: &mut ids, distances: None };
                let (shelf, place) = self.shape.place_of(bin);
                ends.clear();
                self.shelves[shelf].fill_both(place, &mut places, &mut ends);
                if self.own {
                    places.add_own(&mut ends);
                }
                if emit(worker, places).is_break() {
                    queue.close();
                }
                offsets.clear();
                ids.clear();
            }
            Ok(())
        });
        results.into_iter().collect()
    }
}

impl<T: Scalar> Parts<T> {
    /// Puts the rows of a bin in their places.
    fn fill(&self, bin: usize, places: &mut Places<'_, T>) {
        let Places { first, offsets, ids, distances } = places;
        let start = |query: u32| (offsets[query as usize - *first] - offsets[0]) as usize;
        for part in &self.parts {
            let mut from = Reader::new(part.ids.pieces(bin));
            for &[query, len] in part.heads.chunks(bin) {
                from.copy_to(&mut ids[start(query)..][..len as usize]);
            }
            let Some(distances) = distances else { continue };
            let mut from = Reader::new(part.distances.pieces(bin));
            for &[query, len] in part.heads.chunks(bin) {
                from.copy_to(&mut distances[start(query)..][..len as usize]);
            }
        }
    }

    /// The same for rows in pieces: `ends` are where those end that are there, of all rows.
    fn fill_both(&self, bin: usize, places: &mut Places<'_, T>, ends: &mut Vec<usize>) {
        places.begin(ends);
        for part in &self.parts {
            let mut from = Reader::new(part.ids.pieces(bin));
            for &[query, len] in part.heads.chunks(bin) {
                from.copy_to(places.next(query, len as usize, ends));
            }
            for &[query, other] in part.pairs.chunks(bin) {
                places.next(query, 1, ends)[0] = other;
            }
        }
    }
}

impl<T> Places<'_, T> {
    /// Makes `ends` the beginnings of all rows, unless some of them are there already.
    fn begin(&self, ends: &mut Vec<usize>) {
        if ends.is_empty() {
            let starts = &self.offsets[..self.offsets.len() - 1];
            ends.extend(starts.iter().map(|start| (start - self.offsets[0]) as usize));
        }
    }

    /// Room for so many neighbours behind those that a query has.
    fn next(&mut self, query: u32, len: usize, ends: &mut [usize]) -> &mut [u32] {
        let row = query as usize - self.first;
        let start = ends[row];
        ends[row] += len;
        assert!(ends[row] as u64 + self.offsets[0] <= self.offsets[row + 1], "a row is full");
        &mut self.ids[start..start + len]
    }

    /// Adds every query to its own row.
    fn add_own(&mut self, ends: &mut Vec<usize>) {
        self.begin(ends);
        for query in self.first..self.first + ends.len() {
            self.next(query as u32, 1, ends)[0] = query as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::flat::Flat;

    /// Rows of which each is a function of its query, from two threads, in no order.
    #[test]
    fn rows_come_to_their_places() {
        let row = |query: u32| (0..query * 7 % 40).map(move |i| (query * 100 + i, f64::from(i)));
        for queries in [0, 1, 63, 64, 65, 1000, 30_000u32] {
            for (distances, discard) in [(false, false), (true, true)] {
                let (workers, pairs) = (2, f64::from(queries) * 20.0);
                let queries_len = queries as usize;
                let expected = Expected {
                    queries: queries_len,
                    workers,
                    pairs,
                    distances,
                    once: false,
                    own: false,
                };
                let bins = Bins::<f64>::new(expected, u64::MAX);
                for at in 0..queries {
                    // 7919 shares no factor with any of the numbers of queries.
                    let query = (u64::from(at) * 7919 % u64::from(queries)) as u32;
                    let mut flat = Flat::empty(distances);
                    flat.push(query, row(query));
                    assert!(bins.keep(&flat.rows(at as usize % 2)).is_continue());
                }
                let binned = bins.into_all().unwrap();
                let mut offsets = vec![0; queries_len + 1];
                binned.ends(&mut offsets[1..]);
                let pairs = offsets[queries_len] as usize;
                let (mut ids, mut found) = (vec![0; pairs], vec![0.0; pairs]);
                let pool = Pool::new(Some(2)).unwrap();
                let places = Places {
                    first: 0,
                    offsets: &offsets,
                    ids: &mut ids,
                    distances: distances.then_some(&mut found[..]),
                };
                binned.fill(&pool, places, discard, |_| ());
                for query in 0..queries {
                    let range =
                        offsets[query as usize] as usize..offsets[query as usize + 1] as usize;
                    assert!(row(query).map(|(id, _)| id).eq(ids[range.clone()].iter().copied()));
                    assert!(
                        !distances || row(query).map(|(_, d)| d).eq(found[range].iter().copied())
                    );
                }
            }
        }
    }

    #[test]
    fn pairs_come_to_both_rows() {
        let queries = 5000;
        for own in [false, true] {
            let expected = Expected {
                queries,
                workers: 1,
                pairs: 4.0 * queries as f64,
                distances: false,
                once: true,
                own,
            };
            let bins = Bins::<f32>::new(expected, u64::MAX);
            // Each with the next two.
            for query in 0..queries as u32 - 2 {
                let mut flat = Flat::empty(false);
                flat.push(query, [(query + 1, 0.0), (query + 2, 0.0)].into_iter());
                assert!(bins.keep_both(&flat.rows(0)).is_continue());
            }
            let binned = bins.into_all().unwrap();
            let pool = Pool::new(Some(3)).unwrap();
            let seen = Mutex::new(vec![Vec::new(); queries]);
            let note = |_: usize, places: Places<'_, f32>| {
                for (at, ends) in places.offsets.windows(2).enumerate() {
                    let mut row = places.ids[ends[0] as usize..ends[1] as usize].to_vec();
                    row.sort_unstable();
                    seen.lock().unwrap()[places.first + at] = row;
                }
                ControlFlow::Continue(())
            };
            binned.hand_out(&pool, note).unwrap();
            let seen = seen.into_inner().unwrap();
            let mut offsets = vec![0; queries + 1];
            binned.ends(&mut offsets[1..]);
            let mut ids = vec![0; offsets[queries] as usize];
            let places = Places { first: 0, offsets: &offsets, ids: &mut ids, distances: None };
            binned.fill(&pool, places, false, |places| places.ids.sort_unstable());
            for (query, row) in seen.iter().enumerate().take(queries - 4).skip(2) {
                let mut expected = vec![query - 2, query - 1, query + 1, query + 2];
                if own {
                    expected.insert(2, query);
                }
                assert!(expected.iter().map(|&id| id as u32).eq(row.iter().copied()));
            }
            assert_eq!(ids.len(), seen.iter().map(Vec::len).sum::<usize>());
        }
    }

    #[test]
    fn too_many_are_not_kept() {
        let expected = Expected {
            queries: 10,
            workers: 1,
            pairs: 10.0,
            distances: false,
            once: false,
            own: false,
        };
        let bins = Bins::<f64>::new(expected, TELL);
        let mut flat = Flat::empty(false);
        flat.push(3, (0..TELL as u32).map(|id| (id, 0.0)));
        assert!(bins.keep(&flat.rows(0)).is_continue());
        assert!(bins.keep(&flat.rows(0)).is_break());
        assert!(bins.into_all().is_none());
    }
}
