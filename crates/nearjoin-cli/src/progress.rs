//! One line on the terminal that says how far a run has come.
//!
//! A thread of its own reads the counters ten times a second and draws; the work never
//! waits for it.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use nearjoin::{Monitor, Phase};

use crate::args::When;
use crate::failure::tell;
use crate::number;

const REDRAW: Duration = Duration::from_millis(100);
/// Where lines cannot be drawn over, as in a log, they come this often.
const NEXT_LINE: Duration = Duration::from_secs(1);
/// Runs shorter than this show nothing.
const PATIENCE: Duration = Duration::from_millis(300);
/// A rate, or the time left, of less than this would be a guess.
const SETTLED: Duration = Duration::from_millis(400);

/// Whether a line stands on the terminal that has to go before anything else is said.
static LINE: AtomicU8 = AtomicU8::new(NONE);
const NONE: u8 = 0;
const DRAWN: u8 = 1;
/// No line may be drawn any more.
const OVER: u8 = 2;

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
            Stage::Starting => View { name: "starting".into(), ..View::default() },
            Stage::Loading(file, bytes) => View {
                name: format!("loading {file}"),
                done: bytes.done.load(Relaxed),
                total: bytes.total.load(Relaxed),
                found: Found::Bytes,
            },
            Stage::Writing(file) => View { name: format!("finishing {file}"), ..View::default() },
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
                View {
                    name: format!("{name}{}", part.unwrap_or_default()),
                    done: progress.tests,
                    total: progress.expected_tests,
                    found: Found::Pairs(progress.pairs * factor),
                }
            }
        }
    }
}

/// What the line shows.
#[derive(Clone, Debug, Default, PartialEq)]
struct View {
    /// It stays the same while a phase goes on.
    name: String,
    /// Bytes or distance tests.
    done: u64,
    /// Unknown where it is 0; of tests it is an estimate.
    total: u64,
    found: Found,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Found {
    #[default]
    Nothing,
    Bytes,
    Pairs(u64),
}

impl View {
    /// What of how much is done, where it is known. A GPU may tell nothing before its work is
    /// done: an empty bar would look stuck.
    fn share(&self) -> Option<(u64, u64)> {
        let known = self.total > 0 && (self.done > 0 || self.found == Found::Bytes);
        // All is done only when the phase ends.
        known.then(|| (self.done.min(self.total - 1), self.total))
    }

    fn pairs(&self) -> u64 {
        if let Found::Pairs(pairs) = self.found { pairs } else { 0 }
    }

    /// The line behind the bar: first what matters, since a narrow terminal cuts the end off.
    fn line(&self, rate: Option<f64>, left: Option<Duration>) -> String {
        let mut parts = vec![self.name.clone()];
        match self.found {
            Found::Bytes if self.total > 0 => {
                parts.push(format!("{} of {}", number::bytes(self.done), number::bytes(self.total)))
            }
            Found::Bytes => parts.push(number::bytes(self.done)),
            // A GPU counts its pairs when it is done.
            Found::Pairs(pairs @ 1..) if self.total > 0 => {
                parts.push(format!("{} pairs", number::estimate(pairs as f64)));
                parts.extend(rate.map(|rate| format!("{}/s", number::estimate(rate))));
            }
            _ => {}
        }
        parts.extend(left.map(|left| format!("{:#} left", HumanDuration(left))));
        if let (Found::Pairs(_), Some((_, expected))) = (self.found, self.share()) {
            let (tests, expected) = (self.done as f64, expected.max(self.done) as f64);
            parts.push(format!("{tests:.1e} of {expected:.1e} tests"));
        }
        parts.join("  ")
    }
}

/// The line as it is drawn: over the one before on a terminal, or below it.
struct Line {
    bar: ProgressBar,
    /// What there was when this phase began.
    first: View,
    start: Instant,
}

impl Line {
    fn new() -> Self {
        // Hidden where standard error is no terminal, or a dumb one.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        Line { bar, first: View::default(), start: Instant::now() }
    }

    fn is_drawn_over(&self) -> bool {
        !self.bar.is_hidden()
    }

