//! Dots and characters.

/// A raster of dots that becomes characters.
pub(super) struct Canvas {
    columns: usize,
    lines: usize,
    ascii: bool,
    /// Bits of a Braille character, or an ASCII character.
    pub(super) cells: Vec<u32>,
}

impl Canvas {
    pub(super) fn new(columns: usize, lines: usize, ascii: bool) -> Self {
        Canvas { columns, lines, ascii, cells: vec![0; columns * lines] }
    }

    /// Dots across and down.
    pub(super) fn dots(&self) -> [usize; 2] {
        if self.ascii { [self.columns, self.lines] } else { [self.columns * 2, self.lines * 4] }
    }

    pub(super) fn set(&mut self, x: usize, y: usize) {
        if self.ascii {
            self.cells[y * self.columns + x] = u32::from(b'*');
            return;
        }
        const DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        self.cells[y / 4 * self.columns + x / 2] |= DOTS[y % 4][x % 2];
    }

    pub(super) fn line(&mut self, [x0, y0]: [f64; 2], [x1, y1]: [f64; 2]) {
        let steps = (x1 - x0).abs().max((y1 - y0).abs()).ceil().max(1.0) as usize;
        for step in 0..=steps {
            let part = step as f64 / steps as f64;
            let [x, y] = [x0 + (x1 - x0) * part, y0 + (y1 - y0) * part];
            self.set(x.round() as usize, y.round() as usize);
        }
    }

    pub(super) fn into_text(self) -> Lines {
        let character = |&cell: &u32| match cell {
            0 => ' ',
            _ if self.ascii => char::from_u32(cell).unwrap_or('?'),
            _ => char::from_u32(0x2800 + cell).unwrap_or('?'),
        };
        let lines =
            self.cells.chunks(self.columns).map(|line| line.iter().map(character).collect());
        Lines { ascii: self.ascii, lines: lines.collect() }
    }
}

/// The characters of a plot.
pub(super) struct Lines {
    pub(super) ascii: bool,
    pub(super) lines: Vec<Vec<char>>,
}

impl Lines {
    /// A mark with its label beside it, where that hides nothing if there is such a place.
    pub(super) fn mark(&mut self, (column, line): (usize, usize), label: &str) {
        let (columns, lines) = (self.lines[0].len(), self.lines.len());
        let label = shortened(label, columns.saturating_sub(4), self.ascii);
        let length = label.chars().count();
        let right = Some(column + 2).filter(|start| start + length <= columns);
        let left = (column.saturating_sub(1)).checked_sub(length);
        let rows = [Some(line), line.checked_sub(1), Some(line + 1).filter(|&row| row < lines)];
        let places: Vec<(usize, usize)> = rows
            .into_iter()
            .flatten()
            .flat_map(|row| [right, left].into_iter().flatten().map(move |start| (row, start)))
            .collect();
        let free = |&&(row, start): &&(usize, usize)| {
            self.lines[row][start..start + length].iter().all(|&character| character == ' ')
        };
        let place = places.iter().find(free).or(places.first()).copied();
        if let Some((row, start)) = place {
            for (cell, character) in self.lines[row][start..].iter_mut().zip(label.chars()) {
                *cell = character;
            }
        }
        self.lines[line][column] = if self.ascii { 'o' } else { '●' };
    }
}

/// A label in at most so many columns, and in ASCII where that is asked for.
pub(super) fn shortened(label: &str, most: usize, ascii: bool) -> String {
    if ascii && !label.is_ascii() {
        let plain: String = label.replace('ε', "eps").replace(['–', '−'], "-");
        let plain = plain.chars().map(|c| if c.is_ascii() { c } else { '?' });
        return shortened(&plain.collect::<String>(), most, ascii);
    }
    if label.chars().count() <= most {
        return label.to_owned();
    }
    let dots = if ascii { "." } else { "…" };
    label.chars().take(most.saturating_sub(1)).collect::<String>() + dots
}
