//! Where the ticks of an axis stand, and what they say.

use crate::number::figures;

/// A tick at a value of the data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) at: f64,
    pub(crate) label: String,
}

/// Ticks of a linear axis: about `most` round values in `low..=high`.
pub(crate) fn linear(low: f64, high: f64, most: usize) -> Vec<Tick> {
    let span = high - low;
    if !low.is_finite() || !high.is_finite() || span < 0.0 {
        return Vec::new();
    }
    if !span.is_finite() {
        return [low, 0.0, high].map(|at| Tick { at, label: short(at) }).into();
    }
    let largest = low.abs().max(high.abs());
    if span <= largest * 1e-14 || span < f64::MIN_POSITIVE * 1e3 {
        return vec![Tick { at: low, label: short(low) }];
    }
    let step = round_step(span / most.max(1) as f64);
    let first = (low / step).ceil();
    (0..=2 * most.max(1))
        .map(|tick| (first + tick as f64) * step)
        .take_while(|&at| at <= high + span * 1e-9)
        .map(|at| Tick { at, label: stepped(at, step, largest) })
        .collect()
}

/// Ticks of a logarithmic axis: at most about `most` in `low..=high`, at powers of ten where
/// there are enough of them.
pub(crate) fn logarithmic(low: f64, high: f64, most: usize) -> Vec<Tick> {
    if !(low > 0.0 && high.is_finite() && low <= high) {
        return Vec::new();
    }
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    // Room for a value that is a power of ten but for rounding.
    let inside = |at: &f64| *at >= low * (1.0 - 1e-9) && *at <= high * (1.0 + 1e-9);
    let among = |steps: &[f64]| -> Vec<f64> {
        let decades = (first..=last).map(|power| 10f64.powi(power));
        decades.flat_map(|ten| steps.iter().map(move |step| step * ten)).filter(inside).collect()
    };
    let decades = among(&[1.0]);
    let ticks = if decades.len() >= 3 {
        let stride = decades.len().div_ceil(most.max(2));
        decades.into_iter().step_by(stride).collect()
    } else {
        let finer = [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]].map(among);
        match finer.into_iter().find(|ticks| ticks.len() <= most.max(2)) {
            Some(ticks) if ticks.len() >= 2 => ticks,
            _ => return linear(low, high, most),
        }
    };
    ticks.into_iter().map(|at| Tick { at, label: short(at) }).collect()
}

/// A value in few characters: `1e-3`, `0.05`, `120`, `10k`, `1M`.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size == 0.0 => "0".to_owned(),
        _ if !(0.01..1e15).contains(&size) => {
            let text = format!("{value:.2e}");
            let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
            let digits = digits.trim_end_matches('0').trim_end_matches('.');
            format!("{digits}e{power}")
        }
        _ if size >= 1e12 => figures(value / 1e12, 3) + "T",
        _ if size >= 1e9 => figures(value / 1e9, 3) + "G",
        _ if size >= 1e6 => figures(value / 1e6, 3) + "M",
        _ if size >= 1e3 => figures(value / 1e3, 3) + "k",
        _ => figures(value, 3),
    }
}

/// A tick's value to the precision of the step between ticks.
fn stepped(at: f64, step: f64, largest: f64) -> String {
    let step_power = step.log10().floor();
    if largest >= 1e7 || step < 1e-5 {
        let digits = (largest.log10().floor() - step_power).clamp(0.0, 17.0) as usize;
        return if at == 0.0 { "0".to_owned() } else { format!("{at:.digits$e}") };
    }
    let decimals = (-step_power).clamp(0.0, 17.0) as usize;
    // Not “-0”.
    let at = if at.abs() < step / 2.0 { 0.0 } else { at };
    format!("{at:.decimals$}").replace('-', "−")
}

/// The smallest of 1, 2, 5 · 10ⁿ that is not below `step`.
fn round_step(step: f64) -> f64 {
    let ten = 10f64.powf(step.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|factor| factor * ten);
    steps.into_iter().find(|&round| round >= step * (1.0 - 1e-9)).unwrap_or(10.0 * ten)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: Vec<Tick>) -> Vec<String> {
        ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn linear_ticks_are_round() {
        assert_eq!(labels(linear(0.0, 1.0, 5)), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(linear(-3.2, 7.0, 4)), ["0", "5"]);
        assert_eq!(labels(linear(-1.0, 1.0, 4)), ["−1.0", "−0.5", "0.0", "0.5", "1.0"]);
        assert_eq!(labels(linear(1e8, 1.0001e8, 2)), ["1.00000e8", "1.00005e8", "1.00010e8"]);
    }

    #[test]
    fn linear_ticks_of_odd_ranges() {
        assert_eq!(labels(linear(5.0, 5.0, 4)), ["5"]);
        assert_eq!(labels(linear(-f64::MAX, f64::MAX, 4)), ["-1.8e308", "0", "1.8e308"]);
        assert!(linear(f64::NAN, 1.0, 4).is_empty());
        assert!(linear(1.0, 0.0, 4).is_empty());
        for (low, high) in [(0.0, 5e-324), (1e300, 1.5e300), (1.0, 1.0 + 1e-12)] {
            let ticks = linear(low, high, 4);
            assert!(!ticks.is_empty() && ticks.len() < 10, "{low} {high} {ticks:?}");
        }
    }

    #[test]
    fn logarithmic_ticks_are_powers_of_ten_where_they_fit() {
        assert_eq!(labels(logarithmic(1e-3, 10.0, 6)), ["1e-3", "0.01", "0.1", "1", "10"]);
        assert_eq!(labels(logarithmic(1.0, 1e8, 5)), ["1", "100", "10k", "1M", "100M"]);
        assert_eq!(labels(logarithmic(1.0, 60.0, 6)), ["1", "2", "5", "10", "20", "50"]);
        assert_eq!(labels(logarithmic(1.0, 60.0, 4)), ["1", "3", "10", "30"]);
        assert_eq!(labels(logarithmic(11.0, 14.0, 4)), ["11", "12", "13", "14"]);
    }

    #[test]
    fn logarithmic_ticks_of_odd_ranges() {
        assert_eq!(labels(logarithmic(3.0, 3.0, 4)), ["3"]);
        assert!(logarithmic(0.0, 1.0, 4).is_empty());
        assert!(logarithmic(1.0, f64::INFINITY, 4).is_empty());
        assert!(logarithmic(5e-324, f64::MAX, 6).len() <= 6);
    }

    #[test]
    fn short_values() {
        assert_eq!(
            [0.0, 1e-3, 2.5e-7, 0.05, 120.0, 1e4, 2.5e6, -1e3, 1e18].map(short),
            ["0", "1e-3", "2.5e-7", "0.05", "120", "10k", "2.5M", "-1k", "1e18"]
        );
    }
}
