//! A device that is none: another executor does its work, up to the call at which it is lost.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::error::{Error, Result};
use crate::exec::{Emit, Executor, Meeting, OnDevice, Part, Request, Rows, Work};
use crate::index::Run;
use crate::points::Points;
use crate::scalar::Scalar;

/// Calls of a device, and from which on it fails.
pub(super) struct Script {
    calls: AtomicUsize,
    lost_at: usize,
}

impl Script {
    pub(super) fn lost_at(call: usize) -> Self {
        Script { calls: AtomicUsize::new(0), lost_at: call }
    }

    pub(super) fn calls(&self) -> usize {
        self.calls.load(Relaxed)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.calls() >= self.lost_at
    }

    fn call(&self) -> Result<()> {
        match self.calls.fetch_add(1, Relaxed) + 1 < self.lost_at {
            true => Ok(()),
            false => Err(Error::Device { device: "sham", reason: "as it is written".into() }),
        }
    }
}

/// The join, or a part of it.
pub(super) struct Sham<'a, T> {
    join: &'a dyn Executor<T>,
    left: Points<'a, T>,
    /// Rows of the queries and their coordinates, where not all points ask.
    part: Option<(Vec<u32>, Vec<T>)>,
    script: &'a Script,
}

impl<'a, T: Scalar> Sham<'a, T> {
    /// It is indexed by its first call.
    pub(super) fn index(
        join: &'a dyn Executor<T>,
        left: Points<'a, T>,
        script: &'a Script,
    ) -> Result<Box<dyn OnDevice<T> + 'a>> {
        script.call()?;
        Ok(Box::new(Sham { join, left, part: None, script }))
    }

    fn of(&self, rows: Vec<u32>, coordinates: &[T]) -> Result<Box<dyn OnDevice<T> + '_>> {
        self.script.call()?;
        Ok(Box::new(Sham { part: Some((rows, coordinates.to_vec())), ..*self }))
    }

    /// Lets the other executor do something. It may be lost before, and when all is done.
    fn ask(&self, work: impl FnOnce(&dyn Executor<T>) -> Result<Work>) -> Result<Work> {
        self.script.call()?;
        let work = match &self.part {
            None => work(self.join),
            Some((rows, coordinates)) => {
                let points = self.left.of_these(coordinates);
                work(&*self.join.part(Part::Rows { rows, points })?)
            }
        }?;
        self.script.call()?;
        Ok(work)
    }
}

impl<T: Scalar> Executor<T> for Sham<'_, T> {
    fn len(&self) -> usize {
        self.part.as_ref().map_or(self.left.len(), |(rows, _)| rows.len())
    }

    fn index_bytes(&self) -> u64 {
        0
    }

    fn count(&self) -> Result<Work> {
        self.ask(|join| join.count())
    }

    fn degrees(&self, degrees: &[AtomicU64]) -> Result<Work> {
        self.ask(|join| join.degrees(degrees))
    }

    fn rows(&self, request: Request, emit: &Emit<'_, T>) -> Result<Work> {
        let lost = AtomicBool::new(false);
        let work = self.ask(|join| {
            join.rows(request, &|rows: &Rows<'_, T>| match self.script.call() {
                Ok(()) => emit(rows),
                Err(_) => {
                    lost.store(true, Relaxed);
                    ControlFlow::Break(())
                }
            })
        });
        // What was broken off is not done; by now every call fails.
        if lost.into_inner() { self.script.call().map(|()| Work::default()) } else { work }
    }

    fn rows_at(&self, positions: Run) -> Result<Vec<u32>> {
        self.script.call()?;
        self.join.rows_at(positions)
    }

    fn part<'b>(&'b self, part: Part<'b, T>) -> Result<Box<dyn Executor<T> + 'b>> {
        self.join.part(part)
    }

    fn workers(&self) -> usize {
        self.join.workers()
    }
}

impl<T: Scalar> OnDevice<T> for Sham<'_, T> {
    fn for_rows(&self, rows: Vec<u32>, points: Points<'_, T>) -> Result<Box<dyn OnDevice<T> + '_>> {
        self.of(rows, points.as_slice())
    }

    fn in_lane<'b>(
        &'b self,
        _lane: (usize, usize),
        rows: Vec<u32>,
        coordinates: &[T],
    ) -> Result<Box<dyn OnDevice<T> + 'b>> {
        self.of(rows, coordinates)
    }

    fn meeting(&self) -> Result<Meeting> {
        Ok(Meeting::SmallerRow)
    }
}
