//! Pictures of text for a terminal.
//!
//! With `ascii` they hold nothing but ASCII; otherwise lines are dotted in Braille, two dots
//! across and four down in each character.

mod canvas;

use canvas::{Canvas, Lines, shortened};

use crate::report::{Density, Extent, Tick, logarithmic, short};

/// The narrowest plot, in columns.
const NARROWEST: usize = 40;

/// The lowest plot, in lines of its own, without axes.
const LOWEST: usize = 4;

/// A curve through `points`, in their order, on logarithmic axes, of about `width` columns and
/// `height` lines in all. Marks are drawn over it with their labels.
///
/// What has no logarithm is left out.
pub(crate) fn curve(
    points: &[(f64, f64)],
    marks: &[(f64, f64, String)],
    width: usize,
    height: usize,
    ascii: bool,
) -> String {
    let has_place = |&(x, y): &(f64, f64)| {
        [x, y].into_iter().all(|value: f64| value > 0.0 && value.is_finite())
    };
    let points: Vec<(f64, f64)> = points.iter().copied().filter(has_place).collect();
    let marks: Vec<_> = marks.iter().filter(|(x, y, _)| has_place(&(*x, *y))).collect();
    let all = || points.iter().copied().chain(marks.iter().map(|(x, y, _)| (*x, *y)));
    let (Some(across), Some(up)) =
        (Range::of(all().map(|(x, _)| x)), Range::of(all().map(|(_, y)| y)))
    else {
        return "nothing to plot\n".to_owned();
    };

    // Three lines are the titles' and the axis's.
    let lines = height.saturating_sub(3).max(LOWEST);
    let y_ticks = logarithmic(up.low, up.high, lines.div_ceil(3).max(2));
    let gutter = y_ticks.iter().map(|tick| tick.label.chars().count()).max().unwrap_or(0);
    let columns = width.max(NARROWEST) - gutter - 2;

    let mut canvas = Canvas::new(columns, lines, ascii);
    let dots = canvas.dots();
    let dot = |(x, y): (f64, f64)| {
        [across.place(x) * (dots[0] - 1) as f64, (1.0 - up.place(y)) * (dots[1] - 1) as f64]
    };
    for pair in points.windows(2) {
        canvas.line(dot(pair[0]), dot(pair[1]));
    }
    let mut text = canvas.into_text();
    let cell = |point| {
        let [x, y] = dot(point).map(|place| place.round() as usize);
        (x * columns / dots[0], y * lines / dots[1])
    };
    if let [point] = points[..] {
        text.mark(cell(point), "");
    }
    for (x, y, label) in marks {
        text.mark(cell((*x, *y)), label);
    }

    let title = format!("{:>gutter$} neighbours per point", "");
    let axis = Axis::new(&logarithmic(across.low, across.high, columns / 9), columns, |at| {
        across.place(at)
    });
    let y_ticks: Vec<(usize, String)> = y_ticks
        .into_iter()
        .map(|tick| (((1.0 - up.place(tick.at)) * (lines - 1) as f64).round() as usize, tick.label))
        .collect();
    framed(&text, &title, &y_ticks, &axis, if ascii { "eps" } else { "ε" }, gutter)
}

