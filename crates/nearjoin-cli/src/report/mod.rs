//! A report on a join: one HTML page that needs nothing beside itself.
//!
//! The page has its style, its charts and its pictures inside it, runs no script and asks
//! nothing of the network; its content security policy says so. It follows the reader's choice
//! of a light or a dark page, and prints in light.

mod axis;
mod chart;
mod colour;
mod density;
mod histogram;
mod html;
mod phases;

pub(crate) use axis::{Tick, logarithmic, short};
pub(crate) use density::{Density, Extent};
pub(crate) use histogram::Histogram;
pub(crate) use phases::{Phase, Worker};

use histogram::Measure;
use html::Text;

use crate::number::{self, bytes, count, estimate, seconds};

/// What a report says.
pub(crate) struct Report<'a> {
    /// What was done, in one line.
    pub(crate) title: &'a str,
    /// The program and its version.
    pub(crate) program: &'a str,
    pub(crate) date: &'a str,
    pub(crate) command: &'a str,
    /// What was asked, beside the command line.
    pub(crate) asked: &'a [(&'a str, String)],
    pub(crate) plan: Plan<'a>,
    pub(crate) phases: &'a [Phase<'a>],
    /// Who shared the join, where the CPU and a GPU did.
    pub(crate) workers: &'a [Worker],
    /// Neighbours per point, or how far away the k-th is, where that was noted.
    pub(crate) neighbours: Option<&'a Histogram>,
    /// One picture for each set of points in two dimensions.
    pub(crate) pictures: &'a [Picture<'a>],
    pub(crate) numbers: &'a [(&'a str, String)],
}

/// What was decided before the join, and how it turned out.
pub(crate) struct Plan<'a> {
    pub(crate) strategy: &'a str,
    /// Why that strategy, as a sentence.
    pub(crate) reason: &'a str,
    pub(crate) alternatives: &'a [Alternative<'a>],
    /// The shape of the index, line by line.
    pub(crate) index: &'a [String],
    pub(crate) expected_pairs: Option<f64>,
    pub(crate) pairs: u64,
    pub(crate) memory: Memory,
}

/// A strategy that was weighed.
pub(crate) struct Alternative<'a> {
    pub(crate) name: &'a str,
    /// Estimated; not finite where there is no estimate.
    pub(crate) seconds: f64,
    /// Estimated distance tests; not finite where there is no estimate.
    pub(crate) tests: f64,
    pub(crate) chosen: bool,
}

/// Bytes beside the input.
pub(crate) struct Memory {
    pub(crate) index: u64,
    pub(crate) result: u64,
    /// The most the process held at once, input included, where the system tells.
    pub(crate) peak: Option<u64>,
    pub(crate) limit: Option<u64>,
}

/// A picture of the points of one set. Those of two sets compare best in one extent.
pub(crate) struct Picture<'a> {
    pub(crate) title: &'a str,
    /// The names of the two coordinates.
    pub(crate) axes: [&'a str; 2],
    pub(crate) density: &'a Density,
    /// ε and the shape of a neighbourhood; `None` where there is no ε.
    pub(crate) ball: Option<(f64, Ball)>,
}

/// The shape of all points within ε of one: it depends on the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ball {
    /// L2.
    Circle,
    /// L1.
    Diamond,
    /// L∞.
    Square,
}

/// The report as a page of HTML.
pub(crate) fn render(report: &Report<'_>) -> String {
    let sections = [
        asked(report),
        plan(&report.plan),
        phases::section(report.phases, report.workers),
        neighbours(report.neighbours),
        pictures(report.pictures),
        html::section(
            "numbers",
            "Numbers",
            &html::entries("facts numbers", "Numbers", report.numbers),
        ),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{ramps}{style}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<h1>{title}</h1>\n<p>{program} · {date}</p>\n</header>\n{sections}\
         </main>\n</body>\n</html>\n",
        title = Text(report.title),
        ramps = ramps(),
        style = include_str!("style.css"),
        program = Text(report.program),
        date = Text(report.date),
        sections = sections.concat(),
    )
}

