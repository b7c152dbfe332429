//! Charts as inline SVG.
//!
//! Horizontal places are percentages, so that a chart takes the width it is given while its
//! text keeps its size.

use super::axis::{self, Tick};
use super::density::Density;
use super::histogram::{Bin, Histogram, Measure, Spacing};
use super::html::Text;
use super::{Ball, Picture, colour};
use crate::number::{count, figures, seconds};

/// A bar in the cell of a table, from one part of the cell's width to another.
pub(super) fn bar(class: &str, from: f64, to: f64, title: &str) -> String {
    let part = |value: f64| if value.is_finite() { value.clamp(0.0, 1.0) * 100.0 } else { 0.0 };
    // Something that is there can be seen, however short.
    let from = part(from).min(99.4);
    let width = (part(to) - from).max(0.6);
    format!(
        "<svg class=\"bar\" width=\"100%\" height=\"14\" aria-hidden=\"true\">\
         <rect class=\"{class}\" x=\"{from:.2}%\" width=\"{width:.2}%\" height=\"14\" rx=\"2\">\
         <title>{}</title></rect></svg>",
        Text(title)
    )
}

/// Spans closer together than this part of the width are drawn as one.
const GAP: f64 = 0.002;

/// Thin bars in the cell of a table, each from one part of the cell's width to another, in order.
pub(super) fn spans(class: &str, spans: &[(f64, f64)], title: &str) -> String {
    let part = |value: f64| if value.is_finite() { value.clamp(0.0, 1.0) } else { 0.0 };
    let mut drawn: Vec<(f64, f64)> = Vec::new();
    for (from, to) in spans.iter().map(|&(from, to)| (part(from), part(to))) {
        match drawn.last_mut() {
            Some(last) if from - last.1 < GAP => last.1 = last.1.max(to),
            _ => drawn.push((from, to)),
        }
    }
    let bars: String = drawn
        .iter()
        .map(|&(from, to)| {
            let from = from.min(1.0 - GAP);
            let (x, width) = (from * 100.0, (to - from).max(GAP) * 100.0);
            format!("<rect class=\"{class}\" x=\"{x:.2}%\" width=\"{width:.2}%\" height=\"8\"/>")
        })
        .collect();
    format!(
        "<svg class=\"bar\" width=\"100%\" height=\"8\" aria-hidden=\"true\">\
         <title>{}</title>{bars}</svg>",
        Text(title)
    )
}

/// The time axis above the bars of phases.
pub(super) fn time_axis(end: f64) -> String {
    let ticks: String = axis::linear(0.0, end, 5)
        .into_iter()
        .map(|tick| {
            let place = tick.at / end * 100.0;
            let label = seconds(tick.at);
            format!("<text class=\"middle\" x=\"{place:.2}%\" y=\"12\">{label}</text>")
        })
        .collect();
    format!("<svg class=\"bar\" width=\"100%\" height=\"16\" aria-hidden=\"true\">{ticks}</svg>")
}

/// The height of the histogram's plot.
const HEIGHT: f64 = 220.0;

