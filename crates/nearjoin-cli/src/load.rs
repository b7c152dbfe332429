//! The points of both sides, in one type.

use nearjoin::{Points, PointsBuf};
use nearjoin_io::quote::quoted_all;
use nearjoin_io::{DType, Loaded, PointSet, ReadOptions, Source};

use crate::failure::{Failure, Result, Side};
use crate::interrupt;
use crate::progress::{self, Board};
use crate::sphere;

/// What was read: one side, or two of the same dimension and type.
#[derive(Debug)]
pub(crate) struct Sides {
    pub(crate) left: Loaded,
    pub(crate) right: Option<Loaded>,
}

impl Sides {
    /// Reads one file or two. Where their types differ, both become `f64`.
    pub(crate) fn load(sources: &[(Source, ReadOptions)], board: &Board) -> Result<Self> {
        let mut sides = Vec::new();
        for ((source, options), side) in sources.iter().zip([Side::Left, Side::Right]) {
            let progress = board.loading(&source.to_string());
            let read = quietly(|| nearjoin_io::read(source, options, &progress));
            let has_id = options.id.is_some();
            sides.push(read.map_err(|error| Failure::reading(error, side, has_id))?);
            if interrupt::pressed() {
                return Err(Failure::Interrupted);
            }
        }
        let mut sides = sides.into_iter();
        let (left, right) = (sides.next(), sides.next());
        let Some(left) = left else {
            return Err(Failure::usage("there is nothing to read"));
        };
        Sides { left, right }.agreed()
    }

    /// Warns, once, of coordinates that look like angles on a sphere.
    pub(crate) fn warn_of_angles(&self) {
        let mut sides = [Some(&self.left), self.right.as_ref()].into_iter().flatten();
        if let Some(warning) = sides.find_map(|side| sphere::warning(&side.columns)) {
            progress::tell_above(warning);
        }
    }

    fn agreed(self) -> Result<Self> {
        let Some(right) = &self.right else { return Ok(self) };
        if self.left.points.dimension() != right.points.dimension() {
            return Err(Failure::failed(format!(
                "the left points have {} coordinates ({}) and the right points {} ({}): choose as \
                 many on both sides with --columns and --right-columns",
                self.left.points.dimension(),
                quoted_all(&self.left.columns),
                right.points.dimension(),
                quoted_all(&right.columns)
            )));
        }
        if self.left.points.dtype() == right.points.dtype() {
            return Ok(self);
        }
        let widen = |mut side: Loaded| -> Result<Loaded> {
            side.points = side.points.into_f64()?;
            Ok(side)
        };
        let left = widen(self.left)?;
        let right = self.right.map(widen).transpose()?;
        Ok(Sides { left, right })
    }

    pub(crate) fn dtype(&self) -> DType {
        self.left.points.dtype()
    }

    /// The points of each side, in the type that [`Sides::dtype`] says.
    pub(crate) fn points<T: Held>(&self) -> Result<(Points<'_, T>, Option<Points<'_, T>>)> {
        fn of<T: Held>(side: &Loaded) -> Result<Points<'_, T>> {
            let held = T::held(&side.points).map(PointsBuf::as_points);
            held.ok_or_else(|| Failure::failed("the two sides differ in their type"))
        }
        Ok((of(&self.left)?, self.right.as_ref().map(of).transpose()?))
    }

    /// Bytes of all coordinates in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.left.points.bytes() + self.right.as_ref().map_or(0, |right| right.points.bytes())
    }
}

/// Runs a reader without a word of panics that it catches: what it returns says enough.
fn quietly<R>(read: impl FnOnce() -> R) -> R {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = read();
    std::panic::set_hook(hook);
    result
}

/// A type of coordinates that a [`PointSet`] may hold.
pub(crate) trait Held: nearjoin::Scalar {
    /// The points, if they are of this type.
    fn held(points: &PointSet) -> Option<&PointsBuf<Self>>;
}

impl Held for f32 {
    fn held(points: &PointSet) -> Option<&PointsBuf<f32>> {
        match points {
            PointSet::F32(points) => Some(points),
            PointSet::F64(_) => None,
        }
    }
}

impl Held for f64 {
    fn held(points: &PointSet) -> Option<&PointsBuf<f64>> {
        match points {
            PointSet::F64(points) => Some(points),
            PointSet::F32(_) => None,
        }
    }
}