/// The colours of legends, as variables for the style sheet.
fn ramps() -> String {
    let variables = |ramp: &colour::Ramp| -> String {
        (0..chart::STOPS)
            .map(|stop| {
                format!("--ramp-{stop}: {};", ramp.css(stop as f64 / (chart::STOPS - 1) as f64))
            })
            .collect()
    };
    format!(
        ":root {{ {} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {} }} }}\n",
        variables(&colour::LIGHT),
        variables(&colour::DARK)
    )
}

fn asked(report: &Report<'_>) -> String {
    // A line breaks between arguments, and not at their hyphens.
    let arguments: Vec<String> = report
        .command
        .split(' ')
        .map(|argument| format!("<span>{}</span>", Text(argument)))
        .collect();
    let command = format!("<pre><code>{}</code></pre>\n", arguments.join(" "));
    html::section(
        "asked",
        "What was asked",
        &(command + &html::entries("facts", "What was asked", report.asked)),
    )
}

fn plan(plan: &Plan<'_>) -> String {
    let mut body =
        format!("<p><strong>{}</strong>: {}</p>\n", Text(plan.strategy), Text(plan.reason));
    if !plan.alternatives.is_empty() {
        body += &alternatives(plan.alternatives);
    }
    if !plan.index.is_empty() {
        let lines: String =
            plan.index.iter().map(|line| format!("<li>{}</li>\n", Text(line))).collect();
        body += &format!("<h3>Index</h3>\n<ul>\n{lines}</ul>\n");
    }
    body += &expectation(plan);
    body += &memory(&plan.memory);
    html::section("plan", "The plan", &body)
}

/// Above this ratio of the dearest to the cheapest, bars of costs are logarithmic.
const LINEAR: f64 = 30.0;

