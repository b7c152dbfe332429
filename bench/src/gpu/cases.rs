//! What is joined, and what the answer may take: every constant of the tables.

use super::data::Law;

/// The number of points for which limits and the ε of the cases are written.
pub(crate) const STANDARD: usize = 2_000_000;
/// The most that a first call in a fresh process may take longer, in milliseconds.
pub(crate) const FIRST_CALL: f64 = 500.0;
/// f64 beside f32, where arithmetic dominates.
pub(crate) const F64_BESIDE_F32: f64 = 1.6;
/// Ten times the points.
pub(crate) const TENFOLD: f64 = 12.0;

/// A set of points and the distance within which they are joined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) law: Law,
    pub(crate) points: usize,
    pub(crate) dimension: usize,
    eps: f64,
}

impl Set {
    const fn new(name: &'static str, law: Law, points: usize, dimension: usize, eps: f64) -> Self {
        Set { name, law, points, dimension, eps }
    }

    /// The same for another number of points than the standard 2·10⁶: this set has more or
    /// fewer in proportion, and its ε is such that the number of neighbours stays.
    pub(crate) fn scaled(self, standard: Option<usize>) -> Self {
        let Some(standard) = standard else { return self };
        let share = standard as f64 / STANDARD as f64;
        let points = ((self.points as f64 * share).round() as usize).max(1);
        let grown = (self.points as f64 / points as f64).powf(1.0 / self.dimension as f64);
        Set { points, eps: self.eps * grown, ..self }
    }

    /// Uniform 2-D points with about so many neighbours each.
    pub(crate) fn of_neighbors(name: &'static str, points: usize, neighbors: f64) -> Self {
        let eps = (neighbors * 100.0 * 100.0 / (std::f64::consts::PI * points as f64)).sqrt();
        Set::new(name, Law::Uniform, points, 2, eps)
    }

    pub(crate) fn eps(&self) -> f64 {
        self.eps
    }
}

/// A row of the table: what others took and what we may take, in milliseconds.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) set: Set,
    /// The best of HEGJoin-GPU, HEGJoin hybrid, Super-EGO on 16 cores, and GPU-SJ without its
    /// host index.
    pub(crate) authors: f64,
    /// cudaKDTree, which leaves its results on the device: count and CSR.
    pub(crate) cuda_kd_tree: Option<(f64, f64)>,
    pub(crate) limits: Limits,
}

/// What f32 points may take on one H200 with 16 host cores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) count: f64,
    /// Blocks to a callback, or CSR into reused buffers.
    pub(crate) reused: f64,
    /// CSR in fresh memory.
    pub(crate) fresh: f64,
}

const fn limits(count: f64, reused: f64, fresh: f64) -> Limits {
    Limits { count, reused, fresh }
}

/// The cases, in the order of the table.
pub(crate) const CASES: &[Case] = &[
    Case {
        set: Set::new("uniform2", Law::Uniform, STANDARD, 2, 0.2),
        authors: 434.0,
        cuda_kd_tree: Some((24.0, 27.0)),
        limits: limits(2.5, 9.0, 20.0),
    },
    Case {
        set: Set::new("uniform2-dense", Law::Uniform, STANDARD, 2, 1.0),
        authors: 2570.0,
        cuda_kd_tree: None,
        limits: limits(4.0, 115.0, 270.0),
    },
    Case {
        set: Set::new("uniform3", Law::Uniform, STANDARD, 3, 1.0),
        authors: 267.0,
        cuda_kd_tree: Some((22.0, 25.0)),
        limits: limits(3.0, 6.0, 10.0),
    },
    Case {
        set: Set::new("uniform4", Law::Uniform, STANDARD, 4, 4.0),
        authors: 429.0,
        cuda_kd_tree: Some((55.0, 71.0)),
        limits: limits(4.0, 11.0, 20.0),
    },
    Case {
        set: Set::new("uniform6", Law::Uniform, STANDARD, 6, 8.0),
        authors: 696.0,
        cuda_kd_tree: Some((120.0, 155.0)),
        limits: limits(10.0, 17.0, 20.0),
    },
    Case {
        set: Set::new("exponential2", Law::Exponential, STANDARD, 2, 0.0004),
        authors: 1835.0,
        cuda_kd_tree: Some((33.0, 76.0)),
        limits: limits(3.0, 75.0, 180.0),
    },
    Case {
        set: Set::new("exponential6", Law::Exponential, STANDARD, 6, 0.01),
        authors: 2929.0,
        cuda_kd_tree: Some((605.0, 1175.0)),
        limits: limits(35.0, 100.0, 180.0),
    },
];

const MILLION: usize = 1_000_000;

