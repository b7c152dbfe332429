//! Numbers as people read them.

pub(crate) use nearjoin::number::{count, estimate, figures};

/// A time, to three figures: `12.3 ms`, `0.41 s`, `2.6 min`; a dash where there is none.
pub(crate) fn seconds(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let (scale, unit) = match value {
        _ if value >= 2.0 * 86_400.0 => (86_400.0, "days"),
        _ if value >= 2.0 * 3600.0 => (3600.0, "h"),
        _ if value >= 120.0 => (60.0, "min"),
        _ if value >= 0.0995 || value <= 0.0 => (1.0, "s"),
        _ if value >= 9.995e-4 => (1e-3, "ms"),
        _ if value >= 9.995e-7 => (1e-6, "µs"),
        _ => (1e-9, "ns"),
    };
    format!("{} {unit}", figures(value / scale, 3))
}

/// A size in powers of 1024, to three figures: `117 MiB`.
pub(crate) fn bytes(value: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut size = value as f64;
    let mut unit = 0;
    while size >= 1023.5 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{} {}", figures(size, 3), UNITS[unit])
}

/// One number against another: `+0.9 %`, `−12 %`, `4.1 times as many`.
pub(crate) fn difference(estimated: f64, actual: f64) -> Option<String> {
    if estimated <= 0.0 || actual <= 0.0 || !estimated.is_finite() {
        return None;
    }
    let ratio = actual / estimated;
    Some(if ratio >= 2.0 {
        format!("{} times as many", figures(ratio, 2))
    } else if ratio <= 0.5 {
        format!("{} times fewer", figures(1.0 / ratio, 2))
    } else {
        let percent = figures((ratio - 1.0).abs() * 100.0, 2);
        let sign = if ratio < 1.0 { "−" } else { "+" };
        format!("{sign}{percent} %")
    })
}

/// A measured value, to four significant figures: `0.1128`, `1.234e-5`.
pub(crate) fn significant(value: f64) -> String {
    if value == 0.0 || (1e-4..1e6).contains(&value) {
        let digits = if value == 0.0 { 0 } else { 3 - value.log10().floor() as i32 };
        format!("{value:.*}", digits.clamp(0, 8) as usize)
    } else {
        format!("{value:.3e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_values_have_four_figures() {
        assert_eq!(significant(0.0), "0");
        assert_eq!(significant(0.112_837), "0.1128");
        assert_eq!(significant(123.456), "123.5");
        assert_eq!(significant(0.000_012_345), "1.234e-5");
        assert_eq!(significant(12_345_678.0), "1.235e7");
    }

    #[test]
    fn times_and_sizes_choose_their_unit() {
        assert_eq!(
            [0.0, 3.2e-8, 1.5e-5, 0.0123, 0.41, 12.34, 156.0, 1e4, 1e6].map(seconds),
            [
                "0 s",
                "32 ns",
                "15 µs",
                "12.3 ms",
                "0.41 s",
                "12.3 s",
                "2.6 min",
                "2.78 h",
                "11.6 days"
            ]
        );
        assert_eq!(seconds(f64::NAN), "–");
        assert_eq!([0, 1023, 122_683_392].map(bytes), ["0 B", "1023 B", "117 MiB"]);
        assert_eq!(bytes(u64::MAX), "16 EiB");
    }

    #[test]
    fn differences_read_as_sentences() {
        assert_eq!(difference(100.0, 101.0).as_deref(), Some("+1 %"));
        assert_eq!(difference(100.0, 88.0).as_deref(), Some("−12 %"));
        assert_eq!(difference(100.0, 410.0).as_deref(), Some("4.1 times as many"));
        assert_eq!(difference(410.0, 100.0).as_deref(), Some("4.1 times fewer"));
        assert_eq!(difference(0.0, 100.0), None);
    }
}
