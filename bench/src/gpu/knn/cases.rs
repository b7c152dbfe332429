//! Points for KNN-joins on a GPU, and how many nearest are asked for.

use nearjoin::{Points, Scalar};

use super::super::cases::STANDARD;
use super::super::data::{self, Law};
use crate::Result;
use crate::table::grouped;
use crate::workload::{self, Shape};

/// How points are spread.
#[derive(Clone, Copy, Debug)]
enum Spread {
    Law(Law),
    Shape(Shape),
}

/// Points, and how many nearest of each are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    spread: Spread,
    pub(crate) points: usize,
    pub(crate) dimension: usize,
    pub(crate) k: usize,
    /// Other points that ask, of the same spread: else the points themselves do.
    asking: Option<usize>,
    /// Whether it is measured in `f64` too, and whether others are.
    pub(crate) wide: bool,
    pub(crate) has_peers: bool,
}

pub(in crate::gpu) const fn law(name: &'static str, law: Law, dimension: usize, k: usize) -> Case {
    Case::new(name, Spread::Law(law), dimension, k)
}

pub(in crate::gpu) const fn shape(
    name: &'static str,
    shape: Shape,
    dimension: usize,
    k: usize,
) -> Case {
    Case::new(name, Spread::Shape(shape), dimension, k)
}

impl Case {
    const fn new(name: &'static str, spread: Spread, dimension: usize, k: usize) -> Self {
        let (points, asking) = (STANDARD, None);
        Case { name, spread, points, dimension, k, asking, wide: false, has_peers: false }
    }

    pub(in crate::gpu) const fn points(self, points: usize) -> Self {
        Case { points, ..self }
    }

    const fn asking(self, asking: usize) -> Self {
        Case { asking: Some(asking), ..self }
    }

    const fn wide(self) -> Self {
        Case { wide: true, ..self }
    }

    pub(in crate::gpu) const fn with_peers(self) -> Self {
        Case { has_peers: true, ..self }
    }

    /// The same for another number of points than the standard 2·10⁶: this case has more or fewer
    /// in proportion, and at least enough for its k.
    pub(crate) fn scaled(self, standard: Option<usize>) -> Self {
        let Some(standard) = standard else { return self };
        let share = standard as f64 / STANDARD as f64;
        let of = |points: usize| (points as f64 * share).round() as usize;
        let points = of(self.points).max(self.k + 1);
        Case { points, asking: self.asking.map(|asking| of(asking).max(1)), ..self }
    }

    /// How many points it has, and how many others ask.
    pub(crate) fn size(&self) -> String {
        let points = grouped(self.points as u64);
        match self.asking {
            Some(asking) => format!("{} × {points}", grouped(asking as u64)),
            None => points,
        }
    }

    /// Draws the points: the same in every run.
    pub(crate) fn draw<T: Scalar>(&self) -> Drawn<T> {
        let points = self.points + self.asking.unwrap_or(0);
        let mut data = match self.spread {
            Spread::Law(law) => data::draw(law, points, self.dimension),
            Spread::Shape(shape) => {
                let data = workload::draw(shape, points, self.dimension);
                data.into_iter().map(T::from_f64).collect()
            }
        };
        let asking = self.asking.map(|_| data.split_off(self.points * self.dimension));
        Drawn { data, asking, dimension: self.dimension }
    }
}

/// The coordinates of a case, row-major.
pub(crate) struct Drawn<T> {
    pub(crate) data: Vec<T>,
    asking: Option<Vec<T>>,
    dimension: usize,
}

/// Points, and those that ask if they are others.
pub(crate) struct Sides<'a, T> {
    pub(crate) points: Points<'a, T>,
    pub(crate) asking: Option<Points<'a, T>>,
}

impl<T: Scalar> Drawn<T> {
    /// Checks the coordinates.
    pub(crate) fn sides(&self) -> Result<Sides<'_, T>> {
        let checked = |data| Points::new(data, self.dimension);
        let asking = self.asking.as_deref().map(checked).transpose()?;
        Ok(Sides { points: checked(&self.data)?, asking })
    }
}

const MILLION: usize = 1_000_000;

/// The cases, in the order of the table: evenly spread points and like them, then those that are
/// hard for an index, a plan or the memory.
pub(crate) const CASES: &[Case] = &[
    law("uniform2-k8", Law::Uniform, 2, 8).wide().with_peers(),
    law("uniform2-k32", Law::Uniform, 2, 32).wide().with_peers(),
    law("uniform4-k8", Law::Uniform, 4, 8).wide().with_peers(),
    law("uniform4-k32", Law::Uniform, 4, 32).with_peers(),
    law("uniform6-k8", Law::Uniform, 6, 8),
    law("uniform6-k32", Law::Uniform, 6, 32),
    law("exponential4-k8", Law::Exponential, 4, 8),
    law("exponential4-k32", Law::Exponential, 4, 32),
    shape("sphere3-k8", Shape::Sphere, 3, 8),
    shape("equal2-k8", Shape::Equal, 2, 8),
    shape("lattice2-k8", Shape::Lattice, 2, 8),
    shape("outlier2-k8", Shape::Outlier, 2, 8),
    shape("line6-k8", Shape::Line, 6, 8),
    law("lognormal4-k8", Law::Lognormal, 4, 8),
    law("uniform2-10M-k8", Law::Uniform, 2, 8).points(10 * MILLION),
    law("uniform4-10M-k8", Law::Uniform, 4, 8).points(10 * MILLION),
    law("uniform2-k4096", Law::Uniform, 2, 4096).points(100_000),
    law("normal64-k10", Law::Normal, 64, 10).points(50_000),
    shape("places3-k8", Shape::Places, 3, 8).points(145_000),
    law("few3-k8", Law::Uniform, 3, 8).asking(1000),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_enough_points() {
        for case in CASES {
            let case = case.scaled(Some(2000));
            let drawn = case.draw::<f32>();
            let sides = drawn.sides().unwrap();
            assert!(sides.points.len() > case.k, "{}", case.name);
            assert_eq!(sides.points.len(), case.points);
            let others = case.name == "few3-k8";
            assert_eq!(sides.asking.map(|asking| asking.len()), others.then_some(1));
            assert!(
                case.name.ends_with(&format!("{}-k{}", case.dimension, case.k))
                    || case.name.ends_with(&format!("{}-10M-k{}", case.dimension, case.k))
            );
        }
        assert_eq!(CASES[16].scaled(None).points, 100_000);
        assert_eq!(CASES[16].scaled(Some(400)).points, 4097);
    }
}
