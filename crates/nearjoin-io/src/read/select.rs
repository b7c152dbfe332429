//! Columns by name.

use crate::error::{Error, Place, Remedy, Result};
use crate::quote::{quoted, quoted_all};

/// The position of the column of ids.
pub(crate) fn find_id(file: &str, names: &[String], wanted: &str) -> Result<usize> {
    find(file, names, wanted, Remedy::NameId)
}

/// The position of a column; the remedy is for one that is not there.
fn find(file: &str, names: &[String], wanted: &str, remedy: Remedy) -> Result<usize> {
    let mut found = names.iter().enumerate().filter(|(_, name)| *name == wanted);
    match (found.next(), found.next()) {
        (Some((at, _)), None) => Ok(at),
        (Some(_), Some(_)) => Err(Error::Content {
            file: file.to_owned(),
            place: Place::column(wanted),
            problem: "more than one column has this name".to_owned(),
        }),
        (None, _) => Err(Error::options(file, Place::default(), missing(names, wanted), remedy)),
    }
}

/// The positions of the columns asked for, each once.
pub(crate) fn find_all(file: &str, names: &[String], wanted: &[String]) -> Result<Vec<usize>> {
    if wanted.is_empty() {
        return Err(Error::content(file, "no column is asked for"));
    }
    let mut positions = Vec::with_capacity(wanted.len());
    for name in wanted {
        let position = find(file, names, name, Remedy::NameColumns)?;
        if positions.contains(&position) {
            return Err(Error::Content {
                file: file.to_owned(),
                place: Place::column(name),
                problem: "the column is asked for twice".to_owned(),
            });
        }
        positions.push(position);
    }
    Ok(positions)
}

fn missing(names: &[String], wanted: &str) -> String {
    let mut problem = format!("there is no column {}: ", quoted(wanted));
    let closest = names
        .iter()
        .map(|name| (distance(&name.to_lowercase(), &wanted.to_lowercase()), name))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= wanted.chars().count() / 3);
    if let Some((_, name)) = closest {
        problem += &format!("did you mean {}? ", quoted(name));
    }
    match names.len() {
        0 => problem += "there are no columns",
        1 => problem += "the only column is ",
        _ => problem += "the columns are ",
    }
    problem + &quoted_all(names)
}

/// Insertions, deletions and changes of letters between two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn a_missing_column_is_answered_with_those_that_exist() {
        let existing = names(&["ra", "dec", "Magnitude"]);
        let error = find_id("a.csv", &existing, "magnitud").unwrap_err();
        assert_eq!(
            error.to_string(),
            "a.csv: there is no column \"magnitud\": did you mean \"Magnitude\"? \
             the columns are \"ra\", \"dec\", \"Magnitude\": choose among them"
        );
        let error = find_id("a.csv", &existing, "z").unwrap_err();
        assert_eq!(
            error.to_string(),
            "a.csv: there is no column \"z\": the columns are \"ra\", \"dec\", \"Magnitude\": choose among them"
        );
    }

    #[test]
    fn twice_is_refused() {
        let existing = names(&["x", "y", "y"]);
        assert_eq!(
            find_all("a.csv", &existing, &names(&["x", "x"])).unwrap_err().to_string(),
            "a.csv: column \"x\": the column is asked for twice"
        );
        assert_eq!(
            find_id("a.csv", &existing, "y").unwrap_err().to_string(),
            "a.csv: column \"y\": more than one column has this name"
        );
        assert_eq!(
            find_all("a.csv", &existing, &[]).unwrap_err().to_string(),
            "a.csv: no column is asked for"
        );
    }

    #[test]
    fn distances_between_names() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "ab"), 2);
        assert_eq!(distance("same", "same"), 0);
    }
}