fn alternatives(alternatives: &[Alternative<'_>]) -> String {
    let known = || alternatives.iter().map(|a| a.seconds).filter(|s| s.is_finite() && *s > 0.0);
    let dearest = known().fold(0.0, f64::max);
    let cheapest = known().fold(dearest, f64::min);
    let logarithmic = dearest > LINEAR * cheapest;
    let length = |seconds: f64| {
        if logarithmic {
            // The cheapest keeps a bar, of one tenth.
            0.1 + 0.9 * (seconds / cheapest).ln() / (dearest / cheapest).ln()
        } else {
            seconds / dearest
        }
    };
    let chosen = alternatives.iter().find(|alternative| alternative.chosen).map(|a| a.seconds);
    let rows: String = alternatives
        .iter()
        .map(|alternative| {
            let time = seconds(alternative.seconds);
            let (class, mark) =
                if alternative.chosen { ("chosen", ", chosen") } else { ("filled", "") };
            let bar = if alternative.seconds.is_finite() {
                let title = format!("{}: {time}", alternative.name);
                chart::bar(class, 0.0, length(alternative.seconds), &title)
            } else {
                String::new()
            };
            let times = chosen
                .map(|chosen| alternative.seconds / chosen)
                .filter(|times| times.is_finite())
                .map_or("–".to_owned(), |times| estimate((times * 10.0).round() / 10.0) + " ×");
            format!(
                "<tr class=\"{class}\"><th scope=\"row\">{}<span class=\"aside\">{mark}</span></th>\
                 <td class=\"wide\">{bar}</td><td>{time}</td><td>{times}</td><td>{}</td></tr>\n",
                Text(alternative.name),
                estimate(alternative.tests),
            )
        })
        .collect();
    format!(
        "<table class=\"bars\">\n<caption>Estimated cost of each strategy{}</caption>\n\
         <thead><tr><th scope=\"col\">strategy</th><th scope=\"col\" colspan=\"2\">time</th>\
         <th scope=\"col\">relative</th><th scope=\"col\">distance tests</th></tr></thead>\n\
         <tbody>\n{rows}</tbody></table>\n",
        if logarithmic { "; bars on a log scale" } else { "" },
    )
}

/// How many pairs were expected and found.
fn expectation(plan: &Plan<'_>) -> String {
    let found = plan.pairs as f64;
    let Some(expected) = plan.expected_pairs else {
        return String::new();
    };
    let most = expected.max(found);
    let difference = number::difference(expected, found)
        .map(|difference| format!("<span class=\"aside\"> ({difference})</span>"));
    format!(
        "<h3>Pairs</h3>\n<table class=\"bars\" aria-label=\"Pairs\"><tbody>\n\
         <tr><th scope=\"row\">expected</th><td class=\"wide\">{}</td><td>{}</td></tr>\n\
         <tr><th scope=\"row\">found</th><td class=\"wide\">{}</td><td>{}{}</td></tr>\n\
         </tbody></table>\n",
        chart::bar("filled", 0.0, expected / most, "expected"),
        if expected < 1.0 { "none".to_owned() } else { estimate(expected) },
        chart::bar("chosen", 0.0, found / most, "found"),
        count(plan.pairs),
        difference.unwrap_or_default(),
    )
}

fn memory(memory: &Memory) -> String {
    let sizes = [
        ("index", Some(memory.index)),
        ("result", Some(memory.result)),
        ("peak of the process", memory.peak),
    ];
    // A limit far away would make the other bars vanish.
    let used = sizes.iter().filter_map(|(_, size)| *size).max().unwrap_or(0);
    let limit = memory.limit.filter(|&limit| limit / 4 <= used);
    let most = used.max(limit.unwrap_or(0)).max(1) as f64;
    let row = |name: &str, size: u64, bar: bool| {
        let shown = bytes(size);
        let bar = if bar {
            chart::bar("filled", 0.0, size as f64 / most, &format!("{name}: {shown}"))
        } else {
            "<span class=\"aside\">far above</span>".to_owned()
        };
        format!(
            "<tr><th scope=\"row\">{name}</th><td class=\"wide\">{bar}</td><td>{shown}</td></tr>\n"
        )
    };
    let mut rows: String =
        sizes.iter().filter_map(|&(name, size)| size.map(|size| row(name, size, true))).collect();
    if let Some(size) = memory.limit {
        rows += &row("limit", size, limit.is_some());
    }
    format!(
        "<h3>Memory</h3>\n<table class=\"bars\" aria-label=\"Memory\"><tbody>\n{rows}</tbody></table>\n"
    )
}

fn neighbours(histogram: Option<&Histogram>) -> String {
    let Some(histogram) = histogram else {
        return String::new();
    };
    let (title, what) = match histogram.measure {
        Measure::Neighbours => ("Neighbours per point".to_owned(), "neighbours"),
        Measure::Reach { k, .. } => {
            (format!("Distance to the k-th neighbour, k = {k}"), "distance")
        }
    };
    let mut summary = vec![("points", count(histogram.points))];
    match histogram.measure {
        Measure::Neighbours => summary.push(("without any", count(histogram.none))),
        Measure::Reach { fewer, .. } => {
            summary.push(("with fewer than k", count(fewer)));
            summary.push(("at distance 0", count(histogram.none)));
        }
    }
    let value = |value| histogram.value(value);
    summary.extend([
        ("least", value(histogram.min)),
        ("median", value(histogram.median)),
        ("mean", histogram.mean()),
        ("90 % at most", value(histogram.p90)),
        ("99 % at most", value(histogram.p99)),
        ("most", value(histogram.max)),
    ]);
    let summary: String = summary
        .into_iter()
        .map(|(label, value)| format!("<div><dt>{label}</dt><dd>{value}</dd></div>\n"))
        .collect();
    let rows: String = histogram
        .bins
        .iter()
        .filter(|bin| bin.points > 0)
        .map(|bin| {
            let (label, points) = (histogram.label(bin), count(bin.points));
            format!("<tr><th scope=\"row\">{label}</th><td>{points}</td></tr>\n")
        })
        .collect();
    let body = format!(
        "<figure>\n{}<dl class=\"summary\">\n{summary}</dl>\n</figure>\n\
         <details><summary>The bars as a table</summary>\n<table class=\"facts numbers\">\n\
         <thead><tr><th scope=\"col\">{what}</th><th scope=\"col\">points</th></tr></thead>\n\
         <tbody>\n{rows}</tbody></table>\n</details>\n",
        chart::histogram(histogram),
    );
    html::section("neighbours", &title, &body)
}

fn pictures(pictures: &[Picture<'_>]) -> String {
    if pictures.is_empty() {
        return String::new();
    }
    let figures: String = pictures
        .iter()
        .enumerate()
        .map(|(number, picture)| chart::picture(number, picture))
        .collect();
    html::section(
        "points",
        "Where the points are",
        &format!("<div class=\"pictures\">\n{figures}</div>\n"),
    )
}

#[cfg(test)]
mod tests;
