//! Groups of points: which were asked for, how many were found, and how that is said.

use nearjoin::sink::Groups;

use crate::number;

/// Which points are in one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// Those with a way between them in steps of at most ε.
    Components,
    /// Those of a cluster by DBSCAN.
    Dbscan { min_points: usize },
}

impl Grouping {
    /// The command that asks for it.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Grouping::Components => "components",
            Grouping::Dbscan { .. } => "dbscan",
        }
    }

    /// The points that make a core; none where there are no cores.
    pub(crate) fn min_points(self) -> Option<usize> {
        match self {
            Grouping::Components => None,
            Grouping::Dbscan { min_points } => Some(min_points),
        }
    }

    /// What the library makes them with.
    pub(crate) fn sink(self) -> Groups {
        match self {
            Grouping::Components => Groups::components(),
            Grouping::Dbscan { min_points } => Groups::dbscan(min_points),
        }
    }

    /// What the groups are, in words.
    pub(crate) fn described(self) -> String {
        match self {
            Grouping::Components => "connected components".into(),
            Grouping::Dbscan { min_points } => format!("DBSCAN, min-points {min_points}"),
        }
    }

    /// `3 clusters within 0.5 (min-points 5) and 17 noise points`.
    pub(crate) fn told(self, eps: f64, found: Grouped) -> String {
        let Grouped { count, noise } = found;
        match self {
            Grouping::Components => format!("{} within {eps:?}", plural(count, "component")),
            Grouping::Dbscan { min_points } => format!(
                "{} within {eps:?} (min-points {min_points}) and {}",
                plural(count, "cluster"),
                plural(noise, "noise point")
            ),
        }
    }
}

fn plural(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", number::count(count), if count == 1 { "" } else { "s" })
}

/// Groups that were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grouped {
    pub(crate) count: u64,
    /// Points that belong to none.
    pub(crate) noise: u64,
}

impl From<&Groups> for Grouped {
    fn from(groups: &Groups) -> Self {
        Grouped { count: groups.len() as u64, noise: groups.noise() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_is_told() {
        let told = |grouping: Grouping, count, noise| grouping.told(0.5, Grouped { count, noise });
        let dbscan = Grouping::Dbscan { min_points: 5 };
        let many = "2,000 clusters within 0.5 (min-points 5) and 0 noise points";
        assert_eq!(told(dbscan, 2000, 0), many);
        let one = "1 cluster within 0.5 (min-points 5) and 1 noise point";
        assert_eq!(told(dbscan, 1, 1), one);
        assert_eq!(told(Grouping::Components, 1, 0), "1 component within 0.5");
    }
}
