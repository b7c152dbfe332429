//! What nearjoin takes for an ε-join.

use nearjoin::sink::{Count, CsrInto, CsrSink};
use nearjoin::{Csr, EpsJoin, Scalar, Sink, Stats};

use crate::Result;
use crate::args::Options;
use crate::call::{agree, best, timed};
use crate::workload::{Within, Workload};

/// What nearjoin took for a case, in seconds, the best of several calls each.
pub(crate) struct Ours {
    /// Ordered pairs, no point with itself.
    pub(crate) pairs: u64,
    pub(crate) count: f64,
    /// Not for the cases that can only be counted.
    pub(crate) csr: Option<CsrTimes>,
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
    /// Runs every kind of call on a case, and checks that each finds `pairs` of them.
    pub(crate) fn of(workload: &Workload<Within>, pairs: u64, options: &Options) -> Result<Self> {
        let (count, ()) = best(options.reps, || {
            let (seconds, stats) = count(&workload.data, workload)?;
            Ok((seconds, agree("count", stats.pairs, pairs)?))
        })?;
        let csr = match workload.case.count_only() {
            true => None,
            false => Some(CsrTimes::of(workload, pairs, options)?),
        };
        Ok(Ours { pairs, count, csr })
    }
}

impl CsrTimes {
    fn of(workload: &Workload<Within>, pairs: u64, options: &Options) -> Result<Self> {
        let (fresh, csr) = best_csr(&workload.data, workload, options.reps)?;
        agree("CSR", csr.pairs(), pairs)?;
        let (mut offsets, mut ids, _) = csr.into_parts();
        let (reused, ()) = best(options.reps, || {
            let mut sink = CsrInto::new(&mut offsets, &mut ids);
            let (seconds, _) = call(&workload.data, workload, &mut sink)?;
            Ok((seconds, agree("CSR into reused arrays", sink.pairs(), pairs)?))
        })?;
        drop((offsets, ids));

        let rounded = workload.to_f32();
        let (f32, csr) = best_csr(&rounded, workload, options.reps)?;
        let (_, counted) = count(&rounded, workload)?;
        agree("CSR of f32 points", csr.pairs(), counted.pairs)?;
        Ok(CsrTimes { fresh, reused, f32, f32_pairs: counted.pairs })
    }
}

/// The best of several calls into fresh memory, and the last answer.
fn best_csr<T: Scalar>(
    data: &[T],
    workload: &Workload<Within>,
    reps: usize,
) -> Result<(f64, Csr<T>)> {
    best(reps, || csr(data, workload).map(|(seconds, _, csr)| (seconds, csr)))
}

/// One call for the whole answer, into fresh memory.
pub(crate) fn csr<T: Scalar>(
    data: &[T],
    workload: &Workload<Within>,
) -> Result<(f64, Stats, Csr<T>)> {
    let mut sink = CsrSink::new();
    let (seconds, stats) = call(data, workload, &mut sink)?;
    Ok((seconds, stats, sink.into_csr()))
}

/// One call for the number of pairs.
pub(crate) fn count<T: Scalar>(data: &[T], workload: &Workload<Within>) -> Result<(f64, Stats)> {
    call(data, workload, &mut Count::new())
}

fn call<T: Scalar>(
    data: &[T],
    workload: &Workload<Within>,
    sink: &mut impl Sink<T>,
) -> Result<(f64, Stats)> {
    timed(data, workload.dimension(), |points| {
        EpsJoin::new(workload.eps()).plan_self(points)?.run(sink)
    })
}
