//! Colour ramps in which equal steps look equal.

/// A ramp from few to many: a straight line in lightness and hue of the OKLCH colour space,
/// in which distances are those that the eye sees.
pub(crate) struct Ramp {
    lightness: [f64; 2],
    chroma: [f64; 2],
    /// In degrees.
    hue: [f64; 2],
}

/// For a light page: many is dark.
pub(crate) const LIGHT: Ramp =
    Ramp { lightness: [0.86, 0.27], chroma: [0.07, 0.11], hue: [195.0, 285.0] };

/// For a dark page: many is light.
pub(crate) const DARK: Ramp =
    Ramp { lightness: [0.38, 0.95], chroma: [0.12, 0.13], hue: [275.0, 100.0] };

impl Ramp {
    /// The colour at `part` of the way, 0 to 1, as 8-bit sRGB.
    pub(crate) fn at(&self, part: f64) -> [u8; 3] {
        let between = |[from, to]: [f64; 2]| from + (to - from) * part.clamp(0.0, 1.0);
        let hue = between(self.hue).to_radians();
        let chroma = between(self.chroma);
        srgb(between(self.lightness), chroma * hue.cos(), chroma * hue.sin())
    }

    /// The same for a style sheet.
    pub(crate) fn css(&self, part: f64) -> String {
        let [red, green, blue] = self.at(part);
        format!("#{red:02x}{green:02x}{blue:02x}")
    }
}

/// OKLab to sRGB; what lies outside is clipped.
fn srgb(lightness: f64, a: f64, b: f64) -> [u8; 3] {
    let long = (lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
    let medium = (lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
    let short = (lightness - 0.089_484_177_5 * a - 1.291_485_548_0 * b).powi(3);
    let linear = [
        4.076_741_662_1 * long - 3.307_711_591_3 * medium + 0.230_969_929_2 * short,
        -1.268_438_004_6 * long + 2.609_757_401_1 * medium - 0.341_319_396_5 * short,
        -0.004_196_086_3 * long - 0.703_418_614_7 * medium + 1.707_614_701_0 * short,
    ];
    linear.map(|light| {
        let light = light.clamp(0.0, 1.0);
        let encoded = if light <= 0.003_130_8 {
            12.92 * light
        } else {
            1.055 * light.powf(1.0 / 2.4) - 0.055
        };
        (encoded * 255.0).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_and_black_are_where_they_should_be() {
        assert_eq!(srgb(1.0, 0.0, 0.0), [255; 3]);
        assert_eq!(srgb(0.0, 0.0, 0.0), [0; 3]);
    }

    #[test]
    fn ramps_run_one_way_in_lightness() {
        let luma = |[red, green, blue]: [u8; 3]| {
            0.2126 * f64::from(red) + 0.7152 * f64::from(green) + 0.0722 * f64::from(blue)
        };
        let lumas = |ramp: &Ramp| (0..=20).map(|i| luma(ramp.at(f64::from(i) / 20.0))).collect();
        let (light, dark): (Vec<f64>, Vec<f64>) = (lumas(&LIGHT), lumas(&DARK));
        assert!(light.is_sorted_by(|a, b| a > b), "{light:?}");
        assert!(dark.is_sorted_by(|a, b| a < b), "{dark:?}");
    }
}
