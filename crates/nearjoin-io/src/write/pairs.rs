//! Pairs as a table, streamed while they are found.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use arrow_select::take::take;
use nearjoin::Scalar;
use nearjoin::sink::Block;

use super::Written;
use super::columns;
use super::ids::plain;
use super::parquet::Style;
use super::table::{Rows, Sizes, Table, TableFormat};
use super::target::Target;
use crate::error::{Error, Result};
use crate::format::OutputFormat;

/// What a table of pairs holds, and what writing it may use.
#[derive(Clone, Debug)]
pub struct PairColumns {
    /// What names the left points, one value for each. `None`: their row numbers.
    pub left: Option<ArrayRef>,
    /// What names the right points. In a self-join, the same as `left`.
    pub right: Option<ArrayRef>,
    /// Whether there is a column of ranks: 1 for the first of each left point's neighbours,
    /// in the order in which they are handed in, 2 for the next.
    pub rank: bool,
    /// Whether there is a column of distances.
    pub distances: bool,
    /// Whether each pair of a self-join is handed in once, under either of its points: the
    /// smaller row number then stands left.
    pub half: bool,
    /// Bytes that may be used for pairs that are not in the file yet.
    pub memory: u64,
    /// Threads that encode. 0: as many as the machine has cores.
    pub threads: usize,
}

impl Default for PairColumns {
    /// Row numbers, no ranks, no distances, both directions, 256 MiB, all cores.
    fn default() -> Self {
        PairColumns {
            left: None,
            right: None,
            rank: false,
            distances: false,
            half: false,
            memory: 256 << 20,
            threads: 0,
        }
    }
}

/// Writes pairs as a table with the columns `left`, `right` and, if asked for, `rank` and
/// `distance`, in the order in which they are handed in.
///
/// The calling thread only copies; other threads encode and write, and the caller waits
/// when they are behind. Dropped before [`finish`](PairWriter::finish), it leaves no file.
///
/// ```
/// use std::ops::ControlFlow;
/// use nearjoin::{EpsJoin, Points, sink::{Block, Callback}};
/// use nearjoin_io::OutputFormat;
/// use nearjoin_io::write::{PairColumns, PairWriter, Target};
///
/// let path = std::env::temp_dir().join("nearjoin-pairs.csv");
/// let columns = PairColumns { distances: true, ..PairColumns::default() };
/// let mut writer = PairWriter::new(Target::create(&path)?, OutputFormat::Csv, columns)?;
///
/// let points = Points::new(&[0.0, 0.5, 9.0], 1)?;
/// let mut failure = None;
/// let mut sink = Callback::new(|block: &Block<f64>| match writer.block(block) {
///     Ok(()) => ControlFlow::Continue(()),
///     Err(error) => {
///         failure = Some(error);
///         ControlFlow::Break(())
///     }
/// });
/// EpsJoin::new(1.0).plan_self(&points)?.run(&mut sink.distances(true))?;
/// assert_eq!(writer.finish()?.pairs, 2);
/// assert_eq!(std::fs::read_to_string(&path)?, "left,right,distance\n0,1,0.5\n1,0,0.5\n");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PairWriter<T: Scalar> {
    table: Table<Pairs<T>>,
    filling: Pairs<T>,
    /// Pairs in a batch.
    most: usize,
    pairs: u64,
}

