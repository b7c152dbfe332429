//! One join, every shape of its answer, timed.
//!
//! Every time is that of `plan_self` and `run`: from points in the host's memory, whose
//! coordinates have been checked, to the answer there. Giving the memory of an answer back is
//! outside.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use nearjoin::sink::{Block, Callback, Count, CsrInto, CsrSink, Degrees};
use nearjoin::{Buffer, EpsJoin, Points, Scalar, Stats};

use crate::Result;

/// One call, or the best of several.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    pub(crate) time: Duration,
    pub(crate) stats: Stats,
}

impl Timed {
    pub(crate) fn ms(&self) -> f64 {
        self.time.as_secs_f64() * 1e3
    }
}

/// The arrays of an answer, to be written again.
pub(crate) struct Arrays {
    offsets: Buffer<u64>,
    ids: Buffer<u32>,
}

/// The best of `reps` calls, after one that does not count.
pub(crate) fn best(reps: usize, mut call: impl FnMut() -> Result<Timed>) -> Result<Timed> {
    call()?;
    let mut best = call()?;
    for _ in 1..reps {
        let timed = call()?;
        if timed.time < best.time {
            best = timed;
        }
    }
    Ok(best)
}

/// A way to run a join, and its best call.
pub(crate) struct Engine<J> {
    pub(crate) join: J,
    pub(crate) best: Option<Timed>,
}

impl<J> Engine<J> {
    pub(crate) fn new(join: J) -> Self {
        Engine { join, best: None }
    }

    pub(crate) fn ms(&self) -> Option<f64> {
        self.best.as_ref().map(Timed::ms)
    }
}

/// A call that takes longer is made once, unless it is said otherwise.
const SLOW: Duration = Duration::from_millis(500);

/// The best of some calls of every engine, in turn, so that all meet the same machine.
pub(crate) fn in_turn<J>(
    reps: usize,
    engines: &mut [Engine<J>],
    call: impl FnMut(&J) -> Result<Timed>,
) -> Result<()> {
    in_turn_unless(SLOW, reps, engines, call)
}

/// The same, where one that takes longer than `slow` is called once: its first call counts.
pub(crate) fn in_turn_unless<J>(
    slow: Duration,
    reps: usize,
    engines: &mut [Engine<J>],
    mut call: impl FnMut(&J) -> Result<Timed>,
) -> Result<()> {
    for engine in &mut *engines {
        engine.best = Some(call(&engine.join)?).filter(|first| first.time > slow);
    }
    for _ in 0..reps {
        for engine in &mut *engines {
            if engine.best.as_ref().is_some_and(|best| best.time > slow) {
                continue;
            }
            let timed = call(&engine.join)?;
            if engine.best.as_ref().is_none_or(|best| timed.time < best.time) {
                engine.best = Some(timed);
            }
        }
    }
    Ok(())
}

/// The rate at which a GPU takes as long as the CPU did, from a call of it that was not held back
/// ([`GpuOptions::rate_limit`](nearjoin::gpu::GpuOptions::rate_limit)). What is beside the tests
/// takes time too: the rate is what leaves as much for them.
pub(crate) fn rate_of_equals(free: &Stats, cpu: &Timed) -> f64 {
    let fixed = (free.plan + free.index).as_secs_f64();
    free.distance_tests as f64 / (cpu.time.as_secs_f64() - fixed).max(1e-3)
}

/// The number of pairs.
pub(crate) fn count<T: Scalar>(join: &EpsJoin, points: &Points<'_, T>) -> Result<Timed> {
    let mut sink = Count::new();
    let start = Instant::now();
    let stats = join.plan_self(points)?.run(&mut sink)?;
    let time = start.elapsed();
    delivered(sink.pairs(), Timed { time, stats })
}

/// The number of neighbours of each point.
pub(crate) fn degrees<T: Scalar>(join: &EpsJoin, points: &Points<'_, T>) -> Result<Timed> {
    let mut sink = Degrees::new();
    let start = Instant::now();
    let stats = join.plan_self(points)?.run(&mut sink)?;
    let time = start.elapsed();
    delivered(sink.as_slice().iter().sum(), Timed { time, stats })
}

/// Rows in blocks, to a function that only adds up their lengths.
pub(crate) fn blocks<T: Scalar>(join: &EpsJoin, points: &Points<'_, T>) -> Result<Timed> {
    let mut pairs = 0;
    let mut sink = Callback::new(|block: &Block<'_, T>| {
        pairs += block.pairs() as u64;
        ControlFlow::Continue(())
    });
    let start = Instant::now();
    let stats = join.plan_self(points)?.run(&mut sink)?;
    let time = start.elapsed();
    delivered(pairs, Timed { time, stats })
}

/// CSR in memory that the call obtains from the system, and its arrays.
pub(crate) fn fresh<T: Scalar>(join: &EpsJoin, points: &Points<'_, T>) -> Result<(Timed, Arrays)> {
    let mut sink = CsrSink::new();
    nearjoin::release_memory();
    let start = Instant::now();
    let stats = join.plan_self(points)?.run(&mut sink)?;
    let time = start.elapsed();
    let (offsets, ids, _) = sink.into_csr().into_parts();
    let timed = delivered(ids.len() as u64, Timed { time, stats })?;
    Ok((timed, Arrays { offsets, ids }))
}

/// CSR in the arrays of an earlier answer.
pub(crate) fn reused<T: Scalar>(
    join: &EpsJoin,
    points: &Points<'_, T>,
    arrays: &mut Arrays,
) -> Result<Timed> {
    let mut sink = CsrInto::new(&mut arrays.offsets, &mut arrays.ids);
    let start = Instant::now();
    let stats = join.plan_self(points)?.run(&mut sink)?;
    let time = start.elapsed();
    delivered(sink.pairs(), Timed { time, stats })
}

/// What was delivered must be what the join says it found.
fn delivered(pairs: u64, timed: Timed) -> Result<Timed> {
    match pairs == timed.stats.pairs {
        true => Ok(timed),
        false => Err(format!("{pairs} of {} pairs were delivered", timed.stats.pairs).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearjoin::Device;

    #[test]
    fn every_answer_has_the_same_pairs() {
        let data: Vec<f32> = (0..200).map(|x| x as f32).collect();
        let points = Points::new(&data, 1).unwrap();
        let join = EpsJoin::new(1.0).device(Device::Cpu);
        let (timed, mut arrays) = fresh(&join, &points).unwrap();
        assert_eq!(timed.stats.pairs, 398);
        for timed in [count(&join, &points), degrees(&join, &points), blocks(&join, &points)] {
            assert_eq!(timed.unwrap().stats.pairs, 398);
        }
        assert_eq!(reused(&join, &points, &mut arrays).unwrap().stats.pairs, 398);
        let wider = EpsJoin::new(2.0).device(Device::Cpu);
        assert!(reused(&wider, &points, &mut arrays).is_err());
    }

    #[test]
    fn the_first_call_does_not_count() {
        let data = [0.0f32, 1.0];
        let points = Points::new(&data, 1).unwrap();
        let join = EpsJoin::new(1.0).device(Device::Cpu);
        let mut times = [1, 5, 4, 6].into_iter();
        let timed = best(3, || {
            let time = Duration::from_secs(times.next().ok_or("too many calls")?);
            Ok(Timed { time, ..count(&join, &points)? })
        });
        assert_eq!(timed.unwrap().time.as_secs(), 4);
    }
}
