//! The device's part of a pass: rounds at one ε after the other, batch by batch.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;
use std::time::Instant;

use super::pass::{Pass, locked};
use super::queue::{Lent, Next};
use crate::error::{Error, Result};
use crate::exec::hybrid::is_loss;
use crate::exec::hybrid::log::Clock;
use crate::exec::{OnDevice, Request, Rows, Work};
use crate::memory::copied;
use crate::options::Device;
use crate::scalar::Scalar;

impl<T: Scalar> Pass<'_, '_, T> {
    pub(super) fn clock(&self) -> Clock {
        Clock::new(Device::Gpu, 0, self.began)
    }

    /// The device, until nothing is left for it. Where it is lost, the CPU has the rest, unless that
    /// is an error.
    pub(super) fn device<'q>(&'q self, first: Next<'q>) -> (Clock, Result<()>) {
        let mut clock = self.clock();
        let common = &self.join.common;
        let rounds = match common.gpu() {
            Some(join) => self.rounds(join, first, &mut clock),
            None => Ok(()),
        };
        let left = self.queue.abandon();
        let lost = match rounds {
            // The sink has had enough, and knows why.
            Err(_) if self.stopped.load(Relaxed) => Ok(()),
            Err(error) if is_loss(&error) && common.setup.rescues() => {
                common.log.lose(error, left);
                Ok(())
            }
            rounds => rounds,
        };
        if lost.is_err() || self.stopped.load(Relaxed) {
            self.queue.close();
        }
        (clock, lost)
    }

    /// Whether there is a larger ε, by steps of half of the first.
    fn grows(&self, eps: f64) -> bool {
        let step = self.join.common.setup.by.eps / 2.0;
        step > 0.0 && T::from_f64(eps + step).is_finite()
    }

    /// What the device does first, if it is there.
    pub(super) fn first(&self) -> Next<'_> {
        let common = &self.join.common;
        match common.gpu() {
            Some(_) => self.queue.next(self.grows(common.setup.by.eps)),
            None => Next::Over,
        }
    }

    /// Rounds at one ε after the other.
    fn rounds<'q>(
        &'q self,
        join: &dyn OnDevice<T>,
        first: Next<'q>,
        clock: &mut Clock,
    ) -> Result<()> {
        let setup = &self.join.common.setup;
        let (mut eps, step) = (setup.by.eps, setup.by.eps / 2.0);
        let (_, is_all) = setup.threshold(eps)?;
        let mut goes_on = self.batches(join, first, is_all, self.grows(eps), clock)?;
        while goes_on {
            let began = Instant::now();
            clock.start(0, 0);
            // Nothing beyond the largest distance is a neighbour.
            eps = setup.nearest.max_distance.map_or(eps + step, |most| most.min(eps + step));
            let (threshold, is_all) = setup.threshold(eps)?;
            let round = setup.round(eps, &threshold);
            let join = match self.beside {
                0 => setup.gpu.pool.install(|| setup.gpu.index(threshold, &round, false))?,
                _ => setup.gpu.index(threshold, &round, true)?,
            };
            clock.stop();
            self.queue.reindexed();
            {
                let mut told = locked(&self.told);
                told.eps = eps;
                told.reindexed += 1;
                told.reindex_seconds += began.elapsed().as_secs_f64();
            }
            let grows = self.grows(eps);
            goes_on = self.batches(&*join, self.queue.next(grows), is_all, grows, clock)?;
            join.gpu_stats().iter().for_each(|stats| self.join.common.log.on_gpu(stats));
        }
        Ok(())
    }

    /// Batches at one ε, beyond which there may be no neighbour. Tells whether another one should
    /// follow.
    fn batches<'q>(
        &'q self,
        join: &dyn OnDevice<T>,
        mut next: Next<'q>,
        is_all: bool,
        grows: bool,
        clock: &mut Clock,
    ) -> Result<bool> {
        while let Next::Batch(lent) = next {
            self.batch(join, lent, is_all, clock)?;
            next = self.queue.next(grows);
        }
        Ok(matches!(next, Next::Reindex))
    }

    /// Tries some queries.
    fn batch(
        &self,
        join: &dyn OnDevice<T>,
        lent: Lent<'_>,
        is_all: bool,
        clock: &mut Clock,
    ) -> Result<()> {
        let numbers = &lent.queries[..];
        clock.start(1, numbers.len());
        let rows = self.join.rows_of(numbers)?;
        let failed = Mutex::new(Vec::new());
        let work = self.ask(join, numbers, &rows, is_all, &failed);
        match work {
            Ok(work) => {
                self.tests.fetch_add(work.tests, Relaxed);
                let mut failed = failed.into_inner().unwrap_or_else(|e| e.into_inner());
                // The queue has them in their order.
                failed.sort_unstable();
                let failed: Vec<u32> = failed.iter().map(|&p| numbers[p as usize]).collect();
                clock.found(work);
                clock.fail(0, failed.len());
                self.tell(numbers.len(), failed.len());
                lent.done(failed);
                Ok(())
            }
            Err(error) => {
                let left = numbers.iter().copied().filter(|&number| !self.delivered.has(number));
                let left: Vec<u32> = left.collect();
                clock.fail(1, left.len());
                self.tell(numbers.len(), left.len());
                lent.back(left);
                Err(error)
            }
        }
    }

    fn tell(&self, attempted: usize, failed: usize) {
        let mut told = locked(&self.told);
        told.rounds += 1;
        told.attempted += attempted as u64;
        told.failed += failed as u64;
    }

    /// Finds all within ε of some queries, hands out the k nearest, and notes which had fewer.
    fn ask(
        &self,
        join: &dyn OnDevice<T>,
        numbers: &[u32],
        rows: &[u32],
        is_all: bool,
        failed: &Mutex<Vec<u32>>,
    ) -> Result<Work> {
        let common = &self.join.common;
        let setup = &common.setup;
        let (nearest, pool) = (setup.nearest(), setup.gpu.pool);
        let helpers = (self.beside == 0).then_some(pool);
        let own = copied(rows)?;
        let part = match helpers {
            Some(pool) => {
                let points = pool.install(|| setup.gpu.left.gather(rows))?;
                join.for_rows(own, points.as_points())?
            }
            None => join.in_lane((0, 1), own, &self.coordinates(rows)?)?,
        };
        let delivered = AtomicU64::new(0);
        let work = part.rows(Request::default(), &|block: &Rows<'_, T>| {
            for sorted in nearest.of(block, (numbers, rows), self.request, is_all, helpers) {
                locked(failed).extend(sorted.failed);
                let solved = sorted.solved.rows(self.beside);
                if solved.queries.is_empty() {
                    continue;
                }
                let flow = (self.emit)(&solved);
                self.delivered.add(&solved);
                delivered.fetch_add(solved.neighbors.total(), Relaxed);
                if flow.is_break() {
                    self.stopped.store(true, Relaxed);
                    return flow;
                }
            }
            ControlFlow::Continue(())
        });
        part.gpu_stats().iter().for_each(|stats| common.log.on_gpu(stats));
        let pairs = delivered.into_inner();
        self.pairs.fetch_add(pairs, Relaxed);
        if self.stopped.load(Relaxed) {
            return Err(Error::Stopped);
        }
        let work = work?;
        if let Some(monitor) = setup.gpu.monitor.filter(|_| helpers.is_none()) {
            monitor.add(work.tests, 0);
        }
        Ok(Work { pairs, ..work })
    }
}