impl<T: Scalar> PairWriter<T> {
    /// A table in `target`.
    ///
    /// # Errors
    /// If the format has no tables or cannot hold the ids, or the file cannot be written.
    pub fn new(target: Target, format: OutputFormat, columns: PairColumns) -> Result<Self> {
        let format = TableFormat::of(format, &target)?;
        let PairColumns { left, right, rank, distances, half, memory, threads } = columns;
        let mut styles = Vec::new();
        let mut fields = Vec::new();
        // What a pair takes: as it was handed in, at worst as the only one of its point, as
        // columns, and encoded.
        let scalar = if distances { size_of::<T>() } else { 0 };
        let mut row_bytes = size_of::<Run>() + size_of::<u32>() + scalar;
        let mut names = Vec::new();
        for (ids, name) in [(left, "left"), (right, "right")] {
            let ids = ids.map(|ids| plain(ids, name, format, &target)).transpose()?;
            let (data_type, bytes, style) = match &ids {
                None => (DataType::UInt32, size_of::<u32>(), Style::RowNumbers),
                Some(ids) => {
                    let bytes = ids.get_buffer_memory_size().div_ceil(ids.len().max(1));
                    (ids.data_type().clone(), bytes, Style::Values)
                }
            };
            let nullable = ids.as_ref().is_some_and(|ids| ids.null_count() > 0);
            fields.push(Field::new(name, data_type, nullable));
            styles.push(style);
            row_bytes += 2 * bytes;
            names.push(ids);
        }
        if rank {
            fields.push(Field::new("rank", DataType::UInt32, false));
            styles.push(Style::RowNumbers);
            row_bytes += 2 * size_of::<u32>();
        }
        if distances {
            fields.push(Field::new("distance", columns::data_type::<T>(), false));
            styles.push(Style::Reals);
            row_bytes += 2 * scalar;
        }
        let names: Arc<[Option<ArrayRef>; 2]> = match <[_; 2]>::try_from(names) {
            Ok(names) => Arc::new(names),
            Err(_) => unreachable!("there are two sides"),
        };
        if format == TableFormat::Csv {
            // Digits take more than numbers.
            row_bytes += 12 * fields.len();
        }
        let sizes = Sizes::within(format, fields.len(), row_bytes, threads, memory);
        let schema = Arc::new(Schema::new(fields));
        let table = Table::start(target, format, schema, &styles, sizes)?;
        let filling = Pairs {
            names,
            half,
            ranked: rank,
            with_distances: distances,
            runs: Vec::new(),
            neighbors: Vec::new(),
            distances: Vec::new(),
        };
        Ok(PairWriter { table, filling, most: sizes.rows, pairs: 0 })
    }

    /// Adds a block of rows, as a [`Callback`](nearjoin::sink::Callback) gets it.
    ///
    /// # Errors
    /// With the first thing that went wrong since the last call. Nothing can be written
    /// after that.
    ///
    /// # Panics
    /// If there is to be a column of distances and the block has none.
    pub fn block(&mut self, block: &Block<T>) -> Result<()> {
        let distances = self.filling.with_distances.then_some(block.distances);
        self.append(|row| block.queries[row], block.offsets, block.neighbors, distances)
    }

    /// Adds the rows `first`, `first + 1`, … of a CSR matrix: row `i` of them has the next
    /// `offsets[i + 1] - offsets[i]` ids. `ids` and `distances` are those of these rows
    /// alone, so `offsets` may begin anywhere.
    ///
    /// # Errors
    /// As for [`block`](PairWriter::block).
    ///
    /// # Panics
    /// If the slices do not have the lengths that `offsets` say, or there is to be a column
    /// of distances and there are none.
    pub fn rows(
        &mut self,
        first: u32,
        offsets: &[u64],
        ids: &[u32],
        distances: Option<&[T]>,
    ) -> Result<()> {
        let distances = distances.filter(|_| self.filling.with_distances);
        self.append(|row| first + row as u32, offsets, ids, distances)
    }

    fn append(
        &mut self,
        query: impl Fn(usize) -> u32,
        offsets: &[u64],
        ids: &[u32],
        distances: Option<&[T]>,
    ) -> Result<()> {
        let (Some(begin), Some(end)) = (offsets.first(), offsets.last()) else { return Ok(()) };
        assert_eq!(end - begin, ids.len() as u64, "as many ids as the offsets say");
        if self.filling.with_distances {
            let distances = distances.map(<[T]>::len);
            assert_eq!(distances, Some(ids.len()), "as many distances as ids");
        }
        let mut copied = 0;
        let mut at = 0;
        for (row, ends) in offsets[1..].iter().enumerate() {
            let (row_begin, row_end) = (at, (ends - begin) as usize);
            while at < row_end {
                let room = self.most - self.filling.neighbors.len() - (at - copied);
                let step = room.min(row_end - at);
                if self.filling.runs.try_reserve(1).is_err() {
                    return Err(no_memory());
                }
                self.filling.runs.push(Run {
                    query: query(row),
                    before: (at - row_begin) as u32,
                    count: step as u32,
                });
                at += step;
                if step == room {
                    self.copy(copied..at, ids, distances)?;
                    copied = at;
                    self.send()?;
                }
            }
        }
        self.copy(copied..at, ids, distances)
    }

