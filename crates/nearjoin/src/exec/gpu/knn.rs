//! The KNN-join on a device.

use super::device::Device;
use crate::error::{Error, Result};
use crate::exec::OnDevice;
use crate::exec::pool::Pool;
use crate::metric::Threshold;
use crate::monitor::Monitor;
use crate::options::Strategy;
use crate::plan::OnGpu;
use crate::points::Points;
use crate::scalar::Scalar;

/// What a KNN-join on a device needs to know.
#[expect(dead_code)]
pub(crate) struct KnnSetup<'a, T> {
    pub(crate) pool: &'a Pool,
    pub(crate) device: Device,
    /// How distances are computed; nothing beyond its bound is a neighbour.
    pub(crate) arithmetic: Threshold<T>,
    pub(crate) left: Points<'a, T>,
    /// None where the left points are joined with themselves.
    pub(crate) right: Option<Points<'a, T>>,
    pub(crate) include_self: bool,
    pub(crate) k: usize,
    pub(crate) strategy: Strategy,
    pub(crate) how: &'a OnGpu,
    /// Those of all points of both sides.
    pub(crate) extents: &'a [(f64, f64)],
    pub(crate) monitor: Option<&'a Monitor>,
}

/// Copies the points to the device and indexes them there.
pub(crate) fn index<'a, T: Scalar>(_setup: KnnSetup<'a, T>) -> Result<Box<dyn OnDevice<T> + 'a>> {
    let reason = "this version has no KNN-join for GPUs".into();
    Err(Error::Device { device: "gpu", reason })
}
