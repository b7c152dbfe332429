//! Words of a file or of its user, as a message shows them: cut where they are long, and without
//! characters that would break the line or steer a terminal.

use std::path::Path;

/// The most characters of a value that a message shows.
const LONGEST: usize = 40;

/// A value or a name, in quotes.
///
/// ```
/// use nearjoin_io::quote::quoted;
/// assert_eq!(quoted("a\tb"), r#""a\tb""#);
/// assert_eq!(quoted(&"ü".repeat(41)), format!("\"{}\"…", "ü".repeat(40)));
/// ```
pub fn quoted(text: &str) -> String {
    let (beginning, more) = cut(text, LONGEST);
    format!("{beginning:?}{more}")
}

/// A number or a type, without quotes.
pub fn bare(text: &str) -> String {
    let (beginning, more) = cut(text, LONGEST);
    printable(beginning) + more
}

/// Names in quotes, one after the other, if they are not too many.
///
/// ```
/// use nearjoin_io::quote::quoted_all;
/// assert_eq!(quoted_all(&["x", "y"]), r#""x", "y""#);
/// ```
pub fn quoted_all(names: &[impl AsRef<str>]) -> String {
    const SHOWN: usize = 16;
    let shown = names.iter().take(SHOWN).map(|name| quoted(name.as_ref()));
    let mut list = shown.collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        list += &format!(" and {} more", names.len() - SHOWN);
    }
    list
}

/// A path, which is never cut: it has to be found.
pub fn path(path: &Path) -> String {
    printable(&path.display().to_string())
}

/// What a decoder said, which may be a list or a table, on one line.
pub(crate) fn one_line(said: impl ToString) -> String {
    const LONGEST: usize = 200;
    let line = said.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let (beginning, more) = cut(&line, LONGEST);
    printable(beginning) + more
}

/// The beginning of a text, and a sign where there is more of it.
fn cut(text: &str, longest: usize) -> (&str, &'static str) {
    match text.char_indices().nth(longest) {
        Some((end, _)) => (&text[..end], "…"),
        None => (text, ""),
    }
}

/// The text with its control characters escaped.
fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign.is_control() {
            true => line.extend(sign.escape_default()),
            false => line.push(sign),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_are_cut_at_characters() {
        let forty = "é".repeat(40);
        assert_eq!(quoted(&forty), format!("\"{forty}\""));
        assert_eq!(quoted(&(forty.clone() + "x")), format!("\"{forty}\"…"));
        assert_eq!(bare(&(forty.clone() + "x")), format!("{forty}…"));
        assert_eq!(bare("1e999"), "1e999");
    }

    #[test]
    fn nothing_breaks_the_line() {
        assert_eq!(quoted("a\nb\u{1b}[2J"), r#""a\nb\u{1b}[2J""#);
        assert_eq!(bare("a\nb\u{1b}[2J'\""), r#"a\nb\u{1b}[2J'""#);
        assert_eq!(path(Path::new("two\nlines.csv")), r"two\nlines.csv");
        assert_eq!(
            one_line("bad table:\n\twhile\0verifying\r\n  field\n").matches('\n').count(),
            0
        );
        assert!(one_line("x ".repeat(500)).chars().count() == 201);
    }

    #[test]
    fn of_many_names_some_are_shown() {
        let many: Vec<String> = (0..20).map(|at| format!("c{at}")).collect();
        assert!(quoted_all(&many).ends_with("\"c15\" and 4 more"));
    }
}