/// The distribution of neighbours, or of their distances, as bars.
pub(super) fn histogram(histogram: &Histogram) -> String {
    let (axis, what) = match histogram.measure {
        Measure::Neighbours => ("neighbours", "neighbours per point"),
        Measure::Reach { .. } => ("distance", "the distance to the k-th neighbour"),
    };
    let across = Across::of(histogram);
    let up = Up::of(histogram);
    let bars: String = histogram
        .bins
        .iter()
        .filter(|bin| bin.points > 0)
        .map(|bin| {
            let [left, right] = across.of_bin(bin);
            let top = up.place(bin.points as f64);
            let [x, width] = [left * 100.0, (right - left) * 100.0];
            let height = HEIGHT - top;
            format!(
                "<g><title>{axis} {label}: {points} points</title>\
                 <rect class=\"hit\" x=\"{x:.3}%\" width=\"{width:.3}%\" height=\"{HEIGHT}\"/>\
                 <rect class=\"filled\" x=\"{x:.3}%\" width=\"{width:.3}%\" \
                 y=\"{top:.1}\" height=\"{height:.1}\"/></g>\n",
                label = histogram.label(bin),
                points = count(bin.points),
            )
        })
        .collect();
    let x_ticks: String = across
        .ticks(histogram)
        .into_iter()
        .map(|(place, label)| below(place * 100.0, HEIGHT, &label))
        .collect();
    let y_ticks: String = up
        .ticks()
        .into_iter()
        .map(|tick| {
            let y = up.place(tick.at);
            format!(
                "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"left\" x=\"-8\" y=\"{:.1}\">{}</text>",
                y + 4.0,
                Text(tick.label)
            )
        })
        .collect();
    format!(
        "<div class=\"plot\" style=\"--gutter: 3.2rem\">\n\
         <p class=\"axis-title\">points{}</p>\n\
         <svg width=\"100%\" height=\"{HEIGHT}\" role=\"img\" aria-label=\"Histogram of {what}: \
         half of the points have at most {}, 99 % at most {}, all at most {}.\">\n{y_ticks}\n{bars}\
         <line class=\"axis\" x1=\"0\" x2=\"100%\" y1=\"{HEIGHT}\" y2=\"{HEIGHT}\"/>{x_ticks}</svg>\n\
         <p class=\"axis-title below\">{axis}{}</p>\n</div>\n",
        if up.logarithmic { " (log scale)" } else { "" },
        histogram.value(histogram.median),
        histogram.value(histogram.p99),
        histogram.value(histogram.max),
        if across.logarithmic { " (log scale)" } else { "" },
    )
}

/// Where the whole numbers of a histogram stand, from 0 at the left to 1 at the right.
struct Across {
    logarithmic: bool,
    low: f64,
    high: f64,
    /// What is kept at the left for points that have 0, which has no logarithm.
    zero: f64,
}

impl Across {
    fn of(histogram: &Histogram) -> Self {
        let logarithmic = histogram.spacing == Spacing::Widening;
        let [first, .., last] = histogram.bins[..] else {
            let low = histogram.min as f64;
            return Across { logarithmic, low, high: (low + 1.0).max(low.next_up()), zero: 0.0 };
        };
        let zero = if logarithmic && first.low == 0 { 0.07 } else { 0.0 };
        let low = if logarithmic { first.low.max(1) } else { first.low } as f64;
        let high = (last.high as f64 + 1.0).max(low.next_up());
        Across { logarithmic, low, high, zero }
    }

