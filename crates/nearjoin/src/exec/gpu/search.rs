//! What a search for the nearest is told: the host's side of `Search` in `nearest.cuh`.

use nearjoin_kernels::{Family, Module};

use super::device::{Array, Stage};
use super::driver::{Args, Result};
use super::halves::Halved;
use super::job::{float, norm, weight};
use super::scores::Shortlists;
use super::tree::{BLOCK, Tree, WORDS};
use crate::metric::Threshold;
use crate::plan::Shortlisting;
use crate::scalar::Scalar;

/// Bytes of the keys of the largest k of which the best are kept in registers.
const IN_REGISTERS: usize = 256;
/// Threads of a block that searches, and of one that compares all with all.
const THREADS: u32 = 128;
const BRUTE_THREADS: u32 = 256;
/// Queries that a block of brute force takes: `TILE` of `nearest.cu`.
const TILE: u64 = 64;
/// Queries that are looked for at a time, one to a warp, for each multiprocessor; and blocks of
/// brute force.
const WARPS: u64 = 32;
const BRUTE_BLOCKS: u64 = 4;
/// Bytes of the room for candidates, at the most, unless a single worker needs more.
const ROOM: u64 = 2 << 30;

/// Points on the device, to be searched or to be asked for.
pub(super) enum Side<T> {
    /// In leaves.
    Tree(Tree<T>),
    /// As they were given; `ids` is what their rows are called, where not by their numbers. Rounded too,
    /// where products score them.
    Rows { points: Array<T>, ids: Option<Array<u32>>, len: usize, halved: Option<Halved> },
}

impl<T> Side<T> {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Side::Tree(tree) => tree.bytes(),
            Side::Rows { points, ids, halved, .. } => {
                let halved = halved.as_ref().map_or(0, Halved::bytes);
                points.bytes() + ids.as_ref().map_or(0, Array::bytes) + halved
            }
        }
    }

    /// The units that queries can be cut into: how many there are before each, and in all.
    pub(super) fn places(&self) -> Places<'_> {
        match self {
            Side::Tree(tree) => Places::Blocks(tree.blocks()),
            Side::Rows { len, .. } => Places::Each(*len),
        }
    }
}

/// Where queries can be cut into batches.
#[derive(Clone, Copy, Debug)]
pub(super) enum Places<'a> {
    /// At the beginnings of blocks.
    Blocks(&'a [u32]),
    /// Anywhere.
    Each(usize),
}

impl Places<'_> {
    /// The end of a batch that begins at a unit and has about `rows` queries at the most, or one
    /// unit; as a unit.
    pub(super) fn batch(&self, from: usize, rows: usize) -> usize {
        match *self {
            Places::Each(len) => len.min(from + rows.max(1)),
            Places::Blocks(begins) => {
                let most = begins[from] as usize + rows;
                let fits = begins[from + 1..].partition_point(|&end| end as usize <= most);
                from + fits.max(1)
            }
        }
    }

    /// Units in all.
    pub(super) fn units(&self) -> usize {
        match *self {
            Places::Each(len) => len,
            Places::Blocks(begins) => begins.len() - 1,
        }
    }

    /// Queries in all.
    pub(super) fn all(&self) -> usize {
        self.before(self.units())
    }

    /// Queries before a unit.
    pub(super) fn before(&self, unit: usize) -> usize {
        match *self {
            Places::Each(_) => unit,
            Places::Blocks(begins) => begins[unit] as usize,
        }
    }

    /// The most queries of a unit.
    pub(super) fn largest(&self) -> usize {
        match *self {
            Places::Each(_) => 1,
            Places::Blocks(begins) => {
                begins.windows(2).map(|ends| (ends[1] - ends[0]) as usize).max().unwrap_or(0)
            }
        }
    }
}

/// How rows lie in the pieces that cross the bus: `Answer` of `nearest.cuh`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) k: usize,
    pub(super) rows_per_piece: usize,
    pub(super) piece_bytes: usize,
    /// 0 where the numbers of queries are not wanted, or distances.
    pub(super) ids_at: usize,
    pub(super) distances_at: usize,
    /// Whether what was added up is wanted in place of distances.
    pub(super) raw: bool,
}

