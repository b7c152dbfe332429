//! Points that the device cannot hold at once: overlapping parts of them, one after the other.
//!
//! As in the indexed nested-loop join (§4), queries are cut into slabs along one dimension,
//! and the candidates of a slab are all points up to the reach of ε beyond its sides. Every
//! query is in exactly one slab and meets all its neighbours there, so the answers of the
//! slabs together are the answer. Slabs that hold too many points still are cut again.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;

use rayon::prelude::*;

use super::driver::{self, Fault};
use super::epsilon::{GpuJoin, Ids, Setup};
use crate::error::{Error, Result};
use crate::exec::{Emit, Executor, Lists, Request, Rows, Work};
use crate::points::Points;
use crate::scalar::Scalar;
use crate::stats::GpuStats;

/// Sampled coordinates, of which the sides of slabs are quantiles.
const SAMPLE: usize = 1 << 16;
/// Slabs are cut in two at the most so many times: then one dimension cannot tell the points
/// apart.
const DEEPEST: usize = 40;

/// A join in parts.
pub(crate) struct Partitioned<'a, T> {
    setup: Setup<'a, T>,
    dim: usize,
    /// Where slabs begin, ascending: the first at −∞.
    sides: Vec<f64>,
    stats: Mutex<GpuStats>,
}

/// What is done with the join of a slab, and the rows of its queries.
type WorkOn<'a, T> = dyn FnMut(&GpuJoin<'_, T>, &[u32]) -> Result<Work> + 'a;

/// The queries of one slab.
#[derive(Clone, Copy, Debug)]
struct Slab {
    lo: f64,
    hi: f64,
}

/// Points of one slab, with their rows in the whole input.
struct Part<T> {
    data: Vec<T>,
    rows: Vec<u32>,
}

impl<'a, T: Scalar> Partitioned<'a, T> {
    pub(crate) fn new(setup: Setup<'a, T>, extents: &[(f64, f64)], parts: usize) -> Self {
        let widest = |a: &usize, b: &usize| {
            let extent = |j: usize| extents[j].1 - extents[j].0;
            extent(*a).total_cmp(&extent(*b))
        };
        let dim = (0..extents.len()).max_by(widest).unwrap_or(0);
        let step = setup.left.len().div_ceil(SAMPLE).max(1);
        let sample = (0..setup.left.len()).step_by(step);
        let mut sample: Vec<f64> = sample.map(|row| setup.left.row(row)[dim].to_f64()).collect();
        sample.sort_by(f64::total_cmp);
        let mut sides = vec![f64::NEG_INFINITY];
        sides.extend((1..parts).filter_map(|part| sample.get(part * sample.len() / parts)));
        sides.dedup();
        let device = setup.device.properties().name.clone();
        let stats = GpuStats { device, ..GpuStats::default() };
        Partitioned { setup, dim, sides, stats: Mutex::new(stats) }
    }

    pub(crate) fn stats(&self) -> GpuStats {
        self.stats.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Joins slab after slab. `work` gets the join of one, and the rows of its queries.
    fn each(&self, work: &mut WorkOn<'_, T>) -> Result<Work> {
        let mut total = Work::default();
        let ends = self.sides[1..].iter().copied().chain([f64::INFINITY]);
        let slabs = self.sides.iter().copied().zip(ends).map(|(lo, hi)| Slab { lo, hi });
        let mut waiting: Vec<(Slab, usize)> = slabs.map(|slab| (slab, 0)).collect();
        waiting.reverse();
        while let Some((slab, depth)) = waiting.pop() {
            if self.setup.monitor.is_some_and(|monitor| monitor.is_cancelled()) {
                return Err(Error::Cancelled);
            }
            let queries = self.part(self.setup.left, |x| slab.lo <= x && x < slab.hi);
            if queries.rows.is_empty() {
                continue;
            }
            let reach = self.setup.threshold.reach;
            let (lo, hi) = (slab.lo - reach, slab.hi + reach);
            let right = self.setup.right.unwrap_or(self.setup.left);
            let candidates = self.part(right, |x| lo <= x && x <= hi);
            let join = match self.join(&queries, &candidates) {
                Ok(join) => join,
                // Too large still: halves of it, if one dimension can tell them apart.
                Err(Fault::Memory { .. }) if depth < DEEPEST => {
                    let Some(middle) = self.middle(slab, &queries) else {
                        return Err(Fault::Memory { bytes: 0 }.into());
                    };
                    let halves = [Slab { lo: middle, ..slab }, Slab { hi: middle, ..slab }];
                    waiting.extend(halves.map(|half| (half, depth + 1)));
                    self.record(|stats| stats.splits += 1);
                    continue;
                }
                Err(fault) => return Err(fault.into()),
            };
            total += work(&join, &queries.rows)?;
            let part = join.stats();
            self.record(|stats| {
                stats.partitions += 1;
                stats.cooperation = part.cooperation;
                stats.threads_per_query = part.threads_per_query;
                stats.schedule = part.schedule;
                stats.batches += part.batches;
                stats.splits += part.splits;
                stats.bytes_in += part.bytes_in;
                stats.bytes_out += part.bytes_out;
                stats.chunk_bytes = stats.chunk_bytes.max(part.chunk_bytes);
                stats.predicted_seconds += part.predicted_seconds;
                stats.delivery_seconds += part.delivery_seconds;
            });
        }
        Ok(total)
    }

    /// Indexes the candidates of a slab beside its queries.
    fn join<'b>(
        &'b self,
        queries: &'b Part<T>,
        candidates: &'b Part<T>,
    ) -> driver::Result<GpuJoin<'b, T>> {
        let share = queries.rows.len() as f64 / self.setup.left.len().max(1) as f64;
        let dim = self.setup.left.dimension();
        let setup = Setup {
            left: Points::trusted(&queries.data, dim),
            right: Some(Points::trusted(&candidates.data, dim)),
            device: self.setup.device.clone(),
            shape: self.setup.shape.clone(),
            narrow: self.setup.narrow.clone(),
            tuning: self.setup.tuning.clone(),
            expected_tests: self.setup.expected_tests * share,
            expected_pairs: self.setup.expected_pairs * share,
            ..self.setup
        };
        let ids = Ids {
            left: queries.rows.clone(),
            right: candidates.rows.clone(),
            same: self.setup.right.is_none(),
        };
        self.setup.pool.install(|| GpuJoin::new(setup, Some(ids)))
    }

    /// A side that cuts a slab in two, neither of them empty.
    fn middle(&self, slab: Slab, queries: &Part<T>) -> Option<f64> {
        let step = queries.rows.len().div_ceil(SAMPLE).max(1);
        let rows = queries.data.chunks_exact(self.setup.left.dimension()).step_by(step);
        let mut sample: Vec<f64> = rows.map(|row| row[self.dim].to_f64()).collect();
        sample.sort_by(f64::total_cmp);
        let middle = sample[sample.len() / 2];
        let above = sample.iter().copied().find(|&x| x > middle);
        let side = if middle > sample[0] { Some(middle) } else { above };
        side.filter(|&side| slab.lo < side && side < slab.hi)
    }

    fn part(&self, points: Points<'_, T>, inside: impl Fn(f64) -> bool + Sync) -> Part<T> {
        let dim = self.dim;
        self.setup.pool.install(|| {
            let inside = |row: &usize| inside(points.row(*row)[dim].to_f64());
            let rows = (0..points.len()).into_par_iter().filter(inside);
            let rows: Vec<u32> = rows.map(|row| row as u32).collect();
            let data = rows.par_iter().flat_map_iter(|&row| points.row(row as usize));
            Part { data: data.copied().collect(), rows }
        })
    }

    fn record(&self, change: impl FnOnce(&mut GpuStats)) {
        change(&mut self.stats.lock().unwrap_or_else(|e| e.into_inner()));
    }
}

