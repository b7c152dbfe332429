//! Angles on a sphere are no coordinates of a plane: a degree of longitude is short near the
//! poles, and 359° lies beside 0°.

use nearjoin_io::quote::quoted;

const LONGITUDES: [&str; 7] = ["lon", "long", "lng", "longitude", "ra", "raj", "glon"];
const LATITUDES: [&str; 8] = ["lat", "latitude", "dec", "decl", "declination", "de", "dej", "glat"];

/// What to say of points whose coordinates are a longitude and a latitude, by their names.
pub(crate) fn warning(columns: &[String]) -> Option<String> {
    let named = |words: &[&str]| columns.iter().find(|name| has_word(name, words));
    let (longitude, latitude) = named(&LONGITUDES).zip(named(&LATITUDES))?;
    let [lon, lat] = [longitude, latitude].map(|name| quoted(name));
    Some(format!(
        "warning: the columns {lon} and {lat} look like angles on a sphere, and are joined as \
         coordinates in a plane, where distances are others: join x = cos(lat) cos(lon), \
         y = cos(lat) sin(lon), z = sin(lat) instead, with ε = 2 sin(θ/2) for an angle θ (the \
         guide has commands for it under \"Points on a sphere\")"
    ))
}

/// Whether one of the words stands in the name, as `ra` does in `RA_deg` and `raj` in `RAJ2000`.
fn has_word(name: &str, words: &[&str]) -> bool {
    name.split(|sign: char| !sign.is_alphabetic())
        .any(|part| words.iter().any(|word| part.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warns(columns: &[&str]) -> bool {
        warning(&columns.iter().map(|name| name.to_string()).collect::<Vec<_>>()).is_some()
    }

    #[test]
    fn longitudes_and_latitudes_by_name() {
        for columns in [
            ["ra", "dec"],
            ["RA", "DE"],
            ["DEJ2000", "RAJ2000"],
            ["ra_deg", "dec_deg"],
            ["right ascension (ra)", "declination"],
            ["pickup_longitude", "pickup_latitude"],
            ["Lat", "Lng"],
            ["lat", "lon"],
        ] {
            assert!(warns(&columns), "{columns:?}");
        }
    }

    #[test]
    fn other_columns_are_left_alone() {
        let months = ["jan", "feb", "mar", "oct", "nov", "dec"];
        for columns in [&["x", "y", "z"][..], &months, &["0", "1"], &["v[0]", "v[1]"], &["lat"]] {
            assert!(!warns(columns), "{columns:?}");
        }
        assert!(!warns(&["plate", "salon"]) && !warns(&["radius", "decay"]));
    }
}
