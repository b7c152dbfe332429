//! What took how long: the phases, and those who shared the join along the same axis of time.

use super::chart;
use super::html::{self, Text};
use crate::number::seconds;

/// Something that took time, in seconds since the start. Phases may overlap.
pub(crate) struct Phase<'a> {
    pub(crate) name: &'a str,
    pub(crate) start: f64,
    pub(crate) end: f64,
}

/// A thread of the CPU, or a stream of the GPU.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) on_gpu: bool,
    /// Which of its threads or streams.
    pub(crate) number: usize,
    /// When it worked, in seconds since the start, in order.
    pub(crate) spans: Vec<(f64, f64)>,
    /// Seconds that it worked, and that it waited for others.
    pub(crate) busy: f64,
    pub(crate) idle: f64,
}

/// The section of the phases; nothing where they took no time.
pub(super) fn section(phases: &[Phase<'_>], workers: &[Worker]) -> String {
    let end =
        phases.iter().map(|phase| phase.end).filter(|end| end.is_finite()).fold(0.0, f64::max);
    if end <= 0.0 {
        return String::new();
    }
    let rows: String = phases.iter().map(|phase| phase.row(end)).collect();
    let (shown, left_out) = some(workers);
    let table = format!(
        "<table class=\"bars phases\">\n<caption>Phases may overlap</caption>\n\
         <thead><tr><th scope=\"col\">phase</th><th scope=\"col\" class=\"wide\">\
         <span class=\"unseen\">timeline, in seconds</span>{}</th><th scope=\"col\">start</th>\
         <th scope=\"col\">took</th><th scope=\"col\">share</th></tr></thead>\n\
         <tbody>\n{rows}</tbody>{}</table>\n{left_out}",
        chart::time_axis(end),
        together(&shown, end),
    );
    html::section("phases", "Phases", &table)
}

impl Phase<'_> {
    fn row(&self, end: f64) -> String {
        let took = self.end - self.start;
        let title = format!("{}: {} from {}", self.name, seconds(took), seconds(self.start));
        format!(
            "<tr><th scope=\"row\">{}</th><td class=\"wide\">{}</td><td>{}</td><td>{}</td>\
             <td>{:.0} %</td></tr>\n",
            Text(self.name),
            chart::bar("chosen", self.start / end, self.end / end, &title),
            seconds(self.start),
            seconds(took),
            took / end * 100.0,
        )
    }
}

/// More rows than this are a wall.
const MOST: usize = 32;

/// Those who are shown, the GPU first, and a sentence about the others.
fn some(workers: &[Worker]) -> (Vec<&Worker>, String) {
    let of = |on_gpu: bool| -> Vec<&Worker> {
        let mut of: Vec<_> = workers.iter().filter(|worker| worker.on_gpu == on_gpu).collect();
        of.sort_by_key(|worker| worker.number);
        of
    };
    let (mut streams, mut threads) = (of(true), of(false));
    let all = (streams.len(), threads.len());
    // Neither takes more than half of the rows from the other.
    streams.truncate(MOST - all.1.min(MOST / 2));
    threads.truncate(MOST - streams.len());
    let hidden = [
        (all.0 - streams.len(), "stream", "of the GPU"),
        (all.1 - threads.len(), "thread", "of the CPU"),
    ];
    let more = |&(number, what, of): &(usize, &str, &str)| match number {
        0 => None,
        1 => Some(format!("1 more {what} {of}")),
        _ => Some(format!("{number} more {what}s {of}")),
    };
    let hidden: Vec<_> = hidden.iter().filter_map(more).collect();
    let sentence = match hidden.is_empty() {
        true => String::new(),
        false => format!("<p class=\"aside left-out\">Not shown: {}.</p>\n", hidden.join(", ")),
    };
    streams.append(&mut threads);
    (streams, sentence)
}

/// A row for each worker, below the phases.
fn together(workers: &[&Worker], end: f64) -> String {
    if workers.is_empty() {
        return String::new();
    }
    // On a narrow page the third column goes: it can be told from the others.
    let rows: String = workers.iter().map(|worker| worker.row(end)).collect();
    format!(
        "\n<tbody class=\"workers\">\n<tr><th scope=\"col\">shared by</th><td class=\"wide\"></td>\
         <th scope=\"col\">idle</th><th scope=\"col\">busy</th><th scope=\"col\">share</th></tr>\n\
         {rows}</tbody>"
    )
}

impl Worker {
    fn name(&self) -> String {
        let what = if self.on_gpu { "gpu stream" } else { "cpu thread" };
        format!("{what} {}", self.number)
    }

    fn row(&self, end: f64) -> String {
        let (busy, idle) = (seconds(self.busy), seconds(self.idle));
        let share = self.busy / (self.busy + self.idle);
        let share = if share.is_finite() { share * 100.0 } else { 0.0 };
        let class = if self.on_gpu { "chosen" } else { "filled" };
        let spans: Vec<_> = self.spans.iter().map(|&(from, to)| (from / end, to / end)).collect();
        let title = format!("{}: busy {busy}, idle {idle}", self.name());
        format!(
            "<tr><th scope=\"row\">{}</th><td class=\"wide\">{}</td><td>{idle}</td><td>{busy}</td>\
             <td>{share:.0} %</td></tr>\n",
            self.name(),
            chart::spans(class, &spans, &title),
        )
    }
}
