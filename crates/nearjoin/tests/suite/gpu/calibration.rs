//! How fast a machine is: the measurement, with few points.

use std::sync::Arc;

use nearjoin::Error;
use nearjoin::gpu::{Calibration, Knobs, calibrate_with};
use nearjoin_simt::Simt;

use super::{knobs, real};

#[test]
fn a_machine_is_measured() {
    let found = calibrate_with(if real() { 1_000_000 } else { 300 }, &knobs()).unwrap();
    let machine = found.calibration;
    for (timing, ratio) in [(found.cpu, machine.cpu), (found.gpu, machine.gpu)] {
        assert!(timing.measured > 0.0 && timing.expected > 0.0, "{found:?}");
        assert_eq!(ratio, timing.measured / timing.expected);
    }
    assert!(machine.bus.is_finite() && 0.0 < machine.landing && machine.landing <= machine.bus);
    let mut rest = Calibration::default();
    (rest.cpu, rest.gpu, rest.bus, rest.landing) =
        (machine.cpu, machine.gpu, machine.bus, machine.landing);
    assert_eq!(machine, rest);
    assert!(real() || found.device == "simt");

    let text = found.to_text("a processor");
    let threads = std::thread::available_parallelism().unwrap();
    let device = &found.device;
    for line in
        [format!("threads = {threads}"), format!("device = {device}"), "version = 1".to_owned()]
    {
        assert!(text.lines().any(|known| known == line), "{line}: {text}");
    }
}

#[test]
fn a_device_that_is_lost_is_an_error() {
    let driver = Simt::new().lose_at_launch(40);
    let knobs = Knobs { driver: Some(Arc::new(driver)), ..Knobs::default() };
    let error = calibrate_with(200, &knobs).unwrap_err();
    assert!(matches!(error, Error::Device { device: "gpu", .. }), "{error}");
}
