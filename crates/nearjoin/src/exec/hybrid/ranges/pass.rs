//! One pass over all queries of a join by ranges.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use super::queue::Queue;
use super::{Cpu, Ranges};
use crate::error::Result;
use crate::exec::cpu::units::{Alone, OnHost};
use crate::exec::hybrid::delivered::{Delivered, Notes};
use crate::exec::hybrid::log::{Clock, ended};
use crate::exec::hybrid::reserve::Reserve;
use crate::exec::{Emit, Part, Request, Rows, Work, pool};
use crate::memory::with_capacity;
use crate::options::Device;
use crate::plan::hybrid::MANY_THREADS;
use crate::scalar::Scalar;
use crate::stats::RangesStats;

/// Queries that a thread of the CPU puts in order at a time: so few that no step of it is shared with
/// the threads of rayon's pool. Whoever waits for those must not be waited for, and one of them may
/// wait in here for all threads of the pass.
const PIECE: usize = 2048;

/// One pass.
pub(super) struct Pass<'a, 'b, T> {
    pub(super) join: &'b Ranges<'a, T>,
    pub(super) queue: Queue,
    pub(super) request: Request,
    pub(super) emit: &'b Emit<'b, T>,
    /// What the sink has of the device.
    pub(super) delivered: Notes<'b>,
    /// Threads of the CPU beside the device.
    pub(super) beside: usize,
    pub(super) began: Instant,
    pub(super) told: Mutex<RangesStats>,
    /// Pairs that the device delivered, and distances that it tested.
    pub(super) pairs: AtomicU64,
    pub(super) tests: AtomicU64,
    /// Whether the sink has had enough.
    pub(super) stopped: AtomicBool,
}

pub(super) fn locked<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Hands out the rows of all queries.
pub(super) fn run<T: Scalar>(
    join: &Ranges<'_, T>,
    request: Request,
    emit: &Emit<'_, T>,
) -> Result<Work> {
    let order = join.order()?.clone();
    let queries = order.queries.len() + order.crowded.len();
    let mut delivered = Delivered::new(queries)?;
    let eps = join.common.setup.by.eps;
    let told = RangesStats { eps_min: eps, eps, ..RangesStats::default() };
    let threads = join.common.setup.gpu.pool.threads();
    let pass = Pass {
        join,
        queue: Queue::new(join.options(), order.queries, order.crowded),
        request,
        emit,
        delivered: delivered.notes(),
        beside: match join.common.cpu {
            Cpu::Beside(_) if threads >= MANY_THREADS => threads - 1,
            Cpu::Beside(_) => threads,
            Cpu::After(_) => 0,
        },
        began: Instant::now(),
        told: Mutex::new(told),
        pairs: AtomicU64::new(0),
        tests: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
    };
    match &join.common.cpu {
        Cpu::Beside(cpu) => pass.shared(&**cpu, queries),
        Cpu::After(reserve) => pass.led(reserve, queries),
    }
}