    fn show(&mut self, view: &View) {
        if self.first.name != view.name {
            (self.first, self.start) = (view.clone(), Instant::now());
        }
        let (done, total) = view.share().unwrap_or_default();
        let took = self.start.elapsed();
        let pairs = rate(view.pairs().saturating_sub(self.first.pairs()), took);
        let pace = rate(view.done.saturating_sub(self.first.done), took).filter(|_| total > 0);
        let left =
            pace.map(|pace| Duration::from_secs_f64(((total - done) as f64 / pace).min(1e9)));
        let line = view.line(pairs, left);
        if !self.is_drawn_over() {
            let percent =
                (total > 0).then(|| format!("{:.0} %  ", 100.0 * done as f64 / total as f64));
            tell(format!("{}{line}", percent.unwrap_or_default()));
        } else if LINE.compare_exchange(NONE, DRAWN, Relaxed, Relaxed) != Err(OVER) {
            // Only `update` draws: one picture, of things that belong together.
            let bar = self.bar.clone().with_style(style(total > 0)).with_message(line);
            bar.update(|state| {
                state.set_len(total.max(1));
                state.set_pos(done);
            });
        }
    }
}

/// So many a second.
fn rate(found: u64, took: Duration) -> Option<f64> {
    (took >= SETTLED && found > 0).then(|| found as f64 / took.as_secs_f64())
}

/// The message takes what is left of the width and is cut there.
fn style(bar: bool) -> ProgressStyle {
    let template = if bar { "[{bar:12}] {percent:>3} %  {wide_msg}" } else { "{wide_msg}" };
    let style = ProgressStyle::with_template(template).expect("a template that a test has seen");
    style.progress_chars("##-")
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
        let mut line = Line::new();
        let wanted = match when {
            When::Always => true,
            When::Never => false,
            When::Auto => {
                let clash = !free && std::io::stdout().is_terminal();
                line.is_drawn_over() && !quiet && !clash
            }
        };
        if !wanted {
            return Shown { stop: None, thread: None };
        }
        let (stop, stopped) = mpsc::channel();
        let board = board.clone();
        let patience = if when == When::Always { Duration::ZERO } else { PATIENCE };
        let again = if line.is_drawn_over() { REDRAW } else { NEXT_LINE };
        let draw = move || {
            let mut wait = patience;
            // It waits for a moment, and ends once the sender is dropped, which a panic of the
            // run does too.
            while stopped.recv_timeout(wait) == Err(mpsc::RecvTimeoutError::Timeout) {
                wait = again;
                line.show(&board.look());
            }
            line.bar.finish_and_clear();
            let _ = LINE.compare_exchange(DRAWN, NONE, Relaxed, Relaxed);
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

/// Says something while a line may stand on the terminal, which is then drawn again below.
pub(crate) fn tell_above(text: impl Display) {
    let wipe = if LINE.load(Relaxed) == DRAWN { WIPE } else { "" };
    let _ = writeln!(std::io::stderr().lock(), "{wipe}{text}");
}

/// What takes the line away.
const WIPE: &str = "\r\x1b[K";

/// For whoever ends the program past this thread and its locks: no line is drawn from now on.
/// Returns what takes away the one that stands there.
#[cfg(unix)]
pub(crate) fn leave() -> &'static str {
    if LINE.swap(OVER, Relaxed) == DRAWN { WIPE } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joining(name: &str, done: u64, total: u64, pairs: u64) -> View {
        View { name: name.into(), done, total, found: Found::Pairs(pairs) }
    }

    #[test]
    fn lines() {
        let view = joining("joining", 500_000_000, 2_000_000_000, 12_345_678);
        let left = Some(Duration::from_secs(6));
        let line = "joining  12.3 M pairs  6.17 M/s  6s left  5.0e8 of 2.0e9 tests";
        assert_eq!(view.line(Some(6.17e6), left), line);
        let in_steps = joining("counting", 1_000_000_000, 2_000_000_000, 0);
        assert_eq!(in_steps.line(None, None), "counting  1.0e9 of 2.0e9 tests");
        assert_eq!(joining("counting", 0, 9, 0).line(None, None), "counting");
        assert_eq!(joining("indexing", 0, 0, 0).line(None, None), "indexing");
        let loading = |done, total| {
            let name = "loading a.npy".into();
            View { name, done, total, found: Found::Bytes }.line(None, None)
        };
        assert_eq!(loading(1 << 20, 4 << 20), "loading a.npy  1 MiB of 4 MiB");
        assert_eq!(loading(10, 0), "loading a.npy  10 B");
    }

    #[test]
    fn what_matters_fits_80_columns() {
        let view = joining("joining part 12 of 34", 9_990_000_000_000, 1 << 44, 9_990_000_000_000);
        let line = view.line(Some(9.99e11), Some(Duration::from_secs(3 * 3600)));
        let line = format!("[############] 100 %  {line}");
        assert!(line[..80].contains("999 G/s  3h left"), "{line}");
        for bar in [true, false] {
            style(bar);
        }
    }

    /// What was found before the first look at a phase took an unknown time.
    #[test]
    fn the_first_rate_is_a_rate() {
        assert_eq!(rate(800_000, Duration::from_micros(10)), None);
        assert_eq!(rate(0, Duration::from_secs(9)), None);
        assert_eq!(rate(800_000, Duration::from_millis(500)), Some(1.6e6));
        let mut line = Line::new();
        line.show(&joining("joining", 1000, 1_000_000, 800_000));
        assert_eq!(line.first.pairs(), 800_000);
    }
}
