//! How fast a machine is: the measured figures that decisions about devices rest on.

/// How fast a machine is, as far as plans ask. The default was measured on one with an H200 on
/// PCIe 5.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Calibration {
    /// Seconds that a join takes the CPU, divided by those that a plan expects by default.
    pub cpu: f64,
    /// The same of the GPU, until a result is on its way back: see `landing`.
    pub gpu: f64,
    /// Seconds that a join must take the CPU to be worth the way to a GPU, of which the first in
    /// a process takes some tenths of a second to be opened.
    pub worth_a_gpu: f64,
    /// Seconds that a pass on a GPU takes, however small it is.
    pub gpu_start: f64,
    /// Nanoseconds of an instruction of a GPU, of all its warps together, ...
    pub gpu_instruction: f64,
    /// ... if it has so many multiprocessors.
    pub gpu_multiprocessors: f64,
    /// Nanoseconds to bring a coordinate to the device and to index it.
    pub gpu_index: f64,
    /// Bytes a second of the bus.
    pub bus: f64,
    /// Bytes a second of a result on its way into the arrays of the caller.
    pub landing: f64,
    /// Bytes a second of memory that is pinned.
    pub pinning: f64,
    /// Seconds that a piece on the bus costs beyond its bytes.
    pub piece: f64,
}

impl Default for Calibration {
    fn default() -> Self {
        Calibration {
            cpu: 1.0,
            gpu: 1.0,
            worth_a_gpu: 0.5,
            gpu_start: 5e-4,
            gpu_instruction: 1.0 / 1300.0,
            gpu_multiprocessors: 132.0,
            gpu_index: 0.25,
            bus: 55e9,
            landing: 40e9,
            pinning: 2e9,
            piece: 30e-6,
        }
    }
}
