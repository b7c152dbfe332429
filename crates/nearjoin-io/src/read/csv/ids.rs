//! Ids in a text: integers where all of them are, else text.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, LargeStringArray, StringArray};

/// Ids of successive rows.
#[derive(Debug)]
pub(super) enum Ids {
    /// Every id so far is an integer that prints as it stands in the file.
    Integers(Vec<i64>),
    Text {
        text: String,
        ends: Vec<usize>,
    },
}

impl Default for Ids {
    fn default() -> Self {
        Ids::Integers(Vec::new())
    }
}

impl Ids {
    /// The error is what is wrong with the id.
    pub(super) fn push(&mut self, id: &[u8]) -> Result<(), &'static str> {
        if id.is_empty() {
            return Err("the id is empty");
        }
        let id = core::str::from_utf8(id).map_err(|_| "the id is not UTF-8")?;
        match self {
            Ids::Integers(integers) => match integer(id) {
                Some(integer) => integers.push(integer),
                None => {
                    self.become_text();
                    return self.push(id.as_bytes());
                }
            },
            Ids::Text { text, ends } => {
                text.push_str(id);
                ends.push(text.len());
            }
        }
        Ok(())
    }

    fn become_text(&mut self) {
        let Ids::Integers(integers) = self else { return };
        let mut text = String::new();
        let mut ends = Vec::with_capacity(integers.len());
        for integer in integers {
            text += &integer.to_string();
            ends.push(text.len());
        }
        *self = Ids::Text { text, ends };
    }

    /// The ids of one part of a file after the other.
    pub(super) fn join(mut parts: Vec<Ids>) -> Ids {
        if parts.len() == 1 {
            return parts.remove(0);
        }
        if parts.iter().any(|part| matches!(part, Ids::Text { .. })) {
            parts.iter_mut().for_each(Ids::become_text);
        }
        let mut all = Ids::default();
        for part in parts {
            match (&mut all, part) {
                (Ids::Integers(all), Ids::Integers(part)) => all.extend(part),
                (Ids::Text { text, ends }, Ids::Text { text: more, ends: more_ends }) => {
                    ends.extend(more_ends.iter().map(|end| text.len() + end));
                    text.push_str(&more);
                }
                // The first part of text: all parts are.
                (all, part) => *all = part,
            }
        }
        all
    }

    pub(super) fn into_array(self) -> ArrayRef {
        match self {
            Ids::Integers(integers) => Arc::new(Int64Array::from(integers)),
            Ids::Text { text, ends } => {
                let starts = core::iter::once(0).chain(ends.iter().copied());
                let ids = starts.zip(&ends).map(|(start, &end)| &text[start..end]);
                match i32::try_from(text.len()) {
                    Ok(_) => Arc::new(StringArray::from_iter_values(ids)),
                    Err(_) => Arc::new(LargeStringArray::from_iter_values(ids)),
                }
            }
        }
    }
}

/// An integer that prints as it is written.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = match digits.as_bytes() {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', ..] => true,
        _ => false,
    };
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;

    fn ids(texts: &[&str]) -> Ids {
        let mut ids = Ids::default();
        for text in texts {
            ids.push(text.as_bytes()).unwrap();
        }
        ids
    }

    #[test]
    fn integers_print_back() {
        for text in ["0", "1", "-1", "10", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(integer(text).unwrap().to_string(), text);
        }
        for text in ["", "-", "-0", "00", "01", "+1", " 1", "1 ", "1.0", "9223372036854775808"] {
            assert_eq!(integer(text), None, "{text:?}");
        }
    }

    #[test]
    fn one_text_makes_all_text() {
        let numbers = Ids::join(vec![ids(&["1", "2"]), ids(&[]), ids(&["-3"])]).into_array();
        assert_eq!(numbers.as_primitive::<Int64Type>().values(), &[1, 2, -3]);
        let parts = vec![ids(&["1", "2"]), ids(&["-3", "007"]), ids(&[]), ids(&["4"])];
        let texts = Ids::join(parts).into_array();
        let texts: Vec<_> = texts.as_string::<i32>().iter().flatten().collect();
        assert_eq!(texts, ["1", "2", "-3", "007", "4"]);
        assert_eq!(Ids::default().push(b""), Err("the id is empty"));
        assert_eq!(Ids::default().push(b"\xFF"), Err("the id is not UTF-8"));
    }
}
