//! What the system says of itself and of this process.

use std::fs;

/// The most memory that this process has had, in bytes; unknown other than on Linux.
pub(crate) fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The signals that this process was started to ignore; none are known other than on Linux.
pub(crate) fn ignored_signals() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (1..=64).filter(|signal| mask >> (signal - 1) & 1 == 1).collect()
}

/// The name of the processor.
pub(crate) fn processor() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Columns and lines of the terminal, or what a plain one has.
pub(crate) fn terminal() -> (usize, usize) {
    let size = terminal_size::terminal_size();
    size.map_or((80, 24), |(width, height)| (usize::from(width.0), usize::from(height.0)))
}

/// Whether the terminal shows characters beyond ASCII, as far as its locale says.
pub(crate) fn speaks_unicode() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// The command line, as a shell would need it.
pub(crate) fn command_line() -> String {
    let quoted = |argument: String| {
        let plain = |c: char| c.is_alphanumeric() || "-_./,=+:@%".contains(c);
        match !argument.is_empty() && argument.chars().all(plain) {
            true => argument,
            false => format!("'{}'", argument.replace('\'', "'\\''")),
        }
    };
    let arguments =
        std::env::args_os().skip(1).map(|argument| quoted(argument.to_string_lossy().into_owned()));
    std::iter::once("nearjoin".to_string()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// The date and the time in UTC, as in `2026-11-15 16:05 UTC`.
pub(crate) fn today() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let minutes = since.map_or(0, |since| since.as_secs()) / 60;
    let (year, month, day) = date(minutes / (24 * 60));
    let (hour, minute) = (minutes / 60 % 24, minutes % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// Year, month and day of a number of days since 1970.
fn date(mut days: u64) -> (u64, usize, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= months[month] {
        days -= months[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(20_772), (2026, 11, 15));
    }
}
