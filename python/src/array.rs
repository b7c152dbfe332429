//! The engine's memory as arrays of numpy.
#![allow(unsafe_code)]

use nearjoin::Buffer;
use numpy::ndarray::{ArrayView, Dimension, IntoDimension};
use numpy::{Element, PyArray};
use pyo3::prelude::*;

/// Memory that an array of numpy refers to, given back with the last such array.
#[pyclass(frozen, module = "nearjoin._nearjoin")]
struct Memory {
    _memory: Box<dyn Send + Sync>,
}

/// Hands a buffer over to Python, as it is: not copied, and writable.
pub(crate) fn of_buffer<'py, T, D>(
    py: Python<'py>,
    mut buffer: Buffer<T>,
    shape: D,
) -> PyResult<Bound<'py, PyArray<T, D::Dim>>>
where
    T: Element + Send + Sync + 'static,
    D: IntoDimension<Dim: Dimension>,
{
    let shape = shape.into_dimension();
    assert_eq!(shape.size(), buffer.len());
    let data = buffer.as_mut_ptr();
    let owner = Bound::new(py, Memory { _memory: Box::new(buffer) })?;
    // SAFETY: there are as many elements as the shape says. They stay where they are when the buffer
    // moves into its owner, which the array keeps alive; and nobody but the array refers to them.
    unsafe {
        let view = ArrayView::from_shape_ptr(shape, data.cast_const());
        Ok(PyArray::borrow_from_array(&view, owner.into_any()))
    }
}