/// Where the points of the plane are, in at most `width` columns and `height` lines.
///
/// More points in a place make it darker, on a logarithmic scale.
pub(crate) fn density(
    rows: impl IntoIterator<Item = [f64; 2]>,
    extent: Extent,
    width: usize,
    height: usize,
    ascii: bool,
) -> String {
    let [left, right] = extent.x.map(short);
    let [low, high] = extent.y.map(short);
    let gutter = low.chars().count().max(high.chars().count());
    let most = [width.max(NARROWEST) - gutter - 3, height.saturating_sub(3).max(LOWEST)];
    // A character is about twice as high as wide, and so is a cell of 2 × 4 dots.
    let [across, down] = Density::fitting(extent, [most[0] * 2, most[1] * 4]);
    let (columns, lines) = (across.div_ceil(2), down.div_ceil(4));

    let per_cell = if ascii { [1, 1] } else { [2, 4] };
    let size = [columns * per_cell[0], lines * per_cell[1]];
    let density = Density::sized(rows, extent, size);
    let mut canvas = Canvas::new(columns, lines, ascii);
    if ascii {
        const SHADES: &[u8] = b".:-=+*#%@";
        for (cell, level) in canvas.cells.iter_mut().zip(density.levels()) {
            if level > 0.0 {
                *cell = u32::from(SHADES[(level * (SHADES.len() - 1) as f64).round() as usize]);
            }
        }
    } else {
        for cell in dithered(&density) {
            canvas.set(cell % size[0], cell / size[0]);
        }
    }
    let text = canvas.into_text();

    let [side, corner, foot, other, edge] =
        if ascii { ['|', '+', '-', '+', '+'] } else { ['│', '└', '─', '┘', '┌'] };
    let rule: String = core::iter::repeat_n(foot, columns).collect();
    let end = if ascii { '+' } else { '┐' };
    let mut plot = format!("{high:>gutter$} {edge}{rule}{end}\n");
    for line in &text.lines {
        let line: String = line.iter().collect();
        plot += &format!("{:>gutter$} {side}{line}{side}\n", "");
    }
    plot += &format!("{low:>gutter$} {corner}{rule}{other}\n");
    let gap = (columns + 2).saturating_sub(left.chars().count());
    plot += &format!("{:>gutter$} {left}{right:>gap$}\n", "");
    plot
}

/// One bar for each label, in `width` columns. Bars are to one scale, from zero.
pub(crate) fn bars(bars: &[(String, u64)], width: usize, ascii: bool) -> String {
    let labels = bars.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let labels = labels.min(width.max(NARROWEST) / 3);
    let values: Vec<String> = bars.iter().map(|(_, value)| crate::number::count(*value)).collect();
    let numbers = values.iter().map(String::len).max().unwrap_or(0);
    let room = (width.max(NARROWEST)).saturating_sub(labels + numbers + 3).max(4);
    let most = bars.iter().map(|(_, value)| *value).max().unwrap_or(0).max(1);
    let side = if ascii { '|' } else { '│' };
    bars.iter()
        .zip(&values)
        .map(|((label, value), shown)| {
            let label = shortened(label, labels, ascii);
            let pad = labels - label.chars().count();
            let bar = bar(*value as f64 / most as f64 * room as f64, ascii);
            let space = if bar.is_empty() { "" } else { " " };
            format!("{:pad$}{label} {side}{bar}{space}{shown}\n", "")
        })
        .collect()
}

/// A bar of so many columns, to an eighth of one. Nothing that is there disappears.
fn bar(length: f64, ascii: bool) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if length <= 0.0 {
        return String::new();
    }
    if ascii {
        return "#".repeat((length.round() as usize).max(1));
    }
    let eighths = ((length * 8.0).round() as usize).max(1);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// The dots to set for their number in a place to show how many points are there.
///
/// What a dot adds to or takes from its level is made up for by those that follow, as Floyd
/// and Steinberg do it. A place without points has no dots.
fn dithered(density: &Density) -> Vec<usize> {
    let [columns, rows] = density.size;
    let counts = &density.counts;
    if density.most() <= 2 {
        // So few can be shown as they are.
        return (0..counts.len()).filter(|&cell| counts[cell] > 0).collect();
    }
    let around = |cell: usize| -> u64 {
        let (row, column) = (cell / columns, cell % columns);
        let rows = row.saturating_sub(1)..(row + 2).min(rows);
        let across = column.saturating_sub(1)..(column + 2).min(columns);
        rows.flat_map(|row| &counts[row * columns..][across.clone()]).sum()
    };
    let smooth: Vec<f64> = (0..counts.len()).map(|cell| (around(cell) as f64).ln_1p()).collect();
    let most = smooth.iter().copied().fold(0.0, f64::max);

    let mut owed = vec![0.0; counts.len() + columns + 2];
    let mut dots = Vec::new();
    for (cell, level) in smooth.iter().enumerate().filter(|(_, level)| **level > 0.0) {
        // Raised, for the dense places to stand out from those between.
        let level = (level / most).powf(1.5) + owed[cell];
        let set = level > 0.5;
        if set {
            dots.push(cell);
        }
        let left = if set { level - 1.0 } else { level };
        let next = [(1, 7.0), (columns - 1, 3.0), (columns, 5.0), (columns + 1, 1.0)];
        for (offset, sixteenths) in next {
            owed[cell + offset] += left * sixteenths / 16.0;
        }
    }
    dots
}

