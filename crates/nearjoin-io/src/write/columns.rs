//! Scalars as Arrow columns and as bytes.

use std::any::Any;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Float64Array};
use arrow_schema::DataType;
use nearjoin::Scalar;

/// The Arrow type of `T`.
pub(super) fn data_type<T: Scalar>() -> DataType {
    match size_of::<T>() {
        4 => DataType::Float32,
        _ => DataType::Float64,
    }
}

/// A column of these values, without a copy.
pub(super) fn array<T: Scalar>(values: Vec<T>) -> ArrayRef {
    let values: Box<dyn Any> = Box::new(values);
    match values.downcast::<Vec<f32>>() {
        Ok(values) => Arc::new(Float32Array::from(*values)),
        Err(values) => match values.downcast::<Vec<f64>>() {
            Ok(values) => Arc::new(Float64Array::from(*values)),
            Err(_) => unreachable!("a scalar is f32 or f64"),
        },
    }
}

/// The bytes of these values as they lie in memory.
// A slice has no type at run time; the vector has.
#[allow(clippy::ptr_arg)]
pub(super) fn bytes<T: Scalar>(values: &Vec<T>) -> &[u8] {
    let values: &dyn Any = values;
    if let Some(values) = values.downcast_ref::<Vec<f32>>() {
        bytemuck::cast_slice(values)
    } else if let Some(values) = values.downcast_ref::<Vec<f64>>() {
        bytemuck::cast_slice(values)
    } else {
        unreachable!("a scalar is f32 or f64")
    }
}
