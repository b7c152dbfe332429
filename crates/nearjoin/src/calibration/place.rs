//! Where the calibration file is.

use core::fmt;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The variable that names the file; set to nothing, there is none.
const VARIABLE: &str = "NEARJOIN_CALIBRATION";

/// Why there is no calibration file, and none can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// The user wants none.
    Unwanted,
    /// No variable says where such files are kept.
    Homeless,
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoPlace::Unwanted => write!(f, "{VARIABLE} is empty"),
            NoPlace::Homeless => {
                write!(f, "no variable says where its file is: set {VARIABLE} to a path")
            }
        }
    }
}

/// The path of the calibration file, there or not, from the variables of the environment.
pub(crate) fn place(
    windows: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, NoPlace> {
    if let Some(named) = variable(VARIABLE) {
        return if named.is_empty() { Err(NoPlace::Unwanted) } else { Ok(named.into()) };
    }
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = match windows {
        true => set("APPDATA"),
        // One that is relative says nothing, by the convention that the variable is of.
        false => set("XDG_CONFIG_HOME")
            .filter(|folder| folder.is_absolute())
            .or_else(|| set("HOME").map(|home| home.join(".config"))),
    };
    folder
        .map(|folder| folder.join(Path::new("nearjoin").join("calibration")))
        .ok_or(NoPlace::Homeless)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(windows: bool, variables: &[(&str, &str)]) -> Result<PathBuf, NoPlace> {
        place(windows, |name| {
            let (_, value) = variables.iter().find(|(known, _)| *known == name)?;
            Some(value.into())
        })
    }

    #[test]
    fn the_first_variable_that_says_something_decides() {
        let home = ("HOME", "/home/ada");
        let xdg = ("XDG_CONFIG_HOME", "/etc/ada");
        let file = |path: &str| Ok(PathBuf::from(path));
        assert_eq!(on(false, &[(VARIABLE, "here"), home, xdg]), file("here"));
        assert_eq!(on(false, &[home, xdg]), file("/etc/ada/nearjoin/calibration"));
        let config = file("/home/ada/.config/nearjoin/calibration");
        assert_eq!(on(false, &[home]), config);
        assert_eq!(on(false, &[home, ("XDG_CONFIG_HOME", "")]), config);
        assert_eq!(on(false, &[home, ("XDG_CONFIG_HOME", "etc/ada")]), config);
        let roaming = PathBuf::from("roaming").join("nearjoin").join("calibration");
        assert_eq!(on(true, &[home, xdg, ("APPDATA", "roaming")]), Ok(roaming));
    }

    #[test]
    fn there_may_be_no_place() {
        let home = ("HOME", "/home/ada");
        assert_eq!(on(false, &[(VARIABLE, ""), home]), Err(NoPlace::Unwanted));
        assert_eq!(on(false, &[]), Err(NoPlace::Homeless));
        assert_eq!(on(false, &[("HOME", "")]), Err(NoPlace::Homeless));
        assert_eq!(on(true, &[home]), Err(NoPlace::Homeless));
        for no_place in [NoPlace::Unwanted, NoPlace::Homeless] {
            assert!(no_place.to_string().contains(VARIABLE));
        }
    }
}