    fn copy(
        &mut self,
        range: core::ops::Range<usize>,
        ids: &[u32],
        distances: Option<&[T]>,
    ) -> Result<()> {
        fn append<V: Copy>(to: &mut Vec<V>, values: &[V]) -> Result<()> {
            to.try_reserve(values.len()).map_err(|_| no_memory())?;
            to.extend_from_slice(values);
            Ok(())
        }
        self.pairs += range.len() as u64;
        append(&mut self.filling.neighbors, &ids[range.clone()])?;
        distances.map_or(Ok(()), |all| append(&mut self.filling.distances, &all[range]))
    }

    /// Queues what was filled.
    fn send(&mut self) -> Result<()> {
        let empty = match self.table.spare() {
            Some(mut spare) => {
                spare.runs.clear();
                spare.neighbors.clear();
                spare.distances.clear();
                spare
            }
            None => Pairs {
                names: Arc::clone(&self.filling.names),
                runs: Vec::new(),
                neighbors: with_capacity(self.most)?,
                distances: match self.filling.with_distances {
                    true => with_capacity(self.most)?,
                    false => Vec::new(),
                },
                ..self.filling
            },
        };
        self.table.push(core::mem::replace(&mut self.filling, empty))
    }

    /// Completes the file.
    ///
    /// # Errors
    /// With the first thing that went wrong since the last call.
    pub fn finish(mut self) -> Result<Written> {
        if !self.filling.neighbors.is_empty() {
            self.send()?;
        }
        let bytes = self.table.finish()?;
        Ok(Written { pairs: self.pairs, bytes })
    }
}

fn with_capacity<V>(len: usize) -> Result<Vec<V>> {
    let mut room = Vec::new();
    room.try_reserve_exact(len).map_err(|_| no_memory())?;
    Ok(room)
}

fn no_memory() -> Error {
    super::target::refused("the result", "written", std::io::ErrorKind::OutOfMemory.into())
}

/// A batch of pairs as they were handed in.
struct Pairs<T> {
    /// What names the points of either side.
    names: Arc<[Option<ArrayRef>; 2]>,
    half: bool,
    ranked: bool,
    with_distances: bool,
    runs: Vec<Run>,
    neighbors: Vec<u32>,
    distances: Vec<T>,
}

/// How many of the neighbours in a batch are those of one left point.
struct Run {
    query: u32,
    /// Neighbours of that point in the batches before.
    before: u32,
    count: u32,
}

impl<T: Scalar> Pairs<T> {
    /// Row numbers of one side of all pairs.
    fn side(&self, side: usize) -> Vec<u32> {
        if side == 1 && !self.half {
            return self.neighbors.clone();
        }
        let mut rows = Vec::with_capacity(self.neighbors.len());
        let mut rest = &self.neighbors[..];
        for &Run { query, count, .. } in &self.runs {
            let (neighbors, after) = rest.split_at(count as usize);
            rest = after;
            match (self.half, side) {
                (false, _) => rows.resize(rows.len() + neighbors.len(), query),
                (true, 0) => rows.extend(neighbors.iter().map(|&id| id.min(query))),
                (true, _) => rows.extend(neighbors.iter().map(|&id| id.max(query))),
            }
        }
        rows
    }

    fn ranks(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().flat_map(|run| run.before + 1..run.before + 1 + run.count)
    }
}

impl<T: Scalar> Rows for Pairs<T> {
    fn column(&self, column: usize) -> Result<ArrayRef, ArrowError> {
        let Some(names) = self.names.get(column) else {
            return Ok(match column {
                2 if self.ranked => Arc::new(UInt32Array::from_iter_values(self.ranks())),
                _ => columns::array(self.distances.clone()),
            });
        };
        let rows = UInt32Array::from(self.side(column));
        match names {
            None => Ok(Arc::new(rows)),
            Some(names) => take(names, &rows, None),
        }
    }
}
