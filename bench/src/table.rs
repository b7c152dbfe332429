//! Markdown tables that can be read in a terminal too.

use std::fmt;

/// A table: the first column to the left, the others to the right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads.
    pub(crate) fn new(heads: &[&str]) -> Self {
        Table { rows: vec![heads.iter().map(|&head| head.to_owned()).collect()] }
    }

    /// Adds a row, with a cell for each head.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.rows[0].len());
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(2)
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        for (at, row) in self.rows.iter().enumerate() {
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => write!(f, "| {cell:<width$} ")?,
                    _ => write!(f, "| {cell:>width$} ")?,
                }
            }
            writeln!(f, "|")?;
            if at == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let end = if column == 0 { "-" } else { ":" };
                    write!(f, "| {}{end} ", "-".repeat(width - 1))?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

/// Seconds with four significant digits, or a dash.
pub(crate) fn seconds(seconds: Option<f64>) -> String {
    match seconds {
        None => "–".into(),
        Some(s) if s < 10.0 => format!("{s:.4}"),
        Some(s) => format!("{s:.1}"),
    }
}

/// Milliseconds with four significant digits or so, or a dash.
pub(crate) fn milliseconds(milliseconds: Option<f64>) -> String {
    match milliseconds {
        None => "–".into(),
        Some(ms) if ms < 10.0 => format!("{ms:.3}"),
        Some(ms) if ms < 1000.0 => format!("{ms:.1}"),
        Some(ms) => format!("{ms:.0}"),
    }
}

/// How many times longer, or a dash.
pub(crate) fn times(longer: Option<f64>, shorter: Option<f64>) -> String {
    match longer.zip(shorter) {
        None => "–".into(),
        Some((longer, shorter)) => format!("{:.2} ×", longer / shorter),
    }
}

/// A whole number in groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in MiB.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / (1 << 20) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_line_up() {
        let mut table = Table::new(&["a", "ratio"]);
        table.row(vec!["uniform".into(), times(Some(3.0), Some(2.0))]);
        assert_eq!(
            table.to_string(),
            "| a       |  ratio |\n| ------- | -----: |\n| uniform | 1.50 × |\n"
        );
    }

    #[test]
    fn times_have_the_digits_that_count() {
        let shown = [None, Some(2.5), Some(115.0), Some(2929.4)].map(milliseconds);
        assert_eq!(shown, ["–", "2.500", "115.0", "2929"]);
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