/// The values along a logarithmic axis.
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let (low, high) = values.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| {
            (low.min(value), high.max(value))
        });
        if low > high {
            return None;
        }
        // A single value has half a power of ten on both sides.
        let room = if high / low < 1.0 + 1e-9 { 10f64.sqrt() } else { 1.0 };
        let low = (low / room).max(f64::MIN_POSITIVE);
        Some(Range { low, high: (high * room).min(f64::MAX) })
    }

    fn place(&self, value: f64) -> f64 {
        let (low, high) = (self.low.ln(), self.high.ln());
        ((value.ln() - low) / (high - low)).clamp(0.0, 1.0)
    }
}

/// The axis below a plot: a rule with ticks, and their labels.
struct Axis {
    ticks: Vec<bool>,
    labels: String,
}

impl Axis {
    fn new(ticks: &[Tick], columns: usize, place: impl Fn(f64) -> f64) -> Self {
        let mut rule = vec![false; columns];
        let mut labels = vec![' '; columns + 1];
        let mut free = 0;
        for tick in ticks {
            let column = (place(tick.at) * (columns - 1) as f64).round() as usize;
            let length = tick.label.chars().count();
            // The label is centred below its tick, as far as there is room.
            let start =
                (column + 1).saturating_sub(length / 2).min((columns + 1).saturating_sub(length));
            if start < free || length > columns {
                continue;
            }
            rule[column] = true;
            for (cell, character) in labels[start..].iter_mut().zip(tick.label.chars()) {
                *cell = character;
            }
            free = start + length + 1;
        }
        let labels: String = labels.into_iter().collect();
        Axis { ticks: rule, labels: labels.trim_end().to_owned() }
    }
}

/// A plot with its axes: `y_ticks` are lines from the top.
fn framed(
    text: &Lines,
    title: &str,
    y_ticks: &[(usize, String)],
    axis: &Axis,
    x_title: &str,
    gutter: usize,
) -> String {
    let [side, tick, corner, foot, notch] =
        if text.ascii { ['|', '+', '+', '-', '+'] } else { ['│', '┤', '└', '─', '┬'] };
    let mut plot = format!("{title}\n");
    for (number, line) in text.lines.iter().enumerate() {
        let line: String = line.iter().collect();
        let line = line.trim_end();
        match y_ticks.iter().find(|(at, _)| *at == number) {
            Some((_, label)) => plot += &format!("{label:>gutter$} {tick}{line}\n"),
            None => plot += &format!("{:>gutter$} {side}{line}\n", ""),
        }
    }
    let rule: String = axis.ticks.iter().map(|&tick| if tick { notch } else { foot }).collect();
    plot += &format!("{:>gutter$} {corner}{rule}\n", "");
    // The title stands at the end of the axis, or below where that is taken.
    let width = axis.ticks.len() + 1;
    let (used, title) = (axis.labels.chars().count(), x_title.chars().count());
    if used + title < width {
        let pad = width - used;
        plot += &format!("{:>gutter$} {}{x_title:>pad$}\n", "", axis.labels);
    } else {
        plot += &format!("{:>gutter$} {}\n{:>gutter$} {x_title:>width$}\n", "", axis.labels, "");
    }
    plot
}

#[cfg(test)]
mod tests;
