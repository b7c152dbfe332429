//! The device's part of a KNN-join by ranges: the same points, indexed for one ε after the other.

use super::device::Device;
use super::epsilon::{self, Setup};
use crate::error::Result;
use crate::exec::OnDevice;
use crate::exec::pool::Pool;
use crate::metric::Threshold;
use crate::monitor::Monitor;
use crate::options::DuplicateRemoval;
use crate::plan::ranges::Round;
use crate::points::Points;
use crate::scalar::Scalar;

/// The points, and the device that they are indexed on.
pub(crate) struct Ranges<'a, T> {
    pub(crate) pool: &'a Pool,
    pub(crate) device: Device,
    pub(crate) left: Points<'a, T>,
    /// None where the left points are joined with themselves.
    pub(crate) right: Option<Points<'a, T>>,
    pub(crate) include_self: bool,
    pub(crate) extents: &'a [(f64, f64)],
    pub(crate) monitor: Option<&'a Monitor>,
}

impl<'a, T: Scalar> Ranges<'a, T> {
    /// Indexes the points for an ε: an ε-join, whose parts are the batches of queries; in a lane
    /// where the CPU works beside it.
    pub(crate) fn index<'r>(
        &self,
        threshold: Threshold<T>,
        round: &'r Round,
        in_lane: bool,
    ) -> Result<Box<dyn OnDevice<T> + 'r>>
    where
        'a: 'r,
    {
        let setup = Setup {
            pool: self.pool,
            device: self.device.clone(),
            threshold,
            detail: &round.grid,
            left: self.left,
            right: self.right,
            include_self: self.include_self,
            // Batches are parts, and look at all candidates.
            removal: DuplicateRemoval::None,
            how: &round.how,
            extents: self.extents,
            monitor: self.monitor,
        };
        if in_lane { epsilon::index_in_lane(setup) } else { epsilon::index_whole(setup) }
    }
}