impl<'a, T: Scalar> Pass<'a, '_, T> {
    /// Both take from the queue.
    fn shared(self, cpu: &dyn OnHost<T>, queries: usize) -> Result<Work> {
        let clock = |number| Mutex::new(Clock::new(Device::Cpu, number, self.began));
        let clocks: Vec<_> = (0..self.beside).map(clock).collect();
        // The device has its first batch before any thread takes from the queue.
        let first = self.first();
        let (on_cpu, on_gpu) = std::thread::scope(|scope| {
            let device = pool::spawn(scope, || self.device(first));
            if device.is_err() {
                // Nobody will take from the dense end.
                self.queue.abandon();
            }
            let pool = self.join.common.setup.gpu.pool;
            let on_cpu = pool.each_of(self.beside, |thread| {
                self.thread(cpu, thread, &mut locked(&clocks[thread]))
            });
            // Ends as the threads did: when nothing is left to take.
            let on_gpu = device.ok().map(|device| {
                device.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            (on_cpu, on_gpu)
        });
        let (clock, lost) = on_gpu.unwrap_or_else(|| (self.clock(), Ok(())));
        let clocks = clocks.into_iter().map(|clock| clock.into_inner());
        let clocks = clocks.map(|clock| clock.unwrap_or_else(|e| e.into_inner()));
        self.join.common.log.add(&ended(core::iter::once(clock).chain(clocks), self.began));
        lost?;
        let on_cpu: Work = on_cpu.into_iter().collect::<Result<Vec<_>>>()?.into_iter().sum();
        self.end(on_cpu, queries)
    }

    /// The device first, and what is left to the CPU.
    fn led(self, reserve: &Reserve<'a, T>, queries: usize) -> Result<Work> {
        let (clock, lost) = self.device(self.first());
        self.join.common.log.add(&ended(core::iter::once(clock), self.began));
        lost?;
        let mut rest = Vec::new();
        while let Some(taken) = self.queue.take().filter(|_| !self.stopped.load(Relaxed)) {
            rest.extend(taken);
        }
        let mut on_cpu = Work::default();
        if !rest.is_empty() {
            let rows = self.join.rows_of(&rest)?;
            let setup = &self.join.common.setup;
            let cpu = reserve.join()?;
            on_cpu = self.join.common.log.timed(Device::Cpu, rest.len(), || {
                let points = setup.gpu.pool.install(|| setup.gpu.left.gather(&rows))?;
                let part = cpu.part(Part::Rows { rows: &rows, points: points.as_points() })?;
                part.rows(self.request, &|rows: &Rows<'_, T>| rows.under(&rest, self.emit))
            })?;
        }
        self.end(on_cpu, queries)
    }

    /// What all did.
    fn end(self, on_cpu: Work, queries: usize) -> Result<Work> {
        let mut told = self.told.into_inner().unwrap_or_else(|e| e.into_inner());
        told.tail = self.queue.into_rest().1 as u64;
        told.solved_by_gpu = told.attempted - told.failed;
        told.solved_by_cpu = (queries as u64).saturating_sub(told.solved_by_gpu);
        locked(&self.join.common.told).add(&told);
        if self.stopped.into_inner() {
            // The sink knows why.
            return Ok(Work::default());
        }
        let (pairs, tests) = (self.pairs.into_inner(), self.tests.into_inner());
        let mut total = Work { pairs, tests, taken: 0 };
        total += on_cpu;
        Ok(total)
    }

    /// One thread of the CPU.
    fn thread(&self, cpu: &dyn OnHost<T>, thread: usize, clock: &mut Clock) -> Result<Work> {
        let mut work = Work::default();
        while let Some(batch) = self.queue.take() {
            clock.start(1, batch.len());
            for piece in batch.chunks(PIECE) {
                let done = self.on_cpu(cpu, thread, piece);
                if done.is_err() || self.stopped.load(Relaxed) || self.is_cancelled() {
                    self.queue.close();
                    return done;
                }
                work += done?;
            }
            clock.stop();
        }
        clock.found(work);
        Ok(work)
    }

    fn is_cancelled(&self) -> bool {
        self.join.common.setup.gpu.monitor.is_some_and(|monitor| monitor.is_cancelled())
    }

    /// Answers some queries on this thread.
    fn on_cpu(&self, cpu: &dyn OnHost<T>, thread: usize, numbers: &[u32]) -> Result<Work> {
        let left = self.join.common.setup.gpu.left;
        let rows = self.join.rows_of(numbers)?;
        let coordinates = self.coordinates(&rows)?;
        let part = Part::Rows { rows: &rows, points: left.of_these(&coordinates) };
        let part = cpu.for_part(part)?;
        let emit = |rows: &Rows<'_, T>| {
            let rows = Rows { worker: thread, ..*rows };
            let flow = rows.under(numbers, self.emit);
            self.stopped.fetch_or(flow.is_break(), Relaxed);
            flow
        };
        let alone = Alone::new(numbers.len());
        Ok(part.rows_of_units(self.request, &emit, &alone).into_iter().sum())
    }

    /// The coordinates of some rows, copied by this thread alone.
    pub(super) fn coordinates(&self, rows: &[u32]) -> Result<Vec<T>> {
        let left = self.join.common.setup.gpu.left;
        let mut coordinates = with_capacity(rows.len() * left.dimension())?;
        rows.iter().for_each(|&row| coordinates.extend_from_slice(left.row(row as usize)));
        Ok(coordinates)
    }
}
