//! Text and tables in HTML.

use core::fmt;

/// Text to be shown as it is, in an element or in a quoted attribute.
pub(crate) struct Text<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        struct Escape<'a, 'b>(&'a mut fmt::Formatter<'b>);
        impl Write for Escape<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                text.chars().try_for_each(|character| match character {
                    '&' => self.0.write_str("&amp;"),
                    '<' => self.0.write_str("&lt;"),
                    '>' => self.0.write_str("&gt;"),
                    '"' => self.0.write_str("&quot;"),
                    '\'' => self.0.write_str("&#39;"),
                    // No HTML text may hold these, not even escaped.
                    '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\x7f' => {
                        self.0.write_char('\u{fffd}')
                    }
                    _ => self.0.write_char(character),
                })
            }
        }
        write!(Escape(f), "{}", self.0)
    }
}

/// A section with its heading; `id` is ours and needs no escape.
pub(crate) fn section(id: &str, heading: &str, body: &str) -> String {
    format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-heading\">\n\
         <h2 id=\"{id}-heading\">{}</h2>\n{body}</section>\n",
        Text(heading)
    )
}

/// A table of labels and values.
pub(crate) fn entries(class: &str, label: &str, entries: &[(&str, String)]) -> String {
    let rows: String = entries
        .iter()
        .map(|(label, value)| {
            format!("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", Text(label), Text(value))
        })
        .collect();
    format!(
        "<table class=\"{class}\" aria-label=\"{}\"><tbody>\n{rows}</tbody></table>\n",
        Text(label)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(
            Text("<b title=\"x\">a & b's\0</b>").to_string(),
            "&lt;b title=&quot;x&quot;&gt;a &amp; b&#39;s\u{fffd}&lt;/b&gt;"
        );
        assert_eq!(Text("ε ≤ 0.2, naïve\n").to_string(), "ε ≤ 0.2, naïve\n");
    }

    #[test]
    fn entries_are_escaped() {
        let table = entries("facts", "a \"label\"", &[("<i>", "<script>".to_owned())]);
        assert!(!table.contains("<i>") && !table.contains("<script>") && !table.contains("a \"l"));
    }
}
