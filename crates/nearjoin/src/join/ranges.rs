//! KNN-joins by ranges: where they run, the first ε, and what joins.

use super::Plan;
use super::device::{self, Decided};
use super::indexed::{no_device, on_host, reserve};
use crate::curve::NeighborCurve;
use crate::error::{Error, Result};
use crate::exec::Executor;
use crate::exec::gpu::ranges::Ranges as OnGpu;
use crate::exec::hybrid::{Ranges, RangesSetup, Reserve};
use crate::exec::pool::Pool;
use crate::metric::Threshold;
use crate::options::{Device, Strategy};
use crate::plan::ranges::{ByRanges, Within, by_ranges, first_eps};
use crate::plan::{self, Asked};
use crate::question::{Nearest, Question};
use crate::scalar::Scalar;
use crate::sides::Sides;
use crate::stats::bytes;
use crate::summary::{Effort, Summary};

/// The question, where it is to be answered by ranges.
pub(super) fn asked<'a>(asked: &Asked<'a>) -> Option<&'a Nearest> {
    match asked.question {
        Question::Nearest(nearest) if asked.options.strategy == Strategy::Ranges => Some(nearest),
        _ => None,
    }
}

/// Whether a device that has it is named, and there.
pub(super) fn check(asked: &Asked<'_>) -> Result<()> {
    let options = asked.options;
    match options.device {
        Device::Cpu => {
            let reason = "the strategy ranges needs a GPU: use the device gpu or hybrid, or \
                          another strategy";
            Err(Error::Device { device: "cpu", reason: reason.into() })
        }
        Device::Gpu if !options.rescue => {
            device::check_open(asked, "use the device hybrid, or another strategy")
        }
        _ => Ok(()),
    }
}

/// What is decided about.
pub(super) struct Given<'a, 'b, T> {
    pub(super) sides: &'a Sides<'b, T>,
    pub(super) threshold: &'a Threshold<T>,
    pub(super) pool: &'a Pool,
}

impl<T: Scalar> Given<'_, '_, T> {
    /// Decides how it is done; by the CPU's tree where there is no GPU and none has to be.
    pub(super) fn decide(
        &self,
        asked: &Asked<'_>,
        nearest: &Nearest,
        summarise: &dyn Fn(Effort) -> Summary,
    ) -> Result<Decided> {
        let options = asked.options;
        let host = device::host(asked, self.pool.threads());
        let on_cpu = || plan::on_cpu(asked, &summarise(Effort::nearest(nearest.k)), &host);
        let must = options.device == Device::Gpu && !options.rescue;
        let without = |reason: String| match must {
            true => Err(Error::Device { device: "gpu", reason }),
            false => {
                let mut decision = on_cpu();
                decision.why_no_gpu =
                    Some(format!("{reason}; the cpu's tree stands in for ranges"));
                Ok(Decided { decision, device: None, host })
            }
        };
        let opened = device::open(asked).and_then(|device| Ok((device.facts()?, device)));
        let (facts, opened) = match opened {
            Err(Error::Device { reason, .. }) => return without(reason),
            opened => opened?,
        };
        let (host, _) = device::calibrated(asked, host, &facts);
        let summary = summarise(Effort::QUICK.with_extents());
        let metric = options.metric;
        let (left, right) = (self.sides.left(), self.sides.right());
        let curve = self.pool.install(|| NeighborCurve::quick(left, right, metric))?;
        let first = self.first(nearest, options.include_self, &curve)?;
        let cpu = (options.device != Device::Gpu).then(on_cpu);
        let decision = by_ranges(asked, (summary, curve), &host, &facts, first, cpu);
        match decision.on_gpu() {
            Some(how) if how.slabs > 1 => {
                let free = bytes(how.limit);
                without(format!("its {free} of free memory do not hold the points"))
            }
            _ => Ok(Decided { decision, device: Some(opened), host }),
        }
    }

    /// The first ε: no more than the largest distance of a neighbour.
    fn first(
        &self,
        nearest: &Nearest,
        include_self: bool,
        curve: &NeighborCurve,
    ) -> Result<Within> {
        let Threshold { metric, scale, .. } = *self.threshold;
        // A point that is its own neighbour is not on the curve.
        let own = usize::from(include_self && self.sides.right().is_none());
        let candidates = self.sides.right().unwrap_or(self.sides.left()).len();
        let wanted = nearest.k.min(candidates).saturating_sub(own);
        let eps = scale.undo(T::from_f64(first_eps(nearest, curve, wanted)));
        let eps = if eps.is_finite() { eps.to_f64() } else { T::MAX.to_f64() };
        let eps = nearest.max_distance.map_or(eps, |most| eps.min(most));
        let threshold = Threshold::<T>::new(metric, eps, scale)?;
        Ok(Within { eps, scaled: threshold.eps.to_f64(), reach: threshold.reach })
    }
}

/// Indexes the points where the plan says, and makes what joins there.
pub(super) fn executor<'a, T: Scalar>(
    plan: &'a Plan<'a, T>,
    by: &'a ByRanges,
) -> Result<Box<dyn Executor<T> + 'a>> {
    let Plan { question, options, decision, sides, threshold, pool, .. } = plan;
    let Question::Nearest(nearest) = question else { return Err(no_device()) };
    let setup = RangesSetup {
        gpu: OnGpu {
            pool,
            device: plan.device.clone().ok_or_else(no_device)?,
            left: sides.left(),
            right: sides.right(),
            include_self: options.include_self,
            extents: &decision.extents,
            monitor: options.monitor.as_ref(),
        },
        by,
        asked: Asked { question, options },
        nearest: *nearest,
        arithmetic: *threshold,
        expected_tests: decision.tests(),
    };
    let join = match by.cpu.as_deref().and_then(|cpu| Some((cpu, cpu.on_cpu()?))) {
        Some((cpu, how)) => {
            Ranges::shared(setup, || pool.install(|| on_host(plan, cpu, how, true)))?
        }
        None => Ranges::led(setup, Reserve::new(move || reserve(plan)))?,
    };
    Ok(Box::new(join))
}
