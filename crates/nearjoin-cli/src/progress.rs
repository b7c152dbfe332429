//! One line on the terminal that says how far a run has come.
//!
//! A thread of its own reads the counters ten times a second and draws; the work never
//! waits for it.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nearjoin::{Monitor, Phase};

use crate::args::When;
use crate::number;

const REDRAW: Duration = Duration::from_millis(100);
/// Runs shorter than this show nothing.
const PATIENCE: Duration = Duration::from_millis(300);
const BAR: usize = 20;

/// Whether a line stands on the terminal that has to go before anything else is said.
static DRAWN: AtomicBool = AtomicBool::new(false);

/// What a run is doing, for the thread that shows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    pub(crate) monitor: Monitor,
    stage: Arc<Mutex<Stage>>,
}

/// The steps that the engine does not know of.
#[derive(Clone, Debug, Default)]
enum Stage {
    #[default]
    Starting,
    Loading(String, Arc<nearjoin_io::Progress>),
    /// Pairs that each one counted by the engine stands for, and which part of how many.
    Joining(u64, Option<(usize, usize)>),
    Writing(String),
}

impl Board {
    pub(crate) fn loading(&self, file: &str) -> Arc<nearjoin_io::Progress> {
        let progress = Arc::new(nearjoin_io::Progress::default());
        self.set(Stage::Loading(file.to_string(), progress.clone()));
        progress
    }

    /// `factor`: 2 where the engine counts each pair once and the answer has it twice.
    pub(crate) fn joining(&self, factor: u64, part: Option<(usize, usize)>) {
        self.set(Stage::Joining(factor, part));
    }

    pub(crate) fn writing(&self, file: &str) {
        self.set(Stage::Writing(file.to_string()));
    }

    fn set(&self, stage: Stage) {
        *self.stage.lock().unwrap_or_else(|e| e.into_inner()) = stage;
    }

    fn look(&self) -> View {
        let stage = self.stage.lock().unwrap_or_else(|e| e.into_inner()).clone();
        match stage {
            Stage::Starting => View::Plain("starting".into()),
            Stage::Loading(file, bytes) => View::Loading {
                file,
                done: bytes.done.load(Relaxed),
                total: bytes.total.load(Relaxed),
            },
            Stage::Writing(file) => View::Plain(format!("finishing {file}")),
            Stage::Joining(factor, part) => {
                let progress = self.monitor.progress();
                let name = match progress.phase {
                    Phase::Planning => "planning",
                    Phase::Indexing => "indexing",
                    Phase::Counting => "counting",
                    Phase::Joining => "joining",
                    _ => "starting",
                };
                let part = part.map(|(part, of)| format!(" part {part} of {of}"));
                View::Joining {
                    name: format!("{name}{}", part.unwrap_or_default()),
                    tests: progress.tests,
                    expected: progress.expected_tests,
                    pairs: progress.pairs * factor,
                }
            }
        }
    }
}

/// What the line shows.
#[derive(Clone, Debug, PartialEq)]
enum View {
    Plain(String),
    Loading { file: String, done: u64, total: u64 },
    Joining { name: String, tests: u64, expected: u64, pairs: u64 },
}

impl View {
    /// What stays the same while a phase goes on.
    fn phase(&self) -> &str {
        match self {
            View::Plain(name) | View::Joining { name, .. } => name,
            View::Loading { file, .. } => file,
        }
    }

    fn fraction(&self) -> Option<f64> {
        let (done, total) = match *self {
            View::Plain(_) => return None,
            View::Loading { done, total, .. } => (done, total),
            // A GPU may tell nothing before its work is done: an empty bar would look stuck.
            View::Joining { tests: 0, .. } => return None,
            View::Joining { tests, expected, .. } => (tests, expected),
        };
        // Expected work is an estimate: all of it is done only when the phase ends.
        (total > 0).then(|| (done as f64 / total as f64).clamp(0.0, 0.999))
    }

    /// The line, given for how long this phase has gone on.
    fn line(&self, seconds: f64) -> String {
        let mut parts = Vec::new();
        if let Some(fraction) = self.fraction() {
            let full = (fraction * BAR as f64) as usize;
            parts.push(format!(
                "[{}{}] {:>3.0} %",
                "#".repeat(full),
                "-".repeat(BAR - full),
                fraction * 100.0
            ));
        }
        match self {
            View::Plain(_) => {}
            View::Loading { done, total, .. } if *total > 0 => {
                parts.push(format!("{} of {}", number::bytes(*done), number::bytes(*total)));
            }
            View::Loading { done, .. } => parts.push(number::bytes(*done)),
            // A GPU counts its pairs when it is done.
            View::Joining { pairs: 0, .. } | View::Joining { expected: 0, .. } => {}
            View::Joining { pairs, .. } => {
                parts.push(format!("{} pairs", number::count(*pairs)));
                if seconds > 0.0 {
                    parts.push(format!("{}/s", short(*pairs as f64 / seconds)));
                }
            }
        }
        if let Some(fraction) = self.fraction().filter(|fraction| *fraction > 0.01 && seconds > 0.5)
        {
            parts.push(format!("{} left", clock(seconds * (1.0 - fraction) / fraction)));
        }
        // Last, since a narrow terminal cuts it off.
        if let View::Joining { tests: tests @ 1.., expected: expected @ 1.., .. } = self {
            let (tests, expected) = (*tests as f64, (*expected).max(*tests) as f64);
            parts.push(format!("{tests:.2e} of {expected:.2e} tests"));
        }
        let name = match self {
            View::Loading { file, .. } => format!("loading {file}"),
            _ => self.phase().to_string(),
        };
        format!("{name}  {}", parts.join("  ")).trim_end().to_string()
    }
}