impl<T: Scalar> Executor<T> for Partitioned<'_, T> {
    fn count(&self) -> Result<Work> {
        self.each(&mut |join, _| join.count())
    }

    fn degrees(&self, degrees: &[AtomicU64]) -> Result<Work> {
        self.each(&mut |join, rows| {
            let local: Vec<AtomicU64> = rows.iter().map(|_| AtomicU64::new(0)).collect();
            let work = join.degrees(&local)?;
            for (&row, degree) in rows.iter().zip(local) {
                degrees[row as usize].store(degree.into_inner(), Relaxed);
            }
            Ok(work)
        })
    }

    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        // Both points of a pair are queries, perhaps of different parts: the smaller row has
        // the pair.
        let halve = request.once && self.setup.right.is_none();
        let request = Request { once: false, ..request };
        let stopped = AtomicBool::new(false);
        self.each(&mut |join, rows| {
            if stopped.load(Relaxed) {
                return Ok(Work::default());
            }
            let found = AtomicU64::new(0);
            let work = join.rows(request, &|block: &Rows<'_, T>| {
                let queries: Vec<u32> =
                    block.queries.iter().map(|&local| rows[local as usize]).collect();
                let (pairs, flow) = if halve {
                    let halved = Halved::new(block, &queries);
                    (halved.neighbors.len() as u64, halved.emit(emit))
                } else {
                    let flow = emit(&Rows {
                        worker: 0,
                        queries: &queries,
                        neighbors: block.neighbors,
                        distances: block.distances,
                        ahead: &[],
                    });
                    (block.neighbors.total(), flow)
                };
                found.fetch_add(pairs, Relaxed);
                stopped.fetch_or(flow.is_break(), Relaxed);
                flow
            })?;
            Ok(Work { pairs: found.into_inner(), ..work })
        })
    }

    fn workers(&self) -> usize {
        1
    }

    fn makes_blocks(&self) -> bool {
        true
    }
}

/// Of each row, the neighbours with larger numbers than the query.
struct Halved<'a, T> {
    queries: &'a [u32],
    offsets: Vec<u64>,
    neighbors: Vec<u32>,
    distances: Option<Vec<T>>,
}

impl<'a, T: Scalar> Halved<'a, T> {
    fn new(block: &Rows<'_, T>, queries: &'a [u32]) -> Self {
        let mut halved = Halved {
            queries,
            offsets: vec![0],
            neighbors: Vec::new(),
            distances: block.distances.as_ref().map(|_| Vec::new()),
        };
        for (at, &query) in queries.iter().enumerate() {
            let distances = block.distances(at).unwrap_or_default();
            for (k, &neighbor) in block.neighbors.row(at).iter().enumerate() {
                if neighbor <= query {
                    continue;
                }
                halved.neighbors.push(neighbor);
                if let Some(to) = &mut halved.distances {
                    to.push(distances[k]);
                }
            }
            halved.offsets.push(halved.neighbors.len() as u64);
        }
        halved
    }

    fn emit(&self, emit: &Emit<'_, T>) -> ControlFlow<()> {
        let offsets = &self.offsets;
        let distances = self.distances.as_ref();
        emit(&Rows {
            worker: 0,
            queries: self.queries,
            neighbors: Lists::Flat { offsets, values: &self.neighbors },
            distances: distances.map(|values| Lists::Flat { offsets, values }),
            ahead: &[],
        })
    }
}