/// What there is of a row beside the ids of its neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wants {
    /// The number of the query.
    pub(super) numbers: bool,
    pub(super) distances: bool,
    /// Whether distances are what was added up.
    pub(super) raw: bool,
}

/// Rows begin where 16 bytes can be written at once, and arrays at whole lines.
const LINE: usize = 128;

impl Layout {
    /// Pieces of at most `bytes`, unless a row is longer.
    pub(super) fn new<T: Scalar>(k: usize, wants: Wants, bytes: usize) -> Self {
        let number = if wants.numbers { 4 } else { 0 };
        let distance = if wants.distances { size_of::<T>() } else { 0 };
        let row = number + k * (4 + distance);
        let rows_per_piece = (bytes.saturating_sub(3 * LINE) / row).max(1);
        let ids_at = (number * rows_per_piece).next_multiple_of(LINE);
        let behind = (ids_at + 4 * k * rows_per_piece).next_multiple_of(LINE);
        let piece_bytes = (behind + distance * k * rows_per_piece).next_multiple_of(LINE);
        let distances_at = if wants.distances { behind } else { 0 };
        Layout { k, rows_per_piece, piece_bytes, ids_at, distances_at, raw: wants.raw }
    }

    /// Pieces of so many rows.
    pub(super) fn pieces(&self, rows: usize) -> usize {
        rows.div_ceil(self.rows_per_piece)
    }
}

/// What is asked, of whom.
pub(super) struct Search<'a, T> {
    pub(super) left: &'a Side<T>,
    /// What the queries are called in the right input, where not by their numbers.
    pub(super) names: Option<&'a Array<u32>>,
    pub(super) right: &'a Side<T>,
    pub(super) dim: usize,
    pub(super) arithmetic: Threshold<T>,
    pub(super) exclude_self: bool,
    pub(super) layout: Layout,
    pub(super) multiprocessors: u32,
    /// How candidates come on shortlists, where products score them.
    pub(super) shortlisting: Option<Shortlisting>,
}

/// Memory of a batch.
pub(super) struct Room<T> {
    pub(super) pieces: Array<u8>,
    /// Keys of rows that are not in order yet.
    rows: Option<Array<u8>>,
    waiting: Option<Array<u8>>,
    workers: u64,
    tests: Array<u64>,
    scalar: core::marker::PhantomData<T>,
}