/// The papers' synthetic sets. ε lies in the range of GPU-SJ (figures 7 to 9) and HEGJoin
/// (table 2), where that leaves 5 to 400 neighbours to a point; Syn6D10M has 1 there and is
/// joined within the 8 of LBJoin's Unif6D2M, and nobody has joined Expo5D2M.
pub(crate) const PAPERS: &[Set] = &[
    Set::new("Syn2D2M", Law::Uniform, 2 * MILLION, 2, 0.4),
    Set::new("Syn3D2M", Law::Uniform, 2 * MILLION, 3, 1.0),
    Set::new("Syn4D2M", Law::Uniform, 2 * MILLION, 4, 6.0),
    Set::new("Syn5D2M", Law::Uniform, 2 * MILLION, 5, 8.0),
    Set::new("Syn6D2M", Law::Uniform, 2 * MILLION, 6, 10.0),
    Set::new("Syn2D10M", Law::Uniform, 10 * MILLION, 2, 0.2),
    Set::new("Syn3D10M", Law::Uniform, 10 * MILLION, 3, 0.5),
    Set::new("Syn4D10M", Law::Uniform, 10 * MILLION, 4, 4.0),
    Set::new("Syn5D10M", Law::Uniform, 10 * MILLION, 5, 5.0),
    Set::new("Syn6D10M", Law::Uniform, 10 * MILLION, 6, 8.0),
    Set::new("Expo2D2M", Law::Exponential, 2 * MILLION, 2, 0.0004),
    Set::new("Expo3D2M", Law::Exponential, 2 * MILLION, 3, 0.001),
    Set::new("Expo4D2M", Law::Exponential, 2 * MILLION, 4, 0.002),
    Set::new("Expo5D2M", Law::Exponential, 2 * MILLION, 5, 0.004),
    Set::new("Expo6D2M", Law::Exponential, 2 * MILLION, 6, 0.01),
];

/// An exponential set of HEGJoin, and what the paper has for it where it has a figure: the share of
/// the sum of both throughputs that DYN reaches (table 4), and of its time that transfers take at
/// the most (table 5).
#[derive(Debug)]
pub(crate) struct Heg {
    pub(crate) set: Set,
    pub(crate) ratio: Option<f64>,
    pub(crate) transfers: Option<f64>,
}

const fn heg(
    (name, points, dimension, eps): (&'static str, usize, usize, f64),
    ratio: Option<f64>,
    transfers: Option<f64>,
) -> Heg {
    Heg { set: Set::new(name, Law::Exponential, points, dimension, eps), ratio, transfers }
}

/// HEGJoin's exponential sets (λ = 40). Where the paper's table has a figure, ε is its own.
pub(crate) const HEGJOIN: &[Heg] = &[
    heg(("Hybrid2D2M", 2 * MILLION, 2, 0.002), Some(0.86), Some(0.16)),
    heg(("Hybrid3D2M", 2 * MILLION, 3, 0.004), None, None),
    heg(("Hybrid4D2M", 2 * MILLION, 4, 0.01), Some(0.90), Some(0.11)),
    heg(("Hybrid6D2M", 2 * MILLION, 6, 0.01), None, None),
    heg(("Hybrid8D2M", 2 * MILLION, 8, 0.015), Some(0.92), Some(0.01)),
    heg(("Hybrid2D10M", 10 * MILLION, 2, 0.0004), Some(0.92), Some(0.25)),
    heg(("Hybrid4D10M", 10 * MILLION, 4, 0.004), Some(0.88), Some(0.15)),
    heg(("Hybrid6D10M", 10 * MILLION, 6, 0.006), None, None),
    heg(("Hybrid8D10M", 10 * MILLION, 8, 0.0072), None, None),
];

/// Mean imbalance of DYN, SQ and SC over all sets of the paper (figure 12).
pub(crate) const IMBALANCE: [f64; 3] = [0.14, 0.53, 0.32];

/// Those whose batches are modelled.
pub(crate) const BATCHED: &[&str] = &["Syn2D10M", "Syn6D2M", "Expo2D2M", "Expo6D2M"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_points_keep_their_neighbors() {
        let set = CASES[3].set.scaled(Some(STANDARD / 16));
        assert_eq!((set.points, set.eps()), (125_000, 8.0));
        let large = PAPERS.iter().find(|set| set.name == "Syn2D10M").unwrap();
        assert_eq!(large.scaled(Some(2000)).points, 10_000);
        assert_eq!(large.scaled(None).eps(), 0.2);
        assert_eq!(large.scaled(Some(1)).points, 5);
    }

    #[test]
    fn the_sets_have_a_name_and_neighbors() {
        /// The volume of the unit ball.
        const BALL: [f64; 7] = [1.0, 2.0, std::f64::consts::PI, 4.19, 4.93, 5.26, 5.17];
        for set in PAPERS {
            let density = match set.law {
                Law::Uniform => 0.01,
                // The mean density at a point, which is where the points are.
                Law::Exponential => 20.0,
                law => unreachable!("no paper has {law:?}"),
            };
            let around = BALL[set.dimension] * (density * set.eps()).powi(set.dimension as i32);
            let neighbors = around * set.points as f64;
            assert!((4.0..700.0).contains(&neighbors), "{}: {neighbors}", set.name);
            assert!(set.name.contains(&format!("{}D", set.dimension)), "{}", set.name);
        }
        let known = |name: &&str| PAPERS.iter().any(|set| set.name == *name);
        assert!(BATCHED.iter().all(known));
    }

    #[test]
    fn neighbors_as_asked() {
        let set = Set::of_neighbors("", 10_000_000, 30.0);
        assert!((set.eps() - 0.0977).abs() < 1e-4);
    }
}