    fn place(&self, value: f64) -> f64 {
        if self.logarithmic {
            self.zero + (1.0 - self.zero) * (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    fn of_bin(&self, bin: &Bin) -> [f64; 2] {
        if bin.high == 0 && self.logarithmic {
            return [0.0, self.zero * 0.75];
        }
        [self.place(bin.low as f64), self.place(bin.high as f64 + 1.0)]
    }

    fn ticks(&self, histogram: &Histogram) -> Vec<(f64, String)> {
        let step = histogram.step();
        if self.logarithmic {
            let zero = (self.zero > 0.0).then(|| (self.zero * 0.375, "0".to_owned()));
            let ticks = axis::logarithmic(self.low * step, self.high * step, 7);
            let ticks = ticks.into_iter().map(|tick| (self.place(tick.at / step), tick.label));
            return zero.into_iter().chain(ticks).collect();
        }
        if let Measure::Reach { .. } = histogram.measure {
            let ticks = axis::linear(self.low * step, self.high * step, 8);
            return ticks
                .into_iter()
                .map(|tick| (self.place(tick.at / step), tick.label))
                .collect();
        }
        // The value of a bar that has only one stands below its middle.
        let middle = if histogram.spacing == Spacing::Exact { 0.5 } else { 0.0 };
        axis::linear(self.low, self.high - 2.0 * middle, 8)
            .into_iter()
            .filter(|tick| tick.at.fract() == 0.0)
            .map(|tick| (self.place(tick.at + middle), count(tick.at as u64)))
            .collect()
    }
}

/// Where counts of points stand, in pixels from the top.
struct Up {
    logarithmic: bool,
    most: f64,
}

impl Up {
    /// The foot of a logarithmic axis: a single point is to be seen.
    const FOOT: f64 = 0.6;

    fn of(histogram: &Histogram) -> Self {
        let most = histogram.bins.iter().map(|bin| bin.points).max().unwrap_or(0).max(1) as f64;
        Up { logarithmic: histogram.is_skewed(), most }
    }

    fn place(&self, points: f64) -> f64 {
        let part = if self.logarithmic {
            (points / Self::FOOT).ln() / (self.most / Self::FOOT).ln()
        } else {
            points / self.most
        };
        HEIGHT * (1.0 - 0.97 * part)
    }

    fn ticks(&self) -> Vec<Tick> {
        let ticks = if self.logarithmic {
            axis::logarithmic(1.0, self.most, 6)
        } else {
            axis::linear(0.0, self.most, 4)
        };
        ticks
            .into_iter()
            .filter(|tick| tick.at.fract() == 0.0)
            .map(|tick| Tick { label: axis::short(tick.at), ..tick })
            .collect()
    }
}

/// A tick and its label below a plot of the given height.
fn below(percent: f64, height: f64, label: &str) -> String {
    let end = height + 5.0;
    let baseline = height + 18.0;
    format!(
        "<line class=\"axis\" x1=\"{percent:.2}%\" x2=\"{percent:.2}%\" y1=\"{height}\" \
         y2=\"{end}\"/><text class=\"middle\" x=\"{percent:.2}%\" y=\"{baseline}\">{}</text>",
        Text(label)
    )
}

/// Where the points of one set are. `number` tells pictures of one page apart.
pub(super) fn picture(number: usize, picture: &Picture<'_>) -> String {
    let density = picture.density;
    let [columns, rows] = density.size;
    let [width, height] = Density::fitting(density.extent, [640, 480]);
    let [x_title, y_title] = picture.axes.map(Text);
    let y_ticks = axis::linear(density.extent.y[0], density.extent.y[1], 5);
    let gutter = y_ticks.iter().map(|tick| tick.label.chars().count()).max().unwrap_or(0) + 2;
    let y_labels: String = y_ticks
        .iter()
        .map(|tick| {
            let place = 100.0 - percent(tick.at, density.extent.y);
            format!(
                "<line class=\"axis\" x1=\"-5\" x2=\"0\" y1=\"{place:.2}%\" y2=\"{place:.2}%\"/>\
                 <text class=\"left\" x=\"-8\" y=\"{place:.2}%\" dy=\"4\">{}</text>",
                Text(&tick.label)
            )
        })
        .collect();
    let x_labels: String = axis::linear(density.extent.x[0], density.extent.x[1], 5)
        .iter()
        .map(|tick| {
            let place = percent(tick.at, density.extent.x);
            format!(
                "<line class=\"axis\" x1=\"{place:.2}%\" x2=\"{place:.2}%\" y1=\"0\" y2=\"5\"/>\
                 <text class=\"middle\" x=\"{place:.2}%\" y=\"18\">{}</text>",
                Text(&tick.label)
            )
        })
        .collect();
    let (ball, about_ball) = ball(picture);
    format!(
        "<figure class=\"picture\" style=\"max-width: calc({width}px + {gutter}ch + 0.75rem)\">\n\
         <h3>{title}</h3>\n\
         <div class=\"plot\" style=\"--gutter: {gutter}ch\">\n\
         <p class=\"axis-title\">{y_title}</p>\n\
         <div class=\"canvas\" style=\"aspect-ratio: {width} / {height}\">\n\
         <picture><source media=\"screen and (prefers-color-scheme: dark)\" srcset=\"{dark}\">\
         <img src=\"{light}\" alt=\"{alt}\"></picture>\n\
         <svg width=\"100%\" height=\"100%\" aria-hidden=\"true\">{y_labels}{ball}</svg>\n</div>\n\
         <svg class=\"x-axis\" width=\"100%\" height=\"24\" aria-hidden=\"true\">{x_labels}</svg>\n\
         <p class=\"axis-title below\">{x_title}</p>\n{legend}</div>\n\
         <figcaption>{points} points in {columns} × {rows} cells. {about_ball}</figcaption>\n\
         </figure>\n",
        title = Text(picture.title),
        dark = density.data_uri(&colour::DARK),
        light = density.data_uri(&colour::LIGHT),
        alt = Text(format_args!(
            "Density of {} points; up to {} in a cell",
            count(density.points),
            count(density.most())
        )),
        legend = legend(number, density.most()),
        points = count(density.points),
    )
}

/// How far along a range a value is. Halves, for the whole range may overflow.
fn percent(value: f64, [low, high]: [f64; 2]) -> f64 {
    (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0) * 100.0
}

/// How many stops a gradient has.
pub(super) const STOPS: usize = 9;

/// What the colours of a picture mean.
fn legend(number: usize, most: u64) -> String {
    if most <= 1 {
        return String::new();
    }
    let stops: String = (0..STOPS)
        .map(|stop| {
            let offset = 100.0 * stop as f64 / (STOPS - 1) as f64;
            format!("<stop offset=\"{offset}%\" style=\"stop-color: var(--ramp-{stop})\"/>")
        })
        .collect();
    let ticks: String = axis::logarithmic(1.0, most as f64, 6)
        .into_iter()
        .filter(|tick| tick.at.fract() == 0.0)
        .map(|tick| below(100.0 * tick.at.ln() / (most as f64).ln(), 10.0, &tick.label))
        .collect();
    format!(
        "<div class=\"legend\"><span>points per cell</span>\
         <svg width=\"100%\" height=\"32\" role=\"img\" aria-label=\"Colours run on a log scale \
         from 1 to {} points per cell\"><defs><linearGradient id=\"ramp-{number}\">{stops}\
         </linearGradient></defs><rect width=\"100%\" height=\"10\" fill=\"url(#ramp-{number})\"/>\
         {ticks}</svg></div>\n",
        count(most)
    )
}

/// The neighbourhood of a point to scale, where it can be seen, and a sentence about it.
fn ball(picture: &Picture<'_>) -> (String, String) {
    let Some((epsilon, ball)) = picture.ball else {
        return Default::default();
    };
    let [columns, rows] = picture.density.size.map(|cells| cells as f64);
    let [across, up] = picture.density.cells_of(epsilon);
    // Cells are drawn larger where they are few.
    let pixels = across.min(up) * 640.0 / columns.max(rows * 4.0 / 3.0);
    let epsilon = epsilon.to_string();
    if across.is_nan() || pixels < 2.0 {
        return (String::new(), format!("ε = {epsilon} is too small to be drawn to scale."));
    }
    let largest = (across / columns).max(up / rows);
    if largest > 0.5 {
        let times = figures(largest, 2);
        return (String::new(), format!("ε = {epsilon} is {times} times the picture’s side."));
    }
    let (shape, name) = match ball {
        Ball::Circle => ("<ellipse rx=\"1\" ry=\"1\"/>", "circle"),
        Ball::Diamond => ("<path d=\"M1 0L0 1L-1 0L0 -1Z\"/>", "diamond"),
        Ball::Square => ("<path d=\"M1 1H-1V-1H1Z\"/>", "square"),
    };
    let (place, [x, y]) = if largest <= 0.16 {
        let margin = 0.02 * columns.min(rows);
        ("corner", quiet_corner(picture.density, [across + margin, up + margin]))
    } else {
        ("middle", [columns / 2.0, rows / 2.0])
    };
    let svg = format!(
        "<svg class=\"ball {place}\" width=\"100%\" height=\"100%\" viewBox=\"0 0 {columns} {rows}\" \
         preserveAspectRatio=\"none\"><g transform=\"translate({x:.2} {y:.2}) \
         scale({across:.3} {up:.3})\">{shape}<path d=\"M0 0H1\"/></g></svg>"
    );
    let radius = if matches!(ball, Ball::Circle) { "radius" } else { "half width" };
    (svg, format!("The {name} in the {place} is to scale: its {radius} is ε = {epsilon}."))
}

/// The centre of a box of the given half size in the corner where it hides fewest points.
fn quiet_corner(density: &Density, [across, up]: [f64; 2]) -> [f64; 2] {
    let [columns, rows] = density.size.map(|cells| cells as f64);
    let hidden = |&[x, y]: &[f64; 2]| -> u64 {
        let range = |centre: f64, half: f64, cells: usize| {
            (centre - half).max(0.0) as usize..((centre + half).ceil() as usize).min(cells)
        };
        let across = range(x, across, density.size[0]);
        range(y, up, density.size[1])
            .flat_map(|row| &density.counts[row * density.size[0]..][across.clone()])
            .sum()
    };
    let corners =
        [[across, rows - up], [columns - across, rows - up], [columns - across, up], [across, up]];
    corners.into_iter().min_by_key(hidden).unwrap_or(corners[0])
}