impl<T: Scalar> Search<'_, T> {
    /// Whether rows stand by the numbers of the queries, which are then not with them: there is one batch
    /// of all.
    pub(super) fn in_order(&self) -> bool {
        self.layout.ids_at == 0
    }

    /// Whether the best of a query are kept in registers, and its row is written in order.
    pub(super) fn in_registers(&self) -> bool {
        let width = nearjoin_kernels::width(norm(self.arithmetic.metric), self.dim);
        let in_leaves = matches!((self.left, self.right), (Side::Tree(_), Side::Tree(_)));
        in_leaves && width > 0 && self.layout.k * key_bytes::<T>() <= IN_REGISTERS
    }

    /// Keys that a row has room for until it is in order: a power of two where they are too many to
    /// be put in order in shared memory.
    fn row_room(&self) -> usize {
        let k = self.layout.k;
        if k * key_bytes::<T>() > 1 << 15 { k.next_power_of_two() } else { k }
    }

    /// Bytes of device memory for each row of a batch.
    pub(super) fn row_bytes(&self) -> usize {
        let piece = self.layout.piece_bytes.div_ceil(self.layout.rows_per_piece);
        piece + if self.in_registers() { 0 } else { self.row_room() * key_bytes::<T>() }
    }

    /// Candidates that wait for each query.
    fn waiting_room(&self) -> usize {
        match self.shortlisting {
            Some(lists) => lists.room,
            None => 2 * self.layout.k.max(64) + TILE as usize,
        }
    }

    /// Memory for batches of so many rows.
    pub(super) fn room(&self, stage: &Stage, rows: usize) -> Result<Room<T>> {
        let pieces = stage.array(self.layout.pieces(rows) * self.layout.piece_bytes)?;
        let tests = stage.zeroed(1)?;
        let scalar = core::marker::PhantomData;
        if self.in_registers() {
            return Ok(Room { pieces, rows: None, waiting: None, workers: 0, tests, scalar });
        }
        let (workers, bytes) = self.workers(rows);
        Ok(Room {
            pieces,
            rows: Some(stage.array(rows * self.row_room() * key_bytes::<T>())?),
            waiting: Some(stage.array(bytes)?),
            workers,
            tests,
            scalar,
        })
    }

    /// Whether every query is searched for by a warp, and not some by a block.
    fn by_warps(&self) -> bool {
        matches!(self.left, Side::Tree(_)) || self.shortlisting.is_some()
    }

    /// Workers for so many queries, and bytes for the candidates that wait for them.
    fn workers(&self, queries: usize) -> (u64, usize) {
        let bytes = (self.waiting_room() * key_bytes::<T>()) as u64;
        let (here, queries) = (u64::from(self.multiprocessors), queries as u64);
        // A worker is a warp, or a block that has room for as many queries as a tile.
        let (workers, each) = match self.by_warps() {
            true => ((here * WARPS).min(queries), bytes),
            false => ((here * BRUTE_BLOCKS).min(queries.div_ceil(TILE)), bytes * TILE),
        };
        let workers = workers.min(ROOM / each).max(1);
        // Warps come in blocks.
        let workers = match self.by_warps() {
            true => workers.next_multiple_of(u64::from(THREADS / 32)),
            false => workers,
        };
        (workers, (workers * each) as usize)
    }

    /// Finds the nearest of the queries of some units; in these lists, where products score candidates.
    pub(super) fn run(
        &self,
        stage: &Stage,
        room: &Room<T>,
        units: core::ops::Range<usize>,
        lists: Option<&Shortlists>,
    ) -> Result<()> {
        let places = self.left.places();
        let first_place = places.before(units.start);
        let rows = (places.before(units.end) - first_place) as u64;
        let scale = match self.left {
            Side::Tree(_) => BLOCK,
            Side::Rows { .. } => 1,
        };
        let (first, end) = ((units.start * scale) as u64, (units.end * scale) as u64);
        let words = self.words(room, first, end, first_place as u64);
        let norm = norm(self.arithmetic.metric);
        let module = Module::join(Family::Nearest, float::<T>(), norm, self.dim);
        let args = || Args::new().structure(&words);
        if self.in_registers() {
            let name = match self.layout.k {
                0..=8 => "nearest_8",
                9..=16 => "nearest_16",
                _ => "nearest_32",
            };
            let blocks = (end - first).div_ceil(u64::from(THREADS));
            return stage.launch_blocks(module, name, blocks, THREADS, args());
        }
        // What any dimension has in common.
        let common = Module::join(Family::Nearest, float::<T>(), norm, usize::MAX);
        let blocks = room.workers / u64::from(THREADS / 32);
        match (self.left, lists) {
            (Side::Tree(_), _) => {
                stage.launch_blocks(module, "nearest_any", blocks, THREADS, args())?;
            }
            (Side::Rows { .. }, Some(lists)) => {
                let (module, args) = (shortlist::<T>(), args().structure(&lists.words(None)));
                stage.launch_blocks(module, "measure", blocks, THREADS, args)?;
            }
            (Side::Rows { .. }, None) => {
                stage.launch_blocks(
                    common,
                    "nearest_brute",
                    room.workers,
                    BRUTE_THREADS,
                    args(),
                )?;
            }
        }
        let threads = (self.layout.k as u32 / 2).next_power_of_two().clamp(32, 512);
        let blocks = rows.min(1 << 30);
        stage.launch_blocks(common, "nearest_rows", blocks, threads, args().u64(rows))
    }

    /// Asks some queries, whose lists are too long, how far their nearest may be by what there was room for.
    pub(super) fn tighten(
        &self,
        stage: &Stage,
        lists: &Shortlists,
        asked: (&Array<u32>, usize, &Array<f64>),
    ) -> Result<()> {
        let (workers, bytes) = self.workers(asked.1);
        let room = Room {
            pieces: stage.array(0)?,
            rows: None,
            waiting: Some(stage.array(bytes)?),
            workers,
            tests: stage.zeroed(1)?,
            scalar: core::marker::PhantomData,
        };
        let args = Args::new().structure(&self.words(&room, 0, 0, 0));
        let args = args.structure(&lists.words(Some(asked)));
        let blocks = workers / u64::from(THREADS / 32);
        stage.launch_blocks(shortlist::<T>(), "measure", blocks, THREADS, args)
    }

    /// Distances computed by the batches of some memory since this was last asked.
    pub(super) fn take_tests(&self, stage: &Stage, room: &Room<T>) -> Result<u64> {
        let tests = stage.read(&room.tests, 0..1)?[0];
        stage.fill(room.tests.piece(0..1), 0)?;
        Ok(tests)
    }

    fn words(&self, room: &Room<T>, first: u64, end: u64, first_place: u64) -> Vec<u64> {
        let names = self.names.map_or(0, Array::address);
        let mut words = match self.left {
            Side::Tree(tree) => {
                let places = if self.in_order() { 0 } else { tree.places() };
                vec![tree.points(), tree.ids(), names, places]
            }
            Side::Rows { points, .. } => vec![points.address(), 0, names, 0],
        };
        words.extend([first, end, first_place]);
        match self.right {
            Side::Tree(tree) => {
                words.extend([tree.points(), tree.ids(), 0]);
                words.extend(tree.level_words());
            }
            Side::Rows { points, ids, len, .. } => {
                words.extend([points.address(), ids.as_ref().map_or(0, Array::address)]);
                words.push(*len as u64);
                words.extend([0; WORDS]);
            }
        }
        let arithmetic = &self.arithmetic;
        words.extend([self.dim as u64, weight(arithmetic.metric).to_bits()]);
        words.extend([arithmetic.bound.to_f64().to_bits(), u64::from(self.exclude_self)]);
        let layout = &self.layout;
        words.extend([layout.k as u64, room.pieces.address(), layout.rows_per_piece as u64]);
        words.extend([layout.piece_bytes as u64, layout.ids_at as u64]);
        words.extend([layout.distances_at as u64, u64::from(layout.raw), layout.k as u64]);
        let address = |array: &Option<Array<u8>>| array.as_ref().map_or(0, Array::address);
        words.extend([address(&room.rows), self.row_room() as u64]);
        words.extend([address(&room.waiting), self.waiting_room() as u64, room.tests.address()]);
        words
    }
}

