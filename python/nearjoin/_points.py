"""What users have their points in, as arrays that the engine can read."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def points(x: Any, y: Any = None) -> tuple[NDArray[Any], Optional[NDArray[Any]]]:
    """Both sets as rows in memory, of one type: float32 if both are, else float64.

    An array that is so already is not copied.
    """
    left = _array(x, "x")
    if y is None:
        return _ready(left, left.dtype), None
    right = left if y is x else _array(y, "y")
    dtype = np.result_type(left, right)
    return _ready(left, dtype), _ready(right, dtype)


def _ready(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED"])


def _array(data: Any, name: str) -> NDArray[Any]:
    """An array of rows, of float32 or float64 in the machine's order of bytes."""
    array = _as_numpy(data, name)
    if array.dtype == object:
        array = _of_objects(array, name)
    kind = array.dtype.kind
    if kind not in "fiub":
        what = "complex numbers" if kind == "c" else f"values of type {array.dtype}"
        raise TypeError(f"{name} has {what}: coordinates must be real numbers")
    if array.ndim != 2:
        hint = f": for points on a line, use {name}.reshape(-1, 1)" if array.ndim == 1 else ""
        raise ValueError(
            f"{name} must have a row for each point and a column for each coordinate, and has "
            f"{array.ndim} {'dimension' if array.ndim == 1 else 'dimensions'}{hint}"
        )
    if array.dtype.newbyteorder("=") in _FLOATS:
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    # Half precision is exact in float32.
    if array.dtype.itemsize == 2 and kind == "f":
        return array.astype(np.float32)
    return _exactly(array, name)


def _exactly(array: NDArray[Any], name: str) -> NDArray[Any]:
    """In float64, unless that would change a number."""
    wide = array.astype(np.float64)
    if array.dtype.itemsize < 8:
        return wide
    # A number that float64 rounds up may not come back: neither defined nor the same everywhere.
    most = 2.0**63 if array.dtype.kind == "i" else 2.0**64
    beyond = wide >= most if array.dtype.kind in "iu" else np.zeros(wide.shape, np.bool_)
    with np.errstate(invalid="ignore", over="ignore"):
        changed = beyond | ((wide.astype(array.dtype) != array) & ~np.isnan(wide))
    if changed.any():
        row, column = (int(at[0]) for at in changed.nonzero())
        raise ValueError(
            f"{name}: row {row}, column {column} is {array[row, column]}, which float64 has no number "
            "for: subtract an offset from the column, or convert it yourself if it may be rounded"
        )
    return wide


def _of_objects(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Objects of Python that are all numbers, or missing."""
    text = next((value for value in array.flat if isinstance(value, (str, bytes))), None)
    if text is not None:
        raise TypeError(f"{name} has values that are not numbers: {text!r}")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} has values that are not numbers: {error}") from None


def _as_numpy(data: Any, name: str) -> NDArray[Any]:
    if isinstance(data, np.ma.MaskedArray):
        if np.ma.is_masked(data):
            raise ValueError(f"{name} has masked values: every coordinate must be there")
        return np.asarray(data.data)
    if isinstance(data, np.ndarray):
        return np.asarray(data)
    library = type(data).__module__.partition(".")[0]
    if library == "pyarrow":
        return _of_pyarrow(data, name)
    if library == "polars":
        return _of_polars(data, name)
    if library == "pandas" and hasattr(data, "columns"):
        return _of_columns(data, data.columns, data.to_numpy, name)
    if hasattr(data, "toarray"):
        raise TypeError(f"{name} is sparse: points must be dense, as by {name}.toarray()")
    if hasattr(data, "__cuda_array_interface__"):
        raise TypeError(f"{name} is in the memory of a GPU: copy it to the host first")
    try:
        return np.asarray(data)
    except ValueError as error:
        raise ValueError(f"{name} is not an array of points: {error}") from None


def _of_columns(data: Any, labels: Any, all_at_once: Any, name: str) -> NDArray[Any]:
    """A frame as an array. Its library converts columns of whole numbers beside others without a word,
    so they are checked first."""
    if len(labels) > 1:
        for at, label in enumerate(labels):
            column = data.iloc[:, at] if hasattr(data, "iloc") else data[label]
            kind = str(column.dtype).lower()
            if kind in ("int64", "uint64"):
                values = np.asarray(column.to_numpy())
                if values.dtype.kind in "iu":
                    _exactly(values[:, None], f"{name}, column {label!r}")
    return np.asarray(all_at_once())


def _of_polars(data: Any, name: str) -> NDArray[Any]:
    if hasattr(data, "collect"):
        raise TypeError(f"{name} is a lazy frame: collect() it first")
    if hasattr(data, "columns"):
        if len(data.columns) > 1:
            return _of_columns(data, data.columns, data.to_numpy, name)
        data = data.to_series() if data.columns else data
        if not hasattr(data, "columns") and not str(data.dtype).startswith(("List", "Array")):
            return np.asarray(data.to_numpy()).reshape(-1, 1)
    array = data.to_numpy()
    # A column of lists of one length.
    if array.dtype == object and array.ndim == 1:
        try:
            array = np.stack(array) if len(array) else array.reshape(0, 1)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} is not an array of points: {error}") from None
    return np.asarray(array)


def _of_pyarrow(data: Any, name: str) -> NDArray[Any]:
    """A table or a batch of columns of numbers, or an array of lists of one length."""
    import pyarrow as pa

    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        if data.num_columns == 1 and _is_list(data.schema.field(0).type):
            return _of_pyarrow(data.column(0), name)
        columns = []
        for label, column in zip(data.column_names, data.columns):
            if column.null_count:
                raise ValueError(f"{name}: column {label!r} has {column.null_count} missing values")
            if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
                raise TypeError(f"{name}: column {label!r} has values of type {column.type}")
            values = column.to_numpy()
            if values.dtype.kind in "iu" and data.num_columns > 1:
                values = _exactly(values[:, None], f"{name}, column {label!r}")[:, 0]
            columns.append(values)
        return np.column_stack(columns) if columns else np.empty((data.num_rows, 0))
    if isinstance(data, pa.ChunkedArray):
        data = data.combine_chunks()
        if isinstance(data, pa.ChunkedArray):  # Of no chunks, in older versions.
            data = pa.concat_arrays(data.chunks) if data.num_chunks else pa.array([], data.type)
    if not isinstance(data, pa.Array) or not _is_list(data.type):
        raise TypeError(f"{name} is a {type(data).__name__} of pyarrow, not a table or lists of numbers")
    if data.null_count or data.flatten().null_count:
        raise ValueError(f"{name} has missing values: every coordinate must be there")
    if not pa.types.is_fixed_size_list(data.type):
        lengths = set(data.value_lengths().unique().to_pylist())
        if len(lengths) > 1:
            raise ValueError(f"{name} has lists of {len(lengths)} lengths: points must have one")
        dimension = lengths.pop() if lengths else 1
    else:
        dimension = data.type.list_size
    flat: NDArray[Any] = data.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(data), dimension)


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )
