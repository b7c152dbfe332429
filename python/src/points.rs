//! Arrays of numpy as the points of a join.
#![allow(unsafe_code)]

use nearjoin::{Points, Scalar};
use numpy::{Element, PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::error::{Failure, Side};

/// The points of a join: one array, or two of the same type.
pub(crate) enum Arrays {
    F32(Sides<f32>),
    F64(Sides<f64>),
}

/// Does the same for both types.
macro_rules! with {
    ($arrays:expr, $sides:ident => $body:expr) => {
        match $arrays {
            $crate::points::Arrays::F32($sides) => $body,
            $crate::points::Arrays::F64($sides) => $body,
        }
    };
}
pub(crate) use with;

impl Arrays {
    pub(crate) fn new(x: &Bound<'_, PyAny>, y: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        match x.cast::<PyArray2<f32>>() {
            Ok(_) => Sides::new(x, y).map(Arrays::F32),
            Err(_) => Sides::new(x, y).map(Arrays::F64),
        }
    }
}

/// The left points, and the right ones unless they are the same.
pub(crate) struct Sides<T> {
    left: Array<T>,
    right: Option<Array<T>>,
}

impl<T: Element + Scalar> Sides<T> {
    fn new(x: &Bound<'_, PyAny>, y: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Ok(Sides { left: Array::new(x)?, right: y.map(Array::new).transpose()? })
    }

    /// The points, checked: no coordinate may be NaN or infinite.
    pub(crate) fn points(&self) -> Result<(Points<'_, T>, Option<Points<'_, T>>), Failure> {
        let Some(right) = &self.right else { return Ok((self.left.points()?, None)) };
        let left = self.left.points().map_err(|error| Failure::In(Side::X, error))?;
        let right = right.points().map_err(|error| Failure::In(Side::Y, error))?;
        Ok((left, Some(right)))
    }
}

/// The coordinates in an array of numpy, which is kept alive.
struct Array<T> {
    _owner: Py<PyArray2<T>>,
    data: *const T,
    len: usize,
    dimension: usize,
}

// SAFETY: the pointer is to memory that the owner keeps alive, and that is only read.
unsafe impl<T: Sync> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Array<T> {}

impl<T: Element + Scalar> Array<T> {
    fn new(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let wrong = "points must be a two-dimensional array of float32 or float64, and both sets of \
                     one type";
        let array = array.cast::<PyArray2<T>>().map_err(|_| PyTypeError::new_err(wrong))?;
        if !array.is_c_contiguous() || !array.data().is_aligned() {
            return Err(PyTypeError::new_err("points must lie in memory row after row"));
        }
        let dimension = array.dims()[1];
        let (data, len) = (array.data().cast_const(), array.len());
        Ok(Array { _owner: array.clone().unbind(), data, len, dimension })
    }

    fn points(&self) -> nearjoin::Result<Points<'_, T>> {
        Points::new(self.as_slice(), self.dimension)
    }

    fn as_slice(&self) -> &[T] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: numpy has `len` elements there, aligned and one after the other, as was checked.
        // It refuses to free or to move them while the owner is referred to, unless it is told not to
        // look (`resize(refcheck=False)`). Any bits are a number. That nobody resizes or writes to
        // them until the join, or the iterator, has ended is asked of users in the documentation, as
        // numpy asks it of those who call its own functions, which let go of the interpreter too.
        unsafe { core::slice::from_raw_parts(self.data, self.len) }
    }
}