fn shortlist<T: Scalar>() -> Module {
    Module::Shortlist(float::<T>())
}

/// Bytes of `Key` of `keys.cuh`.
fn key_bytes<T>() -> usize {
    2 * size_of::<T>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_hold_whole_rows() {
        for (k, distances, bytes) in [(1, false, 1), (8, true, 1 << 20), (5000, true, 100)] {
            let wants = Wants { numbers: true, distances, raw: false };
            let layout = Layout::new::<f64>(k, wants, bytes);
            let ids = layout.ids_at + 4 * k * layout.rows_per_piece;
            assert!(
                layout.ids_at >= 4 * layout.rows_per_piece && layout.ids_at.is_multiple_of(LINE)
            );
            assert_eq!(layout.distances_at > 0, distances);
            assert!(layout.piece_bytes >= ids && layout.piece_bytes.is_multiple_of(LINE));
            assert!(!distances || layout.distances_at >= ids);
            assert_eq!((layout.pieces(0), layout.pieces(layout.rows_per_piece + 1)), (0, 2));
            let without = Layout::new::<f64>(k, Wants { numbers: false, ..wants }, bytes);
            assert_eq!(without.ids_at, 0);
            assert!(without.rows_per_piece >= layout.rows_per_piece);
        }
    }

    #[test]
    fn batches_end_where_units_do() {
        let begins = [0, 10, 30, 35, 80];
        let blocks = Places::Blocks(&begins);
        assert_eq!((blocks.units(), blocks.largest(), blocks.before(3)), (4, 45, 35));
        assert_eq!([0, 5, 10, 30, 100].map(|rows| blocks.batch(0, rows)), [1, 1, 1, 2, 4]);
        assert_eq!(blocks.batch(3, 1), 4);
        assert_eq!(Places::Each(7).batch(5, 4), 7);
        assert_eq!(Places::Each(7).batch(0, 0), 1);
    }
}
