//! Numbers as people read them, for plans and for the program.

/// An exact count with its thousands apart: `50,264,910`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// An estimate, to three figures: `812`, `49.8 M`, `1.2e21`; a dash where there is none.
pub fn estimate(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "–".to_owned();
    }
    if (1000.0..9999.5).contains(&value) {
        return count(value.round() as u64);
    }
    let (scale, unit) = match size {
        _ if size >= 9.995e17 => return format!("{value:.1e}"),
        _ if size >= 9.995e14 => (1e15, " P"),
        _ if size >= 9.995e11 => (1e12, " T"),
        _ if size >= 9.995e8 => (1e9, " G"),
        _ if size >= 9.995e5 => (1e6, " M"),
        _ if size >= 9999.5 => (1e3, " k"),
        _ => (1.0, ""),
    };
    format!("{}{unit}", figures(value / scale, 3))
}

/// `value` to so many significant figures, without an exponent or trailing zeros.
pub fn figures(value: f64, figures: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { "–".to_owned() };
    }
    let whole = value.abs().log10().floor() as i32 + 1;
    let decimals = (figures as i32 - whole).clamp(0, 300) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_their_thousands_apart() {
        let counts = [0, 7, 999, 1000, 50_264_910, u64::MAX].map(count);
        assert_eq!(counts, ["0", "7", "999", "1,000", "50,264,910", "18,446,744,073,709,551,615"]);
    }

    #[test]
    fn estimates_have_three_figures() {
        let values = [0.0, 0.25, 812.0, 9999.0, 49_800_000.0, 999_999.0, 6.7e10, 1e300];
        assert_eq!(
            values.map(estimate),
            ["0", "0.25", "812", "9,999", "49.8 M", "1 M", "67 G", "1.0e300"]
        );
        assert_eq!(estimate(f64::INFINITY), "–");
    }
}
