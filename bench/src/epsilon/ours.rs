//! nearjoin itself, timed from borrowed coordinates to the answer.
//!
//! Every time includes checking the points, planning, indexing and joining. Giving the
//! memory of a result back is outside.

use std::time::Instant;

use nearjoin::sink::{Count, CsrInto, CsrSink};
use nearjoin::{Csr, EpsJoin, Points, Scalar, Stats, Strategy};

use crate::Result;
use crate::args::Options;
use crate::once::Once;
use crate::workload::{Within, Workload};

/// What nearjoin took for a case, in seconds, the best of several calls each.
pub(crate) struct Ours {
    /// Ordered pairs, no point with itself.
    pub(crate) pairs: u64,
    pub(crate) strategy: Strategy,
    pub(crate) count: f64,
    /// Not for the cases that can only be counted.
    pub(crate) csr: Option<CsrTimes>,
    /// The first call of a fresh process.
    pub(crate) first: f64,
}

/// What whole answers took.
pub(crate) struct CsrTimes {
    /// Into memory that each call obtains.
    pub(crate) fresh: f64,
    /// Into the arrays of an earlier answer.
    pub(crate) reused: f64,
    /// f32 points into fresh memory.
    pub(crate) f32: f64,
    /// The pairs of the rounded points, which are other pairs.
    pub(crate) f32_pairs: u64,
}

impl Ours {
    /// Runs every kind of call on a case, and checks that they agree.
    pub(crate) fn measure(workload: &Workload<Within>, options: &Options) -> Result<Self> {
        let first = Once::elsewhere(workload.case.name, options)?;
        let mut best = f64::INFINITY;
        let mut pairs = None;
        for _ in 0..options.reps {
            let (seconds, stats) = count(&workload.data, workload)?;
            best = best.min(seconds);
            agree("count", stats.pairs, pairs.get_or_insert(stats.pairs))?;
        }
        let pairs = pairs.unwrap_or(first.pairs);
        agree("the call in a fresh process", first.pairs, &pairs)?;
        let csr = match workload.case.count_only() {
            true => None,
            false => Some(CsrTimes::measure(workload, options, pairs)?),
        };
        let strategy = first.strategy;
        Ok(Ours { pairs, strategy, count: best, csr, first: first.seconds })
    }
}

impl CsrTimes {
    fn measure(workload: &Workload<Within>, options: &Options, pairs: u64) -> Result<Self> {
        let (fresh, csr) = best_csr(&workload.data, workload, options.reps)?;
        agree("CSR", csr.pairs(), &pairs)?;
        let (mut offsets, mut ids, _) = csr.into_parts();
        let mut reused = f64::INFINITY;
        for _ in 0..options.reps {
            let start = Instant::now();
            let points = Points::new(&workload.data, workload.dimension())?;
            let mut sink = CsrInto::new(&mut offsets, &mut ids);
            EpsJoin::new(workload.eps()).plan_self(&points)?.run(&mut sink)?;
            reused = reused.min(start.elapsed().as_secs_f64());
            agree("CSR into reused arrays", sink.pairs(), &pairs)?;
        }
        drop((offsets, ids));

        let rounded = workload.to_f32();
        let (f32, csr) = best_csr(&rounded, workload, options.reps)?;
        let (_, counted) = count(&rounded, workload)?;
        agree("CSR of f32 points", csr.pairs(), &counted.pairs)?;
        Ok(CsrTimes { fresh, reused, f32, f32_pairs: counted.pairs })
    }
}

/// The best of several calls into fresh memory, and the last answer.
fn best_csr<T: Scalar>(
    data: &[T],
    workload: &Workload<Within>,
    reps: usize,
) -> Result<(f64, Csr<T>)> {
    let (mut best, _, mut last) = csr(data, workload)?;
    for _ in 1..reps {
        drop(last);
        let (seconds, _, csr) = csr(data, workload)?;
        best = best.min(seconds);
        last = csr;
    }
    Ok((best, last))
}

/// One call for the whole answer, into fresh memory.
pub(crate) fn csr<T: Scalar>(
    data: &[T],
    workload: &Workload<Within>,
) -> Result<(f64, Stats, Csr<T>)> {
    let start = Instant::now();
    let points = Points::new(data, workload.dimension())?;
    let mut sink = CsrSink::new();
    let stats = EpsJoin::new(workload.eps()).plan_self(&points)?.run(&mut sink)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((seconds, stats, sink.into_csr()))
}

/// One call for the number of pairs.
pub(crate) fn count<T: Scalar>(data: &[T], workload: &Workload<Within>) -> Result<(f64, Stats)> {
    let start = Instant::now();
    let points = Points::new(data, workload.dimension())?;
    let stats = EpsJoin::new(workload.eps()).plan_self(&points)?.run(&mut Count::new())?;
    Ok((start.elapsed().as_secs_f64(), stats))
}

/// nearjoin must agree with itself to the last pair.
fn agree(what: &str, found: u64, expected: &u64) -> Result<()> {
    match found == *expected {
        true => Ok(()),
        false => Err(format!("{what} found {found} pairs, an earlier call {expected}").into()),
    }
}
