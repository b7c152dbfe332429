//! What is in the calibration file: lines of `key = value`, by hand.

use core::fmt;

use crate::number;
use crate::plan::Calibration;

/// The version of the format. Keys may be added under the same one, and are ignored where they are
/// unknown; a key that changes its meaning makes a new version.
const VERSION: &str = "1";

/// The most characters of a value that a message shows.
const SHOWN: usize = 40;

/// A calibration with the machine that it was measured on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Filed {
    /// The name of the GPU.
    pub(crate) device: String,
    /// Threads that the machine runs at once.
    pub(crate) threads: usize,
    pub(crate) calibration: Calibration,
}

/// Why a text is no calibration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Damage {
    /// A line, from 1, is neither a key with its value nor a comment.
    Line { line: usize, text: String },
    /// A line has a value that its key cannot have.
    Value { line: usize, key: &'static str, value: String, allowed: &'static str },
    /// A line names a version that is not this one.
    Version { line: usize, value: String },
    /// A key that must be there is not.
    Missing { key: &'static str },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Line { line, text } => write!(f, "line {line}: {text:?} has no ="),
            Damage::Value { line, key, value, allowed } => {
                write!(f, "line {line}: {key} = {value:?} must be {allowed}")
            }
            Damage::Version { line, value } => {
                write!(f, "line {line}: version = {value:?} is not {VERSION}: calibrate again")
            }
            Damage::Missing { key } => write!(f, "it has no {key}"),
        }
    }
}

impl Filed {
    /// Reads a text. Where a key comes twice, the last one counts; a number that is missing keeps
    /// its default.
    pub(crate) fn parse(text: &str) -> Result<Filed, Damage> {
        let mut calibration = Calibration::default();
        let (mut version, mut device, mut threads) = (None, None, None);
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (key, value) = text
                .split_once('=')
                .map(|(key, value)| (key.trim(), value.trim()))
                .ok_or_else(|| Damage::Line { line, text: beginning(text) })?;
            match key {
                "version" if value != VERSION => {
                    return Err(Damage::Version { line, value: beginning(value) });
                }
                "version" => version = Some(()),
                "device" => device = Some(value.to_owned()),
                "threads" => threads = Some(count(line, "threads", value)?),
                "cpu" => calibration.cpu = positive(line, "cpu", value)?,
                "gpu" => calibration.gpu = positive(line, "gpu", value)?,
                "bus" => calibration.bus = positive(line, "bus", value)?,
                "landing" => calibration.landing = positive(line, "landing", value)?,
                _ => {}
            }
        }
        version.ok_or(Damage::Missing { key: "version" })?;
        let device = device.ok_or(Damage::Missing { key: "device" })?;
        let threads = threads.ok_or(Damage::Missing { key: "threads" })?;
        Ok(Filed { device, threads, calibration })
    }

    /// Whether it was measured on a machine with this GPU, and with so many threads.
    pub(crate) fn is_of(&self, device: &str, threads: usize) -> bool {
        one_line(&self.device) == one_line(device) && self.threads == threads
    }

    /// The text that [`Filed::parse`] reads. The processor is for people.
    pub(crate) fn to_text(&self, processor: &str) -> String {
        let Filed { device, threads, calibration } = self;
        let Calibration { cpu, gpu, bus, landing, .. } = *calibration;
        let (processor, device) = (one_line(processor), one_line(device));
        let factor = |value| number::figures(value, 4);
        format!(
            "# How fast this machine is, for nearjoin's plans. Made by `nearjoin info --calibrate`.\n\
             version = {VERSION}\n\
             processor = {processor}\n\
             threads = {threads}\n\
             device = {device}\n\
             cpu = {}\n\
             gpu = {}\n\
             bus = {bus:.3e}\n\
             landing = {landing:.3e}\n",
            factor(cpu),
            factor(gpu),
        )
    }
}

fn positive(line: usize, key: &'static str, value: &str) -> Result<f64, Damage> {
    let number = value.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| Damage::Value {
        line,
        key,
        value: beginning(value),
        allowed: "a positive number",
    })
}

fn count(line: usize, key: &'static str, value: &str) -> Result<usize, Damage> {
    value.parse().ok().filter(|&number| number > 0).ok_or_else(|| Damage::Value {
        line,
        key,
        value: beginning(value),
        allowed: "a positive whole number",
    })
}