/// `12.3 M`.
fn short(value: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.iter().find(|(unit, _)| value >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", value / unit),
        None => format!("{value:.0}"),
    }
}

/// `1:02:03`, `2:03` or `0:03`.
fn clock(seconds: f64) -> String {
    let seconds = seconds.min(1e7).round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// The thread that draws. Dropping it wipes the line.
#[derive(Debug)]
pub(crate) struct Shown {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Shown {
    /// Shows the board on standard error, if that is wanted. `free`: whether standard
    /// output is left alone, so that the line disturbs no output on the same terminal.
    pub(crate) fn new(board: &Board, when: When, quiet: bool, free: bool) -> Self {
        let wanted = match when {
            When::Always => true,
            When::Never => false,
            When::Auto => {
                let clash = !free && std::io::stdout().is_terminal();
                std::io::stderr().is_terminal() && !quiet && !clash
            }
        };
        if !wanted {
            return Shown { stop: None, thread: None };
        }
        let (stop, stopped) = mpsc::channel();
        let board = board.clone();
        let patience = if when == When::Always { Duration::ZERO } else { PATIENCE };
        let draw = move || {
            let mut phase = (String::new(), Instant::now());
            let mut wait = patience;
            // It waits for a tenth of a second, and ends once the sender is dropped, which a
            // panic of the run does too.
            while stopped.recv_timeout(wait) == Err(mpsc::RecvTimeoutError::Timeout) {
                wait = REDRAW;
                let view = board.look();
                if phase.0 != view.phase() {
                    phase = (view.phase().to_string(), Instant::now());
                }
                show(&view.line(phase.1.elapsed().as_secs_f64()));
            }
            wipe();
        };
        let thread = std::thread::Builder::new().name("progress".into()).spawn(draw).ok();
        Shown { stop: Some(stop), thread }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The sender is gone, so it ends once standard error has taken its line; if it
            // panicked, it has ended.
            let _ = thread.join();
        }
    }
}

fn show(line: &str) {
    let width = terminal_size::terminal_size_of(std::io::stderr())
        .map_or(100, |(width, _)| usize::from(width.0));
    let line: String = line.chars().take(width.saturating_sub(1)).collect();
    let mut stderr = std::io::stderr().lock();
    DRAWN.store(true, Relaxed);
    let _ = write!(stderr, "\r{line}\x1b[K").and_then(|()| stderr.flush());
}

/// Says something while a line may stand on the terminal, which is then drawn again below.
pub(crate) fn tell_above(text: impl Display) {
    let mut stderr = std::io::stderr().lock();
    let wipe = if DRAWN.swap(false, Relaxed) { "\r\x1b[K" } else { "" };
    let _ = writeln!(stderr, "{wipe}{text}");
}

/// What takes the line away.
const WIPE: &str = "\r\x1b[K";

/// For whoever ends the program past the locks: what takes the line away, if there is one.
#[cfg(unix)]
pub(crate) fn leave() -> &'static str {
    if DRAWN.swap(false, Relaxed) { WIPE } else { "" }
}

/// Takes the line away, if there is one.
fn wipe() {
    if DRAWN.swap(false, Relaxed) {
        let mut stderr = std::io::stderr().lock();
        let _ = write!(stderr, "{WIPE}").and_then(|()| stderr.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let joining = View::Joining {
            name: "joining".into(),
            tests: 500_000_000,
            expected: 2_000_000_000,
            pairs: 12_345_678,
        };
        assert_eq!(
            joining.line(2.0),
            "joining  [#####---------------]  25 %  12,345,678 pairs  6.2 M/s  0:06 left  \
             5.00e8 of 2.00e9 tests"
        );
        let in_steps = View::Joining {
            name: "counting".into(),
            tests: 1_000_000_000,
            expected: 2_000_000_000,
            pairs: 0,
        };
        assert_eq!(
            in_steps.line(0.2),
            "counting  [##########----------]  50 %  1.00e9 of 2.00e9 tests"
        );
        let silent = View::Joining { name: "counting".into(), tests: 0, expected: 9, pairs: 0 };
        assert_eq!(silent.line(2.0), "counting");
        let indexing = View::Joining { name: "indexing".into(), tests: 0, expected: 0, pairs: 0 };
        assert_eq!(indexing.line(1.0), "indexing");
        let loading = View::Loading { file: "a.npy".into(), done: 1 << 20, total: 4 << 20 };
        assert_eq!(
            loading.line(0.1),
            "loading a.npy  [#####---------------]  25 %  1 MiB of 4 MiB"
        );
        let piped = View::Loading { file: "-".into(), done: 10, total: 0 };
        assert_eq!(piped.line(9.0), "loading -  10 B");
    }

    #[test]
    fn clocks() {
        assert_eq!(clock(3.2), "0:03");
        assert_eq!(clock(3723.0), "1:02:03");
        assert_eq!(short(1.25e9), "1.2 G");
        assert_eq!(short(12.0), "12");
    }
}