/// As much of a text as a message shows.
fn beginning(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// A name that neither ends its line nor begins or ends with a space.
fn one_line(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
# How fast this machine is, for nearjoin's plans. Made by `nearjoin info --calibrate`.
version = 1
processor = Intel(R) Xeon(R) Processor
threads = 16
device = NVIDIA H200
cpu = 0.93
gpu = 1.12
bus = 5.2e10
landing = 4.1e10
";

    fn good() -> Filed {
        let mut calibration = Calibration::default();
        (calibration.cpu, calibration.gpu) = (0.93, 1.12);
        (calibration.bus, calibration.landing) = (5.2e10, 4.1e10);
        Filed { device: "NVIDIA H200".into(), threads: 16, calibration }
    }

    /// The good text with one line in place of another.
    fn with(old: &str, new: &str) -> String {
        assert!(GOOD.contains(old));
        GOOD.replace(old, new)
    }

    #[test]
    fn a_good_text() {
        assert_eq!(Filed::parse(GOOD), Ok(good()));
        let spread =
            format!("\n{}\n  # no more\n", GOOD.replace(" = ", "=").replace('\n', " \r\n"));
        assert_eq!(Filed::parse(&spread), Ok(good()));
        let numbers = with("cpu = 0.93\ngpu = 1.12\nbus = 5.2e10\nlanding = 4.1e10\n", "");
        let Filed { calibration, .. } = Filed::parse(&numbers).unwrap();
        assert_eq!(calibration, Calibration::default());
        // A name may have any sign but the end of the line.
        let device = Filed::parse(&with("NVIDIA H200", "a = b # c")).unwrap().device;
        assert_eq!(device, "a = b # c");
    }

    #[test]
    fn unknown_keys_are_for_others() {
        assert_eq!(Filed::parse(&(GOOD.to_owned() + "knn = fast\nnode =\n")), Ok(good()));
    }

    #[test]
    fn what_is_written_can_be_read() {
        let text = good().to_text("Intel(R) Xeon(R) Processor");
        assert_eq!(text, GOOD.replace("5.2e10", "5.200e10").replace("4.1e10", "4.100e10"));
        let mut odd = good();
        (odd.calibration.cpu, odd.calibration.gpu, odd.calibration.bus) = (1e-9, 123_456.0, 1.0);
        odd.device = "two  lines\nversion = 7".into();
        let text = odd.to_text("\nversion = 8");
        let read = Filed::parse(&text).unwrap();
        assert_eq!(read.calibration, odd.calibration);
        assert!(read.is_of(&odd.device, 16) && !read.is_of("two lines", 16));
        assert_eq!(text.lines().count(), GOOD.lines().count());
    }

    #[test]
    fn a_calibration_is_of_one_machine() {
        assert!(good().is_of("NVIDIA H200", 16) && good().is_of(" NVIDIA  H200", 16));
        assert!(!good().is_of("NVIDIA H200", 8) && !good().is_of("NVIDIA A100", 16));
    }

    #[test]
    fn damage_is_told_with_its_line_and_value() {
        let damaged = |old: &str, new: &str| Filed::parse(&with(old, new)).unwrap_err().to_string();
        for value in ["0", "-1", "inf", "NaN", "1e999", "fast", "1,5", ""] {
            let said = damaged("gpu = 1.12", &format!("gpu = {value}"));
            assert_eq!(said, format!("line 7: gpu = {value:?} must be a positive number"));
        }
        for key in ["cpu = 0.93", "bus = 5.2e10", "landing = 4.1e10"] {
            let name = key.split_once(' ').unwrap().0;
            assert!(damaged(key, &format!("{name} = x")).contains(&format!("{name} = \"x\"")));
        }
        for value in ["0", "-2", "1.5", "all"] {
            let said = damaged("threads = 16", &format!("threads = {value}"));
            assert_eq!(
                said,
                format!("line 4: threads = {value:?} must be a positive whole number")
            );
        }
        assert_eq!(damaged("cpu = 0.93", "cpu 0.93"), "line 6: \"cpu 0.93\" has no =");
        assert_eq!(
            damaged("version = 1", "version = 2"),
            "line 2: version = \"2\" is not 1: calibrate again"
        );
        for line in ["version = 1\n", "threads = 16\n", "device = NVIDIA H200\n"] {
            let key = line.split_once(' ').unwrap().0;
            assert_eq!(damaged(line, ""), format!("it has no {key}"));
        }
        assert_eq!(Filed::parse("").unwrap_err(), Damage::Missing { key: "version" });
        let long = damaged("cpu = 0.93", &"\u{1b}x".repeat(1000));
        assert!(long.len() < 400 && !long.contains('\u{1b}'), "{long}");
    }
}
